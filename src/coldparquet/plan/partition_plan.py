"""From one sidecar to the row groups and column chunks that a question needs. Pure: no byte is fetched here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError
from coldparquet.plan.prune import PruneReport, prune
from coldparquet.plan.read_plan import RowGroupRead
from coldparquet.plan.statistics import SidecarStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bind import BoundPredicate

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
    """What each part of the predicate dropped; None without a predicate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChunkTable:
    """Place of the needed chunks of every row group, arrays of shape ``(row groups, columns)``."""

    columns: tuple[int, ...]
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    all_null: npt.NDArray[np.bool_]


def plan_row_groups(
    sidecar: Sidecar,
    *,
    partition_index: int,
    output_columns: Sequence[int],
    predicate: BoundPredicate | None,
    predicate_columns: Mapping[int, int | None],
) -> PartitionRowGroups:
    """Prune the row groups of one partition and list the chunks that the survivors need.

    A row group in which every row matches needs no chunk for the predicate alone. A chunk that is null in every row
    is made, not fetched.

    Args:
        sidecar: What is known about the partition.
        partition_index: Its position in the plan.
        output_columns: Sidecar indexes of the columns of the result that this partition has.
        predicate: Bound to the columns of the table; None selects every row.
        predicate_columns: Sidecar index of each field of the predicate by its index in the table; None where the
            partition was written without the column.

    Raises:
        FormatError: A chunk lies outside the data of the Parquet file or holds another number of values than rows, or a
            row group claims more rows than any has.
    """
    row_counts = sidecar.row_counts
    _check_row_counts(sidecar)
    survives = row_counts > 0
    all_match = np.ones(sidecar.row_group_count, dtype=bool)
    report = None
    if predicate is not None:
        statistics = SidecarStatistics(sidecar, predicate_columns)
        verdict, report = prune(predicate, statistics, sidecar.row_group_count)
        survives &= verdict.survives
        all_match = verdict.all_rows_match
    surviving = np.flatnonzero(survives)
    for_predicate = {place for place in predicate_columns.values() if place is not None}
    output_only = _chunk_table(sidecar, tuple(sorted(set(output_columns))), surviving)
    with_predicate = _chunk_table(sidecar, tuple(sorted({*output_columns, *for_predicate})), surviving)
    return PartitionRowGroups(
        reads=tuple(
            _read(
                output_only if all_match[row_group] else with_predicate,
                position,
                partition_index=partition_index,
                row_group=int(row_group),
                row_count=int(row_counts[row_group]),
                all_rows_match=bool(all_match[row_group]),
            )
            for position, row_group in enumerate(surviving)
        ),
        report=report,
    )


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


def _chunk_table(sidecar: Sidecar, columns: tuple[int, ...], row_groups: npt.NDArray[np.intp]) -> _ChunkTable:
    shape = (len(row_groups), len(columns))
    starts, stops = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
    all_null = np.empty(shape, dtype=bool)
    row_counts = sidecar.row_counts[row_groups]
    for position, column in enumerate(columns):
        chunks = sidecar.chunks(column)
        descriptor = sidecar.column(column)
        is_flat = descriptor.max_rep_level == 0
        values = chunks.num_values[row_groups]
        starts[:, position] = chunks.byte_range_start[row_groups]
        stops[:, position] = starts[:, position] + chunks.total_compressed_bytes[row_groups]
        # In a nested column a null count may count elements, so only flat columns prove that all rows are null.
        # A REQUIRED column cannot mark nulls: rows counted as such hold 0 in BYTE and its like, and unknown values else.
        can_be_made = is_flat and (descriptor.max_def_level > 0 or sidecar.column_type(column).never_null)
        counted_null = chunks.has_null_count[row_groups] & (chunks.null_count[row_groups] == values)
        all_null[:, position] = counted_null & can_be_made
        if is_flat:
            _check(values == row_counts, sidecar, row_groups, descriptor.name, "NUM_VALUES differs from NUM_ROWS")
    inside = (starts >= _PARQUET_MAGIC_BYTES) & (stops >= starts) & (stops <= sidecar.footer.parquet_footer_offset)
    for position, column in enumerate(columns):
        message = f"the chunk lies outside the data of the file, [4, {sidecar.footer.parquet_footer_offset})"
        in_file = inside[:, position] | all_null[:, position]
        _check(in_file, sidecar, row_groups, sidecar.column(column).name, message)
    return _ChunkTable(columns=columns, starts=starts, stops=stops, all_null=all_null)


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


def _read(  # noqa: PLR0913 - the fields of a row group read
    chunks: _ChunkTable,
    position: int,
    *,
    partition_index: int,
    row_group: int,
    row_count: int,
    all_rows_match: bool,
) -> RowGroupRead:
    fetched = np.flatnonzero(~chunks.all_null[position])
    return RowGroupRead(
        partition_index=partition_index,
        row_group=row_group,
        row_group_rows=row_count,
        selection=None,
        columns=tuple(chunks.columns[column] for column in fetched),
        column_rows=(None,) * len(fetched),
        piece_columns=np.arange(len(fetched)),
        piece_starts=chunks.starts[position, fetched],
        piece_stops=chunks.stops[position, fetched],
        made_columns=tuple(chunks.columns[column] for column in np.flatnonzero(chunks.all_null[position])),
        all_rows_match=all_rows_match,
    )
