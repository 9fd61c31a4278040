"""What is published, and what a reader of it sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.errors import FormatError, InvalidInputError, NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.txn import parse_txn
from coldparquet.maintenance.index import index_table
from coldparquet.publish import PublishOptions, PublishProgress, parse_storage_class_rule, publish_table
from coldparquet.records import replace
from coldparquet.storage.checked import read_whole
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from tests.support.questdb_tables import GOLDEN, PARTITIONS, assert_same_rows, expected_rows
from tests.support.table_copies import (
    NATIVE,
    NATIVE_ROWS,
    SNAPSHOTS,
    TABLE,
    change_columns,
    change_record,
    contents_of,
    copy_table,
    expected_published_rows,
    put_in_state,
    read_rows,
)

TABLES = sorted({partition.table for partition in PARTITIONS})
WRITES = {"put", "start upload", "upload part", "finish upload"}
READS = {"get", "info", "list"}


async def objects_in(store: MemoryStore, path: str) -> dict[str, bytes]:
    """Everything below a path, by the path below it."""
    listing = await store.list(path)
    found = {info.path.removeprefix(f"{path}/"): (await read_whole(store, info.path)).data for info in listing.objects}
    for directory in listing.directories:
        name = directory.rpartition("/")[2]
        found |= {f"{name}/{below}": data for below, data in (await objects_in(store, directory)).items()}
    return found


@pytest.mark.parametrize("name", TABLES)
async def test_published_table_holds_the_parquet_partitions(name: str) -> None:
    source, store = GOLDEN / name / "table", MemoryStore()
    report = await publish_table(source, "bucket/db/t", store=store, options=PublishOptions(native="leave"))
    expected = expected_rows(name)
    mine = [partition for partition in PARTITIONS if partition.table == name]
    rows = [expected.slice(partition.first_row, partition.row_count) for partition in mine]
    assert report.rows == sum(piece.num_rows for piece in rows)
    assert report.rows + report.rows_left_behind == expected.num_rows
    async with cp.open_table("bucket/db/t", store=store) as table:
        assert [partition.name for partition in table.partitions] == [partition.directory.name for partition in mine]
        assert {partition.format for partition in table.partitions} == {"parquet"}
        assert await table.scan().count() == report.rows
    published = parse_txn((await read_whole(store, "bucket/db/t/_txn")).data, path=None)
    metadata = json.loads((GOLDEN / name / "expected" / "columns.json").read_text())
    timestamp = next(column["column"] for column in metadata if column["designated"])
    times = [time.value for piece in (rows[0], rows[-1]) for time in piece.column(timestamp).combine_chunks()]
    assert (published.min_timestamp, published.max_timestamp) == (min(times), max(times))


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
async def test_a_snapshot_is_published_although_the_files_have_grown(tmp_path: Path, snapshot: str | None) -> None:
    table, store = copy_table(TABLE, tmp_path, snapshot=snapshot), MemoryStore()
    await publish_table(table, "bucket/t", store=store)
    assert_same_rows(await read_rows(store, "bucket/t"), expected_published_rows(snapshot))
    for name, data in (await objects_in(store, "bucket/t")).items():
        if name.endswith("/_pm"):
            parquet = (await read_whole(store, f"bucket/t/{name.removesuffix('_pm')}data.parquet")).data
            assert parse_sidecar(data).parquet_size_bytes == len(parquet)
            if name.startswith(NATIVE):
                continue
            assert (table / name.removesuffix("_pm") / "data.parquet").read_bytes().startswith(parquet)


@pytest.mark.parametrize("with_sidecars", [False, True])
async def test_in_place_updates_are_published_under_new_names(tmp_path: Path, with_sidecars: bool) -> None:
    table, store = copy_table(TABLE, tmp_path, snapshot="0_converted"), MemoryStore()
    names: list[list[str]] = []
    for snapshot in SNAPSHOTS:
        put_in_state(table, snapshot)
        if with_sidecars:  # those of the last moment know nothing of the earlier ones
            await index_table(table, force=True, pages=False, pack=False)
        before = await objects_in(store, "bucket/t") if names else {}
        report = await publish_table(table, "bucket/t", store=store)
        after = await objects_in(store, "bucket/t")
        assert_same_rows(await read_rows(store, "bucket/t"), expected_published_rows(snapshot))
        replaced = {name for name in before if after[name] != before[name]}
        assert replaced <= {
            "_txn",
            "sym.o",
            "sym.c",
            "side.o",
            "side.c",
            *(f"{n}.{e}" for n in ("sym", "side") for e in "kv"),
        }
        names.append([partition.published_name for partition in report.partitions if partition.published_name])
    assert names == [
        ["2024-01-01.2", "2024-01-02.1", NATIVE],
        ["2024-01-01.4", "2024-01-02.1", NATIVE],
        ["2024-01-01.4", "2024-01-02.5", NATIVE],
        ["2024-01-01.7", "2024-01-02.7", NATIVE],
    ]


async def test_a_reader_of_the_old_version_goes_on_reading_it(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path, snapshot="0_converted"), MemoryStore()
    await publish_table(table, "bucket/t", store=store)
    async with cp.open_table("bucket/t", store=store) as reader:
        put_in_state(table, None)
        change_columns(table)
        await publish_table(table, "bucket/t", store=store)
        assert_same_rows(await reader.scan().to_arrow(), expected_published_rows("0_converted"))
    renamed = await read_rows(store, "bucket/t")
    assert renamed.num_rows == expected_published_rows(None).num_rows
    assert [name for name in renamed.schema.names if name.endswith("_renamed")]


async def test_publishing_again_sends_nothing(tmp_path: Path) -> None:
    table, trace = copy_table(TABLE, tmp_path), TraceStore(MemoryStore())
    await publish_table(table, "bucket/t", store=trace)
    trace.clear()
    report = await publish_table(table, "bucket/t", store=trace)
    requests = [(record.operation, record.path.removeprefix("bucket/t")) for record in trace.records]
    manifest = next(path for _, path in requests if path.startswith("/_published.v"))
    assert requests == [
        ("list", ""),
        ("get", "/_txn"),
        ("get", "/_meta.v0"),
        ("get", manifest),
        ("get", "/_name"),
    ]
    assert (report.is_committed, report.cost.write_count, report.count("unchanged")) == (False, 0, 3)


async def test_only_what_changed_is_sent(tmp_path: Path) -> None:
    table, trace = copy_table(TABLE, tmp_path, snapshot="0_converted"), TraceStore(MemoryStore())
    await publish_table(table, "bucket/t", store=trace)
    put_in_state(table, "1_one_late_row")
    trace.clear()
    report = await publish_table(table, "bucket/t", store=trace)
    written = [record.path.removeprefix("bucket/t/") for record in trace.records if record.operation == "put"]
    symbols = ["sym.k", "sym.v", "sym.o", "sym.c"]  # DOGE-USD was new
    assert written == [
        "2024-01-01.4/data.parquet",
        "2024-01-01.4/_pm",
        written[2],
        *symbols,
        "_txn",
    ]
    assert written[2].startswith("_published.v4-")
    assert report.table_files == tuple(written[2:])


async def test_commit_order(tmp_path: Path) -> None:
    table, trace = copy_table(TABLE, tmp_path), TraceStore(MemoryStore())
    await publish_table(table, "bucket/t", store=trace)
    written = [record.path.removeprefix("bucket/t/") for record in trace.records if record.operation == "put"]
    for name in ("2024-01-01.2", "2024-01-02.1", NATIVE):
        assert written.index(f"{name}/data.parquet") < written.index(f"{name}/_pm")
    assert written[0] == "_publishing"
    assert all("/" in name for name in written[1:7])
    assert [name for name in written[7:] if name.partition(".")[0] not in ("sym", "side")] == [
        "_meta.v0",
        "_cv.v0",
        written[9],
        "_name",
        "_meta",
        "_cv",
        "_txn",
    ]


@pytest.mark.parametrize("state", ["first", "nothing new", "updated", "killed"])
async def test_a_dry_run_says_what_the_real_one_does_and_writes_nothing(tmp_path: Path, state: str) -> None:
    """Of native partitions see the tests of these: what they become is not known before."""
    table, store = copy_table(TABLE, tmp_path, snapshot="0_converted"), MemoryStore()
    dry_run, options = PublishOptions(native="leave", dry_run=True), PublishOptions(native="leave")
    if state != "first":
        await publish_table(table, "bucket/t", store=store, options=options)
    if state in ("updated", "killed"):
        put_in_state(table, None)
        change_columns(table)
    if state == "killed":  # before the commit of the second run
        old = (await read_whole(store, "bucket/t/_txn")).data
        await publish_table(table, "bucket/t", store=store, options=options)
        await store.put("bucket/t/_txn", old, overwrite=True)
        await store.delete(["bucket/t/2024-01-02.8/_pm", "bucket/t/2024-01-02.8/data.parquet"])
    before = {} if state == "first" else await objects_in(store, "bucket/t")
    trace = TraceStore(store)
    planned = await publish_table(table, "bucket/t", store=trace, options=dry_run)
    assert {record.operation for record in trace.records} <= READS
    assert (planned.is_dry_run, planned.is_committed) == (True, False)
    assert before == ({} if state == "first" else await objects_in(store, "bucket/t"))
    trace.clear()
    done = await publish_table(table, "bucket/t", store=trace, options=options)
    writes = [record for record in trace.records if record.operation in WRITES]
    assert planned.table_files == done.table_files
    assert [partition.published_name for partition in planned.partitions] == [
        partition.published_name for partition in done.partitions
    ]
    if state == "killed":  # a dry run does not compare the bytes of what it finds
        return
    assert len(writes) == done.cost.write_count == planned.cost.write_count
    assert planned.cost.sent_bytes == done.cost.sent_bytes
    assert planned.cost.dollars == pytest.approx(done.cost.dollars)


async def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    seen: list[PublishProgress] = []
    report = await publish_table(table, "bucket/t", store=MemoryStore(), on_progress=seen.append)
    converted_bytes = report.partitions[2].parquet_size_bytes
    total_bytes = 71470 + 71051 + (converted_bytes or 0)
    assert seen[-1] == PublishProgress(
        sent_bytes=total_bytes, total_bytes=total_bytes, finished_partitions=3, total_partitions=3
    )
    assert [progress.sent_bytes for progress in seen] == sorted(progress.sent_bytes for progress in seen)


async def test_source_is_only_read(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    before = contents_of(table)
    await publish_table(table, "bucket/t", store=MemoryStore())
    assert contents_of(table) == before


async def test_what_belongs_to_a_table_is_there_to_restore_it(tmp_path: Path) -> None:
    table, store = copy_table("symbols", tmp_path), MemoryStore()
    await publish_table(table, "bucket/t", store=store)
    published = await objects_in(store, "bucket/t")
    for name in ("_meta", "_name"):
        assert published[name] == (table / name).read_bytes()
    for path in table.glob("*.[ockv]"):
        assert path.read_bytes().startswith(published[path.name])
        assert published[path.name]


async def test_missing_symbol_files_are_noted(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    (table / "side.c").unlink()
    (table / "side.k").unlink()
    report = await publish_table(table, "bucket/t", store=store, options=PublishOptions(native="leave"))
    assert report.notes == (
        "the symbol files of side are not there: the published table can be read, but not restored",
    )
    expected = expected_published_rows(None)
    assert_same_rows(await read_rows(store, "bucket/t"), expected.slice(0, expected.num_rows - NATIVE_ROWS))
    with pytest.raises(NotFoundError, match="symbols of a column are missing"):  # native rows mean nothing without
        await publish_table(table, "bucket/whole", store=store)


async def test_storage_class_by_age(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    rules = tuple(map(parse_storage_class_rule, ("9999d=GLACIER_IR", "30d=STANDARD_IA", "0d=INTELLIGENT_TIERING")))
    report = await publish_table(table, "bucket/t", store=store, options=PublishOptions(storage_classes=rules))
    classes = {
        path: (await store.info(f"bucket/t/{path}")).storage_class for path in await objects_in(store, "bucket/t")
    }
    assert {path for path, name in classes.items() if name is not None} == {
        "2024-01-01.2/data.parquet",
        "2024-01-02.1/data.parquet",
        f"{NATIVE}/data.parquet",
    }
    assert {partition.storage_class for partition in report.partitions} == {"STANDARD_IA"}
    plain = await publish_table(table, "bucket/other", store=store)
    assert report.cost.dollars > plain.cost.dollars
    assert report.cost.dollars_per_month < plain.cost.dollars_per_month


@pytest.mark.parametrize(
    "text", ["30d=GLACIER", "30d", "=STANDARD", "-1d=STANDARD", "30d=standard", "30 d=STANDARD", ""]
)
def test_wrong_storage_class_rules(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_storage_class_rule(text)


@pytest.mark.parametrize(
    "options",
    [
        {"dropped": "ignore"},
        {"native": "ignore"},
        {"purge_after_s": -1},
        {"purge_after_s": float("nan")},
        {"memory_limit_bytes": 0},
    ],
)
def test_wrong_options(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        PublishOptions(**options)  # type: ignore[arg-type]


async def test_no_table_and_nothing_to_publish(tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidInputError, match="not partitioned") as caught:
        await publish_table(GOLDEN / "none" / "table", "bucket/t", store=store)
    assert caught.value.kind == "NothingToPublish"
    with pytest.raises(NotFoundError):
        await publish_table(tmp_path / "absent", "bucket/t", store=store)
    with pytest.raises(NotFoundError):
        await publish_table(GOLDEN / TABLE, "bucket/t", store=store)


@pytest.mark.parametrize("damage", ["removed", "cut off", "size", "rows", "flags"])
async def test_damaged_sources_are_refused_and_nothing_is_visible(tmp_path: Path, damage: str) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    data = table / "2024-01-02.1" / "data.parquet"
    expected: type[Exception] = FormatError
    match damage:
        case "removed":
            data.unlink()
            expected = ObjectChangedError
        case "cut off":
            data.write_bytes(data.read_bytes()[:1000])
            expected = ObjectChangedError
        case "size":
            change_record(table, lambda record: replace(record, parquet_size=record.parquet_size - 1), index=1)
        case "rows":
            change_record(table, lambda record: replace(record, row_count=record.row_count - 1), index=1)
        case "flags":
            change_record(table, lambda record: replace(record, unknown_flags=1 << 61), index=1)
            expected = UnsupportedError
    with pytest.raises(expected) as caught:
        await publish_table(table, "bucket/t", store=store)
    assert "2024-01-02.1" in str(caught.value)
    with pytest.raises(NotFoundError):
        await store.info("bucket/t/_txn")


# --- ``_pages`` on their way to a bucket: carried along where they are right, left behind where they are not ----------


async def published_pages(store: MemoryStore, path: str) -> dict[str, bytes]:
    """The ``_pages`` of all partitions, by the name of the directory."""
    found = {}
    for directory in (await store.list(path)).directories:
        for info in (await store.list(directory)).objects:
            if info.path.endswith("/_pages"):
                found[directory.rpartition("/")[2]] = (await read_whole(store, info.path)).data
    return found


async def test_pages_are_published_beside_their_sidecars(tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    await index_table(table, pages=True, pack=False)
    store = MemoryStore()
    await publish_table(table, "bucket/t", store=store)
    assert await published_pages(store, "bucket/t") == {
        path.parent.name: path.read_bytes() for path in table.glob("*/_pages")
    }
    again = await index_table("bucket/t", pages=True, store=store, pack=False)
    assert again.count_pages("kept") == 4


async def test_what_describes_another_file_stays_behind(tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    await index_table(table, pages=True, pack=False)
    first, second, *others = sorted(table.glob("*/_pages"))
    second.write_bytes(first.read_bytes())
    first.write_bytes(b"garbage")
    store = MemoryStore()
    await publish_table(table, "bucket/t", store=store)
    assert (await published_pages(store, "bucket/t")).keys() == {path.parent.name for path in others}


async def test_pages_of_an_earlier_run_are_not_replaced(tmp_path: Path) -> None:
    """Nothing that exists is; readers check whose pages they are."""
    table = copy_table("interval_day", tmp_path)
    await index_table(table, pages=True, pack=False)
    first = min(table.glob("*/_pages"))
    store = MemoryStore()
    await store.put("bucket/t/_publishing", b"", overwrite=False)
    await store.put(f"bucket/t/{first.parent.name}/_pages", b"of a run that was killed", overwrite=False)
    await publish_table(table, "bucket/t", store=store)
    assert (await published_pages(store, "bucket/t"))[first.parent.name] == b"of a run that was killed"
