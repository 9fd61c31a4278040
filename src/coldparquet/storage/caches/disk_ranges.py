"""Fetched ranges in a :class:`~coldparquet.storage.caches.disk_cache.DiskCache`: a new process asks for none of them again."""

from __future__ import annotations

import hashlib
import json
import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from coldparquet.ranges import ByteRange
from coldparquet.storage.caches.disk_cache import group_of
from coldparquet.storage.objects import is_lasting_etag
from coldparquet.storage.requests import FetchedRange, clipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coldparquet.ranges import SuffixRange
    from coldparquet.storage.caches.disk_cache import DiskCache

_NEWEST = "newest"

_PART_BYTES = 1024 * 1024
"""Entries are read and checked as a whole: whoever wants a part of a long range should not have to read all of it."""

_Bounds: TypeAlias = tuple[int, int]
"""Start and stop of a kept range; thousands of them are sorted and searched."""


class _Version(NamedTuple):
    """The version of an object that was kept last."""

    etag: str
    object_size_bytes: int | None


class DiskRanges:
    """The ranges of one store's objects. All calls block, and none fails: what is not there is fetched.

    Safe to use from many threads. An object is a group: its entry ``newest`` says which version was kept last, and each
    range of a version is an entry named by a digest of the ETag and its bounds; long ones are cut into several.

    Args:
        files: Where they are kept.
        store_name: Returns a name of the store that no other store has. It is asked each time: a store may learn with its first
            request where it is.
    """

    def __init__(self, files: DiskCache, *, store_name: Callable[[], str]) -> None:
        self._files = files
        self._store_name = store_name
        self._newest: dict[str, _Version] = {}
        """What was read or written last, by group."""
        self._bounds: dict[tuple[str, str], list[_Bounds]] = {}
        """By group and version: what was there when it was first looked at, and what was written here since, in order. What
        other processes write meanwhile is found under its own name, but not put together with more."""
        self._lock = threading.Lock()

    @property
    def limit_bytes(self) -> int:
        """Most that is kept."""
        return self._files.limit_bytes

    def newest_etag(self, path: str) -> str | None:
        """Return the version of an object that was kept last.

        Args:
            path: The object.
        """
        version = self._read_newest(group_of(self._store_name(), path))
        return None if version is None else version.etag

    def find(self, path: str, etag: str, asked: ByteRange | SuffixRange) -> FetchedRange | None:
        """Return a range of a version as the store would answer it; None unless all of it is kept."""
        group = group_of(self._store_name(), path)
        newest = self._newest.get(group)
        if newest is None or newest.etag != etag:
            newest = self._read_newest(group)
        size_bytes = newest.object_size_bytes if newest is not None and newest.etag == etag else None
        if size_bytes is not None:
            asked = clipped(asked, object_size_bytes=size_bytes)
        if not isinstance(asked, ByteRange) or not asked.length_bytes:
            return None
        data = self._join(group, etag, asked)
        if data is None:
            return None
        return FetchedRange(data=data, start=asked.start, etag=etag, object_size_bytes=size_bytes)

    def keep(self, path: str, fetched: FetchedRange) -> None:
        """Keep what a store answered, unless it has no lasting ETag."""
        if not is_lasting_etag(fetched.etag) or not fetched.data:
            return
        group, version = group_of(self._store_name(), path), _Version(fetched.etag, fetched.object_size_bytes)
        if self._newest.get(group) != version:
            self._files.write(group, _NEWEST, json.dumps(version).encode())
            self._newest[group] = version
        for offset in range(0, len(fetched.data), _PART_BYTES):
            content = fetched.data[offset : offset + _PART_BYTES]
            bounds = (fetched.start + offset, fetched.start + offset + len(content))
            self._files.write(group, _name(fetched.etag, bounds), content)
            self._note(group, fetched.etag, bounds)

    def _join(self, group: str, etag: str, wanted: ByteRange) -> bytes | None:
        """Put a range together from kept ones."""
        exact = self._files.read(group, _name(etag, (wanted.start, wanted.stop)))
        if exact is not None:
            return exact
        with self._lock:
            if (group, etag) not in self._bounds:
                self._bounds[group, etag] = sorted(_bounds_of(self._files.names(group), etag))
            chosen = covering(self._bounds[group, etag], wanted)
        parts, reached = list[bytes](), wanted.start
        for start, stop in chosen:
            content = self._files.read(group, _name(etag, (start, stop)))
            if content is None or len(content) != stop - start:
                self._forget(group, etag, (start, stop))
                return None
            parts.append(content[reached - start : wanted.stop - start])
            reached += len(parts[-1])
        return b"".join(parts) if reached == wanted.stop else None

    def _note(self, group: str, etag: str, bounds: _Bounds) -> None:
        """Note that a range was written, unless nobody has looked yet what is there."""
        with self._lock:
            known = self._bounds.get((group, etag))
            if known is not None:
                place = bisect_left(known, bounds)
                if known[place : place + 1] != [bounds]:
                    known.insert(place, bounds)

    def _forget(self, group: str, etag: str, bounds: _Bounds) -> None:
        """Note that a range is gone: another process made room, or somebody damaged it."""
        with self._lock:
            known = self._bounds[group, etag]
            if bounds in known:  # else somebody else has noticed
                known.remove(bounds)

    def _read_newest(self, group: str) -> _Version | None:
        content = self._files.read(group, _NEWEST)
        if content is None:
            return None
        try:
            etag, size_bytes = json.loads(content)
        except (ValueError, TypeError):
            return None
        if not isinstance(etag, str) or not is_lasting_etag(etag) or not isinstance(size_bytes, int | None):
            return None
        version = self._newest[group] = _Version(etag, size_bytes)
        return version


def covering(kept: Sequence[_Bounds], wanted: ByteRange) -> list[_Bounds]:
    """Choose few of the kept ranges, in order, that together hold all of a range; none if they do not.

    Args:
        kept: Start and stop of each, sorted.
        wanted: The range.
    """
    chosen, reached = list[_Bounds](), wanted.start
    best: _Bounds | None = None  # of those that begin where the chosen ones end, or before, the one that goes furthest
    for bounds in kept:
        start, stop = bounds
        if start > reached:
            if best is None or start > best[1]:
                break
            chosen.append(best)
            reached, best = best[1], None
        if reached >= wanted.stop:
            break
        if stop > reached and (best is None or stop > best[1]):
            best = bounds
    if reached < wanted.stop and best is not None:
        chosen.append(best)
        reached = best[1]
    return chosen if reached >= wanted.stop else []


def _name(etag: str, bounds: _Bounds) -> str:
    start, stop = bounds
    return f"{_version_name(etag)}-{start}-{stop}"


def _version_name(etag: str) -> str:
    return hashlib.blake2b(etag.encode(), digest_size=12).hexdigest()


def _bounds_of(names: Iterable[str], etag: str) -> list[_Bounds]:
    """Return the bounds of the ranges of one version."""
    version_name, found = _version_name(etag), list[_Bounds]()
    for name in names:
        version, _, bounds = name.partition("-")
        start, _, stop = bounds.partition("-")
        if version == version_name and start.isdecimal() and stop.isdecimal() and int(start) < int(stop):
            found.append((int(start), int(stop)))
    return found
