"""Entries on disk: private, whole or not there, found out when somebody changed them, and never too many."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from coldparquet.storage.disk_cache import DiskCache, group_of

GROUP = group_of("s3 (eu-west-1)", "bucket/table/2024-03-01/_pm")
CONTENT = bytes(range(256)) * 40
ROOMY_BYTES = 10_000_000


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


@pytest.fixture
def cache(directory: str) -> DiskCache:
    return DiskCache(directory, limit_bytes=ROOMY_BYTES)


def entries(directory: str) -> list[Path]:
    return sorted(path for path in Path(directory).rglob("*") if path.is_file())


def test_another_process_reads_what_was_written(cache: DiskCache, directory: str) -> None:
    cache.write(GROUP, "a", CONTENT)
    cache.write(GROUP, "b", b"")
    other = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    assert other.read(GROUP, "a") == CONTENT
    assert other.read(GROUP, "b") == b""
    assert sorted(other.names(GROUP)) == ["a", "b"]
    assert other.read(GROUP, "c") is None
    assert other.read(group_of("other"), "a") is None
    other.remove(GROUP, "a")
    assert cache.read(GROUP, "a") is None
    assert cache.problem is None


def test_files_are_for_their_owner_alone_and_tell_nothing_by_their_names(cache: DiskCache, directory: str) -> None:
    old_mask = os.umask(0)
    try:
        cache.write(GROUP, "a", CONTENT)
    finally:
        os.umask(old_mask)
    paths = list(Path(directory).rglob("*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
    assert not any(word in str(path) for path in paths for word in ("bucket", "table", "eu-west"))


def test_a_directory_of_the_person_keeps_its_permissions(directory: str) -> None:
    Path(directory).mkdir(mode=0o755)
    DiskCache(directory, limit_bytes=ROOMY_BYTES).write(GROUP, "a", CONTENT)
    assert stat.S_IMODE(Path(directory).stat().st_mode) == 0o755
    assert [stat.S_IMODE(path.stat().st_mode) for path in Path(directory).iterdir()] == [0o700]


@pytest.mark.parametrize("mode", [0o750, 0o777])
def test_a_directory_that_is_open_to_others_is_not_used(cache: DiskCache, directory: str, mode: int) -> None:
    cache.write(GROUP, "a", CONTENT)
    (own,) = Path(directory).iterdir()
    own.chmod(mode)
    careful = DiskCache(directory, limit_bytes=ROOMY_BYTES)
    careful.write(GROUP, "b", CONTENT)
    assert careful.read(GROUP, "a") is None
    assert careful.names(GROUP) == []
    assert careful.problem is not None
    assert "open to others" in careful.problem
    assert len(entries(directory)) == 1


def test_a_link_in_place_of_the_directory_is_not_followed(directory: str, tmp_path: Path) -> None:
    DiskCache(directory, limit_bytes=ROOMY_BYTES).write(GROUP, "a", CONTENT)
    (own,) = Path(directory).iterdir()
    own.rename(tmp_path / "elsewhere")
    own.symlink_to(tmp_path / "elsewhere")
    assert DiskCache(directory, limit_bytes=ROOMY_BYTES).read(GROUP, "a") is None


@pytest.mark.parametrize("place", [0, 10, 30, 60, len(CONTENT)])
def test_a_changed_byte_is_found_and_the_entry_removed(cache: DiskCache, directory: str, place: int) -> None:
    cache.write(GROUP, "a", CONTENT)
    (path,) = entries(directory)
    changed = bytearray(path.read_bytes())
    changed[place] ^= 1
    path.write_bytes(changed)
    assert cache.read(GROUP, "a") is None
    assert entries(directory) == []


@pytest.mark.parametrize("length_bytes", [0, 1, 40, 58, 1_000])
def test_a_torn_entry_is_found_and_removed(cache: DiskCache, directory: str, length_bytes: int) -> None:
    cache.write(GROUP, "a", CONTENT)
    (path,) = entries(directory)
    path.write_bytes(path.read_bytes()[:length_bytes])
    assert cache.read(GROUP, "a") is None
    assert entries(directory) == []


def test_an_entry_under_the_name_of_another_is_found_and_removed(cache: DiskCache, directory: str) -> None:
    cache.write(GROUP, "a", CONTENT)
    (path,) = entries(directory)
    path.rename(path.with_name("b"))
    assert cache.read(GROUP, "b") is None
    cache.write(GROUP, "a", CONTENT)
    other = group_of("other")
    path.parent.with_name(other).mkdir()
    path.rename(path.parent.with_name(other) / "a")
    assert cache.read(other, "a") is None
    assert entries(directory) == []


def test_links_and_pipes_in_place_of_entries_are_not_read(cache: DiskCache, directory: str, tmp_path: Path) -> None:
    cache.write(GROUP, "a", CONTENT)
    (path,) = entries(directory)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.read(GROUP, "a") is None
    path.unlink()
    os.mkfifo(path)
    assert cache.read(GROUP, "a") is None


def test_what_was_used_longest_ago_goes_first(directory: str) -> None:
    cache = DiskCache(directory, limit_bytes=100_000)
    for number in range(8):
        cache.write(GROUP, str(number), CONTENT)
    for number in range(8):
        (path,) = (path for path in entries(directory) if path.name == str(number))
        os.utime(path, (1_000 + number, 1_000 + number))
    assert cache.read(GROUP, "0") == CONTENT
    for number in range(8, 12):
        cache.write(GROUP, str(number), CONTENT)
    names = {path.name for path in entries(directory)}
    assert {"0", "8", "9", "10", "11"} <= names
    assert "1" not in names


def test_no_more_is_kept_than_the_limit_whatever_other_processes_write(directory: str) -> None:
    limit_bytes = 200_000
    caches = [DiskCache(directory, limit_bytes=limit_bytes) for _ in range(3)]
    for number in range(120):
        caches[number % 3].write(group_of(str(number)), "a", CONTENT)
        held_bytes = sum(path.stat().st_size for path in entries(directory))
        assert held_bytes <= limit_bytes * (1 + 3 / 16)
    groups = [path for path in Path(directory).glob("*/*") if path.is_dir()]
    assert len(groups) <= len(entries(directory)) + 1


def test_an_entry_that_takes_too_much_of_the_directory_is_not_kept(directory: str) -> None:
    cache = DiskCache(directory, limit_bytes=3 * len(CONTENT))
    cache.write(GROUP, "a", CONTENT)
    assert entries(directory) == []


def test_threads_and_caches_at_once_lose_nothing_and_leave_nothing_behind(directory: str) -> None:
    caches = [DiskCache(directory, limit_bytes=ROOMY_BYTES) for _ in range(2)]
    wrong: list[str] = []

    def work(number: int) -> None:
        for round_ in range(20):
            name = str((number + round_) % 5)
            caches[number % 2].write(GROUP, name, name.encode() * 5_000)
            found = caches[(number + 1) % 2].read(GROUP, name)
            if found != name.encode() * 5_000:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert {path.name for path in entries(directory)} == {"0", "1", "2", "3", "4"}


def test_what_a_killed_writer_left_behind_is_removed(cache: DiskCache, directory: str) -> None:
    cache.write(GROUP, "a", CONTENT)
    left_behind = entries(directory)[0].with_name(".writing-0123456789abcdef")
    left_behind.write_bytes(b"half")
    os.utime(left_behind, (1_000, 1_000))
    assert cache.names(GROUP) == ["a"]
    DiskCache(directory, limit_bytes=ROOMY_BYTES).write(GROUP, "b", CONTENT)
    assert [path.name for path in entries(directory)] == ["a", "b"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
def test_a_disk_that_cannot_be_written_fails_nothing(
    cache: DiskCache, directory: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    cache.write(GROUP, "a", CONTENT)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "replace", refuse)
    cache.write(GROUP, "b", CONTENT)
    reason = f"it cannot be written ({errno.errorcode[code]})"
    assert cache.problem == f"nothing is kept in the cache directory {directory!r}: {reason}"
    assert cache.read(GROUP, "a") == CONTENT
    assert [path.name for path in entries(directory)] == ["a"]


@pytest.mark.parametrize("directory", ["~nobody-of-this-name/cache", "a\0b"])
def test_a_path_that_leads_nowhere_fails_nothing_and_is_warned_of_once(
    directory: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        cache = DiskCache(directory, limit_bytes=ROOMY_BYTES)
        cache.write(GROUP, "a", CONTENT)
        assert cache.read(GROUP, "a") is None
        assert cache.names(GROUP) == []
        assert cache.problem is not None
    assert [(record.name, record.getMessage()) for record in caplog.records] == [("coldparquet", cache.problem)]


def test_a_directory_that_cannot_be_made_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    cache = DiskCache(str(tmp_path / "file"), limit_bytes=ROOMY_BYTES)
    cache.write(GROUP, "a", CONTENT)
    assert cache.read(GROUP, "a") is None
    assert cache.problem is not None
    assert "cannot be made" in cache.problem
