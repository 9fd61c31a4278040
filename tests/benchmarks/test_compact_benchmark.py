"""What compacting a large partition costs: rows and bytes per second, and memory.

Run with ``pytest tests/benchmarks/test_compact_benchmark.py -m benchmark -s``. Times are printed, never asserted.
``COMPACT_ROWS`` chooses another size: 33 million rows make a file of 1 GB.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pytest

from coldparquet.write import WriteOptions, write_partition
from coldparquet.write.compact import compact_table

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.benchmark

ROWS = int(os.environ.get("COMPACT_ROWS", "500000"))
BATCH_ROWS = 200_000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
WATCH_EVERY_S = 0.01


def trades() -> Iterator[pa.RecordBatch]:
    """Random trades: two symbol columns, three of random numbers, a text, a flag."""
    random = np.random.default_rng(1)
    symbols: Any
    sides: Any
    symbols, sides = pa.array([f"S{number:03}" for number in range(200)]), pa.array(["buy", "sell"])
    for start in range(0, ROWS, BATCH_ROWS):
        count = min(BATCH_ROWS, ROWS - start)
        yield pa.record_batch(
            {
                "ts": pa.array(np.arange(start, start + count) * 1000, pa.timestamp("us", "UTC")),
                "symbol": symbols.take(pa.array(random.integers(0, 200, count))).dictionary_encode(),
                "side": sides.take(pa.array(random.integers(0, 2, count))).dictionary_encode(),
                "price": pa.array(random.random(count) * 100),
                "amount": pa.array(random.random(count)),
                "id": pa.array(random.integers(0, 1 << 60, count)),
                "note": pa.array([f"note {number}" for number in random.integers(0, 100_000, count)]),
                "flag": pa.array(random.integers(0, 2, count).astype(bool)),
            }
        )


class MemoryWatch:
    """The most memory that the process had inside of the block."""

    def __init__(self) -> None:
        self.before_bytes = self.most_bytes = self._now_bytes()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(WATCH_EVERY_S):
            self.most_bytes = max(self.most_bytes, self._now_bytes())

    def _now_bytes(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


@pytest.mark.parametrize("row_group_rows", [100_000, 5_000])
async def test_compaction(row_group_rows: int, tmp_path: Path) -> None:
    table = tmp_path / "t"
    options = WriteOptions(codec="lz4_raw", row_group_rows=row_group_rows)
    await write_partition(table / "2024-03-01", trades(), timestamp="ts", options=options)
    with MemoryWatch() as memory:
        report = await compact_table(table, force=True)
    [done] = report.partitions
    assert done.before is not None
    assert done.after is not None
    megabytes = done.before.parquet_size_bytes / 1e6
    print(
        f"\n{ROWS:,} rows, {megabytes:,.0f} MB in {done.before.row_groups:,} row groups: {report.elapsed_s:.1f} s,"
        f" {ROWS / report.elapsed_s:,.0f} rows/s, {megabytes / report.elapsed_s:.0f} MB/s,"
        f" {(memory.most_bytes - memory.before_bytes) / 1e6:.0f} MB of memory"
    )
