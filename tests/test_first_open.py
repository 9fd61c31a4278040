"""The first open of a process: what is slow to import is imported beside the event loop, not in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.questdb_tables import PARTITIONS

GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")

HEAVY = {
    *(
        "aiobotocore",
        "aiohttp",
        "boto3",
        "botocore",
        "fsspec",
        "numpy",
        "pandas",
        "pyarrow",
        "s3fs",
        "sqlglot",
    ),
    *("coldparquet.catalog", "coldparquet.decode", "coldparquet.plan", "coldparquet.scan", "coldparquet.storage"),
    *("coldparquet.table", "coldparquet.table_scan"),
}

SCRIPT = """
import asyncio, json, sys, threading, time

loop_thread, imported = threading.get_ident(), []
longest_step = 0.0

class Recorder:
    def find_spec(self, name, path=None, target=None):
        if threading.get_ident() == loop_thread:
            imported.append(name)

def timed(run):
    def run_timed(handle):
        global longest_step
        start = time.thread_time()
        run(handle)
        longest_step = max(longest_step, time.thread_time() - start)
    return run_timed

async def main(url, storage_options):
    asyncio.Handle._run = timed(asyncio.Handle._run)
    import coldparquet as cp
    async with cp.OPEN as table:
        scan = table.scan(["id", "half"], "id >= 500 and id < 700")
        (await scan.plan()).explain()
        rows = await scan.to_arrow()
        return rows.num_rows, await scan.count()

url, storage_options = json.loads(sys.argv[1])
sys.meta_path.insert(0, Recorder())
counts = asyncio.run(main(url, storage_options))
print(json.dumps([counts, sorted(sys.modules.keys() & set(imported)), longest_step]))
"""


def first_open(opening: str, url: str, storage_options: dict[str, Any] | None = None) -> tuple[set[str], float]:
    """Open and scan in a new process; return what its event loop imported, and the processor seconds of its longest step."""
    script = SCRIPT.replace("OPEN", opening)
    arguments = [sys.executable, "-c", script, json.dumps([url, storage_options])]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    counts, imported, longest_step = json.loads(result.stdout)
    assert counts == [200, 200]
    return set(imported), longest_step


def heavy_of(imported: set[str]) -> list[str]:
    return sorted(name for name in imported if {name, name.partition(".")[0], ".".join(name.split(".")[:2])} & HEAVY)


@pytest.fixture
async def partition(tmp_path: Path) -> Path:
    directory = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    await index_table(directory, pages=False, pack=False)
    return directory


@pytest.mark.parametrize(
    "opening",
    [
        "open_table(url)",
        "open_partition(url, options=cp.ReadOptions(), store_options=cp.StoreOptions())",
        "open_partitions(url.rpartition('/')[0], [url.rpartition('/')[2]])",
    ],
)
def test_local_tables(partition: Path, opening: str) -> None:
    imported, longest_step = first_open(opening, str(partition))
    assert not heavy_of(imported)
    assert longest_step < 0.25, "about 0.01 s; it was more than 0.3 s on an idle machine, and 1.5 s on a busy one"


def test_s3(partition: Path, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        options = dict(server.storage_options)
        imported, longest_step = first_open(
            "open_partition(url, storage_options=storage_options)", f"s3://bucket/db/{partition.name}", options
        )
    assert not heavy_of(imported)
    assert longest_step < 0.25


def test_other_stores(partition: Path) -> None:
    imported, _ = first_open("open_partition('simplecache::' + url)", f"file://{partition}")
    assert not heavy_of(imported)
