"""What planning one partition brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from coldparquet.plan.read_plan import PartitionRead, PlannedRead
    from coldparquet.scanning.planned_partition import PlannedPartition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatchEstimate:
    """How many rows of each read are expected to satisfy the predicate, for the choice of what to fetch first."""

    matching_rows: npt.NDArray[np.float64]
    """Number of them in the row group of each read, shape ``(reads,)``."""
    page_rows: npt.NDArray[np.int64]
    """Rows that are fetched together with any one of them: those of a page, or of the row group."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionPlan:
    """What is read of one partition, and how it becomes rows."""

    read: PartitionRead
    row_groups: tuple[PlannedRead, ...]
    planned: PlannedPartition
    estimate: MatchEstimate | None
    """None where no read has a predicate left to evaluate, or the partition is native."""
