"""Moving partitions between storage classes by age, and restoring young ones: what is asked of the store, and what it costs."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.pipelines import IndexJob, PipelineReport, TierJob, VerifyJob, run_pipeline
from coldparquet.prices import PriceTable
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.questdb_tables import assert_same_rows
from tests.support.table_copies import damage, expected_of, fates, make_lake

URL = "s3://bucket/lake/db/interval_year"
DAY_S = 86_400


async def tier(server: ColdStoreServer, job: TierJob) -> PipelineReport:
    return await run_pipeline(job, "s3://bucket/lake", storage_options=server.storage_options)


def days_since(moment_s: float) -> int:
    return int((time.time() - moment_s) / DAY_S)


def years_of(report: PipelineReport) -> dict[str, str]:
    """The action by year."""
    return {name.partition("/")[2][:4]: action for name, action in fates(report).items()}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make_lake(tmp_path / "bucket", "interval_year")


async def test_old_partitions_move_and_read_as_before(tmp_path: Path, lake: Path) -> None:
    years = sorted(path.name[:4] for path in (lake / "db" / "interval_year").iterdir())
    ended_s = [time.mktime((int(year) + 1, 1, 1, 0, 0, 0, 0, 0, 0)) for year in years]
    # The older half of the years has reached the age of the one in the middle.
    middle = len(years) // 2 - 1
    rule = f"{days_since(ended_s[middle]) - 2}d=GLACIER_IR"
    job = TierJob(storage_class_after=(rule,), least_bytes=0)
    with ColdStoreServer(tmp_path) as server:
        options = server.storage_options
        await run_pipeline(IndexJob(pages=True, pack=True), "s3://bucket/lake", storage_options=options)
        server.reset()

        planned = await tier(server, TierJob(storage_class_after=(rule,), least_bytes=0, dry_run=True))
        assert years_of(planned) == {year: "would move" if year <= years[middle] else "kept" for year in years}
        assert {request.method for request in server.requests} == {"GET"}
        moves = [result for result in planned.results if result.action == "would move"]
        assert planned.dollars == pytest.approx(
            len(moves) * PriceTable.default().of("GLACIER_IR").million_puts.dollars / 1e6
        )
        assert all(result.details["dollars_per_month"] < 0 for result in moves)

        server.reset()
        moved = await tier(server, job)
        assert years_of(moved) == {year: "moved" if year <= years[middle] else "kept" for year in years} | {
            "": "catalogue written"
        }
        assert moved.dollars == planned.dollars
        operations = Counter(request.operation for request in server.requests if request.path.endswith("data.parquet"))
        assert operations["CopyObject"] == len(moves)
        assert "GetObject" not in operations  # no byte of the data passes through here
        assert not any(request.path.endswith("/_metadata") for request in server.requests)  # the rows are the same

        async with cp.open_table(URL, storage_options=options) as table:
            assert_same_rows(await table.scan().to_arrow(), expected_of("interval_year"))
        verified = await run_pipeline(VerifyJob(), "s3://bucket/lake", storage_options=options)
        assert [result.reason for result in verified.results if result.outcome == "failed"] == []

        server.reset()
        again = await tier(server, job)
        assert set(years_of(again).values()) == {"kept"}
        assert {request.method for request in server.requests} == {"GET"}


@pytest.mark.usefixtures("lake")
async def test_pages_name_the_version_that_was_moved(tmp_path: Path) -> None:
    job = TierJob(storage_class_after=("0d=STANDARD_IA",), least_bytes=0)
    with ColdStoreServer(tmp_path) as server:
        options = server.storage_options
        await run_pipeline(IndexJob(pages=True, pack=False), "s3://bucket/lake", storage_options=options)
        moved = await tier(server, job)
        assert all(result.details["has_renewed_pages"] for result in moved.results if result.action == "moved")
        # A store dates a moved object anew, to the second, so that the sidecar may seem older than its file: it is renewed once.
        again = await run_pipeline(IndexJob(pages=True, pack=False), "s3://bucket/lake", storage_options=options)
        reasons = {result.reason for result in again.results if result.outcome != "nothing to do"}
        assert reasons <= {"stale: data.parquet was written after it"}
        server.reset()
        # Every `_pages` describes its file: none is written anew.
        at_last = await run_pipeline(IndexJob(pages=True, pack=False), "s3://bucket/lake", storage_options=options)
        assert {result.outcome for result in at_last.results} == {"nothing to do"}
        assert not [request.path for request in server.requests if request.method == "PUT"]


async def test_files_that_stay_where_they_are(tmp_path: Path, lake: Path) -> None:
    first, second, *_ = sorted((lake / "db" / "interval_year").iterdir())
    classes = {f"bucket/lake/db/interval_year/{first.name}/*": "GLACIER"}
    damage(second)  # tiering does not look into files
    with ColdStoreServer(tmp_path, ColdStoreOptions(storage_classes=classes)) as server:
        report = await tier(server, TierJob(storage_class_after=("0d=GLACIER_IR",)))
        reasons = {result.partition: result.reason for result in report.results}
        assert not [request for request in server.requests if request.method == "PUT"]
    assert "without restoring it" in (reasons[first.name] or "")
    assert "bytes are not worth it" in (reasons[second.name] or "")
    assert {result.action for result in report.results} == {"skipped"}


async def test_young_partitions_are_restored(tmp_path: Path, lake: Path) -> None:
    classes = {"bucket/lake/*/data.parquet": "GLACIER"}
    names = sorted(path.name for path in (lake / "db" / "interval_year").iterdir())
    with ColdStoreServer(tmp_path, ColdStoreOptions(storage_classes=classes)) as server:
        everything = TierJob(restore_within_days=100_000, restore_tier="Bulk", restore_days=3, dry_run=True)
        planned = await tier(server, everything)
        assert planned.actions == {"would restore": len(names)}
        assert (planned.dollars or 0) > 0
        assert not [request for request in server.requests if request.operation == "RestoreObject"]

        asked = await tier(server, TierJob(restore_within_days=100_000, restore_tier="Bulk", restore_days=3))
        assert asked.actions == {"restore requested": len(names)}
        assert asked.dollars == pytest.approx(planned.dollars)
        assert {request.restore_tier for request in server.requests if request.restore_tier} == {"Bulk"}
        again = await tier(server, TierJob(restore_within_days=100_000))
        assert {(result.action, result.reason) for result in again.results} == {("kept", "a restore is under way")}
        assert (await tier(server, TierJob(restore_within_days=0))).actions == {"kept": len(names)}


async def test_a_store_without_classes(lake: Path) -> None:
    report = await run_pipeline(TierJob(storage_class_after=("0d=GLACIER_IR",)), str(lake))
    assert [(result.outcome, result.kind) for result in report.results] == [("failed", "NoStorageClasses")]
