"""Asking a store to restore archived objects."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.plan.budgets import RestoreCost
from coldparquet.restoring.archived_objects import restore_offer
from coldparquet.restoring.restore_ticket import RestoreTicket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.options import RestoreTerms
    from coldparquet.prices import PriceTable, RestoreTier
    from coldparquet.restoring.archived_objects import ArchivedObject
    from coldparquet.storage.base import ObjectStore


async def request_restores(
    store: ObjectStore, archived: Sequence[ArchivedObject], terms: RestoreTerms, *, url: str, prices: PriceTable
) -> RestoreTicket:
    """Ask for the restore of objects; those of which one is under way already are only put on the ticket.

    Requests: 1 for each of the others, all at once. When one fails, the others are carried through all the same; asking
    again then costs nothing for those that are under way.

    Args:
        store: Where the objects lie.
        archived: The objects.
        terms: How.
        url: The table, for the ticket.
        prices: For the ticket.

    Raises:
        UnsupportedError: An object cannot be restored in this tier (kind ``NoSuchTier``); nothing was asked for.
        AccessError: Restoring is not permitted.
        StorageError: The store failed, or has no capacity for this tier now.
    """
    refuse_unknown_tier(archived, terms.tier)
    offer = restore_offer(archived, tier=terms.tier, days=terms.days, prices=prices)
    requested_at = datetime.now(UTC).replace(microsecond=0)
    results = await asyncio.gather(
        *(_request(store, each, terms) for each in archived if not each.is_being_restored), return_exceptions=True
    )
    for result in results:
        if result is not None:
            raise result
    return RestoreTicket(
        url=url,
        paths=tuple(each.path for each in archived),
        tier=terms.tier,
        days=terms.days,
        requested_at=requested_at,
        expected_ready_at=None if offer is None else requested_at + timedelta(hours=offer.hours_typical),
        dollars=None if offer is None else offer.dollars,
    )


def refuse_unknown_tier(archived: Sequence[ArchivedObject], tier: RestoreTier) -> None:
    """Refuse a tier in which some of the objects cannot be restored.

    Raises:
        UnsupportedError: It is one (kind ``NoSuchTier``).
    """
    for each in archived:
        if not each.knows(tier):
            raise UnsupportedError(
                f"{each.place} is not restored in tier {tier}; use Standard or Bulk",
                kind="NoSuchTier",
                path=each.path,
                tier=tier,
            )


def cost_of_restores(archived: Sequence[ArchivedObject], terms: RestoreTerms, prices: PriceTable) -> RestoreCost:
    """Price restores before they are asked for; those that are under way cost nothing.

    Raises:
        UnsupportedError: As :func:`refuse_unknown_tier`.
    """
    refuse_unknown_tier(archived, terms.tier)
    wanted = [each for each in archived if not each.is_being_restored]
    offer = restore_offer(wanted, tier=terms.tier, days=terms.days, prices=prices)
    return RestoreCost(object_count=len(wanted), tier=terms.tier, dollars=None if offer is None else offer.dollars)


async def _request(store: ObjectStore, archived: ArchivedObject, terms: RestoreTerms) -> None:
    try:
        await store.restore(archived.path, days=archived.restored_days(terms.days), tier=terms.tier)
    except InvalidInputError as error:
        if error.kind != "NotArchived":  # somebody else was quicker, or has moved it to another class: it can be read
            raise
