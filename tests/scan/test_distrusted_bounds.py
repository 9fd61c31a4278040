"""Bounds that mean nothing: where the footer does not say how they are ordered, be they of chunks, of pages or in a `_pages`;
and those of no bytes in a sidecar."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.format import sidecar_layout
from coldparquet.format.page_headers import parse_pages
from coldparquet.format.page_index import page_index_range, parse_page_index
from coldparquet.format.pages import chunk_places
from coldparquet.format.pages_file import encode_pages_file
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.maintenance.index import index_table
from tests.support.paged_files import pages_beside, written
from tests.support.parquet_footers import ChunkIndexes, parsed_footer, with_changed_footer, with_changed_indexes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coldparquet.format.parquet_thrift import FileMetaData

ROWS = 2_000
TYPE_ORDER, TOTAL_ORDER = b"\x1c\x00\x00", b"\x2c\x00\x00"
"""A ColumnOrder that is the type's own, and IEEE 754's total order: field 2 of the union, which this version does not know."""


def without_order(file: bytes) -> bytes:
    def forget(footer: FileMetaData) -> None:
        footer.column_orders = None

    return with_changed_footer(file, forget)


def in_unknown_order(file: bytes) -> bytes:
    assert file.count(TYPE_ORDER * 2) == 1
    return file.replace(TYPE_ORDER * 2, TOTAL_ORDER * 2)


def shifted(bound: bytes) -> bytes:
    return i64(int.from_bytes(bound, "little", signed=True) + 1_000_000)


def i64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def file_of(**options: object) -> bytes:
    rows = pa.table({"ts": pa.array(np.arange(ROWS), pa.timestamp("us")), "a": np.arange(ROWS)})
    return written(rows, row_group_size=ROWS, use_dictionary=False, compression="none", **options)


def with_lying_index() -> bytes:
    """A file whose page index says of the values of ``a`` that they are a million larger than they are."""

    def shift(indexes: ChunkIndexes) -> None:
        if indexes.column == 1:
            indexes.bounds.min_values = [shifted(value) for value in indexes.bounds.min_values]
            indexes.bounds.max_values = [shifted(value) for value in indexes.bounds.max_values]

    return with_changed_indexes(file_of(write_page_index=True), shift)


def with_lying_headers() -> bytes:
    """The same of page headers; there is no page index."""
    file = file_of()
    chunk = parsed_footer(file).row_groups[0].chunks[1]
    start = chunk.data_page_offset
    content = bytearray(file[start : start + chunk.total_compressed_size])
    for page in parse_pages(bytes(content)) or ():
        data_page = page.header.data_page_header
        assert data_page is not None
        assert data_page.statistics is not None
        header = bytes(content[page.start : page.body_start])
        for bound in (data_page.statistics.min_value, data_page.statistics.max_value):
            assert bound is not None
            header = header.replace(bound, shifted(bound))
        content[page.start : page.body_start] = header
    return file[:start] + bytes(content) + file[start + len(content) :]


LYING_FILES = {"page index": with_lying_index(), "page headers": with_lying_headers()}


async def rows_where(partition: Path, where: str) -> int:
    async with cp.open_table(partition, options=cp.ReadOptions(page_index="always")) as table:
        return (await table.scan(["a"], where).to_arrow()).num_rows


def partition_of(tmp_path: Path, file: bytes) -> Path:
    partition = tmp_path / "2024-03-01"
    partition.mkdir()
    (partition / "data.parquet").write_bytes(file)
    return partition


@pytest.mark.parametrize("change", [without_order, in_unknown_order])
@pytest.mark.parametrize("lying", LYING_FILES)
@pytest.mark.parametrize("indexing", ["none", "sidecar", "pages"])
async def test_page_bounds_without_a_known_order_are_not_believed(
    tmp_path: Path, change: Callable[[bytes], bytes], lying: str, indexing: str
) -> None:
    partition = partition_of(tmp_path, change(LYING_FILES[lying]))
    if indexing != "none":
        await index_table(partition, pages=indexing == "pages")
    assert await rows_where(partition, "a >= 100 and a < 300") == 200
    assert await rows_where(partition, "a >= 1000000") == 0


@pytest.mark.parametrize("lying", LYING_FILES)
async def test_with_an_order_the_same_bounds_are_believed(tmp_path: Path, lying: str) -> None:
    """So that the tests above test something."""
    partition = partition_of(tmp_path, LYING_FILES[lying])
    await index_table(partition, pages=True)
    assert await rows_where(partition, "a >= 100 and a < 300") == 0


async def test_pages_that_an_older_version_wrote_lie_no_longer(tmp_path: Path) -> None:
    """It kept the bounds of all pages, whatever the footer said of their order."""
    partition = partition_of(tmp_path, without_order(LYING_FILES["page index"]))
    await index_table(partition, pages=True)
    file, sidecar = (partition / "data.parquet").read_bytes(), parse_sidecar((partition / "_pm").read_bytes())
    places, place = chunk_places(sidecar), page_index_range(sidecar)
    believed = replace(places, has_bounds=np.ones(2, np.bool_))
    old = parse_page_index(parsed_footer(file), file[place.start :], tail_start=place.start, places=believed).pages
    assert old is not None
    assert (old.lower.lengths == 8).all()
    (partition / "_pages").write_bytes(encode_pages_file(old, places, parquet_size_bytes=len(file)))
    assert (pages_beside(partition).lower.lengths == -1).all()
    assert await rows_where(partition, "a >= 100 and a < 300") == 200


@pytest.mark.parametrize("sides", [("min",), ("max",), ("min", "max")])
async def test_out_of_line_bounds_of_no_bytes_are_no_empty_texts(tmp_path: Path, sides: tuple[str, ...]) -> None:
    """QuestDB's own reader takes them for none (skip.rs), and its writer never writes any."""
    texts = ["", "a", "m", "z"]
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), sink)
    partition = partition_of(tmp_path, sink.getvalue())
    await index_table(partition)
    sidecar = parse_sidecar((partition / "_pm").read_bytes())
    changed = bytearray(sidecar.file)
    flags_place = sidecar.blocks.offset_of(0, 0, "stat_flags")
    for side in sides:
        shift = 0 if side == "min" else sidecar_layout.STAT_MAX_SHIFT
        changed[flags_place] |= (sidecar_layout.STAT_PRESENT | sidecar_layout.STAT_EXACT) << shift
        changed[flags_place] &= ~(sidecar_layout.STAT_INLINED << shift)
        struct.pack_into("<Q", changed, sidecar.blocks.offset_of(0, 0, side), 0)
    place = sidecar.footer.checksum_offset
    struct.pack_into("<I", changed, place, zlib.crc32(changed[sidecar_layout.CHECKSUM_START : place]))
    (partition / "_pm").write_bytes(changed)
    async with cp.open_table(partition) as table:
        for text in texts:
            assert (await table.scan(where=f"text = '{text}'").to_arrow()).to_pylist() == [{"text": text}]
        scan = table.scan()
        assert (await scan.min("text"), await scan.max("text")) == ("", "z")
        assert (await scan.to_arrow()).to_pylist() == [{"text": text} for text in texts]
