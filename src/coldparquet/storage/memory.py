"""Objects in a dictionary: for documentation, tests and small experiments."""

from __future__ import annotations

import time
import zlib
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct, field

from coldparquet.errors import NotFoundError
from coldparquet.records import replace
from coldparquet.storage.base import PlainStore
from coldparquet.storage.refusals import already_exists, object_changed, version_gone
from coldparquet.storage.requests import (
    FetchedRange,
    Listing,
    ObjectInfo,
    RangeRequest,
    StoredChecksum,
    Upload,
    UploadedPart,
    clipped,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class MemoryStore(PlainStore):
    """An object store inside this process. Its contents vanish with it.

    Args:
        objects: What it holds at first: content by path.
    """

    label = "memory"
    has_version_listings = True

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        self._objects: dict[str, _Stored] = {}
        self._uploads: dict[str, _Parts] = {}
        self._upload_ids = count(1)
        self._versions = 0
        for path, data in (objects or {}).items():
            self._write(path, data)

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Copy one range out of an object; see :class:`~coldparquet.storage.base.ObjectStore`."""
        stored = self._object(request.path)
        if request.if_match is not None and request.if_match != stored.etag:
            raise object_changed(request, found_etag=stored.etag)
        found = clipped(request.byte_range, object_size_bytes=len(stored.data))
        return FetchedRange(
            data=stored.data[found.start : found.stop],
            start=found.start,
            etag=stored.etag,
            object_size_bytes=len(stored.data),
            modified_s=stored.modified_s,
        )

    async def info(self, path: str) -> ObjectInfo:
        """Tell size, version and CRC-32 of one object."""
        stored = self._object(path)
        return replace(_listed(path, stored), checksum=StoredChecksum(value=zlib.crc32(stored.data)))

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:  # noqa: ARG002 - all is one page
        """List one level; a directory exists while it holds an object."""
        prefix = f"{path.rstrip('/')}/" if path else ""
        directories: set[str] = set()
        objects: list[ObjectInfo] = []
        for found, stored in self._objects.items():
            if not found.startswith(prefix):
                continue
            child, below, _ = found[len(prefix) :].partition("/")
            if below:
                directories.add(prefix + child)
            else:
                objects.append(_listed(found, stored))
        if not directories and not objects:
            raise NotFoundError("nothing lies below this path", path=path)
        return Listing(
            directories=tuple(sorted(directories)), objects=tuple(sorted(objects, key=lambda info: info.path))
        )

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        """List the objects between two paths, with their versions."""
        prefix = f"{path.rstrip('/')}/"
        between = [
            _listed(found, stored)
            for found, stored in self._objects.items()
            if found.startswith(prefix) and start < found < stop
        ]
        return tuple(sorted(between, key=lambda info: info.path))

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str:
        """Write one object; see :class:`~coldparquet.storage.base.ObjectStore`."""
        found = self._objects.get(path)
        if not overwrite and found is not None:
            raise already_exists(path)
        if if_match is not None and (found is None or found.etag != if_match):
            raise version_gone(path, if_match, found_etag=found.etag if found else None)
        return self._write(path, data, storage_class)

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Begin to collect parts."""
        upload = Upload(path=path, upload_id=f"upload-{next(self._upload_ids)}", storage_class=storage_class)
        self._uploads[upload.upload_id] = _Parts(path=path, started_s=time.time())
        return upload

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:  # noqa: ARG002 - parts are joined by number
        """Keep one part."""
        self._parts(upload).data[number] = bytes(data)
        return UploadedPart(number=number, size_bytes=len(data), etag=str(number), crc32=zlib.crc32(data))

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str:
        """Join the parts."""
        collected = self._parts(upload).data
        data = b"".join(collected[part.number] for part in parts)
        etag = await self.put(upload.path, data, overwrite=overwrite, storage_class=upload.storage_class)
        del self._uploads[upload.upload_id]
        return etag

    async def abort_upload(self, upload: Upload) -> None:
        """Forget the parts."""
        self._uploads.pop(upload.upload_id, None)

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Forget the parts of older uploads below ``path``."""
        prefix = f"{path.rstrip('/')}/"
        old = [
            upload_id
            for upload_id, parts in self._uploads.items()
            if parts.path.startswith(prefix) and parts.started_s < started_before_s
        ]
        for upload_id in old:
            del self._uploads[upload_id]
        return len(old)

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove objects."""
        for path in paths:
            self._objects.pop(path, None)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _object(self, path: str) -> _Stored:
        try:
            return self._objects[path]
        except KeyError:
            raise NotFoundError("there is no such object", path=path) from None

    def _parts(self, upload: Upload) -> _Parts:
        try:
            return self._uploads[upload.upload_id]
        except KeyError:
            raise NotFoundError(
                "this upload was finished or aborted; begin it again", kind="NoSuchUpload", path=upload.path
            ) from None

    def _write(self, path: str, data: bytes, storage_class: str | None = None) -> str:
        self._versions += 1
        self._objects[path] = _Stored(
            data=bytes(data), etag=str(self._versions), modified_s=time.time(), storage_class=storage_class
        )
        return str(self._versions)


class _Stored(Struct, frozen=True, kw_only=True):
    """One object."""

    data: bytes
    etag: str
    modified_s: float
    storage_class: str | None


class _Parts(Struct, kw_only=True):
    """An upload under way."""

    path: str
    started_s: float
    data: dict[int, bytes] = field(default_factory=dict)
    """By number."""


def _listed(path: str, stored: _Stored) -> ObjectInfo:
    return ObjectInfo(
        path=path,
        size_bytes=len(stored.data),
        etag=stored.etag,
        modified_s=stored.modified_s,
        storage_class=stored.storage_class,
    )
