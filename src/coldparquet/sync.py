"""The same API, blocking: for notebooks, scripts and everything that has no event loop.

One event loop runs in a background thread and does all of the work; the classes here hand each call over to it and
wait. A call from within that loop would wait for itself and is refused. What has no blocking form of its own goes through
:func:`run`: ``cp.sync.run(index_table("trades"))``.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self

import pyarrow as pa

from coldparquet import opening as asynchronous
from coldparquet.concurrency import background
from coldparquet.errors import InvalidInputError
from coldparquet.scan.stream import blocking_batches
from coldparquet.table_scan import Scan as AsyncScan

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
    from types import TracebackType

    import polars as pl
    import pyarrow.compute as pc

    from coldparquet.catalog.partition import Partition
    from coldparquet.concurrency import Result
    from coldparquet.dataset import TableDataset
    from coldparquet.expressions.where import Where
    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.scan.stats import ScanStatistics
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.log import RequestRecord
    from coldparquet.table import Table as AsyncTable
    from coldparquet.write.begin import WriteMode
    from coldparquet.write.options import WriteOptions
    from coldparquet.write.rows import Rows
    from coldparquet.write.table import WrittenTable


Arguments = ParamSpec("Arguments")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Wait for anything of the library that is asynchronous, and return what it returns; inside of notebooks, too.

    With ``index_table``, ``verify_table`` and the others of :mod:`coldparquet.maintenance` and :mod:`coldparquet.publish`, a
    ticket's ``wait()`` and so on. An interrupt cancels it.

    Raises:
        InvalidInputError: This is the event loop that would do the work.
    """
    return background.run(coroutine)


def _blocking(
    method: Callable[Concatenate[AsyncScan, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Scan, Arguments], Result]:
    """Make the blocking twin of a method of :class:`coldparquet.table_scan.Scan`, with its signature and docstring."""

    @wraps(method)
    def wait(self: Scan, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return background.run(method(self._scan, *arguments, **options))

    return wait


class Batches:
    """The record batches of a scan, one after the other; made by :meth:`Scan.batches`.

    Leaving the loop or the ``with`` block early cancels what is in flight.
    """

    def __init__(self, scan: AsyncScan, *, slow_start: bool) -> None:
        self._batches = blocking_batches(scan.batches(slow_start=slow_start))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is in flight; no batch comes after it."""
        self._batches.close()


class Scan:
    """A question about a table; see :class:`coldparquet.table_scan.Scan`. Hands itself over to anything that takes Arrow."""

    def __init__(self, scan: AsyncScan) -> None:
        self._scan = scan

    def __repr__(self) -> str:
        return repr(self._scan)

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types of the result."""
        return self._scan.schema

    @property
    def stats(self) -> ScanStatistics:
        """What the scan has cost so far; see :attr:`coldparquet.table_scan.Scan.stats`."""
        return self._scan.stats

    @property
    def request_log(self) -> tuple[RequestRecord, ...]:
        """The newest requests of the scan; see :attr:`coldparquet.table_scan.Scan.request_log`."""
        return self._scan.request_log

    def request_dollars(self, record: RequestRecord) -> float | None:
        """Return what one request costs; see :meth:`coldparquet.table_scan.Scan.request_dollars`."""
        return self._scan.request_dollars(record)

    plan = _blocking(AsyncScan.plan)
    count = _blocking(AsyncScan.count)
    any = _blocking(AsyncScan.any)
    null_count = _blocking(AsyncScan.null_count)
    min_max = _blocking(AsyncScan.min_max)
    min = _blocking(AsyncScan.min)
    max = _blocking(AsyncScan.max)
    first_timestamp = _blocking(AsyncScan.first_timestamp)
    last_timestamp = _blocking(AsyncScan.last_timestamp)
    head = _blocking(AsyncScan.head)
    tail = _blocking(AsyncScan.tail)
    top_k = _blocking(AsyncScan.top_k)
    latest_by = _blocking(AsyncScan.latest_by)
    archived = _blocking(AsyncScan.archived)
    restore = _blocking(AsyncScan.restore)
    pieces = _blocking(AsyncScan.pieces)
    to_arrow = _blocking(AsyncScan.to_arrow)
    to_pandas = _blocking(AsyncScan.to_pandas)
    to_polars = _blocking(AsyncScan.to_polars)

    def batches(self, *, slow_start: bool = False) -> Batches:
        """Stream the rows as record batches: ``for batch in scan.batches()``, or ``with scan.batches() as batches``.

        Args:
            slow_start: For consumers that may stop early; see :meth:`coldparquet.table_scan.Scan.batches`.
        """
        return Batches(self._scan, slow_start=slow_start)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows to DuckDB, Polars, pandas or anything else that speaks the Arrow PyCapsule interface."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]


class Table:
    """A table that is open; see :class:`coldparquet.table.Table`. Use it with ``with`` or close it."""

    def __init__(self, table: AsyncTable) -> None:
        self._table = table

    def __repr__(self) -> str:
        return repr(self._table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        background.run(self._table.__aexit__(kind, error, traceback))

    def close(self) -> None:
        """Release connections and threads."""
        background.run(self._table.aclose())

    @property
    def url(self) -> str:
        """Where the table lies, without credentials."""
        return self._table.url

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types."""
        return self._table.schema

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that are read, oldest first."""
        return self._table.partitions

    @property
    def txn(self) -> int | None:
        """Transaction that is read; see :attr:`coldparquet.table.Table.txn`."""
        return self._table.txn

    def to_pyarrow_dataset(
        self, *, nan: Literal["ieee", "largest"] = "ieee", wide_decimals: Literal["decimal", "text"] = "decimal"
    ) -> TableDataset:
        """Return the table for pyarrow, DuckDB, DataFusion, ibis or Ray, which push columns and filters down into it.

        Requests: none before the engine asks.

        Args:
            nan: How the engine compares NaN: as IEEE 754 does, like pyarrow, or as the largest number, like DataFusion and
                DuckDB.
            wide_decimals: What decimals of more than 38 digits are; DuckDB knows none. With ``text`` and ``nan="largest"``
                half floats, which DuckDB does not know either, are single ones.

        Raises:
            InvalidInputError: There is no such choice.
        """
        if nan not in ("ieee", "largest") or wide_decimals not in ("decimal", "text"):
            raise InvalidInputError(
                f"nan is {nan!r} and wide_decimals {wide_decimals!r}; they must be 'ieee' or 'largest', 'decimal' or 'text'"
            )
        from coldparquet.dataset import EngineTable, TableDataset  # noqa: PLC0415 - pyarrow.dataset takes 50 ms to import
        from coldparquet.expressions.predicate import ARROW, DUCKDB  # noqa: PLC0415

        dialect = DUCKDB if nan == "largest" else ARROW
        return TableDataset(EngineTable(self._table, dialect, wide_decimals_as_text=wide_decimals == "text"))

    def lazy(self) -> pl.LazyFrame:
        """Return the table as Polars' LazyFrame, which pushes columns, filters and limits down; see :mod:`coldparquet.polars`.

        Every ``collect()`` reads the state that the table has then, see :meth:`refresh`. Requests: none before Polars asks.
        """
        from coldparquet.polars import lazy_frame  # noqa: PLC0415 - Polars is the caller's choice, not a dependency

        return lazy_frame(self._table)

    def refresh(self) -> bool:
        """Move to the newest state of the table; see :meth:`coldparquet.table.Table.refresh`."""
        return background.run(self._table.refresh())

    @property
    def request_log(self) -> tuple[RequestRecord, ...]:
        """The newest requests since the table was opened; see :attr:`coldparquet.table.Table.request_log`."""
        return self._table.request_log

    def scan(
        self,
        columns: Iterable[str] | None = None,
        where: Where | pc.Expression = None,
        *,
        limit: int | None = None,
        options: ReadOptions | None = None,
    ) -> Scan:
        """Ask a question; see :meth:`coldparquet.table.Table.scan`."""
        return Scan(self._table.scan(columns, where, limit=limit, options=options))


def _with_arguments_of(
    function: Callable[Arguments, object],
) -> Callable[[Callable[..., Result]], Callable[Arguments, Result]]:
    """Give a function the arguments of another one, for type checkers and for help(); result and docstring stay its own."""

    def give(blocking: Callable[..., Result]) -> Callable[Arguments, Result]:
        result = inspect.signature(blocking).return_annotation
        signature = inspect.signature(function).replace(return_annotation=result)
        vars(blocking)["__signature__"] = signature
        return blocking

    return give


@_with_arguments_of(asynchronous.open_table)
def open_table(*arguments: Any, **options: Any) -> Table:
    """Open a table; see :func:`coldparquet.open_table`."""
    return _opened(asynchronous.open_table(*arguments, **options))


@_with_arguments_of(asynchronous.open_partition)
def open_partition(*arguments: Any, **options: Any) -> Table:
    """Open one partition; see :func:`coldparquet.open_partition`."""
    return _opened(asynchronous.open_partition(*arguments, **options))


@_with_arguments_of(asynchronous.open_partitions)
def open_partitions(*arguments: Any, **options: Any) -> Table:
    """Open some partitions of a table; see :func:`coldparquet.open_partitions`."""
    return _opened(asynchronous.open_partitions(*arguments, **options))


def _opened(opening: asynchronous.Opening) -> Table:
    async def wait() -> AsyncTable:
        return await opening

    return Table(background.run(wait()))


def write_table(  # noqa: PLR0913 - those of coldparquet.write_table
    url: str | os.PathLike[str],
    rows: Rows,
    *,
    timestamp: str | None = None,
    partition_by: str | None = None,
    mode: WriteMode = "error",
    symbols: Collection[str] = (),
    options: WriteOptions | None = None,
    memory_limit_bytes: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> WrittenTable:
    """Write rows to a table; see :func:`coldparquet.write_table`."""
    from coldparquet.write.begin import MEMORY_LIMIT_BYTES  # noqa: PLC0415 - who only reads need not load the writer
    from coldparquet.write.table import write_table as write  # noqa: PLC0415

    return background.run(
        write(
            url,
            rows,
            timestamp=timestamp,
            partition_by=partition_by,
            mode=mode,
            symbols=symbols,
            options=options,
            memory_limit_bytes=MEMORY_LIMIT_BYTES if memory_limit_bytes is None else memory_limit_bytes,
            storage_options=storage_options,
            store_options=store_options,
            store=store,
        )
    )
