"""Worker processes: the same results as without them, and none of them takes the others' work along when it dies."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from coldparquet.errors import StorageError
from coldparquet.options import StoreOptions
from coldparquet.pipelines import CompactJob, IndexJob, LocalEngine, VerifyJob, run, run_pipeline
from coldparquet.pipelines.model import PipelineReport
from coldparquet.write import WriteOptions, write_partition
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer, FaultRule
from tests.support.table_copies import fates, make_lake, partition_count
from tests.support.written_tables import trades

DAYS = ("1970-01-01", "1970-01-02", "1970-01-03")
POISON = DAYS[1]


def worker_processes() -> list[int]:
    """Return the ids of this process's children that are workers."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"coldparquet.pipelines.run" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


async def small_row_groups(root: Path) -> Path:
    """Make a table of three days that is worth compacting."""
    table = root / "bucket" / "trades"
    for number, day in enumerate(DAYS):
        rows = trades(number * 86_400, 100)
        await write_partition(table / day, rows, timestamp="ts", options=WriteOptions(row_group_rows=10))
    return table


async def compact(server: ColdStoreServer, *, processes: int = 1) -> PipelineReport:
    return await run_pipeline(
        CompactJob(),
        "s3://bucket/trades",
        engine=LocalEngine(processes=processes),
        storage_options=server.storage_options,
    )


async def test_processes_are_as_patient_as_they_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_lake(tmp_path / "bucket", "interval_day")
    monkeypatch.setattr(run, "SMALL_ITEMS_PER_WORKER", 2)
    busy = ColdStoreOptions(faults=(FaultRule("slow-down", operation="PutObject"),))
    with ColdStoreServer(tmp_path, busy) as server:
        report = await run_pipeline(
            IndexJob(pages=False, pack=False),
            "s3://bucket/lake",
            engine=LocalEngine(processes=2),
            storage_options=server.storage_options,
            store_options=StoreOptions(max_attempts=1),
        )
        attempts = Counter(request.path for request in server.requests if request.operation == "PutObject")
    assert report.count("failed") == partition_count("interval_day")
    assert set(attempts.values()) == {1}
    assert not worker_processes()


@pytest.mark.slow
async def test_compaction_by_two_processes_at_once(tmp_path: Path) -> None:
    table = await small_row_groups(tmp_path)
    with ColdStoreServer(tmp_path) as server:
        report = await compact(server, processes=2)
        assert fates(report) == {f"trades/{day}": "compacted" for day in DAYS}
        assert {path.name for path in table.iterdir()} == {*DAYS, *(f"{day}.1" for day in DAYS)}
        assert (await compact(server)).count("done") == 0
        verified = await run_pipeline(
            VerifyJob(deep=True), "s3://bucket/trades", storage_options=server.storage_options
        )
        assert (verified.count("failed"), verified.actions) == (0, {"sound": 3, "advice": 1})


@pytest.mark.slow
async def test_a_process_that_dies_once_costs_nothing(tmp_path: Path) -> None:
    await small_row_groups(tmp_path)
    killed: list[int] = []

    def kill_once(_operation: str, path: str) -> None:
        if POISON in path and not killed:
            killed.extend(worker_processes())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    with ColdStoreServer(tmp_path, before_answer=kill_once) as server:
        report = await compact(server)
    assert len(killed) == 1
    assert fates(report) == {f"trades/{day}": "compacted" for day in DAYS}


@pytest.mark.slow
async def test_an_item_that_kills_its_process_is_the_only_one_to_fail(tmp_path: Path) -> None:
    await small_row_groups(tmp_path)
    killed: list[int] = []

    def kill_always(_operation: str, path: str) -> None:
        if POISON in path:
            for process in worker_processes():
                killed.append(process)
                os.kill(process, signal.SIGKILL)

    with ColdStoreServer(tmp_path, before_answer=kill_always) as server:
        report = await compact(server)
    assert len(set(killed)) == 2
    assert fates(report) == {f"trades/{day}": "failed" if day == POISON else "compacted" for day in DAYS}
    (failed,) = (result for result in report.results if result.outcome == "failed")
    assert failed.kind == "WorkerDied"
    assert "killed by SIGKILL" in (failed.reason or "")

    with ColdStoreServer(tmp_path) as server:
        again = await compact(server)
    assert fates(again) == {
        f"trades/{day}": "compacted" if day == POISON else "kept" for day in (DAYS[0] + ".1", POISON, DAYS[2] + ".1")
    }


async def test_workers_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await small_row_groups(tmp_path)
    (tmp_path / "python").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "python").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(StorageError) as caught:
        await run_pipeline(CompactJob(), str(tmp_path / "bucket" / "trades"))
    assert caught.value.kind == "WorkerNotStarted"


async def test_secrets_reach_workers_by_a_pipe(tmp_path: Path) -> None:
    await small_row_groups(tmp_path)
    seen: list[bytes] = []

    def look(_operation: str, _path: str) -> None:
        for process in worker_processes():
            with suppress(OSError):
                seen.extend((Path("/proc") / str(process) / name).read_bytes() for name in ("cmdline", "environ"))

    with ColdStoreServer(tmp_path, before_answer=look) as server:
        options = {**server.storage_options, "secret": "planted-secret"}
        report = await run_pipeline(CompactJob(), "s3://bucket/trades", storage_options=options)
    assert report.count("done") == len(DAYS)
    assert seen
    assert b"planted-secret" not in b"".join(seen)
    assert "planted-secret" not in str(report.as_dict())
