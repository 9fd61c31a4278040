"""Files decoded chunk by chunk: genuine ones as QuestDB answered, foreign ones as pyarrow reads them, by sidecar or footer, in batches."""

from __future__ import annotations

import random
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.decode.arrow import SymbolsAs, TextAs, concatenate, to_batches
from coldparquet.decode.result_text import copied
from coldparquet.decode.row_group import decode_row_group
from coldparquet.errors import UnsupportedError
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.types import resolve_type
from coldparquet.plan.columns import TableColumn, match_columns, table_columns_of_metadata
from coldparquet.records import replace
from tests.support.parquet_footers import parquet_bytes
from tests.support.questdb_tables import as_questdb_shows, plain

# --- Genuine QuestDB partitions decode to what QuestDB answers about them, and to what pyarrow makes of the whole
# file


GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"


def column_as_questdb_shows(column: Any) -> Any:
    """Infinities, which the files keep, show as null."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


@pytest.mark.parametrize("symbols", ["dictionary", "string"])
def test_whole_partition_equals_the_answers_of_questdb(
    golden_partition: Any, sparse_file: Any, symbols: SymbolsAs
) -> None:
    file = sparse_file(golden_partition.file.read_bytes())
    decoded = file.read(file.names, symbols=symbols)
    expected = golden_partition.expected()
    assert decoded.num_rows == golden_partition.row_count
    for name in file.names:
        column, answer = decoded[name], expected[name]
        assert decoded.schema.field(name).metadata == expected.schema.field(name).metadata
        if pa.types.is_dictionary(column.type):
            assert symbols == "dictionary"
            column = column.cast(pa.string())
        assert column.type == answer.type
        assert column_as_questdb_shows(column).equals(answer), name


def test_random_columns_of_random_row_groups_equal_pyarrow_on_the_whole_file(
    golden_partition: Any, sparse_file: Any
) -> None:
    file = sparse_file(golden_partition.file.read_bytes())
    whole = pq.ParquetFile(golden_partition.file)
    rng = random.Random(str(golden_partition))
    for _ in range(4):
        row_group = rng.randrange(whole.num_row_groups)
        names = rng.sample(file.names, rng.randint(1, len(file.names)))
        decoded = file.decode(file.plan(names)[row_group], names, symbols="string")
        expected = whole.read_row_group(row_group, columns=names)
        assert decoded.column_names == names
        for name in names:
            column_type = file.sidecar.column_type(file.names.index(name))
            if column_type.raw_array:
                continue  # pyarrow sees byte strings; the answers of QuestDB are the oracle
            column = expected[name]
            if isinstance(column.type, pa.ExtensionType):
                column = pa.chunked_array([chunk.storage for chunk in column.chunks])
            if column_type.never_null:
                column = column.fill_null(pa.scalar(0).cast(column.type))
            assert decoded[name].equals(column.cast(decoded[name].type)), name


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("symbols/table/*/data.parquet")), ids=lambda path: path.parent.name)
def test_dictionaries_hold_each_occurring_symbol_once(path: Path, sparse_file: Any) -> None:
    file = sparse_file(path.read_bytes())
    symbols = [name for name in file.names if file.sidecar.column_type(file.names.index(name)).name == "SYMBOL"]
    for read in file.plan(symbols).values():
        decoded = file.decode(read, symbols)
        for name in symbols:
            assert decoded[name].type == pa.dictionary(pa.int32(), pa.string())
            for chunk in decoded[name].chunks:
                values = chunk.dictionary.to_pylist()
                assert sorted(values) == sorted(set(chunk.to_pylist()) - {None})


def test_schema_is_that_of_the_answers(sparse_file: Any) -> None:
    folder = GOLDEN / "types_all"
    with pa.ipc.open_file(str(folder / "expected" / "rows.arrow")) as reader:
        expected = reader.schema
    file = sparse_file(next(folder.glob("table/2024-02-28.*/data.parquet")).read_bytes())
    decoded = file.decode(file.plan(file.names)[0], file.names, symbols="string")
    assert decoded.schema.equals(expected, check_metadata=True)


def test_all_null_chunks_are_made_without_their_bytes(sparse_file: Any) -> None:
    file = sparse_file(next(GOLDEN.glob("types_all/table/2024-03-01.*/data.parquet")).read_bytes())
    read = file.plan(file.names)[0]
    assert len(read.made_columns) > 20
    made = [file.names[column] for column in read.made_columns]
    decoded = file.decode(read, made)
    whole = pq.ParquetFile(pa.BufferReader(file.content)).read()
    for name in made:
        assert whole[name].null_count == decoded[name].null_count == read.row_count
        assert decoded[name].type == file.decode(read, [name])[name].type


def test_columns_that_the_partition_lacks_are_null_or_zero(sparse_file: Any) -> None:
    folder = GOLDEN / "column_added_after"
    with pa.ipc.open_file(str(folder / "expected" / "rows.arrow")) as reader:
        expected = reader.read_all()
    file = sparse_file(next(folder.glob("table/2024-01-01.*/data.parquet")).read_bytes())
    added = {
        "num": resolve_type(5, PhysicalType.INT32, 0, 0),
        "flag": resolve_type(1, PhysicalType.BOOLEAN, 0, 0),
        "tag": resolve_type(12, PhysicalType.BYTE_ARRAY, 0, 0),
        "tiny": resolve_type(2, PhysicalType.INT32, 0, 0),
    }
    outputs = [
        TableColumn(index=100 + number, name=name, id=-1, type=type_)
        for number, (name, type_) in enumerate(added.items())
    ]
    read = file.plan(["ts"])[0]
    places = {**read.data.places, **dict.fromkeys(column.index for column in outputs)}
    read = replace(read, data=replace(read.data, places=places))
    decoded = decode_row_group(
        file.fill(read),
        read,
        [*outputs, *file.outputs(["ts"])],
        text=TextAs(symbols="dictionary", strings="string"),
        check_page_checksums=True,
    )
    assert decoded.column_names == [*added, "ts"]
    for name in added:
        assert decoded[name].to_pylist() == expected[name].slice(0, read.row_count).to_pylist()


def test_infinities_stay_values(sparse_file: Any) -> None:
    values = np.array([1.0, np.inf, -np.inf, np.nan])
    decoded = sparse_file(parquet_bytes(pa.table({"x": values}))).read(["x"])
    assert np.array_equal(decoded["x"].to_numpy(), values, equal_nan=True)


def test_no_columns_still_have_rows(sparse_file: Any) -> None:
    file = sparse_file(next(GOLDEN.glob("pages/table/*/data.parquet")).read_bytes())
    decoded = [file.decode(read, []) for read in file.plan([]).values()]
    assert [table.num_rows for table in decoded] == file.sidecar.row_counts.tolist()


# --- Files that others wrote, with every codec, page version and encoding, decode to what pyarrow reads from the
# whole file


ROWS = 230
GROUP_ROWS = 100
NESTED = pa.list_(pa.list_(pa.float64()))


def with_nulls(values: list[Any], type_: Any, every: int = 7) -> pa.Array[Any]:
    array: pa.Array[Any] = pa.array(
        [None if row % every == 3 else values[row % len(values)] for row in range(ROWS)], type_
    )
    return array


def every_type() -> pa.Table:
    rng = np.random.default_rng(11)
    integers = rng.integers(0, 100, ROWS)
    uuids = pa.array([bytes([row % 5]) * 16 for row in range(ROWS)], pa.binary(16))
    columns: dict[str, Any] = {
        "flag": with_nulls([True, False, False], pa.bool_()),
        "i8": with_nulls([-128, 0, 127], pa.int8()),
        "i16": with_nulls([-32768, 5], pa.int16()),
        "i32": with_nulls([-(2**31), 2**31 - 1, 7], pa.int32()),
        "i64": with_nulls([-(2**63), 2**63 - 1], pa.int64()),
        "u8": with_nulls([0, 255], pa.uint8()),
        "u16": with_nulls([0, 65535], pa.uint16()),
        "u32": with_nulls([0, 2**32 - 1], pa.uint32()),
        "u64": with_nulls([0, 2**64 - 1], pa.uint64()),
        "f32": with_nulls([1.5, float("inf"), -0.0], pa.float32()),
        "f64": pa.array(rng.normal(size=ROWS)),
        "day": with_nulls([date(1900, 1, 1), date(2024, 2, 29)], pa.date32()),
        "ms": with_nulls([0, -1, 10**12], pa.timestamp("ms", "UTC")),
        "us": with_nulls([0, -1, 10**15], pa.timestamp("us", "UTC")),
        "ns": with_nulls([0, -1, 10**18], pa.timestamp("ns", "UTC")),
        "local_us": with_nulls([0, 10**15], pa.timestamp("us")),
        "local_ns": with_nulls([0, 10**18], pa.timestamp("ns")),
        "clock_ms": with_nulls([time(1, 2, 3), time(23, 59)], pa.time32("ms")),
        "clock_us": with_nulls([time(1, 2, 3, 4)], pa.time64("us")),
        "clock_ns": with_nulls([time(1, 2, 3, 5)], pa.time64("ns")),
        "text": with_nulls(["", "ascii", "Grüße", "🚀" * 20], pa.string()),
        "required": pa.array(integers),
        "all_null": pa.nulls(ROWS, pa.string()),
        "blob": with_nulls([b"", b"\x00\xff", b"x" * 300], pa.binary()),
        "fixed": uuids,
        "money": with_nulls([Decimal("-9999.99"), Decimal("0.01")], pa.decimal128(6, 2)),
        "wide": with_nulls([Decimal(10**37), Decimal(-5)], pa.decimal128(38, 0)),
        "widest": with_nulls([Decimal(10**70), Decimal(-5)], pa.decimal256(76, 0)),
        "list": with_nulls([[1.0, 2.0], [], [None, 3.5]], pa.list_(pa.float64())),
        "grid": with_nulls([[[1.0], []], [], [[None, 2.0], None]], NESTED),
        "with.dot": pa.array(integers),
        "with": pa.array(integers * 2),
    }
    fields = [pa.field(name, array.type, nullable=name != "required") for name, array in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def written(table: pa.Table, **options: Any) -> bytes:
    return parquet_bytes(table, **{"row_group_size": GROUP_ROWS, **options})


def check_random_reads(sparse_file: Any, content: bytes, reads: int) -> None:
    file = sparse_file(content)
    whole = pq.ParquetFile(pa.BufferReader(content)).read()
    rng = random.Random(reads)
    selections = [file.names, *(rng.sample(file.names, rng.randint(1, min(6, len(file.names)))) for _ in range(reads))]
    for names in selections:
        for row_group, read in file.plan(names).items():
            decoded = file.decode(read, names)
            assert decoded.num_rows == read.row_count
            for name in names:
                expected = whole[name].slice(row_group * GROUP_ROWS, read.row_count)
                assert decoded[name].equals(expected.cast(decoded[name].type)), (name, row_group)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("page_version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_every_codec_page_version_and_dictionary(
    sparse_file: Any, codec: str, page_version: str, use_dictionary: bool
) -> None:
    content = written(
        every_type(),
        compression=codec,
        data_page_version=page_version,
        use_dictionary=use_dictionary,
        version="2.6",
        data_page_size=256,
    )
    check_random_reads(sparse_file, content, 4)


@pytest.mark.parametrize(
    ("names", "encoding"),
    [
        (["i32", "i64", "ms", "required"], "DELTA_BINARY_PACKED"),
        (["text", "blob"], "DELTA_LENGTH_BYTE_ARRAY"),
        (["text", "blob"], "DELTA_BYTE_ARRAY"),
        (["f32", "f64", "i32"], "BYTE_STREAM_SPLIT"),
        (["flag"], "RLE"),
    ],
)
def test_other_encodings(sparse_file: Any, names: list[str], encoding: str) -> None:
    content = written(
        every_type().select(names), use_dictionary=False, column_encoding=dict.fromkeys(names, encoding), version="2.6"
    )
    check_random_reads(sparse_file, content, 1)


def test_types_are_those_of_the_file(sparse_file: Any) -> None:
    table = every_type()
    file = sparse_file(written(table))
    decoded = file.read(file.names)
    assert {field.name: field.type for field in decoded.schema} == {field.name: field.type for field in table.schema}


def test_row_groups_without_rows_are_not_read(sparse_file: Any) -> None:
    table = every_type()
    output = pa.BufferOutputStream()
    with pq.ParquetWriter(output, table.schema) as writer:
        for rows in (table.slice(0, 10), table.slice(0, 0), table.slice(10, 5)):
            writer.write_table(rows)
    file = sparse_file(output.getvalue().to_pybytes())
    assert len(file.sidecar.row_counts) == 3
    assert list(file.plan(file.names)) == [0, 2]
    assert file.read(["text"])["text"].to_pylist() == table["text"].to_pylist()[:15]


def test_int96_becomes_nanoseconds(sparse_file: Any) -> None:
    table = pa.table({"at": pa.array([0, -1, None, 10**18, 9_223_372_035 * 10**9], pa.timestamp("ns"))})
    content = written(table, use_deprecated_int96_timestamps=True)
    assert sparse_file(content).read(["at"])["at"].equals(table["at"])


@pytest.mark.parametrize("seconds", [-62_135_596_800, 253_402_300_799])
def test_int96_beyond_nanoseconds_is_refused_rather_than_wrong(sparse_file: Any, seconds: int) -> None:
    table = pa.table({"at": pa.array([seconds], pa.timestamp("s")), "n": [1]})
    file = sparse_file(written(table, use_deprecated_int96_timestamps=True))
    with pytest.raises(UnsupportedError, match=r"column 'at'.*outside the years 1678 to 2261"):
        file.read(["at", "n"])
    assert file.read(["n"])["n"].to_pylist() == [1]


# --- Partitions read through the table's `_meta`: columns by id, whether or not the files hold them -------------------


TEXT = TextAs(symbols="dictionary", strings="string")


def read_by_metadata(file: Any, table: Path) -> tuple[pa.Table, set[str]]:
    """Return all rows of one Parquet file with the columns of its table, and which of these the file lacks."""
    columns = table_columns_of_metadata(parse_table_metadata((table / "_meta").read_bytes(), path=None))
    places = match_columns(columns, file.sidecar)
    held = [file.names[place] for place in places.values() if place is not None]
    row_groups = [
        decode_row_group(
            file.fill(read),
            replace(read, data=replace(read.data, places=places)),
            columns,
            text=TEXT,
            check_page_checksums=True,
        )
        for read in file.plan(held).values()
    ]
    absent = {column.name for column in columns if places[column.index] is None}
    return pa.concat_tables(row_groups), absent


def test_rows_equal_the_answers_of_questdb(golden_partition: Any, sparse_file: Any) -> None:
    rows, _ = read_by_metadata(
        sparse_file(golden_partition.file.read_bytes()), GOLDEN / golden_partition.table / "table"
    )
    expected = golden_partition.expected()
    assert rows.schema.names == expected.schema.names
    assert plain(as_questdb_shows(rows)).equals(plain(as_questdb_shows(expected)))


@pytest.mark.parametrize(
    ("table", "absent"),
    [
        ("column_added_before", [set(), set(), set(), set()]),
        ("column_added_after", [{"num", "flag", "tag", "tiny"}] * 2),
    ],
)
def test_columns_that_were_added(table: str, absent: list[set[str]], sparse_file: Any) -> None:
    files = sorted(path for path in (GOLDEN / table / "table").glob("*/data.parquet"))
    found = [read_by_metadata(sparse_file(path.read_bytes()), GOLDEN / table / "table")[1] for path in files]
    assert found == absent


# --- Tables split into batches and batches joined to tables, without copying what need not be copied ------------------


@given(st.integers(0, 50), st.integers(1, 60))
def test_batches_are_full_but_for_the_last(rows: int, batch_rows: int) -> None:
    table = pa.table({"n": pa.array(range(rows), pa.int64())})
    batches = to_batches(table, batch_rows=batch_rows)
    assert [row for batch in batches for row in batch["n"].to_pylist()] == list(range(rows))
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    assert all(batch.num_rows == batch_rows for batch in batches[:-1])


def test_batches_share_the_memory_of_their_table() -> None:
    table: Any = pa.table({"n": pa.array(range(100), pa.int64())})
    address = table["n"].chunk(0).buffers()[1].address
    batches: list[Any] = to_batches(table, batch_rows=30)
    assert [batch["n"].buffers()[1].address for batch in batches] == [address] * 4


def symbols(values: list[str | None]) -> Any:
    return pa.array(values, pa.string()).dictionary_encode()


def test_a_copied_batch_keeps_nothing_but_its_rows_and_the_dictionary() -> None:
    table: Any = pa.table({"sym": symbols(["a", "b", None] * 100), "n": range(300)})
    batch: Any = to_batches(table, batch_rows=10)[-1]
    result: Any = copied(batch)
    assert result.equals(batch)
    assert result.schema == batch.schema
    assert result.get_total_buffer_size() < batch.get_total_buffer_size() / 5
    assert result["sym"].dictionary.buffers()[2].address == batch["sym"].dictionary.buffers()[2].address


def test_joined_batches_have_one_dictionary() -> None:
    values: list[list[str | None]] = [["a", "b"], ["b", None, "c"], ["c", "a"]]
    batches = [pa.record_batch({"sym": symbols(part), "n": list(range(len(part)))}) for part in values]
    table: Any = concatenate(batches, batches[0].schema)
    assert table["sym"].to_pylist() == [value for part in values for value in part]
    assert {tuple(chunk.dictionary.to_pylist()) for chunk in table["sym"].chunks} == {("a", "b", "c")}
    assert table.schema == batches[0].schema


@pytest.mark.filterwarnings("default")
def test_joined_batches_become_a_pandas_category() -> None:
    pandas = pytest.importorskip("pandas")
    batches = [pa.record_batch({"sym": symbols(["a", "b"])}), pa.record_batch({"sym": symbols(["c"])})]
    frame = concatenate(batches, batches[0].schema).to_pandas()
    assert isinstance(frame["sym"].dtype, pandas.CategoricalDtype)
    assert frame["sym"].tolist() == ["a", "b", "c"]


def test_no_batches_give_an_empty_table_of_the_schema() -> None:
    schema = pa.schema({"sym": pa.dictionary(pa.int32(), pa.string()), "n": pa.int64()})
    table = concatenate([], schema)
    assert table.num_rows == 0
    assert table.schema == schema
