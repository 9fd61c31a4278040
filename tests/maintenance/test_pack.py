"""Packing the sidecars of a table into its catalogue, and keeping it up to date when partitions are written."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.catalog.packed import CATALOGUE_FILE
from coldparquet.errors import FormatError, InvalidInputError, ObjectChangedError
from coldparquet.format.catalogue_file import parse_catalogue_index
from coldparquet.maintenance import packed_entries
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.migrate import migrate_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.verify import VerifyReport, verify_table
from coldparquet.publish import PublishOptions, publish_table
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from coldparquet.write.compact import compact_table
from tests.support.questdb_tables import assert_same_rows, expected_rows
from tests.support.small_tables import TABLE, QuotingStore, name_of, objects_of, partitions_alone, table_of_days
from tests.support.table_copies import copy_table, write_sidecar

CATALOGUE = f"{TABLE}/{CATALOGUE_FILE}"
DAYS = 20


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of four Parquet partitions and a native one; nothing in it has a sidecar."""
    return copy_table("interval_day", tmp_path)


def directories(table: Path) -> list[Path]:
    """The partitions, oldest first; the last one is native."""
    return sorted(table.glob("2024-*"))


def packed_names(directory: Path) -> list[str]:
    return list(parse_catalogue_index((directory / CATALOGUE_FILE).read_bytes(), path=None).entry_of)


async def content(store: ObjectStore, path: str = CATALOGUE) -> bytes:
    wanted = ByteRange(0, 1 << 20)
    return (await store.get(RangeRequest(path=path, byte_range=wanted, reason="test", may_be_short=True))).data


async def test_requests() -> None:
    trace = TraceStore(QuotingStore(table_of_days(DAYS)))
    seen: list[tuple[str, int]] = []
    report = await pack_table(TABLE, store=trace, on_progress=lambda name, total: seen.append((name, total)))
    assert (report.url, report.action, report.packed_count) == (TABLE, "written", DAYS)
    assert sorted(seen) == [(name_of(day), DAYS) for day in range(DAYS)]
    assert report.catalogue_bytes == len(await content(trace))
    counts = Counter((record.operation, record.path.rpartition("/")[2]) for record in trace.records)
    assert counts["get", "_pm"] == DAYS
    assert counts["get", CATALOGUE_FILE] == 2  # one of them by this test
    assert counts["put", CATALOGUE_FILE] == 1
    assert sum(count for (operation, _), count in counts.items() if operation == "list") == 1 + DAYS


async def test_a_second_time_nothing_is_written() -> None:
    store = QuotingStore(table_of_days(DAYS))
    await pack_table(TABLE, store=store)
    trace = TraceStore(store)
    report = await pack_table(TABLE, store=trace)
    assert (report.action, report.packed_count) == ("unchanged", DAYS)
    assert {record.operation for record in trace.records} == {"list", "get"}


async def test_dry_run_writes_nothing(table: Path) -> None:
    await index_table(table, pages=False, pack=False)
    report = await pack_table(table, dry_run=True)
    assert (report.action, report.packed_count) == ("would write", 4)
    assert not (table / CATALOGUE_FILE).exists()


async def test_partitions_without_a_usable_sidecar_are_left_out(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await index_table(table, pages=False, pack=False)
    first, second, third, fourth, native = (path.name for path in directories(table))
    (table / first / "_pm").unlink()
    (table / second / "_pm").write_bytes(b"nothing of the kind")
    (table / third / "_pm").write_bytes((table / third / "_pm").read_bytes().ljust(1000, b"\0"))
    report = await pack_table(table)
    reasons = {partition.name: partition.reason for partition in report.partitions}
    assert reasons[third] is reasons[fourth] is None
    assert "'coldparquet index' writes one" in (reasons[first] or "")
    assert reasons[second] is not None
    assert reasons[native] == "in QuestDB's native format"
    assert packed_names(table) == [third, fourth]
    monkeypatch.setattr(packed_entries, "LARGEST_SIDECAR_BYTES", 100)
    report = await pack_table(table)
    assert (report.action, report.packed_count) == ("skipped", 0)
    assert packed_names(table) == [third, fourth], "the old one stays; readers check it"


async def test_without_a_transaction_only_a_store_that_tells_versions_helps() -> None:
    objects = partitions_alone(DAYS)
    report = await pack_table(TABLE, store=MemoryStore(objects))
    assert report.action == "skipped"
    assert {partition.reason for partition in report.partitions} == {
        "without a _txn readers check entries by the versions of objects, which this store does not list"
    }
    objects[f"{TABLE}/{name_of(1)}/data.parquet"] += b"more"
    report = await pack_table(TABLE, store=QuotingStore(objects))
    assert (report.action, report.packed_count) == ("written", DAYS - 1)
    assert "but data.parquet has" in (report.partitions[1].reason or "")


async def test_a_partition_is_no_table(table: Path) -> None:
    await index_table(table, pages=False, pack=False)
    with pytest.raises(InvalidInputError) as caught:
        await pack_table(directories(table)[0])
    assert caught.value.kind == "NotATable"
    assert (await index_table(directories(table)[0], pack=True, pages=False)).catalogue is None


async def test_of_two_at_the_same_time_one_fails() -> None:
    class Racing(QuotingStore):
        async def put(
            self,
            path: str,
            data: bytes,
            *,
            overwrite: bool,
            if_match: str | None = None,
            storage_class: str | None = None,
        ) -> str:
            await super().put(path, b"of another process", overwrite=True)
            return await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)

    objects = table_of_days(DAYS)
    for existing in ({}, {CATALOGUE: b"an old one"}):
        store = Racing(objects | existing)
        with pytest.raises(ObjectChangedError) as caught:
            await pack_table(TABLE, store=store)
        assert caught.value.kind == "CatalogueConflict"
        assert await content(store) == b"of another process"


async def test_index_renews_what_it_wrote_and_makes_none_unasked(table: Path) -> None:
    assert (await index_table(table, pages=False, pack=False)).catalogue is None
    assert not (table / CATALOGUE_FILE).exists()
    first = directories(table)[0]
    (first / "_pm").unlink()
    await pack_table(table)
    assert len(packed_names(table)) == 3
    trace = TraceStore(QuotingStore(objects_of(table)))
    report = await index_table(TABLE, store=trace, pages=False, pack=False)
    assert report.catalogue is not None
    assert (report.catalogue.action, report.catalogue.packed_count) == ("written", 4)
    # Of the others the old entries are taken over: only the new sidecar is read again.
    assert [
        record.path.split("/")[-1] for record in trace.records if record.operation == "list" and "2024" in record.path
    ] == [first.name]
    again = await index_table(TABLE, store=trace, pages=True, pack=False)
    assert again.catalogue is not None
    assert parse_catalogue_index(await content(trace), path=None).has_pages.all()
    assert (await index_table(TABLE, store=trace, dry_run=True, pages=False, pack=False)).catalogue is None


async def test_migrate_renews(table: Path) -> None:
    report = await migrate_table(table, pack=True)
    assert report.catalogue is not None
    assert report.catalogue.packed_count == 4
    assert len(packed_names(table)) == 4
    (directories(table)[0] / "_pm").unlink()
    again = await migrate_table(table)
    assert again.catalogue is not None
    assert again.catalogue.action == "unchanged"


async def test_compact_renews(table: Path) -> None:
    await index_table(table, pack=True, pages=False)
    report = await compact_table(table, force=True)
    assert report.catalogue is not None
    assert report.catalogue.action == "written"
    new_names = [partition.new_name for partition in report.partitions if partition.new_name is not None]
    assert packed_names(table) == new_names
    async with cp.open_table(TABLE, store=QuotingStore(objects_of(table))) as opened:
        plan = await opened.scan().plan()
        assert {partition.metadata_source for partition in plan.partitions[:-1]} == {"catalogue"}
        assert_same_rows(await opened.scan().to_arrow(), expected_rows("interval_day"))


async def test_publish_renews(table: Path) -> None:
    await index_table(table, pages=False, pack=False)
    store = QuotingStore()
    first = await publish_table(table, TABLE, store=store)
    assert first.catalogue is None
    second = await publish_table(table, TABLE, store=store, options=PublishOptions(pack=True))
    assert second.catalogue is not None
    assert (second.catalogue.action, second.catalogue.packed_count) == ("written", 5)
    third = await publish_table(table, TABLE, store=store, options=PublishOptions(purge=True, purge_after_s=0))
    assert third.catalogue is not None
    assert third.catalogue.action == "unchanged"
    async with cp.open_table(TABLE, store=store) as opened:
        plan = await opened.scan().plan()
        assert {partition.metadata_source for partition in plan.partitions} == {"catalogue"}


async def test_a_catalogue_that_cannot_be_renewed_fails_nothing_else() -> None:
    class Refusing(QuotingStore):
        async def put(
            self,
            path: str,
            data: bytes,
            *,
            overwrite: bool,
            if_match: str | None = None,
            storage_class: str | None = None,
        ) -> str:
            if path == CATALOGUE:
                raise ObjectChangedError("somebody else wrote this object", path=path)
            return await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)

    objects = {path: data for path, data in table_of_days(DAYS).items() if not path.endswith("_pm")}
    report = await index_table(TABLE, store=Refusing(objects), pack=True, pages=False)
    assert report.count("written") == DAYS
    assert report.catalogue is not None
    assert report.catalogue.action == "failed"
    assert "pack it again" in (report.catalogue.reason or "")


async def test_a_damaged_catalogue_is_replaced() -> None:
    store = QuotingStore(table_of_days(DAYS) | {CATALOGUE: b"nothing of the kind"})
    assert (await pack_table(TABLE, store=store)).action == "written"
    assert (await index_table(TABLE, store=store, pages=False, pack=False)).catalogue is not None
    parse_catalogue_index(await content(store), path=None)
    with pytest.raises(FormatError):
        parse_catalogue_index(b"nothing of the kind", path=None)


def kinds(report: VerifyReport) -> Counter[str]:
    found = [*report.findings, *(finding for partition in report.partitions for finding in partition.findings)]
    return Counter(finding.kind for finding in found if finding.kind.startswith("Catalogue"))


async def test_verify_compares_it(table: Path) -> None:
    await index_table(table, pack=True, pages=False)
    assert not kinds(await verify_table(table))
    first = directories(table)[0]
    write_sidecar(first, unused_bytes=1)  # sound in itself, and not what was packed
    assert kinds(await verify_table(table)) == {"CatalogueDiffers": 1}
    assert (await verify_table(table)).count("error") >= 1
    await pack_table(table)
    assert not kinds(await verify_table(table))
    shutil.copyfile(table / "_txn", table / CATALOGUE_FILE)
    assert kinds(await verify_table(table)) == {"CatalogueNotUsed": 1}
