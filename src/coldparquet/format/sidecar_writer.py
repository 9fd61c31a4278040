"""Writes a sidecar (`_pm`), byte for byte as QuestDB's own writer does.

`encode_sidecar` makes a whole new file. Its pieces are pure functions: `encode_header`, `encode_row_group` and
`encode_footer`. An update uses them to append new blocks and a new footer to an existing file.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from coldparquet.errors import InvalidInputError
from coldparquet.format import sidecar_layout as layout
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.format.sidecar_header import CoveringIndexEntry, ScratchpadEntry


class ColumnSpec(Struct, frozen=True, kw_only=True):
    """One leaf column, with the fields of its descriptor."""

    name: str
    type_code: int
    """QuestDB type code; -1 where none could be inferred."""
    physical_type: layout.PhysicalType
    id: int = -1
    """Writer index of the column in its QuestDB table, or -1."""
    flags: int = 0
    """See `coldparquet.format.sidecar_layout.column_flags`."""
    fixed_byte_length: int = 0
    """Length of a FIXED_LEN_BYTE_ARRAY, otherwise 0."""
    max_rep_level: int = 0
    max_def_level: int = 0


class BoundSpec(Struct, frozen=True):
    """One bound of a chunk: the bytes of a Parquet `min_value` or `max_value`, unchanged."""

    value: bytes
    """An empty value is written as an absent bound: the format cannot tell them apart."""
    exact: bool = True
    """False where the value was truncated or widened and merely bounds the data."""
    place: Literal["inline", "out_of_line"] | None = None
    """Place of the bytes; None means inline up to 8 bytes and out of line above, as every writer does it."""


class ChunkSpec(Struct, frozen=True, kw_only=True):
    """One column chunk."""

    codec: int
    encodings: int
    """Mask of `sidecar_layout.ENCODING_*`."""
    num_values: int
    byte_range_start: int
    """First byte of the chunk in the Parquet file: that of its dictionary page if there is one."""
    total_compressed_bytes: int
    null_count: int | None = None
    distinct_count: int | None = None
    min: BoundSpec | None = None
    max: BoundSpec | None = None
    bloom_bitset: bytes | None = None
    """Split-block bloom filter without its Thrift header, to be inlined in the sidecar."""
    bloom_reference: ByteRange | None = None
    """Range of the bitset in the Parquet file; only with `SidecarContent.blooms_external`."""


class RowGroupSpec(Struct, frozen=True, kw_only=True):
    """One row group: its rows and one chunk per column."""

    row_count: int
    chunks: Sequence[ChunkSpec]


class FooterSpec(Struct, frozen=True, kw_only=True):
    """The content of one footer apart from its row groups."""

    parquet_footer_offset: int
    parquet_footer_length: int
    unused_bytes: int = 0
    previous_size_bytes: int = 0
    """Committed size of the snapshot that this footer follows, or 0."""
    seq_txn: int | None = None
    scratchpad: Sequence[ScratchpadEntry] = ()
    covering_index: Sequence[CoveringIndexEntry] = ()


class SidecarContent(Struct, frozen=True, kw_only=True):
    """The whole content of a new sidecar. Feature flags follow from it and are not given."""

    columns: Sequence[ColumnSpec]
    row_groups: Sequence[RowGroupSpec]
    parquet_footer_offset: int
    parquet_footer_length: int
    designated_timestamp: int | None = None
    sorting_columns: Sequence[int] = ()
    unused_bytes: int = 0
    squash_tracker: int | None = None
    seq_txn: int | None = None
    scratchpad: Sequence[ScratchpadEntry] = ()
    covering_index: Sequence[CoveringIndexEntry] = ()
    bloom_columns: Sequence[int] | None = None
    """Columns that get a place in the bloom matrix; None means those with a filter in any row group."""
    blooms_external: bool = False
    """Filters stay in the Parquet file and the sidecar only refers to them."""


class EncodedRowGroup(Struct, frozen=True):
    """The block of one row group, ready to be placed at an 8-aligned offset."""

    block: bytes
    blooms: Mapping[int, ByteRange]
    """Column to bloom filter: its place relative to the block when inlined, in the Parquet file when external."""


def encode_sidecar(content: SidecarContent) -> bytes:
    """Encode a new sidecar."""
    bloom_columns = _bloom_columns(content)
    file = bytearray(encode_header(content, bloom_columns))
    block_offsets: list[int] = []
    bloom_rows: list[bytes] = []
    for row_group in content.row_groups:
        encoded = encode_row_group(
            row_group, column_count=len(content.columns), blooms_external=content.blooms_external
        )
        _pad(file)
        block_offsets.append(len(file))
        bloom_rows.append(
            encode_bloom_row(encoded, len(file), bloom_columns=bloom_columns, blooms_external=content.blooms_external)
        )
        file += encoded.block
    file += encode_footer(
        FooterSpec(
            parquet_footer_offset=content.parquet_footer_offset,
            parquet_footer_length=content.parquet_footer_length,
            unused_bytes=content.unused_bytes,
            seq_txn=content.seq_txn,
            scratchpad=content.scratchpad,
            covering_index=content.covering_index,
        ),
        block_offsets=block_offsets,
        bloom_matrix=b"".join(bloom_rows),
        checksum_so_far=zlib.crc32(memoryview(file)[layout.CHECKSUM_START :]),
    )
    layout.COMMITTED_SIZE.pack_into(file, 0, len(file))
    return bytes(file)


def encode_header(content: SidecarContent, bloom_columns: Sequence[int]) -> bytes:
    """Encode everything before the first block, with a committed size of 0 still to be patched."""
    _check_column_indexes(content, bloom_columns)
    column_count = len(content.columns)
    designated = content.designated_timestamp
    sorting_columns = tuple(content.sorting_columns)
    flags = 0
    if bloom_columns:
        flags |= layout.HEADER_BLOOM_FILTERS
        if content.blooms_external:
            flags |= layout.HEADER_BLOOM_FILTERS_EXTERNAL
    is_by_timestamp = designated is not None and sorting_columns == (designated,)
    if is_by_timestamp and not content.columns[sorting_columns[0]].flags & layout.COLUMN_DESCENDING:
        flags |= layout.HEADER_SORTED_BY_TIMESTAMP
        sorting_columns = ()
    squash_tracker = None if content.squash_tracker == layout.UNSET else content.squash_tracker
    if squash_tracker is not None:
        flags |= layout.HEADER_SQUASH_TRACKER

    names = [column.name.encode() for column in content.columns]
    name_offset = layout.HEADER.size + layout.COLUMN_DESCRIPTOR.size * column_count + 4 * len(sorting_columns)
    parts = [
        layout.HEADER.pack(
            "header",
            committed_size_bytes=0,
            feature_flags=flags,
            designated_timestamp=layout.NO_DESIGNATED_TIMESTAMP if designated is None else designated,
            sorting_column_count=len(sorting_columns),
            column_count=column_count,
            reserved=0,
        )
    ]
    for column, name in zip(content.columns, names, strict=True):
        parts.append(
            layout.COLUMN_DESCRIPTOR.pack(
                f"column {column.name!r}",
                name_offset=name_offset,
                id=column.id,
                type_code=column.type_code,
                flags=column.flags,
                fixed_byte_length=column.fixed_byte_length,
                name_length=len(name),
                physical_type=column.physical_type,
                max_rep_level=column.max_rep_level,
                max_def_level=column.max_def_level,
                reserved=0,
            )
        )
        name_offset += len(name)
    parts += [layout.COUNT.pack(index) for index in sorting_columns]
    parts += names
    if bloom_columns:
        parts += [layout.COUNT.pack(index) for index in (len(bloom_columns), *bloom_columns)]
    if squash_tracker is not None:
        parts.append(layout.SIGNED_64.pack("squash_tracker", number=squash_tracker))
    return b"".join(parts)


def encode_row_group(row_group: RowGroupSpec, *, column_count: int, blooms_external: bool | None) -> EncodedRowGroup:
    """Encode the block of one row group: row count, chunks, then out-of-line bounds and inlined bloom filters."""
    if len(row_group.chunks) != column_count:
        raise _invalid(f"a row group has {len(row_group.chunks)} chunks for {column_count} columns", "chunks")
    out_of_line = bytearray()
    blooms: dict[int, ByteRange] = {}
    parts = [layout.ROW_COUNT.pack("row_count", row_count=row_group.row_count)]
    for index, chunk in enumerate(row_group.chunks):
        # By convention, the out-of-line bytes have this order: min, max, bloom filter, next column.
        parts.append(_encode_chunk(chunk, index, out_of_line))
        if chunk.bloom_reference is not None and blooms_external is False:
            raise _invalid(f"column {index} refers to a filter in the Parquet file, but they are inlined", "bloom")
        if chunk.bloom_bitset and blooms_external:
            raise _invalid(f"column {index} brings a filter to inline, but they stay in the Parquet file", "bloom")
        if chunk.bloom_reference is not None:
            blooms[index] = chunk.bloom_reference
        elif chunk.bloom_bitset:
            # Out-of-line bytes begin at a multiple of 8, so padding their length aligns the filter in the file.
            _pad(out_of_line)
            start = layout.block_bytes(column_count) + len(out_of_line)
            out_of_line += layout.BLOOM_LENGTH.pack(len(chunk.bloom_bitset)) + chunk.bloom_bitset
            blooms[index] = ByteRange(start, start + layout.BLOOM_LENGTH.size + len(chunk.bloom_bitset))
    parts.append(bytes(out_of_line))
    return EncodedRowGroup(b"".join(parts), blooms)


def encode_bloom_row(
    row_group: EncodedRowGroup, block_offset: int, *, bloom_columns: Sequence[int], blooms_external: bool
) -> bytes:
    """Encode the bloom matrix entries of one row group; filters of columns that are not listed get none."""
    entries = []
    for column in bloom_columns:
        bloom = row_group.blooms.get(column)
        if blooms_external:
            start, length = (0, 0) if bloom is None else (bloom.start, bloom.length_bytes)
            entries.append(layout.BLOOM_REFERENCE.pack("bloom", offset=start, length=length))
        else:
            entries.append(_shifted(0 if bloom is None else block_offset + bloom.start))
    return b"".join(entries)


def encode_footer(
    footer: FooterSpec, *, block_offsets: Sequence[int], bloom_matrix: bytes, checksum_so_far: int
) -> bytes:
    """Encode one footer with its checksum and the trailer behind it."""
    flags = 0
    sections = [bloom_matrix]
    if footer.seq_txn is not None and footer.seq_txn != layout.UNSET:
        flags |= layout.FOOTER_SEQ_TXN
        sections.append(layout.SIGNED_64.pack("seq_txn", number=footer.seq_txn))
    if footer.scratchpad:
        flags |= layout.FOOTER_SCRATCHPAD
        sections.append(_encode_scratchpad(footer.scratchpad))
    if footer.covering_index:
        flags |= layout.FOOTER_COVERING_INDEX | layout.FOOTER_COVERING_INDEX_REQUIRED
        sections.append(layout.COUNT.pack(len(footer.covering_index)))
        sections += [
            layout.COVERING_INDEX_ENTRY.pack("covering_index", **asdict(entry)) for entry in footer.covering_index
        ]
    fixed = layout.FOOTER.pack(
        "footer",
        parquet_footer_offset=footer.parquet_footer_offset,
        parquet_footer_length=footer.parquet_footer_length,
        row_group_count=len(block_offsets),
        unused_bytes=footer.unused_bytes,
        previous_size_bytes=footer.previous_size_bytes,
        feature_flags=flags,
    )
    entries = b"".join(_shifted(offset) for offset in block_offsets)
    body = b"".join((fixed, entries, *sections))
    return (
        body
        + layout.CHECKSUM.pack(zlib.crc32(body, checksum_so_far))
        + layout.TRAILER.pack(len(body) + layout.CHECKSUM.size)
    )


def _bloom_columns(content: SidecarContent) -> tuple[int, ...]:
    if content.bloom_columns is not None:
        return tuple(sorted(set(content.bloom_columns)))
    with_filter = {
        index
        for row_group in content.row_groups
        for index, chunk in enumerate(row_group.chunks)
        if chunk.bloom_bitset or chunk.bloom_reference is not None
    }
    return tuple(sorted(with_filter))


def _check_column_indexes(content: SidecarContent, bloom_columns: Sequence[int]) -> None:
    column_count = len(content.columns)
    for field, indexes in (
        ("designated_timestamp", () if content.designated_timestamp is None else (content.designated_timestamp,)),
        ("sorting_columns", content.sorting_columns),
        ("bloom_columns", bloom_columns),
    ):
        for index in indexes:
            if not 0 <= index < column_count:
                raise _invalid(f"{field} names column {index}, but there are {column_count}", field)


def _encode_chunk(chunk: ChunkSpec, index: int, out_of_line: bytearray) -> bytes:
    min_flags, min_size, min_word = _encode_bound(chunk.min, out_of_line)
    max_flags, max_size, max_word = _encode_bound(chunk.max, out_of_line)
    stat_flags = min_flags | max_flags << layout.STAT_MAX_SHIFT
    if chunk.distinct_count is not None:
        stat_flags |= layout.STAT_DISTINCT_COUNT_PRESENT
    if chunk.null_count is not None:
        stat_flags |= layout.STAT_NULL_COUNT_PRESENT
    return layout.COLUMN_CHUNK.pack(
        f"chunk of column {index}",
        codec=chunk.codec,
        encodings=chunk.encodings,
        stat_flags=stat_flags,
        stat_sizes=min_size | max_size << layout.STAT_SIZE_BITS,
        reserved=0,
        num_values=chunk.num_values,
        byte_range_start=chunk.byte_range_start,
        total_compressed=chunk.total_compressed_bytes,
        null_count=chunk.null_count or 0,
        distinct_count=chunk.distinct_count or 0,
        min=min_word,
        max=max_word,
    )


def _encode_bound(bound: BoundSpec | None, out_of_line: bytearray) -> tuple[int, int, int]:
    """Return stat flags, inline size and word of one bound; long ones go to the end of `out_of_line`."""
    if bound is None or not bound.value:
        return 0, 0, 0
    length = len(bound.value)
    flags = layout.STAT_PRESENT | (layout.STAT_EXACT if bound.exact else 0)
    place = bound.place or ("inline" if length <= layout.MAX_INLINE_BYTES else "out_of_line")
    longest = layout.MAX_INLINE_BYTES if place == "inline" else layout.MAX_OUT_OF_LINE_BYTES
    if length > longest:
        raise _invalid(f"a bound of {length} bytes does not fit {place}, where at most {longest} do", "bound")
    if place == "inline":
        return flags | layout.STAT_INLINED, length, int.from_bytes(bound.value, "little")
    word = len(out_of_line) << layout.OUT_OF_LINE_LENGTH_BITS | length
    out_of_line += bound.value
    return flags, 0, word


def _encode_scratchpad(entries: Sequence[ScratchpadEntry]) -> bytes:
    parts = [layout.COUNT.pack(len(entries))]
    for entry in entries:
        parts += [
            layout.SCRATCHPAD_ENTRY.pack("scratchpad", code=entry.code, length=len(entry.content)),
            entry.content,
        ]
    section = b"".join(parts)
    if len(section) > layout.MAX_SCRATCHPAD_BYTES:
        raise _invalid(
            f"the scratchpad takes {len(section)} bytes; at most {layout.MAX_SCRATCHPAD_BYTES} are allowed",
            "scratchpad",
        )
    return section


def _shifted(offset: int) -> bytes:
    """Encode the place of a block or bloom filter."""
    shifted = offset >> layout.BLOCK_ALIGNMENT_BITS
    if shifted > layout.MAX_SHIFTED_OFFSET:
        raise InvalidInputError(
            f"offset {offset} is beyond the 32 GiB that a sidecar can address; write fewer row groups or bloom filters",
            kind="Alignment",
            field="block_offset",
        )
    return layout.COUNT.pack(shifted)


def _pad(data: bytearray) -> None:
    data += bytes(-len(data) % layout.BLOCK_ALIGNMENT)


def _invalid(message: str, field: str) -> InvalidInputError:
    return InvalidInputError(message, kind="InvalidValue", field=field)
