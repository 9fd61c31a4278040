"""Values of a column whose type was changed become what QuestDB's own ALTER COLUMN TYPE makes of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.decode.arrow import PLAIN_TEXT, TEXT_AS_STORED, TextAs, arrow_type
from coldparquet.decode.conversion import convert_values
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import UnsupportedError
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import resolve_type
from coldparquet.plan.columns import TableColumn
from coldparquet.plan.type_changes import Family, can_convert, family_of
from tests.support.golden_values import CONVERSIONS, GoldenConversion, array_of, type_named
from tests.support.parquet_footers import parquet_bytes

TEXTS = [PLAIN_TEXT, TEXT_AS_STORED, TextAs(symbols="dictionary", strings="dictionary")]
each_text = pytest.mark.parametrize("text", TEXTS, ids=lambda text: f"{text.symbols}-{text.strings}")

LABEL = ChunkLabel(path="t/2024-03-01/data.parquet", row_group=3, columns=("x",))
POSSIBLE = [
    conversion
    for conversion in CONVERSIONS
    if can_convert(type_named(conversion.stored), type_named(conversion.wanted))
]

REFUSED_VALUES = {
    # QuestDB writes years before 1 and after 9999, and the year 1677 of nanoseconds, in unexpected ways.
    ("DATE", "text"): lambda value: not -62_135_596_800_000 <= value < 253_402_300_800_000,
    ("TIMESTAMP", "text"): lambda value: not -62_135_596_800_000_000 <= value < 253_402_300_800_000_000,
    ("TIMESTAMP_NS", "text"): lambda value: value < -9_214_560_000 * 10**9,
    ("text", "DATE"): {"-128", "-129", "-007", "1__0", "2024-02-29T12:30:45.", "2024-02-29T12:30:45.Z", "2024-+2-29",
                       "0000-01-01"}.__contains__,
    ("text", "FLOAT"): {"0x1p3"}.__contains__,
    ("text", "IPv4"): {"-1.2.3.4", ".1.2.3.4", "1.2.3.+4", "1.2.3.4_", "1.2.3.4.", "1.1_0.3.4"}.__contains__,
}  # fmt: skip
REFUSED_VALUES["text", "TIMESTAMP"] = REFUSED_VALUES["text", "DATE"]
REFUSED_VALUES["text", "DOUBLE"] = REFUSED_VALUES["text", "FLOAT"]
BEYOND_NANOSECONDS = ("0001", "9999", "1677", "2262")


def is_refused_here(conversion: GoldenConversion, value: Any) -> bool:
    """Tell whether the value is one of the odd ones that the docstrings of the conversions leave out."""
    pair = tuple(
        "text" if name in ("STRING", "SYMBOL", "VARCHAR") else name for name in (conversion.stored, conversion.wanted)
    )
    if value is None:
        return False
    if pair == ("text", "TIMESTAMP_NS"):
        is_date = value[:4] in BEYOND_NANOSECONDS and value[4:5] == "-"
        return is_date or bool(REFUSED_VALUES["text", "DATE"](value))
    return pair in REFUSED_VALUES and bool(REFUSED_VALUES[pair](value))


def convert(values: Any, stored: str, wanted: str, *, text: TextAs = TEXT_AS_STORED) -> Any:
    type_ = arrow_type(type_named(wanted), text=text)
    return convert_values(values, type_named(stored), type_named(wanted), result=type_, label=LABEL)


def comparable(values: Any) -> list[Any]:
    """Return Python values that tell signed zeros apart and hold any instant."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    plain: list[Any] = values.to_pylist()
    return [value.hex() if isinstance(value, float) else value for value in plain]


@each_text
@pytest.mark.parametrize("conversion", POSSIBLE, ids=str)
def test_values_become_what_questdb_makes_of_them(conversion: GoldenConversion, text: TextAs) -> None:
    answered = [
        (value, answer)
        for index, (value, answer) in enumerate(zip(conversion.values, conversion.answers, strict=True))
        if not conversion.fails(index) and not is_refused_here(conversion, value)
    ]
    if (conversion.stored, conversion.wanted) == ("VARCHAR", "CHAR"):
        answered = [(text, unit) for text, unit in answered if text is None or text.isascii()]
    values = array_of(conversion.stored, [value for value, _ in answered])
    if family_of(type_named(conversion.stored)) is Family.TEXT:
        values = values.cast(arrow_type(type_named(conversion.stored), text=text))
    converted = convert(values, conversion.stored, conversion.wanted, text=text)
    assert converted.type == arrow_type(type_named(conversion.wanted), text=text)
    expected = array_of(conversion.wanted, [answer for _, answer in answered])
    assert len(converted) == len(answered) > 0
    found = zip(answered, comparable(converted), comparable(expected), strict=True)
    assert [difference for difference in found if difference[1] != difference[2]] == []


@pytest.mark.parametrize("conversion", POSSIBLE, ids=str)
def test_what_questdb_refuses_or_garbles_is_refused_by_value(conversion: GoldenConversion) -> None:
    for index, value in enumerate(conversion.values):
        if not conversion.fails(index) and not is_refused_here(conversion, value):
            continue
        with pytest.raises(UnsupportedError) as caught:
            convert(array_of(conversion.stored, [None, value]), conversion.stored, conversion.wanted)
        error = caught.value
        assert (error.kind, error.path, error.details["columns"]) == ("ChangedColumnType", LABEL.path, ("x",))
        assert f"row group 3, column 'x': the type of the column was changed to {conversion.wanted}" in str(error)


@pytest.mark.parametrize("conversion", POSSIBLE, ids=str)
def test_slices_and_arrays_of_nothing(conversion: GoldenConversion) -> None:
    stored, wanted = conversion.stored, conversion.wanted
    usable = [value for index, value in enumerate(conversion.values)
              if not conversion.fails(index) and not is_refused_here(conversion, value)][:4]  # fmt: skip
    whole = convert(array_of(stored, usable), stored, wanted)
    for start in range(len(usable) + 1):
        part = convert(array_of(stored, usable).slice(start), stored, wanted)
        assert comparable(part) == comparable(whole.slice(start))
    for rows in (0, 3):
        nothing = convert(pa.nulls(rows, array_of(stored, []).type), stored, wanted)
        never_null = type_named(wanted).never_null
        assert (len(nothing), nothing.null_count) == (rows, 0 if never_null else rows)


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63) + 1, 2**63 - 1))))
def test_whole_numbers_come_back_from_text(numbers: list[int | None]) -> None:
    values = pa.array(numbers, pa.int64())
    assert convert(convert(values, "LONG", "VARCHAR"), "VARCHAR", "LONG").equals(values)


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))))
def test_doubles_come_back_from_text(numbers: list[float | None]) -> None:
    values = pa.array(numbers, pa.float64())
    text = convert(values, "DOUBLE", "STRING")
    assert comparable(convert(text, "STRING", "DOUBLE")) == comparable(values)


@given(
    st.lists(st.one_of(st.none(), st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)))
)
def test_floats_come_back_from_text(numbers: list[float | None]) -> None:
    values = pa.array(numbers, pa.float32())
    text = convert(values, "FLOAT", "VARCHAR")
    assert comparable(convert(text, "VARCHAR", "FLOAT")) == comparable(values)


@pytest.mark.parametrize(("name", "low", "high"), [
    ("DATE", -62_135_596_800_000, 253_402_300_799_999),
    ("TIMESTAMP", -62_135_596_800_000_000, 253_402_300_799_999_999),
    ("TIMESTAMP_NS", -9_214_560_000 * 10**9, 9_214_646_399 * 10**9),
])  # fmt: skip
@given(data=st.data())
def test_instants_come_back_from_text(name: str, low: int, high: int, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.one_of(st.none(), st.integers(low, high))))
    values = pa.array(counts, pa.int64()).cast(arrow_type(type_named(name), text=PLAIN_TEXT))
    assert convert(convert(values, name, "SYMBOL"), "SYMBOL", name).equals(values)


@given(st.lists(st.one_of(st.none(), st.binary(min_size=16, max_size=16))))
def test_uuids_come_back_from_text(uuids: list[bytes | None]) -> None:
    values = pa.array(uuids, pa.binary(16))
    assert convert(convert(values, "UUID", "STRING"), "STRING", "UUID").equals(values)


@pytest.mark.parametrize(
    "wanted", ["BOOLEAN", "BYTE", "INT", "LONG", "DOUBLE", "CHAR", "DATE", "TIMESTAMP_NS", "IPv4", "UUID"]
)
@settings(max_examples=30)
@given(text=st.one_of(st.text(max_size=12), st.text("0123456789+-_.:TZeE ", max_size=12)))
def test_any_text_is_read_or_refused(wanted: str, text: str) -> None:
    try:
        converted = convert(pa.array([text], pa.string()), "VARCHAR", wanted)
    except UnsupportedError as error:
        assert repr(text) in str(error)  # noqa: PT017 - most texts are read
    else:
        assert len(converted) == 1


def test_dates_counted_in_days() -> None:
    days = resolve_type(7, PhysicalType.INT32, 0, 0)
    values = pa.array([None, 0, 19_782, -1], pa.int32()).cast(pa.date32())
    for wanted, expected in {
        "DATE": [None, 0, 19_782 * 86_400_000, -86_400_000],
        "LONG": [None, 0, 19_782 * 86_400_000, -86_400_000],
        "TIMESTAMP_NS": [None, 0, 19_782 * 86_400 * 10**9, -86_400 * 10**9],
        "VARCHAR": [None, "1970-01-01T00:00:00.000Z", "2024-02-29T00:00:00.000Z", "1969-12-31T00:00:00.000Z"],
    }.items():
        type_ = arrow_type(type_named(wanted), text=PLAIN_TEXT)
        converted = convert_values(values, days, type_named(wanted), result=type_, label=LABEL)
        assert comparable(converted) == expected


def test_infinities_and_nan_as_questdb_takes_them() -> None:
    doubles = pa.array(np.array([np.inf, -np.inf, np.nan]))
    assert convert(doubles, "DOUBLE", "BOOLEAN").to_pylist() == [True, True, False]
    assert convert(doubles, "DOUBLE", "SHORT").to_pylist() == [0, 0, 0]
    for wanted in ("FLOAT", "INT", "LONG", "TIMESTAMP", "VARCHAR"):
        assert convert(doubles, "DOUBLE", wanted).null_count == 3
    assert convert(doubles.cast(pa.float32()), "FLOAT", "DOUBLE").null_count == 3


@pytest.mark.parametrize("value", [1e-45, 1.1754942e-38])
def test_floats_that_questdb_writes_with_other_digits_are_refused(value: float) -> None:
    with pytest.raises(UnsupportedError, match="with other digits"):
        convert(pa.array([value], pa.float32()), "FLOAT", "VARCHAR")


def test_half_a_character_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="half of a character"):
        convert(pa.array([0x41, 0xD800], pa.uint16()), "CHAR", "STRING")


def parquet_of(values: Any, type_code: int | None = None, *, required: bool = False) -> bytes:
    """Write a file of one column with two rows per row group; with a type code it is one of QuestDB's."""
    column = {"column_type": type_code, "column_top": 0}
    questdb: Any = None if type_code is None else {"questdb": json.dumps({"version": 1, "schema": [column]})}
    schema = pa.schema([pa.field("x", values.type, nullable=not required)], metadata=questdb)
    return parquet_bytes(pa.table([values], schema=schema), row_group_size=2)


@each_text
@pytest.mark.parametrize(("values", "wanted", "expected"), [
    (pa.array([1, None, None, None, -5, 2**31 - 1], pa.int32()), "LONG", [1, None, None, None, -5, 2**31 - 1]),
    (pa.array([1, None, None, None, -5, 300], pa.int32()), "BYTE", [1, 0, 0, 0, -5, 44]),
    (pa.array([1, None, None, None, -5, 0], pa.int64()), "SYMBOL", ["1", None, None, None, "-5", "0"]),
    (pa.array(["a", None, None, None, "", "b"]), "SYMBOL", ["a", None, None, None, "", "b"]),
    (pa.array(["a", None, None, None, "", "7"]), "INT", [None, None, None, None, None, 7]),
    (pa.array(["a", None, None, None, "", "true"]), "BOOLEAN", [False, False, False, False, False, True]),
])  # fmt: skip
def test_row_groups_decode_to_the_type_of_the_table(
    sparse_file: Any, values: Any, wanted: str, expected: list[Any], text: TextAs
) -> None:
    file = sparse_file(parquet_of(values))
    file.outputs = lambda _names: [TableColumn(index=0, name="y", id=-1, type=type_named(wanted))]
    decoded = file.read(["x"], symbols=text.symbols, strings=text.strings)
    assert any(read.made_columns for read in file.plan(["x"]).values()), "the middle row group is all null"
    assert decoded.schema.field("y").type == arrow_type(type_named(wanted), text=text)
    assert decoded.schema.field("y").metadata == {b"questdb.type": wanted.encode()}
    assert decoded["y"].to_pylist() == expected


@pytest.mark.parametrize("is_required", [False, True])
@pytest.mark.parametrize("wanted", ["INT", "VARCHAR", "BOOLEAN", "BYTE", "SHORT", "DOUBLE"])
def test_rows_from_before_a_byte_column_existed(sparse_file: Any, wanted: str, *, is_required: bool) -> None:
    """Newer files mark them as null: they are null in a type that has null. Without a mark they are 0 for ever."""
    before = 0 if is_required else None
    file = sparse_file(parquet_of(pa.array([before, before, before, 7], pa.int8()), TypeTag.BYTE, required=is_required))
    assert file.sidecar.column_type(0).never_null
    assert [bool(read.made_columns) for read in file.plan(["x"]).values()] == [not is_required, False]
    file.outputs = lambda _names: [TableColumn(index=0, name="x", id=-1, type=type_named(wanted))]
    marked = {"INT": None, "VARCHAR": None, "DOUBLE": None}
    unmarked = {"VARCHAR": "0", "BOOLEAN": False}
    missing = marked[wanted] if wanted in marked and not is_required else unmarked.get(wanted, 0)
    seven = {"VARCHAR": "7", "BOOLEAN": True}.get(wanted, 7)
    assert file.read(["x"])["x"].to_pylist() == [missing, missing, missing, seven]
