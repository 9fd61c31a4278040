"""The one place that decides whether an answer is what was asked: exact length, same version.

Whatever passes here is safe to parse: all bytes of one object come from one version of it, none is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from coldparquet.errors import ObjectChangedError, StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import OBJECT_WRITES, StoreWrapper
from coldparquet.storage.checksums import check_whole
from coldparquet.storage.refusals import object_changed, version_changed
from coldparquet.storage.requests import clipped, is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from coldparquet.storage.base import Answer, Call, ObjectStore
    from coldparquet.storage.requests import FetchedRange, ObjectInfo, RangeRequest, StoredChecksum


class CheckedStore(StoreWrapper):
    """Pin each object to the version that was seen first and verify every answer.

    The first ETag seen for a path is sent as ``if_match`` with later requests for it. A store that tells no ETags
    gives no such protection; lengths are checked all the same. Listings pin nothing, and
    :meth:`info` only an object store's ETag: a disk's versions have other words for each kind of request.

    On a disk, requests that let a file grow see its version in other words than those that do not, so each kind has its own
    pin. An object store's version is the same for all.

    Args:
        store: Where the requests go. Closing this store closes it.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._pins: dict[str, _Pins] = {}
        self._changed: set[str] = set()
        self._packed_etags: dict[str, str] = {}

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range and check it. 1 request."""
        kind = (request.may_grow, request.version_header_bytes)
        pins = self._pins.setdefault(request.path, _Pins())
        if request.if_match is None and request.if_none_match is None:
            request = replace(request, if_match=pins.etag_for(kind))
        try:
            fetched = await self._store.get(request)
            found_etag = request.if_none_match if fetched.is_unchanged else fetched.etag
            # The pin is looked at again: of several first requests in flight, another may have been answered meanwhile.
            expected_etag = request.if_match or pins.etag_for(kind)
            if expected_etag is not None and found_etag not in (None, expected_etag):
                raise object_changed(replace(request, if_match=expected_etag), found_etag=found_etag)
        except ObjectChangedError:
            self.note_changed(request.path)
            raise
        self.check(request, fetched)
        if fetched.is_whole:
            stored = fetched.checksum or pins.checksums.get(fetched.etag)
            if stored is not None:
                await check_whole(fetched.data, stored, path=request.path)
        if found_etag is not None:
            pins.pin(kind, found_etag)
        return fetched

    async def info(self, path: str) -> ObjectInfo:
        """Tell what is known about one object, and pin it to an object store's version. 1 request."""
        found = await super().info(path)
        if is_lasting_etag(found.etag):
            self.pin(path, found.etag)
            if found.checksum is not None:
                self._pins[path].checksums[found.etag] = found.checksum
        return found

    def check(self, request: RangeRequest, fetched: FetchedRange) -> None:
        """Check an answer of the right version, wherever it comes from. Raises what :meth:`get` raises."""
        try:
            _check_object_size(request, fetched)
            _check_description(request, fetched)
            packed, found = self._packed_etags.get(request.path), fetched.etag
            if packed is not None and is_lasting_etag(found) and found != packed:
                raise stale_catalogue(request.path, packed_etag=packed, found_etag=found)
        except ObjectChangedError:
            self.note_changed(request.path)
            raise
        if not fetched.is_unchanged:
            _check_bytes(request, fetched)

    def lasting_etag(self, path: str) -> str | None:
        """Return the version that an object is pinned to, if it is an object store's; see :func:`is_lasting_etag`."""
        pins = self._pins.get(path)
        return None if pins is None else pins.lasting

    def pin(self, path: str, etag: str) -> None:
        """Pin an object to a version, unless it is pinned already."""
        self._pins.setdefault(path, _Pins()).pin(_AS_IT_IS, etag)

    def check_version(self, path: str, etag: str) -> None:
        """Pin an object to a version as :meth:`pin` does, and refuse another one than it is pinned to."""
        self.pin(path, etag)
        pinned = self._pins[path].etag_for(_AS_IT_IS)
        if pinned != etag:
            self.note_changed(path)
            raise version_changed(path, pinned, found_etag=etag)

    def expect_packed(self, path: str, etag: str | None) -> None:
        """Refuse every answer of another version than that of which the table's catalogue tells; None takes that back.

        Unlike a pin it is not sent, and says nothing where the versions of the store do not last.
        """
        if is_lasting_etag(etag):
            self._packed_etags[path] = etag
        else:
            self._packed_etags.pop(path, None)

    def adopt(self, earlier: CheckedStore, directories: Collection[str]) -> None:
        """Pin the objects of some directories as another store has pinned them, unless they were found to have changed.

        Only versions of object stores are taken over: files of a disk may grow meanwhile.
        """
        for path, pins in earlier._pins.items():
            if pins.lasting and path.rpartition("/")[0] in directories and not earlier.has_changed(path):
                self.pin(path, pins.lasting)
                self._pins[path].checksums |= pins.checksums
        for path, etag in earlier._packed_etags.items():
            if path.rpartition("/")[0] in directories:
                self.expect_packed(path, etag)

    def note_changed(self, path: str) -> None:
        """Note that an object has another version than somebody relied on, who found out without a GET."""
        self._changed.add(path)

    def has_changed(self, path: str) -> bool:
        """Tell whether somebody found another version of the object than he relied on."""
        return path in self._changed

    def forget(self, path: str) -> None:
        """Let the next request for ``path`` see whatever version the object has by then."""
        self._pins.pop(path, None)

    async def send(self, call: Call[Answer]) -> Answer:
        """Make a call, and forget the version of the object that it writes."""
        if call.operation not in OBJECT_WRITES:
            return await call.make(self._store)
        self.forget(call.path)
        answer = await call.make(self._store)
        # A read that was under way during the write may have pinned the old version again.
        self.forget(call.path)
        return answer

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove through the store within, and forget the versions that were there."""
        await super().delete(paths)
        for path in paths:
            self.forget(path)


_Kind: TypeAlias = tuple[bool, int]
"""``may_grow`` and ``version_header_bytes`` of a request: what its file's version is made of."""

_AS_IT_IS: _Kind = (False, 0)
"""Of requests that see the version which :meth:`CheckedStore.info` tells of a file."""


@dataclass(slots=True)
class _Pins:
    """The version of one object that all its requests must see.

    Requests hold on to the pins they started with, so an answer that arrives after :meth:`CheckedStore.forget` cannot
    bring an old version back.
    """

    lasting: str | None = None
    """An object store's version."""
    by_kind: dict[_Kind, str] = field(default_factory=dict)
    """Versions of a file on a disk, in the words of each kind of request."""
    checksums: dict[str | None, StoredChecksum] = field(default_factory=dict)
    """Of whole versions of the object, as far as the store told them."""

    def etag_for(self, kind: _Kind) -> str | None:
        return self.lasting or self.by_kind.get(kind)

    def pin(self, kind: _Kind, etag: str) -> None:
        if is_lasting_etag(etag):
            self.lasting = self.lasting or etag
        else:
            self.by_kind.setdefault(kind, etag)


def _check_object_size(request: RangeRequest, fetched: FetchedRange) -> None:
    size, described = fetched.object_size_bytes, request.object_bytes
    if size is None:
        return
    if described is not None:
        check_described_size(request.path, size_bytes=size, described_bytes=described, may_grow=request.may_grow)
    if isinstance(request.byte_range, ByteRange) and not request.may_be_short and size < request.byte_range.stop:
        raise other_size(
            request.path, size_bytes=size, described_bytes=request.byte_range.stop, may_grow=request.may_grow
        )


def check_described_size(path: str, *, size_bytes: int, described_bytes: int, may_grow: bool) -> None:
    """Refuse an object of another size than its metadata describes; one that may grow only if it is smaller."""
    if size_bytes < described_bytes or (size_bytes > described_bytes and not may_grow):
        raise other_size(path, size_bytes=size_bytes, described_bytes=described_bytes, may_grow=may_grow)


def _check_description(request: RangeRequest, fetched: FetchedRange) -> None:
    described, found = request.expected_etag, fetched.etag
    if is_lasting_etag(described) and is_lasting_etag(found) and described != found:
        raise stale_pages(request.path, described_etag=described, found_etag=found)


def _check_bytes(request: RangeRequest, fetched: FetchedRange) -> None:
    expected = _expected_range(request, fetched)
    if fetched.start != expected.start or len(fetched.data) > expected.length_bytes:
        raise StorageError(
            f"asked for bytes {request.byte_range} and received {len(fetched.data):,} bytes from {fetched.start:,} on: "
            "the server ignores ranges, which this library needs",
            kind="RangeIgnored",
            path=request.path,
            byte_range=request.byte_range,
            received_bytes=len(fetched.data),
        )
    may_end_early = request.may_be_short and fetched.object_size_bytes is None
    if len(fetched.data) < expected.length_bytes and not may_end_early:
        raise StorageError(
            f"asked for bytes {request.byte_range} and received only {len(fetched.data):,} of "
            f"{expected.length_bytes:,}: the transfer was cut off, or the object ends early",
            kind="ShortRead",
            path=request.path,
            byte_range=request.byte_range,
            received_bytes=len(fetched.data),
        )


def _expected_range(request: RangeRequest, fetched: FetchedRange) -> ByteRange:
    """Return the bytes that the answer must hold, as far as the object's size is known."""
    asked, size = request.byte_range, fetched.object_size_bytes
    if isinstance(asked, ByteRange):
        return asked if size is None or not request.may_be_short else clipped(asked, object_size_bytes=size)
    if size is None:
        return ByteRange(fetched.start, fetched.start + asked.length_bytes)
    return clipped(asked, object_size_bytes=size)


def other_size(path: str, *, size_bytes: int, described_bytes: int, may_grow: bool) -> ObjectChangedError:
    """Make the error for an object of another size than what was planned with."""
    # Only tables with a transaction file know files that grow: there, the file itself is what is wrong.
    remedy = (
        "the table's copy is not complete; 'coldparquet verify' says what else is missing"
        if may_grow
        else "plan the read again; if it was rewritten on purpose, 'coldparquet index' makes its sidecar anew"
    )
    planned, what = ("at least ", "cut off") if size_bytes < described_bytes else ("", "written to")
    return ObjectChangedError(
        f"the object has {size_bytes:,} bytes, but {planned}{described_bytes:,} were planned with: it was replaced or {what};"
        f" {remedy}",
        path=path,
        expected_least_bytes=described_bytes,
        object_size_bytes=size_bytes,
    )


def stale_pages(path: str, *, described_etag: str, found_etag: str) -> ObjectChangedError:
    """Make the error for a ``_pages`` that was made for another version of an object."""
    return ObjectChangedError(
        f"the _pages beside this object was made for version {described_etag} of it, and it is {found_etag}: the object was"
        " replaced, or copied in another way; run 'coldparquet index --pages --force', or read with page_index='never'",
        kind="StalePages",
        path=path,
        expected_etag=described_etag,
        found_etag=found_etag,
    )


def stale_catalogue(path: str, *, packed_etag: str, found_etag: str) -> ObjectChangedError:
    """Make the error for an entry of a table's catalogue that was made for another version of an object."""
    return ObjectChangedError(
        f"the table's catalogue was made for version {packed_etag} of this object, and it is {found_etag}: the object was"
        " replaced, or copied in another way; refresh the table, and run 'coldparquet pack', or open it with"
        " StoreOptions(use_catalogue=False)",
        kind="StaleCatalogue",
        path=path,
        expected_etag=packed_etag,
        found_etag=found_etag,
    )
