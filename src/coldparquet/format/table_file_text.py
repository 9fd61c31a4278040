"""Handles text and errors of a table's own files (`_txn`, `_meta`, `_cv`, `_name`, symbol files): QuestDB's UTF-16."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coldparquet.errors import FormatError, UnsupportedError


def truncated(what: str, needed_bytes: int, available_bytes: int, *, offset: int, path: str | None) -> FormatError:
    """Return the error for a part of a file that ends before it is complete."""
    return FormatError(
        f"{what} would end at byte {needed_bytes}, but there are {available_bytes} bytes; fetch the whole file again",
        kind="Truncated",
        path=path,
        offset=offset,
        field=what,
        needed_bytes=needed_bytes,
        available_bytes=available_bytes,
    )


def invalid(message: str, *, offset: int, field: str, path: str | None) -> FormatError:
    """Return the error for an invalid value, in a file or, without a path, in a file to be written."""
    remedy = "" if path is None else "; the file is damaged: copy it from the database again"
    return FormatError(f"{message}{remedy}", kind="InvalidValue", path=path, offset=offset, field=field)


LENGTH = struct.Struct("<i")
"""Number of UTF-16 units that follow."""
UNIT_BYTES = 2

_REPLACEMENT_UNIT = 0xFFFD
_LARGEST_ARROW_OFFSET = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Utf8Strings:
    """Strings as Arrow lays them out: string k is `utf8[offsets[k]:offsets[k + 1]]`."""

    utf8: bytes
    offsets: npt.NDArray[np.int32]
    """Shape (strings + 1,)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


def parse_name(view: memoryview, offset: int, *, longest_units: int, field: str, path: str | None) -> tuple[str, int]:
    """Parse the name of a column or of a table. Files are named after it, so it must not lead out of a directory."""
    start = offset + LENGTH.size
    if start > len(view):
        raise truncated(f"length of {field}", start, len(view), offset=offset, path=path)
    (units,) = LENGTH.unpack_from(view, offset)
    if not 0 < units <= longest_units:
        message = f"{field} of {units} UTF-16 units; expected 1 to {longest_units}"
        raise invalid(message, offset=offset, field=field, path=path)
    stop = start + UNIT_BYTES * units
    if stop > len(view):
        raise truncated(field, stop, len(view), offset=offset, path=path)
    try:
        name = str(view[start:stop], "utf-16-le")
    except UnicodeDecodeError as error:
        raise invalid(f"{field} is not UTF-16: {error.reason}", offset=start, field=field, path=path) from None
    if name == "." or ".." in name or any(character in "/\\\x7f" or character < " " for character in name):
        message = f"{name!r} is no {field}: it must not hold '..', path separators or control characters"
        raise invalid(message, offset=start, field=field, path=path)
    return name, stop


def encode_name(name: str) -> bytes:
    """Return a name with its length before it. Lone surrogates raise `UnicodeEncodeError`."""
    encoded = name.encode("utf-16-le")
    return LENGTH.pack(len(encoded) // UNIT_BYTES) + encoded


def utf16_to_utf8(units: npt.NDArray[np.uint16], offsets: npt.NDArray[np.int64]) -> Utf8Strings:
    """Convert many strings at once.

    A surrogate without its other half becomes U+FFFD. QuestDB stores such text, for example where `left()` cuts an
    emoji in half, and prints a question mark for it. UTF-8 cannot represent it, and one such value should not make a
    whole column unreadable.
    """
    if not (units >= 0x80).any():
        return _strings(units.astype(np.uint8).tobytes(), offsets)
    is_low = (units & 0xFC00) == 0xDC00
    is_high = (units & 0xFC00) == 0xD800
    is_first = np.zeros(len(units) + 1, np.bool_)
    is_first[offsets] = True
    pairs_with_next = np.zeros(len(units), np.bool_)
    pairs_with_next[:-1] = is_high[:-1] & is_low[1:] & ~is_first[1:-1]
    is_paired = pairs_with_next.copy()
    is_paired[1:] |= pairs_with_next[:-1]
    valid = np.where((is_low | is_high) & ~is_paired, np.uint16(_REPLACEMENT_UNIT), units)
    # A pair takes four bytes of UTF-8: two for each half.
    utf8_bytes = np.ones(len(units), np.uint8)
    utf8_bytes[valid >= 0x80] = 2
    utf8_bytes[(valid >= 0x800) & ~is_paired] = 3
    # Empty strings are left out of the sums: `reduceat` would give each one the unit behind it.
    is_filled = offsets[:-1] < offsets[1:]
    lengths = np.zeros(len(offsets) - 1, np.int64)
    lengths[is_filled] = np.add.reduceat(utf8_bytes, offsets[:-1][is_filled], dtype=np.int64)
    utf8_offsets = np.zeros(len(offsets), np.int64)
    np.cumsum(lengths, out=utf8_offsets[1:])
    return _strings(valid.astype("<u2").tobytes().decode("utf-16-le").encode(), utf8_offsets)


def _strings(utf8: bytes, offsets: npt.NDArray[np.int64]) -> Utf8Strings:
    if len(utf8) > _LARGEST_ARROW_OFFSET:
        raise UnsupportedError(
            f"{len(utf8)} bytes of text in one array; Arrow's string type holds {_LARGEST_ARROW_OFFSET}",
            kind="TooLarge",
        )
    return Utf8Strings(utf8=utf8, offsets=offsets.astype(np.int32))
