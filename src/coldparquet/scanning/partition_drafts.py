"""The first half of planning: read the metadata of partitions, look at their data objects, prune row groups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.errors import ArchivedObjectError, InternalError
from coldparquet.plan.projection import ColumnMatcher
from coldparquet.plan.reading_choices import Choice
from coldparquet.scanning.archived_partitions import archived_object, restore_or_refuse, skipped, wants_looks
from coldparquet.scanning.native_partition import NativePlan
from coldparquet.scanning.packed_partitions import without_stale_entries
from coldparquet.scanning.parquet_draft import ParquetDraft, draft_parquet
from coldparquet.scanning.partition_planner import look_into
from coldparquet.storage.wrappers.checked import object_too_small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.partition import Partition
    from coldparquet.plan.read_plan import MetadataRequest, PlannedRead, SkippedPartition
    from coldparquet.restoring.archived_objects import ArchivedObject
    from coldparquet.scanning.partition_planner import KnownPartition
    from coldparquet.scanning.question import Question

Draft: TypeAlias = "ParquetDraft | KnownPartition"
"""A native partition has been looked into already, and needs no draft."""


@dataclass(slots=True, kw_only=True)
class FoundPartitions:
    """What the metadata of partitions has brought."""

    known: list[KnownPartition] = field(default_factory=list)
    """In table order."""
    looks: list[MetadataRequest] = field(default_factory=list)
    """Requests that looked at data objects."""
    skipped: list[SkippedPartition] = field(default_factory=list)
    """Partitions whose metadata cannot be read because it lies in the archived object itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """What is left of partitions after their metadata."""

    drafts: tuple[Draft, ...]
    skipped: tuple[SkippedPartition, ...]
    """Partitions that are left out because they are archived."""
    beyond_limit: tuple[Partition, ...]
    """Partitions that nobody has to look at, because those before them certainly have enough rows."""


async def read_metadata(question: Question, kept: Sequence[Partition]) -> FoundPartitions:
    """Read the metadata of all partitions at once; for the first rows of a table, of no more than hold them.

    Requests: those of :func:`coldparquet.scanning.partition_planner.look_into` and, at the same time, 1 look at each
    partition's data object, see :mod:`coldparquet.catalog.data_objects`.

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
        left_out = _archived_names(question, window) if question.options.archived == "skip" else frozenset[str]()
        rows += sum(partition.rows or 0 for partition in window if partition.name not in left_out)
        done = stop
    return found


async def _read_window(question: Question, window: Sequence[Partition], first: int, found: FoundPartitions) -> None:
    data_objects = question.snapshot.data_objects
    in_parquet = [partition for partition in window if partition.format == "parquet"]
    looked_at = in_parquet if wants_looks(question) else []
    _consider_listing(question, in_parquet, look_count=len(looked_at))
    results, _ = await both(
        gather_or_cancel([_look_into(question, partition, first + index) for index, partition in enumerate(window)]),
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
    found.known += await without_stale_entries(question, known)


def _consider_listing(question: Question, in_parquet: Sequence[Partition], *, look_count: int) -> None:
    """Let a listing take the place of looks, and of the sidecars that the catalogue would then have, if it saves requests."""
    unread = [partition.location for partition in in_parquet if partition.snapshot is None]
    saved_requests = look_count + question.snapshot.catalogue.saved_by_listing(unread)
    directories = [partition.directory_path for partition in in_parquet]
    question.snapshot.listed_objects.consider(directories, saved_requests=saved_requests)


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
    again = await gather_or_cancel([look_into(question, partition, 0) for partition in archived])
    return {known.partition.name: known for known in again}


def draft_partitions(question: Question, found: FoundPartitions, kept: Sequence[Partition]) -> Drafts:
    """Prune the row groups of every partition by its metadata; native ones have been looked into already.

    Archived partitions that have row groups left are left out here, if the options say so; for others only what lies
    outside of the archived object is worth a closer look.

    Args:
        question: What is asked.
        found: What their metadata has brought.
        kept: The partitions, in table order.

    Raises:
        ObjectChangedError: A data object is smaller than its sidecar says.
        FormatError: See :func:`coldparquet.scanning.parquet_draft.draft_parquet`.
    """
    drafts: list[Draft] = []
    left_out = list(found.skipped)
    rows_left = question.limit
    matcher = ColumnMatcher(question.needed_columns)
    considered = {partition.name for partition in found.skipped}
    for known in found.known:
        if rows_left is not None and rows_left <= 0:
            break
        considered.add(known.partition.name)
        if isinstance(known.known, NativePlan):
            drafts.append(_renumbered(known, len(drafts)))
            rows_left = rows_after(rows_left, known.known.reads)
            continue
        _check_size(question, known)
        draft = draft_parquet(
            question,
            known.partition,
            known.known,
            matcher=matcher,
            index=len(drafts),
            rows_wanted=question.last_rows if rows_left is None else rows_left,
        )
        archived = archived_object(question, known.partition.name, known.partition.data_path)
        if archived is not None and draft.row_groups.reads and question.options.archived == "skip":
            left_out.append(skipped(archived))
            continue
        drafts.append(draft if archived is None else _without_the_object(draft))
        rows_left = rows_after(rows_left, draft.row_groups.reads)
    beyond_limit = tuple(partition for partition in kept if partition.name not in considered)
    return Drafts(drafts=tuple(drafts), skipped=tuple(left_out), beyond_limit=beyond_limit)


def rows_after(rows_left: int | None, reads: Sequence[PlannedRead]) -> int | None:
    """Return how many rows are still wanted behind some reads; None for all."""
    return None if rows_left is None else rows_left - sum(read.row_count for read in reads if read.all_rows_match)


def _check_size(question: Question, known: KnownPartition) -> None:
    """Refuse a sidecar that describes more than there is, before anything is believed that it says."""
    partition, metadata = known.partition, known.known
    if isinstance(metadata, NativePlan):
        raise InternalError("a native partition has no data object of its own")
    info = question.snapshot.data_objects.info(partition.data_path)
    least_bytes = metadata.sidecar.parquet_size_bytes
    if info is not None and info.size_bytes is not None and info.size_bytes < least_bytes:
        question.snapshot.store.note_changed(partition.data_path)
        raise object_too_small(
            partition.data_path, size_bytes=info.size_bytes, least_bytes=least_bytes, may_grow=partition.may_grow
        )


def _without_the_object(draft: ParquetDraft) -> ParquetDraft:
    """Keep of what is worth a closer look only what does not lie in the archived object itself."""
    probes, page_index = draft.probes, draft.page_index
    if probes is not None and probes.wanted() is not None:
        probes = None
    if page_index is not None and not draft.question.snapshot.page_files.is_at_hand(draft.partition.location):
        page_index = Choice(pays=False, reason="it lies in an archived object")
    return replace(draft, probes=probes, page_index=page_index)


def _renumbered(known: KnownPartition, index: int) -> KnownPartition:
    """Move the reads of a native partition to the place that it has behind those left out."""
    native = known.known
    if not isinstance(native, NativePlan) or all(read.partition_index == index for read in native.reads):
        return known
    reads = tuple(replace(read, partition_index=index) for read in native.reads)
    return replace(known, known=replace(native, reads=reads))


async def _look_into(question: Question, partition: Partition, index: int) -> KnownPartition | ArchivedObjectError:
    """Read the metadata of a partition; return the error where it lies in an archived object."""
    try:
        return await look_into(question, partition, index)
    except ArchivedObjectError as error:
        return error


def _all_archived(question: Question, partitions: Sequence[Partition]) -> list[ArchivedObject]:
    found = (archived_object(question, partition.name, partition.data_path) for partition in partitions)
    return [archived for archived in found if archived is not None]


def _archived_names(question: Question, partitions: Sequence[Partition]) -> frozenset[str]:
    return frozenset(archived.partition for archived in _all_archived(question, partitions))
