"""Writing files so that others see all of one or nothing, and that a crash loses none that was reported as written.

Everything here blocks, and runs in a thread that cancelling waits for (:func:`~coldparquet.storage.threads.run_to_end`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import uuid
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.errors import StorageError
from coldparquet.storage.local.errors import translated_errors
from coldparquet.storage.objects import Upload, UploadedPart
from coldparquet.storage.refusals import already_exists, version_gone

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

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
                _write_all(descriptor, data, 0, give_up)
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
            _write_all(descriptor, data, start, give_up)
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
        # Still empty, the directory went when somebody else removed the last file that had been in it.
        make_directory(temporary.parent)
        return os.open(temporary, flags, _FILE_MODE)


def _write_all(descriptor: int, data: bytes, start: int, give_up: threading.Event) -> None:
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
