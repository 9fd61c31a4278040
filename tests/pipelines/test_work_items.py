"""Items, results and jobs are plain data, and say so when another version wrote them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coldparquet.catalog.discovery import discover
from coldparquet.errors import InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.pipelines import (
    CompactJob,
    ConvertJob,
    IndexJob,
    LocalEngine,
    MigrateJob,
    PackJob,
    PublishJob,
    TierJob,
    VerifyJob,
    run_pipeline,
)
from coldparquet.pipelines.lakes import location_as_data, location_from_data
from coldparquet.pipelines.model import (
    FORMAT_VERSION,
    JOBS,
    Access,
    Job,
    WorkItem,
    WorkResult,
    failure,
    job_as_dict,
    job_from_dict,
)
from coldparquet.storage.local import LocalStore
from tests.support.questdb_tables import GOLDEN
from tests.support.table_copies import copy_table

ITEM = WorkItem(lake="s3://bucket/db", table="trades", partition="2024-01-01.7", cost_bytes=9, work={"a": [1, None]})
RESULT = WorkResult(table="s3://bucket/db/trades", outcome="failed", action="failed", reason="öl", details={"n": 1})
EVERY_JOB: list[Job] = [
    IndexJob(pages=True, pack=False),
    VerifyJob(deep=True),
    MigrateJob(force=True),
    PackJob(bloom_limit_bytes=7),
    CompactJob(row_group_rows=7),
    PublishJob(destination="s3://elsewhere", storage_class_after=("30d=GLACIER_IR", "9d=STANDARD_IA")),
    TierJob(storage_class_after=("30d=GLACIER_IR",), restore_within_days=7),
    ConvertJob(destination="s3://elsewhere", symbols=("side",)),
]


def test_items_and_results_go_through_json() -> None:
    assert WorkItem.from_json(ITEM.to_json()) == ITEM
    assert WorkResult.from_json(RESULT.to_json()) == RESULT
    assert "\n" not in ITEM.to_json() + RESULT.to_json()


@pytest.mark.parametrize("read", [WorkItem.from_json, WorkResult.from_json])
def test_another_version_is_refused(read: Any) -> None:
    with pytest.raises(UnsupportedError, match="install the same version on the driver"):
        read(json.dumps({"version": FORMAT_VERSION + 1, "table": "t"}))


@pytest.mark.parametrize("job", EVERY_JOB, ids=lambda job: job.name)
def test_jobs_go_through_json(job: Job) -> None:
    assert job_from_dict(json.loads(json.dumps(job_as_dict(job)))) == job


def test_there_is_a_case_for_every_job() -> None:
    assert [job.name for job in EVERY_JOB] == list(JOBS)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({}, "UnknownJob"),
        ({"job": "paint"}, "UnknownJob"),
        ({"job": ["index"]}, "UnknownJob"),
        ({"job": "index", "colour": "red"}, "UnknownOption"),
        ({"job": "publish"}, "InvalidInput"),
        ({"job": "publish", "destination": "/x", "dropped": "sometimes"}, "InvalidInput"),
        ({"job": "tier"}, "InvalidInput"),
        ({"job": "tier", "storage_class_after": ["30d=DEEP_ARCHIVE"]}, "UnknownStorageClass"),
        ({"job": "tier", "restore_within_days": 3, "restore_tier": "Fast"}, "InvalidInput"),
        ({"job": "compact", "row_group_rows": 0}, "InvalidInput"),
        ({"job": "compact", "purge_after_hours": -1}, "InvalidInput"),
        ({"job": "convert", "destination": "/x", "source_format": "csv"}, "InvalidInput"),
        (
            {"job": "convert", "destination": "/x", "source_format": "csv", "destination_format": "coldparquet"},
            "InvalidInput",
        ),
    ],
)
def test_jobs_that_cannot_be_meant(data: dict[str, Any], kind: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        job_from_dict(data)
    assert caught.value.kind == kind


@pytest.mark.parametrize("table", ["interval_week", "nanos_day", "none", "types_all"])
async def test_locations_go_through_json(table: str) -> None:
    path = str(GOLDEN / table / "table")
    found = await discover(LocalStore(), path)
    for location in found.locations:
        data = json.loads(json.dumps(location_as_data(location, path)))
        assert location_from_data(data, path) == location


async def test_one_partition_is_its_own_table(tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    partition = next(str(path.parent) for path in table.glob("*/data.parquet"))
    (location,) = (await discover(LocalStore(), partition)).locations
    assert location_from_data(location_as_data(location, partition), partition) == location


def test_a_failure_says_what_its_error_says() -> None:
    result = failure(ITEM, NotFoundError("it is gone", kind="PartitionMissing", path="bucket/db/data.parquet"))
    assert (result.outcome, result.kind, result.reason) == ("failed", "PartitionMissing", "data.parquet: it is gone")
    assert failure(ITEM, KeyError("bug")).kind == "KeyError"


def test_settings_are_not_shown() -> None:
    assert "hidden" not in repr(Access(storage_options={"secret": "hidden"}, destination_options={"secret": "hidden"}))


async def test_a_run_without_a_lake() -> None:
    with pytest.raises(InvalidInputError, match="no lake"):
        await run_pipeline(IndexJob(pages=False, pack=False), [])


def test_less_than_one_process() -> None:
    with pytest.raises(InvalidInputError, match="at least 1"):
        LocalEngine(processes=0)


def test_a_worker_imports_the_job_that_it_runs_and_what_it_needs() -> None:
    modules = {module for module, _ in JOBS.values()}
    script = (
        "import sys; from coldparquet.pipelines.model import job_from_dict; job_from_dict({'job': 'index'});"
        f"print(*(name for name in {sorted(modules)!r} if name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    # Indexing renews the catalogue, which packing makes.
    assert found.stdout.split() == ["coldparquet.maintenance.index", "coldparquet.maintenance.pack"]
