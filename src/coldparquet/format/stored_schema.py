"""Notes the Parquet schema of columns that no type of QuestDB can describe: nested ones, half floats, intervals.

A sidecar has one column for each leaf of the file's schema, so that its columns and those of the footer have the same
numbers. A nested column is several of them: the first one has the name of the whole, and its annotation
(:func:`coldparquet.format.types.parse_foreign_annotations`) is the part of the schema that the whole is, as Thrift bytes in
Base64, and its Arrow type as text. The annotations of the others say to which column they belong. pyarrow decodes the
chunks of all of them at once, from a virtual file with the same part of the schema.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from coldparquet.errors import FormatError
from coldparquet.format import parquet_thrift as thrift
from coldparquet.format.parquet_schema import logical_type_of, parse_schema
from coldparquet.format.sidecar_layout import PhysicalType, Repetition
from coldparquet.format.types import LogicalKind, LogicalType, stored_annotation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coldparquet.format.parquet_schema import SchemaLeaf


_LONGEST_NOTE_BYTES = 32 * 1024
"""The scratchpad holds 1 MiB, and is a part of every sidecar: longer ones are left out, and their columns are unreadable."""

_SHOWN_CHARACTERS = 60

_CONVERTED_MAPS = frozenset({1, 2})
"""MAP and MAP_KEY_VALUE of the older annotations."""


class _Node(Struct):
    """A schema element with its children."""

    element: thrift.SchemaElement
    children: list[_Node]


def annotation_of(leaf: SchemaLeaf) -> str:
    """Return the annotation of the first leaf of a column; without the schema if that is too long."""
    first, *others = map(_what_counts, leaf.elements)
    schema = [thrift.SchemaElement(name="schema", num_children=1), replace(first, name=""), *others]
    note = base64.b64encode(thrift.FileMetaData(schema=schema, num_rows=0).encode()).decode()
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


def _tree(elements: Iterator[thrift.SchemaElement]) -> _Node:
    element = next(elements)
    return _Node(element, [_tree(elements) for _ in range(element.num_children or 0)])


def _type_text(node: _Node) -> str:
    """Write the Arrow type that a field becomes; equal texts mean equal types, but for the names of items."""
    text = _text_once(node)
    return f"list<{text}>" if node.element.repetition_type == Repetition.REPEATED else text


def _text_once(node: _Node) -> str:
    element, children = node.element, node.children
    if not children:
        return _leaf_text(element)
    logical = logical_type_of(element)
    repeated = children[0]
    is_wrapper = len(children) == 1 and repeated.element.repetition_type == Repetition.REPEATED
    if is_wrapper and logical is not None and logical.kind is LogicalKind.LIST:
        return f"list<{_item_text(element, repeated)}>"
    if is_wrapper and _is_map(element) and len(repeated.children) == 2:
        key, value = map(_type_text, repeated.children)
        return f"map<{key}, {value}>"
    return _struct_text(children)


def _struct_text(children: Sequence[_Node]) -> str:
    return f"struct<{', '.join(f'{child.element.name}: {_type_text(child)}' for child in children)}>"


def _item_text(group: thrift.SchemaElement, repeated: _Node) -> str:
    """Write what a list holds; some repeated groups are the item, and others only hold it (LogicalTypes.md, "Lists")."""
    is_item = repeated.element.name in {"array", f"{group.name}_tuple"}
    if len(repeated.children) == 1 and not is_item:
        return _type_text(repeated.children[0])
    return _text_once(repeated)


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
    LogicalKind.INTEGER: "{sign}int{logical.bit_width}",
    LogicalKind.DECIMAL: "decimal({logical.precision}, {logical.scale})",
    LogicalKind.TIME: "time[{logical.unit}]",
    LogicalKind.TIMESTAMP: "timestamp[{logical.unit}{zone}]",
}
_ANNOTATED = {"FLOAT16": "halffloat", "UNKNOWN": "null", "JSON": "string"}
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
