"""Maps column types: QuestDB type code <-> Parquet storage <-> Arrow, with those that only foreign files have.

`_meta` states type codes and nothing about Parquet, whose files may store the same type in several ways: arrays raw or
nested, dates as days, decimals in any width.

Facts about columns of foreign files that a type code cannot express are annotations. QuestDB's sidecar has no place for
Parquet annotations, and its type codes know neither unsigned integers nor times of day. So sidecars for such files hold
one SCRATCHPAD entry, which QuestDB carries along unread: a JSON object from column index to annotation name. Without
it, values above 2**31 would read as negative numbers.

`distinct_values` replaces ``np.unique``, which imports ``numpy.ma`` in the first call of a process, to check for masks:
tens of milliseconds of the first read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct

from coldparquet.errors import FormatError
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import (
    UNKNOWN_TYPE_CODE,
    TypeTag,
    array_dimensions,
    decimal_precision_scale,
    geohash_bits,
    is_decimal,
    is_geohash,
    is_nanosecond,
    tag_of,
    timestamp_unit,
    type_name,
    unsupported_type,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


FOREIGN_ANNOTATIONS_CODE = 0x43505441
"""Code of the SCRATCHPAD entry: ``CPTA`` read as a big-endian number."""


class ForeignAnnotation(StrEnum):
    """Facts about a foreign column that its QuestDB type code cannot express."""

    UINT_8 = "UINT_8"
    UINT_16 = "UINT_16"
    UINT_32 = "UINT_32"
    UINT_64 = "UINT_64"
    TIMESTAMP_MILLIS_LOCAL = "TIMESTAMP_MILLIS_LOCAL"
    TIMESTAMP_MICROS_LOCAL = "TIMESTAMP_MICROS_LOCAL"
    TIMESTAMP_NANOS_LOCAL = "TIMESTAMP_NANOS_LOCAL"
    TIME_MILLIS = "TIME_MILLIS"
    TIME_MICROS = "TIME_MICROS"
    TIME_NANOS = "TIME_NANOS"
    NULLABLE = "NULLABLE"
    """A BOOLEAN, BYTE or SHORT that has nulls, which QuestDB's own columns of these types never have."""


_FLAT, _NESTED, _PART = "FLAT", "NESTED", "PART"


def stored_annotation(note: str, text: str, *, is_nested: bool) -> str:
    """Return the annotation of a column that is read by its Parquet schema, see :mod:`coldparquet.format.parquet_schema`."""
    return f"{_NESTED if is_nested else _FLAT} {note} {text}"


def part_annotation(first: int, number: int) -> str:
    """Return the annotation of another leaf of a nested column: the first leaf's index, and the number of this one."""
    return f"{_PART} {first} {number}"


def parse_stored(annotation: str | None) -> tuple[str, str] | None:
    """Return the schema in an annotation and its Arrow type as text; None where there is none."""
    match (annotation or "").split(" ", 2):
        case [kind, note, text] if kind in {_FLAT, _NESTED}:
            return note, text
    return None


def is_of_nested(annotation: str) -> bool:
    """Tell whether an annotation is that of a leaf of a nested column: such leaves have no rows of their own."""
    return annotation.startswith((f"{_NESTED} ", f"{_PART} "))


def parse_part(annotation: str | None) -> tuple[int, int] | None:
    """Undo :func:`part_annotation`; None for other annotations."""
    match (annotation or "").split(" "):
        case [kind, first, number] if kind == _PART and first.isdecimal() and number.isdecimal():
            return int(first), int(number)
    return None


def parse_foreign_annotations(content: bytes, *, path: str | None = None) -> dict[int, str]:
    """Parse the content of the SCRATCHPAD entry with the code ``FOREIGN_ANNOTATIONS_CODE``."""
    try:
        parsed = json.loads(content)
        annotations = {int(index): name for index, name in parsed.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"the scratchpad entry of foreign annotations is not a JSON object of column indexes: {error}",
            path=path,
            field="foreign_annotations",
        ) from error
    for index, name in annotations.items():
        if index < 0 or not isinstance(name, str):
            raise FormatError(
                f"foreign annotation {name!r} of column {index}: expected a name and an index of at least 0",
                path=path,
                field="foreign_annotations",
            )
    return annotations


def encode_foreign_annotations(annotations: Mapping[int, str]) -> bytes:
    """Encode annotations as the content of a SCRATCHPAD entry; the inverse of ``parse_foreign_annotations``."""
    by_index = {str(index): str(annotations[index]) for index in sorted(annotations)}
    return json.dumps(by_index, separators=(",", ":")).encode()


class LogicalKind(StrEnum):
    """The meaning of an annotation for the values of a column."""

    STRING = "STRING"
    INTEGER = "INTEGER"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    UUID = "UUID"
    LIST = "LIST"
    UNKNOWN = "UNKNOWN"
    """Nothing but nulls, of any type: what pyarrow writes for a column without values."""
    OTHER = "OTHER"
    """Any irrelevant annotation: ENUM, JSON, BSON, MAP, INTERVAL, FLOAT16 and newer ones."""


class LogicalType(Struct, frozen=True, kw_only=True):
    """One annotation; Parquet's older converted types and newer logical types are equivalent here."""

    kind: LogicalKind
    unit: str | None = None
    """``ms``, ``us`` or ``ns`` of TIME and TIMESTAMP."""
    is_utc: bool = True
    """TIMESTAMP only: instants (true), or local date-times without a zone."""
    bit_width: int = 0
    """INTEGER only: 8, 16, 32 or 64."""
    is_signed: bool = True
    """INTEGER only."""
    precision: int = 0
    """DECIMAL only: number of decimal digits."""
    scale: int = 0
    """DECIMAL only: digits after the point."""


__all__ = ["ArrowKind", "ColumnType", "StatisticsTrust", "TypeTag", "ValueOrder", "resolve_type"]


class ValueOrder(Enum):
    """How values compare, and how the bytes of a statistic become a value."""

    SIGNED = "signed"
    """Little-endian signed integers in the column's own unit."""
    UNSIGNED = "unsigned"
    """Little-endian unsigned integers."""
    FLOAT = "float"
    """IEEE 754. A NaN bound is ignored; -0.0 and 0.0 are equal."""
    BYTES = "bytes"
    """UTF-8 text, ordered by unsigned bytes."""
    BINARY = "binary"
    """Byte strings, ordered by unsigned bytes."""
    BYTES_EQUALITY = "bytes equality"
    """Byte strings that only support equality; bounds are still in unsigned byte order."""
    DECIMAL = "decimal"
    """Unscaled integers: big-endian two's complement of any length in byte arrays, little-endian in INT32 and INT64."""
    BOOLEAN = "boolean"
    """False before true."""
    NONE = "none"
    """Neither order nor equality: arrays, and timestamps stored as INT96."""


class StatisticsTrust(Enum):
    """Whether min and max of a chunk may drop a row group. Null counts are always right."""

    TRUSTED = "trusted"
    """They bound every value that is not null (and, for floats, not NaN)."""
    NEVER = "never"
    """They are absent or their order is not known. BOOLEAN, arrays and INT96 have none that count. Some writers of
    DECIMAL128 and DECIMAL256 compared only the highest word. Foreign unsigned columns may have been ordered as signed
    ones."""
    ZERO_WHEN_NULL = "zero when null"
    """BYTE, SHORT and CHAR: a row counted as null holds 0 and is left out of min and max. So they bound every value
    only where the null count is 0; elsewhere 0 occurs too."""
    IPV4_UNSIGNED = "ipv4"
    """Unsigned, but dictionary-encoded chunks were ordered as signed: do not use them for chunks with a dictionary,
    nor when min exceeds max."""
    BINARY_PREFIX = "binary prefix"
    """Prefixes that still bound the values, except that a max of nine 0xFF bytes bounds nothing."""


class ArrowKind(Struct, frozen=True, kw_only=True):
    """An Arrow type as data; ``str()`` prints it, for example ``timestamp[us, UTC]``."""

    name: str
    """bool, int8 ... int64, uint8 ... uint64, float32, float64, timestamp, date32, time32, time64, string, dictionary
    (of strings, int32 keys), binary, fixed_size_binary, decimal128, decimal256, list (of float64),
    or parquet: any other type, nested ones among them."""
    unit: str | None = None
    """``ms``, ``us`` or ``ns`` of timestamp, time32 and time64."""
    timezone: str | None = None
    """``UTC`` for instants; None for a timestamp without zone."""
    width: int = 0
    """Bytes per value of fixed_size_binary."""
    precision: int = 0
    """Digits of a decimal."""
    scale: int = 0
    """Digits after the point of a decimal."""
    dimensions: int = 0
    """Number of nested lists around float64."""
    parquet: str = ""
    """Of ``parquet``: the schema of the column, as in its annotation. pyarrow makes the Arrow type of it."""
    text: str = ""
    """Of ``parquet``: that Arrow type, for people."""

    def __str__(self) -> str:
        if self.name == "list":
            return "list<" * self.dimensions + "float64" + ">" * self.dimensions
        if self.name == "parquet":
            return self.text
        zone = f", {self.timezone}" if self.timezone else ""
        parameters = {
            "timestamp": f"[{self.unit}{zone}]",
            "time32": f"[{self.unit}]",
            "time64": f"[{self.unit}]",
            "fixed_size_binary": f"[{self.width}]",
            "decimal128": f"({self.precision}, {self.scale})",
            "decimal256": f"({self.precision}, {self.scale})",
            "dictionary": "<int32, string>",
        }
        return self.name + parameters.get(self.name, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """All facts about the type of one column for planning and decoding."""

    tag: TypeTag
    name: str
    """As ``SHOW COLUMNS`` prints it, for example ``DECIMAL(18,3)``."""
    arrow: ArrowKind
    physical_type: PhysicalType
    fixed_byte_length: int
    """Bytes per value of FIXED_LEN_BYTE_ARRAY, otherwise 0."""
    comparison: ValueOrder
    statistics: StatisticsTrust
    never_null: bool
    """BOOLEAN, BYTE, SHORT and CHAR of QuestDB: a missing value is false or 0."""
    raw_array: bool
    """The chunk holds arrays as byte strings: dimensions as i32, zeros up to 8 bytes, float64 elements."""
    parquet_logical: LogicalType | None
    """Annotation of the leaf with which pyarrow decodes straight to ``arrow`` (or to its storage, for raw arrays)."""
    is_unified: bool = field(default=False, compare=False)
    """Whether a partition of another type is read as Arrow unifies the two, not as QuestDB's ALTER COLUMN TYPE
    converts. True for the columns of tables without ``_meta``."""

    @property
    def is_compared(self) -> bool:
        """Whether values equal literals: not arrays, nor what pyarrow decodes by its Parquet schema."""
        return self.arrow.name not in {"list", "parquet"}


class _Storage(Struct, frozen=True, kw_only=True):
    """The properties of a tag, or an annotation, stored as one physical type."""

    arrow: ArrowKind
    comparison: ValueOrder
    statistics: StatisticsTrust = StatisticsTrust.TRUSTED
    logical: LogicalType | None = None
    fixed_byte_length: int = 0


def _integer(bit_width: int, comparison: ValueOrder, statistics: StatisticsTrust, *, is_signed: bool) -> _Storage:
    prefix = "int" if is_signed else "uint"
    return _Storage(
        arrow=ArrowKind(name=f"{prefix}{bit_width}"),
        comparison=comparison,
        statistics=statistics,
        logical=LogicalType(kind=LogicalKind.INTEGER, bit_width=bit_width, is_signed=is_signed),
    )


def _signed(bit_width: int, statistics: StatisticsTrust = StatisticsTrust.TRUSTED) -> _Storage:
    return _integer(bit_width, ValueOrder.SIGNED, statistics, is_signed=True)


def _unsigned(bit_width: int) -> _Storage:
    return _integer(bit_width, ValueOrder.UNSIGNED, StatisticsTrust.NEVER, is_signed=False)


def _timestamp(unit: str, *, is_utc: bool) -> _Storage:
    return _Storage(
        arrow=ArrowKind(name="timestamp", unit=unit, timezone="UTC" if is_utc else None),
        comparison=ValueOrder.SIGNED,
        logical=LogicalType(kind=LogicalKind.TIMESTAMP, unit=unit, is_utc=is_utc),
    )


def _time(unit: str) -> _Storage:
    return _Storage(
        arrow=ArrowKind(name="time32" if unit == "ms" else "time64", unit=unit),
        comparison=ValueOrder.SIGNED,
        logical=LogicalType(kind=LogicalKind.TIME, unit=unit),
    )


def _fixed(width: int, comparison: ValueOrder) -> _Storage:
    return _Storage(
        arrow=ArrowKind(name="fixed_size_binary", width=width), comparison=comparison, fixed_byte_length=width
    )


_TEXT = LogicalType(kind=LogicalKind.STRING)
_STRING = _Storage(arrow=ArrowKind(name="string"), comparison=ValueOrder.BYTES, logical=_TEXT)
_BOOLEAN = _Storage(
    arrow=ArrowKind(name="bool"), comparison=ValueOrder.BOOLEAN, statistics=StatisticsTrust.NEVER, logical=None
)
_INT96 = _Storage(
    arrow=ArrowKind(name="timestamp", unit="ns"), comparison=ValueOrder.NONE, statistics=StatisticsTrust.NEVER
)

_BY_TAG: dict[tuple[TypeTag, PhysicalType], _Storage] = {
    (TypeTag.BOOLEAN, PhysicalType.BOOLEAN): _BOOLEAN,
    (TypeTag.BYTE, PhysicalType.INT32): _signed(8, StatisticsTrust.ZERO_WHEN_NULL),
    (TypeTag.SHORT, PhysicalType.INT32): _signed(16, StatisticsTrust.ZERO_WHEN_NULL),
    (TypeTag.CHAR, PhysicalType.INT32): _integer(
        16, ValueOrder.UNSIGNED, StatisticsTrust.ZERO_WHEN_NULL, is_signed=False
    ),
    (TypeTag.INT, PhysicalType.INT32): _signed(32),
    (TypeTag.LONG, PhysicalType.INT64): _signed(64),
    (TypeTag.DATE, PhysicalType.INT64): _timestamp("ms", is_utc=True),
    (TypeTag.DATE, PhysicalType.INT32): _Storage(
        arrow=ArrowKind(name="date32"), comparison=ValueOrder.SIGNED, logical=LogicalType(kind=LogicalKind.DATE)
    ),
    (TypeTag.FLOAT, PhysicalType.FLOAT): _Storage(arrow=ArrowKind(name="float32"), comparison=ValueOrder.FLOAT),
    (TypeTag.DOUBLE, PhysicalType.DOUBLE): _Storage(arrow=ArrowKind(name="float64"), comparison=ValueOrder.FLOAT),
    (TypeTag.STRING, PhysicalType.BYTE_ARRAY): _STRING,
    (TypeTag.VARCHAR, PhysicalType.BYTE_ARRAY): _STRING,
    (TypeTag.SYMBOL, PhysicalType.BYTE_ARRAY): _Storage(
        arrow=ArrowKind(name="dictionary"), comparison=ValueOrder.BYTES, logical=_TEXT
    ),
    (TypeTag.LONG256, PhysicalType.FIXED_LEN_BYTE_ARRAY): _fixed(32, ValueOrder.BYTES_EQUALITY),
    (TypeTag.LONG128, PhysicalType.FIXED_LEN_BYTE_ARRAY): _fixed(16, ValueOrder.BYTES_EQUALITY),
    (TypeTag.UUID, PhysicalType.FIXED_LEN_BYTE_ARRAY): _fixed(16, ValueOrder.BINARY),
    (TypeTag.GEOBYTE, PhysicalType.INT32): _signed(8),
    (TypeTag.GEOSHORT, PhysicalType.INT32): _signed(16),
    (TypeTag.GEOINT, PhysicalType.INT32): _signed(32),
    (TypeTag.GEOLONG, PhysicalType.INT64): _signed(64),
    (TypeTag.BINARY, PhysicalType.BYTE_ARRAY): _Storage(
        arrow=ArrowKind(name="binary"), comparison=ValueOrder.BINARY, statistics=StatisticsTrust.BINARY_PREFIX
    ),
    (TypeTag.IPV4, PhysicalType.INT32): _integer(
        32, ValueOrder.UNSIGNED, StatisticsTrust.IPV4_UNSIGNED, is_signed=False
    ),
}
"""Types without parameters: QuestDB's type column against the Parquet storage of it."""

_BY_ANNOTATION: dict[tuple[str, TypeTag, PhysicalType], _Storage] = {
    (ForeignAnnotation.UINT_8, TypeTag.INT, PhysicalType.INT32): _unsigned(8),
    (ForeignAnnotation.UINT_16, TypeTag.INT, PhysicalType.INT32): _unsigned(16),
    (ForeignAnnotation.UINT_32, TypeTag.INT, PhysicalType.INT32): _unsigned(32),
    (ForeignAnnotation.UINT_64, TypeTag.LONG, PhysicalType.INT64): _unsigned(64),
    (ForeignAnnotation.TIMESTAMP_MILLIS_LOCAL, TypeTag.DATE, PhysicalType.INT64): _timestamp("ms", is_utc=False),
    (ForeignAnnotation.TIMESTAMP_MICROS_LOCAL, TypeTag.TIMESTAMP, PhysicalType.INT64): _timestamp("us", is_utc=False),
    (ForeignAnnotation.TIMESTAMP_NANOS_LOCAL, TypeTag.TIMESTAMP, PhysicalType.INT64): _timestamp("ns", is_utc=False),
    (ForeignAnnotation.TIME_MILLIS, TypeTag.INT, PhysicalType.INT32): _time("ms"),
    (ForeignAnnotation.TIME_MICROS, TypeTag.LONG, PhysicalType.INT64): _time("us"),
    (ForeignAnnotation.TIME_NANOS, TypeTag.LONG, PhysicalType.INT64): _time("ns"),
    (ForeignAnnotation.NULLABLE, TypeTag.BOOLEAN, PhysicalType.BOOLEAN): _BOOLEAN,
    (ForeignAnnotation.NULLABLE, TypeTag.BYTE, PhysicalType.INT32): _signed(8),
    (ForeignAnnotation.NULLABLE, TypeTag.SHORT, PhysicalType.INT32): _signed(16),
}
"""Foreign columns whose annotation overrides the type code."""

_NEVER_NULL_TAGS = frozenset({TypeTag.BOOLEAN, TypeTag.BYTE, TypeTag.SHORT, TypeTag.CHAR})


@lru_cache(maxsize=4096)
def resolve_type(
    type_code: int,
    physical_type: PhysicalType,
    fixed_byte_length: int,
    max_rep_level: int,
    annotation: str | None = None,
) -> ColumnType:
    """Determine the content of a column, how it compares and its Arrow type."""
    if annotation is not None and (stored := _type_as_stored(annotation, physical_type, fixed_byte_length)) is not None:
        return stored
    tag = tag_of(type_code)
    physical_type = PhysicalType(physical_type)
    storage = _storage(type_code, tag, physical_type, max_rep_level, annotation)
    # Decimals allow any length; other types have one, and only in FIXED_LEN_BYTE_ARRAY.
    width = fixed_byte_length if physical_type is PhysicalType.FIXED_LEN_BYTE_ARRAY else 0
    if storage is None or (storage.fixed_byte_length != width and not is_decimal(tag)):
        suffix = f" annotated {annotation}" if annotation else ""
        raise unsupported_type(
            type_code,
            f"{type_name(type_code)}{suffix} is not stored as {physical_type.name}"
            f" of {fixed_byte_length} bytes with {max_rep_level} levels of repetition",
        )
    return ColumnType(
        tag=tag,
        name=type_name(type_code),
        arrow=storage.arrow,
        physical_type=physical_type,
        fixed_byte_length=fixed_byte_length,
        comparison=storage.comparison,
        statistics=storage.statistics,
        never_null=tag in _NEVER_NULL_TAGS and annotation is None,
        raw_array=tag is TypeTag.ARRAY and physical_type is PhysicalType.BYTE_ARRAY,
        parquet_logical=storage.logical,
    )


def _type_as_stored(annotation: str, physical_type: PhysicalType, fixed_byte_length: int) -> ColumnType | None:
    """Return the type of a column that pyarrow decodes by its Parquet schema, or of one of its leaves."""
    if parse_part(annotation) is not None:
        note, text = "", "part of a nested column"
    elif (stored := parse_stored(annotation)) is not None:
        note, text = stored
        if not note:
            raise unsupported_type(UNKNOWN_TYPE_CODE, f"the schema of {text:.60} is too long for a sidecar")
    else:
        return None
    return ColumnType(
        tag=TypeTag.BINARY,
        name=text,
        arrow=ArrowKind(name="parquet", parquet=note, text=text),
        physical_type=PhysicalType(physical_type),
        fixed_byte_length=fixed_byte_length,
        comparison=ValueOrder.NONE,
        statistics=StatisticsTrust.NEVER,
        never_null=False,
        raw_array=False,
        parquet_logical=None,
    )


def _storage(
    type_code: int, tag: TypeTag, physical_type: PhysicalType, max_rep_level: int, annotation: str | None
) -> _Storage | None:
    """Return the properties of the storage for the type, or None where they do not fit."""
    if tag is TypeTag.ARRAY:
        return _array_storage(type_code, physical_type, max_rep_level) if annotation is None else None
    if max_rep_level != 0:
        return None
    if annotation is not None:
        return _BY_ANNOTATION.get((annotation, tag, physical_type))
    if tag is TypeTag.TIMESTAMP:
        return _timestamp_storage(type_code, physical_type)
    if is_decimal(tag):
        return _decimal_storage(type_code, tag, physical_type)
    if is_geohash(tag):
        geohash_bits(type_code)
    return _BY_TAG.get((tag, physical_type))


def _timestamp_storage(type_code: int, physical_type: PhysicalType) -> _Storage | None:
    if physical_type is PhysicalType.INT64:
        return _timestamp(timestamp_unit(type_code), is_utc=True)
    return _INT96 if physical_type is PhysicalType.INT96 and is_nanosecond(type_code) else None


def _array_storage(type_code: int, physical_type: PhysicalType, max_rep_level: int) -> _Storage | None:
    dimensions = array_dimensions(type_code)
    is_raw = physical_type is PhysicalType.BYTE_ARRAY and max_rep_level == 0
    is_nested = physical_type is PhysicalType.DOUBLE and max_rep_level == dimensions
    if not (is_raw or is_nested):
        return None
    return _Storage(
        arrow=ArrowKind(name="list", dimensions=dimensions),
        comparison=ValueOrder.NONE,
        statistics=StatisticsTrust.NEVER,
    )


def _decimal_storage(type_code: int, tag: TypeTag, physical_type: PhysicalType) -> _Storage | None:
    if physical_type not in {
        PhysicalType.INT32,
        PhysicalType.INT64,
        PhysicalType.BYTE_ARRAY,
        PhysicalType.FIXED_LEN_BYTE_ARRAY,
    }:
        return None
    precision, scale = decimal_precision_scale(type_code)
    is_wide = tag in {TypeTag.DECIMAL128, TypeTag.DECIMAL256}
    return _Storage(
        arrow=ArrowKind(name="decimal256" if precision > 38 else "decimal128", precision=precision, scale=scale),
        comparison=ValueOrder.DECIMAL,
        statistics=StatisticsTrust.NEVER if is_wide else StatisticsTrust.TRUSTED,
        logical=LogicalType(kind=LogicalKind.DECIMAL, precision=precision, scale=scale),
    )


_STORAGE: dict[TypeTag, tuple[PhysicalType, int]] = {
    TypeTag.BOOLEAN: (PhysicalType.BOOLEAN, 0),
    **dict.fromkeys(
        (
            TypeTag.BYTE,
            TypeTag.SHORT,
            TypeTag.CHAR,
            TypeTag.INT,
            TypeTag.IPV4,
            TypeTag.GEOBYTE,
            TypeTag.GEOSHORT,
            TypeTag.GEOINT,
        ),
        (PhysicalType.INT32, 0),
    ),
    **dict.fromkeys(
        (TypeTag.LONG, TypeTag.DATE, TypeTag.TIMESTAMP, TypeTag.GEOLONG),
        (PhysicalType.INT64, 0),
    ),
    TypeTag.FLOAT: (PhysicalType.FLOAT, 0),
    TypeTag.DOUBLE: (PhysicalType.DOUBLE, 0),
    **dict.fromkeys(
        (TypeTag.STRING, TypeTag.VARCHAR, TypeTag.SYMBOL, TypeTag.BINARY, TypeTag.ARRAY),
        (PhysicalType.BYTE_ARRAY, 0),
    ),
    TypeTag.UUID: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 16),
    TypeTag.LONG128: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 16),
    TypeTag.LONG256: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 32),
    TypeTag.DECIMAL8: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 1),
    TypeTag.DECIMAL16: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 2),
    TypeTag.DECIMAL32: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 4),
    TypeTag.DECIMAL64: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 8),
    TypeTag.DECIMAL128: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 16),
    TypeTag.DECIMAL256: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 32),
}
"""Parquet's physical type, and bytes per value of the fixed-length ones, by tag."""


def canonical_type(type_code: int) -> ColumnType:
    """Return the type of a column that QuestDB stores: its Arrow type, its order, and the Parquet storage it gets."""
    tag = tag_of(type_code)
    has_parameters = tag in (TypeTag.TIMESTAMP, TypeTag.ARRAY) or is_decimal(tag) or is_geohash(tag)
    if type_code != tag and not has_parameters:
        raise unsupported_type(type_code, f"{tag.name} has no parameters, so this is another, unknown type")
    physical_type, fixed_byte_length = _STORAGE[tag]
    return resolve_type(type_code, physical_type, fixed_byte_length, max_rep_level=0)


_Integer = TypeVar("_Integer", bound=np.integer)


def distinct_values(values: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """Return the distinct values of an array, shape ``(values,)``, in ascending order."""
    ascending = np.sort(values)
    is_first = np.ones(len(ascending), dtype=np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return ascending[is_first]
