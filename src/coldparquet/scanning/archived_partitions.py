"""What is done about partitions whose data lies in an archive: an error that says what to do, or a restore.

Planning never needs the data objects of partitions with a sidecar, so that a plan, its price and all answers from metadata
are there without a restore. The policy of the options applies when rows are to be read, before the first request for data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.errors import ArchivedObjectError
from coldparquet.plan.read_plan import SkippedPartition
from coldparquet.plan.wording import few_names, human_bytes, plural
from coldparquet.prices import PriceTable
from coldparquet.restoring.archive_state import needs_restore
from coldparquet.restoring.archived_objects import (
    ArchivedObject,
    about_dollars,
    describe_offer,
    places_of,
    restore_offers,
)
from coldparquet.restoring.restore_requests import request_restores
from coldparquet.restoring.restore_wait import FIRST_PAUSE_S, wait_until_restored
from coldparquet.scanning.planned_partition import PlannedParquet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coldparquet.options import ReadOptions, RestoreTerms
    from coldparquet.plan.read_plan import MetadataRequest, PartitionRead
    from coldparquet.restoring.restore_ticket import RestoreTicket
    from coldparquet.restoring.restore_wait import RestoreProgress
    from coldparquet.scanning.question import Question
    from coldparquet.scanning.scan_planner import PlannedScan


def wants_looks(question: Question) -> bool:
    """Tell whether to look at the data objects of partitions while their metadata is read.

    Not for questions that metadata may answer; but where archived partitions are skipped, they are so for every question,
    or the number of rows would not be that of the rows.
    """
    options = question.options
    is_of_use = question.expects_data or options.archived == "skip"
    return is_of_use and options.check_storage_classes and question.snapshot.data_objects.can_be_asked


def archived_object(question: Question, name: str, path: str) -> ArchivedObject | None:
    """Return the data object of a partition, if it was seen to need a restore."""
    info = question.snapshot.data_objects.info(path)
    return ArchivedObject.of(name, info) if info is not None and needs_restore(info) else None


def skipped(archived: ArchivedObject) -> SkippedPartition:
    """Note that a partition is left out."""
    return SkippedPartition(name=archived.partition, storage_class=archived.place, size_bytes=archived.size_bytes)


async def ready_to_read(planned: PlannedScan) -> PlannedScan:
    """Make sure that everything that a plan is about to fetch can be read. Called before its first request for data.

    Requests: 1 for each partition of which data is fetched and that was not looked at before, all at once. If some of them
    are archived and the options ask for it, 1 restore each, and looks until they are over.

    Args:
        planned: The plan.

    Returns:
        The plan, with the storage classes that are known now.

    Raises:
        ArchivedObjectError: Some partitions are archived, and the options do not say to wait for their restore.
    """
    question = planned.question
    data_objects = question.snapshot.data_objects
    if not (question.options.check_storage_classes and data_objects.can_be_asked):
        return planned
    places = _places_of_data(planned)
    spent: list[MetadataRequest] = []
    await data_objects.look_at([planned.plan.partitions[place].data_path for place in places], spent)
    archived = _archived_in(planned, places)
    if archived:
        await restore_or_refuse(question, archived)
    partitions = tuple(with_storage_class(question, read) for read in planned.plan.partitions)
    metadata_requests = (*planned.plan.metadata_requests, *spent)
    return replace(planned, plan=replace(planned.plan, partitions=partitions, metadata_requests=metadata_requests))


def with_storage_class(question: Question, read: PartitionRead) -> PartitionRead:
    """Note where the data object of a partition lies, if somebody has looked."""
    info = question.snapshot.data_objects.info(read.data_path)
    if info is None or (info.storage_class, needs_restore(info)) == (read.storage_class, read.is_archived):
        return read
    return replace(read, storage_class=info.storage_class, is_archived=needs_restore(info))


async def archived_objects(planned: PlannedScan) -> tuple[ArchivedObject, ...]:
    """Find out which partitions of a plan need a restore before they can be read.

    Requests: 1 for each partition of which data is fetched and that was not looked at before, all at once; none on a store
    without storage classes.
    """
    data_objects = planned.question.snapshot.data_objects
    if not data_objects.can_be_asked:
        return ()
    places = _places_of_data(planned)
    await data_objects.look_at([planned.plan.partitions[place].data_path for place in places], [])
    return _archived_in(planned, places)


async def restore_objects(
    question: Question,
    archived: Sequence[ArchivedObject],
    terms: RestoreTerms,
    *,
    on_progress: Callable[[RestoreProgress], None] | None = None,
) -> RestoreTicket:
    """Ask for the restore of data objects and, if the terms say so, wait until it is over.

    Requests: those of :func:`coldparquet.restoring.restore_requests.request_restores`, and of waiting.
    """
    data_objects, store = question.snapshot.data_objects, question.snapshot.store
    ticket = await request_restores(store, archived, terms, url=question.url, prices=_prices(question.options))
    if terms.wait:
        infos = await wait_until_restored(
            store,
            ticket.paths,
            timeout_s=ticket.patience_s,
            first_pause_s=FIRST_PAUSE_S,
            on_progress=on_progress,
        )
        for info in infos:
            data_objects.note(info)
    return ticket


async def restore_or_refuse(question: Question, archived: Sequence[ArchivedObject]) -> None:
    """Do what the options say about archived partitions; return once they can be read.

    Raises:
        ArchivedObjectError: They cannot, and nothing was asked for; or a restore was (kind ``RestoreRequested``).
    """
    options = question.options
    if options.archived != "restore":
        raise _refusal(question, archived)
    ticket = await restore_objects(question, archived, options.restore)
    if not options.restore.wait:
        raise _requested(archived, ticket)


def _places_of_data(planned: PlannedScan) -> list[int]:
    """Return the positions of the Parquet partitions of which something is fetched."""
    places = dict.fromkeys(request.partition_index for request in planned.plan.requests)
    return [place for place in places if isinstance(planned.partitions[place], PlannedParquet)]


def _archived_in(planned: PlannedScan, places: Sequence[int]) -> tuple[ArchivedObject, ...]:
    reads = [planned.plan.partitions[place] for place in places]
    found = (archived_object(planned.question, read.name, read.data_path) for read in reads)
    return tuple(archived for archived in found if archived is not None)


def _prices(options: ReadOptions) -> PriceTable:
    return options.prices or PriceTable.default()


def _refusal(question: Question, archived: Sequence[ArchivedObject]) -> ArchivedObjectError:
    """Make the error that tells everything that is needed to decide what to do."""
    options = question.options
    offers = restore_offers(archived, days=options.restore.days, prices=_prices(options))
    where = "" if question.predicate_text is None else f' --where "{question.predicate_text}"'
    if all(each.is_being_restored for each in archived):
        advice = "a restore of all of them is under way: wait for it with"
    else:
        spoken = "; ".join(map(describe_offer, offers))
        advice = f"{spoken}. Restore them with" if offers else "Restore them with"
    return ArchivedObjectError(
        f"{_summary(archived)} before they can be read, and nothing was fetched. {advice} 'coldparquet restore"
        f" {question.url}{where}' or Scan.restore(); ReadOptions(archived='skip') leaves them out",
        kind="ObjectArchived",
        path=question.url,
        partitions=[each.partition for each in archived],
        objects=tuple(archived),
        storage_classes=list(places_of(archived)),
        archived_bytes=sum(each.size_bytes for each in archived),
        tiers=list(offers),
    )


def _requested(archived: Sequence[ArchivedObject], ticket: RestoreTicket) -> ArchivedObjectError:
    ready = "" if ticket.expected_ready_at is None else f", expected by {ticket.expected_ready_at:%Y-%m-%d %H:%M} UTC"
    return ArchivedObjectError(
        f"{_summary(archived)}; that was requested ({ticket.tier}{ready}, {about_dollars(ticket.dollars)}). Read again then, or wait:"
        " error.details['ticket'].wait()",
        kind="RestoreRequested",
        path=ticket.url,
        partitions=[each.partition for each in archived],
        ticket=ticket,
    )


def _summary(archived: Sequence[ArchivedObject]) -> str:
    """Write ``3 partitions (2024-03-01, 2024-03-02, 2024-03-03) lie in GLACIER: 1.2 GiB must be restored``."""
    names = few_names([each.partition for each in archived])
    verb = "lies" if len(archived) == 1 else "lie"
    size = human_bytes(sum(each.size_bytes for each in archived))
    places = " and ".join(places_of(archived))
    return f"{plural(len(archived), 'partition')} ({names}) {verb} in {places}: {size} must be restored"
