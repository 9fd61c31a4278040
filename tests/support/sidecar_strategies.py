"""Random contents of sidecars, and what a sidecar must say of its content."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from coldparquet.format import sidecar_layout
from coldparquet.format.sidecar import Sidecar
from coldparquet.format.sidecar_header import CoveringIndexEntry, ScratchpadEntry
from coldparquet.format.sidecar_writer import BoundSpec, ChunkSpec, ColumnSpec, RowGroupSpec, SidecarContent
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.write.sidecar_update import SidecarChange

# --- Random contents of sidecars --------------------------------------------------------------------------------------


I64 = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**63 - 1)
BITSET = st.integers(1, 4).flatmap(lambda blocks: st.binary(min_size=32 * blocks, max_size=32 * blocks))


@st.composite
def bounds(draw: st.DrawFn) -> BoundSpec:
    value = draw(st.binary(min_size=1, max_size=20))
    places = [None, "out_of_line"] if len(value) > sidecar_layout.MAX_INLINE_BYTES else [None, "inline", "out_of_line"]
    return BoundSpec(value, exact=draw(st.booleans()), place=draw(st.sampled_from(places)))


@st.composite
def columns(draw: st.DrawFn) -> ColumnSpec:
    flags = sidecar_layout.column_flags(
        repetition=draw(st.sampled_from(sidecar_layout.Repetition)),
        descending=draw(st.booleans()),
        is_ascii=draw(st.booleans()),
        local_key_is_global=draw(st.booleans()),
    )
    return ColumnSpec(
        name=draw(st.text(max_size=12)),
        type_code=draw(st.integers(-1, 2**31 - 1)),
        physical_type=draw(st.sampled_from(sidecar_layout.PhysicalType)),
        id=draw(st.integers(-1, 2**31 - 1)),
        flags=flags,
        fixed_byte_length=draw(st.integers(0, 64)),
        max_rep_level=draw(st.integers(0, 255)),
        max_def_level=draw(st.integers(0, 255)),
    )


@st.composite
def chunks(draw: st.DrawFn, *, blooms_external: bool) -> ChunkSpec:
    start, length = draw(st.integers(0, 2**62)), draw(st.integers(1, 2**62))
    with_bloom = draw(st.booleans())
    return ChunkSpec(
        codec=draw(st.sampled_from(sidecar_layout.Codec)),
        encodings=draw(st.integers(0, 63)),
        num_values=draw(COUNT),
        byte_range_start=draw(COUNT),
        total_compressed_bytes=draw(COUNT),
        null_count=draw(st.none() | COUNT),
        distinct_count=draw(st.none() | COUNT),
        min=draw(st.none() | bounds()),
        max=draw(st.none() | bounds()),
        bloom_bitset=draw(BITSET) if with_bloom and not blooms_external else None,
        bloom_reference=ByteRange(start, start + length) if with_bloom and blooms_external else None,
    )


NOT_UNSET = I64.filter(lambda value: value != sidecar_layout.UNSET)
SCRATCHPAD = st.lists(st.builds(ScratchpadEntry, st.integers(0, 2**32 - 1), st.binary(max_size=20)), max_size=3)
COVERING_INDEX = st.lists(
    st.builds(
        CoveringIndexEntry,
        column_id=st.integers(0, 2**32 - 1),
        index_txn=st.integers(0, 2**64 - 1),
        index_metadata_bytes=st.integers(0, 2**64 - 1),
    ),
    max_size=2,
)


def row_groups(column_count: int, *, blooms_external: bool) -> st.SearchStrategy[RowGroupSpec]:
    chunk_list = st.tuples(*(chunks(blooms_external=blooms_external) for _ in range(column_count)))
    return st.tuples(COUNT, chunk_list).map(lambda group: RowGroupSpec(row_count=group[0], chunks=group[1]))


@st.composite
def contents(draw: st.DrawFn) -> SidecarContent:
    blooms_external = draw(st.booleans())
    column_specs = draw(st.lists(columns(), max_size=4))
    indexes = range(len(column_specs))
    return SidecarContent(
        columns=column_specs,
        row_groups=draw(st.lists(row_groups(len(column_specs), blooms_external=blooms_external), max_size=4)),
        parquet_footer_offset=draw(st.integers(0, 2**62)),
        parquet_footer_length=draw(st.integers(0, 2**32 - 1)),
        designated_timestamp=draw(st.none() | st.sampled_from(indexes)) if column_specs else None,
        sorting_columns=draw(st.lists(st.sampled_from(indexes), unique=True)) if column_specs else (),
        unused_bytes=draw(st.integers(0, 2**64 - 1)),
        squash_tracker=draw(st.none() | NOT_UNSET),
        seq_txn=draw(st.none() | NOT_UNSET),
        scratchpad=draw(SCRATCHPAD),
        covering_index=draw(COVERING_INDEX),
        blooms_external=blooms_external,
    )


@st.composite
def changes(draw: st.DrawFn, content: SidecarContent, row_group_count: int) -> SidecarChange:
    """A change of a snapshot with so many row groups, in the Parquet file of the same size."""
    groups = row_groups(len(content.columns), blooms_external=content.blooms_external)
    replaced = st.dictionaries(st.sampled_from(range(row_group_count)), groups, max_size=2) if row_group_count else None
    return SidecarChange(
        replaced={} if replaced is None else draw(replaced),
        appended=draw(st.lists(groups, max_size=2)),
        unused_bytes=draw(st.none() | st.integers(0, 2**64 - 1)),
        seq_txn=draw(st.none() | I64),
        scratchpad=draw(st.none() | SCRATCHPAD),
        covering_index=draw(COVERING_INDEX),
    )


# --- Assertions about what a snapshot of a sidecar says ---------------------------------------------------------------


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
    return replace(bound, place=bound.place or usual)


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
        for name in ColumnSpec.__struct_fields__:
            assert getattr(column, name) == getattr(spec, name)
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
