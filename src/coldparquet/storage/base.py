"""What every store can do, and how a wrapper of a store is one function around its calls.

A store is anything that holds objects under paths: S3, a local disk, a dictionary, any fsspec filesystem. Paths have
no scheme (``bucket/db/trades/2024-03-01.12/_pm``); local ones are absolute file paths. Wrappers are stores themselves
and can be stacked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from coldparquet.storage.refusals import classes_unsupported, restore_unsupported, versions_not_listed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from coldparquet.prices import RestoreTier
    from coldparquet.storage.requests import FetchedRange, Listing, ObjectInfo, RangeRequest, Upload, UploadedPart


class ObjectStore(Protocol):
    """What the rest of the library asks of a store. Implementations are safe to use from many tasks of one event loop.

    Cancelling a call leaves nothing behind: no request in flight, no thread that still writes, no temporary file.
    """

    @property
    def label(self) -> str:
        """What the store is, for people: ``"s3 (eu-west-1)"``, ``"local files"``. Never holds a secret."""
        ...

    @property
    def reader(self) -> str | None:
        """In whose name the last request was signed, never a secret; None where none was signed."""
        ...

    @property
    def has_storage_classes(self) -> bool:
        """Whether objects may lie in classes of their own, so that :meth:`info` is worth asking before a read."""
        ...

    @property
    def has_version_listings(self) -> bool:
        """Whether :meth:`list_between` answers, so that copies of metadata can be compared with what they are copies of."""
        ...

    @property
    def has_spare_connections(self) -> bool:
        """Whether requests with ``is_hedge`` go over connections of their own, so that a slow GET is worth sending twice."""
        ...

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range. 1 request, more only where the store retries or cannot serve a suffix by itself.

        The answer is clipped at the end of the object: fewer bytes than asked, or none when the range begins at or
        past the end (an S3 store turns its 416 answer into empty ``data``). A suffix longer than the object is the
        whole object. Whether a short answer is acceptable is decided in one place, by ``CheckedStore``.

        Raises:
            NotFoundError: There is no such object, or it is a directory.
            AccessError: The store refused the credentials or the operating system the permission.
            ObjectChangedError: The object no longer has the ETag ``request.if_match``.
            ArchivedObjectError: The object lies in an archive class.
            UnsupportedError: ``request.if_match`` is given, but the store knows no versions.
            StorageError: Anything else; ``details`` hold ``byte_range`` and, where known, ``attempts``, ``elapsed_s``
                and ``request_id``.
        """
        ...

    async def info(self, path: str) -> ObjectInfo:
        """Tell what is known about one object. 1 request.

        Raises:
            NotFoundError: There is no such object, or it is a directory.
            AccessError: The store refused.
            StorageError: Anything else.
        """
        ...

    async def infos_at_hand(self, paths: Sequence[str]) -> tuple[ObjectInfo | None, ...] | None:
        """Tell what :meth:`info` would tell about objects, where that takes no request: on a disk. Nothing is logged.

        Returns:
            One for each path, None for an object that is not there or cannot be looked at; None alone where it takes
            requests.
        """
        ...

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """List what lies directly below ``path`` (delimiter ``/``). 1 request per 1,000 entries on S3.

        Args:
            path: The directory.
            first_page_only: Stop after one request, whatever it brought; ``Listing.is_complete`` then tells.

        Raises:
            NotFoundError: Nothing lies there. Object stores know no empty directories; local disks answer an empty
                :class:`Listing` for one.
            AccessError: Listing is not permitted.
            StorageError: Anything else.
        """
        ...

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        """List the objects below ``path``, at any depth, whose paths lie between two others. 1 request per 1,000 on S3.

        Args:
            path: A directory.
            start: Only paths behind this one, by the values of their characters.
            stop: Only paths before this one.

        Returns:
            What was found, with the ETag of each, sorted by path; nothing where nothing lies there.

        Raises:
            UnsupportedError: The store has no listings that tell versions (:attr:`has_version_listings`).
            AccessError: Listing is not permitted.
            StorageError: Anything else.
        """
        ...

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write one whole object: others see all of it or nothing. 1 request.

        Args:
            path: The object.
            data: Its whole content; for more than a few MiB use :func:`~coldparquet.write.upload.upload_object`.
            overwrite: False refuses to replace an object that exists, atomically where the store can.
            if_match: Replace only the version with this ETag, atomically; needs ``overwrite``.
            storage_class: S3's name of a storage class; None is the bucket's own. Other stores ignore it.

        Returns:
            The ETag of what was written; None where the store tells no versions.

        Raises:
            InvalidInputError: ``kind="AlreadyExists"``: the object exists and ``overwrite`` is False.
            ObjectChangedError: The object has another version than ``if_match``, or is gone.
            UnsupportedError: ``if_match`` is given, but the store knows no versions.
            NotFoundError: The bucket does not exist.
            AccessError: Writing is not permitted.
            StorageError: Anything else; ``kind="ChecksumMismatch"``: other bytes arrived than were sent.
        """
        ...

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Begin to write an object in parts. 1 request. Use :func:`~coldparquet.write.upload.upload_object`.

        Raises:
            NotFoundError: The bucket does not exist.
            AccessError: Writing is not permitted.
            StorageError: Anything else.
        """
        ...

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Send one part. 1 request. Parts may arrive in any order, and at the same time.

        Args:
            upload: From :meth:`start_upload`.
            number: From 1 to 10,000, in the order of the bytes.
            start: Where the part begins in the object.
            data: At least 5 MiB, but for the last part.

        Raises:
            StorageError: ``kind="ChecksumMismatch"``: other bytes arrived than were sent; or anything else.
        """
        ...

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Make the object of its parts: from now on others see it. 1 request. Errors as for :meth:`put`.

        When it raises, the upload still exists and has to be aborted.
        """
        ...

    async def abort_upload(self, upload: Upload) -> None:
        """Throw an unfinished upload away. 1 request. One that is gone already is fine.

        Raises:
            AccessError: The store refused.
            StorageError: Anything else.
        """
        ...

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Remove what killed uploads below ``path`` left behind: parts that cost money, temporary files.

        1 request that looks for them, 1 for each that is found.

        Args:
            path: A directory; everything below it is looked at.
            started_before_s: Seconds since 1970. Younger uploads may still be under way.

        Returns:
            How many were removed; 0 where the store leaves nothing behind.
        """
        ...

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; those that do not exist are fine. 1 request per 1,000 objects on S3.

        Raises:
            AccessError: Deleting is not permitted.
            StorageError: Anything else; some of the objects may be gone.
        """
        ...

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:
        """Ask for a restored copy of an archived object. 1 request. One that is under way already is fine.

        Args:
            path: The object.
            days: How long the copy stays; 0 for objects of Intelligent-Tiering, which move back for good.
            tier: How fast; what each costs and takes is in :mod:`coldparquet.prices`.

        Raises:
            NotFoundError: There is no such object.
            AccessError: Restoring is not permitted.
            InvalidInputError: ``kind="NotArchived"``: the object needs no restore.
            UnsupportedError: The store cannot restore, or not in this tier.
            StorageError: Anything else.
        """
        ...

    async def change_class(self, path: str, *, storage_class: str, if_match: str) -> str | None:
        """Move an object to another storage class, by a copy onto itself inside of the store. 1 request.

        Its bytes and what is noted of it stay as they are; its ETag may be another one, as S3's is where the object came in
        parts.

        Args:
            path: The object, of at most 5 GiB.
            storage_class: S3's name of the class.
            if_match: ETag that the object must have, so that nothing is lost which another process writes meanwhile.

        Returns:
            The ETag that it has now.

        Raises:
            NotFoundError: There is no such object.
            ObjectChangedError: The object has another version.
            ArchivedObjectError: It must be restored first.
            AccessError: Reading or writing it is not permitted.
            UnsupportedError: The store has no storage classes, or cannot copy.
            StorageError: Anything else.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and files. Calling it twice is fine."""
        ...


class PlainStore:
    """Defaults for stores without storage classes, versions in listings, or reads that cost no request."""

    has_storage_classes = False
    has_version_listings = False
    has_spare_connections = False

    @property
    def reader(self) -> str | None:
        """Nobody: requests are not signed."""
        return None

    async def infos_at_hand(self, paths: Sequence[str]) -> tuple[ObjectInfo | None, ...] | None:  # noqa: ARG002 - unused
        """Tell nothing: it takes requests."""
        return None

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:  # noqa: ARG002 - unused
        """Refuse: versions are not listed here."""
        raise versions_not_listed(path)

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:  # noqa: ARG002 - nothing to restore here
        """Refuse: nothing is archived here."""
        raise restore_unsupported(path)

    async def change_class(self, path: str, *, storage_class: str, if_match: str) -> str | None:  # noqa: ARG002 - there are no classes
        """Refuse: there are no storage classes here."""
        raise classes_unsupported(path)


Operation: TypeAlias = Literal[
    "get",
    "info",
    "list",
    "put",
    "start upload",
    "upload part",
    "finish upload",
    "abort upload",
    "remove unfinished",
    "delete",
    "restore",
    "change class",
]
"""The calls of a store."""

OBJECT_WRITES: frozenset[Operation] = frozenset({"put", "finish upload", "change class"})
"""Those behind which an object has another version; they answer its ETag."""

Effect: TypeAlias = Literal["read", "repeatable write", "conditional write"]
"""What sending a request twice does: nothing; the same as sending it once; or the second one finds what the first one wrote
and takes it for another process's."""

Answer = TypeVar("Answer")


class Call(Struct, Generic[Answer], frozen=True):
    """One call of a store, and what wrappers have to know of it."""

    operation: Operation
    path: str
    """The object or directory; of a deletion the first one."""
    reason: str
    """What it is for, for the log."""
    effect: Effect
    make: Callable[[ObjectStore], Awaitable[Answer]]
    """Makes the call to a store; each time it is another attempt."""
    size_bytes: int = 0
    """Bytes of data that it may bring or sends."""


class StoreWrapper:
    """A store that does whatever the store within does. A wrapper derives from it and overrides :meth:`send`.

    Every verb goes through :meth:`send`; one that a wrapper treats in another way it overrides by itself. So do most with
    :meth:`get`, whose request tells more than a :class:`Call`, and which has to be cheap.

    Args:
        store: Where the requests go. Closing this store closes it.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def send(self, call: Call[Answer]) -> Answer:
        """Make a call to the store within."""
        return await call.make(self._store)

    @property
    def label(self) -> str:
        """Label of the store within."""
        return self._store.label

    @property
    def reader(self) -> str | None:
        """In whose name the store within asks."""
        return self._store.reader

    @property
    def has_storage_classes(self) -> bool:
        """Whether the store within has them."""
        return self._store.has_storage_classes

    @property
    def has_version_listings(self) -> bool:
        """Whether the store within has them."""
        return self._store.has_version_listings

    @property
    def has_spare_connections(self) -> bool:
        """Whether the store within has them."""
        return self._store.has_spare_connections

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range; see :class:`~coldparquet.storage.base.ObjectStore` for this and all below."""
        size_bytes = request.byte_range.length_bytes
        return await self.send(
            Call("get", request.path, request.reason, "read", lambda store: store.get(request), size_bytes)
        )

    async def info(self, path: str) -> ObjectInfo:
        """Tell what is known about one object."""
        return await self.send(Call("info", path, "size and storage class", "read", lambda store: store.info(path)))

    async def infos_at_hand(self, paths: Sequence[str]) -> tuple[ObjectInfo | None, ...] | None:
        """Tell what is known about objects without a request; so it does not go through :meth:`send`."""
        return await self._store.infos_at_hand(paths)

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """List one level."""
        return await self.send(
            Call("list", path, "listing", "read", lambda store: store.list(path, first_page_only=first_page_only))
        )

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        """List the objects between two paths."""
        return await self.send(
            Call(
                "list",
                path,
                "listing of versions",
                "read",
                lambda store: store.list_between(path, start=start, stop=stop),
            )
        )

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write one whole object."""
        return await self.send(
            Call(
                "put",
                path,
                f"write {len(data):,} bytes",
                "repeatable write" if overwrite and if_match is None else "conditional write",
                lambda store: store.put(
                    path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class
                ),
                len(data),
            )
        )

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Begin to write an object in parts. An upload of which only the answer was lost has no parts, and costs nothing."""
        return await self.send(
            Call(
                "start upload",
                path,
                "write in parts",
                "repeatable write",
                lambda store: store.start_upload(path, storage_class=storage_class),
            )
        )

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Send one part; the last one of a number counts."""
        return await self.send(
            Call(
                "upload part",
                upload.path,
                f"part {number}: write {len(data):,} bytes",
                "repeatable write",
                lambda store: store.upload_part(upload, number, start=start, data=data),
                len(data),
            )
        )

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Make the object of its parts. A finished upload cannot be finished again, whether it may overwrite or not."""
        return await self.send(
            Call(
                "finish upload",
                upload.path,
                f"join {len(parts):,} parts",
                "conditional write",
                lambda store: store.finish_upload(upload, parts, overwrite=overwrite),
            )
        )

    async def abort_upload(self, upload: Upload) -> None:
        """Throw an unfinished upload away."""
        await self.send(
            Call(
                "abort upload",
                upload.path,
                "throw the parts away",
                "repeatable write",
                lambda store: store.abort_upload(upload),
            )
        )

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Remove what killed uploads left behind; what a failed attempt removed is not counted."""
        return await self.send(
            Call(
                "remove unfinished",
                path,
                "left behind by killed uploads",
                "repeatable write",
                lambda store: store.remove_unfinished(path, started_before_s=started_before_s),
            )
        )

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove objects."""
        await self.send(
            Call(
                "delete",
                paths[0] if paths else "",
                f"delete {len(paths):,} objects",
                "repeatable write",
                lambda store: store.delete(paths),
            )
        )

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:
        """Ask for a restored copy."""
        await self.send(
            Call(
                "restore",
                path,
                f"restore for {days:,} days, {tier}",
                "repeatable write",
                lambda store: store.restore(path, days=days, tier=tier),
            )
        )

    async def change_class(self, path: str, *, storage_class: str, if_match: str) -> str | None:
        """Move to another storage class; a move whose answer was lost leaves the new version unknown."""
        return await self.send(
            Call(
                "change class",
                path,
                f"move to {storage_class}",
                "conditional write",
                lambda store: store.change_class(path, storage_class=storage_class, if_match=if_match),
            )
        )

    async def aclose(self) -> None:
        """Close the store within."""
        await self._store.aclose()
