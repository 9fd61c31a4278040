"""Simulates storage classes: which objects are archived, and which are restored by the store's own clock."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from email.utils import formatdate
from fnmatch import translate
from http import HTTPStatus
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError
from coldparquet_testing.simulator.objects import AnswerError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DAY_S = 86_400
_HOUR_S = 3_600
_RESTORE_S: dict[str, dict[str, float]] = {
    "GLACIER": {"Expedited": 180, "Standard": 4 * _HOUR_S, "Bulk": 8 * _HOUR_S},
    "DEEP_ARCHIVE": {"Standard": 12 * _HOUR_S, "Bulk": 48 * _HOUR_S},
    "ARCHIVE_ACCESS": {"Expedited": 180, "Standard": 4 * _HOUR_S, "Bulk": 8 * _HOUR_S},
    "DEEP_ARCHIVE_ACCESS": {"Standard": 12 * _HOUR_S, "Bulk": 48 * _HOUR_S},
}
"""Duration of S3's restores, in the middle of its promises, by archive and tier. All other classes are no archives."""

_CLASSES = frozenset(
    {"STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"}
    | {"GLACIER", "DEEP_ARCHIVE", "EXPRESS_ONEZONE"}
)


@dataclass(frozen=True, slots=True)
class ObjectClass:
    """The storage class of an object."""

    name: str = "STANDARD"
    """S3's name of the storage class."""
    archive_status: str | None = None
    """``ARCHIVE_ACCESS`` or ``DEEP_ARCHIVE_ACCESS`` for objects that Intelligent-Tiering has archived."""

    @property
    def archive(self) -> str | None:
        """The archive from which it must be restored; None if it is readable immediately."""
        place = self.archive_status or self.name
        return place if place in _RESTORE_S else None


def parse_object_class(text: str) -> ObjectClass:
    """Parse a class such as ``GLACIER``, or ``INTELLIGENT_TIERING/ARCHIVE_ACCESS``.

    Raises:
        InvalidInputError: S3 knows no such class.
    """
    name, _, archive_status = text.partition("/")
    known = {"", "ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS"} if name == "INTELLIGENT_TIERING" else {""}
    if name not in _CLASSES or archive_status not in known:
        raise InvalidInputError(
            f"{text!r} is no storage class; use one of {', '.join(sorted(_CLASSES))} or INTELLIGENT_TIERING/ARCHIVE_ACCESS"
        )
    return ObjectClass(name, archive_status or None)


class StoreClock:
    """The time of the store, which may run faster than real time.

    Args:
        speed: Seconds of the store per real second.
    """

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._started_s = time.time()
        self._start_s = time.monotonic()
        self._advanced_s = 0.0

    def now_s(self) -> float:
        """Return the store's time, in seconds since 1970."""
        return self._started_s + (time.monotonic() - self._start_s) * self._speed + self._advanced_s

    def advance(self, seconds: float) -> None:
        """Advance the clock at once."""
        self._advanced_s += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restore:
    ready_s: float
    """When the copy is ready, in seconds since 1970 by the store's clock."""
    expires_s: float | None
    """When the copy expires; None for objects of Intelligent-Tiering, which stay."""


class StorageClasses:
    """Knows the class of every object, and the restores.

    Args:
        classes: Class by pattern of ``bucket/key`` for files that were not written through the store; of several patterns
            that match the first one counts.
        clock: The store's time.
    """

    def __init__(self, classes: Mapping[str, str], clock: StoreClock) -> None:
        self._by_pattern = [(_pattern(pattern), parse_object_class(text)) for pattern, text in classes.items()]
        self._moved: list[tuple[re.Pattern[str], ObjectClass]] = []
        self._restores: dict[tuple[str, str], _Restore] = {}
        self._clock = clock

    def move(self, pattern: str, storage_class: str) -> None:
        """Apply a lifecycle rule: matching objects now have this class, and their restored copies are gone."""
        matches, moved = _pattern(pattern), parse_object_class(storage_class)
        self._moved.insert(0, (matches, moved))
        self._restores = {key: restore for key, restore in self._restores.items() if not matches.match(key[0])}

    def class_of(self, path: str, etag: str, *, written: ObjectClass | None) -> ObjectClass:
        """Return the current storage class of an object version.

        Args:
            path: ``bucket/key``.
            etag: The version.
            written: Class that it was written to; None for a file from before.
        """
        for pattern, moved in self._moved:
            if pattern.match(path):
                return self._after_restore(path, etag, moved)
        if written is not None:
            return self._after_restore(path, etag, written)
        for pattern, found in self._by_pattern:
            if pattern.match(path):
                return self._after_restore(path, etag, found)
        return ObjectClass()

    def is_readable(self, path: str, etag: str, found: ObjectClass) -> bool:
        """Tell whether a GET succeeds: the object is not archived, or a restored copy exists."""
        if found.archive is None:
            return True
        restore = self._restore(path, etag)
        return restore is not None and restore.ready_s <= self._clock.now_s()

    def headers(self, path: str, etag: str, found: ObjectClass) -> dict[str, str]:
        """Return the headers of a HEAD or GET for class and restore; none for STANDARD, as S3 does."""
        headers = {} if found.name == "STANDARD" else {"x-amz-storage-class": found.name}
        if found.archive_status is not None:
            headers["x-amz-archive-status"] = found.archive_status
        restore = self._restore(path, etag)
        if restore is None or found.archive is None:
            return headers
        if restore.ready_s > self._clock.now_s():
            headers["x-amz-restore"] = 'ongoing-request="true"'
        elif restore.expires_s is not None:
            expiry = formatdate(restore.expires_s, usegmt=True)
            headers["x-amz-restore"] = f'ongoing-request="false", expiry-date="{expiry}"'
        return headers

    def restore(self, path: str, etag: str, found: ObjectClass, *, days: int | None, tier: str) -> HTTPStatus:
        """Answer RestoreObject.

        Args:
            path: ``bucket/key``.
            etag: The version.
            found: Its storage class.
            days: Lifetime of the copy; None for objects of Intelligent-Tiering, which stay in their new tier.
            tier: ``Expedited``, ``Standard`` or ``Bulk``.

        Returns:
            202 for a new restore, 200 where the copy already exists and now stays longer.

        Raises:
            AnswerError: The object is not archived, or the request does not fit its archive.
        """
        if found.archive is None:
            raise AnswerError(
                HTTPStatus.FORBIDDEN,
                "InvalidObjectState",
                "Restore is not allowed for the object's current storage class",
            )
        if (days is None) != (found.archive_status is not None):
            raise AnswerError(
                HTTPStatus.BAD_REQUEST,
                "InvalidArgument",
                "Days are needed, but for Intelligent-Tiering, which refuses them.",
            )
        if tier not in _RESTORE_S[found.archive]:
            raise AnswerError(
                HTTPStatus.BAD_REQUEST, "InvalidArgument", "Retrieval option is not supported by this storage class"
            )
        now_s = self._clock.now_s()
        earlier = self._restore(path, etag)
        if earlier is not None and earlier.ready_s > now_s:
            raise AnswerError(HTTPStatus.CONFLICT, "RestoreAlreadyInProgress", "Object restore is already in progress")
        ready_s = now_s if earlier else now_s + _RESTORE_S[found.archive][tier]
        # S3 counts whole days and rounds up to the next midnight.
        expires_s = None if days is None else (ready_s // _DAY_S + days + 1) * _DAY_S
        self._restores[path, etag] = _Restore(ready_s=ready_s, expires_s=expires_s)
        return HTTPStatus.OK if earlier else HTTPStatus.ACCEPTED

    def _after_restore(self, path: str, etag: str, found: ObjectClass) -> ObjectClass:
        """Return the class, which for Intelligent-Tiering a restore has changed."""
        if found.archive_status is None or not self.is_readable(path, etag, found):
            return found
        return ObjectClass(found.name)

    def _restore(self, path: str, etag: str) -> _Restore | None:
        """Return the restore of an object; None when there is none, or its copy has expired."""
        restore = self._restores.get((path, etag))
        if restore is None or restore.expires_s is None or restore.expires_s > self._clock.now_s():
            return restore
        return None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(translate(text), re.DOTALL)
