"""Parses sidecars (`_pm`), with the chain of snapshots that updates leave, and stacks many of them into one table.

A sidecar contains, without the Parquet footer, the columns of a partition, the place of every column chunk, and
statistics of its values. `parse_sidecar` checks the bytes and returns a `Sidecar`. It neither copies the buffer nor
walks it chunk by chunk, so opening costs little more than its checksum.

Updates leave a chain of footers in a sidecar. The footer at the committed size is the newest. `previous_size_bytes`
leads to the size at which the one before it was committed, and so on back to the first. Sizes strictly decrease, so no
walk repeats.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.parquet_footer import WRITER_CODE
from coldparquet.format.sidecar_chunks import BlockTable, RowGroupTable
from coldparquet.format.sidecar_header import (
    ColumnSchema,
    SidecarFooter,
    SidecarHeader,
    check_required_flags,
    checksum_mismatch,
    locate_footer,
    parse_header,
    parse_sidecar_footer,
    shared_schema,
)
from coldparquet.format.type_codes import DESIGNATED_BIT
from coldparquet.format.types import FOREIGN_ANNOTATIONS_CODE, parse_foreign_annotations
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_LARGEST_U64 = (1 << 64) - 1


def walk_chain(
    file: memoryview, size_bytes: int, header: SidecarHeader, *, path: str | None
) -> Iterator[SidecarFooter]:
    """Yield the footer at `size_bytes`, then every older one, each parsed but neither flag- nor checksum-checked."""
    footer_bytes = 0
    for _ in range(layout.MAX_CHAIN_STEPS):
        footer = parse_sidecar_footer(file, size_bytes, header, path=path)
        # Footers of one file follow each other. Together they never exceed it, unless a crafted file overlaps them to
        # make a walk take time quadratic in its size.
        footer_bytes += footer.length_bytes + layout.TRAILER.size
        if footer_bytes > len(file):
            raise _broken_chain("the footers of the chain overlap", footer, path)
        yield footer
        if footer.previous_size_bytes == 0:
            return
        if footer.previous_size_bytes >= size_bytes:
            message = f"the previous size {footer.previous_size_bytes} is not below this snapshot's {size_bytes}"
            raise _broken_chain(message, footer, path)
        size_bytes = footer.previous_size_bytes
    raise _broken_chain(f"the chain has more than {layout.MAX_CHAIN_STEPS} footers", footer, path)


def find_footer(
    file: memoryview, size_bytes: int, header: SidecarHeader, *, parquet_size_bytes: int, path: str | None
) -> SidecarFooter:
    """Return the newest footer, from `size_bytes` back, that describes a Parquet file of this size."""
    seen = 0
    for footer in walk_chain(file, size_bytes, header, path=path):
        seen += 1
        if footer.parquet_size_bytes > _LARGEST_U64:
            raise _broken_chain("the Parquet size exceeds 64 bits", footer, path)
        if footer.parquet_size_bytes == parquet_size_bytes:
            return footer
    raise FormatError(
        f"none of the {seen} snapshots in the sidecar describes a Parquet file of {parquet_size_bytes} bytes; "
        "the sidecar may be older than the table's transaction file: list the partition again",
        kind="InvalidValue",
        path=path,
        offset=footer.offset,
        field="parquet_size_bytes",
    )


def check_footer_place(footer: SidecarFooter, header: SidecarHeader, *, path: str | None) -> None:
    """Refuse the result of a damaged trailer, which no checksum covers, although it alone locates a footer.

    A wrong trailer makes a footer of other numbers, whose checksum field is nevertheless the right one. Mostly its
    sections do not end at the checksum. Two cases remain: an unknown optional feature may explain that, or the footer
    has no row group and the error would make rows disappear. Then the footer must at least be where writers put one.
    """
    is_exact = footer.sections_stop == footer.checksum_offset
    if is_exact and footer.row_group_count:
        return
    # Bit 2 without its required half counts as unknown: parse_sidecar_footer left its section alone.
    known = (
        layout.KNOWN_FOOTER_FLAGS if footer.covering_entries is not None else layout.KNOWN_FOOTER_FLAGS_WITHOUT_COVERING
    )
    unknown = footer.feature_flags & ~known | header.feature_flags & ~layout.KNOWN_HEADER_FLAGS
    if not (is_exact or unknown) or not _is_placed_well(footer, header, path):
        raise FormatError(
            f"the footer at {footer.offset} with {footer.row_group_count} row groups cannot be the one that ends at "
            f"{footer.size_bytes}: the trailer of the sidecar is damaged",
            path=path,
            offset=footer.size_bytes - layout.TRAILER.size,
            field="footer_length",
        )


def _is_placed_well(footer: SidecarFooter, header: SidecarHeader, path: str | None) -> bool:
    """Tell whether a footer is behind all that it refers to, or without row groups directly behind the header."""
    if footer.row_group_count == 0:
        # Updates never drop row groups, so a file without any was made without, and its first footer is right.
        *_, first = walk_chain(footer.file, footer.size_bytes, header, path=path)
        return first.offset == header.stop or bool(header.feature_flags & ~layout.KNOWN_HEADER_FLAGS)
    blocks = footer.block_offsets
    blocks_stop = int(blocks.max()) + layout.block_bytes(header.column_count)
    return int(blocks.min()) >= header.stop and max(blocks_stop, footer.previous_size_bytes) <= footer.offset


def verify_chain(sidecar: Sidecar) -> tuple[SidecarFooter, ...]:
    """Check this snapshot and every older one as a reader that is pinned to it would: header, flags, checksum, place."""
    footers = sidecar.chain()
    # Every checksum covers the file from byte 8 on, so the older ones are prefixes: one pass serves them all.
    computed: list[int] = []
    checksum, covered = 0, layout.CHECKSUM_START
    for footer in reversed(footers):
        checksum = zlib.crc32(sidecar.file[covered : footer.checksum_offset], checksum)
        covered = footer.checksum_offset
        computed.append(checksum)
    for footer, footer_checksum in zip(footers, reversed(computed), strict=True):
        if sidecar.header.stop > footer.size_bytes:
            raise FormatError(
                f"the header ends at {sidecar.header.stop}, behind the older snapshot of {footer.size_bytes} bytes",
                kind="Truncated",
                path=sidecar.path,
                offset=footer.offset,
                field="prev_parquet_meta_file_size",
            )
        check_required_flags(footer, path=sidecar.path)
        if footer_checksum != footer.checksum:
            raise checksum_mismatch(footer, footer_checksum, path=sidecar.path)
        check_footer_place(footer, sidecar.header, path=sidecar.path)
    return footers


def _broken_chain(message: str, footer: SidecarFooter, path: str | None) -> FormatError:
    place = footer.offset + layout.FOOTER.offset("previous_size_bytes")
    return FormatError(message, path=path, offset=place, field="prev_parquet_meta_file_size")


def parse_sidecar(
    buffer: bytes | bytearray | memoryview,
    *,
    parquet_size_bytes: int | None = None,
    sidecar_size_bytes: int | None = None,
    path: str | None = None,
    verify_checksum: bool = True,
) -> Sidecar:
    """Parse one snapshot of a sidecar.

    Args:
        buffer: The file from its first byte on. Bytes beyond the snapshot are ignored: they may belong to an append that
            was never committed. The buffer is kept, not copied, and must not change.
        parquet_size_bytes: Take the newest snapshot of a Parquet file of this size, as the table's transaction file
            states it. None takes the snapshot at `sidecar_size_bytes`.
        sidecar_size_bytes: A committed size that was read earlier; only it and older snapshots are considered. None
            takes the committed size in the header.
        path: The sidecar, for error messages.
        verify_checksum: Whether to compute the CRC-32, most of the cost of opening.

    Raises:
        FormatError: The bytes break the format: `Truncated`, `InvalidValue` or `ChecksumMismatch`.
        UnsupportedError: The header requires a feature that this version does not know (`UnsupportedFeature`).
    """
    sidecar = open_snapshot(
        memoryview(buffer).cast("B"),
        parquet_size_bytes=parquet_size_bytes,
        sidecar_size_bytes=sidecar_size_bytes,
        path=path,
    )
    if verify_checksum:
        sidecar.verify_checksum()
    check_footer_place(sidecar.footer, sidecar.header, path=path)
    sidecar.verify_blocks()
    return sidecar


def open_snapshot(
    file: memoryview, *, parquet_size_bytes: int | None, sidecar_size_bytes: int | None, path: str | None
) -> Sidecar:
    """Parse header and footer of a snapshot: `parse_sidecar` before it checks checksum, footer place and blocks."""
    file = file.toreadonly()
    if len(file) < layout.COMMITTED_SIZE.size:
        raise FormatError(
            f"a sidecar of {len(file)} bytes has no committed size: it was cut off",
            kind="Truncated",
            path=path,
            offset=0,
            field="parquet_meta_file_size",
        )
    size_bytes = layout.COMMITTED_SIZE.unpack_from(file)[0] if sidecar_size_bytes is None else sidecar_size_bytes
    if parquet_size_bytes is not None:
        header = parse_header(file, path=path)
        footer = find_footer(file, size_bytes, header, parquet_size_bytes=parquet_size_bytes, path=path)
        size_bytes = footer.size_bytes
    locate_footer(file, size_bytes, path=path)
    snapshot = file[:size_bytes]
    header = parse_header(snapshot, path=path)
    footer = parse_sidecar_footer(snapshot, size_bytes, header, path=path)
    check_required_flags(footer, path=path)
    return Sidecar(snapshot, header, footer, path=path)


class Sidecar(RowGroupTable):
    """One snapshot of a sidecar, immutable. Made by `parse_sidecar`.

    Descriptors, names and chunk fields are read from the buffer on first use.

    Attributes:
        file: The file up to the size of this snapshot, read-only.
        header: Valid for every snapshot of the file.
        footer: Valid for this snapshot.
        path: The sidecar, for error messages.
    """

    def __init__(self, file: memoryview, header: SidecarHeader, footer: SidecarFooter, *, path: str | None) -> None:
        super().__init__(file, header, path=path)
        self.file = file
        self.footer = footer

    def __repr__(self) -> str:
        shape = f"{self.column_count} columns x {self.row_group_count} row groups"
        return f"<Sidecar {self.path or ''} {shape}, {self.size_bytes} bytes>"

    @property
    def size_bytes(self) -> int:
        """The committed size of this snapshot: together with the path it identifies what was read."""
        return self.footer.size_bytes

    @property
    def parquet_size_bytes(self) -> int:
        """Size of the Parquet file that this snapshot describes."""
        return self.footer.parquet_size_bytes

    @property
    def row_group_count(self) -> int:
        """Number of row groups."""
        return self.footer.row_group_count

    @cached_property
    def total_rows(self) -> int:
        """Rows of the partition."""
        # Halves, because the sum of 64-bit counts can exceed 64 bits.
        low = int((self.row_counts & 0xFFFF_FFFF).sum())
        return low + (int((self.row_counts >> 32).sum()) << 32)

    @cached_property
    def schema(self) -> ColumnSchema:
        """See :class:`RowGroupTable`."""
        description = bytes(self.file[layout.CHECKSUM_START : self.header.names_stop])
        return shared_schema(description, self._annotations or b"")

    def chain(self) -> tuple[SidecarFooter, ...]:
        """Return this snapshot's footer and every older one, newest first; their checksums are not verified.

        Raises:
            FormatError: The chain is broken.
        """
        return tuple(walk_chain(self.file, self.size_bytes, self.header, path=self.path))

    @cached_property
    def foreign_annotations(self) -> Mapping[int, str]:
        """Annotations of columns whose Arrow type does not follow from their type code; empty for QuestDB's files.

        Raises:
            FormatError: The annotations are not in this library's form.
        """
        stored = self._annotations
        return MappingProxyType({} if stored is None else parse_foreign_annotations(stored, path=self.path))

    @cached_property
    def created_by(self) -> str | None:
        """The writer that the Parquet file names, empty where it names none; None where that is not recorded."""
        stored = self._note(WRITER_CODE)
        return None if stored is None else stored.decode("utf-8", "replace")

    @cached_property
    def is_writer_known(self) -> bool:
        """See :class:`RowGroupTable`. QuestDB alone, and coldparquet for it, mark the designated timestamp's type."""
        if self.created_by is not None:
            return True
        timestamp = self.designated_timestamp
        return timestamp is not None and self.column(timestamp).type_code & DESIGNATED_BIT != 0

    @cached_property
    def _annotations(self) -> bytes | None:
        return self._note(FOREIGN_ANNOTATIONS_CODE)

    def _note(self, code: int) -> bytes | None:
        return next((entry.content for entry in self.footer.scratchpad if entry.code == code), None)

    @cached_property
    def bloom_columns(self) -> tuple[int, ...]:
        """See :class:`RowGroupTable`."""
        return self.header.bloom_columns

    def bloom_entry(self, row_group: int, column_index: int) -> tuple[int, int]:
        """Return offset and length of one bloom matrix entry as stored; (0, 0) is absent.

        Inlined filters store their length with the bitset, so the length here is 0 for them.

        Raises:
            InvalidInputError: The column is not among `bloom_columns`.
        """
        position = self._bloom_positions.get(column_index)
        if position is None:
            raise InvalidInputError(f"column {column_index} has no bloom filters", path=self.path)
        entry = self.bloom_matrix[row_group, position].item()
        return entry if self.blooms_external else (entry << layout.BLOCK_ALIGNMENT_BITS, 0)

    def stored_blooms(self, column_index: int) -> npt.NDArray[Any]:
        """See :class:`RowGroupTable`."""
        return self.bloom_matrix[:, self._bloom_positions[column_index]]

    def bloom_location(self, row_group: int, column_index: int) -> ByteRange | None:
        """Return the range of the bitset of one chunk's bloom filter, or None without a usable one.

        The range belongs to the Parquet file when `blooms_external`, otherwise to the sidecar.
        """
        if column_index not in self._bloom_positions:
            return None
        offset, length = self.bloom_entry(row_group, column_index)
        if self.blooms_external:
            return ByteRange(offset, offset + length) if length else None
        start = offset + layout.BLOOM_LENGTH.size
        if offset == 0 or start > self.size_bytes:
            return None
        (length,) = layout.BLOOM_LENGTH.unpack_from(self.file, offset)
        return ByteRange(start, start + length) if 0 < length <= self.size_bytes - start else None

    def bloom_bitset(self, row_group: int, column_index: int) -> memoryview | None:
        """Return the bitset of one chunk's inlined bloom filter, or None where it is absent or external."""
        location = None if self.blooms_external else self.bloom_location(row_group, column_index)
        return None if location is None else self.file[location.start : location.stop]

    def verify_checksum(self) -> None:
        """Check the CRC-32 of this snapshot, which covers all of it but the committed size and the trailer.

        Raises:
            FormatError: It does not match (kind `ChecksumMismatch`).
        """
        computed = zlib.crc32(self.file[layout.CHECKSUM_START : self.footer.checksum_offset])
        if computed != self.footer.checksum:
            raise checksum_mismatch(self.footer, computed, path=self.path)

    def verify_blocks(self) -> None:
        """Check that every row group's block is inside the snapshot.

        Raises:
            FormatError: One is not (kind `Truncated`), or there are more than fit side by side (`InvalidValue`).
        """
        entries = self.footer.block_entries
        if not len(entries):
            return
        block_bytes = layout.block_bytes(self.column_count)
        last_start = self.size_bytes - block_bytes
        if int(entries.max()) << layout.BLOCK_ALIGNMENT_BITS > last_start:
            row_group = int((entries > max(last_start, -1) >> layout.BLOCK_ALIGNMENT_BITS).argmax())
            raise FormatError(
                f"the block of row group {row_group} at {int(entries[row_group]) << layout.BLOCK_ALIGNMENT_BITS} needs "
                f"{block_bytes} bytes and would end behind this snapshot of {self.size_bytes} bytes",
                kind="Truncated",
                path=self.path,
                offset=self.footer.offset + layout.FOOTER.size + entries.itemsize * row_group,
                field="block_offset",
                row_group=row_group,
            )
        # Work and memory of a plan grow with columns x row groups; the file must hold a chunk for each.
        if block_bytes * self.row_group_count > self.size_bytes:
            raise FormatError(
                f"{self.row_group_count} blocks of {block_bytes} bytes do not fit {self.size_bytes} bytes: they overlap",
                kind="InvalidValue",
                path=self.path,
                offset=self.footer.offset + layout.FOOTER.size,
                field="block_offset",
            )

    @cached_property
    def blocks(self) -> BlockTable:
        """See :class:`RowGroupTable`."""
        # Offsets are stored divided by 8, which is the number of the word.
        first_words = self.footer.block_entries.astype(np.int64)
        return BlockTable(
            file=self.file,
            words=np.frombuffer(self.file, "<u8", self.size_bytes // layout.WORD_BYTES),
            first_words=first_words,
            snapshot_starts=np.zeros(len(first_words), np.int64),
            snapshot_stops=np.full(len(first_words), self.size_bytes),
            column_count=self.column_count,
            path=self.path,
        )

    @cached_property
    def data_stops(self) -> npt.NDArray[np.uint64]:
        """End of the Parquet file's data and start of its footer, shape (row groups,): the same for all of them."""
        return np.full(self.row_group_count, self.footer.parquet_footer_offset, np.uint64)

    @cached_property
    def _bloom_positions(self) -> dict[int, int]:
        return {column: position for position, column in enumerate(self.bloom_columns)}

    @cached_property
    def bloom_matrix(self) -> npt.NDArray[Any]:
        """Bloom entries as stored, shape (row groups, bloom columns), for all row groups at once.

        `BLOOM_REFERENCE_DTYPE` when `blooms_external`, otherwise `BLOOM_OFFSET_DTYPE`.
        """
        dtype = layout.BLOOM_REFERENCE_DTYPE if self.blooms_external else layout.BLOOM_OFFSET_DTYPE
        shape = (self.row_group_count, len(self.bloom_columns))
        count = shape[0] * shape[1]
        start = self.footer.bloom_section_stop - dtype.itemsize * count
        return np.frombuffer(self.file, dtype, count, start).reshape(shape)


_LONGEST_STACK_BYTES = 16 * 1024 * 1024
"""Stacking copies the sidecars. This limit bounds the memory; the copy costs little beside planning so many row
groups."""


class SidecarStack(RowGroupTable):
    """The row groups of sidecars with equal column descriptions, one behind the other.

    Args:
        sidecars: At least one; all have the same `schema`.

    Attributes:
        sidecars: The same.
        borders: Index of the first row group of each, and at the end the number of all, shape (sidecars + 1,).
    """

    def __init__(self, sidecars: Sequence[Sidecar]) -> None:
        first = sidecars[0]
        super().__init__(first.file, first.header, path=first.path if len(sidecars) == 1 else None)
        self.sidecars = tuple(sidecars)
        counts = [sidecar.row_group_count for sidecar in sidecars]
        self.borders: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._borders: list[int] = self.borders.tolist()
        self._blocks = first.blocks if len(sidecars) == 1 else _joined_blocks(sidecars, counts, path=self.path)
        stops = [sidecar.footer.parquet_footer_offset for sidecar in sidecars]
        self._data_stops = np.repeat(np.array(stops, np.uint64), counts)

    @property
    def schema(self) -> ColumnSchema:
        """See :class:`RowGroupTable`."""
        return self.sidecars[0].schema

    @property
    def blocks(self) -> BlockTable:
        """See :class:`RowGroupTable`."""
        return self._blocks

    @property
    def data_stops(self) -> npt.NDArray[np.uint64]:
        """See :class:`RowGroupTable`."""
        return self._data_stops

    @property
    def foreign_annotations(self) -> Mapping[int, str]:
        """See :class:`RowGroupTable`."""
        return self.sidecars[0].foreign_annotations

    @cached_property
    def is_writer_known(self) -> bool:
        """See :class:`RowGroupTable`: of all of the sidecars."""
        return all(sidecar.is_writer_known for sidecar in self.sidecars)

    @cached_property
    def bloom_columns(self) -> tuple[int, ...]:
        """See :class:`RowGroupTable`: of any of the sidecars."""
        return tuple(sorted({column for sidecar in self.sidecars for column in sidecar.bloom_columns}))

    def stored_blooms(self, column_index: int) -> npt.NDArray[Any]:
        """See :class:`RowGroupTable`."""
        with_blooms = [sidecar for sidecar in self.sidecars if column_index in sidecar.bloom_columns]
        stored = np.concatenate([sidecar.stored_blooms(column_index) for sidecar in with_blooms])
        if len(with_blooms) == len(self.sidecars):
            return stored
        has_blooms = [column_index in sidecar.bloom_columns for sidecar in self.sidecars]
        result = np.zeros(self.row_group_count, stored.dtype)
        result[np.repeat(has_blooms, np.diff(self.borders))] = stored
        return result

    @cached_property
    def total_rows(self) -> list[int]:
        """Rows of each sidecar."""
        # Halves, because the sum of 64-bit counts can exceed 64 bits.
        halves = [
            np.diff(np.concatenate([[0], np.cumsum(half)])[self.borders]).tolist()
            for half in (self.row_counts & 0xFFFF_FFFF, self.row_counts >> 32)
        ]
        return [low + (high << 32) for low, high in zip(*halves, strict=True)]

    def row_groups_of(self, position: int) -> slice:
        """Return which row groups are those of one sidecar."""
        return slice(self._borders[position], self._borders[position + 1])


def stack_alike(sidecars: Sequence[Sidecar]) -> list[list[int]]:
    """Group sidecars that can be stacked, and that are short enough to copy."""
    stacks: list[list[int]] = []
    open_stacks: dict[ColumnSchema, tuple[list[int], int]] = {}
    for position, sidecar in enumerate(sidecars):
        stack, length_bytes = open_stacks.get(sidecar.schema, ([], 0))
        if not stack or length_bytes + sidecar.size_bytes > _LONGEST_STACK_BYTES:
            stack, length_bytes = [], 0
            stacks.append(stack)
        stack.append(position)
        open_stacks[sidecar.schema] = (stack, length_bytes + sidecar.size_bytes)
    return stacks


def _joined_blocks(sidecars: Sequence[Sidecar], counts: Sequence[int], *, path: str | None) -> BlockTable:
    sizes = np.array([len(sidecar.file) for sidecar in sidecars], np.int64)
    gaps = -sizes % layout.WORD_BYTES
    padding = [bytes(gap) for gap in range(layout.WORD_BYTES)]
    pieces = [
        piece for sidecar, gap in zip(sidecars, gaps.tolist(), strict=True) for piece in (sidecar.file, padding[gap])
    ]
    file = memoryview(b"".join(pieces))
    begins = np.cumsum(sizes + gaps) - (sizes + gaps)
    first_words = np.concatenate([sidecar.footer.block_entries for sidecar in sidecars]).astype(np.int64)
    return BlockTable(
        file=file,
        words=np.frombuffer(file, "<u8"),
        first_words=first_words + np.repeat(begins // layout.WORD_BYTES, counts),
        snapshot_starts=np.repeat(begins, counts),
        snapshot_stops=np.repeat(begins + sizes, counts),
        column_count=sidecars[0].column_count,
        path=path,
    )
