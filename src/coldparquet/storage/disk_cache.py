"""A cache in files that outlive the process: private, checked, bounded, shared by all processes.

A cache is never needed: whatever goes wrong with it, nothing is raised, and the reader goes to the store instead; one
warning is logged. All calls block; call them in threads.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import secrets
import stat
import threading
import time
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from coldparquet.ranges import ByteRange
from coldparquet.storage.requests import FetchedRange, clipped, is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coldparquet.ranges import SuffixRange


_FORMAT = b"coldparquet cache entry 1\n"
_DIGEST_BYTES = 32
_HEADER_BYTES = len(_FORMAT) + _DIGEST_BYTES
"""An entry is this line, the digest of its place and content, and the content."""

_OWN_DIRECTORY = "coldparquet-cache-1"
_PRIVATE_DIRECTORY, _PRIVATE_FILE = 0o700, 0o600
_TEMPORARY = ".writing-"
_TEMPORARY_LIFE_S = 3600.0
"""No write takes this long: whoever began an older temporary file was killed."""

_LARGEST_SHARE = 4
"""An entry is at most a fourth of what the directory may hold."""

_COUNT_AGAIN_SHARE = 16
"""After writing a sixteenth of the limit, what other processes have written meanwhile is counted."""

_LEAVE_FREE_SHARE = 8
"""Whoever makes room makes an eighth of the limit, so that this is rare."""


_LOGGER = logging.getLogger("coldparquet")

_warned_of = set[str]()
"""Directories of which this process has said that they are of no use."""


class _File(NamedTuple):
    """One entry of the directory, as making room sees it."""

    used_ns: int
    path: Path
    size_bytes: int


class DiskCache:
    """Entries below one directory, each with a group and a name. Safe to use from many threads and processes.

    Files belong to their owner alone (0600, in a directory of our own with 0700), appear as a whole, and hold a digest of
    their content and of where they belong: torn, changed and exchanged ones are removed when they are met. The names of
    groups are digests, so that the directory does not even tell names of objects.

    Args:
        directory: Where to keep the entries; it is made when something is first kept.
        limit_bytes: Most that is kept. What was used longest ago goes first. Several processes that write at the same
            time may exceed it by a sixteenth each.
    """

    def __init__(self, directory: str, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.problem: str | None = None
        """Why nothing more is kept, for people; None while all is well."""
        self._directory = directory
        self._lock = threading.Lock()
        self._is_ready: bool | None = None
        self._held_bytes = 0
        self._uncounted_bytes: int | None = None
        """Written here since the directory was counted; None before it was."""
        try:
            self._root = Path(directory).expanduser().absolute() / _OWN_DIRECTORY
        except (OSError, RuntimeError):  # no such person, no home, or no working directory
            self._root, self._is_ready = Path(_OWN_DIRECTORY), False
            self._give_up("the path does not lead to a directory")

    def read(self, group: str, name: str) -> bytes | None:
        """Return an entry; None where there is none that is sound."""
        if not self._ready():
            return None
        path = self._root / group / name
        try:
            entry = self._read_file(path)
        except OSError:
            return None
        if entry is None:
            return None
        content = entry[_HEADER_BYTES:]
        if entry[:_HEADER_BYTES] == _header(group, name, content):
            return content
        with suppress(OSError):
            path.unlink()
        return None

    def names(self, group: str) -> list[str]:
        """Return the names of the entries of a group, in any order; they may vanish at any time."""
        if not self._ready():
            return []
        try:
            names = [entry.name for entry in (self._root / group).iterdir()]
        except OSError:
            return []
        return [name for name in names if not name.startswith(_TEMPORARY)]

    def write(self, group: str, name: str, content: bytes) -> None:
        """Keep an entry, in place of the one of the same name. Nothing is kept that cannot be."""
        size_bytes = _HEADER_BYTES + len(content)
        if self.problem is not None or size_bytes * _LARGEST_SHARE > self.limit_bytes or not self._ready():
            return
        try:
            self._make_room(size_bytes)
            self._write_file(self._root / group, name, (_header(group, name, content), content))
        except FileNotFoundError:
            return  # another process made room, and took the group's empty directory with it
        except OSError as error:
            self._give_up(f"it cannot be written ({errno.errorcode.get(error.errno or 0, 'OSError')})")

    def remove(self, group: str, name: str) -> None:
        """Drop an entry, if it is there."""
        if self._ready():
            with suppress(OSError):
                (self._root / group / name).unlink()

    def _ready(self) -> bool:
        """Make the directory, and look whether it is ours alone, once."""
        with self._lock:
            if self._is_ready is None:
                self._is_ready = self._prepare()
            return self._is_ready

    def _prepare(self) -> bool:
        try:
            self._root.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self._root.mkdir(mode=_PRIVATE_DIRECTORY)
            status = self._root.lstat()
        except OSError as error:
            self._give_up(f"it cannot be made ({errno.errorcode.get(error.errno or 0, 'OSError')})")
            return False
        except ValueError:
            self._give_up("no path holds a zero byte")
            return False
        is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077 and status.st_uid == os.geteuid()
        if not is_private:
            self._give_up(f"{_OWN_DIRECTORY} in it belongs to somebody else or is open to others; remove it")
        return is_private

    def _give_up(self, reason: str) -> None:
        """Keep nothing more, and say so, once for a directory."""
        self.problem = f"nothing is kept in the cache directory {self._directory!r}: {reason}"
        if self._directory not in _warned_of:
            _warned_of.add(self._directory)
            _LOGGER.warning("%s", self.problem)

    def _read_file(self, path: Path) -> bytes | None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > self.limit_bytes:
                return None
            with suppress(OSError):  # of a cache that may only be read, the oldest entries go first
                os.utime(descriptor)
            return file.read(status.st_size)

    def _write_file(self, directory: Path, name: str, pieces: tuple[bytes, ...]) -> None:
        directory.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
        temporary = directory / f"{_TEMPORARY}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(temporary, flags, _PRIVATE_FILE), "wb") as file:
                for piece in pieces:
                    file.write(piece)
            # Without fsync: what a power cut tears is found by its digest.
            temporary.replace(directory / name)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise

    def _make_room(self, size_bytes: int) -> None:
        """Remove what was used longest ago until there is room for an entry, and count it as written."""
        with self._lock:
            uncounted_bytes = self._uncounted_bytes
            is_stale = uncounted_bytes is None or uncounted_bytes > self.limit_bytes // _COUNT_AGAIN_SHARE
            if is_stale or self._held_bytes + size_bytes > self.limit_bytes:
                self._held_bytes, self._uncounted_bytes = self._sweep(size_bytes), 0
            self._held_bytes += size_bytes
            self._uncounted_bytes = (self._uncounted_bytes or 0) + size_bytes

    def _sweep(self, size_bytes: int) -> int:
        """Count what the directory holds, remove what is too much, and return how much is left."""
        files = self._files()
        held_bytes = sum(file.size_bytes for file in files)
        if held_bytes + size_bytes <= self.limit_bytes:
            return held_bytes
        most_bytes = self.limit_bytes - max(size_bytes, self.limit_bytes // _LEAVE_FREE_SHARE)
        for file in sorted(files):
            if held_bytes <= most_bytes:
                break
            with suppress(OSError):
                file.path.unlink()
            held_bytes -= file.size_bytes
        for group in self._root.iterdir():
            with suppress(OSError):  # not empty
                group.rmdir()
        return held_bytes

    def _files(self) -> list[_File]:
        """List the entries; what killed writers left behind is removed."""
        files = list[_File]()
        oldest_s = time.time() - _TEMPORARY_LIFE_S
        for path in self._root.glob("*/*"):
            with suppress(OSError):  # others make room at the same time
                status = path.lstat()
                if path.name.startswith(_TEMPORARY) and status.st_mtime < oldest_s:
                    path.unlink()
                else:
                    files.append(_File(status.st_mtime_ns, path, status.st_size))
        return files


def group_of(*words: str) -> str:
    """Return the name of a group: a digest, from which nobody learns what the words were."""
    return hashlib.blake2b("\n".join(words).encode(errors="surrogatepass"), digest_size=20).hexdigest()


def _header(group: str, name: str, content: bytes) -> bytes:
    digest = hashlib.blake2b(f"{group}/{name}\n".encode(), digest_size=_DIGEST_BYTES)
    digest.update(content)
    return _FORMAT + digest.digest()


_NEWEST = "newest"

_PART_BYTES = 1024 * 1024
"""Entries are read and checked as a whole: whoever wants a part of a long range should not have to read all of it."""

_Bounds: TypeAlias = tuple[int, int]
"""Start and stop of a kept range; thousands of them are sorted and searched."""


class _Version(NamedTuple):
    """The version of an object that was kept last."""

    etag: str
    object_size_bytes: int | None


class DiskRanges:
    """The ranges of one store's objects. All calls block, and none fails: what is not there is fetched.

    Safe to use from many threads. An object is a group: its entry ``newest`` says which version was kept last, and each
    range of a version is an entry named by a digest of the ETag and its bounds; long ones are cut into several.

    Args:
        files: Where they are kept.
        store_name: Returns a name of the store that no other store has. It is asked each time: a store may learn with its first
            request where it is.
    """

    def __init__(self, files: DiskCache, *, store_name: Callable[[], str]) -> None:
        self._files = files
        self._store_name = store_name
        self._newest: dict[str, _Version] = {}
        """What was read or written last, by group."""
        self._bounds: dict[tuple[str, str], list[_Bounds]] = {}
        """By group and version: what was there when it was first looked at, and what was written here since, in order. What
        other processes write meanwhile is found under its own name, but not put together with more."""
        self._lock = threading.Lock()

    @property
    def limit_bytes(self) -> int:
        """Most that is kept."""
        return self._files.limit_bytes

    def newest_etag(self, path: str) -> str | None:
        """Return the version of an object that was kept last."""
        version = self._read_newest(group_of(self._store_name(), path))
        return None if version is None else version.etag

    def find(self, path: str, etag: str, asked: ByteRange | SuffixRange) -> FetchedRange | None:
        """Return a range of a version as the store would answer it; None unless all of it is kept."""
        group = group_of(self._store_name(), path)
        newest = self._newest.get(group)
        if newest is None or newest.etag != etag:
            newest = self._read_newest(group)
        size_bytes = newest.object_size_bytes if newest is not None and newest.etag == etag else None
        if size_bytes is not None:
            asked = clipped(asked, object_size_bytes=size_bytes)
        if not isinstance(asked, ByteRange) or not asked.length_bytes:
            return None
        data = self._join(group, etag, asked)
        if data is None:
            return None
        return FetchedRange(data=data, start=asked.start, etag=etag, object_size_bytes=size_bytes)

    def keep(self, path: str, fetched: FetchedRange) -> None:
        """Keep what a store answered, unless it has no lasting ETag."""
        if not is_lasting_etag(fetched.etag) or not fetched.data:
            return
        group, version = group_of(self._store_name(), path), _Version(fetched.etag, fetched.object_size_bytes)
        if self._newest.get(group) != version:
            self._files.write(group, _NEWEST, json.dumps(version).encode())
            self._newest[group] = version
        for offset in range(0, len(fetched.data), _PART_BYTES):
            content = fetched.data[offset : offset + _PART_BYTES]
            bounds = (fetched.start + offset, fetched.start + offset + len(content))
            self._files.write(group, _name(fetched.etag, bounds), content)
            self._note(group, fetched.etag, bounds)

    def _join(self, group: str, etag: str, wanted: ByteRange) -> bytes | None:
        """Put a range together from kept ones."""
        exact = self._files.read(group, _name(etag, (wanted.start, wanted.stop)))
        if exact is not None:
            return exact
        with self._lock:
            if (group, etag) not in self._bounds:
                self._bounds[group, etag] = sorted(_bounds_of(self._files.names(group), etag))
            chosen = covering(self._bounds[group, etag], wanted)
        parts, reached = list[bytes](), wanted.start
        for start, stop in chosen:
            content = self._files.read(group, _name(etag, (start, stop)))
            if content is None or len(content) != stop - start:
                self._forget(group, etag, (start, stop))
                return None
            parts.append(content[reached - start : wanted.stop - start])
            reached += len(parts[-1])
        return b"".join(parts) if reached == wanted.stop else None

    def _note(self, group: str, etag: str, bounds: _Bounds) -> None:
        """Note that a range was written, unless nobody has looked yet what is there."""
        with self._lock:
            known = self._bounds.get((group, etag))
            if known is not None:
                place = bisect_left(known, bounds)
                if known[place : place + 1] != [bounds]:
                    known.insert(place, bounds)

    def _forget(self, group: str, etag: str, bounds: _Bounds) -> None:
        """Note that a range is gone: another process made room, or somebody damaged it."""
        with self._lock:
            known = self._bounds[group, etag]
            if bounds in known:  # else somebody else has noticed
                known.remove(bounds)

    def _read_newest(self, group: str) -> _Version | None:
        content = self._files.read(group, _NEWEST)
        if content is None:
            return None
        try:
            etag, size_bytes = json.loads(content)
        except (ValueError, TypeError):
            return None
        if not isinstance(etag, str) or not is_lasting_etag(etag) or not isinstance(size_bytes, int | None):
            return None
        version = self._newest[group] = _Version(etag, size_bytes)
        return version


def covering(kept: Sequence[_Bounds], wanted: ByteRange) -> list[_Bounds]:
    """Choose few of the kept ranges, in order, that together hold all of a range; none if they do not."""
    chosen, reached = list[_Bounds](), wanted.start
    best: _Bounds | None = None  # of those that begin where the chosen ones end, or before, the one that goes furthest
    for bounds in kept:
        start, stop = bounds
        if start > reached:
            if best is None or start > best[1]:
                break
            chosen.append(best)
            reached, best = best[1], None
        if reached >= wanted.stop:
            break
        if stop > reached and (best is None or stop > best[1]):
            best = bounds
    if reached < wanted.stop and best is not None:
        chosen.append(best)
        reached = best[1]
    return chosen if reached >= wanted.stop else []


def _name(etag: str, bounds: _Bounds) -> str:
    start, stop = bounds
    return f"{_version_name(etag)}-{start}-{stop}"


def _version_name(etag: str) -> str:
    return hashlib.blake2b(etag.encode(), digest_size=12).hexdigest()


def _bounds_of(names: Iterable[str], etag: str) -> list[_Bounds]:
    """Return the bounds of the ranges of one version."""
    version_name, found = _version_name(etag), list[_Bounds]()
    for name in names:
        version, _, bounds = name.partition("-")
        start, _, stop = bounds.partition("-")
        if version == version_name and start.isdecimal() and stop.isdecimal() and int(start) < int(stop):
            found.append((int(start), int(stop)))
    return found
