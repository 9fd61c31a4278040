"""Selects the row groups and column chunks that a question needs, given the sidecars. No byte is fetched here.

Chunks that are null or constant in every row are made, not fetched. Planning finds them; decoding asks again which of
the two a chunk is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError
from coldparquet.format.sidecar_layout import (
    PARQUET_MAGIC_BYTES,
    STAT_EXACT,
    STAT_INLINED,
    STAT_MAX_SHIFT,
    STAT_NULL_COUNT_PRESENT,
    STAT_PRESENT,
    PhysicalType,
)
from coldparquet.format.types import Comparison, StatisticsTrust
from coldparquet.plan.bounds import PREFIX_BYTES, ByteSide
from coldparquet.plan.model import RowGroupRead
from coldparquet.plan.prune import PruneReport, prune
from coldparquet.plan.statistics import BOUNDS_OF_COLUMNS, ColumnFacts, SidecarStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.sidecar_chunks import ChunkColumn, RowGroupTable
    from coldparquet.format.sidecar_header import ColumnDescriptor
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.bounds import BoolArray, IntArray, Side


_NOT_FROM_BOUNDS = frozenset({Comparison.FLOAT, Comparison.BOOLEAN, Comparison.NONE})
"""Equal bounds of these types do not determine the value: float bounds exclude NaN, and 0.0 also bounds -0.0."""

_NUMBER_BYTES = {PhysicalType.INT32: 4, PhysicalType.INT64: 8}

_EXACT_BOUND = STAT_PRESENT | STAT_EXACT
_CONSTANT_FLAGS = STAT_NULL_COUNT_PRESENT | _EXACT_BOUND | _EXACT_BOUND << STAT_MAX_SHIFT
"""STAT_FLAGS of every chunk known to hold a single value."""

_INLINED_FLAGS = STAT_INLINED | STAT_INLINED << STAT_MAX_SHIFT

_LENGTH_BYTES = 4
"""In the plain encoding a variable-length byte string begins with its length."""


def null_chunks(table: RowGroupTable, column: int, row_groups: npt.NDArray[np.intp]) -> BoolArray:
    """Tell which chunks of a column are NULL in every row, or have its type's replacement for NULL."""
    descriptor, chunks = table.column(column), table.chunks(column)
    # In a nested column a null count may count elements, so only flat columns prove that all rows are null.
    # A REQUIRED column cannot mark nulls: rows counted as such hold 0 in BYTE, SHORT and CHAR, else unknown values.
    if descriptor.max_rep_level or not (descriptor.max_def_level or table.column_type(column).never_null):
        return np.zeros(len(row_groups), dtype=np.bool_)
    result: BoolArray = chunks.has_null_count[row_groups] & (
        chunks.null_count[row_groups] == chunks.num_values[row_groups]
    )
    return result


def made_chunks(
    table: RowGroupTable,
    columns: tuple[int, ...],
    row_groups: npt.NDArray[np.intp],
    stored: npt.NDArray[np.void],
    *,
    make_constant_columns: bool,
) -> BoolArray:
    """Tell which chunks are made: those of :func:`null_chunks` and, on request, of :func:`constant_chunks`."""
    stat_flags, null_counts = stored["stat_flags"], stored["null_count"]
    may_be_null = (stat_flags & STAT_NULL_COUNT_PRESENT != 0) & (null_counts == stored["num_values"])
    is_made = np.zeros(may_be_null.shape, dtype=np.bool_)
    for position in may_be_null.any(axis=0).nonzero()[0].tolist():
        is_made[:, position] = null_chunks(table, columns[position], row_groups)
    if make_constant_columns:
        may_be_constant = ((stat_flags & _CONSTANT_FLAGS) == _CONSTANT_FLAGS) & (null_counts == 0)
        is_out_of_line = (stat_flags & _INLINED_FLAGS) != _INLINED_FLAGS
        may_be_constant &= is_out_of_line | (stored["min"] == stored["max"])
        for position in may_be_constant.any(axis=0).nonzero()[0].tolist():
            is_made[:, position] |= constant_chunks(table, columns[position], row_groups)
    return is_made


def constant_chunks(table: RowGroupTable, column: int, row_groups: npt.NDArray[np.intp]) -> BoolArray:
    """Tell which chunks of a column hold one value in every row, so that :func:`constant_bytes` returns it.

    Equal bounds that enclose all values permit only one value, in any order. Byte strings of variable length are the
    exception: writers truncate long bounds without always marking them.
    """
    return _CONSTANT_CHUNKS.of(table, column)[row_groups]


def _constant_chunks_of_column(table: RowGroupTable, column: int) -> BoolArray:
    nowhere = np.zeros(table.row_group_count, dtype=np.bool_)
    descriptor, chunks = table.column(column), table.chunks(column)
    if descriptor.max_rep_level or descriptor.max_def_level > 1 or not _may_be_equal(chunks, descriptor):
        return nowhere
    # Bounds of a designated timestamp may be just its first and last value, even if the rows are out of order.
    if column == table.designated_timestamp:
        return nowhere
    column_type = table.column_type(column)
    if column_type.comparison in _NOT_FROM_BOUNDS or column_type.statistics is StatisticsTrust.NEVER:
        return nowhere
    bounds = BOUNDS_OF_COLUMNS.of(table, column)
    if bounds.lower is None or bounds.upper is None:
        return nowhere
    no_null = chunks.has_null_count & (chunks.null_count == 0) & (chunks.num_values == table.row_counts)
    exact = bounds.lower.known & bounds.upper.known & chunks.min.exact & chunks.max.exact
    is_constant: BoolArray = no_null & exact
    candidates = np.flatnonzero(is_constant)
    is_variable = descriptor.physical_type is PhysicalType.BYTE_ARRAY
    is_constant[is_constant] = _are_equal(bounds.lower, bounds.upper, candidates, is_variable=is_variable)
    return is_constant


_CONSTANT_CHUNKS = ColumnFacts(_constant_chunks_of_column)


def constant_bytes(table: RowGroupTable, column: int, row_group: int) -> bytes:
    """Return the value of a chunk found by :func:`constant_chunks`, in Parquet's plain encoding."""
    lower, descriptor = table.chunks(column).min, table.column(column)
    if descriptor.physical_type is PhysicalType.BYTE_ARRAY:
        value = lower.bytes_at(row_group) or b""
        return len(value).to_bytes(_LENGTH_BYTES, "little") + value
    width = _NUMBER_BYTES.get(descriptor.physical_type, descriptor.fixed_byte_length)
    if lower.inlined[row_group]:
        # Values of one width are read at this width; the stored size is ignored.
        return int(lower.raw[row_group]).to_bytes(PREFIX_BYTES, "little")[:width]
    return lower.bytes_at(row_group) or b""


def _may_be_equal(chunks: ChunkColumn, descriptor: ColumnDescriptor) -> bool:
    """Tell quickly whether any bounds of a column can be equal; in most columns none can."""
    is_long = descriptor.physical_type is PhysicalType.FIXED_LEN_BYTE_ARRAY and (
        descriptor.fixed_byte_length > PREFIX_BYTES
    )
    return is_long or bool((chunks.min.raw == chunks.max.raw).any())


def _are_equal(lower: Side, upper: Side, candidates: npt.NDArray[np.intp], *, is_variable: bool) -> BoolArray:
    if not (isinstance(lower, ByteSide) and isinstance(upper, ByteSide)):
        if isinstance(lower, ByteSide) or isinstance(upper, ByteSide):
            return np.zeros(len(candidates), dtype=np.bool_)
        numbers_equal: BoolArray = lower.numbers[candidates] == upper.numbers[candidates]
        return numbers_equal
    lengths = lower.lengths[candidates]
    equal: BoolArray = (lower.prefixes[candidates] == upper.prefixes[candidates]) & (
        lengths == upper.lengths[candidates]
    )
    longer = lengths > PREFIX_BYTES
    if is_variable:
        return equal & ~longer
    for position in np.flatnonzero(equal & longer).tolist():
        row_group = int(candidates[position])
        equal[position] = lower.bytes_at(row_group) == upper.bytes_at(row_group)
    return equal


_LARGEST_COUNT = 2**63 - 1

_MAX_ROW_GROUP_ROWS = 2**31 - 1
"""Writers' row groups hold a few million rows. Damaged metadata may claim any number, and columns made without fetching
would then be that long."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrunedRowGroups:
    """What pruning left of the row groups of one partition, or of many, as arrays."""

    row_groups: npt.NDArray[np.intp]
    """Surviving row groups, ascending, shape ``(left,)``."""
    row_counts: IntArray
    """Their rows, shape ``(left,)``."""
    all_rows_match: BoolArray
    """Whether every row satisfies the predicate, shape ``(left,)``."""
    columns: tuple[int, ...]
    """The columns of the result and of the predicate, ascending."""
    starts: IntArray
    """First byte of their chunks in the Parquet file, shape ``(left, columns)``."""
    stops: IntArray
    """One past the last byte."""
    is_wanted: BoolArray
    """Whether the chunk is needed, same shape: not if it only serves a predicate that every row satisfies."""
    is_made: BoolArray
    """Whether it is made, not fetched."""
    report: PruneReport | None
    """What each part of the predicate dropped; None without a predicate, or if statistics are not used."""

    @property
    def is_fetched(self) -> BoolArray:
        """Whether a chunk is fetched, shape ``(left, columns)``."""
        return self.is_wanted & ~self.is_made

    @property
    def fetched_bytes(self) -> IntArray:
        """Bytes to fetch of each surviving row group, shape ``(left,)``."""
        result: IntArray = np.where(self.is_fetched, self.stops - self.starts, 0).sum(axis=1)
        return result

    def reads_of(
        self, row_groups: slice, *, partition_index: int, survives: BoolArray | None = None
    ) -> tuple[RowGroupRead, ...]:
        """Return the reads of one partition."""
        first, stop = self.row_groups.searchsorted((row_groups.start, row_groups.stop)).tolist()
        left = slice(first, stop)
        reads = []
        for position, row_group, row_count, all_rows_match in zip(
            range(first, stop),
            self.row_groups[left].tolist(),
            self.row_counts[left].tolist(),
            self.all_rows_match[left].tolist(),
            strict=True,
        ):
            if survives is not None and not survives[row_group]:
                continue
            part = _parts_of(self.columns, self.is_wanted[position].tobytes(), self.is_made[position].tobytes())
            reads.append(
                RowGroupRead(
                    partition_index=partition_index,
                    row_group=row_group - row_groups.start,
                    row_group_rows=row_count,
                    selection=None,
                    columns=part.columns,
                    column_rows=part.column_rows,
                    piece_columns=part.piece_columns,
                    piece_starts=self.starts[position, part.fetched],
                    piece_stops=self.stops[position, part.fetched],
                    made_columns=part.made_columns,
                    all_rows_match=all_rows_match,
                )
            )
        return tuple(reads)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What reads that fetch and make the same columns share, across row groups and partitions."""

    fetched: npt.NDArray[np.intp] | slice
    """Positions among the columns; a slice if all are meant, which selects from an array without a copy."""
    columns: tuple[int, ...]
    column_rows: tuple[None, ...]
    piece_columns: npt.NDArray[np.int64]
    made_columns: tuple[int, ...]


@lru_cache(maxsize=1024)
def _parts_of(columns: tuple[int, ...], is_wanted: bytes, is_made: bytes) -> _Parts:
    """Determine the columns to fetch and to make, given one byte for each of them."""
    wanted, made = np.frombuffer(is_wanted, np.bool_), np.frombuffer(is_made, np.bool_)
    (fetched,) = (wanted & ~made).nonzero()
    return _Parts(
        fetched=fetched if len(fetched) < len(columns) else slice(None),
        columns=tuple([columns[position] for position in fetched.tolist()]),
        column_rows=(None,) * len(fetched),
        piece_columns=np.arange(len(fetched)),
        made_columns=tuple([columns[position] for position in (wanted & made).nonzero()[0].tolist()]),
    )


def prune_row_groups(  # noqa: PLR0913 - knobs are required keywords here; their defaults live in ReadOptions
    table: RowGroupTable,
    *,
    output_columns: Sequence[int],
    predicate: BoundPredicate | None,
    predicate_columns: Mapping[int, int | None],
    use_statistics: bool,
    make_constant_columns: bool,
) -> PrunedRowGroups:
    """Prune the row groups of one partition, or of many, and list the chunks that the survivors need.

    A row group in which every row matches needs no chunks for the predicate alone. A chunk with NULL or the same value
    in every row is made, not fetched.
    """
    _check_row_counts(table)
    survives = table.row_counts > 0
    all_match = np.full(table.row_group_count, predicate is None)
    report = None
    if predicate is not None and use_statistics:
        statistics = SidecarStatistics(table, predicate_columns)
        verdict, report = prune(predicate, statistics, table.row_group_count)
        survives &= verdict.survives
        all_match = verdict.all_rows_match
    (surviving,) = survives.nonzero()
    for_predicate = {place for place in predicate_columns.values() if place is not None}
    columns = tuple(sorted({*output_columns, *for_predicate}))
    stored = table.blocks.chunks(surviving, np.array(columns, dtype=np.intp))
    counts = stored["num_values"], stored["byte_range_start"], stored["total_compressed"]
    if max(numbers.max(initial=0) for numbers in counts) > _LARGEST_COUNT:
        _refuse_counts(table, columns)
    value_counts, starts, lengths = (numbers.astype(np.int64) for numbers in counts)
    stops = starts + lengths
    is_made = made_chunks(
        table, columns, surviving, stored, make_constant_columns=make_constant_columns and use_statistics
    )
    _check_value_counts(table, surviving, columns, value_counts)
    data_stops = table.data_stops[surviving, np.newaxis]
    is_inside = (starts >= PARQUET_MAGIC_BYTES) & (stops >= starts) & (stops.view(np.uint64) <= data_stops)
    _check_places(table, surviving, columns, is_inside | is_made)
    output = frozenset(output_columns)
    is_output = np.array([column in output for column in columns], dtype=np.bool_)
    return PrunedRowGroups(
        row_groups=surviving,
        row_counts=table.row_counts[surviving],
        all_rows_match=all_match[surviving],
        columns=columns,
        starts=starts,
        stops=stops,
        is_wanted=is_output | ~all_match[surviving, np.newaxis],
        is_made=is_made,
        report=report,
    )


def _check_row_counts(table: RowGroupTable) -> None:
    if table.row_counts.max(initial=0) > _MAX_ROW_GROUP_ROWS:
        row_group = int(np.argmax(table.row_counts))
        raise FormatError(
            f"row group {row_group} claims {int(table.row_counts[row_group]):,} rows, but at most"
            f" {_MAX_ROW_GROUP_ROWS:,} can be; make the sidecar anew with 'coldparquet index --force'",
            path=table.path,
            field="NUM_ROWS",
            row_group=row_group,
        )


def _refuse_counts(table: RowGroupTable, columns: Sequence[int]) -> None:
    """Read the counts one by one so that the error names the bad one: at least one is too large for any file."""
    for chunks in map(table.chunks, columns):
        _ = chunks.num_values, chunks.byte_range_start, chunks.total_compressed_bytes


def _check_value_counts(
    table: RowGroupTable, row_groups: npt.NDArray[np.intp], columns: Sequence[int], value_counts: IntArray
) -> None:
    is_right = value_counts == table.row_counts[row_groups, np.newaxis]
    if not is_right.all():
        is_right |= [table.column(column).max_rep_level > 0 for column in columns]
        _refuse_wrong(is_right, table, row_groups, columns, "NUM_VALUES differs from NUM_ROWS")


def _check_places(
    table: RowGroupTable, row_groups: npt.NDArray[np.intp], columns: Sequence[int], is_right: BoolArray
) -> None:
    if not is_right.all():
        data_stop = int(table.data_stops[row_groups[~is_right.all(axis=1)][0]])
        message = f"the chunk lies outside the data of the file, [4, {data_stop})"
        _refuse_wrong(is_right, table, row_groups, columns, message)


def _refuse_wrong(
    holds: npt.NDArray[np.bool_],
    table: RowGroupTable,
    row_groups: npt.NDArray[np.intp],
    columns: Sequence[int],
    message: str,
) -> None:
    wrong_columns, wrong_row_groups = (~holds).T.nonzero()
    if len(wrong_columns):
        row_group, column = int(row_groups[wrong_row_groups[0]]), table.column(columns[wrong_columns[0]]).name
        raise FormatError(
            f"row group {row_group}, column {column!r}: {message}; make the sidecar anew with 'coldparquet index --force'",
            path=table.path,
            field="COLUMN_CHUNKS",
            row_group=row_group,
            column=column,
        )
