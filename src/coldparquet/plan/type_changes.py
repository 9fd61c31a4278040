"""Lists the earlier types that a column may have: by ``ALTER COLUMN TYPE``, or in other files of the same table.

The pairs are those that QuestDB 9.3.4 accepts:

| from | to |
|---|---|
| BOOLEAN | BYTE, SHORT, INT, LONG; FLOAT, DOUBLE; DATE, TIMESTAMP, TIMESTAMP_NS; text |
| BYTE, SHORT, INT, LONG | BOOLEAN; each other; FLOAT, DOUBLE; DATE, TIMESTAMP, TIMESTAMP_NS; text; DECIMAL |
| FLOAT, DOUBLE | BOOLEAN; BYTE, SHORT, INT, LONG; each other; DATE, TIMESTAMP, TIMESTAMP_NS; text |
| DATE, TIMESTAMP, TIMESTAMP_NS | BOOLEAN; BYTE, SHORT, INT, LONG; FLOAT, DOUBLE; each other; text |
| text: STRING, SYMBOL, VARCHAR | each other; all of the above but DECIMAL; CHAR, IPv4, UUID |
| CHAR, IPv4, UUID | text |
| DECIMAL | DECIMAL of other precision or scale |

The conversion of values is in ``coldparquet.decode.conversion``. Later versions add DECIMAL to and from text and
DECIMAL to other numbers; how those round is not established, so they are not here.

In foreign files one column may have several types. They become the type that holds the values of all, as Arrow unifies
them: like ``pyarrow.unify_schemas(..., promote_options="permissive")``. There are two exceptions. A conversion that
would round is excluded (a decimal is never made a float). Text stays what it was. A value that the result cannot hold is
an error when it is read: 2**60 + 1 among doubles, 2**64 - 1 among signed integers. Nested types are unified leaf by leaf;
structs get the fields of all.

Columns of a QuestDB table with ``_meta`` follow the table above instead.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from coldparquet.errors import UnsupportedError
from coldparquet.format.parquet_schema import LeafSpec, encode_leaf, note_of, parse_schema, unified_note
from coldparquet.format.parquet_thrift import SchemaElement
from coldparquet.format.sidecar_from_footer import infer_type
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import (
    NANOSECOND_BIT,
    UNKNOWN_TYPE_CODE,
    TypeTag,
    decimal_type_code,
    is_decimal,
    is_geohash,
)
from coldparquet.format.types import ArrowKind, ForeignAnnotation, ValueOrder, canonical_type, resolve_type
from coldparquet.plan.predicate import NANOSECONDS_PER_UNIT
from coldparquet.records import replace

if TYPE_CHECKING:
    from coldparquet.format.types import ColumnType


_INTEGERS = {f"{sign}int{bits}": (not sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}
"""Whether each type is signed, and its bits."""
_DECIMAL_DIGITS = {(True, 64): 18, (False, 64): 19, 32: 9, 16: 4, 8: 2}
"""Digits before the point in Arrow's decimal for an integer."""
_FLOATS = frozenset({"float32", "float64"})
_DECIMALS = frozenset({"decimal128", "decimal256"})
_BYTES = frozenset({"string", "dictionary", "binary", "fixed_size_binary"})
_TIMES_OF_DAY = frozenset({"time32", "time64"})
_UNITS = ("ms", "us", "ns")

_MADE_TYPES = {
    column_type.arrow: column_type
    for column_type in (
        *(canonical_type(tag) for tag in (TypeTag.INT, TypeTag.LONG, TypeTag.FLOAT, TypeTag.DOUBLE, TypeTag.BINARY)),
        *(canonical_type(code) for code in (TypeTag.DATE, TypeTag.TIMESTAMP, TypeTag.TIMESTAMP | NANOSECOND_BIT)),
        *(
            resolve_type(tag, physical_type, 0, 0, annotation)
            for tag, physical_type, annotation in (
                (TypeTag.BOOLEAN, PhysicalType.BOOLEAN, ForeignAnnotation.NULLABLE),
                (TypeTag.BYTE, PhysicalType.INT32, ForeignAnnotation.NULLABLE),
                (TypeTag.SHORT, PhysicalType.INT32, ForeignAnnotation.NULLABLE),
                (TypeTag.INT, PhysicalType.INT32, ForeignAnnotation.UINT_8),
                (TypeTag.INT, PhysicalType.INT32, ForeignAnnotation.UINT_16),
                (TypeTag.INT, PhysicalType.INT32, ForeignAnnotation.UINT_32),
                (TypeTag.LONG, PhysicalType.INT64, ForeignAnnotation.UINT_64),
                (TypeTag.TIMESTAMP | NANOSECOND_BIT, PhysicalType.INT64, ForeignAnnotation.TIMESTAMP_NANOS_LOCAL),
                (TypeTag.LONG, PhysicalType.INT64, ForeignAnnotation.TIME_NANOS),
            )
        ),
    )
}
"""Nullable types by their Arrow types: a table's column may need one although no file has it."""


@lru_cache(maxsize=4096)
def type_in_table(stored: ColumnType) -> ColumnType:
    """Return the type that a foreign file's column gives its table: nullable, for other files may lack its values."""
    if stored.never_null and _is_plain(stored):
        stored = _MADE_TYPES.get(stored.arrow, stored)
    return replace(stored, is_unified=True)


def unified_type(first: ColumnType, second: ColumnType) -> ColumnType | None:
    """Return the type that holds the values of both, None if there is none."""
    if widens(second, first):
        return first
    if second.arrow.name != "parquet" and widens(
        first, second
    ):  # nested types get the fields of the first one in front
        return replace(second, is_unified=True)
    arrow = _unified(first.arrow, second.arrow)
    if arrow is None or not (_is_plain(first) and _is_plain(second)):
        return None
    if arrow.name == "parquet":
        return replace(
            first if first.arrow.name == "parquet" else second, name=arrow.text, arrow=arrow, is_unified=True
        )
    made = _decimal_type(arrow) if arrow.name in _DECIMALS else _MADE_TYPES.get(arrow)
    return made and replace(made, is_unified=True)


@lru_cache(maxsize=4096)
def widens(stored: ColumnType, wanted: ColumnType) -> bool:
    """Tell whether values of one type are read as values of another one that can hold them."""
    if stored == wanted:
        return True
    if wanted.never_null and not stored.never_null:
        return False
    return _is_plain(stored) and _is_plain(wanted) and _unified(wanted.arrow, stored.arrow) == wanted.arrow


def keeps_bounds(stored: ColumnType, wanted: ColumnType) -> bool:
    """Tell whether bounds of numbers of one type, times ``bounds_factor``, are bounds of the values as read."""
    ordered = {ValueOrder.SIGNED, ValueOrder.UNSIGNED, ValueOrder.FLOAT}
    if stored.arrow == wanted.arrow:
        return stored.comparison is wanted.comparison
    if stored.comparison is ValueOrder.DECIMAL or wanted.comparison is ValueOrder.DECIMAL:
        return stored.comparison is wanted.comparison and stored.arrow.scale == wanted.arrow.scale
    return stored.comparison in ordered and wanted.comparison in ordered


def bounds_factor(stored: ColumnType, wanted: ColumnType) -> int:
    """Return the factor from one time type's unit to the other's; 1 for all other types."""
    before, after = ("d" if kind.name == "date32" else kind.unit for kind in (stored.arrow, wanted.arrow))
    return NANOSECONDS_PER_UNIT[before] // NANOSECONDS_PER_UNIT[after] if before and after else 1


def _is_plain(column_type: ColumnType) -> bool:
    """Tell whether a type means no more than its Arrow type."""
    return column_type.tag not in {TypeTag.CHAR, TypeTag.IPV4} and not is_geohash(column_type.tag)


def _unified(first: ArrowKind, second: ArrowKind) -> ArrowKind | None:  # noqa: PLR0911 - a table, read from the top
    names = {first.name, second.name}
    if first == second:
        return first
    if "parquet" in names:
        return _unified_as_stored(first, second)
    if names <= _INTEGERS.keys():
        return ArrowKind(name=_integer(_INTEGERS[first.name], _INTEGERS[second.name]))
    if names <= _INTEGERS.keys() | _FLOATS:
        are_small = all(name == "float32" or _INTEGERS.get(name, (True, 64))[1] < 32 for name in names)
        return ArrowKind(name="float32" if are_small else "float64")
    if names <= _INTEGERS.keys() | _DECIMALS:
        return _decimal(first, second)
    if names == {"timestamp"} and first.timezone == second.timezone:
        return ArrowKind(name="timestamp", unit=_finer_unit(first, second), timezone=first.timezone)
    if names <= _TIMES_OF_DAY:
        return ArrowKind(name="time64", unit=_finer_unit(first, second))
    if names <= _BYTES and not names <= {"string", "dictionary"}:
        return ArrowKind(name="binary")
    return None


def _unified_as_stored(first: ArrowKind, second: ArrowKind) -> ArrowKind | None:
    """Unify types of which one is read by its Parquet schema: nested, or of nothing but nulls."""
    for kind, other in ((first, second), (second, first)):
        if kind.text == "null":
            return other
    if not {first.name, second.name} <= {"parquet", "list"}:
        return None
    both = unified_note(_note(first), _note(second), _unified_leaf)
    return both and ArrowKind(name="parquet", parquet=both[0], text=both[1])


def _note(kind: ArrowKind) -> str:
    """Return the Parquet schema of a nested type: lists of doubles have one without a note."""
    if kind.name == "parquet":
        return kind.parquet
    depth = kind.dimensions
    leaf = LeafSpec(name="", physical_type=PhysicalType.DOUBLE, max_rep_level=depth, max_def_level=2 * depth + 1)
    return note_of(encode_leaf(leaf)[0])


def _unified_leaf(first: SchemaElement, second: SchemaElement) -> SchemaElement | None:
    """Return a leaf of a nested column that holds the values of two."""
    try:
        one, other = (_leaf_type(element) for element in (first, second))
    except UnsupportedError:
        return None
    both = unified_type(one, other)
    if both is None:
        return None
    spec = LeafSpec(
        name=first.name,
        physical_type=both.physical_type,
        fixed_byte_length=both.fixed_byte_length,
        logical=both.parquet_logical,
    )
    return encode_leaf(spec)[0][0]


def _leaf_type(element: SchemaElement) -> ColumnType:
    [leaf] = parse_schema([SchemaElement(name="schema", num_children=1), element], path=None)
    type_code, annotation = infer_type(leaf)
    return resolve_type(type_code, leaf.physical_type, leaf.fixed_byte_length, 0, annotation)


def _integer(first: tuple[bool, int], second: tuple[bool, int]) -> str:
    (is_signed, bits), (is_other_signed, other_bits) = first, second
    if is_signed == is_other_signed:
        return f"{'' if is_signed else 'u'}int{max(bits, other_bits)}"
    signed_bits, unsigned_bits = (bits, other_bits) if is_signed else (other_bits, bits)
    return f"int{min(max(signed_bits, 2 * unsigned_bits), 64)}"


def _decimal(first: ArrowKind, second: ArrowKind) -> ArrowKind | None:
    digits = max(_digits_before_point(kind) for kind in (first, second))
    scale = max(first.scale, second.scale)
    if digits + scale > 76:
        return None
    return ArrowKind(name="decimal256" if digits + scale > 38 else "decimal128", precision=digits + scale, scale=scale)


def _digits_before_point(kind: ArrowKind) -> int:
    if kind.name in _DECIMALS:
        return kind.precision - kind.scale
    is_signed, bits = _INTEGERS[kind.name]
    return _DECIMAL_DIGITS.get(bits) or _DECIMAL_DIGITS[is_signed, bits]


def _decimal_type(arrow: ArrowKind) -> ColumnType | None:
    code = decimal_type_code(arrow.precision, arrow.scale)
    return None if code == UNKNOWN_TYPE_CODE else canonical_type(code)


def _finer_unit(first: ArrowKind, second: ArrowKind) -> str:
    return max(str(first.unit), str(second.unit), key=_UNITS.index)


class Family(Enum):
    """Types whose values convert in the same way."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    INSTANT = "instant"
    TEXT = "text"
    CHAR = "char"
    IPV4 = "ipv4"
    UUID = "uuid"
    DECIMAL = "decimal"


_FAMILIES: dict[tuple[TypeTag, str], Family] = {
    (TypeTag.BOOLEAN, "bool"): Family.BOOLEAN,
    (TypeTag.BYTE, "int8"): Family.INTEGER,
    (TypeTag.SHORT, "int16"): Family.INTEGER,
    (TypeTag.INT, "int32"): Family.INTEGER,
    (TypeTag.LONG, "int64"): Family.INTEGER,
    (TypeTag.FLOAT, "float32"): Family.FLOAT,
    (TypeTag.DOUBLE, "float64"): Family.FLOAT,
    (TypeTag.DATE, "date32"): Family.INSTANT,
    (TypeTag.DATE, "timestamp[ms, UTC]"): Family.INSTANT,
    (TypeTag.TIMESTAMP, "timestamp[us, UTC]"): Family.INSTANT,
    (TypeTag.TIMESTAMP, "timestamp[ns, UTC]"): Family.INSTANT,
    (TypeTag.STRING, "string"): Family.TEXT,
    (TypeTag.VARCHAR, "string"): Family.TEXT,
    (TypeTag.SYMBOL, "dictionary<int32, string>"): Family.TEXT,
    (TypeTag.CHAR, "uint16"): Family.CHAR,
    (TypeTag.IPV4, "uint32"): Family.IPV4,
    (TypeTag.UUID, "fixed_size_binary[16]"): Family.UUID,
}
"""By tag and Arrow type: an annotation in a foreign file can give a tag another meaning, which has no conversions."""

_NUMBERS = frozenset({Family.BOOLEAN, Family.INTEGER, Family.FLOAT, Family.INSTANT})
_TARGETS: dict[Family, frozenset[Family]] = {
    Family.BOOLEAN: _NUMBERS - {Family.BOOLEAN} | {Family.TEXT},
    Family.INTEGER: _NUMBERS | {Family.TEXT, Family.DECIMAL},
    Family.FLOAT: _NUMBERS | {Family.TEXT},
    Family.INSTANT: _NUMBERS | {Family.TEXT},
    Family.TEXT: _NUMBERS | {Family.TEXT, Family.CHAR, Family.IPV4, Family.UUID},
    Family.CHAR: frozenset({Family.TEXT}),
    Family.IPV4: frozenset({Family.TEXT}),
    Family.UUID: frozenset({Family.TEXT}),
    Family.DECIMAL: frozenset({Family.DECIMAL}),
}


def family_of(column_type: ColumnType) -> Family | None:
    """Return the family of a type, None for types without conversions."""
    if is_decimal(column_type.tag):
        return Family.DECIMAL
    return _FAMILIES.get((column_type.tag, str(column_type.arrow)))


def holds_same_values(stored: ColumnType, wanted: ColumnType) -> bool:
    """Tell whether every stored value is a value of the wanted type without conversion, in any Parquet storage.

    That holds for the three text types, for decimals and arrays in another storage, and for dates counted in days.
    """
    if stored == wanted:
        return True
    families = family_of(stored), family_of(wanted)
    if families == (Family.TEXT, Family.TEXT):
        return True
    is_same_date = stored.arrow.name == "date32" and families == (Family.INSTANT, Family.INSTANT)
    return (
        stored.name == wanted.name
        and (stored.arrow == wanted.arrow or is_same_date)
        and stored.comparison is wanted.comparison
        and stored.never_null == wanted.never_null
    )


def can_convert(stored: ColumnType, wanted: ColumnType) -> bool:
    """Tell whether values of one type convert to another: by ``ALTER COLUMN TYPE``, or as Arrow unifies them."""
    if holds_same_values(stored, wanted):
        return True
    if wanted.is_unified:
        return widens(stored, wanted)
    if wanted.arrow.name == "date32":
        return False  # only foreign files count days, and no statement of QuestDB makes such a column
    source, target = family_of(stored), family_of(wanted)
    return source is not None and target in _TARGETS[source]
