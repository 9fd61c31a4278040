"""Reads a piece where nothing else of its table is known: on an executor, in another process, on another machine."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
from collections import OrderedDict, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from coldparquet.catalog.caches import NO_CACHES
from coldparquet.catalog.table_files import CommittedRowsStore, CommittedState
from coldparquet.concurrency import TableThreads, background
from coldparquet.decode.arrow import arrow_schema, text_to_arrow
from coldparquet.errors import InvalidInputError
from coldparquet.options import StoreOptions, checked_store_options
from coldparquet.pieces.checks import check_content, check_paths, refuses_nonsense
from coldparquet.pieces.encode import decode_numbers, decode_piece, encode_piece
from coldparquet.plan.bind import fields_of
from coldparquet.plan.model import PartitionRead, ReadPlan, StoreSpeed
from coldparquet.records import replace
from coldparquet.scan.model import RowPlan, RowQuestion
from coldparquet.scan.requests import requests_of
from coldparquet.scan.stats import ScanActivity
from coldparquet.scan.stream import BatchStream, blocking_batches
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.log import Ledger
from coldparquet.storage.open import open_store, opened_store, stack_store
from coldparquet.storage.urls import errors_name_urls

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    import pyarrow as pa

    from coldparquet.pieces.frame import PieceContent, PieceNumbers
    from coldparquet.plan.model import Read
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.cache import CachedStore
    from coldparquet.storage.log import RequestRecord
    from coldparquet.storage.open import StoreStack
    from coldparquet.telemetry import Attributes


_MOST_IDLE = 4
"""Idle stores that stay open: an executor rarely works on more tables at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChoice:
    """Which store to read from, and how."""

    url: str
    """URL of the table."""
    paths: Sequence[str]
    """Paths to be read; in the store of the URL, only those inside the table."""
    storage_options: Mapping[str, Any] | None
    """Credentials, endpoint and so on."""
    store_options: StoreOptions
    """Timeouts and retries."""
    store: ObjectStore | None
    """The caller's own store, which stays open; None opens that of the URL."""
    max_concurrency: int
    """Most requests in flight at once."""


@dataclass(slots=True)
class _Shared:
    path: str
    stack: StoreStack
    users: int = 0


class OpenStores:
    """Keeps the stores of the background loop open. Only that loop uses it, so it needs no locks."""

    def __init__(self) -> None:
        self._process_id = os.getpid()
        self._shared: OrderedDict[str, _Shared] = OrderedDict()

    @asynccontextmanager
    async def use(self, choice: StoreChoice) -> AsyncGenerator[StoreStack, None]:
        """Use a store, opened by the first caller with this choice; a caller's own store is not shared. No request."""
        if choice.store is not None:
            async with opened_stack(choice) as stack:
                yield stack
            return
        if self._process_id != os.getpid():  # connections do not survive a fork
            self._process_id, self._shared = os.getpid(), OrderedDict()
        # The options may be secrets, which must not be kept here.
        storage_options = sorted((choice.storage_options or {}).items(), key=repr)
        told = repr((choice.url, storage_options, choice.store_options, choice.max_concurrency))
        key = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
        shared = self._shared.get(key)
        if shared is None:
            store, path = open_store(
                choice.url, storage_options=choice.storage_options, store_options=choice.store_options
            )
            stack = stack_store(store, store_options=choice.store_options, max_concurrency=choice.max_concurrency)
            shared = self._shared[key] = _Shared(path, stack)
        self._shared.move_to_end(key)
        shared.users += 1
        try:
            check_paths(choice.paths, shared.path)
            with errors_name_urls(choice.url, shared.path):
                yield shared.stack
        finally:
            shared.users -= 1
            await self.close_idle(most_idle=_MOST_IDLE)

    async def close_idle(self, *, most_idle: int = 0) -> None:
        """Close idle stores, except the most recently used ones."""
        idle = [key for key, shared in self._shared.items() if shared.users == 0]
        for key in idle[: max(len(idle) - most_idle, 0)]:
            await self._shared.pop(key).stack.store.aclose()

    @property
    def is_empty(self) -> bool:
        """Whether this process has no open store."""
        return self._process_id != os.getpid() or not self._shared


@asynccontextmanager
async def opened_stack(choice: StoreChoice) -> AsyncGenerator[StoreStack, None]:
    """Open a store with all layers that requests pass through, and close it afterwards. No request."""
    async with opened_store(
        choice.url,
        storage_options=choice.storage_options,
        store_options=choice.store_options,
        store=choice.store,
        max_concurrency=choice.max_concurrency,
    ) as opened:
        if choice.store is None:
            check_paths(choice.paths, opened.path)
        yield opened.stack


open_stores = OpenStores()
"""The stores of this process."""


def close_stores() -> None:
    """Close the stores that blocking reads of pieces left open in this process. The next read opens them again."""
    if not open_stores.is_empty:
        background.run(open_stores.close_idle())


atexit.register(close_stores)


def plan_piece(content: PieceContent) -> RowPlan:
    """Check a piece, and plan its requests.

    Raises:
        FormatError: Its parts contradict each other.
    """
    with refuses_nonsense():
        schema_of(content)
        check_content(content)
        shapes = [share.shape for share in content.shares]
        late_coalescings = tuple(shape.late_coalescing for shape in shapes)
        tested = set() if content.predicate is None else {field.index for field in fields_of(content.predicate)}
        coalescings = tuple(shape.coalescing for shape in shapes)
        return RowPlan(
            question=RowQuestion(
                options=content.options,
                output_columns=content.output_columns,
                predicate=content.predicate,
                predicate_columns=tuple(column for column in content.columns if column.index in tested),
                limit=None,  # a piece does not know the row counts of other pieces
                symbols={index: text_to_arrow(strings) for index, strings in content.symbols.items()},
            ),
            plan=ReadPlan(
                table=content.table,
                columns=tuple(column.name for column in content.output_columns),
                predicate=content.predicate_text,
                limit=None,
                partitions_pruned=(),
                partitions=tuple(_described(content)),
                row_groups=content.reads,
                requests=requests_of(
                    content.reads,
                    coalescings,
                    [shape.part_bytes for shape in shapes],
                    late_coalescings,
                    content.late_part_bytes,
                ),
                metadata_requests=(),
                options=content.options,
                speed=StoreSpeed(connections=content.options.max_concurrency),
                coalescings=coalescings,
                late_coalescings=late_coalescings,
                late_part_bytes=content.late_part_bytes,
            ),
        )


def schema_of(content: PieceContent) -> pa.Schema:
    """Return columns and Arrow types of a piece's rows."""
    with refuses_nonsense():
        return arrow_schema(content.output_columns, content.options)


def _described(content: PieceContent) -> Iterator[PartitionRead]:
    """Describe each share for people, as if the partition had no other row groups."""
    by_share: dict[int, list[Read]] = defaultdict(list)
    for read in content.reads:
        by_share[read.partition_index].append(read)
    for index, share in enumerate(content.shares):
        reads = by_share[index]
        row_groups = {read.row_group: read.row_group_rows for read in reads} if share.record is None else {}
        rows = sum(read.row_count for read in reads)
        yield PartitionRead(
            name=share.name,
            data_path=share.data.path,
            parquet_size_bytes=share.data.size_bytes,
            metadata_source=share.metadata_source,
            row_groups_total=len(row_groups),
            row_groups_read=len(row_groups),
            rows_total=rows if share.record is not None else sum(row_groups.values()),
            rows_read=rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPiece:
    """Some row groups of a scan, in table order, with everything needed to read them except credentials.

    It is bytes and a few numbers: it pickles, fits into a task of any engine, and costs no memory beyond its bytes.
    Made by :meth:`coldparquet.table_scan.Scan.pieces`; read by :func:`coldparquet.pieces.read_piece`.
    """

    table: str
    """URL of the table, without credentials."""
    numbers: PieceNumbers
    encoded: bytes = field(repr=False)

    @classmethod
    def of(cls, content: PieceContent, numbers: PieceNumbers) -> Self:
        """Encode the content of a piece."""
        return cls(table=content.table, numbers=numbers, encoded=encode_piece(content, numbers))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Make a piece from bytes.

        Args:
            data: The result of :meth:`to_bytes`, perhaps from another process.

        Raises:
            FormatError: The bytes are not a piece, or are damaged.
            UnsupportedError: Another version of coldparquet wrote them (kind ``UnknownPieceVersion``).
        """
        table, numbers = decode_numbers(data)
        return cls(table=table, numbers=numbers, encoded=bytes(data))

    def to_bytes(self) -> bytes:
        """Return the piece as bytes, in the format of :mod:`coldparquet.pieces.frame`."""
        return self.encoded

    @property
    def row_group_count(self) -> int:
        """Row groups, or runs of them, to read one by one."""
        return self.numbers.row_group_count

    @property
    def rows_at_most(self) -> int:
        """Upper bound of the rows: the predicate may leave fewer."""
        return self.numbers.rows_at_most

    @property
    def fetched_bytes(self) -> int:
        """Upper bound of the bytes that its requests fetch."""
        return self.numbers.fetched_bytes

    @property
    def request_count(self) -> int:
        """Upper bound of its GETs."""
        return self.numbers.request_count

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types of its rows."""
        return schema_of(self.content())

    def content(self) -> PieceContent:
        """Decode the content. Raises what :meth:`from_bytes` raises."""
        return decode_piece(self.encoded)

    def plan(self) -> ReadPlan:
        """Return the plan of reading it."""
        return plan_piece(self.content()).plan

    def explain(self) -> str:
        """Describe for people what reading it will do."""
        return self.plan().explain()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanPieces:
    """All pieces of a scan: in order, their rows are the rows of the scan."""

    pieces: tuple[ScanPiece, ...]
    """In table order; none if nothing is left to read."""
    schema: pa.Schema
    """Columns and Arrow types of every piece's rows."""
    plan: ReadPlan
    """Of the whole scan."""

    def __repr__(self) -> str:
        return f"<ScanPieces of {self.plan.table}: {len(self.pieces)} pieces>"

    def __len__(self) -> int:
        return len(self.pieces)

    def __iter__(self) -> Iterator[ScanPiece]:
        return iter(self.pieces)


OpenSource: TypeAlias = "Callable[[], AbstractAsyncContextManager[StoreStack]]"


class PieceStream:
    """The rows of a piece as record batches, within its memory limit. Use it with ``async with``.

    Leaving the block early cancels what is in flight and leaves nothing behind. Made by :func:`read_piece`.

    Args:
        content: The content of the piece.
        open_source: Opens the store to read from, and releases it afterwards.
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
            planned = await asyncio.get_running_loop().run_in_executor(executor, plan_piece, self._content)
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
        """The plan in execution."""
        return self._opened().plan

    @property
    def request_log(self) -> tuple[RequestRecord, ...]:
        """The requests that were sent, with reason and timing."""
        return self._ledger.records

    async def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch, None after the last one. Raises what iterating over :func:`read_piece` raises."""
        return await self._opened().next_batch()

    async def aclose(self) -> None:
        """Cancel everything in flight, wait until it has ended, and release everything."""
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

    The rows of all pieces of a scan, in order, are those of the scan.

    Requests: those of :meth:`ScanPiece.plan`, all of them GETs for data; with late reading, at most those. Each is
    pinned to the size of the object and, if the driver has seen a version, to that version. It has seen one on object
    stores, and for all partitions that several pieces read. Only for native partitions on a disk, which a running
    QuestDB may overwrite, a read of the table's ``_txn`` follows each.

    Args:
        piece: One of :meth:`coldparquet.table_scan.Scan.pieces`, or its bytes.
        storage_options: Credentials, endpoint and so on, as for :func:`coldparquet.open_table`: a piece has none.
        store_options: Timeouts and retries. Fetched data is not cached.
        store: A store of your own, which stays open, instead of the one that the URL names.
        url: URL of the table, if it contains what must not be in a piece, such as a signature.
        memory_limit_bytes: Replaces the value in the scan's options, like the next three.
        max_concurrency: Requests in flight at once.
        decode_threads: Threads that decode.
        batch_rows: Largest number of rows in one record batch.

    Raises:
        FormatError: The piece is damaged; while reading, a page does not decode.
        UnsupportedError: Another version of coldparquet made the piece (kind ``UnknownPieceVersion``).
        InvalidInputError: An option is invalid.

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

    The store stays open for the next piece of the same table in this process, until :func:`close_stores` or the end of
    the process. Everything else is closed with the generator, even if it is dropped half-way.

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
    """Decode a piece, apply the changed options, and choose the store to read from."""
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
    """Pin every request to the version that the driver saw; check that native rows are still committed."""
    native = {share.data.path: share.record for share in content.shares if share.record is not None}
    if content.moment is not None and native:
        table_path = next(iter(native)).rpartition("/")[0]
        state = CommittedState(table_path=table_path, moment=content.moment, native_partitions=native)
        store = CommittedRowsStore(store, state)
    checked = CheckedStore(store)
    for share in content.shares:
        if share.etag is not None:
            checked.versions.pin(share.data.path, share.etag)
    return NO_CACHES.above(checked)


async def _already_planned(planned: RowPlan) -> RowPlan:
    return planned
