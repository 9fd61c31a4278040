"""The memory limit: what is held while a scan runs, who gets the next bytes, and that all of them come back."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.decode.virtual_file import PlacedBuffer
from coldparquet.maintenance.index import index_table
from coldparquet.options import MIB
from coldparquet.plan.model import PlannedRequest
from coldparquet.plan.requests import Placements, place_ranges
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.scan import arriving
from coldparquet.scan.arriving import ArrivingRead, PartitionFetches
from coldparquet.scan.memory import Lease, Quota
from coldparquet.scan.work import RowGroupWork
from coldparquet.storage.base import ObjectStore, StoreWrapper
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet_testing.stores import LatencyStore
from tests.support.parquet_footers import parquet_bytes
from tests.support.waiting import eventually

# --- The memory limit: what is in flight, fetched and decoded stays within it, and a consumer that stops stops the
# fetching


ROW_GROUPS, ROW_GROUP_ROWS = 40, 5_000
DECODED_BYTES = ROW_GROUP_ROWS * 16
"""Of one row group: two columns of 64 bits."""
LIMIT_BYTES = 20 * DECODED_BYTES


class CountedBytes(bytes):
    """An answer that tells when its memory goes."""

    alive_bytes: ClassVar[int] = 0
    most_alive_bytes: ClassVar[int] = 0

    def __init__(self, _: bytes) -> None:
        CountedBytes.alive_bytes += len(self)
        CountedBytes.most_alive_bytes = max(CountedBytes.most_alive_bytes, CountedBytes.alive_bytes)

    def __del__(self) -> None:
        CountedBytes.alive_bytes -= len(self)


class OutstandingStore(StoreWrapper):
    """Counts the bytes of rows that were asked for and not answered yet, and those of answers that are still held."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.outstanding_bytes = self.most_outstanding_bytes = self.fetched_bytes = 0
        CountedBytes.alive_bytes = CountedBytes.most_alive_bytes = 0

    async def get(self, request: RangeRequest) -> FetchedRange:
        if request.role == "metadata":
            return await super().get(request)
        length_bytes = request.byte_range.length_bytes
        self.outstanding_bytes += length_bytes
        self.most_outstanding_bytes = max(self.most_outstanding_bytes, self.outstanding_bytes)
        try:
            fetched = await super().get(request)
        finally:
            self.outstanding_bytes -= length_bytes
        self.fetched_bytes += length_bytes
        return replace(fetched, data=CountedBytes(fetched.data))


def parquet(
    columns: dict[str, pa.Array[Any]], *, row_group_rows: int = ROW_GROUP_ROWS, page_rows: int = 5_000
) -> bytes:
    return parquet_bytes(
        pa.table(columns),
        row_group_size=row_group_rows,
        write_batch_size=page_rows,
        data_page_size=1,
        write_page_index=True,
        use_dictionary=["text"],
        compression="zstd",
    )


@pytest.fixture(scope="module")
def numbers() -> bytes:
    random = np.random.default_rng(3)
    rows = ROW_GROUPS * ROW_GROUP_ROWS
    return parquet({"x": pa.array(np.arange(rows)), "y": pa.array(random.integers(0, 1 << 62, rows))})


async def store_of(data: bytes) -> OutstandingStore:
    store = MemoryStore({"t/data.parquet": data})
    await index_table("t", store=store, pages=False, pack=False)
    return OutstandingStore(LatencyStore(store, first_byte_s=0.001))


async def idle(store: OutstandingStore) -> None:
    """Wait until nothing has been asked for, for a while."""
    fetched_bytes = -1
    while store.outstanding_bytes or store.fetched_bytes > fetched_bytes:
        fetched_bytes = store.fetched_bytes
        await asyncio.sleep(0.2)


@pytest.mark.parametrize("gap_bytes", [0, 1 << 20], ids=["requests of their own", "merged requests"])
async def test_everything_held_stays_within_the_limit(numbers: bytes, gap_bytes: int) -> None:
    store = await store_of(numbers)
    options = cp.ReadOptions(memory_limit_bytes=LIMIT_BYTES, coalesce_gap_bytes=gap_bytes, max_request_bytes=200_000)
    xs: list[Any] = []
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan().batches() as batches,
    ):
        async for batch in batches:
            xs += batch.column("x").to_pylist()
        assert batches.most_held_bytes <= LIMIT_BYTES
        assert batches.most_held_bytes > LIMIT_BYTES / 4, "it makes use of the memory that it may take"
    assert xs == list(range(ROW_GROUPS * ROW_GROUP_ROWS))
    assert store.most_outstanding_bytes <= LIMIT_BYTES


@pytest.mark.parametrize("gap_bytes", [0, 1 << 20], ids=["requests of their own", "merged requests"])
async def test_a_consumer_that_stops_stops_the_fetching_and_no_answer_stays(numbers: bytes, gap_bytes: int) -> None:
    store = await store_of(numbers)
    options = cp.ReadOptions(memory_limit_bytes=LIMIT_BYTES, coalesce_gap_bytes=gap_bytes, max_request_bytes=200_000)
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan().batches() as batches,
    ):
        assert await batches.next_batch() is not None
        await idle(store)
        assert 0 < store.fetched_bytes < LIMIT_BYTES
        await eventually(lambda: CountedBytes.alive_bytes == 0)  # answers are copied to their places and dropped
        rows = sum([batch.num_rows async for batch in batches])
    assert rows == (ROW_GROUPS - 1) * ROW_GROUP_ROWS
    assert CountedBytes.alive_bytes == 0


async def test_without_a_limit_everything_is_fetched_ahead(numbers: bytes) -> None:
    store = await store_of(numbers)
    async with cp.open_partition("t", store=store) as partition, partition.scan().batches() as batches:
        assert await batches.next_batch() is not None
        await eventually(lambda: store.fetched_bytes == batches.plan.bytes_fetched)


async def test_one_row_group_larger_than_the_limit_is_still_read(numbers: bytes) -> None:
    store = await store_of(numbers)
    options = cp.ReadOptions(memory_limit_bytes=1_000, page_index="never")
    async with cp.open_partition("t", store=store, options=options) as partition:
        found = await asyncio.wait_for(partition.scan(["x"]).to_arrow(), timeout=60)
    assert found.column("x").to_pylist() == list(range(ROW_GROUPS * ROW_GROUP_ROWS))


async def test_estimates_are_corrected_by_what_comes_out() -> None:
    """Behind the dictionary of each row group is a long text; minima and maxima do not tell how long."""
    row_groups, rows, text_bytes = 40, 500, 4_000
    values = pa.array(["a", "z", "m" * text_bytes])
    number = np.arange(row_groups * rows)
    text = values.take(np.minimum(number % rows, 2))
    store = await store_of(parquet({"text": text, "x": pa.array(number)}, row_group_rows=rows))
    limit_bytes = 10 * rows * text_bytes
    options = cp.ReadOptions(memory_limit_bytes=limit_bytes, page_index="never", decode_threads=1, coalesce_gap_bytes=0)
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan().batches() as batches,
    ):
        assert await batches.next_batch() is not None
        await idle(store)
        assert store.fetched_bytes == batches.plan.bytes_fetched, "the compressed bytes are few"
        rows_read = rows + sum([batch.num_rows async for batch in batches])
        assert batches.most_held_bytes <= limit_bytes
    assert rows_read == row_groups * rows


async def test_a_row_group_is_read_in_runs_of_pages_that_share_a_dictionary_page() -> None:
    rows = 200_000
    texts = np.array([f"text number {number:05}" for number in range(2_000)])
    text = pa.array(texts[np.random.default_rng(1).integers(0, 2_000, rows)])
    data = parquet({"text": text, "x": pa.array(np.arange(rows))}, row_group_rows=rows)
    store = await store_of(data)
    options = cp.ReadOptions(memory_limit_bytes=4_000_000, strings="dictionary", coalesce_gap_bytes=0)
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan().batches() as batches,
    ):
        assert len(batches.plan.row_groups) > 3
        found = pa.Table.from_batches([batch async for batch in batches])
        assert batches.most_held_bytes <= 4_000_000
        assert store.fetched_bytes == batches.plan.bytes_fetched < len(data), "the dictionary page came once"
    assert found.column("text").cast(pa.string()).combine_chunks().equals(text)
    assert found.column("x").to_pylist() == list(range(rows))
    assert CountedBytes.alive_bytes == 0


async def test_the_last_batch_of_a_row_group_does_not_keep_the_others_in_memory(numbers: bytes) -> None:
    store = await store_of(numbers)
    options = cp.ReadOptions(batch_rows=100)
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan(where=f"x < {ROW_GROUP_ROWS}").batches() as batches,
    ):
        read = [batch async for batch in batches]
    assert [batch.num_rows for batch in read] == [100] * (ROW_GROUP_ROWS // 100)
    assert read[-1].get_total_buffer_size() < 2 * 100 * 16
    assert read[-1].column("x").to_pylist() == list(range(ROW_GROUP_ROWS - 100, ROW_GROUP_ROWS))


@pytest.mark.parametrize("batch_rows", [100, 5_000, 1 << 20])
async def test_memory_of_batches_is_given_back_as_they_are_taken(numbers: bytes, batch_rows: int) -> None:
    store = await store_of(numbers)
    limit_bytes = 6 * DECODED_BYTES
    options = cp.ReadOptions(memory_limit_bytes=limit_bytes, batch_rows=batch_rows, page_index="never")
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan(["x"]).batches() as batches,
    ):
        rows = sum([batch.num_rows async for batch in batches])
    assert rows == ROW_GROUPS * ROW_GROUP_ROWS


# --- Memory and request slots: granted in the order of ranks, given back whatever happens -----------------------------


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def take(room: Quota, amount: int, rank: int, granted: list[int]) -> None:
    await room.take(amount, rank=rank)
    granted.append(rank)


async def test_what_fits_is_granted_and_the_rest_waits_for_what_is_given_back() -> None:
    room, granted = Quota(10), list[int]()
    tasks = [asyncio.create_task(take(room, 5, rank, granted)) for rank in range(4)]
    await settle()
    assert granted == [0, 1]
    room.hold(-5)
    await settle()
    assert granted == [0, 1, 2]
    room.hold(-10)
    await asyncio.gather(*tasks)
    assert room.most_held == 10


async def test_the_earliest_rank_comes_first_and_small_claims_do_not_overtake_it() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(8, rank=0)
    tasks = [asyncio.create_task(take(room, amount, rank, granted)) for amount, rank in ((9, 2), (1, 3), (3, 1))]
    await settle()
    assert granted == []
    room.hold(-8)
    await settle()
    assert granted == [1], "rank 3 would fit, but rank 2 would wait the longer for it"
    room.hold(-3)
    await settle()
    assert granted == [1, 2, 3]
    await asyncio.gather(*tasks)


async def test_a_task_that_is_waited_for_goes_on_whatever_is_held() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(10, rank=0)
    tasks = [asyncio.create_task(take(room, 100, rank, granted)) for rank in (1, 2, 3)]
    await settle()
    assert granted == []
    room.hurry(2)
    await settle()
    assert granted == [1, 2]
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_claim_that_is_cancelled_holds_nothing_and_lets_others_pass() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(6, rank=0)
    large = asyncio.create_task(take(room, 10, 1, granted))
    small = asyncio.create_task(take(room, 4, 2, granted))
    await settle()
    large.cancel()
    await small
    assert granted == [2]
    assert room.most_held == 10


async def test_a_claim_that_is_granted_and_cancelled_at_once_holds_nothing() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(10, rank=0)
    unlucky = asyncio.create_task(take(room, 10, 1, granted))
    await settle()
    room.hurry(1)
    unlucky.cancel()
    await asyncio.gather(unlucky, return_exceptions=True)
    room.hold(-10)
    await asyncio.wait_for(room.take(10, rank=2), timeout=60)
    assert granted == []


async def test_memory_given_back_and_taken_in_the_same_breath_is_not_granted_in_between() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(10, rank=0)
    waiting = asyncio.create_task(take(room, 4, 1, granted))
    await settle()
    room.hold(-10)
    room.hold(8)
    await settle()
    assert granted == []
    assert room.most_held == 10
    room.hold(-8)
    await waiting


async def test_a_holding_gives_everything_back_and_takes_no_more() -> None:
    room = Quota(10)
    holding = Lease(room, rank=0)
    await holding.take(4)
    holding.hold(3)
    holding.keep(5)
    holding.release()
    holding.hold(7)
    await holding.take(2)
    await asyncio.wait_for(room.take(10, rank=1), timeout=60)


@given(
    limit=st.integers(1, 20),
    claims=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=12),
    data=st.data(),
)
def test_no_claim_waits_for_ever_and_the_limit_holds_without_hurry(
    limit: int, claims: list[tuple[int, int]], data: st.DataObject
) -> None:
    claims = [(min(amount, limit), rank) for amount, rank in claims]

    async def scenario() -> None:
        room = Quota(limit)

        async def use(amount: int, rank: int) -> None:
            await room.take(amount, rank=rank)
            try:
                await asyncio.sleep(0)
            finally:
                room.hold(-amount)

        tasks = [asyncio.create_task(use(amount, rank)) for amount, rank in claims]
        for task in tasks:
            if data.draw(st.booleans()):
                await asyncio.sleep(0)
            if data.draw(st.booleans()):
                task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), timeout=60)
        assert room.most_held <= limit
        await asyncio.wait_for(room.take(limit, rank=99), timeout=60)

    asyncio.run(scenario())


@pytest.mark.parametrize("amount", [0, 11])
async def test_a_claim_beyond_the_limit_waits_until_it_is_urgent(amount: int) -> None:
    room, granted = Quota(10), list[int]()
    task = asyncio.create_task(take(room, amount, 0, granted))
    await settle()
    assert granted == ([0] if amount == 0 else [])
    room.hurry(0)
    await task


# --- Row groups of few rows: what a scan holds does not grow with how many there are ----------------------------------


SCAN = """
import asyncio, sys
import coldparquet as cp
from coldparquet.options import MIB

def memory_kib(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

async def main(warm_up, url, limit_mib, row_groups):
    async with cp.open_partition(warm_up) as partition:
        await partition.scan().to_arrow()
    before = memory_kib("VmRSS")
    options = cp.ReadOptions(memory_limit_bytes=int(limit_mib) * MIB)
    found = []
    async with cp.open_partition(url, options=options) as partition, partition.scan(["x"]).batches() as batches:
        while len(found) < 2 * int(row_groups):
            found += (await batches.next_batch()).column("x").to_pylist()
    assert found == list(range(len(found)))
    print((memory_kib("VmHWM") - before) // 1024)

asyncio.run(main(*sys.argv[1:]))
"""


def write(directory: Path, row_groups: int) -> Path:
    directory.mkdir()
    pq.write_table(pa.table({"x": range(2 * row_groups)}), directory / "data.parquet", row_group_size=2)
    return directory


async def test_row_groups_are_made_when_they_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldparquet.plan.reads._MOST_JOINED_ROWS", 1)
    partition = write(tmp_path / "p", 2_000)
    options = cp.ReadOptions(memory_limit_bytes=2 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened, opened.scan().batches() as batches:
        found = (await batches.next_batch()).column("x").to_pylist()  # type: ignore[union-attr]
        gc.collect()
        made = [one for one in gc.get_objects() if isinstance(one, RowGroupWork | ArrivingRead)]
        assert 0 < len(made) < 2 * 200, "two objects for each of those that fit, 4 KiB each"
        async for batch in batches:
            found += batch.column("x").to_pylist()
    assert found == list(range(4_000))


@pytest.mark.slow
def test_many_tiny_row_groups_stay_within_twice_the_limit(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / "warm up", 20)), str(write(tmp_path / "p", 20_000))]
    done = subprocess.run(
        [sys.executable, "-c", SCAN, *paths, "64", "4000"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2 * 64


# --- Answers that come before, while or after row groups begin: every byte lands in its place, and all memory comes
# back


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


@pytest.fixture
def _lists_as_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_one_large_range(read: Any) -> bool:
        return len(read) == 1 and read[0][1] - read[0][0] >= MIB

    def part_of(read: Any, answer: bytes, start: int) -> bytes:
        return answer[read[0][0] - start : read[0][1] - start]

    monkeypatch.setattr(arriving, "place", places_of)
    monkeypatch.setattr(arriving, "stays_in_place", is_one_large_range)
    monkeypatch.setattr(arriving, "row_group_in_place", part_of)
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


@pytest.mark.usefixtures("_lists_as_reads")
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
        memory = Lease(room, rank=position)
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
    last = asyncio.create_task(room.take(1, rank=0))
    await asyncio.wait_for(last, timeout=1)  # nothing else is held


def answer_now(fetch: Any, file: bytes) -> None:
    byte_range = fetch.request.byte_range
    fetch.distribute(file[byte_range.start : byte_range.stop])


@pytest.mark.usefixtures("_lists_as_reads")
async def test_what_failed_fails_for_those_who_begin_later() -> None:
    request = PlannedRequest(partition_index=0, path="p", byte_range=ByteRange(0, 20), reason="")
    room = Quota(1)
    fetches = PartitionFetches([request], [[(0, 10)], [(10, 20)]], room)  # type: ignore[list-item]
    first, [fetch] = fetches.join(0, Lease(room, rank=0))
    fetch.fail(ValueError("gone"))
    second, new = fetches.join(1, Lease(room, rank=1))
    assert new == []
    for gathering in (first, second):
        with pytest.raises(ValueError, match="gone"):
            await gathering.complete()
