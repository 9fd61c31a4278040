"""Deciding on one partition's sidecar, and writing it: what ``index`` and ``migrate`` share, and what ``compact`` mends with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coldparquet.catalog.discovery import NOT_IN_PARQUET, advice_for_misnamed
from coldparquet.catalog.partition import Partition, look_up_sidecar, shorter_than_committed
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    FormatError,
    InvalidInputError,
    NotFoundError,
)
from coldparquet.format.blooms import BloomTransfer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.plan.coalescing import choose_coalescing
from coldparquet.plan.model import StoreSpeed
from coldparquet.plan.prune import misplaced_times, stated_time_range_ns
from coldparquet.records import replace
from coldparquet.scan.evidence import fetch_bloom_ranges
from coldparquet.storage.requests import is_written_after
from coldparquet.text import few_names

if TYPE_CHECKING:
    from coldparquet.catalog.partition import SidecarLookup
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_writer import SidecarContent
    from coldparquet.maintenance.index_pages import IndexedPages
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore

_MISPLACED = (
    "outside of the times of its directory's name, so that questions about times would miss them; give the directory the name of"
    " its times"
)
_NO_DATA = f"there is a sidecar, but no {DATA_FILE} beside it; copy the file again, or remove the directory"

IndexAction = Literal["written", "would write", "kept", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedPartition:
    """What became of one partition."""

    path: str
    """Path of its sidecar, whether it exists or not."""
    action: IndexAction
    """``skipped`` are partitions without a Parquet file, ``kept`` those that have a sidecar already."""
    sidecar_bytes: int | None = None
    """Size of the sidecar that exists now, or would; None where there is none."""
    reason: str | None = None
    """Why it was skipped or failed, what is odd about a sidecar that was kept, what was wrong with one that was written anew, or
    what the new one lacks."""
    has_timestamp: bool = True
    """False if a sidecar was written that names no designated timestamp, by which partitions are pruned."""
    misnamed: tuple[str, ...] = ()
    """Names of the Parquet files that lie there in place of ``data.parquet``, if it was skipped for that."""
    is_stale: bool = False
    """True if the sidecar that was there described another Parquet file than the one beside it, or one that may be another,
    because it was written after the sidecar."""
    pages: IndexedPages | None = None
    """What became of its ``_pages``; None unless they were asked for, or one that existed had to be written anew with its
    sidecar; and there is a sidecar to go with it."""


class PartitionIndexer:
    """Decides on one partition after the other, and writes its sidecar where that is called for.

    Args:
        store: Where the partitions lie; it should pin versions.
        options: How to read.
        replaces: Which sidecars that exist are written anew: those that are ``stale``, because they describe another Parquet
            file than the one that counts, or may do so because that was written after them; also those that are
            ``useless``, because no reader would take them; or ``all``.
        inline_bloom_bytes: See :func:`index_table`.
        dry_run: Write nothing, but derive every sidecar that would be written.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: ReadOptions,
        *,
        replaces: Literal["stale", "useless", "all"],
        inline_bloom_bytes: int | None = None,
        dry_run: bool,
    ) -> None:
        self._store = store
        self._options = options
        self._inline_bytes = options.sidecar_prefix_bytes if inline_bloom_bytes is None else inline_bloom_bytes
        self._replaces = replaces
        self._dry_run = dry_run

    async def index(self, location: PartitionLocation, *, is_sidecar_absent: bool = False) -> IndexedPartition:
        """Index one partition; only bugs raise.

        Requests: 1 or 2 that look for the sidecar, unless all are replaced or there is known to be none; to write one 1 or 2
        for the footer at the committed size, some for bloom filters if it has them, and 1 that writes; for one that is
        there, without a transaction file 1 for the size and the time of the Parquet file.
        """
        path = f"{location.directory_path}/{SIDECAR_FILE}"
        if location.is_native:
            return IndexedPartition(path=path, action="skipped", reason="in QuestDB's native format")
        try:
            return await self._index(location, path, is_sidecar_absent=is_sidecar_absent)
        except ColdParquetError as error:
            if error.kind in NOT_IN_PARQUET and await self._is_there(path):
                return IndexedPartition(path=path, action="failed", reason=_NO_DATA)
            if error.kind in NOT_IN_PARQUET:
                misnamed = error.details.get("misnamed", ())
                reason = f"there is no {DATA_FILE}"
                if misnamed:
                    reason = f"holds {few_names(misnamed)}, but no {DATA_FILE}: {advice_for_misnamed(misnamed)}"
                return IndexedPartition(path=path, action="skipped", reason=reason, misnamed=misnamed)
            file_name = (error.path or location.data_path).rpartition("/")[2]
            message = shorter_than_committed(error, location) or error.message
            return IndexedPartition(path=path, action="failed", reason=f"{file_name}: {message}")

    async def _index(self, location: PartitionLocation, path: str, *, is_sidecar_absent: bool) -> IndexedPartition:
        may_overwrite = self._replaces == "all" or not is_sidecar_absent
        doubt: str | None = None
        sidecar: Sidecar | None = None
        if self._replaces != "all" and not is_sidecar_absent:
            lookup = await look_up_sidecar(self._store, location, self._options)
            if lookup.state == "damaged" and lookup.problem is not None and self._replaces == "stale":
                problem = f"{SIDECAR_FILE}: {lookup.problem.message}; use --force to write it anew"
                return IndexedPartition(path=path, action="failed", reason=problem)
            doubt, sidecar = await self._doubt(location, lookup), lookup.sidecar
            if sidecar is not None and doubt is None:
                return IndexedPartition(path=path, action="kept", sidecar_bytes=sidecar.size_bytes)
            may_overwrite = lookup.state != "absent"
        try:
            content, notes = await self._derive(location)
        except (ArchivedObjectError, FormatError) as error:
            why_kept = None if sidecar is None else await self._why_kept(location, sidecar, error)
            if sidecar is None or why_kept is None:
                raise
            return IndexedPartition(path=path, action="kept", sidecar_bytes=sidecar.size_bytes, reason=why_kept)
        derived, has_timestamp = encode_sidecar(content), content.designated_timestamp is not None
        is_stale = doubt is not None
        reason = (
            "; ".join((*((f"stale: {doubt}",) if is_stale else ()), *notes, *_misplaced(location, content, derived)))
            or None
        )
        if self._dry_run:
            return IndexedPartition(
                path=path, action="would write", sidecar_bytes=len(derived), reason=reason, is_stale=is_stale
            )
        try:
            await self._store.put(path, derived, overwrite=may_overwrite)
        except InvalidInputError as error:
            if error.kind != "AlreadyExists":
                raise
            return IndexedPartition(path=path, action="kept", reason="somebody else wrote it in the meantime")
        return IndexedPartition(
            path=path,
            action="written",
            sidecar_bytes=len(derived),
            reason=reason,
            has_timestamp=has_timestamp,
            is_stale=is_stale,
        )

    async def _derive(self, location: PartitionLocation) -> tuple[SidecarContent, tuple[str, ...]]:
        """Work out what the sidecar shall say, from the footer at the committed size and the bloom filters of the file.

        The filters go into the sidecar if it then is not longer than was allowed; otherwise it says where in the Parquet file
        they are.

        Requests: 1 or 2 for the footer; with bloom filters one round trip of few, in which headers and small filters are
        fetched; a second one for larger filters that go into the sidecar and of which the footer does not state the length.
        """
        footer = await Partition(location, self._store, self._options).read_footer()
        transfer = await asyncio.to_thread(BloomTransfer, footer, inline_bytes=self._inline_bytes)
        while (wanted := transfer.wanted()) is not None:
            pieces = await fetch_bloom_ranges(
                self._store,
                location.data_path,
                wanted,
                coalescing=choose_coalescing(self._options, StoreSpeed(connections=self._options.max_concurrency)),
                object_bytes=transfer.parquet_size_bytes,
                may_grow=location.may_grow,
            )
            transfer.receive(pieces)
        return transfer.content(), transfer.notes

    async def _doubt(self, location: PartitionLocation, lookup: SidecarLookup) -> str | None:
        """Say why a sidecar may be of another Parquet file; None where nothing tells so. 1 request without a committed size."""
        if lookup.sidecar is None:
            return lookup.problem.message if lookup.state == "stale" and lookup.problem is not None else None
        if location.committed_size_bytes is not None:
            return None
        try:
            found = await self._store.info(location.data_path)
        except NotFoundError as error:
            raise NotFoundError(_NO_DATA, kind="PartitionMissing", path=lookup.sidecar.path) from error
        described_bytes = lookup.sidecar.parquet_size_bytes
        if found.size_bytes not in {None, described_bytes}:
            return f"it described {described_bytes:,} bytes, but {DATA_FILE} has {found.size_bytes:,}"
        return f"{DATA_FILE} was written after it" if is_written_after(found.modified_s, lookup.modified_s) else None

    async def _is_there(self, path: str) -> bool:
        try:
            await self._store.info(path)
        except (NotFoundError, AccessError):  # S3 refuses to tell of absent objects where listing is not allowed
            return False
        return True

    async def _why_kept(self, location: PartitionLocation, sidecar: Sidecar, error: ColdParquetError) -> str | None:
        """Say why a doubted sidecar is kept although none can be derived in its place; None where it is not."""
        size_bytes = (await self._store.info(location.data_path)).size_bytes
        described_bytes = sidecar.parquet_size_bytes
        if isinstance(error, ArchivedObjectError):
            is_of_this_size = size_bytes == described_bytes
            return f"{DATA_FILE} was written or moved after it, and is archived" if is_of_this_size else None
        is_on_disk = await self._store.infos_at_hand([location.data_path]) is not None
        if not is_on_disk or size_bytes is None or size_bytes <= described_bytes:
            return None
        updated = Partition(replace(location, is_being_updated=True), self._store, self._options)
        try:
            await updated.read_footer(size_bytes=described_bytes)
        except ColdParquetError:
            return None
        more = f"{DATA_FILE} goes on for {size_bytes - described_bytes:,} bytes behind what it describes"
        return f"{more}: an update is under way, or was cut off"


def _misplaced(location: PartitionLocation, content: SidecarContent, encoded: bytes) -> tuple[str, ...]:
    """Say that rows are of other times than the directory stands for; nothing if they are not, as far as is known."""
    directory, column = location.directory, content.designated_timestamp
    if directory is None or column is None:
        return ()
    sidecar = parse_sidecar(encoded)
    stated = stated_time_range_ns(sidecar, column)
    found = misplaced_times(stated, (directory.start_ns, directory.stop_ns))
    return () if found is None else (f"its rows are of {found}, {_MISPLACED}",)
