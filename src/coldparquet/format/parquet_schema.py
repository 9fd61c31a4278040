"""Converts the schema of a Parquet file: from Thrift elements to leaf columns, and back for virtual files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format import parquet_thrift as thrift
from coldparquet.format.sidecar_layout import PhysicalType, Repetition
from coldparquet.format.thrift import Empty
from coldparquet.format.types import LogicalKind, LogicalType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_LEVEL = 255
"""Largest repetition or definition level that a sidecar can hold."""

_CONVERTED_TYPES = {
    0: LogicalType(kind=LogicalKind.STRING),
    3: LogicalType(kind=LogicalKind.LIST),
    6: LogicalType(kind=LogicalKind.DATE),
    7: LogicalType(kind=LogicalKind.TIME, unit="ms"),
    8: LogicalType(kind=LogicalKind.TIME, unit="us"),
    9: LogicalType(kind=LogicalKind.TIMESTAMP, unit="ms"),
    10: LogicalType(kind=LogicalKind.TIMESTAMP, unit="us"),
    11: LogicalType(kind=LogicalKind.INTEGER, bit_width=8, is_signed=False),
    12: LogicalType(kind=LogicalKind.INTEGER, bit_width=16, is_signed=False),
    13: LogicalType(kind=LogicalKind.INTEGER, bit_width=32, is_signed=False),
    14: LogicalType(kind=LogicalKind.INTEGER, bit_width=64, is_signed=False),
    15: LogicalType(kind=LogicalKind.INTEGER, bit_width=8),
    16: LogicalType(kind=LogicalKind.INTEGER, bit_width=16),
    17: LogicalType(kind=LogicalKind.INTEGER, bit_width=32),
    18: LogicalType(kind=LogicalKind.INTEGER, bit_width=64),
}
"""The older annotations, by number in parquet.thrift; DECIMAL has parameters of its own."""
_CONVERTED_DECIMAL = 5
_CONVERTED_NUMBERS = {logical: number for number, logical in _CONVERTED_TYPES.items()}
_OTHER = LogicalType(kind=LogicalKind.OTHER)

_REPETITIONS = frozenset(Repetition)
_PHYSICAL_TYPES = frozenset(PhysicalType)
_UNITS = {"ms": "MILLIS", "us": "MICROS", "ns": "NANOS"}


class SchemaLeaf(Struct, frozen=True, kw_only=True):
    """One leaf of the schema tree, which is one column chunk per row group."""

    name: str
    """Name of the top-level field that holds the leaf."""
    repetition: Repetition
    """Repetition of the top-level field."""
    field_id: int | None
    """Field id of the top-level field."""
    physical_type: PhysicalType
    fixed_byte_length: int
    """Bytes per value of FIXED_LEN_BYTE_ARRAY, otherwise 0."""
    max_rep_level: int
    """Number of repeated fields on the way from the top-level field to the leaf."""
    max_def_level: int
    """Number of repeated and optional fields on that way."""
    logical: LogicalType | None
    """Annotation of the leaf itself."""
    depth: int
    """Number of fields on the way from the top-level field to the leaf; 1 for flat columns."""
    list_optionals: tuple[bool, ...] | None
    """For a leaf in nothing but annotated lists: whether each list, outermost first, and finally its element, is
    optional. None for flat columns and for other groups: structs, maps, unannotated or repeated fields."""
    path: tuple[str, ...]
    """Names of the fields from the top-level field to the leaf."""
    number: int
    """Position among the leaves of the top-level field."""
    elements: list[thrift.SchemaElement]
    """The top-level field and all below it, depth first; its leaves share the list."""


def parse_schema(elements: Sequence[thrift.SchemaElement], *, path: str | None) -> tuple[SchemaLeaf, ...]:
    """Find the leaves of a schema, in the order of the column chunks."""
    if not elements:
        raise _invalid("the footer has no schema", path)
    return tuple(_walk(elements, path))


class _OpenGroup(Struct):
    """A group whose children are being read."""

    element: thrift.SchemaElement
    children_left: int


def _walk(elements: Sequence[thrift.SchemaElement], path: str | None) -> Iterator[SchemaLeaf]:
    open_groups = [_OpenGroup(elements[0], _child_count(elements[0], path))]
    of_field: list[thrift.SchemaElement] = []
    number = 0
    for element in elements[1:]:
        while open_groups and open_groups[-1].children_left == 0:
            open_groups.pop()
        if not open_groups:
            raise _invalid(f"schema element {element.name!r} belongs to no group", path)
        open_groups[-1].children_left -= 1
        if len(open_groups) == 1:
            of_field, number = [], 0
        of_field.append(element)
        if element.repetition_type is None:
            element.repetition_type = Repetition.REQUIRED  # as Arrow and DuckDB do where writers leave it out
        if element.repetition_type not in _REPETITIONS:
            raise _invalid(f"schema element {element.name!r} has the repetition {element.repetition_type}", path)
        if element.type is None:
            open_groups.append(_OpenGroup(element, _child_count(element, path)))
            if len(open_groups) > MAX_LEVEL:
                raise UnsupportedError(f"the schema is nested deeper than {MAX_LEVEL} levels", path=path)
        else:
            yield _leaf([*(group.element for group in open_groups[1:]), element], number, of_field, path)
            number += 1
    if any(group.children_left for group in open_groups):
        raise _invalid("the schema ends before its last group is complete", path)


def _child_count(element: thrift.SchemaElement, path: str | None) -> int:
    if element.num_children is None or element.num_children < 0:
        raise _invalid(f"schema element {element.name!r} has neither a type nor children", path)
    return element.num_children


def _leaf(
    fields: list[thrift.SchemaElement], number: int, of_field: list[thrift.SchemaElement], path: str | None
) -> SchemaLeaf:
    """Describe the leaf at the end of ``fields``, which start with the top-level field."""
    top, leaf = fields[0], fields[-1]
    if leaf.type is None or leaf.type not in _PHYSICAL_TYPES:
        raise _invalid(f"column {top.name!r} has the physical type {leaf.type}, expected 0 to 7", path)
    physical_type = PhysicalType(leaf.type)
    length = 0
    if physical_type is PhysicalType.FIXED_LEN_BYTE_ARRAY:
        length = leaf.type_length or 0
        if length <= 0:
            raise _invalid(f"column {top.name!r} of fixed length has the length {leaf.type_length}", path)
    repeated = sum(field.repetition_type == Repetition.REPEATED for field in fields)
    optional = sum(field.repetition_type == Repetition.OPTIONAL for field in fields)
    return SchemaLeaf(
        name=top.name,
        repetition=Repetition(top.repetition_type or Repetition.REQUIRED),
        field_id=top.field_id,
        physical_type=physical_type,
        fixed_byte_length=length,
        max_rep_level=repeated,
        max_def_level=repeated + optional,
        logical=logical_type_of(leaf),
        depth=len(fields),
        list_optionals=_list_optionals(fields),
        path=tuple(field.name for field in fields),
        number=number,
        elements=of_field,
    )


def _list_optionals(fields: list[thrift.SchemaElement]) -> tuple[bool, ...] | None:
    """Return which lists and elements are optional if the fields alternate between LIST groups and repeated groups."""
    optionals = []
    *groups, leaf = fields
    while groups:
        group = groups.pop(0)
        logical = logical_type_of(group)
        is_list = logical is not None and logical.kind is LogicalKind.LIST
        if not is_list or group.num_children != 1 or group.repetition_type == Repetition.REPEATED:
            return None
        optionals.append(group.repetition_type == Repetition.OPTIONAL)
        if not groups:
            # The old form of two levels: the repeated leaf is the element, which then is never null.
            return (*optionals, False) if leaf.repetition_type == Repetition.REPEATED else None
        repeated = groups.pop(0)
        # Repeated groups of these two names are themselves the elements: structs (LogicalTypes.md, "Lists").
        is_struct = repeated.name in {"array", f"{group.name}_tuple"}
        if repeated.repetition_type != Repetition.REPEATED or repeated.num_children != 1 or is_struct:
            return None
    if not optionals or leaf.repetition_type == Repetition.REPEATED:
        return None
    return (*optionals, leaf.repetition_type == Repetition.OPTIONAL)


def logical_type_of(element: thrift.SchemaElement) -> LogicalType | None:
    """Return the annotation of a schema element; the newer form wins over the older."""
    annotation = element.logicalType
    if annotation is not None:
        return _logical_of_annotation(annotation)
    if element.converted_type is None:
        return None
    if element.converted_type == _CONVERTED_DECIMAL:
        return LogicalType(kind=LogicalKind.DECIMAL, precision=element.precision or 0, scale=element.scale or 0)
    return _CONVERTED_TYPES.get(element.converted_type, _OTHER)


def _logical_of_annotation(annotation: thrift.Annotation) -> LogicalType:
    if annotation.DECIMAL is not None:
        return LogicalType(
            kind=LogicalKind.DECIMAL,
            precision=annotation.DECIMAL.precision or 0,
            scale=annotation.DECIMAL.scale or 0,
        )
    if annotation.INTEGER is not None:
        return LogicalType(
            kind=LogicalKind.INTEGER,
            bit_width=annotation.INTEGER.bitWidth or 0,
            is_signed=annotation.INTEGER.isSigned is not False,
        )
    for kind, time in ((LogicalKind.TIME, annotation.TIME), (LogicalKind.TIMESTAMP, annotation.TIMESTAMP)):
        if time is not None:
            unit = next((unit for unit, name in _UNITS.items() if getattr(time.unit, name, None) is not None), None)
            if unit is None:
                return _OTHER
            is_utc = kind is LogicalKind.TIME or time.isAdjustedToUTC is not False
            return LogicalType(kind=kind, unit=unit, is_utc=is_utc)
    for kind in (LogicalKind.STRING, LogicalKind.LIST, LogicalKind.DATE, LogicalKind.UUID):
        if getattr(annotation, kind) is not None:
            return LogicalType(kind=kind)
    return _OTHER


class LeafSpec(Struct, frozen=True, kw_only=True):
    """One column of a virtual file's schema, with the fields of a sidecar's column descriptor."""

    name: str
    physical_type: PhysicalType
    fixed_byte_length: int = 0
    repetition: Repetition = Repetition.OPTIONAL
    """Repetition of the top-level field; matters only for lists, flat columns follow from ``max_def_level``."""
    max_rep_level: int = 0
    max_def_level: int = 1
    logical: LogicalType | None = None
    stored: str | None = None
    """For the first leaf of a column that has the schema of its file: that schema, as in its annotation."""
    number: int = 0
    """Position among the leaves of such a column; the others follow the first one."""


def encode_leaf(leaf: LeafSpec) -> tuple[list[thrift.SchemaElement], list[str]]:
    """Encode one column: its schema elements in depth-first order, and the path from the top-level field to the leaf.

    A column with repetition levels becomes that many nested lists, in the three-level form of Parquet's
    LogicalTypes.md, with groups named ``list`` and ``element`` as pyarrow expects them.
    """
    element = thrift.SchemaElement(
        type=leaf.physical_type,
        type_length=leaf.fixed_byte_length or None,
        repetition_type=Repetition.REQUIRED,
        name=leaf.name,
    )
    _annotate(element, leaf.logical)
    if leaf.max_rep_level == 0:
        if leaf.max_def_level > 1:
            raise _unsupported_levels(leaf)
        element.repetition_type = Repetition.OPTIONAL if leaf.max_def_level else Repetition.REQUIRED
        return [element], [leaf.name]

    optionals = list_optionals_of_levels(
        is_outer_optional=leaf.repetition == Repetition.OPTIONAL,
        max_rep_level=leaf.max_rep_level,
        max_def_level=leaf.max_def_level,
    )
    if optionals is None:
        raise _unsupported_levels(leaf)
    elements: list[thrift.SchemaElement] = []
    for is_optional in optionals[:-1]:
        name = "element" if elements else leaf.name
        group = thrift.SchemaElement(repetition_type=_repetition(is_optional), name=name, num_children=1)
        _annotate(group, LogicalType(kind=LogicalKind.LIST))
        repeated = thrift.SchemaElement(repetition_type=Repetition.REPEATED, name="list", num_children=1)
        elements += [group, repeated]
    element.name = "element"
    element.repetition_type = _repetition(optionals[-1])
    elements.append(element)
    return elements, [element.name for element in elements]


def list_optionals_of_levels(
    *, is_outer_optional: bool, max_rep_level: int, max_def_level: int
) -> tuple[bool, ...] | None:
    """Derive which nested lists are optional from the levels alone, all that a sidecar keeps."""
    inner_count = max_def_level - max_rep_level - is_outer_optional
    if inner_count == max_rep_level:
        return (is_outer_optional, *(True for _ in range(max_rep_level)))
    if inner_count in {0, 1}:
        return (is_outer_optional, *(False for _ in range(max_rep_level - 1)), inner_count == 1)
    return None


def _repetition(is_optional: bool) -> Repetition:
    return Repetition.OPTIONAL if is_optional else Repetition.REQUIRED


def _annotate(element: thrift.SchemaElement, logical: LogicalType | None) -> None:
    """Write an annotation in its newer form and, where there is one, its older form."""
    if logical is None:
        return
    annotation = thrift.Annotation()
    match logical.kind:
        case LogicalKind.DECIMAL:
            element.converted_type = _CONVERTED_DECIMAL
            element.precision, element.scale = logical.precision, logical.scale
            annotation.DECIMAL = thrift.DecimalAnnotation(precision=logical.precision, scale=logical.scale)
        case LogicalKind.INTEGER:
            annotation.INTEGER = thrift.IntegerAnnotation(bitWidth=logical.bit_width, isSigned=logical.is_signed)
        case LogicalKind.TIME | LogicalKind.TIMESTAMP:
            unit = thrift.UnitAnnotation(**{_UNITS[logical.unit or ""]: Empty()})
            setattr(annotation, logical.kind, thrift.TimeAnnotation(isAdjustedToUTC=logical.is_utc, unit=unit))
        case LogicalKind.STRING | LogicalKind.LIST | LogicalKind.DATE | LogicalKind.UUID:
            setattr(annotation, logical.kind, Empty())
        case LogicalKind.OTHER:
            return
    element.logicalType = annotation
    element.converted_type = _CONVERTED_NUMBERS.get(logical, element.converted_type)


def _unsupported_levels(leaf: LeafSpec) -> UnsupportedError:
    return UnsupportedError(
        f"column {leaf.name!r} has {leaf.max_rep_level} levels of repetition and {leaf.max_def_level} of definition,"
        " which do not tell how its groups are nested; leave it out of the selection to read the others",
        kind="UnsupportedNesting",
        field=leaf.name,
    )


def _invalid(message: str, path: str | None) -> FormatError:
    return FormatError(f"{message}; the footer is damaged", kind="InvalidSchema", path=path, field="schema")
