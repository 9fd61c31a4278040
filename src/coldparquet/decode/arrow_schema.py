"""Column types of the format -> Arrow types and fields: the schema that every row group of a table is decoded to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import pyarrow as pa

from coldparquet.errors import InternalError

if TYPE_CHECKING:
    from coldparquet.format.column_types import ArrowKind, ColumnType
    from coldparquet.options import ReadOptions

SymbolsAs: TypeAlias = Literal["dictionary", "global", "string"]
"""SYMBOL columns: dictionary-encoded as they are stored, with one dictionary for the whole result, or plain strings."""

StringsAs: TypeAlias = Literal["dictionary", "string"]
"""Other text columns: dictionary-encoded, or plain strings."""

QUESTDB_TYPE_KEY = b"questdb.type"
"""Field metadata: the type as ``SHOW COLUMNS`` prints it."""

DICTIONARY_TYPE: Any = pa.dictionary(pa.int32(), pa.string())
"""Arrow type of text that stays dictionary-encoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAs:
    """Which text columns become dictionary arrays, and which plain strings."""

    symbols: SymbolsAs
    strings: StringsAs

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """Return what the options of a read say."""
        return cls(symbols=options.symbols, strings=options.strings)


PLAIN_TEXT = TextAs(symbols="string", strings="string")
"""All text as plain strings."""

TEXT_AS_STORED = TextAs(symbols="dictionary", strings="string")
"""SYMBOL as dictionaries, which QuestDB always stores it as, and other text as plain strings."""

_PLAIN_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date32": pa.date32(),
    "binary": pa.binary(),
}


def arrow_field(name: str, column_type: ColumnType, *, text: TextAs) -> pa.Field[Any]:
    """Return the Arrow field of a column: nullable, with its QuestDB type in the metadata.

    Args:
        name: Name of the column.
        column_type: Its type.
        text: Which text columns become dictionary arrays.
    """
    return pa.field(name, arrow_type(column_type, text=text), metadata={QUESTDB_TYPE_KEY: column_type.name.encode()})


def arrow_type(column_type: ColumnType, *, text: TextAs) -> pa.DataType:
    """Return the Arrow type of a column. Arrays are lists of lists whose items have Arrow's default field names.

    Args:
        column_type: Type of the column.
        text: Which text columns become dictionary arrays.
    """
    return _arrow_type(column_type.arrow, text)


@lru_cache(maxsize=4096)
def _arrow_type(kind: ArrowKind, text: TextAs) -> pa.DataType:  # noqa: C901, PLR0911 - one case per type
    unit: Any = kind.unit  # the stubs know which units each type takes; the kind's is one of them
    match kind.name:
        case "dictionary":
            return pa.string() if text.symbols == "string" else DICTIONARY_TYPE
        case "string":
            return pa.string() if text.strings == "string" else DICTIONARY_TYPE
        case name if name in _PLAIN_TYPES:
            return _PLAIN_TYPES[name]
        case "timestamp":
            return pa.timestamp(unit, tz=kind.timezone)
        case "time32":
            return pa.time32(unit)
        case "time64":
            return pa.time64(unit)
        case "fixed_size_binary":
            return pa.binary(kind.width)
        case "decimal128":
            return pa.decimal128(kind.precision, kind.scale)
        case "decimal256":
            return pa.decimal256(kind.precision, kind.scale)
        case "list":
            list_type: pa.DataType = pa.float64()
            for _ in range(kind.dimensions):
                list_type = pa.list_(list_type)
            return list_type
        case name:
            raise InternalError(f"no Arrow type is known for {name!r}")
