"""The reader's rules one by one, each broken by an edit of a golden file whose checksum is made right again."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from coldparquet.cli.sidecar_dump import describe_sidecar
from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format import sidecar_layout
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_header import ScratchpadEntry, parse_header
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import ColumnSpec, SidecarContent, encode_sidecar
from coldparquet.format.types import FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations

GOLDEN = Path(__file__).parents[1] / "golden" / "pm"
SAMPLE = (GOLDEN / "05_sample_c.pm").read_bytes()
"""Two columns, names at 96, bloom list at 100, block at 112, footer at 316, CRC at 372, trailer at 376."""
SECTIONS = (GOLDEN / "19_sections.pm").read_bytes()
"""One column; footer at 188, bloom matrix at 232, SEQ_TXN at 236, SCRATCHPAD at 244, CRC at 320."""
SQUASH = (GOLDEN / "18_squash_tracker.pm").read_bytes()


def edited(data: bytes, *edits: tuple[int, str, int]) -> bytes:
    changed = bytearray(data)
    for offset, layout, value in edits:
        struct.pack_into("<" + layout, changed, offset, value)
    struct.pack_into("<I", changed, len(changed) - 8, zlib.crc32(changed[8:-8]))
    return bytes(changed)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        # Header
        (edited(SAMPLE, (8, "Q", 5 | 1 << 31)), None),  # unknown optional bit
        (edited(SAMPLE, (8, "Q", 5 | 1 << 63)), "UnsupportedFeature"),
        (edited(SAMPLE, (8, "Q", 2)), "InvalidValue"),  # external without bloom filters
        (edited(SAMPLE, (16, "i", -1)), "InvalidValue"),  # sorted by a timestamp that is not there
        (edited(SAMPLE, (24, "I", 12)), "Truncated"),  # descriptors past the end
        (edited(SAMPLE, (20, "I", 100)), "Truncated"),  # sorting columns past the end
        (edited(SAMPLE, (32, "Q", 95)), "InvalidValue"),  # name inside the descriptors
        (edited(SAMPLE, (32, "Q", 379)), "Truncated"),  # name past the end
        (edited(SAMPLE, (32, "Q", 2**64 - 1)), "Truncated"),  # name whose end overflows
        (edited(SAMPLE, (100, "I", 0)), "InvalidValue"),  # no bloom column
        (edited(SAMPLE, (100, "I", 3)), "InvalidValue"),  # more than columns
        (edited(SAMPLE, (104, "I", 2)), "InvalidValue"),  # index that is no column
        (edited(SAMPLE, (100, "I", 2), (104, "I", 1), (108, "I", 0)), "InvalidValue"),  # not ascending
        (edited(SAMPLE, (100, "I", 2), (104, "I", 1), (108, "I", 1)), "InvalidValue"),  # not unique
        (struct.pack("<QQI", 20, 0, 0), "Truncated"),  # not even a fixed header
        # Footer
        (edited(SAMPLE, (376, "I", 377)), "Truncated"),  # longer than the file
        (edited(SAMPLE, (376, "I", 43)), "Truncated"),  # shorter than its fixed part
        (edited(SAMPLE, (328, "I", 5)), "Truncated"),  # row groups past the checksum
        (edited(SAMPLE, (328, "I", 2)), "Truncated"),  # bloom matrix past the checksum
        (edited(SAMPLE, (348, "Q", 1 | 1 << 33)), "InvalidValue"),  # unknown required bit
        (edited(SAMPLE, (348, "Q", 1 | 1 << 32)), "InvalidValue"),  # required half of COVERING_INDEX alone
        (edited(SAMPLE, (348, "Q", 1 | 1 << 2)), None),  # optional half alone: opaque
        (edited(SAMPLE, (348, "Q", 1 | 1 << 2 | 1 << 32)), "Truncated"),  # COVERING_INDEX without a count
        (edited(SAMPLE, (348, "Q", 0)), "InvalidValue"),  # eight bytes that nothing explains
        (edited(SAMPLE, (348, "Q", 3)), "Truncated"),  # SCRATCHPAD without a count
        (edited(SECTIONS, (244, "I", 0)), "InvalidValue"),  # SCRATCHPAD without an entry
        (edited(SECTIONS, (244, "I", 6)), "Truncated"),  # more entries than bytes
        (edited(SECTIONS, (252, "I", 2**32 - 1)), "Truncated"),  # content past the checksum
        (edited(SECTIONS, (220, "Q", 2)), "Truncated"),  # SEQ_TXN taken for the SCRATCHPAD's count
        # Blocks
        (edited(SAMPLE, (356, "I", 30)), None),  # the last place where a block fits; overlap is not looked for
        (edited(SAMPLE, (356, "I", 31)), "Truncated"),
        (edited(SAMPLE, (356, "I", 2**32 - 1)), "Truncated"),
    ],
)
def test_rule(data: bytes, kind: str | None) -> None:
    if kind is None:
        parse_sidecar(data)
    else:
        assert_refused(data, kind)


def assert_refused(data: bytes, kind: str) -> None:
    with pytest.raises(UnsupportedError if kind == "UnsupportedFeature" else FormatError) as caught:
        parse_sidecar(data)
    assert caught.value.kind == kind
    assert {"offset", "field"} <= caught.value.details.keys()


def test_covering_index_without_entries_is_refused() -> None:
    content = SidecarContent(columns=(), row_groups=(), parquet_footer_offset=4, parquet_footer_length=4, seq_txn=1)
    data = encode_sidecar(content)
    # Take the bytes of SEQ_TXN for a COVERING_INDEX: its count is 1, and the rest is too short for an entry.
    assert_refused(edited(data, (64, "Q", 1 << 2 | 1 << 32)), "Truncated")
    assert_refused(edited(data, (64, "Q", 1 << 2 | 1 << 32), (72, "I", 0)), "InvalidValue")


def test_scratchpad_over_the_cap_is_refused() -> None:
    content = SidecarContent(
        columns=(),
        row_groups=(),
        parquet_footer_offset=4,
        parquet_footer_length=4,
        scratchpad=[ScratchpadEntry(1, bytes((1 << 20) - 12))],
    )
    data = encode_sidecar(content)
    longer = data[:-8] + bytes(8 + 8)
    size = len(longer)
    grown = edited(longer, (0, "Q", size), (72, "I", 2), (size - 4, "I", size - 4 - 32))
    assert_refused(grown, "InvalidValue")


def test_name_that_is_not_utf8_fails_only_where_names_are_asked_for() -> None:
    sidecar = parse_sidecar(edited(SAMPLE, (96, "B", 0xFF)))
    assert sidecar.column(1).name == "id"
    for ask in (lambda: sidecar.column(0), lambda: sidecar.columns, lambda: sidecar.column_index("id")):
        with pytest.raises(FormatError, match="UTF-8") as caught:
            ask()
        assert caught.value.kind == "InvalidValue"
        assert caught.value.details["offset"] == 96


def test_repetition_three_and_unknown_physical_type_fail_on_their_column_alone() -> None:
    for offset, value, field in ((32 + 16, 3 << 2, "repetition"), (32 + 28, 8, "physical_type")):
        data = edited(SAMPLE, (offset, "B", value))
        sidecar = parse_sidecar(data)
        assert sidecar.column(1).name == "id"
        with pytest.raises(FormatError) as caught:
            sidecar.column(0)
        assert caught.value.details["field"] == field
        assert caught.value.details["offset"] == offset


def test_unknown_physical_type_is_shown_and_bad_repetition_is_not() -> None:
    assert describe_sidecar(edited(SAMPLE, (32 + 28, "B", 8)))["columns"][0]["physical_type"] == 8
    with pytest.raises(FormatError, match="repetition"):
        describe_sidecar(edited(SAMPLE, (32 + 16, "i", 3 << 2)))


def test_unknown_codec_is_shown_as_a_number_and_refused_by_the_description() -> None:
    data = edited(SAMPLE, (120, "B", 8))
    assert parse_sidecar(data).chunks(0).codec.tolist() == [8]
    with pytest.raises(FormatError, match="codec") as caught:
        describe_sidecar(data)
    assert caught.value.details["offset"] == 120


def test_stored_indexes_are_checked_when_they_are_used() -> None:
    sidecar = parse_sidecar(edited(SAMPLE, (16, "i", 7)))
    assert sidecar.header.designated_timestamp == 7
    for ask in (lambda: sidecar.designated_timestamp, lambda: sidecar.sorting_columns):
        with pytest.raises(FormatError) as caught:
            ask()
        assert caught.value.kind == "InvalidValue"


def test_numbers_beyond_63_bits_are_refused_when_they_are_used() -> None:
    sidecar = parse_sidecar(edited(SAMPLE, (112, "Q", 1 << 63), (120 + 16, "Q", 2**64 - 1)))
    asks: tuple[Callable[[], object], ...] = (
        lambda: sidecar.row_counts,
        lambda: sidecar.chunks(0).byte_range_start,
    )
    for ask in asks:
        with pytest.raises(FormatError) as caught:
            ask()
        assert caught.value.kind == "InvalidValue"
        assert caught.value.details["row_group"] == 0
    assert sidecar.chunks(0).num_values.tolist() == [3]
    assert describe_sidecar(edited(SAMPLE, (112, "Q", 1 << 63)))["row_groups"][0]["num_rows"] == 1 << 63


def test_total_rows_may_exceed_64_bits() -> None:
    five = (GOLDEN / "15_five_groups.pm").read_bytes()
    offsets = parse_sidecar(five).footer.block_offsets.tolist()
    largest = (1 << 63) - 1
    sidecar = parse_sidecar(edited(five, *((offset, "Q", largest) for offset in offsets)))
    assert sidecar.total_rows == 5 * largest


@pytest.mark.parametrize("reference", [0, 16 << 16, (1 << 48) << 8 | 16, 200 << 16 | 16, 0xFFFF, 2**64 - 1])
def test_out_of_line_reference_that_leads_nowhere_is_no_bound(reference: int) -> None:
    sidecar = parse_sidecar(edited(SAMPLE, (112 + 8 + 64 + 48, "Q", reference)))
    lower = sidecar.chunks(1).min
    assert lower.present.tolist() == [True]
    assert lower.bytes_at(0) is None
    assert lower.prefix_words()[1].tolist() == [-1]


@pytest.mark.parametrize(("size", "value"), [(0, None), (1, b"\xe8"), (8, b"\xe8\x03" + bytes(6)), (9, None)])
def test_inline_bounds_of_every_stored_size(size: int, value: bytes | None) -> None:
    sidecar = parse_sidecar(edited(SAMPLE, (123, "B", size)))
    assert sidecar.chunks(0).min.bytes_at(0) == value
    prefixes, lengths = sidecar.chunks(0).min.prefix_words()
    assert lengths.tolist() == [-1 if value is None else len(value)]
    assert prefixes.tolist() == [int.from_bytes((value or b"").ljust(8, b"\0"), "big")]


@pytest.mark.parametrize("length", [0, -1, 97, 2**31 - 1])
def test_inlined_bloom_filter_of_impossible_length_is_absent(length: int) -> None:
    sidecar = parse_sidecar(edited(SAMPLE, (280, "i", length)))
    assert sidecar.bloom_location(0, 1) is None
    assert sidecar.bloom_bitset(0, 1) is None


def test_header_sections_of_a_file_that_ends_too_early() -> None:
    """A name claims the last bytes of the file, and the section would follow it."""
    assert parse_sidecar(SQUASH).header.squash_tracker == 123456789012345
    for flags, missing_bytes in ((1 << 3, 2), (1, 2), (1, 6)):
        data = bytearray(edited(SQUASH, (8, "Q", flags), (64, "Q", len(SQUASH) - 2 - missing_bytes)))
        # For the bloom list: its count, 1, is there and its entry is not.
        data[-8:] = data[-8:] if missing_bytes == 2 else struct.pack("<HIH", 0, 1, 0)
        header_only = memoryview(bytes(data))
        with pytest.raises(FormatError) as caught:
            parse_header(header_only, path=None)
        assert caught.value.kind == "Truncated"


def test_what_lies_beyond_an_older_snapshot_does_not_matter_to_it() -> None:
    chain = bytearray((GOLDEN / "20_chain_3.pm").read_bytes())
    chain[500:] = bytes(len(chain) - 500)
    assert parse_sidecar(chain, sidecar_size_bytes=440).footer.seq_txn == 10


def test_newer_footer_with_an_unknown_feature_does_not_hide_an_older_snapshot() -> None:
    chain = (GOLDEN / "20_chain_3.pm").read_bytes()
    newest = parse_sidecar(chain).footer
    data = edited(chain, (newest.offset + 32, "Q", newest.feature_flags | 1 << 40))
    assert_refused(data, "InvalidValue")
    assert parse_sidecar(data, parquet_size_bytes=2308).footer.seq_txn == 10


def test_older_snapshot_that_does_not_hold_the_whole_header_is_refused_by_the_description() -> None:
    chain = (GOLDEN / "20_chain_3.pm").read_bytes()
    data = chain
    for size in (440, 644, 852):  # the first two keep their own checksums right
        data = edited(data[:size], (64, "Q", 500)) + chain[size:]
    assert parse_sidecar(data).column(1).name_offset == 500
    with pytest.raises(FormatError, match="header") as caught:
        describe_sidecar(data)
    assert caught.value.kind == "Truncated"


def test_chain_longer_than_anyone_makes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = (GOLDEN / "20_chain_3.pm").read_bytes()
    monkeypatch.setattr(sidecar_layout, "MAX_CHAIN_STEPS", 2)
    assert parse_sidecar(chain).footer.seq_txn == 12
    with pytest.raises(FormatError, match="more than 2 footers"):
        parse_sidecar(chain).chain()


def test_parquet_size_beyond_64_bits_is_refused_by_the_lookup_alone() -> None:
    data = edited(SAMPLE, (316, "Q", 2**64 - 1))
    assert parse_sidecar(data).parquet_size_bytes > 2**64
    with pytest.raises(FormatError, match="64 bits"):
        parse_sidecar(data, parquet_size_bytes=4360)


def test_foreign_annotations_are_read_from_the_first_entry_of_their_code() -> None:
    content = SidecarContent(
        columns=[ColumnSpec(name="a", type_code=5, physical_type=PhysicalType.INT32)],
        row_groups=(),
        parquet_footer_offset=4,
        parquet_footer_length=4,
        scratchpad=[
            ScratchpadEntry(1, b"another writer's"),
            ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations({0: "UINT_32"})),
            ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, b"shadowed"),
        ],
    )
    assert parse_sidecar(encode_sidecar(content)).foreign_annotations == {0: "UINT_32"}
    assert parse_sidecar(SAMPLE).foreign_annotations == {}


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_without_a_copy_and_without_writing(make: type[bytes | bytearray | memoryview]) -> None:
    buffer = make(SAMPLE)
    sidecar = parse_sidecar(buffer)
    assert sidecar.file.readonly
    assert sidecar.file.obj is (buffer.obj if isinstance(buffer, memoryview) else buffer)
    assert not sidecar.chunks(0).num_values.flags.writeable
    assert not sidecar.row_counts.flags.writeable
    assert sidecar.chunks(0) is sidecar.chunks(0)
    assert sidecar.column(0) is sidecar.columns[0]


def test_columns_that_do_not_exist_are_refused() -> None:
    sidecar = parse_sidecar(SAMPLE)
    for index in (-1, 2):
        with pytest.raises(InvalidInputError):
            sidecar.column(index)
        with pytest.raises(InvalidInputError):
            sidecar.chunks(index)
    with pytest.raises(InvalidInputError):
        sidecar.bloom_entry(0, 0)
    assert "2 columns x 1 row groups" in repr(sidecar)
