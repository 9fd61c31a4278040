"""Any Arrow column that stands for a QuestDB type is stored as that type and comes back with its values."""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import coldparquet as cp
from coldparquet.decode.arrow import decode_raw_arrays
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.write import WriteOptions, write_partition
from coldparquet.write.parquet import encode_raw_arrays
from tests.support.written_tables import assert_same_rows, read_rows

NOON = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)


def typed(values: list[Any], type_: Any, questdb_type: str | None = None) -> pa.Table:
    metadata = None if questdb_type is None else {"questdb.type": questdb_type}
    return pa.table([pa.array(values, type_)], schema=pa.schema([pa.field("c", type_, metadata=metadata)]))


def questdb_type(rows: pa.Table) -> str:
    metadata: Any = rows.schema.field(0).metadata
    return str(metadata[b"questdb.type"], "ascii")


async def written(rows: pa.Table, directory: Path) -> pa.Table:
    await write_partition(directory / "default", rows, timestamp=None)
    return await read_rows(directory / "default")


INFERRED: list[tuple[pa.Table, str, list[Any]]] = [
    (typed([True, False], pa.bool_()), "BOOLEAN", [True, False]),
    (typed([-128, 127], pa.int8()), "BYTE", [-128, 127]),
    (typed([-5, 5], pa.int16()), "SHORT", [-5, 5]),
    (typed([None, -(2**31)], pa.int32()), "INT", [None, -(2**31)]),
    (typed([None, 2**63 - 1], pa.int64()), "LONG", [None, 2**63 - 1]),
    (typed([None, 1.5], pa.float32()), "FLOAT", [None, 1.5]),
    (typed([None, float("inf")], pa.float64()), "DOUBLE", [None, float("inf")]),
    (typed([NOON.date(), None], pa.date32()), "DATE", [dt.datetime(2024, 3, 1, tzinfo=dt.UTC), None]),
    (typed([NOON.replace(tzinfo=None)], pa.timestamp("s")), "TIMESTAMP", [NOON]),
    (typed([NOON], pa.timestamp("ms", "UTC")), "DATE", [NOON]),
    (typed([NOON], pa.timestamp("us", "America/New_York")), "TIMESTAMP", [NOON]),
    (typed([1], pa.timestamp("ns")), "TIMESTAMP_NS", None or []),
    (typed(["", None, "é"], pa.string()), "VARCHAR", ["", None, "é"]),
    (typed(["a", None], pa.large_string()), "VARCHAR", ["a", None]),
    (typed(["a", None], pa.string_view()), "VARCHAR", ["a", None]),
    (typed(["a", None, "a"], pa.dictionary(pa.int8(), pa.large_string())), "SYMBOL", ["a", None, "a"]),
    (typed([b"", None, b"\xff"], pa.large_binary()), "BINARY", [b"", None, b"\xff"]),
    (typed([UUID(int=1).bytes, None], pa.uuid()), "UUID", [UUID(int=1).bytes, None]),
    (typed([bytes(32)], pa.binary(32)), "LONG256", [bytes(32)]),
    (typed([Decimal("1.25"), None], pa.decimal128(5, 2)), "DECIMAL(5,2)", [Decimal("1.25"), None]),
    (typed([Decimal("-9" * 1)], pa.decimal64(10, 0)), "DECIMAL(10,0)", [Decimal(-9)]),
    (typed([[1.0, None], [], None], pa.list_(pa.float64())), "DOUBLE[]", [[1.0, None], [], None]),
    (typed([[[1.0], [2.0]]], pa.large_list(pa.list_(pa.float64()))), "DOUBLE[][]", [[[1.0], [2.0]]]),
    (typed([[1.0, 2.0]], pa.list_(pa.float64(), 2)), "DOUBLE[]", [[1.0, 2.0]]),
]


@pytest.mark.parametrize(
    ("rows", "name", "values"), INFERRED, ids=[f"{rows.schema.types[0]}" for rows, _, _ in INFERRED]
)
async def test_type_follows_from_arrow(rows: pa.Table, name: str, values: list[Any], tmp_path: Path) -> None:
    found = await written(rows, tmp_path)
    assert questdb_type(found) == name
    if values:
        assert found.column(0).to_pylist() == values


STATED: list[tuple[pa.Table, list[Any]]] = [
    (typed([65, 0xFFFF], pa.uint16(), "CHAR"), [65, 0xFFFF]),
    (typed([1, 2**32 - 1, None], pa.uint32(), "ipv4"), [1, 2**32 - 1, None]),
    (typed([5, None], pa.int64(), "GEOHASH(2c)"), [5, None]),
    (typed([3, None], pa.int8(), "GEOHASH(7b)"), [3, None]),
    (typed([3, None], pa.int32(), "GEOHASH(4c)"), [3, None]),
    (typed([3, None], pa.int64(), "GEOHASH(59b)"), [3, None]),
    (typed(["a", None], pa.string(), "SYMBOL"), ["a", None]),
    (typed(["a", None], pa.dictionary(pa.int32(), pa.string()), "STRING"), ["a", None]),
    (typed([UUID(int=7).bytes, None], pa.binary(16), "UUID"), [UUID(int=7).bytes, None]),
    (typed([bytes(range(16)), None], pa.binary(16), "LONG128"), [bytes(range(16)), None]),
    (typed([Decimal("1.5")], pa.decimal128(10, 1), "DECIMAL(76,3)"), [Decimal("1.500")]),
    (typed([7], pa.int64(), "BYTE"), [7]),
    (typed([[1, 2]], pa.list_(pa.int32()), "DOUBLE[]"), [[1.0, 2.0]]),
]


@pytest.mark.parametrize(("rows", "values"), STATED, ids=[str(rows.schema.field(0).metadata) for rows, _ in STATED])
async def test_type_is_stated(rows: pa.Table, values: list[Any], tmp_path: Path) -> None:
    found = await written(rows, tmp_path)
    assert questdb_type(found).upper() == questdb_type(rows).upper()
    assert found.column(0).to_pylist() == values


def with_keys(keys: list[int], values: list[Any], type_: Any, questdb_type: str) -> pa.Table:
    """A column whose values stand in a dictionary, a null among them."""
    column = pa.DictionaryArray.from_arrays(pa.array(keys, pa.int8()), pa.array(values, type_))
    return pa.table([column], schema=pa.schema([pa.field("c", column.type, metadata={"questdb.type": questdb_type})]))


NOT_UTF8: Any = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())

REFUSED: list[tuple[pa.Table, str, str]] = [
    (typed([1], pa.uint32()), "UnknownType", "stands for no QuestDB type"),
    (typed([1], pa.time64("us")), "UnknownType", "time64"),
    (typed([{"a": 1}], pa.struct([("a", pa.int64())])), "UnknownType", "struct"),
    (typed([[1]], pa.list_(pa.int64())), "UnknownType", "list"),
    (typed([1], pa.int64(), "MONEY"), "UnknownType", "'MONEY'"),
    (typed([1], pa.int64(), "GEOHASH(13c)"), "UnknownType", "GEOHASH"),
    (typed([True, None], pa.bool_()), "NullValue", "1 nulls"),
    (typed([1, None], pa.int16()), "NullValue", "never null"),
    (typed([300], pa.int64(), "BYTE"), "DoesNotFit", "300"),
    (typed([1.5], pa.float64(), "LONG"), "DoesNotFit", "cannot be stored as LONG"),
    (typed([Decimal("1.25")], pa.decimal128(5, 2), "DECIMAL(4,1)"), "DoesNotFit", "Rescaling"),
    (typed([Decimal("12345.25")], pa.decimal128(10, 2), "DECIMAL(5,2)"), "DoesNotFit", "does not fit in precision"),
    (typed([1e300], pa.float64(), "FLOAT"), "DoesNotFit", "too large"),
    (with_keys([0, 1], [7, None], pa.int8(), "BYTE"), "NullValue", "1 nulls"),
    (pa.table({"c": NOT_UTF8}), "DoesNotFit", "VARCHAR: .* Invalid UTF8"),
    (pa.table({"c": NOT_UTF8.dictionary_encode()}), "DoesNotFit", "SYMBOL: .* Invalid UTF8"),
    (typed([[[1.0], [2.0, 3.0]]], pa.list_(pa.list_(pa.float64()))), "RaggedArray", "row 0 .* differ in length"),
    (typed([[[1.0]], [[1.0], None]], pa.list_(pa.list_(pa.float64()))), "RaggedArray", "row 1 .* null"),
]


@pytest.mark.parametrize(
    ("rows", "kind", "message"), REFUSED, ids=[f"{kind}-{message}" for _, kind, message in REFUSED]
)
async def test_refuses_what_does_not_fit(rows: pa.Table, kind: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        await written(rows, tmp_path)
    assert caught.value.kind == kind
    assert caught.value.details["field"] == "c"


async def test_metadata_that_is_no_text(tmp_path: Path) -> None:
    rows = pa.table([[1]], schema=pa.schema([pa.field("c", pa.int64(), metadata={b"questdb.type": b"\xff"})]))
    with pytest.raises(InvalidInputError, match="not the name of a QuestDB type"):
        await written(rows, tmp_path)


async def test_floats_keep_infinities_when_they_become_narrower(tmp_path: Path) -> None:
    rows = typed([float("inf"), 1.5, None, float("-inf")], pa.float64(), "FLOAT")
    assert (await written(rows, tmp_path)).column("c").to_pylist() == [float("inf"), 1.5, None, float("-inf")]


async def test_dictionaries_that_are_too_many_values_together(tmp_path: Path) -> None:
    values = [[f"{piece}-{number}" for number in range(100)] for piece in range(3)]
    pieces = [pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array(piece)) for piece in values]
    found = await written(pa.table({"c": pa.chunked_array(pieces)}), tmp_path)
    assert found.column("c").to_pylist() == [value for piece in values for value in piece]


@pytest.mark.parametrize("ids", [["0", "0"], ["0", None], ["a", "1"], ["-1", "1"]])
async def test_field_ids_are_each_columns_own(ids: list[str | None], tmp_path: Path) -> None:
    fields = [
        pa.field(name, pa.int32(), metadata=None if id_ is None else {"PARQUET:field_id": id_})
        for name, id_ in zip("ab", ids, strict=True)
    ]
    with pytest.raises(InvalidInputError, match="field ids") as caught:
        await written(pa.table([[1], [2]], schema=pa.schema(fields)), tmp_path)
    assert caught.value.kind == "FieldIds"


async def test_decimals_keep_their_digits_and_questdbs_width(tmp_path: Path) -> None:
    widths = {1: 1, 2: 1, 3: 2, 5: 4, 9: 4, 10: 8, 18: 8, 19: 16, 38: 16, 39: 32, 76: 32}
    columns = {f"d{digits}": pa.array([Decimal("0.1"), Decimal("-0.9")], pa.decimal256(digits, 1)) for digits in widths}
    rows = pa.table(columns)
    found = await written(rows, tmp_path)
    schema = pq.ParquetFile(tmp_path / "default" / "data.parquet").schema
    for index, (digits, width) in enumerate(widths.items()):
        assert (schema.column(index).precision, schema.column(index).length) == (digits, width)
        assert found.column(index).to_pylist() == [Decimal("0.1"), Decimal("-0.9")]


async def test_arrays_have_a_null_count_and_no_bounds(tmp_path: Path) -> None:
    rows = typed([[1.0], None, [2.0], None, None], pa.list_(pa.float64()))
    await write_partition(tmp_path / "default", rows, timestamp=None, options=WriteOptions(row_group_rows=2))
    footer = pq.ParquetFile(tmp_path / "default" / "data.parquet").metadata
    statistics: list[Any] = [footer.row_group(group).column(0).statistics for group in range(3)]
    assert [found.null_count for found in statistics] == [1, 1, 1]
    assert not any(found.has_min_max for found in statistics)
    assert_same_rows(await read_rows(tmp_path / "default"), rows)


@st.composite
def _array_columns(draw: st.DrawFn) -> tuple[int, pa.ListArray[Any]]:
    dimensions = draw(st.integers(1, 4))
    shapes = hnp.array_shapes(min_dims=dimensions, max_dims=dimensions, min_side=0, max_side=3)
    arrays = draw(st.lists(shapes.flatmap(lambda shape: hnp.arrays(np.float64, shape)) | st.none(), max_size=8))
    type_: Any = pa.float64()
    for _ in range(dimensions):
        type_ = pa.list_(type_)
    lists: Any = pa.array([None if array is None else array.tolist() for array in arrays], type_)
    return dimensions, lists.slice(draw(st.integers(0, 3)))


@given(_array_columns())
def test_arrays_decode_to_what_was_encoded(column: tuple[int, pa.ListArray[Any]]) -> None:
    dimensions, lists = column
    encoded = encode_raw_arrays(lists, dimensions=dimensions, column="c")
    encoded.validate(full=True)
    label = ChunkLabel(path=None, row_group=0, columns=("c",))
    decoded = decode_raw_arrays(encoded, dimensions=dimensions, label=label)

    def null_for_nan(value: Any) -> Any:
        if isinstance(value, list):
            return [null_for_nan(item) for item in value]
        return None if value != value else value  # noqa: PLR0124 - NaN

    assert decoded.to_pylist() == null_for_nan(lists.to_pylist())


_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "b", "", "long " * 20]),
    pa.timestamp("us", "UTC"): st.integers(-(2**40), 2**40),
    pa.decimal128(20, 4): st.decimals(min_value=-10_000, max_value=10_000, places=4),
    pa.uuid(): st.binary(min_size=16, max_size=16),
}


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 60))
    columns = {}
    for index, type_ in enumerate(draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=5))):
        values = draw(st.lists(_VALUES[type_] | st.none(), min_size=rows, max_size=rows))
        columns[f"c{index}"] = pa.array(values, type_)
    return pa.table(columns)


@pytest.mark.slow
@given(
    rows=_tables(),
    row_group_rows=st.integers(1, 70),
    page_rows=st.integers(1, 70),
    codec=st.sampled_from(["zstd", "lz4_raw", "snappy", "none"]),
)
async def test_any_table_comes_back(rows: pa.Table, row_group_rows: int, page_rows: int, codec: Any) -> None:
    options = WriteOptions(row_group_rows=row_group_rows, page_rows=page_rows, codec=codec)
    with tempfile.TemporaryDirectory() as directory:
        await write_partition(f"{directory}/default", rows, timestamp=None, options=options)
        found = await read_rows(f"{directory}/default")
    plain_uuids = pa.schema(
        [field.with_type(pa.binary(16)) if field.type == pa.uuid() else field for field in rows.schema]
    )
    assert_same_rows(found, rows.cast(plain_uuids) if plain_uuids != rows.schema else rows)


@pytest.mark.parametrize("codec", ["zstd", "none", "lz4_raw"])
async def test_overwritten_bytes_of_a_page_are_an_error(codec: Any, tmp_path: Path) -> None:
    """Not other numbers: pages carry CRCs, which pyarrow and we compare."""
    count = 10_000
    rows = pa.table({"price": np.random.default_rng(5).random(count), "id": np.arange(count)})
    await write_partition(tmp_path, rows, timestamp=None, options=WriteOptions(codec=codec))
    assert (await read_rows(tmp_path)).column("price").equals(rows.column("price"))
    path = tmp_path / "data.parquet"
    damaged = bytearray(path.read_bytes())
    for index in range(2):
        chunk: Any = pq.read_metadata(path).row_group(0).column(index)
        middle = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size // 2
        damaged[middle : middle + 40] = bytes(byte ^ 1 for byte in damaged[middle : middle + 40])
    path.write_bytes(damaged)
    for column in ("price", "id"):
        with pytest.raises(FormatError, match="CRC"):
            async with cp.open_partition(tmp_path) as opened:
                await opened.scan([column]).to_arrow()
        with pytest.raises(OSError, match="CRC"):
            pq.read_table(path, columns=[column], page_checksum_verification=True)
