"""Row groups of few rows: what a scan holds does not grow with how many there are."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.options import MIB
from coldparquet.scan.arriving import ArrivingRead
from coldparquet.scan.work import RowGroupWork

if TYPE_CHECKING:
    from pathlib import Path

SCAN = """
import asyncio, sys
import coldparquet as cp
from coldparquet.options import MIB

def memory_kib(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

async def main(warm_up, url, limit_mib, row_groups):
    async with cp.open_partition(warm_up) as partition:
        await partition.scan().to_arrow()
    before = memory_kib("VmRSS")
    options = cp.ReadOptions(memory_limit_bytes=int(limit_mib) * MIB)
    found = []
    async with cp.open_partition(url, options=options) as partition, partition.scan(["x"]).batches() as batches:
        while len(found) < 2 * int(row_groups):
            found += (await batches.next_batch()).column("x").to_pylist()
    assert found == list(range(2 * int(row_groups)))
    print((memory_kib("VmHWM") - before) // 1024)

asyncio.run(main(*sys.argv[1:]))
"""


def write(directory: Path, row_groups: int) -> Path:
    directory.mkdir()
    pq.write_table(pa.table({"x": range(2 * row_groups)}), directory / "data.parquet", row_group_size=2)
    return directory


async def test_row_groups_are_made_when_they_begin(tmp_path: Path) -> None:
    partition = write(tmp_path / "p", 2_000)
    options = cp.ReadOptions(memory_limit_bytes=2 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened, opened.scan().batches() as batches:
        found = (await batches.next_batch()).column("x").to_pylist()  # type: ignore[union-attr]
        gc.collect()
        made = [one for one in gc.get_objects() if isinstance(one, RowGroupWork | ArrivingRead)]
        assert 0 < len(made) < 2 * 200, "two objects for each of those that fit, 4 KiB each"
        async for batch in batches:
            found += batch.column("x").to_pylist()
    assert found == list(range(4_000))


@pytest.mark.slow
def test_many_tiny_row_groups_stay_within_twice_the_limit(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / "warm up", 20)), str(write(tmp_path / "p", 20_000))]
    done = subprocess.run(
        [sys.executable, "-c", SCAN, *paths, "64", "4000"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2 * 64
