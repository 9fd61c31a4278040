"""Files on this machine, so that others see all of a file or nothing, and a crash loses none that was reported as written.

Linux and macOS. Everything here but the store blocks, and runs in a thread that cancelling waits for (:func:`~coldparquet.concurrency.run_to_end`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import uuid
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.concurrency import run_to_end
from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
)
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import PlainStore
from coldparquet.storage.refusals import already_exists, object_changed, version_gone
from coldparquet.storage.requests import FetchedRange, Listing, ObjectInfo, RangeRequest, Upload, UploadedPart, clipped

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from coldparquet.ranges import SuffixRange


@contextlib.contextmanager
def translated_errors(path: str, byte_range: ByteRange | SuffixRange | None, *, wanted: str = "file") -> Iterator[None]:
    """Turn what the operating system raises into this library's errors; those already made pass."""
    try:
        yield
    except ColdParquetError:
        raise
    except FileNotFoundError:
        directory = Path(path).parent
        more = "" if directory.is_dir() else f"; not even its directory {directory} exists"
        raise NotFoundError(f"there is no such {wanted}{more}", path=path) from None
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


_WRITE_BYTES = 8 * 1024 * 1024
"""A cancelled write stops after at most so many more bytes."""

_FILE_MODE = 0o666
"""As ``open`` makes files; the process's umask takes from it."""

_TEMPORARY_PREFIX, _TEMPORARY_SUFFIX = ".coldparquet-", ".tmp"


def file_version(status: os.stat_result) -> str:
    """Return what a file's ETag is: it changes when the file is replaced or written to."""
    return f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def write_file(
    path: str, data: bytes, give_up: threading.Event, *, overwrite: bool, if_match: str | None
) -> str | None:
    """Write one whole file; None if told to give up, and then nothing is left of it."""
    target = Path(path)
    with translated_errors(path, None):
        make_directory(target.parent)
        temporary = _new_temporary(target)
        try:
            descriptor = _open_temporary(temporary, os.O_EXCL)
            try:
                write_all(descriptor, data, 0, give_up)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if give_up.is_set():
                return None
            return _move_into_place(temporary, target, overwrite=overwrite, if_match=if_match)
        finally:
            temporary.unlink(missing_ok=True)


def start_upload(path: str, _give_up: threading.Event, *, storage_class: str | None) -> Upload:
    """Make the directory, and choose the name of the temporary file that the first part will make."""
    target = Path(path)
    with translated_errors(path, None):
        make_directory(target.parent)
    return Upload(path=path, upload_id=_new_temporary(target).name, storage_class=storage_class)


def write_part(upload: Upload, number: int, give_up: threading.Event, *, start: int, data: bytes) -> UploadedPart:
    """Write one part at its place."""
    with translated_errors(upload.path, None):
        descriptor = _open_temporary(_temporary_of(upload), 0)
        try:
            write_all(descriptor, data, start, give_up)
        finally:
            os.close(descriptor)
    return UploadedPart(number=number, size_bytes=len(data), etag=str(number), crc32=zlib.crc32(data))


def finish_upload(
    upload: Upload, parts: Sequence[UploadedPart], give_up: threading.Event, *, overwrite: bool
) -> str | None:
    """Give the file its name once it is on the disk."""
    temporary = _temporary_of(upload)
    with translated_errors(upload.path, None):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            size_bytes, expected_bytes = os.fstat(descriptor).st_size, sum(part.size_bytes for part in parts)
        finally:
            os.close(descriptor)
        if size_bytes != expected_bytes:
            raise StorageError(
                f"the parts have {expected_bytes:,} bytes, the file {size_bytes:,}; upload it again",
                kind="IncompleteUpload",
                path=upload.path,
            )
        if give_up.is_set():
            return None
        return _move_into_place(temporary, Path(upload.path), overwrite=overwrite, if_match=None)


def abort_upload(upload: Upload, _give_up: threading.Event) -> None:
    """Remove the temporary file; it is fine if that is gone."""
    with translated_errors(upload.path, None):
        _temporary_of(upload).unlink(missing_ok=True)


def remove_unfinished(path: str, give_up: threading.Event, *, started_before_s: float) -> int:
    """Remove temporary files below ``path`` that were last written to before this time."""
    removed = 0
    with translated_errors(path, None):
        for folder, _, names in os.walk(path):
            for name in names:
                if give_up.is_set() or not (name.startswith(_TEMPORARY_PREFIX) and name.endswith(_TEMPORARY_SUFFIX)):
                    continue
                temporary = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):  # finished or removed meanwhile
                    if temporary.lstat().st_mtime < started_before_s:
                        temporary.unlink()
                        removed += 1
    return removed


def delete_files(paths: Sequence[str], give_up: threading.Event) -> None:
    """Remove files, and then the directories that held them where they are empty."""
    for path in paths:
        if give_up.is_set():
            return
        with translated_errors(path, None):
            Path(path).unlink(missing_ok=True)
    for folder in {Path(path).parent for path in paths}:
        with contextlib.suppress(OSError):  # not empty, or gone
            folder.rmdir()


def make_directory(directory: Path) -> None:
    """Make a directory and those above it, so that they survive a crash."""
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        _flush_directory(folder.parent)


def _new_temporary(target: Path) -> Path:
    return target.parent / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}{_TEMPORARY_SUFFIX}"


def _temporary_of(upload: Upload) -> Path:
    return Path(upload.path).parent / upload.upload_id


def _open_temporary(temporary: Path, flags: int) -> int:
    flags |= os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(temporary, flags, _FILE_MODE)
    except FileNotFoundError:
        # Still empty, the directory went when another process removed the last file that had been in it.
        make_directory(temporary.parent)
        return os.open(temporary, flags, _FILE_MODE)


def write_all(descriptor: int, data: bytes, start: int, give_up: threading.Event) -> None:
    """Write bytes at a place in a file, unless told to give up meanwhile."""
    remaining = memoryview(data)
    while remaining and not give_up.is_set():
        written = os.pwrite(descriptor, remaining[:_WRITE_BYTES], start)
        start, remaining = start + written, remaining[written:]


def _move_into_place(temporary: Path, target: Path, *, overwrite: bool, if_match: str | None) -> str:
    version = file_version(temporary.stat())
    if not overwrite:
        _move_unless_taken(temporary, target)
    else:
        with _locked(target.parent):
            if if_match is not None:
                _check_version(target, if_match)
            temporary.replace(target)
    _flush_directory(target.parent)
    return version


def _move_unless_taken(temporary: Path, target: Path) -> None:
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
    else:
        temporary.unlink()


def _check_version(target: Path, if_match: str) -> None:
    try:
        found = file_version(target.stat())
    except FileNotFoundError:
        found = None
    if found != if_match:
        raise version_gone(str(target), if_match, found_etag=found)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, so that comparing a version and replacing the file is one step."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # which also unlocks


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_GROWING_FILE = "inode-"
"""How the version of a file begins that is its identity alone."""


class LocalStore(PlainStore):
    """Files under absolute paths. An object's version is its modification time, size and inode.

    Of a request with ``may_grow`` it is the inode alone, and with ``version_header_bytes`` the inode and those bytes.
    Each request opens its file anew, so nothing stays open between requests.

    Args:
        within: A directory or file that was asked for. Symbolic links that lead out of it, or out of the directory of
            the file, are refused, so that a table from elsewhere cannot make its reader read other files. None follows all.

    Raises:
        InvalidInputError: ``within`` cannot be a path.
    """

    label = "local files"

    def __init__(self, *, within: str | None = None) -> None:
        self._roots: tuple[str, ...] = ()
        if within is not None:
            with translated_errors(within, None):
                directory = within if os.path.isdir(within) else os.path.dirname(within)  # noqa: PTH112, PTH120 - as given
                self._roots = (os.path.realpath(within), os.path.realpath(directory))

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Read one range of a file; see :class:`~coldparquet.storage.base.ObjectStore`."""
        return await asyncio.to_thread(self._read, request)

    async def info(self, path: str) -> ObjectInfo:
        """Tell size, time and version of one file."""
        return await asyncio.to_thread(self._info, path)

    async def infos_at_hand(self, paths: Sequence[str]) -> tuple[ObjectInfo | None, ...]:
        """Tell size, time and version of files; links are followed, because nothing is read."""
        return await asyncio.to_thread(lambda: tuple(map(_info_if_there, paths)))

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:  # noqa: ARG002 - all is one page
        """List one directory. Hidden entries count; pipes, devices and dangling links are left out."""
        return await asyncio.to_thread(self._list_directory, path)

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        overwrite: bool,
        if_match: str | None = None,
        storage_class: str | None = None,  # noqa: ARG002 - disks have none
    ) -> str | None:
        """Write one file by way of a temporary one beside it; missing directories are made.

        When the call returns, the file is on the disk. When it raises or is cancelled, no temporary file is left.
        ``if_match`` holds against everybody who puts files through this library.
        """
        await asyncio.to_thread(self._check_links, path)
        return await run_to_end(partial(write_file, path, data, overwrite=overwrite, if_match=if_match))

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Choose a temporary file beside the path; missing directories are made."""
        await asyncio.to_thread(self._check_links, path)
        return await run_to_end(partial(start_upload, path, storage_class=storage_class))

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Write one part into the temporary file."""
        return await run_to_end(partial(write_part, upload, number, start=start, data=data))

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Flush the temporary file to the disk and give it its name."""
        return await run_to_end(partial(finish_upload, upload, parts, overwrite=overwrite))

    async def abort_upload(self, upload: Upload) -> None:
        """Remove the temporary file."""
        await run_to_end(partial(abort_upload, upload))

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Remove temporary files below ``path`` that were not written to since."""
        return await run_to_end(partial(remove_unfinished, path, started_before_s=started_before_s))

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove files, and their directories where these are empty then."""
        await asyncio.to_thread(self._check_parents, paths)
        await run_to_end(partial(delete_files, paths))

    async def aclose(self) -> None:
        """Do nothing: no file is open between requests."""

    def _read(self, request: RangeRequest) -> FetchedRange:
        self._check_links(request.path)
        return _read(request)

    def _info(self, path: str) -> ObjectInfo:
        self._check_links(path)
        return _info(path)

    def _list_directory(self, path: str) -> Listing:
        self._check_links(path)
        return _list_directory(path)

    def _check_parents(self, paths: Sequence[str]) -> None:
        """Check where files lie. A file that is a link itself may go: what it leads to stays."""
        for directory in {os.path.dirname(path) for path in paths}:  # noqa: PTH120 - as given
            self._check_links(directory)

    def _check_links(self, path: str) -> None:
        """Refuse a path that leads, by symbolic links, to where the caller did not ask to read."""
        if not self._roots:
            return
        try:
            target = os.path.realpath(path)
        except (OSError, ValueError):  # the request itself tells better what is wrong
            return
        if not any(target == root or target.startswith(f"{root.rstrip('/')}/") for root in self._roots):
            raise AccessError(
                f"a symbolic link leads out of {self._roots[-1]}, to {target}; if that is intended, pass the storage"
                " option follow_links=true",
                kind="LinkLeadsOutside",
                path=path,
            )


def _read(request: RangeRequest) -> FetchedRange:
    with translated_errors(request.path, request.byte_range):
        # Without O_NONBLOCK, opening a pipe waits for another process to write into it.
        descriptor = os.open(request.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            before = os.fstat(descriptor)
            _check_is_file(request.path, before)
            version = _version(descriptor, before, request)
            if request.if_match not in (None, version):
                raise object_changed(request, found_etag=version)
            found, size_bytes = clipped(request.byte_range, object_size_bytes=before.st_size), before.st_size
            data = _read_fully(descriptor, found)
            after = os.fstat(descriptor)
            if _version(descriptor, after, request) != version:
                raise ObjectChangedError(
                    "the file was written to while it was read; plan the read again", path=request.path
                )
            if request.may_grow and isinstance(request.byte_range, ByteRange) and after.st_size > size_bytes:
                # What was read may tell of bytes that were appended since the size was looked at.
                size_bytes = after.st_size
                longer = clipped(request.byte_range, object_size_bytes=size_bytes)
                data += _read_fully(descriptor, ByteRange(found.stop, longer.stop))
        finally:
            os.close(descriptor)
    return FetchedRange(
        data=data, start=found.start, etag=version, object_size_bytes=size_bytes, modified_s=before.st_mtime
    )


def _version(descriptor: int, status: os.stat_result, request: RangeRequest) -> str:
    """Return the version of an open file, in the words that the request asks for."""
    if request.version_header_bytes:
        header = os.pread(descriptor, request.version_header_bytes, 0)
        return f"header-{status.st_ino}-{hashlib.sha256(header).hexdigest()[:32]}"
    return f"{_GROWING_FILE}{status.st_dev}-{status.st_ino}" if request.may_grow else file_version(status)


def may_be_overwritten(version: str | None) -> bool:
    """Tell whether a version is that of a local file which may change and keep it, as with ``may_grow``."""
    return version is not None and version.startswith(_GROWING_FILE)


def _info(path: str) -> ObjectInfo:
    with translated_errors(path, None):
        status = os.stat(path)  # noqa: PTH116 - a Path would swallow trailing slashes
    _check_is_file(path, status)
    return _described(path, status)


def _described(path: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path=path, size_bytes=status.st_size, etag=file_version(status), modified_s=status.st_mtime)


def _info_if_there(path: str) -> ObjectInfo | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - as in _info; thousands may be asked for, for every question
    except (OSError, ValueError):
        return None
    return _described(path, status) if stat.S_ISREG(status.st_mode) else None


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
    with translated_errors(path, None, wanted="directory"), os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            try:
                status = entry.stat()
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ELOOP):  # a link to nothing, or removed since it was listed
                    continue
                raise
            if stat.S_ISDIR(status.st_mode):
                directories.append(f"{parent}/{entry.name}")
            elif stat.S_ISREG(status.st_mode):
                objects.append(_described(f"{parent}/{entry.name}", status))
    return Listing(directories=tuple(directories), objects=tuple(objects))


def _check_is_file(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise NotFoundError("this is a directory; a file was expected", kind="IsADirectory", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise StorageError("this is a pipe, device or socket; a file was expected", kind="NotARegularFile", path=path)
