"""Nested columns and odd types are read as pyarrow reads them, whatever of a table is asked for, and from whatever plan."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import coldparquet as cp
import coldparquet.sync
from coldparquet.errors import BudgetExceededError, FormatError, UnsupportedError
from coldparquet.format.parquet_schema import annotation_of, noted_leaves
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.storage.memory import MemoryStore
from tests.support.nested_tables import earlier_type, nested_types, nullable, random_nested_rows, written_somehow
from tests.support.parquet_footers import parsed_footer
from tests.support.random_tables import assert_identical
from tests.support.read_pieces import read_pieces

PLANS = ("footer", "index", "pages", "catalogue")
DAYS = ("2024-03-01", "2024-03-02")
ROWS = 60


async def _table(random: Random, planned_from: str, *, is_changed: bool = False) -> tuple[MemoryStore, pa.Table]:
    """Write a table of two partitions; return what pyarrow reads of its files, as it unites them."""
    store, types, parts = MemoryStore(), nested_types(random), []
    earlier = {name: earlier_type(random, type_) if is_changed else type_ for name, type_ in types.items()}
    for day, types_of_day in zip(DAYS, (earlier, types), strict=True):
        data = written_somehow(random, random_nested_rows(random, random.choice((0, 1, ROWS)), types_of_day))
        await store.put(f"t/{day}/data.parquet", data, overwrite=False)
        parts.append(_read(data))
    if planned_from != "footer":
        await index_table("t", store=store, pages=planned_from == "pages", pack=False)
    if planned_from == "catalogue":
        await pack_table("t", store=store)
    rows = [row for part in parts for row in part.to_pylist()]
    schemas = [pa.schema([(field.name, nullable(field.type)) for field in part.schema]) for part in reversed(parts)]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    return store, pa.Table.from_pylist(rows, schema=schema)


def _read(data: bytes) -> pa.Table:
    options: Any = {"arrow_extensions_enabled": False}
    try:
        return pq.ParquetFile(io.BytesIO(data), **options).read()
    except (pa.ArrowInvalid, OSError):  # of some files without rows, and of some whose levels pyarrow wrote wrong
        reject()


@pytest.mark.parametrize("planned_from", PLANS)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32))
def test_every_question_has_the_rows_that_pyarrow_reads(planned_from: str, seed: int) -> None:
    asyncio.run(_ask_everything(Random(seed), planned_from))


@pytest.mark.slow
@pytest.mark.parametrize("planned_from", PLANS)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_many_questions(planned_from: str, seed: int) -> None:
    asyncio.run(_ask_everything(Random(seed), planned_from))


async def _ask_everything(random: Random, planned_from: str) -> None:
    store, expected = await _table(random, planned_from, is_changed=random.random() < 0.7)
    options = cp.ReadOptions(
        late_materialisation=random.choice(("auto", "always", "never")),
        page_index=random.choice(("auto", "always", "never")),
        batch_rows=random.choice((100, 10_000)),
        columns_from="all",
    )
    async with cp.open_table("t", store=store, options=options) as table:
        assert_identical(await table.scan().to_arrow(), expected)
        columns = random.sample(expected.schema.names, random.randint(1, expected.num_columns))
        some = expected.select(columns)
        border = random.randrange(ROWS)
        nested = random.choice([name for name in expected.schema.names if name not in {"id", "name"}])
        ids: list[Any] = expected.column("id").to_pylist()
        names: list[Any] = expected.column("name").to_pylist()
        for where, mask in (
            (None, [True for _ in ids]),
            (cp.col("id") >= border, [id_ >= border for id_ in ids]),
            (cp.col("name") == "b", [name == "b" for name in names]),
            (cp.col("id") == border, [id_ == border for id_ in ids]),
            (cp.col(nested).is_null(), pc.is_null(expected.column(nested)).to_pylist()),
        ):
            wanted = some.filter(pa.array(mask, pa.bool_()))
            scan = table.scan(columns, where)
            assert_identical(await scan.to_arrow(), wanted)
            assert await scan.count() == wanted.num_rows
            assert_identical(await scan.head(3), wanted.slice(0, 3))
            last = min(4, wanted.num_rows)
            assert_identical(await scan.tail(4), wanted.slice(wanted.num_rows - last))
            async with scan.batches() as stream:
                batches = [batch async for batch in stream]
            assert_identical(pa.Table.from_batches(batches, scan.schema), wanted)
            pieces = await scan.pieces(random.choice((1, 2, 5)))
            assert_identical(await read_pieces(pieces, store=store), wanted)
        assert await table.scan().null_count(nested) == expected.column(nested).null_count


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_verify_finds_nothing_wrong(seed: int) -> None:
    async def verify() -> None:
        random = Random(seed)
        store, _ = await _table(random, random.choice(PLANS[1:]))
        report = await verify_table("t", store=store, deep=True)
        findings = [finding for finding in report.findings if finding.severity in {"error", "warning"}]
        assert not findings, findings

    asyncio.run(verify())


def test_blocking_calls_read_them_too(tmp_path: Path) -> None:
    rows = random_nested_rows(Random(1), ROWS, {"n": pa.list_(pa.struct([("x", pa.map_(pa.string(), pa.int64()))]))})
    (tmp_path / DAYS[0]).mkdir()
    pq.write_table(rows, tmp_path / DAYS[0] / "data.parquet", row_group_size=10)
    with coldparquet.sync.open_table(tmp_path) as table:
        assert_identical(table.scan(["n"], "id < 7").to_arrow(), rows.select(["n"]).slice(0, 7))
        assert table.scan().tail(2).equals(rows.slice(ROWS - 2))


# --- What cannot be done is an error of the columns that were asked for -----------------------------------------------


def _written(rows: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(rows, file, **options)
    return file.getvalue()


async def _partition(data: bytes) -> MemoryStore:
    store = MemoryStore()
    await store.put("t/one/data.parquet", data, overwrite=False)
    return store


NESTED = pa.table(
    {
        "first": pa.array([{"a": 1, "b": [1, 2]}, None, {"a": 3, "b": None}]),
        "id": [1, 2, 3],
        "half": pa.array([1, 2, None], pa.float16()),
    }
)


@pytest.mark.parametrize("where", [cp.col("first") == 1, cp.col("half") > 1.0, cp.col("first").is_in([1])])
async def test_they_are_compared_with_null_alone(where: Any) -> None:
    async with cp.open_partition("t/one", store=await _partition(_written(NESTED))) as table:
        with pytest.raises(UnsupportedError, match="has only IS NULL and IS NOT NULL"):
            await table.scan(["id"], where).to_arrow()
        with pytest.raises(UnsupportedError, match="have no order"):
            await table.scan().min("first")
        assert (await table.scan(["id"], "first IS NOT NULL AND half IS NULL").to_arrow()).to_pylist() == [{"id": 3}]


async def test_names_that_several_columns_have() -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["twice", "twice", "once"])
    async with cp.open_partition("t/one", store=await _partition(_written(rows))) as table:
        assert table.schema.names == ["once"]
        assert (await table.scan(["once"]).to_arrow()).to_pylist() == [{"once": 3}]
        assert (await table.scan(["once"], "once = 3").to_arrow()).num_rows == 1
        for columns, where in ((["twice"], None), (None, None), (["once"], "twice = 1")):
            with pytest.raises(UnsupportedError, match="several columns have this name"):
                await table.scan(columns, where).to_arrow()


async def test_a_flat_column_named_like_a_leaf_is_another_column() -> None:
    rows = pa.table({"s": [{"x": 1, "y": 2}], "s.y": [3]})
    store = await _partition(_written(rows))
    for _ in range(2):
        async with cp.open_partition("t/one", store=store) as table:
            assert table.schema.names == ["s", "s.y"]
            assert (await table.scan(["s.y"]).to_arrow()).to_pylist() == [{"s.y": 3}]
            assert (await table.scan().to_arrow()).to_pylist() == rows.to_pylist()
        await index_table("t/one", store=store, pages=False, pack=False)


async def test_a_designated_timestamp_behind_nested_columns() -> None:
    times = pa.array([5, 6, 7], pa.timestamp("us", "UTC"))
    rows = NESTED.append_column(pa.field("ts", times.type, nullable=False), times)
    place = len(pq.ParquetFile(io.BytesIO(_written(rows))).schema) - 1
    data = _written(rows, sorting_columns=[pq.SortingColumn(place)])
    store = MemoryStore()
    await store.put("t/1970-01-01/data.parquet", data, overwrite=False)
    async with cp.open_table("t", store=store) as table:
        assert (await table.scan(["id"], where="ts > '1970-01-01T00:00:00.000005Z'").to_arrow()).to_pylist() == [
            {"id": 2},
            {"id": 3},
        ]
        assert (await table.scan(["first"]).latest_by("id")).num_rows == 3
        assert (await table.scan().last_timestamp()).microsecond == 7


async def test_files_that_name_the_items_of_lists_otherwise_are_one_table() -> None:
    store = MemoryStore()
    rows = pa.table({"l": pa.array([[1], None, [2, None]]), "s": pa.array([{"x": [True]}] * 3)})
    for day, compliant in zip(DAYS, (True, False), strict=True):
        data = _written(rows, use_compliant_nested_type=compliant)
        await store.put(f"t/{day}/data.parquet", data, overwrite=False)
    async with cp.open_table("t", store=store) as table:
        assert (await table.scan().to_arrow()).to_pylist() == rows.to_pylist() * 2


EARLIER_AND_NEWER: dict[str, tuple[pa.Array[Any], pa.Array[Any]]] = {
    "added and reordered": (
        pa.array([{"x": 1}, None, {"x": None}]),
        pa.array([{"y": "a", "x": 2**40}, {"y": None, "x": None}, None]),
    ),
    "narrower": (
        pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())])),
        pa.array([{"x": 2**40, "s": {"k": [1.5]}}]),
    ),
    "in lists": (
        pa.array([[{"x": 1}, None], None, []]),
        pa.array([[{"x": 5, "y": [1]}]], pa.list_(pa.struct([("y", pa.list_(pa.int8())), ("x", pa.float64())]))),
    ),
    "without values": (pa.array([{"x": None, "l": [None]}]), pa.array([{"x": [{"a": 1}], "l": ["a"]}])),
    "without values in lists": (
        pa.array([[{"x": 1.0, "k": None}] * 2] * 3),
        pa.array([[{"k": None, "x": 1.0}]], pa.list_(pa.struct([("k", pa.null()), ("x", pa.float64())]))),
    ),
    "QuestDB's arrays": (pa.array([[1.5], None, [None]]), pa.array([[1], None], pa.list_(pa.int32()))),
}


@pytest.mark.parametrize("name", EARLIER_AND_NEWER)
@pytest.mark.parametrize("is_indexed", [False, True])
async def test_nested_types_that_differ_are_united_by_name(name: str, is_indexed: bool, tmp_path: Path) -> None:
    for turn, values in enumerate((EARLIER_AND_NEWER[name], EARLIER_AND_NEWER[name][::-1])):
        root, parts = tmp_path / str(turn), [pa.table({"s": part, "id": range(len(part))}) for part in values]
        for day, part in zip(DAYS, parts, strict=True):
            (root / day).mkdir(parents=True)
            pq.write_table(part, root / day / "data.parquet", row_group_size=1)
        if is_indexed:
            await index_table(root, pages=False, pack=False)
        united = pa.concat_tables(parts, promote_options="permissive")
        by_duckdb = duckdb.read_parquet(f"{root}/*/data.parquet", union_by_name=True)
        async with cp.open_table(root, options=cp.ReadOptions(columns_from="all")) as table:
            assert (await table.scan().to_arrow()).to_pylist() == united.to_pylist()
            for where, condition in FILTERS.items():
                found = (await table.scan(["s", "id"], where).to_arrow()).to_pylist()
                assert found == united.filter(condition).to_pylist()
                if not name.startswith("without values"):  # DuckDB takes lists without values for another type
                    assert _in_order(found) == _in_order(by_duckdb.filter(where).to_arrow_table().to_pylist())
                assert await table.scan(where=where).count() == len(found)
            assert await table.scan().null_count("s") == united.column("s").null_count
            plan = await table.scan(["s"], "id >= 1").plan()
            assert sum(read.rows_read for read in plan.partitions) == sum(len(part) - 1 for part in parts)


FILTERS: dict[str, Any] = {
    "id = 1": pc.field("id") == 1,
    "s IS NULL": pc.field("s").is_null(),
    "s IS NOT NULL AND id < 1": cast("Any", pc.field("s").is_valid()) & (pc.field("id") < 1),
}


def _in_order(rows: list[Any]) -> list[str]:
    """Spell rows so that the order of fields does not count."""
    return [json.dumps(row, sort_keys=True) for row in rows]


async def test_a_field_that_the_newest_file_lacks_is_an_error_that_names_the_way_out() -> None:
    store = MemoryStore()
    for day, value in zip(DAYS, ({"x": 1, "y": 2}, {"x": 1}), strict=True):
        await store.put(f"t/{day}/data.parquet", _written(pa.table({"s": [value], "id": [1]})), overwrite=False)
    async with cp.open_table("t", store=store) as table:
        assert (await table.scan(["id"]).to_arrow()).num_rows == 2
        with pytest.raises(UnsupportedError, match=r"columns_from='all'\) to read both as struct<x: int64, y: int64>"):
            await table.scan().to_arrow()


@pytest.mark.parametrize("value", [{"x": "text"}, [1], {"x": [1]}])
async def test_what_nothing_holds_is_refused(value: Any) -> None:
    store = MemoryStore()
    for day, stored in zip(DAYS, (value, {"x": 1}), strict=True):
        await store.put(f"t/{day}/data.parquet", _written(pa.table({"s": [stored], "id": [1]})), overwrite=False)
    async with cp.open_table("t", store=store, options=cp.ReadOptions(columns_from="all")) as table:
        assert (await table.scan(["id"]).to_arrow()).num_rows == 2
        with pytest.raises(UnsupportedError, match="no type holds the values of both"):
            await table.scan().to_arrow()


async def test_fields_of_one_name_are_read_in_their_order() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    store = MemoryStore()
    for day in DAYS:
        await store.put(f"t/{day}/data.parquet", _written(pa.table({"s": twice})), overwrite=False)
    async with cp.open_table("t", store=store) as table:
        found = (await table.scan().to_arrow()).column("s").chunk(1)
        assert [field.to_pylist() for field in found.flatten()] == [[1], [2]]


async def test_values_outside_of_what_nanoseconds_hold() -> None:
    times = pa.array([[None, -(10**17)]], pa.list_(pa.timestamp("us")))
    data = _written(pa.table({"l": times, "id": [1]}), use_deprecated_int96_timestamps=True)
    async with cp.open_partition("t/one", store=await _partition(data)) as table:
        assert (await table.scan(["id"]).to_arrow()).num_rows == 1
        with pytest.raises(UnsupportedError, match="INT96"):
            await table.scan(["l"]).to_arrow()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
async def test_few_pages_of_much_text_exceed_the_memory_limit(version: str) -> None:
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * 100_000]))
    lists = pa.ListArray.from_arrays(pa.array([0, 4000], pa.int32()), long)
    inner = pa.StructArray.from_arrays([pa.array([1]), lists], ["a", "b"])
    data = _written(pa.table({"s": inner, "id": [1]}), data_page_version=version, store_schema=False)
    options = cp.ReadOptions(memory_limit_bytes=64 * 1024 * 1024)
    async with cp.open_partition("t/one", store=await _partition(data), options=options) as table:
        assert (await table.scan(["id"]).to_arrow()).num_rows == 1
        with pytest.raises(BudgetExceededError, match="take 400,0"):
            await table.scan(["s"]).to_arrow()


@given(content=st.binary(max_size=60), position=st.integers(0, 200), value=st.integers(0, 255))
def test_damaged_notes_are_format_errors(content: bytes, position: int, value: int) -> None:
    data = _written(NESTED)
    note = bytearray(base64.b64decode(annotation_of(parsed_footer(data).leaves[0]).split(" ")[1]))
    note[position % len(note)] = value
    for damaged in (content, bytes(note)):
        with suppress(FormatError, UnsupportedError):
            noted_leaves(base64.b64encode(damaged).decode())
