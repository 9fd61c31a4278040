"""Reads and writes coldparquet's `_catalogue` files: all sidecars of a table in one object, read with one request.

A catalogue belongs to no version of the table as a whole. Each entry records the state of its partition, and is valid
only if all that is known of the partition agrees: the name of its directory, the size and the rows of its Parquet file,
the versions of both objects. The catalogue can always be rebuilt from the sidecars: without it each of them is fetched.

A catalogue that lies elsewhere than its table, an index, begins with entries named ``_txn`` and ``_meta`` if the table has these
files: they hold the files as they are, in place of a sidecar, with their ETags, by which readers tell whether they still count.

All numbers are little-endian. A header of 72 bytes:

    offset  type  field
    0       8s    magic, ``COLDCATL``
    8       u32   version of this format: 2
    12      u32   CRC-32 of everything behind this field up to the end of the index
    16      u64   size of this file
    24      u32   number of entries
    28      u32   number of blocks
    32      u64   bytes of the index, compressed
    40      u64   bytes of the index, decompressed
    48      u32   bytes of the index of bloom filters, with its CRC-32; 0 where there is none
    52      u32   bytes of that index, decompressed
    56      u64   bytes of the stripes
    64      u64   bytes of the pages

Then the index, compressed with zlib; the CRC-32 and the bytes of the index of bloom filters; the blocks; the
stripes, see :mod:`coldparquet.format.catalogue_blooms`; and the pages up to the end of the file: what says where the pages of
a Parquet file lie, and what bounds them, one ``_pages`` (:mod:`coldparquet.format.page_index`) after the other, in the order
of the entries, for those who have no place beside the file. A block is some sidecars one after
the other, compressed together with zlib: neighbours are similar. The index:

    u64[entries]  size of the Parquet file, as far as it is committed
    u64[entries]  rows of the partition
    u32[entries]  bytes of the sidecar, as far as they are committed
    u32[entries]  bytes of the partition's name
    u32[entries]  bytes of the ETag of the Parquet object, quotes included; 0 where it has none that lasts
    u32[entries]  bytes of the ETag of the sidecar; likewise
    u32[entries]  bit 0: whether the partition had a ``_pages``; the others: number of its list of columns, which is that of
                  other entries with the same columns, from 1; 0 if it is not known
    u32[entries]  bytes of its pages in this file; 0 where its chunks have one page each, as far as its page index says, or it has
                  no page index; 2**32 - 1 where nobody looked; 2**31 more than their bytes where they were left out as too many
    u32[blocks]   number of sidecars in each block; blocks and sidecars are in the order of the entries
    u64[blocks]   bytes of each block, compressed
    u32[blocks]   CRC-32 of these bytes
    bytes         the names, one after the other, then the ETags of the Parquet objects, then those of the sidecars: UTF-8,
                  in which a lone surrogate has the three bytes of its number
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format.binary import Envelope
from coldparquet.format.catalogue_blooms import encode_blooms, parse_blooms
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.catalogue_blooms import CatalogueBlooms, PackedBloom
    from coldparquet.format.sidecar_header import ColumnSchema


LARGEST_INDEX_BYTES = 64 * 1024 * 1024
"""Longer indexes are not fetched: this describes hundreds of thousands of partitions."""
LARGEST_RAW_INDEX_BYTES = 128 * 1024 * 1024
"""Limit of the decompressed index, and of that of the bloom filters. Zeros decompress to a thousand times their
size."""
LARGEST_SIDECAR_BYTES = 4 * 1024 * 1024
"""A longer sidecar is not packed: it justifies a request of its own."""
LARGEST_FILE_BYTES = 256 * 1024 * 1024
"""Limit for half a million partitions; small enough to write, and to read for that, in memory."""

ENVELOPE = Envelope(
    b"COLDCATL",
    2,
    name="catalogue",
    what="a catalogue",
    remedy="'coldparquet pack' writes it anew",
    largest_inflated_bytes=LARGEST_RAW_INDEX_BYTES,
    file_bytes="u8",
    entry_count="u4",
    block_count="u4",
    index_bytes="u8",
    body_bytes="u8",
    blooms_bytes="u4",
    blooms_index_bytes="u4",
    stripes_bytes="u8",
    pages_bytes="u8",
)
_HEADER_BYTES = ENVELOPE.header.size
CHECKSUM = struct.Struct("<I")
"""Precedes the index of the bloom filters."""
ENTRY_U64S, ENTRY_U32S = 2, 6
"""Columns of the index with a number for each entry."""
BLOCK_ENTRY_BYTES = 16
"""The index's record of one block."""
BLOCK_SIDECAR_BYTES = 64 * 1024
"""A block of this length is complete: more neighbours hardly improve compression, and small scans fetch whole
blocks."""
LONGEST_BLOCK_BYTES = BLOCK_SIDECAR_BYTES + LARGEST_SIDECAR_BYTES


_LARGEST_NUMBER = (1 << 63) - 1
_NOT_LOOKED = (1 << 32) - 1
_LEFT_OUT = 1 << 31
_NAMES_ERRORS = "surrogatepass"
"""Names of files need not be Unicode; one that is not must not fail the index of all others."""


class CatalogueIndex(Struct, frozen=True, kw_only=True):
    """The index of a catalogue. Arrays have shape ``(entries,)``, those about blocks ``(blocks,)``."""

    path: str | None
    file_bytes: int
    entry_of: Mapping[str, int]
    """Number of the entry of each partition, by the name of its directory; in the order of the entries."""
    parquet_sizes: npt.NDArray[np.int64]
    row_counts: npt.NDArray[np.int64]
    data_etags: tuple[str | None, ...]
    sidecar_etags: tuple[str | None, ...]
    has_pages: npt.NDArray[np.bool_]
    column_lists: npt.NDArray[np.int64]
    """Number of each entry's list of columns, the same for entries with the same columns; 0 if it is not known."""
    blocks: npt.NDArray[np.int64]
    """Block in which each sidecar is."""
    sidecar_starts: npt.NDArray[np.int64]
    """Start of each sidecar in its block, decompressed."""
    sidecar_stops: npt.NDArray[np.int64]
    block_starts: npt.NDArray[np.int64]
    """Start of each block in the file."""
    block_stops: npt.NDArray[np.int64]
    block_checksums: npt.NDArray[np.int64]
    block_sidecar_bytes: npt.NDArray[np.int64]
    """Bytes of each block, decompressed."""
    blooms_range: ByteRange | None
    """Range of the bloom filters' index in the file; None without bloom filters."""
    blooms_index_bytes: int
    """Bytes of that index, decompressed."""
    stripes_range: ByteRange
    """Range of the stripes in the file."""
    pages_starts: npt.NDArray[np.int64]
    """Start of the pages of each entry in the file."""
    pages_lengths: npt.NDArray[np.int64]
    """Bytes of them; -1 where they are left out, or nobody looked whether they would be of use."""
    left_out_pages_bytes: npt.NDArray[np.int64]
    """Bytes of the pages of each entry that are left out; 0 where none are."""

    def block_range(self, block: int) -> ByteRange:
        """Return the range of a block in the file."""
        return ByteRange(int(self.block_starts[block]), int(self.block_stops[block]))

    def unpack_block(self, block: int, data: bytes | memoryview) -> memoryview:
        """Decompress a block."""
        stored, computed = int(self.block_checksums[block]), zlib.crc32(data)
        if computed != stored:
            message = f"the CRC-32 of block {block} is {computed:#010x}, stored is {stored:#010x}"
            raise ENVELOPE.damaged(message, "block", self.path, offset=int(self.block_starts[block]))
        sidecar_bytes = int(self.block_sidecar_bytes[block])
        return memoryview(_inflate(data, sidecar_bytes, f"block {block}", self.path)).toreadonly()

    def parse_blooms(self, data: bytes | memoryview) -> CatalogueBlooms:
        """Parse the index of the bloom filters."""
        compressed = memoryview(data)[CHECKSUM.size :]
        if len(data) < CHECKSUM.size or zlib.crc32(compressed) != CHECKSUM.unpack_from(data)[0]:
            message = "the index of the bloom filters does not have the CRC-32 that is stored"
            raise ENVELOPE.damaged(message, "blooms", self.path)
        return parse_blooms(
            _inflate(compressed, self.blooms_index_bytes, "the index of the bloom filters", self.path),
            stripes_start=self.stripes_range.start,
            stripes_bytes=self.stripes_range.length_bytes,
            entry_count=len(self.entry_of),
        )

    def pages_range(self, name: str) -> ByteRange | None:
        """Return the range of a partition's pages in the file, empty where they are of no use; None if that is not known."""
        entry = self.entry_of.get(name)
        if entry is None or self.pages_lengths[entry] < 0:
            return None
        start = int(self.pages_starts[entry])
        return ByteRange(start, start + int(self.pages_lengths[entry]))

    def sidecar_in(self, block: memoryview, entry: int) -> memoryview:
        """Return the sidecar of an entry, given its decompressed block."""
        return block[int(self.sidecar_starts[entry]) : int(self.sidecar_stops[entry])]


def index_range(beginning: bytes, *, path: str | None) -> ByteRange:
    """Return the range of header and index in the file."""
    header = _parse_header(beginning, path)
    return ByteRange(0, _HEADER_BYTES + header.index_bytes)


def parse_catalogue_index(beginning: bytes, *, path: str | None) -> CatalogueIndex:
    """Parse header and index of a catalogue; its blocks are checked when they are unpacked."""
    header = _parse_header(beginning, path)
    stop = _HEADER_BYTES + header.index_bytes
    if stop > min(len(beginning), header.file_bytes):
        size_bytes = min(len(beginning), header.file_bytes)
        message = f"the index ends at {stop:,}, but the file has {size_bytes:,} bytes"
        raise ENVELOPE.invalid(
            message, "index_bytes", path, kind="Truncated", offset=ENVELOPE.header.offset("index_bytes")
        )
    content = memoryview(beginning)[:stop]
    ENVELOPE.verify(content, header.checksum, path)
    return _parse_index(_inflate(content[_HEADER_BYTES:], header.body_bytes, "the index", path), header, path)


def _parse_header(beginning: bytes, path: str | None) -> Any:
    header = ENVELOPE.parse_header(beginning, path)
    if header.index_bytes > LARGEST_INDEX_BYTES or header.file_bytes > LARGEST_FILE_BYTES:
        raise ENVELOPE.invalid(
            f"an index of {header.index_bytes:,} bytes in a file of {header.file_bytes:,}, more than any catalogue has",
            "file_bytes",
            path,
        )
    return header


def _inflate(data: bytes | memoryview, raw_bytes: int, what: str, path: str | None) -> bytes:
    return ENVELOPE.inflate(data, raw_bytes, what, path, field="bytes")


def _parse_index(body: bytes, header: Any, path: str | None) -> CatalogueIndex:
    entries, blocks = header.entry_count, header.block_count
    fixed_bytes = entries * (8 * ENTRY_U64S + 4 * ENTRY_U32S) + blocks * BLOCK_ENTRY_BYTES
    if fixed_bytes > len(body):
        raise ENVELOPE.invalid(f"{entries:,} entries and {blocks:,} blocks do not fit the index", "index", path)
    sizes = np.frombuffer(body, "<u8", ENTRY_U64S * entries).reshape(ENTRY_U64S, -1)
    place = sizes.nbytes
    numbers = np.frombuffer(body, "<u4", ENTRY_U32S * entries, place).astype(np.int64).reshape(ENTRY_U32S, -1)
    place += 4 * ENTRY_U32S * entries
    block_counts = np.frombuffer(body, "<u4", blocks, place).astype(np.int64)
    block_lengths = np.frombuffer(body, "<u8", blocks, place + 4 * blocks)
    block_checksums = np.frombuffer(body, "<u4", blocks, place + 12 * blocks).astype(np.int64)
    texts = body[fixed_bytes:]
    lengths, *text_lengths, flags, pages_lengths = numbers
    is_left_out = (pages_lengths >= _LEFT_OUT) & (pages_lengths < _NOT_LOOKED)
    left_out_pages_bytes = np.where(is_left_out, pages_lengths - _LEFT_OUT, 0)
    pages_lengths = np.where(pages_lengths >= _LEFT_OUT, -1, pages_lengths)
    if block_counts.sum() != entries or (blocks and not block_counts.all()):
        raise ENVELOPE.invalid(f"the blocks do not hold the {entries:,} sidecars", "blocks", path)
    blooms_start = _HEADER_BYTES + header.index_bytes
    first_block = blooms_start + header.blooms_bytes
    # Each length is small, so that their sum cannot exceed 64 bits.
    stripes_start = first_block + int(block_lengths.sum())
    is_filled = stripes_start + header.stripes_bytes + header.pages_bytes == header.file_bytes <= _LARGEST_NUMBER
    if (block_lengths > 2 * LONGEST_BLOCK_BYTES).any() or not is_filled:
        raise ENVELOPE.invalid("the blocks do not fill the file", "blocks", path)
    if (sizes > _LARGEST_NUMBER).any() or int(np.sum(text_lengths)) != len(texts):
        raise ENVELOPE.invalid("sizes, names or ETags that cannot be", "entries", path)
    if int(np.maximum(pages_lengths, 0).sum()) != header.pages_bytes:
        raise ENVELOPE.invalid("pages that do not fill their part of the file", "pages_bytes", path)
    pages_stops = stripes_start + header.stripes_bytes + np.cumsum(np.maximum(pages_lengths, 0))
    block_stops = first_block + np.cumsum(block_lengths.astype(np.int64))
    of_blocks = np.repeat(np.arange(blocks), block_counts)
    stops = np.cumsum(lengths)
    # The sidecars of a block begin where those of the blocks before it end.
    before = (stops - lengths)[np.cumsum(block_counts) - block_counts] if entries else stops
    block_sidecar_bytes = np.diff(np.append(before, stops[-1:])) if entries else before
    if (block_sidecar_bytes > LONGEST_BLOCK_BYTES).any():
        raise ENVELOPE.invalid("blocks that are longer than any that is written", "sidecar_bytes", path)
    try:
        names, data_etags, sidecar_etags = _split(texts, text_lengths)
    except UnicodeDecodeError as error:
        raise ENVELOPE.invalid("names or ETags that are not UTF-8", "entries", path) from error
    entry_of = dict(zip(names, range(entries), strict=True))
    if len(entry_of) != entries:
        raise ENVELOPE.invalid("two entries of one partition", "names", path)
    return CatalogueIndex(
        path=path,
        file_bytes=header.file_bytes,
        entry_of=entry_of,
        parquet_sizes=sizes[0].astype(np.int64),
        row_counts=sizes[1].astype(np.int64),
        data_etags=tuple(etag or None for etag in data_etags),
        sidecar_etags=tuple(etag or None for etag in sidecar_etags),
        has_pages=flags & 1 != 0,
        column_lists=flags >> 1,
        blocks=of_blocks,
        sidecar_starts=stops - lengths - before[of_blocks],
        sidecar_stops=stops - before[of_blocks],
        block_starts=block_stops - block_lengths.astype(np.int64),
        block_stops=block_stops,
        block_checksums=block_checksums,
        block_sidecar_bytes=block_sidecar_bytes,
        blooms_range=ByteRange(blooms_start, first_block) if header.blooms_bytes else None,
        blooms_index_bytes=header.blooms_index_bytes,
        stripes_range=ByteRange(stripes_start, stripes_start + header.stripes_bytes),
        pages_starts=pages_stops - np.maximum(pages_lengths, 0),
        pages_lengths=pages_lengths,
        left_out_pages_bytes=left_out_pages_bytes,
    )


def _split(texts: bytes, lengths: Sequence[npt.NDArray[np.int64]]) -> list[list[str]]:
    """Cut the texts of each kind, which follow one another, into those of the entries."""
    kinds, begin = [], 0
    for of_kind in lengths:
        stops = begin + np.cumsum(of_kind)
        starts = stops - of_kind
        places = zip(starts.tolist(), stops.tolist(), strict=True)
        kinds.append([texts[start:stop].decode("utf-8", _NAMES_ERRORS) for start, stop in places])
        begin = int(stops[-1]) if len(stops) else begin
    return kinds


class PackedSidecar(Struct, frozen=True, kw_only=True):
    """One sidecar, and the state of its partition."""

    name: str
    """Name of the partition's directory, with the version suffix."""
    parquet_size_bytes: int
    """Size of the Parquet file as far as it is committed."""
    row_count: int
    sidecar: bytes | memoryview
    """The file up to its committed size."""
    data_etag: str | None
    """Version of the Parquet object; None where it has none that lasts."""
    sidecar_etag: str | None
    """Version of the sidecar; likewise."""
    has_pages: bool
    """Whether there is a ``_pages`` beside it."""
    blooms: tuple[PackedBloom, ...] = ()
    """Bloom filters of the Parquet file, as far as they are packed."""
    pages: bytes | memoryview | None = None
    """What a ``_pages`` would hold; empty where that is of no use, None where nobody looked, or it is left out."""
    left_out_pages_bytes: int = 0
    """Bytes of what is left out of it, as too much; else 0."""

    @property
    def are_pages_unknown(self) -> bool:
        """Whether nobody looked where the pages lie."""
        return self.pages is None and not self.left_out_pages_bytes


def encode_catalogue(entries: Sequence[PackedSidecar]) -> bytes:
    """Write a catalogue."""
    names = [entry.name for entry in entries]
    if len(set(names)) != len(names):
        raise InvalidInputError("two partitions of one name cannot be packed together")
    lengths = np.array([len(entry.sidecar) for entry in entries], np.int64)
    block_counts = _block_counts(lengths)
    blocks, first = [], 0
    for count in block_counts:
        blocks.append(zlib.compress(b"".join(entry.sidecar for entry in entries[first : first + count])))
        first += count
    index = _encode_index(entries, block_counts, blocks)
    compressed = zlib.compress(index)
    blooms_index, stripes = encode_blooms([entry.blooms for entry in entries])
    blooms = zlib.compress(blooms_index) if blooms_index else b""
    if blooms:
        blooms = CHECKSUM.pack(zlib.crc32(blooms)) + blooms
    pages = [entry.pages or b"" for entry in entries]
    pages_bytes = sum(map(len, pages))
    file_bytes = _HEADER_BYTES + len(compressed) + len(blooms) + sum(map(len, blocks)) + len(stripes) + pages_bytes
    is_too_large = file_bytes > LARGEST_FILE_BYTES or len(compressed) > LARGEST_INDEX_BYTES
    if is_too_large or max(len(index), len(blooms_index)) > LARGEST_RAW_INDEX_BYTES:
        raise UnsupportedError(
            f"sidecars and bloom filters of {len(entries):,} partitions make a catalogue of {file_bytes:,} bytes, more than is"
            " read in one piece",
            kind="TooLarge",
        )
    header_and_index = ENVELOPE.encode(
        compressed,
        file_bytes=file_bytes,
        entry_count=len(entries),
        block_count=len(blocks),
        index_bytes=len(compressed),
        body_bytes=len(index),
        blooms_bytes=len(blooms),
        blooms_index_bytes=len(blooms_index),
        stripes_bytes=len(stripes),
        pages_bytes=pages_bytes,
    )
    return b"".join([header_and_index, blooms, *blocks, stripes, *pages])


def _block_counts(lengths: npt.NDArray[np.int64]) -> list[int]:
    """Return how many sidecars of these lengths each block gets: as many as fill it."""
    counts, filled_bytes = [], BLOCK_SIDECAR_BYTES
    for length in lengths.tolist():
        if filled_bytes >= BLOCK_SIDECAR_BYTES:
            counts.append(0)
            filled_bytes = 0
        counts[-1] += 1
        filled_bytes += length
    return counts


def _encode_index(entries: Sequence[PackedSidecar], block_counts: Sequence[int], blocks: Sequence[bytes]) -> bytes:
    texts = [
        [text.encode("utf-8", _NAMES_ERRORS) for text in of_kind]
        for of_kind in (
            [entry.name for entry in entries],
            [entry.data_etag or "" for entry in entries],
            [entry.sidecar_etag or "" for entry in entries],
        )
    ]
    sizes = [
        [entry.parquet_size_bytes for entry in entries],
        [entry.row_count for entry in entries],
    ]
    numbers = [
        [len(entry.sidecar) for entry in entries],
        *([len(text) for text in of_kind] for of_kind in texts),
        [entry.has_pages | number << 1 for entry, number in zip(entries, _column_lists(entries), strict=True)],
        [_pages_number(entry) for entry in entries],
        block_counts,
    ]
    parts = [
        *(np.array(column, "<u8").tobytes() for column in sizes),
        *(np.array(column, "<u4").tobytes() for column in numbers),
        np.array([len(block) for block in blocks], "<u8").tobytes(),
        np.array([zlib.crc32(block) for block in blocks], "<u4").tobytes(),
        *(text for of_kind in texts for text in of_kind),
    ]
    return b"".join(parts)


def _pages_number(entry: PackedSidecar) -> int:
    if entry.pages is not None:
        return len(entry.pages)
    return _NOT_LOOKED if entry.are_pages_unknown else _LEFT_OUT + entry.left_out_pages_bytes


def _column_lists(entries: Sequence[PackedSidecar]) -> list[int]:
    """Number the lists of columns that entries have."""
    numbers: dict[ColumnSchema | None, int] = {None: 0}
    return [numbers.setdefault(_schema_of(entry), len(numbers)) for entry in entries]


def _schema_of(entry: PackedSidecar) -> ColumnSchema | None:
    try:
        return parse_sidecar(entry.sidecar, parquet_size_bytes=entry.parquet_size_bytes).schema
    except (FormatError, UnsupportedError):
        return None
