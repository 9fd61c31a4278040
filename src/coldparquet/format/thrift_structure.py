"""Thrift structures: what they have in common, and how their fields are declared.

The classes only declare their fields: Apache Thrift's compact protocol does the work, in C where its extension module is
there (4 to 10 us per column chunk of a footer), in Python otherwise (about 20 times slower, same result).

Thrift enforces no "required": a required number that is missing decodes to `ABSENT`, a list or text to an empty one.
Enums are plain integers. Whoever decodes checks both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from thrift.protocol.TBase import TBase
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from coldparquet.errors import FormatError

ABSENT = -(1 << 63)
"""What a required number holds that is not in the file; no valid file stores it."""

ThriftField = tuple[int, int, str, Any, None]
ThriftSpec = tuple[ThriftField | None, ...]


class _CompactProtocol(TCompactProtocolAccelerated):  # type: ignore[misc]  # thrift has no type information
    """The compact protocol, cured of one flaw of its Python form: it takes every skipped byte string for UTF-8."""

    def skip(self, ttype: int, max_depth: int = 64) -> None:
        if ttype == TType.STRING:
            self.readBinary()
        else:
            super().skip(ttype, max_depth)


class Structure(TBase):  # type: ignore[misc]  # thrift has no type information
    """A Thrift structure; subclasses are dataclasses that declare ``thrift_spec``."""

    __slots__ = ()
    thrift_spec: ClassVar[ThriftSpec] = ()

    @classmethod
    def decode(cls, content: bytes, *, path: str | None, offset: int) -> Self:
        """Decode one structure from the start of ``content``; bytes behind it are ignored.

        Args:
            content: Compact protocol bytes.
            path: The object that they come from, for error messages.
            offset: Where they begin in it, for error messages.

        Raises:
            FormatError: The bytes are not such a structure. Lengths are checked against ``content`` before anything
                is allocated. Thrift limits nesting to 64 levels; before 0.25 its C extension did not, and crashed.
        """
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

    def encode(self) -> bytes:
        """Encode the structure with the compact protocol; fields that are None are left out."""
        transport = TMemoryBuffer()
        self.write(_CompactProtocol(transport))
        return bytes(transport.getvalue())


def structure_stops(content: bytes, start: int, count: int) -> list[int]:
    """Find where each of ``count`` consecutive structures ends, whatever fields they have.

    Args:
        content: Compact protocol bytes.
        start: Where the first structure begins.
        count: Number of structures; each takes at least one byte.

    Raises:
        FormatError: The bytes are not that many structures (kind ``InvalidThrift``).
    """
    transport = TMemoryBuffer(content)
    protocol = _CompactProtocol(transport, string_length_limit=len(content), container_length_limit=len(content))
    transport.cstringio_buf.seek(start)
    # Empty knows no field, so its decoder skips all of them, in C where that is there, and stops behind the last.
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


def spec(*fields: ThriftField) -> ThriftSpec:
    """Arrange fields by number, as Thrift wants them: the field with number n at index n."""
    by_number = {field[0]: field for field in fields}
    return tuple(by_number.get(number) for number in range(max(by_number, default=-1) + 1))


def boolean(number: int, name: str) -> ThriftField:
    """Declare a boolean."""
    return (number, TType.BOOL, name, None, None)


def i8(number: int, name: str) -> ThriftField:
    """Declare a number of 8 bits."""
    return (number, TType.BYTE, name, None, None)


def i32(number: int, name: str) -> ThriftField:
    """Declare a number of 32 bits."""
    return (number, TType.I32, name, None, None)


def i64(number: int, name: str) -> ThriftField:
    """Declare a number of 64 bits."""
    return (number, TType.I64, name, None, None)


def text(number: int, name: str) -> ThriftField:
    """Declare a text."""
    return (number, TType.STRING, name, "UTF8", None)


def binary(number: int, name: str) -> ThriftField:
    """Declare a byte string."""
    return (number, TType.STRING, name, "BINARY", None)


def structure(number: int, name: str, element: type[Structure]) -> ThriftField:
    """Declare a structure."""
    return (number, TType.STRUCT, name, [element, element.thrift_spec], None)


def structures(number: int, name: str, element: type[Structure]) -> ThriftField:
    """Declare a list of structures."""
    return (number, TType.LIST, name, (TType.STRUCT, [element, element.thrift_spec], False), None)


@dataclass(slots=True)
class Empty(Structure):
    """A structure whose presence is all it says, as in unions."""

    thrift_spec: ClassVar[ThriftSpec] = ()
