from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format.table_metadata import encode_table_name, parse_table_name

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
TABLES = sorted(path.parent for path in GOLDEN.glob("*/table"))


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.name)
def test_names_of_genuine_tables(table: Path) -> None:
    data = (table / "table" / "_name").read_bytes()
    name = parse_table_name(data, path=None)
    assert name == json.loads((table / "expected" / "table.json").read_bytes())["table"]
    assert encode_table_name(name) == data


characters = st.characters(min_codepoint=0x20, exclude_characters="./\\\x7f", exclude_categories=["Cs"])


@given(st.text(characters, min_size=1, max_size=127))
def test_parsing_undoes_encoding_of_names(name: str) -> None:
    encoded = encode_table_name(name)
    assert parse_table_name(encoded, path=None) == name
    assert encoded == struct.pack("<i", (len(encoded) - 5) // 2) + name.encode("utf-16-le") + b"\0"


def test_what_follows_the_name_is_not_looked_at() -> None:
    assert parse_table_name(memoryview(b"\x01\0\0\0x\0" + b"\xff" * 9), path=None) == "x"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "Truncated"),
        (b"\1\0\0", "Truncated"),
        (b"\2\0\0\0x\0y", "Truncated"),
        (b"\0\0\0\0\0", "InvalidValue"),
        (b"\xff\xff\xff\xff", "InvalidValue"),
        (b"\xff\xff\xff\x7f", "InvalidValue"),
        (b"\1\0\0\0\0\xd8\0", "InvalidValue"),
        (b"\2\0\0\0.\0.\0\0", "InvalidValue"),
        (b"\1\0\0\0/\0\0", "InvalidValue"),
    ],
)
def test_files_that_hold_no_name(data: bytes, kind: str) -> None:
    with pytest.raises(FormatError, match="table name") as caught:
        parse_table_name(data, path="table/_name")
    assert (caught.value.kind, caught.value.path) == (kind, "table/_name")


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "a\\b", "../../etc", "a\n", "\ud800", "x" * 256])
def test_names_that_no_table_can_have(name: str) -> None:
    with pytest.raises(InvalidInputError, match="name of a table"):
        encode_table_name(name)
