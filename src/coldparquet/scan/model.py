"""A question about one state of a table, and what planning finds of each partition, as plain data."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from coldparquet.errors import InvalidInputError
from coldparquet.plan.coalescing import choose_coalescing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.budget import Budget
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import MetadataRequest, PartitionRead, PlannedRead, ReadPlan, StoreSpeed
    from coldparquet.scan.planned import NativePlan, PlannedPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartition:
    """A partition, and what was fetched in order to plan it."""

    partition: Partition
    known: PartitionMetadata | NativePlan
    requests: tuple[MetadataRequest, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownSymbols:
    """The symbols of a table, as far as a question needs them."""

    strings: Mapping[int, pa.Array[Any]]
    """By index of the column in the table: its symbols, all distinct, each at the place of its key."""
    requests: tuple[MetadataRequest, ...]
    """What finding them cost."""


NO_SYMBOLS = KnownSymbols(strings={}, requests=())
"""Nothing is known of the table's symbols."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked of which state of which table: everything that planning needs."""

    url: str
    options: ReadOptions
    speed: StoreSpeed
    """Of the store, for the choice between bytes and round trips."""
    snapshot: TableSnapshot
    output_columns: tuple[TableColumn, ...]
    """Columns of the result; none where only the number of rows is wanted."""
    names_columns: bool = True
    """Whether they were chosen by name; otherwise all of the table's were asked for."""
    predicate_text: str | None
    predicate: BoundPredicate | None
    limit: int | None
    last_rows: int | None = None
    """Only so many rows, the last ones in table order, are wanted by whoever made the question; None for all. Planning then
    asks pages, but leaves it to the caller to cut the reads."""
    expects_data: bool = True
    """Whether rows will probably be read, so that their data objects get a HEAD along with the metadata, and requests are
    planned for all of them. For questions that metadata may answer both wait until it is known that it does not: the plan has
    no requests, and whoever carries it out chooses the reads, see :func:`coldparquet.scan.requests.with_reads`."""
    row_windows: Mapping[str, tuple[int, int]] | None = None
    """By data path of each partition: the half-open range of its rows that is asked for, before the predicate; None for all rows
    of all partitions. Only partitions in Parquet are cut."""
    symbols: KnownSymbols = NO_SYMBOLS
    """Symbols of the table, once planning has looked them up; only where the options ask for one dictionary."""

    budget: Budget | None = None
    """Shared by all plans with which this question is answered; None where one plan answers it."""

    @property
    def coalescing(self) -> Coalescing:
        """How the ranges of an object of which nothing is known become requests."""
        return choose_coalescing(self.options, self.speed)

    def coalescing_of(self, data_path: str) -> Coalescing:
        """Return how the ranges of one object become requests, by what is known of its storage class."""
        info = self.snapshot.data_objects.info(data_path)
        return choose_coalescing(self.options, self.speed, None if info is None else info.storage_class)

    @property
    def is_selective(self) -> bool:
        """Whether pages may be left out, because not every row is wanted."""
        return self.predicate is not None or self.limit is not None or self.last_rows is not None

    @property
    def predicate_columns(self) -> tuple[TableColumn, ...]:
        """Columns of the predicate, each once."""
        fields = () if self.predicate is None else self.predicate.fields()
        return tuple(self.snapshot.columns[index] for index in dict.fromkeys(field.index for field in fields))

    @property
    def needed_columns(self) -> tuple[TableColumn, ...]:
        """Columns of the result and of the predicate, each once."""
        columns = (*self.output_columns, *self.predicate_columns)
        return tuple({column.index: column for column in columns}.values())


@contextmanager
def told_of_older_columns(snapshot: TableSnapshot) -> Iterator[None]:
    """Say of a column that a table with the columns of its newest partition does not have where it may be. No request."""
    try:
        yield
    except InvalidInputError as error:
        if error.kind != "UnknownColumn" or snapshot.files is not None or len(snapshot.partitions) == 1:
            raise
        name = error.details.get("column")
        known = [(partition.name, partition.snapshot) for partition in snapshot.partitions]
        holder = next(
            (where for where, sidecar in known if sidecar and sidecar.column_index(str(name)) is not None), None
        )
        raise InvalidInputError(
            f"{error.message}{' T' if error.message.endswith('?') else '; t'}he table was opened with the columns of its newest"
            f" partition, and {f'partition {holder} has it' if holder else 'older ones may have others'}: open it with"
            " ReadOptions(columns_from='all') for the columns of all",
            kind=error.kind,
            path=error.path,
            **error.details,
        ) from None


QuestionKey: TypeAlias = tuple[object, ...]
"""What makes two questions the same, such as columns, condition and limit."""

_LIMIT = 1024
"""Questions that are remembered; of a question that is asked more rarely, the ranges are gone from the caches as well."""


class RememberedSpeeds:
    """Plan a repeated question as it was planned the first time, so that it asks for the ranges that are held by then.

    What a plan reads over, and whether it gathers evidence first, depends on the store's speed, which every request measures
    anew. Without this, the second plan would ask for bytes that the first one did not need.
    """

    def __init__(self) -> None:
        self._speeds: OrderedDict[QuestionKey, StoreSpeed] = OrderedDict()

    def speed_for(self, question: QuestionKey, measured: StoreSpeed) -> StoreSpeed:
        """Return the speed with which a question was planned first; of a new one, what was measured by now."""
        speed = self._speeds.setdefault(question, measured)
        self._speeds.move_to_end(question)
        if len(self._speeds) > _LIMIT:
            self._speeds.popitem(last=False)
        return speed


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
