"""Gathering the bytes of a read: from the answers of several requests into one buffer.

An answer is copied to where its bytes belong and dropped, so that it never stays for the sake of a few bytes. It may
bring bytes for reads whose turn has not come: a request may serve several row groups, and several runs of pages share
a dictionary page. Their buffers are not made yet; a copy is kept, one for all that need it. Only large row groups that
an answer brings as a whole are decoded where they lie, so that it is kept itself, one for all that it brings.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.decode.placed_buffer import PlacedBuffer
    from coldparquet.plan.placement import Placement
    from coldparquet.plan.read_plan import PlannedRead, PlannedRequest
    from coldparquet.scanning.memory_room import Holding, Room
    from coldparquet.scanning.planned_partition import PlannedPartition, ReadBuffer


class _KeptBytes:
    """Bytes that wait for the turn of the reads that need them; they hold memory until the last one has them."""

    def __init__(self, data: bytes, memory: Room) -> None:
        self.data = data
        self._memory = memory
        self._users = 0
        memory.hold(len(self.data))

    def add_user(self) -> None:
        self._users += 1

    def remove_user(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._memory.hold(-len(self.data))


class Gathering:
    """The bytes of one read on their way into its buffer.

    Args:
        read: What is read.
        partition: Where.
        memory: What the row group holds.
    """

    def __init__(self, read: PlannedRead, partition: PlannedPartition, memory: Holding) -> None:
        self._read = read
        self._partition = partition
        self._memory = memory
        self._answer_count = 0
        self._missing_answers = 0
        self._stays_in_place = partition.stays_in_place(read)
        self._has_begun = False
        self._is_dropped = False
        self._kept: list[tuple[int, _KeptBytes]] = []
        """Where in the buffer they belong, and the bytes."""
        self._whole: tuple[_KeptBytes, int] | None = None
        """The answer that brought all bytes, and where in the file it begins."""
        self._buffer: PlacedBuffer | None = None
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expect_answer(self) -> None:
        """Count one more request that will bring bytes."""
        self._answer_count += 1
        self._missing_answers += 1

    def begin(self) -> None:
        """Take bytes into the buffer from now on: the turn of this read has come."""
        self._has_begun = True
        while self._kept:
            offset, kept = self._kept.pop()
            self._place(offset, memoryview(kept.data))
            kept.remove_user()
        self._look_whether_complete()

    async def complete(self) -> None:
        """Wait until every byte has arrived.

        Raises:
            ColdParquetError: A request failed.
        """
        await self._complete

    @property
    def takes_whole_answer(self) -> bool:
        """Whether one answer brings all bytes and is decoded itself, without a buffer."""
        return self._stays_in_place and self._answer_count == 1

    @property
    def waits_for_first_byte(self) -> bool:
        """Whether answers are on their way and none has arrived, so that there is time to make the buffer."""
        return self._missing_answers > 0 and self._buffer is None and not self._is_dropped

    def new_buffer(self) -> PlacedBuffer:
        """Make a buffer, in any thread; :meth:`fill` takes it."""
        return self._partition.new_buffer(self._read)

    def fill(self, buffer: PlacedBuffer) -> None:
        """Take bytes into this buffer, unless some have arrived meanwhile."""
        if self.waits_for_first_byte:
            self._buffer = buffer

    def take_buffer(self) -> ReadBuffer:
        """Hand the complete buffer over, in any thread: its memory goes with the caller's reference.

        A whole answer stays until :meth:`drop`.
        """
        whole = self._whole
        if whole is not None:
            answer, start = whole
            return self._partition.buffer_in_place(self._read, answer.data, start)
        buffer, self._buffer = self._buffer, None
        return self.new_buffer() if buffer is None else buffer  # without a request all is made

    def drop(self) -> None:
        """Forget all bytes, those that have arrived and those that will."""
        self._is_dropped = True
        self._buffer = None
        if self._whole is not None:
            self._whole[0].remove_user()
            self._whole = None
        while self._kept:
            self._kept.pop()[1].remove_user()

    def fail(self, error: Exception) -> None:
        """Let whoever waits for the bytes have the error."""
        if not self._complete.done():
            self._complete.set_exception(error)
            self._complete.exception()  # perhaps nobody waits any more

    def receive(self, parts: Sequence[tuple[Placement, memoryview]], kept: dict[int, _KeptBytes]) -> None:
        """Take the parts of one answer.

        Args:
            parts: Bytes, and where they belong.
            kept: Copies of parts of this answer that are kept already, by where they begin in it.
        """
        self._missing_answers -= 1
        if self._is_dropped:
            return
        for placement, data in parts:
            if self._has_begun:
                self._place(placement.destination_offset, data)
                continue
            found = kept.get(placement.source_offset)
            if found is None or len(found.data) != data.nbytes:
                found = kept[placement.source_offset] = _KeptBytes(bytes(data), self._memory.room)
            found.add_user()
            self._kept.append((placement.destination_offset, found))
        self._look_whether_complete()

    def receive_whole(self, answer: bytes, start: int, kept: _KeptBytes | None) -> _KeptBytes | None:
        """Take the answer that brings all bytes, without copying it.

        Args:
            answer: The answer.
            start: Where in the file it begins.
            kept: What keeps it for other reads already; None where nothing does.

        Returns:
            What keeps it now.
        """
        self._missing_answers -= 1
        if self._is_dropped:
            return kept
        kept = kept or _KeptBytes(answer, self._memory.room)
        kept.add_user()
        self._whole = (kept, start)
        self._look_whether_complete()
        return kept

    def _place(self, offset: int, data: memoryview) -> None:
        if self._buffer is None:
            self._buffer = self.new_buffer()
        self._buffer.place(offset, data)
        self._memory.hold(data.nbytes)

    def _look_whether_complete(self) -> None:
        if self._has_begun and self._missing_answers == 0 and not self._complete.done():
            self._complete.set_result(None)


class Fetch(NamedTuple):
    """One request, and which parts of its answer go where."""

    request: PlannedRequest
    served: dict[Gathering, list[Placement]]

    @property
    def length_bytes(self) -> int:
        """Length of the answer."""
        return self.request.byte_range.length_bytes

    @property
    def wanted_bytes(self) -> int:
        """Bytes of the answer that somebody needs; several runs of pages may need the same dictionary page."""
        placements = (placement for served in self.served.values() for placement in served)
        return sum({placement.source_offset: placement.length_bytes for placement in placements}.values())

    def distribute(self, answer: bytes) -> None:
        """Copy the parts of the answer to where they are needed, or hand over all of it."""
        data = memoryview(answer)
        kept: dict[int, _KeptBytes] = {}
        whole: _KeptBytes | None = None
        for gathering, placements in self.served.items():
            if gathering.takes_whole_answer:
                whole = gathering.receive_whole(answer, self.request.byte_range.start, whole)
                continue
            parts = [(each, data[each.source_offset :][: each.length_bytes]) for each in placements]
            gathering.receive(parts, kept)

    def fail(self, error: Exception) -> None:
        """Let everybody who needs a part of the answer have the error."""
        for gathering in self.served:
            gathering.fail(error)


def pair(
    requests: Sequence[PlannedRequest],
    reads: Sequence[PlannedRead],
    gatherings: Sequence[Gathering],
    partition: PlannedPartition,
) -> list[Fetch]:
    """Pair the requests of one partition with those whose bytes they bring, who expect them from then on.

    Args:
        requests: They bring all bytes of the reads.
        reads: In table order.
        gatherings: Those of the reads.
        partition: The partition.
    """
    placements = partition.place(reads, requests)
    fetches = []
    for number, request in enumerate(requests):
        served: dict[Gathering, list[Placement]] = {}
        for placement in placements.of_request(number):
            served.setdefault(gatherings[placement.row_group_read], []).append(placement)
        for gathering in served:
            gathering.expect_answer()
        fetches.append(Fetch(request=request, served=served))
    return fetches
