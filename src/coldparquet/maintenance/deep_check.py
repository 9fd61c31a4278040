"""Reading one partition whole: the checksum of its object, the checksums of its pages, and every value."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.concurrency import gather_or_cancel
from coldparquet.maintenance.packed_bloom_check import compare_packed_blooms
from coldparquet.maintenance.value_check import check_values
from coldparquet.options import MIB
from coldparquet.plan.finding import Finding
from coldparquet.ranges import ByteRange
from coldparquet.storage.object_checksums import WholeObjectCheck
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from typing import IO

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.maintenance.packed_bloom_check import PartitionBlooms
    from coldparquet.plan.partition_check import PartitionCheck
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import StoredChecksum

_PIECE_BYTES = 8 * MIB
_PIECES_AT_ONCE = 4
"""So much of each partition that is read at the time is in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepCheck:
    """What reading everything has shown."""

    findings: tuple[Finding, ...]
    read_bytes: int
    """Of the Parquet file."""
    checksum: str | None
    """What the store keeps of the whole object and was equal: ``CRC32``; None where nothing could be compared."""


async def check_data(
    store: ObjectStore, location: PartitionLocation, check: PartitionCheck, *, packed_blooms: PartitionBlooms | None
) -> DeepCheck:
    """Read a partition whole, into a temporary file, and compare everything with what is claimed of it.

    Requests: 1 look at the object, and 1 per 8 MiB, 4 in flight.

    Args:
        store: Where it lies; it should pin versions.
        location: The partition.
        check: What its metadata says.
        packed_blooms: Bloom filters of it in the table's catalogue; None where that has none.

    Raises:
        ArchivedObjectError: The object must be restored first.
        ColdParquetError: The object cannot be read.
    """
    path = location.data_path
    info = await store.info(path)
    least_bytes = check.sidecar.parquet_size_bytes
    size_bytes = least_bytes if info.size_bytes is None else max(info.size_bytes, least_bytes)
    with tempfile.TemporaryFile(prefix="coldparquet-") as file:
        download = _Download(store, location, file, size_bytes=size_bytes)
        findings, checksum = await download.run(info.checksum)

        def read_at(start: int, length_bytes: int) -> bytes:
            return os.pread(file.fileno(), length_bytes, start)

        findings += await asyncio.to_thread(check_values, check.sidecar, check.pages, read_at, path=path)
        if packed_blooms is not None and packed_blooms.are_asked(location, found_etag=info.etag):
            findings += await asyncio.to_thread(compare_packed_blooms, check.sidecar, packed_blooms.blooms, read_at)
    return DeepCheck(findings=tuple(findings), read_bytes=size_bytes, checksum=checksum)


class _Download:
    """All bytes of one object on their way into a file.

    Args:
        store: Where the object lies.
        location: The partition.
        file: Gets the bytes.
        size_bytes: How many there are.
    """

    def __init__(self, store: ObjectStore, location: PartitionLocation, file: IO[bytes], *, size_bytes: int) -> None:
        self._store = store
        self._location = location
        self._file = file
        self._size_bytes = size_bytes

    async def run(self, stored: StoredChecksum | None) -> tuple[list[Finding], str | None]:
        """Fetch the bytes; return what is wrong with them, and which checksum was equal."""
        whole = None if stored is None else WholeObjectCheck(stored, size_bytes=self._size_bytes)
        pieces = [
            ByteRange(start, min(start + _PIECE_BYTES, self._size_bytes))
            for start in range(0, self._size_bytes, _PIECE_BYTES)
        ]
        for first in range(0, len(pieces), _PIECES_AT_ONCE):
            window = pieces[first : first + _PIECES_AT_ONCE]
            for data in await gather_or_cancel([self._fetch(piece) for piece in window]):
                await asyncio.to_thread(self._file.write, data)
                if whole is not None and whole.can_tell:
                    await whole.update(data)
        await asyncio.to_thread(self._file.flush)
        if whole is None or stored is None or whole.is_match() is None:
            return [], None
        if whole.is_match():
            return [], stored.algorithm
        mismatch = Finding(
            severity="error",
            kind="ChecksumMismatch",
            message=f"{self._location.data_path.rpartition('/')[2]}: its bytes are not those that were stored: the"
            f" {stored.algorithm} that the store keeps is of others",
            remedy="copy the partition again",
        )
        return [mismatch], None

    async def _fetch(self, piece: ByteRange) -> bytes:
        answer = await self._store.get(
            RangeRequest(
                path=self._location.data_path,
                byte_range=piece,
                reason="every byte",
                object_bytes=self._size_bytes,
                may_grow=self._location.may_grow,
                may_be_kept=False,
            )
        )
        return answer.data
