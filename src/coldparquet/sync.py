"""The same API, blocking: for notebooks, scripts and everything that has no event loop.

One event loop runs in a background thread and does all of the work; the classes here hand each call over to it and
wait. A call from within that loop would wait for itself and is refused. What has no blocking form of its own goes through
:func:`run`: ``cp.sync.run(index_table("trades"))``. An error about a call itself comes without the frames of the library.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import pyarrow as pa

from coldparquet import opening as asynchronous
from coldparquet.concurrency import background
from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    BudgetExceededError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from coldparquet.scan.stream import blocking_batches
from coldparquet.table_scan import Scan as AsyncScan

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    import polars as pl
    import pyarrow.compute as pc

    from coldparquet.catalog.partition import Partition
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
Result = TypeVar("Result")


_ABOUT_THE_CALL = (
    InvalidInputError,
    NotFoundError,
    AccessError,
    ArchivedObjectError,
    BudgetExceededError,
    UnsupportedError,
)
"""Errors whose message says all: the frames in which they were found are of no use to a caller."""


def _few_frames(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make errors about the call come from the call itself: a notebook shows two frames in place of thirty."""

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        try:
            return function(*arguments, **options)
        except _ABOUT_THE_CALL as error:
            raise error.with_traceback(None)  # noqa: B904 - the error itself, with the cause that it has

    return call


_Documented = TypeVar("_Documented", bound="Callable[..., Any]")


def _documented_by(twin: object) -> Callable[[_Documented], _Documented]:
    """Take over the docstring of what is asynchronous, in words for what blocks, so that help() tells all."""

    def document(function: _Documented) -> _Documented:
        function.__doc__ = _in_blocking_words(twin.__doc__)
        return function

    return document


def _in_blocking_words(text: str | None) -> str | None:
    return (
        None if text is None else text.replace("async with ", "with ").replace("await ", "").replace("aclose", "close")
    )


@_few_frames
def run(coroutine: Awaitable[Result]) -> Result:
    """Wait for anything of the library that is asynchronous, and return what it returns; inside of notebooks, too.

    With ``index_table``, ``verify_table`` and the others of :mod:`coldparquet.maintenance` and :mod:`coldparquet.publish`, a
    ticket's ``wait()`` and so on. An interrupt cancels it.

    Args:
        coroutine: What the asynchronous function returned: ``run(index_table("trades"))``.

    Raises:
        InvalidInputError: This is the event loop that would do the work, or there is nothing to wait for.
    """
    if not isinstance(coroutine, Awaitable):
        raise InvalidInputError(
            f"run() waits for what an asynchronous function returned, such as run(index_table('trades')), and was given a"
            f" {type(coroutine).__name__}; what coldparquet.sync returns is there already",
            kind="NotAwaitable",
        )
    return background.run(_waiting_for(coroutine))


async def _waiting_for(awaitable: Awaitable[Result]) -> Result:
    return await awaitable


def _blocking(
    method: Callable[Concatenate[AsyncScan, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Scan, Arguments], Result]:
    """Make the blocking twin of a method of :class:`coldparquet.table_scan.Scan`, with its signature and docstring."""

    @_documented_by(method)
    @_few_frames
    @wraps(method)
    def wait(self: Scan, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return background.run(method(self._scan, *arguments, **options))

    return wait


class Batches:
    """The record batches of a scan, one after the other; made by :meth:`Scan.batches`.

    Leaving the loop or the ``with`` block early cancels what is in flight.
    """

    def __init__(self, scan: AsyncScan, *, slow_start: bool, progress: bool) -> None:
        self._batches = blocking_batches(scan.batches(slow_start=slow_start, progress=progress))

    def __iter__(self) -> Self:
        return self

    @_few_frames
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
    """An immutable question, made by :meth:`Table.scan`. Planning costs at most metadata requests; only reading fetches data.

    It is planned once; reading it twice fetches the data twice. DuckDB, Polars, pandas 3 and anything else that takes Arrow
    can be given the scan itself.
    """

    def __init__(self, scan: AsyncScan) -> None:
        self._scan = scan

    def __repr__(self) -> str:
        return repr(self._scan)

    def _repr_html_(self) -> str:
        return self._scan._repr_html_()

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types of the result."""
        return self._scan.schema

    @property
    @_documented_by(AsyncScan.stats)
    def stats(self) -> ScanStatistics:
        """What this scan has cost so far."""
        return self._scan.stats

    @property
    @_documented_by(AsyncScan.request_log)
    def request_log(self) -> tuple[RequestRecord, ...]:
        """The newest requests that this scan sent."""
        return self._scan.request_log

    @_documented_by(AsyncScan.request_dollars)
    def request_dollars(self, record: RequestRecord) -> float | None:
        """Return what one request of a log costs."""
        return self._scan.request_dollars(record)

    @_documented_by(AsyncScan.report)
    @_few_frames
    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write what this scan has done so far to a file, as HTML or SVG."""
        return self._scan.report(path)

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

    def batches(self, *, slow_start: bool = False, progress: bool = False) -> Batches:
        """Stream the rows as record batches: ``for batch in scan.batches()``, or ``with scan.batches() as batches``.

        Requests: those of the plan, prefetched within ``options.memory_limit_bytes``.

        Args:
            slow_start: For consumers that may stop at any row: fetch the first row group alone, and with each that is
                consumed four times as many as before. Reading everything takes up to three more round trips.
            progress: Whether a bar on standard error, or in the notebook, shows how much of the plan has been fetched,
                after a second.
        """
        return Batches(self._scan, slow_start=slow_start, progress=progress)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows to DuckDB, Polars, pandas or anything else that speaks the Arrow PyCapsule interface."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]


class Table:
    """Partitions that are read as one table. Made by :func:`open_table`, :func:`open_partition` and :func:`open_partitions`.

    Everything that it fetched stays valid while it is open: later writers change nothing that it returns. Close it with
    ``with`` or :meth:`close`.
    """

    def __init__(self, table: AsyncTable) -> None:
        self._table = table

    def __repr__(self) -> str:
        return repr(self._table)

    def _repr_html_(self) -> str:
        return self._table._repr_html_()

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
        """Columns and Arrow types; columns of unreadable types are left out.

        They come from the table's ``_meta`` or, where there is none, from its newest partition, from all in its index, or from all that were named;
        ``ReadOptions.columns_from`` makes it all that there are.
        """
        return self._table.schema

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that are read, oldest first."""
        return self._table.partitions

    @property
    def txn(self) -> int | None:
        """Transaction of the table that is read; None where a directory listing decided, or partitions were named."""
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

    @_few_frames
    def refresh(self) -> bool:
        """Move to the newest state of the table. Scans that were made before go on with the old one.

        Requests: those of opening the table. What is known of partitions that did not change is kept, and so is what was
        fetched of them (``StoreOptions.cache_limit_bytes``).

        Returns:
            Whether the state is another one than before; always True where a directory listing decides, because names
            do not tell.

        Raises:
            NotFoundError: The table is gone.
            FormatError: A table file is damaged.
            StorageError: The table files kept changing while they were read.
        """
        return background.run(self._table.refresh())

    @property
    def request_log(self) -> tuple[RequestRecord, ...]:
        """The requests that were sent since the table was opened, at most the newest 16,384, with reason and timing."""
        return self._table.request_log

    @_few_frames
    def scan(
        self,
        columns: Iterable[str] | None = None,
        where: Where | pc.Expression = None,
        *,
        limit: int | None = None,
        options: ReadOptions | None = None,
    ) -> Scan:
        """Ask a question; nothing is fetched yet.

        Args:
            columns: Names of the result's columns, in its order; None for all. An empty list gives rows without columns, as
                many as there are: from metadata alone, where that decides.
            where: A condition as SQL text, ``ts >= now() - interval '1 day' and symbol like 'BTC%'``, a list of
                ``(column, operator, value)`` (a list of such lists is an OR of ANDs), an expression built with
                :func:`coldparquet.col`, or one of pyarrow, ``pc.field("price") > 3``. Rows for which it is true are returned,
                with SQL's rules for NULL. Times are UTC. ``ts = '2024-03-01'`` is an instant, ``ts in '2024-03-01'`` the day;
                ``now()`` is the time of this call.
            limit: At most so many rows, the first ones in table order.
            options: How to read; the default is what the table was opened with.

        Raises:
            InvalidInputError: A column is unknown, the condition does not parse or fit the columns, or ``options`` are no
                :class:`ReadOptions`.
            UnsupportedError: A chosen column has a type that this version does not read.
        """
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


@_documented_by(asynchronous.open_table)
@_with_arguments_of(asynchronous.open_table)
@_few_frames
def open_table(*arguments: Any, **options: Any) -> Table:
    """Open a directory of partitions, one partition directory, or one Parquet file."""
    return _opened(asynchronous.open_table(*arguments, **options))


@_documented_by(asynchronous.open_partition)
@_with_arguments_of(asynchronous.open_partition)
@_few_frames
def open_partition(*arguments: Any, **options: Any) -> Table:
    """Open one partition: its directory or its Parquet file."""
    return _opened(asynchronous.open_partition(*arguments, **options))


@_documented_by(asynchronous.open_partitions)
@_with_arguments_of(asynchronous.open_partitions)
@_few_frames
def open_partitions(*arguments: Any, **options: Any) -> Table:
    """Open some partitions of a table, or some files, and no others."""
    return _opened(asynchronous.open_partitions(*arguments, **options))


def _opened(opening: asynchronous.Opening) -> Table:
    async def wait() -> AsyncTable:
        return await opening

    return Table(background.run(wait()))


@_few_frames
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
    """Write rows to a new or existing table; a reader sees the old table or the new one, never a mixture.

    The rows may come in any order. They are sorted by the designated timestamp; equal ones keep their order, behind
    those that the table has. Of two concurrent writers one fails, and readers see nothing of it. The remains of a
    killed run are never seen either, and do not hinder the next run. ``compact_table(purge=True)`` eventually removes
    them.

    A table that a QuestDB server has open must not be written to; see :mod:`coldparquet.write.versions`.

    Columns of a new table get the QuestDB types that :func:`~coldparquet.write.write_partition` describes. Each file of
    a new table numbers the symbols of SYMBOL columns by itself: this library and every Parquet reader can read them,
    QuestDB cannot. A table that QuestDB has made accepts only symbols that it already has.

    Requests: about 15 and those of :func:`~coldparquet.write.write_partition` for each partition. Where rows are added
    to existing partitions, also those of reading them.

    Args:
        url: The table's directory: any fsspec URL, or a local path.
        rows: A table, a reader, or batches. A stream is read in a worker thread.
        timestamp: The designated timestamp, which every new table needs; 64-bit integers count microseconds since 1970.
            None uses that of the table.
        partition_by: ``HOUR``, ``DAY``, ``WEEK``, ``MONTH`` or ``YEAR``. None uses that of the table, ``DAY`` for a new
            one.
        mode: What to do if the table exists. ``"error"`` refuses, ``"append"`` adds the rows, ``"overwrite"`` replaces
            the partitions to which rows belong and leaves all others, ``"ignore"`` does nothing.
        symbols: Text columns of a new table that become SYMBOL.
        options: How to store them; see :class:`~coldparquet.write.WriteOptions`. They are always sorted.
        memory_limit_bytes: Size of the rows held in memory for sorting; sorting takes as much again. None for the default.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        store_options: Retries and timeouts; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``url`` is then a path in it. It stays open.

    Returns:
        The written partitions.

    Raises:
        InvalidInputError: The table exists (kind ``AlreadyExists``), or the directory has partitions but no table
            (``NotEmpty``). The table is another one (``OtherTable``) or has other columns (``SchemaMismatch``). A
            column has no QuestDB type (``UnknownType``) or a value does not fit (``DoesNotFit``, ``NullValue``,
            ``RaggedArray``, ``UnknownSymbol``). A server has the table open (``ServerRunning``), or left a change
            unfinished (``UnfinishedChange``).
        UnsupportedError: Rows belong to a partition that is not in Parquet (kind ``NativePartition``).
        ObjectChangedError: Another writer has committed meanwhile (kind ``CommitConflict``).
        AccessError: Writing is not permitted.
        StorageError: The disk or the store failed.
    """
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
