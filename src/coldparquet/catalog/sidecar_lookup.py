"""Looking for the sidecar of one partition: is it there, and does it describe the Parquet file that counts?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ColdParquetError, FormatError, NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_fetch import SidecarFetch
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.storage.base import RangeRequest

if TYPE_CHECKING:
    from coldparquet.catalog.partition import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.ranges import ByteRange
    from coldparquet.storage.base import ObjectStore

_PARSE_IN_THREAD_BYTES = 256 * 1024
"""Checksumming more than this holds up the event loop for longer than handing the work to a thread costs."""

SidecarState = Literal["present", "absent", "stale", "damaged"]
"""``stale``: it holds no snapshot of a Parquet file of the size that counts. ``damaged``: no reader would take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarLookup:
    """What was found beside one Parquet file."""

    state: SidecarState
    """Without a transaction file nobody knows yet which size counts, so that whatever is sound is ``present``."""
    file: memoryview
    """The sidecar up to its committed size; empty where it is absent or could not be fetched."""
    sidecar: Sidecar | None
    """The snapshot that counts; None unless present."""
    problem: ColdParquetError | None = None
    """Why it is stale or damaged."""


async def look_up_sidecar(
    store: ObjectStore,
    location: PartitionLocation,
    options: ReadOptions,
    *,
    spent: list[MetadataRequest] | None = None,
) -> SidecarLookup:
    """Fetch and check the sidecar of a partition. 1 request where it fits the first guess or is absent, else 2.

    Args:
        store: Where the partition lies; it should pin versions, so that both requests see the same sidecar.
        location: The partition; its record tells which size of the Parquet file counts.
        options: How much to ask for at first.
        spent: Gets the requests.

    Raises:
        AccessError: The store refused the credentials.
        StorageError: The store failed.
    """
    if location.sidecar_path is None:
        return SidecarLookup(state="absent", file=memoryview(b""), sidecar=None)
    path, file = location.sidecar_path, memoryview(b"")
    spent = [] if spent is None else spent
    try:
        file = await _fetch(store, path, options, spent, may_grow=location.record is not None)
        parse = partial(parse_sidecar, file, path=path, parquet_size_bytes=location.committed_size_bytes)
        sidecar = await asyncio.to_thread(parse) if len(file) > _PARSE_IN_THREAD_BYTES else parse()
        _check_rows(sidecar, location)
    except NotFoundError:
        spent.append(MetadataRequest(path=path, byte_range=None, reason="no sidecar", fetched_bytes=0))
        return SidecarLookup(state="absent", file=file, sidecar=None)
    except (FormatError, UnsupportedError) as error:
        # The chain is sound, but its snapshots are of other sizes, or of other rows, than the one that counts.
        is_stale = error.details.get("field") in {"parquet_size_bytes", "row_count"}
        return SidecarLookup(state="stale" if is_stale else "damaged", file=file, sidecar=None, problem=error)
    return SidecarLookup(state="present", file=file, sidecar=sidecar)


async def _fetch(
    store: ObjectStore, path: str, options: ReadOptions, spent: list[MetadataRequest], *, may_grow: bool
) -> memoryview:
    fetch = SidecarFetch(path, prefix_bytes=options.sidecar_prefix_bytes)

    async def get(byte_range: ByteRange) -> bytes:
        is_first_guess = byte_range.start == 0
        request = RangeRequest(
            path=path, byte_range=byte_range, reason="sidecar", may_be_short=is_first_guess, may_grow=may_grow
        )
        answer = await store.get(request)
        spent.append(
            MetadataRequest(path=path, byte_range=byte_range, reason="sidecar", fetched_bytes=len(answer.data))
        )
        return answer.data

    while wanted := fetch.wanted():
        for byte_range, data in zip(wanted, await gather_or_cancel([get(part) for part in wanted]), strict=True):
            fetch.receive(byte_range, data)
    return fetch.committed_bytes()


def _check_rows(sidecar: Sidecar, location: PartitionLocation) -> None:
    record = location.record
    if record is not None and sidecar.total_rows != record.row_count:
        raise FormatError(
            f"the sidecar counts {sidecar.total_rows:,} rows, the table's _txn {record.row_count:,}: one of them is from"
            " another state of the table",
            kind="RowCountMismatch",
            path=sidecar.path,
            field="row_count",
        )


def shorter_than_committed(error: ColdParquetError, location: PartitionLocation) -> str | None:
    """Say in the table's words that a Parquet file is shorter than its transaction states; None for other errors."""
    committed_bytes, found_bytes = location.committed_size_bytes, error.details.get("object_size_bytes")
    if committed_bytes is None or not isinstance(error, ObjectChangedError) or not isinstance(found_bytes, int):
        return None
    return (
        f"it has {found_bytes:,} bytes, but the table's _txn commits {committed_bytes:,} of it: the file was cut off, or"
        " its copy is not complete"
    )
