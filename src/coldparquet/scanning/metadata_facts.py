"""What the metadata of the partitions of a plan says for certain of one column, read by read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.plan.bind import BoundField
from coldparquet.plan.exact_bounds import exact_bounds
from coldparquet.scanning.planned_partition import PlannedParquet
from coldparquet.scanning.time_ranks import reads_of_partitions

if TYPE_CHECKING:
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.exact_bounds import ExactBounds
    from coldparquet.plan.projection import TableColumn
    from coldparquet.scanning.scan_planner import PlannedScan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnFacts:
    """What is known of a column in one partition."""

    path: str
    """The Parquet file, for error messages."""
    reads: slice
    """Where the reads of the partition are among those of the plan."""
    row_groups: IntArray
    """Row group of each of these reads, shape ``(reads,)``."""
    is_whole: BoolArray
    """Whether the reads of its row group, together, read all of its rows, and all of them satisfy the predicate."""
    exact: ExactBounds
    """What its row groups hold."""


def column_facts(planned: PlannedScan, column: TableColumn) -> list[ColumnFacts]:
    """Collect what is known; of native partitions nothing is, nor of any where statistics are not to be believed.

    Args:
        planned: The plan; the column is one of those that the question needs.
        column: The column.
    """
    if not planned.question.options.statistics:
        return []
    field = BoundField(name=column.name, index=column.index, type=column.readable_type)
    reads = planned.plan.row_groups
    matching_rows = np.fromiter((read.row_count if read.all_rows_match else 0 for read in reads), np.int64, len(reads))
    facts = []
    for index, here, row_groups in reads_of_partitions(planned):
        partition = planned.partitions[index]
        if isinstance(partition, PlannedParquet):
            row_counts = partition.sidecar.row_counts
            matching = np.bincount(row_groups, weights=matching_rows[here], minlength=len(row_counts))
            facts.append(
                ColumnFacts(
                    path=partition.data_path,
                    reads=here,
                    row_groups=row_groups,
                    is_whole=(matching == row_counts)[row_groups],
                    exact=exact_bounds(partition.sidecar, partition.places[column.index], field),
                )
            )
    return facts
