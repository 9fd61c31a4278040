"""The few operations on local files of which every change of a partition is made, durable and one at a time.

A partition survives a crash because these happen in a certain order. ``FileOperations`` is that order's only way to the
disk, so tests put something in its place that fails at any of them, as a power cut does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from coldparquet.errors import InvalidInputError
from coldparquet.storage.local.errors import translated_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE_MODE = 0o666
"""As ``open`` makes files; the process's umask takes from it."""


class FileOperations(Protocol):
    """What is done to local files. Nothing is on the disk for certain before it is flushed.

    What a rename, a new or a removed file change is their directory, which is flushed on its own.
    """

    def make_directory(self, path: str) -> None:
        """Make one directory, whose parent exists, unless it is there; a symbolic link to one is an error."""
        ...

    def create(self, path: str) -> None:
        """Make an empty file; an older one of this name is an error."""
        ...

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        """Write into a file from ``offset`` on, which may lie at its end.

        At most 8 bytes at a multiple of 8 are on the disk wholly or not at all; of more, any part may be.
        """
        ...

    def truncate(self, path: str, size_bytes: int) -> None:
        """Cut off what lies behind the first ``size_bytes`` of a file."""
        ...

    def flush(self, path: str) -> None:
        """Wait until everything that was written into a file is on the disk."""
        ...

    def flush_directory(self, path: str) -> None:
        """Wait until a directory's entries are on the disk."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, in one step. An empty directory of that name is replaced."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...


class LocalFiles:
    """The file operations as the operating system does them."""

    def make_directory(self, path: str) -> None:
        """Make one directory."""
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
        """Make an empty file."""
        with translated_errors(path, None):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE))

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        """Write into a file from ``offset`` on."""
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
        """Cut off the rest of a file."""
        with translated_errors(path, None):
            os.truncate(path, size_bytes)

    def flush(self, path: str) -> None:
        """Wait until a file is on the disk."""
        _flush(path, os.O_WRONLY)

    def flush_directory(self, path: str) -> None:
        """Wait until a directory's entries are on the disk."""
        _flush(path, os.O_RDONLY | os.O_DIRECTORY)

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name."""
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
    """A file that is written from its beginning to its end.

    Args:
        path: Where it is made; an older one of this name is an error.
        files: How to write.
    """

    def __init__(self, path: str, files: FileOperations) -> None:
        self.path = path
        self.size_bytes = 0
        self._files = files
        files.create(path)

    def append(self, data: bytes) -> None:
        """Write behind what was written before."""
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
    """Keep other writers out of a partition directory until the block ends, or the process does.

    The lock is advisory, on the directory itself, and works between processes of one machine. Readers need none.

    Raises:
        InvalidInputError: Another writer has it (kind ``PartitionLocked``).
        NotFoundError: There is no such directory.
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
        # Whoever had the lock may have renamed the directory meanwhile.
        is_same = os.path.samestat(os.fstat(descriptor), Path(directory).stat())
    except (BlockingIOError, FileNotFoundError):
        is_same = False
    if not is_same:
        raise InvalidInputError(
            "another writer is at work in this partition; wait until it has finished",
            kind="PartitionLocked",
            path=directory,
        )
