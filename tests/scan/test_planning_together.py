"""Partitions are planned together: the plan is that of each one alone, and thousands of them take few requests and little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import FormatError
from coldparquet.format import sidecar
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.plan.model import StoreSpeed
from coldparquet.records import replace
from coldparquet.scan.model import RememberedSpeeds
from coldparquet.scan.work import KeptShare
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import Listing, ObjectInfo
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_bench.planning import made_up_content, parquet_size_bytes, partition_name
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.small_tables import QuotingStore

DAY_US = 86_400_000_000
FIRST_DAY_US = 19_783 * DAY_US
"""2024-03-01."""

WORDS = ["", "a", "exactly8", "longer than eight bytes", "longer than eight bytes, too", "ÿ" * 40]


async def write_days(directory: Path) -> None:
    """Twelve days of three schemas, with more or fewer row groups, NULLs, constants, long texts, bloom filters and pages."""
    random = np.random.default_rng(7)
    for day in range(12):
        rows = 40 + 17 * day
        times = FIRST_DAY_US + day * DAY_US + np.sort(random.integers(0, DAY_US, rows))
        columns: dict[str, Any] = {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "n": pa.array(random.integers(0, 1 << 40, rows)),
            "x": pa.array(
                [None if value < 0.1 else value + day for value in random.random(rows).tolist()], pa.float64()
            ),
            "k": pa.array([day // 2] * rows, pa.int64()),
            "text": pa.array([WORDS[index] for index in random.integers(0, len(WORDS), rows)]),
        }
        if day % 3 == 1:
            del columns["x"]
        if day % 3 == 2:
            columns["later"] = pa.array([None] * rows, pa.int32())
        options = WriteOptions(
            row_group_rows=13 + 5 * (day % 4), page_rows=5, bloom_columns=("n", "text") if day % 2 else ()
        )
        await write_partition(directory / f"2024-03-{day + 1:02}", pa.table(columns), timestamp="ts", options=options)


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"columns": ["k", "later"]},
    {"where": "n > 549755813888"},
    {"where": "x > 3.5 AND k >= 2", "columns": ["ts", "n", "text"]},
    {"where": "x IS NULL OR later IS NULL", "columns": ["ts"]},
    {"where": "ts >= '2024-03-03T06:00:00' AND ts < '2024-03-07' AND x < 4"},
    {"where": [("text", "=", WORDS[3])], "columns": ["ts", "text"]},
    {"where": [("text", "in", [WORDS[2], WORDS[5]]), ("n", ">", 1 << 39)]},
    {"where": [("n", "=", 12_345)]},
    {"where": "n = 12345 OR k = 3", "columns": ["x"]},
    {"where": "NOT (text < 'm') AND NOT n = 5", "limit": 60},
    {"limit": 100},
    {"where": "k = 4", "limit": 10, "columns": ["text"]},
]
OPTIONS = [
    cp.ReadOptions(),
    cp.ReadOptions(page_index="always", late_materialisation="always"),
    cp.ReadOptions(statistics=False, page_index="never", goal="few-bytes"),
    cp.ReadOptions(make_constant_columns=False, strings="dictionary", goal="cheap", late_materialisation="always"),
]


async def plans(directory: Path) -> list[dict[str, Any]]:
    found = []
    for options in OPTIONS:
        async with cp.open_table(directory, options=options) as table:
            found += [(await table.scan(**question).plan()).as_dict() for question in QUESTIONS]
    # How long it would take depends on how fast the disk was, and answers come in any order.
    others = ("estimate", "goals", "metadata_requests")
    return [{key: value for key, value in plan.items() if key not in others} for plan in found]


@pytest.mark.slow
async def test_the_plan_is_that_of_each_partition_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await write_days(tmp_path)
    together = await plans(tmp_path)
    monkeypatch.setattr(sidecar, "_LONGEST_STACK_BYTES", 0)
    alone = await plans(tmp_path)
    for one, other in zip(together, alone, strict=True):
        assert one == other
    assert sum(len(plan["requests"]) for plan in together) > 500, "the questions leave something"


async def table_of(store: MemoryStore, days: int, row_groups: int = 1) -> None:
    for day in range(days):
        directory = f"t/{partition_name(day)}"
        await store.put(f"{directory}/_pm", encode_sidecar(made_up_content(day, row_groups)), overwrite=False)
        await store.put(f"{directory}/data.parquet", b"x", overwrite=False)


async def test_an_error_is_that_of_its_partition() -> None:
    store = MemoryStore()
    await table_of(store, 30)
    content = made_up_content(17, 1)
    cut = replace(content, parquet_footer_offset=content.parquet_footer_offset - 1)
    path = f"t/{partition_name(17)}/_pm"
    await store.put(path, encode_sidecar(cut), overwrite=True)
    async with cp.open_table("t", store=store) as table:
        with pytest.raises(FormatError, match=r"row group 0, column 'c9': the chunk lies outside") as caught:
            await table.scan().plan()
        assert caught.value.path == path
        assert len((await table.scan(limit=20_000).plan()).row_groups) == 2, "the damaged one is not asked for"


class SizedStore(QuotingStore):
    """Says that the Parquet files are as long as their sidecars say."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        self._sizes = sizes

    def _sized(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, size_bytes=self._sizes.get(info.path, info.size_bytes))

    async def info(self, path: str) -> ObjectInfo:
        return self._sized(await super().info(path))

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        listing = await super().list(path, first_page_only=first_page_only)
        return replace(listing, objects=tuple(map(self._sized, listing.objects)))

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        return tuple(map(self._sized, await super().list_between(path, start=start, stop=stop)))


async def test_years_are_planned_from_the_catalogue() -> None:
    days, most_requests = 800, 10
    sizes = {
        f"t/{partition_name(day)}/data.parquet": parquet_size_bytes(made_up_content(day, 1)) for day in range(days)
    }
    store = SizedStore(sizes)
    await table_of(store, days)
    await pack_table("t", store=store)
    async with cp.open_table("t", store=store) as table:
        for where in (None, "c1 > 500"):
            plan = await table.scan(where=where).plan()
            assert len(plan.row_groups) == days
            assert len(plan.metadata_requests) <= most_requests, "one listing for 250 days, and the catalogue"
            assert sum(partition.metadata_source == "catalogue" for partition in plan.partitions) >= days - 1
        pieces = await table.scan(where="c1 > 500").pieces(6)
        assert sum(len(piece.to_bytes()) for piece in pieces) < 200 * days


MEMORY = """
import asyncio, json
import coldparquet as cp
from coldparquet_bench.measurement import peak_memory_mb
from coldparquet_bench.planning import made_up_content, partition_name
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.storage.memory import MemoryStore

async def main():
    store, sidecar = MemoryStore(), encode_sidecar(made_up_content(0, 1000))
    for day in range(100):
        await store.put(f"t/{partition_name(day)}/_pm", sidecar, overwrite=False)
        await store.put(f"t/{partition_name(day)}/data.parquet", b"x", overwrite=False)
    async with cp.open_table("t", store=store) as table:
        pieces = await table.scan(where="c1 > 500").pieces(6)
        print(json.dumps([len(pieces.plan.row_groups), peak_memory_mb()]))

asyncio.run(main())
"""


@pytest.mark.slow
def test_100_000_row_groups_are_planned_and_cut_in_500_mb() -> None:
    """Of the whole process, with all that is imported and with the bytes of the sidecars."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=300, check=True)
    row_groups, peak_mb = json.loads(done.stdout)
    assert row_groups == 100_000
    assert peak_mb < 500


# --- What one table has measured of an endpoint serves the next one that is opened there, also for how it coalesces ---


PARTITIONS, FIRST_BYTE_S = 9, 0.01


@pytest.fixture
async def bucket(tmp_path: Path) -> Path:
    for day in range(1, PARTITIONS + 1):
        directory = tmp_path / "bucket" / "trades" / f"2024-03-{day:02}.1"
        directory.mkdir(parents=True)
        pq.write_table(pa.table({"size": np.arange(100)}), directory / "data.parquet")
    await index_table(str(tmp_path / "bucket" / "trades"), pages=False, pack=False)
    return tmp_path


async def test_a_new_table_knows_how_fast_its_endpoint_is(bucket: Path) -> None:
    with ColdStoreServer(bucket, ColdStoreOptions(first_byte_s=FIRST_BYTE_S)) as server:
        async with cp.open_table("s3://bucket/trades", storage_options=server.storage_options) as table:
            plan = await table.scan(["size"]).plan()
            assert "(published for S3; not measured yet)" in plan.explain()
            assert (await table.scan(["size"]).to_arrow()).num_rows == 100 * PARTITIONS
        async with cp.open_table("s3://bucket/trades", storage_options=server.storage_options) as another:
            speed = (await another.scan(["size"]).plan()).speed
    assert speed.is_first_byte_measured
    assert speed.first_byte_s >= FIRST_BYTE_S
    assert not speed.is_throughput_measured  # nothing was long enough


# --- A question that is asked again is planned as it was the first time, whatever was measured since ------------------


SLOW, FAST = (StoreSpeed(connections=8, first_byte_s=first_byte_s) for first_byte_s in (0.5, 0.001))


def test_a_repeated_question_has_the_speed_of_the_first_time() -> None:
    speeds = RememberedSpeeds()
    assert speeds.speed_for(("price > 1",), SLOW) is SLOW
    assert speeds.speed_for(("price > 2",), FAST) is FAST
    assert speeds.speed_for(("price > 1",), FAST) is SLOW


def test_only_the_newest_questions_are_remembered() -> None:
    speeds = RememberedSpeeds()
    for number in range(2_000):
        speeds.speed_for((number,), SLOW)
    assert speeds.speed_for((0,), FAST) is FAST
    assert speeds.speed_for((1_999,), FAST) is SLOW


def test_a_scan_is_kept_as_a_whole_or_not_at_all() -> None:
    fitting = KeptShare(100, planned_bytes=100)
    assert [fitting.takes(50), fitting.takes(50)] == [True, True]
    too_large = KeptShare(100, planned_bytes=101)
    assert not too_large.takes(1)


def test_of_a_scan_with_an_unknown_end_the_beginning_is_kept() -> None:
    share = KeptShare(100, planned_bytes=None)
    assert [share.takes(60), share.takes(60), share.takes(1)] == [True, False, False]
