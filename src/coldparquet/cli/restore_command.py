"""``coldparquet restore``: make archived partitions readable for some days, and wait for it, now or later."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from coldparquet.archive.objects import places_of, restore_offers
from coldparquet.archive.restore import RestoreTicket
from coldparquet.cli.output import lines_table, output_console, print_json, print_more
from coldparquet.errors import InvalidInputError
from coldparquet.opening import open_table
from coldparquet.options import ReadOptions, RestoreTerms
from coldparquet.plan.cost import about_dollars, describe_offer, prices_of
from coldparquet.progress import progress_bar
from coldparquet.text import human_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

    from coldparquet.archive.objects import ArchivedObject
    from coldparquet.archive.restore import RestoreProgress
    from coldparquet.prices import RestoreTier

_LISTED = 20
"""Partitions that the text lists before it says how many more there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreQuestion:
    """What the flags say."""

    url: str
    storage_options: Mapping[str, Any]
    where: str | None
    is_whole_table: bool
    """Whether everything that is archived was asked for in so many words."""
    tier: RestoreTier | None
    """None where no flag says."""
    days: int | None
    wait: bool
    dry_run: bool
    ticket_file: Path | None
    options: ReadOptions
    """What it may cost, and at which prices."""

    @property
    def terms(self) -> RestoreTerms:
        """How to restore, with the usual tier and days where no flag says."""
        usual = RestoreTerms()
        return RestoreTerms(tier=self.tier or usual.tier, days=self.days or usual.days)

    @property
    def known_ticket(self) -> Path | None:
        """The ticket to go on with; None where a restore is asked for anew, or only its price."""
        file = self.ticket_file
        return file if file is not None and file.exists() and not self.dry_run else None


def restore_and_report(question: RestoreQuestion, *, as_json: bool) -> None:
    """Restore what a question needs and print what that costs, or go on with the restore of a ticket."""
    _check(question)
    ticket_file = question.known_ticket
    if ticket_file is not None:
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
            _print_archived(archived, question, as_json=as_json)
            return
        ticket = requested
    if question.wait:
        _wait(ticket, question.storage_options)
    _print_ticket(ticket, ready=question.wait, as_json=as_json)


def _check(question: RestoreQuestion) -> None:
    """Make sure that one thing was asked for: no whole table is restored by leaving out a flag, or by a misspelt file."""
    if question.where is not None and question.is_whole_table:
        raise typer.BadParameter("give one of --where and --all", param_hint="--all")
    says_what = question.where is not None or question.is_whole_table
    if question.known_ticket is not None:
        if says_what or question.tier is not None or question.days is not None:
            raise typer.BadParameter(
                f"{question.known_ticket} exists, and says what is restored: leave out --where, --all, --tier and --days,"
                " or name a new file for a new restore",
                param_hint="--ticket",
            )
    elif not says_what and not question.dry_run:
        if question.ticket_file is not None:
            raise typer.BadParameter(
                f"there is no ticket {question.ticket_file}; to restore and keep the ticket there, say what is to be"
                " restored: --where CONDITION, or --all",
                param_hint="--ticket",
            )
        raise typer.BadParameter(
            "say what is to be restored: --where CONDITION, or --all for every archived partition; --dry-run only tells"
            " what that costs",
            param_hint="--where",
        )


async def _request(question: RestoreQuestion) -> tuple[tuple[ArchivedObject, ...], RestoreTicket | None]:
    """Ask for the restores, unless there is nothing to restore or nothing is to be asked for."""
    async with open_table(question.url, storage_options=question.storage_options, options=question.options) as table:
        scan = table.scan(where=question.where)
        archived = await scan.archived()
        if question.dry_run or not archived:
            return archived, None
        with _new_file(question.ticket_file) as file:
            ticket = await scan.restore(question.terms)
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


def _print_archived(archived: Sequence[ArchivedObject], question: RestoreQuestion, *, as_json: bool) -> None:
    days = question.terms.days
    offers = restore_offers(archived, days=days, prices=prices_of(question.options)) if archived else ()
    if as_json:
        facts = {"archived": [each.as_dict() for each in archived], "offers": [offer.as_dict() for offer in offers]}
        print_json({"url": question.url, **facts})
        return
    console = output_console()
    if not archived:
        no_ticket = "" if question.ticket_file is None else "; no ticket was written"
        console.print(f"nothing has to be restored{no_ticket}")
        return
    table = lines_table("", "", "", "")
    for each in archived[:_LISTED]:
        state = "restore under way" if each.is_being_restored else ""
        table.add_row(each.partition, each.place, human_bytes(each.size_bytes), state)
    console.print(table)
    print_more(console, len(archived) - _LISTED)
    size = human_bytes(sum(each.size_bytes for each in archived))
    places = " and ".join(places_of(archived))
    console.print(f"\n{plural(len(archived), 'partition')} in {places}, {size}, to restore for {plural(days, 'day')}:")
    for offer in offers:
        console.print(f"  {describe_offer(offer)}")


def _print_ticket(ticket: RestoreTicket, *, ready: bool | None, as_json: bool) -> None:
    if as_json:
        print_json({"url": ticket.url, "ticket": ticket.as_dict(), "is_ready": bool(ready)})
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
