"""The last step before a plan is carried out: where its data lies, whether it may cost so much, and what must be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.scanning.archived_partitions import admit_and_restore, look_at_data
from coldparquet.scanning.request_planner import with_reads

if TYPE_CHECKING:
    from coldparquet.scanning.scan_planner import PlannedScan


async def admit(planned: PlannedScan) -> PlannedScan:
    """Make sure that a plan may be carried out: whatever stands against it is found before its first request for data.

    Requests: those of :func:`coldparquet.scanning.archived_partitions.look_at_data` and of
    :func:`~coldparquet.scanning.archived_partitions.admit_and_restore`, which also say what is raised.

    Args:
        planned: The plan.

    Returns:
        The plan, with the storage classes that are known now and the requests that are the cheapest in them.
    """
    looked_at = await look_at_data(planned)
    if looked_at is not planned and planned.question.options.goal == "cheap":
        looked_at = with_reads(looked_at, looked_at.plan.row_groups)
    return await admit_and_restore(looked_at)
