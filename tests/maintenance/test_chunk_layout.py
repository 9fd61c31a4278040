"""Where chunks lie: inside the file, each by itself, every byte counted once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_layout import Codec, PhysicalType
from coldparquet.format.sidecar_writer import ChunkSpec, ColumnSpec, RowGroupSpec, SidecarContent, encode_sidecar
from coldparquet.format.type_codes import TypeTag
from coldparquet.maintenance.file_checks import lay_out_chunks
from tests.support.sidecar_strategies import contents

Place = tuple[int, int]
"""Start and length of a chunk."""

FOOTER_OFFSET, FOOTER_LENGTH = 1000, 50


def sidecar(*row_groups: list[Place], footer_offset: int = FOOTER_OFFSET) -> Sidecar:
    columns = [
        ColumnSpec(name=f"c{index}", type_code=TypeTag.LONG, physical_type=PhysicalType.INT64)
        for index in range(len(row_groups[0]) if row_groups else 1)
    ]
    groups = [
        RowGroupSpec(
            row_count=1,
            chunks=[
                ChunkSpec(
                    codec=Codec.ZSTD, encodings=1, num_values=1, byte_range_start=start, total_compressed_bytes=length
                )
                for start, length in places
            ],
        )
        for places in row_groups
    ]
    content = SidecarContent(
        columns=columns,
        row_groups=groups,
        parquet_footer_offset=footer_offset,
        parquet_footer_length=FOOTER_LENGTH,
    )
    return parse_sidecar(encode_sidecar(content))


def test_a_file_without_gaps() -> None:
    layout = lay_out_chunks(sidecar([(4, 400), (404, 96)], [(500, 100), (600, 400)]))
    assert (layout.findings, layout.chunk_bytes, layout.other_bytes) == ((), 996, 0)


def test_row_groups_in_any_order_with_dead_bytes_between_them() -> None:
    layout = lay_out_chunks(sidecar([(800, 100), (904, 50)], [(4, 100), (104, 100)]))
    assert (layout.findings, layout.chunk_bytes, layout.other_bytes) == ((), 350, 646)


def test_no_row_groups() -> None:
    layout = lay_out_chunks(sidecar())
    assert (layout.findings, layout.chunk_bytes, layout.other_bytes) == ((), 0, 996)


def test_empty_chunks_overlap_nothing() -> None:
    assert lay_out_chunks(sidecar([(4, 100), (50, 0)])).findings == ()


@pytest.mark.parametrize(
    "place",
    [(0, 10), (3, 1), (4, 997), (1000, 1), (1001, 0), (2**63 - 1, 1), (2**64 - 1, 2**64 - 1), (4, 2**64 - 4)],
)
def test_a_chunk_outside_of_the_file(place: Place) -> None:
    layout = lay_out_chunks(sidecar([(4, 10), (14, 10)], [(24, 10), place]))
    (finding,) = layout.findings
    assert (finding.severity, finding.kind) == ("error", "ChunkOutsideFile")
    assert (finding.column, finding.row_groups) == ("c1", (1,))
    assert f"column 'c1' of row group 1 (bytes {place[0]:,} to {sum(place):,})" in finding.message
    assert layout.chunk_bytes == 30


def test_overlapping_chunks_are_named_in_pairs() -> None:
    layout = lay_out_chunks(sidecar([(4, 500), (600, 10)], [(20, 10), (503, 10)]))
    assert [(finding.kind, finding.column, finding.row_groups) for finding in layout.findings] == [
        ("ChunksOverlap", "c0", (0, 1)),
        ("ChunksOverlap", "c1", (0, 1)),
    ]
    # The second one does not touch its neighbour, but the long chunk that began before.
    assert layout.findings[1].message == (
        "column 'c1' of row group 1 (bytes 503 to 513) overlaps column 'c0' of row group 0 (bytes 4 to 504)"
    )
    assert layout.chunk_bytes == 519


def test_many_misplaced_chunks_are_counted() -> None:
    findings = lay_out_chunks(sidecar([(2000, 1)] * 100 + [(4, 10)] * 50)).findings
    assert [finding.message for finding in (findings[5], findings[-1])] == [
        "95 more chunks lie outside of the file",
        "44 more chunks overlap others",
    ]
    assert len(findings) == 12


@given(st.lists(st.tuples(st.integers(4, 200), st.integers(0, 30)), min_size=1, max_size=12))
def test_bytes_are_counted_as_one_by_one(places: list[Place]) -> None:
    layout = lay_out_chunks(sidecar(*([place] for place in places), footer_offset=300))
    used: set[int] = set()
    overlap = False
    for start, length in sorted(places):
        chunk = set(range(start, start + length))
        overlap |= bool(chunk & used)
        used |= chunk
    assert layout.chunk_bytes == len(used)
    assert layout.other_bytes == 296 - len(used)
    assert bool(layout.findings) == overlap


@settings(max_examples=40)
@given(contents())
def test_whatever_a_sidecar_says(content: SidecarContent) -> None:
    sidecar = parse_sidecar(encode_sidecar(content))
    layout = lay_out_chunks(sidecar)
    assert 0 <= layout.chunk_bytes <= max(0, content.parquet_footer_offset - 4)
