"""What nothing but ``coldparquet index`` leaves: the requests of questions to tables on which only that command has run."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import coldparquet as cp
from coldparquet.cli.commands import app
from coldparquet.write import WriteOptions, write_partition
from coldparquet_testing.simulator import ColdStoreServer

if TYPE_CHECKING:
    from pathlib import Path

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
OPENING = {"GET _txn": 1, "GET _meta": 1, "GET _catalogue": 1, "GET _pm": 1, "GET _pages": 1}
"""Asked for in the table's directory, in the first round trip, beside its listing."""
FIELDS: list[pa.Field[Any]] = [
    pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("price", pa.float64()),
]
SMALL = pa.schema(FIELDS)


def day(number: int) -> str:
    return f"{FIRST + timedelta(days=number):%Y-%m-%d}"


def times(number: int, rows: int) -> pa.Array[Any]:
    start_us = int(FIRST.timestamp()) * 1_000_000 + number * DAY_US
    return pa.array(start_us + np.arange(rows) * (DAY_US // rows), pa.timestamp("us", tz="UTC"))


async def index(server: ColdStoreServer, table: str, *flags: str) -> str:
    options = server.storage_options
    secrets = ("--storage-option", f"key={options['key']}", "--storage-option", f"secret={options['secret']}")
    arguments = ["index", f"s3://bucket/{table}", "--endpoint-url", server.endpoint_url, *secrets, *flags]
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments)  # it has an event loop of its own
    assert (done.exit_code, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


async def write_small_days(bucket: Path) -> None:
    for number in range(365):
        rows = pa.table({"ts": times(number, 50), "price": np.arange(50.0)}, schema=SMALL)
        path = bucket / "year" / day(number)
        path.mkdir(parents=True)
        pq.write_table(rows, path / "data.parquet", sorting_columns=[pq.SortingColumn(0)])


async def write_needles(bucket: Path) -> int:
    random = np.random.default_rng(2)
    ids = random.integers(0, 2**60, (50, 5_000))
    for number in range(50):
        rows = pa.table({"ts": times(number, 5_000), "id": ids[number], "price": random.random(5_000)})
        options = WriteOptions(row_group_rows=250, bloom_columns=("id",))
        await write_partition(bucket / "needles" / day(number), rows, timestamp="ts", options=options)
    for sidecar in (bucket / "needles").glob("*/_pm"):
        sidecar.unlink()
    return int(ids[17, 700])


async def write_large_day(bucket: Path) -> None:
    rows = 1_000_000
    prices = np.random.default_rng(3).random((2, rows))
    path = bucket / "day" / day(0)
    path.mkdir(parents=True)
    pq.write_table(
        pa.table({"ts": times(0, rows), "price": prices[0], "amount": prices[1]}),
        path / "data.parquet",
        row_group_size=100_000,
        data_page_size=64 * 1024,
        write_page_index=True,
        use_dictionary=False,
        sorting_columns=[pq.SortingColumn(0)],
    )


class Asked:
    """What the store saw of one question to a table that was opened anew."""

    def __init__(self, server: ColdStoreServer) -> None:
        names = [(request.method, request.operation, request.path.rpartition("/")[2]) for request in server.requests]
        self.requests = Counter(
            "LIST" if operation == "ListObjectsV2" else f"{method} {name}" for method, operation, name in names
        )
        self.sent_bytes = sum(request.bytes_sent for request in server.requests)


async def ask(server: ColdStoreServer, path: str, where: str | None, *, is_count: bool = False) -> tuple[Any, Asked]:
    cp.clear_caches()
    server.reset()
    async with cp.open_table(f"s3://bucket/{path}", storage_options=server.storage_options) as table:
        scan = table.scan(where=where)
        answer = await scan.count() if is_count else (await scan.to_arrow()).num_rows
    return answer, Asked(server)


@pytest.mark.slow
async def test_a_year_of_small_days(tmp_path: Path) -> None:
    await write_small_days(tmp_path / "bucket")
    with ColdStoreServer(tmp_path) as server:
        planned = await index(server, "year", "--dry-run")
        assert "365 partitions in" in planned
        assert "_pages: 365 would write (" in planned
        assert "_catalogue: would write (" in planned
        assert not [request for request in server.requests if request.method == "PUT"]
        told = await index(server, "year")
        assert "_pages: 365 written (" in told
        assert "_catalogue: written (" in told
        week = f"ts >= '{day(100)}' and ts < '{day(107)}'"
        rows, asked = await ask(server, "year", week)
        assert rows == 7 * 50
        assert asked.requests == {**OPENING, "LIST": 2, "GET data.parquet": 7}
        count, counted = await ask(server, "year", None, is_count=True)
        assert count == 365 * 50
        assert counted.requests == {**OPENING, "LIST": 3}


async def test_a_needle_in_a_thousand_row_groups(tmp_path: Path) -> None:
    needle = await write_needles(tmp_path / "bucket")
    with ColdStoreServer(tmp_path) as server:
        await index(server, "needles")
        rows, asked = await ask(server, "needles", f"id = {needle}")
        assert rows == 1
        # Beyond the table's beginning: filters of all partitions, and data, once in vain, as 1 of 100 filters is mistaken.
        assert asked.requests == {**OPENING, "LIST": 2, "GET _catalogue": 2, "GET data.parquet": 2}


async def test_thirty_seconds_of_a_large_day(tmp_path: Path) -> None:
    await write_large_day(tmp_path / "bucket")
    with ColdStoreServer(tmp_path) as server:
        told = await index(server, "day")
        assert "_pages: 1 written (" in told
        assert "_catalogue" not in told
        where = f"ts >= '{day(0)}T12:00:00' and ts < '{day(0)}T12:00:30'"
        rows, asked = await ask(server, f"day/{day(0)}/data.parquet", where)
        assert rows == 348
        assert asked.requests == {"GET _pm": 1, "GET _pages": 1, "HEAD data.parquet": 1, "GET data.parquet": 3}
        assert asked.sent_bytes < 200_000


async def test_what_is_not_wanted_is_not_written(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    for number in range(4):
        rows = pa.table({"ts": times(number, 50), "price": np.arange(50.0)}, schema=SMALL)
        (bucket / "few" / day(number)).mkdir(parents=True)
        pq.write_table(rows, bucket / "few" / day(number) / "data.parquet", sorting_columns=[pq.SortingColumn(0)])
    with ColdStoreServer(tmp_path) as server:
        await index(server, "few", "--no-pages", "--no-catalogue")
        assert {path.name for path in bucket.rglob("*") if path.is_file()} == {"data.parquet", "_pm"}
        await index(server, "few")
        assert len(list(bucket.rglob("_pages"))) == 4
        assert (bucket / "few" / "_catalogue").exists()
    wrong = CliRunner().invoke(app, ["index", str(bucket), "--no-catalogue", "--pack"])
    assert (wrong.exit_code, "contradicts" in wrong.stderr) == (2, True)
