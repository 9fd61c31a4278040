"""A real QuestDB reads what we wrote, opens and changes our tables; what it wrote is published to a real S3 and read in few requests."""

from __future__ import annotations

import asyncio
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import coldparquet as cp
from coldparquet.format.native import parse_symbol_offsets, parse_symbols, symbol_offsets_range
from coldparquet.format.txn import parse_txn
from coldparquet.publish import PublishOptions, PublishReport, publish_table
from coldparquet.records import replace
from coldparquet.write import write_table
from coldparquet.write.options import Codec, WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_bench.measurement import OURS, run
from tests.benchmarks import questdb_day
from tests.support.live_questdb import DAILY, SHAPES, LiveQuestDB, LiveTable
from tests.support.live_servers import LiveS3, live_questdb
from tests.support.questdb_tables import assert_same_rows
from tests.support.table_copies import change_record
from tests.support.written_tables import DAY_US, START_US, in_order, read_table, same_rows, ticks

# --- What we write and publish is read by a real QuestDB --------------------------------------------------------------


pytestmark = pytest.mark.integration

SHAPE = SHAPES["day_without_wal"]
"""A server finds tables without write-ahead log by their directories when it starts."""


ACTIVE = "2024-03-04"


@pytest.fixture
def table(live_table: LiveTable) -> LiveTable:
    live_table.run(SHAPE.create(), SHAPE.insert("2024-03-01", 1000, seed=43))
    live_table.convert("2024-03-01", "2024-03-02", "2024-03-03")
    return live_table


@pytest.mark.parametrize("codec", ["zstd", "lz4_raw", "snappy", "gzip", "brotli", "none"])
async def test_the_function_read_parquet_reads_our_files(
    live_table: LiveTable, questdb: LiveQuestDB, codec: Codec
) -> None:
    live_table.run(DAILY.create(), DAILY.insert("2024-03-01", 250, seed=47))
    async with cp.open_table(live_table.directory) as opened:
        rows = await opened.scan().to_arrow()
    options = WriteOptions(codec=codec, row_group_rows=100, page_rows=30)
    await write_partition(questdb.root / "import" / live_table.name, rows, timestamp="ts", options=options)
    assert_same_rows(questdb.rows_of_file(f"{live_table.name}/data.parquet"), live_table.expected())


@pytest.mark.slow
async def test_a_restored_table_goes_on(table: LiveTable, minio: LiveS3, tmp_path: Path) -> None:
    prefix = f"restore/{table.name}/"
    await publish_table(table.directory, f"s3://{minio.bucket}/{prefix}", storage_options=minio.storage_options)
    restored = tmp_path / "db" / table.name
    minio.download(prefix, restored)
    (restored / "_todo_").write_bytes(bytes(40))
    with live_questdb(tmp_path) as server:
        assert_same_rows(server.rows(table.name), table.expected())  # the native partition was converted for the copy
        for start, seed in (
            ("2024-03-02T20:00:00.000001Z", 53),
            ("2024-03-04T20:00:00.000001Z", 61),
            ("2024-03-07", 67),
        ):
            more = SHAPE.insert(start, 10, seed=seed)
            if start.startswith(
                ACTIVE
            ):  # without write-ahead log, QuestDB adds rows to a native active partition alone
                server.run(f"ALTER TABLE '{table.name}' CONVERT PARTITION TO NATIVE LIST '{ACTIVE}'")
            server.run(more.replace("{t}", table.name))
            table.run(more)
            assert_same_rows(server.rows(table.name), table.expected())


@pytest.mark.slow
async def test_a_partition_that_we_wrote_is_read_and_updated_by_the_database(table: LiveTable, tmp_path: Path) -> None:
    ours = tmp_path / "db" / table.name
    shutil.copytree(table.directory, ours)
    await _replace_partition(ours, position=1)
    with live_questdb(tmp_path) as server:
        assert_same_rows(server.rows(table.name), table.expected())
        late = SHAPE.insert("2024-03-02T20:00:00.000001Z", 10, seed=59)
        server.run(late.replace("{t}", table.name))
        table.run(late)
        assert_same_rows(server.rows(table.name), table.expected())
        async with cp.open_table(server.directory(table.name)) as opened:
            assert_same_rows(await opened.scan().to_arrow(), table.expected())


async def _replace_partition(table: Path, *, position: int) -> None:
    """Write a partition anew, with more row groups and another codec, and commit it."""
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    async with cp.open_table(table) as opened:
        partition = opened.partitions[position]
    async with cp.open_partition(partition.directory_path) as opened_partition:
        rows = await opened_partition.scan().to_arrow()
    written = await write_partition(
        table / f"{partition.name.partition('.')[0]}.{transaction.txn}",
        rows,
        timestamp="ts",
        symbols={"sym": _symbols(table, "sym", transaction.symbol_counts[0])},
        options=WriteOptions(row_group_rows=70),
    )
    change_record(
        table,
        lambda record: replace(record, name_txn=transaction.txn, parquet_size=written.parquet_size_bytes),
        index=position,
    )


def _symbols(table: Path, column: str, count: int) -> list[str]:
    wanted = symbol_offsets_range(count)
    offsets_data = (table / f"{column}.o").read_bytes()[wanted.start : wanted.stop]
    offsets = parse_symbol_offsets(offsets_data, count, path=None)
    chars = (table / f"{column}.c").read_bytes()[: offsets[-1]]
    strings = parse_symbols(chars, offsets, path=None)
    ends = strings.offsets.tolist()
    return [strings.utf8[start:stop].decode() for start, stop in pairwise(ends)]


# --- A table that we have written is opened, read, written to and altered by a real QuestDB, and goes on being ours ---


LATE = "insert into trades values ('2024-01-02T12:00:00Z', 'late', 0.5, -1), ('2024-02-01T00:00:00Z', 'later', 1.5, -2)"


@pytest.mark.slow
@pytest.mark.usefixtures("questdb")  # which skips, or fails, where there is none
async def test_a_table_made_here_is_a_table_of_questdb(tmp_path: Path) -> None:
    table = tmp_path / "db" / "trades"
    first, second = ticks(1_000), ticks(500, seed=1, days=4)
    await write_table(table, first, timestamp="ts", options=WriteOptions(row_group_rows=200))
    await write_table(table, second, mode="append", options=WriteOptions(row_group_rows=200))
    expected = in_order([first, second])
    with live_questdb(tmp_path) as server:
        assert same_rows(server.rows("trades"), expected)
        assert [partition["isParquet"] for partition in server.partitions("trades")] == [True] * 4
        server.run(
            LATE, "alter table trades add column venue symbol", "insert into trades values (now(), 'x', 1.0, -3, 'okx')"
        )
        # 9.3.4 does not answer for a column that a Parquet partition lacks, even one of its own.
        answer = server.rows("trades", columns="ts, side, price, number")
    assert answer.num_rows == expected.num_rows + 3
    found = await read_table(table)
    assert same_rows(found.drop_columns(["venue"]), answer)
    assert found.column("venue").to_pylist()[-2:] == [None, "okx"]
    async with cp.open_table(table) as opened:
        assert [partition.format for partition in opened.partitions][:4] == ["parquet"] * 4
    day = ticks(20, seed=3, days=1)
    await write_table(table, day.append_column("venue", pa.array(["okx"] * 20)), mode="overwrite")
    stays = answer.filter(
        pc.greater_equal(answer.column("ts"), pa.scalar(START_US + DAY_US, pa.timestamp("us", "UTC")))
    )
    assert same_rows((await read_table(table)).drop_columns(["venue"]), in_order([day, stays.cast(day.schema)]))


# --- From the disk of a running QuestDB to a real S3 server: what is published answers as the database does -----------


QUESTIONS = [
    "num > 0 and ts < '2024-03-04'",
    "sym = 'alpha' and price > 250.0 and ts < '2024-03-04'",
    "ts >= '2024-03-01T18:00:00Z' and ts < '2024-03-03T01:00:00Z' and text is not null",
    "flag = true and id is null and ts < '2024-03-04'",
]


@pytest.fixture
def published_table(live_table: LiveTable) -> LiveTable:
    """Three partitions in Parquet, and a native one."""
    live_table.run(DAILY.create(), DAILY.insert("2024-03-01", 1000, seed=23))
    live_table.convert("2024-03-01", "2024-03-02", "2024-03-03")
    return live_table


@pytest.fixture
def url(published_table: LiveTable, minio: LiveS3) -> str:
    return f"s3://{minio.bucket}/db/{published_table.name}"


async def publish(
    published_table: LiveTable, url: str, minio: LiveS3, options: PublishOptions | None = None
) -> PublishReport:
    return await publish_table(published_table.directory, url, storage_options=minio.storage_options, options=options)


async def test_published_partitions_answer_as_the_database_does(
    published_table: LiveTable, url: str, minio: LiveS3
) -> None:
    report = await publish(published_table, url, minio)
    assert report.is_committed
    assert [report.count(action) for action in ("published", "converted", "left behind")] == [3, 1, 0]
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        assert opened.txn == report.txn
        assert_same_rows(await opened.scan().to_arrow(), published_table.expected())
        for where in QUESTIONS:
            expected = published_table.expected(where)
            assert_same_rows(await opened.scan(where=where).to_arrow(), expected)
            assert await opened.scan(where=where).count() == expected.num_rows
        assert {request.status for request in opened.request_log} <= {"ok", "NotFound"}


async def test_each_partition_has_a_sidecar_in_the_bucket(published_table: LiveTable, url: str, minio: LiveS3) -> None:
    await publish(published_table, url, minio)
    names = [key.removeprefix(f"db/{published_table.name}/") for key in minio.keys(f"db/{published_table.name}/")]
    assert sum(name.endswith("/_pm") for name in names) == sum(name.endswith("/data.parquet") for name in names) == 4
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        await opened.scan(["num"], "num > 0").to_arrow()
        assert {request.reason for request in opened.request_log}.isdisjoint({"Parquet footer"})


async def test_only_what_changed_is_published_again(published_table: LiveTable, url: str, minio: LiveS3) -> None:
    await publish(published_table, url, minio)
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        before = published_table.expected()
        published_table.run(
            DAILY.insert("2024-03-02T21:00:00.000001Z", 30, seed=29), DAILY.insert(ACTIVE, 700, seed=31)
        )
        published_table.convert(ACTIVE, "2024-03-05")
        report = await publish(published_table, url, minio)
        assert [report.count(action) for action in ("unchanged", "published", "converted")] == [2, 3, 1]

        assert_same_rows(await opened.scan().to_arrow(), before)  # the objects that it knows are still there
        await opened.refresh()
        assert_same_rows(await opened.scan().to_arrow(), published_table.expected())
    again = await publish(published_table, url, minio)
    assert not again.is_committed
    assert again.count("unchanged") == 6


async def test_a_dry_run_writes_nothing(published_table: LiveTable, url: str, minio: LiveS3) -> None:
    report = await publish(published_table, url, minio, PublishOptions(dry_run=True))
    assert [report.count(action) for action in ("would publish", "would convert")] == [3, 1]
    assert report.cost.sent_bytes > 0
    assert minio.keys(f"db/{published_table.name}/") == []


async def test_readers_beside_a_publisher_see_one_published_state(
    published_table: LiveTable, url: str, minio: LiveS3
) -> None:
    await publish(published_table, url, minio)
    states = {published_table.server.count(published_table.twin)}
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
        await asyncio.to_thread(published_table.run, late)
        states.add(published_table.server.count(published_table.twin))
        await publish(published_table, url, minio)
    publishing = False
    assert await reader > 0


async def test_of_two_publishers_none_mixes_its_version_with_the_other(
    published_table: LiveTable, url: str, minio: LiveS3
) -> None:
    outcomes = await asyncio.gather(*(publish(published_table, url, minio) for _ in range(3)), return_exceptions=True)
    assert not [outcome for outcome in outcomes if not isinstance(outcome, cp.ColdParquetError | PublishReport)]
    await publish(published_table, url, minio)
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        assert_same_rows(await opened.scan().to_arrow(), published_table.expected())


async def test_columns_that_came_and_went(published_table: LiveTable, url: str, minio: LiveS3) -> None:
    await publish(published_table, url, minio)
    published_table.run(
        "ALTER TABLE {t} ADD COLUMN extra INT",
        "ALTER TABLE {t} DROP COLUMN label",
        "ALTER TABLE {t} RENAME COLUMN price TO amount",
        DAILY.insert("2024-03-05", 300, seed=37, values="x::int", columns="extra"),
    )
    published_table.convert("2024-03-05")
    report = await publish(published_table, url, minio)
    # Renaming gives the files of a native partition another version, as an UPDATE does.
    assert [report.count(action) for action in ("published", "unchanged", "converted")] == [1, 3, 1]
    async with cp.open_table(url, storage_options=minio.storage_options) as opened:
        assert_same_rows(await opened.scan().to_arrow(), published_table.expected())


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


# --- WQ: few requests answer the two hours of W1 from a day that QuestDB wrote with its default settings --------------


@pytest.mark.slow
@pytest.mark.usefixtures("questdb")  # it says what is missing where there can be no QuestDB
def test_two_hours_of_questdb_take_at_most_ten_requests(tmp_path: Path) -> None:
    readers = (OURS, f"{OURS}, kept open", "Polars")
    [results] = run(questdb_day.benchmark(rows=1_000_000).only(*readers), rounds=1, directory=tmp_path).values()
    ours, kept_open, polars = (results[name] for name in readers)
    assert ours.answer == polars.answer > 0
    assert ours.first.requests <= 10
    assert ours.first.megabytes < polars.first.megabytes / 2, "whose statistics no other reader may believe"
    assert ours.warm.data_requests == 0
    assert kept_open.warm.requests == 0
