"""Columns that were renamed, dropped, added or changed after every partition had become Parquet, end to end.

QuestDB 9.3.4 cannot read, or not even make, such tables; so their `_meta` is written here, over its genuine files.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format.table_metadata import MetadataSlot
from coldparquet.format.type_codes import parse_type_name
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.pieces import read_piece
from coldparquet.records import replace
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import write_partition
from tests.support.parquet_footers import parquet_bytes
from tests.support.questdb_tables import assert_same_rows, expected_rows
from tests.support.table_copies import alter, change_type, copy_table, position, slots_of

TABLE = "interval_month"
"""Five partitions in Parquet, none native."""


@pytest.fixture(params=["footers", "sidecars"])
async def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    copied = copy_table(TABLE, tmp_path)
    if request.param == "sidecars":
        await index_table(copied, pages=False, pack=False)
    return copied


async def read(table: Path, *, where: str | None = None) -> pa.Table:
    async with cp.open_table(table) as opened:
        return await opened.scan(where=where).to_arrow()


async def test_a_renamed_column_is_found_by_its_id(table: Path) -> None:
    slots = slots_of(table)
    index = position(slots, "price")
    slots[index] = replace(slots[index], name="cost")
    alter(table, slots)
    names = ["cost" if name == "price" else name for name in expected_rows(TABLE).schema.names]
    assert_same_rows(await read(table), expected_rows(TABLE).rename_columns(names))


async def test_a_column_that_was_dropped_does_not_come_back_with_a_new_one_of_its_name(table: Path) -> None:
    slots = slots_of(table)
    index = position(slots, "price")
    slots[index] = replace(slots[index], is_dropped=True)
    alter(table, slots)
    assert_same_rows(await read(table), expected_rows(TABLE).drop_columns(["price"]))
    async with cp.open_table(table) as opened:
        with pytest.raises(InvalidInputError, match="there is no column 'price'"):
            opened.scan(["price"])
    alter(table, [*slots, MetadataSlot(name="price", type_code=parse_type_name("DOUBLE"))])
    rows = await read(table)
    assert rows.schema.names[-1] == "price"
    assert rows.column("price").null_count == rows.num_rows == 200


async def test_added_columns_are_null_or_zero(table: Path) -> None:
    added = {"remark": "VARCHAR", "flag": "BOOLEAN", "small": "SHORT", "many": "DOUBLE[]"}
    slots = [MetadataSlot(name=name, type_code=parse_type_name(type_name)) for name, type_name in added.items()]
    alter(table, [*slots_of(table), *slots])
    rows = await read(table)
    assert_same_rows(rows.drop_columns(list(added)), expected_rows(TABLE))
    values = {name: set(map(str, rows.column(name).to_pylist())) for name in added}
    assert values == {"remark": {"None"}, "flag": {"False"}, "small": {"0"}, "many": {"None"}}
    assert (await read(table, where="remark is null and small = 0")).num_rows == 200


async def test_changed_types_are_converted_where_rows_are_read_and_where_they_are_filtered(table: Path) -> None:
    before = expected_rows(TABLE)
    change_type(table, "price", "FLOAT")
    change_type(table, "id", "VARCHAR")
    rows = await read(table)
    assert rows.schema.names == before.schema.names
    assert rows.column("price").cast(pa.float32()).equals(before.column("price").cast(pa.float32()))
    assert rows.column("id").to_pylist() == [str(number) for number in before.column("id").to_pylist()]
    wanted = before.column("id").to_pylist()[7]
    assert (await read(table, where=f"id = '{wanted}'")).column("id").to_pylist() == [str(wanted)]


async def test_what_was_changed_twice_or_has_no_conversion_is_refused_and_can_be_left_out(table: Path) -> None:
    change_type(table, "id", "VARCHAR", "INT")
    change_type(table, "price", "UUID")
    async with cp.open_table(table) as opened:
        for name, message in (("id", "not converted more than once"), ("price", "such values are not converted;")):
            with pytest.raises(UnsupportedError, match=message) as caught:
                await opened.scan([name]).to_arrow()
            assert caught.value.kind == "ChangedColumnType"
        others = [name for name in opened.schema.names if name not in {"id", "price"}]
        assert_same_rows(await opened.scan(others).to_arrow(), expected_rows(TABLE).select(others))


async def test_a_type_that_no_statement_gave_the_column_is_an_error(table: Path) -> None:
    """A bit of `_meta`, which has no checksum, makes a LONG a BYTE."""
    slots = slots_of(table)
    index = position(slots, "id")
    assert slots[index].type_code == parse_type_name("LONG")
    before = expected_rows(TABLE)
    for bit in range(8):
        alter(
            table,
            [*slots[:index], replace(slots[index], type_code=slots[index].type_code ^ 1 << bit), *slots[index + 1 :]],
        )
        async with cp.open_table(table) as opened:
            with pytest.raises((FormatError, UnsupportedError), match="id") as caught:
                await opened.scan(["id"]).to_arrow()
            assert caught.value.kind in {"SchemaMismatch", "UnsupportedColumn"}
            with pytest.raises((FormatError, UnsupportedError)):
                await opened.scan(["price"], "id = 1").count()
            others = [name for name in before.schema.names if name != "id"]
            assert_same_rows(await opened.scan(others).to_arrow(), before.select(others))
    alter(table, [*slots[:index], replace(slots[index], type_code=parse_type_name("BYTE")), *slots[index + 1 :]])
    with pytest.raises(
        FormatError, match=r"'id' is LONG here, but BYTE in the table's _meta, which knows of no change"
    ):
        await read(table)
    [finding] = (await verify_table(table)).findings
    assert (finding.severity, finding.kind, finding.column) == ("error", "SchemaMismatch", "id")


# --- Partitions of foreign files whose columns have other types, or that lack columns, read as Arrow unifies them -----


ALL = cp.ReadOptions(columns_from="all")

PAIRS: dict[str, tuple[pa.Array[Any], pa.Array[Any]]] = {
    "int8 int64": (pa.array([-128, None, 127], pa.int8()), pa.array([2**62, -5, 127], pa.int64())),
    "int16 int32": (pa.array([-(2**15), 7, None], pa.int16()), pa.array([2**31 - 1, -(2**31), 7], pa.int32())),
    "int32 int64": (pa.array([-(2**31), 7, None], pa.int32()), pa.array([-(2**63), 2**63 - 1, 7], pa.int64())),
    "uint8 int16": (pa.array([0, 255, None], pa.uint8()), pa.array([-1, 255, 300], pa.int16())),
    "uint8 int8": (pa.array([0, 255, None], pa.uint8()), pa.array([-1, 5, None], pa.int8())),
    "uint32 int32": (pa.array([2**32 - 1, 5, None], pa.uint32()), pa.array([-(2**31), 5, None], pa.int32())),
    "uint32 uint64": (pa.array([2**32 - 1, 5, None], pa.uint32()), pa.array([2**64 - 1, 5, None], pa.uint64())),
    "int8 uint64": (pa.array([-128, None], pa.int8()), pa.array([2**63 - 1, 0, None], pa.uint64())),
    "float double": (
        pa.array([1.5, float("nan"), float("-inf"), None, 0.1], pa.float32()),
        pa.array([1e300, float("nan"), -0.0, 1.5, 0.1]),
    ),
    "int32 double": (pa.array([2**31 - 1, None, 3], pa.int32()), pa.array([0.5, 3.0, None])),
    "int64 double": (pa.array([2**53, None, -3], pa.int64()), pa.array([0.5, -3.0, None])),
    "int16 float": (pa.array([2**15 - 1, None, 3], pa.int16()), pa.array([0.5, 3.0, None], pa.float32())),
    "int32 float": (pa.array([2**31 - 1, None, 3], pa.int32()), pa.array([0.5, 3.0, None], pa.float32())),
    "ms us": (pa.array([0, -1, 10**12, None], pa.timestamp("ms")), pa.array([0, -1, 10**15 + 1], pa.timestamp("us"))),
    "ms ns UTC": (
        pa.array([0, -1, 10**12, None], pa.timestamp("ms", "UTC")),
        pa.array([0, -1, -(2**63), 10**18], pa.timestamp("ns", "UTC")),
    ),
    "time32 time64": (pa.array([0, 86_399_999, None], pa.time32("ms")), pa.array([1, 0], pa.time64("us"))),
    "decimals": (
        pa.array([Decimal("1.25"), None, Decimal("-99.99")], pa.decimal128(4, 2)),
        pa.array([Decimal("1.2500"), Decimal("-99.9900"), None], pa.decimal128(18, 4)),
    ),
    "decimals of one scale": (
        pa.array([Decimal("1.25"), None, Decimal("-99.99")], pa.decimal128(4, 2)),
        pa.array([Decimal("1.25"), Decimal("12345678.90"), None], pa.decimal128(12, 2)),
    ),
    "int16 decimal": (pa.array([5, None, -7], pa.int16()), pa.array([Decimal("5.000")], pa.decimal128(12, 3))),
    "string large_string": (pa.array(["a", None, "ä"]), pa.array(["a", "b" * 70], pa.large_string())),
    "string string_view": (pa.array(["a", None, "ä"]), pa.array(["a", "b" * 70], pa.string_view())),
    "dictionary string": (pa.array(["a", None, "a"]).dictionary_encode(), pa.array(["a", "b"])),
    "null string": (pa.nulls(3), pa.array(["a", None, "ä"])),
    "null int64": (pa.nulls(3), pa.array([2**62, None])),
    "null decimal": (pa.nulls(1), pa.array([Decimal("1.25"), None], pa.decimal128(9, 2))),
    "string binary": (pa.array(["a", None, "ä"]), pa.array([b"a", b"\xff"])),
    "fixed binary": (pa.array([b"0123456789abcdef", None], pa.binary(16)), pa.array([b"a", b"\xff"])),
}


def parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    names = [field.name for field in rows.schema if not pa.types.is_boolean(field.type)]
    options = {name: {"ndv": 10, "fpp": 0.01} for name in names}
    try:
        pq.write_table(rows, sink, row_group_size=2, write_page_index=True, bloom_filter_options=options)
    except (TypeError, pa.ArrowException, OSError):
        sink = io.BytesIO()
        pq.write_table(rows, sink, row_group_size=2, write_page_index=True)
    return sink.getvalue()


async def store_of(parts: Sequence[pa.Table], *, sidecars: bool = True) -> MemoryStore:
    store = MemoryStore()
    for day, rows in enumerate(parts, start=1):
        await store.put(f"t/2024-03-{day:02d}/data.parquet", parquet(rows), overwrite=False)
    if sidecars:
        await index_table("t", store=store, pages=True, pack=False)
    return store


def plain(type_: pa.DataType) -> pa.DataType:
    """Return the type as which we give it: text as strings."""
    if pa.types.is_dictionary(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    return type_


def unified(parts: Sequence[pa.Table]) -> pa.Table:
    """Return what Arrow makes of the partitions."""
    plains = [part.cast(pa.schema([field.with_type(plain(field.type)) for field in part.schema])) for part in parts]
    return pa.concat_tables(plains, promote_options="permissive")


def text_of(rows: pa.Table) -> list[str]:
    """Spell rows so that NaN equals itself and the zeros differ."""
    return [repr(row) for row in rows.cast(pa.schema([f.with_type(exact(f.type)) for f in rows.schema])).to_pylist()]


def exact(type_: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(type_) or pa.types.is_time64(type_) else type_


@pytest.mark.parametrize("way", ["newest is wider", "newest is narrower", "named"])
@pytest.mark.parametrize("name", PAIRS)
async def test_types_are_read_as_arrow_unifies_them(name: str, way: str) -> None:
    narrow, wide = PAIRS[name]
    parts = [pa.table({"x": values, "n": list(range(len(values)))}) for values in (narrow, wide)]
    if way == "newest is narrower":
        parts.reverse()
    expected = unified(parts)
    store = await store_of(parts, sidecars=way != "newest is narrower")
    names = ["2024-03-01", "2024-03-02"]
    opening = (
        cp.open_partitions("t", names, store=store) if way == "named" else cp.open_table("t", store=store, options=ALL)
    )
    async with opening as table:
        assert table.schema.field("x").type == expected.schema.field("x").type
        scan = table.scan()
        rows = await scan.to_arrow()
        assert rows.schema.field("x").type == scan.schema.field("x").type == expected.schema.field("x").type
        assert text_of(rows) == text_of(expected)
        assert text_of(await table.scan().tail(3)) == text_of(expected.slice(expected.num_rows - 3))
        assert await table.scan(where="x is null").count() == expected.column("x").null_count
        assert await table.scan().null_count("x") == expected.column("x").null_count
        await compare_filters(table, expected)
        if name != "fixed binary":
            await compare_extremes(table, expected)
        pieces = await table.scan(where="x is not null").pieces(most_pieces=2)
        found = []
        for piece in pieces.pieces:
            async with read_piece(piece.to_bytes(), store=store) as batches:
                found += [batch async for batch in batches]
        assert text_of(pa.Table.from_batches(found)) == text_of(expected.filter(expected.column("x").is_valid()))


async def compare_filters(table: cp.Table, expected: pa.Table) -> None:
    column = expected.column("x").combine_chunks()
    for value in [scalar for scalar in {repr(scalar): scalar for scalar in column}.values() if scalar.is_valid][:3]:
        literal = value.cast(exact(value.type)).as_py()
        if repr(literal) == "nan":
            continue
        for text, function in (("=", pc.equal), ("<", pc.less), (">=", pc.greater_equal), ("!=", pc.not_equal)):
            predicate = [("x", text, literal)]
            kept = expected.filter(function(expected.column("x"), value))
            scan = table.scan(where=predicate, options=cp.ReadOptions(page_index="always"))
            assert text_of(await scan.to_arrow()) == text_of(kept), (text, literal)
            assert await table.scan(where=predicate).count() == kept.num_rows
        kept = expected.filter(pc.is_in(expected.column("x"), value_set=pa.repeat(value, 1)))
        assert (await table.scan(where=cp.col("x").is_in([literal])).to_arrow()).num_rows == kept.num_rows


async def compare_extremes(table: cp.Table, expected: pa.Table) -> None:
    column = expected.column("x")
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))
    values = [scalar for scalar in column.combine_chunks() if scalar.is_valid]
    ordered = sorted(values, key=lambda scalar: scalar.cast(exact(scalar.type)).as_py())
    found = await table.scan().min_max("x")
    assert found["min"].equals(ordered[0])
    assert found["max"].equals(ordered[-1])


async def test_without_the_option_a_wider_older_partition_is_an_error_that_names_the_way_out() -> None:
    narrow, wide = (pa.table({"x": PAIRS["int32 int64"][index], "n": [1, 2, 3]}) for index in (0, 1))
    store = await store_of([wide, narrow])
    async with cp.open_table("t", store=store) as table:
        message = r"'x' is LONG here, but INT in the table.*ReadOptions\(columns_from='all'\) to read both as LONG"
        for scan in (table.scan(), table.scan(["n"], "x = 7")):
            with pytest.raises(UnsupportedError, match=message) as caught:
                await scan.to_arrow()
            assert caught.value.kind == "ChangedColumnType"
            assert caught.value.path == "t/2024-03-01/_pm"
        assert (await table.scan(["n"]).to_arrow()).num_rows == 6
    async with cp.open_table("t", store=await store_of([narrow, wide])) as table:
        assert (await table.scan(["x"]).to_arrow()).equals(unified([narrow, wide]).select(["x"]))


@pytest.mark.parametrize(
    ("older", "newest"),
    [
        (pa.array([2**60 + 1]), pa.array([0.5])),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([-1])),
        (pa.array([2**62], pa.timestamp("ms")), pa.array([1], pa.timestamp("ns"))),
        (pa.array([10**17]), pa.array([Decimal("0.50")], pa.decimal128(20, 2))),
    ],
    ids=["int64 double", "uint64 int64", "ms ns", "int64 decimal"],
)
async def test_a_value_that_the_wider_type_cannot_hold_is_an_error(older: pa.Array[Any], newest: pa.Array[Any]) -> None:
    parts = [pa.table({"x": older}), pa.table({"x": newest})]
    if "decimal" in str(newest.type):
        parts[0] = pa.table({"x": pa.array([2**63 - 1])})
    async with cp.open_table("t", store=await store_of(parts)) as table:
        for scan in (table.scan(), table.scan(where="x is not null")):
            with pytest.raises(UnsupportedError, match="does not fit") as caught:
                await scan.to_arrow()
            assert caught.value.kind == "ChangedColumnType"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1]), pa.array(["a"])),
        (pa.array([True]), pa.array([1])),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC"))),
        (pa.array([1.5]), pa.array([Decimal("1.5")], pa.decimal128(9, 2))),
    ],
    ids=["text", "truth", "zones", "decimals are not rounded"],
)
async def test_types_that_nothing_holds_are_refused_in_both_orders(one: pa.Array[Any], other: pa.Array[Any]) -> None:
    for first, second in ((one, other), (other, one)):
        store = await store_of([pa.table({"x": first}), pa.table({"x": second})])
        async with cp.open_table("t", store=store, options=ALL) as table:
            with pytest.raises(UnsupportedError, match="no type holds the values of both") as caught:
                await table.scan().to_arrow()
            assert caught.value.kind == "ChangedColumnType"


@pytest.mark.parametrize("type_", [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.float32()], ids=str)
@pytest.mark.parametrize("newest_is_required", [True, False])
async def test_required_and_nullable_columns_are_one(type_: pa.DataType, newest_is_required: bool) -> None:
    required = pa.table([pa.array([0, 1, 1]).cast(type_)], schema=pa.schema([pa.field("x", type_, nullable=False)]))
    nullable = pa.table({"x": pa.array([1, None, 0]).cast(type_)})
    absent = pa.table({"y": [7]})
    parts = [absent, nullable, required] if newest_is_required else [absent, required, nullable]
    expected = pa.concat_tables([part.cast(nullable.schema) for part in parts[1:]])
    async with cp.open_table("t", store=await store_of(parts)) as table:
        rows = await table.scan(["x"]).to_arrow()
        assert rows.column("x").to_pylist() == [None, *expected.column("x").to_pylist()]
        assert await table.scan(where="x is null").count() == 2
        assert await table.scan().null_count("x") == 2
        assert (await table.scan(where="x is not null").to_arrow()).num_rows == 5


async def test_columns_of_older_partitions_alone_are_told_and_read_where_all_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = [pa.table({"x": [1], "old": ["a"]}), pa.table({"x": [2], "old": ["b"], "mid": [1.5]}), pa.table({"x": [3]})]
    store = await store_of(parts)
    async with cp.open_table("t", store=store) as table:
        with pytest.raises(InvalidInputError, match=r"older ones may have others.*columns_from='all'"):
            table.scan(["old"])
        assert "not read, because" not in (await table.scan(["x"]).plan()).explain()
        with caplog.at_level(logging.WARNING, "coldparquet"):
            rows = await table.scan().to_arrow()
        assert rows.column_names == ["x"]
        [warning] = caplog.messages
        assert "'old' (of 2024-03-01), 'mid' (of 2024-03-02)" in warning
        assert warning.removeprefix("t: ") in (await table.scan().plan()).explain()
        for columns, where in ((["x", "old"], None), (None, "old = 'a'")):
            with pytest.raises(InvalidInputError, match=r"partition 2024-03-01 has it.*columns_from='all'") as caught:
                table.scan(columns, where)
            assert caught.value.kind == "UnknownColumn"
        with pytest.raises(InvalidInputError, match="partition 2024-03-01 has it"):
            await table.scan().max("old")
    expected = [(1, "a", None), (2, "b", 1.5), (3, None, None)]
    names = ["2024-03-01", "2024-03-02", "2024-03-03"]
    for opening in (cp.open_table("t", store=store, options=ALL), cp.open_partitions("t", names, store=store)):
        async with opening as table:
            rows = await table.scan(["x", "old", "mid"]).to_arrow()
            assert [tuple(row.values()) for row in rows.to_pylist()] == expected
            assert set((await table.scan().to_arrow()).column_names) == {"x", "old", "mid"}
            assert await table.scan(where="old = 'b'").count() == 1
            assert "not read, because" not in (await table.scan().plan()).explain()


def of_days(*names: str) -> list[pa.Table]:
    """Return a partition for each list of columns: the times of a day, and whole numbers that occur nowhere else."""
    parts = []
    for day, columns in enumerate(names):
        times = [1_709_251_200_000_000 + (day * 24 + hour) * 3_600_000_000 for hour in range(3)]
        rows: dict[str, pa.Array[Any]] = {"ts": pa.array(times, pa.timestamp("us", "UTC"))}
        for column in columns:
            rows[column] = pa.array([ord(column) * 100 + day * 10 + row for row in range(3)])
        parts.append(pa.table(rows))
    return parts


async def written(directory: Path, parts: Sequence[pa.Table]) -> list[str]:
    names = [f"2024-03-{day:02d}" for day in range(1, len(parts) + 1)]
    for name, rows in zip(names, parts, strict=True):
        await write_partition(directory / name, rows, timestamp="ts")
    return names


@pytest.mark.parametrize(
    "names",
    [("ps", "s"), ("s", "ps"), ("s", "ps", "p", "aps"), ("ps", "sp"), ("abc", "cab", "c", "bac"), ("a", "a", "")],
)
async def test_columns_of_written_partitions_are_found_by_name(tmp_path: Path, names: tuple[str, ...]) -> None:
    """`write_partition` does not know the table, and gives columns the numbers of their places."""
    parts = of_days(*names)
    expected = unified(parts)
    directories = await written(tmp_path, parts)
    for columns, opening in (
        (parts[-1].column_names, cp.open_table(tmp_path)),
        (parts[-1].column_names, cp.open_partitions(tmp_path, directories)),
        (expected.column_names, cp.open_table(tmp_path, options=ALL)),
    ):
        async with opening as table:
            assert sorted(table.schema.names) == sorted(columns)
            assert text_of(await table.scan(columns).to_arrow()) == text_of(expected.select(columns))
            for column in columns[1:]:
                values = expected[column]
                assert (await table.scan().null_count(column)) == values.null_count
                found = await table.scan().min_max(column)
                assert (found["min"].as_py(), found["max"].as_py()) == (pc.min(values).as_py(), pc.max(values).as_py())
                assert await table.scan(where=f"{column} > 0").count() == len(values) - values.null_count
    assert {finding.kind for finding in (await verify_table(tmp_path)).findings} <= {"ColumnLeftOut"}


async def test_a_column_that_may_have_been_renamed_is_refused_where_no_metadata_tells(tmp_path: Path) -> None:
    parts = of_days("ap", "ac")
    directories = await written(tmp_path, parts)
    for opening in (cp.open_table(tmp_path), cp.open_partitions(tmp_path, directories)):
        async with opening as table:
            for scan in (table.scan(), table.scan(["a"], "c is null")):
                with pytest.raises(UnsupportedError, match=r"'c', with id 2.*'p' with the same id.*'all'") as caught:
                    await scan.to_arrow()
                assert caught.value.kind == "AmbiguousColumn"
            assert text_of(await table.scan(["ts", "a"]).to_arrow()) == text_of(unified(parts).select(["ts", "a"]))
    async with cp.open_table(tmp_path, options=ALL) as table:
        rows = await table.scan(["ts", "a", "p", "c"]).to_arrow()
        assert text_of(rows) == text_of(unified(parts))
    [finding] = [finding for finding in (await verify_table(tmp_path)).findings if finding.severity == "error"]
    assert (finding.kind, finding.column) == ("AmbiguousColumn", "c")


async def test_verify_tells_columns_and_types_that_the_newest_partition_does_not_have() -> None:
    parts = [
        pa.table({"x": [1], "old": ["a"]}),
        pa.table({"x": [2], "old": ["b"]}),
        pa.table({"x": pa.array([3], pa.int8())}),
    ]
    store = await store_of(parts)
    report = await verify_table("t", store=store)
    found = {(finding.severity, finding.kind, finding.column) for finding in report.findings}
    assert found == {("warning", "ColumnLeftOut", "old"), ("error", "ChangedColumnType", "x")}
    assert not (await verify_table("t", store=await store_of(parts[:2]))).findings
    assert not (await verify_table("t", store=store, partitions=["2024-03-01"])).findings


async def test_verify_says_that_names_of_columns_repeat() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    report = await verify_table("t", store=await store_of([twice]))
    [finding] = report.findings
    assert (finding.severity, finding.kind, finding.column) == ("warning", "DuplicateColumn", "x")
    assert len(report.partitions) == 1


async def test_columns_of_all_cost_their_metadata_once() -> None:
    store = await store_of([pa.table({"x": [1]}), pa.table({"x": [2.5]})])
    asked = []
    for options in (cp.ReadOptions(), ALL):
        async with cp.open_table("t", store=store, options=options) as table:
            await table.scan(["x"]).to_arrow()
            asked.append(sorted((record.path, record.reason) for record in table.request_log))
    assert asked[0] == asked[1]


async def test_the_designated_timestamp_may_change_its_unit() -> None:
    def day(number: int, unit: str) -> pa.Table:
        start_s = 1_709_251_200 + (number - 1) * 86_400
        times = pa.array([start_s + hour * 3_600 for hour in (0, 5, 23)], pa.timestamp("s")).cast(pa.timestamp(unit))
        schema = pa.schema([pa.field("ts", times.type, nullable=False), pa.field("k", pa.string())])
        return pa.table([times, pa.array(["a", "b", "a"])], schema=schema)

    for units in product(["ms", "us", "ns"], repeat=2):
        parts = [day(number, unit) for number, unit in enumerate(units, start=1)]
        store = MemoryStore()
        for number, rows in enumerate(parts, start=1):
            await store.put(
                f"t/2024-03-{number:02d}/data.parquet",
                parquet_bytes(rows, sorting_columns=[pq.SortingColumn(0)], row_group_size=2),
                overwrite=False,
            )
        expected = unified(parts)
        async with cp.open_table("t", store=store, options=ALL) as table:
            times = expected.column("ts")
            assert (await table.scan().to_arrow()).column("ts").equals(times)
            assert (await table.scan().min_max("ts"))["min"].equals(times[0])
            assert await table.scan().last_timestamp() == times[5].as_py()
            assert (await table.scan().top_k(4)).column("ts").to_pylist() == times.to_pylist()[:1:-1]
            assert (await table.scan().latest_by("k")).column("ts").equals(times.take([4, 5]))
            plan = await table.scan(where="ts >= '2024-03-01T05:00' and ts < '2024-03-02'").plan()
            assert [partition.name for partition in plan.partitions] == ["2024-03-01"]
            assert await table.scan(where="ts >= '2024-03-01T05:00' and ts < '2024-03-02T05:00'").count() == 3


async def test_field_ids_of_foreign_files_narrow_nothing() -> None:
    """They looked like QuestDB's ids, by which changed types are converted as its ALTER COLUMN TYPE does."""
    field_id = {"PARQUET:field_id": "1"}
    parts = [
        pa.table([values], schema=pa.schema([pa.field("x", values.type, metadata=field_id)]))
        for values in (pa.array([2**40 + 1, 5]), pa.array([1, 2], pa.int32()))
    ]
    store = await store_of(parts)
    async with cp.open_table("t", store=store) as table:
        with pytest.raises(UnsupportedError, match="LONG here, but INT"):
            await table.scan().to_arrow()
    async with cp.open_table("t", store=store, options=ALL) as table:
        assert (await table.scan().to_arrow()).column("x").to_pylist() == [2**40 + 1, 5, 1, 2]
