"""Looking at many data objects: one listing where it saves requests, and a look of its own where it does not tell enough."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.catalog.objects import ListedObjects
from coldparquet.errors import AccessError, ObjectChangedError
from coldparquet.maintenance.pack import pack_table
from tests.support.small_tables import TABLE, QuotingStore, StoreWithClasses, name_of, partitions_alone, table_of_days

if TYPE_CHECKING:
    from coldparquet.storage.log import RequestRecord
    from coldparquet.storage.requests import ObjectInfo

DAYS, ROWS = 30, 48


class ListingStore(StoreWithClasses):
    """Lists every object with its storage class."""

    classes: dict[str, str]

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        listed = await QuotingStore.list_between(self, path, start=start, stop=stop)
        return tuple(replace(info, storage_class=self.classes.get(info.path, "STANDARD")) for info in listed)


def store_of(objects: dict[str, bytes], **classes: str) -> ListingStore:
    store = ListingStore(objects)
    store.classes = {f"{TABLE}/{name_of(int(day[1:]))}/data.parquet": name for day, name in classes.items()}
    return store


def looks(log: tuple[RequestRecord, ...]) -> list[tuple[str, str]]:
    """The HEADs, and the listings behind that which found the partitions."""
    seen = [(record.operation, record.path.removeprefix(TABLE).lstrip("/")) for record in log]
    seen.remove(("list", ""))
    return [each for each in seen if each[0] in {"info", "list"}]


async def test_one_listing_in_place_of_a_look_at_every_partition() -> None:
    store = store_of(partitions_alone(DAYS))
    async with cp.open_table(TABLE, store=store) as table:
        plan = await table.scan().plan()
        assert looks(table.request_log) == [("list", "")]
        assert {partition.storage_class for partition in plan.partitions} == {"STANDARD"}
        assert (await table.scan().to_arrow()).num_rows == DAYS * ROWS
        assert looks(table.request_log) == [("list", "")], "what was listed is remembered"


async def test_a_few_partitions_are_looked_at_one_by_one() -> None:
    store = store_of(partitions_alone(6))
    async with cp.open_table(TABLE, store=store) as table:
        await table.scan().plan()
        assert looks(table.request_log) == [("info", f"{name_of(day)}/data.parquet") for day in range(6)]


async def test_classes_that_a_listing_does_not_tell_enough_of_are_looked_at() -> None:
    store = store_of(partitions_alone(DAYS), d3="GLACIER", d7="INTELLIGENT_TIERING", d9="GLACIER_IR")
    async with cp.open_table(TABLE, store=store) as table:
        await table.scan().plan()
        assert sorted(looks(table.request_log)) == [
            ("info", f"{name_of(3)}/data.parquet"),
            ("info", f"{name_of(7)}/data.parquet"),
            ("list", ""),
        ]


async def test_with_a_catalogue_a_listing_is_worth_it_for_half_as_many() -> None:
    store = store_of(partitions_alone(8))
    await pack_table(TABLE, store=store)
    async with cp.open_table(TABLE, store=store) as table:
        before = len(table.request_log)
        plan = await table.scan().plan()
        asked = [(record.operation, record.path) for record in table.request_log[before:]]
        assert asked == [("list", TABLE)], "neither sidecars nor looks"
        assert {partition.metadata_source for partition in plan.partitions[:-1]} == {"catalogue"}


async def test_an_object_replaced_behind_the_listing_is_noticed() -> None:
    store = store_of(table_of_days(DAYS))
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

    store = store_of(table_of_days(DAYS))
    monkeypatch.setattr(ListingStore, "list_between", refused)
    async with cp.open_table(TABLE, store=store) as table:
        await table.scan().plan()
        infos = [record for record in table.request_log if record.operation == "info"]
        assert len(infos) == DAYS


async def test_pieces_are_listed_before_the_partition_that_they_are_of() -> None:
    directories = [f"{TABLE}/{name}" for name in ("2024-W10", "2024-W10-3T12.5", "2024-W11-2.7", "2024-W11")]
    store = QuotingStore({f"{directory}/data.parquet": b"" for directory in directories})
    for asked in (directories, directories[:2], directories[2:]):
        found = await ListedObjects(store).below(asked)
        assert set(found) >= {f"{directory}/data.parquet" for directory in asked}
