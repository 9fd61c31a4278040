"""Reading a piece where nothing else of its table is known: on an executor, in another process, on another machine."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from coldparquet.catalog.committed_rows import CommittedRowsStore, CommittedState
from coldparquet.catalog.table_caches import NO_CACHES
from coldparquet.concurrency import TableThreads
from coldparquet.errors import InvalidInputError
from coldparquet.options import StoreOptions, checked_store_options
from coldparquet.pieces.open_stores import StoreChoice, open_stores, opened_stack
from coldparquet.pieces.piece_content import NativeShare, ParquetShare
from coldparquet.pieces.piece_format import decode_piece
from coldparquet.pieces.planned_piece import PlannedPiece, schema_of
from coldparquet.pieces.scan_piece import ScanPiece
from coldparquet.scanning.batch_stream import BatchStream
from coldparquet.scanning.blocking_batches import blocking_batches
from coldparquet.scanning.scan_activity import ScanActivity
from coldparquet.storage.wrappers.checked import CheckedStore
from coldparquet.storage.wrappers.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    import pyarrow as pa

    from coldparquet.pieces.piece_content import PieceContent
    from coldparquet.plan.read_plan import ReadPlan
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.caches.cached_store import CachedStore
    from coldparquet.storage.wrappers.store_stack import StoreStack
    from coldparquet.storage.wrappers.trace import RequestRecord
    from coldparquet.telemetry import Attributes

OpenSource: TypeAlias = "Callable[[], AbstractAsyncContextManager[StoreStack]]"


class PieceStream:
    """The rows of a piece as record batches, within its memory limit. Use it with ``async with``.

    Leaving the block early cancels what is in flight and leaves nothing behind. Made by :func:`read_piece`.

    Args:
        content: What the piece says.
        open_source: Opens the store that it is read from, and gives it back afterwards.
    """

    def __init__(self, content: PieceContent, open_source: OpenSource) -> None:
        self._content = content
        self._open_source = open_source
        self._ledger = Ledger()
        self._resources = AsyncExitStack()
        self._stream: BatchStream | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as resources:
            executor = TableThreads(self._content.options.decode_threads)
            resources.callback(executor.close)
            stack = await resources.enter_async_context(self._open_source())
            planned = await asyncio.get_running_loop().run_in_executor(executor, PlannedPiece.of, self._content)
            attributes: Attributes = {"coldparquet.table": self._content.table, "coldparquet.method": "piece"}
            stream = BatchStream(
                partial(_already_planned, planned),
                store=_pinned_store(self._content, stack.store),
                executor=executor,
                activity=ScanActivity(self._ledger, attributes),
            )
            self._stream = await resources.enter_async_context(stream)
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._resources.__aexit__(kind, error, traceback)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        batch = await self.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types of every batch."""
        return schema_of(self._content)

    @property
    def plan(self) -> ReadPlan:
        """What is being carried out."""
        return self._opened().plan

    @property
    def request_log(self) -> tuple[RequestRecord, ...]:
        """The requests that were sent, with reason and timing."""
        return self._ledger.records

    async def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch, None after the last one. Raises what iterating over :func:`read_piece` raises."""
        return await self._opened().next_batch()

    async def aclose(self) -> None:
        """Cancel what is in flight, wait until it is gone, and release everything."""
        await self._resources.aclose()

    def _opened(self) -> BatchStream:
        if self._stream is None:
            raise InvalidInputError(
                "the piece is not open: read it inside of 'async with read_piece(...) as batches', or with"
                " read_piece_batches",
                kind="StreamNotOpen",
            )
        return self._stream


def read_piece(  # noqa: PLR0913 - what may differ from one machine to the next
    piece: ScanPiece | bytes,
    *,
    storage_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    url: str | None = None,
    memory_limit_bytes: int | None = None,
    max_concurrency: int | None = None,
    decode_threads: int | None = None,
    batch_rows: int | None = None,
) -> PieceStream:
    """Read one of the pieces of a scan: ``async with`` it, and iterate over its batches.

    The rows of all pieces of a scan, one piece after the other, are those of the scan.

    Requests: those of :meth:`ScanPiece.plan`, all of them GETs for data; where columns are read late, at most those. Each is
    bound to the size of the object and to the version that the driver has seen, where it has seen one: on object stores, and
    of all partitions of which several pieces read.
    Only of native partitions on a disk, which a running QuestDB may write over, a look at the table's ``_txn`` follows each.

    Args:
        piece: One of :meth:`coldparquet.scan.Scan.pieces`, or its bytes.
        storage_options: Credentials, endpoint and so on, as for :func:`coldparquet.open_table`: a piece has none.
        store_options: How patient to be with the store. Nothing is kept of what is fetched.
        store: A store of your own, which stays open, instead of the one that the URL names.
        url: URL of the table, where it holds what must not be in a piece, such as a signature.
        memory_limit_bytes: If not as in the scan's options, as the three that follow.
        max_concurrency: Requests in flight at once.
        decode_threads: Threads that decode.
        batch_rows: Largest number of rows in one record batch.

    Raises:
        FormatError: The piece is damaged; while reading, a page does not decode.
        UnsupportedError: Another version of coldparquet made the piece (kind ``UnknownPieceVersion``).
        InvalidInputError: An option is none.

    While reading:

        ObjectChangedError: A data object was replaced since the scan was planned: make new pieces.
        NotFoundError: A data object is gone (kind ``PartitionMissing``): make new pieces.
        AccessError: The store refused the credentials of this machine.
        StorageError: A request failed.
    """
    return _piece_stream(
        opened_stack,
        piece,
        storage_options=storage_options,
        store_options=store_options,
        store=store,
        url=url,
        memory_limit_bytes=memory_limit_bytes,
        max_concurrency=max_concurrency,
        decode_threads=decode_threads,
        batch_rows=batch_rows,
    )


def read_piece_batches(  # noqa: PLR0913 - those of read_piece
    piece: ScanPiece | bytes,
    *,
    storage_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    url: str | None = None,
    memory_limit_bytes: int | None = None,
    max_concurrency: int | None = None,
    decode_threads: int | None = None,
    batch_rows: int | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Read one of the pieces of a scan without an event loop: iterate over its batches.

    The store stays open for the next piece of the same table in this process, until :func:`close_stores` or the end of the
    process. Everything else is closed with the generator, also where it is dropped half-way.

    Requests, arguments and errors: those of :func:`read_piece`.
    """
    stream = _piece_stream(
        open_stores.use,
        piece,
        storage_options=storage_options,
        store_options=store_options,
        store=store,
        url=url,
        memory_limit_bytes=memory_limit_bytes,
        max_concurrency=max_concurrency,
        decode_threads=decode_threads,
        batch_rows=batch_rows,
    )
    return blocking_batches(stream)


def _piece_stream(  # noqa: PLR0913 - those of read_piece
    open_stack: Callable[[StoreChoice], AbstractAsyncContextManager[StoreStack]],
    piece: ScanPiece | bytes,
    *,
    storage_options: Mapping[str, Any] | None,
    store_options: StoreOptions | None,
    store: ObjectStore | None,
    url: str | None,
    **changed_options: int | None,
) -> PieceStream:
    """Decode a piece, change the options that are told, and say from which store it will be read."""
    content = piece.content() if isinstance(piece, ScanPiece) else decode_piece(piece)
    told: dict[str, Any] = {name: value for name, value in changed_options.items() if value is not None}
    if told:
        content = replace(content, options=replace(content.options, **told))
    choice = StoreChoice(
        url=url or content.table,
        paths=[path for share in content.shares for path in share.paths],
        storage_options=storage_options,
        store_options=checked_store_options(store_options),
        store=store,
        max_concurrency=content.options.max_concurrency,
    )
    return PieceStream(content, partial(open_stack, choice))


def _pinned_store(content: PieceContent, store: ObjectStore) -> CachedStore:
    """Have every request for a data object see the version that the driver saw, and native rows that are still committed."""
    native = {share.data_path: share.record for share in content.shares if isinstance(share, NativeShare)}
    if content.moment is not None and native:
        table_path = next(iter(native)).rpartition("/")[0]
        state = CommittedState(table_path=table_path, moment=content.moment, native_partitions=native)
        store = CommittedRowsStore(store, state)
    checked = CheckedStore(store)
    for share in content.shares:
        if isinstance(share, ParquetShare) and share.etag is not None:
            checked.pin(share.data_path, share.etag)
    return NO_CACHES.above(checked)


async def _already_planned(planned: PlannedPiece) -> PlannedPiece:
    return planned
