"""The index of partition directories that are not ours to write to: it lies elsewhere, and is made of footers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.records import replace
from coldparquet.storage.requests import FetchedRange, Listing, RangeRequest
from tests.support.parquet_footers import parquet_bytes
from tests.support.small_tables import TABLE, QuotingStore, name_of, objects_of, table_of_days, trades_of
from tests.support.table_copies import copy_table

DAYS, ROWS = 20, 96
INDEX = "mine/indexes/trades"
OPENING = ["get _catalogue", "list "]


def directory_of(day: int) -> str:
    return f"2024-03-{day + 1:02}"


def file_of(day: int, rows: int = ROWS) -> bytes:
    return parquet_bytes(trades_of(day, rows), row_group_size=32)


def directories() -> dict[str, bytes]:
    return {f"{TABLE}/{directory_of(day)}/data.parquet": file_of(day) for day in range(DAYS)}


class TheirStore(QuotingStore):
    """Remembers which Parquet files were asked for."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.got: set[str] = set()

    async def get(self, request: RangeRequest) -> FetchedRange:
        if request.path.endswith(".parquet"):
            self.got.add(request.path.removeprefix(f"{TABLE}/"))
        return await super().get(request)


async def ask(store: QuotingStore, where: str | None, index: str | None = INDEX) -> tuple[pa.Table, list[str]]:
    """The rows of a question, and the requests in order of names."""
    async with cp.open_table(TABLE, store=store, options=cp.ReadOptions(index=index)) as table:
        rows = await table.scan(["ts", "price"], where).to_arrow()
        log = table.request_log
    return rows, sorted(
        f"{one.operation} {one.path.removeprefix(TABLE).lstrip('/').removeprefix(f'{INDEX}/')}" for one in log
    )


WEEK = "ts >= '2024-03-04' and ts < '2024-03-11' and price >= 0"


@pytest.mark.parametrize("verb", [index_table, pack_table])
async def test_a_week_takes_one_request_for_each_day_and_a_count_none(verb: Any) -> None:
    store = TheirStore(directories())
    expected, before = await ask(store, WEEK, None)
    assert expected.num_rows == 7 * ROWS
    assert len(before) > 7 * 2
    await verb(TABLE, store=store, index=INDEX)
    rows, log = await ask(store, WEEK)
    assert rows.equals(expected)
    assert log == sorted([*OPENING, "list ", *(f"get {directory_of(day)}/data.parquet" for day in range(3, 10))])
    async with cp.open_table(TABLE, store=store, options=cp.ReadOptions(index=INDEX)) as table:
        assert await table.scan().count() == DAYS * ROWS
        assert await table.scan(where="price < 5").count() == 5
        assert [one.path for one in table.request_log if "data.parquet" in one.path] == [
            f"{TABLE}/{directory_of(0)}/data.parquet"
        ]


async def test_only_what_is_new_or_replaced_is_read_again() -> None:
    store = TheirStore(directories())
    report = await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    assert report.catalogue is not None
    assert (report.catalogue.action, report.catalogue.packed_count) == ("written", DAYS)
    store.got.clear()
    again = await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    assert again.catalogue is not None
    assert (again.catalogue.action, store.got) == ("unchanged", set())
    await store.put(f"{TABLE}/{directory_of(4)}/data.parquet", file_of(4, 48), overwrite=True)
    await store.put(f"{TABLE}/{directory_of(20)}/data.parquet", file_of(20), overwrite=False)
    await store.delete([f"{TABLE}/{directory_of(0)}/data.parquet"])
    rows, _ = await ask(store, "ts >= '2024-03-05' and ts < '2024-03-06'")
    assert rows.num_rows == 48
    assert await problems(store) == {
        "": ["CatalogueNotUsed", "VanishedFiles"],
        directory_of(4): ["NoSidecar", "CatalogueNotUsed"],
        directory_of(20): ["NoSidecar"],
    }
    store.got.clear()
    await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    assert store.got == {f"{directory_of(day)}/data.parquet" for day in (4, 20)}
    assert await problems(store) == {}


async def problems(store: QuotingStore) -> dict[str, list[str]]:
    """Kinds of what verifying finds in the table and its partitions, but for advice about their layout."""
    report = await verify_table(TABLE, store=store, index=INDEX)
    found = {"": report.findings, **{one.name: one.findings for one in report.partitions}}
    layout = {"SmallRowGroups", "NoDesignatedTimestamp", "DeadBytes"} | {
        "TimeRangeMismatch"
    }  # `table_of_days` repeats a day
    kinds = {name: [one.kind for one in findings if one.kind not in layout] for name, findings in found.items()}
    return {name: of_one for name, of_one in kinds.items() if of_one}


async def test_a_transaction_that_changed_since_the_index_is_asked_for() -> None:
    store = TheirStore(table_of_days(DAYS))
    await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    fewer = table_of_days(DAYS - 1)
    await store.put(f"{TABLE}/_txn", fewer[f"{TABLE}/_txn"], overwrite=True)
    expected, _ = await ask(store, "price > 0", None)
    rows, log = await ask(store, "price > 0")
    assert rows.equals(expected)
    files = [f"get {name_of(day)}/data.parquet" for day in range(DAYS)]
    # What the index holds of _meta is still the listed version; _txn is asked for after the listing.
    assert log == sorted([*OPENING, "get _txn", *files[:-1]])
    await store.delete([f"{TABLE}/_txn"])
    expected, _ = await ask(store, "price > 0", None)
    rows, log = await ask(store, "price > 0")
    assert not {"get _txn", "get _meta"} & set(log)
    assert rows.equals(expected)


async def test_an_index_of_another_table_lends_no_transaction() -> None:
    store, other = TheirStore(table_of_days(DAYS)), TheirStore(table_of_days(4))
    await index_table(TABLE, store=other, index=INDEX, pages=False, pack=False)
    stolen = other._objects[f"{INDEX}/_catalogue"].data
    await store.put(f"{INDEX}/_catalogue", stolen, overwrite=False)
    expected, _ = await ask(store, None, None)
    rows, log = await ask(store, None)
    assert rows.equals(expected)
    assert "get _txn" in log


async def test_a_directory_of_more_than_a_page_is_listed_while_its_transaction_is_asked_for() -> None:
    class Paged(TheirStore):
        async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
            listing = await super().list(path)
            if not first_page_only:
                return listing
            return replace(listing, directories=listing.directories[:3], objects=(), is_complete=False)

    store = Paged(table_of_days(DAYS))
    await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    expected, _ = await ask(store, "price > 0", None)
    rows, log = await ask(store, "price > 0")
    assert rows.equals(expected)
    files = [f"get {name_of(day)}/data.parquet" for day in range(DAYS)]
    assert log == sorted([*OPENING, "get _txn", "get _meta", *files]), "the index says that there was one"
    store = Paged(directories())
    await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    expected, _ = await ask(store, WEEK, None)
    rows, log = await ask(store, WEEK)
    assert rows.equals(expected)
    files = [f"get {directory_of(day)}/data.parquet" for day in range(3, 10)]
    assert log == sorted([*OPENING, "get _txn", "get _meta", "list ", "list ", *files]), "all, and their versions"


async def test_a_store_that_refuses_listings_is_asked_for_the_transaction() -> None:
    class Unlisted(TheirStore):
        async def list(self, path: str, *, first_page_only: bool = False) -> Any:  # noqa: ARG002 - as in any store
            raise cp.errors.AccessError("no listing", path=path)

    store = TheirStore(table_of_days(DAYS))
    await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    unlisted = Unlisted({path: stored.data for path, stored in store._objects.items()})
    rows, log = await ask(unlisted, "price > 0")
    assert rows.num_rows > 0
    assert {"get _txn", "get _meta", "get _catalogue"} <= set(log)


@pytest.mark.parametrize("has_sidecars", [False, True])
async def test_what_a_transaction_commits_needs_no_listing(*, has_sidecars: bool) -> None:
    objects = {
        path: data
        for path, data in table_of_days(DAYS).items()
        if not path.endswith("/_pm") or (has_sidecars and name_of(3) in path)
    }
    store = TheirStore(objects)
    before = dict(store._objects)
    report = await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    assert report.catalogue is not None
    assert report.catalogue.packed_count == DAYS
    assert {path: found for path, found in store._objects.items() if path.startswith(TABLE)} == before
    expected, _ = await ask(store, "price > 0", None)
    rows, log = await ask(store, "price > 0")
    assert rows.equals(expected)
    assert log == sorted([*OPENING, *(f"get {name_of(day)}/data.parquet" for day in range(DAYS))])
    assert await problems(store) == {}
    store.got.clear()
    again = await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    assert again.catalogue is not None
    assert (again.catalogue.action, store.got) == ("unchanged", set())


async def test_native_partitions_are_left_out(tmp_path: Path) -> None:
    store = TheirStore(objects_of(copy_table("interval_day", tmp_path)))
    report = await index_table(TABLE, store=store, index=INDEX, pages=False, pack=False)
    assert report.catalogue is not None
    reasons = [one.reason for one in report.catalogue.partitions]
    assert reasons == [None, None, None, None, "in QuestDB's native format"]
    expected, _ = await ask(store, None, None)
    rows, log = await ask(store, None)
    assert rows.equals(expected)
    assert not any(entry.endswith("/_pm") for entry in log)


async def test_one_partition_has_no_index_of_its_own() -> None:
    store = TheirStore(directories())
    for path in (f"{TABLE}/{directory_of(3)}", f"{TABLE}/{directory_of(3)}/data.parquet"):
        with pytest.raises(cp.errors.InvalidInputError, match="name the table's directory"):
            await index_table(path, store=store, index=INDEX, pages=False, pack=False)
