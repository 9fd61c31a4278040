"""Native partitions: QuestDB's own rows, by just the requests that are needed; faults as clear errors."""

from __future__ import annotations

import pickle
import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import coldparquet as cp
from coldparquet.catalog.symbol_dictionaries import SYMBOLS, SymbolDictionaries
from coldparquet.decode.arrow import PLAIN_TEXT, TEXT_AS_STORED, arrow_field
from coldparquet.errors import FormatError, NotFoundError, ObjectChangedError
from coldparquet.maintenance.index import index_table
from coldparquet.plan.model import Read
from coldparquet.plan.native import NativeSymbol
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.scan.native import OFFSETS, TIME_SEARCH, plan_native_rows
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import TraceStore, metadata_requests
from coldparquet.storage.memory import MemoryStore
from tests.support.native_partitions import NATIVE_PARTITIONS, NativePartition, native_partition, read_native
from tests.support.questdb_tables import assert_same_rows
from tests.support.table_copies import copy_table

every_partition = pytest.mark.parametrize("partition", NATIVE_PARTITIONS, ids=str)
TOPS = native_partition("native_tops", 0)
TYPES = native_partition("types_all")


@every_partition
@pytest.mark.parametrize("rows_per_read", [1_000_000, 7])
async def test_a_partition_is_what_questdb_answers(partition: NativePartition, rows_per_read: int) -> None:
    reading = await read_native(partition, LocalStore(), rows_per_read=rows_per_read)
    rows = pa.concat_tables(reading.slices)
    rows.validate(full=True)
    assert_same_rows(rows, partition.expected())
    expected = pa.schema([arrow_field(column.name, column.type, text=TEXT_AS_STORED) for column in partition.columns])
    assert rows.schema.equals(expected, check_metadata=True)


@every_partition
async def test_any_columns_of_any_time_range(partition: NativePartition) -> None:
    chosen = random.Random(str(partition))
    store, expected = partition.in_memory(), partition.expected()
    assert partition.timestamp is not None
    name = partition.timestamp.name
    times = [time.value for time in expected.column(name)]
    for _ in range(4):
        least, most = sorted(chosen.choice(times) + chosen.choice([-1, 0, 1]) for _ in range(2))
        lower, upper = chosen.choice([least, least, None]), chosen.choice([most, most, None])
        columns = chosen.sample(partition.columns, chosen.randint(1, len(partition.columns)))
        reading = await read_native(
            partition,
            store,
            columns=columns,
            time_bounds=(lower, upper),
            rows_per_read=chosen.choice([1, 5, 1000]),
            text=PLAIN_TEXT,
            max_request_bytes=chosen.choice([1, 64, 1 << 20]) if partition.row_count < 50 else 4096,
        )
        inside = [(lower is None or time >= lower) and (upper is None or time <= upper) for time in times]
        wanted = expected.filter(pa.array(inside)).select([column.name for column in columns])
        rows = pa.concat_tables(reading.slices) if reading.slices else wanted.slice(0, 0)
        assert_same_rows(rows, wanted)


async def test_a_limit_ends_the_last_slice() -> None:
    partition = native_partition("none")
    reading = await read_native(partition, LocalStore(), rows_per_read=10, limit=25)
    assert [len(rows) for rows in reading.slices] == [10, 10, 5]
    assert_same_rows(pa.concat_tables(reading.slices), partition.expected().slice(0, 25))


async def log_of(partition: NativePartition, names: list[str], **knobs: object) -> list[tuple[str, ByteRange, str]]:
    """Return the requests of a read: file, range and reason."""
    store = TraceStore(partition.in_memory())
    columns = [partition.column(name) for name in names]
    reading = await read_native(partition, store, columns=columns, **knobs)  # type: ignore[arg-type]
    log = [(record.path, record.byte_range, record.reason) for record in store.records]
    planned: list[object] = [
        (request.path, request.byte_range, request.reason) for request in reading.metadata_requests
    ]
    announced = [(request.path, request.byte_range, request.reason) for request in reading.requests]
    assert sorted(log, key=str) == sorted(planned + announced, key=str)
    assert all(record.status == "ok" for record in store.records)
    return [
        (path.rpartition("/")[2], byte_range, reason)
        for path, byte_range, reason in log
        if isinstance(byte_range, ByteRange)
    ]


async def test_columns_of_one_width_take_one_request_each() -> None:
    assert await log_of(TYPES, ["id", "price"]) == [
        ("id.d", ByteRange(0, 480), "rows 0-29: id"),
        ("price.d", ByteRange(0, 240), "rows 0-29: price"),
    ]


async def test_a_time_range_takes_one_look_at_the_timestamps() -> None:
    first = 1_709_337_600_000_000  # 2024-03-02, a row every five minutes
    bounds = (first + 1, first + 1_500_000_000)
    assert await log_of(TYPES, ["price"], time_bounds=bounds) == [
        ("ts.d", ByteRange(0, 240), TIME_SEARCH),
        ("price.d", ByteRange(8, 48), "rows 1-5: price"),
    ]


async def test_columns_of_variable_size_take_a_look_at_their_offsets() -> None:
    assert await log_of(TYPES, ["text", "label"], rows_per_read=20) == [
        ("text.i", ByteRange(0, 480), OFFSETS),
        ("label.i", ByteRange(0, 248), OFFSETS),
        ("text.i", ByteRange(0, 480), "rows 0-29: text (offsets)"),
        ("text.d", ByteRange(0, 694), "rows 0-29: text"),
        ("label.i", ByteRange(0, 248), "rows 0-29: label (offsets)"),
        ("label.d", ByteRange(0, 1030), "rows 0-29: label"),
    ]


async def test_symbols_take_two_requests_for_their_dictionary() -> None:
    partition = native_partition("native_tops", 1)
    log = await log_of(partition, ["sym"])
    assert [(name, reason) for name, _, reason in log] == [
        ("sym.o.27", SYMBOLS),
        ("sym.c.27", SYMBOLS),
        (f"sym.d.{partition.column('sym').name_txn}", "rows 0-2: sym"),
    ]


async def test_what_lies_before_the_tops_takes_no_request() -> None:
    # The first 15 rows were written before there was any of these columns.
    assert await log_of(TOPS, ["vtext", "text", "num", "arr"], limit=15) == []
    assert await log_of(TOPS, ["last"]) == []


async def test_no_row_in_the_time_range_takes_no_more_than_the_search() -> None:
    assert await log_of(TYPES, ["text"], time_bounds=(None, 5)) == [("ts.d", ByteRange(0, 240), TIME_SEARCH)]
    assert await log_of(TYPES, ["text"], time_bounds=(5, 4)) == []


async def test_a_dictionary_is_fetched_once_for_all_partitions() -> None:
    store = TraceStore(LocalStore())
    symbols = SymbolDictionaries(CheckedStore(store), str(TOPS.table_path))
    reads: list[Read] = []
    requests = []
    for partition in (TOPS, native_partition("native_tops", 1)):
        with metadata_requests() as of_partition:
            reads += await plan_native_rows(
                CheckedStore(store),
                directory_path=str(TOPS.table_path / partition.name),
                partition_index=0,
                row_count=partition.row_count,
                columns=[partition.column("sym")],
                timestamp=partition.timestamp,
                time_bounds=(None, None),
                rows_per_read=1000,
                all_rows_match=False,
                limit=5,
                symbols=symbols,
            )
        requests.append(len(of_partition))
    assert len(store.records) == 2
    assert requests == [2, 0]
    assert reads[0].data.symbols[TOPS.column("sym").index] is reads[1].data.symbols[TOPS.column("sym").index]
    assert reads[0].row_count == TOPS.row_count  # a limit says nothing about rows that may not match
    assert pickle.loads(pickle.dumps(reads[0])).data.files == reads[0].data.files  # noqa: S301 - our own bytes


# Faults


def files_of(partition: NativePartition) -> dict[str, bytes]:
    files = [*partition.table_path.iterdir(), *(partition.table_path / partition.name).iterdir()]
    return {str(file): file.read_bytes() for file in files if file.is_file()}


def path_of(partition: NativePartition, name: str) -> str:
    return str(partition.table_path / partition.name / name)


@pytest.mark.parametrize(("column", "file"), [("text", "text.i"), ("ts", "ts.d")])
async def test_a_missing_column_file(column: str, file: str) -> None:
    files = files_of(TYPES)
    del files[path_of(TYPES, file)]
    with pytest.raises(NotFoundError, match="a column file of a native partition is missing") as caught:
        await read_native(TYPES, MemoryStore(files), columns=[TYPES.column(column)], time_bounds=(5, None))
    assert caught.value.kind == "MissingColumnFile"
    assert caught.value.path == path_of(TYPES, file)


@pytest.mark.parametrize(
    ("file", "kind"),
    [("2024-03-02.111/num.d", "MissingColumnFile"), ("2024-02-28.115/data.parquet", "PartitionMissing")],
)
async def test_a_file_that_is_gone_when_its_data_is_fetched(tmp_path: Path, file: str, kind: str) -> None:
    path = copy_table("types_all", tmp_path)
    await index_table(path, pages=False, pack=False)
    (path / file).unlink()
    async with cp.open_table(path) as table:
        with pytest.raises(NotFoundError, match="refresh the table") as caught:
            await table.scan(["num"]).to_arrow()
    assert (caught.value.kind, caught.value.path) == (kind, f"{path}/{file}")


@pytest.mark.parametrize("file", ["sym.o", "sym.c"])
async def test_a_missing_symbol_file(file: str) -> None:
    files = files_of(TYPES)
    del files[str(TYPES.table_path / file)]
    with pytest.raises(NotFoundError, match="the symbols of a column are missing") as caught:
        await read_native(TYPES, MemoryStore(files), columns=[TYPES.column("sym")])
    assert caught.value.kind == "MissingSymbolFile"


async def test_a_symbol_count_of_zero_needs_no_files() -> None:
    files = files_of(TYPES)
    del files[str(TYPES.table_path / "sym.o")]
    column = replace(TYPES.column("sym"), symbol=NativeSymbol(count=0, name_txn=-1))
    with pytest.raises(FormatError, match="outside of the dictionary, which has 0 symbols"):
        await read_native(TYPES, MemoryStore(files), columns=[column])


@pytest.mark.parametrize("name", ["text.i", "label.i", "arr.i", "ts.d"])
async def test_a_file_that_was_cut_off(name: str) -> None:
    files = files_of(TYPES)
    files[path_of(TYPES, name)] = files[path_of(TYPES, name)][:200]
    column = TYPES.column(name.partition(".")[0])
    with pytest.raises(ObjectChangedError, match="it was replaced or cut off"):
        await read_native(TYPES, MemoryStore(files), columns=[column], time_bounds=(5, None))


@pytest.mark.parametrize("name", ["text.i", "label.i", "arr.i"])
async def test_offsets_that_claim_terabytes_are_not_believed(name: str) -> None:
    files = files_of(TYPES)
    stored = bytearray(files[path_of(TYPES, name)])
    if name == "text.i":
        stored[29 * 16 :][:16] = stored[29 * 16 : 30 * 16] = struct.pack("<I6xHI", 1 << 20, 0, 1 << 30)
    elif name == "label.i":
        stored[30 * 8 : 31 * 8] = struct.pack("<q", 1 << 46)
    else:
        stored[29 * 16 : 30 * 16] = struct.pack("<qii", 1 << 46, 24, 0)
    files[path_of(TYPES, name)] = bytes(stored)
    with pytest.raises(ObjectChangedError, match="it was replaced or cut off"):
        await read_native(TYPES, MemoryStore(files), columns=[TYPES.column(name.partition(".")[0])])


@pytest.mark.parametrize("columns", [["price"], ["text"], []])
async def test_a_row_count_beyond_the_files_is_not_believed(columns: list[str]) -> None:
    chosen = [TYPES.column(name) for name in columns]
    with pytest.raises(ObjectChangedError, match="it was replaced or cut off"):
        await read_native(TYPES, MemoryStore(files_of(TYPES)), columns=chosen, row_count=1 << 43)


async def test_a_row_count_that_nothing_can_prove() -> None:
    partition = replace(TYPES, timestamp=None)
    with pytest.raises(FormatError, match="_txn claims"):
        await read_native(partition, MemoryStore(), columns=[], row_count=1 << 43)


async def test_a_designated_timestamp_cannot_have_a_top() -> None:
    assert TYPES.timestamp is not None
    partition = replace(TYPES, timestamp=replace(TYPES.timestamp, top=3))
    with pytest.raises(FormatError, match="the first 3 rows of the partition were written without it"):
        await read_native(partition, MemoryStore(), time_bounds=(5, None))


async def test_timestamps_out_of_order() -> None:
    files = files_of(TYPES)
    stored = np.frombuffer(files[path_of(TYPES, "ts.d")], dtype="<i8").copy()
    stored[[3, 4]] = stored[[4, 3]]
    files[path_of(TYPES, "ts.d")] = stored.tobytes()
    with pytest.raises(FormatError, match="row 4: its timestamp is smaller"):
        await read_native(TYPES, MemoryStore(files), time_bounds=(5, None))


async def test_a_large_partition_is_searched_by_few_requests() -> None:
    times = np.arange(200_000, dtype="<i8") * 10
    partition = replace(TYPES, columns=(TYPES.column("ts"),), row_count=len(times))
    store = TraceStore(MemoryStore({path_of(TYPES, "ts.d"): times.tobytes()}))
    reading = await read_native(partition, store, time_bounds=(1_000_000, 1_000_039), rows_per_read=3)
    found = pa.concat_tables(reading.slices).column("ts").cast(pa.int64())
    assert found.to_pylist() == [1_000_000, 1_000_010, 1_000_020, 1_000_030]
    assert [record.reason for record in store.records].count(TIME_SEARCH) == 33


# With everything around it


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The table of every type with tops, where it may be damaged."""
    return shutil.copytree(TOPS.table_path, tmp_path / "table")


async def test_a_time_range_reads_its_rows_alone(copied: Path) -> None:
    async with cp.open_table(str(copied)) as table:
        scan = table.scan(columns=["num", "ts"], where="ts >= '2024-01-01T16:02:00Z' and ts < '2024-01-02T16:08:00Z'")
        plan = await scan.plan()
        assert [request.reason for request in plan.requests] == [
            "rows 16-20: num",
            "rows 16-20: ts",
            "rows 0-0: num",
            "rows 0-0: ts",
        ]
        assert plan.rows_at_least == plan.rows_at_most == 6
        rows = await scan.to_arrow()
    assert rows.column("num").to_pylist() == [2, None, 4, 5, None, 7]


async def test_a_predicate_on_other_columns_filters_the_rows(copied: Path) -> None:
    async with cp.open_table(str(copied)) as table:
        rows = await table.scan(columns=["ts"], where="sym = 'sym 1' and ts < '2024-01-02'").to_arrow()
        assert await table.scan(where="num is null").count() == 18
    assert pc.minute(rows.column("ts")).to_pylist() == [1, 4]


@pytest.mark.parametrize("length_bytes", [0, 3, 12])
async def test_values_that_were_cut_off(copied: Path, length_bytes: int) -> None:
    [path] = (copied / TOPS.name).glob("num.d*")
    path.write_bytes(path.read_bytes()[:length_bytes])
    async with cp.open_table(str(copied)) as table:
        with pytest.raises(ObjectChangedError, match="it was replaced or cut off") as caught:
            await table.scan(columns=["num"]).to_arrow()
    assert caught.value.path == str(path)


async def test_values_that_are_missing(copied: Path) -> None:
    [path] = (copied / TOPS.name).glob("num.d*")
    path.unlink()
    async with cp.open_table(str(copied)) as table:
        with pytest.raises(NotFoundError) as caught:
            await table.scan(columns=["num"]).to_arrow()
    assert caught.value.path == str(path)


def append_to_files(table: Path) -> None:
    for file in [*table.glob("sym.*"), *(table / TOPS.name).iterdir()]:
        with file.open("ab") as opened:
            opened.write(b"\xff" * 4096)


async def test_a_writer_that_appends_meanwhile_changes_nothing(copied: Path) -> None:
    async with cp.open_table(str(copied)) as table:
        before = await table.scan().to_arrow()
        append_to_files(copied)
        assert (await table.scan().to_arrow()).equals(before)
