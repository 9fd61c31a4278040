"""The cache on disk: private, found out when something changed it, never too large, and never in the way."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import random
import sqlite3
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from coldparquet.ranges import ByteRange
from coldparquet.storage import disk_cache
from coldparquet.storage.cache import Cache, CachedStore, MemoryCache, digest_of
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.disk_cache import DiskCache
from coldparquet.storage.disk_entries import write_missing
from coldparquet.storage.log import TraceStore
from coldparquet.storage.requests import FetchedRange, RangeRequest
from tests.support.small_tables import QuotingStore

CONTENT = bytes(range(256)) * 40
ROOMY_BYTES = 10_000_000


def key(name: str) -> tuple[str, ...]:
    return ("range", "s3 (eu-west-1)", f"bucket/table/{name}")


def write(cache: DiskCache, name: str, content: bytes = CONTENT) -> None:
    cache.keep(key(name), FetchedRange(data=content, start=0, etag='"1"', object_size_bytes=len(content)))
    cache.flush()


def read(cache: DiskCache, name: str, length: int = len(CONTENT)) -> bytes | None:
    found = cache.find(key(name), ByteRange(0, length), '"1"')
    return None if found is None else found.data


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


@pytest.fixture
def cache(directory: str) -> DiskCache:
    return DiskCache(directory, limit_bytes=ROOMY_BYTES)


def file_in(directory: str) -> Path:
    return Path(directory) / "coldparquet-cache-2" / "cache.sqlite"


def execute(directory: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file_in(directory), isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


def test_files_are_for_their_owner_alone_and_tell_no_names(cache: DiskCache, directory: str) -> None:
    old_mask = os.umask(0)
    try:
        write(cache, "a")
    finally:
        os.umask(old_mask)
    paths = list(Path(directory).rglob("*"))
    assert len(paths) > 2, "the write-ahead log, too"
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
    contents = b"".join(path.read_bytes() for path in paths if path.is_file())
    assert not any(word in contents for word in (b"bucket", b"eu-west"))
    cache.close()
    assert [path.name for path in Path(directory).rglob("*") if path.is_file()] == ["cache.sqlite"]
    assert read(cache, "a") == CONTENT


def test_a_directory_of_the_person_keeps_its_permissions(directory: str) -> None:
    Path(directory).mkdir(mode=0o755)
    write(DiskCache(directory, limit_bytes=ROOMY_BYTES), "a")
    assert stat.S_IMODE(Path(directory).stat().st_mode) == 0o755
    assert [stat.S_IMODE(path.stat().st_mode) for path in Path(directory).iterdir()] == [0o700]


@pytest.mark.parametrize("is_private", [True, False])
def test_the_files_of_the_former_format_are_removed_if_they_are_ours(directory: str, *, is_private: bool) -> None:
    former = Path(directory) / "coldparquet-cache-1"
    (former / "0123").mkdir(parents=True)
    (former / "0123" / "sidecar").write_bytes(CONTENT)
    former.chmod(0o700 if is_private else 0o755)
    write(DiskCache(directory, limit_bytes=ROOMY_BYTES), "a")
    assert former.exists() != is_private


def _open_to_others(own: Path) -> None:
    own.chmod(0o750)


def _replace_by_link(own: Path) -> None:
    own.rename(own.parent.with_name("elsewhere"))
    own.symlink_to(own.parent.with_name("elsewhere"))


def _link_the_file(own: Path) -> None:
    (own / "cache.sqlite").rename(own.parent.with_name("elsewhere"))
    (own / "cache.sqlite").symlink_to(own.parent.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [(_open_to_others, "open to others"), (_replace_by_link, "open to others"), (_link_the_file, "ELOOP")],
)
def test_what_is_not_ours_alone_is_not_used(
    cache: DiskCache, directory: str, change: Callable[[Path], None], problem: str
) -> None:
    write(cache, "a")
    cache.close()
    change(file_in(directory).parent)
    careful = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    write(careful, "b")
    assert read(careful, "a") is None
    assert problem in str(careful.problem)


@pytest.mark.parametrize(
    "change",
    [
        "digest = zeroblob(32)",
        "content = substr(content, 1, length(content) - 1)",
        "content = content || x'00'",
        "content = zeroblob(length(content))",
        "content = ''",
        "content = 'text'",
        "content = 5",
        "used_s = 'text'",
        "stop = stop + 1",
        "start = start + 1",
        "key = x'00'",
    ],
)
@pytest.mark.parametrize("kind", ["range", "version"])
def test_an_entry_that_was_changed_is_not_used_and_is_replaced(
    cache: DiskCache, directory: str, change: str, kind: str
) -> None:
    write(cache, "a")
    execute(directory, f"UPDATE entries SET {change} WHERE kind = ?", kind)  # noqa: S608 - constants
    is_harmless = change.startswith(("used_s", "stop")) or (kind == "version" and change.startswith("start"))
    assert read(cache, "a") == (CONTENT if is_harmless else None)
    write(cache, "a")
    assert read(cache, "a") == CONTENT


def test_an_entry_in_the_place_of_another_is_not_used(cache: DiskCache, directory: str) -> None:
    write(cache, "a")
    write(cache, "b", CONTENT[::-1])
    mine, other = (digest_of(*key(name)) for name in "ab")
    execute(directory, "DELETE FROM entries WHERE key = ? AND kind = 'range'", mine)
    execute(directory, "UPDATE entries SET key = ? WHERE key = ? AND kind = 'range'", mine, other)
    assert read(cache, "a") is None


PAGE_BYTES = 16 * 1024
NOISE = random.Random(9).randbytes(PAGE_BYTES)


def _change_bytes(content: bytes) -> bytes:
    changed = bytearray(content)
    for place in random.Random(10).sample(range(len(content)), 300):
        changed[place] ^= 0xFF
    return bytes(changed)


def _change_every_page(content: bytes) -> bytes:
    pages = (content[start : start + PAGE_BYTES] for start in range(0, len(content), PAGE_BYTES))
    return b"".join(page[:100] + NOISE[:100] + page[200:] for page in pages)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "text": lambda _: b"not a database\n" * 2_000,
    "torn": lambda content: content[: len(content) // 2],
    "first page": lambda content: NOISE + content[PAGE_BYTES:],
    "last page": lambda content: content[:-PAGE_BYTES] + NOISE,
    "every page": _change_every_page,
    "bytes": _change_bytes,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_made_anew(
    directory: str, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    before = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    for number in range(20):
        write(before, str(number))
    before.close()
    path = file_in(directory)
    path.write_bytes(damage(path.read_bytes()))
    cache = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    for number in range(20):
        assert read(cache, str(number)) in (None, CONTENT)
    for number in range(20):
        write(cache, str(number))
        assert read(cache, str(number)) in (None, CONTENT)
        write(cache, str(number))
        assert read(cache, str(number)) == CONTENT
    assert cache.problem is None
    assert caplog.records == []


def test_what_was_used_longest_ago_goes_first(directory: str) -> None:
    cache = DiskCache(directory, limit_bytes=600_000)
    content = CONTENT * 4
    for number in range(10):
        write(cache, str(number), content)
    execute(directory, "UPDATE entries SET used_s = 1000 + id")
    assert read(cache, "0", len(content)) == content
    for number in range(10, 18):
        write(cache, str(number), content)
    kept = [number for number in range(18) if read(cache, str(number), len(content)) is not None]
    assert {0, 16, 17} <= set(kept)
    assert not {1, 2, 3, 4} & set(kept)
    [[versions]] = execute(directory, "SELECT count(*) FROM entries WHERE kind = 'version'")
    assert versions == len(kept)


def test_no_more_is_kept_than_the_limit_whatever_other_processes_write(directory: str) -> None:
    limit_bytes = 1_000_000
    caches = [DiskCache(directory, limit_bytes=limit_bytes) for _ in range(3)]
    for number in range(200):
        write(caches[number % 3], str(number))
        assert sum(path.stat().st_size for path in Path(directory).rglob("cache.sqlite")) <= limit_bytes
        held_bytes = sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())
        assert held_bytes <= limit_bytes * 1.3, "the log of SQLite comes on top"
    assert read(caches[0], "199") == CONTENT
    write(caches[0], "too long", bytes(limit_bytes // 2 + 1))
    assert read(caches[0], "too long", 1) is None
    assert read(caches[0], "199") == CONTENT


def test_long_ranges_are_cut_into_entries_that_are_read_one_by_one(directory: str) -> None:
    cache = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    content = random.Random(8).randbytes(2_500_000)
    write(cache, "a", content)
    assert read(cache, "a", len(content)) == content
    assert max(row[0] for row in execute(directory, "SELECT length(content) FROM entries")) <= 1 << 20
    found = cache.find(key("a"), ByteRange(1_048_000, 1_049_000), '"1"')
    assert found is not None
    assert found.data == content[1_048_000:1_049_000]


def _work(directory: str, number: int) -> None:
    cache = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    for round_ in range(20):
        name = str((number + round_) % 5)
        write(cache, name, name.encode() * 5_000)
        found = read(cache, name, 5_000)
        if found != name.encode() * 5_000:
            raise AssertionError(name)
    cache.close()


def test_threads_and_processes_at_once_lose_nothing(directory: str) -> None:
    shared = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    wrong = list[object]()

    def work(number: int) -> None:
        for round_ in range(20):
            name = str((number + round_) % 5)
            write(shared, name, name.encode() * 5_000)
            if read(shared, name, 5_000) != name.encode() * 5_000:
                wrong.append(name)

    processes = [
        multiprocessing.get_context("spawn").Process(target=_work, args=(directory, number)) for number in range(2)
    ]
    for process in processes:
        process.start()
    with ThreadPoolExecutor() as threads:
        list(threads.map(work, range(4)))
    for process in processes:
        process.join()
    assert wrong == []
    assert [process.exitcode for process in processes] == [0, 0]
    assert shared.problem is None
    assert execute(directory, "PRAGMA integrity_check") == [("ok",)]
    [[entries]] = execute(directory, "SELECT count(*) FROM entries")
    assert entries == 10


def test_a_file_that_another_process_writes_for_long_is_not_waited_for(
    cache: DiskCache, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cache, "a")
    cache.close()
    monkeypatch.setattr("coldparquet.storage.disk_cache._LONGEST_WAIT_S", 0.01)
    with closing(sqlite3.connect(file_in(directory), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert read(cache, "a") == CONTENT
        write(cache, "b")
        other.execute("ROLLBACK")
    assert read(cache, "b") is None
    write(cache, "b")
    assert read(cache, "b") == CONTENT
    assert cache.problem is None


class Setting:
    """A store above a cache on disk, whose writes wait until they may go on."""

    def __init__(self, cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache, self.may_write, self.is_writing = cache, threading.Event(), threading.Event()
        self.trace = TraceStore(QuotingStore({"t/x": CONTENT}))
        memory = MemoryCache(0)
        self.store = CachedStore(CheckedStore(self.trace), Cache("range", str, memory=memory, disk=cache))
        write_now = write_missing

        def write_slowly(*arguments: Any) -> None:
            self.is_writing.set()
            assert self.may_write.wait(60)
            write_now(*arguments)

        monkeypatch.setattr(disk_cache, "write_missing", write_slowly)

    async def get(self, start: int) -> bytes:
        asked = RangeRequest(path="t/x", byte_range=ByteRange(start, start + 100), reason="test")
        return (await self.store.get(asked)).data


async def test_no_answer_waits_for_a_slow_disk_and_nothing_is_lost_on_close(
    cache: DiskCache, directory: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting(cache, monkeypatch)
    for start in range(0, 2_000, 100):
        assert await setting.get(start) == CONTENT[start : start + 100]
        assert await asyncio.to_thread(setting.is_writing.wait, 60)
    assert len(setting.trace.records) == 20
    assert [await setting.get(start) for start in (1_900, 0)] == [CONTENT[1_900:2_000], CONTENT[:100]]
    assert len(setting.trace.records) == 20, "what waits to be written is found"
    assert execute(directory, "SELECT count(*) FROM entries") == [(0,)]
    closing_cache = asyncio.create_task(asyncio.to_thread(cache.close))
    setting.may_write.set()
    await closing_cache
    assert execute(directory, "SELECT count(*), sum(stop - start) FROM entries WHERE kind = 'range'") == [(20, 2_000)]
    assert "coldparquet-cache" not in {thread.name for thread in threading.enumerate()}
    assert caplog.records == []


@pytest.mark.parametrize("limit", ["_MOST_QUEUED", "_MOST_QUEUED_BYTES"])
async def test_what_a_slow_disk_cannot_take_is_dropped_and_told(
    cache: DiskCache, directory: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: str
) -> None:
    monkeypatch.setattr(disk_cache, limit, {"_MOST_QUEUED": 5, "_MOST_QUEUED_BYTES": 500}[limit])
    setting = Setting(cache, monkeypatch)
    for start in range(0, 2_000, 100):
        assert await setting.get(start) == CONTENT[start : start + 100]
    setting.may_write.set()
    await asyncio.to_thread(cache.close)
    [[kept]] = execute(directory, "SELECT count(*) FROM entries WHERE kind = 'range'")
    assert kept == 5
    [record] = caplog.records
    assert record.getMessage().startswith(f"15 writes to the cache directory {directory!r} were given up")


async def test_a_file_that_stays_locked_holds_up_neither_answers_nor_the_end_for_long(
    cache: DiskCache, directory: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(cache, "a")
    monkeypatch.setattr("coldparquet.storage.disk_cache._LONGEST_WAIT_S", 0.3)
    cache.close()
    setting = Setting(cache, monkeypatch)
    setting.may_write.set()
    with closing(sqlite3.connect(file_in(directory), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for start in range(0, 2_000, 100):
            assert await setting.get(start) == CONTENT[start : start + 100]
        assert cache.queue.of(("range", "", "t/x")), "all answers were there before the first write was given up"
        await asyncio.to_thread(cache.close)
        other.execute("ROLLBACK")
    [record] = caplog.records
    assert record.getMessage().startswith(f"20 writes to the cache directory {directory!r} were given up")
    assert read(cache, "a") == CONTENT
    assert await setting.get(0) == CONTENT[:100]
    await asyncio.to_thread(cache.close)
    assert execute(directory, "SELECT count(*) FROM entries WHERE kind = 'range'") == [(2,)]


def _keep_and_end(directory: str) -> None:
    cache = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    for number in range(50):
        cache.keep(key(str(number)), FetchedRange(data=CONTENT, start=0, etag='"1"', object_size_bytes=len(CONTENT)))


def test_a_process_that_ends_without_closing_writes_what_it_kept(cache: DiskCache, directory: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_keep_and_end, args=(directory,))
    process.start()
    process.join(60)
    assert [read(cache, str(number)) for number in range(50)] == [CONTENT] * 50


def test_a_disk_that_is_full_fails_nothing(directory: str, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    write(cache, "a")
    assert cache._writing.connection is not None
    cache._writing.connection.execute("PRAGMA max_page_count = 1")
    for number in range(3):
        write(cache, str(number), CONTENT * 10)
    reason = "it cannot be written (SQLITE_FULL)"
    assert cache.problem == f"nothing is kept in the cache directory {directory!r}: {reason}"
    assert [record.getMessage() for record in caplog.records] == [cache.problem]
    assert read(cache, "a") == CONTENT


@pytest.mark.parametrize("place", ["~no-user-of-this-name/cache", "a\0b", "{file}/cache", "{file}"])
def test_a_path_that_leads_nowhere_fails_nothing_and_is_warned_of_once(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    place = place.format(file=tmp_path / "file")
    for _ in range(2):
        cache = DiskCache(place, limit_bytes=ROOMY_BYTES)
        write(cache, "a")
        assert read(cache, "a") is None
        assert cache.problem is not None
    records = [(record.name, record.levelno, record.getMessage()) for record in caplog.records]
    assert records == [("coldparquet", logging.WARNING, cache.problem)]


def test_a_child_may_be_forked_while_the_file_is_open(cache: DiskCache, directory: str) -> None:
    write(cache, "before")
    for number in range(20):  # the parent writes them
        cache.keep(
            key(f"queued {number}"), FetchedRange(data=CONTENT, start=0, etag='"1"', object_size_bytes=len(CONTENT))
        )

    def child() -> None:
        assert cache.queue.of(key("queued 19")) == []
        for number in range(50):
            write(cache, f"child {number}")

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    for number in range(50):
        write(cache, f"parent {number}")
        cache.close()
    process.join(30)
    assert process.exitcode == 0
    assert execute(directory, "PRAGMA integrity_check") == [("ok",)]
    names = ["before", *(f"{who} {number}" for who in ("parent", "child") for number in range(50))]
    names += [f"queued {number}" for number in range(20)]
    assert sum(read(cache, name) == CONTENT for name in names) == len(names)
