"""A sidecar under which every value of a file reads as it is stored, so that it can be written again unchanged.

Reading gives the values of QuestDB's types: a BYTE that is marked null is 0, an array is a nested list. Written again,
the mark would be lost, which counts once the column becomes an INT, and so would the shape of an array without
elements. Under other types the same chunks read as nullable numbers and as the byte strings that hold arrays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.format.foreign_annotations import (
    FOREIGN_ANNOTATIONS_CODE,
    ForeignAnnotation,
    encode_foreign_annotations,
    parse_foreign_annotations,
)
from coldparquet.format.sidecar_footer import ScratchpadEntry
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import TypeTag, tag_of

if TYPE_CHECKING:
    from coldparquet.format.sidecar_content import ColumnSpec, SidecarContent

_NULLABLE = frozenset({TypeTag.BOOLEAN, TypeTag.BYTE, TypeTag.SHORT})


def values_as_stored(content: SidecarContent) -> SidecarContent:
    """Return what a sidecar says, with other types for the columns that would not read as they are stored."""
    annotations: dict[int, str] = {}
    others = []
    for entry in content.scratchpad:
        if entry.code == FOREIGN_ANNOTATIONS_CODE:
            annotations |= parse_foreign_annotations(entry.content)
        else:
            others.append(entry)
    columns = list(content.columns)
    for index, column in enumerate(columns):
        tag = tag_of(column.type_code)
        if index in annotations:
            continue
        if _is_raw_array(column):
            columns[index] = replace(column, type_code=int(TypeTag.BINARY))
        elif tag in _NULLABLE and column.max_def_level:
            annotations[index] = ForeignAnnotation.NULLABLE
        elif tag is TypeTag.CHAR and column.max_def_level:
            columns[index] = replace(column, type_code=int(TypeTag.INT))
            annotations[index] = ForeignAnnotation.UINT_16
    if annotations:
        others.append(ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations(annotations)))
    return replace(content, columns=columns, scratchpad=others)


def _is_raw_array(column: ColumnSpec) -> bool:
    return tag_of(column.type_code) is TypeTag.ARRAY and column.physical_type is PhysicalType.BYTE_ARRAY
