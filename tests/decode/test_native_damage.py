"""Damaged native column files: a clear error that names the partition, the column and the row; never a crash."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.type_codes import TypeTag, array_type_code, decimal_type_code
from tests.support.native_partitions import decode, dictionary, encode_column, native_column

if TYPE_CHECKING:
    from coldparquet.plan.native import NativeColumn

ROWS = 5
TOP = 100
"""Errors name rows of the partition, which are not those of the files."""

WORDS = ["one", None, "a word that is not inlined", "another that is not inlined", ""]
COLUMNS: dict[str, tuple[NativeColumn, list[object]]] = {
    "BOOLEAN": (native_column(TypeTag.BOOLEAN, top=TOP), [True, False, True, False, True]),
    "SYMBOL": (native_column(TypeTag.SYMBOL, top=TOP), [0, 1, None, 2, 3]),
    "STRING": (native_column(TypeTag.STRING, top=TOP), list(WORDS)),
    "VARCHAR": (native_column(TypeTag.VARCHAR, top=TOP), list(WORDS)),
    "BINARY": (native_column(TypeTag.BINARY, top=TOP), [b"abc", None, b"", b"0123456789", b"x"]),
    "DOUBLE[]": (native_column(array_type_code(1), top=TOP), [[1.0], None, [], [2.0, 3.0], [4.0]]),
    "DECIMAL": (native_column(decimal_type_code(3, 1), top=TOP), [None] * ROWS),
}


def patched(files: dict[str, bytes], name: str, offset: int, new: bytes) -> dict[str, bytes]:
    old = files[name]
    return files | {name: old[:offset] + new + old[offset + len(new) :]}


@pytest.mark.parametrize(
    ("type_name", "damage", "row", "message"),
    [
        ("BOOLEAN", ("x.d", 3, b"\x02"), 103, "neither true nor false"),
        ("SYMBOL", ("x.d", 4, struct.pack("<i", 5)), 101, "symbol key outside of the dictionary, which has 5 symbols"),
        ("STRING", ("x.i", 16, struct.pack("<q", 2)), 101, "does not lie behind that of the row before"),
        ("STRING", ("x.i", 24, struct.pack("<q", 1 << 40)), 102, "does not lie behind"),
        ("STRING", ("x.d", 0, struct.pack("<i", 4)), 100, "longer than its offsets leave room for"),
        ("STRING", ("x.d", 0, struct.pack("<i", (1 << 31) - 1)), 100, "longer than its offsets leave room for"),
        ("BINARY", ("x.d", 0, struct.pack("<q", (1 << 63) - 1)), 100, "longer than its offsets leave room for"),
        ("BINARY", ("x.i", 8, struct.pack("<q", -(1 << 63))), 100, "does not lie behind"),
        ("VARCHAR", ("x.i", 0, b"\xf3"), 100, "longer than there is room for"),
        ("VARCHAR", ("x.i", 32, bytes(16)), 102, "zeros"),
        ("VARCHAR", ("x.i", 32, struct.pack("<I", 1 << 30)), 102, "longer than there is room for"),
        ("VARCHAR", ("x.i", 48 + 10, struct.pack("<HI", 3, 0)), 103, "does not lie behind the value before it"),
        ("VARCHAR", ("x.i", 48 + 10, struct.pack("<HI", 0, 1 << 31)), 103, "does not lie behind the value before it"),
        ("DOUBLE[]", ("x.i", 8, struct.pack("<i", -8)), 100, "longer than there is room for"),
        ("DOUBLE[]", ("x.i", 48, struct.pack("<q", 8)), 103, "does not lie behind the value before it"),
    ],
)
def test_an_error_names_the_row(type_name: str, damage: tuple[str, int, bytes], row: int, message: str) -> None:
    column, values = COLUMNS[type_name]
    files = patched(encode_column(column, values), *damage)
    with pytest.raises(FormatError, match=message) as caught:
        decode(column, files, range(TOP - 2, TOP + ROWS), dictionary=dictionary())
    assert caught.value.details["row"] == row
    assert f"row {row}" in caught.value.message
    assert "column 'x'" in caught.value.message
    assert caught.value.path == "p"


@pytest.mark.parametrize(
    ("type_name", "file", "offset", "new", "message"),
    [
        ("VARCHAR", "x.d", 0, b"\xff", "UTF8"),
        ("DOUBLE[]", "x.d", 0, struct.pack("<i", 7), "another number of elements"),
        ("DECIMAL", "x.d", 0, struct.pack("<h", 1000), "precision"),
    ],
)
def test_values_that_do_not_fit_their_type(type_name: str, file: str, offset: int, new: bytes, message: str) -> None:
    column, values = COLUMNS[type_name]
    files = patched(encode_column(column, values), file, offset, new)
    with pytest.raises(FormatError, match=message) as caught:
        decode(column, files, range(TOP, TOP + ROWS))
    assert "column 'x'" in caught.value.message
    assert caught.value.path == "p"


@given(data=st.data())
@pytest.mark.parametrize("type_name", COLUMNS)
def test_whatever_the_bytes_are_rows_or_a_clear_error_come_out(type_name: str, data: st.DataObject) -> None:
    column, values = COLUMNS[type_name]
    files = encode_column(column, values)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(files)))
        offset = data.draw(st.integers(0, len(files[name]) - 1))
        files = patched(files, name, offset, bytes([data.draw(st.integers(0, 255))]))
    try:
        found = decode(column, files, range(TOP, TOP + ROWS), dictionary=dictionary())
    except (FormatError, UnsupportedError) as error:
        assert "'x'" in error.message  # noqa: PT017 - rows are as good
    else:
        assert len(found) == ROWS
