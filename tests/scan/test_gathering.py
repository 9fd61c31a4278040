"""Answers that come before, while or after row groups begin: every byte lands in its place, and all memory comes back."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from coldparquet.decode.virtual_file import PlacedBuffer
from coldparquet.options import MIB
from coldparquet.plan.model import PlannedRequest
from coldparquet.plan.requests import Placements, place_ranges
from coldparquet.ranges import ByteRange
from coldparquet.scan import arriving
from coldparquet.scan.arriving import PartitionFetches
from coldparquet.scan.memory import Lease, Quota

FILE_BYTES = 6 * MIB


def places_of(reads: list[Any], requests: list[PlannedRequest]) -> Placements:
    """Let reads be lists of ranges, each behind the other in its buffer; or one range, in place."""
    ranges = [(begin, stop, number) for number, read in enumerate(reads) for begin, stop in read]
    lengths = [stop - begin for begin, stop, _ in ranges]
    befores = [sum(stop - begin for begin, stop in read[:place]) for read in reads for place in range(len(read))]
    assert len(befores) == len(lengths)
    return place_ranges(
        np.array([begin for begin, _, _ in ranges]),
        np.array([stop for _, stop, _ in ranges]),
        np.array(befores),
        np.array([number for _, _, number in ranges]),
        np.array([request.byte_range.start for request in requests]),
        np.array([request.byte_range.stop for request in requests]),
    )


def stays_in_place(read: Any) -> bool:
    return len(read) == 1 and read[0][1] - read[0][0] >= MIB


def buffer_in_place(read: Any, answer: bytes, start: int) -> bytes:
    return answer[read[0][0] - start : read[0][1] - start]


@pytest.fixture(autouse=True)
def _lists_as_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "place", places_of)
    monkeypatch.setattr(arriving, "stays_in_place", stays_in_place)
    monkeypatch.setattr(arriving, "row_group_in_place", buffer_in_place)
    monkeypatch.setattr(arriving, "new_buffer", lambda read: PlacedBuffer(sum(stop - begin for begin, stop in read)))


def random_reads(random: np.random.Generator) -> list[Any]:
    """Runs of pages that share a dictionary page, tiny row groups and large ones, one behind the other."""
    reads: list[Any] = []
    begin = 0
    while begin < FILE_BYTES:
        kind = random.integers(0, 300)
        length = int(random.integers(MIB, 2 * MIB) if kind == 0 else random.integers(1, 100_000 if kind < 9 else 200))
        stop = min(begin + length, FILE_BYTES)
        shares_dictionary = kind % 5 == 0 and reads and reads[-1][0][0] < begin - 1
        reads.append([reads[-1][0], (begin, stop)] if shares_dictionary else [(begin, stop)])
        begin = stop if stop == FILE_BYTES else stop + int(random.integers(0, 2) * random.integers(0, 5_000))
    return reads


@pytest.mark.parametrize("seed", range(8))
async def test_every_byte_arrives_whenever_answers_come_and_all_memory_comes_back(seed: int) -> None:
    random = np.random.default_rng(seed)
    file = random.bytes(FILE_BYTES)
    reads = random_reads(random)
    borders = [0, *sorted(random.choice(FILE_BYTES, 5, replace=False).tolist()), FILE_BYTES]
    requests = [
        PlannedRequest(partition_index=0, path="p", byte_range=ByteRange(begin, stop), reason="")
        for begin, stop in pairwise(borders)
    ]
    placed = places_of(reads, requests)
    requests = [requests[number] for number in np.diff(placed.first_of_request).nonzero()[0]]
    room = Quota(1)
    fetches = PartitionFetches(requests, reads, room)
    wanted = len(reads) if seed % 2 else int(len(reads) * 0.7)
    under_way: list[Any] = []
    begun: list[Any] = []
    seen: list[PlannedRequest] = []
    for position in range(wanted):
        if position == wanted // 2:
            fetches.leave_out(wanted)
        memory = Lease(room, turn=position)
        gathering, new = fetches.join(position, memory)
        begun.append((gathering, memory, reads[position]))
        under_way += new
        seen += [fetch.request for fetch in new]
        while under_way and random.integers(0, 40) == 0:
            answer_now(under_way.pop(int(random.integers(0, len(under_way)))), file)
    for fetch in under_way:
        answer_now(fetch, file)
    assert len({request.byte_range for request in seen}) == len(seen)
    for gathering, memory, read in begun:
        await asyncio.wait_for(gathering.complete(), timeout=1)
        buffer = gathering.take_buffer()
        content = buffer if isinstance(buffer, bytes) else buffer.bytes().tobytes()
        assert content == b"".join(file[begin:stop] for begin, stop in read)
        gathering.drop()
        memory.release()
    asyncio.get_running_loop().call_soon(lambda: None)
    last = asyncio.create_task(room.take(1, turn=0))
    await asyncio.wait_for(last, timeout=1)  # nothing else is held


def answer_now(fetch: Any, file: bytes) -> None:
    byte_range = fetch.request.byte_range
    fetch.distribute(file[byte_range.start : byte_range.stop])


async def test_what_failed_fails_for_those_who_begin_later() -> None:
    request = PlannedRequest(partition_index=0, path="p", byte_range=ByteRange(0, 20), reason="")
    room = Quota(1)
    fetches = PartitionFetches([request], [[(0, 10)], [(10, 20)]], room)  # type: ignore[list-item]
    first, [fetch] = fetches.join(0, Lease(room, turn=0))
    fetch.fail(ValueError("gone"))
    second, new = fetches.join(1, Lease(room, turn=1))
    assert new == []
    for gathering in (first, second):
        with pytest.raises(ValueError, match="gone"):
            await gathering.complete()
