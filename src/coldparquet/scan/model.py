"""Plain data of planning: a question about one state of a table, and what planning finds of each partition."""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from coldparquet.errors import InvalidInputError
from coldparquet.plan.coalescing import choose_coalescing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.budget import Budget
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import MetadataRequest, PartitionRead, Read, ReadPlan, StoreSpeed


class KnownPartition(Struct, frozen=True, kw_only=True):
    """A partition with its metadata: what was fetched to plan it."""

    partition: Partition
    metadata: PartitionMetadata | None
    """None if the partition is native."""
    native_reads: tuple[Read, ...] = ()
    """The slices of a native partition, in ascending order of rows; none if no row is in the time range."""
    requests: tuple[MetadataRequest, ...]
    """The requests spent on this. The plan that fetched a dictionary first is charged for it."""
    places: Mapping[int, int | None] = field(default_factory=dict)
    """By index in the table: the number of each needed column in the sidecar, None if it is absent; once planned."""


class MatchEstimate(Struct, frozen=True, kw_only=True, eq=False):
    """Expected number of rows of each read that satisfy the predicate; it decides what to fetch first."""

    matching_rows: npt.NDArray[np.float64]
    """Number of them in the row group of each read, shape ``(reads,)``."""
    page_rows: npt.NDArray[np.int64]
    """Number of rows fetched together with any one row: those of its page, or of its row group."""


class PartitionPlan(Struct, frozen=True, kw_only=True, eq=False):
    """What is read of one partition."""

    read: PartitionRead
    row_groups: tuple[Read, ...]
    known: KnownPartition
    estimate: MatchEstimate | None
    """None if no read has a predicate left to evaluate, or the partition is native."""


class RowQuestion(Struct, frozen=True, kw_only=True):
    """What is asked of rows, without the state of the table: it can be asked elsewhere, once they are planned."""

    options: ReadOptions
    output_columns: tuple[TableColumn, ...]
    """Columns of the result; none if only the number of rows is wanted."""
    predicate: BoundPredicate | None
    """The condition that every row satisfies."""
    predicate_columns: tuple[TableColumn, ...]
    """Columns of the predicate, each once."""
    limit: int | None
    """Most rows of the result; None for all."""
    symbols: Mapping[int, pa.Array[Any]] = field(default_factory=dict)
    """By index of the column in the table: its distinct symbols, each at the position of its key; only if the options
    ask for one dictionary, and planning has looked them up."""

    @property
    def needed_columns(self) -> tuple[TableColumn, ...]:
        """Columns of the result and of the predicate, each once."""
        columns = (*self.output_columns, *self.predicate_columns)
        return tuple({column.index: column for column in columns}.values())


_LOGGER = logging.getLogger("coldparquet")


class HintIfEmpty:
    """What to tell a caller whose question no row matches: once, however often it is asked."""

    def __init__(self, text: str, url: str) -> None:
        self.text = text
        self._url = url
        self._was_told = False

    def tell(self, row_count: int) -> None:
        """Log the hint if there are no rows."""
        if row_count == 0 and not self._was_told:
            self._was_told = True
            _LOGGER.warning("%s: %s", self._url, self.text)


class Question(RowQuestion, frozen=True, kw_only=True):
    """What is asked of which state of which table: everything that planning needs."""

    url: str
    speed: StoreSpeed
    """Of the store, for the trade-off between bytes and round trips."""
    snapshot: TableSnapshot
    names_columns: bool = True
    """Whether the caller chose columns by name; otherwise all columns of the table are wanted."""
    predicate_text: str | None
    last_rows: int | None = None
    """The question wants only this many rows, the last ones in table order; None for all. Planning then uses pages, but
    the caller cuts the reads."""
    expects_data: bool = True
    """Whether rows will probably be read. Then data objects get a HEAD along with the metadata, and planning makes
    requests for all of them. Questions that metadata may answer postpone both: the plan has no requests, and its user
    chooses the reads, see :func:`coldparquet.scan.requests.with_reads`."""
    is_read_here: bool = True
    """Whether this process goes on to read the rows. If not, no small file comes as a whole in place of its footer."""
    row_windows: Mapping[str, tuple[int, int]] | None = None
    """By data path of each partition: the half-open range of rows that is asked for, before the predicate. None for all
    rows of all partitions. Only Parquet partitions are cut."""
    hint: HintIfEmpty | None = None
    """For a question that is probably not the one that was meant."""
    budget: Budget | None = None
    """Shared by all plans that answer this question; None if a single plan does."""

    @property
    def coalescing(self) -> Coalescing:
        """How the ranges of an object become requests if nothing is known of the object."""
        return choose_coalescing(self.options, self.speed)

    def coalescing_of(self, data_path: str) -> Coalescing:
        """Return how the ranges of one object become requests, given its storage class."""
        info = self.snapshot.versions.info(data_path)
        return choose_coalescing(self.options, self.speed, None if info is None else info.storage_class)

    @property
    def is_selective(self) -> bool:
        """Whether pages may be left out, because not every row is wanted."""
        return self.predicate is not None or self.limit is not None or self.last_rows is not None


@contextmanager
def told_of_older_columns(snapshot: TableSnapshot) -> Iterator[None]:
    """Make the error for an unknown column say that only older partitions may have it. No request.

    A table opened with the columns of its newest partition does not have such a column.
    """
    try:
        yield
    except InvalidInputError as error:
        is_known = snapshot.knows_all_columns or snapshot.files is not None or len(snapshot.partitions) == 1
        if error.kind != "UnknownColumn" or is_known:
            raise
        name = error.details.get("column")
        known = [(partition.name, partition.snapshot) for partition in snapshot.partitions]
        holder = next(
            (where for where, sidecar in known if sidecar and sidecar.column_index(str(name)) is not None), None
        )
        if holder is None and error.details.get("near_matches"):
            raise  # a misspelt name
        raise InvalidInputError(
            f"{error.message}{' T' if error.message.endswith('?') else '; t'}he table was opened with the columns of its newest"
            f" partition, and {f'partition {holder} has it' if holder else 'older ones may have others'}: open it with"
            " ReadOptions(columns_from='all') for the columns of all",
            kind=error.kind,
            path=error.path,
            **error.details,
        ) from None


QuestionKey: TypeAlias = tuple[object, ...]
"""What identifies a question: columns, condition, limit and so on."""

_LIMIT = 1024
"""Number of remembered questions. The ranges of a question older than these have left the caches as well."""


class RememberedSpeeds:
    """Plans a repeated question like the first time, so that it asks for ranges that the caches hold.

    The store's speed decides what a plan reads over and whether it gathers evidence first. Every request measures it
    anew. Without this class, the second plan would ask for bytes that the first one did not fetch.
    """

    def __init__(self) -> None:
        self._speeds: OrderedDict[QuestionKey, StoreSpeed] = OrderedDict()

    def speed_for(self, question: QuestionKey, measured: StoreSpeed) -> StoreSpeed:
        """Return the speed with which a question was first planned; for a new question, the speed measured now."""
        speed = self._speeds.setdefault(question, measured)
        self._speeds.move_to_end(question)
        if len(self._speeds) > _LIMIT:
            self._speeds.popitem(last=False)
        return speed


class RowPlan(Struct, frozen=True, kw_only=True):
    """A plan that can be executed here or elsewhere."""

    question: RowQuestion
    plan: ReadPlan


class PlannedScan(RowPlan, frozen=True, kw_only=True):
    """A plan, with the state of the table and what else is known of its partitions."""

    question: Question
    known: tuple[KnownPartition, ...]
    """In the order of :attr:`ReadPlan.partitions`; their metadata may answer without data."""
    warnings: tuple[str, ...]
    """Those of its notes that a caller should see even without asking for the plan."""
