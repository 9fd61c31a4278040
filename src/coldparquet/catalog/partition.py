"""One partition, and its metadata from the sidecar or, without one, from the Parquet footer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from coldparquet.catalog.catalogue_fetch import CATALOGUE_FILE
from coldparquet.catalog.missing_data import NATIVE_PARTITION, raise_what_is_missing
from coldparquet.catalog.partition_location import DATA_FILE
from coldparquet.catalog.sidecar_lookup import look_up_sidecar
from coldparquet.errors import FormatError, InternalError, NotFoundError, UnsupportedError
from coldparquet.format.footer_blooms import sidecar_in_memory
from coldparquet.format.footer_fetch import FooterFetch
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.storage.objects import is_written_after
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.catalogue import Catalogue
    from coldparquet.catalog.packed_sidecars import LookAhead, PackedLookup
    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.catalog.sidecar_cache import SidecarCache
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange


WRITTEN_AFTER_SIDECAR = (
    f"{DATA_FILE} was written after its sidecar, so its footer was read; 'coldparquet index' renews the sidecar"
)
"""Why a sidecar is not believed that is older than a file of the size that it describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """What is known of a partition after its metadata was read."""

    sidecar: Sidecar
    """The sidecar, or one that was derived in memory from the Parquet footer."""
    source: Literal["sidecar", "catalogue", "footer"]
    metadata_requests: tuple[MetadataRequest, ...]
    """What reading it cost."""
    notes: tuple[str, ...] = ()
    """What a person should know about it, one sentence each."""
    data_etag: str | None = None
    """Version of the Parquet object that an entry of the catalogue was made for; None where nobody wrote it down."""
    sidecar_modified_s: float | None = None
    """When the sidecar was written, in seconds since 1970; None where the store did not tell, and for other sources."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """What the catalogue has of a partition; nothing where no entry counts."""

    found: PackedLookup | None
    requests: tuple[MetadataRequest, ...]


class Partition:
    """One time slice of a table.

    Its metadata is fetched when something first needs it, and then kept: a later writer changes nothing here.

    Args:
        location: Where it lies.
        store: In which store.
        options: How to read.
        sidecars: Keeps sidecars beyond this partition; None for not at all.
        catalogue: The table's catalogue, which is asked first; None for not at all.
        connections: Over so many the rest of a large sidecar is spread.
    """

    def __init__(  # noqa: PLR0913 - where it lies, how to read it, and what its table shares
        self,
        location: PartitionLocation,
        store: ObjectStore,
        options: ReadOptions,
        *,
        sidecars: SidecarCache | None = None,
        catalogue: Catalogue | None = None,
        connections: int = 1,
    ) -> None:
        self._location = location
        self._store = store
        self._options = options
        self._sidecars = sidecars
        self._catalogue = catalogue
        self._connections = connections
        self._loading = asyncio.Lock()
        self._metadata: PartitionMetadata | None = None
        self._packed: _Packed | None = None

    def __repr__(self) -> str:
        rows = "not read yet" if self.rows is None else f"{self.rows} rows"
        return f"<Partition {self.name}: {rows}>"

    @property
    def location(self) -> PartitionLocation:
        """Where it lies, and what the table says of it."""
        return self._location

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
        """Half-open range of its timestamps in nanoseconds since 1970.

        As the table's transaction says or, without one, the directory's name; None where that is no partition's name.
        """
        directory = self._location.directory
        return None if directory is None else (directory.start_ns, directory.stop_ns)

    @property
    def format(self) -> Literal["parquet", "native"]:
        """How the partition is stored: in Parquet or in QuestDB's own column files.

        Without a transaction file every partition is taken for Parquet until a read finds that it is not.
        """
        return "native" if self._location.is_native else "parquet"

    @property
    def directory_path(self) -> str:
        """Path of the partition's directory in the store."""
        return self._location.directory_path

    @property
    def name_txn(self) -> int:
        """Transaction that made this version of the partition; -1 for the first version, which has no suffix."""
        directory = self._location.directory
        return -1 if directory is None else directory.name_txn

    @property
    def snapshot(self) -> Sidecar | None:
        """The metadata that reads are planned from; None until something needed it, and for native partitions."""
        return None if self._metadata is None else self._metadata.sidecar

    @property
    def rows(self) -> int | None:
        """Number of rows; without a transaction file None until the metadata was read."""
        if self._location.record is not None:
            return self._location.record.row_count
        return None if self._metadata is None else self._metadata.sidecar.total_rows

    @property
    def parquet_size_bytes(self) -> int | None:
        """Size of the Parquet file in this snapshot; None if native, or not known until the metadata was read."""
        if self.committed_size_bytes is not None or self._metadata is None:
            return self.committed_size_bytes
        return self._metadata.sidecar.parquet_size_bytes

    @property
    def committed_size_bytes(self) -> int | None:
        """Size of the Parquet file that the transaction states; None where it states none."""
        return self._location.committed_size_bytes

    @property
    def may_grow(self) -> bool:
        """Whether somebody may append to the files while they are read; what was committed does not change."""
        return self._location.may_grow

    def check_flags(self) -> None:
        """Refuse a partition that a newer QuestDB has marked in a way that is not understood here.

        Raises:
            UnsupportedError: Its files may not be all of it (kind ``UnknownPartitionFlags``).
        """
        record = self._location.record
        if record is not None and record.unknown_flags:
            raise UnsupportedError(
                f"the table's _txn marks this partition in a way that this version does not know"
                f" ({record.unknown_flags:#x}), so that its files may not be all of it",
                kind="UnknownPartitionFlags",
                path=self._location.directory_path,
                flags=record.unknown_flags,
            )

    async def metadata(self) -> PartitionMetadata:
        """Read the metadata, once.

        1 request where the sidecar fits the first guess, 2 where it does not, and more where it is large. Without a sidecar
        1 request that finds none, then 1 or 2 for the Parquet footer; these also follow a sidecar that is of another state
        of the table.

        Raises:
            NotFoundError: The partition has neither a sidecar nor a Parquet file.
            FormatError: The sidecar or the footer is damaged, or counts other rows than the table's transaction (kind
                ``RowCountMismatch``).
            UnsupportedError: It needs a feature that this version does not know, or is native (kind
                ``NativePartition``).
        """
        if self.format == "native":
            raise UnsupportedError(
                "the partition is in QuestDB's native format, which has neither sidecar nor footer; scan the table to read"
                " its rows",
                kind=NATIVE_PARTITION,
                path=self._location.directory_path,
            )
        self.check_flags()
        if self._metadata is not None:
            return self._metadata
        async with self._loading:
            if self._metadata is None:
                self._metadata = await self._load()
            return self._metadata

    async def metadata_of_its_file(self) -> PartitionMetadata:
        """Read the metadata, once, and that of the footer in its place where a disk shows a file that is newer than its sidecar.

        Requests and errors are those of :meth:`metadata`, and 1 or 2 for such a footer. Whoever reads the rows is told of a
        footer that is damaged.
        """
        known = await self.metadata()
        if known.source != "sidecar":
            return known
        [info] = await self._store.infos_at_hand([self.data_path]) or [None]
        if info is None or info.size_bytes != known.sidecar.parquet_size_bytes or self.may_grow:
            return known
        if not is_written_after(info.modified_s, known.sidecar_modified_s):
            return known
        try:
            return await self.read_footer_instead(WRITTEN_AFTER_SIDECAR, is_being_updated=False)
        except (FormatError, NotFoundError, UnsupportedError):
            return known

    @property
    def catalogue(self) -> Catalogue | None:
        """The table's catalogue if it is to be asked for the metadata: not where that was read, or asked for before."""
        is_read = self._metadata is not None or self._packed is not None
        return None if is_read or self._location.is_native else self._catalogue

    @property
    def is_at_hand(self) -> bool:
        """Whether :meth:`metadata` sends no request."""
        return self._metadata is not None or (
            self._packed is not None and self._packed.found is not None and self._packed.found.sidecar is not None
        )

    def take_packed(self, found: PackedLookup | None, requests: Sequence[MetadataRequest]) -> None:
        """Take what the catalogue has, for when the metadata is read; see :func:`read_packed`."""
        self._packed = _Packed(found, tuple(requests))

    async def reread_replaced(self) -> PartitionMetadata:
        """Read the metadata without the catalogue, whose entry turned out to be of another version of the Parquet object.

        Requests and errors are those of :meth:`metadata`.
        """
        async with self._loading:
            if self._catalogue is not None:
                self._catalogue.distrust(self.data_path)
            if self._metadata is None or self._metadata.source == "catalogue":
                problem = f"{DATA_FILE} was replaced since, or copied in another way; 'coldparquet pack' packs it anew"
                self._metadata = await self._load_unpacked([], (_entry_not_used(problem),))
            return self._metadata

    async def read_footer_instead(self, reason: str, *, is_being_updated: bool) -> PartitionMetadata:
        """Take the footer that ends where the sidecar says in place of the sidecar, which may be of another file.

        Requests and errors are those of :meth:`read_footer`.

        Args:
            reason: Why the sidecar is not believed.
            is_being_updated: Whether the Parquet file goes on behind that footer.
        """
        async with self._loading:
            known = self._metadata
            if known is None:
                raise InternalError("the sidecar of a partition is doubted before it was read")
            spent: list[MetadataRequest] = []
            before, self._location = self._location, replace(self._location, is_being_updated=is_being_updated)
            try:
                footer = await self.read_footer(spent, size_bytes=known.sidecar.parquet_size_bytes)
            except BaseException:
                self._location = before  # no update is under way, and the next question is refused as well
                raise
            self._metadata = PartitionMetadata(
                sidecar=await asyncio.to_thread(sidecar_in_memory, footer),
                source="footer",
                metadata_requests=(*known.metadata_requests, *spent),
                notes=(*known.notes, reason),
            )
            return self._metadata

    async def _load(self) -> PartitionMetadata:
        if self._packed is None:
            await read_packed([self])
        packed, spent = None, []
        if self._packed is not None:
            packed, spent = self._packed.found, list(self._packed.requests)
        if packed is None or packed.sidecar is None:
            problem = None if packed is None else packed.problem
            return await self._load_unpacked(spent, () if problem is None else (_entry_not_used(problem),))
        return PartitionMetadata(
            sidecar=packed.sidecar,
            source="catalogue",
            metadata_requests=tuple(spent),
            data_etag=packed.data_etag,
        )

    async def _load_unpacked(self, spent: list[MetadataRequest], notes: tuple[str, ...]) -> PartitionMetadata:
        found = await look_up_sidecar(
            self._store,
            self._location,
            self._options,
            spent=spent,
            cache=self._sidecars,
            connections=self._connections,
        )
        if found.state == "damaged" and found.problem is not None:
            found.problem.message += "; 'coldparquet index --force' writes the sidecar anew, and ReadOptions(sidecars=False) reads without it"
            raise found.problem
        if found.sidecar is not None:
            return PartitionMetadata(
                sidecar=found.sidecar,
                source="sidecar",
                metadata_requests=tuple(spent),
                notes=notes,
                sidecar_modified_s=found.modified_s,
            )
        if found.problem is not None:
            note = f"its sidecar is of another state, so the footer was read: {found.problem.message}"
            notes = (*notes, f"{note}; 'coldparquet migrate --force' makes it anew")
        footer = await self.read_footer(spent)
        sidecar = await asyncio.to_thread(sidecar_in_memory, footer)
        return PartitionMetadata(sidecar=sidecar, source="footer", metadata_requests=tuple(spent), notes=notes)

    async def read_footer(self, spent: list[MetadataRequest], *, size_bytes: int | None = None) -> ParquetFooter:
        """Read the Parquet footer, whether there is a sidecar or not. 1 or 2 requests.

        Args:
            spent: Gets the requests.
            size_bytes: Where the footer ends; None for where the transaction says or, without one, at the end of the file.

        Raises:
            NotFoundError: There is no Parquet file (kind ``NoDataFile`` where a listing showed the partition).
            FormatError: The footer is damaged, or counts other rows than the table's transaction (kind
                ``RowCountMismatch``).
            UnsupportedError: It needs a feature that this version does not know, or there is no Parquet file because the
                partition is native (kind ``NativePartition``); 1 listing more tells that.
        """
        self.check_flags()
        path, size_bytes = self.data_path, size_bytes or self.committed_size_bytes
        fetch = FooterFetch(path=path, suffix_bytes=self._options.footer_suffix_bytes, size_bytes=size_bytes)
        try:
            while (wanted := fetch.next_range) is not None:
                # The end of the object is only looked for where nobody states the size.
                may_be_short = size_bytes is None
                answer = await self._fetch(path, wanted, "Parquet footer", spent, may_be_short=may_be_short)
                fetch.receive(answer.data, start=answer.start, object_size_bytes=answer.object_size_bytes)
        except NotFoundError as error:
            if self._location.record is not None:
                raise NotFoundError(
                    "the table's _txn names this partition, but it is not there: it was replaced since the table was"
                    " opened (refresh it), or the copy of the table is not complete",
                    kind="PartitionMissing",
                    path=path,
                ) from error
            if not self._location.is_listed:
                raise
            await raise_what_is_missing(self._store, self._location, error)
        footer = await asyncio.to_thread(parse_footer, fetch.footer, path=path, offset=fetch.footer_offset)
        record = self._location.record
        if record is not None and footer.row_count != record.row_count:
            raise FormatError(
                f"the Parquet footer counts {footer.row_count:,} rows, the table's _txn {record.row_count:,}: one of"
                " them is from another state of the table; refresh the table, or run 'coldparquet verify'",
                kind="RowCountMismatch",
                path=self._location.directory_path,
                field="row_count",
            )
        return footer

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
            RangeRequest(
                path=path, byte_range=byte_range, reason=reason, may_be_short=may_be_short, may_grow=self.may_grow
            )
        )
        if not answer.is_from_cache:
            spent.append(
                MetadataRequest(path=path, byte_range=byte_range, reason=reason, fetched_bytes=len(answer.data))
            )
        return answer


async def read_packed(partitions: Sequence[Partition], *, look_ahead: LookAhead | None = None) -> None:
    """Ask the catalogue of a table for the metadata of many partitions at once, so that reading it takes no more requests.

    Requests: those of :meth:`coldparquet.catalog.catalogue.Catalogue.look_up`; they count as those of one of the partitions.

    Args:
        partitions: All of one table. Those whose metadata was read before are left alone.
        look_ahead: See :func:`coldparquet.catalog.packed_sidecars.read_packed_sidecars`.
    """
    # Partitions that did not change know the catalogue of the state in which they were seen first.
    for catalogue in {partition.catalogue for partition in partitions}:
        if catalogue is None:
            continue
        async with catalogue.turn:
            unread = [partition for partition in partitions if partition.catalogue is catalogue]
            spent: list[MetadataRequest] = []
            found = await catalogue.look_up([partition.location for partition in unread], spent, look_ahead=look_ahead)
            for partition in unread:
                partition.take_packed(found.get(partition.name), spent)
                spent = []


def _entry_not_used(problem: str) -> str:
    return f"its entry in {CATALOGUE_FILE} is not used: {problem}"
