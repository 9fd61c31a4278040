"""The rows of a plan as a stream of record batches: fetched ahead, decoded in threads, handed over in order.

Requests are started in the order in which their row groups are consumed. A new one waits while the bytes that are
fetched or decoded but not yet consumed exceed the memory limit, unless the consumer itself waits for it: so the limit
can be exceeded by what one row group needs, and never blocks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from coldparquet.decode.batches import to_batches
from coldparquet.decode.filter import filter_rows
from coldparquet.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Executor, Future
    from types import TracebackType

    import pyarrow as pa

    from coldparquet.plan.placement import Placement
    from coldparquet.plan.read_plan import PlannedRead, PlannedRequest, ReadPlan
    from coldparquet.scanning.planned_partition import PlannedPartition, ReadBuffer
    from coldparquet.scanning.scan_planner import PlannedScan
    from coldparquet.storage.base import FetchedRange, ObjectStore


@dataclass(slots=True, kw_only=True)
class _RowGroupState:
    """One row group on its way from bytes to rows."""

    read: PlannedRead
    rows: asyncio.Future[pa.Table]
    """The rows that satisfy the predicate."""
    unanswered_requests: int = 0
    buffer: ReadBuffer | None = None
    """Made when the first bytes arrive, dropped when they are decoded."""
    held_bytes: int = 0
    """Memory that the row group keeps: its fetched bytes, then its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetch:
    """One request and where its bytes go."""

    request: PlannedRequest
    placements: tuple[Placement, ...]
    first_row_group: int
    """Position of the first row group that waits for it."""


class BatchStream:
    """Record batches in table order, within a memory limit. Use it with ``async with``, which owns all of its tasks.

    Leaving the block early cancels what is in flight and leaves nothing behind. Made by
    :meth:`coldparquet.scan.Scan.batches`.
    """

    def __init__(
        self, planning: Callable[[], Awaitable[PlannedScan]], *, store: ObjectStore, executor: Executor
    ) -> None:
        self._planning = planning
        self._store = store
        self._executor = executor
        self._tasks: set[asyncio.Task[None]] = set()
        self._decoding: set[Future[pa.Table]] = set()
        self._row_groups: list[_RowGroupState] = []
        self._consumed_row_groups = 0
        self._batches: deque[pa.RecordBatch] = deque()
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._is_open = False
        self._consuming = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._planned = await self._planning()
        self._rows_left = self._planned.question.limit
        loop = asyncio.get_running_loop()
        self._row_groups = [
            _RowGroupState(read=read, rows=loop.create_future()) for read in self._planned.plan.row_groups
        ]
        self._start(self._fetch_all(self._fetches()))
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        batch = await self.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch

    @property
    def plan(self) -> ReadPlan:
        """The plan that is being carried out."""
        return self._planned.plan

    async def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch, None after the last one. Several consumers share the batches; none comes twice.

        Giving up on a call, for example by a timeout, loses nothing: the next call waits for the same rows.

        Raises:
            InvalidInputError: The stream is not open (``kind="StreamNotOpen"``), or its table was closed
                (``kind="TableClosed"``).
            ObjectChangedError: The Parquet file was replaced since it was planned.
            FormatError: A page does not decode.
            StorageError: A request failed.
        """
        async with self._consuming:
            while not self._batches:
                rows = await self.next_row_group()
                if rows is None:
                    return None
                self._batches.extend(to_batches(rows, batch_rows=self._planned.question.options.batch_rows))
            return self._batches.popleft()

    async def next_row_group(self) -> pa.Table | None:
        """Return the rows of the next row group, possibly none of them; None after the last one."""
        if not self._is_open:
            raise InvalidInputError(
                "the stream is not open: read it inside of 'async with scan.batches() as batches'", kind="StreamNotOpen"
            )
        if self._consumed_row_groups == len(self._row_groups) or self._rows_left == 0:
            return None
        state = self._row_groups[self._consumed_row_groups]
        if not state.read.columns:
            self._start(self._decode(state))
        self._room.set()  # what this row group needs may now be fetched, whatever the memory limit says
        rows = await asyncio.shield(state.rows)  # a caller that gives up must not take the rows from the next one
        state.rows = asyncio.get_running_loop().create_future()  # they are the caller's now, and go when he is done
        self._hold(-state.held_bytes)
        self._consumed_row_groups += 1
        if self._rows_left is not None:
            rows = rows.slice(0, self._rows_left)
            self._rows_left -= rows.num_rows
        return rows

    async def aclose(self) -> None:
        """Cancel what is in flight, wait until it is gone, and release all memory."""
        self._is_open = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A thread cannot be interrupted: what it decodes is waited for. Work that no thread has begun is gone already.
        await asyncio.gather(*map(asyncio.wrap_future, tuple(self._decoding)), return_exceptions=True)
        for state in self._row_groups:
            if not state.rows.cancel() and not state.rows.cancelled():
                state.rows.exception()  # an error that nobody will ask for any more
        self._row_groups, self._consumed_row_groups = [], 0
        self._batches.clear()

    def _fetches(self) -> list[_Fetch]:
        """Pair each request with the copies that its answer allows, in the order in which rows need them."""
        plan = self._planned.plan
        fetches = []
        first_of_partition = 0
        for index in range(len(plan.partitions)):
            reads, requests = plan.row_groups_of(index), plan.requests_of(index)
            placements = self._planned.partitions[index].place(reads, requests)
            for number, request in enumerate(requests):
                copies = tuple(
                    copy._replace(row_group_read=copy.row_group_read + first_of_partition)
                    for copy in placements.of_request(number)
                )
                served = {copy.row_group_read for copy in copies}
                for row_group in served:
                    self._row_groups[row_group].unanswered_requests += 1
                fetches.append(_Fetch(request=request, placements=copies, first_row_group=min(served)))
            first_of_partition += len(reads)
        return sorted(fetches, key=lambda fetch: (fetch.first_row_group, fetch.request.byte_range))

    async def _fetch_all(self, fetches: list[_Fetch]) -> None:
        """Start one request after the other, as memory allows."""
        limit_bytes = self._planned.question.options.memory_limit_bytes
        for fetch in fetches:
            length_bytes = fetch.request.byte_range.length_bytes
            while self._held_bytes + length_bytes > limit_bytes and fetch.first_row_group > self._consumed_row_groups:
                self._room.clear()
                await self._room.wait()
            self._hold(length_bytes)
            self._start(self._fetch(fetch))

    async def _fetch(self, fetch: _Fetch) -> None:
        """Fetch one range and copy its parts to their places; decode the row groups that it completes."""
        served = {copy.row_group_read: self._row_groups[copy.row_group_read] for copy in fetch.placements}
        partition = self._planned.partitions[fetch.request.partition_index]
        try:
            answer = await self._get(partition, fetch.request)
            data = memoryview(answer.data)
            for copy in fetch.placements:
                state = served[copy.row_group_read]
                if state.buffer is None:
                    state.buffer = partition.new_buffer(state.read)
                state.buffer.place(copy.destination_offset, data[copy.source_offset :][: copy.length_bytes])
                state.held_bytes += copy.length_bytes
        except Exception as error:  # noqa: BLE001 - whoever consumes the rows gets it
            for state in served.values():
                _fail(state, error)
            return
        self._hold(sum(copy.length_bytes for copy in fetch.placements) - fetch.request.byte_range.length_bytes)
        for state in served.values():
            state.unanswered_requests -= 1
            if state.unanswered_requests == 0:
                self._start(self._decode(state))

    async def _get(self, partition: PlannedPartition, request: PlannedRequest) -> FetchedRange:
        try:
            return await self._store.get(partition.range_request(request))
        except NotFoundError as error:
            raise partition.missing(request) from error

    async def _decode(self, state: _RowGroupState) -> None:
        """Decode and filter one row group in a thread."""
        try:
            decoding = self._executor.submit(_decode_rows, self._planned, state.read, state.buffer)
        except Exception as error:  # noqa: BLE001 - whoever consumes the rows gets it
            _fail(state, error)
            return
        self._decoding.add(decoding)
        decoding.add_done_callback(self._decoding.discard)
        try:
            rows = await asyncio.wrap_future(decoding)
        except Exception as error:  # noqa: BLE001 - whoever consumes the rows gets it
            _fail(state, error)
            return
        finally:
            state.buffer = None
        self._hold(rows.nbytes - state.held_bytes)
        state.held_bytes = rows.nbytes
        if not state.rows.done():
            state.rows.set_result(rows)

    def _hold(self, growth_bytes: int) -> None:
        self._held_bytes += growth_bytes
        if growth_bytes < 0:
            self._room.set()

    def _start(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _fail(state: _RowGroupState, error: Exception) -> None:
    if not state.rows.done():
        state.rows.set_exception(error)


def _decode_rows(planned: PlannedScan, read: PlannedRead, buffer: ReadBuffer | None) -> pa.Table:
    """Decode the columns that one read contributes and keep the rows that satisfy the predicate."""
    question, partition = planned.question, planned.partitions[read.partition_index]
    predicate = None if read.all_rows_match else question.predicate
    rows = partition.decode(
        read,
        partition.new_buffer(read) if buffer is None else buffer,  # without a request every column is made
        question.output_columns if predicate is None else question.needed_columns,
        symbols=question.options.symbols,
    )
    if predicate is None:
        return rows
    rows = filter_rows(predicate, rows)
    output = [column.name for column in question.output_columns]
    return rows.select(output) if output else rows
