"""Any bytes in: a model, or an error of ours that says what is wrong. One harness for all formats."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.catalogue_file import encode_catalogue
from coldparquet.format.native import parse_column_versions, parse_symbol_offsets, parse_symbols
from coldparquet.format.page_index import encode_pages_file, parse_pages_file
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.table_metadata import encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import parse_txn, parse_version
from coldparquet.records import replace
from tests.support.damage import catalogue_entry, unpacked
from tests.support.paged_files import paged_file, rows_of_all_kinds
from tests.support.parquet_footers import footer_bytes, parquet_bytes
from tests.support.table_files import as_values, make_cv, make_symbol_files

GOLDEN = Path(__file__).parents[1] / "golden"
SIDECARS = (
    "01_empty",
    "04_sample_b",
    "05_sample_c",
    "11_no_timestamp",
    "14_one_sided",
    "17_bloom_external",
    "18_squash_tracker",
    "19_sections",
    "20_chain_3",
    "21_dead_footer",
    "22_token_only",
    "30_unknown_footer_bit",
)
PATH = "dir/file"


@dataclass(frozen=True)
class Format:
    """One format: a file of it that ends with its last byte that counts, and its reader."""

    data: bytes
    read: Callable[[bytes], object]
    """Makes all of the model; gives something that is true."""
    cut_kinds: frozenset[str] = frozenset({"Truncated"})
    """Kinds of the errors for a file that is cut off."""
    is_sealed: bool = False
    """A checksum covers it: every other byte is refused."""


def read_sidecar(data: bytes) -> object:
    return parse_sidecar(data, path=PATH)


@cache
def small_pages() -> Format:
    file = paged_file(rows_of_all_kinds(40), row_group_size=40)
    pages = file.indexed().pages
    assert pages is not None

    def read(data: bytes) -> object:
        return parse_pages_file(data, parquet_size_bytes=len(file.data), etag='"abc"', places=file.places, path=PATH)

    data = encode_pages_file(pages, file.places, parquet_size_bytes=len(file.data), etag='"abc"')
    return Format(data, read, is_sealed=True)


def live_part_of_txn(table: str) -> bytes:
    data = (GOLDEN / "questdb" / table / "table" / "_txn").read_bytes()
    version, *areas = struct.unpack_from("<qiii12xiii", data)
    start, symbol_bytes, partition_bytes = areas[3:] if version % 2 else areas[:3]
    live = data[: start + 136 + symbol_bytes + partition_bytes]
    assert as_values(parse_txn(live, path=None)) == as_values(parse_txn(data, path=None))
    return live


def read_txn(data: bytes) -> object:
    parsed = as_values(parse_txn(data, path=PATH))
    assert parsed["txn"] == parse_version(data, path=None)
    return parsed


def metadata_without_trailer(table: str) -> bytes:
    metadata = parse_table_metadata((GOLDEN / "questdb" / table / "table" / "_meta").read_bytes(), path=None)
    return encode_table_metadata(replace(metadata, trailer=b""))


def foreign_footer() -> bytes:
    table = pa.table({"a": pa.array([1, None], pa.uint32()), "b": [[1.0], None], "c": ["x", "yy"]})
    return footer_bytes(parquet_bytes(table, store_schema=False)).content


def read_footer(data: bytes) -> object:
    """Go all the way to a sidecar."""
    return encode_sidecar(sidecar_content_from_footer(parse_footer(data, path=PATH, offset=4)))


GENUINE = footer_bytes(
    next(iter(sorted((GOLDEN / "questdb/symbols").glob("table/*/data.parquet")))).read_bytes()
).content
OFFSETS, CHARS = make_symbol_files(["one", "ü€", ""])
NOT_THRIFT = frozenset({"InvalidThrift", "InvalidSchema"})

FORMATS = {
    **{
        f"_pm {name}": Format((GOLDEN / "pm" / f"{name}.pm").read_bytes(), read_sidecar, is_sealed=True)
        for name in SIDECARS
    },
    "_pages": small_pages(),
    "_catalogue": Format(
        encode_catalogue([catalogue_entry(number) for number in range(1, 12)]),
        lambda data: unpacked(data, PATH),
        frozenset({"Truncated", "ChecksumMismatch", "InvalidValue"}),
        is_sealed=True,
    ),
    **{f"_txn {table}": Format(live_part_of_txn(table), read_txn) for table in ("types_all", "none", "o3_in_place")},
    **{
        f"_meta {table}": Format(metadata_without_trailer(table), lambda data: parse_table_metadata(data, path=PATH))
        for table in ("column_added_before", "types_all")
    },
    "_cv": Format(
        make_cv([(-(1 << 63), 2, 5, 300), (300, 2, 5, 60)]),
        lambda data: parse_column_versions(data, path=PATH).column(300, 2),
    ),
    "symbol offsets": Format(
        OFFSETS, lambda data: parse_symbols(CHARS, parse_symbol_offsets(data, 3, path=PATH), path=PATH)
    ),
    "symbol chars": Format(
        CHARS, lambda data: parse_symbols(data, parse_symbol_offsets(OFFSETS, 3, path=None), path=PATH)
    ),
    "footer foreign": Format(foreign_footer(), read_footer, NOT_THRIFT),
    "footer genuine": Format(GENUINE, read_footer, NOT_THRIFT),
}
every_format = pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS.keys())


def assert_model_or_refusal(format_: Format, data: bytes) -> None:
    try:
        outcome = format_.read(data)
    except (FormatError, UnsupportedError) as error:
        outcome = error.path == PATH
    assert outcome


@every_format
def test_the_file_itself_is_read(format_: Format) -> None:
    assert format_.read(format_.data)


@every_format
def test_every_shorter_file_is_refused(format_: Format) -> None:
    for length in range(len(format_.data)):
        with pytest.raises(FormatError) as caught:
            format_.read(format_.data[:length])
        assert caught.value.kind in format_.cut_kinds
        assert caught.value.path == PATH


@every_format
@pytest.mark.parametrize("mask", [0x01, 0x10, 0x80, 0xFF])
def test_every_flipped_byte_is_refused_or_makes_another_model(format_: Format, mask: int) -> None:
    """Sealed formats refuse all of them.

    In a sidecar the checksum covers neither committed size nor trailer. Either leads to a footer that is none, which
    structure, flags, the exact length and the place of the footer or the checksum of another range expose.
    """
    for position in range(len(format_.data)):
        damaged = bytearray(format_.data)
        damaged[position] ^= mask
        if format_.is_sealed:
            with pytest.raises((FormatError, UnsupportedError)):
                format_.read(bytes(damaged))
        else:
            assert_model_or_refusal(format_, bytes(damaged))


@every_format
@given(kept=st.integers(0, 200), data=st.binary(max_size=300))
def test_random_bytes_behind_a_begin(format_: Format, kept: int, data: bytes) -> None:
    assert_model_or_refusal(format_, format_.data[:kept] + data)
    assert_model_or_refusal(format_, data)


@every_format
@given(data=st.data())
def test_some_bytes_replaced(format_: Format, data: st.DataObject) -> None:
    damaged = bytearray(format_.data)
    places = st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255))
    for position, byte in data.draw(st.lists(places, min_size=1, max_size=8)):
        damaged[position] = byte
    assert_model_or_refusal(format_, bytes(damaged))


@pytest.mark.parametrize("name", ["_pages", "_catalogue"])
def test_a_newer_version_is_not_guessed_at(name: str) -> None:
    data = bytearray(FORMATS[name].data)
    data[8] += 1
    with pytest.raises(UnsupportedError) as caught:
        FORMATS[name].read(bytes(data))
    assert caught.value.kind == "UnsupportedVersion"


@pytest.mark.parametrize("name", ["_pages"])
def test_a_longer_file_is_refused(name: str) -> None:
    with pytest.raises(FormatError):
        FORMATS[name].read(FORMATS[name].data + b"\0")
