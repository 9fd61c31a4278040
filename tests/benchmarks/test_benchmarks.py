"""The benchmarks run, and the memory limit holds; times are printed, never asserted.

Run with ``pytest tests/benchmarks/test_benchmarks.py -m benchmark -s``. ``COMPACT_ROWS`` chooses another size for compaction: 33 million
rows make a file of 1 GB.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pytest

from coldparquet.write import WriteOptions, write_partition
from coldparquet.write.compact import compact_table
from coldparquet_bench import stolen_time
from coldparquet_bench.measurement import COLD_STORE, OURS, Result, Spent
from coldparquet_bench.report import report
from coldparquet_bench.stolen_time import StolenTime
from tests.benchmarks import publish, store_requests
from tests.benchmarks.memory_ceiling import ROW_BYTES, make_partition, scan_in_child

# --- What compacting a large partition costs: rows and bytes per second, and memory -----------------------------------
# Run with ``pytest tests/benchmarks/test_benchmarks.py -m benchmark -s``. Times are printed, never asserted.
# ``COMPACT_ROWS`` chooses another size: 33 million rows make a file of 1 GB.


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


@pytest.mark.benchmark
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


# --- The memory limit holds, measured from outside as the memory of a process; throughput is printed, never asserted --


PROCESS_MB = 100
"""Interpreter and libraries take about 90 MB before anything is read."""


@pytest.mark.benchmark
def test_a_small_limit_bounds_the_memory_of_the_process(tmp_path: Path) -> None:
    make_partition(tmp_path / "day", row_groups=2, row_group_mb=80)
    found = scan_in_child(tmp_path / "day", 32)
    assert found.rows == 2 * (80 * 1024 * 1024 // ROW_BYTES)
    assert found.held_mb <= 32
    assert found.peak_mb - found.before_mb < 100, "without a limit it is the 160 MB of the partition and more"


@pytest.fixture(scope="module")
def four_gigabytes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("memory") / "day"
    make_partition(directory, row_groups=4, row_group_mb=1024)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.soak
@pytest.mark.benchmark
@pytest.mark.parametrize("where", [None, "size < 50"])
def test_four_gigabytes_are_scanned_in_256_mb(four_gigabytes: Path, where: str | None) -> None:
    found = scan_in_child(four_gigabytes, 256, where)
    print(found)
    assert found.peak_mb < 256 + PROCESS_MB


# --- The benchmark of publishing runs; times are printed, never asserted ----------------------------------------------


TOTAL_BYTES = 20_000_000
"""To see that it runs; the module itself measures with more."""


@pytest.mark.slow
@pytest.mark.benchmark
def test_every_contender_uploads_the_table() -> None:
    medians_s = publish.run(total_bytes=TOTAL_BYTES, rounds=1)
    print(publish.report(medians_s, TOTAL_BYTES))
    assert medians_s.keys() == publish.CONTENDERS.keys()


@pytest.mark.benchmark
def test_processor_time_of_a_get(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = store_requests.main(["--requests", "32", "--rounds", "1", "--json", str(tmp_path / "found.json")])
    assert json.loads((tmp_path / "found.json").read_text()) == found
    assert {"s3fs _cat_file", "S3Store", "WebStore"} <= found["us_per_get"].keys()
    assert capsys.readouterr().out.count("us/GET") == len(found["us_per_get"])


@pytest.mark.soak
def test_a_get_takes_a_third_of_the_processor_time_of_s3fs(tmp_path: Path) -> None:
    """Processor time, of both in one run: a machine that is busy takes longer for either."""
    found = store_requests.main(["--requests", "200", "--rounds", "3", "--json", str(tmp_path / "found.json")])
    assert found["us_per_get"]["S3Store"] <= found["us_per_get"]["s3fs _cat_file"] / 3


# --- Times that were measured while a host served other machines are marked as such -----------------------------------


NOTHING = Spent(log=(), store=COLD_STORE)
RESULT = Result(
    answer=1,
    first_s=0.2,
    warm_s=0.1,
    warm_times_s=(0.1,),
    first_processor_s=None,
    warm_processor_s=None,
    peak_memory_mb=None,
    stolen_fraction=None,
    first=NOTHING,
    warm=NOTHING,
)


def test_what_the_kernel_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "stat"
    monkeypatch.setattr(stolen_time, "_FILE", file)
    file.write_text("cpu 100 0 50 800 10 0 0 40 7 7\ncpu0 1 2 3\n")
    stolen = StolenTime()
    assert stolen.fraction is None, "no time has passed"
    file.write_text("cpu 150 0 60 820 10 0 0 60 9 9\ncpu0 1 2 3\n")
    assert stolen.fraction == pytest.approx(20 / 100), "guests' times are parts of the others"


@pytest.mark.parametrize("content", [None, "", "intr 1 2\n", "cpu 1 2 3 4\n"])
def test_a_system_that_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None) -> None:
    if content is not None:
        (tmp_path / "stat").write_text(content)
    monkeypatch.setattr(stolen_time, "_FILE", tmp_path / "stat")
    assert StolenTime().fraction is None


@pytest.mark.parametrize(("fraction", "is_told"), [(None, False), (0.0, False), (0.02, False), (0.21, True)])
def test_the_report_says_so(fraction: float | None, *, is_told: bool) -> None:
    disturbed = replace(RESULT, stolen_fraction=fraction)
    text = report({"W1": {OURS: RESULT, "Polars": disturbed}})
    assert ("The host gave 21% of the processors to other machines meanwhile: measure again." in text) == is_told
