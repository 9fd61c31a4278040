"""Looking for the sidecar of one partition: is it there, and does it describe the Parquet file that counts?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.errors import ColdParquetError, FormatError, NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.format.columns_ahead import parse_columns_ahead
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_fetch import SidecarFetch
from coldparquet.options import COALESCING_BY_GOAL
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet.storage.wrappers.ledger import note_cache_hit

if TYPE_CHECKING:
    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.catalog.sidecar_cache import KeptSidecar, SidecarCache
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
    modified_s: float | None = None
    """When it was written, in seconds since 1970; None where the store does not tell, or was not asked."""


async def look_up_sidecar(  # noqa: PLR0913 - where, how, and at whose cost
    store: ObjectStore,
    location: PartitionLocation,
    options: ReadOptions,
    *,
    spent: list[MetadataRequest] | None = None,
    cache: SidecarCache | None = None,
    connections: int = 1,
) -> SidecarLookup:
    """Fetch and check the sidecar of a partition. 1 request where it fits the first guess or is absent, else 2 and more.

    Of a sidecar that is kept, none while it is trusted; else 1, which brings no bytes unless there is a newer one.

    Args:
        store: Where the partition lies; it should pin versions, so that both requests see the same sidecar.
        location: The partition; its record tells which size of the Parquet file counts.
        options: How much to ask for at first.
        spent: Gets the requests.
        cache: Keeps sidecars; None for not at all.
        connections: Over so many the rest of a large sidecar is spread, in requests as long as those for data.

    Raises:
        AccessError: The store refused the credentials.
        StorageError: The store failed.
    """
    if location.sidecar_path is None or not options.sidecars:
        return SidecarLookup(state="absent", file=memoryview(b""), sidecar=None)
    path = location.sidecar_path
    spent = [] if spent is None else spent
    kept = None if cache is None else await cache.find(path)
    if cache is not None and kept is not None and cache.is_trusted(kept):
        found = await _parse(memoryview(kept.file), location, path)
        if found.state == "present":
            note_cache_hit(len(kept.file))
            return found
    state = SidecarFetch(
        path,
        prefix_bytes=options.sidecar_prefix_bytes,
        coalescing=COALESCING_BY_GOAL[options.goal],
        connections=connections,
    )
    fetch = _Fetch(store, path, spent, may_grow=location.may_grow)
    try:
        file = await fetch.file(state, kept)
    except NotFoundError:
        spent.append(MetadataRequest(path=path, byte_range=None, reason="no sidecar", fetched_bytes=0))
        return SidecarLookup(state="absent", file=memoryview(b""), sidecar=None)
    except (FormatError, UnsupportedError) as error:
        return _refused(error, memoryview(b""))
    found = await _parse(file, location, path)
    if cache is not None and found.state != "damaged":
        if fetch.kept_is_newest and kept is not None:
            await cache.confirm(path, kept)
        else:
            await cache.keep(path, file=_without_excess(file), etag=fetch.etag)
    return replace(found, modified_s=fetch.modified_s)


async def _parse(file: memoryview, location: PartitionLocation, path: str) -> SidecarLookup:
    """Check a sidecar that was fetched, up to its committed size."""
    parse = partial(parse_sidecar, file, path=path, parquet_size_bytes=location.committed_size_bytes)
    try:
        sidecar = await asyncio.to_thread(parse) if len(file) > _PARSE_IN_THREAD_BYTES else parse()
        _check_rows(sidecar, location)
    except (FormatError, UnsupportedError) as error:
        return _refused(error, file)
    return SidecarLookup(state="present", file=file, sidecar=sidecar)


def _refused(error: ColdParquetError, file: memoryview) -> SidecarLookup:
    # The chain is sound, but its snapshots are of other sizes, or of other rows, than the one that counts.
    is_stale = error.details.get("field") in {"parquet_size_bytes", "row_count"}
    return SidecarLookup(state="stale" if is_stale else "damaged", file=file, sidecar=None, problem=error)


class _Fetch:
    """The requests for one sidecar.

    Args:
        store: Where it lies.
        path: The sidecar.
        spent: Gets the requests.
        may_grow: Whether a QuestDB may append to it meanwhile.
    """

    def __init__(self, store: ObjectStore, path: str, spent: list[MetadataRequest], *, may_grow: bool) -> None:
        self.etag: str | None = None
        """Version of the sidecar, once it is fetched."""
        self.modified_s: float | None = None
        """When it was written, as far as the store told."""
        self.kept_is_newest = False
        """Whether the store said that the kept sidecar is still the newest one."""
        self._store = store
        self._path = path
        self._spent = spent
        self._may_grow = may_grow

    async def file(self, fetch: SidecarFetch, kept: KeptSidecar | None) -> memoryview:
        """Fetch the sidecar up to its committed size; of one that is kept, only if there is a newer one."""
        [first] = fetch.wanted()
        beginning = await self._get(first, if_none_match=None if kept is None else kept.etag)
        if kept is not None and self.kept_is_newest:
            return memoryview(kept.file)
        fetch.receive(first, beginning.data, object_size_bytes=beginning.object_size_bytes)
        rest = fetch.wanted()
        if rest:
            parts = gather_or_cancel([self._receive(fetch, part) for part in rest])
            await both(parts, _parse_columns_meanwhile(beginning.data))
        return fetch.committed_bytes()

    async def _receive(self, fetch: SidecarFetch, byte_range: ByteRange) -> None:
        part = await self._get(byte_range, if_none_match=None)
        fetch.receive(byte_range, part.data, object_size_bytes=part.object_size_bytes)

    async def _get(self, byte_range: ByteRange, *, if_none_match: str | None) -> FetchedRange:
        request = RangeRequest(
            path=self._path,
            byte_range=byte_range,
            reason="sidecar",
            may_be_short=byte_range.start == 0,
            may_grow=self._may_grow,
            if_none_match=if_none_match,
            may_be_kept=False,  # whoever keeps sidecars keeps them as a whole
        )
        answer = await self._store.get(request)
        self.etag, self.kept_is_newest, self.modified_s = answer.etag, answer.is_unchanged, answer.modified_s
        reason = "sidecar, unchanged" if answer.is_unchanged else "sidecar"
        self._spent.append(
            MetadataRequest(path=self._path, byte_range=byte_range, reason=reason, fetched_bytes=len(answer.data))
        )
        return answer


async def _parse_columns_meanwhile(beginning: bytes) -> None:
    """Parse the columns in the time in which the rest of the sidecar is on its way; in steps, because the loop sends."""
    for _ in parse_columns_ahead(memoryview(beginning)):
        await asyncio.sleep(0)


def _without_excess(file: memoryview) -> memoryview:
    """Return a view that keeps nothing alive but what it shows."""
    return file if file.nbytes == memoryview(file.obj).nbytes else memoryview(bytes(file))


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
