"""Slices of native column files become the values that were written, for every type; damage becomes clear errors."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.decode import native
from coldparquet.decode.arrow import PLAIN_TEXT, TEXT_AS_STORED, TextAs
from coldparquet.decode.native import decode_native_rows
from coldparquet.errors import FormatError, InternalError, UnsupportedError
from coldparquet.format.type_codes import TypeTag, array_type_code, decimal_type_code
from coldparquet.format.types import canonical_type
from coldparquet.plan.columns import TableColumn
from coldparquet.plan.native import NativeColumn, RowSlices, native_reads
from tests.support.native_partitions import SYMBOLS, decode, dictionary, encode_column, native_column


def geohash_code(tag: TypeTag, bits: int) -> int:
    return tag | 1 << 16 | bits << 8


def integers(bits: int) -> st.SearchStrategy[int]:
    """Signed integers; the smallest one means null."""
    return st.integers(-(1 << (bits - 1)) + 1, (1 << (bits - 1)) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    largest = 10**precision - 1
    return st.integers(-largest, largest).map(lambda value: Decimal((int(value < 0), _digits(value), -scale)))


def _digits(value: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(value))))


TEXT = st.text(max_size=14) | st.sampled_from(["", "123456789", "1234567890", "🚀" * 3, "ééééé"])
ELEMENTS = st.none() | st.floats(allow_nan=False)
GRIDS = st.tuples(st.integers(1, 3), st.integers(1, 3)).flatmap(
    lambda shape: st.lists(
        st.lists(ELEMENTS, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
    )
)
BYTES_16 = st.binary(min_size=16, max_size=16)

NEVER_NULL: dict[int, st.SearchStrategy[Any]] = {
    TypeTag.BOOLEAN: st.booleans(),
    TypeTag.BYTE: st.integers(-128, 127),
    TypeTag.SHORT: st.integers(-(1 << 15), (1 << 15) - 1),
    TypeTag.CHAR: st.integers(0, (1 << 16) - 1),
}
NULLABLE: dict[int, st.SearchStrategy[Any]] = {
    TypeTag.INT: integers(32),
    TypeTag.LONG: integers(64),
    TypeTag.DATE: integers(64),
    TypeTag.TIMESTAMP: integers(64),
    TypeTag.FLOAT: st.floats(allow_nan=False, width=32),
    TypeTag.DOUBLE: st.floats(allow_nan=False),
    TypeTag.STRING: TEXT,
    TypeTag.VARCHAR: TEXT,
    TypeTag.BINARY: st.binary(max_size=20),
    TypeTag.LONG256: st.binary(min_size=32, max_size=32),
    TypeTag.LONG128: BYTES_16,
    TypeTag.UUID: BYTES_16,
    TypeTag.IPV4: st.integers(1, (1 << 32) - 1),
    geohash_code(TypeTag.GEOBYTE, 7): st.integers(0, (1 << 7) - 1),
    geohash_code(TypeTag.GEOSHORT, 15): st.integers(0, (1 << 15) - 1),
    geohash_code(TypeTag.GEOINT, 31): st.integers(0, (1 << 31) - 1),
    geohash_code(TypeTag.GEOLONG, 60): st.integers(0, (1 << 60) - 1),
    array_type_code(1): st.lists(ELEMENTS, max_size=4),
    array_type_code(2): GRIDS,
    decimal_type_code(2, 1): decimals(2, 1),
    decimal_type_code(4, 0): decimals(4, 0),
    decimal_type_code(9, 9): decimals(9, 9),
    decimal_type_code(18, 6): decimals(18, 6),
    decimal_type_code(38, 10): decimals(38, 10),
    decimal_type_code(76, 20): decimals(76, 20),
}
VALUES = NEVER_NULL | {code: st.none() | values for code, values in NULLABLE.items()}


def plain_values(array: pa.ChunkedArray[Any]) -> list[Any]:
    """Return Python values; dates and timestamps as integers."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    return array.to_pylist()


@given(data=st.data())
@pytest.mark.parametrize("type_code", VALUES, ids=lambda code: canonical_type(code).name)
@settings(max_examples=40)
def test_values_come_back_from_any_rows_of_a_column(type_code: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[type_code], min_size=1, max_size=12))
    top = data.draw(st.integers(0, 4))
    column = native_column(type_code, top=top)
    first_row = data.draw(st.integers(0, top + len(values) - 1))
    rows = range(first_row, data.draw(st.integers(first_row + 1, top + len(values))))
    absent = None if type_code in NULLABLE else NEVER_NULL_VALUE[type_code]
    found = decode(column, encode_column(column, values), rows)
    assert plain_values(found) == ([absent] * top + values)[rows.start : rows.stop]


@pytest.mark.parametrize("tag", [TypeTag.STRING, TypeTag.VARCHAR])
def test_strings_as_dictionaries(tag: TypeTag) -> None:
    column = native_column(tag, top=2)
    values = ["a", "", None, "b", "a"]
    as_dictionaries = TextAs(symbols="dictionary", strings="dictionary")
    found = decode(column, encode_column(column, values), range(1, 7), text=as_dictionaries)
    assert found.type == pa.dictionary(pa.int32(), pa.string())
    assert found.to_pylist() == [None, *values]


NEVER_NULL_VALUE: dict[int, Any] = {TypeTag.BOOLEAN: False, TypeTag.BYTE: 0, TypeTag.SHORT: 0, TypeTag.CHAR: 0}


@pytest.mark.parametrize("type_code", VALUES, ids=lambda code: canonical_type(code).name)
def test_a_column_that_is_absent_is_made(type_code: int) -> None:
    found = decode(native_column(type_code, top=None), {}, range(2, 5))
    assert found.to_pylist() == [NEVER_NULL_VALUE.get(type_code)] * 3


@given(keys=st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=10), top=st.integers(0, 3))
def test_symbols(keys: list[int | None], top: int) -> None:
    column = native_column(TypeTag.SYMBOL, top=top)
    files = encode_column(column, keys)
    rows = range(top + len(keys))
    expected = [None] * top + [None if key is None else SYMBOLS[key] for key in keys]
    found = decode(column, files, rows, dictionary=dictionary())
    assert found.type == pa.dictionary(pa.int32(), pa.string())
    assert found.to_pylist() == expected
    used = [text for text in SYMBOLS if text in expected]
    last_chunk: Any = found.chunk(found.num_chunks - 1)
    assert last_chunk.dictionary.to_pylist() == used
    as_text = decode(column, files, rows, dictionary=dictionary(), text=PLAIN_TEXT)
    assert as_text.type == pa.string()
    assert as_text.to_pylist() == expected


def test_a_symbol_column_needs_its_dictionary() -> None:
    column = native_column(TypeTag.SYMBOL)
    with pytest.raises(InternalError, match="without its dictionary"):
        decode(column, encode_column(column, [1]), range(1))


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    column = native_column(TypeTag.STRING)
    # The halves in the second and third value belong to different values: they make no pair.
    values = ["a\ud83d", "\ud83d", "\ude80b", "🚀"]
    found = decode(column, encode_column(column, values), range(4))
    assert found.to_pylist() == ["a\ufffd", "\ufffd", "\ufffdb", "🚀"]


def test_nan_is_null_and_infinity_is_not() -> None:
    column = native_column(TypeTag.DOUBLE)
    found = decode(column, {"x.d": struct.pack("<4d", float("nan"), float("inf"), -float("inf"), -0.0)}, range(4))
    assert found.to_pylist() == [None, float("inf"), -float("inf"), 0.0]
    assert str(found[3].as_py()) == "-0.0"


@pytest.mark.parametrize(
    ("type_code", "values"),
    [
        (TypeTag.STRING, [f"value {row}" for row in range(40)]),
        (TypeTag.VARCHAR, [f"value {row}" * (row % 3) for row in range(40)]),
        (TypeTag.BINARY, [None, b"abcd" * 4] * 20),
        (array_type_code(1), [[float(row)] * (row % 4) for row in range(40)]),
    ],
)
def test_more_bytes_than_offsets_can_say_become_several_arrays(
    type_code: int, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "LARGEST_CHUNK_BYTES", 100)
    column = native_column(type_code)
    found = decode(column, encode_column(column, values), range(40))
    assert found.to_pylist() == values
    assert found.num_chunks > 3


def test_a_value_longer_than_offsets_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "LARGEST_CHUNK_BYTES", 100)
    column = native_column(TypeTag.VARCHAR)
    with pytest.raises(UnsupportedError, match="row 1 may take 101 bytes") as caught:
        decode(column, encode_column(column, ["short", "x" * 101]), range(2))
    assert caught.value.kind == "TooLarge"


def test_no_columns_still_have_rows() -> None:
    column = native_column(TypeTag.INT)
    [read] = native_reads(
        RowSlices.of(range(5), rows_per_slice=5),
        [column],
        directory_path="p",
        partition_index=0,
        data_ranges={},
        symbols={},
        all_rows_match=True,
    )
    table = decode_native_rows(memoryview(bytes(20)), read, [], text=TEXT_AS_STORED)
    assert (table.num_rows, table.num_columns) == (5, 0)


def test_a_column_that_was_not_planned_is_a_bug() -> None:
    planned = native_column(TypeTag.INT)
    other = TableColumn(index=1, name="other", id=1, type=planned.type)
    [read] = native_reads(
        RowSlices.of(range(1), rows_per_slice=1),
        [planned],
        directory_path="p",
        partition_index=0,
        data_ranges={},
        symbols={},
        all_rows_match=True,
    )
    with pytest.raises(InternalError, match="planned without column 'other'"):
        decode_native_rows(memoryview(bytes(4)), read, [other], text=TEXT_AS_STORED)


# --- Damaged native column files: a clear error that names the partition, the column and the row; never a crash -------


ROWS = 5
TOP = 100
"""Errors name rows of the partition, which are not those of the files."""

WORDS = ["one", None, "a word that is not inlined", "another that is not inlined", ""]
COLUMNS: dict[str, tuple[NativeColumn, list[object]]] = {
    "BOOLEAN": (native_column(TypeTag.BOOLEAN, top=TOP), [True, False, True, False, True]),
    "SYMBOL": (native_column(TypeTag.SYMBOL, top=TOP), [0, 1, None, 2, 3]),
    "STRING": (native_column(TypeTag.STRING, top=TOP), list(WORDS)),
    "VARCHAR": (native_column(TypeTag.VARCHAR, top=TOP), list(WORDS)),
    "BINARY": (native_column(TypeTag.BINARY, top=TOP), [b"abc", None, b"", b"0123456789", b"x"]),
    "DOUBLE[]": (native_column(array_type_code(1), top=TOP), [[1.0], None, [], [2.0, 3.0], [4.0]]),
    "DECIMAL": (native_column(decimal_type_code(3, 1), top=TOP), [None] * ROWS),
}


def patched(files: dict[str, bytes], name: str, offset: int, new: bytes) -> dict[str, bytes]:
    old = files[name]
    return files | {name: old[:offset] + new + old[offset + len(new) :]}


@pytest.mark.parametrize(
    ("type_name", "damage", "row", "message"),
    [
        ("BOOLEAN", ("x.d", 3, b"\x02"), 103, "neither true nor false"),
        ("SYMBOL", ("x.d", 4, struct.pack("<i", 5)), 101, "symbol key outside of the dictionary, which has 5 symbols"),
        ("STRING", ("x.i", 16, struct.pack("<q", 2)), 101, "does not lie behind that of the row before"),
        ("STRING", ("x.i", 24, struct.pack("<q", 1 << 40)), 102, "does not lie behind"),
        ("STRING", ("x.d", 0, struct.pack("<i", 4)), 100, "longer than its offsets leave room for"),
        ("STRING", ("x.d", 0, struct.pack("<i", (1 << 31) - 1)), 100, "longer than its offsets leave room for"),
        ("BINARY", ("x.d", 0, struct.pack("<q", (1 << 63) - 1)), 100, "longer than its offsets leave room for"),
        ("BINARY", ("x.i", 8, struct.pack("<q", -(1 << 63))), 100, "does not lie behind"),
        ("VARCHAR", ("x.i", 0, b"\xf3"), 100, "longer than there is room for"),
        ("VARCHAR", ("x.i", 32, bytes(16)), 102, "zeros"),
        ("VARCHAR", ("x.i", 32, struct.pack("<I", 1 << 30)), 102, "longer than there is room for"),
        ("VARCHAR", ("x.i", 48 + 10, struct.pack("<HI", 3, 0)), 103, "does not lie behind the value before it"),
        ("VARCHAR", ("x.i", 48 + 10, struct.pack("<HI", 0, 1 << 31)), 103, "does not lie behind the value before it"),
        ("DOUBLE[]", ("x.i", 8, struct.pack("<i", -8)), 100, "longer than there is room for"),
        ("DOUBLE[]", ("x.i", 48, struct.pack("<q", 8)), 103, "does not lie behind the value before it"),
    ],
)
def test_an_error_names_the_row(type_name: str, damage: tuple[str, int, bytes], row: int, message: str) -> None:
    column, values = COLUMNS[type_name]
    files = patched(encode_column(column, values), *damage)
    with pytest.raises(FormatError, match=message) as caught:
        decode(column, files, range(TOP - 2, TOP + ROWS), dictionary=dictionary())
    assert caught.value.details["row"] == row
    assert f"row {row}" in caught.value.message
    assert "column 'x'" in caught.value.message
    assert caught.value.path == "p"


@pytest.mark.parametrize(
    ("type_name", "file", "offset", "new", "message"),
    [
        ("VARCHAR", "x.d", 0, b"\xff", "UTF8"),
        ("DOUBLE[]", "x.d", 0, struct.pack("<i", 7), "another number of elements"),
        ("DECIMAL", "x.d", 0, struct.pack("<h", 1000), "precision"),
    ],
)
def test_values_that_do_not_fit_their_type(type_name: str, file: str, offset: int, new: bytes, message: str) -> None:
    column, values = COLUMNS[type_name]
    files = patched(encode_column(column, values), file, offset, new)
    with pytest.raises(FormatError, match=message) as caught:
        decode(column, files, range(TOP, TOP + ROWS))
    assert "column 'x'" in caught.value.message
    assert caught.value.path == "p"


@given(data=st.data())
@pytest.mark.parametrize("type_name", COLUMNS)
def test_whatever_the_bytes_are_rows_or_a_clear_error_come_out(type_name: str, data: st.DataObject) -> None:
    column, values = COLUMNS[type_name]
    files = encode_column(column, values)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(files)))
        offset = data.draw(st.integers(0, len(files[name]) - 1))
        files = patched(files, name, offset, bytes([data.draw(st.integers(0, 255))]))
    try:
        found = decode(column, files, range(TOP, TOP + ROWS), dictionary=dictionary())
    except (FormatError, UnsupportedError) as error:
        assert "'x'" in error.message  # noqa: PT017 - rows are as good
    else:
        assert len(found) == ROWS
