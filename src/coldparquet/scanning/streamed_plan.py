"""What streaming needs of a plan and of its question: as little as a piece of a plan knows, far from the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.read_plan import ReadPlan
    from coldparquet.scanning.planned_partition import PlannedPartition
    from coldparquet.scanning.question import KnownSymbols


class StreamedQuestion(Protocol):
    """What the rows are to be like."""

    @property
    def options(self) -> ReadOptions:
        """How to read."""
        ...

    @property
    def output_columns(self) -> tuple[TableColumn, ...]:
        """Columns of the result; none where only the number of rows is wanted."""
        ...

    @property
    def needed_columns(self) -> tuple[TableColumn, ...]:
        """Columns of the result and of the predicate, each once."""
        ...

    @property
    def predicate(self) -> BoundPredicate | None:
        """What every row satisfies."""
        ...

    @property
    def limit(self) -> int | None:
        """At most so many rows; None for all."""
        ...

    @property
    def symbols(self) -> KnownSymbols:
        """Symbols of the table; only where the options ask for one dictionary."""
        ...

    def coalescing_of(self, data_path: str) -> Coalescing:
        """Return how the ranges of deferred columns of one object become requests."""
        ...


class StreamedPlan(Protocol):
    """A plan that may be carried out: nobody has to be asked any more."""

    @property
    def question(self) -> StreamedQuestion:
        """What is asked."""
        ...

    @property
    def plan(self) -> ReadPlan:
        """What is read."""
        ...

    @property
    def partitions(self) -> Sequence[PlannedPartition]:
        """In the order of :attr:`ReadPlan.partitions`."""
        ...

    @property
    def late_part_bytes(self) -> int:
        """About how long the requests of a second stage should be."""
        ...
