from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldparquet.concurrency import run_to_end
from coldparquet.errors import AccessError, InvalidInputError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage import local
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.requests import RangeRequest
from coldparquet_testing.store_contract import CONTENT, StoreContract, request_for

FIRST_BYTES = ByteRange(0, 4)


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self) -> LocalStore:
        return LocalStore()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path / "table")


async def read(path: Path, byte_range: ByteRange | SuffixRange = FIRST_BYTES, if_match: str | None = None) -> bytes:
    return (await LocalStore().get(request_for(str(path), byte_range, if_match=if_match))).data


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("kind", ["directory", "pipe", "socket", "device"])
async def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd"
    listener = socket.socket(socket.AF_UNIX)
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "socket":
            listener.bind(str(path))
        case "device":
            path.symlink_to("/dev/zero")
    async with asyncio.timeout(60):
        with pytest.raises((NotFoundError, StorageError)) as caught:
            await read(path)
    listener.close()
    assert caught.value.path == str(path)
    assert caught.value.kind == {"directory": "IsADirectory", "socket": "StorageFailed"}.get(kind, "NotARegularFile")


async def test_error_tells_the_missing_directory_from_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no such file$"):
        await read(tmp_path / "absent")
    with pytest.raises(NotFoundError, match="not even its directory"):
        await read(tmp_path / "absent" / "_pm")


async def test_file_in_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    with pytest.raises(NotFoundError) as caught:
        await read(tmp_path / "file" / "_pm")
    assert caught.value.kind == "NotADirectory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_permission_is_an_access_error(tmp_path: Path) -> None:
    path = tmp_path / "locked"
    path.write_bytes(CONTENT)
    path.chmod(0)
    with pytest.raises(AccessError):
        await read(path)


async def test_permission_error_of_the_system_is_an_access_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("coldparquet.storage.local.os.open", refuse)
    with pytest.raises(AccessError, match="Permission denied"):
        await read(tmp_path / "locked")


async def test_disk_failure_is_a_storage_error_with_the_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "data"
    path.write_bytes(CONTENT)
    monkeypatch.setattr("coldparquet.storage.local.os.pread", fail)
    with pytest.raises(StorageError, match="Input/output error") as caught:
        await read(path)
    assert caught.value.details["byte_range"] == FIRST_BYTES


async def test_short_reads_of_the_system_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    monkeypatch.setattr(
        "coldparquet.storage.local.os.pread", lambda file, length, offset: pread(file, min(length, 100), offset)
    )
    (tmp_path / "data").write_bytes(CONTENT)
    assert await read(tmp_path / "data", ByteRange(5, 1000)) == CONTENT[5:1000]


async def test_write_during_the_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    path.write_bytes(CONTENT)
    pread = os.pread

    def write_then_read(file: int, length: int, offset: int) -> bytes:
        path.write_bytes(CONTENT[::-1] * 2)
        return pread(file, length, offset)

    monkeypatch.setattr("coldparquet.storage.local.os.pread", write_then_read)
    with pytest.raises(ObjectChangedError, match="written to while"):
        await read(path)


async def test_huge_range_of_a_small_file_allocates_little(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(CONTENT)
    assert await read(tmp_path / "data", ByteRange(0, 1 << 62)) == CONTENT


async def test_nul_in_the_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        await read(tmp_path / "a\0b")


async def test_list_follows_links_and_leaves_out_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(CONTENT)
    table = tmp_path / "table"
    table.mkdir()
    (table / "linked_directory").symlink_to(tmp_path / "real")
    (table / "linked_file").symlink_to(tmp_path / "real" / "file")
    (table / "dangling").symlink_to(tmp_path / "absent")
    (table / "loop").symlink_to(table / "loop")
    (table / ".hidden").write_bytes(b"")
    os.mkfifo(table / "pipe")
    listing = await LocalStore().list(str(table))
    assert listing.directories == (f"{table}/linked_directory",)
    assert [(info.path, info.size_bytes) for info in listing.objects] == [
        (f"{table}/.hidden", 0),
        (f"{table}/linked_file", len(CONTENT)),
    ]


async def test_empty_directory_is_an_empty_listing(tmp_path: Path) -> None:
    listing = await LocalStore().list(str(tmp_path))
    assert (listing.directories, listing.objects) == ((), ())


async def test_replaced_file_has_another_version_even_with_equal_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"aaaa")
    first = await LocalStore().get(request_for(str(path), FIRST_BYTES))
    status = path.stat()
    (tmp_path / "new").write_bytes(b"bbbb")
    (tmp_path / "new").replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ObjectChangedError):
        await read(path, if_match=first.etag)


async def test_put_honours_the_umask(tmp_path: Path) -> None:
    await LocalStore().put(str(tmp_path / "data"), CONTENT, overwrite=False)
    (tmp_path / "plain").write_bytes(b"")
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


async def test_put_onto_a_directory(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    for overwrite in (True, False):
        with pytest.raises(InvalidInputError):
            await LocalStore().put(str(tmp_path / "taken"), CONTENT, overwrite=overwrite)
    assert names(tmp_path) == ["taken"]


@pytest.mark.parametrize("step", ["fsync", "link", "replace"])
async def test_failed_put_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"coldparquet.storage.local.os.{step}", fail)
    with pytest.raises(StorageError, match="No space left"):
        await LocalStore().put(str(tmp_path / "data"), CONTENT, overwrite=step == "replace")
    assert names(tmp_path) == []


@pytest.mark.parametrize("taken", [False, True])
async def test_put_on_file_systems_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, taken: bool
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("coldparquet.storage.local.os.link", refuse)
    path = tmp_path / "data"
    if taken:
        path.write_bytes(b"old")
        with pytest.raises(InvalidInputError):
            await LocalStore().put(str(path), CONTENT, overwrite=False)
        assert path.read_bytes() == b"old"
    else:
        await LocalStore().put(str(path), CONTENT, overwrite=False)
        assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["data"]


async def test_put_cancelled_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, go_on = threading.Event(), threading.Event()
    fsync: Callable[[int], None] = os.fsync

    def slow_fsync(file: int) -> None:
        writing.set()
        go_on.wait(10)
        fsync(file)

    monkeypatch.setattr("coldparquet.storage.local.os.fsync", slow_fsync)
    writer = asyncio.create_task(LocalStore().put(str(tmp_path / "data"), CONTENT, overwrite=True))
    await asyncio.to_thread(writing.wait, 10)
    assert len(names(tmp_path)) == 1
    writer.cancel()
    await asyncio.sleep(0)
    assert not writer.done()  # it waits for its thread to clean up
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writer
    assert names(tmp_path) == []


def growing(path: Path, byte_range: ByteRange, if_match: str | None = None) -> RangeRequest:
    return replace(request_for(str(path), byte_range, if_match=if_match), may_grow=True)


async def test_a_file_that_may_grow_is_the_same_version_while_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.parquet"
    path.write_bytes(CONTENT)
    first = await LocalStore().get(growing(path, FIRST_BYTES))
    with path.open("ab") as file:
        file.write(b"more")
    again = await LocalStore().get(growing(path, ByteRange(1000, 1024), if_match=first.etag))
    assert (again.data, again.etag, again.object_size_bytes) == (CONTENT[1000:], first.etag, len(CONTENT) + 4)
    pread = os.pread

    def append_then_read(file: int, length: int, offset: int) -> bytes:
        with path.open("ab") as appended:
            appended.write(b"x")
        return pread(file, length, offset)

    monkeypatch.setattr("coldparquet.storage.local.os.pread", append_then_read)
    assert (await LocalStore().get(growing(path, FIRST_BYTES))).data == CONTENT[:4]
    monkeypatch.undo()
    (tmp_path / "other").write_bytes(CONTENT)
    (tmp_path / "other").replace(path)
    with pytest.raises(ObjectChangedError):
        await LocalStore().get(growing(path, FIRST_BYTES, if_match=first.etag))


async def test_checked_store_pins_growing_files_by_their_identity(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    path.write_bytes(CONTENT)
    store = CheckedStore(LocalStore())
    await store.get(growing(path, FIRST_BYTES))
    await store.get(request_for(str(path), FIRST_BYTES))
    with path.open("ab") as file:
        file.write(b"more")
    assert (await store.get(growing(path, ByteRange(4, 8)))).data == CONTENT[4:8]
    with pytest.raises(ObjectChangedError):  # who did not say that it may grow wants none of this
        await store.get(request_for(str(path), ByteRange(4, 8)))
    store.versions.forget(str(path))
    await store.get(request_for(str(path), ByteRange(4, 8)))


async def test_a_file_with_a_version_header_is_another_one_only_when_that_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "_txn"
    path.write_bytes(CONTENT)
    request = replace(request_for(str(path), ByteRange(0, 1024)), version_header_bytes=64)
    first = await LocalStore().get(request)
    status = path.stat()

    def overwrite(offset: int) -> None:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(b"new!")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # memory maps change no times

    overwrite(100)
    assert (await LocalStore().get(replace(request, if_match=first.etag))).data[100:104] == b"new!"
    overwrite(8)
    with pytest.raises(ObjectChangedError):
        await LocalStore().get(replace(request, if_match=first.etag))
    pread = os.pread

    def commit_then_read(file: int, length: int, offset: int) -> bytes:
        data = pread(file, length, offset)
        if length == 1024:
            overwrite(0)
        return data

    monkeypatch.setattr("coldparquet.storage.local.os.pread", commit_then_read)
    with pytest.raises(ObjectChangedError, match="written to while"):
        await LocalStore().get(request)


async def test_new_directories_are_flushed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: set[int] = set()
    fsync = os.fsync

    def note_and_flush(file: int) -> None:
        flushed.add(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr("coldparquet.storage.local.os.fsync", note_and_flush)
    await LocalStore().put(str(tmp_path / "a" / "b" / "data"), CONTENT, overwrite=False)
    written = (tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "data")
    assert flushed == {path.stat().st_ino for path in written}


async def test_delete_removes_directories_that_are_empty_then(tmp_path: Path) -> None:
    for name in ("a/x", "a/y", "b/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    await LocalStore().delete([str(tmp_path / "a" / "x"), str(tmp_path / "b" / "x")])
    assert (names(tmp_path), names(tmp_path / "a")) == (["a"], ["y"])


async def test_delete_does_not_follow_a_linked_directory_out_of_the_table(tmp_path: Path) -> None:
    table, elsewhere = tmp_path / "table", tmp_path / "elsewhere"
    table.mkdir()
    elsewhere.mkdir()
    (elsewhere / "file").write_bytes(b"x")
    (table / "linked").symlink_to(elsewhere)
    (table / "link").symlink_to(elsewhere / "file")
    store = LocalStore(within=str(table))
    with pytest.raises(AccessError) as caught:
        await store.delete([f"{table}/linked/file"])
    assert caught.value.kind == "LinkLeadsOutside"
    await store.delete([f"{table}/link"])
    assert (elsewhere / "file").exists()
    assert not (table / "link").is_symlink()


async def test_a_directory_that_goes_while_it_is_empty_is_made_again(tmp_path: Path) -> None:
    store, path = LocalStore(), f"{tmp_path}/2024-03-01/data.parquet"
    started = await store.start_upload(path)
    (tmp_path / "2024-03-01").rmdir()  # as by a purge
    part = await store.upload_part(started, 1, start=0, data=b"x")
    await store.finish_upload(started, [part], overwrite=False)
    assert (tmp_path / "2024-03-01" / "data.parquet").read_bytes() == b"x"


async def test_conditional_puts_of_several_processes_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "_txn"
    etag = await LocalStore().put(str(path), b"first", overwrite=False)
    script = (
        "import asyncio, sys\n"
        "from coldparquet.errors import ObjectChangedError\n"
        "from coldparquet.storage.local import LocalStore\n"
        "try:\n"
        "    asyncio.run(LocalStore().put(sys.argv[1], sys.argv[3].encode(), overwrite=True, if_match=sys.argv[2]))\n"
        "except ObjectChangedError:\n"
        "    sys.exit(3)\n"
    )
    racers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(path), str(etag), f"racer {number}")
        for number in range(2)
    ]
    codes = [await racer.wait() for racer in racers]
    assert sorted(codes) == [0, 3]
    assert path.read_bytes() == f"racer {codes.index(0)}".encode()


OLD, ADDED = b"old size" * 4, b"appended"
NOW = b"new size" + OLD[8:] + ADDED


@pytest.fixture
def growing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gets longer after its size was looked at and before its bytes are read; only once."""
    path = tmp_path / "_pm"
    path.write_bytes(OLD)
    read_fully = local._read_fully

    def append_and_read(descriptor: int, asked: ByteRange) -> bytes:
        with path.open("r+b") as file:
            if len(path.read_bytes()) == len(OLD):
                file.seek(0, 2)
                file.write(ADDED)
                file.seek(0)
                file.write(b"new size")  # last, as the committed size of a sidecar
        return read_fully(descriptor, asked)

    monkeypatch.setattr(local, "_read_fully", append_and_read)
    return path


def growing_request(path: Path, wanted: ByteRange | SuffixRange) -> RangeRequest:
    return replace(request_for(str(path), wanted, may_be_short=True), may_grow=True)


async def test_the_bytes_that_the_header_tells_of_are_there(growing_file: Path) -> None:
    answer = await CheckedStore(LocalStore()).get(growing_request(growing_file, ByteRange(0, 1000)))
    assert answer.data == NOW
    assert answer.object_size_bytes == len(OLD + ADDED)


@pytest.mark.parametrize(
    "wanted", [ByteRange(0, 8), ByteRange(4, len(OLD)), ByteRange(4, len(OLD) + 3), SuffixRange(8)]
)
async def test_no_other_bytes_than_those_asked_for(growing_file: Path, wanted: ByteRange | SuffixRange) -> None:
    answer = await LocalStore().get(growing_request(growing_file, wanted))
    if isinstance(wanted, SuffixRange):
        assert answer.start == len(OLD) - 8
        assert answer.data == OLD[-8:]
    else:
        assert answer.data == NOW[wanted.start : wanted.stop]


# --- Blocking work that is cancelled: it ends, and is not heard of again ----------------------------------------------


async def test_what_cancelled_work_raises_is_not_complained_about() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    has_begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(give_up: threading.Event) -> None:
        loop.call_soon_threadsafe(has_begun.set)
        give_up.wait()
        raise OSError("while giving up")

    task = asyncio.create_task(run_to_end(work))
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []
