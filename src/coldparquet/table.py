"""A table of cold partitions: find them, hold their metadata, and scan them."""

from __future__ import annotations

import asyncio
import posixpath
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from coldparquet.catalog.caches import TableCaches
from coldparquet.catalog.snapshot import SnapshotReader
from coldparquet.concurrency import TableThreads
from coldparquet.decode.arrow import TextAs, arrow_field, arrow_schema
from coldparquet.decode.columns import decode_for_the_first_time
from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.expressions.predicate import exact_predicate
from coldparquet.expressions.tree import is_arrow_expression
from coldparquet.expressions.where import hint_on_dates, parse_predicate
from coldparquet.format.partition_names import ITSELF
from coldparquet.lazy_names import ShownInNotebooks
from coldparquet.options import checked_options
from coldparquet.plan.bind import BoundField, bind, fields_of
from coldparquet.plan.columns import select_columns
from coldparquet.scan.model import HintIfEmpty, Question, RememberedSpeeds, told_of_older_columns
from coldparquet.storage.local import LocalStore
from coldparquet.storage.open import open_store, path_beside, s3_path, stack_store
from coldparquet.storage.urls import name_url, shown_url
from coldparquet.table_scan import Scan, row_limit
from coldparquet.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    import pyarrow.compute as pc

    from coldparquet.catalog.partition import Partition
    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.catalog.table_formats import LiveFiles
    from coldparquet.expressions.where import Where
    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.plan.predicate import Predicate
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.log import RequestRecord
    from coldparquet.storage.open import StoreStack

_SENDING_S = 0.02
"""The first requests are on their way after this time; while a distant store answers, the CPU is free for other things."""


class Table(ShownInNotebooks):
    """Partitions that are read as one table. Made by :func:`open_table`, :func:`open_partition` and :func:`open_partitions`.

    Everything that it fetched stays valid while it is open: later writers change nothing that it returns. Close it with
    ``async with`` or :meth:`aclose`.
    """

    def __init__(  # noqa: PLR0913 - made by open_now alone
        self,
        url: str,
        *,
        origin: SnapshotReader,
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
        """Release threads. Scans that are still running fail; calling it twice is fine.

        Connections to S3 stay open for the next table of the same event loop, for 15 idle seconds.
        """
        self._executor.close()
        await self._origin.caches.aclose()
        if self._owns_store:
            await self._stack.store.aclose()

    @property
    def url(self) -> str:
        """Where the table lies, as it was given, without credentials."""
        return self._url

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types; columns of unreadable types are left out.

        They come from the table's ``_meta`` or, where there is none, from its newest partition, from all in its index, or from all that were named;
        ``ReadOptions.columns_from`` makes it all that there are.
        """
        text, fields = TextAs.of(self._options), []
        for column in self._snapshot.columns:
            with suppress(UnsupportedError):
                fields.append(arrow_field(column.name, column.readable_type, text=text))
        return pa.schema(fields)

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
        snapshot = self._snapshot
        with told_of_older_columns(snapshot):
            chosen = select_columns(snapshot.columns, columns)
        if limit is not None:
            limit = row_limit(limit, "limit")
        options = checked_options(options) or self._options
        predicate = (
            exact_predicate(where, self.schema) if is_arrow_expression(where) else parse_predicate(cast("Where", where))
        )
        bound = hint = None
        if predicate is not None:
            with told_of_older_columns(snapshot):
                fields = self._fields(predicate)
                bound = bind(predicate, fields)
            hint = None if limit == 0 else hint_on_dates(predicate, fields)
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
            predicate_columns=()
            if bound is None
            else tuple(snapshot.columns[field.index] for field in fields_of(bound)),
            limit=limit,
            hint=None if hint is None else HintIfEmpty(hint, self._url),
        )
        return Scan(
            question=question,
            executor=self._executor,
            schema=arrow_schema(chosen, options),
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


async def open_now(  # noqa: PLR0913 - what an Opening was given
    url: str,
    *,
    storage_options: Mapping[str, Any] | None,
    options: ReadOptions,
    store_options: StoreOptions,
    store: ObjectStore | None,
    partitions: tuple[str, ...],
) -> Table:
    """Open a table; see :func:`coldparquet.opening.open_table`."""
    owns_store = store is None
    if store is None:
        store, path = open_store(url, storage_options=storage_options, store_options=store_options)
    else:
        path = url
    stack = stack_store(store, store_options=store_options, max_concurrency=options.max_concurrency)
    origin = SnapshotReader(
        store=stack.store,
        path=path,
        options=options,
        named=_named(path, partitions),
        caches=TableCaches.of(store, store_options, url=url if owns_store else None),
        use_catalogue=store_options.use_catalogue and options.sidecars,
        live_files=_reader_of_log(url, options, storage_options, store, owns_store=owns_store),
        index_path=None if options.index is None else path_beside(options.index, store, url if owns_store else None),
    )
    threads = TableThreads(options.decode_threads)
    first_decoding = asyncio.get_running_loop().call_later(_SENDING_S, threads.submit, decode_for_the_first_time)
    try:
        snapshot = await origin.read()
    except BaseException as error:
        first_decoding.cancel()  # first of all: closed threads refuse it
        threads.close()
        await origin.caches.aclose()
        if owns_store:
            await store.aclose()
            name_url(error, url, path)
        raise
    first_decoding.cancel()
    return Table(shown_url(url), origin=origin, snapshot=snapshot, stack=stack, owns_store=owns_store, threads=threads)


def _reader_of_log(
    url: str,
    options: ReadOptions,
    storage_options: Mapping[str, Any] | None,
    store: ObjectStore,
    *,
    owns_store: bool,
) -> Callable[[], LiveFiles] | None:
    """Return what reads the log of a table of Delta or Iceberg; None for other tables."""
    if options.format is None:
        return None
    if not owns_store or (store.label != LocalStore.label and s3_path(url) is None):
        raise InvalidInputError(
            f"tables of {options.format} are read by their URLs, on disks and in S3, not in {store.label}",
            kind="UnsupportedStore",
        )
    from coldparquet.catalog.table_formats import read_live_files  # noqa: PLC0415 - rarely needed

    return partial(read_live_files, url, options.format, storage_options or {})


def _named(path: str, partitions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths of what was named, given that of the URL; none where all below it are read."""
    names = partitions or ((ITSELF,) if path.endswith(".parquet") else ())
    return tuple(path if name == ITSELF else posixpath.join(path, name) for name in names)
