"""Column types: type codes and their names, how each storage is read, and distinct values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.table_metadata import TableMetadata, parse_table_metadata
from coldparquet.format.type_codes import (
    NANOSECOND_BIT,
    TypeTag,
    array_dimensions,
    array_type_code,
    decimal_precision_scale,
    decimal_type_code,
    geohash_bits,
    geohash_type_code,
    is_decimal,
    is_geohash,
    parse_type_name,
    tag_of,
    timestamp_unit,
    type_name,
)
from coldparquet.format.types import (
    ArrowKind,
    ForeignAnnotation,
    StatisticsTrust,
    ValueOrder,
    canonical_type,
    distinct_values,
    encode_foreign_annotations,
    parse_foreign_annotations,
    resolve_type,
)
from tests.support.parquet_footers import parsed_footer
from tests.support.questdb_tables import GOLDEN, PARTITIONS, GoldenPartition

INT32, INT64, INT96 = PhysicalType.INT32, PhysicalType.INT64, PhysicalType.INT96
BYTES, FIXED = PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY

NAMED_CODES = {
    1: "BOOLEAN",
    4: "CHAR",
    7: "DATE",
    8: "TIMESTAMP",
    131080: "TIMESTAMP",
    1179656: "TIMESTAMP",
    262152: "TIMESTAMP_NS",
    393224: "TIMESTAMP_NS",
    1441800: "TIMESTAMP_NS",
    12: "SYMBOL",
    25: "IPv4",
    2587: "DOUBLE[]",
    18971: "DOUBLE[][]",
    791071: "DECIMAL(18,3)",
    75793: "GEOHASH(8c)",
    65806: "GEOHASH(1b)",
    70672: "GEOHASH(4c)",
    0: "UNKNOWN(0)",
    -1: "UNKNOWN(-1)",
    39: "UNKNOWN(39)",
}


def _arrow(kind: ArrowKind) -> str:
    """Spell the type as pyarrow spells the one in ``rows.arrow``, where symbols are strings."""
    names = {"float32": "float", "float64": "double", "dictionary": "string", "date32": "date32[day]"}
    if kind.name == "timestamp":
        return f"timestamp[{kind.unit}, tz={kind.timezone}]"
    if kind.name == "list":
        return "list<item: " * kind.dimensions + "double" + ">" * kind.dimensions
    return names.get(kind.name, str(kind))


@pytest.mark.parametrize(("code", "name"), NAMED_CODES.items())
def test_names_are_those_of_show_columns(code: int, name: str) -> None:
    assert type_name(code) == name


@pytest.mark.parametrize("table", ["types_all", "nanos_day", "symbols"])
def test_types_and_names_equal_the_answers_of_questdb(table: str) -> None:
    stated = {
        entry["column"]: entry["type"] for entry in json.loads((GOLDEN / table / "expected/columns.json").read_bytes())
    }
    with pa.ipc.open_file((GOLDEN / table / "expected/rows.arrow").read_bytes()) as rows:
        expected = {field.name: str(field.type) for field in rows.schema}
    for path in sorted((GOLDEN / table / "table").glob("*/data.parquet")):
        parquet = pq.ParquetFile(path)
        codes = [
            column["column_type"] for column in json.loads((parquet.metadata.metadata or {})[b"questdb"])["schema"]
        ]
        for index, code in enumerate(codes):
            leaf = parquet.schema.column(index)
            name = leaf.path.split(".")[0]
            column_type = resolve_type(
                code, PhysicalType[leaf.physical_type], max(leaf.length or 0, 0), leaf.max_repetition_level
            )
            assert column_type.name == stated[name]
            assert _arrow(column_type.arrow) == expected[name]
            assert column_type.never_null == (column_type.name in {"BOOLEAN", "BYTE", "SHORT", "CHAR"})


@given(st.integers(1, 76).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision))))
def test_decimal_codes_round_trip(decimal: tuple[int, int]) -> None:
    code = decimal_type_code(*decimal)
    assert decimal_precision_scale(code) == decimal
    kind = resolve_type(code, FIXED, 32, 0).arrow
    assert (kind.name, kind.precision, kind.scale) == ("decimal128" if decimal[0] <= 38 else "decimal256", *decimal)


@given(st.integers(1, 32))
def test_array_codes_round_trip(dimensions: int) -> None:
    code = array_type_code(dimensions)
    assert array_dimensions(code) == dimensions
    raw, nested = resolve_type(code, BYTES, 0, 0), resolve_type(code, PhysicalType.DOUBLE, 0, dimensions)
    assert (raw.raw_array, nested.raw_array) == (True, False)
    assert raw.arrow == nested.arrow == ArrowKind(name="list", dimensions=dimensions)
    assert raw.comparison is ValueOrder.NONE
    with pytest.raises(UnsupportedError):
        resolve_type(code, PhysicalType.DOUBLE, 0, dimensions + 1)


@pytest.mark.parametrize(
    ("bits", "tag", "arrow"), [(1, 14, "int8"), (7, 14, "int8"), (8, 15, "int16"), (31, 16, "int32"), (60, 17, "int64")]
)
def test_geohashes_are_integers_by_bits(bits: int, tag: int, arrow: str) -> None:
    code = tag | bits << 8 | 1 << 16
    assert geohash_bits(code) == bits
    assert str(resolve_type(code, INT64 if tag == 17 else INT32, 0, 0).arrow) == arrow


@pytest.mark.parametrize("code", [14, 14 | 8 << 8, 17 | 61 << 8, 17 | 31 << 8])
def test_geohash_bits_must_fit_the_tag(code: int) -> None:
    with pytest.raises(UnsupportedError, match="geohash"):
        geohash_bits(code)


@pytest.mark.parametrize("code", [8, 131080, 1179656])
def test_designated_bits_do_not_change_the_type(code: int) -> None:
    assert timestamp_unit(code) == "us"
    assert resolve_type(code, INT64, 0, 0) == resolve_type(8, INT64, 0, 0)


@pytest.mark.parametrize(
    ("code", "physical", "length", "annotation", "arrow", "statistics"),
    [
        (5, INT32, 0, "UINT_8", "uint8", StatisticsTrust.NEVER),
        (5, INT32, 0, "UINT_32", "uint32", StatisticsTrust.NEVER),
        (6, INT64, 0, "UINT_64", "uint64", StatisticsTrust.NEVER),
        (7, INT64, 0, "TIMESTAMP_MILLIS_LOCAL", "timestamp[ms]", StatisticsTrust.TRUSTED),
        (8, INT64, 0, "TIMESTAMP_MICROS_LOCAL", "timestamp[us]", StatisticsTrust.TRUSTED),
        (262152, INT64, 0, "TIMESTAMP_NANOS_LOCAL", "timestamp[ns]", StatisticsTrust.TRUSTED),
        (5, INT32, 0, "TIME_MILLIS", "time32[ms]", StatisticsTrust.TRUSTED),
        (6, INT64, 0, "TIME_NANOS", "time64[ns]", StatisticsTrust.TRUSTED),
        (7, INT32, 0, None, "date32", StatisticsTrust.TRUSTED),
        (262152, INT96, 0, None, "timestamp[ns]", StatisticsTrust.NEVER),
        (2, INT32, 0, None, "int8", StatisticsTrust.ZERO_WHEN_NULL),
        (2, INT32, 0, "NULLABLE", "int8", StatisticsTrust.TRUSTED),
        (4, INT32, 0, None, "uint16", StatisticsTrust.ZERO_WHEN_NULL),
        (25, INT32, 0, None, "uint32", StatisticsTrust.IPV4_UNSIGNED),
        (18, BYTES, 0, None, "binary", StatisticsTrust.BINARY_PREFIX),
        (19, FIXED, 16, None, "fixed_size_binary[16]", StatisticsTrust.TRUSTED),
        (decimal_type_code(9, 2), INT32, 0, None, "decimal128(9, 2)", StatisticsTrust.TRUSTED),
        (decimal_type_code(38, 2), BYTES, 0, None, "decimal128(38, 2)", StatisticsTrust.NEVER),
        (12, BYTES, 0, None, "dictionary<int32, string>", StatisticsTrust.TRUSTED),
    ],
)
def test_arrow_type_and_trust(  # noqa: PLR0917 - one row of the table above
    code: int, physical: PhysicalType, length: int, annotation: str | None, arrow: str, statistics: StatisticsTrust
) -> None:
    column_type = resolve_type(code, physical, length, 0, annotation)
    assert str(column_type.arrow) == arrow
    assert column_type.statistics is statistics


@pytest.mark.parametrize(
    ("code", "physical", "length", "rep_level", "annotation"),
    [
        (-1, INT32, 0, 0, None),
        (0, INT32, 0, 0, None),
        (20, INT32, 0, 0, None),
        (200, INT32, 0, 0, None),
        (5, INT64, 0, 0, None),
        (5, INT32, 0, 1, None),
        (8, INT96, 0, 0, None),
        (13, FIXED, 16, 0, None),
        (19, FIXED, 0, 0, None),
        (decimal_type_code(18, 3) & 0xFFFF | 3 << 24, FIXED, 8, 0, None),
        (27, BYTES, 0, 0, None),
        (5, INT32, 0, 0, "UINT_64"),
        (5, INT32, 0, 0, "FROM_THE_FUTURE"),
        (8, INT64, 0, 0, "TIMESTAMP_MILLIS_LOCAL"),
        (2587, BYTES, 0, 0, "NULLABLE"),
    ],
)
def test_what_does_not_fit_is_unsupported_and_says_the_code(
    code: int, physical: PhysicalType, length: int, rep_level: int, annotation: str | None
) -> None:
    with pytest.raises(UnsupportedError, match=f"type code {code}:"):
        resolve_type(code, physical, length, rep_level, annotation)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from(PhysicalType), st.integers(0, 40), st.integers(0, 3))
def test_any_code_resolves_or_is_unsupported(code: int, physical: PhysicalType, length: int, rep_level: int) -> None:
    assert type_name(code)
    try:
        column_type = resolve_type(code, physical, length, rep_level)
    except UnsupportedError:
        return
    assert column_type.tag == tag_of(code)
    assert column_type.raw_array == (column_type.tag is TypeTag.ARRAY and physical is BYTES)


@given(st.dictionaries(st.integers(0, 5000), st.sampled_from(ForeignAnnotation)))
def test_foreign_annotations_round_trip(annotations: dict[int, ForeignAnnotation]) -> None:
    assert parse_foreign_annotations(encode_foreign_annotations(annotations)) == annotations


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff", b'{"a":"UINT_8"}', b'{"-1":"UINT_8"}', b'{"1":2}', b"[" * 100_000]
)
def test_bad_foreign_annotations_are_format_errors(content: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        parse_foreign_annotations(content, path="p/_pm")
    assert caught.value.path == "p/_pm"


# --- Types from type codes alone equal what the Parquet files of the same tables hold; ids are writer indexes ---


def metadata_of(table: str) -> TableMetadata:
    return parse_table_metadata((GOLDEN / table / "table" / "_meta").read_bytes(), path=None)


def sidecar_of(file: Path) -> Sidecar:
    footer = parsed_footer(file.read_bytes(), path=str(file))
    return parse_sidecar(encode_sidecar(sidecar_content_from_footer(footer)))


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_columns_of_files_have_the_writer_index_as_id_and_the_type_of_the_table(partition: GoldenPartition) -> None:
    columns = {column.writer_index: column for column in metadata_of(partition.table).columns}
    sidecar = sidecar_of(partition.directory / "data.parquet")
    assert sidecar.column_count > 0
    for index in range(sidecar.column_count):
        descriptor, stored = sidecar.column(index), sidecar.column_type(index)
        column = columns[descriptor.id]
        assert column.name == descriptor.name
        wanted = canonical_type(column.type_code)
        assert (stored.name, stored.arrow, stored.comparison) == (wanted.name, wanted.arrow, wanted.comparison)
        assert (stored.physical_type, stored.fixed_byte_length) == (wanted.physical_type, wanted.fixed_byte_length)


@pytest.mark.parametrize("table", sorted({partition.table for partition in PARTITIONS}))
def test_canonical_names_are_those_of_show_columns(table: str) -> None:
    shown = json.loads((GOLDEN / table / "expected" / "columns.json").read_text())
    columns = metadata_of(table).columns
    names = {column.name: canonical_type(column.type_code).name for column in columns}
    assert names == {row["column"]: row["type"] for row in shown}


@pytest.mark.parametrize("type_code", [0, -1, 20, 40, 244, 27, 28, 5 | 1 << 9, 12 | 1 << 8])
def test_codes_of_no_stored_type_are_refused(type_code: int) -> None:
    with pytest.raises(UnsupportedError):
        canonical_type(type_code)


# --- Names of types, as SHOW COLUMNS prints them, and the codes that they stand for ---


PLAIN_CODES = [tag for tag in TypeTag if not (is_decimal(tag) or is_geohash(tag) or tag is TypeTag.ARRAY)]
CODES = st.one_of(
    st.sampled_from([*PLAIN_CODES, TypeTag.TIMESTAMP | NANOSECOND_BIT]).map(int),
    st.integers(1, 60).map(geohash_type_code),
    st.integers(1, 32).map(array_type_code),
    st.integers(1, 76).flatmap(
        lambda digits: st.integers(0, digits).map(lambda scale: decimal_type_code(digits, scale))
    ),
)


@given(CODES)
def test_a_name_leads_back_to_its_code(code: int) -> None:
    assert parse_type_name(type_name(code)) == code
    assert parse_type_name(f" {type_name(code).lower()} ") == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("GEOHASH(8c)", 75793),
        ("GEOHASH(1b)", 65806),
        ("GEOHASH(20b)", 70672),
        ("DECIMAL(18,3)", 791071),
        ("DECIMAL( 18 , 3 )", 791071),
        ("DOUBLE[]", 2587),
        ("DOUBLE[][]", 18971),
        ("TIMESTAMP_NS", 262152),
    ],
)
def test_known_codes(name: str, code: int) -> None:
    assert parse_type_name(name) == code


def test_every_name_that_questdb_printed() -> None:
    printed = {
        column["type"]
        for path in GOLDEN.glob("*/expected/columns.json")
        for column in json.loads(path.read_text(encoding="utf-8"))
    }
    assert len(printed) > 25
    assert {type_name(parse_type_name(name)) for name in printed} == printed


@pytest.mark.parametrize(
    "name",
    [
        "",
        "MONEY",
        "GEOHASH",
        "GEOHASH(0c)",
        "GEOHASH(13c)",
        "GEOHASH(61b)",
        "GEOHASH(3)",
        "GEOHASH[]",
        "DECIMAL(3)",
        "DECIMAL(3,4)",
        "DECIMAL(77,0)",
        "DECIMAL(1,2",
        "DOUBLE(3c)",
        "DOUBLE" + "[]" * 33,
        "LONG[]",
        f"DECIMAL({'9' * 5_000},1)",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="SHOW COLUMNS") as caught:
        parse_type_name(name)
    assert caught.value.kind == "UnknownType"


# --- Distinct integers in ascending order ---


@given(
    arrays.arrays(
        st.sampled_from([np.int32, np.int64, np.uint64]),
        st.integers(0, 20),
        elements=st.integers(0, 5),
        fill=st.nothing(),
    )
)
def test_same_as_numpy(values: np.ndarray) -> None:
    found = distinct_values(values)
    expected = np.unique(values)
    assert found.dtype == values.dtype
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("values", [[], [7], [3, 3, 3], [2, 1, 2, 1]])
def test_leaves_its_argument_as_it_is(values: list[int]) -> None:
    given_values = np.array(values, dtype=np.int64)
    assert distinct_values(given_values).tolist() == sorted(set(values))
    assert given_values.tolist() == values
