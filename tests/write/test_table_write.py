"""What is written to a table is what everybody reads from it: sorted, partitioned, in every mode; and what it refuses to hold."""

from __future__ import annotations

import fcntl
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.errors import InvalidInputError, NotFoundError
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import WriteOptions, write_table
from tests.support.written_tables import (
    DAY_US,
    START_US,
    in_order,
    names_in,
    overwritten,
    read_table,
    read_with_pyarrow,
    same_rows,
    ticks,
)


async def test_a_new_table_is_what_pyarrow_reads_too(tmp_path: Path) -> None:
    rows, table = ticks(5_000, distinct=200), tmp_path / "trades"
    written = await write_table(table, rows, timestamp="ts", options=WriteOptions(row_group_rows=700))
    assert (written.is_new, written.new_rows) == (True, 5_000)
    names = [partition.name for partition in written.partitions]
    assert names == ["2024-01-01.0", "2024-01-02.0", "2024-01-03.0"]
    assert same_rows(await read_table(table), in_order([rows]))
    assert same_rows(read_with_pyarrow(table, names), in_order([rows]))
    async with cp.open_table(table) as opened:
        assert opened.txn == written.txn
        assert (
            await opened.scan(where="ts >= '2024-01-02' and ts < '2024-01-03'").count()
            == written.partitions[1].row_count
        )
    files = [name.partition(".")[0] for name in names_in(table) if name[0] == "_"]
    assert files == ["_cv", "_meta", "_meta", "_name", "_todo_", "_txn"]


async def test_appended_rows_come_behind_those_of_their_time(tmp_path: Path) -> None:
    table = tmp_path / "trades"
    parts = [ticks(900, seed=seed, days=2 + seed, distinct=24) for seed in range(3)]
    await write_table(table, parts[0], timestamp="ts", options=WriteOptions(row_group_rows=100))
    for rows in parts[1:]:
        written = await write_table(table, rows, mode="append", options=WriteOptions(row_group_rows=100))
        assert written.new_rows == 900
    assert same_rows(await read_table(table), in_order(parts))


async def test_overwriting_replaces_the_touched_partitions_alone(tmp_path: Path) -> None:
    table, before = tmp_path / "trades", ticks(900, days=5)
    await write_table(table, before, timestamp="ts")
    rows = ticks(50, seed=1, days=2, first_day=3)
    written = await write_table(table, rows, mode="overwrite")
    assert [partition.name.partition(".")[0] for partition in written.partitions] == ["2024-01-04", "2024-01-05"]
    expected = overwritten(before, rows)
    assert same_rows(await read_table(table), expected)
    async with cp.open_table(table) as opened:
        assert (await opened.scan().count(), opened.partitions[0].name) == (len(expected), "2024-01-01.0")


@pytest.mark.parametrize("first_day", [0, 4])
async def test_the_bounds_of_the_table_follow_its_first_and_last_partition(tmp_path: Path, first_day: int) -> None:
    table = tmp_path / "trades"
    await write_table(table, ticks(500, days=5), timestamp="ts")
    single = ticks(1, seed=1, days=1, first_day=first_day)
    await write_table(table, single, mode="overwrite")
    rows = await read_table(table)
    async with cp.open_table(table) as opened:
        files = opened.scan().question.snapshot.files
        assert files is not None
        times = rows.column("ts").cast(pa.int64()).to_pylist()
        assert (files.transaction.min_timestamp, files.transaction.max_timestamp) == (times[0], times[-1])


async def test_an_existing_table_is_an_error_or_ignored(tmp_path: Path) -> None:
    table, rows = tmp_path / "trades", ticks(20)
    await write_table(table, rows, timestamp="ts")
    with pytest.raises(InvalidInputError, match="mode 'append'") as refused:
        await write_table(table, rows, timestamp="ts")
    assert refused.value.kind == "AlreadyExists"
    ignored = await write_table(table, rows, mode="ignore")
    assert (ignored.is_written, ignored.txn, ignored.new_rows) == (False, None, 0)
    assert same_rows(await read_table(table), in_order([rows]))


async def test_no_rows_make_an_empty_table_and_change_no_other(tmp_path: Path) -> None:
    table, rows = tmp_path / "trades", ticks(20)
    written = await write_table(table, rows.slice(0, 0), timestamp="ts")
    assert (written.is_new, written.partitions) == (True, ())
    async with cp.open_table(table) as opened:
        assert (opened.schema.names, await opened.scan().count()) == (rows.column_names, 0)
    await write_table(table, rows, mode="append")
    before = names_in(table)
    assert (await write_table(table, rows.slice(0, 0), mode="append")).txn is None
    assert names_in(table) == before
    assert same_rows(await read_table(table), in_order([rows]))


async def test_a_stream_larger_than_the_memory_is_sorted_on_the_disk(tmp_path: Path) -> None:
    rows = ticks(60_000, days=2, distinct=500)
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=700))
    await write_table(tmp_path / "trades", reader, timestamp="ts", memory_limit_bytes=20_000)
    assert same_rows(await read_table(tmp_path / "trades"), in_order([rows]))


STORED: dict[str, tuple[Any, str]] = {
    "flag": (pa.array([True, False, True]), "BOOLEAN"),
    "small": (pa.array([1, -2, 3], pa.int16()), "SHORT"),
    "whole": (pa.array([1, None, 3], pa.int32()), "INT"),
    "real": (pa.array([1.5, None, 3.5], pa.float32()), "FLOAT"),
    "day": (pa.array([19_000, None, 19_001], pa.date32()), "DATE"),
    "later": (pa.array([1, None, 3], pa.timestamp("ns", "UTC")), "TIMESTAMP_NS"),
    "text": (pa.array(["a", None, "ü"], pa.large_string()), "VARCHAR"),
    "side": (pa.array(["a", None, "b"]).dictionary_encode(), "SYMBOL"),
    "raw": (pa.array([b"a", None, b"b"]), "BINARY"),
    "id": (pa.array([bytes(16), None, bytes(range(16))], pa.binary(16)).cast(pa.uuid()), "UUID"),
    "amount": (pa.array([Decimal(1), None, Decimal("3.5")], pa.decimal128(20, 4)), "DECIMAL(20,4)"),
    "vector": (pa.array([[1.0, 2.0], None, [3.0]]), "DOUBLE[]"),
    "matrix": (pa.array([[[1.0], [2.0]], None, [[3.0]]]), "DOUBLE[][]"),
}


async def test_every_type_survives_a_write_and_an_append(tmp_path: Path) -> None:
    times = pa.array([START_US + 2, START_US, START_US + 1], pa.timestamp("us", "UTC"))
    rows = pa.table({"ts": times} | {name: values for name, (values, _) in STORED.items()})
    await write_table(tmp_path / "trades", rows, timestamp="ts")
    await write_table(tmp_path / "trades", rows, mode="append")
    found = await read_table(tmp_path / "trades")
    for name, (values, type_name) in STORED.items():
        field = found.schema.field(name)
        assert (field.metadata or {})[b"questdb.type"].decode() == type_name
        storage = values.storage if isinstance(values.type, pa.BaseExtensionType) else values
        expected = storage.take(pa.array([1, 1, 2, 2, 0, 0])).cast(field.type)
        assert found.column(name).combine_chunks().equals(expected), name


OF_TEXT: dict[str, tuple[list[str | None], str, list[Any], str]] = {
    "UUID": (
        ["00112233-4455-6677-8899-aabbccddeeff", None],
        "x-1",
        [bytes.fromhex("00112233445566778899aabbccddeeff"), None],
        "x-1",
    ),
    "IPv4": (["10.0.0.1", None], "10.0.0", [0x0A000001, None], "10.0.0"),
    "CHAR": (["x", None], "xy", [ord("x"), 0], "xy"),
}


@pytest.mark.parametrize("type_name", OF_TEXT)
async def test_values_may_be_given_as_text(tmp_path: Path, type_name: str) -> None:
    texts, wrong, values, shown = OF_TEXT[type_name]
    times = pa.array([START_US, START_US], pa.timestamp("us", "UTC"))
    fields: list[Any] = [pa.field("ts", times.type), pa.field("v", pa.string(), metadata={"questdb.type": type_name})]
    await write_table(tmp_path / "t", pa.table([times, pa.array(texts)], schema=pa.schema(fields)), timestamp="ts")
    await write_table(tmp_path / "t", pa.table({"ts": times, "v": pa.array(texts)}), mode="append")
    found = (await read_table(tmp_path / "t")).column("v").to_pylist()
    assert [value.bytes if isinstance(value, UUID) else value for value in found] == values * 2
    with pytest.raises(InvalidInputError, match=f"{shown!r} cannot be stored as {type_name}"):
        await write_table(tmp_path / "t", pa.table({"ts": times, "v": pa.array([wrong] * 2)}), mode="append")


async def test_integers_may_be_the_designated_timestamp(tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array([START_US + 1, START_US]), "n": pa.array([1, 2])})
    await write_table(tmp_path / "trades", rows, timestamp="ts", symbols=())
    await write_table(tmp_path / "trades", rows, mode="append")
    found = await read_table(tmp_path / "trades")
    assert found.schema.field("ts").type == pa.timestamp("us", "UTC")
    assert found.column("n").to_pylist() == [2, 2, 1, 1]


@pytest.mark.parametrize("interval", ["HOUR", "DAY", "week", "MONTH", "YEAR"])
async def test_every_interval(tmp_path: Path, interval: str) -> None:
    times = pa.array(
        [0, 1, -DAY_US, 400 * DAY_US, START_US - 1, START_US, START_US + 40 * DAY_US], pa.timestamp("us", "UTC")
    )
    rows = pa.table({"ts": times, "n": pa.array(range(7))})
    written = await write_table(tmp_path / "trades", rows, timestamp="ts", partition_by=interval)
    await write_table(tmp_path / "trades", rows, mode="append")
    async with cp.open_table(tmp_path / "trades") as opened:
        assert [partition.name.partition(".")[0] for partition in opened.partitions] == [
            partition.name.partition(".")[0] for partition in written.partitions
        ]
        assert same_rows(await opened.scan().to_arrow(), in_order([rows, rows]))
        assert await opened.scan(where="ts < '1970-01-01'").count() == 2


moments = st.integers(-3, 40).map(lambda step: START_US + step * (DAY_US // 8))
batches_of_moments = st.lists(st.lists(moments, max_size=12), min_size=1, max_size=4)
writes = st.lists(st.tuples(st.sampled_from(["append", "overwrite"]), batches_of_moments), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=25)
@given(writes=writes, memory_limit_bytes=st.sampled_from([1, 400, 1 << 20]), row_group_rows=st.integers(1, 9))
async def test_any_rows_in_any_batches_in_any_mode(
    writes: list[tuple[Any, list[list[int]]]], memory_limit_bytes: int, row_group_rows: int
) -> None:
    store, expected = MemoryStore(), None
    numbers = iter(range(10_000))
    for mode, batches in writes:
        rows = [
            pa.record_batch(
                {
                    "ts": pa.array(times, pa.timestamp("us", "UTC")),
                    "number": pa.array([next(numbers) for _ in times], pa.int64()),
                }
            )
            for times in batches
        ]
        await write_table(
            "bucket/trades",
            rows,
            timestamp="ts",
            mode=mode,
            memory_limit_bytes=memory_limit_bytes,
            options=WriteOptions(row_group_rows=row_group_rows),
            store=store,
        )
        added = pa.Table.from_batches(rows)
        if expected is None:
            expected = in_order([added])
        else:
            expected = (
                in_order([expected, added]) if mode == "append" else overwritten(expected, added, PartitionInterval.DAY)
            )
    assert expected is not None
    assert same_rows(await read_table("bucket/trades", store=store), expected)


ONE_ROW = pa.table({"ts": pa.array([START_US], pa.timestamp("us"))})
NANOSECONDS = pa.table({"ts": [START_US * 1000]})
"""Taken for microseconds: times after the year 9999, which have no directory."""

REFUSED: dict[str, tuple[dict[str, Any], pa.Table, str, str | None]] = {
    "no timestamp": (
        {"timestamp": None},
        ticks(3),
        "NoTimestamp",
        r"timestamp='ts' in Python, \.option\(\"timestamp\", \"ts\"\) in Spark",
    ),
    "an unknown timestamp": ({"timestamp": "tz"}, ticks(3), "UnknownColumn", None),
    "a timestamp that is none": ({"timestamp": "price"}, ticks(3), "NotATimestamp", None),
    "an interval that is none": ({"partition_by": "SECOND"}, ticks(3), "InvalidOption", None),
    "a mode that is none": ({"mode": "upsert"}, ticks(3), "InvalidOption", None),
    "symbols of numbers": ({"symbols": ["price"]}, ticks(3), "NotText", None),
    "symbols of nothing": ({"symbols": ["venue"]}, ticks(3), "UnknownColumn", None),
    "options for nothing": ({"options": WriteOptions(bloom_columns=("venue",))}, ticks(3), "UnknownColumn", None),
    "a type without a name": ({}, ticks(3).append_column("m", pa.array([{"a": 1}] * 3)), "UnknownType", None),
    "null times": ({}, pa.table({"ts": pa.array([1, None], pa.timestamp("us", "UTC"))}), "NullValue", None),
    "null truths": ({}, ticks(2).append_column("m", pa.array([None, True])), "NullValue", None),
    "ragged arrays": ({}, ticks(1).append_column("m", pa.array([[[1.0], [1.0, 2.0]]])), "RaggedArray", None),
    "a name with a slash": ({}, ONE_ROW.append_column("a/b", [[1]]), "Schema", r"has no column .a/b."),
    "names that differ by case": (
        {},
        ONE_ROW.append_column("price", [[1.0]]).append_column("Price", [[2.0]]),
        "Schema",
        "'Price' and 'price'",
    ),
    "hours far away": ({"partition_by": "HOUR"}, NANOSECONDS, "DoesNotFit", r"column 'ts' .* are these nanoseconds"),
    "days far away": ({"partition_by": "DAY"}, NANOSECONDS, "DoesNotFit", r"column 'ts' .* are these nanoseconds"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_write_leaves_nothing(name: str, tmp_path: Path) -> None:
    arguments, rows, kind, message = REFUSED[name]
    with pytest.raises(InvalidInputError, match=message) as refused:
        await write_table(tmp_path / "db" / "trades", rows, **({"timestamp": "ts"} | arguments))
    assert refused.value.kind == kind
    assert not (tmp_path / "db" / "trades").exists()
    with pytest.raises(NotFoundError):
        await read_table(tmp_path / "db" / "trades")


REFUSED_APPENDS: dict[str, tuple[dict[str, Any], pa.Table, str]] = {
    "another timestamp": ({"timestamp": "number"}, ticks(3), "OtherTable"),
    "another interval": ({"partition_by": "HOUR"}, ticks(3), "OtherTable"),
    "other symbols": ({"symbols": ["price"]}, ticks(3), "OtherTable"),
    "a missing column": ({}, ticks(3).drop_columns(["price"]), "SchemaMismatch"),
    "one column more": ({}, ticks(3).append_column("more", pa.array([1, 2, 3])), "SchemaMismatch"),
    "another type": ({}, ticks(3).set_column(2, "price", pa.array(["1", "x", "2"])), "DoesNotFit"),
}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("name", REFUSED_APPENDS)
async def test_rows_that_do_not_fit_change_nothing(name: str, mode: Any, tmp_path: Path) -> None:
    arguments, rows, kind = REFUSED_APPENDS[name]
    table, before = tmp_path / "trades", ticks(30)
    await write_table(table, before, timestamp="ts", symbols=["side"])
    files = names_in(table)
    with pytest.raises(InvalidInputError) as refused:
        await write_table(table, rows, mode=mode, **arguments)
    assert refused.value.kind == kind
    assert names_in(table) == files
    assert same_rows(await read_table(table), in_order([before]))


async def test_partitions_without_a_transaction_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "2024-01-01").mkdir()
    (tmp_path / "2024-01-01" / "data.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInputError, match="no _txn"):
        await write_table(tmp_path, ticks(3), timestamp="ts", mode="overwrite")
    assert names_in(tmp_path) == ["2024-01-01"]


async def test_integers_are_microseconds_in_a_table_of_nanoseconds_too(tmp_path: Path) -> None:
    table = tmp_path / "trades"
    await write_table(table, pa.table({"ts": pa.array([START_US * 1000], pa.timestamp("ns"))}), timestamp="ts")
    await write_table(table, pa.table({"ts": [START_US + 1]}), mode="append")
    rows = await read_table(table)
    assert rows.column("ts").cast(pa.int64()).to_pylist() == [START_US * 1000, (START_US + 1) * 1000]


@pytest.mark.parametrize("numbers", [[2], [0.5]])
async def test_numbers_are_no_truth_values(tmp_path: Path, numbers: list[float]) -> None:
    rows = pa.table({"ts": pa.array([START_US], pa.timestamp("us")), "is_buy": [True]})
    await write_table(tmp_path / "trades", rows, timestamp="ts")
    with pytest.raises(InvalidInputError, match="no truth values") as refused:
        await write_table(tmp_path / "trades", rows.set_column(1, "is_buy", [numbers]), mode="append")
    assert refused.value.kind == "DoesNotFit"


async def test_a_running_server_is_noticed_before_anything_is_written(tmp_path: Path) -> None:
    table, rows = tmp_path / "db" / "trades", ticks(20)
    await write_table(table, rows, timestamp="ts")
    before = names_in(table)
    with (tmp_path / "db" / "tables.d.lock").open("w") as server:
        fcntl.flock(server, fcntl.LOCK_EX)  # as QuestDB does from its start to its end
        with pytest.raises(InvalidInputError, match="stop the server") as refused:
            await write_table(table, rows, mode="append")
        assert refused.value.kind == "ServerRunning"
    assert names_in(table) == before


TIMES = pa.array([0, 1, 2], pa.timestamp("us", "UTC"))


@pytest.mark.parametrize("name", ["a*", "a.b", "price (usd)", "a-b", "x\x00", "\ufeffx", "", "n" * 128])
async def test_a_name_that_questdb_does_not_allow(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="rename it") as refused:
        await write_table(tmp_path / "t", pa.table({"ts": TIMES, name: [1, 2, 3]}), timestamp="ts")
    assert (refused.value.kind, refused.value.details["field"]) == ("Schema", name)
    assert not (tmp_path / "t").exists()


async def test_names_that_questdb_allows(tmp_path: Path) -> None:
    names = ["price in $", "été", "a_b", "#1", "n" * 127]
    rows = pa.table({"ts": TIMES, **{name: [1, 2, 3] for name in names}})
    await write_table(tmp_path / "t", rows, timestamp="ts")
    assert (await read_table(tmp_path / "t")).column_names == ["ts", *names]


async def test_a_number_too_large_for_its_column(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small = pa.array([0.5, None, float("inf")], pa.float32())
    await write_table(table, pa.table({"ts": TIMES, "price": small}), timestamp="ts")
    fits = pa.table({"ts": TIMES, "price": [3.0e38, float("-inf"), None]})
    await write_table(table, fits, mode="append")
    before = await read_table(table)
    with pytest.raises(InvalidInputError, match=r"column 'price' .* FLOAT: .*1e\+300 is too large") as refused:
        await write_table(table, pa.table({"ts": TIMES, "price": [1.0, 1e300, 2e300]}), mode="append")
    assert (refused.value.kind, refused.value.details["field"]) == ("DoesNotFit", "price")
    assert (await read_table(table)).equals(before)


async def write_prices(table: Path) -> None:
    small = pa.array([0.5, None, 1.0], pa.float32())
    await write_table(table, pa.table({"ts": TIMES, "price": small}), timestamp="ts")


@pytest.mark.parametrize(
    "prices",
    [
        pa.array([Decimal(10) ** 50, None, Decimal(1)], pa.decimal256(60, 0)),
        pa.array(["inf", "1e39", None]),
        pa.array([1e300, None, 1.0]).dictionary_encode(),
    ],
    ids=["decimals", "texts", "doubles with repetitions"],
)
async def test_no_number_becomes_infinite(prices: Any, tmp_path: Path) -> None:
    await write_prices(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=r"column 'price' .* FLOAT: .* is too large for float") as refused:
        await write_table(tmp_path / "t", pa.table({"ts": TIMES, "price": prices}), mode="append")
    assert refused.value.kind == "DoesNotFit"


@pytest.mark.parametrize(
    "prices", [pa.array(["-Infinity", None, "1"]), pa.array(["-inf", None, "1"]).dictionary_encode()]
)
async def test_what_was_infinite_stays_so(prices: Any, tmp_path: Path) -> None:
    await write_prices(tmp_path / "t")
    await write_table(tmp_path / "t", pa.table({"ts": TIMES, "price": prices}), mode="append")
    found: list[Any] = (await read_table(tmp_path / "t"))["price"].drop_null().to_pylist()
    assert sorted(found) == [float("-inf"), 0.5, 1.0, 1.0]
