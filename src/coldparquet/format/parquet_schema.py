"""Converts the schema of a Parquet file: from Thrift elements to leaf columns, and back for virtual files.

Some columns no type of QuestDB can describe: nested ones, half floats, intervals. pyarrow decodes these by their part of
the file's schema, which the sidecar notes. A sidecar has one column for each leaf of the schema, so that its columns and
those of the footer have the same numbers. A nested column is several of them: the first one has the name of the whole, and
its annotation (:func:`coldparquet.format.types.parse_foreign_annotations`) is the part of the schema that the whole is, as
Thrift bytes in Base64, and its Arrow type as text. The annotations of the others say to which column they belong. The
chunks of all of them are decoded at once, from a virtual file with the same part of the schema.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format import parquet_thrift as thrift
from coldparquet.format.sidecar_layout import PhysicalType, Repetition
from coldparquet.format.thrift import Empty
from coldparquet.format.types import LogicalKind, LogicalType, stored_annotation
from coldparquet.records import replace

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
    for kind in (LogicalKind.STRING, LogicalKind.LIST, LogicalKind.DATE, LogicalKind.UUID, LogicalKind.UNKNOWN):
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
        case LogicalKind.STRING | LogicalKind.LIST | LogicalKind.DATE | LogicalKind.UUID | LogicalKind.UNKNOWN:
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


_LONGEST_NOTE_BYTES = 32 * 1024
"""The scratchpad holds 1 MiB, and is a part of every sidecar: longer ones are left out, and their columns are unreadable."""

_SHOWN_CHARACTERS = 60

_CONVERTED_MAP = 1
_CONVERTED_MAPS = frozenset({_CONVERTED_MAP, 2})
"""MAP and MAP_KEY_VALUE of the older annotations."""


class _Node(Struct):
    """A schema element with its children."""

    element: thrift.SchemaElement
    children: list[_Node]


def annotation_of(leaf: SchemaLeaf) -> str:
    """Return the annotation of the first leaf of a column; without the schema if that is too long."""
    first, *others = map(_what_counts, leaf.elements)
    note = note_of([replace(first, name=""), *others])
    text = _type_text(_tree(iter(leaf.elements)))
    is_too_long = len(note) + len(text) > _LONGEST_NOTE_BYTES
    if is_too_long:
        note, text = "", text[:_SHOWN_CHARACTERS]
    is_nested = len(leaf.elements) > 1 or leaf.max_rep_level > 0
    return stored_annotation(note, text, is_nested=is_nested)


def _what_counts(element: thrift.SchemaElement) -> thrift.SchemaElement:
    """Drop the id, and an annotation that this version does not know, of which an empty one was decoded."""
    known = None if element.logicalType == thrift.Annotation() else element.logicalType
    return replace(element, logicalType=known, field_id=None)


@lru_cache(maxsize=1024)
def noted_leaves(note: str) -> tuple[SchemaLeaf, ...]:
    """Return the leaves of a column, at least one, from the Base64 in its annotation."""
    try:
        content = base64.b64decode(note, validate=True)
    except binascii.Error as error:
        raise FormatError(
            f"the noted schema of a column is not Base64: {error}", field="foreign_annotations"
        ) from error
    schema = thrift.FileMetaData.decode(content, path=None, offset=0).schema
    leaves = parse_schema(schema, path=None)
    if not leaves or len(leaves[0].elements) != len(schema) - 1:
        raise FormatError("the noted schema of a column is not that of one column", field="foreign_annotations")
    return leaves


def encode_stored(name: str, note: str) -> tuple[list[thrift.SchemaElement], list[list[str]]]:
    """Return the schema elements of a noted column under another name, and the path to each of its leaves."""
    leaves = noted_leaves(note)
    first, *others = leaves[0].elements
    return [replace(first, name=name), *others], [[name, *leaf.path[1:]] for leaf in leaves]


@lru_cache(maxsize=1024)
def note_of_levels(note: str, number: int) -> str:
    """Return the schema of a column of INT32 whose only leaf has the levels of one leaf of a noted column."""
    *groups, leaf = list(_paths(_tree(iter(noted_leaves(note)[0].elements))))[number]
    levels = [
        thrift.SchemaElement(name="group", repetition_type=group.repetition_type, num_children=1) for group in groups
    ]
    last = thrift.SchemaElement(name="number", repetition_type=leaf.repetition_type, type=PhysicalType.INT32)
    return note_of([*levels, last])


def _paths(node: _Node) -> Iterator[list[thrift.SchemaElement]]:
    """Yield the fields on the way to each leaf."""
    if not node.children:
        yield [node.element]
    for child in node.children:
        for path in _paths(child):
            yield [node.element, *path]


def note_of(elements: Sequence[thrift.SchemaElement]) -> str:
    """Return the schema of one column, a field and all below it, as in its annotation."""
    schema = [thrift.SchemaElement(name="schema", num_children=1), *elements]
    return base64.b64encode(thrift.FileMetaData(schema=schema, num_rows=0).encode()).decode()


def _tree(elements: Iterator[thrift.SchemaElement]) -> _Node:
    element = next(elements)
    return _Node(element, [_tree(elements) for _ in range(element.num_children or 0)])


def _type_text(node: _Node) -> str:
    """Write the Arrow type that a field becomes."""
    shape, parts = _shape(node)
    if shape == "leaf":
        return _leaf_text(node.element)
    texts = [f"{part.element.name}: {_type_text(part)}" if shape == "struct" else _type_text(part) for part in parts]
    return f"{shape}<{', '.join(texts)}>"


_Shape = Literal["leaf", "list", "map", "struct"]


def _shape(node: _Node) -> tuple[_Shape, list[_Node]]:
    """Return what Arrow makes of a field, and the fields in it.

    Some repeated groups are the item of a list, and others only hold it (LogicalTypes.md, "Lists").
    """
    element, children = node.element, node.children
    if element.repetition_type == Repetition.REPEATED:
        return "list", [_once(node)]
    if not children:
        return "leaf", []
    repeated, logical = children[0], logical_type_of(element)
    is_wrapper = len(children) == 1 and repeated.element.repetition_type == Repetition.REPEATED
    if is_wrapper and logical is not None and logical.kind is LogicalKind.LIST:
        is_item = len(repeated.children) != 1 or repeated.element.name in {"array", f"{element.name}_tuple"}
        return "list", [_once(repeated) if is_item else repeated.children[0]]
    if is_wrapper and _is_map(element) and len(repeated.children) == 2:
        return "map", repeated.children
    return "struct", children


def _once(node: _Node) -> _Node:
    return _Node(replace(node.element, repetition_type=Repetition.OPTIONAL), node.children)


def unified_note(first: str, second: str, unified_leaf: UnifiedLeaf) -> tuple[str, str] | None:
    """Return the schema of a column that holds the values of two noted ones, and its Arrow type as text.

    Structs get the fields of both, the first one's in front; fields are found by their names. None if there is none.
    """
    trees = [_tree(iter(noted_leaves(note)[0].elements)) for note in (first, second)]
    both, as_first = (_unified(trees[0], other, unified_leaf) for other in (trees[1], trees[0]))
    if both is None:
        return None
    if both == as_first:
        return first, _type_text(trees[0])
    return note_of(list(_elements(both))), _type_text(both)


UnifiedLeaf: TypeAlias = Callable[[thrift.SchemaElement, thrift.SchemaElement], thrift.SchemaElement | None]
"""Returns a leaf that holds the values of two, None if there is none."""


def _unified(first: _Node, second: _Node, unified_leaf: UnifiedLeaf) -> _Node | None:
    (shape, parts), (other_shape, other_parts) = _shape(first), _shape(second)
    for node, other in ((first, second), (second, first)):
        if node is not other and _type_text(other) == "null":
            return _unified(node, node, unified_leaf)
    if shape != other_shape:
        return None
    if shape == "leaf":
        is_same = _leaf_text(first.element) == _leaf_text(second.element)
        leaf = first.element if is_same else unified_leaf(first.element, second.element)
        return None if leaf is None else _Node(replace(leaf, repetition_type=Repetition.OPTIONAL), [])
    pairs = list(zip(parts, other_parts, strict=True)) if shape != "struct" else _pairs_by_name(parts, other_parts)
    unified = [_unified(*pair, unified_leaf) for pair in pairs]
    made = [part for part in unified if part is not None]
    return _group(shape, first.element.name, made) if unified and len(made) == len(unified) else None


def _pairs_by_name(parts: Sequence[_Node], others: Sequence[_Node]) -> list[tuple[_Node, _Node]]:
    """Return the fields of two structs in pairs, each that only one has with itself; none if names do not tell them apart."""
    first, second = ({part.element.name: part for part in of_one} for of_one in (parts, others))
    if len(first) < len(parts) or len(second) < len(others):
        return []
    return [(first.get(name, part), second.get(name, part)) for name, part in (first | second).items()]


def _group(shape: _Shape, name: str, parts: list[_Node]) -> _Node:
    """Make a field of other fields in the form that LogicalTypes.md demands; all may be null but the keys of maps."""
    group = thrift.SchemaElement(name=name, repetition_type=Repetition.OPTIONAL, num_children=len(parts))
    if shape == "struct":
        return _Node(group, parts)
    repeated = thrift.SchemaElement(
        name="list" if shape == "list" else "key_value",
        repetition_type=Repetition.REPEATED,
        num_children=len(parts),
    )
    names = ("element",) if shape == "list" else ("key", "value")
    parts = [_Node(replace(part.element, name=name), part.children) for name, part in zip(names, parts, strict=True)]
    group.num_children = 1
    if shape == "list":
        _annotate(group, LogicalType(kind=LogicalKind.LIST))
    else:
        group.converted_type, group.logicalType = _CONVERTED_MAP, thrift.Annotation(MAP=Empty())
        parts[0].element.repetition_type = Repetition.REQUIRED
    return _Node(group, [_Node(repeated, parts)])


def _elements(node: _Node) -> Iterator[thrift.SchemaElement]:
    yield node.element
    for child in node.children:
        yield from _elements(child)


def _is_map(element: thrift.SchemaElement) -> bool:
    annotation = element.logicalType
    return element.converted_type in _CONVERTED_MAPS or (annotation is not None and annotation.MAP is not None)


def _leaf_text(element: thrift.SchemaElement) -> str:
    logical = logical_type_of(element) or LogicalType(kind=LogicalKind.OTHER)
    if logical.kind in _TEXTS:
        zone = ", UTC" if logical.is_utc else ""
        sign = "" if logical.is_signed else "u"
        return _TEXTS[logical.kind].format(logical=logical, zone=zone, sign=sign)
    annotated = [text for name, text in _ANNOTATED.items() if getattr(element.logicalType, name, None) is not None]
    if annotated:
        return annotated[0]
    physical = PhysicalType(element.type or 0)
    return _PLAIN_TEXTS[physical].format(length=element.type_length)


_TEXTS = {
    LogicalKind.STRING: "string",
    LogicalKind.DATE: "date32",
    LogicalKind.UNKNOWN: "null",
    LogicalKind.INTEGER: "{sign}int{logical.bit_width}",
    LogicalKind.DECIMAL: "decimal({logical.precision}, {logical.scale})",
    LogicalKind.TIME: "time[{logical.unit}]",
    LogicalKind.TIMESTAMP: "timestamp[{logical.unit}{zone}]",
}
_ANNOTATED = {"FLOAT16": "halffloat", "JSON": "string"}
_PLAIN_TEXTS = {
    PhysicalType.BOOLEAN: "bool",
    PhysicalType.INT32: "int32",
    PhysicalType.INT64: "int64",
    PhysicalType.INT96: "timestamp[ns]",
    PhysicalType.FLOAT: "float32",
    PhysicalType.DOUBLE: "float64",
    PhysicalType.BYTE_ARRAY: "binary",
    PhysicalType.FIXED_LEN_BYTE_ARRAY: "fixed_size_binary[{length}]",
}
