"""Names of types, as SHOW COLUMNS prints them, and the codes that they stand for."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InvalidInputError
from coldparquet.format.type_codes import (
    NANOSECOND_BIT,
    TypeTag,
    array_type_code,
    decimal_type_code,
    geohash_type_code,
    is_decimal,
    is_geohash,
    parse_type_name,
    type_name,
)
from tests.support.questdb_tables import GOLDEN

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
