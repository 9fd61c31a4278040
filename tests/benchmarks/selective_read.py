"""The selective read of one cold partition, against Polars and pyarrow, on the same simulated store in one run.

    python tests/benchmarks/selective_read.py

One day of trades, 2,000,000 rows in 20 row groups of 10 columns, about 100 MB; two columns and two hours of it are
wanted, which touches 3 row groups. The store waits 30 ms before the first byte and sends 90 MB/s per connection. Each
reader runs in fresh processes, one after the other and in turn; imports and client are made before the clock starts.
"First" is the first call of such a process, "warm" the median of the calls after it, with what the reader keeps.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2024, 3, 1, tzinfo=UTC)
BEGIN, END = datetime(2024, 3, 1, 9, 30, tzinfo=UTC), datetime(2024, 3, 1, 11, 30, tzinfo=UTC)
COLUMNS = ["ts", "price"]
ROWS, ROW_GROUPS = 2_000_000, 20
WARM_CALLS = 5
KEY = "bench/trades/2024-03-01.0"


def make_partition(directory: Path) -> None:
    """Write the day of trades; the same bytes in every run."""
    random = np.random.default_rng(20240301)
    start_us = int(START.timestamp()) * 1_000_000
    steps = np.sort(random.integers(0, 86_400_000_000, ROWS))
    price = 60_000 + np.cumsum(random.normal(0, 0.5, ROWS)).round(2)
    table = pa.table(
        {
            "ts": pa.array(start_us + steps, pa.timestamp("us", "UTC")),
            "symbol": pa.array(np.char.add("SYM", random.integers(0, 500, ROWS).astype("U3"))).dictionary_encode(),
            "side": pa.array(np.where(random.random(ROWS) < 0.5, "buy", "sell")).dictionary_encode(),
            "price": price,
            "amount": random.exponential(1.0, ROWS),
            "id": random.integers(0, 2**62, ROWS),
            "note": pa.nulls(ROWS, pa.string()),
            "venue": pa.array(np.array(["XNAS", "XNYS", "BATS"])[random.integers(0, 3, ROWS)]).dictionary_encode(),
            "bid": price - random.exponential(0.01, ROWS),
            "ask": price + random.exponential(0.01, ROWS),
        }
    )
    # QuestDB's designated timestamp is never null; saying so makes a foreign file's sorted timestamp one.
    table = table.set_column(0, pa.field("ts", table.schema.field("ts").type, nullable=False), table.column("ts"))
    directory.mkdir(parents=True)
    pq.write_table(
        table,
        directory / "data.parquet",
        row_group_size=ROWS // ROW_GROUPS,
        compression="zstd",
        data_page_size=64 * 1024,
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(0)],
    )


# --- The readers: each returns the wanted rows as an Arrow table ------------------------------------------------------

Read = Callable[[], Awaitable[int]]


def coldparquet_reader(endpoint_url: str) -> tuple[Read, Read]:
    """Return the first call (opens the partition) and the calls after it (the partition stays open)."""
    import coldparquet as cp
    from coldparquet.storage.open_store import open_store

    store, path = open_store(f"s3://{KEY}", storage_options={"endpoint_url": endpoint_url, "anon": True})
    opened: list[cp.Table] = []
    where = (cp.col("ts") >= BEGIN) & (cp.col("ts") < END)

    async def warm() -> int:
        return (await opened[0].scan(COLUMNS, where).to_arrow()).num_rows

    async def first() -> int:
        opened.append(await cp.open_partition(path, store=store))
        return await warm()

    return first, warm


def polars_reader(endpoint_url: str) -> tuple[Read, Read]:
    import polars as pl

    options = {
        "aws_endpoint_url": endpoint_url,
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }

    async def read() -> int:
        frame = pl.scan_parquet(f"s3://{KEY}/data.parquet", storage_options=options)
        chosen = frame.filter((pl.col("ts") >= BEGIN) & (pl.col("ts") < END)).select(COLUMNS)
        return chosen.collect().height

    return read, read


def pyarrow_reader(endpoint_url: str) -> tuple[Read, Read]:
    import pyarrow.dataset as ds
    from pyarrow import fs

    filesystem = fs.S3FileSystem(
        access_key="x",
        secret_key="x",
        endpoint_override=endpoint_url.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )

    async def read() -> int:
        dataset = ds.dataset(f"{KEY}/data.parquet", filesystem=filesystem, format="parquet")
        rows = dataset.to_table(columns=COLUMNS, filter=(ds.field("ts") >= BEGIN) & (ds.field("ts") < END))
        return int(rows.num_rows)

    return read, read


READERS = {"coldparquet": coldparquet_reader, "Polars": polars_reader, "pyarrow": pyarrow_reader}


def _log(endpoint_url: str) -> dict[str, int]:
    """Fetch and clear the server's log of requests."""
    with urllib.request.urlopen(f"{endpoint_url}/__reset", timeout=10) as answer:
        served = json.load(answer)
    return {"requests": len(served), "bytes": sum(request["bytes_sent"] for request in served)}


def _peak_memory_mb() -> float:
    # Not getrusage: its peak is inherited from the parent, which made the data.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


async def _measure(name: str, endpoint_url: str) -> dict[str, Any]:
    first, warm = READERS[name](endpoint_url)
    _log(endpoint_url)
    start = time.perf_counter()
    rows = await first()
    first_s = time.perf_counter() - start
    first_log = _log(endpoint_url)
    warm_s, processor_s = [], time.process_time()
    for _ in range(WARM_CALLS):
        start = time.perf_counter()
        assert await warm() == rows
        warm_s.append(time.perf_counter() - start)
    processor_s = (time.process_time() - processor_s) / WARM_CALLS
    warm_log = {key: value / WARM_CALLS for key, value in _log(endpoint_url).items()}
    return {
        "rows": rows,
        "first_s": first_s,
        "warm_s": statistics.median(warm_s),
        "warm_processor_s": processor_s,
        "first": first_log,
        "warm": warm_log,
        "peak_memory_mb": _peak_memory_mb(),
    }


def run(rounds: int) -> dict[str, dict[str, Any]]:
    """Measure every reader ``rounds`` times, interleaved; return the medians by reader."""
    from coldparquet.maintenance.index import index_table
    from coldparquet.testing.simulator_options import ColdStoreOptions
    from coldparquet.testing.simulator_process import ColdStoreProcess

    options = ColdStoreOptions(first_byte_s=0.030, bandwidth_bytes_per_s=90e6)
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in READERS}
    with tempfile.TemporaryDirectory() as root:
        make_partition(Path(root) / KEY)
        asyncio.run(index_table(str(Path(root) / KEY)))
        with ColdStoreProcess(Path(root), options) as server:
            for _ in range(rounds):
                for name, results in measured.items():
                    command = [sys.executable, __file__, "--reader", name, "--endpoint-url", server.endpoint_url]
                    child = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
                    results.append(json.loads(child.stdout))
    assert len({result["rows"] for results in measured.values() for result in results}) == 1, "readers disagree"
    return {
        name: {
            "first_ms": statistics.median(result["first_s"] for result in results) * 1000,
            "warm_ms": statistics.median(result["warm_s"] for result in results) * 1000,
            "warm_processor_ms": statistics.median(result["warm_processor_s"] for result in results) * 1000,
            "first_requests": results[0]["first"]["requests"],
            "first_mb": results[0]["first"]["bytes"] / 1e6,
            "warm_requests": results[0]["warm"]["requests"],
            "warm_mb": results[0]["warm"]["bytes"] / 1e6,
            "peak_memory_mb": statistics.median(result["peak_memory_mb"] for result in results),
        }
        for name, results in measured.items()
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """Lay the results out as the Markdown table of the README; ratios are against Polars."""
    polars = results["Polars"]
    lines = [
        "| reader | first call | of Polars | requests | MB | warm call | of Polars | requests | MB | CPU, warm | peak RSS |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['first_ms']:.0f} ms | {row['first_ms'] / polars['first_ms']:.2f}x"
        f" | {row['first_requests']} | {row['first_mb']:.2f}"
        f" | {row['warm_ms']:.0f} ms | {row['warm_ms'] / polars['warm_ms']:.2f}x"
        f" | {row['warm_requests']:.0f} | {row['warm_mb']:.2f}"
        f" | {row['warm_processor_ms']:.0f} ms | {row['peak_memory_mb']:.0f} MB |"
        for name, row in results.items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes per reader (default 5)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint-url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reader:
        print(json.dumps(asyncio.run(_measure(arguments.reader, arguments.endpoint_url))))
        return
    results = run(arguments.rounds)
    print(json.dumps(results, indent=2) if arguments.json else table(results))


if __name__ == "__main__":
    main()
