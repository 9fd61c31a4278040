"""A partition that is much larger than memory, scanned under a memory limit: peak memory and throughput.

    python -m tests.benchmarks.memory_ceiling

Four row groups of 1 GB each, decoded, with pages of 20,000 rows and a page index; written to a directory for temporary
files, scanned there by fresh processes, and removed. Peak memory is the largest resident set of the process, with
interpreter and libraries, which take about 90 MB of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.maintenance.index import index_table

REPOSITORY = Path(__file__).parents[2]
MIB = 1024 * 1024
ROW_BYTES = 36
"""Decoded: four columns of 64 bits and the keys of a dictionary."""
PAGE_ROWS = 20_000
UNLIMITED_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one scan took."""

    limit_mb: int
    rows: int
    seconds: float
    peak_mb: float
    """Largest resident set of the process."""
    before_mb: float
    """What it was when the table was opened."""
    held_mb: float
    """The stream's own account of bytes in flight, fetched bytes and rows not yet consumed, at most."""


def make_partition(directory: Path, *, row_groups: int, row_group_mb: int) -> None:
    """Write the partition: sorted times, random ids, prices that hardly change, small numbers, 500 symbols."""
    random = np.random.default_rng(1)
    rows = row_group_mb * MIB // ROW_BYTES
    symbols = pa.array([f"SYM{number:03}" for number in range(500)])
    # QuestDB's designated timestamp is never null; saying so makes a foreign file's sorted timestamp one.
    fields: list[pa.Field[Any]] = [
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("id", pa.int64()),
        pa.field("price", pa.float64()),
        pa.field("size", pa.int64()),
        pa.field("symbol", pa.dictionary(pa.int32(), pa.string())),
    ]
    schema = pa.schema(fields)
    directory.mkdir(parents=True)
    with pq.ParquetWriter(
        directory / "data.parquet",
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=["symbol"],  # type: ignore[arg-type]  # names of columns are allowed as well
        data_page_size=PAGE_ROWS * 8,
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(0)],
    ) as writer:
        for number in range(row_groups):
            times = pa.array(np.arange(number * rows, (number + 1) * rows)).cast(schema.field("ts").type)
            columns = [
                times,
                pa.array(random.integers(0, 1 << 62, rows)),
                pa.array(60_000 + np.cumsum(random.integers(-1, 2, rows)) * 0.5),
                pa.array(random.integers(1, 100, rows)),
                pa.DictionaryArray.from_arrays(random.integers(0, 500, rows, dtype=np.int32), symbols),
            ]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=rows)
    asyncio.run(index_table(str(directory), pages=False, pack=False))


async def scan(directory: Path, limit_mb: int, where: str | None) -> Measured:
    """Read the whole partition batch by batch, and look at one value of each."""
    options = cp.ReadOptions(memory_limit_bytes=limit_mb * MIB)
    rows = 0
    async with cp.open_partition(directory, options=options) as partition:
        before_mb = _peak_mb()
        begin_s = time.perf_counter()
        async with partition.scan(where=where).batches() as batches:
            async for batch in batches:
                rows += batch.num_rows
            held_bytes = batches.most_held_bytes
    return Measured(
        limit_mb=limit_mb,
        rows=rows,
        seconds=time.perf_counter() - begin_s,
        peak_mb=_peak_mb(),
        before_mb=before_mb,
        held_mb=held_bytes / MIB,
    )


def _peak_mb() -> float:
    """Return the largest resident set of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage tells on Linux counts the process that started this one as well
        peak_kb = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak_kb) * 1024 / MIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB


def scan_in_child(directory: Path, limit_mb: int, where: str | None = None) -> Measured:
    """Scan in a fresh process, whose memory is that of the scan alone."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.memory_ceiling",
        "--scan",
        str(directory),
        f"--limit-mb={limit_mb}",
    ]
    if where is not None:
        command.append(f"--where={where}")
    answer = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=600)
    return Measured(**json.loads(answer.stdout))


def run(*, row_groups: int, row_group_mb: int, limits_mb: Sequence[int], rounds: int) -> list[Measured]:
    """Scan under each limit, each as often as there are rounds and in turn; the fastest of each is what counts."""
    with tempfile.TemporaryDirectory(prefix="coldparquet-memory-") as parent:
        directory = Path(parent) / "2024-03-01.0"
        make_partition(directory, row_groups=row_groups, row_group_mb=row_group_mb)
        found = [scan_in_child(directory, limit_mb) for _ in range(rounds) for limit_mb in limits_mb]
    return [
        min((each for each in found if each.limit_mb == limit_mb), key=lambda each: each.seconds)
        for limit_mb in limits_mb
    ]


def report(found: Sequence[Measured]) -> str:
    """Lay the results out as a Markdown table."""
    unlimited_s = found[-1].seconds
    lines = [
        "| memory limit | peak memory | of it before the scan | time | million rows/s | throughput of unlimited |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {'none' if each.limit_mb == UNLIMITED_MB else f'{each.limit_mb} MB'} | {each.peak_mb:.0f} MB"
        f" | {each.before_mb:.0f} MB | {each.seconds:.2f} s | {each.rows / each.seconds / 1e6:.1f}"
        f" | {unlimited_s / each.seconds:.2f}x |"
        for each in found
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark, or one scan of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row-groups", type=int, default=4)
    parser.add_argument("--row-group-mb", type=int, default=1024, help="decoded size of each (default 1024)")
    parser.add_argument("--limit-mb", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scan", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--where", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.scan is not None:
        print(json.dumps(asdict(asyncio.run(scan(arguments.scan, arguments.limit_mb, arguments.where)))))
        return
    found = run(
        row_groups=arguments.row_groups,
        row_group_mb=arguments.row_group_mb,
        limits_mb=[arguments.limit_mb, UNLIMITED_MB],
        rounds=arguments.rounds,
    )
    print(report(found))


if __name__ == "__main__":
    main()
