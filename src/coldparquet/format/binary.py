"""Declares what binary formats share.

Runs of fields, the envelope of coldparquet's own files and byte planes; for QuestDB's files of a table (`_txn`, `_meta`,
`_cv`, `_name`, symbol files) their errors and their text, which is UTF-16.
"""

from __future__ import annotations

import struct
import zlib
from collections import namedtuple
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError

_STRUCT_CODES = {"u1": "B", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "b1": "?"}


class Record:
    """A run of little-endian fields without gaps: numpy reads many of them, ``struct`` is faster for one.

    Args:
        fields: Name and numpy type of each field, such as ``row_count="u8"``, in their order.
    """

    def __init__(self, **fields: str) -> None:
        self.dtype = np.dtype([(name, f"<{kind}") for name, kind in fields.items()])
        self.size = self.dtype.itemsize
        codes = (_STRUCT_CODES.get(kind) or f"{np.dtype(kind).itemsize}s" for kind in fields.values())
        self._struct = struct.Struct("<" + "".join(codes))
        self._fields: Any = namedtuple("Fields", fields)  # type: ignore[misc]  # noqa: PYI024  # the names are data
        self._offsets = {name: place for name, (_, place, *_) in (self.dtype.fields or {}).items()}

    def offset(self, field: str) -> int:
        """Return where a field begins."""
        return self._offsets[field]

    def unpack(self, buffer: bytes | bytearray | memoryview, offset: int = 0) -> Any:
        """Return the fields of the record at an offset, as attributes."""
        return self._fields._make(self._struct.unpack_from(buffer, offset))

    def pack(self, what: str, /, **values: Any) -> bytes:
        """Encode one record, given all of its fields.

        Raises:
            InvalidInputError: A number does not fit its field of `what`.
        """
        try:
            return self._struct.pack(*map(values.__getitem__, self._offsets))
        except struct.error as error:
            raise InvalidInputError(
                f"a number of {what} is out of its range: {error}", kind="InvalidValue", field=what
            ) from error


_MOST_BYTES_PER_COMPRESSED_BYTE = 1032
"""Deflate makes at most 258 bytes out of 2 bits."""


class Envelope:
    """What files in coldparquet's own formats share: magic bytes, version and CRC-32 at the begin, and what is refused.

    Args:
        magic: The first 8 bytes.
        version: The only version that is read.
        name: Name of the format.
        what: What a file of the format is called.
        remedy: What to do about a damaged one.
        largest_inflated_bytes: Limit of everything that is decompressed: zeros take a thousandth of their size.
        fields: Name and numpy type of each field of the header behind the first three.
    """

    def __init__(  # noqa: PLR0913 - the facts of a format, each by name
        self,
        magic: bytes,
        version: int,
        *,
        name: str,
        what: str,
        remedy: str,
        largest_inflated_bytes: int,
        **fields: str,
    ) -> None:
        self.magic, self.version = magic, version
        self.header = Record(magic="S8", version="u4", checksum="u4", **fields)
        self.remedy = remedy
        self._name, self._what = name, what
        self._largest_inflated_bytes = largest_inflated_bytes

    def encode(self, *covered: bytes, **fields: Any) -> bytes:
        """Encode the header, and what of the content follows it under the same checksum."""
        header = self.header.pack(self._name, magic=self.magic, version=self.version, checksum=0, **fields)
        content = b"".join((header[_PREAMBLE.size :], *covered))
        return (
            _PREAMBLE.pack(self._name, magic=self.magic, version=self.version, checksum=zlib.crc32(content)) + content
        )

    def parse_header(self, beginning: bytes, path: str | None) -> Any:
        """Return the fields of the header; nothing but magic bytes and version is checked."""
        if not self.is_header(beginning):
            raise FormatError(
                f"{len(beginning):,} bytes that do not begin as {self._what} does; {self.remedy}",
                kind="Truncated" if self.magic.startswith(beginning[: len(self.magic)]) else "InvalidValue",
                path=path,
                offset=0,
                field="magic",
            )
        header = self.header.unpack(beginning)
        if header.version != self.version:
            raise UnsupportedError(
                f"version {header.version} of the {self._name} format; this version of coldparquet reads {self.version}",
                kind="UnsupportedVersion",
                path=path,
            )
        return header

    def is_header(self, beginning: bytes) -> bool:
        """Tell whether bytes begin with a whole header."""
        return len(beginning) >= self.header.size and beginning.startswith(self.magic)

    def verify(self, covered: bytes | memoryview, stored: int, path: str | None) -> None:
        """Check the CRC-32 of the header's, over header and content as far as it is covered."""
        computed = zlib.crc32(memoryview(covered)[_PREAMBLE.size :])
        if computed != stored:
            message = f"its CRC-32 is {computed:#010x}, stored is {stored:#010x}"
            raise self.damaged(message, "checksum", path, offset=self.header.offset("checksum"))

    def most_bytes(self, compressed: bytes | memoryview) -> int:
        """Return the largest size that compressed bytes can have decompressed, as far as it is allowed."""
        return min(_MOST_BYTES_PER_COMPRESSED_BYTE * (len(compressed) + 1), self._largest_inflated_bytes)

    def inflate(self, data: bytes | memoryview, raw_bytes: int, what: str, path: str | None, *, field: str) -> bytes:
        """Decompress to exactly this size; sizes that the data cannot have, or above the limit, are not allocated."""
        if raw_bytes > self.most_bytes(data):
            raise self.invalid(f"{what} says {raw_bytes:,} bytes, compressed to {len(data):,}", field, path)
        inflater = zlib.decompressobj()
        try:
            # One byte more than expected, because 0 would mean no limit.
            raw = inflater.decompress(data, raw_bytes + 1)
        except zlib.error as error:
            raise self.invalid(f"{what} does not decompress: {error}", field, path) from error
        if len(raw) != raw_bytes or not inflater.eof or inflater.unused_data:
            raise self.invalid(f"{what} is not the {raw_bytes:,} bytes that it says", field, path)
        return raw

    def invalid(self, message: str, field: str, path: str | None, **details: Any) -> FormatError:
        """Make the error for a value that cannot be."""
        return FormatError(f"{message}; {self.remedy}", path=path, field=field, **{"kind": "InvalidValue", **details})

    def damaged(self, message: str, field: str, path: str | None, **details: Any) -> FormatError:
        """Make the error for bytes without the checksum that is stored."""
        return self.invalid(f"{message}: it is damaged", field, path, kind="ChecksumMismatch", **details)


_PREAMBLE = Record(magic="S8", version="u4", checksum="u4")
"""The bytes before the first one that the header's checksum covers."""


WORD_BYTES = 8
"""Bytes of a number, and so the number of planes."""


def to_byte_planes(numbers: npt.NDArray[np.int64]) -> bytes:
    """Write numbers, of shape ``(..., count)``, as eight planes of ``count`` bytes for each row.

    The lowest bytes of all numbers come first, then the next ones and so on. Similar numbers mostly have equal bytes in
    every plane, which compress well.
    """
    words = np.ascontiguousarray(numbers, dtype="<i8")
    return words.view(np.uint8).reshape(*numbers.shape, WORD_BYTES).swapaxes(-1, -2).tobytes()


def from_byte_planes(data: bytes | memoryview, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the numbers, of this shape, of which :func:`to_byte_planes` wrote these bytes."""
    *rows, count = shape
    planes = np.frombuffer(data, np.uint8).reshape(*rows, WORD_BYTES, count)
    words = np.ascontiguousarray(planes.swapaxes(-1, -2)).view("<i8")
    return words.reshape(shape).astype(np.int64)


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


class Utf8Strings(Struct, frozen=True, kw_only=True, eq=False):
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
