"""One snapshot of a sidecar (`_pm`): bytes to model.

A sidecar answers, without the Parquet footer, which columns a partition has, where every column chunk lies, and what is
known about its values. `parse_sidecar` checks the bytes and returns a `Sidecar`; the buffer is neither copied nor
walked chunk by chunk, so that opening costs little more than its checksum.
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
from coldparquet.format.column_schema import ColumnSchema, shared_schema
from coldparquet.format.file_writer import WRITER_CODE
from coldparquet.format.footer_chain import check_footer_place, find_footer, walk_chain
from coldparquet.format.foreign_annotations import FOREIGN_ANNOTATIONS_CODE, parse_foreign_annotations
from coldparquet.format.row_group_table import RowGroupTable
from coldparquet.format.sidecar_chunks import BlockTable
from coldparquet.format.sidecar_footer import (
    SidecarFooter,
    check_required_flags,
    checksum_mismatch,
    locate_footer,
    parse_sidecar_footer,
)
from coldparquet.format.sidecar_header import SidecarHeader, parse_header
from coldparquet.format.type_codes import DESIGNATED_BIT
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        sidecar_size_bytes: A committed size that was read earlier; only it and what came before are looked at. None
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

    Descriptors, names and chunk fields are read from the buffer when they are first asked for.

    Attributes:
        file: The file up to the size of this snapshot, read-only.
        header: What holds for every snapshot of the file.
        footer: What holds for this one.
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
        """What we noted about columns whose Arrow type does not follow from their type code; empty for QuestDB's files.

        Raises:
            FormatError: The note is not what we write.
        """
        stored = self._annotations
        return MappingProxyType({} if stored is None else parse_foreign_annotations(stored, path=self.path))

    @cached_property
    def created_by(self) -> str | None:
        """What the Parquet file says about who wrote it, empty where it says nothing; None where that is not noted."""
        stored = self._note(WRITER_CODE)
        return None if stored is None else stored.decode("utf-8", "replace")

    @cached_property
    def is_writer_known(self) -> bool:
        """See :class:`RowGroupTable`. Only files of QuestDB, and ours for it, mark the type of their designated timestamp."""
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
            InvalidInputError: The column is none of `bloom_columns`.
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
        """Return where the bitset of one chunk's bloom filter lies, or None without a usable one.

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
        """Check that every row group's block lies inside the snapshot.

        Raises:
            FormatError: One does not (kind `Truncated`), or there are more than can lie side by side (`InvalidValue`).
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
        strides = np.diff(first_words)
        is_regular = len(strides) > 0 and strides[0] > 0 and bool((strides == strides[0]).all())
        return BlockTable(
            file=self.file,
            words=np.frombuffer(self.file, "<u8", self.size_bytes // layout.WORD_BYTES),
            first_words=first_words,
            snapshot_starts=np.zeros(len(first_words), np.int64),
            snapshot_stops=np.full(len(first_words), self.size_bytes),
            stride_words=int(strides[0]) if is_regular else None,
            column_count=self.column_count,
            path=self.path,
        )

    @cached_property
    def data_stops(self) -> npt.NDArray[np.uint64]:
        """Where the data of the Parquet file ends and its footer begins, shape (row groups,): the same for all of them."""
        return np.full(self.row_group_count, self.footer.parquet_footer_offset, np.uint64)

    @cached_property
    def _bloom_positions(self) -> dict[int, int]:
        return {column: position for position, column in enumerate(self.bloom_columns)}

    @cached_property
    def bloom_matrix(self) -> npt.NDArray[Any]:
        """Bloom entries as stored, shape (row groups, bloom columns), for looks at all row groups at once.

        `BLOOM_REFERENCE_DTYPE` when `blooms_external`, otherwise `BLOOM_OFFSET_DTYPE`.
        """
        dtype = layout.BLOOM_REFERENCE_DTYPE if self.blooms_external else layout.BLOOM_OFFSET_DTYPE
        shape = (self.row_group_count, len(self.bloom_columns))
        count = shape[0] * shape[1]
        start = self.footer.bloom_section_stop - dtype.itemsize * count
        return np.frombuffer(self.file, dtype, count, start).reshape(shape)
