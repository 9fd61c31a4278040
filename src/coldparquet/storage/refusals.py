"""The errors that stores of several kinds raise in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError, ObjectChangedError, StorageError, UnsupportedError

if TYPE_CHECKING:
    from coldparquet.storage.requests import FetchedRange, RangeRequest


class BrokenBodyError(StorageError):
    """The answer to a GET broke off in the middle of its body.

    Args:
        message: As for every error.
        kind: ``ShortRead``, ``Timeout`` or ``ConnectionFailed``.
        path: The object.
        received: The bytes that arrived, from the beginning of the range; None where they are not needed any more. They
            are not pickled.
        **details: Facts of the message as data.
    """

    default_kind = "ShortRead"

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        path: str | None = None,
        received: FetchedRange | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, kind=kind, path=path, **details)
        self.received = received


_MOST_TOLD = 100
"""Characters of a version; S3's have less than 50, but a server may answer anything."""


def restore_unsupported(path: str) -> UnsupportedError:
    """Make the error for stores without archive classes."""
    return UnsupportedError("this store has no archive classes, so that nothing can be restored", path=path)


def classes_unsupported(path: str) -> UnsupportedError:
    """Make the error for stores that cannot move objects between storage classes."""
    return UnsupportedError(
        "this store has no storage classes, so that nothing can be moved to another one",
        kind="NoStorageClasses",
        path=path,
    )


def versions_not_listed(path: str) -> UnsupportedError:
    """Make the error for stores whose listings do not tell the versions of objects."""
    return UnsupportedError("this store does not list the versions of objects", path=path)


def no_versions(label: str, path: str) -> UnsupportedError:
    """Make the error for stores that cannot tell whether an object still has a version."""
    return UnsupportedError(
        f"{label} does not tell versions, so if_match cannot be honoured", kind="NoVersions", path=path
    )


def no_object_size(label: str, path: str) -> UnsupportedError:
    """Make the error for stores that can neither read the end of an object nor tell where it is."""
    return UnsupportedError(
        f"{label} does not tell the object's size, which is needed to read its end; "
        "write a sidecar for the file, then its end need not be read",
        kind="NoObjectSize",
        path=path,
    )


def object_changed(request: RangeRequest, *, found_etag: str | None) -> ObjectChangedError:
    """Make the error for an object that no longer has the version of ``request.if_match``."""
    return version_changed(request.path, request.if_match, found_etag=found_etag)


def version_changed(path: str, expected_etag: str | None, *, found_etag: str | None) -> ObjectChangedError:
    """Make the error for an object that no longer has the version that was seen first."""
    return ObjectChangedError(
        f"the object was replaced during the read: its version was {expected_etag}, {_version_now(found_etag)};"
        " plan the read again",
        path=path,
        expected_etag=expected_etag,
        found_etag=found_etag,
    )


def object_replaced(path: str | None, **details: Any) -> ObjectChangedError:
    """Make the error for an answer to ``If-Match`` that says that the object has another version, but not which."""
    return ObjectChangedError(
        "the object was replaced since its ETag was seen, or a listing that is not up to date told of the one before; refresh"
        " the table, which then asks for this object itself, and plan again",
        path=path,
        **details,
    )


def version_gone(path: str, if_match: str, *, found_etag: str | None) -> ObjectChangedError:
    """Make the error for a put of an object that no longer has the version ``if_match``."""
    return ObjectChangedError(
        f"somebody else wrote this object: its version was {if_match}, {_version_now(found_etag)}; nothing was written",
        path=path,
        expected_etag=if_match,
        found_etag=found_etag,
    )


def already_exists(path: str) -> InvalidInputError:
    """Make the error for a put that must not replace an object."""
    return InvalidInputError(
        "the object exists already; remove it, choose another path or allow overwriting",
        kind="AlreadyExists",
        path=path,
    )


def _version_now(found_etag: str | None) -> str:
    return f"it is {found_etag[:_MOST_TOLD]} now" if found_etag else "it has another one now"
