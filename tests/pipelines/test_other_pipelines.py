"""Verifying, compacting, publishing and converting lakes: the answers are those of the functions for one table."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import NotFoundError
from coldparquet.maintenance import verify_table
from coldparquet.pipelines import (
    CompactJob,
    ConvertJob,
    IndexJob,
    LocalEngine,
    PublishJob,
    VerifyJob,
    run,
    run_pipeline,
)
from coldparquet.pipelines.model import Job
from coldparquet.write import WriteOptions, write_partition
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.questdb_tables import assert_same_rows, expected_rows, plain
from tests.support.table_copies import contents_of, copy_table, expected_of, fates, make_lake
from tests.support.written_tables import trades

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


async def rows_of(url: Path | str, **options: object) -> pa.Table:
    async with cp.open_table(url, options=cp.ReadOptions(symbols="string"), **options) as table:  # type: ignore[arg-type]
        return await table.scan().to_arrow()


async def test_verify_without_looking(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, "interval_day")
    report = await run_pipeline(VerifyJob(dry_run=True), str(lake))
    assert report.actions["would verify"] == 4
    assert report.count("nothing to do") == 0


async def test_compaction_by_target_size(tmp_path: Path) -> None:
    table = tmp_path / "lake" / "trades"
    for number, day in enumerate(("1970-01-01", "1970-01-02")):
        await write_partition(
            table / day,
            trades(number * 86_400, 100),
            timestamp="ts",
            options=WriteOptions(row_group_rows=10 + 90 * number),
        )
    before = plain(await rows_of(table))
    contents = contents_of(table)
    planned = await run_pipeline(CompactJob(dry_run=True, row_group_rows=50), str(tmp_path / "lake"))
    assert fates(planned) == {"trades/1970-01-01": "would compact", "trades/1970-01-02": "kept"}
    assert contents_of(table) == contents

    done = await run_pipeline(CompactJob(row_group_rows=50, purge=True, purge_after_hours=0), str(tmp_path / "lake"))
    assert fates(done) == {"trades/1970-01-01": "compacted", "trades/1970-01-02": "kept", "trades": "purged"}
    assert sorted(path.name for path in table.iterdir()) == ["1970-01-01.1", "1970-01-02"]
    assert pq.read_metadata(table / "1970-01-01.1" / "data.parquet").num_row_groups == 2
    assert plain(await rows_of(table)).equals(before)
    assert (await run_pipeline(CompactJob(row_group_rows=50), str(tmp_path / "lake"))).count("done") == 0


async def test_a_purge_is_of_every_table_of_a_lake(tmp_path: Path) -> None:
    """Also of those in which nothing is to be compacted."""
    lake = tmp_path / "lake"
    for name in ("bids", "trades"):
        await write_partition(
            lake / name / "1970-01-01", trades(0, 100), timestamp="ts", options=WriteOptions(row_group_rows=10)
        )
    compacted = await run_pipeline(CompactJob(), str(lake))
    assert compacted.actions == {"compacted": 2}
    for dry_run in (True, False):
        purge = CompactJob(purge=True, purge_after_hours=0, dry_run=dry_run)
        report = await run_pipeline(purge, str(lake))
        assert report.actions == {"kept": 2, "would purge" if dry_run else "purged": 2}
        assert [len(list((lake / name).iterdir())) for name in ("bids", "trades")] == [2 if dry_run else 1] * 2


@pytest.mark.parametrize("processes", [1, 2])
async def test_verifying_a_lake_compares_columns_between_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """In processes, too, of which each sees some partitions only."""
    if processes == 2:
        monkeypatch.setattr(run, "SMALL_ITEMS_PER_WORKER", 1)
    days = tmp_path / "lake" / "trades"
    for number in range(4):
        rows = trades(number * 86_400, 10)
        rows = rows.append_column("old", pa.array([1] * 10)) if number < 2 else rows
        await write_partition(days / f"1970-01-0{number + 1}", rows, timestamp="ts")
    alone = await verify_table(days)
    assert [(finding.kind, finding.column) for finding in alone.findings] == [("ColumnLeftOut", "old")]
    report = await run_pipeline(VerifyJob(), str(tmp_path / "lake"), engine=LocalEngine(processes=processes))
    told = [finding for result in report.results if not result.partition for finding in result.details["findings"]]
    assert told == [asdict(finding) for finding in alone.findings]
    some = VerifyJob(partitions=("1970-01-01", "1970-01-04"))
    assert all(not result.details["findings"] for result in (await run_pipeline(some, str(days))).results)


async def test_publishing_a_database(tmp_path: Path) -> None:
    database = tmp_path / "db"
    copy_table("symbols", database)
    copy_table("interval_day", database)
    make_lake(tmp_path, "bloom")
    (tmp_path / "lake" / "db" / "bloom").rename(database / "bloom")
    (tmp_path / "store" / "bucket").mkdir(parents=True)
    with ColdStoreServer(tmp_path / "store") as server:

        async def publish(*, dry_run: bool) -> dict[str, str]:
            job = PublishJob(destination="s3://bucket/published", dry_run=dry_run)
            return fates(await run_pipeline(job, str(database), destination_options=server.storage_options))

        assert await publish(dry_run=True) == {
            "bloom": "skipped",
            "interval_day": "would publish",
            "symbols": "would publish",
        }
        assert not [request for request in server.requests if request.method == "PUT"]
        assert await publish(dry_run=False) == {"bloom": "skipped", "interval_day": "published", "symbols": "published"}
        found = await rows_of("s3://bucket/published/interval_day", storage_options=server.storage_options)
        assert_same_rows(found, expected_rows("interval_day"))
        assert await publish(dry_run=False) == {"bloom": "skipped", "interval_day": "unchanged", "symbols": "unchanged"}


async def test_one_table_that_cannot_be_published(tmp_path: Path) -> None:
    good, bad = (copy_table(name, tmp_path / "db") for name in ("interval_day", "symbols"))
    (bad / "_txn").write_bytes(b"damaged")
    report = await run_pipeline(PublishJob(destination=str(tmp_path / "published")), str(tmp_path / "db"))
    assert fates(report) == {good.name: "published", bad.name: "failed"}
    assert_same_rows(await rows_of(tmp_path / "published" / good.name), expected_rows(good.name))


@pytest.mark.slow
async def test_conversion_to_parquet_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldparquet.write.convert._PART_ROWS", 50)
    lake = make_lake(tmp_path, "interval_day", "interval_hour")
    plain_files = tmp_path / "plain"
    to_parquet = ConvertJob(destination=str(plain_files))
    report = await run_pipeline(to_parquet, str(lake / "db"))
    assert fates(report) == {"interval_day": "converted", "interval_hour": "converted"}
    for name in ("interval_day", "interval_hour"):
        assert_same_rows(pq.read_table(plain_files / name), expected_of(name))
        assert (plain_files / name / "_SUCCESS").exists()
    assert set(fates(await run_pipeline(to_parquet, str(lake / "db"))).values()) == {"kept"}

    (plain_files / "interval_day" / "_SUCCESS").unlink()  # as if a run had been killed
    (plain_files / "interval_day" / "part-99999.parquet").write_bytes(b"left over")
    again = fates(await run_pipeline(to_parquet, str(lake / "db")))
    assert again == {"interval_day": "converted", "interval_hour": "kept"}
    assert_same_rows(pq.read_table(plain_files / "interval_day"), expected_of("interval_day"))

    back = ConvertJob(
        destination=str(tmp_path / "back"),
        source_format="parquet",
        destination_format="coldparquet",
        timestamp="ts",
        symbols=("sym",),
    )
    assert set(fates(await run_pipeline(back, str(plain_files / "interval_day"))).values()) == {"converted"}
    assert_same_rows(await rows_of(tmp_path / "back"), expected_of("interval_day"))
    assert set(fates(await run_pipeline(back, str(plain_files / "interval_day"))).values()) == {"kept"}


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_lake_that_cannot_be_opened_changes_nothing_for_the_others(tmp_path: Path, *, dry_run: bool) -> None:
    good = make_lake(tmp_path, "interval_day") / "db" / "interval_day"
    absent = str(tmp_path / "absent" / "*")
    jobs: list[tuple[Job, str]] = [
        (IndexJob(dry_run=dry_run, pages=False, pack=False), "done"),
        (VerifyJob(dry_run=dry_run), "done"),
        (CompactJob(dry_run=dry_run), "nothing to do"),
        (PublishJob(destination=str(tmp_path / "published"), dry_run=dry_run), "nothing to do"),
        (ConvertJob(destination=str(tmp_path / "converted"), dry_run=dry_run), "done"),
    ]
    for job, outcome in jobs:
        report = await run_pipeline(job, [absent, str(good)])
        [failed] = (result for result in report.results if result.outcome == "failed")
        assert (failed.table, failed.action, failed.kind) == (absent, "not opened", "NotFound")
        others = [result for result in report.results if result is not failed]
        assert {result.table for result in others} == {str(good)}
        assert outcome in {result.outcome for result in others}
        with pytest.raises(NotFoundError) as caught:
            await run_pipeline(job, [absent, absent])
        assert caught.value.kind == "NotFound"
    # The place is the one that it has when the other lake is there.
    assert (tmp_path / "converted" / "interval_day" / "_SUCCESS").exists() is not dry_run
    assert not list((tmp_path / "converted").glob("*.parquet"))


async def test_formats_that_spark_alone_knows(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, "interval_day")
    job = ConvertJob(destination=str(tmp_path / "x"), destination_format="delta")
    report = await run_pipeline(job, str(lake))
    assert [(result.outcome, result.kind) for result in report.results] == [("failed", "NeedsSpark")]
    planned = await run_pipeline(ConvertJob(destination=str(tmp_path / "x"), dry_run=True), str(lake))
    assert planned.results[0].details == {"destination": str(tmp_path / "x" / "db/interval_day")}


def test_the_nightly_example(tmp_path: Path) -> None:
    for script in ("make_trades.py", "nightly_pipeline.py"):
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / script)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "index: {'kept': 3}"
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["index", "compact", "verify"]


async def test_a_conversion_removes_nothing_that_no_conversion_has_left(tmp_path: Path) -> None:
    table, occupied = copy_table("interval_day", tmp_path / "db"), tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "notes.txt").write_text("dear")
    for destination in (table, occupied, tmp_path / "db"):
        before = contents_of(destination)
        [result] = (await run_pipeline(ConvertJob(destination=str(destination)), str(table))).results
        assert (result.outcome, result.kind) == ("failed", "NotEmpty")
        assert "name an empty directory" in (result.reason or "")
        assert contents_of(destination) == before


@pytest.mark.slow
async def test_no_column_of_parquet_files_is_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for year in (2023, 2024):
        (source / f"year={year}").mkdir(parents=True)
        rows = pa.table({"ts": pa.array([year], pa.timestamp("us", "UTC")), "price": [0.5]})
        pq.write_table(rows, source / f"year={year}" / "part-0.parquet")

    def job(name: str) -> ConvertJob:
        return ConvertJob(
            destination=str(tmp_path / name),
            source_format="parquet",
            destination_format="coldparquet",
            timestamp="ts",
        )

    assert set(fates(await run_pipeline(job("first"), str(source))).values()) == {"converted"}
    assert (await rows_of(tmp_path / "first")).column("year").to_pylist() == [2023, 2024]
    pq.write_table(rows.append_column("side", [["buy"]]), source / "year=2024" / "part-1.parquet")
    [result] = (await run_pipeline(job("second"), str(source))).results
    assert (result.outcome, result.kind) == ("failed", "SchemaMismatch")
    assert not (tmp_path / "second" / "_txn").exists()
    (source / "year=2023" / "part-0.parquet").unlink()
    [result] = (await run_pipeline(job("first"), str(source / "year=2024" / "part-1.parquet"))).results
    assert (result.outcome, result.kind) == ("failed", "OtherTable")
