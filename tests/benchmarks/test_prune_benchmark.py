"""How long pruning takes for 10,000 row groups: arrays against a plain loop over the same bytes.

Run with ``pytest -m benchmark -s tests/benchmarks/test_prune_benchmark.py``.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pytest

from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_layout import PhysicalType, Repetition, column_flags
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    RowGroupSpec,
    SidecarContent,
    encode_sidecar,
)
from coldparquet.format.types import resolve_type
from coldparquet.plan.bind import BoundField, bind
from coldparquet.plan.predicate import col
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

_Source = TypeVar("_Source")

ROW_GROUPS = 10_000
ROWS = 100_000
REPEATS = 7
TIMESTAMP, LONG = 131_080, 6
FIELDS = {
    "ts": BoundField("ts", 0, resolve_type(TIMESTAMP, PhysicalType.INT64, 0, 0)),
    "amount": BoundField("amount", 1, resolve_type(LONG, PhysicalType.INT64, 0, 0)),
}
WANTED_TS = (4_000 * 1_000, 4_500 * 1_000)
WANTED_AMOUNT = 900
PREDICATE = bind((col("ts").between(*WANTED_TS)) & (col("amount") > WANTED_AMOUNT), FIELDS)


def sidecar_bytes() -> bytes:
    random = np.random.default_rng(7)

    def chunk(low: int, high: int) -> ChunkSpec:
        return ChunkSpec(
            codec=0,
            encodings=1,
            num_values=ROWS,
            byte_range_start=4,
            total_compressed_bytes=1,
            null_count=0,
            min=BoundSpec(struct.pack("<q", low)),
            max=BoundSpec(struct.pack("<q", high)),
        )

    def column(name: str, type_code: int) -> ColumnSpec:
        flags = column_flags(repetition=Repetition.OPTIONAL)
        return ColumnSpec(
            name=name, type_code=type_code, physical_type=PhysicalType.INT64, flags=flags, max_def_level=1
        )

    highest = random.integers(1, 1_000, ROW_GROUPS).tolist()
    return encode_sidecar(
        SidecarContent(
            columns=[column("ts", TIMESTAMP), column("amount", LONG)],
            row_groups=[
                RowGroupSpec(row_count=ROWS, chunks=[chunk(number * 1_000, number * 1_000 + 999), chunk(0, high)])
                for number, high in enumerate(highest)
            ],
            parquet_footer_offset=1_000,
            parquet_footer_length=100,
        )
    )


def prune_with_arrays(sidecar: Sidecar) -> list[int]:
    return prune_known(SidecarStatistics(sidecar))


def prune_known(source: SidecarStatistics) -> list[int]:
    verdict, _ = prune(PREDICATE, source, ROW_GROUPS)
    survivors: list[int] = np.flatnonzero(verdict.survives).tolist()
    return survivors


def prune_with_a_loop(sidecar: Sidecar) -> list[int]:
    """Look at one row group after the other, as a reader would that has an object or a call per statistic."""
    survivors = []
    ts, amount = sidecar.chunks(0), sidecar.chunks(1)
    for row_group in range(ROW_GROUPS):
        ts_min, ts_max = ts.min.bytes_at(row_group), ts.max.bytes_at(row_group)
        amount_max = amount.max.bytes_at(row_group)
        if ts_max is not None and int.from_bytes(ts_max, "little", signed=True) < WANTED_TS[0]:
            continue
        if ts_min is not None and int.from_bytes(ts_min, "little", signed=True) > WANTED_TS[1]:
            continue
        if amount_max is not None and int.from_bytes(amount_max, "little", signed=True) <= WANTED_AMOUNT:
            continue
        survivors.append(row_group)
    return survivors


def untouched(file: bytes) -> Sidecar:
    """Open a sidecar from which nothing was gathered yet."""
    sidecar = parse_sidecar(file)
    _ = sidecar.blocks, sidecar.columns
    return sidecar


def best_s(work: Callable[[_Source], list[int]], sources: list[_Source]) -> float:
    times = []
    for source in sources:
        started = time.perf_counter()
        work(source)
        times.append(time.perf_counter() - started)
    return min(times)


@pytest.mark.benchmark
def test_two_numeric_predicates_on_10_000_row_groups() -> None:
    file = sidecar_bytes()
    assert prune_with_arrays(untouched(file)) == prune_with_a_loop(untouched(file))
    loop_s = best_s(prune_with_a_loop, [untouched(file) for _ in range(REPEATS)])
    first_s = best_s(prune_with_arrays, [untouched(file) for _ in range(REPEATS)])
    again_s = best_s(prune_known, [SidecarStatistics(untouched(file))] * REPEATS)
    print(
        f"\n{ROW_GROUPS:,} row groups, two numeric predicates, best of {REPEATS}:"
        f"\n  plain Python loop           {loop_s * 1e3:7.2f} ms"
        f"\n  arrays, gathered first      {first_s * 1e3:7.2f} ms  {first_s / loop_s:6.2%} of the loop"
        f"\n  arrays, gathered before     {again_s * 1e3:7.2f} ms  {again_s / loop_s:6.2%} of the loop"
    )
