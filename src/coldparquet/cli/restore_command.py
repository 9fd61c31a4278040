"""``coldparquet restore``: make archived partitions readable for some days, and wait for it, now or later."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from coldparquet.cli.output import output_console, print_json, progress_bar
from coldparquet.errors import InvalidInputError
from coldparquet.options import RestoreTerms
from coldparquet.plan.wording import human_bytes, plural
from coldparquet.prices import PriceTable
from coldparquet.restoring.archived_objects import about_dollars, describe_offer, places_of, restore_offers
from coldparquet.restoring.restore_ticket import RestoreTicket
from coldparquet.table import open_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

    from coldparquet.options import RestoreTier
    from coldparquet.restoring.archived_objects import ArchivedObject
    from coldparquet.restoring.restore_wait import RestoreProgress

_LISTED = 20
"""Partitions that the text lists before it says how many more there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreQuestion:
    """What the flags say."""

    url: str
    storage_options: Mapping[str, Any]
    where: str | None
    tier: RestoreTier
    days: int
    wait: bool
    dry_run: bool
    ticket_file: Path | None


def restore_tier(name: str) -> RestoreTier:
    """Take a tier as it was typed, in any case.

    Raises:
        InvalidInputError: There is no such tier.
    """
    tiers: tuple[RestoreTier, ...] = ("Expedited", "Standard", "Bulk")
    for tier in tiers:
        if tier.lower() == name.lower():
            return tier
    raise InvalidInputError(f"there is no tier {name!r}; use one of {', '.join(tiers)}", kind="NoSuchTier")


def restore_and_report(question: RestoreQuestion, *, as_json: bool) -> None:
    """Restore what a question needs and print what that costs, or go on with the restore of a ticket.

    Raises:
        InvalidInputError: The ticket is of another table (kind ``OtherTicket``).
    """
    ticket_file = question.ticket_file
    if ticket_file is not None and ticket_file.exists() and not question.dry_run:
        ticket = RestoreTicket.from_json(ticket_file.read_bytes())
        if ticket.url != question.url:
            raise InvalidInputError(
                f"the ticket in {ticket_file} is of {ticket.url}, not of {question.url}: name another file",
                kind="OtherTicket",
            )
        if not question.wait:
            _print_ticket(ticket, ready=None, as_json=as_json)
            return
    else:
        archived, requested = asyncio.run(_request(question))
        if question.dry_run or requested is None:
            _print_archived(archived, days=question.days, as_json=as_json)
            return
        ticket = requested
    if question.wait:
        _wait(ticket, question.storage_options)
    _print_ticket(ticket, ready=question.wait, as_json=as_json)


async def _request(question: RestoreQuestion) -> tuple[tuple[ArchivedObject, ...], RestoreTicket | None]:
    """Ask for the restores, unless there is nothing to restore or nothing is to be asked for."""
    terms = RestoreTerms(tier=question.tier, days=question.days)
    async with open_table(question.url, storage_options=question.storage_options) as table:
        scan = table.scan(where=question.where)
        archived = await scan.archived()
        if question.dry_run or not archived:
            return archived, None
        with _new_file(question.ticket_file) as file:
            ticket = await scan.restore(terms)
            if file is not None:
                file.write(ticket.to_json() + "\n")
        return archived, ticket


@contextmanager
def _new_file(path: Path | None) -> Iterator[TextIO | None]:
    """Make the file before anything that costs money; remove it if nothing is written into it."""
    if path is None:
        yield None
        return
    with path.open("x", encoding="utf-8") as file:
        try:
            yield file
        except BaseException:
            path.unlink()
            raise


def _wait(ticket: RestoreTicket, storage_options: Mapping[str, Any]) -> None:
    with progress_bar() as progress:
        task = progress.add_task("restoring", total=len(ticket.paths), unit="objects")

        def show(state: RestoreProgress) -> None:
            progress.update(task, completed=state.ready_objects)

        asyncio.run(ticket.wait(storage_options=storage_options, on_progress=show))


def _print_archived(archived: Sequence[ArchivedObject], *, days: int, as_json: bool) -> None:
    offers = restore_offers(archived, days=days, prices=PriceTable.default()) if archived else ()
    if as_json:
        print_json({"archived": [each.as_dict() for each in archived], "offers": [offer.as_dict() for offer in offers]})
        return
    console = output_console()
    if not archived:
        console.print("nothing has to be restored")
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for each in archived[:_LISTED]:
        state = "restore under way" if each.is_being_restored else ""
        table.add_row(each.partition, each.place, human_bytes(each.size_bytes), state)
    console.print(table)
    if len(archived) > _LISTED:
        console.print(f"... and {len(archived) - _LISTED:,} more; --json shows all")
    size = human_bytes(sum(each.size_bytes for each in archived))
    places = " and ".join(places_of(archived))
    console.print(f"\n{plural(len(archived), 'partition')} in {places}, {size}, to restore for {plural(days, 'day')}:")
    for offer in offers:
        console.print(f"  {describe_offer(offer)}")


def _print_ticket(ticket: RestoreTicket, *, ready: bool | None, as_json: bool) -> None:
    if as_json:
        print_json({"ticket": ticket.as_dict(), "is_ready": bool(ready)})
        return
    console = output_console()
    console.print(
        f"{plural(len(ticket.paths), 'partition')}: restore requested ({ticket.tier}, {plural(ticket.days, 'day')},"
        f" {about_dollars(ticket.dollars)})"
    )
    if ready:
        console.print("all can be read now")
    elif ticket.expected_ready_at is not None:
        console.print(f"expected by {ticket.expected_ready_at:%Y-%m-%d %H:%M} UTC; --wait waits for it")
