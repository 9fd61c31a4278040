"""Tables on the disk of a running QuestDB equal its answers in SQL: as they are, changed, under load, compacted."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import coldparquet as cp
from coldparquet import Table
from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError
from coldparquet.write import WriteOptions
from coldparquet.write.compact import CompactionOptions, compact_table
from tests.support.live_questdb import DAILY, SHAPES, LiveTable, TableShape
from tests.support.live_servers import live_questdb
from tests.support.questdb_tables import assert_same_rows

# --- Scans of tables on the disk of a running QuestDB equal its answers to the same questions in SQL ------------------


pytestmark = pytest.mark.integration

QUESTIONS = [
    None,
    "num > 0",
    "num >= -10 and num <= 10",
    "price > 500.5 and sym = 'alpha'",
    "sym in ('beta', '')",
    "sym is null",
    "text is not null and flag = true",
    "big < 0 or small > 30000",
    "letter = 'Q'",
    "label = 'no such label'",
    "dec > 0 and dec < 500",
]
"""Conditions that QuestDB and coldparquet understand alike; ``!=`` differs for nulls."""

TIMES = {
    "DAY": ("2024-03-01T12:00:00Z", "2024-03-03T06:30:00Z"),
    "HOUR": ("2024-03-01T00:30:00Z", "2024-03-01T02:15:00Z"),
    "MONTH": ("2024-03-20T12:00:00Z", "2024-05-02T06:30:00Z"),
}
"""A time range for each kind of partition, which starts and ends within partitions."""


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> TableShape:
    return SHAPES[request.param]


@pytest.fixture
def table(live_table: LiveTable, shape: TableShape) -> LiveTable:
    """A table of four partitions, all native."""
    live_table.run(shape.create(), shape.insert("2024-03-01T00:00:00.000001Z", 1100, seed=17))
    return live_table


async def assert_answers_equal(table: LiveTable, shape: TableShape) -> None:
    start, stop = TIMES[shape.partition_by]
    questions = [*QUESTIONS, f"ts >= '{start}' and ts < '{stop}'", f"ts < '{start}' and num is null", f"ts = '{start}'"]
    async with cp.open_table(table.directory) as opened:
        for where in questions:
            expected = table.expected(where)
            assert_same_rows(await opened.scan(where=where).to_arrow(), expected)
            assert await opened.scan(where=where).count() == expected.num_rows


async def test_native_partitions(table: LiveTable, shape: TableShape) -> None:
    await assert_answers_equal(table, shape)


async def test_parquet_partitions_and_a_native_active_one(table: LiveTable, shape: TableShape) -> None:
    table.convert(*table.partitions[:-1])
    assert table.formats == "PPPn"
    await assert_answers_equal(table, shape)


async def test_an_active_partition_in_parquet(table: LiveTable, shape: TableShape) -> None:
    table.convert(*table.partitions)
    assert table.formats == ("PPPP" if shape.has_wal else "PPPn")
    await assert_answers_equal(table, shape)


async def test_a_native_partition_between_parquet_ones(table: LiveTable, shape: TableShape) -> None:
    table.convert(*table.partitions[:-1])
    table.convert_back(table.partitions[1])
    assert table.formats == "PnPn"
    await assert_answers_equal(table, shape)


# --- Tables that a running QuestDB goes on changing: late rows, columns that come and go, partitions that leave -------


TRADES = "id LONG, sym SYMBOL, price DOUBLE, note VARCHAR"
TRADE_VALUES = "x, rnd_symbol('BTC', 'ETH', 'SOL', null), round(rnd_double() * 1000, 2), rnd_varchar(3, 12, 3)"
ONE_ROW_GROUP = TableShape(partition_by="DAY", step=864_000_000)
"""100 rows a partition, less than a row group holds."""


def trades(start: str, rows: int, *, seed: int, step: int | None = None, shape: TableShape = DAILY) -> str:
    return shape.insert(start, rows, seed=seed, values=TRADE_VALUES, step=step)


async def rows_of(changing_table: LiveTable) -> pa.Table:
    async with cp.open_table(changing_table.directory) as opened:
        return await opened.scan().to_arrow()


@pytest.fixture
def changing_table(live_table: LiveTable) -> LiveTable:
    """Three partitions of two row groups each, in Parquet, and a native one."""
    live_table.run(DAILY.create(columns=TRADES), trades("2024-03-01", 1000, seed=3))
    live_table.convert("2024-03-01", "2024-03-02", "2024-03-03")
    assert live_table.formats == "PPPn"
    return live_table


LATE_ROWS = trades("2024-03-01T20:00:00.000001Z", 20, seed=5), trades("2024-03-02T01:00:00.000003Z", 7, seed=7)


async def test_late_rows_change_parquet_files_in_place(changing_table: LiveTable) -> None:
    before = sorted(path.name for path in changing_table.directory.glob("2024-*"))
    changing_table.run(*LATE_ROWS)
    assert sorted(path.name for path in changing_table.directory.glob("2024-*")) == before
    assert_same_rows(await rows_of(changing_table), changing_table.expected())


async def test_late_rows_rewrite_small_parquet_files(live_table: LiveTable) -> None:
    live_table.run(ONE_ROW_GROUP.create(columns=TRADES), trades("2024-03-01", 250, seed=3, shape=ONE_ROW_GROUP))
    live_table.convert("2024-03-01", "2024-03-02")
    live_table.run(*LATE_ROWS)
    assert live_table.formats == "PPn"
    assert not (live_table.directory / "2024-03-01").exists()  # another version of the partition took its place
    assert_same_rows(await rows_of(live_table), live_table.expected())


async def test_an_open_table_keeps_its_rows_until_it_is_refreshed(changing_table: LiveTable) -> None:
    async with cp.open_table(changing_table.directory) as opened:
        before = changing_table.expected()
        changing_table.run(*LATE_ROWS, trades("2024-03-04T09:00:00.000005Z", 400, seed=11))
        after = changing_table.expected()
        assert after.num_rows == before.num_rows + 427

        assert_same_rows(await opened.scan().to_arrow(), before)
        assert await opened.scan().count() == before.num_rows
        assert await opened.refresh()
        assert_same_rows(await opened.scan().to_arrow(), after)
        assert not await opened.refresh()


async def test_native_rows_that_are_overwritten_in_place_are_never_returned(live_table: LiveTable) -> None:
    """QuestDB cuts a native partition short, and later joins the pieces again in its files, over rows of older states."""
    live_table.run(DAILY.create(), DAILY.insert("2024-03-01", 500, seed=1))
    async with cp.open_table(live_table.directory) as opened:
        live_table.run(DAILY.insert("2024-03-01T22:00:00.000001Z", 20, seed=2))
        with pytest.raises(ObjectChangedError):
            await opened.scan().to_arrow()
        await opened.refresh()
        assert_same_rows(await opened.scan().to_arrow(), live_table.expected())


async def test_a_scan_keeps_its_state_when_its_table_is_refreshed(changing_table: LiveTable) -> None:
    async with cp.open_table(changing_table.directory) as opened:
        before, scan = changing_table.expected(), opened.scan()
        changing_table.run(*LATE_ROWS)
        await opened.refresh()
        assert_same_rows(await scan.to_arrow(), before)
        assert_same_rows(await opened.scan().to_arrow(), changing_table.expected())


async def test_refresh_sees_conversions(changing_table: LiveTable) -> None:
    async with cp.open_table(changing_table.directory) as opened:
        assert [partition.format for partition in opened.partitions] == ["parquet"] * 3 + ["native"]
        changing_table.convert("2024-03-04")
        changing_table.convert_back("2024-03-01")
        await opened.refresh()
        assert [partition.format for partition in opened.partitions] == ["native"] + ["parquet"] * 3
        assert_same_rows(await opened.scan().to_arrow(), changing_table.expected())


async def test_columns_added_before_and_after_a_conversion(changing_table: LiveTable) -> None:
    # QuestDB 9.3.4 aborts when it is asked for such a column of an older Parquet partition; it is not asked here.
    changing_table.run(
        "ALTER TABLE {t} ADD COLUMN num INT",
        "ALTER TABLE {t} ADD COLUMN tag SYMBOL",
        "ALTER TABLE {t} ADD COLUMN flag BOOLEAN",
        DAILY.insert(
            "2024-03-04T10:00:00.000001Z",
            500,
            seed=13,
            values=f"{TRADE_VALUES}, x::int, 'tag' || x % 5, true",
            columns="id, sym, price, note, num, tag, flag",
        ),
    )
    changing_table.convert("2024-03-04")
    assert changing_table.formats == "PPPPnn"
    assert_same_rows(await rows_of(changing_table), changing_table.expected())
    async with cp.open_table(changing_table.directory) as opened:
        for where in ("tag = 'tag3' and price > 100", "num is null", "flag = true and num < 20", "flag = false"):
            assert_same_rows(await opened.scan(where=where).to_arrow(), changing_table.expected(where))


async def test_columns_dropped_and_added_again_under_the_same_name(changing_table: LiveTable) -> None:
    changing_table.run(
        "ALTER TABLE {t} DROP COLUMN note",
        "ALTER TABLE {t} ADD COLUMN note LONG",
        DAILY.insert("2024-03-05", 30, seed=5, values="x, 'NEW', 1.5, x", columns="id, sym, price, note"),
    )
    assert_same_rows(await rows_of(changing_table), changing_table.expected())


async def test_a_renamed_column(changing_table: LiveTable) -> None:
    changing_table.run("ALTER TABLE {t} RENAME COLUMN price TO amount", trades("2024-03-05", 30, seed=17))
    rows = await rows_of(changing_table)
    assert rows.column("amount").null_count == 0
    assert_same_rows(rows, changing_table.expected())


async def test_a_changed_type_before_the_conversion(live_table: LiveTable) -> None:
    live_table.run(
        DAILY.create(columns=TRADES),
        trades("2024-03-01", 700, seed=3),
        "ALTER TABLE {t} ALTER COLUMN price TYPE FLOAT",
        "ALTER TABLE {t} ALTER COLUMN sym TYPE VARCHAR",
        trades("2024-03-03T12:00:00Z", 200, seed=5),
    )
    live_table.convert("2024-03-01", "2024-03-02")
    assert_same_rows(await rows_of(live_table), live_table.expected())


async def test_updated_native_partitions(live_table: LiveTable) -> None:
    live_table.run(
        DAILY.create(columns=TRADES),
        trades("2024-03-01", 1000, seed=3),
        "UPDATE {t} SET price = -price, note = 'updated' WHERE id % 3 = 0 AND ts < '2024-03-03'",
        "UPDATE {t} SET sym = 'UPDATED' WHERE id % 7 = 0",
    )
    live_table.convert("2024-03-01")
    assert live_table.formats == "Pnnn"
    assert_same_rows(await rows_of(live_table), live_table.expected())


async def test_replaced_rows_of_a_table_without_duplicates(live_table: LiveTable) -> None:
    create = DAILY.create(columns=TRADES) + " DEDUP UPSERT KEYS(ts, sym)"
    live_table.run(create, trades("2024-03-01", 1000, seed=3))
    live_table.convert("2024-03-01", "2024-03-02", "2024-03-03")
    live_table.run("INSERT INTO {t} SELECT -id, sym, price + 1, 'replaced', ts FROM {t} WHERE id % 11 = 0")
    assert live_table.formats == "PPPn"
    assert_same_rows(await rows_of(live_table), live_table.expected())


@pytest.mark.parametrize("leave", ["DROP", "DETACH"])
async def test_partitions_that_left(changing_table: LiveTable, leave: str) -> None:
    changing_table.run(f"ALTER TABLE {{t}} {leave} PARTITION LIST '2024-03-01', '2024-03-03'")
    assert changing_table.formats == "Pn"
    assert_same_rows(await rows_of(changing_table), changing_table.expected())


async def test_an_emptied_table(changing_table: LiveTable) -> None:
    changing_table.run("TRUNCATE TABLE {t}")
    async with cp.open_table(changing_table.directory) as opened:
        assert opened.partitions == ()
        assert await opened.scan().count() == 0
        changing_table.run(trades("2024-04-01", 400, seed=19))
        await opened.refresh()
        assert_same_rows(await opened.scan().to_arrow(), changing_table.expected())


async def test_an_unpartitioned_table(live_table: LiveTable) -> None:
    live_table.run(
        f"CREATE TABLE {{t}} ({TRADES}, ts TIMESTAMP) TIMESTAMP(ts) PARTITION BY NONE BYPASS WAL",
        trades("2024-03-01", 300, seed=3),
    )
    assert_same_rows(await rows_of(live_table), live_table.expected())
    async with cp.open_table(live_table.directory) as opened:
        where = "ts >= '2024-03-01T12:00:00Z' and sym = 'BTC'"
        assert_same_rows(await opened.scan(where=where).to_arrow(), live_table.expected(where))


# --- Random statements against a running QuestDB, and readers beside a writer that does not wait for them -------------


STEPS = 20
HELD_TABLES = 3
BATCHES = 60
BATCH_ROWS = 40
BATCHES_PER_READ = 10
READ_TIMEOUT_S = 10
HOUR_US = 3_600_000_000
WORKLOAD_TIMEOUT_S = 120


class Workload:
    """A table that changes at random. Every late row has a time of its own, so that the order of rows is certain."""

    def __init__(self, table: LiveTable, seed: int) -> None:
        self.table = table
        self.random = random.Random(seed)
        self.statements = 0
        self.days = 1
        table.run(DAILY.create())
        self.append()

    def step(self) -> None:
        """Change the table in one way."""
        changes = [self.append, self.append, self.insert_late, self.insert_late, self.insert_late]
        changes += [self.convert, self.convert_back, self.drop_one]
        self.random.choice(changes)()

    def append(self) -> None:
        self._insert(self.days, rows=self.random.randint(50, 900))

    def insert_late(self) -> None:
        self._insert(self.random.randint(1, self.days), rows=self.random.choice([1, 20, 150]))

    def convert(self) -> None:
        if "n" in self.table.formats:
            self.table.convert(*self._some("n"))

    def convert_back(self) -> None:
        if "P" in self.table.formats:
            self.table.convert_back(*self._some("P"))

    def drop_one(self) -> None:
        if len(self.table.partitions) > 1:
            self.table.run(f"ALTER TABLE {{t}} DROP PARTITION LIST '{self.random.choice(self.table.partitions)}'")

    def _some(self, kind: str) -> list[str]:
        """Choose partitions of one format."""
        partitions = zip(self.table.partitions, self.table.formats, strict=True)
        names = [name for name, its_kind in partitions if its_kind == kind]
        return self.random.sample(names, self.random.randint(1, len(names)))

    def _insert(self, day: int, *, rows: int) -> None:
        self.statements += 1
        second = self.random.randrange(86_400)
        start = f"{self._day(day)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{self.statements:06}Z"
        self.table.run(DAILY.insert(start, rows, seed=self.statements))
        self.days = max(self.days, int(self.table.partitions[-1].rpartition("-")[2]))

    def _day(self, day: int) -> str:
        return f"2024-03-{day:02}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
async def test_every_state_reads_as_questdb_answers(live_table: LiveTable, seed: int) -> None:
    workload = Workload(live_table, seed)
    held: list[tuple[Table, pa.Table]] = []
    async with AsyncExitStack() as stack:
        table = await stack.enter_async_context(cp.open_table(live_table.directory))
        for _ in range(STEPS):
            workload.step()
            expected = live_table.expected()
            await table.refresh()
            assert_same_rows(await table.scan().to_arrow(), expected)
            for older, rows in held:
                await assert_unchanged_or_gone(older, rows)
            held.append((await stack.enter_async_context(cp.open_table(live_table.directory)), expected))
            del held[:-HELD_TABLES]


async def assert_unchanged_or_gone(table: Table, expected: pa.Table) -> None:
    """An open table returns the rows that it had, unless QuestDB has removed the files that held them."""
    try:
        rows = await table.scan().to_arrow()
    except (NotFoundError, ObjectChangedError):
        return
    assert_same_rows(rows, expected)


@pytest.mark.slow
async def test_readers_see_whole_transactions_in_order(live_table: LiveTable) -> None:
    live_table.run(DAILY.create(columns="number LONG"), DAILY.insert("2024-03-01", 600, seed=1, values="0"))
    live_table.convert("2024-03-01")
    assert live_table.formats == "Pn"

    reads = threading.Semaphore(0)

    def write() -> None:
        for batch in range(1, BATCHES + 1):
            if batch % BATCHES_PER_READ == 0:  # else a quick server may be done before the reader has looked twice
                reads.acquire(timeout=READ_TIMEOUT_S)
            start = f"2024-03-01T00:00:00.{batch:06}Z"
            live_table.send(DAILY.insert(start, BATCH_ROWS, seed=batch, values=str(batch), step=HOUR_US))

    seen, latest = 0, 0
    writer = asyncio.create_task(asyncio.to_thread(write))
    async with asyncio.timeout(WORKLOAD_TIMEOUT_S), cp.open_table(live_table.directory) as table:
        while not writer.done() or latest < BATCHES:
            await table.refresh()
            try:
                batches = (await table.scan(["number"]).to_arrow()).column("number")
            except (NotFoundError, ObjectChangedError):
                continue  # QuestDB moved a partition to a new directory and has removed the old one already
            counts = {entry["values"].as_py(): entry["counts"].as_py() for entry in pc.value_counts(batches)}
            assert counts.pop(0) == 600
            assert sorted(counts) == list(range(1, len(counts) + 1))
            assert set(counts.values()) <= {BATCH_ROWS}
            assert len(counts) >= latest
            seen, latest = seen + 1, len(counts)
            reads.release()
    await writer
    assert seen > 1


# --- A real QuestDB goes on with a table that was compacted while it was stopped, and keeps us away while it runs -----


SHAPE = SHAPES["day_without_wal"]
"""A server finds tables without write-ahead log by their directories when it starts."""
LATE = SHAPE.insert("2024-03-02T20:00:00.000001Z", 10, seed=61)


@pytest.fixture
def compacted_table(live_table: LiveTable) -> LiveTable:
    """Three days in Parquet, one of them with row groups that were replaced in place."""
    live_table.run(SHAPE.create(), SHAPE.insert("2024-03-01", 1000, seed=43))
    live_table.convert("2024-03-01", "2024-03-02", "2024-03-03")
    live_table.run(SHAPE.insert("2024-03-02T10:00:00.000003Z", 50, seed=47))
    return live_table


async def test_a_running_server_keeps_us_away(compacted_table: LiveTable) -> None:
    with pytest.raises(InvalidInputError, match="stop the server") as caught:
        await compact_table(compacted_table.directory)
    assert caught.value.kind == "ServerRunning"


@pytest.mark.slow
@pytest.mark.parametrize("row_group_rows", [pytest.param(100_000, marks=pytest.mark.soak), 70])
async def test_the_server_goes_on_with_what_we_wrote(
    compacted_table: LiveTable, row_group_rows: int, tmp_path: Path
) -> None:
    ours = tmp_path / "db" / compacted_table.name
    shutil.copytree(compacted_table.directory, ours)
    options = CompactionOptions(write=WriteOptions(row_group_rows=row_group_rows, page_rows=30), purge_after_s=0)
    report = await compact_table(ours, force=True, purge=True, options=options)
    assert report.count("compacted") == 3
    with live_questdb(tmp_path) as server:
        assert_same_rows(server.rows(compacted_table.name), compacted_table.expected())
        late = LATE.replace("{t}", compacted_table.name)
        server.run(late)
        compacted_table.run(LATE)
        assert_same_rows(server.rows(compacted_table.name), compacted_table.expected())
        async with cp.open_table(server.directory(compacted_table.name)) as opened:
            assert_same_rows(await opened.scan().to_arrow(), compacted_table.expected())
    again = await compact_table(ours, force=True)
    assert again.count("failed") == 0
    assert_same_rows(await compacted_rows(ours), compacted_table.expected())


async def compacted_rows(compacted_table: Path) -> pa.Table:
    async with cp.open_table(compacted_table) as opened:
        return await opened.scan().to_arrow()
