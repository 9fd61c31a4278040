"""Defines QuestDB's native column files: the layout of each type, symbol dictionaries, and `_cv`, which names versions.

Each column has a data file ``<name>.d`` and, for types of variable size, an auxiliary file ``<name>.i`` with the offset
of each value in the data file. Both have the suffix ``.<name txn>`` once a column has been rewritten. Row ``r`` is
entry ``r - top``: rows before the column's top, written before the column existed, have no bytes at all. Everything is
little-endian. Sources: notes section 3.3, and QuestDB's drivers of the types, checked byte by byte on genuine
partitions.

Symbol dictionaries: `COLUMN.o` has the offset of each string of a SYMBOL column in `COLUMN.c`.

    COLUMN.o    64 bytes header, then per symbol its offset in `COLUMN.c` as i64, then where the last one ends
    COLUMN.c    per symbol: number of UTF-16 units as i32, then the units

Both may be larger than their contents; the number of symbols that belong to a transaction is in `_txn`. The files are
in the directory of the table, since all partitions share them.

`_cv` says which version of each column file belongs to which partition, and where its values begin:

    header      40 bytes: version, then offset and size of area A and of area B; even versions live in A
    area        32 bytes per record, sorted by partition and column: partition timestamp, writer index, name txn, top

Two timestamps are not partitions. The least 64-bit integer marks the *default* of a column: its name txn, and as top
the partition in which it was added. The integer after it marks the name txn of its symbol files, where that differs.

Where a Parquet file holds a column, the file decides and not `_cv`: QuestDB 9.3.4 still records a column as absent from
a partition that was rewritten with it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format.binary import LENGTH, UNIT_BYTES, Utf8Strings, invalid, truncated, utf16_to_utf8
from coldparquet.format.partition_names import UNVERSIONED
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import distinct_values
from coldparquet.ranges import ByteRange

Mask: TypeAlias = "npt.NDArray[np.bool_]"
Offsets: TypeAlias = "npt.NDArray[np.int64]"

_LEAST = {width: -(1 << (8 * width - 1)) for width in (1, 2, 4, 8)}
"""Smallest signed integer of so many bytes: the null of most types."""

_VARCHAR_INLINED, _VARCHAR_NULL = 1, 4
"""Bits of a VARCHAR's header. Bit 1 says that the text is ASCII, which decoding need not know."""
_VARCHAR_FLAG_BITS = 4
MAX_INLINED_BYTES = 9
"""Longest VARCHAR that is stored in its auxiliary entry."""
INLINED_VALUE_OFFSET = 1
"""Offset of an inlined value in its entry."""
_OFFSET_BITS = 48


class NullRule(Enum):
    """How the null of a fixed-width type is distinguished from its values."""

    NEVER = "never"
    """There is none."""
    WORDS = "words"
    """One certain value."""
    NAN = "NaN"
    """Any NaN. Infinities are values, though QuestDB shows them as null."""
    NEGATIVE = "negative"
    """Any negative symbol key."""


class FixedLayout(Struct, frozen=True, kw_only=True):
    """Values of one width, one after the other in the data file."""

    word: str
    """numpy's name of the integers or floats that a value is made of."""
    words: int = 1
    """How many of them make one value."""
    null_rule: NullRule = NullRule.NEVER
    null_words: tuple[int, ...] = ()
    """The null, for ``NullRule.WORDS``."""

    @property
    def width_bytes(self) -> int:
        """Bytes per value."""
        return np.dtype(self.word).itemsize * self.words

    def is_null(self, values: npt.NDArray[Any]) -> Mask | None:
        """Tell which values are null; None where the type has no null."""
        match self.null_rule:
            case NullRule.NEVER:
                return None
            case NullRule.WORDS:
                # Word by word: comparing whole rows at once takes several times as long.
                is_null_word = [values[:, word] == null for word, null in enumerate(self.null_words)]
                return cast("Mask", reduce(np.logical_and, is_null_word))
            case NullRule.NAN:
                return cast("Mask", np.isnan(values[:, 0]))
            case NullRule.NEGATIVE:
                return values[:, 0] < 0


class EntryKind(Enum):
    """What an auxiliary file holds per row."""

    OFFSET = "offset"
    """An i64: where the value begins in the data file. One more entry than rows: the last one is where the data ends."""
    VARCHAR = "varchar"
    """Header with flags and length; up to 9 bytes of text, or the first 6 of them; 48 bits of offset."""
    ARRAY = "array"
    """48 bits of offset, 16 reserved ones, then the length in bytes as i32; 0 for null."""


class VariableLayout(Struct, frozen=True, kw_only=True):
    """Values of any length in the data file, and an auxiliary file with one entry per row."""

    entry_kind: EntryKind
    prefix_bytes: int = 0
    """Bytes of the length that precedes each value in the data file; negative for null."""
    unit_bytes: int = 1
    """What that length counts."""

    @property
    def entry_bytes(self) -> int:
        """Bytes per entry of the auxiliary file."""
        return 8 if self.entry_kind is EntryKind.OFFSET else 16

    @property
    def entries_after_last_row(self) -> int:
        """Entries that follow that of the last row and are needed to know where its value ends: 1 or 0."""
        return 1 if self.entry_kind is EntryKind.OFFSET else 0

    def parse(self, auxiliary: npt.NDArray[np.uint8]) -> VariableEntries:
        """Read whole entries of the auxiliary file, as many as there are."""
        entries = auxiliary.reshape(-1, self.entry_bytes)
        if self.entry_kind is EntryKind.OFFSET:
            offsets = entries.view("<i8")[:, 0]
            none = np.zeros(len(offsets), dtype=bool)
            return VariableEntries(offsets=offsets, lengths=np.zeros_like(offsets), is_null=none, is_inlined=none)
        if self.entry_kind is EntryKind.ARRAY:
            lengths = entries.view("<i4")[:, 2].astype(np.int64)
            offsets = entries.view("<i8")[:, 0] & ((1 << _OFFSET_BITS) - 1)
            is_null = lengths == 0
            return VariableEntries(offsets=offsets, lengths=lengths, is_null=is_null, is_inlined=np.zeros_like(is_null))
        headers = entries.view("<u4")[:, 0].astype(np.int64)
        offsets = (entries.view("<u8")[:, 1] >> np.uint64(64 - _OFFSET_BITS)).astype(np.int64)
        is_null = (headers & _VARCHAR_NULL) != 0
        is_inlined = ((headers & _VARCHAR_INLINED) != 0) & ~is_null
        lengths = np.where(is_inlined, (headers & 0xFF) >> _VARCHAR_FLAG_BITS, headers >> _VARCHAR_FLAG_BITS)
        return VariableEntries(
            offsets=offsets, lengths=np.where(is_null, 0, lengths), is_null=is_null, is_inlined=is_inlined
        )


class VariableEntries(Struct, frozen=True, kw_only=True, eq=False):
    """Entries of an auxiliary file, each array of shape ``(entries,)``."""

    offsets: Offsets
    """Offset of the value in the data file; where it would begin if it is null or inlined."""
    lengths: Offsets
    """Bytes of the value; 0 where it is null, and where only the data file knows (``EntryKind.OFFSET``)."""
    is_null: Mask
    """Always False for ``EntryKind.OFFSET``: there only the data file knows."""
    is_inlined: Mask

    @property
    def stops(self) -> Offsets:
        """End of the data up to and including the value, in the data file."""
        return self.offsets + np.where(self.is_inlined, 0, self.lengths)


def _integers(width_bytes: int, words: int = 1) -> FixedLayout:
    least = _LEAST[width_bytes]
    return FixedLayout(word=f"<i{width_bytes}", words=words, null_rule=NullRule.WORDS, null_words=(least,) * words)


def _geohash(width_bytes: int) -> FixedLayout:
    return FixedLayout(word=f"<i{width_bytes}", null_rule=NullRule.WORDS, null_words=(-1,))


def _wide_decimal(words: int) -> FixedLayout:
    null_words = (_LEAST[8], *(0,) * (words - 1))
    return FixedLayout(word="<i8", words=words, null_rule=NullRule.WORDS, null_words=null_words)


_LAYOUTS: dict[TypeTag, FixedLayout | VariableLayout] = {
    TypeTag.BOOLEAN: FixedLayout(word="<u1"),
    TypeTag.BYTE: FixedLayout(word="<i1"),
    TypeTag.SHORT: FixedLayout(word="<i2"),
    TypeTag.CHAR: FixedLayout(word="<u2"),
    TypeTag.INT: _integers(4),
    TypeTag.LONG: _integers(8),
    TypeTag.DATE: _integers(8),
    TypeTag.TIMESTAMP: _integers(8),
    TypeTag.FLOAT: FixedLayout(word="<f4", null_rule=NullRule.NAN),
    TypeTag.DOUBLE: FixedLayout(word="<f8", null_rule=NullRule.NAN),
    TypeTag.STRING: VariableLayout(entry_kind=EntryKind.OFFSET, prefix_bytes=4, unit_bytes=2),
    TypeTag.SYMBOL: FixedLayout(word="<i4", null_rule=NullRule.NEGATIVE),
    TypeTag.LONG256: _integers(8, words=4),
    TypeTag.GEOBYTE: _geohash(1),
    TypeTag.GEOSHORT: _geohash(2),
    TypeTag.GEOINT: _geohash(4),
    TypeTag.GEOLONG: _geohash(8),
    TypeTag.BINARY: VariableLayout(entry_kind=EntryKind.OFFSET, prefix_bytes=8),
    TypeTag.UUID: _integers(8, words=2),
    TypeTag.LONG128: _integers(8, words=2),
    TypeTag.IPV4: FixedLayout(word="<u4", null_rule=NullRule.WORDS, null_words=(0,)),
    TypeTag.VARCHAR: VariableLayout(entry_kind=EntryKind.VARCHAR),
    TypeTag.ARRAY: VariableLayout(entry_kind=EntryKind.ARRAY),
    TypeTag.DECIMAL8: _integers(1),
    TypeTag.DECIMAL16: _integers(2),
    TypeTag.DECIMAL32: _integers(4),
    TypeTag.DECIMAL64: _integers(8),
    TypeTag.DECIMAL128: _wide_decimal(2),
    TypeTag.DECIMAL256: _wide_decimal(4),
}
"""UUID: low word first. DECIMAL128 and DECIMAL256: highest word first, each word little-endian."""


def native_layout(tag: TypeTag) -> FixedLayout | VariableLayout:
    """Return how native partitions store a type."""
    return _LAYOUTS[tag]


def data_file_name(column: str, name_txn: int) -> str:
    """Return the name of a column's data file."""
    return _file_name(column, "d", name_txn)


def auxiliary_file_name(column: str, name_txn: int) -> str:
    """Return the name of the auxiliary file of a column of variable size; see :func:`data_file_name`."""
    return _file_name(column, "i", name_txn)


def _file_name(column: str, extension: str, name_txn: int) -> str:
    if not column or not {"/", "\\", "\0"}.isdisjoint(column):
        raise FormatError(
            f"the table has a column named {column!r}, which cannot be the name of a file; its _meta is damaged",
            kind="UnsafeName",
            field="name",
            column=column,
        )
    suffix = f".{name_txn}" if name_txn >= 0 else ""
    return f"{column}.{extension}{suffix}"


OFFSETS_EXTENSION = "o"
CHARS_EXTENSION = "c"

_HEADER_BYTES = 64
_OFFSET_DTYPE = np.dtype("<i8")


def symbol_file_name(column_name: str, extension: str, name_txn: int) -> str:
    """Return the name of a symbol file, such as `side.o` or, in a version of its own, `side.o.12`."""
    name = f"{column_name}.{extension}"
    return name if name_txn == UNVERSIONED else f"{name}.{name_txn}"


def symbol_offsets_range(count: int) -> ByteRange:
    """Return the range of the offsets of the first `count` symbols in `COLUMN.o`."""
    if count < 0:
        raise InvalidInputError(f"{count} symbols; expected 0 or more")
    return ByteRange(_HEADER_BYTES, _HEADER_BYTES + _OFFSET_DTYPE.itemsize * (count + 1))


def parse_symbol_offsets(data: bytes | memoryview, count: int, *, path: str | None) -> npt.NDArray[np.int64]:
    """Parse the offsets of the first `count` symbols."""
    expected_bytes = symbol_offsets_range(count).length_bytes
    if len(data) < expected_bytes:
        stop = _HEADER_BYTES + expected_bytes
        raise truncated(f"offsets of {count} symbols", stop, _HEADER_BYTES + len(data), offset=_HEADER_BYTES, path=path)
    offsets = np.frombuffer(data, _OFFSET_DTYPE, count + 1).astype(np.int64, copy=False)
    steps = np.diff(offsets)
    # A step between offsets that are not negative cannot overflow.
    bad = (steps < LENGTH.size) | (steps % UNIT_BYTES != 0) | (offsets[1:] < 0)
    if offsets[0] != 0 or bad.any():
        index = 0 if offsets[0] else int(bad.argmax()) + 1
        message = (
            f"offset {index} is {offsets[index]}; expected 0 first, then even steps of at least {LENGTH.size} bytes"
        )
        offset = _HEADER_BYTES + index * _OFFSET_DTYPE.itemsize
        raise invalid(message, offset=offset, field="symbol_offsets", path=path)
    return offsets


def parse_symbols(chars: bytes | memoryview, offsets: npt.NDArray[np.int64], *, path: str | None) -> Utf8Strings:
    """Parse a dictionary; see `utf16_to_utf8` for text that UTF-8 cannot express."""
    stop = int(offsets[-1])
    if len(chars) < stop:
        raise truncated(f"{len(offsets) - 1} symbols", stop, len(chars), offset=0, path=path)
    stored = np.frombuffer(chars, "<u2", stop // UNIT_BYTES).astype(np.uint16, copy=False)
    starts = offsets[:-1] // UNIT_BYTES
    # The offsets are even, but the lengths at these offsets have 32 bits.
    lengths = stored[starts].astype(np.int64) | stored[starts + 1].view(np.int16).astype(np.int64) << 16
    expected = (np.diff(offsets) - LENGTH.size) // UNIT_BYTES
    if (lengths != expected).any():
        index = int((lengths != expected).argmax())
        message = f"symbol {index} states {lengths[index]} UTF-16 units, its offsets leave room for {expected[index]}"
        raise invalid(message, offset=int(offsets[index]), field="symbol_length", path=path)
    is_text = np.ones(len(stored), np.bool_)
    is_text[starts] = False
    is_text[starts + 1] = False
    text_offsets = np.zeros(len(offsets), np.int64)
    np.cumsum(expected, out=text_offsets[1:])
    return utf16_to_utf8(stored[is_text], text_offsets)


_VERSIONS_HEADER = struct.Struct("<qqqqq")
"""Version; offset and size of area A, then of area B."""
_AREA_A_OFFSET = 8
_AREA_B_OFFSET = 24
COLUMN_VERSION = np.dtype([("timestamp", "<i8"), ("writer_index", "<i8"), ("name_txn", "<i8"), ("top", "<i8")])

DEFAULT_TIMESTAMP = -(1 << 63)
"""Timestamp of the record that holds for all partitions without one of their own."""
SYMBOL_FILES_TIMESTAMP = DEFAULT_TIMESTAMP + 1
"""Timestamp of the record that names the version of a column's symbol files."""
ABSENT_TOP = -1
"""What `ColumnVersions.columns` says for a column that a partition does not have."""


class ColumnVersion(Struct, frozen=True, kw_only=True):
    """The files of one column in one partition."""

    name_txn: int
    """Version in the names of the files, or -1 without one."""
    top: int | None
    """Rows of the partition from before the column existed, all of them null; None where it is absent altogether."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnVersions:
    """All records of a `_cv` file."""

    version: int
    """Equals `TableTransaction.column_version` of the transaction that it belongs to."""
    records: npt.NDArray[np.void]
    """`COLUMN_VERSION`, shape (records,), sorted by timestamp and then by writer index, no pair twice."""
    _by_writer_index: dict[int, npt.NDArray[np.void]] = field(init=False, repr=False)
    """The same by column: there may be hundreds of thousands, with a lookup for every column of every partition."""

    def __post_init__(self) -> None:
        by_column = self.records[np.argsort(self.records["writer_index"], kind="stable")]
        writer_indexes = distinct_values(by_column["writer_index"])
        firsts = np.searchsorted(by_column["writer_index"], writer_indexes)
        of_columns = np.split(by_column, firsts[1:]) if len(firsts) else []
        grouped = dict(zip(writer_indexes.tolist(), of_columns, strict=True))
        object.__setattr__(self, "_by_writer_index", grouped)

    def column(self, partition_timestamp: int, writer_index: int) -> ColumnVersion:
        """Return the version of one column in one partition, given by the timestamp of its `_txn` record."""
        name_txns, tops = self.columns(np.array([partition_timestamp], np.int64), writer_index)
        top = int(tops[0])
        return ColumnVersion(name_txn=int(name_txns[0]), top=None if top == ABSENT_TOP else top)

    def columns(
        self, partition_timestamps: npt.NDArray[np.int64], writer_index: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return name txns and tops of one column in many partitions."""
        records = self._of_column(writer_index)
        default_name_txn, added_in = UNVERSIONED, DEFAULT_TIMESTAMP
        if len(records) and records["timestamp"][0] == DEFAULT_TIMESTAMP:
            default_name_txn, added_in = int(records["name_txn"][0]), int(records["top"][0])
        name_txns = np.full(len(partition_timestamps), default_name_txn, np.int64)
        tops = np.where(partition_timestamps >= added_in, np.int64(0), np.int64(ABSENT_TOP))
        if len(records):
            places = np.searchsorted(records["timestamp"], partition_timestamps)
            own = records[np.minimum(places, len(records) - 1)]
            has_own = own["timestamp"] == partition_timestamps
            name_txns = np.where(has_own, own["name_txn"], name_txns)
            tops = np.where(has_own, np.maximum(own["top"], ABSENT_TOP), tops)
        return name_txns, tops

    def symbol_name_txn(self, writer_index: int) -> int:
        """Return the version in the names of a column's symbol files, or -1 without one."""
        records = self._of_column(writer_index)
        special = records[records["timestamp"] <= SYMBOL_FILES_TIMESTAMP]
        # Sorted by time: the record of the symbol files, where there is one, follows the default.
        return int(special["name_txn"][-1]) if len(special) else UNVERSIONED

    def _of_column(self, writer_index: int) -> npt.NDArray[np.void]:
        """Return the records of one column, sorted by timestamp."""
        return self._by_writer_index.get(writer_index, self.records[:0])


def parse_column_versions(data: bytes | memoryview, *, path: str | None) -> ColumnVersions:
    """Parse the live area of a `_cv` file. A fresh file holds nothing but zeros: version 0 without records."""
    view = memoryview(data).cast("B")
    if len(view) < _VERSIONS_HEADER.size:
        raise truncated("header", _VERSIONS_HEADER.size, len(view), offset=0, path=path)
    version, *areas = _VERSIONS_HEADER.unpack_from(view)
    if version < 0:
        raise invalid(f"version {version} is negative", offset=0, field="version", path=path)
    described_at = _AREA_B_OFFSET if version & 1 else _AREA_A_OFFSET
    start, length_bytes = areas[2:] if version & 1 else areas[:2]
    if length_bytes < 0 or length_bytes % COLUMN_VERSION.itemsize:
        message = f"{length_bytes} bytes of records; expected a multiple of {COLUMN_VERSION.itemsize}"
        raise invalid(message, offset=described_at + 8, field="area_bytes", path=path)
    if length_bytes == 0:
        return ColumnVersions(version=version, records=np.empty(0, COLUMN_VERSION))
    if start < _VERSIONS_HEADER.size:
        message = f"the area begins at {start}, inside the header of {_VERSIONS_HEADER.size} bytes"
        raise invalid(message, offset=described_at, field="area_offset", path=path)
    if start + length_bytes > len(view):
        raise truncated("area", start + length_bytes, len(view), offset=described_at, path=path)
    records = np.frombuffer(view, COLUMN_VERSION, length_bytes // COLUMN_VERSION.itemsize, start)
    _check_order(records, start, path)
    return ColumnVersions(version=version, records=records)


def _check_order(records: npt.NDArray[np.void], start: int, path: str | None) -> None:
    earlier, later = records[:-1], records[1:]
    in_order = (earlier["timestamp"] < later["timestamp"]) | (
        (earlier["timestamp"] == later["timestamp"]) & (earlier["writer_index"] < later["writer_index"])
    )
    if not in_order.all():
        index = int(in_order.argmin()) + 1
        message = f"record {index} does not follow the one before it by timestamp and column"
        raise invalid(message, offset=start + index * COLUMN_VERSION.itemsize, field="records", path=path)


def encode_column_versions(versions: ColumnVersions) -> bytes:
    """Write a fresh `_cv` file with one area."""
    area = versions.records.astype(COLUMN_VERSION).tobytes()
    described = (_VERSIONS_HEADER.size, len(area)) if area else (0, 0)
    areas = (0, 0, *described) if versions.version & 1 else (*described, 0, 0)
    encoded = _VERSIONS_HEADER.pack(versions.version, *areas) + area
    try:
        parse_column_versions(encoded, path=None)
    except FormatError as error:
        raise InvalidInputError(f"this would not be a valid _cv file: {error.message}") from error
    return encoded
