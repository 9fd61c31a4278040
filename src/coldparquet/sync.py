"""The same API, blocking: for notebooks, scripts and everything that has no event loop.

One event loop runs in a background thread and does all of the work; the classes here hand each call over to it and
wait. A call from within that loop would wait for itself and is refused. What has no blocking form of its own goes through
:func:`run`: ``cp.sync.run(index_table("trades"))``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from coldparquet import opening as asynchronous
from coldparquet.concurrency import background
from coldparquet.scan.stream import blocking_batches

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
    from types import TracebackType

    import pandas as pd
    import polars as pl

    from coldparquet.archive.objects import ArchivedObject
    from coldparquet.archive.restore import RestoreProgress, RestoreTicket
    from coldparquet.catalog.partition import Partition
    from coldparquet.concurrency import Result
    from coldparquet.options import ReadOptions, RestoreTerms, StoreOptions
    from coldparquet.pieces.read import ScanPieces
    from coldparquet.plan.model import ReadPlan
    from coldparquet.plan.where import Where
    from coldparquet.scan.stats import ScanStatistics
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.log import RequestRecord
    from coldparquet.table import Table as AsyncTable
    from coldparquet.table_scan import Scan as AsyncScan
    from coldparquet.write.begin import WriteMode
    from coldparquet.write.commit import WrittenTable
    from coldparquet.write.options import WriteOptions
    from coldparquet.write.parquet import Rows


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Wait for anything of the library that is asynchronous, and return what it returns; inside of notebooks, too.

    With ``index_table``, ``verify_table`` and the others of :mod:`coldparquet.maintenance` and :mod:`coldparquet.publish`, a
    ticket's ``wait()`` and so on. An interrupt cancels it.

    Raises:
        InvalidInputError: This is the event loop that would do the work.
    """
    return background.run(coroutine)


class Batches:
    """The record batches of a scan, one after the other; made by :meth:`Scan.batches`.

    Leaving the loop or the ``with`` block early cancels what is in flight.
    """

    def __init__(self, scan: AsyncScan) -> None:
        self._batches = blocking_batches(scan.batches())

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

    def plan(self) -> ReadPlan:
        """Decide which bytes to read; see :meth:`coldparquet.table_scan.Scan.plan`."""
        return background.run(self._scan.plan())

    def count(self) -> int:
        """Count the rows; see :meth:`coldparquet.table_scan.Scan.count`."""
        return background.run(self._scan.count())

    def any(self) -> bool:
        """Tell whether there is any row; see :meth:`coldparquet.table_scan.Scan.any`."""
        return background.run(self._scan.any())

    def null_count(self, column: str) -> int:
        """Count the nulls of a column; see :meth:`coldparquet.table_scan.Scan.null_count`."""
        return background.run(self._scan.null_count(column))

    def min_max(self, column: str) -> pa.StructScalar:
        """Find the smallest and the largest value of a column; see :meth:`coldparquet.table_scan.Scan.min_max`."""
        return background.run(self._scan.min_max(column))

    def min(self, column: str) -> Any:
        """Find the smallest value of a column; see :meth:`coldparquet.table_scan.Scan.min`."""
        return background.run(self._scan.min(column))

    def max(self, column: str) -> Any:
        """Find the largest value of a column; see :meth:`coldparquet.table_scan.Scan.max`."""
        return background.run(self._scan.max(column))

    def first_timestamp(self) -> Any:
        """Find the smallest designated timestamp; see :meth:`coldparquet.table_scan.Scan.first_timestamp`."""
        return background.run(self._scan.first_timestamp())

    def last_timestamp(self) -> Any:
        """Find the largest designated timestamp; see :meth:`coldparquet.table_scan.Scan.last_timestamp`."""
        return background.run(self._scan.last_timestamp())

    def head(self, n: int) -> pa.Table:
        """Read the first rows; see :meth:`coldparquet.table_scan.Scan.head`."""
        return background.run(self._scan.head(n))

    def tail(self, n: int) -> pa.Table:
        """Read the last rows; see :meth:`coldparquet.table_scan.Scan.tail`."""
        return background.run(self._scan.tail(n))

    def top_k(self, n: int, *, ascending: bool = False) -> pa.Table:
        """Read the newest or the oldest rows; see :meth:`coldparquet.table_scan.Scan.top_k`."""
        return background.run(self._scan.top_k(n, ascending=ascending))

    def latest_by(self, *columns: str) -> pa.Table:
        """Read the newest row of each key; see :meth:`coldparquet.table_scan.Scan.latest_by`."""
        return background.run(self._scan.latest_by(*columns))

    def archived(self) -> tuple[ArchivedObject, ...]:
        """Find out what has to be restored before it can be read; see :meth:`coldparquet.table_scan.Scan.archived`."""
        return background.run(self._scan.archived())

    def restore(
        self, terms: RestoreTerms | None = None, *, on_progress: Callable[[RestoreProgress], None] | None = None
    ) -> RestoreTicket:
        """Ask for a restore, and wait for it if the terms say so; see :meth:`coldparquet.table_scan.Scan.restore`."""
        return background.run(self._scan.restore(terms, on_progress=on_progress))

    def batches(self) -> Batches:
        """Stream the rows as record batches: ``for batch in scan.batches()``, or ``with scan.batches() as batches``."""
        return Batches(self._scan)

    def pieces(
        self, most_pieces: int | None = None, *, target_bytes: int | None = None, only_row_counts: bool = False
    ) -> ScanPieces:
        """Cut the scan into pieces that other processes read; see :meth:`coldparquet.table_scan.Scan.pieces`."""
        return background.run(
            self._scan.pieces(most_pieces, target_bytes=target_bytes, only_row_counts=only_row_counts)
        )

    def to_arrow(self) -> pa.Table:
        """Read all rows into one Arrow table."""
        return background.run(self._scan.to_arrow())

    def to_pandas(self) -> pd.DataFrame:
        """Read all rows into a pandas data frame."""
        return background.run(self._scan.to_pandas())

    def to_polars(self) -> pl.DataFrame:
        """Read all rows into a Polars data frame."""
        return background.run(self._scan.to_polars())

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
        where: Where = None,
        *,
        limit: int | None = None,
        options: ReadOptions | None = None,
    ) -> Scan:
        """Ask a question; see :meth:`coldparquet.table.Table.scan`."""
        return Scan(self._table.scan(columns, where, limit=limit, options=options))


def open_table(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> Table:
    """Open a table; see :func:`coldparquet.open_table`."""
    opening = asynchronous.open_table(
        url, storage_options=storage_options, options=options, store_options=store_options, store=store
    )
    return Table(background.run(_opened(opening)))


def open_partition(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> Table:
    """Open one partition; see :func:`coldparquet.open_partition`."""
    opening = asynchronous.open_partition(
        url, storage_options=storage_options, options=options, store_options=store_options, store=store
    )
    return Table(background.run(_opened(opening)))


def open_partitions(  # noqa: PLR0913 - those of coldparquet.open_partitions
    url: str | os.PathLike[str],
    names: Iterable[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> Table:
    """Open some partitions of a table; see :func:`coldparquet.open_partitions`."""
    opening = asynchronous.open_partitions(
        url, names, storage_options=storage_options, options=options, store_options=store_options, store=store
    )
    return Table(background.run(_opened(opening)))


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


async def _opened(opening: asynchronous.Opening) -> AsyncTable:
    return await opening
