"""Parses one footer of a sidecar, which describes one snapshot of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coldparquet.errors import FormatError
from coldparquet.format import sidecar_layout as layout

if TYPE_CHECKING:
    from coldparquet.format.sidecar_header import SidecarHeader


@dataclass(frozen=True, slots=True)
class ScratchpadEntry:
    """One tagged byte string of a footer's SCRATCHPAD."""

    code: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveringIndexEntry:
    """One covering index of a partition, from its footer's COVERING_INDEX section."""

    column_id: int
    """Writer index of the indexed column."""
    index_txn: int
    index_metadata_bytes: int
    """Size of the `_im` file; informational, its own header decides."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SidecarFooter:
    """The fields of one footer; large parts are read from the file on access."""

    file: memoryview = field(repr=False)
    size_bytes: int
    """The committed size at which this footer is the last one."""
    offset: int
    length_bytes: int
    """FOOTER_LENGTH: from the start of the footer up to and including the checksum."""
    parquet_footer_offset: int
    parquet_footer_length: int
    row_group_count: int
    unused_bytes: int
    """Dead bytes in the Parquet file."""
    previous_size_bytes: int
    """Committed size of the snapshot before this one; 0 for the first."""
    feature_flags: int
    checksum: int
    """The stored CRC-32."""
    bloom_section_stop: int
    """One past the bloom matrix, in the file."""
    seq_txn: int | None
    scratchpad_offset: int | None
    covering_index_offset: int | None
    sections_stop: int
    """One past the last known section, in the file; unknown optional sections may follow."""

    @property
    def checksum_offset(self) -> int:
        """Offset of the stored CRC-32, which is also the end of the bytes that it covers."""
        return self.offset + self.length_bytes - layout.CHECKSUM.size

    @property
    def parquet_size_bytes(self) -> int:
        """Size of the Parquet file of this snapshot."""
        return self.parquet_footer_offset + self.parquet_footer_length + layout.PARQUET_TAIL_BYTES

    @property
    def block_entries(self) -> npt.NDArray[np.uint32]:
        """Offset of each row group's block divided by 8, shape (row groups,): a view of the file."""
        return np.frombuffer(
            self.file, layout.BLOCK_OFFSET_DTYPE, self.row_group_count, self.offset + layout.FOOTER.size
        )

    @property
    def block_offsets(self) -> npt.NDArray[np.int64]:
        """Offset of each row group's block, shape (row groups,)."""
        return self.block_entries.astype(np.int64) << layout.BLOCK_ALIGNMENT_BITS

    @property
    def scratchpad(self) -> tuple[ScratchpadEntry, ...]:
        """The SCRATCHPAD in stored order; codes may repeat, and then the first entry counts."""
        if self.scratchpad_offset is None:
            return ()
        (count,) = layout.COUNT.unpack_from(self.file, self.scratchpad_offset)
        cursor = self.scratchpad_offset + layout.COUNT.size
        entries = []
        for _ in range(count):
            code, length = layout.SCRATCHPAD_ENTRY.unpack_from(self.file, cursor)
            start = cursor + layout.SCRATCHPAD_ENTRY.size
            cursor = start + length
            entries.append(ScratchpadEntry(code, bytes(self.file[start:cursor])))
        return tuple(entries)

    @property
    def covering_index(self) -> tuple[CoveringIndexEntry, ...]:
        """The covering indexes of this snapshot; empty for almost every partition."""
        if self.covering_index_offset is None:
            return ()
        (count,) = layout.COUNT.unpack_from(self.file, self.covering_index_offset)
        start = self.covering_index_offset + layout.COUNT.size
        stop = start + layout.COVERING_INDEX_ENTRY.size * count
        return tuple(
            CoveringIndexEntry(column_id=column_id, index_txn=index_txn, index_metadata_bytes=size)
            for column_id, index_txn, size in layout.COVERING_INDEX_ENTRY.iter_unpack(self.file[start:stop])
        )


def locate_footer(file: memoryview, size_bytes: int, *, path: str | None) -> int:
    """Return the offset of the footer that ends at `size_bytes`, from the trailer there."""
    if size_bytes > len(file):
        raise _truncated(f"the snapshot of {size_bytes} bytes", size_bytes, len(file), 0, path)
    trailer_offset = size_bytes - layout.TRAILER.size
    if trailer_offset < 0:
        raise _truncated("the trailer", layout.TRAILER.size, size_bytes, 0, path)
    (length,) = layout.TRAILER.unpack_from(file, trailer_offset)
    if length > trailer_offset:
        raise _truncated(f"a footer of {length} bytes", length, trailer_offset, trailer_offset, path)
    return trailer_offset - int(length)


def parse_sidecar_footer(
    file: memoryview, size_bytes: int, header: SidecarHeader, *, path: str | None
) -> SidecarFooter:
    """Parse the footer that ends at `size_bytes`: structure only, see `check_required_flags` and the checksum."""
    offset = locate_footer(file, size_bytes, path=path)
    checksum_offset = size_bytes - layout.TRAILER.size - layout.CHECKSUM.size
    cursor = offset + layout.FOOTER.size
    if cursor > checksum_offset:
        raise _truncated("the fixed part of the footer", cursor, checksum_offset, offset, path)
    parquet_offset, parquet_length, row_group_count, unused, previous, flags = layout.FOOTER.unpack_from(file, offset)
    cursor += layout.BLOCK_OFFSET_DTYPE.itemsize * row_group_count
    if cursor > checksum_offset:
        raise _truncated(f"{row_group_count} row group entries", cursor, checksum_offset, offset + 12, path)
    entry_dtype = layout.BLOOM_REFERENCE_DTYPE if header.blooms_external else layout.BLOOM_OFFSET_DTYPE
    cursor += entry_dtype.itemsize * row_group_count * len(header.bloom_entries)
    if cursor > checksum_offset:
        raise _truncated("the bloom matrix", cursor, checksum_offset, offset, path)
    bloom_section_stop = cursor

    seq_txn = scratchpad_offset = covering_index_offset = None
    if flags & layout.FOOTER_SEQ_TXN:
        if cursor + layout.SIGNED_64.size > checksum_offset:
            raise _truncated("SEQ_TXN", cursor + layout.SIGNED_64.size, checksum_offset, cursor, path)
        (seq_txn,) = layout.SIGNED_64.unpack_from(file, cursor)
        cursor += layout.SIGNED_64.size
    if flags & layout.FOOTER_SCRATCHPAD:
        scratchpad_offset = cursor
        cursor = _scratchpad_stop(file, cursor, checksum_offset, path)
    # Without its required half, bit 2 is an unknown optional bit, and its section is opaque.
    if flags & layout.FOOTER_COVERING_INDEX and flags & layout.FOOTER_COVERING_INDEX_REQUIRED:
        covering_index_offset = cursor
        cursor = _covering_index_stop(file, cursor, checksum_offset, path)
    return SidecarFooter(
        file=file,
        size_bytes=size_bytes,
        offset=offset,
        length_bytes=size_bytes - layout.TRAILER.size - offset,
        parquet_footer_offset=parquet_offset,
        parquet_footer_length=parquet_length,
        row_group_count=row_group_count,
        unused_bytes=unused,
        previous_size_bytes=previous,
        feature_flags=flags,
        checksum=layout.CHECKSUM.unpack_from(file, checksum_offset)[0],
        bloom_section_stop=bloom_section_stop,
        seq_txn=seq_txn,
        scratchpad_offset=scratchpad_offset,
        covering_index_offset=covering_index_offset,
        sections_stop=cursor,
    )


def check_required_flags(footer: SidecarFooter, *, path: str | None) -> None:
    """Refuse a footer with unknown required features. Footers that a walk merely passes are not checked."""
    flags = footer.feature_flags
    unknown = flags & ~layout.OPTIONAL_FLAGS & ~layout.KNOWN_FOOTER_FLAGS
    if flags & layout.FOOTER_COVERING_INDEX_REQUIRED and not flags & layout.FOOTER_COVERING_INDEX:
        unknown |= layout.FOOTER_COVERING_INDEX_REQUIRED
    if unknown:
        raise FormatError(
            f"the footer requires features {unknown:#x} that this version does not know; upgrade coldparquet",
            kind="InvalidValue",
            path=path,
            offset=footer.offset + 32,
            field="footer_feature_flags",
            flags=unknown,
        )


def checksum_mismatch(footer: SidecarFooter, computed: int, *, path: str | None) -> FormatError:
    """Return the error for a footer whose stored checksum is not the computed one."""
    return FormatError(
        f"CRC-32 of the snapshot of {footer.size_bytes} bytes is {computed:#010x}, stored is {footer.checksum:#010x}: "
        "the sidecar is damaged; restore it or write it again from the Parquet footer",
        kind="ChecksumMismatch",
        path=path,
        offset=footer.checksum_offset,
        field="checksum",
        stored=footer.checksum,
        computed=computed,
    )


def _scratchpad_stop(file: memoryview, start: int, checksum_offset: int, path: str | None) -> int:
    """Check the SCRATCHPAD at `start` without keeping any of it; return its end."""
    cursor = start + layout.COUNT.size
    if cursor > checksum_offset:
        raise _truncated("the number of SCRATCHPAD entries", cursor, checksum_offset, start, path)
    (count,) = layout.COUNT.unpack_from(file, start)
    if count == 0:
        raise _invalid("the SCRATCHPAD is present and has no entry", start, "scratchpad", path)
    for _ in range(count):
        content = cursor + layout.SCRATCHPAD_ENTRY.size
        if content > checksum_offset:
            raise _truncated("a SCRATCHPAD entry", content, checksum_offset, cursor, path)
        _, length = layout.SCRATCHPAD_ENTRY.unpack_from(file, cursor)
        if content + length > checksum_offset:
            raise _truncated("a SCRATCHPAD content", content + length, checksum_offset, content, path)
        cursor = content + length
        if cursor - start > layout.MAX_SCRATCHPAD_BYTES:
            message = f"the SCRATCHPAD exceeds {layout.MAX_SCRATCHPAD_BYTES} bytes"
            raise _invalid(message, start, "scratchpad", path)
    return cursor


def _covering_index_stop(file: memoryview, start: int, checksum_offset: int, path: str | None) -> int:
    """Check the size of the COVERING_INDEX at `start`; return its end."""
    stop = start + layout.COUNT.size
    if stop > checksum_offset:
        raise _truncated("the number of covering indexes", stop, checksum_offset, start, path)
    count: int = layout.COUNT.unpack_from(file, start)[0]
    if count == 0:
        raise _invalid("the COVERING_INDEX is present and has no entry", start, "covering_index", path)
    stop += layout.COVERING_INDEX_ENTRY.size * count
    if stop > checksum_offset:
        raise _truncated(f"{count} covering indexes", stop, checksum_offset, start, path)
    return stop


def _truncated(what: str, needed: int, available: int, offset: int, path: str | None) -> FormatError:
    return FormatError(
        f"{what} would need {needed} bytes, but only {available} are there: the sidecar is damaged, or was cut off",
        kind="Truncated",
        path=path,
        offset=offset,
        field="footer",
    )


def _invalid(message: str, offset: int, field_name: str, path: str | None) -> FormatError:
    return FormatError(message, kind="InvalidValue", path=path, offset=offset, field=field_name)
