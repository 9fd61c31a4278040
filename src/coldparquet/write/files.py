"""Provides the durable local file operations of which every change of a partition consists, and the locks for it.

A partition survives a crash because the operations happen in a certain order. All of them go through
``LocalFiles``, so tests can replace them and fail at any operation, as a power cut does.

:func:`no_server` keeps a QuestDB server away from a table directory, as far as files can. A running QuestDB holds the
lock of `tables.d.lock` in its database directory, the parent of its table directories. It does not start while another
process holds the lock (seen with 9.3.4). A copy of a table elsewhere has no such file beside it, and no server.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from coldparquet.errors import InvalidInputError
from coldparquet.options import StoreOptions, checked_store_options
from coldparquet.storage.local import LocalStore, translated_errors
from coldparquet.storage.open import opened_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from coldparquet.storage.base import ObjectStore


_FILE_MODE = 0o666
"""The mode that ``open`` uses for new files, before the process's umask."""


class LocalFiles:
    """Operations on local files. Only flushed data is certain to be on the disk.

    A rename, a new or a removed file changes the directory, which needs its own flush.
    """

    def make_directory(self, path: str) -> None:
        """Make one directory, whose parent exists, unless it exists; a symbolic link to one is an error."""
        with translated_errors(path, None):
            Path(path).mkdir(exist_ok=True)
            if Path(path).is_symlink():
                raise InvalidInputError(
                    "this is a symbolic link, but what is written, and what a run that was cut off has left, must lie in"
                    " the table; remove it",
                    kind="LinkLeadsOutside",
                    path=path,
                )

    def create(self, path: str) -> None:
        """Make an empty file; an older one of this name is an error."""
        with translated_errors(path, None):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE))

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        """Write into a file from ``offset`` on, which may be its end.

        Up to 8 bytes at a multiple of 8 reach the disk wholly or not at all. Of more bytes, any part may.
        """
        with translated_errors(path, None):
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                remaining = memoryview(data)
                while remaining:
                    written = os.pwrite(descriptor, remaining, offset)
                    offset, remaining = offset + written, remaining[written:]
            finally:
                os.close(descriptor)

    def truncate(self, path: str, size_bytes: int) -> None:
        """Cut a file off behind its first ``size_bytes``."""
        with translated_errors(path, None):
            os.truncate(path, size_bytes)

    def flush(self, path: str) -> None:
        """Wait until everything that was written into a file is on the disk."""
        _flush(path, os.O_WRONLY)

    def flush_directory(self, path: str) -> None:
        """Wait until a directory's entries are on the disk."""
        _flush(path, os.O_RDONLY | os.O_DIRECTORY)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, in one step. An empty directory with the new name is replaced."""
        with translated_errors(new, None):
            Path(old).rename(new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        with translated_errors(path, None):
            Path(path).unlink()

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        with translated_errors(path, None):
            Path(path).rmdir()


class NewFile:
    """A new file that is written sequentially; an existing one is an error."""

    def __init__(self, path: str, files: LocalFiles) -> None:
        self.path = path
        self.size_bytes = 0
        self._files = files
        files.create(path)

    def append(self, data: bytes) -> None:
        """Write at the end of the file."""
        self._files.write_at(self.path, self.size_bytes, data)
        self.size_bytes += len(data)

    def flush(self) -> None:
        """Wait until all of it is on the disk."""
        self._files.flush(self.path)


def _flush(path: str, mode: int) -> None:
    with translated_errors(path, None):
        descriptor = os.open(path, mode | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def exclusive_lock(directory: str) -> Iterator[None]:
    """Lock out other writers of a partition directory until the block or the process ends.

    The lock is advisory, on the directory itself, and works between processes of one machine. Readers need none.
    """
    with translated_errors(directory, None):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with translated_errors(directory, None):
            _lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)  # which also unlocks


def _lock(descriptor: int, directory: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder of the lock may have renamed the directory meanwhile.
        is_same = os.path.samestat(os.fstat(descriptor), Path(directory).stat())
    except (BlockingIOError, FileNotFoundError):
        is_same = False
    if not is_same:
        raise InvalidInputError(
            "another writer is at work in this partition; wait until it has finished",
            kind="PartitionLocked",
            path=directory,
        )


_LOCK_FILE = "tables.d.lock"


@contextlib.contextmanager
def no_server(table_directory: str) -> Iterator[None]:
    """Check that no QuestDB has the table open, and keep it from opening the table until the block ends.

    Several holders of this lock do not exclude each other. A server on another machine that mounts the directory may go
    unnoticed.
    """
    with contextlib.ExitStack() as held:
        # The table may be a symbolic link in the database directory, or another directory may link to it.
        for directory in dict.fromkeys((Path(table_directory), Path(os.path.realpath(table_directory)))):
            _hold(str(directory.parent / _LOCK_FILE), table_directory, held)
        yield


def no_server_at(store: ObjectStore, path: str) -> AbstractContextManager[None]:
    """Do the same for a table directory in a store, whatever its wrappers; nothing where it is no local disk."""
    return no_server(path) if store.label == LocalStore.label else contextlib.nullcontext()


def _hold(path: str, table_directory: str, held: contextlib.ExitStack) -> None:
    if not Path(path).exists():
        return
    with translated_errors(path, None):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    held.callback(os.close, descriptor)  # which also unlocks
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidInputError(
            "a QuestDB server is running on this database: it would not notice that its table was changed, and would"
            " write over it; stop the server, or work on a copy of the table",
            kind="ServerRunning",
            path=table_directory,
        ) from None


_PREFIX, _SUFFIX = ".", ".coldparquet"


def staged_name(name: str) -> str | None:
    """Return the final name of a staging directory; None for other names."""
    is_staging = name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    return name.removeprefix(_PREFIX).removesuffix(_SUFFIX) if is_staging else None


@contextmanager
def staged_directory(path: str, files: LocalFiles, *, check_is_free: Callable[[], None]) -> Iterator[str]:
    """Yield a directory to fill; rename it to ``path`` when the block succeeds, else remove it. Blocks."""
    target = Path(path)
    staging = str(target.parent / f"{_PREFIX}{target.name}{_SUFFIX}")
    files.make_directory(staging)
    with exclusive_lock(staging):
        try:
            check_is_free()
            empty_directory(staging, files)  # remains of an interrupted run
            yield staging
            files.flush_directory(staging)
            files.rename(staging, path)
        except (Exception, asyncio.CancelledError):
            empty_directory(staging, files)
            files.remove_directory(staging)
            raise
        files.flush_directory(str(target.parent))


def empty_directory(directory: str, files: LocalFiles) -> None:
    """Remove the files of a directory that holds nothing else."""
    with translated_errors(directory, None):
        entries = list(Path(directory).iterdir())
    for entry in entries:
        files.unlink(str(entry))


_REQUESTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A table directory in a store."""

    path: str
    """Without a trailing slash."""
    store: ObjectStore
    """The store with retries."""
    bare_store: ObjectStore
    """The store for functions that add the wrappers themselves."""
    store_options: StoreOptions


class StoreAccess(TypedDict, total=False):
    """How a store is reached, as the functions that write in steps take it."""

    storage_options: Mapping[str, Any] | None
    """Credentials, endpoint and so on, as fsspec and s3fs take them."""
    store_options: StoreOptions | None
    """Retries and timeouts."""
    store: ObjectStore | None
    """A store of your own; the table's URL is then a path in it. It stays open."""


@asynccontextmanager
async def open_place(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> AsyncIterator[TablePlace]:
    """Open the store of a table directory, and close it at the end unless the caller owns it. No request."""
    async with opened_store(
        url,
        storage_options=storage_options,
        store_options=store_options,
        store=store,
        max_concurrency=_REQUESTS_AT_ONCE,
    ) as opened:
        yield TablePlace(
            path=opened.path.rstrip("/"),
            store=opened.stack.store,
            bare_store=opened.bare,
            store_options=checked_store_options(store_options),
        )
