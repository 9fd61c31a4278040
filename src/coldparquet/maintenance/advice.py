"""Says which partitions are worth compacting, and what else would make reads of one cheaper."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.findings import Finding
from coldparquet.errors import UnsupportedError
from coldparquet.format.sidecar_layout import Codec
from coldparquet.format.types import StatisticsTrust
from coldparquet.options import MIB
from coldparquet.text import few_names, human_bytes, row_group_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from coldparquet.format.pages import PartitionPages
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar import Sidecar


ROWS_PER_ROW_GROUP = 100_000
"""QuestDB's default: large enough for long chunks, small enough to drop most of a day."""

_DEAD_SHARE = 0.5
_MANY_DEAD_BYTES = 1 << 30
"""At this point QuestDB itself stops updating a file in place, and rewrites it with the next rows (note section
6.5)."""

_SMALL_SHARE = 4
"""A row group with less than this part of its target rows is small, for QuestDB too."""


def compaction_reason(
    *, size_bytes: int, unused_bytes: int, row_counts: npt.NDArray[np.int64], row_group_rows: int
) -> str | None:
    """Say why a Parquet file is worth compacting; None if it is not.

    A rewritten file is not worth compacting again: it has no dead bytes, and at most one small row group.
    """
    reasons = [
        dead_bytes_reason(size_bytes=size_bytes, unused_bytes=unused_bytes),
        small_row_groups_reason(row_counts, row_group_rows=row_group_rows),
    ]
    return "; ".join(reason for reason in reasons if reason) or None


def dead_bytes_reason(*, size_bytes: int, unused_bytes: int) -> str | None:
    """Say how many bytes belong to replaced row groups, if there are many."""
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


ROWS_PER_PAGE = 20_000
"""A page of 8-byte values is then 160 KB: several fit a request, and a point read skips most of a row group."""

_LEAST_UNCOMPRESSED_BYTES = MIB
"""Below this, compression saves too little to be worth an advice."""

_COMPACT = "'coldparquet compact' writes the partition anew"
_COMPACT_ANYWAY = "'coldparquet compact --force' writes the partition anew"
"""Findings that alone do not make a partition due for compaction, see :func:`compaction_reason`."""


def advise(
    footer: ParquetFooter, sidecar: Sidecar, *, unused_bytes: int, pages: PartitionPages | None
) -> tuple[Finding, ...]:
    """Return advice about one Parquet file."""
    return (
        *_dead_bytes(sidecar, unused_bytes),
        *_small_row_groups(sidecar),
        *_uncompressed(sidecar),
        *_pages(footer, pages),
        *_statistics(sidecar),
    )


def _dead_bytes(sidecar: Sidecar, unused_bytes: int) -> Iterator[Finding]:
    reason = dead_bytes_reason(size_bytes=sidecar.parquet_size_bytes, unused_bytes=unused_bytes)
    if reason is not None:
        yield Finding(severity="advice", kind="DeadBytes", message=reason, remedy=f"{_COMPACT} without them")


def _small_row_groups(sidecar: Sidecar) -> Iterator[Finding]:
    reason = small_row_groups_reason(sidecar.row_counts, row_group_rows=ROWS_PER_ROW_GROUP)
    if reason is not None:
        yield Finding(
            severity="advice",
            kind="SmallRowGroups",
            message=f"{reason}: every one costs metadata, and often a request of its own",
            remedy=f"{_COMPACT} with row groups of {ROWS_PER_ROW_GROUP:,} rows",
        )


def _uncompressed(sidecar: Sidecar) -> Iterator[Finding]:
    total_bytes = plain_bytes = 0
    by_column: dict[str, int] = {}
    for index in range(sidecar.column_count):
        chunks = sidecar.chunks(index)
        is_plain = chunks.codec == Codec.UNCOMPRESSED
        # As floats, because the lengths are not yet checked against the file.
        of_column = int(chunks.total_compressed_bytes[is_plain].sum(dtype=np.float64))
        total_bytes += int(chunks.total_compressed_bytes.sum(dtype=np.float64))
        plain_bytes += of_column
        if of_column:
            by_column[sidecar.column(index).name] = of_column
    if plain_bytes >= max(_LEAST_UNCOMPRESSED_BYTES, total_bytes / 2):
        names = sorted(by_column, key=lambda name: -by_column[name])
        yield Finding(
            severity="advice",
            kind="Uncompressed",
            message=f"{human_bytes(plain_bytes)} of {human_bytes(total_bytes)} are not compressed: {few_names(names)}",
            remedy=f"{_COMPACT_ANYWAY} with ZSTD; random numbers stay as large as they are",
        )


def _pages(footer: ParquetFooter, pages: PartitionPages | None) -> Iterator[Finding]:
    single, unindexed = [], []
    described = None if pages is None else np.diff(pages.first_page).reshape(pages.row_group_count, pages.column_count)
    for index, row_group in enumerate(footer.row_groups):
        if row_group.row_count < 2 * ROWS_PER_PAGE:
            continue
        places = zip(row_group.offset_index_lengths, row_group.chunks, strict=True)
        if described is not None and described[index].any():
            if described[index].max() == 1:
                single.append(index)
        elif not any(row_group.offset_index_lengths):
            unindexed.append(index)
        elif all(0 < length < _two_pages_bytes(chunk.data_page_offset) for length, chunk in places):
            single.append(index)
    if single:
        yield Finding(
            severity="advice",
            kind="OnePagePerChunk",
            message=f"{row_group_spans(single)}: one data page per column chunk, so a read that needs a few rows"
            " fetches and decodes whole chunks",
            remedy=f"{_COMPACT_ANYWAY} with about {ROWS_PER_PAGE:,} rows a page",
            row_groups=tuple(single),
        )
    if unindexed:
        yield Finding(
            severity="advice",
            kind="NoPageIndex",
            message=f"{row_group_spans(unindexed)}: no page index, so pages cannot be told apart before they are read",
            remedy=f"{_COMPACT_ANYWAY} with a page index; 'coldparquet index' describes the pages as they are",
            row_groups=tuple(unindexed),
        )


def _two_pages_bytes(data_page_offset: int) -> int:
    """Return the least length of an offset index of two pages; a shorter one lists a single page.

    Thrift's compact protocol writes each page as three fields of one byte and their numbers, and a stop. The page's
    offset takes as many bytes as the chunk's own offset (7 bits each, after one for the sign); size and first row take
    1 or more.
    """
    offset_bytes = max(1, -(-(data_page_offset.bit_length() + 1) // 7))
    return 2 + 2 * (3 + offset_bytes + 2 + 1) + 1


def _statistics(sidecar: Sidecar) -> Iterator[Finding]:
    without_bounds, without_null_counts = _columns_without_statistics(sidecar)
    timestamp = sidecar.designated_timestamp
    if timestamp is None:
        yield Finding(
            severity="advice",
            kind="NoDesignatedTimestamp",
            message="the file names no designated timestamp, so the time range in the directory's name prunes nothing",
            remedy="write it with a timestamp field of nullable=False and with sorting_columns, or make a table of it with"
            " 'coldparquet convert ... --timestamp COLUMN'",
        )
    elif timestamp in without_bounds:
        row_groups = without_bounds.pop(timestamp)
        yield Finding(
            severity="warning",
            kind="TimestampBoundsMissing",
            message=f"the designated timestamp has no bounds in {row_group_spans(row_groups)}: no condition on the time"
            " drops them",
            remedy=_COMPACT_ANYWAY,
            column=sidecar.column(timestamp).name,
            row_groups=tuple(row_groups),
        )
    for what, columns in (("min and max", without_bounds), ("null counts", without_null_counts)):
        if columns:
            names = [sidecar.column(index).name for index in columns]
            row_groups = sorted(set().union(*columns.values()))
            yield Finding(
                severity="advice",
                kind="StatisticsMissing",
                message=f"no {what} of {few_names(names)} in {row_group_spans(row_groups)}: conditions on them drop nothing there",
                remedy=f"{_COMPACT_ANYWAY} with statistics",
                row_groups=tuple(row_groups),
            )


def _columns_without_statistics(sidecar: Sidecar) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return, per column that has some, the row groups with values but no bounds, and those without null count."""
    without_bounds: dict[int, list[int]] = defaultdict(list)
    without_null_counts: dict[int, list[int]] = defaultdict(list)
    for index in range(sidecar.column_count):
        chunks, column = sidecar.chunks(index), sidecar.column(index)
        has_values = ~chunks.has_null_count | (chunks.null_count < chunks.num_values)
        if _may_have_bounds(sidecar, index):
            # One side may be missing for a good reason: the format cannot hold an empty string.
            row_groups = np.flatnonzero(has_values & ~chunks.min.present & ~chunks.max.present).tolist()
            if row_groups:
                without_bounds[index] = row_groups
        uncounted = np.flatnonzero(~chunks.has_null_count & (sidecar.row_counts > 0)).tolist()
        if uncounted and column.max_def_level > 0 and index not in sidecar.nested:
            without_null_counts[index] = uncounted
    return without_bounds, without_null_counts


def _may_have_bounds(sidecar: Sidecar, index: int) -> bool:
    try:
        column_type = sidecar.column_type(index)
    except UnsupportedError:
        return False
    return column_type.statistics is not StatisticsTrust.NEVER
