"""When a file is worth writing anew; the thresholds are QuestDB's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.maintenance.advice import compaction_reason, dead_bytes_reason, small_row_groups_reason

GIB = 1 << 30


@pytest.mark.parametrize(
    ("size_bytes", "unused_bytes", "is_due"),
    [
        (1000, 0, False),
        (1000, 500, False),
        (1000, 501, True),
        (10 * GIB, GIB, False),
        (10 * GIB, GIB + 1, True),
        (GIB, GIB // 2, False),
    ],
)
def test_dead_bytes(size_bytes: int, unused_bytes: int, is_due: bool) -> None:
    reason = dead_bytes_reason(size_bytes=size_bytes, unused_bytes=unused_bytes)
    assert (reason is not None) == is_due


@pytest.mark.parametrize(
    ("row_counts", "is_due"),
    [
        ([], False),
        ([10], False),
        ([100, 100, 3], False),
        ([100, 3], False),
        ([3, 4], True),
        ([24, 24], True),
        ([25, 25], False),
        ([100, 100, 100, 3, 4], False),
        ([100, 100, 3, 4], True),
        ([24] * 100, True),
        ([40] * 100, False),
    ],
)
def test_small_row_groups(row_counts: list[int], is_due: bool) -> None:
    reason = small_row_groups_reason(np.array(row_counts, np.int64), row_group_rows=100)
    assert (reason is not None) == is_due


def test_reasons_are_told_with_numbers() -> None:
    assert (
        compaction_reason(
            size_bytes=1000, unused_bytes=750, row_counts=np.array([10, 20], np.int64), row_group_rows=100
        )
        == "75% of the Parquet file (750 B of 1,000 B) belong to row groups that were replaced;"
        " 2 row groups of 15 rows on average, where 1 would do"
    )


@given(
    row_counts=st.lists(st.integers(0, 1000), max_size=30),
    row_group_rows=st.integers(1, 500),
    size_bytes=st.integers(1, 1 << 40),
)
def test_what_was_written_anew_is_not_worth_it_again(
    row_counts: list[int], row_group_rows: int, size_bytes: int
) -> None:
    rows = sum(row_counts)
    written = [min(row_group_rows, rows - start) for start in range(0, rows, row_group_rows)]
    reason = compaction_reason(
        size_bytes=size_bytes,
        unused_bytes=0,
        row_counts=np.array(written, np.int64),
        row_group_rows=row_group_rows,
    )
    assert reason is None
