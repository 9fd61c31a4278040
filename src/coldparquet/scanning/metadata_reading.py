"""The first step of planning: read the metadata of partitions, and look at their data objects."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coldparquet.catalog.partition import read_packed
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.errors import ArchivedObjectError
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT
from coldparquet.plan.time_bounds import is_time_range, timestamp_bounds
from coldparquet.scanning.archived_partitions import archived_object, restore_or_refuse, skipped, wants_looks
from coldparquet.scanning.bloom_copies import asked_ahead
from coldparquet.scanning.known_partition import KnownPartition
from coldparquet.scanning.native_planner import find_native_rows
from coldparquet.scanning.replaced_files import without_replaced_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.packed_blooms import Stripe
    from coldparquet.catalog.packed_sidecars import LookAhead
    from coldparquet.catalog.partition import Partition
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.read_plan import MetadataRequest, SkippedPartition
    from coldparquet.restoring.archived_objects import ArchivedObject
    from coldparquet.scanning.first_look import FirstLooks
    from coldparquet.scanning.question import Question


@dataclass(slots=True, kw_only=True)
class FoundPartitions:
    """What the metadata of partitions has brought."""

    known: list[KnownPartition] = field(default_factory=list)
    """In table order."""
    looks: list[MetadataRequest] = field(default_factory=list)
    """Requests that looked at data objects, and for stripes."""
    stripes: dict[Stripe, memoryview] = field(default_factory=dict)
    """Stripes of bloom filters that the catalogue was asked for while a listing was waited for."""
    first_looks: FirstLooks | None = None
    """What was found about the sidecars meanwhile, which were not known to count."""
    skipped: list[SkippedPartition] = field(default_factory=list)
    """Partitions whose metadata cannot be read because it lies in the archived object itself."""


async def read_metadata(question: Question, kept: Sequence[Partition]) -> FoundPartitions:
    """Read the metadata of all partitions at once; for the first rows of a table, of no more than hold them.

    Requests: those of :func:`coldparquet.catalog.partition.read_packed` and, where the catalogue has nothing that counts, of
    :meth:`coldparquet.catalog.partition.Partition.metadata`. For partitions of which these may send any, and of which not every
    row is wanted for certain, at the same time 1 for the ``_pages`` of each, if others have them; else for the first partition.
    For native partitions see :func:`coldparquet.scanning.native_partition.plan_native_rows`. At the same time, too, 1 look at
    each partition's data object, see :mod:`coldparquet.catalog.data_objects`; and where these are one listing, those of
    :meth:`coldparquet.catalog.packed_blooms.PackedBlooms.fetch_ahead` for the bloom filters that the question will ask.

    Args:
        question: What is asked.
        kept: The partitions, in table order.

    Raises:
        ArchivedObjectError: Metadata lies in archived objects, because there is no sidecar, and the options do not skip or
            restore them.
    """
    found = FoundPartitions()
    is_preview = question.limit is not None and question.predicate is None
    done = rows = 0
    while done < len(kept):
        if is_preview and rows >= (question.limit or 0):
            break
        stop = min(max(1, 2 * done), len(kept)) if is_preview else len(kept)
        window = kept[done:stop]
        await _read_window(question, window, done, found)
        done = stop
        if is_preview:
            left_out = _archived_names(question, window) if question.options.archived == "skip" else frozenset[str]()
            rows += sum(partition.rows or 0 for partition in window if partition.name not in left_out)
    return found


async def _read_window(question: Question, window: Sequence[Partition], first: int, found: FoundPartitions) -> None:
    data_objects = question.snapshot.data_objects
    in_parquet = [partition for partition in window if partition.format == "parquet"]
    looked_at = in_parquet if wants_looks(question) else []
    waits_for_listing = _consider_listing(question, in_parquet, look_count=len(looked_at))
    results, _ = await both(
        _look_into(
            question, window, first, look_ahead=_look_ahead(question, window, found) if waits_for_listing else None
        ),
        data_objects.look_at([partition.data_path for partition in looked_at], found.looks),
    )
    archived = [
        partition for partition, result in zip(window, results, strict=True) if isinstance(result, ArchivedObjectError)
    ]
    if archived:
        refusal = next(result for result in results if isinstance(result, ArchivedObjectError))
        readable = await _after_the_archive(question, window, archived, refusal, found)
        results = [readable.get(partition.name, result) for partition, result in zip(window, results, strict=True)]
    known = [result for result in results if not isinstance(result, ArchivedObjectError)]
    found.known += await without_replaced_files(question, known)


def _consider_listing(question: Question, in_parquet: Sequence[Partition], *, look_count: int) -> bool:
    """Let a listing take the place of looks, and of the sidecars that the catalogue would then have, if it saves requests.

    Returns:
        Whether a listing does.
    """
    unread = [partition.location for partition in in_parquet if partition.snapshot is None]
    saved_requests = look_count + question.snapshot.catalogue.saved_by_listing(unread)
    directories = [partition.directory_path for partition in in_parquet]
    listed = question.snapshot.listed_objects
    listed.consider(directories, saved_requests=saved_requests)
    return any(map(listed.is_worth_listing, directories))


def _look_ahead(question: Question, window: Sequence[Partition], found: FoundPartitions) -> LookAhead | None:
    """Fetch stripes of bloom filters while a listing is waited for, if the question may ask any.

    Not where the newest partition, which was read when the table was opened, shows that the table was written anew since it
    was packed: then the listing leaves no entry that counts.
    """
    catalogue, newest = question.snapshot.catalogue, question.snapshot.partitions[-1].location
    if question.predicate is None or not catalogue.blooms.are_there or catalogue.is_contradicted_by(newest):
        return None

    async def fetch(packed: Mapping[str, Sidecar]) -> None:
        sidecars = {partition.name: partition.snapshot or packed.get(partition.name) for partition in window}
        known = {name: sidecar for name, sidecar in sidecars.items() if sidecar is not None}
        found.first_looks, asked = await asyncio.to_thread(asked_ahead, question, known)
        found.stripes |= await catalogue.blooms.fetch_ahead(asked, found.looks)

    return fetch


async def _after_the_archive(
    question: Question,
    window: Sequence[Partition],
    archived: Sequence[Partition],
    refusal: ArchivedObjectError,
    found: FoundPartitions,
) -> dict[str, KnownPartition]:
    """Do what the options say about partitions whose metadata lies in archived objects.

    Returns:
        What their metadata has brought by their names, once it could be read; nothing if they are skipped.
    """
    data_objects = question.snapshot.data_objects
    await data_objects.look_at([partition.data_path for partition in archived], found.looks)
    objects = _all_archived(question, archived)
    if len(objects) < len(archived):
        raise refusal  # nothing that is known of the object explains it
    if question.options.archived == "skip":
        found.skipped += map(skipped, objects)
        return {}
    await restore_or_refuse(question, _all_archived(question, window))
    again = await _look_into(question, archived, first=0)
    refused = next((result for result in again if isinstance(result, ArchivedObjectError)), None)
    if refused is not None:
        raise refused
    return {known.partition.name: known for known in again if not isinstance(known, ArchivedObjectError)}


async def _look_into(
    question: Question, partitions: Sequence[Partition], first: int, *, look_ahead: LookAhead | None = None
) -> list[KnownPartition | ArchivedObjectError]:
    """Fetch what planning partitions needs: their metadata, or the places of rows in native files.

    Args:
        question: What is asked.
        partitions: The partitions.
        first: Position of the first one in the plan.
        look_ahead: See :func:`coldparquet.catalog.partition.read_packed`.

    Returns:
        One for each partition; the error where its metadata lies in an archived object.
    """
    page_requests: dict[str, list[MetadataRequest]] = {
        partition.name: []
        for index, partition in enumerate(partitions, first)
        if _are_pages_wanted(question, partition, index)
    }
    page_files = question.snapshot.page_files
    found, _ = await both(
        _read_all(question, partitions, first, look_ahead),
        gather_or_cancel(
            [
                page_files.look_up(partition.location, page_requests[partition.name])
                for partition in partitions
                if partition.name in page_requests
            ]
        ),
    )
    return [
        replace(known, requests=(*known.requests, *page_requests[known.partition.name]))
        if isinstance(known, KnownPartition) and known.partition.name in page_requests
        else known
        for known in found
    ]


async def _read_all(
    question: Question, partitions: Sequence[Partition], first: int, look_ahead: LookAhead | None
) -> list[KnownPartition | ArchivedObjectError]:
    await read_packed(partitions, look_ahead=look_ahead)
    # What needs no request needs no task either, of which thousands would take longer than all the rest.
    found = [
        await _read(question, partition, index) if partition.is_at_hand else None
        for index, partition in enumerate(partitions, first)
    ]
    missing = [index for index, known in enumerate(found) if known is None]
    read = await gather_or_cancel([_read(question, partitions[index], first + index) for index in missing])
    by_index = dict(zip(missing, read, strict=True))
    return [by_index[index] if known is None else known for index, known in enumerate(found)]


async def _read(question: Question, partition: Partition, index: int) -> KnownPartition | ArchivedObjectError:
    try:
        if partition.format == "native":
            native = await find_native_rows(question, partition, index)
            return KnownPartition(partition=partition, known=native, requests=native.metadata_requests)
        metadata = await partition.metadata()
    except ArchivedObjectError as error:
        return error
    return KnownPartition(partition=partition, known=metadata, requests=metadata.metadata_requests)


def _are_pages_wanted(question: Question, partition: Partition, index: int) -> bool:
    """Tell whether to fetch the ``_pages`` of a partition while its sidecar is on the way: it may be there, and of use."""
    page_files = question.snapshot.page_files
    may_be_there = index == 0 if page_files.table_has_files is None else page_files.table_has_files
    may_be_of_use = question.is_selective and question.options.page_index != "never"
    is_unread = partition.snapshot is None
    return is_unread and may_be_there and may_be_of_use and not _is_wanted_as_a_whole(question, partition)


def _is_wanted_as_a_whole(question: Question, partition: Partition) -> bool:
    """Tell whether the times that a partition stands for prove that every row of it is wanted."""
    snapshot, time_range_ns = question.snapshot, partition.time_range_ns
    timestamp = snapshot.designated_timestamp
    is_cut = question.limit is not None or question.last_rows is not None
    if is_cut or time_range_ns is None or timestamp is None or not is_time_range(question.predicate, timestamp):
        return False
    arrow_type = snapshot.columns[timestamp].readable_type.arrow
    unit_ns = NANOSECONDS_PER_UNIT[arrow_type.unit or "ns"]
    lower, upper = timestamp_bounds(question.predicate, timestamp)
    start_ns, stop_ns = time_range_ns
    begins_inside = lower is None or start_ns // unit_ns >= lower
    ends_inside = upper is None or (stop_ns - 1) // unit_ns <= upper
    return arrow_type.name == "timestamp" and begins_inside and ends_inside


def _all_archived(question: Question, partitions: Sequence[Partition]) -> list[ArchivedObject]:
    found = (archived_object(question, partition.name, partition.data_path) for partition in partitions)
    return [archived for archived in found if archived is not None]


def _archived_names(question: Question, partitions: Sequence[Partition]) -> frozenset[str]:
    return frozenset(archived.partition for archived in _all_archived(question, partitions))
