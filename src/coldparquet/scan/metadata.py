"""The first step of planning: reads the metadata of partitions, and checks that it still describes their Parquet files.

Checks that need no request of their own run for every question, also for those that metadata answers. A disk tells size
and time of each file. A store with storage classes tells the objects of its HEADs, and a listing those that it shows.
Without such information metadata is trusted, and the first request for data checks it
(:class:`~coldparquet.storage.checked.CheckedStore`).

A file of another size is another file. A file of the described size that is newer than its sidecar may be another one,
or a copy written in another order: its footer decides. Only files on disks get this check: in an object store the time
is that of the last copy, and a change of storage class is a copy.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from coldparquet.catalog.hive_keys import stated_day_ns
from coldparquet.catalog.partition import WRITTEN_AFTER_SIDECAR, read_packed
from coldparquet.catalog.table_files import DATA_FILE
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.errors import ArchivedObjectError, FormatError, NotFoundError, ObjectChangedError
from coldparquet.plan.budget import has_budget
from coldparquet.plan.predicate import NANOSECONDS_PER_UNIT
from coldparquet.plan.prune import is_time_range, misplaced_times, stated_time_range_ns, timestamp_bounds
from coldparquet.records import replace
from coldparquet.scan.admission import archived_object, restore_or_refuse, skipped, wants_heads
from coldparquet.scan.missing import data_file_missing
from coldparquet.scan.model import KnownPartition
from coldparquet.scan.native import read_native_metadata
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import metadata_requests
from coldparquet.storage.requests import is_lasting_etag, is_written_after
from coldparquet.storage.versions import check_described_size, other_size
from coldparquet.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.archive.objects import ArchivedObject
    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.plan.model import MetadataRequest, PartitionRead, SkippedPartition
    from coldparquet.scan.model import Question
    from coldparquet.storage.requests import ObjectInfo


_LOGGER = logging.getLogger("coldparquet")

_Error = TypeVar("_Error", NotFoundError, ObjectChangedError)


async def without_replaced_files(question: Question, known: Sequence[KnownPartition]) -> list[KnownPartition]:
    """Read metadata again that may not describe its Parquet file, and refuse metadata that does not.

    Requests: for catalogue entries whose objects were replaced since packing, those of
    :meth:`coldparquet.catalog.partition.Partition.reread_replaced`. For sidecars older than a file on a disk, those of
    :meth:`coldparquet.catalog.partition.Partition.read_footer_instead`. All in parallel.
    """
    packed_anew = await gather_or_cancel([_reread(found) for found in known if _is_stale_entry(question, found)])
    known = _with(known, packed_anew)
    of_files = [(found, found.metadata) for found in known if found.metadata is not None]
    paths = [found.partition.data_path for found, _ in of_files]
    at_hand = await question.snapshot.store.infos_at_hand(paths)
    if at_hand is None:
        for found, metadata in of_files:
            _check_seen(question, found.partition, metadata)
        return known
    doubted = [
        (found, metadata, size_bytes)
        for (found, metadata), info in zip(of_files, at_hand, strict=True)
        if (size_bytes := _doubted_size_bytes(question, found.partition, metadata, info)) is not None
    ]
    return _with(known, await gather_or_cancel([_read_footer(question, *doubt) for doubt in doubted]))


def beliefs(question: Question, partitions: Sequence[PartitionRead]) -> tuple[str, ...]:
    """Say in one note how many sidecars are trusted without information about their files."""
    versions = question.snapshot.versions
    believed = sum(
        read.metadata_source in {"sidecar", "catalogue"} and versions.size_bytes(read.data_path) is None
        for read in partitions
    )
    if not believed:
        return ()
    return (
        f"{plural(believed, 'sidecar')} believed without a look at {DATA_FILE}: its size is checked when data of it is fetched",
    )


def _with(known: Sequence[KnownPartition], reread: Sequence[KnownPartition]) -> list[KnownPartition]:
    by_name = {found.partition.name: found for found in reread}
    return [by_name.get(found.partition.name, found) for found in known]


def _is_stale_entry(question: Question, found: KnownPartition) -> bool:
    metadata, info = found.metadata, question.snapshot.versions.info(found.partition.data_path)
    if metadata is None or info is None or metadata.data_etag is None:
        return False
    return is_lasting_etag(info.etag) and info.etag != metadata.data_etag


async def _reread(found: KnownPartition) -> KnownPartition:
    metadata = await found.partition.reread_replaced()
    return replace(found, metadata=metadata, requests=(*found.requests, *metadata.metadata_requests))


def _check_seen(question: Question, partition: Partition, metadata: PartitionMetadata) -> None:
    """Compare the metadata with what the store has already told about the object, if anything."""
    versions, path = question.snapshot.versions, partition.data_path
    if versions.is_missing(path):
        raise _noted(question, data_file_missing(path))
    _check_size(question, partition, metadata, versions.size_bytes(path))


def _check_size(question: Question, partition: Partition, metadata: PartitionMetadata, size_bytes: int | None) -> None:
    described_bytes = metadata.sidecar.parquet_size_bytes
    if size_bytes is None:
        return
    try:
        check_described_size(
            partition.data_path, size_bytes=size_bytes, described_bytes=described_bytes, may_grow=partition.may_grow
        )
    except ObjectChangedError as error:
        raise _noted(question, error) from None


def _doubted_size_bytes(
    question: Question, partition: Partition, metadata: PartitionMetadata, info: ObjectInfo | None
) -> int | None:
    """Return the size of a disk file that may differ from the described one, else None. Refuse a certain difference."""
    if info is None or info.size_bytes is None or info.etag is None:
        raise _noted(question, data_file_missing(partition.data_path))
    question.snapshot.versions.note(info)
    if info.size_bytes > metadata.sidecar.parquet_size_bytes:
        return None if partition.may_grow else info.size_bytes
    _check_size(question, partition, metadata, info.size_bytes)
    if partition.may_grow:
        return None
    # Later requests are pinned to the version seen here, so that a replaced file is noticed.
    question.snapshot.versions.check_version(partition.data_path, info.etag)
    return info.size_bytes if is_written_after(info.modified_s, metadata.sidecar_modified_s) else None


async def _read_footer(
    question: Question, found: KnownPartition, metadata: PartitionMetadata, size_bytes: int
) -> KnownPartition:
    """Read the footer where the metadata says that it ends. Refuse a longer file that has no footer there.

    An update in place leaves the old footer there; bytes behind it do not count until the sidecar describes them. Only
    the table's `_txn` shows an update by a QuestDB, and it is not available here. A warning says that rows may be
    missing.
    """
    partition, described_bytes = found.partition, metadata.sidecar.parquet_size_bytes
    is_longer = size_bytes > described_bytes
    reason = (
        f"{DATA_FILE} goes on behind what its sidecar describes, as after an update that was not committed, and only that is"
        " read; 'coldparquet index' takes in the whole file"
        if is_longer
        else WRITTEN_AFTER_SIDECAR
    )
    try:
        read = await partition.read_footer_instead(reason, is_being_updated=is_longer)
    except FormatError as error:
        if not is_longer:
            raise
        path = partition.data_path
        problem = other_size(path, size_bytes=size_bytes, described_bytes=described_bytes, may_grow=False)
        raise _noted(question, problem) from error
    if is_longer:
        _LOGGER.warning(
            "%s: rows may be missing: it goes on for %s bytes behind what its sidecar describes, and only that is read; if the"
            " file was changed on purpose, 'coldparquet index' takes in the whole of it",
            partition.data_path,
            f"{size_bytes - described_bytes:,}",
        )
    new = read.metadata_requests[len(metadata.metadata_requests) :]
    return replace(found, metadata=read, requests=(*found.requests, *new))


def _noted(question: Question, error: _Error) -> _Error:
    """Record the error, so that the next refresh of the table asks for the object itself."""
    question.snapshot.versions.changed.add(str(error.path))
    return error


class FoundMetadata(Struct, kw_only=True):
    """The metadata of partitions, and what was found with it."""

    known: list[KnownPartition] = field(default_factory=list)
    """In table order."""
    heads: list[MetadataRequest] = field(default_factory=list)
    """HEADs of data objects, and listings in their place."""
    skipped: list[SkippedPartition] = field(default_factory=list)
    """Partitions whose metadata is unreadable because it is inside the archived object."""


async def read_metadata(question: Question, kept: Sequence[Partition]) -> FoundMetadata:
    """Read the metadata of all partitions in parallel; for a table's first rows, only of the partitions with these.

    Requests: those of :func:`coldparquet.catalog.partition.read_packed` and, without a current catalogue entry, those
    of :meth:`coldparquet.catalog.partition.Partition.metadata`. In parallel with the latter, 1 for the ``_pages`` of
    each partition whose metadata may need a request and of which not every row is certainly wanted. That holds if other
    partitions have ``_pages``; else only the first partition's is tried. For native partitions see
    :func:`coldparquet.scan.native.plan_native_rows`. Also in parallel, 1 HEAD of each partition's data object, see
    :mod:`coldparquet.catalog.objects`.
    """
    found = FoundMetadata()
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


async def _read_window(question: Question, window: Sequence[Partition], first: int, found: FoundMetadata) -> None:
    data_objects = question.snapshot.data_objects
    headed = consider_listing(question, window)
    with metadata_requests(found.heads):
        results, _ = await both(
            _read_with_pages(question, window, first),
            data_objects.head([partition.data_path for partition in headed]),
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


def consider_listing(question: Question, window: Sequence[Partition]) -> list[Partition]:
    """Use a listing in place of HEADs, and of the sidecars that the catalogue then supplies, if that saves requests.

    Returns:
        The partitions whose data objects get a HEAD, or are looked up in the listing.
    """
    in_parquet = [partition for partition in window if partition.format == "parquet"]
    headed = in_parquet if wants_heads(question) else []
    unread = [partition.location for partition in in_parquet if partition.snapshot is None]
    saved_requests = len(headed) + question.snapshot.catalogue.saved_by_listing(unread)
    directories = [partition.directory_path for partition in in_parquet]
    question.snapshot.listed_objects.consider(directories, saved_requests=saved_requests)
    return headed


async def _after_the_archive(
    question: Question,
    window: Sequence[Partition],
    archived: Sequence[Partition],
    refusal: ArchivedObjectError,
    found: FoundMetadata,
) -> dict[str, KnownPartition]:
    """Apply the options to partitions whose metadata is inside archived objects."""
    data_objects = question.snapshot.data_objects
    with metadata_requests(found.heads):
        await data_objects.head([partition.data_path for partition in archived])
    objects = _all_archived(question, archived)
    if len(objects) < len(archived):
        raise refusal  # nothing that is known of the object explains it
    if question.options.archived == "skip":
        found.skipped += map(skipped, objects)
        return {}
    await restore_or_refuse(question, _all_archived(question, window))
    again = await _read_with_pages(question, archived, first=0)
    refused = next((result for result in again if isinstance(result, ArchivedObjectError)), None)
    if refused is not None:
        raise refused
    return {known.partition.name: known for known in again if not isinstance(known, ArchivedObjectError)}


async def _read_with_pages(
    question: Question, partitions: Sequence[Partition], first: int
) -> list[KnownPartition | ArchivedObjectError]:
    """Fetch what planning needs of partitions: their metadata, or the places of rows in native files."""
    page_requests: dict[str, list[MetadataRequest]] = {
        partition.name: []
        for index, partition in enumerate(partitions, first)
        if _are_pages_wanted(question, partition, index)
    }

    async def look_up_pages(partition: Partition) -> None:
        with metadata_requests(page_requests[partition.name]):
            await question.snapshot.page_files.look_up(partition.location)

    found, _ = await both(
        _read_all(question, partitions, first),
        gather_or_cancel([look_up_pages(partition) for partition in partitions if partition.name in page_requests]),
    )
    return [
        replace(known, requests=(*known.requests, *page_requests[known.partition.name]))
        if isinstance(known, KnownPartition) and known.partition.name in page_requests
        else known
        for known in found
    ]


async def _read_all(
    question: Question, partitions: Sequence[Partition], first: int
) -> list[KnownPartition | ArchivedObjectError]:
    await read_packed(partitions)
    # Partitions that need no request get no task: thousands of tasks would take longer than everything else.
    found = [
        await _read(question, partition, index) if partition.is_at_hand else None
        for index, partition in enumerate(partitions, first)
    ]
    missing = [index for index, known in enumerate(found) if known is None]
    whole = _wanted_whole(question, [partitions[index] for index in missing])
    read = await gather_or_cancel(
        [
            _read(question, partitions[index], first + index, is_whole=whole.get(partitions[index].name))
            for index in missing
        ]
    )
    by_index = dict(zip(missing, read, strict=True))
    return [by_index[index] if known is None else known for index, known in enumerate(found)]


async def _read(
    question: Question, partition: Partition, index: int, *, is_whole: bool | None = None
) -> KnownPartition | ArchivedObjectError:
    try:
        if partition.format == "native":
            return await read_native_metadata(question, partition, index)
        metadata = await partition.metadata(is_read_whole=is_whole)
    except ArchivedObjectError as error:
        return error
    return KnownPartition(partition=partition, metadata=metadata, requests=metadata.metadata_requests)


def _wanted_whole(question: Question, partitions: Sequence[Partition]) -> dict[str, bool]:
    """Tell of partitions, by name, whether a small file may come as a whole, as far as that is known without its footer.

    Keys of the path decide the question, or name the day of rows that it asks for. Not where a budget is to be kept, which is
    asked after this, and no more files than the cache keeps until their rows are read.
    """
    snapshot = question.snapshot
    if not partitions or snapshot.store.label == LocalStore.label:
        return {}
    names = [one.name for one in partitions]
    keys = {key.name for key in partitions[0].location.keys}  # all have the same
    is_decided = all(column.name in keys for column in question.predicate_columns)
    if not question.expects_data:
        return dict.fromkeys(names, False) if is_decided else {}
    columns = sum(column.name not in keys for column in question.output_columns)
    is_for_all_rows = question.limit is None and question.last_rows is None and not has_budget(question.options)
    takes_much = question.is_read_here and is_for_all_rows and _LARGE_PART * columns >= len(snapshot.columns)
    if not keys or question.predicate is None or not takes_much:
        return {}
    wanted = dict.fromkeys(names, True) if is_decided else _of_days_asked_for(question, partitions)
    return _within_cache(question, partitions, wanted)


def _of_days_asked_for(question: Question, partitions: Sequence[Partition]) -> dict[str, bool]:
    """Tell of partitions whose keys name a day whether that is asked for."""
    asked_ns = _times_asked_for(question)
    if asked_ns is None:
        return {}
    days = {partition.name: stated_day_ns(partition.location.keys) for partition in partitions}
    return {name: day[0] < asked_ns[1] and asked_ns[0] < day[1] for name, day in days.items() if day is not None}


def _within_cache(question: Question, partitions: Sequence[Partition], wanted: dict[str, bool]) -> dict[str, bool]:
    """Leave out the files that would be dropped before they are read, and fetched again."""
    left_bytes = question.snapshot.store.largest_scan_bytes
    fitting = {}
    for partition in partitions:
        is_wanted = wanted.get(partition.name)
        left_bytes -= (partition.small_file_bytes or 0) if is_wanted else 0
        if is_wanted is not None and (left_bytes >= 0 or not is_wanted):
            fitting[partition.name] = is_wanted
    return fitting


def _times_asked_for(question: Question) -> tuple[int, int] | None:
    """Return the times that a question bounds, of a column whose values in the newest file are of the day that its path names.

    Then those of other files probably are, too, which is no proof: nothing is pruned by it.
    """
    newest = question.snapshot.partitions[-1]
    sidecar, day = newest.snapshot, stated_day_ns(newest.location.keys)
    if sidecar is None or day is None:
        return None
    for column in question.predicate_columns:
        place, arrow_type = sidecar.column_index(column.name), column.readable_type.arrow
        if place is None or arrow_type.name != "timestamp":
            continue
        lower, upper = timestamp_bounds(question.predicate, column.index)
        if lower is None or upper is None:
            continue
        try:
            stated = stated_time_range_ns(sidecar, place)
        except FormatError:
            return None  # an error of the questions that need this file
        if stated is not None and misplaced_times(stated, day) is None:
            unit_ns = NANOSECONDS_PER_UNIT[arrow_type.unit or "ns"]
            return lower * unit_ns, (upper + 1) * unit_ns
    return None


_LARGE_PART = 4
"""A quarter of the columns of a small file takes less time with its footer than by a request of its own."""


def _are_pages_wanted(question: Question, partition: Partition, index: int) -> bool:
    """Tell whether to fetch a partition's ``_pages`` in parallel with its sidecar: it may exist and be useful."""
    page_files = question.snapshot.page_files
    may_be_there = index == 0 if page_files.table_has_files is None else page_files.table_has_files
    may_be_of_use = question.is_selective and question.options.page_index != "never"
    # Of a partition in the catalogue no sidecar is fetched: with that at hand, `_page_index_choice` says whether they pay.
    is_packed = partition.catalogue is not None and partition.catalogue.has_entry(partition.location)
    is_unread = partition.snapshot is None and not is_packed
    return is_unread and may_be_there and may_be_of_use and not _is_wanted_as_a_whole(question, partition)


def _is_wanted_as_a_whole(question: Question, partition: Partition) -> bool:
    """Tell whether a partition's time range proves that every row of it is wanted."""
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
