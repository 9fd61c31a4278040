"""Small and large entries in files that outlive the process: private, checked, bounded, shared by all processes.

A cache is never needed: whatever goes wrong with it, nothing is raised, and the reader goes to the store instead; one
warning is logged. All calls block; call them in threads.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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
        self._remove_empty_groups()
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

    def _remove_empty_groups(self) -> None:
        for group in self._root.iterdir():
            with suppress(OSError):
                group.rmdir()


def group_of(*words: str) -> str:
    """Return the name of a group: a digest, from which nobody learns what the words were."""
    return hashlib.blake2b("\n".join(words).encode(errors="surrogatepass"), digest_size=20).hexdigest()


def _header(group: str, name: str, content: bytes) -> bytes:
    digest = hashlib.blake2b(f"{group}/{name}\n".encode(), digest_size=_DIGEST_BYTES)
    digest.update(content)
    return _FORMAT + digest.digest()
