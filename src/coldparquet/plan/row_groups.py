"""Selects the row groups and column chunks that a question needs, given the sidecars. No byte is fetched here.

Chunks that are null or constant in every row are made, not fetched: their reads carry the value.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

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
from coldparquet.format.types import StatisticsTrust, ValueOrder
from coldparquet.plan.bounds import PREFIX_BYTES, ByteSide
from coldparquet.plan.choices import decoded_row_bytes
from coldparquet.plan.model import CHUNK, MAX_ROW_GROUP_ROWS, MOST_DECODED_BYTES, Read, StoredColumn
from coldparquet.plan.prune import PruneReport, prune
from coldparquet.plan.statistics import BOUNDS_OF_COLUMNS, ColumnFacts, SidecarStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.sidecar_chunks import ChunkColumn, RowGroupTable
    from coldparquet.format.sidecar_header import ColumnDescriptor
    from coldparquet.options import ReadOptions
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.bounds import BoolArray, IntArray, Side
    from coldparquet.plan.model import StoredData


_NOT_FROM_BOUNDS = frozenset({ValueOrder.FLOAT, ValueOrder.BOOLEAN, ValueOrder.NONE})
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
) -> tuple[BoolArray, BoolArray]:
    """Tell which chunks are made: as null in every row or, on request, as one value in every row.

    Chunks of no bytes, which are keys of the file's path, are made without a request, too.
    """
    stat_flags, null_counts = stored["stat_flags"], stored["null_count"]
    may_be_null = (stat_flags & STAT_NULL_COUNT_PRESENT != 0) & (null_counts == stored["num_values"])
    is_null, is_constant = (np.zeros(may_be_null.shape, dtype=np.bool_) for _ in range(2))
    for position in may_be_null.any(axis=0).nonzero()[0].tolist():
        is_null[:, position] = null_chunks(table, columns[position], row_groups)
    may_be_constant = ((stat_flags & _CONSTANT_FLAGS) == _CONSTANT_FLAGS) & (null_counts == 0)
    if not make_constant_columns:
        may_be_constant &= stored["total_compressed"] == 0
    if may_be_constant.any():
        is_out_of_line = (stat_flags & _INLINED_FLAGS) != _INLINED_FLAGS
        may_be_constant &= is_out_of_line | (stored["min"] == stored["max"])
        for position in may_be_constant.any(axis=0).nonzero()[0].tolist():
            is_constant[:, position] = constant_chunks(table, columns[position], row_groups)
    return is_null, is_constant & ~is_null


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
    may_be_cut = descriptor.physical_type is PhysicalType.BYTE_ARRAY and chunks.has_bytes
    is_constant[is_constant] = _are_equal(bounds.lower, bounds.upper, candidates, may_be_cut=may_be_cut)
    return is_constant


_CONSTANT_CHUNKS = ColumnFacts(_constant_chunks_of_column)


def constant_values(table: RowGroupTable, column: int, row_groups: npt.NDArray[np.intp]) -> list[bytes]:
    """Return the values of many such chunks; most are equal."""
    lower = table.chunks(column).min
    stored = zip(
        row_groups.tolist(),
        lower.inlined[row_groups].tolist(),
        lower.raw[row_groups].tolist(),
        lower.inline_size[row_groups].tolist(),
        strict=True,
    )
    known: dict[tuple[int, ...], bytes] = {}
    values = []
    for row_group, is_inlined, word, size in stored:
        key = (word, size) if is_inlined else (row_group,)
        value = known.get(key)
        if value is None:
            value = known[key] = constant_bytes(table, column, row_group)
        values.append(value)
    return values


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
    return is_long or not chunks.has_bytes or bool((chunks.min.raw == chunks.max.raw).any())


def _are_equal(lower: Side, upper: Side, candidates: npt.NDArray[np.intp], *, may_be_cut: bool) -> BoolArray:
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
    if may_be_cut:
        return equal & ~longer
    for position in np.flatnonzero(equal & longer).tolist():
        row_group = int(candidates[position])
        equal[position] = lower.bytes_at(row_group) == upper.bytes_at(row_group)
    return equal


_LARGEST_COUNT = 2**63 - 1


class PrunedRowGroups(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """What pruning left of the row groups of one partition, or of many, as arrays."""

    table: RowGroupTable
    """The row groups before."""
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
    chunks: npt.NDArray[Any]
    """What else decoding needs of them, as :data:`coldparquet.plan.model.CHUNK`, same shape."""
    is_wanted: BoolArray
    """Whether the chunk is needed, same shape: not if it only serves a predicate that every row satisfies."""
    is_null: BoolArray
    """Whether it is made, not fetched, and null in every row."""
    is_constant: BoolArray
    """Whether it is made, not fetched, and has one value in every row."""
    report: PruneReport | None
    """What each part of the predicate dropped; None without a predicate, or if statistics are not used."""

    @property
    def is_fetched(self) -> BoolArray:
        """Whether a chunk is fetched, shape ``(left, columns)``."""
        return self.is_wanted & ~self._is_made

    @property
    def fetched_bytes(self) -> IntArray:
        """Bytes to fetch of each surviving row group, shape ``(left,)``."""
        result: IntArray = np.where(self.is_fetched, self.stops - self.starts, 0).sum(axis=1)
        return result

    @property
    def decoded_bytes(self) -> IntArray:
        """Estimated memory of the fetched chunks of each surviving row group once decoded, shape ``(left,)``."""
        result: IntArray = np.where(self.is_fetched, self.chunks["decoded_bytes"], 0).sum(axis=1)
        return result

    def reads_of(
        self, row_groups: slice, data: StoredData, *, partition_index: int, survives: BoolArray | None = None
    ) -> tuple[Read, ...]:
        """Return the reads of one partition."""
        first, stop = self.row_groups.searchsorted((row_groups.start, row_groups.stop)).tolist()
        left, fetched, made_values = slice(first, stop), self._fetched_chunks, self._made_values
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
            part = _parts_of(self.columns, self.is_wanted[position].tobytes(), self._is_made[position].tobytes())
            chunks = slice(fetched.edges[position], fetched.edges[position + 1])
            reads.append(
                Read(
                    partition_index=partition_index,
                    data=data,
                    row_group=row_group - row_groups.start,
                    row_group_rows=row_count,
                    columns=part.columns,
                    column_rows=part.column_rows,
                    chunks=fetched.chunks[chunks],
                    piece_columns=part.piece_columns,
                    piece_starts=fetched.starts[chunks],
                    piece_stops=fetched.stops[chunks],
                    made_columns=part.made_columns,
                    made_values=tuple([made_values[made].get(position) for made in part.made]),
                    all_rows_match=all_rows_match,
                )
            )
        return tuple(reads)

    @cached_property
    def _is_made(self) -> BoolArray:
        result: BoolArray = self.is_null | self.is_constant
        return result

    @cached_property
    def _fetched_chunks(self) -> _FetchedChunks:
        is_fetched = self.is_fetched
        counts = np.count_nonzero(is_fetched, axis=1)
        are_all = bool(is_fetched.all())  # mostly so, and a mask would copy them
        return _FetchedChunks(
            starts=self.starts.reshape(-1) if are_all else self.starts[is_fetched],
            stops=self.stops.reshape(-1) if are_all else self.stops[is_fetched],
            chunks=self.chunks.reshape(-1) if are_all else self.chunks[is_fetched],
            edges=np.concatenate([[0], np.cumsum(counts)]).tolist(),
        )

    @cached_property
    def _made_values(self) -> list[dict[int, bytes]]:
        """By column: the value of each chunk that is made and not null, by position."""
        values = []
        for number, column in enumerate(self.columns):
            (constant,) = self.is_constant[:, number].nonzero()
            found = constant_values(self.table, column, self.row_groups[constant]) if len(constant) else ()
            values.append(dict(zip(constant.tolist(), found, strict=True)))
        return values


class _FetchedChunks(Struct, frozen=True, kw_only=True, eq=False):
    """The chunks to fetch, one row group behind the other, so that those of each read are a slice without a copy."""

    starts: IntArray
    stops: IntArray
    chunks: npt.NDArray[Any]
    edges: list[int]
    """Where each row group begins, and the last one ends."""


class _Parts(Struct, frozen=True, kw_only=True):
    """What reads that fetch and make the same columns share, across row groups and partitions."""

    made: tuple[int, ...]
    """Positions among the columns."""
    columns: tuple[int, ...]
    column_rows: tuple[None, ...]
    piece_columns: npt.NDArray[np.int64]
    made_columns: tuple[int, ...]


@lru_cache(maxsize=1024)
def _parts_of(columns: tuple[int, ...], is_wanted: bytes, is_made: bytes) -> _Parts:
    """Determine the columns to fetch and to make, given one byte for each of them."""
    wanted, made = np.frombuffer(is_wanted, np.bool_), np.frombuffer(is_made, np.bool_)
    (fetched,) = (wanted & ~made).nonzero()
    made_positions = tuple((wanted & made).nonzero()[0].tolist())
    return _Parts(
        made=made_positions,
        columns=tuple([columns[position] for position in fetched.tolist()]),
        column_rows=(None,) * len(fetched),
        piece_columns=np.arange(len(fetched)),
        made_columns=tuple([columns[position] for position in made_positions]),
    )


def stored_columns(table: RowGroupTable, columns: Iterable[int]) -> dict[int, StoredColumn]:
    """Describe some columns of a Parquet file, of readable types, for its reads, with all leaves of nested ones."""
    return {
        number: StoredColumn.in_parquet(
            number,
            name=column.name,
            type_code=column.type_code,
            physical_type=column.physical_type,
            fixed_byte_length=column.fixed_byte_length,
            repetition=column.repetition,
            max_rep_level=column.max_rep_level,
            max_def_level=column.max_def_level,
            annotation=table.foreign_annotations.get(number),
        )
        for number, column in ((number, table.column(number)) for number in table.leaves_of(columns))
    }


def prune_row_groups(
    table: RowGroupTable,
    *,
    output_columns: Sequence[int],
    predicate: BoundPredicate | None,
    predicate_columns: Mapping[int, int | None],
    options: ReadOptions,
) -> PrunedRowGroups:
    """Prune the row groups of one partition, or of many, and list the chunks that the survivors need.

    A row group in which every row matches needs no chunks for the predicate alone. A chunk with NULL or the same value
    in every row is made, not fetched.
    """
    _check_row_counts(table)
    survives = table.row_counts > 0
    all_match = np.full(table.row_group_count, predicate is None)
    report = None
    if predicate is not None and options.statistics:
        statistics = SidecarStatistics(table, predicate_columns)
        verdict, report = prune(predicate, statistics, table.row_group_count)
        survives &= verdict.survives
        all_match = verdict.all_rows_match
    (surviving,) = survives.nonzero()
    for_predicate = {place for place in predicate_columns.values() if place is not None}
    output_columns = table.leaves_of(output_columns)
    columns = tuple(sorted({*output_columns, *table.leaves_of(for_predicate)}))
    stored = table.blocks.chunks(surviving, np.array(columns, dtype=np.intp))
    counts = stored["num_values"], stored["byte_range_start"], stored["total_compressed"]
    if max(numbers.max(initial=0) for numbers in counts) > _LARGEST_COUNT:
        _refuse_counts(table, columns)
    value_counts, starts, lengths = (numbers.astype(np.int64) for numbers in counts)
    stops = starts + lengths
    is_null, is_constant = made_chunks(
        table, columns, surviving, stored, make_constant_columns=options.make_constant_columns and options.statistics
    )
    _check_value_counts(table, surviving, columns, value_counts)
    data_stops = table.data_stops[surviving, np.newaxis]
    is_inside = (starts >= PARQUET_MAGIC_BYTES) & (stops >= starts) & (stops.view(np.uint64) <= data_stops)
    _check_places(table, surviving, columns, is_inside | is_null | is_constant)
    output = frozenset(output_columns)
    is_output = np.array([column in output for column in columns], dtype=np.bool_)
    return PrunedRowGroups(
        table=table,
        row_groups=surviving,
        row_counts=table.row_counts[surviving],
        all_rows_match=all_match[surviving],
        columns=columns,
        starts=starts,
        stops=stops,
        chunks=_chunks(table, surviving, columns, stored, options),
        is_wanted=is_output | ~all_match[surviving, np.newaxis],
        is_null=is_null,
        is_constant=is_constant,
        report=report,
    )


def _chunks(
    table: RowGroupTable,
    row_groups: npt.NDArray[np.intp],
    columns: tuple[int, ...],
    stored: npt.NDArray[np.void],
    options: ReadOptions,
) -> npt.NDArray[np.void]:
    chunks = np.empty(stored.shape, CHUNK)
    chunks["codec"], chunks["encodings"] = stored["codec"], stored["encodings"]
    chunks["value_count"] = stored["num_values"]
    decoded_bytes = decoded_row_bytes(table, columns, row_groups, options)
    decoded_bytes *= table.row_counts[row_groups, np.newaxis]
    chunks["decoded_bytes"] = np.minimum(decoded_bytes, MOST_DECODED_BYTES, out=decoded_bytes)
    return chunks


def _check_row_counts(table: RowGroupTable) -> None:
    if table.row_counts.max(initial=0) > MAX_ROW_GROUP_ROWS:
        row_group = int(np.argmax(table.row_counts))
        raise FormatError(
            f"row group {row_group} claims {int(table.row_counts[row_group]):,} rows, but at most"
            f" {MAX_ROW_GROUP_ROWS:,} can be; make the sidecar anew with 'coldparquet index --force'",
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
