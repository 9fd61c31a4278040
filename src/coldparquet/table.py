"""A table of cold partitions: find them, hold their metadata, and scan them."""

from __future__ import annotations

import asyncio
import os
import posixpath
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa

from coldparquet.catalog.named_partitions import checked_names
from coldparquet.catalog.snapshot import TableOrigin
from coldparquet.catalog.table_caches import TableCaches
from coldparquet.concurrency import TableThreads
from coldparquet.decode.arrow_schema import TextAs, arrow_field
from coldparquet.decode.first_decoding import decode_for_the_first_time
from coldparquet.errors import InvalidInputError
from coldparquet.options import ReadOptions, StoreOptions, checked_options, checked_store_options
from coldparquet.plan.bind import BoundField, bind
from coldparquet.plan.projection import select_columns
from coldparquet.plan.where import parse_predicate
from coldparquet.plan.wording import plural
from coldparquet.scan import Scan, row_limit
from coldparquet.scanning.question import Question, told_of_older_columns
from coldparquet.scanning.remembered_speeds import RememberedSpeeds
from coldparquet.storage.open_store import open_store, shown_url
from coldparquet.storage.url_paths import name_url
from coldparquet.storage.wrappers.store_stack import stack_store

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from types import TracebackType

    from coldparquet.catalog.partition import Partition
    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.plan.predicate import Predicate
    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.where import Where
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.wrappers.store_stack import StoreStack
    from coldparquet.storage.wrappers.trace import RequestRecord

_ITSELF = ""
"""In place of a partition's name: the URL is that of the partition, or of its file."""

_SENDING_S = 0.005
"""The first requests are on their way after this time, and whoever waits for a distant store has time for other things."""


class Table:
    """Partitions that are read as one table. Made by :func:`open_table`, :func:`open_partition` and :func:`open_partitions`.

    Everything that it fetched stays valid while it is open: later writers change nothing that it returns. Close it with
    ``async with`` or :meth:`aclose`.
    """

    def __init__(  # noqa: PLR0913 - made by Opening alone
        self,
        url: str,
        *,
        origin: TableOrigin,
        snapshot: TableSnapshot,
        stack: StoreStack,
        owns_store: bool,
        threads: TableThreads,
    ) -> None:
        self._url = url
        self._origin = origin
        self._snapshot = snapshot
        self._stack = stack
        self._owns_store = owns_store
        self._options = origin.options
        self._executor = threads
        self._refreshing = asyncio.Lock()
        self._speeds = RememberedSpeeds()

    def __repr__(self) -> str:
        partitions = plural(len(self.partitions), "partition")
        return f"<Table {self._url}: {partitions}, {plural(len(self._snapshot.columns), 'column')}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        name_url(error, self._url, self._origin.path)
        await self.aclose()

    async def aclose(self) -> None:
        """Release connections and threads. Scans that are still running fail; calling it twice is fine."""
        self._executor.close()
        if self._owns_store:
            await self._stack.store.aclose()

    @property
    def url(self) -> str:
        """Where the table lies, as it was given, without credentials."""
        return self._url

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types; columns of unreadable types are left out.

        They come from the table's ``_meta`` or, where there is none, from its newest partition or from all that were named;
        ``ReadOptions.columns_from`` makes it all that there are.
        """
        readable = [column for column in self._snapshot.columns if column.type is not None]
        return _arrow_schema(readable, TextAs.of(self._options))

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that are read, oldest first."""
        return self._snapshot.partitions

    @property
    def txn(self) -> int | None:
        """Transaction of the table that is read; None where a directory listing decided, or partitions were named."""
        files = self._snapshot.files
        return None if files is None else files.transaction.txn

    @property
    def request_log(self) -> tuple[RequestRecord, ...]:
        """The requests that were sent since the table was opened, at most the newest 16,384, with reason and timing."""
        return tuple(self._stack.trace.records)

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
            InvalidInputError: A column is unknown, the condition does not parse or fit the columns, or ``options`` are no
                :class:`ReadOptions`.
            UnsupportedError: A chosen column has a type that this version does not read.
        """
        snapshot = self._snapshot
        with told_of_older_columns(snapshot):
            chosen = select_columns(snapshot.columns, columns)
        if limit is not None:
            limit = row_limit(limit, "limit")
        options = checked_options(options) or self._options
        predicate = parse_predicate(where)
        with told_of_older_columns(snapshot):
            bound = None if predicate is None else bind(predicate, self._fields(predicate))
        predicate_text = None if predicate is None else str(predicate)
        asked = (tuple(column.index for column in chosen), predicate_text, limit, options.goal)
        measured = self._stack.meter.speed(connections=options.max_concurrency)
        question = Question(
            url=self._url,
            options=options,
            speed=self._speeds.speed_for(asked, measured),
            snapshot=snapshot,
            output_columns=chosen,
            names_columns=columns is not None,
            predicate_text=predicate_text,
            predicate=bound,
            limit=limit,
        )
        return Scan(
            question=question,
            executor=self._executor,
            schema=_arrow_schema(chosen, TextAs.of(options)),
        )

    async def refresh(self) -> bool:
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
        async with self._refreshing:
            before, now = self._snapshot, await self._origin.read(previous=self._snapshot)
            self._snapshot = now
        if before.files is None or now.files is None:
            return True
        return not (now.files.continues(before.files) and before.files.continues(now.files))

    def _fields(self, predicate: Predicate) -> dict[str, BoundField]:
        """Offer a predicate the columns that it names, which must be readable; where one is unknown, all that are readable."""
        named = set(predicate.columns())
        offered = [column for column in self._snapshot.columns if column.name in named]
        if len(offered) < len(named):  # the error names those that may have been meant
            offered = [column for column in self._snapshot.columns if column.type is not None or column.name in named]
        return {
            column.name: BoundField(name=column.name, index=column.index, type=column.readable_type)
            for column in offered
        }


def _arrow_schema(columns: Iterable[TableColumn], text: TextAs) -> pa.Schema:
    return pa.schema([arrow_field(column.name, column.readable_type, text=text) for column in columns])


class Opening:
    """A table that is about to be opened: ``async with`` it, or ``await`` it and close the table yourself."""

    def __init__(  # noqa: PLR0913 - those of open_table
        self,
        url: str,
        *,
        storage_options: Mapping[str, Any] | None,
        options: ReadOptions | None,
        store_options: StoreOptions | None,
        store: ObjectStore | None,
        partitions: tuple[str, ...] = (),
    ) -> None:
        self._url = url
        self._storage_options = storage_options
        self._options = checked_options(options) or ReadOptions()
        self._store_options = checked_store_options(store_options)
        self._store = store
        self._partitions = partitions
        self._table: Table | None = None

    def __await__(self) -> Generator[Any, None, Table]:
        return self._open().__await__()

    if not TYPE_CHECKING:  # type checkers know which attributes there are

        def __getattr__(self, name: str) -> NoReturn:
            text = f"'{type(self).__name__}' object has no attribute {name!r}"
            if hasattr(Table, name):
                text = (
                    f"the table is not open yet, so it has no {name!r}: use 'async with coldparquet.open_table(...) as table'"
                    " or 'table = await coldparquet.open_table(...)', or coldparquet.sync without an event loop"
                )
            raise AttributeError(text, name=name, obj=self)

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
            await self._table.__aexit__(kind, error, traceback)

    async def _open(self) -> Table:
        if self._store is None:
            store, path = open_store(
                self._url, storage_options=self._storage_options, store_options=self._store_options
            )
        else:
            store, path = self._store, self._url
        stack = stack_store(store, store_options=self._store_options, max_concurrency=self._options.max_concurrency)
        origin = TableOrigin(
            store=stack.store,
            path=path,
            options=self._options,
            named=self._named(path),
            caches=TableCaches.of(store, self._store_options, url=self._url if self._store is None else None),
            use_catalogue=self._store_options.use_catalogue and self._options.sidecars,
        )
        owns_store = self._store is None
        threads = TableThreads(self._options.decode_threads)
        first_decoding = asyncio.get_running_loop().call_later(_SENDING_S, threads.submit, decode_for_the_first_time)
        try:
            snapshot = await origin.read()
        except BaseException as error:
            first_decoding.cancel()  # first of all: closed threads refuse it
            threads.close()
            if owns_store:
                await store.aclose()
                name_url(error, self._url, path)
            raise
        first_decoding.cancel()
        return Table(
            shown_url(self._url), origin=origin, snapshot=snapshot, stack=stack, owns_store=owns_store, threads=threads
        )

    def _named(self, path: str) -> tuple[str, ...]:
        """Return the paths of what was named, given that of the URL; none where all below it are read."""
        names = self._partitions or ((_ITSELF,) if path.endswith(".parquet") else ())
        return tuple(path if name == _ITSELF else posixpath.join(path, name) for name in names)


def open_table(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> Opening:
    """Open a directory of partitions, one partition directory, or one Parquet file.

    In the directory of a QuestDB table, ``_txn`` says which partitions exist and how large they are: one transaction is
    read, whatever is written later. Without a ``_txn`` the newest version of each partition directory is taken.

    Requests: the listing, ``_txn``, ``_meta`` and the catalogue at the same time, and ``_cv`` after them if there are native partitions.
    Without a ``_txn``, the newest partition's metadata (1 or 2) and 1 for its ``_pages`` after them. For a Parquet file those of
    :func:`open_partition`.

    Args:
        url: Any fsspec URL, or a local path.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        options: How to read.
        store_options: How patient to be with the store, and what to remember of it.
        store: A store of your own, which stays open; ``url`` is then a path in it.

    Returns:
        To be used as ``async with open_table(...) as table`` or ``table = await open_table(...)``.

    Raises:
        NotFoundError: There is nothing at ``url``, or nothing that is a partition.
        AccessError: The store refused the credentials.
        FormatError: A table file, or the metadata of the newest partition, is damaged.
        StorageError: The table files kept changing while they were read.
    """
    return Opening(
        os.fspath(url),
        storage_options=storage_options,
        options=options,
        store_options=store_options,
        store=store,
    )


def open_partition(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> Opening:
    """Open one partition: its directory or its Parquet file.

    Requests: no listing. Its metadata (1 or 2), 1 for its ``_pages`` and, on stores with storage classes, 1 HEAD of its data, all at
    the same time. Where there is no such partition, 1 listing more tells whether the directory is that of a table.

    Args and errors are those of :func:`open_table`.
    """
    return Opening(
        os.fspath(url),
        storage_options=storage_options,
        options=options,
        store_options=store_options,
        store=store,
        partitions=(_ITSELF,),
    )


def open_partitions(  # noqa: PLR0913 - those of open_table, and names
    url: str | os.PathLike[str],
    names: Iterable[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> Opening:
    """Open some partitions of a table, and no others: for whoever knows which ones hold the answer.

    They are read as their sidecars describe them, whatever ``_txn`` and ``_meta`` say; :func:`open_table` reads one transaction.
    The columns are those of the newest of them, and those that others alone have, unless these are QuestDB's and were dropped
    (``columns_from="all"`` reads them, too). One that was dropped and added again, or whose type was changed, is null in those
    from before; types of foreign files are read as Arrow unifies them.

    Requests: no listing. The metadata of each (1 or 2), on stores with storage classes 1 HEAD of the data of each, and 1 for the
    ``_pages`` of the newest, all at the same time. Scans with a condition may ask for the ``_pages`` of the others.

    Args:
        url: Directory of the table, as for :func:`open_table`.
        names: Of the partitions' directories in it, with the version suffix, such as ``2024-03-01.12``; in any order.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        options: How to read.
        store_options: How patient to be with the store, and what to remember of it.
        store: A store of your own, which stays open; ``url`` is then a path in it.

    Returns:
        As :func:`open_table`.

    Raises:
        InvalidInputError: No name is given, one is not the name of a partition (kind ``NotAPartition``), or two begin at the same
            time (kind ``SamePartition``).
        FormatError: Rows of one are of times before its name's, or after the beginning of the next one (kind
            ``TimeRangeMismatch``).
        NotFoundError: One is not there, or is not in Parquet: native partitions are only read by :func:`open_table`. Other errors
            are those of :func:`open_table`.
    """
    return Opening(
        os.fspath(url),
        storage_options=storage_options,
        options=options,
        store_options=store_options,
        store=store,
        partitions=checked_names(names),
    )
