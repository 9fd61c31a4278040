"""A table of cold partitions: find them, hold their metadata, and scan them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex

import pyarrow as pa

from coldparquet.concurrency import TableThreads
from coldparquet.decode.arrow_schema import arrow_field
from coldparquet.discovery import find_partitions, partition_location
from coldparquet.errors import InternalError, InvalidInputError, UnsupportedError
from coldparquet.options import ReadOptions
from coldparquet.partition import NATIVE_PARTITION, Partition
from coldparquet.plan.bind import BoundField, bind
from coldparquet.plan.projection import TableColumn, select_columns, table_columns
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.plan.where import parse_predicate
from coldparquet.scan import Scan
from coldparquet.scan_planner import Question
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.limit import LimitedStore
from coldparquet.storage.open_store import open_store, shown_url
from coldparquet.storage.trace import TraceStore

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from types import TracebackType

    from coldparquet.decode.arrow_schema import SymbolsAs
    from coldparquet.partition import PartitionLocation, PartitionMetadata
    from coldparquet.plan.predicate import Predicate
    from coldparquet.plan.where import Where
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.trace import RequestRecord


class Table:
    """Partitions that are read as one table. Made by :func:`open_table` and :func:`open_partition`.

    Everything that it fetched stays valid while it is open: later writers change nothing that it returns. Close it with
    ``async with`` or :meth:`aclose`.
    """

    def __init__(self, url: str, *, store: TraceStore, owns_store: bool, options: ReadOptions) -> None:
        self._url = url
        self._owns_store = owns_store
        self._trace = store
        self._store: ObjectStore = CheckedStore(LimitedStore(store, max_concurrency=options.max_concurrency))
        self._options = options
        self._partitions: tuple[Partition, ...] = ()
        self._columns: tuple[TableColumn, ...] = ()
        self._designated_timestamp: int | None = None
        self._open_requests: tuple[MetadataRequest, ...] = ()
        self._notes: tuple[str, ...] = ()
        self._executor = TableThreads(options.decode_threads)

    def __repr__(self) -> str:
        return f"<Table {self._url}: {len(self._partitions)} partitions, {len(self._columns)} columns>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Release connections and threads. Scans that are still running fail; calling it twice is fine."""
        self._executor.close()
        if self._owns_store:
            await self._store.aclose()

    @property
    def url(self) -> str:
        """Where the table lies, as it was given, without credentials."""
        return self._url

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types, of the newest partition; columns of unreadable types are left out."""
        return self._arrow_schema([column for column in self._columns if column.type is not None])

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, oldest first."""
        return self._partitions

    @property
    def request_log(self) -> tuple[RequestRecord, ...]:
        """Every request that was sent since the table was opened, with its reason and timing."""
        return tuple(self._trace.records)

    def scan(
        self,
        columns: Iterable[str] | None = None,
        where: Where = None,
        *,
        limit: int | None = None,
        options: ReadOptions | None = None,
    ) -> Scan:
        """Ask a question; nothing is fetched yet.

        Args:
            columns: Names of the result's columns, in its order; None for all.
            where: A condition as SQL text, a list of ``(column, operator, value)`` (a list of such lists is an OR of
                ANDs), or an expression built with :func:`coldparquet.col`. Rows for which it is true are returned,
                with SQL's rules for NULL.
            limit: At most so many rows, the first ones in table order.
            options: How to read; the default is what the table was opened with.

        Raises:
            InvalidInputError: A column is unknown or the condition does not parse or fit the columns.
            UnsupportedError: A chosen column has a type that this version does not read.
        """
        chosen = select_columns(self._columns, columns)
        if limit is not None:
            limit = _row_limit(limit)
        options = options or self._options
        predicate = parse_predicate(where)
        question = Question(
            url=self._url,
            options=options,
            partitions=self._partitions,
            table_columns=self._columns,
            designated_timestamp=self._designated_timestamp,
            output_columns=chosen,
            predicate_text=None if predicate is None else str(predicate),
            predicate=None if predicate is None else bind(predicate, self._fields(predicate)),
            limit=limit,
            open_requests=self._open_requests,
            notes=self._notes,
        )
        return Scan(
            question=question,
            store=self._store,
            executor=self._executor,
            schema=self._arrow_schema(chosen, symbols=options.symbols),
        )

    def _fields(self, predicate: Predicate) -> dict[str, BoundField]:
        """Offer every column of a readable type to a predicate; one that it names must be readable."""
        named = set(predicate.columns())
        return {
            column.name: BoundField(name=column.name, index=column.index, type=column.readable_type)
            for column in self._columns
            if column.type is not None or column.name in named
        }

    def _arrow_schema(self, columns: Iterable[TableColumn], *, symbols: SymbolsAs | None = None) -> pa.Schema:
        return pa.schema(
            [
                arrow_field(column.name, column.readable_type, symbols=symbols or self._options.symbols)
                for column in columns
            ]
        )

    async def _open_single(self, location: PartitionLocation) -> None:
        """Make this the table of one partition: 1 or 2 requests, for its metadata."""
        await self._adopt([location], requests=())

    async def _open_directory(self, path: str) -> None:
        """Find the partitions below ``path``: 1 request to list it, then the newest partition's metadata."""
        locations, notes = await find_partitions(self._store, path)
        listed = MetadataRequest(path=path, byte_range=None, reason="list the partitions", fetched_bytes=0)
        await self._adopt(locations, requests=(listed,), notes=notes)

    async def _adopt(
        self,
        locations: Sequence[PartitionLocation],
        *,
        requests: tuple[MetadataRequest, ...],
        notes: Sequence[str] = (),
    ) -> None:
        self._partitions = tuple(Partition(location, self._store, self._options) for location in locations)
        newest = await self._newest_readable()
        self._columns = table_columns(newest.sidecar)
        self._designated_timestamp = newest.sidecar.designated_timestamp
        self._open_requests = (*requests, *newest.requests)
        self._notes = tuple(notes)

    async def _newest_readable(self) -> PartitionMetadata:
        """Read the metadata of the newest partition that is in Parquet: QuestDB's active one usually is not."""
        for partition in reversed(self._partitions):
            try:
                return await partition.metadata()
            except UnsupportedError as error:
                if error.kind != NATIVE_PARTITION or partition is self._partitions[0]:
                    raise
        raise InternalError("a table has at least one partition")


def _row_limit(limit: object) -> int:
    """Take any integer, numpy's too, as a plain one."""
    if not isinstance(limit, SupportsIndex) or limit.__index__() < 0:
        raise InvalidInputError(f"limit is {limit!r}; it must be a whole number, 0 or more")
    return limit.__index__()


class Opening:
    """A table that is about to be opened: ``async with`` it, or ``await`` it and close the table yourself."""

    def __init__(
        self,
        url: str,
        *,
        storage_options: Mapping[str, Any] | None,
        options: ReadOptions | None,
        store: ObjectStore | None,
        is_partition: bool,
    ) -> None:
        self._url = url
        self._storage_options = storage_options
        self._options = options or ReadOptions()
        self._store = store
        self._is_partition = is_partition
        self._table: Table | None = None

    def __await__(self) -> Generator[Any, None, Table]:
        return self._open().__await__()

    def __enter__(self) -> NoReturn:
        raise InvalidInputError("use 'async with', or coldparquet.sync without an event loop", kind="NotAwaited")

    def __exit__(self, *_: object) -> None:
        """Never reached; ``with`` looks for it first."""

    async def __aenter__(self) -> Table:
        self._table = await self._open()
        return self._table

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._table is not None:
            await self._table.aclose()

    async def _open(self) -> Table:
        if self._store is None:
            store, path = open_store(self._url, storage_options=self._storage_options)
        else:
            store, path = self._store, self._url
        table = Table(
            shown_url(self._url), store=TraceStore(store), owns_store=self._store is None, options=self._options
        )
        try:
            if self._is_partition or path.endswith(".parquet"):
                await table._open_single(partition_location(path))  # noqa: SLF001 - the two are one mechanism
            else:
                await table._open_directory(path)  # noqa: SLF001
        except BaseException:
            await table.aclose()
            raise
        return table


def open_table(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store: ObjectStore | None = None,
) -> Opening:
    """Open a directory of partitions, one partition directory, or one Parquet file.

    The newest version of each partition directory is taken. Requests: 1 listing and the newest partition's metadata
    (1 or 2); for a Parquet file or with :func:`open_partition` no listing.

    Args:
        url: Any fsspec URL, or a local path.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        options: How to read.
        store: A store of your own, which stays open; ``url`` is then a path in it.

    Returns:
        To be used as ``async with open_table(...) as table`` or ``table = await open_table(...)``.

    Raises:
        NotFoundError: There is nothing at ``url``, or nothing that is a partition.
        AccessError: The store refused the credentials.
        FormatError: The metadata of the newest partition is damaged.
    """
    return Opening(os.fspath(url), storage_options=storage_options, options=options, store=store, is_partition=False)


def open_partition(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store: ObjectStore | None = None,
) -> Opening:
    """Open one partition: its directory or its Parquet file. 1 request with a sidecar of usual size, never a listing.

    Args and errors are those of :func:`open_table`.
    """
    return Opening(os.fspath(url), storage_options=storage_options, options=options, store=store, is_partition=True)
