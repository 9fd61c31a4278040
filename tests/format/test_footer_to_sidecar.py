"""From footers to sidecars, and back through the sidecar's own reader."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.decode.stored_types import type_of_schema
from coldparquet.errors import FormatError
from coldparquet.format import parquet_thrift
from coldparquet.format.parquet_footer import (
    WRITER_CODE,
    ParquetFooter,
    leaves_out_dictionary_headers,
    misorders_decimals,
)
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_layout import COLUMN_IS_ASCII, COLUMN_LOCAL_KEY_IS_GLOBAL, Repetition
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.type_codes import UNKNOWN_TYPE_CODE, type_name
from coldparquet.records import replace
from tests.support.paged_files import written
from tests.support.parquet_footers import parquet_bytes, parsed_footer, with_changed_footer
from tests.support.questdb_tables import GOLDEN

GOLDEN_FILES = sorted((Path(__file__).parents[1] / "golden" / "questdb").glob("*/table/*/data.parquet"))


def _sidecar(file: bytes) -> Sidecar:
    return parse_sidecar(encode_sidecar(sidecar_content_from_footer(parsed_footer(file))), parquet_size_bytes=len(file))


def _write(table: pa.Table, **options: Any) -> bytes:
    return parquet_bytes(table, **{"store_schema": False, **options})


def _with_questdb_json(file: bytes, document: Any) -> bytes:
    def edit(metadata: parquet_thrift.FileMetaData) -> None:
        metadata.key_value_metadata = [parquet_thrift.KeyValue(key="questdb", value=json.dumps(document))]

    return with_changed_footer(file, edit)


def _assert_chunks_equal(footer: ParquetFooter, sidecar: Sidecar) -> None:
    assert sidecar.row_counts.tolist() == [row_group.row_count for row_group in footer.row_groups]
    for index in range(len(footer.leaves)):
        chunks = sidecar.chunks(index)
        for row_group, structure in enumerate(footer.row_groups):
            expected = structure.chunks[index]
            assert chunks.codec[row_group] == expected.codec
            assert chunks.num_values[row_group] == expected.num_values
            assert chunks.total_compressed_bytes[row_group] == expected.total_compressed_size
            first_page = min(expected.dictionary_page_offset or expected.data_page_offset, expected.data_page_offset)
            assert chunks.byte_range_start[row_group] == first_page
            assert expected.statistics is not None
            assert chunks.has_null_count[row_group]
            assert chunks.null_count[row_group] == expected.statistics.null_count
            assert chunks.min.bytes_at(row_group) == (expected.statistics.min_value or None)
            assert chunks.max.bytes_at(row_group) == (expected.statistics.max_value or None)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: f"{path.parts[-4]}/{path.parts[-2]}")
def test_genuine_footers(path: Path) -> None:
    file = path.read_bytes()
    footer, sidecar = parsed_footer(file), _sidecar(file)
    stated = json.loads(footer.questdb_json or "")["schema"]
    assert sidecar.parquet_size_bytes == len(file)
    assert [column.type_code for column in sidecar.columns] == [column["column_type"] for column in stated]
    assert [column.id for column in sidecar.columns] == [leaf.field_id for leaf in footer.leaves]
    for column, leaf, entry in zip(sidecar.columns, footer.leaves, stated, strict=True):
        assert (column.name, column.repetition) == (leaf.name, leaf.repetition)
        assert bool(column.flags & COLUMN_LOCAL_KEY_IS_GLOBAL) == ("format" in entry)
        assert bool(column.flags & COLUMN_IS_ASCII) == (entry.get("ascii") is True)
    designated = sidecar.designated_timestamp
    assert designated is not None
    assert sidecar.column(designated).type_code & 1 << 17
    assert sidecar.sorting_columns == (designated,)
    assert not sidecar.foreign_annotations
    _assert_chunks_equal(footer, sidecar)


MOMENTS = [datetime(2024, 3, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
FOREIGN_TYPES = {
    "flag": (pa.bool_(), "BOOLEAN", "NULLABLE"),
    "i8": (pa.int8(), "BYTE", "NULLABLE"),
    "i16": (pa.int16(), "SHORT", "NULLABLE"),
    "i32": (pa.int32(), "INT", None),
    "i64": (pa.int64(), "LONG", None),
    "u8": (pa.uint8(), "INT", "UINT_8"),
    "u16": (pa.uint16(), "INT", "UINT_16"),
    "u32": (pa.uint32(), "INT", "UINT_32"),
    "u64": (pa.uint64(), "LONG", "UINT_64"),
    "f32": (pa.float32(), "FLOAT", None),
    "f64": (pa.float64(), "DOUBLE", None),
    "f16": (pa.float16(), "halffloat", None),
    "text": (pa.string(), "VARCHAR", None),
    "blob": (pa.binary(), "BINARY", None),
    "fixed16": (pa.binary(16), "LONG128", None),
    "fixed32": (pa.binary(32), "LONG256", None),
    "fixed5": (pa.binary(5), "fixed_size_binary[5]", None),
    "day": (pa.date32(), "DATE", None),
    "ms": (pa.timestamp("ms", "UTC"), "DATE", None),
    "us": (pa.timestamp("us", "UTC"), "TIMESTAMP", None),
    "ns": (pa.timestamp("ns", "UTC"), "TIMESTAMP_NS", None),
    "local_ms": (pa.timestamp("ms"), "DATE", "TIMESTAMP_MILLIS_LOCAL"),
    "local_us": (pa.timestamp("us"), "TIMESTAMP", "TIMESTAMP_MICROS_LOCAL"),
    "local_ns": (pa.timestamp("ns"), "TIMESTAMP_NS", "TIMESTAMP_NANOS_LOCAL"),
    "t_ms": (pa.time32("ms"), "INT", "TIME_MILLIS"),
    "t_us": (pa.time64("us"), "LONG", "TIME_MICROS"),
    "t_ns": (pa.time64("ns"), "LONG", "TIME_NANOS"),
    "dec": (pa.decimal128(9, 2), "DECIMAL(9,2)", None),
    "wide": (pa.decimal256(60, 2), "DECIMAL(60,2)", None),
    "array": (pa.list_(pa.float64()), "DOUBLE[]", None),
    "grid": (pa.list_(pa.list_(pa.float64())), "DOUBLE[][]", None),
}


def test_types_of_foreign_columns() -> None:
    table = pa.table({name: pa.array([None, None], kind) for name, (kind, _, _) in FOREIGN_TYPES.items()})
    sidecar = _sidecar(_write(table))
    actual = {
        column.name: (
            str(sidecar.column_type(column.index).arrow)
            if column.type_code == UNKNOWN_TYPE_CODE
            else type_name(column.type_code),
            None if column.type_code == UNKNOWN_TYPE_CODE else sidecar.foreign_annotations.get(column.index),
        )
        for column in sidecar.columns
    }
    assert actual == {name: (stated, annotation) for name, (_, stated, annotation) in FOREIGN_TYPES.items()}
    assert sidecar.designated_timestamp is None


def test_required_columns_need_no_nullable_annotation() -> None:
    schema = pa.schema([pa.field("i8", pa.int8(), nullable=False)])
    assert not _sidecar(_write(pa.table({"i8": [1]}, schema=schema))).foreign_annotations


def test_integers_stored_as_decimals_and_uuids() -> None:
    table = pa.table({"d4": pa.array([1], pa.decimal128(4, 1)), "id": pa.array([b"x" * 16], pa.uuid())})
    sidecar = _sidecar(_write(table, store_decimal_as_integer=True))
    assert [type_name(column.type_code) for column in sidecar.columns] == ["DECIMAL(4,1)", "UUID"]


def test_bounds_of_foreign_files() -> None:
    table = pa.table({"i": [3, 1, 2], "u": pa.array([3, 1, 2**31], pa.uint32()), "s": ["b", "", "x" * 70_000]})
    sidecar = _sidecar(_write(table))
    signed, unsigned, text = (sidecar.chunks(index) for index in range(3))
    assert signed.min.bytes_at(0) == (1).to_bytes(8, "little")
    assert signed.max.bytes_at(0) == (3).to_bytes(8, "little")
    assert (unsigned.min.bytes_at(0), unsigned.max.bytes_at(0)) == (None, None)
    # The empty string and values above 65,535 bytes have no place in a sidecar.
    assert (text.min.bytes_at(0), text.max.bytes_at(0)) == (None, None)
    assert unsigned.null_count.tolist() == [0]
    assert unsigned.has_null_count.all()


def test_bounds_without_a_declared_order_are_believed_only_of_questdb() -> None:
    def forget_orders(metadata: parquet_thrift.FileMetaData) -> None:
        metadata.column_orders = None

    def claim_questdb(metadata: parquet_thrift.FileMetaData) -> None:
        metadata.column_orders = None
        metadata.created_by = "QuestDB version 9.0"

    file = _write(pa.table({"i": [3, 1, 2]}))
    assert _sidecar(with_changed_footer(file, forget_orders)).chunks(0).min.bytes_at(0) is None
    assert _sidecar(with_changed_footer(file, claim_questdb)).chunks(0).min.bytes_at(0) == (1).to_bytes(8, "little")


def test_int96_has_no_bounds() -> None:
    table = pa.table({"at": pa.array(MOMENTS, pa.timestamp("ns"))})
    sidecar = _sidecar(_write(table, use_deprecated_int96_timestamps=True))
    assert type_name(sidecar.column(0).type_code) == "TIMESTAMP_NS"
    assert not sidecar.chunks(0).min.present.any()


def test_files_without_statistics() -> None:
    sidecar = _sidecar(_write(pa.table({"i": [3, 1, 2]}), write_statistics=False, row_group_size=2))
    assert sidecar.row_counts.tolist() == [2, 1]
    assert not sidecar.chunks(0).has_null_count.any()
    assert not sidecar.chunks(0).min.present.any()


def test_a_dictionary_offset_of_zero_is_not_believed() -> None:
    def zero(metadata: parquet_thrift.FileMetaData) -> None:
        chunk = metadata.row_groups[0].columns[0].meta_data
        assert chunk is not None
        chunk.dictionary_page_offset = 0

    file = _write(pa.table({"i": [3, 1, 2]}), use_dictionary=False)
    assert _sidecar(with_changed_footer(file, zero)).chunks(0).byte_range_start.tolist() == [4]


def _timestamps(*, nullable: bool = False, kind: pa.DataType | None = None) -> pa.Table:
    schema = pa.schema(
        [pa.field("x", pa.int64()), pa.field("ts", kind or pa.timestamp("us", "UTC"), nullable=nullable)]
    )
    return pa.table({"x": [1, 2, 3, 4], "ts": MOMENTS}, schema=schema)


@pytest.mark.parametrize(
    ("table", "sorting", "designated", "sorting_columns", "descending"),
    [
        (_timestamps(), [pq.SortingColumn(1)], 1, (1,), False),
        (_timestamps(kind=pa.timestamp("ms", "UTC")), [pq.SortingColumn(1)], 1, (1,), False),
        (_timestamps(), [pq.SortingColumn(1), pq.SortingColumn(0)], 1, (1, 0), False),
        (_timestamps(), [pq.SortingColumn(1, descending=True)], None, (1,), True),
        (_timestamps(nullable=True), [pq.SortingColumn(1)], None, (1,), False),
        (_timestamps(), [pq.SortingColumn(0)], None, (0,), False),
        (_timestamps(), None, None, (), False),
    ],
)
def test_order_of_foreign_files(
    *, table: pa.Table, sorting: Any, designated: int | None, sorting_columns: tuple[int, ...], descending: bool
) -> None:
    sidecar = _sidecar(_write(table, sorting_columns=sorting, row_group_size=2))
    assert sidecar.designated_timestamp == designated
    assert sidecar.sorting_columns == sorting_columns
    assert sidecar.column(1).descending == descending


def _disagree(metadata: parquet_thrift.FileMetaData) -> None:
    metadata.row_groups[1].sorting_columns = [parquet_thrift.SortingColumn(column_idx=0, descending=False)]


def test_row_groups_that_disagree_about_the_order() -> None:
    file = _write(_timestamps(), sorting_columns=[pq.SortingColumn(1)], row_group_size=2)
    with pytest.raises(FormatError) as caught:
        _sidecar(with_changed_footer(file, _disagree))
    assert caught.value.kind == "SchemaMismatch"
    # QuestDB's own word ends the argument.
    schema = [{"column_type": 6, "id": 4}, {"column_type": 8 | 1 << 17}]
    sidecar = _sidecar(_with_questdb_json(with_changed_footer(file, _disagree), {"version": 1, "schema": schema}))
    assert (sidecar.designated_timestamp, sidecar.sorting_columns) == (1, (1,))
    assert [column.id for column in sidecar.columns] == [4, -1]


def test_row_groups_that_declare_nothing_do_not_disagree() -> None:
    def forget(metadata: parquet_thrift.FileMetaData) -> None:
        metadata.row_groups[1].sorting_columns = None

    file = _write(_timestamps(), sorting_columns=[pq.SortingColumn(1)], row_group_size=2)
    assert _sidecar(with_changed_footer(file, forget)).sorting_columns == (1,)


def test_questdb_json_of_a_descending_table() -> None:
    document = {
        "version": 1,
        "schema": [{"column_type": 6}, {"column_type": 8 | 1 << 17 | 1 << 20}],
        "squash_tracker": 7,
        "seq_txn": 42,
        "unused_bytes": 99,
    }
    content = sidecar_content_from_footer(parsed_footer(_with_questdb_json(_write(_timestamps()), document)))
    assert (content.designated_timestamp, list(content.sorting_columns)) == (1, [1])
    assert (content.squash_tracker, content.seq_txn, content.unused_bytes) == (7, 42, 0)
    sidecar = parse_sidecar(encode_sidecar(content))
    assert sidecar.column(1).descending
    assert not sidecar.column(0).descending


@pytest.mark.parametrize("scale_bit", [18, 24])
def test_both_forms_of_decimal_codes_come_out_in_the_usual_one(scale_bit: int) -> None:
    file = _write(pa.table({"d": pa.array([1], pa.decimal128(18, 3))}))
    document = {"version": 1, "schema": [{"column_type": 31 | 18 << 8 | 3 << scale_bit}]}
    assert _sidecar(_with_questdb_json(file, document)).column(0).type_code == 791071


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"version": 9, "schema": []}, "Conversion"),
        ({"version": 1, "schema": []}, "SchemaMismatch"),
        ({"version": 1, "schema": [{"column_type": 39}]}, "Conversion"),
        ("no object", "Conversion"),
    ],
)
def test_wrong_questdb_json_is_an_error_and_not_a_foreign_file(document: Any, kind: str) -> None:
    with pytest.raises(FormatError) as caught:
        _sidecar(_with_questdb_json(_write(pa.table({"i": [1]})), document))
    assert (caught.value.kind, caught.value.path) == (kind, "data.parquet")


def test_an_unknown_codec_is_a_conversion_error() -> None:
    def spoil(metadata: parquet_thrift.FileMetaData) -> None:
        chunk = metadata.row_groups[0].columns[0].meta_data
        assert chunk is not None
        chunk.codec = 8

    with pytest.raises(FormatError) as caught:
        _sidecar(with_changed_footer(_write(pa.table({"i": [1]})), spoil))
    assert (caught.value.kind, caught.value.path) == ("Conversion", "data.parquet")


REQUIRED_DOUBLES = pa.list_(pa.field("element", pa.float64(), nullable=False))


def _nullable(kind: Any) -> pa.DataType:
    return pa.list_(pa.field("element", _nullable(kind.value_type))) if pa.types.is_list(kind) else kind


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.struct([("a", pa.float64())]), "struct<a: float64>"),
        (pa.list_(pa.int32()), "list<int32>"),
        (pa.list_(pa.struct([("a", pa.float64())])), "list<struct<a: float64>>"),
        (pa.map_(pa.string(), pa.float64()), "map<string, float64>"),
        (
            pa.list_(pa.list_(pa.list_(pa.field("element", REQUIRED_DOUBLES, nullable=True)))),
            "list<list<list<list<float64>>>>",
        ),
        (pa.list_(REQUIRED_DOUBLES), "list<list<float64>>"),
    ],
)
def test_other_nesting_is_one_column_of_all_its_leaves(kind: pa.DataType, text: str) -> None:
    table = pa.table({"fine": [1], "nested": pa.array([None], kind), "last": [2]})
    sidecar = _sidecar(_write(table))
    leaves = list(range(1, sidecar.column_count - 1))
    assert list(sidecar.places) == [0, 1, sidecar.column_count - 1]
    assert sidecar.leaves_of([1]) == leaves == sorted(sidecar.nested)
    assert str(sidecar.column_type(1).arrow) == text
    assert type_of_schema(sidecar.column_type(1).arrow.parquet) == _nullable(kind)
    assert not any(sidecar.chunks(leaf).has_null_count.any() for leaf in leaves), "they do not count rows"


def test_lists_of_two_levels_by_old_writers() -> None:
    def flatten(metadata: parquet_thrift.FileMetaData) -> None:
        root, group, _, element = metadata.schema
        element.repetition_type = Repetition.REPEATED
        metadata.schema = [root, group, element]

    sidecar = _sidecar(with_changed_footer(_write(pa.table({"a": pa.array([[1.0]], REQUIRED_DOUBLES)})), flatten))
    assert type_name(sidecar.column(0).type_code) == "DOUBLE[]"
    assert (sidecar.column(0).max_rep_level, sidecar.column(0).max_def_level) == (1, 2)


def test_a_repeated_field_without_a_list_is_a_list() -> None:
    def repeat(metadata: parquet_thrift.FileMetaData) -> None:
        metadata.schema[1].repetition_type = Repetition.REPEATED

    sidecar = _sidecar(with_changed_footer(_write(pa.table({"bare": [1]})), repeat))
    assert str(sidecar.column_type(0).arrow) == "list<int64>"


# --- Who wrote a file: which writers are known for mistakes, and what a sidecar notes ---------------------------------


@pytest.mark.parametrize(
    ("created_by", "without_headers", "misordered"),
    [
        (None, False, False),
        ("", False, False),
        ("parquet-mr", True, False),
        ("Parquet-MR version 1.2.8", True, False),
        ("parquet-mr version 1.2 (build abc)", True, False),
        ("parquet-mr version 1.2.8-SNAPSHOT (build abc)", True, False),
        ("parquet-mr version 1.2.9", False, False),
        ("parquet-mr version 1.15.2 (build 859eac165)", False, False),
        ("parquet-mr (build abc)", False, False),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False, True),
        ("parquet-cpp-arrow version 3.0.0", False, True),
        ("parquet-cpp-arrow version 3.1.0-SNAPSHOT", False, True),
        ("parquet-cpp-arrow version 4.0.0", False, False),
        ("parquet-cpp-arrow version 26.0.1", False, False),
        ("parquet-rs version 4.0.0", False, False),
        ("DuckDB version v1.5.5 (build x)", False, False),
        ("QuestDB version 9.0", False, False),
        ("impala version 1.2.2-cdh5", False, False),
        ("a version of parquet-mr version 1.0.0", False, False),
        ("parquet-mr version " + "9" * 5_000, False, False),
        (" \n parquet-mr\n version 1.2.8", True, False),
        ("parquet-mr version (build abc)", True, False),
        ("parquet-cpp-arrow version unknown", False, True),
        ("parquet-mr" + " " * 5_000_000 + "version 1.2.8", True, False),
        ("parquet-mr" + " " * 5_000_000 + "x", False, False),
    ],
)
def test_writers_with_known_mistakes(created_by: str | None, without_headers: bool, misordered: bool) -> None:
    assert leaves_out_dictionary_headers(created_by) is without_headers
    assert misorders_decimals(created_by) is misordered


def test_files_of_questdb_need_no_note() -> None:
    """Their sidecars are byte for byte what QuestDB writes, and what marks the timestamp tells whose they are."""
    file = next(GOLDEN.glob("interval_day/table/*/data.parquet")).read_bytes()
    content = sidecar_content_from_footer(parsed_footer(file))
    assert content.scratchpad == []
    sidecar = parse_sidecar(encode_sidecar(content))
    assert sidecar.created_by is None
    assert sidecar.is_writer_known


@pytest.mark.parametrize(
    ("created_by", "noted"),
    [(None, ""), ("Arrow", "Arrow"), ("é" * 10_000, "é" * 500), ("\0\n" * 9, "\0\n" * 9)],
)
def test_files_of_others_get_one(created_by: str | None, noted: str) -> None:
    file = with_changed_footer(written(), lambda footer: setattr(footer, "created_by", created_by))
    content = sidecar_content_from_footer(parsed_footer(file))
    assert [entry.code for entry in content.scratchpad].count(WRITER_CODE) == 1
    sidecar = parse_sidecar(encode_sidecar(content))
    assert sidecar.created_by == noted
    assert sidecar.is_writer_known
    old = parse_sidecar(encode_sidecar(replace(content, scratchpad=())))
    assert old.created_by is None
    assert not old.is_writer_known


# --- By ``created_by``: versions known to be wrong, and names that no writer would choose -----------------------------


@pytest.mark.parametrize(
    ("created_by", "leaves_out", "misorders"),
    [
        (None, False, False),
        ("", False, False),
        ("parquet-mr", True, False),
        ("parquet-mr version 1.2.8 (build 23bf51c)", True, False),
        (" Parquet-MR  VERSION 1.2", True, False),
        ("parquet-mr version 1.2.9", False, False),
        ("parquet-mr version 1.10.1 (build a)", False, False),
        ("parquet-mr versions 1.2.8", False, False),
        ("parquet-cpp", False, True),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False, True),
        ("parquet-cpp version", False, True),
        ("parquet-cpp version 2.0.0", False, False),
        ("parquet-cpp-arrow version 3.0.0", False, True),
        ("parquet-cpp-arrow version 10.0.1", False, False),
        ("my parquet-cpp version 1.5.1", False, False),
        ("version 1.0", False, False),
    ],
)
def test_versions(created_by: str | None, leaves_out: bool, misorders: bool) -> None:
    assert leaves_out_dictionary_headers(created_by) == leaves_out
    assert misorders_decimals(created_by) == misorders


@pytest.mark.parametrize(
    "created_by", ["a" + " " * 1_000_000 + "b", " " * 1_000_000, "version " * 200_000, "x version 1.2" * 100_000]
)
def test_a_name_of_a_megabyte_takes_no_time(created_by: str) -> None:
    """Its spaces were divided between the parts of a pattern in every possible way: 1,600 of them took two seconds."""
    start_s = time.process_time()
    assert not leaves_out_dictionary_headers(created_by)
    assert not misorders_decimals(created_by)
    assert time.process_time() - start_s < 1
