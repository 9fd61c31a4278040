"""Reads the metadata of one partition: its sidecar, if that describes the committed Parquet file, else the footer."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from coldparquet.catalog.caches import remembered
from coldparquet.catalog.discovery import NATIVE_PARTITION, raise_what_is_missing
from coldparquet.catalog.hive_keys import refuse_contradiction, with_key_columns
from coldparquet.catalog.packed import CATALOGUE_FILE
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.errors import (
    ColdParquetError,
    FormatError,
    InternalError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.format.blooms import sidecar_in_memory
from coldparquet.format.fetch import WRITE_ANEW, FooterFetch, SidecarFetch
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_header import parse_columns_ahead
from coldparquet.options import COALESCING_BY_GOAL
from coldparquet.plan.model import MetadataRequest
from coldparquet.records import replace
from coldparquet.storage.log import get_metadata, metadata_requests, note_cache_hit, note_metadata
from coldparquet.storage.requests import FetchedRange, RangeRequest, described_etag, is_written_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from coldparquet.catalog.caches import SidecarCache
    from coldparquet.catalog.catalogue import Catalogue
    from coldparquet.catalog.objects import DataObjects
    from coldparquet.catalog.packed import PackedLookup
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.ranges import ByteRange
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.versions import Versions


_PARSE_IN_THREAD_BYTES = 256 * 1024
"""Above this size, checksumming on the event loop blocks it for longer than handing the work to a thread costs."""

_SMALL_FILE_BYTES = 512 * 1024
"""A listed file of at most this is fetched whole where its rows are wanted: that takes less time than a request of its own."""

SidecarState = Literal["present", "absent", "stale", "damaged"]
"""``stale``: no snapshot in it is of a Parquet file of the committed size. ``damaged``: no reader would accept it."""


class SidecarLookup(Struct, frozen=True, kw_only=True):
    """The sidecar of one Parquet file, or why there is none."""

    state: SidecarState
    """Without a transaction file the committed size is unknown, so every sound sidecar is ``present``."""
    file: memoryview
    """The sidecar up to its committed size; empty where it is absent or could not be fetched."""
    sidecar: Sidecar | None
    """The snapshot of the committed size; None unless present."""
    problem: ColdParquetError | None = None
    """Why it is stale or damaged."""
    modified_s: float | None = None
    """Modification time in seconds since 1970; None where the store does not report it, or no request was sent."""


async def look_up_sidecar(  # noqa: PLR0913 - mostly keyword arguments
    store: ObjectStore,
    location: PartitionLocation,
    options: ReadOptions,
    *,
    cache: SidecarCache | None = None,
    connections: int = 1,
    ask_data_etag: Callable[[], Awaitable[str | None]] | None = None,
) -> SidecarLookup:
    """Fetch and check the sidecar of a partition. 1 request where it fits the first guess or is absent, else 2 or more.

    For a cached sidecar: no request while it is trusted, or while the Parquet object has the version that it was found to
    describe (``ask_data_etag`` tells which it has), else 1, which returns bytes only if there is a newer one.
    """
    if location.sidecar_path is None or not options.sidecars:
        return SidecarLookup(state="absent", file=memoryview(b""), sidecar=None)
    path = location.sidecar_path
    kept = None if cache is None else await cache.find(path)
    if (
        cache is not None
        and kept is not None
        and (
            cache.is_trusted(kept)
            or (kept.beside_etag and ask_data_etag and cache.describes(path, kept, await ask_data_etag()))
        )
    ):
        found = await _parse(memoryview(kept.data), location, path)
        if found.state == "present":
            note_cache_hit(len(kept.data))
            return found
    state = SidecarFetch(
        path,
        prefix_bytes=options.sidecar_prefix_bytes,
        coalescing=COALESCING_BY_GOAL[options.goal],
        connections=connections,
    )
    fetch = _Fetch(store, path, may_grow=location.may_grow)
    try:
        file = await fetch.file(state, kept)
    except NotFoundError:
        note_metadata(path, None, "no sidecar")
        return SidecarLookup(state="absent", file=memoryview(b""), sidecar=None)
    except (FormatError, UnsupportedError) as error:
        return _refused(error, memoryview(b""))
    found = await _parse(file, location, path)
    if cache is not None and found.state != "damaged":
        if fetch.kept_is_newest and kept is not None:
            cache.confirm(path, kept)
        else:
            cache.keep(path, file, fetch.etag)
    return replace(found, modified_s=fetch.modified_s)


async def _parse(file: memoryview, location: PartitionLocation, path: str) -> SidecarLookup:
    """Check a fetched sidecar, up to its committed size."""
    size_bytes = location.committed_size_bytes or location.listed_size_bytes
    try:
        if len(file) > _PARSE_IN_THREAD_BYTES:
            sidecar = await asyncio.to_thread(parse_sidecar, file, path=path, parquet_size_bytes=size_bytes)
        else:
            sidecar = _parsed(bytes(file), path=path, parquet_size_bytes=size_bytes)
        _check_rows(sidecar, location)
    except (FormatError, UnsupportedError) as error:
        return _refused(error, file)
    return SidecarLookup(state="present", file=file, sidecar=sidecar)


_parsed = remembered(parse_sidecar, most=64)


def _refused(error: ColdParquetError, file: memoryview) -> SidecarLookup:
    # The chain is sound, but its snapshots have other sizes or rows than the committed one.
    is_stale = error.details.get("field") in {"parquet_size_bytes", "row_count"}
    return SidecarLookup(state="stale" if is_stale else "damaged", file=file, sidecar=None, problem=error)


class _Fetch:
    """The requests for one sidecar.

    Args:
        store: The sidecar's store.
        path: The sidecar.
        may_grow: Whether QuestDB may append to it meanwhile.
    """

    def __init__(self, store: ObjectStore, path: str, *, may_grow: bool) -> None:
        self.etag: str | None = None
        """Version of the sidecar, once it is fetched."""
        self.modified_s: float | None = None
        """Modification time, where the store reported it."""
        self.kept_is_newest = False
        """Whether the store confirmed that the cached sidecar is the newest one."""
        self._store = store
        self._path = path
        self._may_grow = may_grow

    async def file(self, fetch: SidecarFetch, kept: FetchedRange | None) -> memoryview:
        """Fetch the sidecar up to its committed size; if it is cached, only when there is a newer one."""
        [first] = fetch.wanted()
        beginning = await self._get(first, if_none_match=None if kept is None else kept.etag)
        if kept is not None and self.kept_is_newest:
            return memoryview(kept.data)
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
            may_be_kept=False,  # sidecars are cached as a whole, not by range
        )
        answer = await self._store.get(request)
        self.etag, self.kept_is_newest, self.modified_s = answer.etag, answer.is_unchanged, answer.modified_s
        reason = "sidecar, unchanged" if answer.is_unchanged else "sidecar"
        note_metadata(self._path, byte_range, reason, fetched_bytes=len(answer.data))
        return answer


async def _parse_columns_meanwhile(beginning: bytes) -> None:
    """Parse the columns while the rest of the sidecar downloads; in steps, because the event loop must keep sending."""
    for _ in parse_columns_ahead(memoryview(beginning)):
        await asyncio.sleep(0)


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
    """Say that a Parquet file is shorter than its transaction states; None for other errors."""
    committed_bytes, found_bytes = location.committed_size_bytes, error.details.get("object_size_bytes")
    if committed_bytes is None or not isinstance(error, ObjectChangedError) or not isinstance(found_bytes, int):
        return None
    return (
        f"it has {found_bytes:,} bytes, but the table's _txn commits {committed_bytes:,} of it: the file was cut off, or"
        " its copy is not complete"
    )


WRITTEN_AFTER_SIDECAR = (
    f"{DATA_FILE} was written after its sidecar, so its footer was read; 'coldparquet index' renews the sidecar"
)
"""Why a sidecar is rejected that is older than a Parquet file of the size that it describes."""


class PartitionMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of a partition."""

    sidecar: Sidecar
    """The sidecar, or one derived in memory from the Parquet footer."""
    source: Literal["sidecar", "catalogue", "footer"]
    metadata_requests: tuple[MetadataRequest, ...] = ()
    """The requests that read it."""
    notes: tuple[str, ...] = ()
    """What a user should know about it, one sentence each."""
    data_etag: str | None = None
    """Version of the Parquet object that a catalogue entry was made for; None where no version was recorded."""
    sidecar_modified_s: float | None = None
    """When the sidecar was written, in seconds since 1970; None where the store does not report it, and for other
    sources."""


def metadata_of_entry(entry: PackedLookup, requests: tuple[MetadataRequest, ...] = ()) -> PartitionMetadata | None:
    """Return the metadata that an entry of the catalogue holds; None if it cannot be used."""
    if entry.sidecar is None:
        return None
    return PartitionMetadata(
        sidecar=entry.sidecar, source="catalogue", metadata_requests=requests, data_etag=entry.data_etag
    )


class FooterGuess:
    """How much behind its row groups a file of a table has, by those that were read: its footer and indexes."""

    def __init__(self) -> None:
        self._longest: tuple[int, int] | None = None
        """The most of such bytes, and the size of that file."""

    def note(self, footer: ParquetFooter, size_bytes: int) -> None:
        """Learn of one file."""
        chunks = footer.row_groups[-1].chunks if footer.row_groups else ()
        stop = max((chunk.byte_range[1] for chunk in chunks), default=footer.offset)
        found = max(size_bytes - stop, 0), size_bytes
        self._longest = max(self._longest or found, found)

    def suffix_bytes(self, listed_size_bytes: int | None, *, most_bytes: int) -> int:
        """Return how much of a file to fetch at first."""
        if self._longest is None or listed_size_bytes is None:
            return most_bytes
        behind_bytes, size_bytes = self._longest
        like_it = behind_bytes * max(1.0, listed_size_bytes / size_bytes)
        return min(most_bytes, int(like_it * _FOOTER_VARIES) + _LEAST_FOOTER_BYTES)


_FOOTER_VARIES = 1.25
_LEAST_FOOTER_BYTES = 2 * 1024
"""Another request takes longer than some more bytes of all footers."""


class _Packed(Struct, frozen=True):
    """The catalogue's metadata for a partition; empty where no entry is valid."""

    found: PackedLookup | None
    requests: tuple[MetadataRequest, ...]


class Partition:
    """One time slice of a table.

    The metadata is fetched on first use and then kept: later writes change nothing here.

    Args:
        location: Where the partition is.
        store: The table's store.
        options: How to read.
        sidecars: Caches sidecars beyond this partition; None for no cache.
        catalogue: The table's catalogue, tried before the sidecar; None to skip it.
        connections: Number of connections over which the rest of a large sidecar is spread.
        footer_guess: What the footers of the same table took; None to know nothing of others.
        heads: Sends the HEAD of the Parquet object while the metadata is read; None where none is sent.
    """

    def __init__(  # noqa: PLR0913 - where it is, how to read it, and what its table shares
        self,
        location: PartitionLocation,
        store: ObjectStore,
        options: ReadOptions,
        *,
        sidecars: SidecarCache | None = None,
        catalogue: Catalogue | None = None,
        connections: int = 1,
        footer_guess: FooterGuess | None = None,
        heads: DataObjects | None = None,
    ) -> None:
        self._footer_guess = footer_guess or FooterGuess()
        self._heads = heads
        self._location = location
        self._store = store
        self._options = options
        self._sidecars = sidecars
        self._catalogue = catalogue
        self._connections = connections
        self._loading = asyncio.Lock()
        self.name_states_times = True
        """Whether the directory's name says of which times the rows are."""
        self._metadata: PartitionMetadata | None = None
        self._packed: _Packed | None = None
        self._is_read_whole: bool | None = None

    def __repr__(self) -> str:
        rows = "not read yet" if self.rows is None else f"{self.rows} rows"
        return f"<Partition {self.name}: {rows}>"

    @property
    def location(self) -> PartitionLocation:
        """Directory of the partition, and what the table records about it."""
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

        From the table's transaction or, without one, the directory's name. None where that is no partition's name, or where
        nothing says that it is about the column of times: the user alone named one.
        """
        directory = self._location.directory
        return None if directory is None or not self.name_states_times else (directory.start_ns, directory.stop_ns)

    @property
    def format(self) -> Literal["parquet", "native"]:
        """How the partition is stored: in Parquet or in QuestDB's own column files.

        Without a transaction file every partition counts as Parquet until a read finds otherwise.
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
    def small_file_bytes(self) -> int | None:
        """Size of a file that is small enough to be fetched as a whole; None of others, and where no listing told it."""
        listed_bytes = self._location.listed_size_bytes
        return listed_bytes if listed_bytes is not None and listed_bytes <= _SMALL_FILE_BYTES else None

    @property
    def snapshot(self) -> Sidecar | None:
        """The metadata that reads are planned from; None before its first use, and for native partitions."""
        return None if self._metadata is None else self._metadata.sidecar

    @property
    def rows(self) -> int | None:
        """Number of rows; without a transaction file None until the metadata is read."""
        if self._location.record is not None:
            return self._location.record.row_count
        return None if self._metadata is None else self._metadata.sidecar.total_rows

    @property
    def parquet_size_bytes(self) -> int | None:
        """Size of the Parquet file in this snapshot; None if native, or until the metadata is read."""
        if self.committed_size_bytes is not None or self._metadata is None:
            return self.committed_size_bytes
        return self._metadata.sidecar.parquet_size_bytes

    @property
    def committed_size_bytes(self) -> int | None:
        """Size of the Parquet file that the transaction states; None where it states none."""
        return self._location.committed_size_bytes

    @property
    def may_grow(self) -> bool:
        """Whether a writer may append to the files during a read; committed bytes do not change."""
        return self._location.may_grow

    def check_flags(self) -> None:
        """Refuse a partition with flags of a newer QuestDB that this version does not know."""
        record = self._location.record
        if record is not None and record.unknown_flags:
            raise UnsupportedError(
                f"the table's _txn marks this partition in a way that this version does not know"
                f" ({record.unknown_flags:#x}), so that its files may not be all of it",
                kind="UnknownPartitionFlags",
                path=self._location.directory_path,
                flags=record.unknown_flags,
            )

    async def metadata(self, *, is_read_whole: bool | None = None) -> PartitionMetadata:
        """Read the metadata, once.

        ``is_read_whole``: a small file comes as a whole with its footer, because it will be read; False if it will not. If that is
        not known, one that is no longer than the usual request does.

        1 request where the sidecar fits the first guess, 2 where it does not, and more where it is large. Without a
        sidecar, 1 request that finds none, then 1 or 2 for the Parquet footer. The same footer requests follow a
        sidecar of another state of the table.
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
                self._is_read_whole = is_read_whole
                self._metadata = await self._load()
            return self._metadata

    async def metadata_of_its_file(self) -> PartitionMetadata:
        """Read the metadata, once; on a disk, use the footer where the Parquet file is newer than its sidecar.

        Requests and errors are those of :meth:`metadata`, and 1 or 2 for such a footer. A damaged footer raises no
        error here; the read of the rows raises it.
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
        """The table's catalogue; None once the metadata was read or the catalogue was tried."""
        is_read = self._metadata is not None or self._packed is not None
        return None if is_read or self._location.is_native else self._catalogue

    @property
    def known_metadata(self) -> PartitionMetadata | None:
        """The metadata, if it was read. No request."""
        return self._metadata

    @property
    def is_at_hand(self) -> bool:
        """Whether :meth:`metadata` sends no request."""
        return self._metadata is not None or (
            self._packed is not None and self._packed.found is not None and self._packed.found.sidecar is not None
        )

    def take_packed(self, found: PackedLookup | None, requests: Sequence[MetadataRequest]) -> None:
        """Take the catalogue's metadata, to be used when the metadata is read; see :func:`read_packed`."""
        self._packed = _Packed(found, tuple(requests))

    async def reread_replaced(self) -> PartitionMetadata:
        """Read the metadata without the catalogue, whose entry is of another version of the Parquet object.

        Requests and errors are those of :meth:`metadata`.
        """
        async with self._loading:
            if self._catalogue is not None:
                self._catalogue.distrust(self.data_path)
            if self._metadata is None or self._metadata.source == "catalogue":
                problem = f"{DATA_FILE} was replaced since, or copied in another way"
                self._metadata = await self._load_unpacked((), (_entry_not_used(problem),))
            return self._metadata

    async def read_footer_instead(self, reason: str, *, is_being_updated: bool) -> PartitionMetadata:
        """Replace the sidecar, which may be of another file, by the footer at the end that the sidecar states.

        Requests and errors are those of :meth:`read_footer`.
        """
        async with self._loading:
            known = self._metadata
            if known is None:
                raise InternalError("the sidecar of a partition is doubted before it was read")
            before, self._location = self._location, replace(self._location, is_being_updated=is_being_updated)
            try:
                with metadata_requests() as requests:
                    footer = await self.read_footer(size_bytes=known.sidecar.parquet_size_bytes)
            except BaseException:
                self._location = before  # no update is under way: the next request is refused as well
                raise
            self._metadata = PartitionMetadata(
                sidecar=await asyncio.to_thread(self._described_by, footer),
                source="footer",
                metadata_requests=(*known.metadata_requests, *requests),
                notes=(*known.notes, reason),
            )
            return self._metadata

    def note_what_sidecar_describes(self, versions: Versions) -> None:
        """Record that the sidecar describes the version of the Parquet object that a HEAD has shown."""
        known, path, info = self._metadata, self._location.sidecar_path, versions.info(self.data_path)
        if self._sidecars is None or path is None or known is None or known.source != "sidecar":
            return
        data_etag = described_etag(known.sidecar_modified_s, info)
        if data_etag and info and info.size_bytes == known.sidecar.parquet_size_bytes:
            self._sidecars.note_beside(path, versions.lasting_etag(path), data_etag)

    async def doubt_sidecar(self) -> None:
        """Let the next opening of the table fetch the sidecar again."""
        if self._sidecars is not None and self._location.sidecar_path is not None:
            await self._sidecars.forget(self._location.sidecar_path)

    async def _load(self) -> PartitionMetadata:
        if self._packed is None:
            await read_packed([self])
        packed, requests = None, tuple[MetadataRequest, ...]()
        if self._packed is not None:
            packed, requests = self._packed.found, self._packed.requests
        metadata = None if packed is None else metadata_of_entry(packed, requests)
        if metadata is None:
            problem = None if packed is None else packed.problem
            return await self._load_unpacked(requests, () if problem is None else (_entry_not_used(problem),))
        return metadata

    async def _load_unpacked(self, before: Sequence[MetadataRequest], notes: tuple[str, ...]) -> PartitionMetadata:
        with metadata_requests([*before]) as requests:
            loaded = await self._load_own(notes)
        return replace(loaded, metadata_requests=tuple(requests))

    async def _load_own(self, notes: tuple[str, ...]) -> PartitionMetadata:
        location = self._location
        found = await look_up_sidecar(
            self._store,
            location,
            self._options,
            cache=self._sidecars,
            connections=self._connections,
            ask_data_etag=None if self._heads is None else partial(self._heads.etag_of, location.data_path),
        )
        is_ours = location.sidecar_path is None or location.sidecar_path.endswith(f"/{SIDECAR_FILE}")
        if found.state == "damaged" and found.problem is not None and is_ours:
            message = found.problem.message.removesuffix(f"; {WRITE_ANEW}")
            found.problem.message = f"{message}; {WRITE_ANEW}, and ReadOptions(sidecars=False) reads without it"
            raise found.problem
        if found.sidecar is not None:
            return PartitionMetadata(
                sidecar=found.sidecar,
                source="sidecar",
                notes=notes,
                sidecar_modified_s=found.modified_s,
            )
        if found.problem is not None:
            remedy = "; 'coldparquet migrate --force' makes it anew" if is_ours else ""
            what = "its sidecar is of another state" if found.state == "stale" else "its sidecar cannot be used"
            notes = (*notes, f"{what}, so the footer was read: {found.problem.message}{remedy}")
        footer = await self.read_footer()
        sidecar = await asyncio.to_thread(self._described_by, footer)
        return PartitionMetadata(sidecar=sidecar, source="footer", notes=notes)

    def _described_by(self, footer: ParquetFooter) -> Sidecar:
        keys = self._location.keys
        sidecar = sidecar_in_memory(footer, partial(with_key_columns, keys=keys))
        for key in keys:
            refuse_contradiction(sidecar, key)
        return sidecar

    async def read_footer(self, *, size_bytes: int | None = None) -> ParquetFooter:
        """Read the Parquet footer, with or without a sidecar. 1 or 2 requests."""
        footer, _ = await self._read_footer(size_bytes)
        return footer

    async def read_footer_bytes(self) -> bytes:
        """Read the Thrift bytes of the Parquet footer, which were parsed and found sound. 1 or 2 requests."""
        _, content = await self._read_footer(None)
        return content

    async def _read_footer(self, size_bytes: int | None) -> tuple[ParquetFooter, bytes]:
        self.check_flags()
        path, size_bytes = self.data_path, size_bytes or self.committed_size_bytes
        listed_bytes, most_bytes = self._location.listed_size_bytes, self._options.footer_suffix_bytes
        is_tiny = listed_bytes is not None and listed_bytes <= most_bytes and self._is_read_whole is not False
        suffix_bytes = most_bytes if is_tiny else self._footer_guess.suffix_bytes(listed_bytes, most_bytes=most_bytes)
        if self._is_read_whole:
            suffix_bytes = max(suffix_bytes, self.small_file_bytes or 0)
        fetch = FooterFetch(path=path, suffix_bytes=suffix_bytes, size_bytes=size_bytes)
        try:
            while (wanted := fetch.next_range) is not None:
                # The end of the object is only requested where no size is known.
                may_be_short = size_bytes is None
                request = RangeRequest(
                    path=path,
                    byte_range=wanted,
                    reason="Parquet footer",
                    may_be_short=may_be_short,
                    may_grow=self.may_grow,
                )
                answer = await get_metadata(self._store, request)
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
        self._footer_guess.note(footer, fetch.size_bytes)
        record = self._location.record
        if record is not None and footer.row_count != record.row_count:
            raise FormatError(
                f"the Parquet footer counts {footer.row_count:,} rows, the table's _txn {record.row_count:,}: one of"
                " them is from another state of the table; refresh the table, or run 'coldparquet verify'",
                kind="RowCountMismatch",
                path=self._location.directory_path,
                field="row_count",
            )
        return footer, fetch.footer


async def read_packed(partitions: Sequence[Partition]) -> None:
    """Look up the metadata of many partitions in the catalogue at once; reading it then sends no more requests.

    Requests: those of :meth:`coldparquet.catalog.catalogue.Catalogue.look_up`; they are counted for one of the
    partitions.
    """
    # Unchanged partitions keep the catalogue of the state in which they were first read.
    for catalogue in {partition.catalogue for partition in partitions}:
        if catalogue is None:
            continue
        async with catalogue.lock:
            unread = [partition for partition in partitions if partition.catalogue is catalogue]
            with metadata_requests() as requests:
                found = await catalogue.look_up([partition.location for partition in unread])
            for partition in unread:
                partition.take_packed(found.get(partition.name), requests)
                requests = []


def _entry_not_used(problem: str) -> str:
    return f"its entry in {CATALOGUE_FILE} is not used: {problem}; 'coldparquet index' writes it anew"
