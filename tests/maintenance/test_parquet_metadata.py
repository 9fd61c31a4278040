"""``_metadata``: Arrow reads the table's rows from it; it is renewed, removed, refused, and found where it does not fit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import coldparquet as cp
from coldparquet.cli.commands import app
from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError, StorageError, UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.parquet_metadata import WrittenParquetMetadata
from coldparquet.maintenance.verify import verify_table
from coldparquet.publish import PublishOptions, publish_table
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.write.compact import compact_table
from coldparquet.write.table import write_table
from tests.support.small_tables import (
    TABLE,
    QuotingStore,
    day_of_trades,
    parquet_of,
    table_of_days,
    trades_of,
)
from tests.support.table_copies import contents_of, copy_table

DAYS, ROWS = 4, 1_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Days of trades, without a ``_txn``; each in four row groups."""
    for day in range(DAYS):
        add_day(tmp_path, day)
    return tmp_path


def name_of(day: int) -> str:
    return f"2024-03-{day + 1:02}"


def add_day(table: Path, day: int, data: bytes | None = None, *, name: str = "data.parquet") -> Path:
    path = table / name_of(day) / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data or day_of_trades(day, rows=ROWS, row_groups=4))
    return path


async def metadata_of(table: Path, **options: Any) -> WrittenParquetMetadata | None:
    return (await pack_table(table, parquet_metadata=True, **options)).parquet_metadata


async def problems(table: Path, kind: str = "ParquetMetadataDiffers") -> list[str]:
    report = await verify_table(table)
    findings = [*report.findings, *(finding for partition in report.partitions for finding in partition.findings)]
    return [finding.message for finding in findings if finding.kind == kind]


def arrow(table: Path, **options: Any) -> Any:
    return ds.parquet_dataset(str(table / "_metadata"), **options)


async def test_arrow_reads_the_table_from_it(table: Path) -> None:
    planned = await metadata_of(table, dry_run=True)
    assert not (table / "_metadata").exists()
    reports = [planned, await metadata_of(table), await metadata_of(table)]
    size_bytes = (table / "_metadata").stat().st_size
    assert reports == [
        WrittenParquetMetadata(action=action, size_bytes=size_bytes, file_count=DAYS)
        for action in ("would write", "written", "unchanged")
    ]
    dataset = arrow(table)
    expected = pa.concat_tables([trades_of(day, ROWS) for day in range(DAYS)])
    assert dataset.to_table().cast(expected.schema).equals(expected)
    assert dataset.to_table(filter=ds.field("price") >= 3_500).num_rows == 500
    high = ds.field("price") >= 3_500
    assert sum(len(fragment.subset(high).row_groups) for fragment in dataset.get_fragments(high)) == 2
    assert await problems(table) == []
    # Nothing else stumbles over it.
    with cp.sync.open_table(table) as opened:
        assert opened.scan().count() == DAYS * ROWS
    assert ds.dataset(table, format="parquet").count_rows() == DAYS * ROWS


async def test_requests() -> None:
    trace = TraceStore(QuotingStore(table_of_days(20)))
    await pack_table(TABLE, store=trace)
    sent = len(trace.records)
    await pack_table(TABLE, store=trace, parquet_metadata=True)
    more = trace.records[2 * sent - 1 :]  # the catalogue is not written again
    counts = Counter((record.operation, record.path.rpartition("/")[2]) for record in trace.records)
    assert (counts["get", "_metadata"], counts["put", "_metadata"], counts["get", "data.parquet"]) == (2, 1, 20)
    assert len(more) == 1 + 20


async def test_what_writes_to_the_table_renews_it(table: Path) -> None:
    await metadata_of(table)
    add_day(table, 1, parquet_of(trades_of(11, ROWS), row_groups=2))
    [problem] = await problems(table)
    assert problem == (
        "_metadata does not fit the table, and readers of Arrow trust it: it says something else than the footer, so they may"
        " miss rows, or read wrong ones"
    )
    add_day(table, DAYS)
    report = await index_table(table, pages=False, pack=False)
    assert report.catalogue is not None
    assert report.catalogue.parquet_metadata is not None
    assert (report.catalogue.parquet_metadata.action, report.catalogue.parquet_metadata.file_count) == ("written", 5)
    assert arrow(table).count_rows() == 5 * ROWS
    assert await problems(table) == []
    for path in (table / name_of(2)).iterdir():
        path.unlink()
    (table / name_of(2)).rmdir()
    [problem] = await problems(table)
    assert problem == (
        f"_metadata does not fit the table, and readers of Arrow trust it: it describes {name_of(2)}/data.parquet, no part of the"
        " table"
    )
    packed = await pack_table(table)
    assert packed.parquet_metadata is not None
    assert packed.parquet_metadata.file_count == 4
    assert await problems(table) == []


async def test_writes_and_compactions_fetch_only_what_they_changed(tmp_path: Path) -> None:
    rows = pa.concat_tables([trades_of(day, ROWS) for day in range(DAYS)])
    await write_table(tmp_path / "t", rows, timestamp="ts", partition_by="DAY")
    await metadata_of(tmp_path / "t")
    more = trades_of(DAYS, ROWS)
    [unchanged] = (tmp_path / "t").glob(f"{name_of(0)}*/data.parquet")
    unchanged.rename(tmp_path / "aside")
    await write_table(tmp_path / "t", more, mode="append")
    with pytest.raises(NotFoundError):
        await metadata_of(tmp_path / "t")
    (tmp_path / "aside").rename(unchanged)
    assert arrow(tmp_path / "t").count_rows() == (DAYS + 1) * ROWS
    assert await problems(tmp_path / "t") == []
    await compact_table(tmp_path / "t", partitions=[name_of(1)], force=True)
    dataset = arrow(tmp_path / "t")
    assert len([name for name in dataset.files if f"{name_of(1)}." in name]) == 1
    assert dataset.to_table().cast(rows.schema).sort_by("ts").equals(pa.concat_tables([rows, more]).combine_chunks())
    assert await problems(tmp_path / "t") == []


async def test_one_that_cannot_be_renewed_is_removed(table: Path) -> None:
    await metadata_of(table)
    add_day(table, DAYS, parquet_of(trades_of(DAYS, ROWS).drop(["note"]), row_groups=1))
    report = await index_table(table, pages=False, pack=False)
    assert report.catalogue is not None
    assert report.catalogue.parquet_metadata is not None
    assert report.catalogue.parquet_metadata.action == "removed"
    assert "differ in 1 column (note)" in (report.catalogue.parquet_metadata.reason or "")
    assert not (table / "_metadata").exists()


class FailingStore(MemoryStore):
    """Refuses to write ``_metadata`` from some time on."""

    fails = False

    async def put(self, path: str, data: bytes, **how: Any) -> Any:
        if self.fails and path.endswith("/_metadata"):
            raise StorageError("503 slow down", path=path)
        return await super().put(path, data, **how)


async def test_one_that_cannot_be_written_is_removed_and_the_catalogue_renewed(table: Path) -> None:
    store = FailingStore({f"t/{name}": data for name, (data, _) in contents_of(table).items()})
    await pack_table("t", store=store, parquet_metadata=True)
    await store.put(f"t/{name_of(DAYS)}/data.parquet", day_of_trades(DAYS, rows=ROWS, row_groups=4), overwrite=False)
    store.fails = True
    report = await index_table("t", store=store, pages=False, pack=False)
    assert report.catalogue is not None
    assert report.catalogue.parquet_metadata is not None
    assert report.catalogue.parquet_metadata.action == "removed"
    assert "503 slow down" in (report.catalogue.parquet_metadata.reason or "")
    with pytest.raises(NotFoundError):
        await store.info("t/_metadata")


async def test_refusals(table: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    add_day(table, DAYS, parquet_of(trades_of(DAYS, ROWS).drop(["note"]), row_groups=1))
    with pytest.raises(UnsupportedError, match=r"2024-03-05/data.parquet differ in 1 column \(note\)") as caught:
        await metadata_of(table)
    assert caught.value.kind == "DifferentColumns"
    native = copy_table("interval_day", tmp_path_factory.mktemp("questdb"))
    with pytest.raises(UnsupportedError, match="native format are 2024-03-02, whose rows") as caught:
        await metadata_of(native)
    with pytest.raises(InvalidInputError, match="leave out the index"):
        await metadata_of(table, index=str(table / "elsewhere"))
    assert not [
        path for path in (*contents_of(table), *contents_of(native)) if path.endswith(("_metadata", "_catalogue"))
    ]


async def test_old_writers_are_not_mixed_with_others(table: Path) -> None:
    old = day_of_trades(0, rows=ROWS, row_groups=4).replace(
        b"parquet-cpp-arrow version 26", b"parquet-cpp-arrow version 03"
    )
    add_day(table, 0, old)
    with pytest.raises(UnsupportedError, match="some of the files are by parquet-cpp-arrow version 03"):
        await metadata_of(table)


async def test_another_writer_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store = QuotingStore(table_of_days(4))
    put = MemoryStore.put

    async def after_another(self: MemoryStore, path: str, data: bytes, **options: Any) -> str:
        if path.endswith("_metadata"):
            await put(self, path, b"of another", overwrite=True)
        return await put(self, path, data, **options)

    monkeypatch.setattr(MemoryStore, "put", after_another)
    with pytest.raises(ObjectChangedError, match="somebody else wrote _metadata"):
        await pack_table(TABLE, store=store, parquet_metadata=True)


async def test_those_of_others_are_left_alone(table: Path) -> None:
    lake = table / "lake"
    collected: list[Any] = []
    for year in (2023, 2024):
        path = lake / f"year={year}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"x": [year]}), path, metadata_collector=collected)
        collected[-1].set_file_path(f"year={year}/part-0.parquet")
    pq.write_metadata(pa.schema([("x", pa.int64())]), str(lake / "_metadata"), metadata_collector=collected)
    theirs = (lake / "_metadata").read_bytes()
    assert await problems(lake) == []
    await pack_table(lake)
    assert (lake / "_metadata").read_bytes() == theirs
    written = await metadata_of(lake)
    assert written is not None
    assert written.file_count == 2
    rows = arrow(lake, partitioning="hive").to_table().sort_by("x").to_pydict()
    assert rows == {"x": [2023, 2024], "year": [2023, 2024]}
    (lake / "_metadata").write_bytes(b"damaged")
    assert "it is no footer of Parquet" in (await problems(lake))[0]


async def test_publications_and_lakes_renew_it_for_what_is_new(tmp_path: Path) -> None:
    source, store = copy_table("interval_day", tmp_path), QuotingStore()
    await publish_table(source, TABLE, store=store, options=PublishOptions(native="leave"))
    first = (await pack_table(TABLE, store=store, parquet_metadata=True)).parquet_metadata
    trace = TraceStore(store)
    report = await publish_table(source, TABLE, store=trace)
    assert report.catalogue is not None
    renewed = report.catalogue.parquet_metadata
    assert [one and (one.action, one.file_count) for one in (first, renewed)] == [("written", 4), ("written", 5)]
    assert [record.path for record in trace.records if record.reason == "Parquet footer"] == [
        f"{TABLE}/2024-03-02/data.parquet"
    ]
    lake = QuotingStore(
        {f"lake/date=2024-03-0{day}/{day}.parquet": day_of_trades(day, rows=ROWS, row_groups=1) for day in (1, 2)}
    )
    await pack_table("lake", store=lake, parquet_metadata=True)
    await lake.put("lake/date=2024-03-03/3.parquet", day_of_trades(3, rows=ROWS, row_groups=1), overwrite=False)
    trace = TraceStore(lake)
    indexed = await index_table("lake", store=trace, pages=False, pack=False)
    assert indexed.catalogue is not None
    assert indexed.catalogue.parquet_metadata is not None
    assert (indexed.catalogue.parquet_metadata.action, indexed.catalogue.parquet_metadata.file_count) == ("written", 3)
    assert {record.path for record in trace.records if record.path.endswith(".parquet")} == {
        "lake/date=2024-03-03/3.parquet"
    }


def test_the_command(table: Path) -> None:
    done = CliRunner().invoke(app, ["pack", str(table), "--parquet-metadata"])
    assert done.exit_code == 0, done.output
    assert "_metadata: written (" in done.output
    assert "4 files" in done.output
