"""Admits a plan: checks its budget, and raises an error for archived data that says what to do, or restores it.

Planning never needs the data objects of partitions with a sidecar. Plans, prices and answers from metadata therefore
need no restore. The policy of the options applies when rows are read, before the first request for data.
"""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING

from coldparquet.archive.objects import ArchivedObject, is_being_restored, needs_restore, places_of, restore_offers
from coldparquet.archive.restore import FIRST_PAUSE_S, cost_of_restores, request_restores, wait_until_restored
from coldparquet.errors import ArchivedObjectError
from coldparquet.plan.budget import Budget
from coldparquet.plan.cost import about_dollars, describe_offer, prices_of
from coldparquet.plan.model import SkippedPartition
from coldparquet.plan.predicate import Instant, quote_name
from coldparquet.records import replace
from coldparquet.scan.requests import with_reads
from coldparquet.storage.log import metadata_requests
from coldparquet.text import few_names, human_bytes, human_seconds, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coldparquet.archive.restore import RestoreProgress, RestoreTicket
    from coldparquet.options import RestoreTerms
    from coldparquet.plan.model import PartitionRead
    from coldparquet.scan.model import PlannedScan, Question


_NOT_AS_THEY_STAND = frozenset('"$`\\!')
"""Characters that a shell interprets between double quotes."""


def restore_command(question: Question, archived: Sequence[ArchivedObject]) -> str:
    """Write the command that restores partitions: by the question's condition, else by their times.

    Times are used if the question has no condition or wants only some rows: it may need few of the partitions that the
    condition leaves. No request.
    """
    if question.snapshot.are_chosen:  # a condition would be asked of the whole table
        return _one_by_one(question.url, [each.partition for each in archived])
    conditions = [] if question.predicate_text is None else [question.predicate_text]
    if not conditions or question.limit is not None or question.last_rows is not None:
        times = _time_conditions(question, {each.partition for each in archived})
        conditions = [f"({condition})" for condition in conditions] if times else conditions
        conditions += times
    command = f"coldparquet restore {question.url}"
    return f"{command} --where {_shell_word(' and '.join(conditions))}" if conditions else f"{command} --all"


def _one_by_one(url: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"coldparquet restore {url}/{names[0]} --all"
    return f"for name in {' '.join(names)}; do coldparquet restore {url}/$name --all; done"


def _time_conditions(question: Question, names: set[str]) -> list[str]:
    """Return the times that enclose partitions. A bound is omitted if no partition is beyond it, or it is unknown."""
    snapshot = question.snapshot
    if snapshot.designated_timestamp is None:
        return []
    column = quote_name(snapshot.columns[snapshot.designated_timestamp].name)
    places = [place for place, partition in enumerate(snapshot.partitions) if partition.location.name in names]
    if not places:
        return []
    first = snapshot.partitions[places[0]].location.directory if places[0] else None
    is_last = places[-1] + 1 == len(snapshot.partitions)
    # The end of a partition may be unknown; the begin of the next one is known.
    behind = None if is_last else snapshot.partitions[places[-1] + 1].location.directory
    conditions = [] if first is None else [f"{column} >= '{_time(first.start_ns)}'"]
    return conditions + ([] if behind is None else [f"{column} < '{_time(behind.start_ns)}'"])


def _time(nanoseconds: int) -> str:
    return str(Instant(nanoseconds)).removesuffix("T00:00:00Z")


def _shell_word(text: str) -> str:
    return shlex.quote(text) if _NOT_AS_THEY_STAND & set(text) else f'"{text}"'


_LOGGER = logging.getLogger("coldparquet")


def wants_heads(question: Question) -> bool:
    """Tell whether to send a HEAD for each partition's data object while its metadata is read.

    Questions that metadata may answer send none, except where the options skip archived partitions. These are skipped
    for every question; otherwise the row count would differ from the number of rows.
    """
    options = question.options
    is_of_use = question.expects_data or options.archived == "skip"
    return is_of_use and options.check_storage_classes and question.snapshot.data_objects.can_be_asked


def archived_object(question: Question, name: str, path: str) -> ArchivedObject | None:
    """Return a partition's data object if it is known to need a restore."""
    info = question.snapshot.versions.info(path)
    return ArchivedObject.of(name, info) if info is not None and needs_restore(info) else None


def skipped(archived: ArchivedObject) -> SkippedPartition:
    """Record that a partition is left out."""
    return SkippedPartition(name=archived.partition, storage_class=archived.place, size_bytes=archived.size_bytes)


async def head_data(planned: PlannedScan) -> PlannedScan:
    """Find the storage classes of all objects that a plan is about to fetch. Called before admission.

    Requests: 1 for each partition with data to fetch whose object is not known yet, all in parallel; from 13 of them on
    1 listing for 250, if at least half of the partitions between the first and the last are such.
    """
    if not _checks_classes(planned.question):
        return planned
    paths = [planned.plan.partitions[place].data_path for place in _places_of_data(planned)]
    _consider_listing(planned.question, paths)
    with metadata_requests([*planned.plan.metadata_requests]) as requests:
        await planned.question.snapshot.data_objects.head(paths)
    return _with_storage_classes(replace(planned, plan=replace(planned.plan, metadata_requests=tuple(requests))))


def _consider_listing(question: Question, paths: Sequence[str]) -> None:
    """Have the objects listed if that takes fewer requests than a HEAD for each, and lists little else."""
    snapshot, versions = question.snapshot, question.snapshot.versions
    unknown = {path for path in paths if not versions.was_asked_for(path)}
    places = [place for place, partition in enumerate(snapshot.partitions) if partition.data_path in unknown]
    if not snapshot.are_chosen and places and places[-1] - places[0] < 2 * len(places):
        directories = [snapshot.partitions[place].directory_path for place in places]
        snapshot.listed_objects.consider(directories, saved_requests=len(directories))


async def admit_and_restore(planned: PlannedScan) -> PlannedScan:
    """Check that a plan is within its budget and all its data is readable. Called before its first request for data.

    Requests: none, unless partitions are archived and the options ask for restores: then 1 restore each, and HEADs
    until they complete. The budget includes the price of restores and is checked before the first one.
    """
    question = planned.question
    budget = question.budget or Budget()
    archived = _archived_in(planned, _places_of_data(planned)) if _checks_classes(question) else ()
    if not archived:
        budget.admit(planned.plan)
        return planned
    options = question.options
    if options.archived != "restore":
        raise _refusal(question, archived)
    budget.admit(planned.plan, restores=cost_of_restores(archived, options.restore, prices_of(options)))
    await _restore_as_told(question, archived)
    return _with_storage_classes(planned)


def with_storage_class(question: Question, read: PartitionRead) -> PartitionRead:
    """Add the storage class of the partition's data object, if it is known."""
    info = question.snapshot.versions.info(read.data_path)
    if info is None:
        return read
    return replace(
        read,
        storage_class=info.storage_class,
        is_archived=needs_restore(info),
        is_being_restored=is_being_restored(info),
    )


async def archived_objects(planned: PlannedScan) -> tuple[ArchivedObject, ...]:
    """Find the partitions of a plan that need a restore before they can be read.

    Requests: 1 for each partition with data to fetch whose object is not known yet, all in parallel. None on a store
    without storage classes.
    """
    data_objects = planned.question.snapshot.data_objects
    if not data_objects.can_be_asked:
        return ()
    places = _places_of_data(planned)
    await data_objects.head([planned.plan.partitions[place].data_path for place in places])
    return _archived_in(planned, places)


async def restore_objects(
    question: Question,
    archived: Sequence[ArchivedObject],
    terms: RestoreTerms,
    *,
    on_progress: Callable[[RestoreProgress], None] | None = None,
) -> RestoreTicket:
    """Request the restore of data objects and, if the terms say so, wait until it completes.

    Requests: those of :func:`coldparquet.archive.restore.request_restores`, and of waiting.
    """
    store = question.snapshot.store
    ticket = await request_restores(store, archived, terms, url=question.url, prices=prices_of(question.options))
    if terms.wait:
        infos = await wait_until_restored(
            store,
            ticket.paths,
            timeout_s=ticket.patience_s,
            first_pause_s=FIRST_PAUSE_S,
            on_progress=on_progress,
        )
        for info in infos:
            question.snapshot.versions.note(info)
    return ticket


async def restore_or_refuse(question: Question, archived: Sequence[ArchivedObject]) -> None:
    """Apply the options to archived partitions that planning itself needs; return once they are readable."""
    options = question.options
    if options.archived != "restore":
        raise _refusal(question, archived)
    cost = cost_of_restores(archived, options.restore, prices_of(options))
    (question.budget or Budget()).admit_restores(cost, options, table=question.url)
    await _restore_as_told(question, archived)


async def _restore_as_told(question: Question, archived: Sequence[ArchivedObject]) -> None:
    """Restore during a scan, and log the progress for the caller."""

    def log(progress: RestoreProgress) -> None:
        _LOGGER.info(
            "%s: %d of %d archived objects can be read after %s%s",
            question.url,
            progress.ready_objects,
            progress.total_objects,
            human_seconds(progress.waited_s),
            f"; the next look is in {human_seconds(progress.pause_s)}" if progress.pause_s else "",
        )

    ticket = await restore_objects(question, archived, question.options.restore, on_progress=log)
    if not question.options.restore.wait:
        raise _requested(archived, ticket)


def _checks_classes(question: Question) -> bool:
    return question.options.check_storage_classes and question.snapshot.data_objects.can_be_asked


def _with_storage_classes(planned: PlannedScan) -> PlannedScan:
    partitions = tuple(with_storage_class(planned.question, read) for read in planned.plan.partitions)
    return replace(planned, plan=replace(planned.plan, partitions=partitions))


def _places_of_data(planned: PlannedScan) -> list[int]:
    """Return the positions of the Parquet partitions with data to fetch."""
    places = dict.fromkeys(request.partition_index for request in planned.plan.requests)
    return [place for place in places if planned.plan.partitions[place].metadata_source != "native"]


def _archived_in(planned: PlannedScan, places: Sequence[int]) -> tuple[ArchivedObject, ...]:
    reads = [planned.plan.partitions[place] for place in places]
    found = (archived_object(planned.question, read.name, read.data_path) for read in reads)
    return tuple(archived for archived in found if archived is not None)


def _refusal(question: Question, archived: Sequence[ArchivedObject]) -> ArchivedObjectError:
    """Make the error with everything that the caller needs to decide what to do."""
    options = question.options
    offers = restore_offers(archived, days=options.restore.days, prices=prices_of(options))
    they, them = ("it", "it") if len(archived) == 1 else ("they", "them")
    command = restore_command(question, archived)
    if all(each.is_being_restored for each in archived):
        command += " --wait"
        advice = f"A restore of {'it' if len(archived) == 1 else 'all of them'} is under way: wait for it with"
    else:
        spoken = "; ".join(map(describe_offer, offers))
        advice = f"{spoken}. Restore {them} with" if offers else f"Restore {them} with"
    return ArchivedObjectError(
        f"{_summary(archived)} before {they} can be read, and no row was read. {advice}"
        f" '{command}' or Scan.restore(); ReadOptions(archived='skip') leaves {them} out",
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


async def admit(planned: PlannedScan) -> PlannedScan:
    """Check that a plan may be executed: every obstacle is found before its first request for data.

    Requests: those of :func:`coldparquet.scan.admission.head_data` and of
    :func:`~coldparquet.scan.admission.admit_and_restore`; these also document the errors.
    """
    headed = await head_data(planned)
    question, plan = headed.question, headed.plan
    if question.options.goal == "cheap" and plan.coalescings != tuple(
        question.coalescing_of(partition.data_path) for partition in plan.partitions
    ):
        headed = with_reads(headed, plan.row_groups)  # the storage class of an object changes what its bytes cost
    return await admit_and_restore(headed)
