"""Sidecars of one column ``x``, whose chunks have the statistics that a test wants."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from coldparquet.expressions.where import parse_predicate
from coldparquet.format.parquet_footer import writer_entry
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_header import ScratchpadEntry
from coldparquet.format.sidecar_layout import ENCODING_PLAIN, PhysicalType, Repetition, column_flags
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    RowGroupSpec,
    SidecarContent,
    encode_sidecar,
)
from coldparquet.format.types import FOREIGN_ANNOTATIONS_CODE, ForeignAnnotation, encode_foreign_annotations
from coldparquet.plan.bind import BoundField, BoundPredicate, bind

ROWS = 10
"""Rows of a chunk, and of a row group, unless a test says otherwise."""


def i32(value: int) -> bytes:
    return struct.pack("<i", value)


def i64(value: int) -> bytes:
    return struct.pack("<q", value)


def f64(value: float) -> bytes:
    return struct.pack("<d", value)


def chunk(
    low: bytes | None = None, high: bytes | None = None, nulls: int | None = 0, *, exact: bool = True, **more: Any
) -> ChunkSpec:
    facts = {"codec": 0, "encodings": ENCODING_PLAIN, "num_values": ROWS} | more
    return ChunkSpec(
        byte_range_start=4,
        total_compressed_bytes=1,
        null_count=nulls,
        min=None if low is None else BoundSpec(low, exact=exact),
        max=None if high is None else BoundSpec(high, exact=exact),
        **facts,
    )


def one_column(
    chunks: Iterable[ChunkSpec],
    type_code: int,
    physical_type: PhysicalType,
    *,
    column_id: int = -1,
    width: int = 0,
    max_rep_level: int = 0,
    max_def_level: int = 1,
    annotation: ForeignAnnotation | None = None,
    rows: int | None = ROWS,
    is_writer_noted: bool = True,
) -> Sidecar:
    """Make a sidecar of one row group per chunk; its rows are the chunk's values where ``rows`` is None."""
    repetition = Repetition.REQUIRED if max_def_level == 0 else Repetition.OPTIONAL
    scratchpad: tuple[ScratchpadEntry, ...] = (writer_entry(None),) if is_writer_noted else ()
    if annotation is not None:
        scratchpad += (ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations({0: annotation})),)
    column = ColumnSpec(
        name="x",
        id=column_id,
        type_code=type_code,
        physical_type=physical_type,
        flags=column_flags(repetition=repetition),
        fixed_byte_length=width,
        max_rep_level=max_rep_level,
        max_def_level=max_def_level,
    )
    content = SidecarContent(
        columns=[column],
        row_groups=[
            RowGroupSpec(row_count=spec.num_values if rows is None else rows, chunks=[spec]) for spec in chunks
        ],
        parquet_footer_offset=1000,
        parquet_footer_length=100,
        scratchpad=scratchpad,
    )
    return parse_sidecar(encode_sidecar(content))


def bound_text(where: str, *fields: BoundField) -> BoundPredicate:
    """Bind a condition in SQL to fields."""
    predicate = parse_predicate(where)
    assert predicate is not None
    return bind(predicate, {field.name: field for field in fields})
