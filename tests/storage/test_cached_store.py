"""Nothing is fetched twice, and nothing that is answered from the cache is of another version than what is fetched."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coldparquet.errors import ObjectChangedError, StorageError
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.base import ObjectStore, StoreWrapper
from coldparquet.storage.cache import Cache, CachedStore, MemoryCache
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.disk_cache import DiskCache
from coldparquet.storage.log import Ledger, TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, RangeRequest
from tests.support.disk_caches import poison
from tests.support.small_tables import QuotingStore

PATH = "table/2024-03-01/data.parquet"
CONTENT = bytes(range(256)) * 8


def request(start: int, stop: int, **details: object) -> RangeRequest:
    return RangeRequest(path=PATH, byte_range=ByteRange(start, stop), reason="test", **details)  # type: ignore[arg-type]


class Setting:
    """A store, what was sent to it, and caches that outlive the stores that read through them."""

    def __init__(self, store: ObjectStore | None = None, *, disk: DiskCache | None = None) -> None:
        self.objects = QuotingStore({PATH: CONTENT})
        self.trace = TraceStore(self.objects if store is None else store)
        self.ranges = MemoryCache(1_000_000)
        self.cache = Cache("range", lambda: "memory", memory=self.ranges, disk=disk)

    def reader(self) -> CachedStore:
        """Make the store of another snapshot."""
        return CachedStore(CheckedStore(self.trace), self.cache)

    @property
    def sent(self) -> list[tuple[str, int]]:
        """Range and received bytes of every GET."""
        return [(str(record.byte_range), record.fetched_bytes) for record in self.trace.records]


@pytest.fixture
def setting() -> Setting:
    return Setting()


async def test_what_was_fetched_is_not_asked_for_again(setting: Setting) -> None:
    store = setting.reader()
    first = await store.get(request(100, 300))
    ledger = Ledger()
    with ledger.current():
        assert await store.get(request(100, 300)) == replace(first, is_from_cache=True)
        assert (await store.get(request(150, 200))).data == CONTENT[150:200]
        assert (await store.get(request(290, 310))).data == CONTENT[290:310]
    assert setting.sent == [("[100, 300)", 200), ("[290, 310)", 20)]
    assert (ledger.totals.cache_hits, ledger.totals.cache_hit_bytes) == (2, 250)


async def test_guesses_past_the_end_and_suffixes_are_answered_from_the_end_that_is_held(setting: Setting) -> None:
    store = setting.reader()
    await store.get(request(2_000, 9_000, may_be_short=True))
    assert (await store.get(request(2_010, 5_000, may_be_short=True))).data == CONTENT[2_010:]
    suffix = RangeRequest(path=PATH, byte_range=SuffixRange(20), reason="test")
    assert (await store.get(suffix)).start == len(CONTENT) - 20
    assert len(setting.sent) == 1


async def test_another_reader_asks_once_whether_the_version_is_still_the_newest(setting: Setting) -> None:
    await setting.reader().get(request(0, 1_000))
    again = setting.reader()
    answers = await asyncio.gather(*(again.get(request(start, start + 100)) for start in range(0, 1_000, 100)))
    assert b"".join(answer.data for answer in answers) == CONTENT[:1_000]
    assert setting.sent == [("[0, 1000)", 1_000), ("[0, 100)", 0)]


async def test_a_reader_that_adopts_the_pins_of_another_asks_nothing(setting: Setting) -> None:
    first = setting.reader()
    await first.get(request(0, 1_000))
    second = setting.reader()
    second.versions.adopt(first.versions, {"table/2024-03-01"})
    third = setting.reader()
    third.versions.adopt(first.versions, {"table/2024-03-02"})
    assert (await second.get(request(10, 20))).data == CONTENT[10:20]
    assert len(setting.sent) == 1
    await third.get(request(10, 20))
    assert len(setting.sent) == 2


async def test_another_version_is_fetched_anew_and_the_old_one_forgotten(setting: Setting) -> None:
    await setting.reader().get(request(0, 1_000))
    setting.objects._write(PATH, CONTENT[::-1])
    again = setting.reader()
    assert (await again.get(request(0, 100))).data == CONTENT[::-1][:100]
    assert (await again.get(request(500, 600))).data == CONTENT[::-1][500:600]
    assert [received for _, received in setting.sent] == [1_000, 100, 100]


async def test_a_reader_of_a_version_never_gets_bytes_of_another(setting: Setting) -> None:
    first = setting.reader()
    await first.get(request(0, 100))
    setting.objects._write(PATH, CONTENT[::-1])
    await setting.reader().get(request(0, 1_000))
    with pytest.raises(ObjectChangedError):
        await first.get(request(0, 100))
    assert PATH in first.versions.changed
    second = setting.reader()
    second.versions.adopt(first.versions, {"table/2024-03-01"})
    assert (await second.get(request(0, 10))).data == CONTENT[::-1][:10]


async def test_answers_that_are_held_are_checked_like_any_others(setting: Setting) -> None:
    store = setting.reader()
    await store.get(request(0, 1_000))
    with pytest.raises(ObjectChangedError, match="2,048 bytes, but at least 5,000"):
        await store.get(request(0, 10, object_bytes=5_000))
    with pytest.raises(ObjectChangedError) as caught:
        await store.get(request(0, 10, expected_etag='"other"'))
    assert caught.value.kind == "StalePages"
    with pytest.raises(ObjectChangedError):
        await store.get(request(0, 10, if_match='"other"'))


async def test_what_may_not_be_kept_is_not_kept_but_what_is_held_is_used(setting: Setting) -> None:
    store = setting.reader()
    await store.get(request(0, 100, may_be_kept=False))
    assert setting.ranges.held_bytes == 0
    await store.get(request(0, 100))
    await store.get(request(50, 60, may_be_kept=False))
    assert len(setting.sent) == 2


async def test_versions_that_do_not_last_are_not_kept() -> None:
    setting = Setting(MemoryStore({PATH: CONTENT}))
    store = setting.reader()
    for _ in range(2):
        await store.get(request(0, 100))
    assert len(setting.sent) == 2
    assert setting.ranges.held_bytes == 0


async def test_writing_and_removing_forget_what_was_there(setting: Setting) -> None:
    store = setting.reader()
    await store.get(request(0, 100))
    await store.put(PATH, b"x" * 200, overwrite=True)
    assert (await store.get(request(0, 100))).data == b"x" * 100
    await store.delete([PATH])
    assert setting.ranges.held_bytes == 0


class Gate(StoreWrapper):
    """Answers when it is told to."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.open = asyncio.Event()
        self.failure: Exception | None = None

    async def get(self, request: RangeRequest) -> FetchedRange:
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return await super().get(request)


async def test_requests_for_the_same_range_share_one_answer() -> None:
    gate = Gate(QuotingStore({PATH: CONTENT}))
    setting = Setting(gate)
    store = setting.reader()
    tasks = [asyncio.create_task(store.get(request(0, 100, rank=rank))) for rank in range(5)]
    await asyncio.sleep(0)
    gate.open.set()
    answers = await asyncio.gather(*tasks)
    assert {answer.data for answer in answers} == {CONTENT[:100]}
    assert len(setting.sent) == 1


async def test_a_failure_is_shared_and_not_remembered() -> None:
    gate = Gate(QuotingStore({PATH: CONTENT}))
    gate.failure = StorageError("the store is away", kind="Timeout")
    setting = Setting(gate)
    store = setting.reader()
    tasks = [asyncio.create_task(store.get(request(0, 100))) for _ in range(3)]
    await asyncio.sleep(0)
    gate.open.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes == [gate.failure] * 3
    assert len(setting.sent) == 1
    gate.failure = None
    assert (await store.get(request(0, 100))).data == CONTENT[:100]


@pytest.mark.parametrize("cancelled", [{0}, {1}, {0, 1}, {0, 1, 2}])
async def test_a_caller_that_gives_up_takes_the_answer_from_no_other(cancelled: set[int]) -> None:
    gate = Gate(QuotingStore({PATH: CONTENT}))
    store = Setting(gate).reader()
    tasks = [asyncio.create_task(store.get(request(0, 100))) for _ in range(3)]
    await asyncio.sleep(0)
    for number in cancelled:
        tasks[number].cancel()
    await asyncio.sleep(0)
    gate.open.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for number, outcome in enumerate(outcomes):
        if number in cancelled:
            assert isinstance(outcome, asyncio.CancelledError)
        else:
            assert not isinstance(outcome, BaseException)
            assert outcome.data == CONTENT[:100]
    assert (await store.get(request(0, 100))).data == CONTENT[:100]


async def test_a_new_process_asks_only_whether_the_version_is_still_the_newest(tmp_path: Path) -> None:
    def files() -> DiskCache:
        return DiskCache(str(tmp_path), limit_bytes=10_000_000)

    disk = files()
    await Setting(disk=disk).reader().get(request(100, 300))
    disk.flush()
    setting = Setting(disk=files())
    store = setting.reader()
    assert (await store.get(request(150, 300))).data == CONTENT[150:300]
    assert (await store.get(request(100, 110))).data == CONTENT[100:110]
    assert setting.sent == [("[150, 300)", 0)]
    setting = Setting(disk=files())
    store = setting.reader()
    await store.info(PATH)
    assert (await store.get(request(100, 110))).data == CONTENT[100:110]
    assert [record.operation for record in setting.trace.records] == ["info"]


async def test_poisoned_ranges_are_fetched_anew_and_replaced(tmp_path: Path) -> None:
    disk = DiskCache(str(tmp_path), limit_bytes=10_000_000)
    await Setting(disk=disk).reader().get(request(0, 200))
    disk.flush()
    poison(tmp_path)
    setting = Setting(disk=disk)
    assert (await setting.reader().get(request(0, 200))).data == CONTENT[:200]
    assert setting.sent == [("[0, 200)", 200)]
    setting = Setting(disk=disk)
    await setting.reader().get(request(0, 200))
    assert setting.sent == [("[0, 200)", 0)]


async def test_how_much_one_scan_may_keep(tmp_path: Path) -> None:
    checked, memory = CheckedStore(MemoryStore()), MemoryCache(1_000)
    disk = DiskCache(str(tmp_path), limit_bytes=5_000)
    assert CachedStore(checked).largest_scan_bytes == 0
    assert CachedStore(checked, Cache("range", str, memory=memory)).largest_scan_bytes == 1_000
    assert CachedStore(checked, Cache("range", str, memory=memory, disk=disk)).largest_scan_bytes == 2_500
