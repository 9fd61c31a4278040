"""Fetched ranges in memory: nothing is fetched twice, and requests for the same range share one answer."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from coldparquet.errors import ObjectChangedError
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.base import OBJECT_WRITES, StoreWrapper
from coldparquet.storage.log import note_cache_hit
from coldparquet.storage.refusals import object_changed
from coldparquet.storage.requests import FetchedRange, clipped, is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coldparquet.ranges import SuffixRange
    from coldparquet.storage.base import Answer, Call
    from coldparquet.storage.checked import CheckedStore
    from coldparquet.storage.requests import RangeRequest


class CachedStore(StoreWrapper):
    """Answer from what was fetched before, as long as it is of the version that the object is pinned to.

    Only versions of object stores are kept (:func:`~coldparquet.storage.requests.is_lasting_etag`), so never local files. Where
    no request about an object was answered yet and a range of it is held, the store is asked whether that is still the
    version, by one request without an answer's bytes (If-None-Match). Not where a listing for the same table shows that
    version, and this process fetched it with the same credentials: who may list may not always read.

    What is answered from here is checked as if the store had answered, and is no request: no ledger shows it.

    Args:
        store: Pins versions. Closing this store closes it.
        cache: What was fetched before; None keeps nothing. It may outlive this store.
    """

    def __init__(self, store: CheckedStore, cache: Cache | None = None) -> None:
        super().__init__(store)
        self.versions = store.versions
        """Which version of each object is read."""
        self._cache = cache
        self._in_flight: dict[RangeRequest, asyncio.Future[FetchedRange]] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        """By path: held by the task that asks whether a version is still the newest."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range, unless it is held. 1 request or none.

        Raises what :meth:`CheckedStore.get` raises.
        """
        if self._cache is None or request.version_header_bytes or request.if_none_match is not None:
            return await self._store.get(request)
        try:
            held = await self._held(self._cache, request)
            return await self._share(request) if held is None else held
        except ObjectChangedError:
            self._cache.forget(request.path)
            raise

    @property
    def largest_scan_bytes(self) -> int:
        """How much one scan may keep, so that it is all there when it is repeated."""
        return 0 if self._cache is None else self._cache.largest_scan_bytes

    async def send(self, call: Call[Answer]) -> Answer:
        """Make a call, and forget the object that it writes."""
        if call.operation in OBJECT_WRITES:
            self.forget((call.path,))
        return await call.make(self._store)

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove through the store within, and forget what was there."""
        self.forget(paths)
        await super().delete(paths)

    async def found_before(self, path: str, byte_range: ByteRange) -> FetchedRange | None:
        """Return a range that was fetched before with the same credentials, whichever version it is of. No request."""
        held = None if self._cache is None else await self._cache.find(path, byte_range)
        return held if self._cache is not None and held is not None and self._cache.was_read(path, held.etag) else None

    async def holds(self, path: str, byte_range: ByteRange) -> bool:
        """Tell whether a range was fetched before, of whichever version, so that it may take no bytes. No request."""
        return self._cache is not None and await self._cache.find(path, byte_range, may_be_kept=False) is not None

    def note_beside(self, path: str, data_etag: str) -> None:
        """Record which version of a Parquet object the version describes that was fetched of the object beside it."""
        if self._cache is not None:
            self._cache.note_beside(path, self.versions.lasting_etag(path), data_etag)

    async def _held(self, cache: Cache, request: RangeRequest) -> FetchedRange | None:
        """Return what is held of the version that the request must see."""
        etag = request.if_match or self.versions.lasting_etag(request.path)
        held = await cache.find(request.path, request.byte_range, etag, may_be_kept=request.may_be_kept)
        if held is None:
            return None
        if self.versions.is_confirmed(request.path):
            return self._checked_hit(request, held)
        shown = self.versions.shown_etag(request.path)
        if shown is not None and shown == held.etag and cache.was_read(request.path, shown):
            self.versions.pin(request.path, shown)
            return self._checked_hit(request, held)
        return await self._unless_replaced(cache, request, held)

    async def _unless_replaced(self, cache: Cache, request: RangeRequest, held: FetchedRange) -> FetchedRange | None:
        """Ask whether the object still has the version of which a range is held; of several at once, one asks."""
        async with self._asking.setdefault(request.path, asyncio.Lock()):
            if not self.versions.is_confirmed(request.path):
                answer = await self._share(replace(request, if_match=None, if_none_match=held.etag))
                if not answer.is_unchanged:
                    if request.if_match not in (None, answer.etag):
                        self.versions.changed.add(request.path)
                        raise object_changed(request, found_etag=answer.etag)
                    return answer
                self.versions.check(request, held)
                cache.note_reader(request.path, held.etag)
                return replace(held, is_from_cache=True, modified_s=answer.modified_s)
        is_read = self.versions.lasting_etag(request.path) == held.etag
        return self._checked_hit(request, held) if is_read else None

    def _checked_hit(self, request: RangeRequest, held: FetchedRange) -> FetchedRange:
        self.versions.check(request, held)
        note_cache_hit(len(held.data))
        return replace(held, is_from_cache=True)

    async def _share(self, request: RangeRequest) -> FetchedRange:
        """Fetch a range, or wait for the request that fetches it already."""
        question = replace(request, reason="", role="metadata", may_be_kept=True, rank=0)  # all but what it is for
        while (in_flight := self._in_flight.get(question)) is not None:
            await asyncio.wait([in_flight])  # one that gives up must not take the answer from the others
            if not in_flight.cancelled():
                answer = in_flight.result()
                note_cache_hit(len(answer.data))
                return replace(answer, is_from_cache=True)
        in_flight = self._in_flight[question] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._store.get(request)
        except Exception as error:
            in_flight.set_exception(error)
            in_flight.exception()  # perhaps no task waits
            raise
        else:
            in_flight.set_result(answer)
        finally:
            in_flight.cancel()  # unless it is done: those who wait ask themselves
            del self._in_flight[question]
        if self._cache is not None and request.may_be_kept and not answer.is_unchanged:
            self._cache.keep(request.path, answer)
        return answer

    def forget(self, paths: Sequence[str]) -> None:
        """Drop what the memory holds of objects."""
        if self._cache is not None:
            for path in paths:
                self._cache.forget(path)


PIECE_OVERHEAD_BYTES = 256
"""What keeping track of one piece costs, about; pieces may be as short as a block of a bloom filter."""


CacheKey: TypeAlias = tuple[str, ...]
"""Kind of what is kept, name of the store, path of the object."""


class CacheLevel(Protocol):
    """Where ranges are kept: :class:`MemoryCache` or :class:`~coldparquet.storage.disk_cache.DiskCache`."""

    limit_bytes: int

    def find(
        self, key: CacheKey, asked: ByteRange | SuffixRange | None, etag: str | None = None
    ) -> FetchedRange | None:
        """Return a range as the store would answer it, or the whole object; None unless all of it is kept.

        Args:
            key: The object.
            asked: None asks for the whole object.
            etag: Its version; None takes the one that is kept.
        """
        ...

    def keep(self, key: CacheKey, fetched: FetchedRange) -> None:
        """Keep what a store answered, unless it is too long. Its version becomes the one that is kept. Never waits."""
        ...


def part_of(asked: ByteRange | SuffixRange | None, object_size_bytes: int | None) -> ByteRange | None:
    """Return the bytes of an object that answer a request; None where that takes a size which is not known."""
    if object_size_bytes is None:
        return asked if isinstance(asked, ByteRange) else None
    whole = ByteRange(0, object_size_bytes)
    return whole if asked is None else clipped(asked, object_size_bytes=object_size_bytes)


Piece: TypeAlias = tuple[int, bytes]
"""Where it begins in the object, and its bytes. The pieces of an object never overlap."""


def missing_of(wanted: ByteRange, pieces: Iterable[Piece]) -> list[ByteRange]:
    """Return the parts of a range that no piece holds."""
    missing, reached = list[ByteRange](), wanted.start
    for start, data in pieces:
        if start > reached:
            missing.append(ByteRange(reached, start))
        reached = max(reached, start + len(data))
    return [*missing, ByteRange(reached, wanted.stop)] if reached < wanted.stop else missing


def joined(wanted: ByteRange, pieces: Iterable[Piece]) -> bytes:
    """Put a range together from pieces that hold all of it, in the order of where they begin; they may overlap."""
    parts, reached = list[bytes](), wanted.start
    for start, data in pieces:
        if reached < min(start + len(data), wanted.stop):
            parts.append(data[reached - start : wanted.stop - start])
            reached = start + len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class MemoryCache:
    """Ranges of objects, each object of one version: the newest that was kept. Safe to use from several threads.

    They are held in pieces that never overlap, none of them a part of a longer buffer, so that what is held is what is
    counted. What was used longest ago goes first.

    Args:
        limit_bytes: Most that is held, what keeping track costs included; 0 holds nothing.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._held_bytes = 0
        self._held: dict[CacheKey, _Held] = {}
        self._pieces: OrderedDict[tuple[CacheKey, int], bytes] = OrderedDict()
        """By object and where the piece begins, in the order of their last use."""
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """How much is held, what keeping track costs included."""
        return self._held_bytes

    def find(
        self, key: CacheKey, asked: ByteRange | SuffixRange | None, etag: str | None = None
    ) -> FetchedRange | None:
        """See :meth:`CacheLevel.find`."""
        with self._lock:
            held = self._held.get(key)
            wanted = None if held is None else part_of(asked, held.object_size_bytes)
            if held is None or wanted is None or etag not in (None, held.etag):
                return None
            pieces = self._near(key, held.starts, wanted)
            if missing_of(wanted, pieces):
                return None
            return FetchedRange(
                data=joined(wanted, pieces),
                start=wanted.start,
                etag=held.etag,
                object_size_bytes=held.object_size_bytes,
                confirmed_s=held.confirmed_s,
                beside_etag=None if held.beside is None else held.beside.etag_now(),
            )

    def keep(self, key: CacheKey, fetched: FetchedRange) -> None:
        """See :meth:`CacheLevel.keep`."""
        if fetched.etag is None or not 0 < len(fetched.data) <= self.limit_bytes - PIECE_OVERHEAD_BYTES:
            return
        with self._lock:
            held = self._held.get(key)
            if held is None or held.etag != fetched.etag:
                self._drop(key)
                held = self._held[key] = _Held(fetched.etag)
            held.object_size_bytes = fetched.object_size_bytes or held.object_size_bytes
            held.confirmed_s = fetched.confirmed_s
            self._add(key, held.starts, fetched)

    def note_beside(self, key: CacheKey, etag: str | None, data_etag: str) -> None:
        """Record of a version of an object which version of a Parquet object it describes."""
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.etag == etag:
                held.beside = _Beside(data_etag, time.monotonic() + _DESCRIBED_S, writes.count)

    def note_reader(self, key: CacheKey, etag: str | None, reader: str) -> None:
        """Record to whom the store gave a version of an object."""
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.etag == etag:
                held.readers.add(reader)

    def was_read(self, key: CacheKey, etag: str | None, reader: str | None) -> bool:
        """Tell whether the store gave a version of an object to ``reader``."""
        held = self._held.get(key)
        return held is not None and held.etag == etag and reader in held.readers

    def forget(self, key: CacheKey) -> None:
        """Drop all that is held of an object."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Drop all that is held."""
        with self._lock:
            self._empty()

    def start_anew_after_fork(self) -> None:
        """Drop all that is held: a thread of the parent may have been changing it, and holds the lock for ever."""
        self._lock = threading.Lock()
        self._empty()

    def _empty(self) -> None:
        self._held.clear()
        self._pieces.clear()
        self._held_bytes = 0

    def _add(self, key: CacheKey, starts: list[int], fetched: FetchedRange) -> None:
        whole = ByteRange(fetched.start, fetched.start + len(fetched.data))
        for missing in missing_of(whole, self._near(key, starts, whole)):
            piece = fetched.data[missing.start - fetched.start : missing.stop - fetched.start]
            # A slice of bytes, unlike one of a view, is a copy; the whole of it is itself.
            self._pieces[key, missing.start] = bytes(piece)
            insort(starts, missing.start)
            self._held_bytes += missing.length_bytes + PIECE_OVERHEAD_BYTES
        while self._held_bytes > self.limit_bytes:
            self._drop_oldest()

    def _near(self, key: CacheKey, starts: list[int], wanted: ByteRange) -> list[Piece]:
        """Return the pieces that may hold parts of a range, and note that they were used."""
        near = starts[max(0, bisect_right(starts, wanted.start) - 1) : bisect_left(starts, wanted.stop)]
        for start in near:
            self._pieces.move_to_end((key, start))
        return [(start, self._pieces[key, start]) for start in near]

    def _drop(self, key: CacheKey) -> None:
        held = self._held.pop(key, None)
        for start in [] if held is None else held.starts:
            self._held_bytes -= len(self._pieces.pop((key, start))) + PIECE_OVERHEAD_BYTES

    def _drop_oldest(self) -> None:
        (key, start), piece = self._pieces.popitem(last=False)
        self._held_bytes -= len(piece) + PIECE_OVERHEAD_BYTES
        starts = self._held[key].starts
        del starts[bisect_left(starts, start)]
        if not starts:
            del self._held[key]


class Writes:
    """Changes whenever a request of this process that may change objects begins or ends."""

    count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the begin of a write, and its end: what was read meanwhile may be from before it."""
        self.count += 1
        try:
            yield
        finally:
            self.count += 1


writes = Writes()

_DESCRIBED_S = 60.0
"""For how long what describes a Parquet object is not asked for, as long as that object stays the same: whoever mends a description alone
sees it in this process after that time, and at once where this process did."""


class _Beside(Struct, frozen=True):
    """Which version of a Parquet object something describes."""

    etag: str
    until_s: float
    write_count: int

    def etag_now(self) -> str | None:
        """Return the version, unless that was found too long ago, or this process has written meanwhile."""
        return self.etag if time.monotonic() < self.until_s and self.write_count == writes.count else None


class _Held(Struct):
    """What is held of one object."""

    etag: str
    object_size_bytes: int | None = None
    confirmed_s: float = 0.0
    beside: _Beside | None = None
    readers: set[str] = field(default_factory=set)
    starts: list[int] = field(default_factory=list)
    """Where its pieces begin, in order."""


class Cache:
    """The objects of one store and kind in a memory and, between runs, on disk. Only lasting versions of objects are kept.

    Args:
        kind: What is kept, ``"range"`` or ``"sidecar"``: the same object may be kept as both.
        store_name: Returns a name of the store that no other store has. It is asked each time: a store may learn with its first
            request where it is.
        memory: The memory; other caches may use it, too.
        disk: The cache on disk; None for none. Finding blocks, so it is done in threads.
        reader: Returns in whose name the store asks, as :attr:`~coldparquet.storage.base.ObjectStore.reader`.
    """

    def __init__(
        self,
        kind: Literal["range", "sidecar"],
        store_name: Callable[[], str],
        *,
        memory: MemoryCache,
        disk: CacheLevel | None = None,
        reader: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._kind = kind
        self._reader = reader
        self._store_name = store_name
        self._memory = memory
        self._disk = disk

    @property
    def largest_scan_bytes(self) -> int:
        """How much one scan may keep, so that it is all there when it is repeated."""
        return max(self._memory.limit_bytes, 0 if self._disk is None else self._disk.limit_bytes // 2)

    async def find(
        self,
        path: str,
        asked: ByteRange | SuffixRange | None,
        etag: str | None = None,
        *,
        may_be_kept: bool = True,
    ) -> FetchedRange | None:
        """Return a range of an object, or all of it; see :meth:`CacheLevel.find`."""
        key = self._key(path)
        held = self._memory.find(key, asked, etag)
        if held is None and self._disk is not None:
            held = await asyncio.to_thread(self._disk.find, key, asked, etag)
            if held is not None and may_be_kept:
                self._memory.keep(key, held)
        return held

    def keep(self, path: str, answer: FetchedRange, *, on_disk: bool = True) -> None:
        """Keep what a store answered, unless it has no lasting ETag."""
        if not is_lasting_etag(answer.etag):
            return
        key = self._key(path)
        self._memory.keep(key, answer)
        self.note_reader(path, answer.etag)
        if self._disk is not None and on_disk:
            self._disk.keep(key, answer)

    def note_reader(self, path: str, etag: str | None) -> None:
        """Record that the store gave a version of an object, or said that it is unchanged, with the credentials of now."""
        if (reader := self._reader()) is not None:
            self._memory.note_reader(self._key(path), etag, reader)

    def was_read(self, path: str, etag: str | None) -> bool:
        """Tell whether this process was given a version of an object by the store, with the credentials of now."""
        return self._memory.was_read(self._key(path), etag, self._reader())

    def note_beside(self, path: str, etag: str | None, data_etag: str) -> None:
        """Record in memory which version of a Parquet object a version of its sidecar or ``_pages`` describes."""
        self._memory.note_beside(self._key(path), etag, data_etag)

    def forget(self, path: str) -> None:
        """Drop what the memory holds of an object; on disk the next version takes the place of an old one."""
        self._memory.forget(self._key(path))

    def _key(self, path: str) -> CacheKey:
        return (self._kind, self._store_name(), path)


def digest_of(*words: str) -> bytes:
    """Return a digest, which does not tell what the words were."""
    return hashlib.blake2b("\n".join(words).encode(errors="surrogatepass"), digest_size=20).digest()
