"""Partitions whose Parquet file is not, or may not be, the one that their metadata describes.

What tells without a request of its own is asked of every question, also of those that metadata answers: a disk tells size and
time of each file, a store with classes those that it was asked about, a listing those that it showed. What nobody told is
believed, and the first request for data is checked (:class:`~coldparquet.storage.wrappers.checked.CheckedStore`).

A file of another size is another file. A file of the described size that was written after its sidecar may be another one, or
a copy that was written in another order: its footer decides. That is read on disks alone: in an object store the time is
that of the last copy, and moving an object to another storage class is one.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from coldparquet.catalog.partition import WRITTEN_AFTER_SIDECAR
from coldparquet.catalog.partition_location import DATA_FILE
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import FormatError, NotFoundError, ObjectChangedError
from coldparquet.plan.wording import plural
from coldparquet.scanning.native_partition import NativePlan
from coldparquet.scanning.planned_partition import data_file_missing
from coldparquet.storage.objects import is_lasting_etag, is_written_after
from coldparquet.storage.wrappers.checked import check_described_size, other_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.plan.read_plan import PartitionRead
    from coldparquet.scanning.known_partition import KnownPartition
    from coldparquet.scanning.question import Question
    from coldparquet.storage.objects import ObjectInfo

_LOGGER = logging.getLogger("coldparquet")

_Error = TypeVar("_Error", NotFoundError, ObjectChangedError)


async def without_replaced_files(question: Question, known: Sequence[KnownPartition]) -> list[KnownPartition]:
    """Read metadata again that may not be that of the Parquet file beside it, and refuse metadata that is not.

    Requests: for entries of the catalogue whose objects are not those that were packed, those of
    :meth:`coldparquet.catalog.partition.Partition.reread_replaced`; for sidecars that are older than a file on a disk, those
    of :meth:`coldparquet.catalog.partition.Partition.read_footer_instead`. All at once.

    Args:
        question: What is asked.
        known: Partitions with their metadata.

    Raises:
        ObjectChangedError: A file has another size than its metadata describes, or was replaced since it was read.
        NotFoundError: A file is not there (kind ``PartitionMissing``).
    """
    packed_anew = await gather_or_cancel([_reread(found) for found in known if _is_stale_entry(question, found)])
    known = _with(known, packed_anew)
    of_files = [(found, found.known) for found in known if not isinstance(found.known, NativePlan)]
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
    """Say in one note how many sidecars are believed because nobody told of the files that they describe."""
    data_objects = question.snapshot.data_objects
    believed = sum(
        read.metadata_source in {"sidecar", "catalogue"} and data_objects.size_bytes(read.data_path) is None
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
    packed, info = found.known, question.snapshot.data_objects.info(found.partition.data_path)
    if isinstance(packed, NativePlan) or info is None or packed.data_etag is None:
        return False
    return is_lasting_etag(info.etag) and info.etag != packed.data_etag


async def _reread(found: KnownPartition) -> KnownPartition:
    metadata = await found.partition.reread_replaced()
    return replace(found, known=metadata, requests=(*found.requests, *metadata.metadata_requests))


def _check_seen(question: Question, partition: Partition, metadata: PartitionMetadata) -> None:
    """Compare with what the store has told of the object for other reasons, if it has."""
    data_objects, path = question.snapshot.data_objects, partition.data_path
    if data_objects.is_missing(path):
        raise _noted(question, data_file_missing(path))
    _check_size(question, partition, metadata, data_objects.size_bytes(path))


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
    """Return the size of a file on a disk that may not be the described one, else None; refuse one that certainly is not."""
    store = question.snapshot.store
    if info is None or info.size_bytes is None or info.etag is None:
        raise _noted(question, data_file_missing(partition.data_path))
    question.snapshot.data_objects.note(info)
    if info.size_bytes > metadata.sidecar.parquet_size_bytes:
        return None if partition.may_grow else info.size_bytes
    _check_size(question, partition, metadata, info.size_bytes)
    if partition.may_grow:
        return None
    # Later requests are held to the version that is seen here, so that nobody replaces the file unnoticed.
    store.check_version(partition.data_path, info.etag)
    return info.size_bytes if is_written_after(info.modified_s, metadata.sidecar_modified_s) else None


async def _read_footer(
    question: Question, found: KnownPartition, metadata: PartitionMetadata, size_bytes: int
) -> KnownPartition:
    """Read the footer where the metadata says that it ends; refuse a longer file that has none there.

    An update in place leaves it there, and what lies behind it does not count before the sidecar describes it. Of an update by
    a QuestDB only the table's `_txn` tells, which is not here: whoever reads is warned that rows may be missing.
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
    spent = read.metadata_requests[len(metadata.metadata_requests) :]
    return replace(found, known=read, requests=(*found.requests, *spent))


def _noted(question: Question, error: _Error) -> _Error:
    """Have the table ask for the object itself when it is refreshed."""
    question.snapshot.store.note_changed(str(error.path))
    return error
