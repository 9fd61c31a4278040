"""Describes archived objects: what a store tells about one, and price and duration of each way to restore it.

S3's classes GLACIER (Flexible Retrieval) and DEEP_ARCHIVE, and the two archive tiers of INTELLIGENT_TIERING, refuse
GETs until a restore has made a copy. All others, GLACIER_IR among them, are read like any object, at prices of their
own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.plan.cost import INTELLIGENT_TIERING, RESTORE_TIERS, ArchivedBytes, price_restore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coldparquet.plan.cost import RestoreOffer
    from coldparquet.prices import PriceTable, RestoreTier
    from coldparquet.storage.requests import ObjectInfo


_ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})

_INTELLIGENT_TIERING = "INTELLIGENT_TIERING"

STANDARD = "STANDARD"


def needs_restore(info: ObjectInfo) -> bool:
    """Tell whether the object is in an archive and has no restored copy."""
    is_archived = info.storage_class in _ARCHIVE_CLASSES or info.archive_status is not None
    return is_archived and (info.restore is None or info.restore.is_ongoing)


def may_be_archived(info: ObjectInfo) -> bool:
    """Tell whether an object known only from a listing may need a restore: listings omit tiers and copies."""
    return info.storage_class is None or info.storage_class in {*_ARCHIVE_CLASSES, _INTELLIGENT_TIERING}


def is_being_restored(info: ObjectInfo) -> bool:
    """Tell whether a restore of the object is in progress."""
    return info.restore is not None and info.restore.is_ongoing


_WITHOUT_EXPEDITED = frozenset({"DEEP_ARCHIVE", "DEEP_ARCHIVE_ACCESS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedObject:
    """The data object of one partition, in an archive."""

    partition: str
    """Name of the partition's directory."""
    path: str
    size_bytes: int
    """0 if the store does not tell."""
    storage_class: str
    archive_status: str | None
    """The object's archive tier of Intelligent-Tiering; None for other classes."""
    is_being_restored: bool
    """Whether a restore is already in progress."""

    @classmethod
    def of(cls, partition: str, info: ObjectInfo) -> ArchivedObject:
        """Make it from the result of a HEAD."""
        return cls(
            partition=partition,
            path=info.path,
            size_bytes=info.size_bytes or 0,
            storage_class=info.storage_class or STANDARD,
            archive_status=info.archive_status,
            is_being_restored=is_being_restored(info),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data that ``json.dumps`` takes."""
        return asdict(self)

    @property
    def place(self) -> str:
        """Storage class and tier, for people: ``GLACIER``, ``INTELLIGENT_TIERING ARCHIVE_ACCESS``."""
        return self.storage_class if self.archive_status is None else f"{self.storage_class} {self.archive_status}"

    def knows(self, tier: RestoreTier) -> bool:
        """Tell whether a tier can restore objects of this class."""
        return tier != "Expedited" or not {self.storage_class, self.archive_status} & _WITHOUT_EXPEDITED

    def restored_days(self, days: int) -> int:
        """Return for how many days a copy is made: Intelligent-Tiering moves the object itself, and takes no days."""
        return 0 if self.storage_class == INTELLIGENT_TIERING else days


def restore_offers(archived: Sequence[ArchivedObject], *, days: int, prices: PriceTable) -> tuple[RestoreOffer, ...]:
    """Price every tier that can restore all of the objects, fastest first.

    Args:
        archived: The objects; their classes may differ.
        days: How long the restored copies stay.
        prices: The price table; a class without an entry has no offer.
    """
    offers = (restore_offer(archived, tier=tier, days=days, prices=prices) for tier in RESTORE_TIERS)
    return tuple(offer for offer in offers if offer is not None)


def restore_offer(
    archived: Sequence[ArchivedObject], *, tier: RestoreTier, days: int, prices: PriceTable
) -> RestoreOffer | None:
    """Price one tier; None if it cannot restore all objects, or a price is unknown. See :func:`restore_offers`."""
    if not all(each.knows(tier) for each in archived):
        return None
    objects: Counter[tuple[str, int]] = Counter()
    new_bytes: Counter[tuple[str, int]] = Counter()
    for each in archived:
        key = (each.storage_class, each.restored_days(days))
        objects[key] += not each.is_being_restored
        new_bytes[key] += 0 if each.is_being_restored else each.size_bytes
    alike = [
        ArchivedBytes(storage_class=key[0], object_count=count, object_bytes=new_bytes[key], days=key[1])
        for key, count in objects.items()
    ]
    return price_restore(alike, tier=tier, prices=prices)


def places_of(archived: Iterable[ArchivedObject]) -> tuple[str, ...]:
    """Return the distinct storage classes and tiers of objects, in alphabetical order."""
    return tuple(sorted({each.place for each in archived}))
