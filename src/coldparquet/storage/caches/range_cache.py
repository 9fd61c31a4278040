"""Fetched ranges in memory: bounded, what was used longest ago goes first, and any part of what is held is answered."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coldparquet.ranges import ByteRange
from coldparquet.storage.requests import FetchedRange, clipped

if TYPE_CHECKING:
    from coldparquet.ranges import SuffixRange

PIECE_OVERHEAD_BYTES = 256
"""What keeping track of one piece costs, about; pieces may be as short as a block of a bloom filter."""


class RangeCache:
    """Pieces of objects, each of one version. Whoever asks says which version it must be.

    Of an object one version is held, the newest that was kept. Pieces of an object never overlap, and none is a part of a
    longer buffer, so that what is held is what is counted. Not for use by several threads.

    Args:
        limit_bytes: Most that is held, what keeping track costs included; 0 holds nothing.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._held_bytes = 0
        self._versions: dict[str, _Version] = {}
        self._pieces: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        """By path and where the piece begins, in the order of their last use."""

    @property
    def held_bytes(self) -> int:
        """How much is held, what keeping track costs included."""
        return self._held_bytes

    def newest_etag(self, path: str) -> str | None:
        """Return the version of which something is held."""
        version = self._versions.get(path)
        return None if version is None else version.etag

    def find(self, path: str, etag: str, asked: ByteRange | SuffixRange) -> FetchedRange | None:
        """Return a range of a version as the store would answer it; None unless all of it is held."""
        version = self._versions.get(path)
        if version is None or version.etag != etag:
            return None
        wanted = version.part_of(asked)
        if wanted is None:
            return None
        data = b"" if wanted.start == wanted.stop else self._join(path, version, wanted)
        if data is None:
            return None
        return FetchedRange(data=data, start=wanted.start, etag=etag, object_size_bytes=version.object_size_bytes)

    def keep(self, path: str, fetched: FetchedRange) -> None:
        """Keep what a store answered, unless it is longer than all that may be held. Its version becomes the one that is held.

        Args:
            path: The object.
            fetched: The answer, with an ETag.
        """
        length_bytes = len(fetched.data)
        if fetched.etag is None or not 0 < length_bytes <= self.limit_bytes - PIECE_OVERHEAD_BYTES:
            return
        version = self._versions.get(path)
        if version is not None and version.etag != fetched.etag:
            self.forget(path)
            version = None
        if version is None:
            version = self._versions[path] = _Version(fetched.etag)
        version.object_size_bytes = fetched.object_size_bytes or version.object_size_bytes
        for missing in self._missing(path, version, ByteRange(fetched.start, fetched.start + length_bytes)):
            piece = fetched.data[missing.start - fetched.start : missing.stop - fetched.start]
            # A slice of bytes, unlike one of a view, is a copy; the whole of it is itself.
            self._pieces[path, missing.start] = bytes(piece)
            insort(version.starts, missing.start)
            self._held_bytes += missing.length_bytes + PIECE_OVERHEAD_BYTES
        while self._held_bytes > self.limit_bytes:
            self._drop_oldest()

    def forget(self, path: str) -> None:
        """Drop all pieces of an object."""
        version = self._versions.pop(path, None)
        for start in [] if version is None else version.starts:
            self._held_bytes -= len(self._pieces.pop((path, start))) + PIECE_OVERHEAD_BYTES

    def _join(self, path: str, version: _Version, wanted: ByteRange) -> bytes | None:
        """Put a range together from pieces that lie side by side, and note that they were used."""
        first = bisect_right(version.starts, wanted.start) - 1
        if first < 0:
            return None
        parts: list[bytes] = []
        reached = wanted.start
        for start in version.starts[first : bisect_left(version.starts, wanted.stop)]:
            piece = self._pieces[path, start]
            if not start <= reached < start + len(piece):
                return None
            parts.append(piece[reached - start : wanted.stop - start])
            reached += len(parts[-1])
        if reached < wanted.stop:
            return None
        for start in version.starts[first : bisect_left(version.starts, wanted.stop)]:
            self._pieces.move_to_end((path, start))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _missing(self, path: str, version: _Version, fetched: ByteRange) -> list[ByteRange]:
        """Return the parts of a range that no piece holds, and note that the pieces which hold the others were used."""
        first = max(0, bisect_right(version.starts, fetched.start) - 1)
        missing, reached = list[ByteRange](), fetched.start
        for start in version.starts[first : bisect_left(version.starts, fetched.stop)]:
            if start > reached:
                missing.append(ByteRange(reached, start))
            reached = max(reached, start + len(self._pieces[path, start]))
            self._pieces.move_to_end((path, start))
        if reached < fetched.stop:
            missing.append(ByteRange(reached, fetched.stop))
        return missing

    def _drop_oldest(self) -> None:
        (path, start), piece = self._pieces.popitem(last=False)
        self._held_bytes -= len(piece) + PIECE_OVERHEAD_BYTES
        starts = self._versions[path].starts
        del starts[bisect_left(starts, start)]
        if not starts:
            del self._versions[path]


@dataclass(slots=True)
class _Version:
    """What is known of one version of an object."""

    etag: str
    object_size_bytes: int | None = None
    starts: list[int] = field(default_factory=list)
    """Where its pieces begin, in order."""

    def part_of(self, asked: ByteRange | SuffixRange) -> ByteRange | None:
        """Return the bytes that answer a request; None where that takes a size which nobody knows."""
        if self.object_size_bytes is not None:
            return clipped(asked, object_size_bytes=self.object_size_bytes)
        return asked if isinstance(asked, ByteRange) else None
