"""A store that fetches nothing twice: it keeps ranges of pinned versions, and requests for the same range share one answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from coldparquet.errors import ObjectChangedError
from coldparquet.storage.objects import is_lasting_etag
from coldparquet.storage.threads import run_to_end
from coldparquet.storage.wrappers.ledger import note_cache_hit
from coldparquet.storage.wrappers.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from coldparquet.storage.caches.disk_ranges import DiskRanges
    from coldparquet.storage.caches.range_cache import RangeCache
    from coldparquet.storage.objects import Upload, UploadedPart
    from coldparquet.storage.requests import FetchedRange, RangeRequest
    from coldparquet.storage.wrappers.checked import CheckedStore


class CachedStore(StoreWrapper):
    """Answer from what was fetched before, as long as it is of the version that the object is pinned to.

    Only versions of object stores are kept (:func:`~coldparquet.storage.objects.is_lasting_etag`), so never local files. Where
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

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write through the store within, and forget what was there."""
        self._forget((path,))
        return await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Finish through the store within, and forget what was there."""
        self._forget((upload.path,))
        return await super().finish_upload(upload, parts, overwrite=overwrite)

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
