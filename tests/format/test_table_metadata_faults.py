"""Files that are no `_meta`, and metadata that no file can hold."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format.table_metadata import MetadataSlot, encode_table_metadata, parse_table_metadata
from coldparquet.records import replace
from tests.support.table_files import Slot, make_meta

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
INT, TIMESTAMP = 5, 8


def patched(data: bytes, offset: int, value: int) -> bytes:
    return data[:offset] + struct.pack("<i", value) + data[offset + 4 :]


TS: Slot = ("ts", TIMESTAMP, {})
GOOD = make_meta([TS, ("a", INT, {}), ("b", -INT, {})])
NAMES_AT = 128 + 3 * 32


@pytest.mark.parametrize(
    ("data", "kind", "field", "offset"),
    [
        (patched(GOOD, 0, -1), "InvalidValue", "slot_count", 0),
        (patched(GOOD, 0, (1 << 31) - 1), "Truncated", "2147483647 columns", 128),
        (patched(GOOD, 4, 6), "InvalidValue", "interval", 4),
        (patched(GOOD, 4, -1), "InvalidValue", "interval", 4),
        (patched(GOOD, 8, -1), "InvalidValue", "designated_timestamp", 8),
        (patched(GOOD, 8, -2), "InvalidValue", "designated_timestamp", 8),
        (patched(GOOD, 8, 1), "InvalidValue", "designated_timestamp", 8),
        (patched(GOOD, 8, 3), "InvalidValue", "designated_timestamp", 8),
        (patched(GOOD, 128, -TIMESTAMP), "InvalidValue", "designated_timestamp", 8),
        (make_meta([TS, ("a", INT, {"replaced": 1})]), "InvalidValue", "replaced_index", 184),
        (make_meta([TS, ("a", INT, {}), ("b", -INT, {"replaced": 2})]), "InvalidValue", "replaced_index", 216),
        (patched(GOOD, NAMES_AT, 0), "InvalidValue", "column name", NAMES_AT),
        (patched(GOOD, NAMES_AT, -1), "InvalidValue", "column name", NAMES_AT),
        (patched(GOOD, NAMES_AT, 256), "InvalidValue", "column name", NAMES_AT),
        (patched(GOOD, NAMES_AT, 255), "Truncated", "column name", NAMES_AT),
        (patched(GOOD, NAMES_AT + 4, 0xD800), "InvalidValue", "column name", NAMES_AT + 4),
        (make_meta([TS, ("a", INT, {}), ("a", INT, {})]), "InvalidValue", "column name", 192),
    ],
)
def test_values_that_cannot_be(data: bytes, kind: str, field: str, offset: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse_table_metadata(data, path="table/_meta")
    assert (caught.value.kind, caught.value.path) == (kind, "table/_meta")
    assert (caught.value.details["field"], caught.value.details["offset"]) == (field, offset)


@pytest.mark.parametrize("name", ["..", "../x", "a..b", ".", "a/b", "a\\b", "/", "a\0", "a\nb", "\x7f"])
def test_names_that_lead_out_of_the_table(name: str) -> None:
    with pytest.raises(FormatError, match="no column name"):
        parse_table_metadata(make_meta([TS, (name, INT, {})]), path=None)
    metadata = parse_table_metadata(GOOD, path=None)
    with pytest.raises(InvalidInputError, match="no column name"):
        encode_table_metadata(replace(metadata, slots=(*metadata.slots, MetadataSlot(name=name, type_code=INT))))


@pytest.mark.parametrize("name", ["a.b", "a b", "größe", "价格", "😀", "\u3000", "x" * 255])
def test_names_that_columns_may_have(name: str) -> None:
    metadata = parse_table_metadata(GOOD, path=None)
    named = replace(metadata, slots=(*metadata.slots, MetadataSlot(name=name, type_code=INT)))
    assert parse_table_metadata(encode_table_metadata(named), path=None).columns[-1].name == name


@pytest.mark.parametrize("version", [0, 425, 427, -1])
def test_other_versions_of_the_format(version: int) -> None:
    with pytest.raises(UnsupportedError, match=f"format version {version}; this library reads 426") as caught:
        parse_table_metadata(make_meta([TS], version=version), path="table/_meta")
    assert (caught.value.kind, caught.value.details["offset"]) == ("UnsupportedVersion", 12)


def test_without_partitioning_there_may_be_no_designated_timestamp() -> None:
    metadata = parse_table_metadata(make_meta([("a", INT, {})], designated=-1, interval=3), path=None)
    assert (metadata.designated_timestamp, metadata.is_nanosecond) == (None, False)
    assert parse_table_metadata(encode_table_metadata(metadata), path=None) == metadata


@pytest.mark.parametrize(
    "change",
    [{"table_id": 1 << 31}, {"metadata_version": 1 << 63}, {"designated_timestamp": 1}, {"minor_version": 1 << 16}],
)
def test_metadata_that_no_file_can_hold(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="_meta file"):
        encode_table_metadata(replace(parse_table_metadata(GOOD, path=None), **change))
