"""What opening a sidecar costs, beside pyarrow parsing the footer of a Parquet file of the same shape.

Run with ``pytest tests/benchmarks/test_sidecar_benchmark.py -m benchmark -s``. Times are printed, never asserted.
"""

from __future__ import annotations

import time
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    RowGroupSpec,
    SidecarContent,
    encode_sidecar,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.benchmark

LONG = 6
ROWS_PER_GROUP = 2


def make_sidecar(*, columns: int, row_groups: int) -> bytes:
    groups = []
    for group in range(row_groups):
        chunk = ChunkSpec(
            codec=6,
            encodings=1,
            num_values=ROWS_PER_GROUP,
            byte_range_start=4 + 100 * group,
            total_compressed_bytes=100,
            null_count=0,
            min=BoundSpec((ROWS_PER_GROUP * group).to_bytes(8, "little")),
            max=BoundSpec((ROWS_PER_GROUP * group + 1).to_bytes(8, "little")),
        )
        groups.append(RowGroupSpec(row_count=ROWS_PER_GROUP, chunks=[chunk] * columns))
    return encode_sidecar(
        SidecarContent(
            columns=[
                ColumnSpec(name=f"column_{index:04}", type_code=LONG, physical_type=PhysicalType.INT64)
                for index in range(columns)
            ],
            row_groups=groups,
            parquet_footer_offset=1 << 20,
            parquet_footer_length=1 << 16,
        )
    )


def make_parquet(*, columns: int, row_groups: int) -> pa.Buffer:
    values = pa.array(range(ROWS_PER_GROUP * row_groups), pa.int64())
    table = pa.table({f"column_{index:04}": values for index in range(columns)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=ROWS_PER_GROUP, use_dictionary=False)
    return sink.getvalue()


def milliseconds(action: Callable[[], object], *, repeat: int) -> float:
    """Best of `repeat` runs: the one that the machine disturbed least."""
    best = float("inf")
    for _ in range(repeat):
        started = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - started)
    return best * 1000


def report(line: str) -> None:
    print(line)


def gather_bounds(data: bytes, columns: tuple[int, ...], *, verify_checksum: bool = True) -> int:
    """Open a sidecar and compare a value with the bounds of some columns, as pruning does."""
    sidecar = parse_sidecar(data, verify_checksum=verify_checksum)
    kept = 0
    for column in columns:
        chunks = sidecar.chunks(column)
        lower, upper = chunks.min, chunks.max
        usable = lower.present & lower.inlined & upper.present & upper.inlined
        kept += int((~usable | ((lower.raw.view("i8") <= 50) & (upper.raw.view("i8") >= 50))).sum())
    return kept


def test_open_a_wide_sidecar() -> None:
    columns, row_groups = 1000, 50
    data = make_sidecar(columns=columns, row_groups=row_groups)
    parquet = make_parquet(columns=columns, row_groups=row_groups)
    footer = pq.read_metadata(pa.BufferReader(parquet))
    assert (footer.num_columns, footer.num_row_groups) == (columns, row_groups)
    assert gather_bounds(data, (3, 700)) == 2
    report(
        f"\n{columns} columns x {row_groups} row groups: sidecar {len(data):,} B, footer {footer.serialized_size:,} B"
    )
    report(f"  CRC-32 alone                   {milliseconds(lambda: zlib.crc32(data), repeat=10):8.3f} ms")
    report(f"  parse_sidecar                  {milliseconds(lambda: parse_sidecar(data), repeat=10):8.3f} ms")
    report(f"  parse + bounds of 2 columns    {milliseconds(lambda: gather_bounds(data, (3, 700)), repeat=10):8.3f} ms")
    report(f"  parse + all names + columns    {milliseconds(lambda: parse_sidecar(data).columns, repeat=10):8.3f} ms")
    report(
        f"  pyarrow read_metadata          "
        f"{milliseconds(lambda: pq.read_metadata(pa.BufferReader(parquet)), repeat=3):8.3f} ms"
    )


def test_gather_bounds_of_many_row_groups() -> None:
    row_groups = 10_000
    data = make_sidecar(columns=20, row_groups=row_groups)

    def open_and_gather() -> int:
        return gather_bounds(data, (0, 7), verify_checksum=False)

    assert open_and_gather() == 2
    report(f"\n20 columns x {row_groups:,} row groups: sidecar {len(data):,} B")
    opening = milliseconds(lambda: parse_sidecar(data, verify_checksum=False), repeat=5)
    report(f"  parse without checksum         {opening:8.3f} ms")
    report(f"  the same + bounds of 2 columns {milliseconds(open_and_gather, repeat=5):8.3f} ms")


@pytest.mark.parametrize(("columns", "row_groups"), [(1000, 50), (20, 10_000), (0, 10_000), (20_000, 0)])
def test_opening_allocates_at_most_three_times_the_buffer(columns: int, row_groups: int) -> None:
    data = make_sidecar(columns=columns, row_groups=row_groups)
    tracemalloc.start()
    try:
        sidecar = parse_sidecar(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    report(f"\n{columns} x {row_groups}: {len(data):,} B opened with a peak of {peak_bytes:,} B")
    assert sidecar.row_group_count == row_groups
    assert peak_bytes <= 3 * len(data)
