"""Native partitions are published as Parquet: the copy answers every row of the source, and only what changed is converted."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.catalog.table_files import PartitionLocation
from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.format.native import COLUMN_VERSION, encode_column_versions, parse_column_versions
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.table_metadata import encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import LeftBehind, TableTransaction, encode_txn, parse_txn
from coldparquet.maintenance.verify import verify_table
from coldparquet.publish import PublishOptions, PublishReport, publish_table
from coldparquet.publish.native import NativeConverter
from coldparquet.records import replace
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.checked import read_whole
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.write.compact import compact_table
from tests.support.questdb_tables import GOLDEN, assert_same_rows, expected_rows
from tests.support.table_copies import (
    NATIVE,
    SNAPSHOTS,
    TABLE,
    change_columns,
    change_record,
    contents_of,
    copy_table,
    put_in_state,
    read_rows,
    records_of,
    rewrite_txn,
    with_records,
)

PATH = "bucket/t"
LEAVE = PublishOptions(native="leave")
TABLES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir() and path.name != "none")


def all_native(table: Path) -> int:
    """Let a copy of a table have native partitions alone: those that it has; return how many rows these have."""

    def native(transaction: TableTransaction) -> TableTransaction:
        return with_records(transaction, [record for record in records_of(transaction) if not record.is_parquet])

    return rewrite_txn(table, native).total_rows


def commit(table: Path, **changes: Any) -> None:
    """Commit a transaction that changes this of `_txn`."""
    rewrite_txn(table, lambda transaction: replace(transaction, txn=transaction.txn + 1, **changes))


async def published_txn(store: ObjectStore) -> Any:
    return parse_txn((await read_whole(store, f"{PATH}/_txn")).data, path=None)


@pytest.mark.parametrize("name", TABLES)
async def test_the_copy_answers_every_row(name: str) -> None:
    source, store, expected = GOLDEN / name / "table", MemoryStore(), expected_rows(name)
    report = await publish_table(source, PATH, store=store)
    assert (report.rows, report.rows_left_behind) == (expected.num_rows, 0)
    random = np.random.default_rng(expected.num_rows)
    times = expected.column("ts").cast(pa.int64()).to_numpy()
    async with cp.open_table(PATH, store=store) as copy, cp.open_table(source) as table:
        assert {partition.format for partition in copy.partitions} == {"parquet"}
        assert copy.txn == table.txn
        assert copy.schema.equals(table.schema, check_metadata=True)
        assert_same_rows(await copy.scan().to_arrow(), expected)
        assert await copy.scan().count() == expected.num_rows
        for column in [field.name for field in table.schema if not pa.types.is_nested(field.type)]:
            assert await copy.scan().null_count(column) == await table.scan().null_count(column), column
            if pa.types.is_integer(table.schema.field(column).type) or pa.types.is_timestamp(
                table.schema.field(column).type
            ):
                assert await copy.scan().min_max(column) == await table.scan().min_max(column), column
        for _ in range(8):
            columns = list(random.choice(expected.schema.names, size=random.integers(1, 4), replace=False))
            begin, end = sorted(random.choice(times, size=2).tolist())
            where = (cp.col("ts") >= begin) & (cp.col("ts") < end)
            wanted = expected.filter(pa.array((times >= begin) & (times < end))).select(columns)
            assert_same_rows(await copy.scan(columns, where).to_arrow(), wanted)
    assert (await verify_table(PATH, store=store, deep=True)).count("error") == 0


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
async def test_the_copy_answers_earlier_moments(tmp_path: Path, snapshot: str | None) -> None:
    table, store = copy_table(TABLE, tmp_path, snapshot=snapshot), MemoryStore()
    await publish_table(table, PATH, store=store)
    assert_same_rows(await read_rows(store, PATH), expected_rows(TABLE, snapshot))


async def test_a_table_without_any_parquet_partition(tmp_path: Path) -> None:
    table, store = copy_table("column_added_after", tmp_path), MemoryStore()
    row_count = all_native(table)
    report = await publish_table(table, PATH, store=store)
    assert (report.count("converted"), report.rows) == (3, row_count)
    expected = expected_rows("column_added_after")
    assert_same_rows(await read_rows(store, PATH), expected.slice(expected.num_rows - row_count))


async def test_the_files_are_what_a_questdb_would_read(tmp_path: Path) -> None:
    """Types, field ids, the order of rows and the keys of symbols; read by pyarrow, which knows nothing of us."""
    source, store = GOLDEN / "types_all" / "table", MemoryStore()
    report = await publish_table(source, PATH, store=store)
    (converted,) = [partition for partition in report.partitions if partition.action == "converted"]
    directory = f"{PATH}/{converted.published_name}"
    data = (await read_whole(store, f"{directory}/data.parquet")).data
    (tmp_path / "data.parquet").write_bytes(data)
    file = pq.ParquetFile(tmp_path / "data.parquet")
    metadata = parse_table_metadata((source / "_meta").read_bytes(), path=None)
    assert [int((field.metadata or {})[b"PARQUET:field_id"]) for field in file.schema_arrow] == [
        column.writer_index for column in metadata.columns
    ]
    sidecar = parse_sidecar((await read_whole(store, f"{directory}/_pm")).data)
    for index, column in enumerate(metadata.columns):
        assert sidecar.column(index).local_key_is_global == (column.symbol_index is not None)
    rows = file.read(columns=["ts", "v_long"] if "v_long" in file.schema_arrow.names else ["ts"])
    expected = expected_rows("types_all")
    assert rows.column("ts").equals(expected.slice(expected.num_rows - rows.num_rows).column("ts"))
    record = (await published_txn(store)).partitions.record(len(report.partitions) - 1)
    assert (record.is_parquet, record.parquet_size, record.row_count) == (True, len(data), rows.num_rows)


async def test_row_groups_fit_the_memory(tmp_path: Path) -> None:
    store = MemoryStore()
    options = PublishOptions(memory_limit_bytes=20_000)
    await publish_table(GOLDEN / TABLE / "table", PATH, store=store, options=options)
    (tmp_path / "data.parquet").write_bytes((await read_whole(store, f"{PATH}/{NATIVE}/data.parquet")).data)
    file = pq.ParquetFile(tmp_path / "data.parquet").metadata
    rows = [file.row_group(index).num_rows for index in range(file.num_row_groups)]
    assert (sum(rows), max(rows) < 200, len(rows) > 5) == (1000, True, True)
    assert_same_rows(await read_rows(store, PATH), expected_rows(TABLE))


async def test_what_cannot_be_converted_says_what_to_do(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    change_record(table, lambda record: replace(record, unknown_flags=1 << 61), index=2)
    with pytest.raises(UnsupportedError, match=r"cannot be converted.*--native leave") as caught:
        await publish_table(table, PATH, store=MemoryStore())
    assert NATIVE in str(caught.value)


async def test_symbols_have_the_keys_of_the_table(tmp_path: Path) -> None:
    store = MemoryStore()
    await publish_table(GOLDEN / TABLE / "table", PATH, store=store)
    (tmp_path / "data.parquet").write_bytes((await read_whole(store, f"{PATH}/{NATIVE}/data.parquet")).data)
    stored: Any = pq.read_table(tmp_path / "data.parquet", read_dictionary=["sym"]).column("sym").combine_chunks()
    keys = np.fromfile(GOLDEN / TABLE / "table" / NATIVE / "sym.d", dtype="<i4", count=len(stored))
    assert stored.dictionary.take(pa.array(keys, mask=keys < 0)).equals(stored.dictionary_decode())
    async with cp.open_table(PATH, store=store, options=cp.ReadOptions(symbols="global")) as copy:
        shown: Any = (await copy.scan(["sym"], f"ts >= '{NATIVE}'").to_arrow()).column("sym").combine_chunks()
    assert shown.indices.equals(pa.array(keys, mask=keys < 0))


# --- Only what changed --------------------------------------------------------------------------------------------------


async def publish_again(table: Path, store: ObjectStore) -> tuple[PublishReport, list[str]]:
    """Publish, and return what was written of the native partition too."""
    trace = TraceStore(store)
    report = await publish_table(table, PATH, store=trace)
    written = [record.path for record in trace.records if (record.operation, record.status) == ("put", "ok")]
    return report, [path for path in written if f"/{NATIVE}" in path]


async def test_an_unchanged_partition_is_not_converted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, store = copy_table(TABLE, tmp_path, snapshot="0_converted"), MemoryStore()
    await publish_table(table, PATH, store=store)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a partition was converted again")

    monkeypatch.setattr("coldparquet.publish.native.NativeConverter.converted", refuse)
    for snapshot in SNAPSHOTS:
        put_in_state(table, snapshot)
        assert (await publish_table(table, PATH, store=store)).count("converted") == 0
    change_columns(table)  # a renamed column is still the same
    report = await publish_table(table, PATH, store=store)
    assert (report.is_committed, report.count("unchanged")) == (True, 3)
    assert (await read_rows(store, PATH)).schema.names[-1] == "ts_renamed"


@pytest.mark.parametrize("change", ["fewer rows", "version of a column", "squashed", "emptied meanwhile"])
async def test_a_changed_partition_is_looked_at_again(tmp_path: Path, change: str) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store)
    expected = expected_rows(TABLE)
    match change:
        case "fewer rows":  # as if it had been published before the last 10 rows came
            change_record(table, lambda record: replace(record, row_count=record.row_count - 10), index=2)
            expected = expected.slice(0, expected.num_rows - 10)
        case "version of a column":
            expected = update_column(table, expected)
        case "squashed":
            change_record(table, lambda record: replace(record, squash_count=record.squash_count + 1), index=2)
        case _:
            commit(table, truncate_version=1)
    report, written = await publish_again(table, store)
    assert_same_rows(await read_rows(store, PATH), expected)
    if change in ("squashed", "emptied meanwhile"):  # it might have had other rows, but has the same
        assert (report.count("found"), written) == (1, [])
    else:
        assert report.count("converted") == 1
        txn = (await published_txn(store)).txn
        assert written == [f"{PATH}/{NATIVE}.{txn}/data.parquet", f"{PATH}/{NATIVE}.{txn}/_pm"]
    assert (await publish_again(table, store))[0].count("unchanged") == 3


def update_column(table: Path, expected: pa.Table) -> pa.Table:
    """Write new values of one column of the native partition into files of another version, as UPDATE does."""
    ids = np.fromfile(table / NATIVE / "id.d", dtype="<i8", count=1000) + 7
    ids.tofile(table / NATIVE / "id.d.8")
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    versions = parse_column_versions((table / "_cv").read_bytes(), path=None)
    (writer_index,) = [column.writer_index for column in metadata.columns if column.name == "id"]
    timestamp = int(transaction.partitions.timestamps[-1])
    record = np.array([(timestamp, writer_index, 8, 0)], COLUMN_VERSION)
    changed = replace(versions, version=versions.version + 1, records=np.concatenate([versions.records, record]))
    (table / "_cv").write_bytes(encode_column_versions(changed))
    commit(table, column_version=changed.version)
    column = expected.schema.names.index("id")
    kept = expected.column("id").combine_chunks().slice(0, expected.num_rows - 1000)
    return expected.set_column(column, "id", pa.concat_arrays([kept, pa.array(ids)]))


async def test_a_dropped_column_is_no_reason_to_convert_again(tmp_path: Path) -> None:
    table, store = copy_table("column_added_after", tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store)
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    dropped = next(column for column in metadata.columns if column.name != "ts" and column.symbol_index is None)
    slots = list(metadata.slots)
    slots[dropped.writer_index] = replace(slots[dropped.writer_index], type_code=-slots[dropped.writer_index].type_code)
    changed = replace(metadata, slots=tuple(slots), metadata_version=metadata.metadata_version + 1)
    (table / "_meta").write_bytes(encode_table_metadata(changed))
    version = changed.metadata_version
    commit(table, metadata_version=version, column_structure_version=version)
    report = await publish_table(table, PATH, store=store)
    assert report.count("unchanged") == len(report.partitions)
    assert_same_rows(await read_rows(store, PATH), expected_rows("column_added_after").drop_columns([dropped.name]))


async def test_a_partition_that_the_database_converts_later_is_published_as_it_is(tmp_path: Path) -> None:
    """It is another directory, even if it had the same size and rows."""
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store)
    database = table / f"{NATIVE}.7"
    database.mkdir()
    for name in ("data.parquet", "_pm"):
        (database / name).write_bytes((await read_whole(store, f"{PATH}/{NATIVE}/{name}")).data)
    size = (database / "data.parquet").stat().st_size
    change_record(table, lambda record: replace(record, name_txn=7, is_parquet=True, parquet_size=size), index=2)
    report, written = await publish_again(table, store)
    assert [report.count(action) for action in ("unchanged", "published")] == [2, 1]
    assert written == [f"{PATH}/{NATIVE}.7/data.parquet", f"{PATH}/{NATIVE}.7/_pm"]
    assert_same_rows(await read_rows(store, PATH), expected_rows(TABLE))
    # And back: CONVERT PARTITION TO NATIVE.
    change_record(table, lambda record: replace(record, name_txn=-1, is_parquet=False, parquet_size=-1), index=2)
    report, written = await publish_again(table, store)
    assert (report.count("found"), report.partitions[2].published_name, written) == (1, f"{NATIVE}.7", [])
    assert_same_rows(await read_rows(store, PATH), expected_rows(TABLE))


async def test_without_its_manifest_the_file_is_still_recognised(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store)
    (path,) = [info.path for info in (await store.list(PATH)).objects if "_published" in info.path]
    await store.delete([path])
    report, written = await publish_again(table, store)
    assert (report.count("found"), report.is_committed, written) == (1, False, [])
    assert (await publish_again(table, store))[0].count("unchanged") == 3


async def test_a_dry_run_tells_the_price_and_converts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a partition was converted")

    with monkeypatch.context() as patch:
        patch.setattr("coldparquet.publish.native.NativeConverter.converted", refuse)
        planned = await publish_table(table, PATH, store=store, options=PublishOptions(dry_run=True))
    with pytest.raises(NotFoundError):
        await store.list(PATH)
    done = await publish_table(table, PATH, store=store)
    before, after = planned.partitions[2], done.partitions[2]
    assert (before.action, after.action) == ("would convert", "converted")
    assert before.published_name == after.published_name == NATIVE
    assert before.native_size_bytes == after.native_size_bytes
    assert (before.parquet_size_bytes, after.parquet_size_bytes is None) == (None, False)
    assert (after.native_size_bytes or 0) > (after.parquet_size_bytes or 0)
    assert (planned.rows, planned.cost.write_count) == (done.rows, done.cost.write_count)
    assert planned.cost.dollars == pytest.approx(done.cost.dollars)
    names = [name.partition("-")[0] for name in done.table_files]
    assert list(planned.table_files) == names  # the checksum in the manifest's name is of sizes that are not known yet


# --- Rows that stay behind ----------------------------------------------------------------------------------------------


async def test_readers_of_a_copy_without_native_rows_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    report = await publish_table(table, PATH, store=store, options=LEAVE)
    assert (report.count("left behind"), report.rows_left_behind) == (1, 1000)
    assert (await published_txn(store)).left_behind == LeftBehind(partition_count=1, row_count=1000)
    told = (
        "rows are missing: 1,000 rows in 1 native partition were left behind when this copy of the table was published"
    )
    with caplog.at_level(logging.WARNING, "coldparquet"):
        async with cp.open_table(PATH, store=store) as copy:
            assert caplog.messages == [f"{PATH}: {told}"]
            assert told in (await copy.scan().plan()).notes
            assert told in " ".join((await copy.scan().plan()).explain().split())
            await copy.refresh()
            assert len(caplog.messages) == 1
            # The next run brings the rows, and the note is gone with the commit.
            again = await publish_table(table, PATH, store=store)
            assert (again.rows_left_behind, again.count("converted")) == (0, 1)
            await copy.refresh()
            assert await copy.scan().count() == expected_rows(TABLE).num_rows
            assert told not in (await copy.scan().plan()).notes
        assert len(caplog.messages) == 1
    assert (await published_txn(store)).left_behind is None


async def test_verify_tells_it_and_a_commit_to_the_copy_keeps_it(tmp_path: Path) -> None:
    table, target = copy_table(TABLE, tmp_path), tmp_path / "published"
    await publish_table(table, target, options=LEAVE)
    verified = await verify_table(target)
    assert [finding.kind for finding in verified.findings if finding.severity == "warning"] == ["RowsLeftBehind"]
    compacted = await compact_table(target, force=True)
    assert compacted.count("compacted") == 2
    transaction = parse_txn((target / "_txn").read_bytes(), path=None)
    assert (transaction.txn, transaction.left_behind) == (9, LeftBehind(partition_count=1, row_count=1000))


async def test_the_copy_of_a_copy_lacks_the_same_rows(tmp_path: Path) -> None:
    table, target, store = copy_table(TABLE, tmp_path), tmp_path / "published", MemoryStore()
    await publish_table(table, target, options=LEAVE)
    await publish_table(target, PATH, store=store)
    assert (await published_txn(store)).left_behind == LeftBehind(partition_count=1, row_count=1000)


async def test_what_was_converted_before_stays_as_long_as_it_is_right(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store)
    assert (await publish_table(table, PATH, store=store, options=LEAVE)).count("unchanged") == 3
    change_record(table, lambda record: replace(record, row_count=record.row_count - 10), index=2)
    report = await publish_table(table, PATH, store=store, options=LEAVE)
    assert [report.count(action) for action in ("unchanged", "removed", "left behind")] == [2, 1, 1]
    assert_same_rows(await read_rows(store, PATH), expected_rows(TABLE).slice(0, 2044))


async def test_refused(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    refuse = PublishOptions(native="refuse")
    with pytest.raises(
        InvalidInputError, match=rf"1,000 rows are in 1 partition .*\({NATIVE}\).*--native convert"
    ) as caught:
        await publish_table(table, PATH, store=store, options=refuse)
    assert (caught.value.kind, caught.value.details["partitions"]) == ("NativePartitions", [NATIVE])
    with pytest.raises(NotFoundError):
        await store.list(PATH)
    whole = GOLDEN / "interval_month" / "table"
    assert (await publish_table(whole, PATH, store=store, options=refuse)).rows_left_behind == 0


async def test_nothing_is_left_to_publish(tmp_path: Path) -> None:
    table = copy_table("column_added_after", tmp_path)
    all_native(table)
    with pytest.raises(InvalidInputError, match="--native convert") as caught:
        await publish_table(table, PATH, store=MemoryStore(), options=LEAVE)
    assert caught.value.kind == "NothingToPublish"


async def test_a_note_of_another_transaction_says_nothing(tmp_path: Path) -> None:
    """As where a database goes on with a copy, and leaves these bytes of the file as they are."""
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store, options=LEAVE)
    data = (await read_whole(store, f"{PATH}/_txn")).data
    without = encode_txn(replace(parse_txn(data, path=None), left_behind=None))
    assert data.startswith(without)
    later = encode_txn(replace(parse_txn(without, path=None), txn=9))
    assert parse_txn(later + data[len(without) :], path=None).left_behind is None


# --- A source that changes meanwhile ------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["cut short", "column files are gone", "replaced", "symbols are gone"])
async def test_native_rows_that_change_meanwhile_are_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    converted = NativeConverter.converted

    def disturbed(self: NativeConverter, location: PartitionLocation) -> Any:
        match change:
            case "cut short":
                change_record(table, lambda record: replace(record, row_count=record.row_count - 10), index=2)
            case "column files are gone":
                shutil.rmtree(table / NATIVE)
            case "replaced":
                (table / NATIVE).rename(table / f"{NATIVE}.7")
                change_record(table, lambda record: replace(record, name_txn=7), index=2)
            case _:
                (table / "sym.o").unlink()
        return converted(self, location)

    monkeypatch.setattr(NativeConverter, "converted", disturbed)
    with pytest.raises((ObjectChangedError, NotFoundError)) as caught:
        await publish_table(table, PATH, store=store)
    kinds = {"symbols are gone": "MissingSymbolFile", "column files are gone": "MissingColumnFile"}
    assert caught.value.kind == kinds.get(change, "SourceChanged")
    with pytest.raises(NotFoundError):
        await store.info(f"{PATH}/_txn")


async def test_a_column_file_that_questdb_itself_does_not_find(tmp_path: Path) -> None:
    """As after RENAME COLUMN and CONVERT PARTITION TO NATIVE in QuestDB 9.3.4: the file has the column's old name."""
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    (table / NATIVE / "price.d").rename(table / NATIVE / "old_price.d")
    with pytest.raises(NotFoundError, match=r"again does not help: QuestDB cannot read.*--native leave") as caught:
        await publish_table(table, PATH, store=store)
    assert (caught.value.kind, caught.value.path) == ("MissingColumnFile", f"{table}/{NATIVE}/price.d")
    async with cp.open_table(table) as opened:
        with pytest.raises(NotFoundError, match=r"refresh the table.*QuestDB cannot read the partition either"):
            await opened.scan().to_arrow()
    assert (await publish_table(table, PATH, store=store, options=LEAVE)).rows_left_behind == 1000


async def test_the_source_is_only_read_and_nothing_stays_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, temporary = copy_table(TABLE, tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = contents_of(table)
    await publish_table(table, PATH, store=MemoryStore())
    assert contents_of(table) == before
    assert list(temporary.iterdir()) == []
