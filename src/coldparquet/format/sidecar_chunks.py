"""Provides the chunks of one column over all row groups, as numpy arrays for planning.

Planning reads the same few fields of a few columns for every row group. Blocks start at multiples of 8 and a chunk is
eight u64 words, so the chunks of a column are one gather of records; no Python object per chunk exists.

A `RowGroupTable` has row groups with their columns, chunks and statistics. One sidecar is such a table. So is a stack
of several (:mod:`coldparquet.format.sidecar`), so the same few array operations plan thousands of partitions as one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.sidecar_header import ColumnDescriptor, SidecarHeader, parse_column, parse_name
from coldparquet.format.types import ColumnType, is_of_nested, parse_part, resolve_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coldparquet.format.sidecar_header import ColumnSchema


_Scalar = TypeVar("_Scalar", bound=np.generic)

_LARGEST_I64 = np.uint64((1 << 63) - 1)


class BlockTable(Struct, frozen=True, kw_only=True, eq=False):
    """The places of the blocks of one or several snapshots; checked to be inside the file before any gather."""

    file: memoryview
    """The sidecar up to the size of the snapshot; several one behind the other, each at a whole word."""
    words: npt.NDArray[np.uint64]
    """The same bytes as little-endian words, without the last incomplete one, which no chunk reaches."""
    first_words: npt.NDArray[np.int64]
    """Word at which each block begins, shape (row groups,)."""
    snapshot_starts: npt.NDArray[np.int64]
    """Byte at which the snapshot of each block begins, shape (row groups,): 0 but where several are joined."""
    snapshot_stops: npt.NDArray[np.int64]
    """Byte at which the snapshot of each block ends, shape (row groups,): no bound reaches behind it."""
    column_count: int
    path: str | None

    @property
    def row_counts(self) -> npt.NDArray[np.uint64]:
        """Rows of each row group as stored, with which its block begins."""
        return self.words[self.first_words]

    def chunks(self, row_groups: npt.NDArray[np.intp] | slice, columns: npt.NDArray[np.intp]) -> npt.NDArray[np.void]:
        """Return some chunks as stored: `sidecar_layout.COLUMN_CHUNK`, shape (row groups, columns)."""
        # A view of the chunk that would begin at each word. Opaque, since numpy copies fields one by one.
        count = max(len(self.words) - layout.CHUNK_WORDS + 1, 0)
        chunk = f"V{layout.COLUMN_CHUNK.size}"
        chunks: npt.NDArray[np.void] = np.ndarray((count,), chunk, self.words, strides=(layout.WORD_BYTES,))
        first_words = self.first_words[row_groups, np.newaxis]
        return _read_only(chunks[first_words + (1 + layout.CHUNK_WORDS * columns)].view(layout.COLUMN_CHUNK.dtype))

    def chunk_field(self, field: str, column: int | None = None) -> npt.NDArray[Any]:
        """Return one field as stored, of every chunk, shape (row groups, columns), or of a column's, shape (row groups,)."""
        # A view of the chunks of the block that would begin at each word.
        reach_words = 1 + layout.CHUNK_WORDS * self.column_count
        shape = (max(len(self.words) - reach_words + 1, 0), self.column_count)
        strides = (layout.WORD_BYTES, layout.COLUMN_CHUNK.size)
        offset = layout.WORD_BYTES + layout.COLUMN_CHUNK.offset(field)
        kind = layout.COLUMN_CHUNK.dtype[field]
        fields: npt.NDArray[Any] = np.ndarray(shape, kind, self.words, offset if shape[0] else 0, strides)
        return _read_only(fields[self.first_words] if column is None else fields[self.first_words, column])

    def offset_of(self, row_group: int, column: int, field: str) -> int:
        """Return the byte offset in the file of one field of one chunk."""
        chunk = layout.WORD_BYTES * int(self.first_words[row_group]) + layout.block_bytes(column)
        return chunk + layout.COLUMN_CHUNK.offset(field)

    def counts(self, values: npt.NDArray[np.uint64], field: str, column: int | None = None) -> npt.NDArray[np.int64]:
        """Return numbers of every block, or of the chunks of a column, as signed ones."""
        if len(values) and values.max() > _LARGEST_I64:
            row_group = int(values.argmax())
            block = layout.WORD_BYTES * int(self.first_words[row_group])
            raise FormatError(
                f"{field} of row group {row_group} is {int(values[row_group])}, beyond any file",
                kind="InvalidValue",
                path=self.path,
                offset=block if column is None else self.offset_of(row_group, column, field),
                field=field,
                row_group=row_group,
            )
        return values.view(np.int64)


class ChunkColumn:
    """The chunks of one column: each property is an array over the row groups, made on first use and read-only.

    Args:
        blocks: The blocks of the snapshot.
        column_index: A column that exists.
    """

    def __init__(self, blocks: BlockTable, column_index: int) -> None:
        self._blocks = blocks
        self.column_index = column_index

    @property
    def stored(self) -> npt.NDArray[np.void]:
        """The chunks as stored and unchecked: `sidecar_layout.COLUMN_CHUNK`, shape (row groups,). Copied by each use."""
        return self._blocks.chunks(slice(None), np.array([self.column_index], np.intp))[:, 0]

    @cached_property
    def codec(self) -> npt.NDArray[np.uint8]:
        """Compression codec as stored; numbers above 7 are not Parquet codecs."""
        return self._field("codec")

    @cached_property
    def encodings(self) -> npt.NDArray[np.uint8]:
        """Mask of `sidecar_layout.ENCODING_*`."""
        return self._field("encodings")

    @cached_property
    def num_values(self) -> npt.NDArray[np.int64]:
        """Number of values, nulls included; for arrays not the number of rows."""
        return self._count("num_values")

    @cached_property
    def byte_range_start(self) -> npt.NDArray[np.int64]:
        """First byte of the chunk in the Parquet file."""
        return self._count("byte_range_start")

    @cached_property
    def total_compressed_bytes(self) -> npt.NDArray[np.int64]:
        """Length of the chunk in the Parquet file."""
        return self._count("total_compressed")

    @cached_property
    def has_bytes(self) -> bool:
        """Whether any chunk lies in the Parquet file; a column that the file's path states has none."""
        return bool(self.total_compressed_bytes.any())

    @cached_property
    def null_count(self) -> npt.NDArray[np.int64]:
        """Number of nulls; 0 where it is unknown."""
        return self._count("null_count", self.has_null_count)

    @cached_property
    def has_null_count(self) -> npt.NDArray[np.bool_]:
        """Whether the number of nulls is known."""
        return _have(self._field("stat_flags"), layout.STAT_NULL_COUNT_PRESENT)

    @cached_property
    def distinct_count(self) -> npt.NDArray[np.int64]:
        """Number of distinct values; 0 where it is unknown."""
        return self._count("distinct_count", self.has_distinct_count)

    @cached_property
    def has_distinct_count(self) -> npt.NDArray[np.bool_]:
        """Whether the number of distinct values is known."""
        return _have(self._field("stat_flags"), layout.STAT_DISTINCT_COUNT_PRESENT)

    @cached_property
    def min(self) -> RawBounds:
        """Lower bounds."""
        return RawBounds(self._blocks, self.column_index, is_max=False)

    @cached_property
    def max(self) -> RawBounds:
        """Upper bounds."""
        return RawBounds(self._blocks, self.column_index, is_max=True)

    def _field(self, field: str) -> npt.NDArray[Any]:
        return self._blocks.chunk_field(field, self.column_index)

    def _count(self, field: str, known: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.int64]:
        if known is not None and not known.any():
            return _read_only(np.zeros(len(known), np.int64))
        counts = self._blocks.counts(self._field(field), field, self.column_index)
        return _read_only(counts if known is None else np.where(known, counts, 0))


class RawBounds:
    """One side's bounds of one column over all row groups, as raw bytes.

    The meaning of the bytes depends on the column's physical type. Numbers of up to 8 bytes are read from `raw` where
    `inlined`; byte strings through `prefix_words`, or one by one through `bytes_at`. Inexact bounds still bound the
    data.

    Args:
        blocks: The blocks of the snapshot.
        column_index: A column that exists.
        is_max: Whether this is the upper side.
    """

    def __init__(self, blocks: BlockTable, column_index: int, *, is_max: bool) -> None:
        self._blocks = blocks
        self._column_index = column_index
        self._is_max = is_max

    @cached_property
    def raw(self) -> npt.NDArray[np.uint64]:
        """The stored word: the bytes in little-endian order, or the reference to out-of-line bytes."""
        return self._blocks.chunk_field("max" if self._is_max else "min", self._column_index)

    @cached_property
    def _flags(self) -> npt.NDArray[np.uint8]:
        """The three flags of this side in the low bits."""
        flags: npt.NDArray[np.uint8] = self._blocks.chunk_field("stat_flags", self._column_index)
        return flags >> np.uint8(layout.STAT_MAX_SHIFT) if self._is_max else flags

    @cached_property
    def inline_size(self) -> npt.NDArray[np.uint8]:
        """Byte length of inline bounds as stored; only byte strings need it, and it may be wrong."""
        sizes: npt.NDArray[np.uint8] = self._blocks.chunk_field("stat_sizes", self._column_index)
        return sizes >> np.uint8(layout.STAT_SIZE_BITS) if self._is_max else sizes & np.uint8(0x0F)

    @cached_property
    def present(self) -> npt.NDArray[np.bool_]:
        """Whether a bound is stored. Its bytes may still be missing, see `bytes_at`."""
        return _have(self._flags, layout.STAT_PRESENT)

    @cached_property
    def inlined(self) -> npt.NDArray[np.bool_]:
        """Whether `raw` holds the bytes themselves; false where no bound is stored."""
        return _have(self._flags, layout.STAT_PRESENT | layout.STAT_INLINED)

    @cached_property
    def exact(self) -> npt.NDArray[np.bool_]:
        """Whether the bound is a value of the chunk; false where no bound is stored."""
        return _have(self._flags, layout.STAT_PRESENT | layout.STAT_EXACT)

    def bytes_at(self, row_group: int) -> bytes | None:
        """Return the bytes of one bound; None when it is absent, of length 0, or its reference is invalid."""
        if not self.present[row_group]:
            return None
        word = int(self.raw[row_group])
        if self.inlined[row_group]:
            size = int(self.inline_size[row_group])
            return word.to_bytes(layout.WORD_BYTES, "little")[:size] if 0 < size <= layout.MAX_INLINE_BYTES else None
        length = word & layout.MAX_OUT_OF_LINE_BYTES
        start = int(self._out_of_line_starts(row_group)) + (word >> layout.OUT_OF_LINE_LENGTH_BITS)
        if length == 0 or start + length > self._blocks.snapshot_stops[row_group]:
            return None
        return bytes(self._blocks.file[start : start + length])

    def prefix_words(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return the bounds as byte strings that compare as numbers."""
        inline_size = self.inline_size.astype(np.int64)
        usable_inline = self.inlined & (inline_size > 0) & (inline_size <= layout.MAX_INLINE_BYTES)
        lengths = np.where(usable_inline, inline_size, -1)
        prefixes = self.raw.byteswap()
        rows = np.flatnonzero(self.present & ~self.inlined)
        if len(rows):
            self._fetch_out_of_line(rows, prefixes, lengths)
        used_bits = np.clip(lengths, 0, layout.WORD_BYTES).astype(np.uint64) * np.uint64(8)
        # Shifting a word by all its 64 bits is undefined, hence two shifts for the bytes to blank.
        blank = (~np.uint64(0) >> (used_bits >> np.uint64(1))) >> (used_bits - (used_bits >> np.uint64(1)))
        return prefixes & ~blank, lengths

    def _out_of_line_starts(self, row_groups: int | npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return where the out-of-line bytes of blocks begin in the file: behind their chunks."""
        first_words = self._blocks.first_words[row_groups]
        return first_words * layout.WORD_BYTES + layout.block_bytes(self._blocks.column_count)

    def _fetch_out_of_line(
        self, rows: npt.NDArray[np.intp], prefixes: npt.NDArray[np.uint64], lengths: npt.NDArray[np.int64]
    ) -> None:
        """Fill in the bounds of the row groups `rows`, which are out of line at any alignment."""
        file = np.frombuffer(self._blocks.file, np.uint8)
        references = self.raw[rows]
        row_lengths = (references & np.uint64(layout.MAX_OUT_OF_LINE_BYTES)).astype(np.int64)
        # At most 2**48 plus an offset in the file: no overflow.
        starts = (references >> np.uint64(layout.OUT_OF_LINE_LENGTH_BITS)).astype(np.int64)
        starts += self._out_of_line_starts(rows)
        inside = (row_lengths > 0) & (starts + row_lengths <= self._blocks.snapshot_stops[rows])
        rows, starts = rows[inside], starts[inside]
        lengths[rows] = row_lengths[inside]
        # The last bound of a file may be nearer to its end than 8 bytes; the excess bytes are blanked out later.
        positions = np.minimum(starts[:, None] + np.arange(layout.WORD_BYTES), len(file) - 1)
        prefixes[rows] = file[positions].view(">u8")[:, 0]


def _have(flags: npt.NDArray[np.uint8], mask: int) -> npt.NDArray[np.bool_]:
    return _read_only(np.equal(flags & np.uint8(mask), mask))


def _read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    array.flags.writeable = False
    return array


class RowGroupTable(ABC):
    """Row groups of the same columns. Descriptors, names and chunk fields are read on first use.

    Args:
        file: A sidecar that describes the columns.
        header: Its header.
        path: The sidecar, for error messages; None where there are several.

    Attributes:
        header: Valid for all of them.
        path: As above.
    """

    def __init__(self, file: memoryview, header: SidecarHeader, *, path: str | None) -> None:
        self._description = file
        self._chunks: dict[int, ChunkColumn] = {}
        self.header = header
        self.path = path

    @property
    @abstractmethod
    def schema(self) -> ColumnSchema:
        """The schema shared by all tables with equal column descriptions."""

    @property
    @abstractmethod
    def blocks(self) -> BlockTable:
        """The places of the row groups' blocks, for raw access; plans use `row_counts` and `chunks`."""

    @property
    @abstractmethod
    def data_stops(self) -> npt.NDArray[np.uint64]:
        """End of the Parquet data, and start of the footer, for each row group, as stored, shape (row groups,)."""

    @property
    @abstractmethod
    def foreign_annotations(self) -> Mapping[int, str]:
        """Annotations of columns whose Arrow type does not follow from their type code; empty for QuestDB's files."""

    @property
    @abstractmethod
    def is_writer_known(self) -> bool:
        """Whether the writer is recorded, or QuestDB; if not, the files may have the errors of old writers."""

    @property
    @abstractmethod
    def bloom_columns(self) -> tuple[int, ...]:
        """Indexes of the columns that may have bloom filters, ascending."""

    @abstractmethod
    def stored_blooms(self, column_index: int) -> npt.NDArray[Any]:
        """Return the bloom entries of one of the `bloom_columns` as stored, shape (row groups,); 0 where there is no filter.

        `BLOOM_REFERENCE_DTYPE` when `blooms_external`, otherwise `BLOOM_OFFSET_DTYPE`.
        """

    @property
    def blooms_external(self) -> bool:
        """Whether bloom filters are in the Parquet file and not in the sidecar."""
        return self.header.blooms_external

    @property
    def row_group_count(self) -> int:
        """Number of row groups."""
        return len(self.blocks.first_words)

    @property
    def column_count(self) -> int:
        """Number of leaf columns."""
        return self.header.column_count

    @cached_property
    def row_counts(self) -> npt.NDArray[np.int64]:
        """Rows of each row group, shape (row groups,)."""
        return _read_only(self.blocks.counts(self.blocks.row_counts, "num_rows"))

    @cached_property
    def columns(self) -> tuple[ColumnDescriptor, ...]:
        """All column descriptors; see `column` for possible errors."""
        return tuple(self.column(index) for index in range(self.column_count))

    def column(self, index: int) -> ColumnDescriptor:
        """Return one column descriptor."""
        descriptors = self.schema.descriptors
        column = descriptors.get(index)
        if column is None:
            self._check_column(index)
            column = descriptors[index] = parse_column(self._description, index, path=self.path)
        return column

    def column_type(self, index: int) -> ColumnType:
        """Return the type with which a column is stored."""
        column, types = self.column(index), self.schema.types
        column_type = types.get(index)
        if column_type is None:
            column_type = types[index] = resolve_type(
                column.type_code,
                column.physical_type,
                column.fixed_byte_length,
                column.max_rep_level,
                self.foreign_annotations.get(index),
            )
        return column_type

    @property
    def places(self) -> Sequence[int]:
        """Indexes of the columns that a table has, ascending: of a nested column only its first leaf."""
        return self._leaves_of_places[0]

    def leaves_of(self, places: Iterable[int]) -> list[int]:
        """Return the indexes of all leaves of some columns, given their places."""
        of_nested = self._leaves_of_places[1]
        return [leaf for place in places for leaf in of_nested.get(place, (place,))]

    @property
    def nested(self) -> frozenset[int]:
        """Indexes of all leaves of nested columns: their values, nulls and pages do not count rows."""
        return frozenset(
            index
            for index, annotation in self.foreign_annotations.items()
            if is_of_nested(annotation) and index < self.column_count
        )

    @cached_property
    def _leaves_of_places(self) -> tuple[Sequence[int], Mapping[int, Sequence[int]]]:
        parts = {
            index: part[0]
            for index, annotation in self.foreign_annotations.items()
            if (part := parse_part(annotation)) is not None and part[0] < index < self.column_count
        }
        if not parts:
            return range(self.column_count), {}
        leaves = {first: [first] for first in parts.values()}
        for index in sorted(parts):
            leaves[parts[index]].append(index)
        places = tuple(index for index in range(self.column_count) if index not in parts)
        return places, leaves

    def column_index(self, name: str) -> int | None:
        """Return the index of the column with exactly this name, the first one if several have it, else None."""
        return self._index_by_name.get(name)

    @cached_property
    def _index_by_name(self) -> dict[str, int]:
        by_name: dict[str, int] = {}
        for index in self.places:
            by_name.setdefault(parse_name(self._description, index, path=self.path), index)
        return by_name

    @cached_property
    def repeated_names(self) -> frozenset[str]:
        """Names that several columns have."""
        if len(self._index_by_name) == len(self.places):
            return frozenset()
        names = Counter(parse_name(self._description, index, path=self.path) for index in self.places)
        return frozenset(name for name, count in names.items() if count > 1)

    @cached_property
    def designated_timestamp(self) -> int | None:
        """Index of the column that orders the table's rows in time, or None."""
        index = self.header.designated_timestamp
        if index is not None:
            self._check_stored_index(index, "designated_timestamp")
        return index

    @cached_property
    def sorting_columns(self) -> tuple[int, ...]:
        """Indexes of the columns by which the rows are sorted; each descriptor tells whether it is `descending`."""
        indexes = self.header.sorting_columns
        if indexes:
            self._check_stored_index(max(indexes), "sorting_columns")
        return indexes

    def chunks(self, column_index: int) -> ChunkColumn:
        """Return the chunks of one column over all row groups."""
        chunks = self._chunks.get(column_index)
        if chunks is None:
            self._check_column(column_index)
            chunks = self._chunks[column_index] = ChunkColumn(self.blocks, column_index)
        return chunks

    def _check_column(self, index: int) -> None:
        if not 0 <= index < self.column_count:
            raise InvalidInputError(
                f"no column {index} among {self.column_count}", kind="UnknownColumn", path=self.path
            )

    def _check_stored_index(self, index: int, field: str) -> None:
        if index >= self.column_count:
            raise FormatError(
                f"{field} names column {index}, but there are {self.column_count}",
                kind="InvalidValue",
                path=self.path,
                offset=16,
                field=field,
            )
