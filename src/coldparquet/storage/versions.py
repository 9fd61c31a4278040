"""The one registry of which version of each object is read, and what the store told of it.

Every answer is checked against it: exact length, the same version as before, the version that metadata describes.
Whatever passes is safe to parse: all bytes of one object come from one version of it, none is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from coldparquet.errors import ObjectChangedError, StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.refusals import version_changed
from coldparquet.storage.requests import clipped, is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from coldparquet.storage.requests import FetchedRange, ObjectInfo, RangeRequest, StoredChecksum


class Versions:
    """What is known of the objects that one reader or writer uses, such as one state of a table.

    An object is pinned to the version that was seen first. On a disk, requests that let a file grow see its version in other
    words than those that do not, so each kind has its own pin. An object store's version is the same for all.

    Args:
        distrusted: Objects of which an earlier state found another version than expected. Neither listings nor the
            catalogue, which may both be old, are used for them.
    """

    def __init__(self, *, distrusted: Iterable[str] = ()) -> None:
        self.distrusted = set(distrusted)
        self.changed = set[str]()
        """Objects that turned out to have another version than a question relied on."""
        self._objects: dict[str, SeenObject] = {}
        self._listed: dict[str, ObjectInfo] = {}
        self._listed_directories = set[str]()

    def of(self, path: str) -> SeenObject:
        """Return what is known of an object, to be added to."""
        return self._objects.setdefault(path, SeenObject())

    def forget(self, path: str) -> None:
        """Let the next request for ``path`` see whatever version the object has by then."""
        self._objects.pop(path, None)

    def pin(self, path: str, etag: str) -> None:
        """Pin an object to a version, unless it is pinned already."""
        self.of(path).pin(AS_IT_IS, etag)

    def is_confirmed(self, path: str) -> bool:
        """Tell whether a request about the object itself was answered with the version that it is pinned to."""
        known = self._objects.get(path)
        return known is not None and known.is_confirmed

    def check_version(self, path: str, etag: str) -> None:
        """Pin an object to a version as :meth:`pin` does, and refuse another one than it is pinned to."""
        self.pin(path, etag)
        pinned = self.of(path).etag_for(AS_IT_IS)
        if pinned != etag:
            self.changed.add(path)
            raise version_changed(path, pinned, found_etag=etag)

    def lasting_etag(self, path: str) -> str | None:
        """Return the version that an object is pinned to, if it is an object store's; see :func:`is_lasting_etag`."""
        known = self._objects.get(path)
        return None if known is None else known.lasting

    def expect_packed(self, path: str, etag: str | None) -> None:
        """Refuse every answer of another version than that of which the table's catalogue tells; None takes that back.

        Unlike a pin it is not sent, and says nothing where the versions of the store do not last.
        """
        self.of(path).packed = etag if is_lasting_etag(etag) else None

    def shown_etag(self, path: str) -> str | None:
        """Return the version of an object that a listing or a HEAD for this reader has shown; None where none has."""
        info = self._shown(path)
        return info.etag if info is not None and is_lasting_etag(info.etag) else None

    def packed_etag(self, path: str) -> str | None:
        """Return what :meth:`expect_packed` was told last."""
        known = self._objects.get(path)
        return None if known is None else known.packed

    def adopt(self, earlier: Versions, directories: Collection[str]) -> None:
        """Take over what another state knows of the objects in some directories, unless they were found to have changed.

        Only pins to versions of object stores are taken over: files of a disk may grow meanwhile.
        """
        for path, known in earlier._objects.items():
            if path.rpartition("/")[0] not in directories:
                continue
            if known.lasting and path not in earlier.changed:
                self.pin(path, known.lasting)
                self.of(path).is_confirmed = known.is_confirmed
                self.of(path).checksums |= known.checksums
            if known.was_asked_for and path not in earlier.changed:
                self.of(path).was_asked_for, self.of(path).info = True, known.info
            if known.packed is not None:
                self.expect_packed(path, known.packed)

    def was_asked_for(self, path: str) -> bool:
        """Tell whether the store was asked for the state of an object, whatever it answered."""
        known = self._objects.get(path)
        return known is not None and known.was_asked_for

    def info(self, path: str) -> ObjectInfo | None:
        """Return the known state of an object; None where the store was not asked, or the object is missing."""
        known = self._objects.get(path)
        return None if known is None else known.info

    def note(self, info: ObjectInfo) -> None:
        """Record the state of an object that a request returned."""
        self.of(info.path).was_asked_for, self.of(info.path).info = True, info

    def note_refused(self, path: str, *, is_missing: bool) -> None:
        """Record that the store told nothing of an object: it is missing, or may not be read."""
        known = self.of(path)
        known.was_asked_for, known.info, known.is_missing = True, None, is_missing

    def note_listed(self, infos: Iterable[ObjectInfo], directories: Collection[str]) -> None:
        """Record what a listing showed in some directories. A listing may be old: it pins nothing."""
        for info in infos:
            directory = info.path.rpartition("/")[0]
            if directory in directories:
                self._listed_directories.add(directory)
                self._listed[info.path] = info

    def size_bytes(self, path: str) -> int | None:
        """Return the size of an object from a HEAD or a listing for another purpose; None where there was none."""
        info = self._shown(path)
        return None if info is None else info.size_bytes

    def _shown(self, path: str) -> ObjectInfo | None:
        return self.info(path) or (None if path in self.distrusted else self._listed.get(path))

    def is_missing(self, path: str) -> bool:
        """Tell whether the object does not exist: a request found that, or a listing showed others of its directory only."""
        known = self._objects.get(path)
        if known is not None and known.is_missing:
            return True
        is_listed_without = path.rpartition("/")[0] in self._listed_directories and path not in self._listed
        return path not in self.distrusted and is_listed_without

    def check(self, request: RangeRequest, fetched: FetchedRange) -> None:
        """Check an answer of the right version, wherever it comes from.

        Raises:
            ObjectChangedError: The object is another one than was planned with.
            StorageError: The answer holds other bytes than were asked for.
        """
        try:
            _check_object_size(request, fetched)
            _check_description(request, fetched)
            known, found = self._objects.get(request.path), fetched.etag
            packed = None if known is None else known.packed
            if packed is not None and is_lasting_etag(found) and found != packed:
                raise stale_catalogue(request.path, packed_etag=packed, found_etag=found)
        except ObjectChangedError:
            self.changed.add(request.path)
            raise
        if not fetched.is_unchanged:
            _check_bytes(request, fetched)


RequestKind: TypeAlias = tuple[bool, int]
"""``may_grow`` and ``version_header_bytes`` of a request: what its file's version is made of."""

AS_IT_IS: RequestKind = (False, 0)
"""Of requests that see the version which a store's ``info`` tells of a file."""


class SeenObject(Struct):
    """The version of one object that all its requests must see, and what the store told of it.

    Requests hold on to what they started with, so an answer that arrives after :meth:`Versions.forget` cannot bring an old
    version back.
    """

    lasting: str | None = None
    """An object store's version."""
    is_confirmed: bool = False
    """Whether a request about the object itself was answered with it. Listings, catalogues and plans may be old."""
    by_kind: dict[RequestKind, str] = field(default_factory=dict)
    """Versions of a file on a disk, in the words of each kind of request."""
    checksums: dict[str | None, StoredChecksum] = field(default_factory=dict)
    """Of whole versions of the object, as far as the store told them."""
    packed: str | None = None
    """The version that the table's catalogue describes, if it counts."""
    was_asked_for: bool = False
    """Whether the store was asked for the object's state."""
    info: ObjectInfo | None = None
    """What it answered; None where it told nothing."""
    is_missing: bool = False

    def etag_for(self, kind: RequestKind) -> str | None:
        """Return the version that requests of a kind must see."""
        return self.lasting or self.by_kind.get(kind)

    def pin(self, kind: RequestKind, etag: str) -> None:
        """Pin to a version, unless there is one already."""
        if is_lasting_etag(etag):
            self.lasting = self.lasting or etag
        else:
            self.by_kind.setdefault(kind, etag)

    def confirm(self, kind: RequestKind, etag: str) -> None:
        """Pin to the version of an answer."""
        self.pin(kind, etag)
        self.is_confirmed = self.lasting == etag


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
        " replaced, or copied in another way; run 'coldparquet index --force', or read with page_index='never'",
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
