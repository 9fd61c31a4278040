from __future__ import annotations

import json
import struct
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format import binary as table_file_text
from coldparquet.format.binary import Utf8Strings, utf16_to_utf8
from coldparquet.format.native import (
    CHARS_EXTENSION,
    OFFSETS_EXTENSION,
    parse_column_versions,
    parse_symbol_offsets,
    parse_symbols,
    symbol_file_name,
    symbol_offsets_range,
)
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import parse_txn
from coldparquet.ranges import ByteRange
from tests.support.table_files import make_symbol_files as make_files

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
TABLES = sorted(path.parent for path in GOLDEN.glob("*/table"))


def strings_of(strings: Utf8Strings) -> list[str]:
    return [strings.utf8[start:stop].decode() for start, stop in pairwise(strings.offsets.tolist())]


def parse_files(offsets: bytes, chars: bytes, count: int) -> list[str]:
    return strings_of(parse_symbols(chars, parse_symbol_offsets(offsets, count, path="x.o"), path="x.c"))


# --- Genuine files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.name)
def test_dictionaries_hold_the_symbols_of_the_rows(table: Path) -> None:
    folder = table / "table"
    metadata = parse_table_metadata((folder / "_meta").read_bytes(), path=None)
    transaction = parse_txn((folder / "_txn").read_bytes(), path=None)
    versions = parse_column_versions((folder / "_cv").read_bytes(), path=None)
    answers = {column["column"]: column for column in json.loads((table / "expected" / "columns.json").read_bytes())}
    with pa.memory_map(str(table / "expected" / "rows.arrow")) as source:
        rows = pa.ipc.open_file(source).read_all()
    symbol_columns = [column for column in metadata.columns if column.symbol_index is not None]
    assert symbol_columns
    for column in symbol_columns:
        assert column.symbol_index is not None
        count = transaction.symbol_counts[column.symbol_index]
        name_txn = versions.symbol_name_txn(column.writer_index)
        offsets_file = (folder / symbol_file_name(column.name, OFFSETS_EXTENSION, name_txn)).read_bytes()
        chars_file = (folder / symbol_file_name(column.name, CHARS_EXTENSION, name_txn)).read_bytes()
        where = symbol_offsets_range(count)
        offsets = parse_symbol_offsets(offsets_file[where.start : where.stop], count, path=None)
        symbols = strings_of(parse_symbols(chars_file[: offsets[-1]], offsets, path=None))
        assert len(symbols) == len(set(symbols)) == count
        in_rows = set(pc.unique(rows[column.name]).to_pylist()) - {None}
        assert in_rows <= set(symbols)
        # The server counts a null that was ever stored as one more symbol.
        assert answers[column.name]["symbolTableSize"] - count in {0, 1}


def test_a_dictionary_of_the_rows_that_were_kept_is_complete() -> None:
    """No rows were deleted or replaced in these tables, so each symbol is in some row."""
    for table, column in (("symbols", "many"), ("interval_day", "sym"), ("none", "side")):
        with pa.memory_map(str(GOLDEN / table / "expected" / "rows.arrow")) as source:
            in_rows = set(pc.unique(pa.ipc.open_file(source).read_all()[column]).to_pylist()) - {None}
        chars = (GOLDEN / table / "table" / f"{column}.c").read_bytes()
        offsets_file = (GOLDEN / table / "table" / f"{column}.o").read_bytes()
        where = symbol_offsets_range(len(in_rows))
        assert set(parse_files(offsets_file[where.start : where.stop], chars, len(in_rows))) == in_rows


# --- Names and ranges --------------------------------------------------------------------------------------------------


def test_names_and_ranges() -> None:
    assert symbol_file_name("side", OFFSETS_EXTENSION, -1) == "side.o"
    assert symbol_file_name("side", CHARS_EXTENSION, 0) == "side.c.0"
    assert symbol_offsets_range(0) == ByteRange(64, 72)
    assert symbol_offsets_range(5) == ByteRange(64, 112)
    with pytest.raises(InvalidInputError, match="-1 symbols"):
        symbol_offsets_range(-1)


# --- Text --------------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=9), max_size=9))
def test_text_of_all_kinds(symbols: list[str]) -> None:
    assert parse_files(*make_files(symbols), len(symbols)) == symbols


@given(st.lists(st.text("a\u00e9\u20ac\U0001f600\ud83d\ude00", max_size=5), max_size=5))
def test_surrogates_without_their_other_half_are_replaced(symbols: list[str]) -> None:
    parsed = parse_files(*make_files(symbols), len(symbols))
    for text, symbol in zip(parsed, symbols, strict=True):
        # In UTF-16 two adjacent halves are a pair, however they came together; but never across two symbols.
        paired = symbol.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        assert text == "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in paired)


def test_halves_of_a_pair_in_two_symbols_stay_apart() -> None:
    assert parse_files(*make_files(["a\ud83d", "\ude00b"]), 2) == ["a\ufffd", "\ufffdb"]
    assert parse_files(*make_files(["\ud83d\ud83d\ude00\ude00"]), 1) == ["\ufffd\U0001f600\ufffd"]


def test_only_the_symbols_of_the_transaction_are_read() -> None:
    offsets, chars = make_files(["one", "zwei", "три"])
    assert parse_files(offsets, chars, 2) == ["one", "zwei"]
    assert parse_files(offsets + b"\xff" * 8, chars + b"\xff" * 9, 3) == ["one", "zwei", "три"]
    assert parse_files(offsets, b"", 0) == []


def test_more_text_than_arrow_can_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file_text, "_LARGEST_ARROW_OFFSET", 3)
    assert parse_files(*make_files(["ab", "c"]), 2) == ["ab", "c"]
    with pytest.raises(UnsupportedError, match="4 bytes of text") as caught:
        parse_files(*make_files(["ab", "cd"]), 2)
    assert caught.value.kind == "TooLarge"


def test_units_need_no_lengths_between_them() -> None:
    units = np.frombuffer("aé😀".encode("utf-16-le"), np.uint16)
    assert strings_of(utf16_to_utf8(units, np.array([0, 1, 1, 4]))) == ["a", "", "é😀"]


# --- Bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "index"),
    [
        ([4, 8, 12], 0),
        ([-4, 8, 12], 0),
        ([0, 3, 12], 1),
        ([0, 5, 12], 1),
        ([0, 0, 12], 1),
        ([0, 12, 8], 2),
        ([0, -8, 12], 1),
        ([0, (1 << 63) - 2, -(1 << 63) + 2], 2),
    ],
)
def test_offsets_that_cannot_be(offsets: list[int], index: int) -> None:
    with pytest.raises(FormatError, match=f"offset {index} is {offsets[index]}") as caught:
        parse_symbol_offsets(struct.pack("<3q", *offsets), 2, path="x.o")
    assert (caught.value.path, caught.value.details["offset"]) == ("x.o", 64 + 8 * index)


@pytest.mark.parametrize("length", [-1, 0, 2, 4, 1 << 16, (1 << 31) - 1])
def test_lengths_that_contradict_the_offsets(length: int) -> None:
    offsets, chars = make_files(["one", "two"])
    with pytest.raises(FormatError, match=f"symbol 1 states {length} UTF-16 units") as caught:
        parse_files(offsets, chars[:10] + struct.pack("<i", length) + chars[14:], 2)
    assert (caught.value.path, caught.value.details["offset"]) == ("x.c", 10)


def test_memory_is_a_small_multiple_of_the_file() -> None:
    text = "symbol é".encode("utf-16-le")
    chars = (struct.pack("<i", len(text) // 2) + text) * 20_000
    offsets = np.arange(0, len(chars) + 1, len(text) + 4).astype("<i8").tobytes()
    tracemalloc.start()
    try:
        parsed = parse_symbols(chars, parse_symbol_offsets(offsets, 20_000, path=None), path=None)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(parsed) == 20_000
    assert peak_bytes < 10 * (len(chars) + len(offsets))


def test_a_count_beyond_the_file_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="offsets of 2147483647 symbols"):
            parse_symbol_offsets(bytes(80), (1 << 31) - 1, path=None)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000
