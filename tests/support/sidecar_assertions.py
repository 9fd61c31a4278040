"""Assertions about what a snapshot of a sidecar says."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from coldparquet.format import sidecar_layout
from coldparquet.format.sidecar_writer import BoundSpec, ChunkSpec, ColumnSpec, SidecarContent

if TYPE_CHECKING:
    from coldparquet.format.sidecar import Sidecar


def bound_back(sidecar: Sidecar, column: int, side: str, row_group: int) -> BoundSpec | None:
    side_bounds = getattr(sidecar.chunks(column), side)
    value = side_bounds.bytes_at(row_group)
    if value is None:
        return None
    place: Any = "inline" if side_bounds.inlined[row_group] else "out_of_line"
    return BoundSpec(value, exact=bool(side_bounds.exact[row_group]), place=place)


def with_place(bound: BoundSpec | None) -> BoundSpec | None:
    if bound is None:
        return None
    usual: Any = "inline" if len(bound.value) <= sidecar_layout.MAX_INLINE_BYTES else "out_of_line"
    return dataclasses.replace(bound, place=bound.place or usual)


def assert_chunk_comes_back(sidecar: Sidecar, column: int, row_group: int, chunk: ChunkSpec) -> None:
    read = sidecar.chunks(column)
    assert read.codec[row_group] == chunk.codec
    assert read.encodings[row_group] == chunk.encodings
    assert read.num_values[row_group] == chunk.num_values
    assert read.byte_range_start[row_group] == chunk.byte_range_start
    assert read.total_compressed_bytes[row_group] == chunk.total_compressed_bytes
    for name in ("null_count", "distinct_count"):
        known = getattr(read, f"has_{name}")[row_group]
        assert (int(getattr(read, name)[row_group]) if known else None) == getattr(chunk, name)
    assert bound_back(sidecar, column, "min", row_group) == with_place(chunk.min)
    assert bound_back(sidecar, column, "max", row_group) == with_place(chunk.max)
    if sidecar.blooms_external:
        assert sidecar.bloom_location(row_group, column) == chunk.bloom_reference
    else:
        bitset = sidecar.bloom_bitset(row_group, column)
        assert (None if bitset is None else bytes(bitset)) == chunk.bloom_bitset


def assert_says(sidecar: Sidecar, content: SidecarContent) -> None:
    """Assert that a snapshot says exactly what a content says."""
    for column, spec in zip(sidecar.columns, content.columns, strict=True):
        for field in dataclasses.fields(ColumnSpec):
            assert getattr(column, field.name) == getattr(spec, field.name)
    assert sidecar.designated_timestamp == content.designated_timestamp
    assert list(sidecar.sorting_columns) == list(content.sorting_columns)
    assert sidecar.header.squash_tracker == content.squash_tracker
    footer = sidecar.footer
    assert footer.parquet_footer_offset == content.parquet_footer_offset
    assert footer.parquet_footer_length == content.parquet_footer_length
    assert footer.unused_bytes == content.unused_bytes
    assert footer.seq_txn == content.seq_txn
    assert list(footer.scratchpad) == list(content.scratchpad)
    assert list(footer.covering_index) == list(content.covering_index)
    assert sidecar.row_counts.tolist() == [row_group.row_count for row_group in content.row_groups]
    for row_group, group in enumerate(content.row_groups):
        for column_index, chunk in enumerate(group.chunks):
            assert_chunk_comes_back(sidecar, column_index, row_group, chunk)
