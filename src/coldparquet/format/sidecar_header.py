"""Parses the header of a sidecar, valid for every snapshot of the file, and the footers, each of which describes one snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format import sidecar_layout as layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldparquet.format.types import ColumnType


_MOST_SCHEMAS = 64


class ColumnSchema:
    """The parsed columns of all sidecars with equal column descriptions; compared by identity.

    Filled by :class:`coldparquet.format.sidecar_chunks.RowGroupTable`, and by
    :func:`coldparquet.format.sidecar_header.parse_columns_ahead` before the checksum is known. Several threads may fill
    it: they find the same. Only valid results are kept, so errors name the sidecar in which they occur.

    Attributes:
        descriptors: Column descriptors by index.
        types: Types by index.
    """

    def __init__(self) -> None:
        self.descriptors: dict[int, ColumnDescriptor] = {}
        self.types: dict[int, ColumnType] = {}


@lru_cache(maxsize=_MOST_SCHEMAS)
def shared_schema(description: bytes, annotations: bytes) -> ColumnSchema:  # noqa: ARG001 - together they are the key
    """Return the schema of all sidecars with these description bytes."""
    return ColumnSchema()


_LARGEST_FILE_BYTES = 2**63 - 1

_REPETITIONS, _PHYSICAL_TYPES = tuple(layout.Repetition), tuple(layout.PhysicalType)
"""Enum members by number, from 0: for a thousand columns, calling the enums would take a millisecond."""


class ColumnDescriptor(Struct, frozen=True, kw_only=True, gc=False):
    """One leaf column of the Parquet file. Files have thousands, which the garbage collector need not look at."""

    index: int
    """Position among the columns, which is also its position in every row group."""
    name: str
    id: int
    """Writer index of the column in its QuestDB table, or -1."""
    type_code: int
    """QuestDB type code; -1 where none could be inferred for a foreign column."""
    flags: int
    fixed_byte_length: int
    """Length of a FIXED_LEN_BYTE_ARRAY, otherwise 0."""
    physical_type: layout.PhysicalType
    max_rep_level: int
    max_def_level: int
    repetition: layout.Repetition
    """Repetition of the top-level field; for nested columns the levels are more precise."""
    descending: bool
    """A sorting column in descending order."""
    is_ascii: bool
    local_key_is_global: bool
    name_offset: int
    name_length: int
    """Length of the name in UTF-8 bytes."""
    reserved: int


class SidecarHeader(Struct, frozen=True, kw_only=True, eq=False):
    """The header's fields as stored; arrays are views of the file, so a wide header costs no objects."""

    committed_size_bytes: int
    """PARQUET_META_FILE_SIZE: the size of the newest snapshot, whichever snapshot is being read."""
    feature_flags: int
    designated_timestamp_raw: int
    """Column index as stored; every negative number means none."""
    sorting_column_count_raw: int
    column_count: int
    descriptors: npt.NDArray[np.void]
    """Of `sidecar_layout.COLUMN_DESCRIPTOR`, shape (columns,)."""
    sorting_entries: npt.NDArray[np.uint32]
    """The sorting array as stored; empty where `HEADER_SORTED_BY_TIMESTAMP` stands for it."""
    bloom_entries: npt.NDArray[np.uint32]
    """Columns that have a place in the bloom matrix, ascending; checked to be columns."""
    squash_tracker: int | None
    names_stop: int
    """One past the last byte of the descriptors, sorting columns and names."""
    stop: int
    """One past the last known byte of the header; unknown optional sections may follow."""

    @property
    def designated_timestamp(self) -> int | None:
        """Index of the designated timestamp, not checked to be a column."""
        return self.designated_timestamp_raw if self.designated_timestamp_raw >= 0 else None

    @property
    def sorting_columns(self) -> tuple[int, ...]:
        """Indexes of the sorting columns, the implied one included, not checked to be columns."""
        if self.feature_flags & layout.HEADER_SORTED_BY_TIMESTAMP:
            return (self.designated_timestamp_raw,)
        return tuple(self.sorting_entries.tolist())

    @property
    def bloom_columns(self) -> tuple[int, ...]:
        """Indexes of the columns with bloom filters, ascending."""
        return tuple(self.bloom_entries.tolist())

    @property
    def blooms_external(self) -> bool:
        """Whether bloom filters are in the Parquet file."""
        return bool(self.feature_flags & layout.HEADER_BLOOM_FILTERS_EXTERNAL)


def parse_header(file: memoryview, *, path: str | None) -> SidecarHeader:
    """Parse the header of a sidecar."""
    if len(file) < layout.HEADER.size:
        raise _header_truncated("the fixed part of the header", layout.HEADER.size, len(file), offset=0, path=path)
    stored = layout.HEADER.unpack(file)
    flags, column_count, sorting_count = stored.feature_flags, stored.column_count, stored.sorting_column_count
    unknown = flags & ~layout.OPTIONAL_FLAGS & ~layout.KNOWN_HEADER_FLAGS
    if unknown:
        raise UnsupportedError(
            f"the header requires features {unknown:#x} that this version does not know; upgrade coldparquet",
            kind="UnsupportedFeature",
            path=path,
            offset=layout.HEADER.offset("feature_flags"),
            field="feature_flags",
            flags=unknown,
        )
    descriptors_stop = layout.HEADER.size + layout.COLUMN_DESCRIPTOR.size * column_count
    sorting_stop = descriptors_stop + layout.COLUMN_INDEX_DTYPE.itemsize * sorting_count
    if sorting_stop > len(file):
        what = f"{column_count} column descriptors and {sorting_count} sorting columns"
        raise _header_truncated(what, sorting_stop, len(file), offset=layout.HEADER.size, path=path)
    _check_flags(flags, stored.designated_timestamp, path)
    descriptors = np.frombuffer(file, layout.COLUMN_DESCRIPTOR.dtype, column_count, layout.HEADER.size)
    names_stop = cursor = _find_names_stop(descriptors, sorting_stop, len(file), path)
    bloom_entries = np.empty(0, layout.COLUMN_INDEX_DTYPE)
    if flags & layout.HEADER_BLOOM_FILTERS:
        bloom_entries, cursor = _parse_bloom_columns(file, cursor, column_count, path)
    squash_tracker = None
    if flags & layout.HEADER_SQUASH_TRACKER:
        stop = cursor + layout.SIGNED_64.size
        if stop > len(file):
            raise _header_truncated("the squash tracker", stop, len(file), offset=cursor, path=path)
        squash_tracker = layout.SIGNED_64.unpack(file, cursor).number
        cursor = stop
    return SidecarHeader(
        committed_size_bytes=stored.committed_size_bytes,
        feature_flags=flags,
        designated_timestamp_raw=stored.designated_timestamp,
        sorting_column_count_raw=sorting_count,
        column_count=column_count,
        descriptors=descriptors,
        sorting_entries=np.frombuffer(file, layout.COLUMN_INDEX_DTYPE, sorting_count, descriptors_stop),
        bloom_entries=bloom_entries,
        squash_tracker=squash_tracker,
        names_stop=names_stop,
        stop=cursor,
    )


def parse_name(file: memoryview, index: int, *, path: str | None) -> str:
    """Decode the name of one column, which `parse_header` skipped."""
    stored = layout.COLUMN_DESCRIPTOR.unpack(file, _descriptor_offset(index))
    return _decode_name(file, index, stored.name_offset, stored.name_length, path)


def parse_repetition(flags: int, index: int, *, path: str | None) -> layout.Repetition:
    """Return the repetition of one column from its flags."""
    bits = flags >> layout.COLUMN_REPETITION_SHIFT & layout.COLUMN_REPETITION_MASK
    if bits >= len(_REPETITIONS):
        message = f"column {index} has repetition {bits}; expected 0, 1 or 2"
        raise _invalid(message, _descriptor_offset(index, "flags"), "repetition", path)
    return _REPETITIONS[bits]


def parse_column(file: memoryview, index: int, *, path: str | None) -> ColumnDescriptor:
    """Parse one column descriptor with its name, from a file whose header was parsed."""
    stored = layout.COLUMN_DESCRIPTOR.unpack(file, _descriptor_offset(index))
    name = _decode_name(file, index, stored.name_offset, stored.name_length, path)
    repetition = parse_repetition(stored.flags, index, path=path)
    physical_type = stored.physical_type
    if physical_type >= len(_PHYSICAL_TYPES):
        message = f"column {name!r} has physical type {physical_type}; Parquet knows 0 to {len(_PHYSICAL_TYPES) - 1}"
        raise _invalid(message, _descriptor_offset(index, "physical_type"), "physical_type", path)
    return ColumnDescriptor(
        index=index,
        name=name,
        id=stored.id,
        type_code=stored.type_code,
        flags=stored.flags,
        fixed_byte_length=stored.fixed_byte_length,
        physical_type=_PHYSICAL_TYPES[physical_type],
        max_rep_level=stored.max_rep_level,
        max_def_level=stored.max_def_level,
        repetition=repetition,
        descending=bool(stored.flags & layout.COLUMN_DESCENDING),
        is_ascii=bool(stored.flags & layout.COLUMN_IS_ASCII),
        local_key_is_global=bool(stored.flags & layout.COLUMN_LOCAL_KEY_IS_GLOBAL),
        name_offset=stored.name_offset,
        name_length=stored.name_length,
        reserved=stored.reserved,
    )


def _descriptor_offset(index: int, field_name: str = "name_offset") -> int:
    record = layout.COLUMN_DESCRIPTOR
    return layout.HEADER.size + record.size * index + record.offset(field_name)


def _decode_name(file: memoryview, index: int, start: int, length: int, path: str | None) -> str:
    try:
        return str(file[start : start + length], "utf-8")
    except UnicodeDecodeError as error:
        raise _invalid(f"the name of column {index} is not UTF-8: {error}", start, "name", path) from error


def _check_flags(flags: int, designated: int, path: str | None) -> None:
    if flags & layout.HEADER_BLOOM_FILTERS_EXTERNAL and not flags & layout.HEADER_BLOOM_FILTERS:
        raise _invalid("external bloom filters (bit 1) need bloom filters (bit 0)", 8, "feature_flags", path)
    if flags & layout.HEADER_SORTED_BY_TIMESTAMP and designated < 0:
        message = "sorted by the designated timestamp (bit 2), but the file has no designated timestamp"
        raise _invalid(message, 8, "feature_flags", path)


def _find_names_stop(descriptors: npt.NDArray[np.void], names_start: int, file_bytes: int, path: str | None) -> int:
    """Cache `_check_names` for all files with the same descriptors: nearly all partitions of a table have them."""
    names_stop = _names_stop(descriptors.tobytes(), names_start)
    if names_stop is None or names_stop > file_bytes:
        return _check_names(descriptors, names_start, file_bytes, path)
    return names_stop


@lru_cache(maxsize=_MOST_SCHEMAS)
def _names_stop(descriptors: bytes, names_start: int) -> int | None:
    """Return the end of the last name, if all names are at valid places in any file that is long enough."""
    try:
        columns = np.frombuffer(descriptors, layout.COLUMN_DESCRIPTOR.dtype)
        return _check_names(columns, names_start, _LARGEST_FILE_BYTES, None)
    except FormatError:
        return None


def _check_names(descriptors: npt.NDArray[np.void], names_start: int, file_bytes: int, path: str | None) -> int:
    """Check that every name is behind the sorting columns and inside the file; return the end of the last one."""
    if not len(descriptors):
        return names_start
    starts = descriptors["name_offset"]
    stops = starts + descriptors["name_length"]
    # A sum beyond 2**64 wraps around and lands below its start: such a name ends past any file.
    past_end = (stops > file_bytes) | (stops < starts)
    bad = past_end | (starts < names_start)
    if bad.any():
        index = int(bad.argmax())
        start, length = int(starts[index]), int(descriptors["name_length"][index])
        offset = _descriptor_offset(index)
        if start < names_start:
            message = f"the name of column {index} begins at {start}, before the names at {names_start}"
            raise _invalid(message, offset, "name_offset", path)
        raise _header_truncated(f"the name of column {index}", start + length, file_bytes, offset=offset, path=path)
    return max(names_start, int(stops.max()))


def _parse_bloom_columns(
    file: memoryview, start: int, column_count: int, path: str | None
) -> tuple[npt.NDArray[np.uint32], int]:
    """Parse the bloom column list at `start`; return it and its end."""
    first = start + layout.COUNT.size
    if first > len(file):
        raise _header_truncated("the number of bloom columns", first, len(file), offset=start, path=path)
    (count,) = layout.COUNT.unpack_from(file, start)
    if not 0 < count <= column_count:
        message = f"{count} bloom columns for {column_count} columns; expected 1 to {column_count}"
        raise _invalid(message, start, "bloom_filter_columns", path)
    stop = first + layout.COLUMN_INDEX_DTYPE.itemsize * count
    if stop > len(file):
        raise _header_truncated(f"{count} bloom columns", stop, len(file), offset=first, path=path)
    columns = np.frombuffer(file, layout.COLUMN_INDEX_DTYPE, count, first)
    # Ascending, so that only the last one can be too large.
    if (columns[1:] <= columns[:-1]).any() or columns[-1] >= column_count:
        message = f"bloom columns must be ascending, unique and below {column_count}"
        raise _invalid(message, first, "bloom_filter_columns", path)
    return columns, stop


def _header_truncated(what: str, needed: int, available: int, *, offset: int, path: str | None) -> FormatError:
    return FormatError(
        f"{what} would end at byte {needed}, but this snapshot of the sidecar has {available}: it is damaged, or was cut off",
        kind="Truncated",
        path=path,
        offset=offset,
        field="header",
    )


def _invalid(message: str, offset: int, field: str, path: str | None) -> FormatError:
    return FormatError(message, kind="InvalidValue", path=path, offset=offset, field=field)


_COLUMNS_PER_STEP = 32
"""Columns per step; they take a quarter of a millisecond."""


def parse_columns_ahead(beginning: memoryview) -> Iterator[None]:
    """Parse the columns that the beginning of a sidecar describes, a few with each step.

    The checksum is not yet verified, so results are cached under the exact bytes that they came from. Those of a
    damaged sidecar are therefore never used. Errors are left to the parser of the whole sidecar.
    """
    try:
        header = parse_header(beginning, path=None)
        # QuestDB's sidecars have no annotations; where others have some, their columns are parsed again.
        schema = shared_schema(bytes(beginning[layout.CHECKSUM_START : header.names_stop]), b"")
        for index in range(header.column_count):
            if index % _COLUMNS_PER_STEP == 0:
                yield
            if index not in schema.descriptors:
                schema.descriptors[index] = parse_column(beginning, index, path=None)
    except (FormatError, UnsupportedError):
        return


class ScratchpadEntry(Struct, frozen=True):
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


class SidecarFooter(Struct, frozen=True, kw_only=True, eq=False):
    """The fields of one footer; large parts are read from the file on access."""

    file: memoryview
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
    scratchpad: tuple[ScratchpadEntry, ...]
    """In stored order; codes may repeat, and then the first entry counts."""
    covering_entries: npt.NDArray[np.void] | None
    """The COVERING_INDEX section, of `sidecar_layout.COVERING_INDEX_ENTRY`; None without it."""
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
    def covering_index(self) -> tuple[CoveringIndexEntry, ...]:
        """The covering indexes of this snapshot; empty for almost every partition."""
        names = layout.COVERING_INDEX_ENTRY.dtype.names or ()
        rows = () if self.covering_entries is None else self.covering_entries.tolist()
        return tuple(CoveringIndexEntry(**dict(zip(names, row, strict=True))) for row in rows)


def locate_footer(file: memoryview, size_bytes: int, *, path: str | None) -> int:
    """Return the offset of the footer that ends at `size_bytes`, from the trailer there."""
    if size_bytes > len(file):
        raise _footer_truncated(f"the snapshot of {size_bytes} bytes", size_bytes, len(file), 0, path)
    trailer_offset = size_bytes - layout.TRAILER.size
    if trailer_offset < 0:
        raise _footer_truncated("the trailer", layout.TRAILER.size, size_bytes, 0, path)
    (length,) = layout.TRAILER.unpack_from(file, trailer_offset)
    if length > trailer_offset:
        raise _footer_truncated(f"a footer of {length} bytes", length, trailer_offset, trailer_offset, path)
    return trailer_offset - int(length)


def parse_sidecar_footer(
    file: memoryview, size_bytes: int, header: SidecarHeader, *, path: str | None
) -> SidecarFooter:
    """Parse the footer that ends at `size_bytes`: structure only, see `check_required_flags` and the checksum."""
    offset = locate_footer(file, size_bytes, path=path)
    checksum_offset = size_bytes - layout.TRAILER.size - layout.CHECKSUM.size
    cursor = offset + layout.FOOTER.size
    if cursor > checksum_offset:
        raise _footer_truncated("the fixed part of the footer", cursor, checksum_offset, offset, path)
    stored = layout.FOOTER.unpack(file, offset)
    row_group_count, flags = stored.row_group_count, stored.feature_flags
    cursor += layout.BLOCK_OFFSET_DTYPE.itemsize * row_group_count
    if cursor > checksum_offset:
        place = offset + layout.FOOTER.offset("row_group_count")
        raise _footer_truncated(f"{row_group_count} row group entries", cursor, checksum_offset, place, path)
    entry_dtype = layout.BLOOM_REFERENCE_DTYPE if header.blooms_external else layout.BLOOM_OFFSET_DTYPE
    cursor += entry_dtype.itemsize * row_group_count * len(header.bloom_entries)
    if cursor > checksum_offset:
        raise _footer_truncated("the bloom matrix", cursor, checksum_offset, offset, path)
    bloom_section_stop = cursor

    seq_txn = covering_entries = None
    scratchpad: list[ScratchpadEntry] = []
    if flags & layout.FOOTER_SEQ_TXN:
        if cursor + layout.SIGNED_64.size > checksum_offset:
            raise _footer_truncated("SEQ_TXN", cursor + layout.SIGNED_64.size, checksum_offset, cursor, path)
        seq_txn = layout.SIGNED_64.unpack(file, cursor).number
        cursor += layout.SIGNED_64.size
    if flags & layout.FOOTER_SCRATCHPAD:
        scratchpad, cursor = _parse_scratchpad(file, cursor, checksum_offset, path)
    # Without its required half, bit 2 is an unknown optional bit, and its section is opaque.
    if flags & layout.FOOTER_COVERING_INDEX and flags & layout.FOOTER_COVERING_INDEX_REQUIRED:
        covering_entries, cursor = _parse_covering_index(file, cursor, checksum_offset, path)
    return SidecarFooter(
        file=file,
        size_bytes=size_bytes,
        offset=offset,
        length_bytes=size_bytes - layout.TRAILER.size - offset,
        parquet_footer_offset=stored.parquet_footer_offset,
        parquet_footer_length=stored.parquet_footer_length,
        row_group_count=row_group_count,
        unused_bytes=stored.unused_bytes,
        previous_size_bytes=stored.previous_size_bytes,
        feature_flags=flags,
        checksum=layout.CHECKSUM.unpack_from(file, checksum_offset)[0],
        bloom_section_stop=bloom_section_stop,
        seq_txn=seq_txn,
        scratchpad=tuple(scratchpad),
        covering_entries=covering_entries,
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
            offset=footer.offset + layout.FOOTER.offset("feature_flags"),
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


def _parse_scratchpad(
    file: memoryview, start: int, checksum_offset: int, path: str | None
) -> tuple[list[ScratchpadEntry], int]:
    """Parse the SCRATCHPAD at `start`; return its entries and its end."""
    entries, cursor = list[ScratchpadEntry](), start + layout.COUNT.size
    for _ in range(_section_count(file, start, checksum_offset, "SCRATCHPAD", path)):
        content = cursor + layout.SCRATCHPAD_ENTRY.size
        if content > checksum_offset:
            raise _footer_truncated("a SCRATCHPAD entry", content, checksum_offset, cursor, path)
        entry = layout.SCRATCHPAD_ENTRY.unpack(file, cursor)
        cursor = content + entry.length
        if cursor > checksum_offset:
            raise _footer_truncated("a SCRATCHPAD content", cursor, checksum_offset, content, path)
        if cursor - start > layout.MAX_SCRATCHPAD_BYTES:
            message = f"the SCRATCHPAD exceeds {layout.MAX_SCRATCHPAD_BYTES} bytes"
            raise _invalid(message, start, "scratchpad", path)
        entries.append(ScratchpadEntry(entry.code, bytes(file[content:cursor])))
    return entries, cursor


def _parse_covering_index(
    file: memoryview, start: int, checksum_offset: int, path: str | None
) -> tuple[npt.NDArray[np.void], int]:
    """Return the entries of the COVERING_INDEX at `start`, and its end."""
    count = _section_count(file, start, checksum_offset, "COVERING_INDEX", path)
    first = start + layout.COUNT.size
    stop = first + layout.COVERING_INDEX_ENTRY.size * count
    if stop > checksum_offset:
        raise _footer_truncated(f"{count} covering indexes", stop, checksum_offset, start, path)
    return np.frombuffer(file, layout.COVERING_INDEX_ENTRY.dtype, count, first), stop


_COUNTED = {"SCRATCHPAD": "SCRATCHPAD entries", "COVERING_INDEX": "covering indexes"}


def _section_count(file: memoryview, start: int, checksum_offset: int, section: str, path: str | None) -> int:
    """Return the count with which a section begins."""
    stop = start + layout.COUNT.size
    if stop > checksum_offset:
        raise _footer_truncated(f"the number of {_COUNTED[section]}", stop, checksum_offset, start, path)
    (count,) = layout.COUNT.unpack_from(file, start)
    if count == 0:
        raise _invalid(f"the {section} is present and has no entry", start, section.lower(), path)
    return int(count)


def _footer_truncated(what: str, needed: int, available: int, offset: int, path: str | None) -> FormatError:
    return FormatError(
        f"{what} would need {needed} bytes, but only {available} are there: the sidecar is damaged, or was cut off",
        kind="Truncated",
        path=path,
        offset=offset,
        field="footer",
    )
