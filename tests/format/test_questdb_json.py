from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format.parquet_footer import (
    QuestdbColumn,
    QuestdbMetadata,
    encode_questdb_json,
    parse_questdb_json,
)
from tests.support.parquet_footers import parsed_footer
from tests.support.questdb_tables import PARTITIONS, GoldenPartition

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
        (dataclasses.replace(METADATA, unused_bytes=-1), "unused_bytes"),
        (dataclasses.replace(METADATA, seq_txn=2**63), "seq_txn"),
        (dataclasses.replace(METADATA, columns=(dataclasses.replace(COLUMN, type_code=2**31),)), "column_type"),
        (dataclasses.replace(METADATA, columns=(dataclasses.replace(COLUMN, column_top=-1),)), "column_top"),
        (dataclasses.replace(METADATA, columns=(dataclasses.replace(COLUMN, id=2**31),)), "id"),
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
