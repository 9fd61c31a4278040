"""Sidecars for thousands of small files: what ``coldparquet pipeline index`` takes for each, and what holds it up.

Days of 500 trades, about 30 KB each, without sidecars, which one process indexes, then two; the store waits 30 ms before each
first byte. The store is a process of its own on the same machine, so that its processor time is measured as well: where both
together keep all processors busy, a store on another machine would have let us go faster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.catalog.table_files import SIDECAR_FILE
from coldparquet.errors import InternalError
from coldparquet_bench.measurement import BUCKET, COLD_STORE, made_data, peak_memory_mb
from coldparquet_bench.trades import DAY_COLUMNS, day_name, trades
from coldparquet_testing.simulator.process import ColdStoreProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FILES, FILES_PER_TABLE, ROWS = 10_000, 1_000, 500
LAKE = "lake"
_KEY = "cold-store"
"""The simulated store takes any; with one, requests are signed as for S3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFiles:
    """Files to index, and with how many processes."""

    files: int = FILES
    process_counts: tuple[int, ...] = (1, 2)

    @property
    def data(self) -> str:
        """Name of the data, its size included."""
        return f"{self.files}-small-files"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRun:
    """What indexing all files took: of several runs the one of median length."""

    files: int
    processes: int
    elapsed_s: float
    requests: int
    processor_s: float
    """Of all processes that indexed."""
    store_processor_s: float
    """Of the simulated store."""
    peak_memory_mb: float
    """Largest resident memory of the largest process."""

    @property
    def busy_processors(self) -> float:
        """Processors that were busy on average, the store's work included."""
        return (self.processor_s + self.store_processor_s) / self.elapsed_s


def run_small_files(
    small_files: SmallFiles, *, rounds: int, directory: Path, on_run: Callable[[str], None] | None = None
) -> list[IndexRun]:
    """Index the files with each number of processes, in turn."""
    root = asyncio.run(made_data(directory, small_files.data, partial(_make_files, files=small_files.files)))
    runs: dict[int, list[IndexRun]] = {count: [] for count in small_files.process_counts}
    with ColdStoreProcess(root, COLD_STORE) as server:
        for _ in range(rounds):
            for count, of_count in runs.items():
                if on_run is not None:
                    on_run(f"{count} processes")
                _remove_sidecars(root)
                of_count.append(_index_in_child(server, small_files.files, count))
    _remove_sidecars(root)
    return [sorted(of_count, key=lambda run: run.elapsed_s)[len(of_count) // 2] for of_count in runs.values()]


def index_table_of(runs: Sequence[IndexRun]) -> str:
    """Lay the runs out as a Markdown table."""
    columns = (
        *("processes", "files", "time", "files/s", "requests/s", "requests/file"),
        *("CPU/file", "store's CPU/file", "busy processors", "peak RSS"),
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [
        f"| {run.processes} | {run.files:,} | {run.elapsed_s:,.1f} s | {run.files / run.elapsed_s:,.0f}"
        f" | {run.requests / run.elapsed_s:,.0f} | {run.requests / run.files:.2f}"
        f" | {run.processor_s / run.files * 1000:.2f} ms | {run.store_processor_s / run.files * 1000:.2f} ms"
        f" | {run.busy_processors:.2f} | {run.peak_memory_mb:.0f} MB |"
        for run in runs
    ]
    return "\n".join(lines)


async def _make_files(bucket: Path, *, files: int) -> None:
    for number in range(files):
        directory = bucket / LAKE / f"table{number // FILES_PER_TABLE}" / day_name(number % FILES_PER_TABLE)
        directory.mkdir(parents=True)
        day = trades(number % FILES_PER_TABLE, ROWS, columns=DAY_COLUMNS)
        never_null = pa.field("ts", day.schema.field("ts").type, nullable=False)
        pq.write_table(
            day.set_column(0, never_null, day.column("ts")),
            directory / "data.parquet",
            compression="zstd",
            sorting_columns=[pq.SortingColumn(0)],
        )


def _remove_sidecars(root: Path) -> None:
    for sidecar in (root / BUCKET / LAKE).rglob(SIDECAR_FILE):
        sidecar.unlink()


def _index_in_child(server: ColdStoreProcess, files: int, processes: int) -> IndexRun:
    server.reset()
    store_before_s = _processor_s(server.process_id)
    command = [sys.executable, "-m", "coldparquet_bench.small_files"]
    command += ["--endpoint-url", server.endpoint_url, "--processes", str(processes)]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own interpreter
    measured: Mapping[str, Any] = json.loads(child.stdout.splitlines()[-1])
    if measured["indexed"] != files:
        raise InternalError(f"{measured['indexed']} of {files} files were indexed: {measured['failures']}")
    return IndexRun(
        files=files,
        processes=processes,
        elapsed_s=measured["elapsed_s"],
        requests=len(server.requests),
        processor_s=measured["processor_s"],
        store_processor_s=_processor_s(server.process_id) - store_before_s,
        peak_memory_mb=measured["peak_memory_mb"],
    )


def _processor_s(process_id: int | None) -> float:
    """Return the processor time of another process so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- In the process that indexes --------------------------------------------------------------------------------------


async def _index(endpoint_url: str, processes: int) -> dict[str, Any]:
    from coldparquet.pipelines import IndexJob, LocalEngine, run_pipeline

    before_s = time.process_time()
    report = await run_pipeline(
        IndexJob(pages=False, pack=False),
        f"s3://{BUCKET}/{LAKE}/*",
        engine=LocalEngine(processes=processes),
        storage_options={"endpoint_url": endpoint_url, "key": _KEY, "secret": _KEY},
    )
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    failed = [result.reason for result in report.results if result.outcome == "failed"]
    return {
        "indexed": sum(result.action == "written" for result in report.results),
        "failures": failed[:3],
        "elapsed_s": report.elapsed_s,
        "processor_s": time.process_time() - before_s + children.ru_utime + children.ru_stime,
        "peak_memory_mb": max(peak_memory_mb(), children.ru_maxrss / 1024),
    }


def main() -> None:
    """Be the process that indexes, and print what was measured as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint-url", required=True)
    parser.add_argument("--processes", type=int, required=True)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(_index(arguments.endpoint_url, arguments.processes))))  # noqa: T201 - read by the process that measures


if __name__ == "__main__":
    main()
