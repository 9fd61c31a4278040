"""Files on this machine, read and written in threads. Linux and macOS."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.errors import AccessError, InvalidInputError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.storage.base import (
    FetchedRange,
    Listing,
    ObjectInfo,
    RangeRequest,
    already_exists,
    clipped,
    object_changed,
)
from coldparquet.storage.threads import run_to_end

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from coldparquet.ranges import ByteRange, SuffixRange

_WRITE_BYTES = 8 * 1024 * 1024
"""A cancelled write stops after at most so many more bytes."""


class LocalStore:
    """Files under absolute paths. An object's version is its modification time, size and inode.

    Each request opens its file anew, so nothing stays open between requests. Symbolic links are followed.
    """

    label = "local files"

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Read one range of a file; see :class:`~coldparquet.storage.base.ObjectStore`.

        Raises:
            StorageError: ``kind="NotARegularFile"``: the path is a pipe, a device or a socket.
        """
        return await asyncio.to_thread(_read, request)

    async def list(self, path: str) -> Listing:
        """List one directory. Hidden entries count; pipes, devices and dangling links are left out."""
        return await asyncio.to_thread(_list_directory, path)

    async def put(self, path: str, data: bytes, *, overwrite: bool) -> None:
        """Write one file by way of a temporary one beside it; missing directories are made.

        When the call returns, the file is on the disk. When it raises or is cancelled, no temporary file is left.
        """
        await run_to_end(partial(_write, path, data, overwrite=overwrite))

    async def aclose(self) -> None:
        """Do nothing: no file is open between requests."""


def _read(request: RangeRequest) -> FetchedRange:
    with _translated_errors(request.path, request.byte_range):
        # Without O_NONBLOCK, opening a pipe waits for somebody to write into it.
        descriptor = os.open(request.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            before = os.fstat(descriptor)
            _check_is_file(request.path, before)
            if request.if_match is not None and request.if_match != _etag(before):
                raise object_changed(request, found_etag=_etag(before))
            found = clipped(request.byte_range, object_size_bytes=before.st_size)
            data = _read_fully(descriptor, found)
            if _etag(os.fstat(descriptor)) != _etag(before):
                raise ObjectChangedError(
                    "the file was written to while it was read; plan the read again", path=request.path
                )
        finally:
            os.close(descriptor)
    return FetchedRange(data=data, start=found.start, etag=_etag(before), object_size_bytes=before.st_size)


def _read_fully(descriptor: int, asked: ByteRange) -> bytes:
    data = os.pread(descriptor, asked.length_bytes, asked.start)
    if len(data) == asked.length_bytes:
        return data
    # Linux reads at most 2 GiB in one call; any system may read less.
    pieces = [data]
    done = len(data)
    while pieces[-1] and done < asked.length_bytes:
        pieces.append(os.pread(descriptor, asked.length_bytes - done, asked.start + done))
        done += len(pieces[-1])
    return b"".join(pieces)


def _list_directory(path: str) -> Listing:
    directories: list[str] = []
    objects: list[ObjectInfo] = []
    parent = path.rstrip("/")
    with _translated_errors(path, None), os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            try:
                status = entry.stat()
            except FileNotFoundError:  # a dangling link, or removed since the directory was read
                continue
            if stat.S_ISDIR(status.st_mode):
                directories.append(f"{parent}/{entry.name}")
            elif stat.S_ISREG(status.st_mode):
                objects.append(ObjectInfo(path=f"{parent}/{entry.name}", size_bytes=status.st_size, etag=_etag(status)))
    return Listing(directories=tuple(directories), objects=tuple(objects))


def _write(path: str, data: bytes, give_up: threading.Event, *, overwrite: bool) -> None:
    target = Path(path)
    temporary = target.parent / f".coldparquet-{uuid.uuid4().hex}.tmp"
    with _translated_errors(path, None):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not _write_temporary(temporary, data, give_up):
                return
            if overwrite:
                temporary.replace(target)
            else:
                _move_into_place_unless_taken(temporary, target)
            _flush_directory(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _write_temporary(temporary: Path, data: bytes, give_up: threading.Event) -> bool:
    """Write and flush a new file; return False if told to give up in between."""
    with temporary.open("xb", buffering=0) as file:
        remaining = memoryview(data)
        while remaining and not give_up.is_set():
            remaining = remaining[file.write(remaining[:_WRITE_BYTES]) :]
        os.fsync(file.fileno())
    return not give_up.is_set()


def _move_into_place_unless_taken(temporary: Path, target: Path) -> None:
    try:
        target.hardlink_to(temporary)  # unlike a rename, a link never replaces
    except FileExistsError:
        raise already_exists(str(target)) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # File systems without hard links, such as FAT: the check and the rename are two steps.
        if os.path.lexists(target):
            raise already_exists(str(target)) from None
        temporary.replace(target)


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def _check_is_file(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise NotFoundError("this is a directory; a file was expected", kind="IsADirectory", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise StorageError("this is a pipe, device or socket; a file was expected", kind="NotARegularFile", path=path)


@contextlib.contextmanager
def _translated_errors(path: str, byte_range: ByteRange | SuffixRange | None) -> Iterator[None]:
    """Turn what the operating system raises into this library's errors; those already made pass."""
    try:
        yield
    except (InvalidInputError, NotFoundError, ObjectChangedError, StorageError):
        raise
    except FileNotFoundError:
        directory = Path(path).parent
        missing = "file" if directory.is_dir() else f"file; not even its directory {directory} exists"
        raise NotFoundError(f"there is no such {missing}", path=path) from None
    except NotADirectoryError:
        raise NotFoundError(
            "this path, or a part of it, is a file where a directory was expected", kind="NotADirectory", path=path
        ) from None
    except IsADirectoryError:
        raise InvalidInputError("this is a directory; a file was expected", kind="IsADirectory", path=path) from None
    except PermissionError as error:
        raise AccessError(f"the operating system refuses access: {error.strerror}", path=path) from error
    except ValueError as error:  # a NUL character in the path
        raise InvalidInputError(f"this cannot be a file path: {error}", path=path) from error
    except OSError as error:
        raise StorageError(f"{error.strerror or error}", path=path, byte_range=byte_range, attempts=1) from error
