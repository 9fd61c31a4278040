"""What restoring archived objects costs and takes, tier by tier."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.plan.wording import human_dollars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.prices import PriceTable, RestoreTier

RESTORE_TIERS: tuple[RestoreTier, ...] = ("Expedited", "Standard", "Bulk")
"""From the fastest to the cheapest."""

INTELLIGENT_TIERING = "INTELLIGENT_TIERING"
"""The class that moves objects into archive tiers and back; a restore of one makes no copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedBytes:
    """Objects of one class that are restored alike."""

    storage_class: str
    object_count: int
    """How many restores are asked for; 0 if all of them are under way."""
    object_bytes: int
    """Their size, all together."""
    days: int
    """How long the copies stay; 0 where none is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOffer:
    """What restoring some objects in one tier costs and takes."""

    tier: RestoreTier
    dollars: float
    """Requests, retrieval and the copies; of those that are not being restored already."""
    hours_typical: float
    hours_most: float
    """S3 promises nothing; most restores are over by then."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data that ``json.dumps`` takes."""
        return asdict(self)


def price_restore(archived: Sequence[ArchivedBytes], *, tier: RestoreTier, prices: PriceTable) -> RestoreOffer | None:
    """Price one tier; None where no price of it is known for one of the classes."""
    dollars = hours_typical = hours_most = 0.0
    for each in archived:
        known = prices.find(each.storage_class)
        price = next((price for price in known.restores if price.tier == tier), None) if known is not None else None
        if price is None:
            return None
        dollars += prices.restore_dollars(
            each.storage_class,
            tier,
            object_count=each.object_count,
            object_bytes=each.object_bytes,
            days=each.days,
        )
        hours_typical, hours_most = max(hours_typical, price.hours_typical), max(hours_most, price.hours_most)
    return RestoreOffer(tier=tier, dollars=dollars, hours_typical=hours_typical, hours_most=hours_most)


def describe_offer(offer: RestoreOffer) -> str:
    """Write ``Standard: 4 to 5 hours, $0.03``."""
    return f"{offer.tier}: {describe_hours(offer)}, {about_dollars(offer.dollars)}"


def describe_hours(offer: RestoreOffer) -> str:
    """Write ``3 to 5 minutes``, ``4 to 5 hours``."""
    if offer.hours_most < 1:
        return f"{offer.hours_typical * 60:.0f} to {offer.hours_most * 60:.0f} minutes"
    return f"{offer.hours_typical:g} to {offer.hours_most:g} hours"


def about_dollars(dollars: float | None) -> str:
    """Write ``$0.03``, ``nothing`` or ``at an unknown price``."""
    if dollars is None:
        return "at an unknown price"
    return human_dollars(dollars) if dollars else "nothing"
