"""One row group of a stream, from its requests to its rows: in one stage, or in two.

In two stages (late materialisation) the predicate's columns are fetched and decoded first; the others are fetched for
the rows that are left, or not at all. Both stages run beside those of other row groups.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from coldparquet.errors import NotFoundError
from coldparquet.scanning.gathering import Gathering, pair
from coldparquet.scanning.memory_room import Holding
from coldparquet.scanning.read_stages import ReadStages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from concurrent.futures import Executor, Future

    import pyarrow as pa

    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.read_plan import PlannedRead, PlannedRequest
    from coldparquet.scanning.decoded_sizes import DecodedSizes
    from coldparquet.scanning.gathering import Fetch
    from coldparquet.scanning.memory_room import Room
    from coldparquet.scanning.planned_partition import PlannedPartition
    from coldparquet.scanning.question import Question
    from coldparquet.scanning.read_stages import Decoded
    from coldparquet.storage.base import FetchedRange, ObjectStore

Result = TypeVar("Result")
DecodedRows = TypeVar("DecodedRows", bound="Decoded")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamMeans:
    """What the row groups of one stream share."""

    question: Question
    store: ObjectStore
    executor: Executor
    memory: Room
    """Bytes: in flight, fetched, and decoded but not yet consumed."""
    requests: Room
    """Requests in flight."""
    decoders: Room
    """Threads that decode."""
    sizes: DecodedSizes
    part_bytes: int
    """About how long requests should be."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Whoever closes the stream cancels them and waits for them."""
    decoding: set[Future[Any]] = field(default_factory=set)
    """What threads are busy with; they cannot be interrupted, so whoever closes the stream waits for them."""

    def start(self, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a coroutine beside all others."""
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def in_thread(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Run a function in a thread of the table."""
        future = self.executor.submit(function, *arguments)
        self.decoding.add(future)
        future.add_done_callback(self.decoding.discard)
        return await asyncio.wrap_future(future)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecodeMemory:
    """What is held for one decoding."""

    estimated_bytes: int
    """What it will yield, before anything was learned."""
    held_bytes: int


class RowGroupWork:
    """One row group on its way.

    Args:
        read: What the plan says of it.
        partition: The partition that it belongs to.
        turn: Its place in the order in which row groups are consumed.
        means: What it shares with others.
    """

    def __init__(self, read: PlannedRead, partition: PlannedPartition, turn: int, means: StreamMeans) -> None:
        self.read = read
        self.turn = turn
        self.fetches: list[Fetch] = []
        """Requests of which this row group is the first to need bytes."""
        self.rows: asyncio.Future[pa.Table] = asyncio.get_running_loop().create_future()
        """The rows that satisfy the predicate, with the columns of the result."""
        self.memory = Holding(means.memory, turn=turn)
        self.gathering = Gathering(read, partition, self.memory)
        self.has_begun = False
        self.is_dropped = False
        self._partition = partition
        self._stages = ReadStages.of(read, partition, means.question)
        self._means = means
        self._may_decode: asyncio.Future[_DecodeMemory] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def certain_rows(self) -> int:
        """Rows that it will certainly contribute."""
        if self.rows.done():
            return 0 if self.rows.cancelled() or self.rows.exception() else self.rows.result().num_rows
        return self.read.row_count if self.read.all_rows_match else 0

    async def begin(self) -> None:
        """Send the requests and allow the decoding, as soon as there is memory for them; returns then."""
        self.has_begun = True
        try:
            self.gathering.begin()
            self._start(self._carry_out())
            await self._send(self.fetches)
            self._may_decode.set_result(await self._take_memory_to_decode(self.read, self._stages.first_columns))
        except Exception as error:  # noqa: BLE001 - whoever consumes the rows gets it
            self._fail(error)

    def drop(self) -> None:
        """Cancel what is in flight and give all memory back: the rows are not wanted any more."""
        self.is_dropped = True
        for task in self._tasks:
            task.cancel()
        self.gathering.drop()
        self.memory.release()
        if not self.rows.cancel() and not self.rows.cancelled():
            self.rows.exception()  # an error that nobody will ask for any more

    async def _carry_out(self) -> None:
        try:
            rows = await self._read_rows()
        except Exception as error:  # noqa: BLE001 - whoever consumes the rows gets it
            self._fail(error)
            return
        self.memory.keep(rows.get_total_buffer_size())
        self.rows.set_result(rows)

    async def _read_rows(self) -> pa.Table:
        await self.gathering.complete()
        memory = await self._may_decode
        stages = self._stages
        if not stages.deferred_columns:
            return (await self._decode(stages.decode, self.gathering, memory=memory)).rows
        first = await self._decode(stages.decode_first, self.gathering, self._means.part_bytes, memory=memory)
        self.memory.keep(first.rows.get_total_buffer_size())
        if first.narrowed is None:
            return first.rows
        gathering = Gathering(first.narrowed, self._partition, self.memory)
        fetches = pair(first.requests, [first.narrowed], [gathering], self._partition)
        gathering.begin()
        await self._send(fetches)
        memory = await self._take_memory_to_decode(first.narrowed, stages.deferred_columns)
        await gathering.complete()
        second = await self._decode(stages.decode_second, gathering, first, memory=memory)
        return second.rows

    async def _send(self, fetches: Sequence[Fetch]) -> None:
        """Send requests one after the other, as there is memory for their answers."""
        for fetch in fetches:
            await self.memory.take(fetch.length_bytes)
            self._start(self._fetch(fetch))

    async def _fetch(self, fetch: Fetch) -> None:
        """Fetch one range and copy its parts to their places."""
        try:
            await self._means.requests.take(1, turn=self.turn)
            try:
                answer = await self._get(fetch.request)
            finally:
                self._means.requests.hold(-1)
            self.memory.hold(-fetch.length_bytes)
            fetch.distribute(answer.data)
        except Exception as error:  # noqa: BLE001 - whoever consumes the rows gets it
            fetch.fail(error)

    async def _get(self, request: PlannedRequest) -> FetchedRange:
        try:
            return await self._means.store.get(self._partition.range_request(request))
        except NotFoundError as error:
            raise self._partition.missing(request) from error

    async def _take_memory_to_decode(self, read: PlannedRead, columns: Sequence[TableColumn]) -> _DecodeMemory:
        """Wait until there is memory for what decoding will take, as far as is known now."""
        estimated_bytes = self._partition.decoded_bytes(read, columns, self._means.question.options)
        held_bytes = self._means.sizes.working_bytes(estimated_bytes)
        await self.memory.take(held_bytes)
        return _DecodeMemory(estimated_bytes=estimated_bytes, held_bytes=held_bytes)

    async def _decode(
        self, function: Callable[..., DecodedRows], *arguments: object, memory: _DecodeMemory
    ) -> DecodedRows:
        """Decode in a thread, and learn from the size of what comes out."""
        means = self._means
        await self._take_decoder(memory)
        try:
            decoded = await means.in_thread(function, *arguments)
        finally:
            means.decoders.hold(-1)
        means.sizes.learn(estimated_bytes=memory.estimated_bytes, decoded_bytes=decoded.decoded_bytes)
        return decoded

    async def _take_decoder(self, memory: _DecodeMemory) -> None:
        """Wait for a thread, with as much memory as decoding takes by what others have shown meanwhile."""
        sizes, decoders = self._means.sizes, self._means.decoders
        held_bytes = memory.held_bytes
        while True:
            needed_bytes = sizes.working_bytes(memory.estimated_bytes)
            if needed_bytes > held_bytes:
                # Whoever waits for memory must not keep a thread from those whose turn comes earlier.
                await self.memory.take(needed_bytes - held_bytes)
                held_bytes = needed_bytes
            await decoders.take(1, turn=self.turn)
            if sizes.working_bytes(memory.estimated_bytes) <= held_bytes:
                return
            decoders.hold(-1)

    def _start(self, coroutine: Coroutine[object, object, None]) -> None:
        self._tasks.append(self._means.start(coroutine))

    def _fail(self, error: Exception) -> None:
        self.gathering.drop()
        self.memory.release()
        if not self.rows.done():
            self.rows.set_exception(error)
            self.rows.exception()  # perhaps nobody will ask
