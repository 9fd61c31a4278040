"""Parsed footers against pyarrow's own reading of the same files."""

from __future__ import annotations

import decimal
import io
import json
import math
import tracemalloc
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format import parquet_footer, parquet_thrift
from coldparquet.format.parquet_footer import (
    QuestdbColumn,
    QuestdbMetadata,
    encode_questdb_json,
    parse_footer,
    parse_questdb_json,
)
from coldparquet.format.parquet_schema import parse_schema
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.thrift import (
    Empty,
    encode_fields,
    encode_integer,
    encode_structure_list,
    parse_fields,
    parse_structure_list,
)
from coldparquet.format.types import LogicalKind, LogicalType
from coldparquet.records import replace
from tests.support.parquet_footers import footer_bytes, parquet_bytes, parsed_footer
from tests.support.questdb_tables import PARTITIONS, GoldenPartition

GOLDEN_FILES = sorted((Path(__file__).parents[1] / "golden" / "questdb").glob("*/table/*/data.parquet"))
CODECS = ("NONE", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4")


def _many_types(rows: int) -> pa.Table:
    """One column per annotation that pyarrow can write, with a null in every third row."""

    def column(kind: pa.DataType, values: list[Any]) -> pa.Array[Any]:
        return pa.array([None if row % 3 == 2 else values[row % len(values)] for row in range(rows)], kind)

    moment = datetime(2024, 3, 1, 12, 34, 56, 789000, UTC)
    return pa.table(
        {
            "flag": column(pa.bool_(), [True, False]),
            "i8": column(pa.int8(), [-1, 5]),
            "u16": column(pa.uint16(), [65535, 5]),
            "u32": column(pa.uint32(), [2**32 - 1, 5]),
            "i64": column(pa.int64(), [-1, 5]),
            "u64": column(pa.uint64(), [2**64 - 1, 5]),
            "f32": column(pa.float32(), [math.pi, -0.0]),
            "text": column(pa.string(), ["é", ""]),
            "blob": column(pa.binary(), [b"\xff", b""]),
            "uuid": column(pa.binary(16), [bytes(range(16))]),
            "day": column(pa.date32(), [date(2024, 3, 1)]),
            "at_ms": column(pa.timestamp("ms", "UTC"), [moment]),
            "local_us": column(pa.timestamp("us"), [moment.replace(tzinfo=None)]),
            "at_ns": column(pa.timestamp("ns", "UTC"), [moment]),
            "t32": column(pa.time32("ms"), [time(1, 2, 3)]),
            "t64": column(pa.time64("ns"), [time(1, 2, 3)]),
            "dec": column(pa.decimal128(20, 3), [decimal.Decimal("1.234")]),
            "list": column(pa.list_(pa.float64()), [[1.0, None], []]),
            "grid": column(pa.list_(pa.list_(pa.float64())), [[[1.0], [], None]]),
            "pair": column(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": ["x"]}]),
            "half": column(pa.float16(), [1.5]),
        }
    )


def _assert_equals_pyarrow(file: bytes) -> None:
    footer = parsed_footer(file)
    expected = pq.read_metadata(pa.BufferReader(file))
    assert footer.row_count == expected.num_rows
    assert footer.created_by == expected.created_by
    assert footer.length_bytes == expected.serialized_size
    assert len(footer.leaves) == expected.num_columns
    for index, leaf in enumerate(footer.leaves):
        column = expected.schema.column(index)
        assert leaf.name == column.path.split(".")[0]
        assert leaf.physical_type.name == column.physical_type
        assert leaf.fixed_byte_length == (column.length if leaf.physical_type.name == "FIXED_LEN_BYTE_ARRAY" else 0)
        assert (leaf.max_rep_level, leaf.max_def_level) == (column.max_repetition_level, column.max_definition_level)
        kind = {"NONE": None, "INT": "INTEGER"}.get(column.logical_type.type, column.logical_type.type)
        known = kind if kind is None or kind in LogicalKind.__members__ else "OTHER"
        assert (leaf.logical.kind if leaf.logical else None) == known
    assert [row_group.row_count for row_group in footer.row_groups] == [
        expected.row_group(index).num_rows for index in range(expected.num_row_groups)
    ]
    for row_group, structure in enumerate(footer.row_groups):
        for index, chunk in enumerate(structure.chunks):
            column_chunk = expected.row_group(row_group).column(index)
            assert chunk.num_values == column_chunk.num_values
            assert chunk.total_compressed_size == column_chunk.total_compressed_size
            assert chunk.data_page_offset == column_chunk.data_page_offset
            assert chunk.dictionary_page_offset == column_chunk.dictionary_page_offset
            statistics = column_chunk.statistics
            if statistics is not None:
                assert chunk.statistics is not None
                assert chunk.statistics.null_count == statistics.null_count


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: f"{path.parts[-4]}/{path.parts[-2]}")
def test_golden_files_equal_pyarrow(path: Path) -> None:
    file = path.read_bytes()
    _assert_equals_pyarrow(file)
    footer = parsed_footer(file)
    assert footer.questdb_json is not None
    assert footer.has_type_order == (False,) * len(footer.leaves)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_and_type_equals_pyarrow(codec: str) -> None:
    file = parquet_bytes(_many_types(100), compression=codec, row_group_size=40)
    _assert_equals_pyarrow(file)
    assert all(parsed_footer(file).has_type_order)


@pytest.mark.parametrize(
    "options",
    [
        {"write_statistics": False},
        {"use_dictionary": False, "data_page_version": "2.0"},
        {"version": "1.0"},
        {"write_page_index": True},
        {"use_deprecated_int96_timestamps": True},
        {"store_decimal_as_integer": True},
        {"use_compliant_nested_type": False},
    ],
)
def test_shapes_of_files_equal_pyarrow(options: dict[str, Any]) -> None:
    _assert_equals_pyarrow(parquet_bytes(_many_types(50), **options))


@pytest.mark.parametrize("table", [pa.table({}), pa.table({"a": pa.array([], pa.int32())})])
def test_empty_tables_equal_pyarrow(table: pa.Table) -> None:
    _assert_equals_pyarrow(parquet_bytes(table))


def test_annotations_and_lists() -> None:
    leaves = {leaf.name: leaf for leaf in parsed_footer(parquet_bytes(_many_types(3))).leaves}
    assert leaves["u32"].logical == LogicalType(kind=LogicalKind.INTEGER, bit_width=32, is_signed=False)
    assert leaves["local_us"].logical == LogicalType(kind=LogicalKind.TIMESTAMP, unit="us", is_utc=False)
    assert leaves["dec"].logical == LogicalType(kind=LogicalKind.DECIMAL, precision=20, scale=3)
    assert leaves["list"].list_optionals == (True, True)
    assert leaves["grid"].list_optionals == (True, True, True)
    assert leaves["i64"].list_optionals is None
    assert leaves["pair"].list_optionals is None
    assert leaves["half"].logical == LogicalType(kind=LogicalKind.OTHER)


def test_declared_order_is_read() -> None:
    table = pa.table({"a": [1, 2], "b": [4, 3]})
    sorting = [pq.SortingColumn(1, descending=True), pq.SortingColumn(0)]
    (row_group,) = parsed_footer(parquet_bytes(table, sorting_columns=sorting)).row_groups
    assert row_group.sorting is not None
    assert [(order.column, order.descending) for order in row_group.sorting] == [(1, True), (0, False)]


def _metadata(**changes: Any) -> bytes:
    """Encode a sound footer of one INT32 column, with some fields of its structures changed."""
    chunk = parquet_thrift.ColumnMetaData(type=1, codec=0, num_values=3, total_compressed_size=9, data_page_offset=4)
    column = parquet_thrift.ColumnChunk(meta_data=chunk)
    row_group = parquet_thrift.RowGroup(columns=[column], num_rows=3)
    footer = parquet_thrift.FileMetaData(
        schema=[
            parquet_thrift.SchemaElement(name="root", num_children=1),
            parquet_thrift.SchemaElement(name="a", type=1, repetition_type=0),
        ],
        num_rows=3,
        row_groups=[row_group],
    )
    owners = {
        "chunk": chunk,
        "column": column,
        "row_group": row_group,
        "leaf": footer.schema[1],
        "root": footer.schema[0],
    }
    for key, value in changes.items():
        owner, _, attribute = key.partition("__")
        setattr(owners.get(owner, footer), attribute or owner, value)
    return footer.encode()


def test_the_sound_footer_parses() -> None:
    footer = parse_footer(_metadata(), path=None, offset=100)
    assert (footer.row_count, footer.offset, footer.leaves[0].name) == (3, 100, "a")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"num_rows": 4}, "InvalidValue"),
        ({"row_group__num_rows": -1}, "InvalidValue"),
        ({"row_group__columns": []}, "SchemaMismatch"),
        ({"column__meta_data": None}, "InvalidValue"),
        ({"chunk__num_values": None}, "InvalidValue"),
        ({"chunk__type": 2}, "SchemaMismatch"),
        ({"row_group__sorting_columns": [parquet_thrift.SortingColumn(column_idx=1)]}, "InvalidValue"),
        ({"schema": []}, "InvalidSchema"),
        ({"leaf__type": 8}, "InvalidSchema"),
        ({"leaf__type": None}, "InvalidSchema"),
        ({"leaf__type": 7}, "InvalidSchema"),
        ({"leaf__repetition_type": 3}, "InvalidSchema"),
        ({"root__num_children": 2}, "InvalidSchema"),
        ({"root__num_children": 0}, "InvalidSchema"),
        ({"root__num_children": -1}, "InvalidSchema"),
    ],
)
def test_contradictions_are_format_errors(changes: dict[str, Any], kind: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_footer(_metadata(**changes), path="t/data.parquet", offset=0)
    assert caught.value.kind == kind
    assert caught.value.path == "t/data.parquet"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [({"encryption_algorithm": Empty()}, "Encrypted"), ({"column__file_path": "x"}, "ExternalChunk")],
)
def test_valid_but_unsupported(changes: dict[str, Any], kind: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_footer(_metadata(**changes), path=None, offset=0)
    assert caught.value.kind == kind


def test_a_deep_schema_is_unsupported() -> None:
    groups = [parquet_thrift.SchemaElement(name="g", repetition_type=1, num_children=1) for _ in range(100_000)]
    with pytest.raises(UnsupportedError, match="deeper"):
        parse_schema(groups, path=None)


def test_the_row_groups_of_large_footers_are_decoded_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"n": range(100), "text": [f"text {n % 7}" for n in range(100)]})
    file = parquet_bytes(rows, row_group_size=2, sorting_columns=[pq.SortingColumn(0)])
    kept = parsed_footer(file)
    monkeypatch.setattr(parquet_footer, "_LARGE_BYTES", 0)
    on_demand = parsed_footer(file)
    assert isinstance(on_demand.row_groups, parquet_footer.RowGroupsOnDemand)
    assert replace(on_demand, row_groups=tuple(on_demand.row_groups)) == kept
    assert on_demand.row_groups[-1] == kept.row_groups[49]
    assert tuple(on_demand.row_groups[3:5]) == tuple(kept.row_groups[3:5])
    with pytest.raises(IndexError):
        _ = on_demand.row_groups[50]
    assert encode_sidecar(sidecar_content_from_footer(on_demand)) == encode_sidecar(sidecar_content_from_footer(kept))
    with pytest.raises(FormatError) as raised:
        parse_footer(footer_bytes(file).content[:-52], path="p", offset=footer_bytes(file).offset)
    assert (raised.value.kind, raised.value.path) == ("InvalidThrift", "p")


@pytest.mark.slow
def test_a_large_footer_takes_little_more_memory_than_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_footer, "_LARGE_BYTES", 1024 * 1024)
    sink = io.BytesIO()
    fields: list[Any] = [("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())]
    schema = pa.schema(fields)
    with pq.ParquetWriter(sink, schema) as writer:
        for n in range(300):
            writer.write_table(pa.table({"a": [n], "b": [n], "c": [f"t{n}"]}, schema=schema))
    file = sink.getvalue()
    small = footer_bytes(file).content
    fields = parse_fields(small)
    groups = parse_structure_list(next(one.value for one in fields if one.number == 4)) * 20
    values = {3: encode_integer(len(groups)), 4: encode_structure_list(groups)}
    footer = encode_fields([replace(one, value=values.get(one.number, one.value)) for one in fields])
    tracemalloc.start()
    try:
        parsed = parse_footer(footer, path="p", offset=4)
        sidecar = encode_sidecar(sidecar_content_from_footer(parsed))
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert parsed.row_count == len(groups) == 6_000
    assert most_bytes < 2 * len(sidecar) + len(footer), "ten times the footer where all row groups are kept"


# --- More ---


MINIMAL: dict[str, Any] = {"version": 1, "schema": [{"column_type": 5, "column_top": 0}]}


def test_everything_that_questdb_states() -> None:
    document = {
        "version": 1,
        "schema": [
            {"column_type": 12, "column_top": 7, "format": 1, "id": 3, "future": {}},
            {"column_type": 26, "column_top": 0, "ascii": True, "not_null": True},
            {"column_type": 26, "column_top": 0, "ascii": False, "id": -1, "format": None},
        ],
        "unused_bytes": 2**40,
        "squash_tracker": -(2**63),
        "seq_txn": 0,
        "future": [1],
    }
    parsed = parse_questdb_json(json.dumps(document), column_count=3)
    assert parsed.columns == (
        QuestdbColumn(type_code=12, id=3, local_key_is_global=True, is_ascii=None, column_top=7),
        QuestdbColumn(type_code=26, id=None, local_key_is_global=False, is_ascii=True, not_null=True),
        QuestdbColumn(type_code=26, id=None, local_key_is_global=False, is_ascii=False),
    )
    assert (parsed.unused_bytes, parsed.squash_tracker, parsed.seq_txn) == (2**40, -(2**63), 0)


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_genuine_json_is_written_again_byte_for_byte(partition: GoldenPartition) -> None:
    footer = parsed_footer((partition.directory / "data.parquet").read_bytes())
    parsed = parse_questdb_json(footer.questdb_json or "", column_count=len(footer.leaves))
    assert encode_questdb_json(parsed) == footer.questdb_json


def test_keys_of_later_versions_are_written_where_they_say_something() -> None:
    columns = (
        QuestdbColumn(type_code=5, id=3, local_key_is_global=False, is_ascii=None, not_null=True),
        QuestdbColumn(type_code=12, id=None, local_key_is_global=True, is_ascii=False, column_top=2),
    )
    full = QuestdbMetadata(columns=columns, unused_bytes=1, squash_tracker=-2, seq_txn=0)
    assert encode_questdb_json(full) == (
        '{"version":1,"schema":[{"column_type":5,"column_top":0,"id":3,"not_null":true},'
        '{"column_type":12,"column_top":2,"format":1,"ascii":false}],"unused_bytes":1,"squash_tracker":-2,"seq_txn":0}'
    )
    assert parse_questdb_json(encode_questdb_json(full), column_count=2) == full
    unset = QuestdbMetadata(columns=(), unused_bytes=0, squash_tracker=-1, seq_txn=None)
    assert encode_questdb_json(unset) == '{"version":1,"schema":[]}'


COLUMN = QuestdbColumn(type_code=5, id=None, local_key_is_global=False, is_ascii=None)
METADATA = QuestdbMetadata(columns=(COLUMN,), unused_bytes=0, squash_tracker=None, seq_txn=None)


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        (replace(METADATA, unused_bytes=-1), "unused_bytes"),
        (replace(METADATA, seq_txn=2**63), "seq_txn"),
        (replace(METADATA, columns=(replace(COLUMN, type_code=2**31),)), "column_type"),
        (replace(METADATA, columns=(replace(COLUMN, column_top=-1),)), "column_top"),
        (replace(METADATA, columns=(replace(COLUMN, id=2**31),)), "id"),
    ],
)
def test_numbers_out_of_their_range_are_not_written(metadata: QuestdbMetadata, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        encode_questdb_json(metadata)
    assert (caught.value.kind, caught.value.details["field"]) == ("InvalidValue", field)


def test_minus_one_and_nothing_both_mean_unset() -> None:
    for document in (MINIMAL, {**MINIMAL, "squash_tracker": -1, "seq_txn": -1}):
        parsed = parse_questdb_json(json.dumps(document), column_count=1)
        assert (parsed.unused_bytes, parsed.squash_tracker, parsed.seq_txn) == (0, None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"schema": None},
        {"schema": [5]},
        {"schema": [{}]},
        {"schema": [{"column_type": "5"}]},
        {"schema": [{"column_type": True}]},
        {"schema": [{"column_type": 0}]},
        {"schema": [{"column_type": -1}]},
        {"schema": [{"column_type": 39}]},
        {"schema": [{"column_type": 2**31}]},
        {"schema": [{"column_type": 5, "format": 2}]},
        {"schema": [{"column_type": 5, "id": 2**31}]},
        {"schema": [{"column_type": 5, "column_top": -1}]},
        {"unused_bytes": -1},
        {"seq_txn": 2**63},
        {"squash_tracker": 1.5},
    ],
)
def test_what_cannot_be_used_is_a_conversion_error(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError) as caught:
        parse_questdb_json(json.dumps({**MINIMAL, **change}), column_count=1, path="p")
    assert (caught.value.kind, caught.value.path) == ("Conversion", "p")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "5", "[" * 100_000, "1" * 5000])
def test_text_that_is_no_object(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_questdb_json(text, column_count=0)
    assert caught.value.kind == "Conversion"


def test_another_number_of_columns_is_a_schema_mismatch() -> None:
    with pytest.raises(FormatError) as caught:
        parse_questdb_json(json.dumps(MINIMAL), column_count=2)
    assert caught.value.kind == "SchemaMismatch"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {"version": st.just(1), "schema": st.just(MINIMAL["schema"]) | values},
        optional={"unused_bytes": values, "seq_txn": values, "squash_tracker": values},
    )
)
def test_any_json_is_parsed_or_refused(document: dict[str, Any]) -> None:
    try:
        parsed = parse_questdb_json(json.dumps(document), column_count=1)
    except FormatError as error:
        assert error.kind in {"Conversion", "SchemaMismatch"}  # noqa: PT017 - most documents are fine or not by chance
        return
    assert [column.type_code for column in parsed.columns] == [document["schema"][0]["column_type"]]
