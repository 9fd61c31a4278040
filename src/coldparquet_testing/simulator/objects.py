"""Presents a directory as a store: its first level of folders are buckets, the files below them objects."""

from __future__ import annotations

import hashlib
import os
import stat
from bisect import bisect_right
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http import HTTPStatus


_STAGING_FOLDER = ".cold-store-staging"
"""Folder of incomplete uploads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One file as an object. Its ETag derives from size, time and inode, so it changes with the file."""

    key: str
    """Name inside the bucket, with ``/`` between its parts."""
    size_bytes: int
    """Length of the file."""
    modified_ns: int
    """Modification time in nanoseconds since 1970."""
    inode: int
    """Inode number: times are coarse, so two files of equal size may have the same time."""

    @property
    def etag(self) -> str:
        """The quoted ETag."""
        return _etag(self.size_bytes, self.modified_ns, self.inode)

    @property
    def last_modified(self) -> str:
        """The modification time as HTTP writes it."""
        return _http_date(self.modified_ns // 1_000_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedObject:
    """An object whose file is open."""

    stored: StoredObject
    descriptor: int
    """File descriptor; valid inside of :meth:`DirectoryStore.opened`."""

    def read(self, start: int, length_bytes: int) -> bytes:
        """Return the bytes from ``start`` on; fewer when the file was cut short meanwhile."""
        return os.pread(self.descriptor, length_bytes, start)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """One page of a ListObjectsV2 answer."""

    objects: tuple[StoredObject, ...]
    """Objects under the prefix that no common prefix hides, in order of their keys."""
    common_prefixes: tuple[str, ...]
    """The rolled-up ``directories``, each with the delimiter at its end."""
    next_after: str | None
    """The next page begins behind this name; None on the last page."""


class DirectoryStore:
    """The files below ``root``. Symbolic links are not followed, so all reads and writes stay inside.

    Args:
        root: Directory whose folders are the buckets.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    def buckets(self) -> list[str]:
        """Return the names of all buckets, sorted."""
        with os.scandir(self._root) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def has_bucket(self, bucket: str) -> bool:
        """Tell whether ``bucket`` is a folder of the root."""
        path = self._inside(bucket)
        return path is not None and os.path.isdir(path)  # noqa: PTH112 - os.path costs a tenth of pathlib here

    @contextmanager
    def opened(self, bucket: str, key: str, *, version_id: str | None = None) -> Iterator[OpenedObject | None]:
        """Yield the object with its file open, or None when there is no regular file of that name.

        Size and ETag are those of the open file, so an object that is replaced meanwhile is still read whole.

        Args:
            bucket: Name of the bucket.
            key: Name of the object.
            version_id: Its required version; None accepts any.
        """
        path = self._inside(bucket, *key.split("/"))
        if path is None:
            yield None
            return
        with self.opened_file(path, key) as opened:
            if opened is not None and version_id is not None and opened.stored.etag.strip('"') != version_id:
                yield None
            else:
                yield opened

    @contextmanager
    def opened_file(self, path: str, key: str) -> Iterator[OpenedObject | None]:
        """Yield a file as the object of a key."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            yield None
            return
        try:
            status = os.fstat(descriptor)
            stored = StoredObject(
                key=key, size_bytes=status.st_size, modified_ns=status.st_mtime_ns, inode=status.st_ino
            )
            yield OpenedObject(stored=stored, descriptor=descriptor) if stat.S_ISREG(status.st_mode) else None
        finally:
            os.close(descriptor)

    def list_page(self, bucket: str, *, prefix: str, delimiter: str, after: str, max_keys: int) -> ListPage:
        """Return one page of the objects whose keys start with ``prefix``, as ListObjectsV2 defines it.

        Args:
            bucket: Name of an existing bucket.
            prefix: Start of the keys.
            delimiter: Keys with it behind the prefix are rolled up; empty for a flat listing.
            after: Only names behind this one: ``start-after``, or the ``next_after`` of the page before.
            max_keys: Largest number of objects and common prefixes together.
        """
        entries: dict[str, StoredObject | None] = {}
        parent = prefix.rpartition("/")[0]
        folder = self._inside(bucket, *(parent.split("/") if parent else ()))
        for found in _walk(folder, f"{parent}/" if parent else "") if folder else ():
            if not found.key.startswith(prefix):
                continue
            end = found.key.find(delimiter, len(prefix)) if delimiter else -1
            if end >= 0:
                entries[found.key[: end + len(delimiter)]] = None
            else:
                entries[found.key] = found
        # S3 orders keys by their UTF-8 bytes, which is the order of code points.
        names = sorted(entries)
        begin = bisect_right(names, after)
        chosen = names[begin : begin + max_keys]
        more = chosen and begin + max_keys < len(names)
        return ListPage(
            objects=tuple(listed for name in chosen if (listed := entries[name])),
            common_prefixes=tuple(name for name in chosen if entries[name] is None),
            next_after=chosen[-1] if more else None,
        )

    def path_of(self, bucket: str, key: str) -> str | None:
        """Return the file path of an object, even if it does not exist; None for keys that cannot be file names."""
        return self._inside(bucket, *key.split("/"))

    def staging_folder(self, bucket: str) -> Path:
        """Return a folder on the same disk as a bucket's objects that no listing shows."""
        return Path(self._root, bucket, _STAGING_FOLDER)

    def _inside(self, *parts: str) -> str | None:
        """Return the path of ``parts`` below the root, or None when it would lead outside or over a link."""
        if any(part in ("", ".", "..", _STAGING_FOLDER) or "/" in part or "\0" in part for part in parts):
            return None
        path = os.path.join(self._root, *parts)  # noqa: PTH118 - as above
        return path if os.path.realpath(path) == path else None


@lru_cache(maxsize=4096)
def _etag(*version: int) -> str:
    digest = hashlib.blake2b(":".join(map(str, version)).encode(), digest_size=16)
    return f'"{digest.hexdigest()}"'


@lru_cache(maxsize=4096)
def _http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def _walk(folder: str, key_prefix: str) -> Iterator[StoredObject]:
    """Yield every regular file below ``folder``, in no particular order; a missing folder has none."""
    try:
        with os.scandir(folder) as scanned:
            entries = list(scanned)
    except OSError:
        return
    for entry in entries:
        if entry.name == _STAGING_FOLDER:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{key_prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):  # deleted since the scan
                status = entry.stat(follow_symlinks=False)
                yield StoredObject(
                    key=f"{key_prefix}{entry.name}",
                    size_bytes=status.st_size,
                    modified_ns=status.st_mtime_ns,
                    inode=status.st_ino,
                )


class AnswerError(Exception):
    """An answer that is an S3 error document."""

    def __init__(
        self, status: HTTPStatus, code: str, message: str, *, headers: dict[str, str] | None = None, **facts: str
    ) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}
        self.facts = facts
