"""Nothing is fetched twice: what a table remembers of its store, as the server sees it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.catalog import caches, packed
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.storage import cache, disk_cache
from coldparquet.storage.s3.store import S3Store
from coldparquet.table import Table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.blooms import file_with_blooms
from tests.support.disk_caches import poison
from tests.support.questdb_tables import GOLDEN

TABLE = "o3_in_place"
URL = "s3://bucket/trades"
CHANGED_LATER = "2024-01-01.2"
"""The only partition into which the late row falls that is the difference between the first two moments."""
SECRET = "planted-secret-0123456789"  # noqa: S105 - to be searched for


@pytest.fixture
async def table_path(tmp_path: Path) -> Path:
    """A genuine table in a bucket, with sidecars, at its first moment."""
    path = tmp_path / "served" / "bucket" / "trades"
    shutil.copytree(GOLDEN / TABLE / "table", path)
    set_moment(path, "0_converted")
    await index_table(path, pages=False, pack=False)
    return path


@pytest.fixture
def server(table_path: Path) -> Iterator[ColdStoreServer]:
    with ColdStoreServer(table_path.parents[1]) as running:
        yield running


def set_moment(path: Path, moment: str) -> None:
    for name in ("_meta", "_cv", "_txn"):
        shutil.copyfile(GOLDEN / TABLE / "expected" / "snapshots" / moment / name, path / name)


def opened(server: ColdStoreServer, **options: object) -> cp.opening.Opening:
    return cp.open_table(
        URL,
        storage_options={**server.storage_options, "secret": SECRET},
        store_options=cp.StoreOptions(**options),  # type: ignore[arg-type]
    )


def partition_requests(server: ColdStoreServer) -> list[tuple[str, str, int]]:
    """Return what was asked of partitions since the last time: method, object and bytes of it in the answer."""
    found = [
        (served.method, "/".join(served.path.split("/")[-2:]), served.bytes_sent if served.status < 300 else 0)
        for served in server.requests
        if "/20" in served.path
    ]
    server.reset()
    return found


async def answers(table: Table) -> list[object]:
    """Ask one question of each kind."""
    return [
        await table.scan(["ts", "price"], "price > 20 and ts < '2024-01-03'").to_arrow(),
        await table.scan(["ts", "price"]).to_arrow(),
        await table.scan(where="price > 20").count(),
        await table.scan(["ts"], "price > 20", limit=5).to_arrow(),
        await table.scan().min_max("price"),
        (await table.scan(["price"]).tail(3)).to_pylist(),
    ]


async def test_a_repeated_question_costs_no_request(server: ColdStoreServer) -> None:
    async with opened(server) as table:
        first = await answers(table)
        assert server.requests
        server.reset()
        assert await answers(table) == first
        assert (await table.scan(["price"], "price > 20 and ts < '2024-01-03'").to_arrow()).num_rows
        assert partition_requests(server) == []


def validations(server: ColdStoreServer) -> int:
    """Count what was asked of partitions since the last time; none of the answers may hold bytes."""
    asked = partition_requests(server)
    assert sum(received_bytes for _, _, received_bytes in asked) == 0
    return len(asked)


async def test_a_table_that_is_opened_anew_validates_and_fetches_no_byte_of_a_partition(
    server: ColdStoreServer,
) -> None:
    async with opened(server) as table:
        first = await answers(table)
        server.reset()
    async with opened(server) as table:
        assert await answers(table) == first
    assert validations(server)
    async with opened(server) as table, opened(server) as other:
        one, two = await asyncio.gather(answers(table), answers(other))
        assert one == two == first
    assert validations(server)


async def test_a_catalogue_longer_than_one_request_is_validated_once(
    days: ColdStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pack_table("s3://bucket/trades", storage_options=days.storage_options)
    monkeypatch.setattr(packed, "_FIRST_REQUEST_BYTES", 100)
    found = []
    for _ in range(2):
        days.reset()
        async with cp.open_table(URL, storage_options=days.storage_options) as table:
            found.append(await table.scan(where="ts < '2024-01-02'").count())
        asked = [served.status for served in days.requests if served.path.endswith("/_catalogue")]
    assert found == [100, 100]
    assert asked == [304]


async def test_what_was_replaced_meanwhile_is_fetched_by_a_table_that_is_opened_anew(
    server: ColdStoreServer, table_path: Path
) -> None:
    async with opened(server) as table:
        rows = await table.scan(["ts", "price"]).to_arrow()
    data = table_path / CHANGED_LATER / "data.parquet"
    data.write_bytes(data.read_bytes())  # the same rows in another version
    server.reset()
    async with opened(server) as table:
        assert (await table.scan(["ts", "price"]).to_arrow()).equals(rows)
    fetched = {path for _, path, received_bytes in partition_requests(server) if received_bytes}
    assert fetched == {f"{CHANGED_LATER}/data.parquet"}


async def test_what_was_fetched_with_some_credentials_is_not_shown_to_others(table_path: Path) -> None:
    with ColdStoreServer(table_path.parents[1], ColdStoreOptions(secret_key=SECRET)) as server:
        async with opened(server) as table:
            await answers(table)
        for other in ({"secret": "another"}, {"anon": True, "key": None, "secret": None}):
            given = {**server.storage_options, **other}
            with pytest.raises(cp.errors.AccessError):
                async with cp.open_partition(f"{URL}/{CHANGED_LATER}", storage_options=given) as partition:
                    await partition.scan(["price"]).to_arrow()


DAYS = [f"2024-{month:02}-{day:02}" for month in (1, 7) for day in range(1, 11)]


@pytest.fixture
async def days(tmp_path: Path) -> AsyncIterator[ColdStoreServer]:
    """Serve a table of days, without a ``_txn``, of which metadata cannot count ``price > 1``."""
    for day in DAYS:
        write_day(tmp_path, day, 0.0)
    await index_table(tmp_path / "bucket" / "trades", pages=False, pack=False)
    with ColdStoreServer(tmp_path) as running:
        yield running


def write_day(root: Path, day: str, first: float) -> None:
    path = root / "bucket" / "trades" / day / "data.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    start = np.datetime64(day, "us")
    times = start + np.arange(100) * np.timedelta64(1, "s")
    prices = first + np.arange(100.0)
    pq.write_table(pa.table({"ts": times, "price": prices}), path, use_dictionary=False, compression="none")


def sent(server: ColdStoreServer, operation: str) -> int:
    return sum(served.operation == operation for served in server.requests)


async def test_an_old_listing_shows_the_rows_of_one_version_or_none(
    days: ColdStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_between, listings = S3Store.list_between, list[object]()

    async def remembered(*arguments: Any, **keywords: Any) -> object:
        listings.append(await list_between(*arguments, **keywords))
        return listings[0]

    monkeypatch.setattr(S3Store, "list_between", remembered)
    async with cp.open_table(URL, storage_options=days.storage_options) as table:
        before = await table.scan(["price"]).to_arrow()
    write_day(tmp_path, DAYS[3], 1_000.0)
    async with cp.open_table(URL, storage_options=days.storage_options) as table:
        assert (await table.scan(["price"]).to_arrow()).equals(before)  # all held, as when it was listed
        with pytest.raises(cp.errors.ObjectChangedError):
            await table.scan(["ts", "price"]).to_arrow()
    assert len(listings) == 2


async def test_a_listing_tells_what_was_fetched_with_the_same_credentials_is_valid(days: ColdStoreServer) -> None:
    """By one who may list and not read, nothing would be asked of the objects; so others ask for each."""
    for key, asked in (("first", 20), ("first", 0), ("second", 20)):
        async with cp.open_table(URL, storage_options={**days.storage_options, "key": key}) as table:
            days.reset()
            assert (await table.scan(["price"]).to_arrow()).num_rows == 100 * len(DAYS)
        assert len({served.path for served in days.requests if served.path.endswith("/data.parquet")}) == asked


async def test_the_newest_partition_is_read_while_a_table_that_is_opened_anew_is_listed(
    days: ColdStoreServer, tmp_path: Path
) -> None:
    async with cp.open_table(URL, storage_options=days.storage_options) as table:
        assert table.schema.names == ["ts", "price"]
    with ColdStoreServer(tmp_path, ColdStoreOptions(first_byte_s=0.05)) as slow:
        for is_known in (False, True):
            slow.reset()
            async with cp.open_table(URL, storage_options=slow.storage_options):
                [listing] = [served for served in slow.requests if served.operation == "ListObjectsV2"]
                [sidecar] = [served for served in slow.requests if served.path.endswith("/_pm")]
                assert (sidecar.started_s < listing.finished_s) is is_known
        newer = pa.table({"ts": [np.datetime64("2024-08-01", "us")], "volume": [1]})
        (tmp_path / "bucket" / "trades" / "2024-08-01").mkdir()
        pq.write_table(newer, tmp_path / "bucket" / "trades" / "2024-08-01" / "data.parquet")
        async with cp.open_table(URL, storage_options=slow.storage_options) as table:
            assert table.schema.names == ["ts", "volume"]
            assert await table.scan().count() == 100 * len(DAYS) + 1


async def test_a_table_that_had_no_transaction_file_is_asked_for_one_only_where_the_listing_shows_it(
    days: ColdStoreServer, tmp_path: Path
) -> None:
    for asked in ({"_txn", "_meta"}, set()):
        days.reset()
        async with cp.open_table(URL, storage_options=days.storage_options) as table:
            assert await table.scan().count() == 100 * len(DAYS)
        assert {served.path.rpartition("/")[2] for served in days.requests} & {"_txn", "_meta"} == asked
    (tmp_path / "bucket" / "trades" / "_txn").write_bytes(b"damaged")
    with pytest.raises(cp.errors.NotFoundError, match="there is a _txn, but no _meta"):
        await cp.open_table(URL, storage_options=days.storage_options)


LONG_AGO_S = 1_700_000_000


def written(tmp_path: Path, *, data_s: int, description_s: int) -> None:
    """Let the files of a day say when they were written, in seconds after a moment long ago."""
    for path in (tmp_path / "bucket" / "trades" / DAYS[0]).iterdir():
        moment_s = LONG_AGO_S + (data_s if path.name == "data.parquet" else description_s)
        os.utime(path, (moment_s, moment_s))


@pytest.fixture
def one_day(tmp_path: Path) -> Iterator[ColdStoreServer]:
    write_day(tmp_path, DAYS[0], 0.0)
    asyncio.run(index_table(tmp_path / "bucket" / "trades", pages=True, pack=False))
    written(tmp_path, data_s=0, description_s=1)
    with ColdStoreServer(tmp_path) as running:
        yield running


async def asked_for_prices(server: ColdStoreServer, **options: str) -> tuple[float, list[str]]:
    """Open a partition anew, read it, and return the first price with the names of the objects that were asked for."""
    server.reset()
    options = {**server.storage_options, **options}
    async with cp.open_partition(f"{URL}/{DAYS[0]}", storage_options=options) as partition:
        prices = (await partition.scan(["price"], "ts >= '2024-01-01T00:00:01'").to_arrow()).column("price")
    return prices[0].as_py(), sorted({served.path.rpartition("/")[2] for served in server.requests})


ALL = ["_pages", "_pm", "data.parquet"]


async def test_a_partition_that_is_opened_anew_takes_the_head_of_its_data_alone(
    one_day: ColdStoreServer, tmp_path: Path
) -> None:
    path = tmp_path / "bucket" / "trades" / DAYS[0]
    assert await asked_for_prices(one_day) == (1.0, ALL)
    assert await asked_for_prices(one_day) == (1.0, ["data.parquet"])
    assert [served.method for served in one_day.requests] == ["HEAD"]
    write_day(tmp_path, DAYS[0], 1_000.0)  # of the same size, and its sidecar is written last
    await index_table(path.parent, pages=True, force=True, pack=False)
    written(tmp_path, data_s=50, description_s=51)
    assert await asked_for_prices(one_day) == (1_001.0, ALL)
    assert await asked_for_prices(one_day) == (1_001.0, ["data.parquet"])


async def test_others_ask_for_what_describes_the_data(one_day: ColdStoreServer) -> None:
    for key, asked in (("first", ALL), ("first", ["data.parquet"]), ("second", ALL), ("second", ["data.parquet"])):
        assert await asked_for_prices(one_day, key=key) == (1.0, asked)


@pytest.mark.parametrize("is_now", [True, False], ids=["in the second of the data, just now", "before the data"])
async def test_what_may_describe_earlier_data_is_asked_for_each_time(
    one_day: ColdStoreServer, tmp_path: Path, *, is_now: bool
) -> None:
    written(tmp_path, data_s=1, description_s=0)
    if is_now:
        now_s = int(time.time()) - LONG_AGO_S
        written(tmp_path, data_s=now_s, description_s=now_s)
    for _ in range(3):
        assert await asked_for_prices(one_day) == (1.0, ALL)


async def test_what_is_written_meanwhile_beside_unchanged_data_is_seen(
    one_day: ColdStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        _, asked = await asked_for_prices(one_day)
    assert asked == ["data.parquet"]
    await index_table(
        URL, storage_options=one_day.storage_options, pages=True, force=True, pack=False
    )  # by this process: at once
    assert (await asked_for_prices(one_day))[1] == ALL
    assert (await asked_for_prices(one_day))[1] == ["data.parquet"]
    async with cp.open_partition(f"{URL}/{DAYS[0]}", storage_options=one_day.storage_options) as partition:
        one_day.reset()
        await partition.refresh()
        assert {served.path.rpartition("/")[2] for served in one_day.requests} == set(ALL)
    monkeypatch.setattr(cache, "_DESCRIBED_S", 0.0)  # by others: after a minute
    for _ in range(2):
        await index_table(URL, storage_options=one_day.storage_options, pages=True, force=True, pack=False)
        assert [(await asked_for_prices(one_day))[1] for _ in range(2)] == [ALL, ALL]


async def take_a_batch(server: ColdStoreServer) -> None:
    """As blocking calls do, whose errors do not pass the end of the stream."""
    server.reset()
    async with cp.open_partition(f"{URL}/{DAYS[0]}", storage_options=server.storage_options) as partition:
        batches = await partition.scan(["price"]).batches().__aenter__()
        try:
            await batches.next_batch()
        finally:
            await batches.aclose()


async def test_what_rows_do_not_decode_by_is_fetched_again_by_the_next_table(
    one_day: ColdStoreServer, tmp_path: Path
) -> None:
    path = tmp_path / "bucket" / "trades" / DAYS[0]
    sound = (path / "data.parquet").read_bytes()
    rest = sound[4:].replace(b"\x15\x00", b"\x15\x7f")  # no page begins like this
    (path / "data.parquet").write_bytes(sound[:4] + rest)
    await index_table(path.parent, force=True, pages=False, pack=False)
    written(tmp_path, data_s=0, description_s=1)
    for ask in (asked_for_prices, take_a_batch) * 2:
        with pytest.raises(cp.errors.FormatError):
            await ask(one_day)
        assert {served.path.rpartition("/")[2] for served in one_day.requests if served.bytes_sent} >= {"_pm"}


async def test_storage_classes_are_listed_only_where_little_else_lies_between(days: ColdStoreServer) -> None:
    near, far = DAYS[:10] + DAYS[10:13], [DAYS[place] for place in range(0, 20, 7)]
    async with cp.open_table(URL, storage_options=days.storage_options) as table:
        days.reset()
        assert await table.scan(where="price > 1").count() == 98 * len(DAYS)
        assert (sent(days, "HeadObject"), sent(days, "ListObjectsV2")) == (0, 1)
    for names, heads in ((near, 13), (far, 3)):
        async with cp.open_partitions(URL, names, storage_options=days.storage_options) as table:
            days.reset()
            assert await table.scan(where="price > 1").count() == 98 * len(names)
            assert (sent(days, "ListObjectsV2"), sent(days, "HeadObject") <= heads) == (0, True)


@pytest.mark.parametrize(
    "forget", [cp.clear_caches, lambda: None], ids=["cleared by a call", "a memory of the table's own"]
)
async def test_what_the_process_keeps_can_be_cleared_or_not_used(
    server: ColdStoreServer, forget: Callable[[], None]
) -> None:
    options = {} if forget is cp.clear_caches else {"cache_limit_bytes": 1 << 24}
    for _ in range(2):
        async with opened(server, **options) as table:
            await table.scan(["price"]).to_arrow()
        assert {"data.parquet"} <= {path.split("/")[1] for _, path, got in partition_requests(server) if got}
        forget()


def held_bytes() -> int:
    return caches.PROCESS_RANGES.held_bytes + caches.PROCESS_SIDECARS.held_bytes


async def test_a_forked_child_begins_with_nothing(server: ColdStoreServer) -> None:
    async with opened(server) as table:
        await table.scan(["price"]).to_arrow()
    held = held_bytes()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert await asyncio.to_thread(pool.apply, held_bytes) == 0
    assert held_bytes() == held > 0


async def test_what_a_closer_look_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    rows = 200_000
    table = pa.table({"id": pa.array((np.arange(rows) * 7_919) % 1_000_003), "value": pa.array(np.arange(rows) * 0.5)})
    path = tmp_path / "bucket" / "2024-03-01" / "data.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(file_with_blooms(table, row_group_rows=50_000, write_page_index=True, data_page_size=16_384))
    with ColdStoreServer(tmp_path) as server:
        url = f"s3://bucket/{path.parent.name}"
        async with cp.open_partition(url, storage_options=server.storage_options) as partition:
            questions = [f"id = {number}" for number in (7_919, 5, 500_000)] + [
                "value < 700",
                "value > 40000 and id < 9",
            ]
            first = [await partition.scan(where=question).to_arrow() for question in questions]
            assert {record.reason for record in partition.request_log} >= {"bloom filter", "page index"}
            server.reset()
            assert [await partition.scan(where=question).to_arrow() for question in questions] == first
            assert await partition.scan(where="id = 5").count() == first[1].num_rows
            plan = await partition.scan(where="id = 5").plan()
            assert "bloom filter" not in {request.reason for request in plan.metadata_requests}
            assert not server.requests


async def test_a_store_that_turns_out_to_be_slow_does_not_change_what_a_repeated_question_asks_for(
    tmp_path: Path,
) -> None:
    """Chunks lie 1.3 MiB apart: at the published latency two requests are faster than one over the gap, at 200 ms they are not."""
    noise = np.random.default_rng(1).random(320_000)
    short = {f"short_{number}": np.arange(len(noise)) % 100 for number in range(5)}
    between = noise.astype(np.float32)
    columns = {"first": noise, "second": noise, "before": between, **short, "behind": between, "last": noise}
    path = tmp_path / "bucket" / "2024-03-01" / "data.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), path, row_group_size=len(noise) // 2, use_dictionary=list(short))  # type: ignore[arg-type]  # names of columns are allowed as well
    options = cp.ReadOptions(max_concurrency=2)
    with ColdStoreServer(tmp_path, ColdStoreOptions(first_byte_s=0.2)) as server:
        url = f"s3://bucket/{path.parent.name}"
        async with cp.open_partition(url, storage_options=server.storage_options, options=options) as partition:
            asked = ["first", "second", "last"]
            first = await partition.scan(asked).plan()
            rows_read = await partition.scan(asked).to_arrow()
            for name in short:
                await partition.scan([name]).to_arrow()  # short requests, which show the latency
            server.reset()
            assert (await partition.scan(asked).plan()).requests == first.requests
            assert (await partition.scan(asked).to_arrow()).equals(rows_read)
            assert not server.requests
            # Of what was never asked before, fewer and longer requests pay by now.
            assert (await partition.scan(asked[::-1]).plan()).request_count < first.request_count


async def test_after_a_refresh_only_the_tables_own_files_are_asked_for(server: ColdStoreServer) -> None:
    async with opened(server) as table:
        first = await answers(table)
        server.reset()
        await table.refresh()
        assert await answers(table) == first
        assert partition_requests(server) == []


async def test_after_a_change_only_what_changed_is_asked_for(server: ColdStoreServer, table_path: Path) -> None:
    async with opened(server) as table:
        await answers(table)
        set_moment(table_path, "1_one_late_row")
        await table.refresh()
        server.reset()
        rows = await table.scan(["ts", "price"], "ts < '2024-01-03'").to_arrow()
        assert {path.split("/")[0] for _, path, _ in partition_requests(server)} == {CHANGED_LATER}
    async with opened(server, cache_limit_bytes=0) as table:
        assert (await table.scan(["ts", "price"], "ts < '2024-01-03'").to_arrow()).equals(rows)


async def test_a_limit_of_0_keeps_nothing(server: ColdStoreServer) -> None:
    async with opened(server, cache_limit_bytes=0) as table:
        scan = table.scan(["ts", "price"])
        await scan.to_arrow()
        before = len(partition_requests(server))
        await scan.to_arrow()
        assert 0 < len(partition_requests(server)) <= before


async def test_a_scan_of_more_than_the_limit_pushes_nothing_out(server: ColdStoreServer) -> None:
    async with opened(server, cache_limit_bytes=16_000) as table:
        small = table.scan(["price"], "ts < '2024-01-01T01:00'")
        rows = await small.to_arrow()
        large = table.scan(options=cp.ReadOptions(memory_limit_bytes=1 << 20))
        assert (await large.plan()).bytes_fetched > 16_000
        for _ in range(2):
            server.reset()
            await large.to_arrow()
            assert len(partition_requests(server)) >= (await large.plan()).request_count
        assert (await small.to_arrow()).equals(rows)
        assert partition_requests(server) == []


async def test_scans_at_the_same_time_share_what_both_need(server: ColdStoreServer) -> None:
    async with opened(server) as table:
        await table.scan(["ts", "price"]).plan()
        server.reset()
        one, other = await asyncio.gather(*(table.scan(["ts", "price"]).to_arrow() for _ in range(2)))
        assert one.equals(other)
        gets = [(method, path) for method, path, _ in partition_requests(server) if method == "GET"]
        assert sorted(set(gets)) == sorted(gets)
        assert len(gets) == 4


async def test_a_new_process_fetches_no_byte_of_a_partition_again(server: ColdStoreServer, tmp_path: Path) -> None:
    directory = str(tmp_path / "cache")
    async with opened(server, cache_directory=directory, cache_limit_bytes=0) as table:
        first = await answers(table)
        server.reset()
    async with opened(server, cache_directory=directory, cache_limit_bytes=0) as table:
        assert await answers(table) == first
        again = partition_requests(server)
    assert again
    assert sum(received_bytes for _, _, received_bytes in again) == 0
    async with opened(server, cache_directory=directory, cache_limit_bytes=0, sidecar_trust_s=3_600) as table:
        assert await answers(table) == first
        server.reset()
    async with opened(server, cache_directory=directory, cache_limit_bytes=0, sidecar_trust_s=3_600) as table:
        assert await answers(table) == first
    assert [request for request in partition_requests(server) if request[1].endswith("/_pm")] == []


async def test_the_cache_on_disk_is_private_and_holds_no_secret(server: ColdStoreServer, tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    async with opened(server, cache_directory=str(directory)) as table:
        await answers(table)
    assert_private(directory)


async def test_the_query_string_of_a_presigned_url_is_not_in_the_cache(
    server: ColdStoreServer, table_path: Path, tmp_path: Path
) -> None:
    await index_table(
        table_path / CHANGED_LATER, pages=False, pack=False
    )  # by itself, without the table's _txn, all of its file counts
    directory = tmp_path / "cache"
    url = f"{server.endpoint_url}/bucket/trades/{CHANGED_LATER}/data.parquet?X-Amz-Signature={SECRET}"
    options = cp.StoreOptions(cache_directory=str(directory))
    for expected_requests in ({"GET"}, set()):
        async with cp.open_partition(url, store_options=options) as partition:
            await partition.scan(["ts"]).plan()
            server.reset()
            assert (await partition.scan(["price"]).to_arrow()).num_rows
            assert {
                method for method, _, received_bytes in partition_requests(server) if received_bytes
            } == expected_requests
    assert_private(directory)


def assert_private(directory: Path) -> None:
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    for path in directory.rglob("*"):
        assert not path.stat().st_mode & 0o077
        assert not any(word in str(path.relative_to(directory)) for word in ("bucket", "trades", SECRET))
    for path in files:
        assert SECRET.encode() not in path.read_bytes()


def _break_every_page(directory: Path) -> None:
    [path] = directory.rglob("cache.sqlite")
    content = bytearray(path.read_bytes())
    for place in range(4095, len(content), 4096):
        content[place] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [poison, _break_every_page])
async def test_a_poisoned_cache_changes_no_row(
    server: ColdStoreServer, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    directory = tmp_path / "cache"
    async with opened(server, cache_directory=str(directory)) as table:
        first = await answers(table)
    damage(directory)
    cp.clear_caches()  # the memory of the process, as in a new one
    async with opened(server, cache_directory=str(directory), sidecar_trust_s=3_600) as table:
        assert await answers(table) == first


async def test_a_cache_that_cannot_be_written_fails_no_read(
    server: ColdStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(disk_cache, "make_room", full)
    async with opened(server, cache_directory=str(tmp_path / "cache")) as table:
        first = await answers(table)
        assert await answers(table) == first


async def test_local_files_are_not_kept(table_path: Path, tmp_path: Path) -> None:
    options = cp.StoreOptions(cache_directory=str(tmp_path / "cache"))
    async with cp.open_table(table_path, store_options=options) as table:
        await table.scan(["price"]).to_arrow()
        before = len(table.request_log)
        await table.scan(["price"]).to_arrow()
        assert len(table.request_log) > before
    assert not (tmp_path / "cache").exists()


async def test_data_that_was_replaced_is_an_error_until_the_table_is_refreshed(
    server: ColdStoreServer, table_path: Path
) -> None:
    data = table_path / CHANGED_LATER / "data.parquet"
    async with opened(server) as table:
        rows = await table.scan(["ts", "price"]).to_arrow()
        data.write_bytes(data.read_bytes())
        server.reset()
        await table.refresh()
        assert (await table.scan(["ts", "price"]).to_arrow()).equals(rows)
        with pytest.raises(cp.errors.ObjectChangedError):
            await table.scan(options=cp.ReadOptions(page_index="never")).to_arrow()
        await table.refresh()
        assert (await table.scan().to_arrow()).num_rows == rows.num_rows
