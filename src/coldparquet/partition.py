"""One partition: where it lies, and its metadata from the sidecar or, without one, from the Parquet footer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import NotFoundError, UnsupportedError
from coldparquet.format.footer_fetch import FooterFetch
from coldparquet.format.footer_to_sidecar import sidecar_content_from_footer
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_fetch import SidecarFetch
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.storage.base import RangeRequest

if TYPE_CHECKING:
    from coldparquet.format.partition_names import PartitionDirectory
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.storage.base import FetchedRange, ObjectStore

DATA_FILE = "data.parquet"
SIDECAR_FILE = "_pm"

NATIVE_PARTITION = "NativePartition"
"""Kind of the error about a partition that is not in Parquet."""

_PARSE_IN_THREAD_BYTES = 256 * 1024
"""Checksumming more than this holds up the event loop for longer than handing the work to a thread costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLocation:
    """Where a partition lies; known from its path alone, without a request."""

    name: str
    """Directory name, such as ``2024-03-01.12``."""
    data_path: str
    sidecar_path: str | None
    """None for a Parquet file that is not named ``data.parquet``: such files share directories."""
    directory: PartitionDirectory | None
    """The time range that the name says; None where the name follows no partition pattern."""
    is_listed: bool
    """Whether a listing showed the directory; otherwise nobody knows yet that it exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """What is known of a partition after its metadata was read."""

    sidecar: Sidecar
    """The sidecar, or one that was derived in memory from the Parquet footer."""
    source: Literal["sidecar", "footer"]
    requests: tuple[MetadataRequest, ...]
    """What reading it cost."""


class Partition:
    """One time slice of a table.

    Its metadata is fetched when something first needs it, and then kept: a later writer changes nothing here.
    """

    def __init__(self, location: PartitionLocation, store: ObjectStore, options: ReadOptions) -> None:
        self._location = location
        self._store = store
        self._options = options
        self._loading = asyncio.Lock()
        self._metadata: PartitionMetadata | None = None

    def __repr__(self) -> str:
        rows = "not read yet" if self._metadata is None else f"{self.rows} rows"
        return f"<Partition {self.name}: {rows}>"

    @property
    def name(self) -> str:
        """Directory name, such as ``2024-03-01.12``."""
        return self._location.name

    @property
    def data_path(self) -> str:
        """Path of the Parquet file in the store."""
        return self._location.data_path

    @property
    def time_range_ns(self) -> tuple[int, int] | None:
        """Half-open range of its timestamps in nanoseconds since 1970, as the directory's name says; else None."""
        directory = self._location.directory
        return None if directory is None else (directory.start_ns, directory.stop_ns)

    @property
    def format(self) -> Literal["parquet"]:
        """How the partition is stored."""
        return "parquet"

    @property
    def snapshot(self) -> Sidecar | None:
        """The metadata that reads are planned from; None until something needed it."""
        return None if self._metadata is None else self._metadata.sidecar

    @property
    def rows(self) -> int | None:
        """Number of rows; None until the metadata was read."""
        return None if self._metadata is None else self._metadata.sidecar.total_rows

    @property
    def parquet_size_bytes(self) -> int | None:
        """Size of the Parquet file; None until the metadata was read."""
        return None if self._metadata is None else self._metadata.sidecar.parquet_size_bytes

    async def metadata(self) -> PartitionMetadata:
        """Read the metadata, once.

        1 request where the sidecar fits the first guess, 2 where it does not. Without a sidecar: 1 request that finds
        none, then 1 or 2 for the Parquet footer.

        Raises:
            NotFoundError: The partition has neither a sidecar nor a Parquet file.
            FormatError: The sidecar or the footer is damaged.
            UnsupportedError: It needs a feature that this version does not know.
        """
        async with self._loading:
            if self._metadata is None:
                self._metadata = await self._load()
            return self._metadata

    async def _load(self) -> PartitionMetadata:
        spent: list[MetadataRequest] = []
        sidecar_path = self._location.sidecar_path
        if sidecar_path is not None:
            try:
                sidecar = await self._sidecar(sidecar_path, spent)
            except NotFoundError:
                spent.append(MetadataRequest(path=sidecar_path, byte_range=None, reason="no sidecar", fetched_bytes=0))
            else:
                return PartitionMetadata(sidecar=sidecar, source="sidecar", requests=tuple(spent))
        return PartitionMetadata(sidecar=await self._from_footer(spent), source="footer", requests=tuple(spent))

    async def _sidecar(self, path: str, spent: list[MetadataRequest]) -> Sidecar:
        fetch = SidecarFetch(path, prefix_bytes=self._options.sidecar_prefix_bytes)
        while wanted := fetch.wanted():
            is_first = not spent
            answers = await gather_or_cancel(
                [self._fetch(path, byte_range, "sidecar", spent, may_be_short=is_first) for byte_range in wanted]
            )
            for byte_range, answer in zip(wanted, answers, strict=True):
                fetch.receive(byte_range, answer.data)
        committed = fetch.committed_bytes()
        if len(committed) > _PARSE_IN_THREAD_BYTES:
            return await asyncio.to_thread(parse_sidecar, committed, path=path)
        return parse_sidecar(committed, path=path)

    async def _from_footer(self, spent: list[MetadataRequest]) -> Sidecar:
        path = self.data_path
        fetch = FooterFetch(path=path, suffix_bytes=self._options.footer_suffix_bytes)
        try:
            while (wanted := fetch.next_range) is not None:
                answer = await self._fetch(path, wanted, "Parquet footer", spent, may_be_short=True)
                fetch.receive(answer.data, start=answer.start, object_size_bytes=answer.object_size_bytes)
        except NotFoundError as error:
            if not self._location.is_listed:
                raise
            raise UnsupportedError(
                f"there is neither {SIDECAR_FILE} nor {DATA_FILE}: the partition is in QuestDB's native format,"
                " which this version does not read; convert it to Parquet or restrict the time range",
                kind=NATIVE_PARTITION,
                path=path.removesuffix(f"/{DATA_FILE}"),
            ) from error
        return await asyncio.to_thread(_sidecar_from_footer, fetch, path)

    async def _fetch(
        self,
        path: str,
        byte_range: ByteRange | SuffixRange,
        reason: str,
        spent: list[MetadataRequest],
        *,
        may_be_short: bool,
    ) -> FetchedRange:
        answer = await self._store.get(
            RangeRequest(path=path, byte_range=byte_range, reason=reason, may_be_short=may_be_short)
        )
        spent.append(MetadataRequest(path=path, byte_range=byte_range, reason=reason, fetched_bytes=len(answer.data)))
        return answer


def sidecar_bytes_from_footer(fetch: FooterFetch, path: str) -> bytes:
    """Make the sidecar of a Parquet file from its footer.

    Args:
        fetch: A finished fetch of the footer.
        path: The Parquet file, for error messages.

    Raises:
        FormatError: The footer is damaged or contradicts itself.
        UnsupportedError: The file has a nested column other than arrays of doubles.
    """
    footer = parse_footer(fetch.footer, path=path, offset=fetch.footer_offset)
    return encode_sidecar(sidecar_content_from_footer(footer))


def _sidecar_from_footer(fetch: FooterFetch, path: str) -> Sidecar:
    return parse_sidecar(sidecar_bytes_from_footer(fetch, path), path=path, verify_checksum=False)
