"""Reads one committed state of the table to publish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.discovery import discover
from coldparquet.catalog.pages import look_up_pages_file, parse_pages_lookup
from coldparquet.catalog.partition import Partition, look_up_sidecar
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import (
    FormatError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.format.page_index import encode_pages_file
from coldparquet.format.pages import chunk_places
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.format.sidecar_layout import COMMITTED_SIZE
from coldparquet.options import ReadOptions
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.requests import RangeRequest, is_lasting_etag
from coldparquet.write.upload import StoreSource

if TYPE_CHECKING:
    from coldparquet.catalog.discovery import Discovery
    from coldparquet.catalog.table_files import PartitionLocation, TableFiles
    from coldparquet.format.native import ColumnVersions
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.format.txn import TableTransaction
    from coldparquet.storage.base import ObjectStore


_PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """One committed state of a table."""

    store: ObjectStore
    path: str
    """Without a trailing slash."""
    transaction: TableTransaction
    metadata: TableMetadata
    column_versions: ColumnVersions
    files: TableFiles
    discovery: Discovery
    locations: tuple[PartitionLocation, ...]
    """All partitions in time order, including native ones. The records of Parquet partitions state the size of the
    file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionContent:
    """The content of one partition to publish."""

    data: StoreSource
    """The committed bytes of ``data.parquet``, or those that a native partition was converted to."""
    sidecar: bytes
    """A sidecar whose newest snapshot describes exactly these bytes."""
    pages: bytes | None
    """A ``_pages`` that describes these bytes, for any version of the object; None where there is none."""
    time_bounds: tuple[int, int] | None
    """Least and largest designated timestamp, in the unit of the table; None where the statistics lack them."""
    native_bytes: int | None = None
    """Size of its rows in column files, where it was converted from these."""


async def read_source(store: ObjectStore, path: str) -> SourceTable:
    """Read the current state of a table. QuestDB may write to it meanwhile.

    Requests: those of :func:`~coldparquet.catalog.discovery.discover` with column versions, and 1 for each Parquet
    partition of which `_txn` states no size.
    """
    found = await discover(store, path, column_versions_for="anything")
    files = found.files
    if files is None:
        raise NotFoundError(
            "there is no _txn here; needed: the directory of a QuestDB table, below the database's db directory",
            kind="NoTable",
            path=path,
        )
    if files.column_versions is None:
        raise InternalError("column versions were asked for")
    if files.metadata.interval is PartitionInterval.NONE:
        raise nothing_to_publish(
            "the table is not partitioned, and QuestDB has only partitions in Parquet; copy its rows into a table"
            " with PARTITION BY DAY, and publish that",
            path,
        )
    sized = tuple(await gather_or_cancel([_with_size(store, location) for location in found.locations]))
    return SourceTable(
        store=store,
        path=path,
        transaction=files.transaction,
        metadata=files.metadata,
        column_versions=files.column_versions,
        files=files,
        discovery=found,
        locations=sized,
    )


def nothing_to_publish(why: str, path: str) -> InvalidInputError:
    """Make the error for a table without a row to publish."""
    return InvalidInputError(f"there is nothing to publish: {why}", kind="NothingToPublish", path=path)


def is_parquet(location: PartitionLocation) -> bool:
    """Tell whether a partition of a transaction is in Parquet."""
    return location.record is not None and location.record.is_parquet


def record_of(location: PartitionLocation) -> PartitionRecord:
    """Return the record of a partition that has one."""
    if location.record is None:
        raise InvalidInputError("only the partitions of a transaction can be published", path=location.directory_path)
    return location.record


async def read_content(store: ObjectStore, location: PartitionLocation) -> PartitionContent:
    """Read the sidecar of a partition, or make one from the footer if none matches. 3 to 6 requests.

    A ``_pages`` beside it is carried along if it describes the committed bytes.
    """
    record = record_of(location)
    checked = CheckedStore(store)
    data = StoreSource(checked, location.data_path, size_bytes=record.parquet_size)
    try:
        etag = await _check_magic(checked, location)
        found = await look_up_sidecar(checked, location, ReadOptions())
        sidecar = found.sidecar
        if sidecar is None:
            from_footer = Partition(replace(location, sidecar_path=None), checked, ReadOptions())
            sidecar = (await from_footer.metadata()).sidecar
    except (NotFoundError, ObjectChangedError) as error:
        raise source_changed(location.directory_path) from error
    return PartitionContent(
        data=data,
        sidecar=_cut_to_snapshot(sidecar),
        pages=await _pages(checked, location, sidecar, etag),
        time_bounds=time_bounds(sidecar),
    )


def source_changed(path: str) -> ObjectChangedError:
    """Make the error for a partition that a writer replaced while it was being published."""
    return ObjectChangedError(
        "this partition is not what the table's _txn said any more: it was replaced or removed while it was being"
        " published; publish again, what has been copied so far is not copied twice",
        kind="SourceChanged",
        path=path,
    )


def time_bounds(sidecar: Sidecar) -> tuple[int, int] | None:
    """Return the least and the largest designated timestamp; None where the statistics lack them."""
    index = sidecar.designated_timestamp
    if index is None:
        return None
    has_rows = sidecar.row_counts > 0
    lower, upper = sidecar.chunks(index).min, sidecar.chunks(index).max
    is_known = lower.present & lower.inlined & lower.exact & upper.present & upper.inlined & upper.exact
    if not has_rows.any() or not is_known[has_rows].all():
        return None
    return int(lower.raw.view(np.int64)[has_rows].min()), int(upper.raw.view(np.int64)[has_rows].max())


async def _pages(store: ObjectStore, location: PartitionLocation, sidecar: Sidecar, etag: str | None) -> bytes | None:
    """Return the ``_pages`` of a partition without the version of its Parquet object: a copy has another version."""
    lasting = etag if is_lasting_etag(etag) else None
    found = await parse_pages_lookup(await look_up_pages_file(store, location), sidecar, etag=lasting)
    if found.pages is None:
        return None
    return encode_pages_file(found.pages, chunk_places(sidecar), parquet_size_bytes=sidecar.parquet_size_bytes)


def _cut_to_snapshot(sidecar: Sidecar) -> bytes:
    """Return the sidecar as it was when this snapshot was the newest: shorter, with that size in its header."""
    # No checksum covers the size in the header, so it can be set last (note section 1.5).
    return COMMITTED_SIZE.pack(sidecar.size_bytes) + bytes(sidecar.file[COMMITTED_SIZE.size :])


async def _check_magic(store: ObjectStore, location: PartitionLocation) -> str | None:
    """Check that the committed bytes end as a Parquet file does, and return the version of the object."""
    size_bytes = record_of(location).parquet_size
    request = RangeRequest(
        path=location.data_path,
        byte_range=ByteRange(max(0, size_bytes - len(_PARQUET_MAGIC)), size_bytes),
        reason="end of the Parquet file",
        object_bytes=size_bytes,
        may_grow=True,
    )
    answer = await store.get(request)
    if answer.data != _PARQUET_MAGIC:
        raise FormatError(
            f"its first {size_bytes:,} bytes, which the table's _txn commits, do not end as a Parquet file does;"
            " run 'coldparquet verify' on the table",
            path=location.data_path,
            offset=size_bytes,
            field="magic",
        )
    return answer.etag


async def _with_size(store: ObjectStore, location: PartitionLocation) -> PartitionLocation:
    """Refuse partitions that cannot be published; read the file's size where the transaction states none."""
    record = record_of(location)
    if not record.is_parquet:
        return location
    if record.unknown_flags:
        raise UnsupportedError(
            f"_txn has flags for this partition that this version does not know ({record.unknown_flags:#x}), so its"
            " data.parquet may not be the whole partition",
            kind="UnknownPartitionFlags",
            path=location.directory_path,
        )
    if record.parquet_size > 0:
        return location
    found = await store.info(location.data_path)
    return replace(location, record=replace(record, parquet_size=found.size_bytes or 0))
