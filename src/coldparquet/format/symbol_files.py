"""Symbol dictionaries: `COLUMN.o` says where in `COLUMN.c` each string of a SYMBOL column lies.

    COLUMN.o    64 bytes header, then per symbol its offset in `COLUMN.c` as i64, then where the last one ends
    COLUMN.c    per symbol: number of UTF-16 units as i32, then the units

Both may be larger than their contents; the number of symbols that belong to a transaction is in `_txn`. The files lie
in the directory of the table, since all partitions share them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import UNVERSIONED
from coldparquet.format.table_file_errors import invalid, truncated
from coldparquet.format.utf16 import LENGTH, UNIT_BYTES, Utf8Strings, utf16_to_utf8
from coldparquet.ranges import ByteRange

OFFSETS_EXTENSION = "o"
CHARS_EXTENSION = "c"

_HEADER_BYTES = 64
_OFFSET_DTYPE = np.dtype("<i8")


def symbol_file_name(column_name: str, extension: str, name_txn: int) -> str:
    """Return the name of a symbol file, such as `side.o` or, in a version of its own, `side.o.12`.

    Args:
        column_name: The column's name at this time.
        extension: `OFFSETS_EXTENSION` or `CHARS_EXTENSION`.
        name_txn: `ColumnVersions.symbol_name_txn` of the column; -1 for a name without version.
    """
    name = f"{column_name}.{extension}"
    return name if name_txn == UNVERSIONED else f"{name}.{name_txn}"


def symbol_offsets_range(count: int) -> ByteRange:
    """Return where the offsets of the first `count` symbols lie in `COLUMN.o`.

    Raises:
        InvalidInputError: The count is negative.
    """
    if count < 0:
        raise InvalidInputError(f"{count} symbols; expected 0 or more")
    return ByteRange(_HEADER_BYTES, _HEADER_BYTES + _OFFSET_DTYPE.itemsize * (count + 1))


def parse_symbol_offsets(data: bytes | memoryview, count: int, *, path: str | None) -> npt.NDArray[np.int64]:
    """Parse the offsets of the first `count` symbols.

    Args:
        data: The bytes of `symbol_offsets_range(count)`.
        count: Symbols that belong to the transaction: `TableTransaction.symbol_counts`.
        path: `COLUMN.o`, for error messages.

    Returns:
        Offsets in `COLUMN.c`, shape (count + 1,): symbol k lies in `[offsets[k], offsets[k + 1])`. The range to fetch
        is `[0, offsets[count])`.

    Raises:
        FormatError: `Truncated`, or `InvalidValue` where the offsets do not ascend from 0 in even steps.
    """
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
    """Parse a dictionary; see `utf16_to_utf8` for text that UTF-8 cannot express.

    Args:
        chars: `COLUMN.c` from its first byte to `offsets[-1]`.
        offsets: From `parse_symbol_offsets`.
        path: `COLUMN.c`, for error messages.

    Returns:
        The strings, each at the place of its key. A small multiple of `chars` is allocated.

    Raises:
        FormatError: `Truncated`, or `InvalidValue` where a length does not agree with the offsets.
        UnsupportedError: More than 2 GiB of UTF-8 (kind `TooLarge`).
    """
    stop = int(offsets[-1])
    if len(chars) < stop:
        raise truncated(f"{len(offsets) - 1} symbols", stop, len(chars), offset=0, path=path)
    stored = np.frombuffer(chars, "<u2", stop // UNIT_BYTES).astype(np.uint16, copy=False)
    starts = offsets[:-1] // UNIT_BYTES
    # The offsets are even, but the lengths that lie at them have 32 bits.
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
