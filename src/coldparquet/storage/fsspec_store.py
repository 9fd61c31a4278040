"""Any fsspec filesystem as a store: Google Cloud, Azure, GitHub, SFTP, archives and what else there is.

Asynchronous filesystems are awaited, all others run in threads. fsspec tells no version with the bytes it reads, so
answers carry neither ETag nor object size: a replaced object is noticed only where its length gives it away. For the
same reason nothing can be written on the condition that a version is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import re
import tempfile
import time
import uuid
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldparquet.concurrency import run_to_end
from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.base import PlainStore
from coldparquet.storage.local import write_all
from coldparquet.storage.refusals import already_exists, no_object_size, no_versions
from coldparquet.storage.requests import FetchedRange, Listing, ObjectInfo, RangeRequest, Upload, UploadedPart, clipped

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Sequence

    from fsspec import AbstractFileSystem


class StagedUploads:
    """The steps of an upload but the last, which hands the file ``Upload.upload_id`` to the store.

    Stores derive from it.
    """

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Choose a temporary file, which collects the parts."""
        name = f"{tempfile.gettempdir()}/coldparquet-{uuid.uuid4().hex}.upload"
        return Upload(path=path, upload_id=name, storage_class=storage_class)

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Write one part into the temporary file."""
        await run_to_end(partial(_write_at, upload.upload_id, data, start))
        return UploadedPart(number=number, size_bytes=len(data), etag=str(number), crc32=zlib.crc32(data))

    async def abort_upload(self, upload: Upload) -> None:
        """Remove the temporary file."""
        await asyncio.to_thread(Path(upload.upload_id).unlink, missing_ok=True)

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:  # noqa: ARG002 - see below
        """Do nothing: temporary files lie where this machine cleans up by itself."""
        return 0


def _write_at(name: str, data: bytes, start: int, give_up: threading.Event) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, data, start, give_up)
    finally:
        os.close(descriptor)


_PASSWORD = re.compile(r"(://)[^/\s@'\"]*@")
_QUERY = re.compile(r"(://[^\s?#'\"]*)[?#][^\s'\"]*")
_RANGE_NOT_SATISFIABLE = 416
_WRITES = frozenset({"pipe_file", "put_file", "rm_file"})
"""Methods whose end has to be waited for when they are cancelled."""


class FsspecStore(StagedUploads, PlainStore):
    """Read and write through an fsspec filesystem.

    Args:
        filesystem: An asynchronous one must have been made with ``asynchronous=True`` and without instance cache:
            its connections belong to the running event loop. Closing this store closes them.
        label: What to call it; must hold no secret.
        query: Appended to every path that the filesystem sees, ``"?X-Amz-Signature=..."``. It is kept out of paths so
            that no signature gets into errors, traces or plans.
    """

    def __init__(self, filesystem: AbstractFileSystem, *, label: str, query: str = "") -> None:
        self._filesystem = filesystem
        self._awaited = bool(filesystem.async_impl and filesystem.asynchronous)
        self._query = query
        self.label = label

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range. 1 request; 2 for a :class:`SuffixRange`, whose place in the object has to be asked for.

        See :class:`~coldparquet.storage.base.ObjectStore` for the errors.
        """
        self._refuse_condition(request.path, request.if_match)
        size_bytes = None
        asked = request.byte_range
        if isinstance(asked, SuffixRange):
            size_bytes = await self._object_size(request)
            if size_bytes is None:
                raise no_object_size(self.label, request.path)
            asked = clipped(asked, object_size_bytes=size_bytes)
        if asked.length_bytes == 0:
            return FetchedRange(data=b"", start=asked.start, etag=None, object_size_bytes=size_bytes)
        request = replace(request, byte_range=asked)
        try:
            data = bytes(await self._call("cat_file", request, start=asked.start, end=asked.stop))
        except _NothingThereError:
            data = b""
        return FetchedRange(data=data, start=asked.start, etag=None, object_size_bytes=size_bytes)

    async def info(self, path: str) -> ObjectInfo:
        """Tell the size of one object. Versions, times and checksums go by another name in every filesystem."""
        request = RangeRequest(path=path, byte_range=ByteRange(0, 0), reason="what is known of the object")
        return ObjectInfo(path=path, size_bytes=await self._object_size(request), etag=None)

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:  # noqa: ARG002 - all is one page
        """List one level."""
        self._filesystem.invalidate_cache(path)
        request = RangeRequest(path=path, byte_range=ByteRange(0, 0), reason="listing")
        entries = await self._call("ls", request, detail=True)
        directories: set[str] = set()
        objects: dict[str, ObjectInfo] = {}
        for entry in entries:
            name = _without_query(entry["name"]).rstrip("/")
            if name.strip("/") == path.strip("/"):  # several filesystems list the directory itself
                continue
            if entry["type"] == "directory":
                directories.add(name)
            else:
                objects[name] = ObjectInfo(path=name, size_bytes=entry.get("size"), etag=None)
        if not directories and not objects:
            raise NotFoundError("nothing lies below this path", path=path)
        return Listing(directories=tuple(sorted(directories)), objects=tuple(objects[name] for name in sorted(objects)))

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        overwrite: bool,
        if_match: str | None = None,
        storage_class: str | None = None,  # noqa: ARG002 - each filesystem has its own way to say this
    ) -> None:
        """Write one object, as atomically as the filesystem does it.

        Without ``overwrite``, looking for the object and writing it are two steps: fsspec has no single one.
        """
        self._refuse_condition(path, if_match)
        request = RangeRequest(path=path, byte_range=ByteRange(0, len(data)), reason="write")
        await self._refuse_existing(request, overwrite=overwrite)
        await self._call("pipe_file", request, data)

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> None:
        """Hand the temporary file to the filesystem."""
        size_bytes = sum(part.size_bytes for part in parts)
        request = RangeRequest(path=upload.path, byte_range=ByteRange(0, size_bytes), reason="write")
        await self._refuse_existing(request, overwrite=overwrite)
        await self._call("put_file", request, local_file=upload.upload_id)
        await self.abort_upload(upload)

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove objects, one after the other."""
        for path in paths:
            with contextlib.suppress(NotFoundError):
                await self._call("rm_file", RangeRequest(path=path, byte_range=ByteRange(0, 0), reason="delete"))

    async def aclose(self) -> None:
        """Close the connections of an asynchronous filesystem."""
        session = getattr(self._filesystem, "_session", None)
        if self._awaited and session is not None:
            closed = session.close()
            if inspect.isawaitable(closed):
                await closed

    def _refuse_condition(self, path: str, if_match: str | None) -> None:
        if if_match is not None:
            raise no_versions(self.label, path)

    async def _refuse_existing(self, request: RangeRequest, *, overwrite: bool) -> None:
        if not overwrite and await self._call("exists", request):
            raise already_exists(request.path)

    async def _object_size(self, request: RangeRequest) -> int | None:
        found = await self._call("info", request)
        if found.get("type") == "directory":
            raise NotFoundError("this is a directory; an object was expected", kind="IsADirectory", path=request.path)
        size_bytes: int | None = found.get("size")
        return size_bytes

    async def _call(
        self, method: str, request: RangeRequest, *arguments: Any, local_file: str | None = None, **options: Any
    ) -> Any:
        """Call one method of the filesystem on the request's object and translate what it raises."""
        path = request.path + self._query
        arguments = (path, *arguments) if local_file is None else (local_file, path, *arguments)
        started_s = time.monotonic()
        try:
            if self._awaited:
                operation: Callable[..., Awaitable[Any]] = getattr(self._filesystem, f"_{method}")
                return await operation(*arguments, **options)
            blocking: Callable[..., Any] = getattr(self._filesystem, method)
            if method in _WRITES:
                return await run_to_end(lambda _give_up: blocking(*arguments, **options))
            return await asyncio.to_thread(blocking, *arguments, **options)
        except Exception as error:  # noqa: BLE001 - each filesystem raises what its client library raises
            failure = _translated(error, request, elapsed_s=time.monotonic() - started_s)
        # Raised outside of the except block: the original may name signed URLs, and must not come along as context.
        raise failure


class _NothingThereError(Exception):
    """The range begins at or past the end of the object."""


def _translated(error: Exception, request: RangeRequest, *, elapsed_s: float) -> Exception:
    """Turn what a filesystem raised into this library's error: the only place that knows other libraries' errors."""
    if isinstance(error, ColdParquetError):
        return error
    status, code = _status_and_code(error)
    path = request.path
    cause = f"{type(error).__name__}: {without_secrets(str(error))}"
    translated: Exception
    if status == _RANGE_NOT_SATISFIABLE:
        translated = _NothingThereError()
    elif code == "InvalidObjectState":
        translated = ArchivedObjectError("the object is archived; restore it first", path=path, cause=cause)
    elif isinstance(error, PermissionError) or status in (401, 403):
        translated = AccessError(f"access was refused ({cause}); check the credentials", path=path)
    elif isinstance(error, FileNotFoundError | NotADirectoryError) or status in (404, 410):
        translated = NotFoundError("there is no such object", path=path)
    elif isinstance(error, IsADirectoryError):
        translated = NotFoundError("this is a directory; an object was expected", kind="IsADirectory", path=path)
    elif isinstance(error, NotImplementedError):
        translated = UnsupportedError(f"the filesystem cannot do this ({cause})", path=path)
    else:
        timed_out = isinstance(error, TimeoutError)
        translated = StorageError(
            f"no answer within {elapsed_s:.1f} s" if timed_out else f"the store failed ({cause})",
            kind="Timeout" if timed_out else None,
            path=path,
            byte_range=request.byte_range,
            attempts=1,
            elapsed_s=elapsed_s,
            status=status,
        )
    return translated


def _status_and_code(error: Exception) -> tuple[int | None, str | None]:
    """Find the HTTP status and the service's error code where the client libraries keep them."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode"), response.get("Error", {}).get("Code")
    for name in ("status", "status_code", "code"):  # aiohttp; azure and requests; gcsfs
        status = getattr(error, name, None)
        if isinstance(status, int | str) and str(status).isdecimal():
            return int(status), None
    return None, None


def without_secrets(text: str) -> str:
    """Cut query strings, fragments and passwords out of every URL in a text."""
    return _QUERY.sub(r"\1", _PASSWORD.sub(r"\1", text))


def _without_query(name: str) -> str:
    return name.partition("?")[0] if "://" in name else name
