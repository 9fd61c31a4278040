"""Bounds that mean nothing: where the footer does not say how they are ordered, be they of chunks, of pages or in a `_pages`;
and those of no bytes in a sidecar.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import BudgetExceededError
from coldparquet.format import sidecar_layout
from coldparquet.format.page_headers import parse_pages
from coldparquet.format.page_index import encode_pages_file, page_index_range, parse_page_index
from coldparquet.format.pages import chunk_places
from coldparquet.format.parquet_thrift import FileMetaData
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.maintenance.index import index_table
from coldparquet.options import MIB
from coldparquet.records import replace
from tests.support.paged_files import pages_beside, written
from tests.support.parquet_footers import (
    ChunkIndexes,
    parquet_bytes,
    parsed_footer,
    with_changed_footer,
    with_changed_indexes,
)

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
        await index_table(partition, pages=indexing == "pages", pack=False)
    assert await rows_where(partition, "a >= 100 and a < 300") == 200
    assert await rows_where(partition, "a >= 1000000") == 0


@pytest.mark.parametrize("lying", LYING_FILES)
async def test_with_an_order_the_same_bounds_are_believed(tmp_path: Path, lying: str) -> None:
    """So that the tests above test something."""
    partition = partition_of(tmp_path, LYING_FILES[lying])
    await index_table(partition, pages=True, pack=False)
    assert await rows_where(partition, "a >= 100 and a < 300") == 0


async def test_pages_that_an_older_version_wrote_lie_no_longer(tmp_path: Path) -> None:
    """It kept the bounds of all pages, whatever the footer said of their order."""
    partition = partition_of(tmp_path, without_order(LYING_FILES["page index"]))
    await index_table(partition, pages=True, pack=False)
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
    partition = partition_of(tmp_path, parquet_bytes(pa.table({"text": texts})))
    await index_table(partition, pages=False, pack=False)
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


# --- Pages of few KB that stand for much more memory than a scan may take: read in small batches, or refused with
# the way out


TEXT_BYTES, BOMB_ROWS = 4_000, 400_000
"""1.6 GB of text."""

SCAN = """
import asyncio, sys
import coldparquet as cp

def memory_kib(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

async def main(url, *columns):
    async with cp.open_partition(url) as partition:
        async with partition.scan(["n"]).batches() as batches:
            async for batch in batches:
                pass
        before = memory_kib("VmRSS")
        rows = text = 0
        async with partition.scan(list(columns)).batches() as batches:
            async for batch in batches:
                rows += batch.num_rows
                text += sum(batch.column(0).slice(at, 1)[0].as_py() is not None for at in (0, batch.num_rows - 1))
                assert str(batch.schema.field(0).type) == "string"
        print(rows, (memory_kib("VmHWM") - before) // 1024)

asyncio.run(main(*sys.argv[1:]))
"""


def write(directory: Path, text: pa.Array[Any], **terms: Any) -> Path:
    directory.mkdir()
    table = pa.table({"n": pa.array(range(len(text))), "text": text})
    pq.write_table(table, directory / "data.parquet", row_group_size=len(text), **terms)
    return directory


@pytest.mark.slow
def test_a_dictionary_of_long_text_is_never_expanded_for_more_rows_than_fit(tmp_path: Path) -> None:
    entries = ["a" * TEXT_BYTES, "b" * TEXT_BYTES]
    indices = pa.array([place < BOMB_ROWS // 2 for place in range(BOMB_ROWS)]).cast(pa.int32())
    text: Any = pa.DictionaryArray.from_arrays(indices, pa.array(entries))
    partition = write(tmp_path / "p", text, compression="zstd", write_statistics=False)
    metadata = pq.read_metadata(partition / "data.parquet").row_group(0).column(1)
    assert metadata.total_compressed_size < 77_000
    done = subprocess.run(
        [sys.executable, "-c", SCAN, str(partition), "text"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows, grown_mib = map(int, done.stdout.split())
    assert rows == BOMB_ROWS
    assert grown_mib < 320, "the text is 1.6 GB; a busy machine returns freed memory late"


async def test_text_that_is_expanded_in_batches_is_the_same_text(tmp_path: Path) -> None:
    values = [None if place % 7 == 0 else f"{place % 5}" * 500 for place in range(50_000)]
    partition = write(tmp_path / "p", pa.array(values))
    options = cp.ReadOptions(memory_limit_bytes=16 * MIB, batch_rows=30_000)
    async with cp.open_partition(str(partition), options=options) as opened:
        async with opened.scan(["text", "n"], where="n >= 10 AND text != '" + "3" * 500 + "'").batches() as batches:
            found = [batch async for batch in batches]
        assert all(batch.schema.field("text").type == pa.string() for batch in found)
        assert max(batch.get_total_buffer_size() for batch in found if batch.num_rows) < 40 * MIB
        assert len(found) > 4
        expected = [
            (text, n) for n, text in enumerate(values) if n >= 10 and text is not None and not text.startswith("3")
        ]
        rows = [row for batch in found for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
        assert rows == expected
        newest = await opened.scan(["text"]).tail(3)
        assert newest.column("text").to_pylist() == values[-3:]
        assert newest.schema.field("text").type == pa.string()
        last = await opened.scan(["text"]).to_arrow()
        assert last.column("text").to_pylist() == values


async def test_a_page_that_decompresses_to_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    text: Any = pa.array(["x" * 1_000_000] * 80)
    partition = write(tmp_path / "p", text, compression="zstd", use_dictionary=False)
    assert (partition / "data.parquet").stat().st_size < 77_000
    options = cp.ReadOptions(memory_limit_bytes=64 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened:
        with pytest.raises(
            BudgetExceededError, match=r"column 'text': pages of .* decompress to 80,.*memory_limit"
        ) as raised:
            await opened.scan(["text"]).to_arrow()
        assert raised.value.kind == "MemoryLimit"
        assert (await opened.scan(["n"]).to_arrow()).num_rows == 80
    async with cp.open_partition(str(partition)) as opened:
        assert (await opened.scan(["text"]).to_arrow()).column("text").to_pylist() == text.to_pylist()


@pytest.mark.parametrize(
    ("page_version", "codec", "has_nulls"),
    [("1.0", "none", False), ("1.0", "zstd", True), ("2.0", "snappy", True), ("2.0", "none", False)],
)
async def test_text_that_repeats_most_of_the_row_before_it_is_refused(
    tmp_path: Path, page_version: Any, codec: Any, has_nulls: bool
) -> None:
    long = ["x" * 100_000 + str(place % 2) for place in range(1_500)]
    text: Any = pa.array([None if has_nulls and place % 3 == 0 else value for place, value in enumerate(long)])
    partition = write(
        tmp_path / "p",
        text,
        compression=codec,
        use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY", "n": "PLAIN"},
        data_page_version=page_version,
    )
    assert (partition / "data.parquet").stat().st_size < 220_000
    options = cp.ReadOptions(memory_limit_bytes=64 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened:
        with pytest.raises(
            BudgetExceededError, match=r"column 'text': the values of pages of .* take 1\d\d,.*memory_l"
        ):
            await opened.scan(["text"]).to_arrow()
    async with cp.open_partition(str(partition)) as opened:
        assert (await opened.scan(["text"]).to_arrow()).column("text").to_pylist() == text.to_pylist()


async def test_a_dictionary_of_long_binary_values_is_refused(tmp_path: Path) -> None:
    values: Any = pa.array([b"x" * 100_000 + bytes([place % 2]) for place in range(1_500)])
    partition = write(tmp_path / "p", values, compression="zstd", write_statistics=False)
    assert (partition / "data.parquet").stat().st_size < 220_000
    options = cp.ReadOptions(memory_limit_bytes=64 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened:
        with pytest.raises(BudgetExceededError, match=r"column 'text': the values of pages of .* take 150,.*memory_l"):
            await opened.scan(["text"]).to_arrow()
        assert (await opened.scan(["n"]).to_arrow()).num_rows == len(values)
    async with cp.open_partition(str(partition)) as opened:
        assert (await opened.scan(["text"]).to_arrow()).column("text").to_pylist() == values.to_pylist()


async def test_tail_refuses_a_row_group_whose_text_takes_far_more_than_the_limit(tmp_path: Path) -> None:
    partition = write(tmp_path / "p", pa.array(["a" * 3_000, "b" * 3_000] * 30_000), write_statistics=False)
    options = cp.ReadOptions(memory_limit_bytes=64 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened:
        with pytest.raises(BudgetExceededError, match=r"the text of a row group takes 180,000,000 bytes.*memory_limit"):
            await opened.scan(["text"], where="text != 'c'").tail(3)
        assert (await opened.scan(["text"]).tail(3)).num_rows == 3
    async with cp.open_partition(str(partition)) as opened:
        assert (await opened.scan(["text"], where="text != 'c'").tail(3)).num_rows == 3
