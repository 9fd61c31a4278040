"""A cache in one SQLite file that outlives the process: private, checked, bounded, shared by all processes.

A cache is never needed: whatever goes wrong with it, nothing is raised, and the reader goes to the store instead; one
warning is logged. What is kept is written in the background: no answer waits for it. All other calls block; call them in
threads.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import stat
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from coldparquet.options import MIB
from coldparquet.storage.cache import digest_of, joined, missing_of, part_of
from coldparquet.storage.disk_entries import (
    PAGE_BYTES,
    SCHEMA,
    Version,
    digest_of_entry,
    make_room,
    read_object,
    write_missing,
    write_version,
)
from coldparquet.storage.requests import FetchedRange
from coldparquet.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.storage.cache import CacheKey

_OWN_DIRECTORY, _FORMER_DIRECTORY, _FILE = "coldparquet-cache-2", "coldparquet-cache-1", "cache.sqlite"
_PRIVATE_DIRECTORY, _PRIVATE_FILE = 0o700, 0o600

_LARGEST_SHARE = 2
"""What is kept at once is at most half of what the file may hold."""

_LOG_SHARE = 16
"""SQLite's write-ahead log is moved into the file when it has a sixteenth of the limit, or 4 MiB."""

_USE_NOTED_S = 3600
"""The last use of an entry is noted once an hour, so that most hits write nothing."""

_LONGEST_WAIT_S = 1.0
"""Longest wait for other processes; after it nothing is found or kept."""

_MOST_ATTEMPTS = 3
"""After so many waits in a row for one write, all that is queued is given up: other processes keep the file."""

_MOST_QUEUED, _MOST_QUEUED_BYTES = 1_024, 64 * MIB
"""What may wait to be written. What would be more is not kept: neither answers nor memory wait for a slow disk."""

_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CODES_FROM_OUTSIDE = _BUSY_CODES | {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
}
"""All other errors mean that the file is damaged, or not SQLite's."""

_Result = TypeVar("_Result")

_LOGGER = logging.getLogger("coldparquet")

_warned_of = set[str]()
"""Directories of which this process has said that they are of no use."""


_caches = weakref.WeakSet["DiskCache"]()
_closed_for_fork: list[DiskCache] = []


def _before_fork() -> None:
    """Close all files: SQLite's connections and locks must not be carried into a child. The next call opens them again."""
    for cache in tuple(_caches):
        for lock in cache.locks:
            lock.acquire()
        cache.close_locked()
        _closed_for_fork.append(cache)


def _after_fork() -> None:
    while _closed_for_fork:
        for lock in _closed_for_fork.pop().locks:
            lock.release()


def _after_fork_in_child() -> None:
    for cache in _closed_for_fork:
        cache.queue.clear()  # which the parent writes, in a thread that the child does not have
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


class _Write(NamedTuple):
    """What is to be written."""

    work: Callable[[sqlite3.Cursor], object]
    size_bytes: int = 0
    key: CacheKey | None = None
    fetched: FetchedRange | None = None
    """What it keeps, of the object ``key``; None where it keeps nothing."""


class _Queue:
    """What waits to be written, in order, and the thread that does it. The thread ends where nothing is left.

    Args:
        write: Writes one; False where other processes use the file for too long.
    """

    def __init__(self, write: Callable[[_Write], bool]) -> None:
        self._write = write
        self.lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget what waits, and the thread."""
        self._waiting: deque[_Write] = deque()
        self._waiting_bytes = 0
        self._dropped_count = 0
        self._thread: threading.Thread | None = None

    def add(self, write: _Write) -> None:
        """Add one, unless too much waits already. Never blocks for long."""
        with self.lock:
            is_full = len(self._waiting) >= _MOST_QUEUED or self._waiting_bytes + write.size_bytes > _MOST_QUEUED_BYTES
            if is_full and self._waiting:
                self._dropped_count += 1
                return
            self._waiting.append(write)
            self._waiting_bytes += write.size_bytes
            if self._thread is None:
                # Not a daemon: a process that ends without closing its tables ends when all is written.
                self._thread = threading.Thread(target=self._write_all, name="coldparquet-cache")
                try:
                    self._thread.start()
                except RuntimeError:  # the interpreter ends, and starts no threads any more
                    self._drop()

    def of(self, key: CacheKey) -> list[FetchedRange]:
        """Return what waits of an object, the newest first."""
        with self.lock:
            return [write.fetched for write in reversed(self._waiting) if write.fetched and write.key == key]

    def flush(self) -> int:
        """Wait until all is written that was added before; return how much was dropped since the last time."""
        with self.lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        with self.lock:
            dropped_count, self._dropped_count = self._dropped_count, 0
            return dropped_count

    def _write_all(self) -> None:
        attempts = 0
        while (write := self._next()) is not None:
            is_written, attempts = False, attempts + 1
            try:
                is_written = self._write(write)
            except BaseException:
                attempts = _MOST_ATTEMPTS
                raise
            finally:
                with self.lock:
                    if is_written:
                        self._waiting_bytes -= self._waiting.popleft().size_bytes
                        attempts = 0
                    elif attempts == _MOST_ATTEMPTS:
                        self._drop()
            if attempts == _MOST_ATTEMPTS:
                return

    def _next(self) -> _Write | None:
        with self.lock:
            if not self._waiting:
                self._thread = None
                return None
            return self._waiting[0]

    def _drop(self) -> None:
        dropped_count = self._dropped_count + len(self._waiting)
        self.clear()
        self._dropped_count = dropped_count


class _Connection:
    """A connection to the file, for one thread at a time; who uses it holds its lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class DiskCache:
    """Ranges of objects, each object of one version, in a file. Safe to use from many threads and processes.

    The file belongs to its owner alone (0600, in a directory of our own with 0700). Entries that were changed or exchanged
    are found by their digests and removed; a file that SQLite cannot read is made anew.

    Args:
        directory: Where to keep the file; it is made when something is first looked for.
        limit_bytes: Most that the file holds. What was used longest ago is removed first.
    """

    def __init__(self, directory: str, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.problem: str | None = None
        """Why nothing more is kept, for people; None while all is well."""
        self._directory = directory
        self.queue = _Queue(self._write)
        # Readers do not wait for what is being written: that has a connection of its own.
        self._reading, self._writing = _Connection(), _Connection()
        self._opening = threading.Lock()  # of two connections at once, one would find a new file locked
        self._is_of_use = True
        _caches.add(self)

    @property
    def locks(self) -> tuple[threading.Lock, threading.Lock, threading.Lock]:
        """All locks, in the order in which they have to be taken."""
        return self._reading.lock, self._writing.lock, self.queue.lock

    def find(
        self, key: CacheKey, asked: ByteRange | SuffixRange | None, etag: str | None = None
    ) -> FetchedRange | None:
        """See :meth:`~coldparquet.storage.cache.CacheLevel.find`."""
        queued = self.queue.of(key)
        if queued and etag not in (None, queued[0].etag):
            return None
        queued = [fetched for fetched in queued if fetched.etag == queued[0].etag]
        etag = queued[0].etag if queued else etag
        digest = digest_of(*key)
        size_bytes = next((fetched.object_size_bytes for fetched in queued if fetched.object_size_bytes), None)
        version, entries = self._run(lambda cursor: read_object(cursor, digest, asked, etag, size_bytes)) or (None, [])
        if queued and etag is not None:
            size_bytes = size_bytes or (version and version.object_size_bytes)
            version = Version(etag, size_bytes, queued[0].confirmed_s)
        wanted = None if version is None else part_of(asked, version.object_size_bytes)
        if version is None or wanted is None:
            return None
        sound = [entry for entry in entries if entry.digest == digest_of_entry(digest, version.etag, *entry.piece)]
        if len(sound) < len(entries):
            damaged = [(entry.id, entry.digest) for entry in set(entries).difference(sound)]
            remove = "DELETE FROM entries WHERE id = ? AND CAST(digest AS BLOB) = ?"
            self.queue.add(_Write(lambda cursor: cursor.executemany(remove, damaged)))
        pieces = [entry.piece for entry in sound]
        pieces += [(fetched.start, fetched.data) for fetched in queued if _overlaps(fetched, wanted)]
        pieces.sort(key=itemgetter(0))
        if missing_of(wanted, pieces):
            return None
        now_s = int(time.time())
        unnoted = [(now_s, entry.id) for entry in sound if now_s - entry.used_s >= _USE_NOTED_S]
        if unnoted:
            update = "UPDATE entries SET used_s = ? WHERE id = ?"
            self.queue.add(_Write(lambda cursor: cursor.executemany(update, unnoted)))
        return FetchedRange(
            data=joined(wanted, pieces),
            start=wanted.start,
            etag=version.etag,
            object_size_bytes=version.object_size_bytes,
            confirmed_s=version.confirmed_s,
        )

    def keep(self, key: CacheKey, fetched: FetchedRange) -> None:
        """Write it in the background; see :meth:`~coldparquet.storage.cache.CacheLevel.keep`. Found at once."""
        length_bytes, etag = len(fetched.data), fetched.etag
        is_too_long = length_bytes * _LARGEST_SHARE > self.limit_bytes
        if self.problem is not None or not length_bytes or is_too_long or etag is None:
            return
        limit_bytes = self.limit_bytes

        def write(cursor: sqlite3.Cursor) -> None:
            digest = digest_of(*key)
            make_room(cursor, length_bytes, limit_bytes=limit_bytes)
            write_version(cursor, digest, Version(etag, fetched.object_size_bytes, fetched.confirmed_s))
            write_missing(cursor, digest, etag, fetched)

        self.queue.add(_Write(write, length_bytes, key, fetched))

    def flush(self) -> None:
        """Wait until all is written that was kept so far; warn of what could not be."""
        dropped_count = self.queue.flush()
        if dropped_count:
            _LOGGER.warning(
                "%s to the cache directory %r were given up: the disk is slow, or other processes keep the file locked",
                plural(dropped_count, "write"),
                self._directory,
            )

    def close(self) -> None:
        """Write what was kept and close the file; the next call opens it again."""
        self.flush()
        with self._reading.lock, self._writing.lock:
            self.close_locked()

    def _write(self, write: _Write) -> bool:
        try:
            self._run(write.work, writes=True)
        except _BusyError:
            return False
        return True

    def _run(self, work: Callable[[sqlite3.Cursor], _Result], *, writes: bool = False) -> _Result | None:
        """Run a transaction; None where the file is of no use, or other processes use it for too long.

        Raises:
            _BusyError: Other processes write to the file, and so should this one.
        """
        try:
            try:
                return self._transact(work, writes=writes)
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite's errors quote a damaged schema
                if _code_of(error) in _CODES_FROM_OUTSIDE:
                    raise
                self._make_anew()
                return self._transact(work, writes=writes)
        except sqlite3.DatabaseError as error:
            if _code_of(error) in _BUSY_CODES:
                if writes:
                    raise _BusyError from None
                return None
            self._is_of_use = (self._writing if writes else self._reading).connection is not None
            if writes or not self._is_of_use:
                self._give_up(f"it cannot be written ({getattr(error, 'sqlite_errorname', error)})")
            return None

    def _transact(self, work: Callable[[sqlite3.Cursor], _Result], *, writes: bool) -> _Result | None:
        lane = self._writing if writes else self._reading
        with lane.lock:
            if lane.connection is None:
                with self._opening:
                    lane.connection = self._open()
            if lane.connection is None:
                return None
            cursor = lane.connection.cursor()
            cursor.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                result = work(cursor)
                cursor.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK")
                raise
            return result

    def _open(self) -> sqlite3.Connection | None:
        path = self._prepare() if self._is_of_use else None
        self._is_of_use = path is not None
        if path is None:
            return None
        connection = sqlite3.connect(path, timeout=_LONGEST_WAIT_S, isolation_level=None, check_same_thread=False)
        weakref.finalize(self, connection.close)
        try:
            log_pages = max(1, min(4 * MIB, self.limit_bytes // _LOG_SHARE) // PAGE_BYTES)
            # Never synchronised: what a power cut tears is found by the digests, or makes the file anew.
            connection.executescript(
                f"PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
                f"PRAGMA wal_autocheckpoint = {log_pages}; PRAGMA journal_size_limit = {log_pages * PAGE_BYTES};{SCHEMA}"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _prepare(self) -> Path | None:
        """Make the directory and the file; None unless they are ours alone."""
        try:
            root = Path(self._directory).expanduser().absolute() / _OWN_DIRECTORY
            root.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                root.mkdir(mode=_PRIVATE_DIRECTORY)
                _remove_former(root.with_name(_FORMER_DIRECTORY))
            if not _is_private(root):
                self._give_up(f"{_OWN_DIRECTORY} in it belongs to somebody else or is open to others; remove it")
                return None
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(root / _FILE, flags, _PRIVATE_FILE))
        except OSError as error:
            self._give_up(f"it cannot be made ({errno.errorcode.get(error.errno or 0, 'OSError')})")
            return None
        except (RuntimeError, ValueError):  # no such person, no home, or a zero byte
            self._give_up("the path does not lead to a directory")
            return None
        return root / _FILE

    def _make_anew(self) -> None:
        """Remove the file. Others that have it open go on with what was removed: at worst they damage the new one again."""
        with self._reading.lock, self._writing.lock:
            self.close_locked()
            path = self._prepare()
            for suffix in ("", "-wal", "-shm"):
                if path is not None:
                    with suppress(OSError):
                        path.with_name(path.name + suffix).unlink()
            self._prepare()

    def close_locked(self) -> None:
        """Close the file; the caller holds the locks."""
        self._reading.close()
        self._writing.close()

    def _give_up(self, reason: str) -> None:
        """Keep nothing more, and say so, once for a directory."""
        self.problem = f"nothing is kept in the cache directory {self._directory!r}: {reason}"
        if self._directory not in _warned_of:
            _warned_of.add(self._directory)
            _LOGGER.warning("%s", self.problem)


class _BusyError(Exception):
    """Other processes write to the file."""


def _overlaps(fetched: FetchedRange, wanted: ByteRange) -> bool:
    return fetched.start < wanted.stop and wanted.start < fetched.start + len(fetched.data)


def _code_of(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_private(directory: Path) -> bool:
    """Tell whether a directory is ours alone, and no link."""
    status = directory.lstat()
    return stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077 and status.st_uid == os.geteuid()


def _remove_former(directory: Path) -> None:
    """Remove the cache of earlier versions, which kept a file for each entry."""
    with suppress(OSError):
        if _is_private(directory):
            shutil.rmtree(directory, ignore_errors=True)
