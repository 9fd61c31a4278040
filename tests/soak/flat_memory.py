"""Scans for minutes, with 64 requests in flight and a store that fails now and then: memory must stay flat.

python -m tests.soak.flat_memory --minutes 10
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet_testing.demo_data import ROWS_PER_DAY, write_trades
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreProcess, FaultRule, ServedRequest
from tests.support.leaks import open_file_handles, settled_file_handles

# ruff: noqa: T201 - a command prints


DAYS = 5
SCANS_AT_ONCE = 16
REQUESTS_PER_SCAN = 8
REQUESTS_IN_FLIGHT = 64
"""Half of what the scans may have together: decoding takes its time, too."""
SAMPLE_S = 1.0
SPARE_HANDLES = 3
"""File handles that may come and go."""

WARM_UP_SHARE = 0.25
"""Of the samples: caches fill and pools grow, which is no leak."""
ALLOWED_GROWTH = 0.05
ALLOWED_GROWTH_BYTES = 24 * 1024 * 1024
"""Memory that comes and goes with what the scans happen to hold."""

STORE = ColdStoreOptions(
    first_byte_s=0.03,
    bandwidth_bytes_per_s=90e6,
    slow_tail_probability=0.02,
    faults=(
        FaultRule("slow-down", operation="*", probability=0.01),
        FaultRule("reset-body", probability=0.01),
        FaultRule("cut-body", probability=0.01),
    ),
)
OPTIONS = cp.ReadOptions(
    max_concurrency=REQUESTS_PER_SCAN,  # of one scan, as each has a store of its own
    memory_limit_bytes=8 * 1024 * 1024,
    max_request_bytes=64 * 1024,
    coalesce_gap_bytes=0,
)
STORE_OPTIONS = cp.StoreOptions(cache_limit_bytes=1024 * 1024)


@dataclass(slots=True)
class Soak:
    """What was seen."""

    resident_bytes: list[int] = field(default_factory=list)
    """Memory of this process, once per :data:`SAMPLE_S`."""
    scans: int = 0
    requests: int = 0
    most_in_flight: int = 0
    left_handles: int = 0
    """File handles that are open at the end and were not at the beginning."""

    def problems(self) -> list[str]:
        """Return what is wrong."""
        found = []
        if (growth_bytes := growth(self.resident_bytes)) > 0:
            found.append(f"memory grew by {growth_bytes / 1e6:.0f} MB more than it may")
        if self.left_handles > SPARE_HANDLES:
            found.append(f"{self.left_handles} file handles were left")
        return found


def growth(resident_bytes: Sequence[int]) -> int:
    """Return by how many bytes memory grew beyond what is allowed, 0 or less if it was flat.

    The lowest samples of two halves are compared: peaks are chance, but what leaks is there in the valleys too.

    Args:
        resident_bytes: Samples in equal distances.
    """
    warm = resident_bytes[int(len(resident_bytes) * WARM_UP_SHARE) :]
    first, second = min(warm[: len(warm) // 2]), min(warm[len(warm) // 2 :])
    return second - first - max(int(first * ALLOWED_GROWTH), ALLOWED_GROWTH_BYTES)


def most_at_once(served: Iterable[ServedRequest]) -> int:
    """Return how many requests were under way at the same time, at most."""
    changes = [change for request in served for change in ((request.started_s, 1), (request.finished_s, -1))]
    count = most = 0
    for _, change in sorted(changes):
        count += change
        most = max(most, count)
    return most


async def soak(seconds: float) -> Soak:
    """Scan for so long."""
    seen = Soak()
    with tempfile.TemporaryDirectory() as directory:
        table = Path(directory) / "bucket" / "trades"
        write_trades(table, days=DAYS, on_day=lambda: None)
        await index_table(table, pages=False, pack=False)
        with ColdStoreProcess(Path(directory), STORE) as server:
            await _scan_once(server)  # loads what is loaded late
            handles = len(open_file_handles())
            stop_s = time.monotonic() + seconds
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_watch(seen, server, stop_s))
                for _ in range(SCANS_AT_ONCE):
                    tasks.create_task(_scan(seen, server, stop_s))
            seen.left_handles = len(await settled_file_handles(handles)) - handles
    return seen


async def _scan(seen: Soak, server: ColdStoreProcess, stop_s: float) -> None:
    """Scan again and again; some tables stay open for several scans, some scans end early."""
    while time.monotonic() < stop_s:
        seen.scans += await _scan_once(server, scans=random.choice((1, 1, 5)), stop_s=stop_s)


async def _scan_once(server: ColdStoreProcess, *, scans: int = 1, stop_s: float = float("inf")) -> int:
    done = 0
    url, keys = "s3://bucket/trades", server.storage_options
    async with cp.open_table(url, storage_options=keys, options=OPTIONS, store_options=STORE_OPTIONS) as opened:
        while done < scans and time.monotonic() < stop_s:
            rows = 0
            enough = random.choice((DAYS * ROWS_PER_DAY, DAYS * ROWS_PER_DAY, 1))
            async with opened.scan(where=random.choice((None, "symbol = 'BTC-USD'"))).batches() as batches:
                async for batch in batches:
                    rows += batch.num_rows
                    if rows >= enough:
                        break
            done += 1
    return done


async def _watch(seen: Soak, server: ColdStoreProcess, stop_s: float) -> None:
    """Measure once in a while; the server forgets its log, so that it does not grow either."""
    while time.monotonic() < stop_s:
        await asyncio.sleep(SAMPLE_S)
        seen.resident_bytes.append(_resident_bytes())
        served = await asyncio.to_thread(server.reset)
        seen.requests += len(served)
        seen.most_in_flight = max(seen.most_in_flight, most_at_once(served))


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Soak, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    seen = asyncio.run(soak(parser.parse_args().minutes * 60))
    step = max(1, len(seen.resident_bytes) // 20)
    print("memory in MB:", *(round(sample / 1e6) for sample in seen.resident_bytes[::step]))
    print(f"{seen.scans} scans, {seen.requests} requests, {seen.most_in_flight} in flight at most")
    for problem in seen.problems():
        print(problem)
    sys.exit(bool(seen.problems()))


if __name__ == "__main__":
    main()
