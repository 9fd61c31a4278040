"""Reading one partition whole: checksums of object and pages, every value against bounds and bloom filters."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.catalog.findings import Finding, finding_of_error
from coldparquet.catalog.packed import CATALOGUE_FILE, CATALOGUE_REASON
from coldparquet.concurrency import gather_or_cancel
from coldparquet.decode.arrow import PLAIN_TEXT, compute, to_domain_value
from coldparquet.decode.row_group import decode_row_group
from coldparquet.decode.virtual_file import new_row_group_buffer
from coldparquet.errors import ColdParquetError, InternalError, UnsupportedError
from coldparquet.format.blooms import (
    BLOCK_BYTES,
    UNKNOWN,
    block_numbers,
    blocks_at,
    bloom_hashes,
    locate_blooms,
    may_be_in_blocks,
)
from coldparquet.format.fetch import FetchedRanges
from coldparquet.format.types import ValueOrder
from coldparquet.options import MIB
from coldparquet.plan.answers import exact_bounds
from coldparquet.plan.bind import BoundField, BoundIsNull
from coldparquet.plan.coalesce import coalesce
from coldparquet.plan.columns import TableColumn
from coldparquet.plan.model import CHUNK, Read, StoredData
from coldparquet.plan.pages import PageStatistics
from coldparquet.plan.row_groups import constant_bytes, null_chunks, stored_columns
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.checksums import WholeObjectCheck
from coldparquet.storage.requests import RangeRequest, is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import IO

    from coldparquet.catalog.packed import CatalogueFile
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.blooms import BloomPlaces
    from coldparquet.format.catalogue_blooms import PackedBloom
    from coldparquet.format.catalogue_file import CatalogueIndex
    from coldparquet.format.pages import PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.maintenance.file_checks import PartitionCheck
    from coldparquet.plan.answers import ExactBounds
    from coldparquet.plan.bounds import Bounds
    from coldparquet.plan.literals import DomainValue
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import StoredChecksum


_MOST_VALUES = 1_000
"""Distinct values of a row group that its filter is asked for, spread over all of them."""

_LONGEST_RANGE_BYTES = 8 * 1024 * 1024


class BloomCheck:
    """The bloom filters of one column.

    Args:
        sidecar: The snapshot.
        column: Index of the column in it.
        read_at: Returns bytes of the Parquet file, given the first one and how many.
    """

    def __init__(self, sidecar: Sidecar, column: int, read_at: Callable[[int, int], bytes]) -> None:
        self._sidecar = sidecar
        self._column = column
        self._type = sidecar.column_type(column)
        self._read_at = read_at
        self._places = located_blooms(sidecar, column, read_at) if column in sidecar.bloom_columns else None

    def denied_values(self, row_group: int, values: Any) -> int:
        """Count the values that the filter of a row group says are not there."""
        places = self._places
        if places is None or not places.present[row_group] or places.starts[row_group] == UNKNOWN:
            return 0
        asked = self._asked_for(row_group, values)
        hashes = bloom_hashes(asked, self._type) if asked else None
        if hashes is None or not len(hashes.hashes):
            return 0
        start, length_bytes = int(places.starts[row_group]), int(places.lengths[row_group])
        stored = (
            self._sidecar.file[start : start + length_bytes]
            if places.in_sidecar
            else self._read_at(start, length_bytes)
        )
        blocks = block_numbers(hashes.hashes, np.array([length_bytes])) * BLOCK_BYTES
        hits = may_be_in_blocks(hashes.hashes, blocks_at(np.frombuffer(stored, np.uint8), blocks))
        # A value with several forms, as the two zeros of floats, is there in one of them.
        return len(np.unique(hashes.owners)) - len(np.unique(hashes.owners[hits]))

    def _asked_for(self, row_group: int, values: Any) -> list[Any]:
        """Choose values of which the writer of the filter has certainly put all in: not those that stand for NULL."""
        chunks, descriptor = self._sidecar.chunks(self._column), self._sidecar.column(self._column)
        has_nulls = not chunks.has_null_count[row_group] or bool(chunks.null_count[row_group])
        if not self._type.is_compared or (has_nulls and descriptor.max_def_level == 0):
            return []
        distinct = compute.unique(compute.drop_null(values))
        if self._type.comparison is ValueOrder.FLOAT:
            distinct = distinct.filter(compute.invert(compute.is_nan(distinct)))
        chosen = np.unique(np.linspace(0, max(len(distinct) - 1, 0), _MOST_VALUES).astype(np.int64))
        asked = [to_domain_value(distinct[place]) for place in chosen.tolist()] if len(distinct) else []
        return [value for value in asked if value != 0] if self._type.never_null else asked


def located_blooms(sidecar: Sidecar, column: int, read_at: Callable[[int, int], bytes]) -> BloomPlaces:
    """Find out where the filters of a column lie, and how long they are; reads their headers where nothing else says."""
    places = locate_blooms(sidecar, column)
    row_groups = np.arange(sidecar.row_group_count)
    _, starts, stops = places.header_ranges(row_groups)
    if len(starts):
        pieces = coalesce(starts, stops, gap_bytes=0, max_request_bytes=_LONGEST_RANGE_BYTES)
        fetched = FetchedRanges()
        fetched.add_round(
            [
                (start, read_at(start, stop - start))
                for start, stop in zip(pieces.starts.tolist(), pieces.stops.tolist(), strict=True)
            ]
        )
        places.read_headers(row_groups, fetched)
    return places


_PIECE_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBlooms:
    """The bloom filters of one partition in a catalogue."""

    blooms: tuple[PackedBloom, ...]
    data_etag: str | None
    """Version of the Parquet object that they were packed from; None where it has none that lasts."""
    remedy: str
    """How the catalogue is written anew."""

    def are_asked(self, location: PartitionLocation, *, found_etag: str | None) -> bool:
        """Tell whether readers ask them: not where they find another version of the Parquet object."""
        is_another = is_lasting_etag(found_etag) and self.data_etag not in {None, found_etag}
        return location.committed_size_bytes is not None or not is_another


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPackedBlooms:
    """The bloom filters in a catalogue, as far as they were read."""

    findings: tuple[Finding, ...] = ()
    """What is wrong with them as a whole."""
    of_partition: Mapping[str, PartitionBlooms] = field(default_factory=dict)
    """The filters, by the names of partitions."""


async def read_packed_blooms(store: ObjectStore, file: CatalogueFile, *, deep: bool, remedy: str) -> ReadPackedBlooms:
    """Read the bloom filters of a catalogue, with their checksums; or only check their index.

    Requests: 1 per 8 MiB, of the filters or of their index; none where it came with the catalogue, or holds none. All filters
    are in memory, twice.
    """
    index = file.index
    if index is None or index.blooms_range is None:
        return ReadPackedBlooms()
    try:
        data = await _fetch(store, file, index.blooms_range)
        if not deep:
            await asyncio.to_thread(index.parse_blooms, data)
            return ReadPackedBlooms()
        stripes = await _fetch(store, file, index.stripes_range)
        return ReadPackedBlooms(of_partition=await asyncio.to_thread(_by_partition, index, data, stripes, remedy))
    except InternalError:
        raise
    except ColdParquetError as error:
        message = f"the bloom filters in {CATALOGUE_FILE} are not used: {error.message}"
        finding = Finding(severity="warning", kind="CatalogueNotUsed", message=message, remedy=remedy)
        return ReadPackedBlooms(findings=(finding,))


async def _fetch(store: ObjectStore, file: CatalogueFile, place: ByteRange) -> bytes:
    if place.stop <= len(file.beginning):
        return file.beginning[place.start : place.stop]
    requests = [
        RangeRequest(
            path=file.path,
            byte_range=ByteRange(start, min(start + _PIECE_BYTES, place.stop)),
            reason=CATALOGUE_REASON,
            if_match=file.etag,
        )
        for start in range(place.start, place.stop, _PIECE_BYTES)
    ]
    return b"".join([answer.data for answer in await gather_or_cancel([store.get(request) for request in requests])])


def _by_partition(index: CatalogueIndex, data: bytes, stripes: bytes, remedy: str) -> dict[str, PartitionBlooms]:
    of_entries = index.parse_blooms(data).bitsets_of_entries(memoryview(stripes))
    return {
        name: PartitionBlooms(blooms=tuple(of_entries[entry]), data_etag=index.data_etags[entry], remedy=remedy)
        for name, entry in index.entry_of.items()
        if entry in of_entries
    }


def compare_packed_blooms(
    sidecar: Sidecar, packed: PartitionBlooms, read_at: Callable[[int, int], bytes]
) -> list[Finding]:
    """Compare filters of a catalogue with those of the Parquet file, bit by bit. Blocks."""
    columns = {sidecar.column(column).name: column for column in sidecar.bloom_columns}
    packed_columns = columns.keys() & {bloom.column for bloom in packed.blooms}
    places = {name: located_blooms(sidecar, columns[name], read_at) for name in packed_columns}
    differing: dict[str, list[int]] = {}
    for bloom in packed.blooms:
        of_column = places.get(bloom.column)
        stored = None if of_column is None else _stored_bitset(of_column, bloom.row_group, sidecar, read_at)
        if stored != bloom.bitset:
            differing.setdefault(bloom.column, []).append(bloom.row_group)
    return [
        Finding(
            severity="error",
            kind="CatalogueDiffers",
            message=f"column {column!r}: its bloom filters in {CATALOGUE_FILE}, by which readers leave out row groups, are not"
            " those of the Parquet file",
            remedy=f"readers may miss rows: {packed.remedy}",
            column=column,
            row_groups=tuple(row_groups),
        )
        for column, row_groups in differing.items()
    ]


def _stored_bitset(
    places: BloomPlaces, row_group: int, sidecar: Sidecar, read_at: Callable[[int, int], bytes]
) -> bytes | None:
    """Read the filter of a row group; None where there is none."""
    if row_group >= len(places.present) or not places.present[row_group]:
        return None
    start, length_bytes = int(places.starts[row_group]), int(places.lengths[row_group])
    if places.in_sidecar:
        return bytes(sidecar.file[start : start + length_bytes])
    return None if start == UNKNOWN else read_at(start, length_bytes)


_REMEDY = (
    "readers may miss rows: make the sidecar anew with 'coldparquet index --force', and tell whoever wrote the file"
)


@dataclass(frozen=True, slots=True)
class ClaimsOfPages:
    """Bounds of the pages of a Parquet file, by which readers leave pages out."""

    source: str
    """Name of the file that holds them."""
    pages: PartitionPages
    sidecar: Sidecar
    """What they were checked against; that of a catalogue may have key columns behind those of the file."""
    remedy: str | None = None
    """How that file is written anew; None where the sidecar is written with it."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """A claim that values break."""

    kind: str
    message: str
    field: str | None
    """Field of the sidecar."""
    remedy: str = _REMEDY


def check_values(
    sidecar: Sidecar, pages: Sequence[ClaimsOfPages], read_at: Callable[[int, int], bytes], *, path: str
) -> list[Finding]:
    """Decode every column chunk, with the checksums of its pages, and compare its values with what is claimed of them.

    Claims are those that reads rely on: numbers of rows and nulls, bounds of row groups and of pages, bounds that stand for
    values, bloom filters, and that the designated timestamp never goes back within a row group. One chunk is in memory
    at a time. Blocks.
    """
    findings: list[Finding] = []
    for column in sidecar.places:
        try:
            claims = _ColumnClaims.of(sidecar, column, pages)
            blooms = BloomCheck(sidecar, column, read_at)
        except UnsupportedError as error:
            findings.append(replace(finding_of_error(error), severity="warning", column=sidecar.column(column).name))
            continue
        problems: dict[_Broken, list[int]] = {}
        for row_group in np.flatnonzero(sidecar.row_counts).tolist():
            try:
                values = _decode(sidecar, column, row_group, read_at, path=path)
            except ColdParquetError as error:
                finding = finding_of_error(error)
                findings.append(replace(finding, column=claims.field.name, row_groups=(row_group,)))
                continue
            found = list(claims.problems(row_group, values))
            if blooms.denied_values(row_group, values):
                found.append(_Broken("BloomMismatch", "its bloom filter denies values that are there", None))
            for broken in found:
                problems.setdefault(broken, []).append(row_group)
        findings += [
            Finding(
                severity="error",
                kind=broken.kind,
                message=f"column {claims.field.name!r}: {broken.message}",
                remedy=broken.remedy,
                column=claims.field.name,
                row_groups=tuple(row_groups),
                field=broken.field,
            )
            for broken, row_groups in problems.items()
        ]
    return findings


def _decode(sidecar: Sidecar, column: int, row_group: int, read_at: Callable[[int, int], bytes], *, path: str) -> Any:
    """Decode one chunk, or those of a nested column, as an Arrow array of plain values.

    A chunk without bytes is made as reads make it.
    """
    leaves = sidecar.leaves_of([column])
    starts, lengths = (
        np.array([getattr(sidecar.chunks(leaf), field)[row_group] for leaf in leaves], dtype=np.int64)
        for field in ("byte_range_start", "total_compressed_bytes")
    )
    fetched = tuple(leaves) if lengths.any() else ()
    stored = stored_columns(sidecar, [column])
    chunks = [
        (int(of_leaf.codec[row_group]), int(of_leaf.encodings[row_group]), int(of_leaf.num_values[row_group]), 0)
        for of_leaf in map(sidecar.chunks, fetched)
    ]
    read = Read(
        partition_index=0,
        data=StoredData(
            decoder="parquet",
            path=path,
            columns=stored,
            places={column: column},
            created_by=sidecar.created_by,
            is_writer_known=sidecar.is_writer_known,
        ),
        row_group=row_group,
        row_group_rows=int(sidecar.row_counts[row_group]),
        columns=fetched,
        column_rows=(None,) * len(fetched),
        chunks=np.array(chunks, dtype=CHUNK),
        piece_columns=np.arange(len(fetched)),
        piece_starts=starts[: len(fetched)],
        piece_stops=(starts + lengths)[: len(fetched)],
        made_columns=() if fetched else (column,),
        made_values=() if fetched else (_made_value(sidecar, column, row_group),),
        all_rows_match=True,
    )
    buffer = new_row_group_buffer(read)
    if fetched:
        for offset, start, length_bytes in zip(
            read.buffer_offsets.tolist(), starts.tolist(), lengths.tolist(), strict=True
        ):
            buffer.place(offset, memoryview(read_at(start, length_bytes)))
    output = TableColumn(index=column, name=stored[column].name, id=-1, type=stored[column].type)
    rows = decode_row_group(buffer, read, [output], text=PLAIN_TEXT, check_page_checksums=True)
    return rows.column(0)


def _made_value(sidecar: Sidecar, column: int, row_group: int) -> bytes | None:
    """Return the value of a chunk without bytes as reads make it; None for null."""
    is_null = null_chunks(sidecar, column, np.array([row_group]))[0]
    return None if is_null else constant_bytes(sidecar, column, row_group)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ColumnClaims:
    """What is claimed of one column, in every row group."""

    field: BoundField
    exact: ExactBounds
    of_pages: Mapping[ClaimsOfPages, PageStatistics]
    is_sorted: bool
    """Whether it is the designated timestamp."""

    @classmethod
    def of(cls, sidecar: Sidecar, column: int, pages: Sequence[ClaimsOfPages]) -> _ColumnClaims:
        field = BoundField(name=sidecar.column(column).name, index=column, type=sidecar.column_type(column))
        places: dict[int, int | None] = {column: column}
        of_pages = {
            claims: PageStatistics(
                BoundIsNull(field),
                sidecar=claims.sidecar,
                places=places,
                pages=claims.pages,
                row_groups=np.arange(sidecar.row_group_count),
                by_row_group=SidecarStatistics(claims.sidecar, places),
            )
            for claims in pages
        }
        return cls(
            field=field,
            exact=exact_bounds(sidecar, column, field),
            of_pages=of_pages,
            is_sorted=sidecar.designated_timestamp == column,
        )

    def problems(self, row_group: int, values: Any) -> Iterator[_Broken]:
        """Yield what is wrong in one row group."""
        facts = _Facts.of(values, self.field)
        exact = self.exact
        stated_nulls = int(exact.null_counts[row_group])
        if stated_nulls not in {-1, facts.null_count}:
            message = f"{facts.null_count:,} rows are NULL, {stated_nulls:,} by the sidecar"
            yield _Broken("StatisticsMismatch", message, "NULL_COUNT")
        if exact.bounds is not None:
            outside = list(_outside(exact.bounds, row_group, facts, "the sidecar"))
            yield from outside or self._not_exact(row_group, facts)
        for claims, of_pages in self.of_pages.items():
            yield from self._page_problems(claims, of_pages, row_group, values)
        if self.is_sorted and compute.any(compute.less(values[1:], values[:-1])).as_py():
            yield _Broken("UnsortedTimestamps", "the designated timestamp goes back within a row group", None)

    def _not_exact(self, row_group: int, facts: _Facts) -> Iterator[_Broken]:
        """Compare bounds that answer ``min`` and ``max`` with the values themselves."""
        marked = np.zeros(len(self.exact.null_counts), np.bool_)
        marked[row_group] = True
        if self.exact.least.is_known[row_group] and self.exact.least.best(marked) != facts.least:
            yield _Broken("StatisticsMismatch", "the minimum is marked as exact, and no value has it", "MIN")
        if self.exact.greatest.is_known[row_group] and self.exact.greatest.best(marked) != facts.greatest:
            yield _Broken("StatisticsMismatch", "the maximum is marked as exact, and no value has it", "MAX")

    def _page_problems(
        self, claims: ClaimsOfPages, of_pages: PageStatistics, row_group: int, values: Any
    ) -> Iterator[_Broken]:
        bounds, segments = of_pages.bounds(self.field), of_pages.segments
        if bounds is None:
            return
        for segment in np.flatnonzero(segments.row_groups == row_group).tolist():
            start, stop = int(segments.starts[segment]), int(segments.stops[segment])
            facts = _Facts.of(values[start:stop], self.field)
            for broken in dict.fromkeys(_outside(bounds, segment, facts, claims.source)):
                if claims.remedy is None:
                    yield broken
                else:
                    yield replace(broken, kind="CatalogueDiffers", remedy=f"readers may miss rows: {claims.remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What some values are, in the terms of bounds."""

    null_count: int
    value_count: int
    """Values that are not NULL."""
    least: DomainValue | None
    """None without any value, or for types without an order; NaN counts for neither."""
    greatest: DomainValue | None

    @classmethod
    def of(cls, values: Any, field: BoundField) -> _Facts:
        least = greatest = None
        if field.type.comparison is not ValueOrder.NONE and field.type.is_compared:
            ordered = compute.drop_null(values)
            if field.type.comparison is ValueOrder.FLOAT:
                ordered = ordered.filter(compute.invert(compute.is_nan(ordered)))
            extremes = compute.min_max(ordered)
            least, greatest = to_domain_value(extremes["min"]), to_domain_value(extremes["max"])
        return cls(
            null_count=values.null_count,
            value_count=len(values) - values.null_count,
            least=least,
            greatest=greatest,
        )


def _outside(bounds: Bounds, unit: int, facts: _Facts, source: str) -> Iterator[_Broken]:
    """Yield the claims of one row group or page that its values break."""
    if facts.value_count and not bounds.may_hold_values[unit]:
        yield _Broken("StatisticsMismatch", f"there are values where all rows are NULL by {source}", "NULL_COUNT")
    if facts.null_count and not bounds.may_hold_nulls[unit]:
        yield _Broken("StatisticsMismatch", f"there are NULLs where none is by {source}", "NULL_COUNT")
    lower, upper = bounds.lower, bounds.upper
    if facts.least is not None and lower is not None and lower.known[unit] and lower.above(facts.least)[unit]:
        yield _Broken("StatisticsMismatch", f"a value lies below the minimum of {source}", "MIN")
    most = facts.greatest
    if most is not None and upper is not None and upper.known[unit] and not upper.at_or_above(most)[unit]:
        yield _Broken("StatisticsMismatch", f"a value lies above the maximum of {source}", "MAX")


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
    store: ObjectStore,
    location: PartitionLocation,
    check: PartitionCheck,
    *,
    pages: Sequence[ClaimsOfPages],
    packed_blooms: PartitionBlooms | None,
) -> DeepCheck:
    """Read a partition whole, into a temporary file, and compare everything with what is claimed of it.

    Requests: 1 look at the object, and 1 per 8 MiB, 4 in flight.
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

        findings += await asyncio.to_thread(check_values, check.sidecar, pages, read_at, path=path)
        if packed_blooms is not None and packed_blooms.are_asked(location, found_etag=info.etag):
            findings += await asyncio.to_thread(compare_packed_blooms, check.sidecar, packed_blooms, read_at)
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
