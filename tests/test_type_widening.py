"""Partitions of foreign files whose columns have other types, or that lack columns, read as Arrow unifies them."""

from __future__ import annotations

import io
from datetime import date, datetime
from decimal import Decimal
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.pieces import read_piece
from coldparquet.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = cp.ReadOptions(columns_from="all")

PAIRS: dict[str, tuple[pa.Array[Any], pa.Array[Any]]] = {
    "int8 int64": (pa.array([-128, None, 127], pa.int8()), pa.array([2**62, -5, 127], pa.int64())),
    "int16 int32": (pa.array([-(2**15), 7, None], pa.int16()), pa.array([2**31 - 1, -(2**31), 7], pa.int32())),
    "int32 int64": (pa.array([-(2**31), 7, None], pa.int32()), pa.array([-(2**63), 2**63 - 1, 7], pa.int64())),
    "uint8 int16": (pa.array([0, 255, None], pa.uint8()), pa.array([-1, 255, 300], pa.int16())),
    "uint8 int8": (pa.array([0, 255, None], pa.uint8()), pa.array([-1, 5, None], pa.int8())),
    "uint32 int32": (pa.array([2**32 - 1, 5, None], pa.uint32()), pa.array([-(2**31), 5, None], pa.int32())),
    "uint32 uint64": (pa.array([2**32 - 1, 5, None], pa.uint32()), pa.array([2**64 - 1, 5, None], pa.uint64())),
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
    "string binary": (pa.array(["a", None, "ä"]), pa.array([b"a", b"\xff"])),
    "fixed binary": (pa.array([b"0123456789abcdef", None], pa.binary(16)), pa.array([b"a", b"\xff"])),
}
ROWS_PER_PARTITION = 3


def parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    names = [field.name for field in rows.schema if not pa.types.is_boolean(field.type)]
    options = {name: {"fpp": 0.01} for name in names}
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
        await index_table("t", store=store, pages=True)
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


def without_metadata(rows: pa.Table) -> pa.Table:
    return rows.replace_schema_metadata(None).cast(pa.schema([pa.field(f.name, f.type) for f in rows.schema]))


def text_of(rows: pa.Table) -> list[str]:
    """Spell rows so that NaN equals itself and the zeros differ."""
    return [repr(row) for row in rows.cast(pa.schema([f.with_type(exact(f.type)) for f in rows.schema])).to_pylist()]


def exact(type_: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(type_) or pa.types.is_time64(type_) else type_


@pytest.mark.parametrize("sidecars", [True, False])
@pytest.mark.parametrize("way", ["newest is wider", "newest is narrower", "named"])
@pytest.mark.parametrize("name", PAIRS)
async def test_types_are_read_as_arrow_unifies_them(name: str, way: str, sidecars: bool) -> None:
    narrow, wide = PAIRS[name]
    parts = [pa.table({"x": values, "n": list(range(len(values)))}) for values in (narrow, wide)]
    if way == "newest is narrower":
        parts.reverse()
    expected = unified(parts)
    store = await store_of(parts, sidecars=sidecars)
    names = ["2024-03-01", "2024-03-02"]
    opening = cp.open_partitions("t", names, store=store) if way == "named" else cp.open_table("t", store=store, options=ALL)
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
        found = [await read_piece(piece.to_bytes(), store=store) for piece in pieces.pieces]
        assert text_of(pa.concat_tables(found)) == text_of(expected.filter(expected.column("x").is_valid()))


async def compare_filters(table: cp.Table, expected: pa.Table) -> None:
    column = expected.column("x").combine_chunks()
    for value in {repr(scalar): scalar for scalar in column if scalar.is_valid}.values():
        literal = value.cast(exact(value.type)).as_py()
        if isinstance(literal, float) and literal != literal:
            continue
        for text, function in (("=", pc.equal), ("<", pc.less), (">=", pc.greater_equal), ("!=", pc.not_equal)):
            predicate = [("x", text, literal)]
            kept = expected.filter(function(expected.column("x"), value))
            for switches in ({}, {"page_index": "always"}, {"bloom_filters": False, "statistics": False}):
                scan = table.scan(where=predicate, options=cp.ReadOptions(**switches))
                assert text_of(await scan.to_arrow()) == text_of(kept), (text, literal)
            assert await table.scan(where=predicate).count() == kept.num_rows
        kept = expected.filter(pc.is_in(expected.column("x"), value_set=pa.array([value.as_py()], value.type)))
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
