"""What a store's word on one object means for whoever wants to read it.

S3's classes GLACIER (Flexible Retrieval) and DEEP_ARCHIVE, and the two archive tiers of INTELLIGENT_TIERING, refuse GETs
until a restore has made a copy. All others, GLACIER_IR among them, are read like any object, at prices of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldparquet.storage.objects import ObjectInfo

_ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})

_INTELLIGENT_TIERING = "INTELLIGENT_TIERING"

STANDARD = "STANDARD"


def needs_restore(info: ObjectInfo) -> bool:
    """Tell whether the object lies in an archive and no restored copy of it is there."""
    is_archived = info.storage_class in _ARCHIVE_CLASSES or info.archive_status is not None
    return is_archived and (info.restore is None or info.restore.is_ongoing)


def may_be_archived(info: ObjectInfo) -> bool:
    """Tell whether an object, of which only a listing was seen, may need a restore: none tells of tiers and copies."""
    return info.storage_class is None or info.storage_class in {*_ARCHIVE_CLASSES, _INTELLIGENT_TIERING}


def is_being_restored(info: ObjectInfo) -> bool:
    """Tell whether a restore of the object was asked for and is not over."""
    return info.restore is not None and info.restore.is_ongoing
