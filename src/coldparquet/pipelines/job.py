"""What a job is, whatever engine runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import Field

    from coldparquet.pipelines.access import LakeStores
    from coldparquet.pipelines.lakes import Lake
    from coldparquet.pipelines.work import WorkItem, WorkPlan, WorkResult


class Job(Protocol):
    """One kind of work over a lake: plain data that says how, and three steps.

    A job keeps no state: what is left to do it finds in the tables. So it can be run again at any time, after it was
    killed too, and an item can be run twice, at the same time too, as engines do that retry and speculate.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str:
        """As the command line calls it: ``index``."""
        ...

    @property
    def dry_run(self) -> bool:
        """Whether nothing is written, and the report says what would be done."""
        ...

    @property
    def items_at_once(self) -> int:
        """Items that one process should work on at the same time: many for work that waits, 1 for work that computes."""
        ...

    async def plan(self, lakes: Sequence[Lake], stores: LakeStores) -> WorkPlan:
        """Find out what is left to do, on the driver. Tables and lakes that cannot be planned are in the plan, not raised.

        Raises:
            NotFoundError: No lake has a table.
            AccessError: No lake can be listed.
        """
        ...

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Do one piece of work, wherever that is. What it raises is the result of this item alone."""
        ...

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:
        """Do what is left once all items are done, on the driver; return what became of that."""
        ...


class Engine(Protocol):
    """Something that runs items."""

    @property
    def name(self) -> str:
        """For the report: ``local``, ``spark``."""
        ...

    async def execute(
        self, job: Job, items: Sequence[WorkItem], stores: LakeStores, on_result: Callable[[WorkResult], None]
    ) -> None:
        """Run all items in any order, and hand over one result for each.

        Args:
            job: What to do.
            items: With what; at least one.
            stores: Open stores of this process, and the settings that other processes open theirs with.
            on_result: Called with each result, in the event loop of the caller.
        """
        ...
