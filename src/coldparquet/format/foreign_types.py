"""Which QuestDB type a column of a file gets that QuestDB did not write, and what that type fails to say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.format.foreign_annotations import ForeignAnnotation
from coldparquet.format.logical_types import LogicalKind, LogicalType
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import (
    MAX_ARRAY_DIMENSIONS,
    NANOSECOND_BIT,
    UNKNOWN_TYPE_CODE,
    TypeTag,
    array_type_code,
    decimal_type_code,
)

if TYPE_CHECKING:
    from coldparquet.format.parquet_schema import SchemaLeaf

Inferred = tuple[int, ForeignAnnotation | None]
"""Type code, and the annotation where the code alone would give another Arrow type."""

_NO_LOGICAL = LogicalType(kind=LogicalKind.OTHER)
_TIMESTAMPS: dict[str | None, tuple[int, ForeignAnnotation]] = {
    "ms": (TypeTag.DATE, ForeignAnnotation.TIMESTAMP_MILLIS_LOCAL),
    "us": (TypeTag.TIMESTAMP, ForeignAnnotation.TIMESTAMP_MICROS_LOCAL),
    "ns": (TypeTag.TIMESTAMP | NANOSECOND_BIT, ForeignAnnotation.TIMESTAMP_NANOS_LOCAL),
}
_TIMES: dict[tuple[PhysicalType, str | None], Inferred] = {
    (PhysicalType.INT32, "ms"): (TypeTag.INT, ForeignAnnotation.TIME_MILLIS),
    (PhysicalType.INT64, "us"): (TypeTag.LONG, ForeignAnnotation.TIME_MICROS),
    (PhysicalType.INT64, "ns"): (TypeTag.LONG, ForeignAnnotation.TIME_NANOS),
}
_INTEGERS: dict[tuple[PhysicalType, int, bool], Inferred] = {
    (PhysicalType.INT32, 8, True): (TypeTag.BYTE, None),
    (PhysicalType.INT32, 16, True): (TypeTag.SHORT, None),
    (PhysicalType.INT32, 32, True): (TypeTag.INT, None),
    (PhysicalType.INT64, 64, True): (TypeTag.LONG, None),
    (PhysicalType.INT32, 8, False): (TypeTag.INT, ForeignAnnotation.UINT_8),
    (PhysicalType.INT32, 16, False): (TypeTag.INT, ForeignAnnotation.UINT_16),
    (PhysicalType.INT32, 32, False): (TypeTag.INT, ForeignAnnotation.UINT_32),
    (PhysicalType.INT64, 64, False): (TypeTag.LONG, ForeignAnnotation.UINT_64),
}
_DEFAULTS: dict[PhysicalType, int] = {
    PhysicalType.BOOLEAN: TypeTag.BOOLEAN,
    PhysicalType.INT32: TypeTag.INT,
    PhysicalType.INT64: TypeTag.LONG,
    PhysicalType.FLOAT: TypeTag.FLOAT,
    PhysicalType.DOUBLE: TypeTag.DOUBLE,
    PhysicalType.BYTE_ARRAY: TypeTag.BINARY,
}
"""What is left where no annotation says more."""
_DECIMALS = frozenset(
    {PhysicalType.INT32, PhysicalType.INT64, PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY}
)
_CONTRADICTION: Inferred = (UNKNOWN_TYPE_CODE, None)
"""The annotation cannot stand at this physical type, such as a 64-bit integer in 32 bits: nobody knows what is meant."""
_NULLABLE_TAGS = frozenset({TypeTag.BOOLEAN, TypeTag.BYTE, TypeTag.SHORT})
"""Types that QuestDB reads as 0 or false where the file has a null."""


def infer_type(leaf: SchemaLeaf) -> Inferred | None:
    """Infer the type of a foreign column as QuestDB does when it makes a sidecar for one.

    Returns:
        Type code and annotation. The code is -1 for a flat column without counterpart, such as FLOAT16, and for one whose
        annotation contradicts its physical type: the file can be read, that column cannot. None for a nested column that is
        not an array of doubles.
    """
    if leaf.depth > 1:
        is_array = leaf.list_optionals is not None and leaf.max_rep_level <= MAX_ARRAY_DIMENSIONS
        if is_array and leaf.physical_type is PhysicalType.DOUBLE:
            return array_type_code(leaf.max_rep_level), None
        return None
    if leaf.max_rep_level:
        return None
    type_code, annotation = _infer_flat(leaf, leaf.logical or _NO_LOGICAL)
    if type_code in _NULLABLE_TAGS and leaf.max_def_level:
        annotation = ForeignAnnotation.NULLABLE
    return type_code, annotation


def _infer_flat(leaf: SchemaLeaf, logical: LogicalType) -> Inferred:  # noqa: PLR0911  # a table, read from the top
    physical = leaf.physical_type
    match physical, logical.kind:
        case (PhysicalType.INT96, _):
            return (TypeTag.TIMESTAMP | NANOSECOND_BIT if leaf.logical is None else UNKNOWN_TYPE_CODE), None
        case (PhysicalType.FIXED_LEN_BYTE_ARRAY, kind) if kind is not LogicalKind.DECIMAL:
            return _fixed_length_code(leaf.fixed_byte_length, kind), None
        case (_, LogicalKind.OTHER):
            return _DEFAULTS[physical], None
        case (_, LogicalKind.DECIMAL) if physical in _DECIMALS:
            return decimal_type_code(logical.precision, logical.scale), None
        case (PhysicalType.BYTE_ARRAY, LogicalKind.STRING):
            return TypeTag.VARCHAR, None
        case (PhysicalType.INT32, LogicalKind.DATE):
            return TypeTag.DATE, None
        case (PhysicalType.INT64, LogicalKind.TIMESTAMP):
            type_code, local = _TIMESTAMPS[logical.unit]
            return type_code, None if logical.is_utc else local
        case (_, LogicalKind.TIME):
            return _TIMES.get((physical, logical.unit), _CONTRADICTION)
        case (_, LogicalKind.INTEGER):
            return _INTEGERS.get((physical, logical.bit_width, logical.is_signed), _CONTRADICTION)
    return _CONTRADICTION


def _fixed_length_code(length: int, kind: LogicalKind) -> int:
    if length == 16:
        return TypeTag.UUID if kind is LogicalKind.UUID else TypeTag.LONG128
    return TypeTag.LONG256 if length == 32 else UNKNOWN_TYPE_CODE
