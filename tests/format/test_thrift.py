"""Thrift structures as raw fields: what goes in comes out again, and any bytes are parsed or refused."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift import protocol

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.parquet_thrift import FileMetaData, KeyValue
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.thrift import (
    FieldType,
    RawField,
    encode_fields,
    encode_integer,
    encode_structure_list,
    parse_fields,
    parse_structure_list,
    structure_stops,
)
from tests.support.parquet_footers import footer_bytes, parquet_bytes

GOLDEN_FILES = sorted((Path(__file__).parents[1] / "golden" / "questdb").glob("*/table/*/data.parquet"))


def footer_of(path: Path) -> bytes:
    return footer_bytes(path.read_bytes()).content


def varint(value: int) -> bytes:
    """A count or a length: the encoding of integers without their sign."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes([*encoded, value])


scalars = st.one_of(
    st.tuples(st.just(FieldType.I8), st.binary(min_size=1, max_size=1)),
    st.tuples(st.just(FieldType.DOUBLE), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(FieldType.UUID), st.binary(min_size=16, max_size=16)),
    *(
        st.tuples(st.just(kind), st.integers(-(2**bits), 2**bits - 1).map(encode_integer))
        for kind, bits in ((FieldType.I16, 15), (FieldType.I32, 31), (FieldType.I64, 63))
    ),
    st.tuples(st.just(FieldType.BINARY), st.binary(max_size=200).map(lambda text: varint(len(text)) + text)),
)
elements = scalars | st.tuples(st.just(FieldType.TRUE), st.sampled_from([b"\1", b"\2"]))
"""Values in lists and maps, where a boolean is a byte."""


def list_of(values: list[tuple[FieldType, bytes]]) -> bytes:
    """A list of the values that have the first one's type."""
    of_type = [value for kind, value in values if kind == values[0][0]]
    kind = values[0][0] if values else 0
    size = len(of_type)
    return (bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + varint(size)) + b"".join(of_type)


def map_of(entries: list[tuple[tuple[FieldType, bytes], tuple[FieldType, bytes]]]) -> bytes:
    if not entries:
        return b"\0"
    kinds = (entries[0][0][0], entries[0][1][0])
    fitting = [key + value for (key_kind, key), (value_kind, value) in entries if (key_kind, value_kind) == kinds]
    return varint(len(fitting)) + bytes([kinds[0] << 4 | kinds[1]]) + b"".join(fitting)


def structure_of(fields: list[tuple[int, tuple[FieldType, bytes]]]) -> bytes:
    return encode_fields(RawField(number, kind, value) for number, (kind, value) in fields)


booleans = st.tuples(st.sampled_from([FieldType.TRUE, FieldType.FALSE]), st.just(b""))


def containers(values: st.SearchStrategy[tuple[FieldType, bytes]]) -> st.SearchStrategy[tuple[FieldType, bytes]]:
    numbers = st.integers(-(2**15), 2**15 - 1)
    return st.one_of(
        st.tuples(st.sampled_from([FieldType.LIST, FieldType.SET]), st.lists(values, max_size=20).map(list_of)),
        st.tuples(st.just(FieldType.MAP), st.lists(st.tuples(values, values), max_size=4).map(map_of)),
        st.tuples(
            st.just(FieldType.STRUCT),
            st.lists(st.tuples(numbers, values.filter(lambda value: value[0] != FieldType.TRUE)), max_size=4).map(
                structure_of
            ),
        ),
    )


field_lists = st.lists(
    st.tuples(
        st.integers(-(2**15), 2**15 - 1),
        booleans | scalars | st.recursive(elements, containers, max_leaves=8).filter(lambda v: v[0] != FieldType.TRUE),
    ).map(lambda pair: RawField(pair[0], *pair[1])),
    max_size=6,
)


@given(field_lists, st.binary(max_size=3))
def test_fields_come_back(fields: list[RawField], behind: bytes) -> None:
    assert parse_fields(encode_fields(fields) + behind) == fields


@given(st.lists(field_lists.map(encode_fields), max_size=20))
def test_lists_of_structures_come_back(structures: list[bytes]) -> None:
    assert parse_structure_list(encode_structure_list(structures)) == structures


@pytest.mark.parametrize("path", GOLDEN_FILES[::5], ids=lambda path: f"{path.parts[-4]}/{path.parts[-2]}")
def test_genuine_footers_come_back(path: Path) -> None:
    footer = footer_of(path)
    fields = parse_fields(footer)
    assert encode_fields(fields) == footer
    for field in fields:
        if field.number in {2, 4, 5}:  # schema, row groups, key-value metadata
            assert encode_structure_list(parse_structure_list(field.value)) == field.value


def test_what_is_encoded_is_what_thrift_decodes() -> None:
    entries = [KeyValue(key=f"k{number}", value="v" * number).encode() for number in range(20)]
    for count in (0, 1, 14, 15, 20):
        content = encode_fields(
            [
                RawField(3, FieldType.I64, encode_integer(-5)),
                RawField(5, FieldType.LIST, encode_structure_list(entries[:count])),
            ]
        )
        decoded = FileMetaData.decode(content, path=None, offset=0)
        assert decoded.num_rows == -5
        assert [entry.key for entry in decoded.key_value_metadata or []] == [f"k{n}" for n in range(count)]


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(content: bytes) -> None:
    for parse in (parse_fields, parse_structure_list):
        try:
            parse(content)
        except FormatError as error:
            assert error.kind == "InvalidThrift"  # noqa: PT017 - some bytes are structures by chance


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x1c",  # a structure without its end
        b"\x15\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # a number that goes on
        b"\x18\x7fabc",  # more text than there is
        b"\x1e\0",  # type 14
        b"\x19\xf5\xff\xff\xff\xff\x0f",  # four billion numbers
        b"\x1b\xff\xff\xff\xff\x0f\x55",  # four billion entries
        b"\x19" + b"\x19" * 200,  # lists in lists
        b"\x1a" + b"\x1b" * 200,
    ],
)
def test_damage_is_refused_at_once(content: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        parse_fields(content)
    assert caught.value.kind == "InvalidThrift"


def test_lists_of_other_things_are_refused() -> None:
    with pytest.raises(FormatError):
        parse_structure_list(b"\x25\x02\x04")


def test_structures_end_at_the_same_byte_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    structures = [KeyValue(key="k" * size, value=None).encode() for size in (1, 200, 3)]
    structures.append(footer_of(GOLDEN_FILES[0]))
    content = b"before" + b"".join(structures)
    fast = structure_stops(content, 6, len(structures))
    monkeypatch.delattr(protocol, "fastbinary", raising=False)
    monkeypatch.setitem(sys.modules, "thrift.protocol.fastbinary", None)
    assert structure_stops(content, 6, len(structures)) == fast
    assert fast[-1] == len(content)
    with pytest.raises(FormatError):
        structure_stops(content, 6, len(structures) + 1)


# --- Any bytes in: a model or an error of ours, in little time and memory, with and without Thrift's C extension ---


GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"


def _small_foreign_footer() -> bytes:
    table = pa.table({"a": pa.array([1, None], pa.uint32()), "b": [[1.0], None], "c": ["x", "yy"]})
    return footer_bytes(parquet_bytes(table, store_schema=False)).content


FOREIGN = _small_foreign_footer()
GENUINE = footer_bytes(next(iter(sorted((GOLDEN / "symbols").glob("table/*/data.parquet")))).read_bytes()).content


def _read(footer: bytes) -> None:
    """Go all the way to a sidecar; only the errors of ours may come out."""
    try:
        encode_sidecar(sidecar_content_from_footer(parse_footer(footer, path="p", offset=4)))
    except (FormatError, UnsupportedError) as error:
        assert error.path == "p"  # noqa: PT017 - many inputs are fine, so nothing need be raised


@pytest.fixture
def without_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(protocol, "fastbinary", raising=False)
    monkeypatch.setitem(sys.modules, "thrift.protocol.fastbinary", None)


HOSTILE = {
    "list of 2^31 structures": b"\x29\xfc\xff\xff\xff\xff\x07",
    "list of 2^31 skipped integers": b"\xf9\xf5\xff\xff\xff\xff\x07",
    "string of 2^31 bytes": b"\x68\xff\xff\xff\xff\x07abc",
    "negative length": b"\x29\xfc\xff\xff\xff\xff\x0f",
    "structures nested a million deep": b"\xfc" + b"\x1c" * 1_000_000,
    "lists nested a million deep": b"\xf9" + b"\x19" * 1_000_000,
    "varint without end": b"\x15" + b"\xff" * 1_000_000,
    "map of 2^31 entries": b"\xfb\xff\xff\xff\xff\x07\x55",
}


@pytest.mark.parametrize("footer", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("extension", ["C", "Python"])
def test_hostile_lengths_allocate_nothing(footer: bytes, extension: str, request: pytest.FixtureRequest) -> None:
    if extension == "Python":
        request.getfixturevalue("without_extension")
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            parse_footer(footer, path="p", offset=4)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.kind == "InvalidThrift"
    assert peak_bytes < 8 * len(footer) + 500_000


@pytest.mark.usefixtures("without_extension")
def test_python_decodes_and_encodes_like_the_extension(request: pytest.FixtureRequest) -> None:
    for footer in (FOREIGN, GENUINE):
        decoded = FileMetaData.decode(footer, path=None, offset=0)
        encoded = decoded.encode()
        assert decoded.row_groups
        request.getfixturevalue("monkeypatch").undo()
        assert FileMetaData.decode(footer, path=None, offset=0) == decoded
        assert FileMetaData.decode(encoded, path=None, offset=0) == decoded
        assert decoded.encode() == encoded


@pytest.mark.usefixtures("without_extension")
def test_python_survives_flipped_bytes() -> None:
    for position in range(len(FOREIGN)):
        damaged = bytearray(FOREIGN)
        damaged[position] ^= 0xFF
        _read(bytes(damaged))
