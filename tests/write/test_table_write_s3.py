"""Writing tables through the S3 protocol: which requests in which order, and what rivals and failures do to a write."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coldparquet.errors import AccessError, NotFoundError, ObjectChangedError
from coldparquet.maintenance.pack import pack_table
from coldparquet.write import WriteOptions, write_table
from coldparquet_testing.simulator import ColdStoreServer, FaultRule
from tests.support.written_tables import in_order, read_table, same_rows, ticks

URL = "s3://bucket/db/trades"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ColdStoreServer]:
    (tmp_path / "bucket").mkdir()
    with ColdStoreServer(tmp_path) as started:
        yield started


def requests(server: ColdStoreServer) -> list[str]:
    """Return operations and the ends of the paths of all requests since the last call."""
    found = [re.sub(r"_meta\.v\d+", "_meta.v", request) for request in _requests(server)]
    server.reset()
    return found


def _requests(server: ColdStoreServer) -> list[str]:
    return [
        f"{served.operation} {served.path.partition('db/trades')[2].lstrip('/')}".strip() for served in server.requests
    ]


def assert_steps(sent: list[str], *steps: list[str]) -> None:
    """Compare request by request; those of one step are in flight at the same time, and arrive in any order."""
    stops = [sum(map(len, steps[: number + 1])) for number in range(len(steps))]
    arrived = [sorted(sent[stop - len(step) : stop]) for step, stop in zip(steps, stops, strict=True)]
    assert arrived == [sorted(step) for step in steps]
    assert sent[stops[-1] :] == []


async def read(server: ColdStoreServer) -> Any:
    return await read_table(URL, storage_options=server.storage_options)


async def test_the_requests_of_a_new_table_and_of_an_append(server: ColdStoreServer) -> None:
    rows = ticks(100, days=1)
    await write_table(
        URL, rows, timestamp="ts", options=WriteOptions(pages=True), storage_options=server.storage_options
    )
    new = "2024-01-01.0"
    assert [request for request in requests(server) if request.startswith("Put")] == [
        "PutObject _writing.0",
        f"PutObject {new}/data.parquet",
        f"PutObject {new}/_pages",
        f"PutObject {new}/_pm",
        "PutObject _meta.v",
        "PutObject _meta",
        "PutObject _cv",
        "PutObject _name",
        "PutObject _todo_",
        "PutObject _txn",
    ]
    await write_table(URL, ticks(50, seed=1, days=1), mode="append", storage_options=server.storage_options)
    assert_steps(
        requests(server),
        *(["GetObject _txn", "GetObject _meta"], ["GetObject _todo_"]),
        *(["ListObjectsV2"], ["PutObject _writing.65538"], ["ListObjectsV2"]),
        ["GetObject _catalogue", "GetObject _txn", "GetObject _meta", "ListObjectsV2"],
        ["GetObject 2024-01-01.0/_pm", "HeadObject 2024-01-01.0/data.parquet"],
        *(["GetObject 2024-01-01.0/data.parquet"], ["PutObject 2024-01-01.65538/data.parquet"]),
        *(["PutObject 2024-01-01.65538/_pm"], ["GetObject _txn", "GetObject _meta"]),
        *(["GetObject _writing.65538"], ["GetObject _txn"], ["PutObject _txn"], ["GetObject _writing.65538"]),
        *(["ListObjectsV2"], ["DeleteObjects"], ["GetObject _catalogue", "GetObject _metadata"]),
    )
    assert same_rows(await read(server), in_order([rows, ticks(50, seed=1, days=1)]))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
async def test_a_rival_that_commits_first(tmp_path: Path, mode: Any) -> None:
    table = tmp_path / "bucket" / "db" / "trades"
    await write_table(table, ticks(60), timestamp="ts")
    rivals: list[str] = []

    def let_the_rival_commit(operation: str, path: str) -> None:
        if operation == "PutObject" and path.endswith("/_txn") and not rivals:
            rivals.append(path)
            rival = threading.Thread(target=asyncio.run, args=(write_table(table, ticks(20, seed=2), mode="append"),))
            rival.start()
            rival.join()

    with ColdStoreServer(tmp_path, before_answer=let_the_rival_commit) as server:
        with pytest.raises(ObjectChangedError) as conflict:
            await write_table(URL, ticks(30, seed=1), mode=mode, storage_options=server.storage_options)
        assert (conflict.value.kind, len(rivals)) == ("CommitConflict", 1)
        assert same_rows(await read(server), in_order([ticks(60), ticks(20, seed=2)]))
    assert not list(table.glob("_writing.*"))
    versions = {path.parent.name.partition(".")[2] for path in table.glob("*/*")}
    assert len(versions) == 2  # that of the first write, and the rival's


FAILING = ["data.parquet", "_pm", "_txn", "_meta"]


@pytest.mark.parametrize("name", FAILING)
async def test_a_store_that_refuses_leaves_no_table(server: ColdStoreServer, tmp_path: Path, name: str) -> None:
    server.set_faults(FaultRule("forbidden", operation="PutObject", path=f"*/{name}"))
    with pytest.raises(AccessError):
        await write_table(URL, ticks(60), timestamp="ts", storage_options=server.storage_options)
    left = {path.name for path in (tmp_path / "bucket").rglob("*") if path.is_file()}
    assert left <= {"_meta", "_cv", "_name", "_todo_"}
    with pytest.raises(NotFoundError):
        await read(server)
    server.set_faults()
    await write_table(URL, ticks(60), timestamp="ts", storage_options=server.storage_options)
    assert same_rows(await read(server), in_order([ticks(60)]))


async def test_a_store_that_is_slow_down_now_and_then(server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("slow-down", operation="*", probability=0.1))
    for seed in range(3):
        await write_table(
            URL, ticks(90, seed=seed), timestamp="ts", mode="append", storage_options=server.storage_options
        )
    server.set_faults()
    assert same_rows(await read(server), in_order([ticks(90, seed=seed) for seed in range(3)]))


async def test_a_catalogue_that_is_there_is_renewed(server: ColdStoreServer) -> None:
    await write_table(URL, ticks(90), timestamp="ts", storage_options=server.storage_options)
    await pack_table(URL, storage_options=server.storage_options)
    written = await write_table(URL, ticks(30, seed=1), mode="append", storage_options=server.storage_options)
    assert written.catalogue is not None
    server.reset()
    assert same_rows(await read(server), in_order([ticks(90), ticks(30, seed=1)]))
    assert not [request for request in requests(server) if request.endswith("/_pm")]
