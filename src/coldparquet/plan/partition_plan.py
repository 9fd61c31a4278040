"""From one sidecar to the row groups and column chunks that a question needs. Pure: no byte is fetched here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError
from coldparquet.plan.made_chunks import constant_chunks, null_chunks
from coldparquet.plan.prune import PruneReport, prune
from coldparquet.plan.read_plan import RowGroupRead
from coldparquet.plan.statistics import SidecarStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.bloom_probes import BloomAnswers

_PARQUET_MAGIC_BYTES = 4
"""No chunk begins before the magic ``PAR1`` ends."""

_MAX_ROW_GROUP_ROWS = 2**31 - 1
"""Row groups of writers hold a few million rows. Damaged metadata may claim any number, and a column that is made
without fetching would be made that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRowGroups:
    """What pruning left of one partition."""

    reads: tuple[RowGroupRead, ...]
    """Surviving row groups, ascending."""
    report: PruneReport | None
    """What each part of the predicate dropped; None without a predicate, or if statistics are not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChunkTable:
    """The needed chunks of the surviving row groups, arrays of shape ``(row groups, columns)``."""

    columns: tuple[int, ...]
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    is_made: npt.NDArray[np.bool_]
    """Whether a chunk is made, not fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What the reads of row groups have in common that fetch and make the same columns."""

    fetched: npt.NDArray[np.intp]
    """Positions in the table of chunks."""
    columns: tuple[int, ...]
    column_rows: tuple[None, ...]
    piece_columns: npt.NDArray[np.int64]
    made_columns: tuple[int, ...]

    @classmethod
    def of(cls, chunks: _ChunkTable, position: int, wanted: npt.NDArray[np.bool_]) -> _Parts:
        is_made = chunks.is_made[position]
        (fetched,), (made,) = (wanted & ~is_made).nonzero(), (wanted & is_made).nonzero()
        return cls(
            fetched=fetched,
            columns=tuple([chunks.columns[column] for column in fetched.tolist()]),
            column_rows=(None,) * len(fetched),
            piece_columns=np.arange(len(fetched)),
            made_columns=tuple([chunks.columns[column] for column in made.tolist()]),
        )


def plan_row_groups(  # noqa: PLR0913 - knobs are required keywords here; their defaults live in ReadOptions
    sidecar: Sidecar,
    *,
    partition_index: int,
    output_columns: Sequence[int],
    predicate: BoundPredicate | None,
    predicate_columns: Mapping[int, int | None],
    use_statistics: bool,
    make_constant_columns: bool,
    blooms: BloomAnswers | None = None,
) -> PartitionRowGroups:
    """Prune the row groups of one partition and list the chunks that the survivors need.

    A row group in which every row matches needs no chunk for the predicate alone. A chunk that is null in every row, or
    holds one value in every row, is made, not fetched.

    Args:
        sidecar: What is known about the partition.
        partition_index: Its position in the plan.
        output_columns: Sidecar indexes of the columns of the result that this partition has.
        predicate: Bound to the columns of the table; None selects every row.
        predicate_columns: Sidecar index of each field of the predicate by its index in the table; None where the
            partition was written without the column.
        use_statistics: Whether minima, maxima and null counts decide anything; otherwise every row group with rows
            survives a predicate, and all of its rows are tested.
        make_constant_columns: Whether chunks that hold one value in every row, by the statistics, are made as well.
        blooms: What bloom filters answered, where they were asked.

    Raises:
        FormatError: A chunk lies outside the data of the Parquet file or holds another number of values than rows, or a
            row group claims more rows than any has.
    """
    row_counts = sidecar.row_counts
    _check_row_counts(sidecar)
    survives = row_counts > 0
    all_match = np.full(sidecar.row_group_count, predicate is None)
    report = None
    if predicate is not None and use_statistics:
        statistics = SidecarStatistics(sidecar, predicate_columns, blooms=blooms)
        verdict, report = prune(predicate, statistics, sidecar.row_group_count)
        survives &= verdict.survives
        all_match = verdict.all_rows_match
    surviving = np.flatnonzero(survives)
    for_predicate = {place for place in predicate_columns.values() if place is not None}
    chunks = _chunk_table(
        sidecar,
        tuple(sorted({*output_columns, *for_predicate})),
        surviving,
        make_constant_columns=make_constant_columns and use_statistics,
    )
    output = frozenset(output_columns)
    is_output = np.array([column in output for column in chunks.columns], dtype=np.bool_)
    wanted = is_output | ~all_match[surviving, np.newaxis]
    parts: dict[bytes, _Parts] = {}
    reads = []
    numbers, counts = surviving.tolist(), row_counts[surviving].tolist()
    for position, (row_group, row_count) in enumerate(zip(numbers, counts, strict=True)):
        # Nearly all row groups of a partition fetch the same columns.
        key = wanted[position].tobytes() + chunks.is_made[position].tobytes()
        part = parts.get(key)
        if part is None:
            part = parts[key] = _Parts.of(chunks, position, wanted[position])
        reads.append(
            RowGroupRead(
                partition_index=partition_index,
                row_group=row_group,
                row_group_rows=row_count,
                selection=None,
                columns=part.columns,
                column_rows=part.column_rows,
                piece_columns=part.piece_columns,
                piece_starts=chunks.starts[position, part.fetched],
                piece_stops=chunks.stops[position, part.fetched],
                made_columns=part.made_columns,
                all_rows_match=bool(all_match[row_group]),
            )
        )
    return PartitionRowGroups(reads=tuple(reads), report=report)


def _check_row_counts(sidecar: Sidecar) -> None:
    if sidecar.row_counts.max(initial=0) > _MAX_ROW_GROUP_ROWS:
        row_group = int(np.argmax(sidecar.row_counts))
        raise FormatError(
            f"row group {row_group} claims {int(sidecar.row_counts[row_group]):,} rows, but at most"
            f" {_MAX_ROW_GROUP_ROWS:,} can be; make the sidecar anew with 'coldparquet index --force'",
            path=sidecar.path,
            field="NUM_ROWS",
            row_group=row_group,
        )


def _chunk_table(
    sidecar: Sidecar, columns: tuple[int, ...], row_groups: npt.NDArray[np.intp], *, make_constant_columns: bool
) -> _ChunkTable:
    shape = (len(row_groups), len(columns))
    starts, stops = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
    is_made = np.empty(shape, dtype=bool)
    row_counts = sidecar.row_counts[row_groups]
    for position, column in enumerate(columns):
        chunks = sidecar.chunks(column)
        descriptor = sidecar.column(column)
        starts[:, position] = chunks.byte_range_start[row_groups]
        stops[:, position] = starts[:, position] + chunks.total_compressed_bytes[row_groups]
        is_made[:, position] = null_chunks(sidecar, column, row_groups)
        if make_constant_columns:
            is_made[:, position] |= constant_chunks(sidecar, column, row_groups)
        if descriptor.max_rep_level == 0:
            right = chunks.num_values[row_groups] == row_counts
            _check(right, sidecar, row_groups, descriptor.name, "NUM_VALUES differs from NUM_ROWS")
    inside = (starts >= _PARQUET_MAGIC_BYTES) & (stops >= starts) & (stops <= sidecar.footer.parquet_footer_offset)
    for position, column in enumerate(columns):
        message = f"the chunk lies outside the data of the file, [4, {sidecar.footer.parquet_footer_offset})"
        in_file = inside[:, position] | is_made[:, position]
        _check(in_file, sidecar, row_groups, sidecar.column(column).name, message)
    return _ChunkTable(columns=columns, starts=starts, stops=stops, is_made=is_made)


def _check(
    holds: npt.NDArray[np.bool_], sidecar: Sidecar, row_groups: npt.NDArray[np.intp], column: str, message: str
) -> None:
    wrong = row_groups[~holds]
    if len(wrong):
        raise FormatError(
            f"row group {wrong[0]}, column {column!r}: {message}; make the sidecar anew with 'coldparquet index --force'",
            path=sidecar.path,
            field="COLUMN_CHUNKS",
            row_group=int(wrong[0]),
            column=column,
        )
