"""Defines QuestDB's native column files: the layout of each column type, and of symbol dictionaries.

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
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format.partition_names import UNVERSIONED
from coldparquet.format.table_file_text import LENGTH, UNIT_BYTES, Utf8Strings, invalid, truncated, utf16_to_utf8
from coldparquet.format.type_codes import TypeTag
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLayout:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableLayout:
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VariableEntries:
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
