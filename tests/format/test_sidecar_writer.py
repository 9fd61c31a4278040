"""What the writer writes, the reader reads: random contents, and the writer's own rules one by one."""

from __future__ import annotations

import zlib
from typing import Any

import crcmod.predefined
import pytest
from hypothesis import given

from coldparquet.cli.sidecar_dump import describe_sidecar
from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format import sidecar_layout
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import convert_chunk
from coldparquet.format.sidecar_header import CoveringIndexEntry, ScratchpadEntry
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    FooterSpec,
    RowGroupSpec,
    SidecarContent,
    encode_footer,
    encode_sidecar,
)
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from tests.support.sidecar_strategies import assert_says, contents


@given(content=contents())
def test_every_content_comes_back(content: SidecarContent) -> None:
    data = encode_sidecar(content)
    sidecar = parse_sidecar(data)
    assert sidecar.size_bytes == len(data)
    assert sidecar.footer.checksum == crcmod.predefined.mkCrcFun("crc-32")(data[8:-8])
    assert_says(sidecar, content)
    assert describe_sidecar(data)["footer"]["row_group_count"] == len(content.row_groups)


COLUMN = ColumnSpec(name="a", type_code=6, physical_type=sidecar_layout.PhysicalType.INT64)
CHUNK = ChunkSpec(codec=0, encodings=1, num_values=1, byte_range_start=4, total_compressed_bytes=8)


def content(**changes: Any) -> SidecarContent:
    usual: dict[str, Any] = {
        "columns": [COLUMN, COLUMN],
        "row_groups": [RowGroupSpec(row_count=1, chunks=[CHUNK, CHUNK])],
        "parquet_footer_offset": 100,
        "parquet_footer_length": 50,
    }
    return SidecarContent(**usual | changes)


def chunk_content(**changes: Any) -> SidecarContent:
    chunk = replace(CHUNK, **changes)
    return content(row_groups=[RowGroupSpec(row_count=1, chunks=[CHUNK, chunk])])


def header_flags(content: SidecarContent) -> int:
    return parse_sidecar(encode_sidecar(content)).header.feature_flags


DESCENDING = replace(COLUMN, flags=sidecar_layout.COLUMN_DESCENDING)


@pytest.mark.parametrize(
    ("changes", "implied"),
    [
        ({"designated_timestamp": 0, "sorting_columns": [0]}, True),
        ({"designated_timestamp": 0, "sorting_columns": [0], "columns": [COLUMN, DESCENDING]}, True),
        ({"designated_timestamp": 0, "sorting_columns": [0], "columns": [DESCENDING, COLUMN]}, False),
        ({"designated_timestamp": 0, "sorting_columns": [0, 1]}, False),
        ({"designated_timestamp": 0, "sorting_columns": [1]}, False),
        ({"designated_timestamp": 0}, False),
        ({"sorting_columns": [0]}, False),
    ],
)
def test_order_by_ascending_timestamp_is_implied(changes: dict[str, Any], implied: bool) -> None:
    sidecar = parse_sidecar(encode_sidecar(content(**changes)))
    assert bool(sidecar.header.feature_flags & sidecar_layout.HEADER_SORTED_BY_TIMESTAMP) == implied
    assert list(sidecar.sorting_columns) == changes.get("sorting_columns", [])
    assert sidecar.header.sorting_column_count_raw == (0 if implied else len(sidecar.sorting_columns))


def test_minus_one_means_unset() -> None:
    assert encode_sidecar(content(squash_tracker=-1, seq_txn=-1)) == encode_sidecar(content())


def test_empty_bounds_and_bitsets_are_absent() -> None:
    empty = chunk_content(min=BoundSpec(b""), max=BoundSpec(b"", exact=False), bloom_bitset=b"")
    assert encode_sidecar(empty) == encode_sidecar(content())


def test_scratchpad_of_exactly_one_mebibyte() -> None:
    largest = ScratchpadEntry(7, bytes(sidecar_layout.MAX_SCRATCHPAD_BYTES - 4 - 8))
    data = encode_sidecar(content(scratchpad=[largest]))
    assert parse_sidecar(data).footer.scratchpad == (largest,)
    described = describe_sidecar(data)["footer"]["scratchpad"]
    assert described == [{"code": 7, "length": len(largest.content), "crc32": zlib.crc32(largest.content)}]


def test_covering_index_is_known_and_does_not_hinder_a_plain_scan() -> None:
    entry = CoveringIndexEntry(column_id=3, index_txn=9, index_metadata_bytes=640)
    sidecar = parse_sidecar(encode_sidecar(content(covering_index=[entry], seq_txn=5)))
    assert sidecar.footer.covering_index == (entry,)
    assert sidecar.footer.feature_flags == 0b101 | 1 << 32
    assert sidecar.chunks(0).byte_range_start.tolist() == [4]


@pytest.mark.parametrize("external", [False, True])
def test_filter_of_an_unlisted_column_gets_no_matrix_entry(external: bool) -> None:
    bloom: dict[str, Any] = (
        {"bloom_reference": ByteRange(10, 42)}
        if external
        else {"bloom_bitset": b"\x11" * sidecar_layout.MAX_INLINE_BYTES * 4}
    )
    listed = replace(chunk_content(**bloom), blooms_external=external)
    unlisted = replace(listed, bloom_columns=[0])
    assert parse_sidecar(encode_sidecar(listed)).bloom_columns == (1,)
    sidecar = parse_sidecar(encode_sidecar(unlisted))
    assert sidecar.bloom_columns == (0,)
    assert sidecar.bloom_location(0, 0) is None
    assert sidecar.bloom_location(0, 1) is None
    # Inlined, the bitset still takes its place in the block.
    size_difference = len(encode_sidecar(unlisted)) - len(encode_sidecar(listed))
    assert size_difference == 0


REFUSED: dict[str, SidecarContent] = {
    "too few chunks": content(row_groups=[RowGroupSpec(row_count=1, chunks=[CHUNK])]),
    "negative rows": content(row_groups=[RowGroupSpec(row_count=-1, chunks=[CHUNK, CHUNK])]),
    "designated timestamp is no column": content(designated_timestamp=2),
    "negative designated timestamp": content(designated_timestamp=-1),
    "designated timestamp without columns": content(designated_timestamp=0, columns=(), row_groups=()),
    "sorting column is no column": content(sorting_columns=[2]),
    "bloom column is no column": content(bloom_columns=[2]),
    "inline bound of 9 bytes": chunk_content(min=BoundSpec(bytes(9), place="inline")),
    "bound of 65,536 bytes": chunk_content(max=BoundSpec(bytes(65_536))),
    "count of 65 bits": chunk_content(num_values=2**64),
    "reference among inlined filters": chunk_content(bloom_reference=ByteRange(0, 32)),
    "bitset among external filters": replace(chunk_content(bloom_bitset=bytes(32)), blooms_external=True),
    "negative footer offset": content(parquet_footer_offset=-1),
    "squash tracker of 65 bits": content(squash_tracker=2**63),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_format_cannot_hold_is_refused(what: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        encode_sidecar(REFUSED[what])
    assert caught.value.kind == "InvalidValue"


def test_blocks_beyond_32_gib_are_refused() -> None:
    footer = FooterSpec(parquet_footer_offset=0, parquet_footer_length=0)
    encode_footer(footer, block_offsets=[sidecar_layout.MAX_SHIFTED_OFFSET << 3], bloom_matrix=b"", checksum_so_far=0)
    with pytest.raises(InvalidInputError) as caught:
        encode_footer(footer, block_offsets=[1 << 35], bloom_matrix=b"", checksum_so_far=0)
    assert caught.value.kind == "Alignment"


def test_footer_appended_with_the_resumed_checksum() -> None:
    """An update resumes the CRC from the stored one; dead bytes in between are covered like everything else."""
    first = encode_sidecar(content(seq_txn=1))
    opened = parse_sidecar(first).footer
    dead = b"never committed"
    footer = FooterSpec(parquet_footer_offset=200, parquet_footer_length=50, previous_size_bytes=len(first), seq_txn=2)
    resumed = zlib.crc32(first[opened.checksum_offset :] + dead, opened.checksum)
    appended = encode_footer(
        footer, block_offsets=opened.block_offsets.tolist(), bloom_matrix=b"", checksum_so_far=resumed
    )
    size = len(first) + len(dead) + len(appended)
    data = size.to_bytes(8, "little") + first[8:] + dead + appended
    assert [entry["footer"]["seq_txn"] for entry in describe_sidecar(data)["chain"]] == [2, 1]
    assert parse_sidecar(data, parquet_size_bytes=158).footer.seq_txn == 1
    assert parse_sidecar(data, parquet_size_bytes=258).footer.seq_txn == 2
    with pytest.raises(FormatError):
        parse_sidecar(data, parquet_size_bytes=999)


def test_token_only_footer_of_a_file_without_row_groups() -> None:
    first = encode_sidecar(content(row_groups=()))
    footer = FooterSpec(parquet_footer_offset=100, parquet_footer_length=50, previous_size_bytes=len(first), seq_txn=2)
    appended = encode_footer(footer, block_offsets=[], bloom_matrix=b"", checksum_so_far=zlib.crc32(first[8:]))
    data = (len(first) + len(appended)).to_bytes(8, "little") + first[8:] + appended
    assert parse_sidecar(data).footer.seq_txn == 2
    assert parse_sidecar(data, sidecar_size_bytes=len(first)).footer.seq_txn is None


def test_bounds_that_the_format_cannot_hold_are_left_out_of_conversions() -> None:
    chunk = convert_chunk(
        codec=1,
        encodings=[0, 3],
        num_values=1,
        total_compressed=10,
        dictionary_page_offset=None,
        data_page_offset=4,
        null_count=0,
        distinct_count=None,
        min_value=b"a" * 65_535,
        max_value=b"b" * 65_536,
        is_min_exact=None,
        is_max_exact=True,
    )
    assert chunk.min == BoundSpec(b"a" * 65_535)
    assert chunk.max is None
