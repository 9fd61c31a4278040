"""Objects in a dictionary: for documentation, tests and small experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import NotFoundError
from coldparquet.storage.base import (
    FetchedRange,
    Listing,
    ObjectInfo,
    RangeRequest,
    already_exists,
    clipped,
    object_changed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class MemoryStore:
    """An object store inside this process. Its contents vanish with it.

    Args:
        objects: What it holds at first: content by path.
    """

    label = "memory"

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        self._objects: dict[str, tuple[bytes, str]] = {}
        self._versions = 0
        for path, data in (objects or {}).items():
            self._write(path, data)

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Copy one range out of an object; see :class:`~coldparquet.storage.base.ObjectStore`."""
        data, etag = self._object(request.path)
        if request.if_match is not None and request.if_match != etag:
            raise object_changed(request, found_etag=etag)
        found = clipped(request.byte_range, object_size_bytes=len(data))
        return FetchedRange(
            data=data[found.start : found.stop], start=found.start, etag=etag, object_size_bytes=len(data)
        )

    async def list(self, path: str) -> Listing:
        """List one level; a directory exists while it holds an object."""
        prefix = f"{path.rstrip('/')}/" if path else ""
        directories: set[str] = set()
        objects: list[ObjectInfo] = []
        for found, (data, etag) in self._objects.items():
            if not found.startswith(prefix):
                continue
            child, below, _ = found[len(prefix) :].partition("/")
            if below:
                directories.add(prefix + child)
            else:
                objects.append(ObjectInfo(path=found, size_bytes=len(data), etag=etag))
        if not directories and not objects:
            raise NotFoundError("nothing lies below this path", path=path)
        return Listing(directories=tuple(sorted(directories)), objects=tuple(sorted(objects, key=_path)))

    async def put(self, path: str, data: bytes, *, overwrite: bool) -> None:
        """Write one object; see :class:`~coldparquet.storage.base.ObjectStore`."""
        if not overwrite and path in self._objects:
            raise already_exists(path)
        self._write(path, data)

    def delete(self, path: str) -> None:
        """Remove one object.

        Raises:
            NotFoundError: There is none.
        """
        self._object(path)
        del self._objects[path]

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _object(self, path: str) -> tuple[bytes, str]:
        try:
            return self._objects[path]
        except KeyError:
            raise NotFoundError("there is no such object", path=path) from None

    def _write(self, path: str, data: bytes) -> None:
        self._versions += 1
        self._objects[path] = (bytes(data), str(self._versions))


def _path(info: ObjectInfo) -> str:
    return info.path
