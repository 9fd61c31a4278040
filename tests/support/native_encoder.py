"""Column files of native partitions written value by value, as QuestDB does: slow, and independent of what reads them."""

from __future__ import annotations

import math
import struct
from decimal import Context
from typing import TYPE_CHECKING, Any

from coldparquet.format.native import auxiliary_file_name, data_file_name
from coldparquet.format.type_codes import TypeTag, is_decimal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from coldparquet.plan.native import NativeColumn

_STRUCTS = {
    TypeTag.BOOLEAN: ("<?", False),
    TypeTag.BYTE: ("<b", 0),
    TypeTag.SHORT: ("<h", 0),
    TypeTag.CHAR: ("<H", 0),
    TypeTag.INT: ("<i", -(1 << 31)),
    TypeTag.LONG: ("<q", -(1 << 63)),
    TypeTag.DATE: ("<q", -(1 << 63)),
    TypeTag.TIMESTAMP: ("<q", -(1 << 63)),
    TypeTag.FLOAT: ("<f", math.nan),
    TypeTag.DOUBLE: ("<d", math.nan),
    TypeTag.SYMBOL: ("<i", -(1 << 31)),
    TypeTag.GEOBYTE: ("<b", -1),
    TypeTag.GEOSHORT: ("<h", -1),
    TypeTag.GEOINT: ("<i", -1),
    TypeTag.GEOLONG: ("<q", -1),
    TypeTag.IPV4: ("<I", 0),
}
"""Format of a value and what stands for null, for types whose values are numbers."""

_DECIMAL_BYTES = {
    TypeTag.DECIMAL8: 1,
    TypeTag.DECIMAL16: 2,
    TypeTag.DECIMAL32: 4,
    TypeTag.DECIMAL64: 8,
    TypeTag.DECIMAL128: 16,
    TypeTag.DECIMAL256: 32,
}
_EXACT = Context(prec=100)
_NULL_LONG = struct.pack("<q", -(1 << 63))


def encode_column(column: NativeColumn, values: Sequence[Any]) -> dict[str, bytes]:
    """Write the files of a column.

    Args:
        column: Its name and type.
        values: One per row behind the top: what Arrow's ``as_py`` gives; integers for CHAR, dates, timestamps and
            symbols (keys), lists for arrays, big-endian bytes for UUID.

    Returns:
        Content by file name.
    """
    tag = column.type.tag
    data_name = data_file_name(column.name, column.name_txn)
    auxiliary_name = auxiliary_file_name(column.name, column.name_txn)
    if tag in {TypeTag.STRING, TypeTag.BINARY}:
        auxiliary, data = _prefixed(tag, values)
        return {auxiliary_name: auxiliary, data_name: data}
    if tag is TypeTag.VARCHAR:
        auxiliary, data = _varchars(values)
        return {auxiliary_name: auxiliary, data_name: data}
    if tag is TypeTag.ARRAY:
        auxiliary, data = _arrays(values, column.type.arrow.dimensions)
        return {auxiliary_name: auxiliary, data_name: data}
    return {data_name: b"".join(_fixed(tag, column.type.arrow.scale, value) for value in values)}


def _fixed(tag: TypeTag, scale: int, value: Any) -> bytes:
    if tag in _STRUCTS:
        layout, null = _STRUCTS[tag]
        return struct.pack(layout, null if value is None else value)
    if is_decimal(tag):
        return _decimal(_DECIMAL_BYTES[tag], scale, value)
    if value is None:
        return _NULL_LONG * (4 if tag is TypeTag.LONG256 else 2)
    if tag is TypeTag.UUID:
        return bytes(reversed(value))
    return bytes(value)


def _decimal(width: int, scale: int, value: Decimal | None) -> bytes:
    if value is None:
        return b"\0" * (min(width, 8) - 1) + b"\x80" + b"\0" * (width - min(width, 8))
    unscaled = int(value.scaleb(scale, _EXACT))
    words = unscaled.to_bytes(width, "big", signed=True)
    # Words of 64 bits, the highest first, each little-endian.
    return b"".join(bytes(reversed(words[start : start + 8])) for start in range(0, width, 8))


def _prefixed(tag: TypeTag, values: Sequence[Any]) -> tuple[bytes, bytes]:
    offsets, data = [0], b""
    for value in values:
        if tag is TypeTag.BINARY:
            data += struct.pack("<q", -1) if value is None else struct.pack("<q", len(value)) + value
        else:
            units = b"" if value is None else value.encode("utf-16-le", "surrogatepass")
            data += struct.pack("<i", -1 if value is None else len(units) // 2) + units
        offsets.append(len(data))
    return struct.pack(f"<{len(offsets)}q", *offsets), data


def _varchars(values: Sequence[str | None]) -> tuple[bytes, bytes]:
    entries, data = [], b""
    for value in values:
        offset = struct.pack("<Q", len(data))[:6]
        if value is None:
            entries.append(struct.pack("<I6x", 4) + offset)
            continue
        text, is_ascii = value.encode(), value.isascii()
        if len(text) <= 9:
            entries.append(bytes([len(text) << 4 | is_ascii << 1 | 1]) + text.ljust(9, b"\0") + offset)
        else:
            entries.append(struct.pack("<I", len(text) << 4 | is_ascii << 1) + text[:6] + offset)
            data += text
    return b"".join(entries), data


def _arrays(values: Sequence[list[Any] | None], dimensions: int) -> tuple[bytes, bytes]:
    entries, data = [], b""
    for value in values:
        payload = b""
        if value is not None:
            shape, elements = [], [value]
            for _ in range(dimensions):
                shape.append(len(elements[0]) if elements else 0)
                elements = [inner for outer in elements for inner in outer]
            payload = struct.pack(f"<{dimensions}i", *shape)
            payload += b"\0" * (-len(payload) % 8)
            payload += b"".join(struct.pack("<d", math.nan if item is None else item) for item in elements)
        entries.append(struct.pack("<qii", len(data), len(payload), 0))
        data += payload
    return b"".join(entries), data
