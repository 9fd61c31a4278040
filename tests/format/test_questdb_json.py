from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError
from coldparquet.format.questdb_json import QuestdbColumn, parse_questdb_json

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
        QuestdbColumn(type_code=12, id=3, local_key_is_global=True, is_ascii=False),
        QuestdbColumn(type_code=26, id=None, local_key_is_global=False, is_ascii=True),
        QuestdbColumn(type_code=26, id=None, local_key_is_global=False, is_ascii=False),
    )
    assert (parsed.unused_bytes, parsed.squash_tracker, parsed.seq_txn) == (2**40, -(2**63), 0)


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
