"""The index of a lake: one object, beside the files or elsewhere, from which readers plan without footers."""

from __future__ import annotations

import io
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.catalog.findings import Finding
from coldparquet.format.catalogue_file import PackedSidecar, encode_catalogue
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.verify import VerifyJob, verify_table
from coldparquet.pipelines.lakes import one_table
from coldparquet.pipelines.model import Place
from coldparquet.records import replace
from coldparquet.storage.checked import read_whole
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import ObjectInfo
from tests.support.parquet_footers import parquet_bytes, parsed_footer
from tests.support.small_tables import StoreWithClasses

DAYS, FILES = 9, 2


class LakeStore(StoreWithClasses):
    """Tells the storage class of each object in its listings, as S3 does."""

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        listed = await super().list_between(path, start=start, stop=stop)
        return tuple(replace(info, storage_class="STANDARD") for info in listed)


def name_of(day: int, part: int) -> str:
    return f"date=2024-03-{day:02}/part-{part}.parquet"


def file_of(day: int, part: int, **columns: Any) -> bytes:
    rows = {"id": pa.array(range(day * 1000 + part * 100, day * 1000 + part * 100 + 50)), "price": [day / 2] * 50}
    return parquet_bytes(pa.table({**rows, **columns}), row_group_size=20)


async def lake() -> LakeStore:
    objects = {f"lake/{name_of(day, part)}": file_of(day, part) for day in range(1, DAYS + 1) for part in range(FILES)}
    return LakeStore(objects)


async def ask(store: MemoryStore, where: str | None, **options: Any) -> tuple[pa.Table, list[str]]:
    """Return the rows of a question, and the names of the objects that were asked for."""
    async with cp.open_table("lake", store=store, options=cp.ReadOptions(**options)) as table:
        rows = await table.scan(["id", "date"], where=where).to_arrow()
        return rows, sorted(f"{one.operation} {one.path.removeprefix('lake/')}" for one in table.request_log)


LOOKED_FOR = ["get _meta", "get _txn"]
OPENING = ["get _catalogue", *LOOKED_FOR, "list lake", "list lake"]


@pytest.mark.parametrize("index", [None, "lake", "mine/indexes/lake"])
async def test_an_indexed_lake_is_planned_without_footers(index: str | None) -> None:
    store = await lake()
    expected, before = await ask(store, "id between 3010 and 3130")
    report = await index_table("lake", store=store, index=index, pages=False, pack=False)
    assert report.catalogue is not None
    assert (report.catalogue.action, report.catalogue.packed_count) == ("written", DAYS * FILES)
    rows, log = await ask(store, "id between 3010 and 3130", index=index)
    assert rows.equals(expected)
    assert rows.num_rows == 71
    catalogue = "_catalogue" if index in {None, "lake"} else f"{index}/_catalogue"
    data = [f"get {name_of(3, part)}" for part in range(FILES)]
    # With an index elsewhere the listing, beside which it comes, says that there are none.
    looked_for = LOOKED_FOR if index is None else []
    assert log == sorted([f"get {catalogue}", *looked_for, "list lake", "list lake", *data])
    assert len(before) == len(OPENING) + DAYS * FILES  # small files come with their footers
    rows, log = await ask(store, "date = '2024-03-04'", index=index)
    assert rows.num_rows == 100
    assert [entry for entry in log if "parquet" in entry] == [f"get {name_of(4, part)}" for part in range(FILES)]
    async with cp.open_table("lake", store=store, options=cp.ReadOptions(index=index)) as table:
        assert await table.scan().count() == DAYS * FILES * 50
        assert await table.scan(where="date >= '2024-03-08'").count() == 200
        assert not [entry for entry in table.request_log if "parquet" in entry.path]


async def test_loose_files_of_one_directory_are_indexed_elsewhere() -> None:
    store = LakeStore({f"lake/trades-{day}.parquet": file_of(day, 0) for day in range(1, 4)})
    await index_table("lake", store=store, index="mine/loose", pages=False, pack=False)
    async with cp.open_table("lake", store=store, options=cp.ReadOptions(index="mine/loose")) as table:
        assert await table.scan(where="id >= 2000").count() == 100
        assert not [entry for entry in table.request_log if "parquet" in entry.path]


@pytest.mark.parametrize("is_asked_for", [False, True])
async def test_an_indexed_lake_has_the_columns_of_all_its_files(is_asked_for: bool) -> None:
    store = await lake()
    index = "mine/columns" if is_asked_for else None
    changed = {
        name_of(2, 0): {"price": pa.array([1.0] * 50, pa.float32()), "mid": [0.5] * 50},
        name_of(3, 1): {"mid": pa.array([7] * 50, pa.int16()), "s": [{"y": "a", "x": 1}] * 50},
        name_of(7, 0): {"price": pa.array([2] * 50, pa.int8()), "s": [{"x": 2**40}] * 50},
    }
    for name, columns in changed.items():
        await store.put(f"lake/{name}", file_of(int(name[13:15]), int(name[-9]), **columns), overwrite=True)
    await index_table("lake", store=store, index=index, pages=False, pack=False)
    names = [name_of(day, part) for day in range(1, DAYS + 1) for part in range(FILES)]
    whole = [
        pq.read_table(io.BytesIO((await read_whole(store, f"lake/{name}", largest_bytes=1 << 20)).data))
        for name in names
    ]
    expected = pa.concat_tables(whole, promote_options="permissive")
    async with cp.open_table("lake", store=store, options=cp.ReadOptions(index=index)) as table:
        assert sorted(one.path for one in table.request_log if one.operation == "get") == sorted(
            [f"{index or 'lake'}/_catalogue", *(() if is_asked_for else ("lake/_meta", "lake/_txn"))]
        )
        with pytest.raises(cp.errors.InvalidInputError, match=r"there is no column 'nothing'; columns are [^;]*$"):
            table.scan(["nothing"])
        rows = await table.scan().to_arrow()
        assert rows.select(expected.column_names).to_pylist() == expected.to_pylist()
        assert rows.schema.field("price").type == pa.float64()
        conditions: list[tuple[str, Any]] = [
            ("mid > 1", pc.field("mid") > 1),
            ("s is not null", pc.field("s").is_valid()),
        ]
        for where, condition in conditions:
            assert await table.scan(where=where).count() == expected.filter(condition).num_rows
    async with cp.open_table("lake", store=store, options=cp.ReadOptions(index=index, columns_from="newest")) as table:
        assert table.schema.names == ["id", "price", "date"]


async def test_a_replaced_newest_file_leaves_the_columns_of_the_others() -> None:
    store = await lake()
    await index_table("lake", store=store, pages=False, pack=False)
    fewer = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}), fewer)
    await store.put(f"lake/{name_of(DAYS, FILES - 1)}", fewer.getvalue(), overwrite=True)
    async with cp.open_table("lake", store=store) as table:
        assert {"id", "price"} <= set(table.schema.names)
        with pytest.raises(cp.errors.InvalidInputError, match="columns_from"):
            table.scan(["nothing"])


async def test_files_that_the_index_does_not_know_or_knows_no_more_give_no_columns() -> None:
    store = await lake()
    await store.put(f"lake/{name_of(2, 0)}", file_of(2, 0, gone=[1] * 50), overwrite=True)
    await store.put(f"lake/{name_of(2, 1)}", file_of(2, 1, there=[1] * 50), overwrite=True)
    await store.put(f"lake/{name_of(3, 0)}", file_of(3, 0, there=[2] * 50), overwrite=True)
    await index_table("lake", store=store, pages=False, pack=False)
    await store.put(f"lake/{name_of(2, 0)}", file_of(2, 0), overwrite=True)
    await store.put(f"lake/{name_of(3, 0)}", file_of(3, 0), overwrite=True)
    await store.put(f"lake/{name_of(4, 0)}", file_of(4, 0, fresh=[1] * 50), overwrite=True)
    async with cp.open_table("lake", store=store) as table:
        assert table.schema.names == ["id", "price", "date", "there"]
        assert (await table.scan(["there"]).to_arrow()).column("there").null_count == (DAYS * FILES - 1) * 50
        assert "columns 'fresh' (of date=2024-03-04/part-0.parquet)" in (await table.scan().plan()).explain(
            width=10_000
        )


async def test_a_year_of_days_takes_four_requests_beside_the_files_that_hold_rows_and_a_count_no_other() -> None:
    days, index = [f"date={date(2023, 1, 1) + timedelta(days=day)}" for day in range(365)], "mine/indexes/year"
    content = file_of(1, 0)
    store = LakeStore({f"lake/{day}/part-{part}.parquet": content for day in days for part in range(3)})
    await index_table("lake", store=store, index=index, pages=False, pack=False)
    opening = [f"get {index}/_catalogue", "list lake", "list lake", "list lake"]
    rows, log = await ask(store, "date >= '2023-03-06' and date < '2023-03-13'", index=index)
    assert rows.num_rows == 7 * 3 * 50
    week = days[64:71]
    assert log == sorted([*opening, *(f"get {day}/part-{part}.parquet" for day in week for part in range(3))])
    for where, count in ((None, 365 * 3 * 50), ("date = '2023-03-06'", 150), ("id >= 1000", 365 * 3 * 50)):
        async with cp.open_table("lake", store=store, options=cp.ReadOptions(index=index)) as table:
            assert await table.scan(where=where).count() == count
            assert sorted(f"{one.operation} {one.path.removeprefix('lake/')}" for one in table.request_log) == opening


async def problems(store: MemoryStore, index: str | None) -> dict[str, list[Finding]]:
    """What verifying finds, about the table as "" and about its files."""
    verified = await verify_table("lake", store=store, index=index)
    found = {"": verified.findings, **{one.name: one.findings for one in verified.partitions}}
    return {name: list(findings) for name, findings in found.items() if findings}


@pytest.mark.parametrize("index", [None, "mine/indexes/lake"])
async def test_verifying_compares_an_index_with_the_files_wherever_it_lies(index: str | None) -> None:
    store = await lake()
    await index_table("lake", store=store, index=index, pages=False, pack=False)
    assert await problems(store, index) == {}
    await store.put(f"lake/{name_of(5, 0)}", file_of(5, 3), overwrite=True)
    await store.put(f"lake/{name_of(2, 7)}", file_of(2, 7), overwrite=False)
    await store.delete([f"lake/{name_of(9, 0)}"])
    found = await problems(store, index)
    [stale] = found.pop(name_of(5, 0))
    assert (stale.severity, stale.kind) == ("warning", "CatalogueNotUsed")
    assert (
        stale.message
        == "its entry in _catalogue is not used: its Parquet file or its sidecar was replaced since it was packed"
    )
    [missing, vanished] = found.pop("")
    assert found == {}
    assert (missing.severity, missing.kind) == ("warning", "CatalogueNotUsed")
    assert missing.message == (
        f"_catalogue has no entry of this state of 1 of {DAYS * FILES} partitions ({name_of(2, 7)}), whose footers are read"
    )
    assert (vanished.severity, vanished.kind) == ("advice", "VanishedFiles")
    assert name_of(9, 0) in vanished.message
    advice = "'coldparquet pack' writes the catalogue anew"
    if index is not None:
        advice = f"'coldparquet index lake --index {index}' writes the index anew"
    assert [stale.remedy, missing.remedy, vanished.remedy] == [advice, advice, f"readers pass them by; {advice}"]
    await index_table("lake", store=store, index=index, pages=False, pack=False)
    assert await problems(store, index) == {}


@pytest.mark.parametrize("index", [None, "mine/indexes/lake"])
async def test_verifying_files_one_by_one_lists_their_lake_once(index: str | None) -> None:
    class Listed(LakeStore):
        listings = 0

        async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
            Listed.listings += 1
            return await super().list_between(path, start=start, stop=stop)

    store = Listed({path: stored.data for path, stored in (await lake())._objects.items()})
    await index_table("lake", store=store, index=index, pages=False, pack=False)
    await store.put(f"lake/{name_of(5, 0)}", file_of(5, 3), overwrite=True)
    Listed.listings = 0
    async with one_table(Place("lake", None, None, store)) as table:
        run = await VerifyJob(index=index).on_table(replace(table, is_alone=False))  # as one of several tables
    assert Listed.listings == 2, "one finds the files, one tells their versions"
    found = {
        one.partition: [finding["kind"] for finding in one.details["findings"]] for one in run.results if one.partition
    }
    assert {name: kinds for name, kinds in found.items() if kinds} == {name_of(5, 0): ["CatalogueNotUsed"]}


async def test_verifying_tells_of_an_index_that_is_not_there_or_of_another_lake_or_wrong() -> None:
    store = await lake()
    [missing] = (await problems(store, "mine/nowhere"))[""]
    assert (missing.severity, missing.kind) == ("error", "IndexMissing")
    assert "mine/nowhere" in missing.message
    other = LakeStore({f"lake/kind={number}/x.parquet": file_of(1, number) for number in range(2)})
    await index_table("lake", store=other, index="mine/other", pages=False, pack=False)
    stolen = (await read_whole(other, "mine/other/_catalogue", largest_bytes=1 << 20)).data
    await store.put("mine/other/_catalogue", stolen, overwrite=False)
    lacking, of_other = (await problems(store, "mine/other"))[""]
    assert (lacking.kind, of_other.kind, of_other.severity) == ("CatalogueNotUsed", "VanishedFiles", "warning")
    assert of_other.message.endswith("it may be of another table")
    await store.put("mine/other/_catalogue", b"nothing", overwrite=True)
    [damaged] = (await problems(store, "mine/other"))[""]
    assert damaged.kind == "CatalogueNotUsed"
    with pytest.raises(cp.errors.InvalidInputError, match="an index is of a whole table"):
        await verify_table(f"lake/{name_of(1, 0)}", store=store, index="mine/other")


async def test_verifying_finds_an_entry_that_describes_its_file_wrongly() -> None:
    store = LakeStore({f"lake/part-{number}.parquet": file_of(1, number) for number in range(2)})
    of_other_rows = encode_sidecar(sidecar_content_from_footer(parsed_footer(file_of(1, 1))))
    entry = PackedSidecar(
        name="part-0.parquet",
        parquet_size_bytes=len(file_of(1, 1)),
        row_count=50,
        sidecar=of_other_rows,
        data_etag=(await store.info("lake/part-0.parquet")).etag,
        sidecar_etag=None,
        has_pages=False,
    )
    await store.put("mine/lake/_catalogue", encode_catalogue([entry]), overwrite=False)
    [differs] = (await problems(store, "mine/lake"))["part-0.parquet"]
    assert (differs.severity, differs.kind) == ("error", "CatalogueDiffers")
    assert differs.remedy == "'coldparquet index lake --index mine/lake' writes the index anew"


async def test_what_is_new_or_replaced_is_read_by_its_footer_until_the_next_index() -> None:
    store = await lake()
    await index_table("lake", store=store, pages=False, pack=False)
    await store.put(f"lake/{name_of(2, 7)}", file_of(2, 7), overwrite=False)
    await store.put(f"lake/{name_of(5, 0)}", file_of(5, 3), overwrite=True)
    await store.delete([f"lake/{name_of(9, 0)}"])
    rows, log = await ask(store, "id < 6000 and id >= 2000")
    assert rows.num_rows == 9 * 50
    assert {5300, 2700} <= set(rows.column("id").to_pylist())
    assert 5000 not in rows.column("id").to_pylist()
    assert not any("date=2024-03-09/part-0" in entry for entry in log)
    store_requests = CountingStore(store)
    report = await index_table("lake", store=store_requests, pages=False, pack=False)
    assert report.catalogue is not None
    assert (report.catalogue.action, report.catalogue.packed_count) == ("written", DAYS * FILES)
    assert sorted(store_requests.got) == sorted([f"lake/{name_of(2, 7)}", f"lake/{name_of(5, 0)}"])
    again = await index_table("lake", store=store, pages=False, pack=False)
    assert again.catalogue is not None
    assert again.catalogue.action == "unchanged"
    after, log = await ask(store, "id < 6000 and id >= 2000")
    assert after.equals(rows)
    async with cp.open_table("lake", store=store) as table:
        assert await table.scan().count() == DAYS * FILES * 50


class CountingStore(LakeStore):
    """Remembers which Parquet files were asked for."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__({})
        self._objects = store._objects
        self.got: list[str] = []

    async def get(self, request: Any) -> Any:
        if request.path.endswith(".parquet"):
            self.got.append(request.path)
        return await super().get(request)


async def test_an_index_of_another_lake_or_a_damaged_one_changes_no_row() -> None:
    store, other = await lake(), await lake()
    expected, _ = await ask(store, "id >= 4000")
    for path in list(other._objects):
        await other.put(path, file_of(1, 0), overwrite=True)
    await index_table("lake", store=other, pages=False, pack=False)
    stolen = (await read_whole(other, "lake/_catalogue", largest_bytes=1 << 20)).data
    for content in (stolen, b"nothing", b""):
        await store.put("lake/_catalogue", content, overwrite=True)
        rows, _ = await ask(store, "id >= 4000")
        assert rows.equals(expected)


async def test_keys_that_change_their_type_make_entries_old() -> None:
    objects = {f"lake/code={code}/a.parquet": file_of(code, 0) for code in (1, 2)}
    store = LakeStore(objects)
    await index_table("lake", store=store, pages=False, pack=False)
    await store.put("lake/code=x/a.parquet", file_of(3, 0), overwrite=False)
    async with cp.open_table("lake", store=store) as table:
        assert (await table.scan(["code"]).to_arrow()).column("code").unique().to_pylist() == ["1", "2", "x"]
        assert await table.scan(where="code = '2'").count() == 50
    report = await index_table("lake", store=store, pages=False, pack=False)
    assert report.catalogue is not None
    assert report.catalogue.packed_count == 3
    async with cp.open_table("lake", store=store) as table:
        assert await table.scan(where="code = '2'").count() == 50
        assert not [entry for entry in table.request_log if "parquet" in entry.path]


async def test_names_and_keys_in_any_script_are_indexed() -> None:
    cities = ["Zürich", "Москва", "Z%C3%BCrich-Nord", "東京"]
    store = LakeStore({f"lake/city={city}/part-é.parquet": file_of(day, 0) for day, city in enumerate(cities)})
    report = await index_table("lake", store=store, pages=False, pack=False)
    assert report.catalogue is not None
    assert (report.catalogue.action, report.catalogue.packed_count) == ("written", len(cities))
    async with cp.open_table("lake", store=store) as table:
        for day, city in enumerate(["Zürich", "Москва", "Zürich-Nord", "東京"]):
            assert (await table.scan(["id"], where=[("city", "=", city)]).to_arrow()).column("id")[
                0
            ].as_py() == day * 1000
        assert await table.scan(where="city = 'Zürich'").count() == 50
        assert sum(one.path.endswith(".parquet") for one in table.request_log) == len(cities)
    assert await problems(store, None) == {}


async def test_a_file_whose_name_is_not_unicode_is_indexed_with_the_others() -> None:
    store = LakeStore({f"lake/date=2024-03-01/{name}.parquet": file_of(1, 0) for name in ("x", "y\udcff", "z\ud83d")})
    for action in ("written", "unchanged"):
        report = await index_table("lake", store=store, index="mine/odd", pages=False, pack=False)
        assert report.catalogue is not None
        assert (report.catalogue.action, report.catalogue.packed_count) == (action, 3)
    async with cp.open_table("lake", store=store, options=cp.ReadOptions(index="mine/odd")) as table:
        assert await table.scan().count() == 150
        assert not [entry for entry in table.request_log if "parquet" in entry.path]
    assert await problems(store, "mine/odd") == {}


async def test_a_file_that_cannot_be_described_is_a_failure_and_the_others_are_indexed() -> None:
    store = await lake()
    await store.put(f"lake/{name_of(1, 5)}", b"no Parquet", overwrite=False)
    report = await index_table("lake", store=store, pages=False, pack=False)
    assert report.catalogue is not None
    assert report.catalogue.packed_count == DAYS * FILES
    [left_out] = [one for one in report.catalogue.partitions if one.reason is not None]
    assert left_out.name == name_of(1, 5)
    assert left_out.is_unreadable


async def test_nothing_is_written_below_the_root_of_cold_storage(caplog: pytest.LogCaptureFixture) -> None:
    data = file_of(1, 0)
    sidecar = encode_sidecar(sidecar_content_from_footer(parsed_footer(data)))
    objects = {
        f"cold/trades~5/year=2024/month=03/day={day:02}/{name}": content
        for day in (1, 2)
        for name, content in (("data.parquet", data), ("_pm.a", sidecar))
    }
    store = LakeStore({**objects, "cold/trades~5/_manifest": b"x", "cold/_tables": b"x"})
    before = dict(store._objects)
    for write in (index_table, pack_table):
        for index in (None, "cold/indexes", "cold/trades~5/x"):
            with pytest.raises(cp.errors.UnsupportedError, match="QuestDB must be the only writer") as caught:
                await write("cold/trades~5", store=store, index=index)
            assert caught.value.kind == "ColdStorage"
    assert store._objects == before
    await index_table("cold/trades~5", store=store, index="mine/trades", pages=False, pack=False)
    options = cp.ReadOptions(index="mine/trades")
    async with cp.open_table("cold/trades~5", store=store, options=options) as table:
        assert await table.scan().count() == 100
        assert not [entry for entry in table.request_log if "parquet" in entry.path or "_pm" in entry.path]
    again = await index_table("cold/trades~5", store=store, index="mine/trades", pages=False, pack=False)
    assert again.catalogue is not None
    assert again.catalogue.action == "unchanged"
    async with cp.open_table("cold/trades~5", store=store, options=cp.ReadOptions(index="mine/wrong")) as table:
        assert "there is no index at mine/wrong" in " ".join((await table.scan().plan()).notes)
        await table.refresh()
        await table.refresh()
    assert [record.message.partition(" at ")[0] for record in caplog.records] == ["there is no index"], "told once"


async def test_a_dry_run_writes_nothing_and_says_how_large_it_would_be() -> None:
    store = await lake()
    before = dict(store._objects)
    report = await index_table("lake", store=store, dry_run=True, pages=False, pack=False)
    assert report.catalogue is not None
    assert report.catalogue.action == "would write"
    assert report.catalogue.catalogue_bytes
    assert store._objects == before
