"""Declares fixed runs of fields in binary formats, once for all readers and writers of them."""

from __future__ import annotations

import struct
from collections import namedtuple
from typing import Any

import numpy as np

from coldparquet.errors import InvalidInputError

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
        self._fields = namedtuple("Fields", fields)  # type: ignore[misc]  # noqa: PYI024  # the names are data
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
