"""Files that are no transaction: every one of them is refused by name and place, and nothing else ever happens."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError
from coldparquet.format.txn import parse_txn, parse_version
from tests.support.table_files import I64_MAX, as_values, make_txn, patched

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
ONE_STATE = GOLDEN / "types_all" / "table" / "_txn"
DAY_US = 86_400_000_000

GOOD = make_txn(rows=(9, 5), symbols=[(3, 3)], partitions=[(0, 5, -1, -1), (DAY_US, 9, 8, -1)])
SYMBOLS_AT, SECTION_AT, PARTITIONS_AT = 64 + 132, 64 + 140, 64 + 144


def assert_parses_or_says_where(data: bytes) -> None:
    """Whatever the bytes are: a whole transaction comes out, or an error that names field and offset."""
    try:
        parsed = as_values(parse_txn(data, path=None))
    except FormatError as error:
        refusal: dict[str, Any] = error.details
        is_named = bool(refusal["field"]) and refusal["offset"] >= 0
    else:
        is_named = parsed["txn"] == parse_version(data, path=None)
    assert is_named


@pytest.mark.parametrize(
    ("offset", "layout", "value", "kind", "field", "named_offset"),
    [
        (0, "<q", -2, "InvalidValue", "version", 0),
        (0, "<q", 5, "InvalidValue", "area_offset", 32),  # the other area was never written
        (0, "<q", 6, "TornTransaction", "txn", 64),
        (8, "<i", 63, "InvalidValue", "area_offset", 8),
        (8, "<i", -64, "InvalidValue", "area_offset", 8),
        (8, "<i", 1 << 30, "Truncated", "area A", 8),
        (12, "<i", -8, "InvalidValue", "symbol_bytes", 12),
        (12, "<i", 4, "InvalidValue", "symbol_bytes", 12),
        (12, "<i", 0, "TornTransaction", "symbol_count", 192),
        (12, "<i", (1 << 31) - 8, "Truncated", "area A", 8),
        (16, "<i", -32, "InvalidValue", "partition_bytes", 16),
        (16, "<i", 33, "InvalidValue", "partition_bytes", 16),
        (16, "<i", 32, "TornTransaction", "partition_bytes", SECTION_AT),
        (16, "<i", (1 << 31) - 32, "Truncated", "area A", 8),
        (64, "<q", 5, "TornTransaction", "txn", 64),
        (72, "<q", -1, "InvalidValue", "transient_row_count", 72),
        (72, "<q", 1 << 44, "InvalidValue", "transient_row_count", 72),
        (80, "<q", -1, "InvalidValue", "fixed_row_count", 80),
        (80, "<q", 6, "InvalidValue", "fixed_row_count", 80),
        (88, "<q", 21, "InvalidValue", "min_timestamp", 88),
        (192, "<i", -1, "TornTransaction", "symbol_count", 192),
        (192, "<i", 2, "TornTransaction", "symbol_count", 192),
        (SYMBOLS_AT, "<i", -1, "InvalidValue", "symbol_counts", SYMBOLS_AT),
        (SECTION_AT, "<i", 96, "TornTransaction", "partition_bytes", SECTION_AT),
        (PARTITIONS_AT, "<q", DAY_US, "InvalidValue", "timestamp", PARTITIONS_AT + 32),
        (PARTITIONS_AT, "<q", DAY_US + 1, "InvalidValue", "timestamp", PARTITIONS_AT + 32),
        (PARTITIONS_AT + 8, "<q", -1, "InvalidValue", "row_count", PARTITIONS_AT + 8),
        (PARTITIONS_AT + 8, "<q", 4, "InvalidValue", "fixed_row_count", 80),
    ],
)
def test_values_that_cannot_be(  # noqa: PLR0917 - one row of the table above
    offset: int, layout: str, value: int, kind: str, field: str, named_offset: int
) -> None:
    with pytest.raises(FormatError) as caught:
        parse_txn(patched(GOOD, offset, layout, value), path="table/_txn")
    assert (caught.value.kind, caught.value.path) == (kind, "table/_txn")
    assert (caught.value.details["field"], caught.value.details["offset"]) == (field, named_offset)


def test_row_counts_whose_sum_does_not_fit_64_bits_are_added_up() -> None:
    largest, count = (1 << 44) - 1, (1 << 19) + 2
    words = np.zeros((count, 4), "<i8")
    words[:, 0], words[:, 1] = np.arange(count), largest
    data = patched(make_txn(partitions=[]), 16, "<i", words.nbytes)
    data = patched(data, 64 + 132, "<i", words.nbytes) + words.tobytes()
    wrapped = (largest * (count - 1) + (1 << 63)) % (1 << 64) - (1 << 63)
    for stated in (0, wrapped & I64_MAX):
        with pytest.raises(FormatError, match=str(largest * (count - 1))):
            parse_txn(patched(data, 80, "<q", stated), path=None)


@given(st.binary(max_size=600))
def test_any_bytes_behind_a_header_give_a_transaction_or_a_format_error(content: bytes) -> None:
    header = struct.pack("<qiii44x", 0, 64, 0, max(0, (len(content) - 136) // 32 * 32))
    for data in (content, header + content, header + bytes(8) + content):
        assert_parses_or_says_where(data)


@pytest.mark.parametrize("offset", [8, 12, 16, 192, SECTION_AT])
def test_claims_beyond_the_file_allocate_nothing(offset: int) -> None:
    data = patched(GOOD, offset, "<i", (1 << 31) - 32)
    with pytest.raises(FormatError):
        parse_txn(data, path=None)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            parse_txn(data, path=None)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


def test_the_version_alone() -> None:
    assert parse_version(GOOD[:8], path=None) == 4
    with pytest.raises(FormatError, match="version would end at byte 8"):
        parse_version(GOOD[:7], path=None)
