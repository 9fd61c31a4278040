"""Indexing lakes: as `index_table` does it, table by table, and no request more than that."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import PackJob
from coldparquet.options import StoreOptions
from coldparquet.pipelines import IndexJob, LocalEngine, MigrateJob, VerifyJob, run, run_pipeline
from coldparquet.pipelines.model import WorkResult
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.table_copies import copy_table, damage, fates, make_lake, partition_count

TABLES = ("interval_day", "interval_hour", "bloom")


def sidecars(directory: Path) -> dict[str, bytes]:
    """Every sidecar and ``_pages`` below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for name in ("_pm", "_pages")
        for path in directory.rglob(name)
    }


@pytest.mark.parametrize("pages", [False, True])
async def test_every_table_is_indexed_as_index_table_does_it(tmp_path: Path, *, pages: bool) -> None:
    lake = make_lake(tmp_path, *TABLES)
    expected = make_lake(tmp_path / "one by one", *TABLES)
    for name in TABLES:
        await index_table(expected / "db" / name, pages=pages, pack=False)
    seen: list[WorkResult] = []
    report = await run_pipeline(
        IndexJob(pages=pages, pack=False), str(lake), on_progress=lambda result, _total: seen.append(result)
    )
    assert sidecars(lake) == sidecars(expected)
    assert report.actions == {"written": partition_count(*TABLES)}
    assert Counter(result.partition for result in seen) == Counter(result.partition for result in report.results)
    assert [result.outcome for result in (await run_pipeline(VerifyJob(), str(lake))).results].count("failed") == 0


async def test_a_second_run_asks_for_listings_alone(tmp_path: Path) -> None:
    make_lake(tmp_path / "bucket", *TABLES[:2])
    with ColdStoreServer(tmp_path) as server:
        first = await run_pipeline(
            IndexJob(pages=False, pack=False), "s3://bucket/lake", storage_options=server.storage_options
        )
        count = partition_count(*TABLES[:2])
        assert first.actions == {"written": count}
        operations = Counter(
            request.operation for request in server.requests if request.path.endswith(("_pm", ".parquet"))
        )
        assert operations == {"GetObject": count, "PutObject": count}  # the footer, and the sidecar
        assert {request.operation for request in server.requests if request.path.endswith("_pm")} == {"PutObject"}
        server.reset()
        second = await run_pipeline(
            IndexJob(pages=False, pack=False), "s3://bucket/lake", storage_options=server.storage_options
        )
        assert second.actions == {"kept": count}
        assert not [request.path for request in server.requests if request.path.endswith(("_pm", ".parquet"))]


async def test_only_what_is_new_is_indexed(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "bucket", "interval_day")
    (late,) = sorted((lake / "db" / "interval_day").iterdir())[-1:]
    shutil.move(late, tmp_path / late.name)
    with ColdStoreServer(tmp_path) as server:
        await run_pipeline(IndexJob(pages=True, pack=False), "s3://bucket/lake", storage_options=server.storage_options)
        shutil.move(tmp_path / late.name, late)
        server.reset()
        again = await run_pipeline(
            IndexJob(pages=True, pack=False), "s3://bucket/lake/*/int*", storage_options=server.storage_options
        )
        touched = {request.path.split("/")[-2] for request in server.requests if request.path.endswith("data.parquet")}
    assert touched == {late.name}
    assert again.actions == {"kept": partition_count("interval_day") - 1, "written": 1}


async def test_a_bad_partition_and_a_bad_table_stop_nobody(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, *TABLES)
    bad_partition = sorted((lake / "db" / "interval_day").iterdir())[1]
    damage(bad_partition)
    bad_table = copy_table("symbols", lake / "db")
    (bad_table / "_txn").write_bytes(b"no transaction")
    report = await run_pipeline(IndexJob(pages=False, pack=False), str(lake))
    failed = [result for result in report.results if result.outcome == "failed"]
    assert [(result.table.rpartition("/")[2], result.partition) for result in failed] == [
        ("interval_day", bad_partition.name),
        ("symbols", ""),
    ]
    assert failed[1].kind == "Truncated"
    assert all(result.reason for result in failed)
    assert report.count("done") == partition_count(*TABLES) - 1

    copied = make_lake(tmp_path / "whole", "interval_day") / "db" / "interval_day"
    shutil.copyfile(copied / bad_partition.name / "data.parquet", bad_partition / "data.parquet")
    mended = fates(await run_pipeline(IndexJob(pages=False, pack=False), str(lake / "db" / "interval_day")))
    assert mended.pop(f"interval_day/{bad_partition.name}") == "written"
    assert set(mended.values()) == {"kept"}


@pytest.mark.parametrize("place", ["disk", "s3"])
async def test_a_nightly_run_renews_stale_sidecars_and_fails_where_a_file_is_gone(tmp_path: Path, place: str) -> None:
    lake = make_lake(tmp_path / "bucket", "interval_day")
    await run_pipeline(IndexJob(pages=False, pack=False), str(lake))
    stale, orphan, source, *_ = sorted((lake / "db" / "interval_day").iterdir())
    shutil.copyfile(source / "data.parquet", stale / "data.parquet")
    os.utime(stale / "_pm", (1, 1))
    (orphan / "data.parquet").unlink()
    with ColdStoreServer(tmp_path) as server:
        url = str(lake) if place == "disk" else "s3://bucket/lake"
        storage_options = None if place == "disk" else server.storage_options
        for action in ("written", "kept"):
            found = fates(await run_pipeline(IndexJob(pages=False, pack=False), url, storage_options=storage_options))
            assert found.pop(f"interval_day/{stale.name}") == action
            assert found.pop(f"interval_day/{orphan.name}") == "failed"
            assert set(found.values()) == {"kept"}
    assert (stale / "_pm").read_bytes() == (source / "_pm").read_bytes()


@pytest.mark.parametrize("processes", [1, 2])
async def test_all_requests_are_told_and_what_they_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setattr(run, "SMALL_ITEMS_PER_WORKER", 2)
    make_lake(tmp_path / "bucket", *TABLES[:2])
    with ColdStoreServer(tmp_path) as server:
        for job in (IndexJob(pages=True, pack=True), VerifyJob(), PackJob()):
            server.reset()
            report = await run_pipeline(
                job,
                "s3://bucket/lake",
                storage_options=server.storage_options,
                store_options=StoreOptions(hedging=False),  # a second request that is cancelled may never be served
                engine=LocalEngine(processes=processes),
            )
            assert report.spent.request_count == len(server.requests)
            assert report.spent.dollars == pytest.approx(server.invoice().dollars)
            assert report.as_dict()["spent"]["request_count"] == report.spent.request_count


async def test_catalogues_are_made_and_renewed(tmp_path: Path) -> None:
    table = make_lake(tmp_path / "bucket", "interval_day") / "db" / "interval_day"
    with ColdStoreServer(tmp_path) as server:
        options = server.storage_options
        packed = await run_pipeline(IndexJob(pack=True, pages=False), "s3://bucket/lake", storage_options=options)
        assert packed.actions == {"written": partition_count("interval_day"), "catalogue written": 1}
        before = (table / "_catalogue").stat().st_mtime_ns
        next(iter(sorted(table.glob("*/_pm")))).unlink()
        again = await run_pipeline(IndexJob(pages=False, pack=False), "s3://bucket/lake", storage_options=options)
        assert again.actions == {"kept": partition_count("interval_day") - 1, "written": 1, "catalogue written": 1}
        assert (table / "_catalogue").stat().st_mtime_ns > before
        assert (await run_pipeline(VerifyJob(), "s3://bucket/lake", storage_options=options)).count("failed") == 0


async def test_a_lake_in_which_one_table_has_no_transaction_is_migrated(tmp_path: Path) -> None:
    copy_table("interval_day", tmp_path / "lake")
    without = make_lake(tmp_path, "bloom") / "db" / "bloom"
    report = await run_pipeline(MigrateJob(), str(tmp_path / "lake"))
    assert sidecars(without) == {}
    assert report.partition_actions == {"written": 4, "skipped": 1}
    assert any("nobody knows which bytes of the partitions count" in note for note in report.notes)


async def test_the_report_as_arrow_and_as_json(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, "interval_day")
    report = await run_pipeline(IndexJob(pages=False, pack=False), str(lake))
    rows = report.to_arrow()
    assert rows.column("partition").to_pylist() == [result.partition for result in report.results]
    assert set(rows.column("action").to_pylist()) == {"written"}
    assert rows.num_rows == len(report.as_dict()["results"]) == partition_count("interval_day")
    assert report.as_dict()["outcomes"] == {"done": rows.num_rows}
