"""Fetched ranges in memory: nothing is fetched twice, and requests for the same range share one answer."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from coldparquet.concurrency import run_to_end
from coldparquet.errors import ObjectChangedError
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import OBJECT_WRITES, StoreWrapper
from coldparquet.storage.log import note_cache_hit
from coldparquet.storage.requests import FetchedRange, clipped, is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from coldparquet.ranges import SuffixRange
    from coldparquet.storage.base import Answer, Call
    from coldparquet.storage.checked import CheckedStore
    from coldparquet.storage.disk_cache import DiskRanges
    from coldparquet.storage.requests import RangeRequest


class CachedStore(StoreWrapper):
    """Answer from what was fetched before, as long as it is of the version that the object is pinned to.

    Only versions of object stores are kept (:func:`~coldparquet.storage.requests.is_lasting_etag`), so never local files. Where
    an object is not pinned yet and a range of it is held, the store is asked whether that is still the version, by one
    request without an answer's bytes (If-None-Match).

    What is answered from here is checked as if the store had answered, and is no request: no ledger shows it.

    Args:
        store: Pins versions. Closing this store closes it.
        ranges: Where ranges are kept in memory; None keeps none. It may outlive this store.
        disk: Where they are kept between runs; None keeps none.
    """

    def __init__(
        self, store: CheckedStore, *, ranges: RangeCache | None = None, disk: DiskRanges | None = None
    ) -> None:
        super().__init__(store)
        self._checked = store
        self._ranges = ranges
        self._disk = disk
        self._in_flight: dict[_Question, asyncio.Future[FetchedRange]] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        """By path: held by whoever asks whether a version is still the newest."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range, unless it is held. 1 request or none.

        Raises what :meth:`CheckedStore.get` raises.
        """
        if self._ranges is None or request.version_header_bytes or request.if_none_match is not None:
            return await self._checked.get(request)
        try:
            held = await self._held(request)
            return await self._share(request) if held is None else held
        except ObjectChangedError:
            self._ranges.forget(request.path)
            raise

    @property
    def largest_scan_bytes(self) -> int:
        """How much one scan may keep, so that it is all there when it is repeated."""
        in_memory = 0 if self._ranges is None else self._ranges.limit_bytes
        on_disk = 0 if self._disk is None else self._disk.limit_bytes // 2
        return max(in_memory, on_disk)

    def adopt(self, earlier: CachedStore, directories: Collection[str]) -> None:
        """Pin objects as another store of the same table did, see :meth:`CheckedStore.adopt`."""
        self._checked.adopt(earlier._checked, directories)

    def pin(self, path: str, etag: str) -> None:
        """See :meth:`CheckedStore.pin`."""
        self._checked.pin(path, etag)

    def check_version(self, path: str, etag: str) -> None:
        """Pin an object, or refuse another version; see :meth:`CheckedStore.check_version`."""
        self._checked.check_version(path, etag)

    def expect_packed(self, path: str, etag: str | None) -> None:
        """See :meth:`CheckedStore.expect_packed`."""
        self._checked.expect_packed(path, etag)

    def lasting_etag(self, path: str) -> str | None:
        """See :meth:`CheckedStore.lasting_etag`."""
        return self._checked.lasting_etag(path)

    def note_changed(self, path: str) -> None:
        """Note that an object has another version than somebody relied on, who found out without a GET."""
        self._checked.note_changed(path)

    def has_changed(self, path: str) -> bool:
        """Tell whether somebody found another version of the object than he relied on."""
        return self._checked.has_changed(path)

    async def send(self, call: Call[Answer]) -> Answer:
        """Make a call, and forget the object that it writes."""
        if call.operation in OBJECT_WRITES:
            self._forget((call.path,))
        return await call.make(self._store)

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove through the store within, and forget what was there."""
        self._forget(paths)
        await super().delete(paths)

    async def _held(self, request: RangeRequest) -> FetchedRange | None:
        """Return what is held of the version that the request must see."""
        path, etag = request.path, request.if_match or self._checked.lasting_etag(request.path)
        if etag is None:
            newest = await self._newest_etag(path)
            held = None if newest is None else await self._find(request, newest)
            return None if held is None else await self._unless_replaced(request, held)
        held = await self._find(request, etag)
        return None if held is None else self._checked_hit(request, held)

    async def _unless_replaced(self, request: RangeRequest, held: FetchedRange) -> FetchedRange | None:
        """Ask whether the object still has the version of which a range is held; of several at once, one asks."""
        async with self._asking.setdefault(request.path, asyncio.Lock()):
            pinned = self._checked.lasting_etag(request.path)
            if pinned is None:
                answer = await self._share(replace(request, if_none_match=held.etag))
                if not answer.is_unchanged:
                    return answer
                self._checked.check(request, held)
                return replace(held, is_from_cache=True)
        return self._checked_hit(request, held) if pinned == held.etag else None

    def _checked_hit(self, request: RangeRequest, held: FetchedRange) -> FetchedRange:
        self._checked.check(request, held)
        note_cache_hit(len(held.data))
        return replace(held, is_from_cache=True)

    async def _share(self, request: RangeRequest) -> FetchedRange:
        """Fetch a range, or wait for somebody who is fetching it already."""
        question = _question(request)
        while (in_flight := self._in_flight.get(question)) is not None:
            await asyncio.wait([in_flight])  # whoever gives up must not take the answer from the others
            if not in_flight.cancelled():
                answer = in_flight.result()
                note_cache_hit(len(answer.data))
                return replace(answer, is_from_cache=True)
        in_flight = self._in_flight[question] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._checked.get(request)
        except Exception as error:
            in_flight.set_exception(error)
            in_flight.exception()  # perhaps nobody waits
            raise
        else:
            in_flight.set_result(answer)
        finally:
            in_flight.cancel()  # unless it is done: those who wait ask themselves
            del self._in_flight[question]
        await self._keep(request, answer)
        return answer

    async def _newest_etag(self, path: str) -> str | None:
        newest = None if self._ranges is None else self._ranges.newest_etag(path)
        if newest is None and self._disk is not None:
            newest = await asyncio.to_thread(self._disk.newest_etag, path)
        return newest

    async def _find(self, request: RangeRequest, etag: str) -> FetchedRange | None:
        path, asked = request.path, request.byte_range
        held = None if self._ranges is None else self._ranges.find(path, etag, asked)
        if held is None and self._disk is not None and is_lasting_etag(etag):
            held = await asyncio.to_thread(self._disk.find, path, etag, asked)
            if held is not None and self._ranges is not None and request.may_be_kept:
                self._ranges.keep(path, held)
        return held

    async def _keep(self, request: RangeRequest, answer: FetchedRange) -> None:
        if not request.may_be_kept or answer.is_unchanged or not is_lasting_etag(answer.etag):
            return
        if self._ranges is not None:
            self._ranges.keep(request.path, answer)
        if self._disk is not None:
            keep = partial(self._disk.keep, request.path, answer)
            await run_to_end(lambda _: keep())

    def _forget(self, paths: Sequence[str]) -> None:
        if self._ranges is not None:
            for path in paths:
                self._ranges.forget(path)


_Question: TypeAlias = tuple[object, ...]


def _question(request: RangeRequest) -> _Question:
    """Return what makes two requests the same: all but what they are for."""
    return (
        request.path,
        request.byte_range,
        request.if_match,
        request.if_none_match,
        request.expected_etag,
        request.object_bytes,
        request.may_be_short,
        request.may_grow,
    )


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
        """Keep what a store answered, unless it is longer than all that may be held. Its version becomes the one that is held."""
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
