"""The layout of native column files, byte by byte."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from coldparquet.errors import FormatError
from coldparquet.format.native import (
    EntryKind,
    FixedLayout,
    VariableLayout,
    auxiliary_file_name,
    data_file_name,
    native_layout,
)
from coldparquet.format.type_codes import TypeTag

WIDTHS = {
    1: {TypeTag.BOOLEAN, TypeTag.BYTE, TypeTag.GEOBYTE, TypeTag.DECIMAL8},
    2: {TypeTag.SHORT, TypeTag.CHAR, TypeTag.GEOSHORT, TypeTag.DECIMAL16},
    4: {TypeTag.INT, TypeTag.FLOAT, TypeTag.SYMBOL, TypeTag.GEOINT, TypeTag.IPV4, TypeTag.DECIMAL32},
    8: {TypeTag.LONG, TypeTag.DATE, TypeTag.TIMESTAMP, TypeTag.DOUBLE, TypeTag.GEOLONG, TypeTag.DECIMAL64},
    16: {TypeTag.UUID, TypeTag.LONG128, TypeTag.DECIMAL128},
    32: {TypeTag.LONG256, TypeTag.DECIMAL256},
}


def variable(tag: TypeTag) -> VariableLayout:
    layout = native_layout(tag)
    assert isinstance(layout, VariableLayout)
    return layout


def fixed(tag: TypeTag) -> FixedLayout:
    layout = native_layout(tag)
    assert isinstance(layout, FixedLayout)
    return layout


def bytes_of(text: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(text), dtype=np.uint8)


def test_every_type_has_a_layout() -> None:
    widths = {tag: layout.width_bytes for tag in TypeTag if isinstance(layout := native_layout(tag), FixedLayout)}
    assert widths == {tag: width for width, tags in WIDTHS.items() for tag in tags}
    variable_tags = {tag for tag in TypeTag if isinstance(native_layout(tag), VariableLayout)}
    assert variable_tags == {TypeTag.STRING, TypeTag.BINARY, TypeTag.VARCHAR, TypeTag.ARRAY}


@pytest.mark.parametrize(
    ("tag", "null", "value"),
    [
        (TypeTag.INT, "00000080", "00000000"),
        (TypeTag.TIMESTAMP, "0000000000000080", "0100000000000080"),
        (TypeTag.DOUBLE, "000000000000f87f", "000000000000f07f"),  # infinity is a value
        (TypeTag.FLOAT, "0000c0ff", "000080ff"),
        (TypeTag.SYMBOL, "00000080", "00000000"),
        (TypeTag.GEOBYTE, "ff", "00"),
        (TypeTag.IPV4, "00000000", "ffffffff"),
        (TypeTag.UUID, "00000000000000800000000000000080", "00000000000000800000000000000000"),
        (TypeTag.LONG256, "0000000000000080" * 4, "0000000000000080" * 3 + "0000000000000000"),
        (TypeTag.DECIMAL8, "80", "81"),
        # Highest word first: the null of the wide decimals has its bit in front.
        (TypeTag.DECIMAL128, "00000000000000800000000000000000", "00000000000000000000000000000080"),
        (TypeTag.DECIMAL256, "0000000000000080" + "00" * 24, "00" * 31 + "80"),
    ],
)
def test_the_null_of_a_type_is_told_from_its_values(tag: TypeTag, null: str, value: str) -> None:
    layout = fixed(tag)
    values = bytes_of(null + value).view(layout.word).reshape(-1, layout.words)
    found = layout.is_null(values)
    assert found is not None
    assert found.tolist() == [True, False]


@pytest.mark.parametrize("tag", [TypeTag.BOOLEAN, TypeTag.BYTE, TypeTag.SHORT, TypeTag.CHAR])
def test_some_types_have_no_null(tag: TypeTag) -> None:
    layout = fixed(tag)
    assert layout.is_null(np.zeros((3, 1), dtype=layout.word)) is None


def test_entries_of_varchar() -> None:
    entries = variable(
        TypeTag.VARCHAR
    ).parse(
        bytes_of(
            "61d6885aecb4b3000000" + "000000000000"  # six bytes, not ASCII
            "a0020000c4a85f442242" + "050000000000"  # 42 bytes from 5 on, of which the first six are repeated here
            "04000000000000000000" + "2f0000000000"  # null
            "9378797a78797a78797a" + "2f0000000100"  # nine ASCII bytes; the offset has 48 bits
            "01000000000000000000" + "2f0000000100"  # the empty text
        )
    )
    assert entries.is_inlined.tolist() == [True, False, False, True, True]
    assert entries.is_null.tolist() == [False, False, True, False, False]
    assert entries.lengths.tolist() == [6, 42, 0, 9, 0]
    assert entries.offsets.tolist() == [0, 5, 0x2F, 0x1_0000_002F, 0x1_0000_002F]
    assert entries.stops.tolist() == [0, 47, 0x2F, 0x1_0000_002F, 0x1_0000_002F]


def test_entries_of_arrays() -> None:
    # The upper 16 bits beside the offset are reserved.
    stored = struct.pack("<qii", 0x7FFF << 48 | 40, 56, 0) + struct.pack("<qii", 96, 0, 0)
    entries = variable(TypeTag.ARRAY).parse(np.frombuffer(stored, dtype=np.uint8))
    assert entries.offsets.tolist() == [40, 96]
    assert entries.stops.tolist() == [96, 96]
    assert entries.is_null.tolist() == [False, True]


def test_entries_of_strings_are_offsets_of_one_more_than_rows() -> None:
    layout = variable(TypeTag.STRING)
    assert (layout.entry_kind, layout.entry_bytes, layout.entries_after_last_row) == (EntryKind.OFFSET, 8, 1)
    entries = layout.parse(np.frombuffer(struct.pack("<3q", 0, 12, 16), dtype=np.uint8))
    assert entries.offsets.tolist() == entries.stops.tolist() == [0, 12, 16]
    assert not (entries.is_null | entries.is_inlined).any()


def test_file_names() -> None:
    assert data_file_name("price", -1) == "price.d"
    assert data_file_name("price", 0) == "price.d.0"
    assert auxiliary_file_name("a b", 17) == "a b.i.17"


@pytest.mark.parametrize("name", ["", "../secret", "a/b", "a\\b", "a\0"])
def test_a_name_cannot_lead_out_of_the_partition(name: str) -> None:
    with pytest.raises(FormatError, match="cannot be the name of a file") as caught:
        data_file_name(name, -1)
    assert caught.value.kind == "UnsafeName"
