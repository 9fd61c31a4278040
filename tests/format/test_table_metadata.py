from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.format.table_metadata import (
    EncodingConfig,
    MetadataSlot,
    ParquetCodec,
    ParquetEncoding,
    SupersededColumn,
    TableMetadata,
    encode_table_metadata,
    format_encoding_word,
    parse_encoding_word,
    parse_table_metadata,
)
from coldparquet.format.txn import parse_txn
from coldparquet.format.type_codes import type_name
from coldparquet.records import replace
from tests.support.table_files import Slot, make_meta

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
TABLES = sorted(path.parent for path in GOLDEN.glob("*/table"))
FILES = sorted([*GOLDEN.glob("*/table/_meta"), *GOLDEN.glob("*/expected/snapshots/*/_meta")])
INT, LONG, TIMESTAMP, TIMESTAMP_NS, DOUBLE, SYMBOL, VARCHAR = 5, 6, 8, 262_152, 10, 12, 26


# --- Genuine files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.name)
def test_columns_are_those_of_the_database(table: Path) -> None:
    metadata = parse_table_metadata((table / "table" / "_meta").read_bytes(), path=None)
    transaction = parse_txn((table / "table" / "_txn").read_bytes(), path=None)
    answer = json.loads((table / "expected" / "table.json").read_bytes())
    left_out = {name.split()[0] for name in answer["columnsLeftOut"]}
    columns = json.loads((table / "expected" / "columns.json").read_bytes())
    assert [
        {
            "column": column.name,
            "type": type_name(column.type_code),
            "indexed": column.is_indexed,
            "symbolCached": column.is_symbol_cached,
            "symbolCapacity": column.symbol_capacity or 0,
            "indexBlockCapacity": metadata.slots[column.writer_index].index_block_capacity,
            "designated": column.writer_index == metadata.designated_timestamp,
            "upsertKey": column.is_dedup_key,
        }
        for column in metadata.columns
        if column.name not in left_out
    ] == [{name: value for name, value in column.items() if name != "symbolTableSize"} for column in columns]
    assert metadata.interval.name == answer["partitionBy"]
    assert metadata.wal_enabled == answer["walEnabled"]
    assert (metadata.minor_version, metadata.ttl) == (1, 0)
    symbols = [column.symbol_index for column in metadata.columns if column.symbol_index is not None]
    assert sorted(symbols) == list(range(len(transaction.symbol_counts)))


@pytest.mark.parametrize("table", ["codecs", "encodings"])
def test_encodings_are_those_of_the_statements(table: str) -> None:
    statements = (GOLDEN / table / "make.sql").read_text()
    asked = {
        name: EncodingConfig(
            encoding=ParquetEncoding[encoding.upper()],
            codec=ParquetCodec[(codec or "default").upper()],
            level=int(level) if level else None,
            is_explicit=True,
        )
        for name, encoding, codec, level in re.findall(
            r"(\w+) \S+ PARQUET\((\w+)(?:, (\w+)(?:\((\d+)\))?)?\)", statements
        )
    }
    metadata = parse_table_metadata((GOLDEN / table / "table" / "_meta").read_bytes(), path=None)
    assert len(asked) > 20
    assert {column.name: column.encoding_config for column in metadata.columns if column.encoding_config} == asked


def test_nanosecond_tables() -> None:
    assert parse_table_metadata((GOLDEN / "nanos_day" / "table" / "_meta").read_bytes(), path=None).is_nanosecond
    assert not parse_table_metadata((GOLDEN / "interval_day" / "table" / "_meta").read_bytes(), path=None).is_nanosecond


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GOLDEN).parent))
def test_encoding_gives_the_same_bytes(path: Path) -> None:
    assert encode_table_metadata(parse_table_metadata(path.read_bytes(), path=None)) == path.read_bytes()


# --- The dense order ---------------------------------------------------------------------------------------------------

EVOLVED = make_meta(
    [
        ("ts", TIMESTAMP, {}),
        ("kind", -SYMBOL, {}),  # became VARCHAR in slot 5, then INT in slot 6
        ("side", SYMBOL, {"flags": 1 | 4 | 8, "symbols": 512}),
        ("gone", -SYMBOL, {}),
        ("price", -INT, {}),  # became SYMBOL in slot 7
        ("kind", -VARCHAR, {"replaced": 2}),
        ("kind", INT, {"replaced": 2}),
        ("price", SYMBOL, {"replaced": 5, "symbols": 128}),
        ("late", -INT, {}),
        ("late", -DOUBLE, {"replaced": 9}),  # changed, then dropped
        ("added", DOUBLE, {}),
    ]
)


def test_changed_columns_keep_their_place_and_remember_what_they_were() -> None:
    columns = parse_table_metadata(EVOLVED, path=None).columns
    assert [(column.name, column.writer_index, column.type_code) for column in columns] == [
        ("ts", 0, TIMESTAMP),
        ("kind", 6, INT),
        ("side", 2, SYMBOL),
        ("price", 7, SYMBOL),
        ("added", 10, DOUBLE),
    ]
    assert columns[1].superseded == (
        SupersededColumn(writer_index=5, type_code=VARCHAR),
        SupersededColumn(writer_index=1, type_code=SYMBOL),
    )
    assert columns[1].replaced_writer_indexes == (5, 1)
    assert columns[3].superseded == (SupersededColumn(writer_index=4, type_code=INT),)
    assert columns[0].superseded == ()


def test_symbols_are_counted_by_writer_index_without_the_dropped_ones() -> None:
    columns = {column.name: column for column in parse_table_metadata(EVOLVED, path=None).columns}
    assert [columns[name].symbol_index for name in ("ts", "kind", "side", "price")] == [None, None, 0, 1]
    side = columns["side"]
    assert (side.is_indexed, side.is_symbol_cached, side.is_dedup_key, side.symbol_capacity) == (True, True, True, 512)


def test_a_replacement_may_name_the_slot_just_before_it() -> None:
    """QuestDB 9.3.4 names the original slot; a chain of neighbours means the same."""
    data = make_meta(
        [
            ("ts", TIMESTAMP, {}),
            ("a", -INT, {}),
            ("a", -LONG, {"replaced": 2}),
            ("b", INT, {}),
            ("a", DOUBLE, {"replaced": 3}),
        ]
    )
    columns = parse_table_metadata(data, path=None).columns
    assert [column.name for column in columns] == ["ts", "a", "b"]
    assert columns[1].replaced_writer_indexes == (2, 1)


@pytest.mark.parametrize("replaced", [2, 3, 4, -7, 1 << 30])
def test_what_old_versions_left_in_the_place_of_a_replaced_index_is_none(replaced: int) -> None:
    data = make_meta([("ts", TIMESTAMP, {}), ("a", INT, {"replaced": replaced}), ("b", INT, {})])
    columns = parse_table_metadata(data, path=None).columns
    assert [(column.name, column.superseded) for column in columns] == [("ts", ()), ("a", ()), ("b", ())]


def test_a_metadata_object_derives_its_columns() -> None:
    metadata = parse_table_metadata(EVOLVED, path=None)
    dropped = replace(metadata.slots[2], is_dropped=True)
    changed = replace(metadata, slots=(*metadata.slots[:2], dropped, *metadata.slots[3:]))
    assert [column.name for column in changed.columns] == ["ts", "kind", "price", "added"]
    assert changed.columns[2].symbol_index == 0
    assert parse_table_metadata(encode_table_metadata(changed), path=None) == changed


# --- Words with a checksum ---------------------------------------------------------------------------------------------


def test_without_its_checksum_the_minor_version_brings_neither_ttl_nor_encodings() -> None:
    slots: list[Slot] = [("ts", TIMESTAMP, {"word": 0x01040504})]
    stated = parse_table_metadata(make_meta(slots, ttl=-3), path=None)
    assert (stated.minor_version, stated.ttl) == (1, -3)
    assert stated.columns[0].encoding_config == EncodingConfig(encoding=4, codec=5, level=3, is_explicit=True)
    unstated = parse_table_metadata(make_meta(slots, ttl=-3, minor_word=0x1234), path=None)
    assert (unstated.minor_version, unstated.ttl) == (None, 0)
    assert unstated.columns[0].encoding_config is None
    assert parse_table_metadata(encode_table_metadata(unstated), path=None) == unstated


def test_a_checksum_of_zero_is_written_as_another_number() -> None:
    metadata_version = next(v for v in range(1 << 20) if ((x := 13 * v + 37) ^ x >> 16) & 0xFFFF == 0)
    data = make_meta([("ts", TIMESTAMP, {})], metadata_version=metadata_version, minor_word=1 << 16 | -1337 & 0xFFFF)
    assert parse_table_metadata(data, path=None).minor_version == 1
    assert encode_table_metadata(parse_table_metadata(data, path=None)) == data


configs = st.builds(
    EncodingConfig,
    encoding=st.integers(0, 255),
    codec=st.integers(0, 255),
    level=st.none() | st.integers(0, 254),
    is_explicit=st.booleans(),
    has_bloom_filter=st.booleans(),
)


@given(configs)
def test_encoding_words_round_trip(config: EncodingConfig) -> None:
    assert (parse_encoding_word(format_encoding_word(config)) or EncodingConfig()) == config


def test_encoding_words_at_their_limits() -> None:
    assert format_encoding_word(None) == 0
    assert parse_encoding_word(0) is None
    for wrong in (EncodingConfig(level=255), EncodingConfig(codec=256), EncodingConfig(encoding=-1)):
        with pytest.raises(InvalidInputError, match="0 to 255"):
            format_encoding_word(wrong)


names = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=20)
slots = st.builds(
    MetadataSlot,
    name=names,
    type_code=st.sampled_from([INT, LONG, DOUBLE, SYMBOL, VARCHAR]),
    is_dropped=st.booleans(),
    flags=st.integers(0, 1 << 40),
    index_block_capacity=st.integers(0, 1 << 20),
    symbol_capacity=st.integers(0, 1 << 20),
    encoding_word=st.integers(0, (1 << 26) - 1),
    reserved=st.integers(0, 1 << 20),
)


@given(
    st.lists(slots, max_size=6, unique_by=lambda slot: slot.name),
    st.integers(0, (1 << 63) - 1),
    st.none() | st.integers(0, 0x7FFF),
    st.binary(max_size=9),
)
def test_parsing_undoes_encoding(
    others: list[MetadataSlot], metadata_version: int, minor_version: int | None, trailer: bytes
) -> None:
    designated = MetadataSlot(name="the time", type_code=TIMESTAMP_NS)
    metadata = TableMetadata(
        interval=PartitionInterval.HOUR,
        designated_timestamp=len(others),
        table_id=7,
        metadata_version=metadata_version,
        wal_enabled=True,
        slots=(*others, designated),
        minor_version=minor_version,
        trailer=trailer,
    )
    parsed = parse_table_metadata(encode_table_metadata(metadata), path=None)
    # A checksum that happens to match cannot be told from one that was written.
    assert replace(parsed, minor_version=minor_version, ttl=0) == metadata
    assert len(parsed.columns) == 1 + sum(not slot.is_dropped for slot in others)
