"""Compaction of genuine tables: every row stays what it was, and less is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import InvalidInputError
from coldparquet.format.table_metadata import encode_table_metadata, parse_table_metadata
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.options import MIB
from coldparquet.records import replace
from coldparquet.write import WriteOptions, write_partition
from coldparquet.write.compact import CompactionOptions, CompactionProgress, compact_table
from coldparquet.write.files import LocalFiles
from tests.support.questdb_tables import GOLDEN, assert_same_rows, expected_rows
from tests.support.table_copies import change_record, contents_of, copy_table
from tests.support.written_tables import (
    assert_stored_alike,
    directories,
    footer_of,
    in_memory,
    partition_names,
    questdb_of,
    row_counts,
    scan_rows,
    table_symbols,
)

TABLES = sorted(path.name for path in GOLDEN.iterdir() if (path / "table").is_dir())
SMALL = CompactionOptions(write=WriteOptions(row_group_rows=70, page_rows=20))


@pytest.mark.parametrize("options", [None, SMALL], ids=["as usual", "small row groups"])
@pytest.mark.parametrize("name", TABLES)
async def test_every_value_stays_and_only_the_parquet_partitions_move(
    name: str, options: CompactionOptions | None, tmp_path: Path
) -> None:
    table = copy_table(name, tmp_path)
    before = contents_of(table)
    report = await compact_table(table, force=True, options=options)
    assert report.count("failed") == 0
    assert_same_rows(await scan_rows(table), expected_rows(name))
    for done in report.partitions:
        if done.action == "skipped":
            assert done.reason == "in QuestDB's native format"
            continue
        assert (done.action, done.new_name is not None) == ("compacted", True)
        old, new = table / done.name, table / str(done.new_name)
        assert_stored_alike(new, old)
        assert done.after is not None
        assert done.after.parquet_size_bytes == (new / "data.parquet").stat().st_size
        assert done.after.row_groups == len(row_counts(new))
        assert max(row_counts(new)) <= (options or CompactionOptions()).write.row_group_rows
        others = {path.name for path in old.iterdir()} - {"data.parquet", "_pm"}
        assert {path.name for path in new.iterdir()} == {"data.parquet", "_pm", *others}
        assert all((new / other).read_bytes() == (old / other).read_bytes() for other in others)
    changed = {path for path, content in contents_of(table).items() if before.get(path) != content}
    assert {path for path in changed if path in before} <= {"_txn"}
    verified = await verify_table(table)
    assert verified.count("error") == verified.count("warning") == 0


@pytest.mark.parametrize("name", ["symbols", "types_all_groups", "o3_in_place", "dedup"])
async def test_symbols_keep_the_keys_of_the_table(name: str, tmp_path: Path) -> None:
    table = copy_table(name, tmp_path)
    report = await compact_table(table, force=True)
    symbols = table_symbols(table)
    checked = 0
    for done in report.partitions:
        if done.new_name is None:
            continue
        new, old = questdb_of(table / done.new_name), questdb_of(table / done.name)
        assert replace(new, columns=()) == replace(old, columns=(), unused_bytes=0)
        assert new.columns == old.columns
        for column in symbols:
            stored = pq.read_table(table / done.new_name / "data.parquet", columns=[column], read_dictionary=[column])
            chunks: list[Any] = stored.column(column).chunks
            for chunk in chunks:
                for key, value in zip(chunk.indices.to_pylist(), chunk.to_pylist(), strict=True):
                    assert value is None or symbols[column][key] == value
                    checked += value is not None
    assert checked


async def test_what_is_not_worth_it_is_kept_and_the_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    table = copy_table("symbols", tmp_path)
    first = await compact_table(table)
    assert [done.action for done in first.partitions] == ["compacted", "kept", "kept", "kept", "skipped"]
    assert first.partitions[0].reason == "3 row groups of 480 rows on average, where 1 would do"
    assert first.txn == 10
    before = contents_of(table)
    second = await compact_table(table)
    assert [done.action for done in second.partitions] == ["kept"] * 4 + ["skipped"]
    assert (second.txn, contents_of(table)) == (10, before)


async def test_dead_bytes_are_a_reason(tmp_path: Path) -> None:
    table = copy_table("dedup", tmp_path)
    options = CompactionOptions(write=WriteOptions(row_group_rows=200))
    report = await compact_table(table, options=options)
    [dead, tidy, native] = report.partitions
    assert dead.reason == "51% of the Parquet file (46.2 KiB of 91 KiB) belong to row groups that were replaced"
    assert dead.before is not None
    assert dead.after is not None
    assert (dead.before.unused_bytes > 0, dead.after.unused_bytes) == (True, 0)
    assert dead.after.parquet_size_bytes < dead.before.parquet_size_bytes / 2
    assert (tidy.action, native.action) == ("kept", "skipped")
    assert questdb_of(table / str(dead.new_name)).unused_bytes == 0


async def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    before = contents_of(table)
    report = await compact_table(table, dry_run=True, purge=True)
    assert [done.action for done in report.partitions] == ["would compact", "would compact", "skipped"]
    assert report.is_dry_run
    assert contents_of(table) == before


@pytest.mark.parametrize("name", ["2024-01-02", "2024-01-02.1"])
async def test_partitions_are_chosen_by_name(name: str, tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    report = await compact_table(table, partitions=[name])
    assert [(done.name, done.new_name) for done in report.partitions] == [("2024-01-02.1", "2024-01-02.7")]
    assert await partition_names(table) == ["2024-01-01.2", "2024-01-02.7", "2024-01-03"]
    with pytest.raises(InvalidInputError, match="no partition 1999-01-01") as caught:
        await compact_table(table, partitions=["2024-01-01", "1999-01-01"])
    assert caught.value.kind == "UnknownPartition"


async def test_versions_are_chosen_as_questdb_does(tmp_path: Path) -> None:
    """It takes the number of the transaction before, and finds no directory of its next choice taken."""
    table = copy_table("interval_month", tmp_path)  # at transaction 6
    (table / "2024-01.7").mkdir()  # left by another program
    report = await compact_table(table, force=True)
    assert [done.new_name for done in report.partitions] == [
        "2023-11.6",
        "2023-12.7",
        "2024-01.8",
        "2024-02.9",
        "2024-03.10",
    ]
    assert report.txn == 11
    assert_same_rows(await scan_rows(table), expected_rows("interval_month"))
    (table / "2024-03.11").mkdir()
    report = await compact_table(table, force=True, partitions=["2024-03"])
    assert ([done.new_name for done in report.partitions], report.txn) == (["2024-03.12"], 13)


async def test_an_older_state_is_compacted_as_it_was(tmp_path: Path) -> None:
    """The files are longer than the `_txn` says: what was appended later is none of this state."""
    table = copy_table("o3_in_place", tmp_path, snapshot="0_converted")
    expected = expected_rows("o3_in_place", "0_converted")
    report = await compact_table(table, force=True)
    assert report.count("compacted") == 2
    assert_same_rows(await scan_rows(table), expected)


async def test_an_open_table_stays_readable(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    async with cp.open_table(table) as opened:
        await compact_table(table)
        assert_same_rows(await opened.scan().to_arrow(), expected_rows("o3_in_place"))
        assert await opened.refresh()
        assert [partition.name for partition in opened.partitions] == ["2024-01-01.7", "2024-01-02.8", "2024-01-03"]
        assert_same_rows(await opened.scan().to_arrow(), expected_rows("o3_in_place"))


async def test_columns_that_the_table_has_dropped_stay_in_the_file(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    slots = [replace(slot, is_dropped=slot.name in {"price", "note"}) for slot in metadata.slots]
    (table / "_meta").write_bytes(encode_table_metadata(replace(metadata, slots=tuple(slots))))
    before = await scan_rows(table)
    assert "price" not in before.schema.names
    report = await compact_table(table)
    assert (await scan_rows(table)).equals(before)
    for done in report.partitions[:2]:
        assert_stored_alike(table / str(done.new_name), table / done.name)


@pytest.mark.parametrize("with_sidecars", [True, False])
async def test_sidecars_are_made(with_sidecars: bool, tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    if with_sidecars:
        await index_table(table, pages=False, pack=False)
    await compact_table(table)
    async with cp.open_table(table) as opened:
        plan = await opened.scan().plan()
    assert [partition.metadata_source for partition in plan.partitions] == ["sidecar", "sidecar", "native"]


async def test_bloom_filters_stay(tmp_path: Path) -> None:
    table = copy_table("bloom", tmp_path)
    report = await compact_table(table)
    [old, new] = [
        {
            leaf.name
            for row_group in footer_of(table / str(name)).row_groups
            for leaf, chunk in zip(footer_of(table / str(name)).leaves, row_group.chunks, strict=True)
            if chunk.bloom_filter_offset is not None
        }
        for name in (report.partitions[0].name, report.partitions[0].new_name)
    ]
    assert new == old
    assert len(old) == 13


async def test_options_name_columns_as_the_table_does(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    slots = [replace(slot, name="cost") if slot.name == "price" else slot for slot in metadata.slots]
    (table / "_meta").write_bytes(encode_table_metadata(replace(metadata, slots=tuple(slots))))
    write = WriteOptions(codec="lz4_raw", column_codecs={"cost": "gzip"}, bloom_columns=("id",))
    report = await compact_table(table, partitions=["2024-01-01"], options=CompactionOptions(write=write))
    metadata_of_file = pq.read_metadata(table / str(report.partitions[0].new_name) / "data.parquet")
    codecs = {
        metadata_of_file.row_group(0).column(index).path_in_schema: metadata_of_file.row_group(0)
        .column(index)
        .compression
        for index in range(metadata_of_file.num_columns)
    }
    assert (codecs["price"], codecs["amount"]) == ("GZIP", "LZ4")
    unknown = CompactionOptions(write=WriteOptions(column_codecs={"price": "gzip"}))
    with pytest.raises(InvalidInputError, match="does not have: price"):
        await compact_table(table, options=unknown)


async def test_progress_counts_rows(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    seen: list[CompactionProgress] = []
    options = CompactionOptions(write=WriteOptions(row_group_rows=500))
    await compact_table(table, force=True, options=options, on_progress=seen.append)
    assert [(state.written_rows, state.total_rows) for state in seen] == sorted(
        (state.written_rows, state.total_rows) for state in seen
    )
    assert seen[-1] == CompactionProgress(written_rows=2044, total_rows=2044, finished_partitions=2, total_partitions=2)
    assert 500 in {state.written_rows for state in seen}


class SlowFiles(LocalFiles):
    """Tells when a file is written, so that a test can do something meanwhile."""

    def __init__(self, started: asyncio.Event) -> None:
        self._started = started
        self._loop = asyncio.get_running_loop()

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        super().write_at(path, offset, data)
        asyncio.run_coroutine_threadsafe(self._tell(), self._loop).result()

    async def _tell(self) -> None:
        self._started.set()


async def test_a_cancelled_run_leaves_nothing(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    before = contents_of(table)
    started = asyncio.Event()
    run = asyncio.create_task(compact_table(table, files=SlowFiles(started)))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert contents_of(table) == before
    assert directories(table) == ["2024-01-01.2", "2024-01-02.1", "2024-01-03"]


@pytest.mark.parametrize("name", ["o3_in_place", "symbols", "types_all_groups"])
async def test_on_an_object_store(name: str, tmp_path: Path) -> None:
    table = copy_table(name, tmp_path)
    store = await in_memory(table)
    async with cp.open_table("t", store=store) as opened:
        report = await compact_table("t", store=store)
        assert report.count("compacted") > 0
        assert report.count("failed") == 0
        assert_same_rows(await opened.scan().to_arrow(), expected_rows(name))
    assert_same_rows(await scan_rows("t", store=store), expected_rows(name))
    local = await compact_table(table)
    assert [done.new_name for done in local.partitions] == [done.new_name for done in report.partitions]
    assert (await compact_table("t", store=store)).count("compacted") == 0


async def test_partitions_that_are_none_of_ours(tmp_path: Path) -> None:
    table = copy_table("interval_month", tmp_path)
    marks: list[dict[str, Any]] = [{"is_read_only": True}, {"has_remote_copy": True}, {"unknown_flags": 1 << 61}]
    for index, mark in enumerate(marks):
        change_record(table, lambda record, mark=mark: replace(record, **mark), index=index)  # type: ignore[misc]
    report = await compact_table(table, force=True)
    assert [done.action for done in report.partitions] == ["skipped"] * 3 + ["compacted"] * 2
    reasons = [done.reason or "" for done in report.partitions]
    assert "symbolic link" in reasons[0]
    assert "a copy of it elsewhere" in reasons[1]
    assert "0x2000000000000000" in reasons[2]


async def test_a_partition_is_no_table(tmp_path: Path) -> None:
    table = copy_table("interval_month", tmp_path)
    partition = next(table.glob("2024-01*"))
    with pytest.raises(InvalidInputError, match="this is one partition") as caught:
        await compact_table(partition)
    assert caught.value.kind == "NotATable"


async def test_memory_is_bounded_whatever_the_size_of_the_partition(tmp_path: Path) -> None:
    row_count, group_rows = 1_000_000, 20_000
    numbers = np.arange(row_count)
    rows = pa.table({f"c{index}": numbers * (index + 0.5) for index in range(6)})
    options = WriteOptions(row_group_rows=group_rows, codec="lz4_raw")
    await write_partition(tmp_path / "t" / "2024-01-01", rows, timestamp=None, options=options)
    rows_bytes = rows.nbytes
    del rows
    before = pa.total_allocated_bytes()
    seen: list[int] = []
    report = await compact_table(
        tmp_path / "t",
        force=True,
        options=CompactionOptions(write=options, memory_limit_bytes=4 * MIB),
        on_progress=lambda _: seen.append(pa.total_allocated_bytes() - before),
    )
    assert report.count("compacted") == 1
    assert len(seen) > row_count // group_rows
    assert max(seen) < rows_bytes / 3


def test_options_are_checked() -> None:
    with pytest.raises(InvalidInputError, match="purge_after_s is -1"):
        CompactionOptions(purge_after_s=-1)
    assert CompactionOptions().write.row_group_rows == 100_000
    assert CompactionOptions().write.page_rows == 20_000
