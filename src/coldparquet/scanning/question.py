"""A question about one state of a table, as plain data."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError
from coldparquet.plan.coalescing_choice import choose_coalescing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.budgets import Budget
    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.plan.store_speed import StoreSpeed


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
    looks at pages, but leaves it to the asker to cut the reads."""
    expects_data: bool = True
    """Whether rows will probably be read, so that their data objects are looked at along with the metadata, and requests are
    planned for all of them. For questions that metadata may answer both wait until it is known that it does not: the plan has
    no requests, and whoever carries it out chooses the reads, see :func:`coldparquet.scanning.request_planner.with_reads`."""
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
        """Return how the ranges of one object become requests, by what is known of its storage class.

        Args:
            data_path: The data object of a partition.
        """
        info = self.snapshot.data_objects.info(data_path)
        return choose_coalescing(self.options, self.speed, None if info is None else info.storage_class)

    @property
    def is_selective(self) -> bool:
        """Whether pages may be left out, because not every row is wanted."""
        return self.predicate is not None or self.limit is not None or self.last_rows is not None

    @property
    def predicate_columns(self) -> tuple[TableColumn, ...]:
        """Columns that the predicate looks at, each once."""
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
