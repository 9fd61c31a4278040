"""From the disk of a running QuestDB to a real S3 server: what is published answers as the database does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.publish import PublishOptions, PublishReport, publish_table
from tests.support.live_questdb import DAILY, SHAPES, LiveTable
from tests.support.questdb_tables import assert_same_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.live_servers import LiveS3

pytestmark = pytest.mark.integration

ACTIVE = "2024-03-04"
QUESTIONS = [
    "num > 0 and ts < '2024-03-04'",
    "sym = 'alpha' and price > 250.0 and ts < '2024-03-04'",
    "ts >= '2024-03-01T18:00:00Z' and ts < '2024-03-03T01:00:00Z' and text is not null",
    "flag = true and id is null and ts < '2024-03-04'",
]


@pytest.fixture
def table(live_table: LiveTable) -> LiveTable:
    """Three partitions in Parquet, and a native one."""
    live_table.run(DAILY.create(), DAILY.insert("2024-03-01", 1000, seed=23))
    live_table.convert("2024-03-01", "2024-03-02", "2024-03-03")
    return live_table


@pytest.fixture
def url(table: LiveTable, minio: LiveS3) -> str:
    return f"s3://{minio.bucket}/db/{table.name}"


async def publish(table: LiveTable, url: str, minio: LiveS3, options: PublishOptions | None = None) -> PublishReport:
    return await publish_table(table.directory, url, storage_options=minio.storage_options, options=options)


async def test_published_partitions_answer_as_the_database_does(table: LiveTable, url: str, minio: LiveS3) -> None:
    report = await publish(table, url, minio)
    assert report.is_committed
    assert [report.count(action) for action in ("published", "converted", "left behind")] == [3, 1, 0]
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        assert opened.txn == report.txn
        assert_same_rows(await opened.scan().to_arrow(), table.expected())
        for where in QUESTIONS:
            expected = table.expected(where)
            assert_same_rows(await opened.scan(where=where).to_arrow(), expected)
            assert await opened.scan(where=where).count() == expected.num_rows
        assert {request.status for request in opened.request_log} <= {"ok", "NotFound"}


async def test_each_partition_has_a_sidecar_in_the_bucket(table: LiveTable, url: str, minio: LiveS3) -> None:
    await publish(table, url, minio)
    names = [key.removeprefix(f"db/{table.name}/") for key in minio.keys(f"db/{table.name}/")]
    assert sum(name.endswith("/_pm") for name in names) == sum(name.endswith("/data.parquet") for name in names) == 4
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        await opened.scan(["num"], "num > 0").to_arrow()
        assert {request.reason for request in opened.request_log}.isdisjoint({"Parquet footer"})


async def test_only_what_changed_is_published_again(table: LiveTable, url: str, minio: LiveS3) -> None:
    await publish(table, url, minio)
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        before = table.expected()
        table.run(DAILY.insert("2024-03-02T21:00:00.000001Z", 30, seed=29), DAILY.insert(ACTIVE, 700, seed=31))
        table.convert(ACTIVE, "2024-03-05")
        report = await publish(table, url, minio)
        assert [report.count(action) for action in ("unchanged", "published", "converted")] == [2, 3, 1]

        assert_same_rows(await opened.scan().to_arrow(), before)  # the objects that it knows are still there
        await opened.refresh()
        assert_same_rows(await opened.scan().to_arrow(), table.expected())
    again = await publish(table, url, minio)
    assert not again.is_committed
    assert again.count("unchanged") == 6


async def test_a_dry_run_writes_nothing(table: LiveTable, url: str, minio: LiveS3) -> None:
    report = await publish(table, url, minio, PublishOptions(dry_run=True))
    assert [report.count(action) for action in ("would publish", "would convert")] == [3, 1]
    assert report.cost.sent_bytes > 0
    assert minio.keys(f"db/{table.name}/") == []


async def test_readers_beside_a_publisher_see_one_published_state(table: LiveTable, url: str, minio: LiveS3) -> None:
    await publish(table, url, minio)
    states = {table.server.count(table.twin)}
    publishing = True

    async def read() -> int:
        reads = 0
        while publishing:
            async with cp.open_table(url, storage_options=minio.storage_options) as opened:
                assert (await opened.scan(["big", "ts"]).to_arrow()).num_rows in states
            reads += 1
        return reads

    reader = asyncio.create_task(read())
    for round_number in range(4):
        late = DAILY.insert(f"2024-03-02T1{round_number}:00:00.00000{round_number}Z", 10, seed=round_number + 41)
        await asyncio.to_thread(table.run, late)
        states.add(table.server.count(table.twin))
        await publish(table, url, minio)
    publishing = False
    assert await reader > 0


async def test_of_two_publishers_none_mixes_its_version_with_the_other(
    table: LiveTable, url: str, minio: LiveS3
) -> None:
    outcomes = await asyncio.gather(*(publish(table, url, minio) for _ in range(3)), return_exceptions=True)
    assert not [outcome for outcome in outcomes if not isinstance(outcome, cp.ColdParquetError | PublishReport)]
    await publish(table, url, minio)
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        assert_same_rows(await opened.scan().to_arrow(), table.expected())


async def test_columns_that_came_and_went(table: LiveTable, url: str, minio: LiveS3) -> None:
    await publish(table, url, minio)
    table.run(
        "ALTER TABLE {t} ADD COLUMN extra INT",
        "ALTER TABLE {t} DROP COLUMN label",
        "ALTER TABLE {t} RENAME COLUMN price TO amount",
        DAILY.insert("2024-03-05", 300, seed=37, values="x::int", columns="extra"),
    )
    table.convert("2024-03-05")
    report = await publish(table, url, minio)
    # Renaming gives the files of a native partition another version, as an UPDATE does.
    assert [report.count(action) for action in ("published", "unchanged", "converted")] == [1, 3, 1]
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        assert_same_rows(await opened.scan().to_arrow(), table.expected())


async def test_a_table_that_was_emptied_and_filled_again(live_table: LiveTable, tmp_path: Path) -> None:
    """As many rows as before, in directories of the same names perhaps, and all of them others."""
    shape, target = SHAPES["day_without_wal"], tmp_path / "published"
    live_table.run(shape.create(), shape.insert("2024-03-01", 700, seed=17))
    await publish_table(live_table.directory, target)
    live_table.run("TRUNCATE TABLE {t}", shape.insert("2024-03-01", 700, seed=18))
    await publish_table(live_table.directory, target)
    async with cp.open_table(target) as opened:
        assert_same_rows(await opened.scan().to_arrow(), live_table.expected())


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
async def test_native_partitions_whatever_happens_to_them(live_table: LiveTable, tmp_path: Path, name: str) -> None:
    """What a QuestDB does to native partitions: each time the copy is the table, and nothing is converted needlessly."""
    shape, target = SHAPES[name], tmp_path / "published"
    live_table.run(shape.create(), shape.insert("2024-03-01T00:00:00.000001Z", 1100, seed=17))
    for statements in (
        (),
        (shape.insert("2024-03-01T00:00:00.000002Z", 40, seed=19),),  # late rows, which split a partition or rewrite it
        ("UPDATE {t} SET num = num + 1, sym = 'gamma' WHERE small > 0",),
        ("ALTER TABLE {t} ADD COLUMN extra SYMBOL", "UPDATE {t} SET extra = 'x' WHERE flag = true"),
        ("ALTER TABLE {t} DROP COLUMN label", "ALTER TABLE {t} RENAME COLUMN price TO amount"),
        ("ALTER TABLE {t} ALTER COLUMN num TYPE LONG", "ALTER TABLE {t} ALTER COLUMN sym TYPE VARCHAR"),
        ("INSERT INTO {t} SELECT * FROM {t} LIMIT -1",),
    ):
        live_table.run(*statements)
        await publish_table(live_table.directory, target)
        async with cp.open_table(target) as opened:
            assert {partition.format for partition in opened.partitions} == {"parquet"}
            assert_same_rows(await opened.scan().to_arrow(), live_table.expected())
        again = await publish_table(live_table.directory, target)
        assert (again.is_committed, again.count("unchanged")) == (False, len(again.partitions)), statements
