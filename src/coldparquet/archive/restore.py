"""Requests restores, keeps the ticket, also in a file, and waits until the copies exist."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from coldparquet.archive.objects import is_being_restored, needs_restore, restore_offer
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ArchivedObjectError, InvalidInputError, UnsupportedError
from coldparquet.options import MAX_RESTORE_DAYS, ReadOptions
from coldparquet.plan.budget import RestoreCost
from coldparquet.storage.open import opened_store, s3_path
from coldparquet.storage.urls import paths_outside
from coldparquet.text import few_names, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coldparquet.archive.objects import ArchivedObject
    from coldparquet.options import RestoreTerms
    from coldparquet.prices import PriceTable, RestoreTier
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import ObjectInfo


FIRST_PAUSE_S = 2.0
"""First pause for a restore requested earlier, which may be nearly complete."""

_LONGEST_PAUSE_S = 120.0
_PAUSE_GROWTH = 1.5


class RestoreProgress(Struct, frozen=True, kw_only=True):
    """The progress of a restore."""

    ready_objects: int
    total_objects: int
    waited_s: float
    """Since waiting began."""
    pause_s: float
    """Until the next HEADs; 0 when all are ready."""


async def wait_until_restored(
    store: ObjectStore,
    paths: Sequence[str],
    *,
    timeout_s: float,
    first_pause_s: float,
    on_progress: Callable[[RestoreProgress], None] | None = None,
) -> list[ObjectInfo]:
    """Wait until all objects can be read.

    Requests: 1 HEAD for each object that is not ready, in parallel, immediately and after every pause. Pauses grow to 2
    minutes.

    Args:
        store: The store of the objects.
        paths: The objects.
        timeout_s: Longest wait. At least one round of HEADs is sent.
        first_pause_s: Time until the second round.
        on_progress: Called after every round.

    Returns:
        The result of each object's last HEAD, in the order of ``paths``.

    Raises:
        ArchivedObjectError: Time is up (kind ``RestoreNotFinished``), or the restore of an object is no longer in
            progress: the copy has expired (kind ``RestoreExpired``).
        NotFoundError: An object is gone.
        AccessError: The store refused.
        StorageError: The store failed.
    """
    started_s = time.monotonic()
    pause_s = first_pause_s
    ready: dict[str, ObjectInfo] = {}
    while True:
        missing = [path for path in dict.fromkeys(paths) if path not in ready]
        infos = await gather_or_cancel([store.info(path) for path in missing])
        ready |= {path: info for path, info in zip(missing, infos, strict=True) if not needs_restore(info)}
        left = [path for path in missing if path not in ready]
        waited_s = time.monotonic() - started_s
        if on_progress is not None:
            total = len(ready) + len(left)
            shown_pause_s = pause_s if left else 0.0
            on_progress(
                RestoreProgress(ready_objects=len(ready), total_objects=total, waited_s=waited_s, pause_s=shown_pause_s)
            )
        if not left:
            return [ready[path] for path in paths]
        _refuse_lost_restores([info for info in infos if info.path in left])
        if waited_s + pause_s > timeout_s:
            raise ArchivedObjectError(
                f"{plural(len(left), 'object')} of {len(ready) + len(left):,} could not be read yet after {waited_s:,.0f} s:"
                f" {few_names(left)}; the restore goes on, wait for it again",
                kind="RestoreNotFinished",
                path=left[0],
                paths=left,
            )
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)


def _refuse_lost_restores(waiting: Sequence[ObjectInfo]) -> None:
    lost = [info.path for info in waiting if not is_being_restored(info)]
    if lost:
        raise ArchivedObjectError(
            f"no restore of {plural(len(lost), 'object')} is under way: {few_names(lost)}; the restored copies have expired,"
            " or nobody has asked for them: ask for the restore again",
            kind="RestoreExpired",
            path=lost[0],
            paths=lost,
        )


_TICKET_VERSION = 1

_MOST_DOLLARS = 1e12
_YEARS = range(2000, 3000)
"""Valid times. Beyond them time arithmetic overflows sooner or later, and there was no S3."""

_SLACK = timedelta(minutes=10)
_UNKNOWN_DURATION = timedelta(hours=48)
"""Assumed duration of a restore without an entry in a price table: S3's longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTicket:
    """Requested restores of some data objects of one table."""

    url: str
    """The table, without credentials."""
    paths: tuple[str, ...]
    """The objects, as their store names them, including those that were already being restored."""
    tier: RestoreTier
    days: int
    """How long the restored copies stay."""
    requested_at: datetime
    expected_ready_at: datetime | None
    """When most restores of this tier are complete; None if no price table tells."""
    dollars: float | None
    """Cost by the price table; None if the table does not tell. Restores already in progress cost nothing."""

    def to_json(self) -> str:
        """Return the ticket as one line of JSON without secrets."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the ticket as plain data that ``json.dumps`` takes; times as ISO 8601."""
        expected = self.expected_ready_at
        return {
            "coldparquet_restore_ticket": _TICKET_VERSION,
            "url": self.url,
            "paths": list(self.paths),
            "tier": self.tier,
            "days": self.days,
            "requested_at": self.requested_at.isoformat(),
            "expected_ready_at": None if expected is None else expected.isoformat(),
            "dollars": self.dollars,
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> RestoreTicket:
        """Read a ticket that :meth:`to_json` has written.

        Its paths must be inside its table. The ticket itself names the table. So compare :attr:`url` before you use
        your credentials to wait for a ticket that others may have changed.

        Raises:
            InvalidInputError: It is not a ticket (kind ``NoTicket``); ``details`` hold the ``field``.
        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if fields is None:  # outside of the except block: a traceback of a thousand brackets is useless
            raise _no_ticket("it is no JSON", "JSON")
        return cls._from_fields(fields if isinstance(fields, dict) else {})

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> RestoreTicket:
        version = fields.get("coldparquet_restore_ticket")
        if type(version) is not int or version != _TICKET_VERSION:
            expected = f"it does not say coldparquet_restore_ticket: {_TICKET_VERSION}"
            raise _no_ticket(expected, "coldparquet_restore_ticket")
        paths, tier, days, dollars = (fields.get(name) for name in ("paths", "tier", "days", "dollars"))
        if not isinstance(paths, list) or not paths or not all(map(_is_name, paths)):
            raise _no_ticket("paths is no list of objects' paths", "paths")
        if tier not in ("Expedited", "Standard", "Bulk"):
            raise _no_ticket("tier is none of Expedited, Standard and Bulk", "tier")
        if type(days) is not int or not 1 <= days <= MAX_RESTORE_DAYS:  # True is an int as well
            raise _no_ticket(f"days is no whole number from 1 to {MAX_RESTORE_DAYS:,}", "days")
        if dollars is not None and not (type(dollars) in (int, float) and 0 <= dollars <= _MOST_DOLLARS):
            raise _no_ticket("dollars is no sum of money", "dollars")
        if not _is_name(fields.get("url")):
            raise _no_ticket("url is no text", "url")
        requested_at = _time_of(fields, "requested_at")
        if requested_at is None:
            raise _no_ticket("requested_at is missing", "requested_at")
        _check_place(fields["url"], paths)
        return cls(
            url=fields["url"],
            paths=tuple(paths),
            tier=tier,
            days=days,
            requested_at=requested_at,
            expected_ready_at=_time_of(fields, "expected_ready_at"),
            dollars=dollars,
        )

    @property
    def patience_s(self) -> float:
        """Longest time that :meth:`wait` waits from now on: until twice the expected time, plus a few minutes."""
        expected = self.expected_ready_at or self.requested_at + _UNKNOWN_DURATION
        latest = self.requested_at + 2 * (expected - self.requested_at) + _SLACK
        return max(0.0, (latest - datetime.now(UTC)).total_seconds())

    async def wait(
        self,
        *,
        storage_options: Mapping[str, Any] | None = None,
        store: ObjectStore | None = None,
        timeout_s: float | None = None,
        first_pause_s: float = FIRST_PAUSE_S,
        on_progress: Callable[[RestoreProgress], None] | None = None,
    ) -> None:
        """Wait until all objects can be read; also in another process, days later.

        Requests: those of :func:`coldparquet.archive.restore.wait_until_restored`.

        Args:
            storage_options: Credentials, endpoint and so on, as for opening the table.
            store: A store of your own with these paths; it stays open.
            timeout_s: Longest wait; None is :attr:`patience_s`.
            first_pause_s: Time until the second round of HEADs.
            on_progress: Called after every round.

        Raises:
            InvalidInputError: The ticket's place has no restores, or its objects are outside of its table (kind
                ``NoTicket``); no request was sent.
            ArchivedObjectError: Time is up (kind ``RestoreNotFinished``), or the copies have expired
                (``RestoreExpired``).
            NotFoundError: An object is gone.
            AccessError: The store refused the credentials.
            StorageError: The store failed.
        """
        _check_place(self.url, self.paths)
        if store is None and s3_path(self.url) is None:
            raise _no_ticket("url names no object store: pass the store in which the paths are", "url")
        async with opened_store(
            self.url,
            storage_options=storage_options,
            store_options=None,
            store=store,
            max_concurrency=ReadOptions().max_concurrency,
        ) as opened:
            await wait_until_restored(
                opened.stack.store,
                self.paths,
                timeout_s=self.patience_s if timeout_s is None else timeout_s,
                first_pause_s=first_pause_s,
                on_progress=on_progress,
            )


def _check_place(url: str, paths: Sequence[str]) -> None:
    """Refuse a ticket that would send HEADs for objects outside of its table."""
    table = s3_path(url)
    if table is None:
        if "://" in url or "::" in url:
            raise _no_ticket("url is none of S3, where alone objects are restored", "url")
        table = url.rstrip("/")  # a path in a store of the caller's own
    outside = paths_outside(paths, table)
    if outside:
        raise _no_ticket(f"paths leads out of {url}: {few_names(outside)}", "paths")


def _is_name(value: object) -> bool:
    """Tell whether a value can be a URL or the path of an object: text without NUL that UTF-8 can encode."""
    return isinstance(value, str) and value != "" and re.search("[\0\ud800-\udfff]", value) is None


def _time_of(fields: dict[str, Any], name: str) -> datetime | None:
    value = fields.get(name)
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise _no_ticket(f"{name} is no time in ISO 8601", name) from error
    if time.tzinfo is None:
        raise _no_ticket(f"{name} names no time zone", name)
    if time.year not in _YEARS:
        raise _no_ticket(f"{name} is not in the years {_YEARS.start} to {_YEARS.stop - 1}", name)
    return time


def _no_ticket(problem: str, field: str) -> InvalidInputError:
    return InvalidInputError(
        f"this is no restore ticket: {problem}; RestoreTicket.to_json and 'coldparquet restore --ticket FILE' write one",
        kind="NoTicket",
        field=field,
    )


async def request_restores(
    store: ObjectStore, archived: Sequence[ArchivedObject], terms: RestoreTerms, *, url: str, prices: PriceTable
) -> RestoreTicket:
    """Request the restore of objects; those already being restored are only added to the ticket.

    Requests: 1 for each of the others, in parallel. If one fails, the others are sent nevertheless; asking again is
    then free for those in progress.

    Args:
        store: The store of the objects.
        archived: The objects.
        terms: Tier, days, and whether to wait.
        url: The table, for the ticket.
        prices: For the ticket.

    Raises:
        UnsupportedError: This tier cannot restore one of the objects (kind ``NoSuchTier``); no restore was requested.
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
    """Refuse a tier that cannot restore some of the objects.

    Raises:
        UnsupportedError: It cannot (kind ``NoSuchTier``).
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
    """Price restores before they are requested; those in progress are free.

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
        if error.kind != "NotArchived":  # already restored, or moved to another class: it is readable
            raise
