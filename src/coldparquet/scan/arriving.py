"""Collects the bytes of a read: copies the answers of several requests into one buffer.

An answer is copied to where its bytes belong and then dropped: a few needed bytes never keep the whole answer in
memory. One request may serve several reads: it may span many row groups, and several runs of pages share a dictionary
page. Reads that have not started yet have no buffer. Their bytes are kept as copies, one for all reads that share them.
A large row group that arrives in a single answer is decoded inside that answer, without a copy. Such an answer is kept
once for all its row groups.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.decode.read import new_buffer
from coldparquet.decode.virtual_file import LEAST_BYTES_IN_PLACE, row_group_in_place, stays_in_place
from coldparquet.options import KIB
from coldparquet.plan.requests import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.decode.read import ReadBuffer
    from coldparquet.decode.virtual_file import PlacedBuffer
    from coldparquet.plan.model import PlannedRequest, Read
    from coldparquet.scan.memory import Lease, Quota


_KEPT_TOGETHER_BYTES = 64 * KIB
"""Small parts of an answer are copied together into blocks of about this length: one object each would take more
memory."""


class _KeptBytes:
    """Bytes kept for reads that have not started. They hold memory until the last of these reads has them."""

    def __init__(self, data: bytes, memory: Quota, *, users: int) -> None:
        self.data = data
        self._memory = memory
        self._users = users
        memory.hold(len(self.data))

    def remove_users(self, count: int = 1) -> None:
        self._users -= count
        if self._users == 0:
            self._memory.hold(-len(self.data))
            self.data = b""


class ArrivingRead:
    """The bytes of one started read, until its buffer is complete.

    Args:
        read: The read.
        memory: The lease of the row group.
        answer_count: Number of requests that fetch its bytes.
    """

    def __init__(self, read: Read, memory: Lease, *, answer_count: int) -> None:
        self._read = read
        self._memory = memory
        self._missing_answers = answer_count
        self.takes_whole_answer = answer_count == 1 and stays_in_place(read)
        """Whether a single answer holds all bytes and is decoded in place, without a buffer."""
        self._is_dropped = False
        self._whole: tuple[_KeptBytes, int] | None = None
        """The answer with all bytes, and its offset in the file."""
        self._buffer: PlacedBuffer | None = None
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._check_whether_complete()

    async def complete(self) -> None:
        """Wait until every byte has arrived."""
        await self._complete

    def take_buffer(self) -> ReadBuffer:
        """Hand over the complete buffer, in any thread. Its memory is freed with the caller's reference.

        A whole answer stays until :meth:`drop`.
        """
        whole = self._whole
        if whole is not None:
            answer, start = whole
            return row_group_in_place(self._read, answer.data, start)
        buffer, self._buffer = self._buffer, None
        return new_buffer(self._read) if buffer is None else buffer  # without a request all is made

    def drop(self) -> None:
        """Drop all bytes, both those that have arrived and those that will."""
        self._is_dropped = True
        self._buffer = None
        if self._whole is not None:
            self._whole[0].remove_users()
            self._whole = None

    def fail(self, error: Exception) -> None:
        """Raise the error in the tasks that wait for the bytes."""
        if not self._complete.done():
            self._complete.set_exception(error)
            self._complete.exception()  # marks the error as retrieved

    def receive(self, parts: Sequence[tuple[int, memoryview]]) -> None:
        """Copy the parts of one answer to their places in the buffer."""
        self._missing_answers -= 1
        if self._is_dropped:
            return
        for offset, data in parts:
            if self._buffer is None:
                self._buffer = new_buffer(self._read)
            self._buffer.place(offset, data)
            self._memory.hold(data.nbytes)
        self._check_whether_complete()

    def receive_whole(self, answer: _KeptBytes, start: int) -> None:
        """Use an answer that holds all bytes without copying it, as one of its users."""
        self._missing_answers -= 1
        if self._is_dropped:
            answer.remove_users()
            return
        self._whole = (answer, start)
        self._check_whether_complete()

    def _check_whether_complete(self) -> None:
        if self._missing_answers == 0 and not self._complete.done():
            self._complete.set_result(None)


class PartitionFetches:
    """The requests of one partition, and where the parts of their answers go. Reads join one after the other.

    Args:
        requests: They fetch all bytes of the reads.
        reads: In table order.
        memory: The lease for bytes of reads that have not joined.
    """

    def __init__(self, requests: Sequence[PlannedRequest], reads: Sequence[Read], memory: Quota) -> None:
        self.memory = memory
        self.placements = placed = place(reads, requests)
        self._requests = requests
        self._reads = reads
        self._fetches: dict[int, Fetch] = {}
        """By number: requests in flight or answered that serve reads that have not joined."""
        self.joined_reads = 0
        """Reads before this one have joined."""
        self.stop_read = len(reads)
        """Reads from this one on are no longer wanted."""
        placement_counts = np.diff(placed.first_of_request)
        self._request_of = np.repeat(np.arange(len(requests)), placement_counts)
        self._missing_counts = placement_counts.tolist()
        """Placements of each request whose reads have not joined."""
        every_read = np.arange(len(reads) + 1)
        self._by_read = placed.row_group_read.argsort(kind="stable")
        self._first_of_read = placed.row_group_read[self._by_read].searchsorted(every_read)
        firsts = (
            np.minimum.reduceat(placed.row_group_read, placed.first_of_request[:-1]) if requests else every_read[:0]
        )
        self._by_first_read = firsts.argsort(kind="stable")
        self._first_begun_by = firsts[self._by_first_read].searchsorted(every_read)

    def join(self, position: int, memory: Lease) -> tuple[ArrivingRead, list[Fetch]]:
        """Start a read, after all reads before it have started."""
        begun = self._by_first_read[self._first_begun_by[position] : self._first_begun_by[position + 1]].tolist()
        first = self.placements.first_of_request
        for number in begun:
            self._fetches[number] = Fetch(
                self._requests[number], self, slice(int(first[number]), int(first[number + 1]))
            )
        new = [self._fetches[number] for number in begun]
        mine = self._by_read[self._first_of_read[position] : self._first_of_read[position + 1]]
        requests = self._request_of[mine].tolist()
        answers = [
            (number, [placement for _, placement in group])
            for number, group in groupby(zip(requests, mine.tolist(), strict=True), key=lambda pair: pair[0])
        ]
        arriving = ArrivingRead(self._reads[position], memory, answer_count=len(answers))
        self.joined_reads = position + 1
        for number, placements in answers:
            self._fetches[number].serve(arriving, placements)
            self._missing_counts[number] -= len(placements)
            if self._missing_counts[number] == 0:
                del self._fetches[number]
        return arriving, new

    def leave_out(self, position: int) -> None:
        """Keep nothing for this read and those behind it: their rows are no longer wanted."""
        if position < self.stop_read:
            self.stop_read = position
            for fetch in self._fetches.values():
                fetch.forget_from(max(position, self.joined_reads))

    def stay_in_place(self, reads: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the reads that a single answer covers and that are decoded in it."""
        bounds = self._by_read[self._first_of_read[reads]], self._by_read[self._first_of_read[reads + 1] - 1]
        of_one_answer = reads[self._request_of[bounds[0]] == self._request_of[bounds[1]]]
        staying = [one for one in of_one_answer.tolist() if stays_in_place(self._reads[one])]
        return np.array(staying, dtype=np.int64)


class Fetch:
    """One request, and where the parts of its answer go.

    Args:
        request: The request.
        fetches: All fetches of its partition.
        span: Which of their placements belong to this request.
    """

    def __init__(self, request: PlannedRequest, fetches: PartitionFetches, span: slice) -> None:
        self.request = request
        self._fetches = fetches
        self._span = span
        placed = fetches.placements
        self._reads = placed.row_group_read[span]
        self._sources = placed.source_offset[span]
        self._lengths = placed.length_bytes[span]
        self._waiting: dict[ArrivingRead, list[int]] = {}
        """Reads that joined before the answer arrived, and their placements."""
        self._answer: _KeptParts | Exception | None = None
        """The answer or its error, for reads that have not joined."""

    @property
    def length_bytes(self) -> int:
        """Length of the answer."""
        return self.request.byte_range.length_bytes

    @property
    def wanted_bytes(self) -> int:
        """Bytes of the answer that reads need; several runs of pages may need the same dictionary page."""
        _, first = np.unique(self._sources[::-1], return_index=True)
        return int(self._lengths[::-1][first].sum())

    def serve(self, arriving: ArrivingRead, placements: list[int]) -> None:
        """Give a joining read its parts of the answer, now or when the answer arrives."""
        answer = self._answer
        if answer is None:
            self._waiting[arriving] = placements
        elif isinstance(answer, Exception):
            arriving.fail(answer)
        elif arriving.takes_whole_answer and answer.whole is not None:
            arriving.receive_whole(answer.whole, self.request.byte_range.start)
        else:
            offsets = self._fetches.placements.destination_offset[placements].tolist()
            places = [placement - self._span.start for placement in placements]
            arriving.receive([(offset, answer.part(place)) for offset, place in zip(offsets, places, strict=True)])
            for place in places:
                answer.remove_user(place)

    def distribute(self, answer: bytes) -> None:
        """Copy the parts of the answer to their places, or hand over all of it. Keep what later reads need."""
        data = memoryview(answer)
        memory = self._fetches.memory
        later = (self._reads >= self._fetches.joined_reads) & (self._reads < self._fetches.stop_read)
        in_place = self._staying(later)
        whole_users = [arriving for arriving in self._waiting if arriving.takes_whole_answer]
        user_count = len(whole_users) + len(in_place)
        whole = _KeptBytes(answer, memory, users=user_count) if user_count else None
        for arriving, placements in self._waiting.items():
            if arriving.takes_whole_answer and whole is not None:
                arriving.receive_whole(whole, self.request.byte_range.start)
                continue
            placed = self._fetches.placements
            parts = zip(
                placed.destination_offset[placements].tolist(),
                placed.source_offset[placements].tolist(),
                placed.length_bytes[placements].tolist(),
                strict=True,
            )
            arriving.receive([(offset, data[source : source + length]) for offset, source, length in parts])
        self._waiting.clear()
        if later.any():
            copied = (later & ~np.isin(self._reads, in_place)).nonzero()[0]
            self._answer = _KeptParts(
                data,
                self._sources,
                self._lengths,
                copied,
                memory,
                whole=whole if len(in_place) else None,
                whole_reads=in_place,
            )

    def fail(self, error: Exception) -> None:
        """Pass the error to every read that needs a part of the answer."""
        self._answer = error
        for arriving in self._waiting:
            arriving.fail(error)
        self._waiting.clear()

    def forget_from(self, read: int) -> None:
        """Keep nothing for reads from this one on."""
        if isinstance(self._answer, _KeptParts):
            self._answer.forget(self._reads >= read, read)

    def _staying(self, later: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return the reads that are decoded in this answer once they have joined."""
        if self.length_bytes < LEAST_BYTES_IN_PLACE:
            return self._reads[:0]
        reads, lengths = self._reads[later], self._lengths[later]
        bytes_of_read = np.bincount(reads, weights=lengths)
        return self._fetches.stay_in_place((bytes_of_read >= LEAST_BYTES_IN_PLACE).nonzero()[0])


class _KeptParts:
    """Copies of parts of one answer for reads that have not joined, or the answer itself.

    Args:
        answer: The answer.
        sources: Offset of each part in it.
        lengths: Length of each part.
        places: The parts to copy, ascending.
        memory: The lease for the copies.
        whole: The answer, if reads are decoded in it.
        whole_reads: These reads.
    """

    def __init__(  # noqa: PLR0913 - parallel arrays of parts, and the answer in two forms
        self,
        answer: memoryview,
        sources: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        places: npt.NDArray[np.intp],
        memory: Quota,
        *,
        whole: _KeptBytes | None,
        whole_reads: npt.NDArray[np.int64],
    ) -> None:
        self.whole = whole
        self._whole_reads = whole_reads
        self._lengths = lengths
        begins, sizes = sources[places], lengths[places]
        # Equal parts, such as a dictionary page shared by runs of pages, are neighbours and copied once.
        is_new = np.ones(len(places), dtype=bool)
        is_new[1:] = (begins[1:] != begins[:-1]) | (sizes[1:] != sizes[:-1])
        slot = is_new.cumsum() - 1
        begins, sizes = begins[is_new], sizes[is_new]
        offsets = sizes.cumsum() - sizes
        is_large = sizes >= _KEPT_TOGETHER_BYTES
        ends_copy = np.zeros(len(sizes), dtype=bool)
        ends_copy[1:] = is_large[1:] | is_large[:-1] | (np.diff(offsets // _KEPT_TOGETHER_BYTES) > 0)
        copy = ends_copy.cumsum()
        first = copy.searchsorted(np.arange(copy[-1] + 2 if len(copy) else 1))
        self._copy_of = np.full(len(sources), -1)
        """Index of the copy with each part; -1 for parts that no read waits for."""
        self._copy_of[places] = copy[slot]
        self._offset_of = np.zeros(len(sources), np.int64)
        """Offset in that copy."""
        self._offset_of[places] = (offsets - offsets[first[copy]])[slot]
        users = np.bincount(copy[slot]).tolist()
        stops = (begins + sizes).tolist()
        starts = begins.tolist()
        self._copies = [
            _KeptBytes(
                b"".join([answer[starts[one] : stops[one]] for one in range(first[number], first[number + 1])]),
                memory,
                users=count,
            )
            for number, count in enumerate(users)
        ]

    def part(self, place: int) -> memoryview:
        """Return the bytes of a part."""
        offset = int(self._offset_of[place])
        return memoryview(self._copies[self._copy_of[place]].data)[offset : offset + int(self._lengths[place])]

    def remove_user(self, place: int) -> None:
        """Record that a waiting read has its part."""
        self._copies[self._copy_of[place]].remove_users()
        self._copy_of[place] = -1

    def forget(self, parts: npt.NDArray[np.bool_], read: int) -> None:
        """Drop these parts, and the answer for reads from this one on."""
        gone = self._copy_of[parts]
        for number, count in enumerate(np.bincount(gone[gone >= 0]).tolist()):
            if count:
                self._copies[number].remove_users(count)
        self._copy_of[parts] = -1
        if self.whole is not None and (count := int((self._whole_reads >= read).sum())):
            self._whole_reads = self._whole_reads[self._whole_reads < read]
            self.whole.remove_users(count)
