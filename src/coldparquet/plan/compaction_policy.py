"""When a Parquet partition is worth writing anew: one answer for those who advise and for those who do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.plan.wording import human_bytes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ROWS_PER_ROW_GROUP = 100_000
"""What QuestDB writes by default: large enough for long chunks, small enough to drop most of a day."""

_DEAD_SHARE = 0.5
_MANY_DEAD_BYTES = 1 << 30
"""Where QuestDB itself stops updating a file in place, and writes it anew with the next rows (note section 6.5)."""

_SMALL_SHARE = 4
"""A row group with less than this part of the rows that it should have is small, for QuestDB too."""


def compaction_reason(
    *, size_bytes: int, unused_bytes: int, row_counts: npt.NDArray[np.int64], row_group_rows: int
) -> str | None:
    """Say why a Parquet file is worth writing anew; None if it is not.

    What was written anew is not worth it once more: it has no dead bytes, and one small row group at most.

    Args:
        size_bytes: Of the file.
        unused_bytes: Dead bytes in it.
        row_counts: Rows of each row group, shape ``(row_groups,)``.
        row_group_rows: Rows that a row group should have.
    """
    reasons = [
        dead_bytes_reason(size_bytes=size_bytes, unused_bytes=unused_bytes),
        small_row_groups_reason(row_counts, row_group_rows=row_group_rows),
    ]
    return "; ".join(reason for reason in reasons if reason) or None


def dead_bytes_reason(*, size_bytes: int, unused_bytes: int) -> str | None:
    """Say how many bytes belong to row groups that were replaced, if there are many."""
    if unused_bytes <= min(_DEAD_SHARE * size_bytes, _MANY_DEAD_BYTES):
        return None
    return (
        f"{unused_bytes / size_bytes:.0%} of the Parquet file ({human_bytes(unused_bytes)} of {human_bytes(size_bytes)})"
        " belong to row groups that were replaced"
    )


def small_row_groups_reason(row_counts: npt.NDArray[np.int64], *, row_group_rows: int) -> str | None:
    """Say how many row groups there are, if at least half of them, and more than one, are small."""
    count, rows = len(row_counts), int(row_counts.sum())
    small = int((row_counts * _SMALL_SHARE < row_group_rows).sum())
    needed = max(1, -(-rows // row_group_rows))
    if small < max(2, count / 2) or count <= needed:
        return None
    return f"{count:,} row groups of {rows // count:,} rows on average, where {needed:,} would do"
