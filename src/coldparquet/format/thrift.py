"""Declares Thrift structures, and edits them as raw fields that keep all other bytes.

Decoding a structure drops the fields that its class does not declare. As raw fields, a structure is a list of fields
whose values stay unchanged bytes, so additions of later format versions survive a rewrite. Layout: Apache Thrift's
"Compact protocol" specification.

The classes only declare their fields. Apache Thrift's compact protocol decodes them. Its C extension takes 4 to 10 us
per column chunk of a footer. Without it, Python is about 20 times slower, with the same result.

Thrift enforces no "required": a required number that is missing decodes to `ABSENT`, a list or text to an empty one.
Enums are plain integers. The decoding code checks both.
"""

from __future__ import annotations

from enum import IntEnum
from inspect import get_annotations
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Self,
    TypeAlias,
    get_args,
    get_origin,
)

from msgspec import Struct
from thrift.protocol.TBase import TBase
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from coldparquet.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


ABSENT = -(1 << 63)
"""The value of a required number that is missing in the file; no valid file stores it."""

ThriftField = tuple[int, int, str, Any, None]
ThriftSpec = tuple[ThriftField | None, ...]


class _CompactProtocol(TCompactProtocolAccelerated):  # type: ignore[misc]  # thrift has no type information
    """The compact protocol, without an error of its Python form, which decodes every skipped byte string as UTF-8."""

    def skip(self, ttype: int, max_depth: int = 64) -> None:
        if ttype == TType.STRING:
            self.readBinary()
        else:
            super().skip(ttype, max_depth)


class Structure(Struct, TBase):  # type: ignore[misc]  # thrift has no type information
    """A Thrift structure; fields are annotated with their number in Thrift and, for numbers, their width."""

    thrift_spec: ClassVar[ThriftSpec] = ()

    def __init_subclass__(cls) -> None:
        declared = get_annotations(cls, eval_str=True)
        if not declared:
            return
        by_number = {}
        for name, annotation in declared.items():
            hint, number, *width = get_args(annotation)
            # Optional fields are unions with None, which comes last.
            kind, element = _kind(get_args(hint)[0] if isinstance(hint, UnionType) else hint, width)
            by_number[number] = (number, kind, name, element, None)
        # Thrift requires the field with number n at index n.
        cls.thrift_spec = tuple(by_number.get(number) for number in range(max(by_number) + 1))

    @classmethod
    def decode(cls, content: bytes, *, path: str | None, offset: int) -> Self:
        """Decode one structure from the start of ``content``; bytes behind it are ignored."""
        # Every element of a list and every character takes at least one byte, so the content bounds both.
        protocol = _CompactProtocol(
            TMemoryBuffer(content), string_length_limit=len(content), container_length_limit=len(content)
        )
        structure = cls()
        try:
            structure.read(protocol)
        except Exception as error:  # bad bytes raise a dozen unrelated classes, from EOFError to AssertionError
            raise FormatError(
                f"the {len(content)} bytes at {offset} are not a Thrift {cls.__name__}:"
                f" {type(error).__name__} {error}; the file is damaged or not Parquet",
                kind="InvalidThrift",
                path=path,
                offset=offset,
                field=cls.__name__,
            ) from error
        return structure

    @classmethod
    def number(cls, name: str) -> int:
        """Return the number of a field."""
        return next(declared[0] for declared in cls.thrift_spec if declared is not None and declared[2] == name)

    def encode(self) -> bytes:
        """Encode the structure with the compact protocol; fields that are None are left out."""
        transport = TMemoryBuffer()
        self.write(_CompactProtocol(transport))
        return bytes(transport.getvalue())


def structure_stops(content: bytes, start: int, count: int) -> list[int]:
    """Find the end of each of ``count`` consecutive structures, whatever fields they have."""
    transport = TMemoryBuffer(content)
    protocol = _CompactProtocol(transport, string_length_limit=len(content), container_length_limit=len(content))
    transport.cstringio_buf.seek(start)
    # Empty declares no field, so its decoder skips all of them, in C where available, and stops behind the last.
    skipped = Empty()
    stops = []
    try:
        for _ in range(count):
            skipped.read(protocol)
            stops.append(transport.cstringio_buf.tell())
    except Exception as error:  # bad bytes raise a dozen unrelated classes, from EOFError to AssertionError
        raise FormatError(
            f"structure {len(stops)} of {count} from byte {start} does not end: {type(error).__name__} {error};"
            " the file is damaged",
            kind="InvalidThrift",
            offset=stops[-1] if stops else start,
            field="structure",
        ) from error
    return stops


I8, I32, I64 = TType.BYTE, TType.I32, TType.I64
"""Widths of numbers, which Python's type does not tell."""

_KINDS = {bool: (TType.BOOL, None), str: (TType.STRING, "UTF8"), bytes: (TType.STRING, "BINARY")}


def _kind(hint: Any, width: list[int]) -> tuple[int, Any]:
    """Return Thrift's type of a Python type, and what it says about elements."""
    if get_origin(hint) is list:
        return TType.LIST, (*_kind(get_args(hint)[0], width), False)
    if issubclass(hint, Structure):
        return TType.STRUCT, [hint, hint.thrift_spec]
    return _KINDS[hint] if hint in _KINDS else (width[0], None)


class Empty(Structure):
    """A structure without fields of interest; only its presence counts, as in unions."""


_LONG_DELTA = 15
"""Largest step from one field number to the next that fits into the byte of its type."""
_LONG_SIZE = 15
"""List sizes from here on follow their type byte as a separate number."""
_MAX_DEPTH = 64
"""Deepest nesting of lists and maps, as in the decoder."""
_MAX_VARINT_BYTES = 10


class FieldType(IntEnum):
    """Types of the compact protocol; a boolean field holds its value in its type."""

    TRUE = 1
    FALSE = 2
    I8 = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12
    UUID = 13


_FIXED_BYTES = {FieldType.I8: 1, FieldType.DOUBLE: 8, FieldType.UUID: 16}
_VARINTS = frozenset({FieldType.I16, FieldType.I32, FieldType.I64})


class RawField(Struct, frozen=True):
    """One field of a structure."""

    number: int
    type: FieldType
    value: bytes
    """Its bytes without the field's own header; empty for booleans."""


def parse_fields(content: bytes) -> list[RawField]:
    """Split the structure at the start of ``content`` into fields; bytes behind it are ignored."""
    return [RawField(number, kind, content[start:stop]) for number, kind, start, stop in _field_places(content)]


def structure_list_places(content: bytes, number: int) -> list[int]:
    """Find the structures of a list without copying them."""
    for found, kind, place, _ in _field_places(content):
        if found == number and kind == FieldType.LIST:
            size, start = _structure_list(content, place)
            return [start, *structure_stops(content, start, size)]
    return []


def _field_places(content: bytes) -> Iterator[tuple[int, FieldType, int, int]]:
    """Yield number, type, start and stop of the value of each field of the structure at the start."""
    number = cursor = 0
    while True:
        header, cursor = _byte(content, cursor)
        if header == 0:
            return
        field_type = _type(header & 0x0F, cursor)
        if header >> 4:
            number += header >> 4
        else:
            unsigned, cursor = _varint(content, cursor)
            number = _from_zigzag(unsigned)
        is_boolean = field_type in {FieldType.TRUE, FieldType.FALSE}
        stop = cursor if is_boolean else _value_stop(content, cursor, field_type, 0)
        yield number, field_type, cursor, stop
        cursor = stop


def encode_fields(fields: Iterable[RawField]) -> bytes:
    """Encode a structure from its fields, in their order."""
    parts = []
    previous = 0
    for raw in fields:
        step = raw.number - previous
        if 0 < step <= _LONG_DELTA:
            parts.append(bytes((step << 4 | raw.type,)))
        else:
            parts.append(bytes((raw.type,)) + encode_integer(raw.number))
        parts.append(raw.value)
        previous = raw.number
    parts.append(b"\0")
    return b"".join(parts)


RawValue: TypeAlias = "Sequence[bytes] | Structure | bytes | int | None"
"""A value to write: a list of structures, a structure or its bytes, or a number of 64 bits; None for no field at all."""


def raw_value(content: bytes, structure: type[Structure], name: str) -> bytes:
    """Return the bytes of one field; where a damaged structure repeats it, the last one counts, as for the decoder."""
    values, number = {raw.number: raw.value for raw in parse_fields(content)}, structure.number(name)
    if number not in values:
        raise FormatError(f"field {number} of the structure is missing", kind="InvalidThrift", field=str(number))
    return values[number]


def raw_elements(content: bytes, structure: type[Structure], name: str, *, is_optional: bool = False) -> list[bytes]:
    """Return the bytes of each structure in a list; none where an optional one is missing."""
    if is_optional and all(raw.number != structure.number(name) for raw in parse_fields(content)):
        return []
    return parse_structure_list(raw_value(content, structure, name))


def edited(content: bytes, structure: type[Structure], **changes: RawValue) -> bytes:
    """Write fields of a structure anew; all others keep their bytes, unknown ones too."""
    numbers = {structure.number(name): value for name, value in changes.items()}
    kept = [raw for raw in parse_fields(content) if raw.number not in numbers]
    written = [_raw_field(number, value) for number, value in numbers.items() if value is not None]
    return encode_fields(sorted([*kept, *written], key=lambda raw: raw.number))


def _raw_field(number: int, value: Sequence[bytes] | Structure | bytes | int) -> RawField:
    if isinstance(value, int):
        return RawField(number, FieldType.I64, encode_integer(value))
    if isinstance(value, bytes):
        return RawField(number, FieldType.STRUCT, value)
    if isinstance(value, Structure):
        return RawField(number, FieldType.STRUCT, value.encode())
    return RawField(number, FieldType.LIST, encode_structure_list(value))


def parse_structure_list(content: bytes) -> list[bytes]:
    """Split a list of structures into the bytes of each."""
    size, start = _structure_list(content, 0)
    stops = structure_stops(content, start, size)
    return [content[first:stop] for first, stop in zip([start, *stops], stops, strict=False)]


def _structure_list(content: bytes, place: int) -> tuple[int, int]:
    """Return how many structures the list at a place has, and the start of the first one."""
    size, element_type, start = _list_header(content, place)
    if size and element_type != FieldType.STRUCT:
        raise _invalid(f"the list holds elements of type {element_type}, expected structures", place)
    return size, start


def encode_structure_list(elements: Sequence[bytes]) -> bytes:
    """Encode a list from the bytes of its structures."""
    size = len(elements)
    if size < _LONG_SIZE:
        header = bytes((size << 4 | FieldType.STRUCT,))
    else:
        header = bytes((_LONG_SIZE << 4 | FieldType.STRUCT,)) + _encode_varint(size)
    return header + b"".join(elements)


def encode_integer(value: int) -> bytes:
    """Encode the value of an integer field of any width."""
    return _encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _value_stop(content: bytes, start: int, value_type: FieldType, depth: int) -> int:
    """Return the end of the value at ``start``; booleans are those of lists and maps, one byte each."""
    if depth > _MAX_DEPTH:
        raise _invalid(f"lists and maps are nested deeper than {_MAX_DEPTH} levels", start)
    if value_type in {FieldType.LIST, FieldType.SET}:
        return _list_stop(content, start, depth)
    if value_type == FieldType.MAP:
        return _map_stop(content, start, depth)
    if value_type == FieldType.STRUCT:
        return structure_stops(content, start, 1)[0]
    if value_type in _VARINTS:
        return _varint(content, start)[1]
    length = _FIXED_BYTES.get(value_type, 1)
    if value_type == FieldType.BINARY:
        length, start = _varint(content, start)
    return _inside(content, start + length, start)


def _list_stop(content: bytes, start: int, depth: int) -> int:
    size, element_type, cursor = _list_header(content, start)
    if element_type == FieldType.STRUCT:
        return structure_stops(content, cursor, size)[-1] if size else cursor
    for _ in range(size):
        cursor = _value_stop(content, cursor, element_type, depth + 1)
    return cursor


def _map_stop(content: bytes, start: int, depth: int) -> int:
    size, cursor = _varint(content, start)
    if size == 0:
        return cursor
    types, cursor = _byte(content, cursor)
    entry_types = (_type(types >> 4, cursor), _type(types & 0x0F, cursor))
    _inside(content, cursor + size, start)
    for _ in range(size):
        for entry_type in entry_types:
            cursor = _value_stop(content, cursor, entry_type, depth + 1)
    return cursor


def _list_header(content: bytes, start: int) -> tuple[int, FieldType, int]:
    """Return the number of elements, their type and where the first one begins."""
    header, cursor = _byte(content, start)
    size = header >> 4
    if size == _LONG_SIZE:
        size, cursor = _varint(content, cursor)
    # Every element takes at least a byte, so a size beyond the content is damage.
    _inside(content, cursor + size, start)
    # Some writers leave out the type of an empty list.
    return size, _type(header & 0x0F, start) if size else FieldType.STRUCT, cursor


def _varint(content: bytes, start: int) -> tuple[int, int]:
    value = shift = 0
    for cursor in range(start, min(start + _MAX_VARINT_BYTES, len(content))):
        value |= (content[cursor] & 0x7F) << shift
        if content[cursor] < 0x80:
            return value, cursor + 1
        shift += 7
    raise _invalid("a number does not end", start)


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _from_zigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def _byte(content: bytes, position: int) -> tuple[int, int]:
    _inside(content, position + 1, position)
    return content[position], position + 1


def _type(nibble: int, offset: int) -> FieldType:
    try:
        return FieldType(nibble)
    except ValueError:
        raise _invalid(f"{nibble} is no type of the compact protocol", offset) from None


def _inside(content: bytes, stop: int, start: int) -> int:
    if stop > len(content):
        raise _invalid(f"a value would end at byte {stop} of {len(content)}", start)
    return stop


def _invalid(message: str, offset: int) -> FormatError:
    return FormatError(
        f"not a Thrift structure: {message}; the file is damaged", kind="InvalidThrift", offset=offset, field="thrift"
    )
