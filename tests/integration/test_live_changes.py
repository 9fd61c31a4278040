"""Tables that a running QuestDB goes on changing: late rows, columns that come and go, partitions that leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.errors import ObjectChangedError
from tests.support.live_questdb import DAILY, LiveTable, TableShape
from tests.support.questdb_tables import assert_same_rows

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = pytest.mark.integration

TRADES = "id LONG, sym SYMBOL, price DOUBLE, note VARCHAR"
TRADE_VALUES = "x, rnd_symbol('BTC', 'ETH', 'SOL', null), round(rnd_double() * 1000, 2), rnd_varchar(3, 12, 3)"
ONE_ROW_GROUP = TableShape(partition_by="DAY", step=864_000_000)
"""100 rows a partition, less than a row group holds."""


def trades(start: str, rows: int, *, seed: int, step: int | None = None, shape: TableShape = DAILY) -> str:
    return shape.insert(start, rows, seed=seed, values=TRADE_VALUES, step=step)


async def rows_of(table: LiveTable) -> pa.Table:
    async with cp.open_table(table.directory) as opened:
        return await opened.scan().to_arrow()


@pytest.fixture
def table(live_table: LiveTable) -> LiveTable:
    """Three partitions of two row groups each, in Parquet, and a native one."""
    live_table.run(DAILY.create(columns=TRADES), trades("2024-03-01", 1000, seed=3))
    live_table.convert("2024-03-01", "2024-03-02", "2024-03-03")
    assert live_table.formats == "PPPn"
    return live_table


LATE_ROWS = trades("2024-03-01T20:00:00.000001Z", 20, seed=5), trades("2024-03-02T01:00:00.000003Z", 7, seed=7)


async def test_late_rows_change_parquet_files_in_place(table: LiveTable) -> None:
    before = sorted(path.name for path in table.directory.glob("2024-*"))
    table.run(*LATE_ROWS)
    assert sorted(path.name for path in table.directory.glob("2024-*")) == before
    assert_same_rows(await rows_of(table), table.expected())


async def test_late_rows_rewrite_small_parquet_files(live_table: LiveTable) -> None:
    live_table.run(ONE_ROW_GROUP.create(columns=TRADES), trades("2024-03-01", 250, seed=3, shape=ONE_ROW_GROUP))
    live_table.convert("2024-03-01", "2024-03-02")
    live_table.run(*LATE_ROWS)
    assert live_table.formats == "PPn"
    assert not (live_table.directory / "2024-03-01").exists()  # another version of the partition took its place
    assert_same_rows(await rows_of(live_table), live_table.expected())


async def test_an_open_table_keeps_its_rows_until_it_is_refreshed(table: LiveTable) -> None:
    async with cp.open_table(table.directory) as opened:
        before = table.expected()
        table.run(*LATE_ROWS, trades("2024-03-04T09:00:00.000005Z", 400, seed=11))
        after = table.expected()
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


async def test_a_scan_keeps_its_state_when_its_table_is_refreshed(table: LiveTable) -> None:
    async with cp.open_table(table.directory) as opened:
        before, scan = table.expected(), opened.scan()
        table.run(*LATE_ROWS)
        await opened.refresh()
        assert_same_rows(await scan.to_arrow(), before)
        assert_same_rows(await opened.scan().to_arrow(), table.expected())


async def test_refresh_sees_conversions(table: LiveTable) -> None:
    async with cp.open_table(table.directory) as opened:
        assert [partition.format for partition in opened.partitions] == ["parquet"] * 3 + ["native"]
        table.convert("2024-03-04")
        table.convert_back("2024-03-01")
        await opened.refresh()
        assert [partition.format for partition in opened.partitions] == ["native"] + ["parquet"] * 3
        assert_same_rows(await opened.scan().to_arrow(), table.expected())


async def test_columns_added_before_and_after_a_conversion(table: LiveTable) -> None:
    # QuestDB 9.3.4 aborts when it is asked for such a column of an older Parquet partition; nobody asks it here.
    table.run(
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
    table.convert("2024-03-04")
    assert table.formats == "PPPPnn"
    assert_same_rows(await rows_of(table), table.expected())
    async with cp.open_table(table.directory) as opened:
        for where in ("tag = 'tag3' and price > 100", "num is null", "flag = true and num < 20", "flag = false"):
            assert_same_rows(await opened.scan(where=where).to_arrow(), table.expected(where))


async def test_columns_dropped_and_added_again_under_the_same_name(table: LiveTable) -> None:
    table.run(
        "ALTER TABLE {t} DROP COLUMN note",
        "ALTER TABLE {t} ADD COLUMN note LONG",
        DAILY.insert("2024-03-05", 30, seed=5, values="x, 'NEW', 1.5, x", columns="id, sym, price, note"),
    )
    assert_same_rows(await rows_of(table), table.expected())


async def test_a_renamed_column(table: LiveTable) -> None:
    table.run("ALTER TABLE {t} RENAME COLUMN price TO amount", trades("2024-03-05", 30, seed=17))
    rows = await rows_of(table)
    assert rows.column("amount").null_count == 0
    assert_same_rows(rows, table.expected())


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
async def test_partitions_that_left(table: LiveTable, leave: str) -> None:
    table.run(f"ALTER TABLE {{t}} {leave} PARTITION LIST '2024-03-01', '2024-03-03'")
    assert table.formats == "Pn"
    assert_same_rows(await rows_of(table), table.expected())


async def test_an_emptied_table(table: LiveTable) -> None:
    table.run("TRUNCATE TABLE {t}")
    async with cp.open_table(table.directory) as opened:
        assert opened.partitions == ()
        assert await opened.scan().count() == 0
        table.run(trades("2024-04-01", 400, seed=19))
        await opened.refresh()
        assert_same_rows(await opened.scan().to_arrow(), table.expected())


async def test_an_unpartitioned_table(live_table: LiveTable) -> None:
    live_table.run(
        f"CREATE TABLE {{t}} ({TRADES}, ts TIMESTAMP) TIMESTAMP(ts) PARTITION BY NONE BYPASS WAL",
        trades("2024-03-01", 300, seed=3),
    )
    assert_same_rows(await rows_of(live_table), live_table.expected())
    async with cp.open_table(live_table.directory) as opened:
        where = "ts >= '2024-03-01T12:00:00Z' and sym = 'BTC'"
        assert_same_rows(await opened.scan(where=where).to_arrow(), live_table.expected(where))
