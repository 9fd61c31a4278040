"""Which partitions a table has: by the layout of its paths, by a list of objects, by their names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.catalog.objects import ListedObjects
from coldparquet.errors import (
    AccessError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.pipelines import LocalEngine, VerifyJob, run_pipeline
from coldparquet.records import replace
from coldparquet.storage.log import RequestRecord
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import ObjectInfo
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.archive_store import DAYS, make_store
from tests.support.questdb_tables import GOLDEN, assert_same_rows, copy_parquet_partitions, expected_rows
from tests.support.request_logs import finished_requests
from tests.support.small_tables import (
    DAY,
    LOGS,
    TABLE,
    QuotingStore,
    StoreWithClasses,
    day_of_trades,
    memory,
    name_of,
    objects,
    parquet_of,
    partitions_alone,
    store_of,
    table_of_days,
    trades_of,
    write,
)
from tests.support.table_copies import copy_table

# --- What lies beside the partitions of a table is told, and tables that keep a log of their files are refused --------


SURELY_MISSING = [
    (["trades-2023-01-02.parquet"], "trades-2023-01-02.parquet"),
    (["data.parquet"], "data.parquet"),
    (["date=2023-01-02/part-0.parquet"], "date=2023-01-02"),
    (["20230103/data.parquet", "2023_01_04/data.parquet", "202302/data.parquet"], "20230103, 202302, 2023_01_04"),
    (["date=2023-01-02/a.parquet", "b.parquet", "20230103/c.parquet"], "b.parquet, 20230103, date=2023-01-02"),
]


@pytest.mark.parametrize(("beside", "told"), SURELY_MISSING)
@pytest.mark.parametrize("on_disk", [False, True])
async def test_a_table_is_not_read_as_if_rows_beside_it_were_none(
    tmp_path: Path, beside: list[str], told: str, *, on_disk: bool
) -> None:
    url = str(write(tmp_path / "t", [DAY, *beside])) if on_disk else "t"
    store = None if on_disk else memory([DAY, *beside])
    with pytest.raises(UnsupportedError) as caught:
        await cp.open_table(url, store=store)
    assert (caught.value.kind, caught.value.path) == ("UnreadFiles", url)
    assert caught.value.message.startswith(
        f"rows are missing: {told} not read, because a partition is one data.parquet"
    )
    assert "convert" in caught.value.message


async def test_what_is_not_read_is_logged_once_where_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    store = memory([DAY, "loose.parquet"])
    options = cp.ReadOptions(unread="skip")
    async with cp.open_table("t", store=store, options=options) as table:
        assert await table.scan().count() == 10
        await table.refresh()
        explained = (await table.scan().plan()).explain()
        [listed] = [record for record in table.request_log if record.operation == "list"][:1]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("t: rows are missing: loose.parquet not read")
    assert "rows are missing: loose.parquet not read" in explained
    assert listed.path == "t"


async def test_a_second_part_in_a_partition(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = [DAY, "2023-01-01/part-1.parquet", "2023-01-02/data.parquet"]
    table = write(tmp_path / "t", names)
    for url in (table, table / "2023-01-01"):
        with pytest.raises(UnsupportedError, match=r"part-1\.parquet not read") as caught:
            await cp.open_table(url)
        assert caught.value.kind == "UnreadFiles"
    # A listing with a delimiter does not show it, and no request is spent on it.
    async with cp.open_table("t", store=memory(names)) as opened:
        assert await opened.scan().count() == 20
    assert caplog.records == []


async def test_a_listing_for_another_purpose_tells_of_second_parts(caplog: pytest.LogCaptureFixture) -> None:
    days = [f"2023-01-{day:02}" for day in range(1, 21)]
    store = QuotingStore(objects([*(f"{day}/data.parquet" for day in days), "2023-01-07/part-1.parquet"]))
    await index_table("t", store=store, pack=True, pages=False)
    caplog.clear()
    async with cp.open_table("t", store=store) as table:
        await table.scan(where="x = 3").to_arrow()
        assert [record.operation for record in table.request_log].count("list") == 2
    [record] = caplog.records
    assert record.getMessage().startswith("rows are missing: 2023-01-07/part-1.parquet not read")


HARMLESS = [
    "2023-01-01/_pm.tmp",
    "2023-01-01/.data.parquet.crc",
    "2023-01-01/_SUCCESS",
    "_SUCCESS",
    "._SUCCESS.crc",
    "_metadata",
    "_temporary/0/part-0.parquet",
    ".2023-01-02.coldparquet/data.parquet",
    ".hidden.parquet",
    "2022-12-31.detached/data.parquet",
    "2022-12-30.attachable/data.parquet",
    "wal1/0/_event",
    "txn_seq/_meta",
    "_meta",
    "_cv",
    "sym.c",
    "readme.txt",
]


@pytest.mark.parametrize("on_disk", [False, True])
async def test_what_writers_leave_beside_partitions_is_no_matter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, on_disk: bool
) -> None:
    url = str(write(tmp_path / "t", [DAY, *HARMLESS])) if on_disk else "t"
    store = None if on_disk else memory([DAY, *HARMLESS])
    async with cp.open_table(url, store=store) as table:
        assert await table.scan().count() == 10
    report = await verify_table(url, store=store)
    # A _metadata that does not describe these files would mislead Arrow, though not this library.
    assert {finding.kind for finding in report.findings} == {"LeftAside", "ParquetMetadataDiffers"}
    assert (await index_table(url, store=store, dry_run=True, pages=False, pack=False)).findings == ()
    assert caplog.records == []


DAY_IN_TRANSACTION = "2024-02-27"
"""An old version of it, without the number of a transaction."""


@pytest.mark.parametrize(
    "beside", [[], ["loose.parquet", "date=2023-01-02/a.parquet", "data.parquet", "2020-01-02/x.parquet"]]
)
async def test_a_table_of_questdb_is_never_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, beside: list[str]
) -> None:
    table = copy_table("interval_day", tmp_path)
    async with cp.open_table(table) as opened:
        rows = await opened.scan().count()
    (table / "2020-01-01.7").mkdir()
    write(table, [*beside, f"{DAY_IN_TRANSACTION}/part-1.parquet"])
    async with cp.open_table(table) as opened:
        assert await opened.scan().count() == rows
    report = await verify_table(table)
    found = [finding for finding in report.findings if finding.kind == "UnreadFiles"]
    assert [finding.severity for finding in found] == ["warning"] * bool(beside)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [one.message for one in found]
    if beside:
        assert found[0].message.endswith("does not name them: data.parquet, loose.parquet, date=2023-01-02, 2020-01-02")


@pytest.mark.parametrize("on_disk", [False, True])
async def test_checks_look_into_partitions(tmp_path: Path, *, on_disk: bool) -> None:
    names = [DAY, "2023-01-01/part-1.parquet", "2023-01-02/data.parquet", "loose.parquet", "junk/data.parquet"]
    url = str(write(tmp_path / "t", names)) if on_disk else "t"
    store = None if on_disk else memory(names)
    verified = await verify_table(url, store=store)
    indexed = await index_table(url, store=store, pages=False, pack=False)
    assert indexed.count("written") == 2
    for findings in (verified.findings, indexed.findings):
        assert [(finding.severity, finding.kind) for finding in findings] == [
            ("error", "UnreadFiles"),
            ("warning", "UnreadDirectories"),
        ]
        assert findings[0].message.startswith("rows are missing: loose.parquet, 2023-01-01/part-1.parquet not read")
        assert findings[1].message.startswith("rows may be missing: junk not read")


async def test_a_refresh_does_not_pass_over_a_new_file(tmp_path: Path) -> None:
    url = write(tmp_path / "t", [DAY])
    async with cp.open_table(url) as table:
        write(url, ["2023-01-01/part-1.parquet"])
        with pytest.raises(UnsupportedError, match=r"part-1\.parquet"):
            await table.refresh()


LOGGED_FILES = {
    "plain": ["part-0.parquet"],
    "in directories": ["date=2023-01-02/part-0.parquet"],
    "named as ours": [DAY],
    "one file named as ours": ["data.parquet"],
}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("files", LOGGED_FILES)
async def test_a_table_that_keeps_a_log_is_never_read_by_its_files(tmp_path: Path, log: str, files: str) -> None:
    names = [*LOGGED_FILES[files], LOGS[log]]
    table = write(tmp_path / "t", names)

    async def refused(call: Any) -> None:
        with pytest.raises(UnsupportedError) as caught:
            await call
        assert (caught.value.kind, caught.value.details["format"]) == ("LoggedTable", log)
        assert f"--from-format {log}" in caught.value.message
        assert "--engine spark" in caught.value.message

    for url, store in ((str(table), None), ("t", memory(names))):
        await refused(cp.open_table(url, store=store))
        await refused(index_table(url, store=store, pages=False, pack=False))
        await refused(verify_table(url, store=store))
        if files != "one file named as ours" or store is None:  # in an object store no listing is spent on a partition
            await refused(cp.open_partition(url, store=store))


CHILDREN = [
    "date=2023-01-02",
    "date=2023-01-02/data.parquet",
    "data/date=2023-01-02",
    "year=2023/month=01",
    "2023-01-02",
    "2023-01-02/data.parquet",
    "ours",
    "data.parquet",
]
"""Directories in a table that keeps a log, and files of it."""


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("child", CHILDREN)
async def test_what_lies_in_a_table_that_keeps_a_log_is_not_read_alone(tmp_path: Path, log: str, child: str) -> None:
    is_table = child == "ours"
    data = f"{child}/{DAY}" if is_table else child if child.endswith(".parquet") else f"{child}/data.parquet"
    table = write(tmp_path / "t", [data])
    url = table / child
    opens = [cp.open_table] if is_table else [cp.open_table, cp.open_partition]
    for is_refused in (False, True):
        if is_refused:
            write(table, [LOGS[log]])
        calls: list[Callable[[], Any]] = [partial(open_it, url) for open_it in opens]
        calls += [partial(index_table, url, dry_run=True), partial(verify_table, url)]
        if is_table:
            calls += [
                partial(cp.open_partitions, url, ["2023-01-01"]),
                partial(cp.open_partition, url / "2023-01-01"),
            ]
        if url.is_dir():
            calls.append(partial(run_pipeline, VerifyJob(), str(url), engine=LocalEngine(processes=1)))
        for call in calls:
            if not is_refused:
                if isinstance(opened := await call(), cp.Table):
                    await opened.aclose()
                continue
            with pytest.raises(UnsupportedError) as caught:
                await call()
            assert (caught.value.kind, caught.value.details["format"]) == ("LoggedTable", log)
            assert str(table) in str(caught.value)


async def test_a_table_of_questdb_beside_a_log_is_read(tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    write(tmp_path, [LOGS["delta"]])
    [partition] = [found for found in sorted(table.iterdir()) if (found / "data.parquet").exists()][:1]
    for opening in (cp.open_table(table), cp.open_partition(partition)):
        async with opening as opened:
            assert await opened.scan().count()


async def test_a_partition_of_hudi_is_told_by_its_mark() -> None:
    store = memory([".hoodie_partition_metadata", "data.parquet"])
    with pytest.raises(UnsupportedError, match="Hudi"):
        await cp.open_table("t", store=store)


async def test_a_directory_named_metadata_is_no_log() -> None:
    store = memory([DAY, "metadata/readme.json"])
    async with cp.open_table("t", store=store) as table:
        assert await table.scan().count() == 10


# --- Looking at many data objects: one listing where it saves requests, and a look of its own where it does not
# tell enough


LISTED_DAYS, LISTED_ROWS = 30, 48


class ListingStore(StoreWithClasses):
    """Lists every object with its storage class."""

    classes: dict[str, str]

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        listed = await QuotingStore.list_between(self, path, start=start, stop=stop)
        return tuple(replace(info, storage_class=self.classes.get(info.path, "STANDARD")) for info in listed)


def listing_store(objects: dict[str, bytes], **classes: str) -> ListingStore:
    store = ListingStore(objects)
    store.classes = {f"{TABLE}/{name_of(int(day[1:]))}/data.parquet": name for day, name in classes.items()}
    return store


def looks(log: tuple[RequestRecord, ...]) -> list[tuple[str, str]]:
    """The HEADs, and the listings behind that which found the partitions."""
    seen = [(record.operation, record.path.removeprefix(TABLE).lstrip("/")) for record in log]
    seen.remove(("list", ""))
    return [each for each in seen if each[0] in {"info", "list"}]


async def test_one_listing_in_place_of_a_look_at_every_partition() -> None:
    store = listing_store(partitions_alone(LISTED_DAYS))
    async with cp.open_table(TABLE, store=store) as table:
        plan = await table.scan().plan()
        assert looks(table.request_log) == [("list", "")]
        assert {partition.storage_class for partition in plan.partitions} == {"STANDARD"}
        assert (await table.scan().to_arrow()).num_rows == LISTED_DAYS * LISTED_ROWS
        assert looks(table.request_log) == [("list", "")], "what was listed is remembered"


async def test_a_few_partitions_are_looked_at_one_by_one() -> None:
    store = listing_store(partitions_alone(6))
    async with cp.open_table(TABLE, store=store) as table:
        await table.scan().plan()
        assert looks(table.request_log) == [("info", f"{name_of(day)}/data.parquet") for day in range(6)]


async def test_classes_that_a_listing_does_not_tell_enough_of_are_looked_at() -> None:
    store = listing_store(partitions_alone(LISTED_DAYS), d3="GLACIER", d7="INTELLIGENT_TIERING", d9="GLACIER_IR")
    async with cp.open_table(TABLE, store=store) as table:
        await table.scan().plan()
        assert sorted(looks(table.request_log)) == [
            ("info", f"{name_of(3)}/data.parquet"),
            ("info", f"{name_of(7)}/data.parquet"),
            ("list", ""),
        ]


async def test_with_a_catalogue_a_listing_is_worth_it_for_half_as_many() -> None:
    store = listing_store(partitions_alone(8))
    await pack_table(TABLE, store=store)
    async with cp.open_table(TABLE, store=store) as table:
        before = len(table.request_log)
        plan = await table.scan().plan()
        asked = [(record.operation, record.path) for record in table.request_log[before:]]
        assert asked == [("list", TABLE)], "neither sidecars nor looks"
        assert {partition.metadata_source for partition in plan.partitions[:-1]} == {"catalogue"}


async def test_an_object_replaced_behind_the_listing_is_noticed() -> None:
    store = listing_store(table_of_days(LISTED_DAYS))
    path = f"{TABLE}/{name_of(4)}/data.parquet"
    async with cp.open_table(TABLE, store=store) as table:
        plan = await table.scan().plan()
        assert plan.partitions[4].storage_class == "STANDARD"
        await store.put(path, table_of_days(1)[f"{TABLE}/{name_of(0)}/data.parquet"], overwrite=True)
        with pytest.raises(ObjectChangedError) as caught:  # the listing pins the version that it shows
            await table.scan().to_arrow()
        assert caught.value.path == path


async def test_where_listing_is_refused_every_object_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(self: ListingStore, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:  # noqa: ARG001
        raise AccessError("listing is not permitted", path=path)

    store = listing_store(table_of_days(LISTED_DAYS))
    monkeypatch.setattr(ListingStore, "list_between", refused)
    async with cp.open_table(TABLE, store=store) as table:
        await table.scan().plan()
        infos = [record for record in table.request_log if record.operation == "info"]
        assert len(infos) == LISTED_DAYS


async def test_pieces_are_listed_before_the_partition_that_they_are_of() -> None:
    directories = [f"{TABLE}/{name}" for name in ("2024-W10", "2024-W10-3T12.5", "2024-W11-2.7", "2024-W11")]
    store = QuotingStore({f"{directory}/data.parquet": b"" for directory in directories})
    for asked in (directories, directories[:2], directories[2:]):
        found = await ListedObjects(store).below(asked)
        assert set(found) >= {f"{directory}/data.parquet" for directory in asked}


# --- Partitions of a table that are named one by one: no listing, their rows alone, in time order ---------------------


ROWS = 1_000
NAMES = [f"2024-03-0{number}.7" for number in (1, 2, 3, 4)]


@pytest.fixture
async def store() -> MemoryStore:
    return await store_of({day: day_of_trades(day, rows=ROWS, row_groups=4) for day in range(4)})


async def prices(store: MemoryStore, names: list[str], where: str | None = None) -> list[Any]:
    async with cp.open_partitions("trades", names, store=store) as table:
        rows = await table.scan(["price"], where).to_arrow()
        return rows["price"].to_pylist()


def write_days(directory: Path, days: range, *, rows: int) -> None:
    for day in days:
        partition = directory / f"2024-03-{day + 1:02}"
        partition.mkdir(parents=True)
        content = parquet_of(
            trades_of(day, rows), row_groups=4, write_batch_size=50, data_page_size=64, write_page_index=True
        )
        (partition / "data.parquet").write_bytes(content)


async def test_their_rows_come_in_time_order(store: MemoryStore) -> None:
    assert await prices(store, [NAMES[2], NAMES[0], NAMES[1]]) == list(range(3 * ROWS))
    assert await prices(store, [NAMES[3], NAMES[1]]) == [*range(ROWS, 2 * ROWS), *range(3 * ROWS, 4 * ROWS)]
    assert await prices(store, [NAMES[1], NAMES[3]], "price >= 1999 and price < 3001") == [1999, 3000]
    assert await prices(store, [NAMES[1]]) == list(range(ROWS, 2 * ROWS))


async def test_answers_are_about_them_alone(store: MemoryStore) -> None:
    async with cp.open_partitions("trades", (name for name in (NAMES[2], NAMES[0])), store=store) as table:
        scan = table.scan(["ts", "symbol", "price"])
        assert (await scan.count(), await scan.min("price"), await scan.max("price")) == (2 * ROWS, 0, 3 * ROWS - 1)
        assert (await scan.tail(ROWS + 2))["price"].to_pylist() == [ROWS - 2, ROWS - 1, *range(2 * ROWS, 3 * ROWS)]
        assert (await scan.top_k(2))["price"].to_pylist() == [3 * ROWS - 1, 3 * ROWS - 2]
        assert set((await scan.latest_by("symbol"))["price"].to_pylist()) == {3 * ROWS - 2, 3 * ROWS - 1}
        assert [partition.name for partition in table.partitions] == ["2024-03-01.7", "2024-03-03.7"]


def test_without_an_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_days(tmp_path / "days", range(3), rows=10)
    monkeypatch.chdir(tmp_path)
    with cp.sync.open_partitions("days", ["2024-03-03", "2024-03-02"]) as table:
        assert table.scan(["price"]).to_arrow()["price"].to_pylist() == list(range(10, 30))


async def test_the_root_of_a_store_of_ones_own() -> None:
    store = MemoryStore({"2024-03-01/data.parquet": day_of_trades(0, rows=8, row_groups=1)})
    async with cp.open_partitions("", ["2024-03-01"], store=store) as table:
        assert await table.scan().count() == 8


@pytest.mark.parametrize("pages", [False, True])
async def test_requests_on_a_store(tmp_path: Path, *, pages: bool) -> None:
    write_days(tmp_path / "bucket" / "trades", range(3), rows=ROWS)
    await index_table(tmp_path / "bucket" / "trades", pages=pages, pack=False)
    names = ["2024-03-01", "2024-03-02", "2024-03-03"]
    with ColdStoreServer(tmp_path) as server:
        options = server.storage_options
        async with cp.open_partitions("s3://bucket/trades", names, storage_options=options) as table:
            opened = [(request.method, request.path.rpartition("/")[2]) for request in await finished_requests(server)]
            assert sorted(opened) == sorted([("GET", "_pm"), ("HEAD", "data.parquet")] * 3 + [("GET", "_pages")])
            reading = cp.ReadOptions(page_index="always" if pages else "never")
            plan = await table.scan(["price"], "price >= 10 and price < 1990", options=reading).plan()
            of_pages = [request.path for request in (await finished_requests(server))[len(opened) :]]
            assert sorted(of_pages) == [f"bucket/trades/{name}/_pages" for name in names[:2] if pages]
            announced = sorted(request.path for request in plan.metadata_requests)
            assert announced == sorted(record.path for record in table.request_log)
            before = len(await finished_requests(server))
            assert (await table.scan(["price"]).to_arrow()).num_rows == 3 * ROWS
            data = [(request.method, request.path) for request in (await finished_requests(server))[before:]]
            assert sorted(data) == [("GET", f"bucket/trades/{name}/data.parquet") for name in names]


async def test_columns_that_older_partitions_lack_are_null(tmp_path: Path) -> None:
    table = copy_parquet_partitions("column_added_before", tmp_path)
    names = sorted(path.name for path in table.iterdir())
    assert len(names) == len(list((GOLDEN / "column_added_before" / "table").glob("2024*")))
    async with cp.open_partitions(table, names) as opened:
        assert_same_rows(await opened.scan().to_arrow(), expected_rows("column_added_before"))


async def test_a_name_that_may_be_a_day_or_the_rest_of_a_month(tmp_path: Path) -> None:
    """A table by month, of which only split pieces are named: their names look like days."""
    for name, days in (("2024-03-05", (4, 5, 6)), ("2024-03-08", (7, 8))):
        rows = pa.concat_tables([trades_of(day, 10) for day in days])
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.parquet").write_bytes(parquet_of(rows, row_groups=1))
    async with cp.open_partitions(tmp_path, ["2024-03-08", "2024-03-05"]) as table:
        assert (await table.scan(["price"]).to_arrow())["price"].to_pylist() == list(range(40, 90))
        assert await table.scan(where="ts >= '2024-03-07' and ts < '2024-03-08'").count() == 10
        assert await table.scan(where="ts >= '2024-03-09'").count() == 10


@pytest.mark.parametrize(
    ("days_of", "match"),
    [
        ({"2024-03": (0, 1, 2), "2024-03-02": (1,)}, r"2024-03: its rows are of 2024-03-01.* to 2024-03-03"),
        ({"2024-03-01.9": (0,), "2024-03-01T12.4": (0,)}, r"2024-03-01\.9: its rows are of 2024-03-01"),
        ({"2024-03-01": (0,), "2024-03-03": (0,)}, r"2024-03-03: its rows are of 2024-03-01"),
    ],
)
async def test_rows_that_would_be_read_twice_or_missed(
    tmp_path: Path, days_of: dict[str, tuple[int, ...]], match: str
) -> None:
    for name, days in days_of.items():
        rows = pa.concat_tables([trades_of(day, 10) for day in days])
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.parquet").write_bytes(parquet_of(rows, row_groups=1))
    with pytest.raises(FormatError, match=match) as caught:
        await cp.open_partitions(tmp_path, days_of)
    assert caught.value.kind == "TimeRangeMismatch"


async def test_archived_ones_are_refused_or_left_out() -> None:
    store = await make_store(DAYS[1])
    async with cp.open_partitions("trades", DAYS[:3], store=store) as table:
        with pytest.raises(cp.errors.ArchivedObjectError, match=r"2024-03-02\.1"):
            await table.scan(["price"]).to_arrow()
        left = await table.scan(["day", "price"], options=cp.ReadOptions(archived="skip")).to_arrow()
        assert set(left["day"].to_pylist()) == {0, 2}


@pytest.mark.parametrize(
    ("archived", "command"),
    [
        (DAYS[:1], f"coldparquet restore trades/{DAYS[0]} --all"),
        (DAYS[:2], f"for name in {DAYS[0]} {DAYS[1]}; do coldparquet restore trades/$name --all; done"),
    ],
)
async def test_no_more_is_restored_than_was_named(archived: list[str], command: str) -> None:
    store = await make_store(*archived)
    async with cp.open_partitions("trades", DAYS[:3], store=store) as table:
        for where in (None, "price >= -100"):
            with pytest.raises(cp.errors.ArchivedObjectError) as caught:
                await table.scan(["price"], where).to_arrow()
            assert command in str(caught.value)


async def test_archived_metadata_is_a_matter_of_the_scans() -> None:
    store = await make_store(DAYS[1])
    for day in DAYS:
        await store.delete(f"trades/{day}/_pm")
    async with cp.open_partitions("trades", DAYS[:3], store=store) as table:
        with pytest.raises(cp.errors.ArchivedObjectError):
            await table.scan(["price"]).to_arrow()
        left = await table.scan(["day", "price"], options=cp.ReadOptions(archived="skip")).to_arrow()
        assert set(left["day"].to_pylist()) == {0, 2}


async def test_one_that_is_not_there(store: MemoryStore) -> None:
    with pytest.raises(NotFoundError, match=r"2024-03-09.*no partition of this name .* open_table"):
        await cp.open_partitions("trades", [NAMES[0], "2024-03-09"], store=store)


async def test_a_refresh_sees_what_was_replaced(store: MemoryStore) -> None:
    async with cp.open_partitions("trades", NAMES[:2], store=store) as table:
        assert await table.scan().count() == 2 * ROWS
        shorter = day_of_trades(1, rows=ROWS // 2, row_groups=1)
        await store.put(f"trades/{NAMES[1]}/data.parquet", shorter, overwrite=True)
        await index_table("trades", store=store, force=True, pages=False, pack=False)
        assert await table.refresh()
        assert await table.scan().count() == ROWS + ROWS // 2


@pytest.mark.parametrize(
    ("names", "kind", "match"),
    [
        ([], "InvalidInput", "no partition was named"),
        ("2024-03-01.7", "InvalidInput", "names is a str"),
        (7, "InvalidInput", "names is a int"),
        ([""], "NotAPartition", "'' is no name"),
        ([7], "NotAPartition", "7 is no name"),
        (["2024-03-01.7", "other.parquet"], "NotAPartition", "names are those of files and of directories"),
        (["https://u:SECRET@h/t/2024-03-01?X-Amz-Signature=SECRET"], "NotAPartition", "a name holds a slash"),
        (["../trades/2024-03-01.7"], "NotAPartition", "a name holds a slash"),
        (["x" * 3_000], "NotAPartition", "'x{79} is no name"),
        (["2024-03-01.7", "2024-03-01.7"], "SamePartition", "begin at the same time"),
        (["2024-03-01.7", "2024-03-01"], "SamePartition", "begin at the same time"),
        (["2024-03", "2024-03-01"], "SamePartition", "begin at the same time"),
    ],
)
async def test_what_cannot_be_read_together(store: MemoryStore, names: Any, kind: str, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match) as caught:
        await cp.open_partitions("trades", names, store=store)
    assert caught.value.kind == kind
    assert "SECRET" not in str(caught.value)


async def test_names_that_differ_in_case_alone_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "Day=1").mkdir()
    pq.write_table(pa.table({"day": [1]}), tmp_path / "Day=1" / "rows.parquet")
    async with cp.open_table(str(tmp_path)) as table:
        for _ in range(3):
            await table.refresh()
        explained = (await table.scan().plan()).explain()
    [record] = caplog.records
    assert "'day' and 'Day'" in record.getMessage()
    assert "differ in case alone" in explained
