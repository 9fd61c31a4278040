"""Files of old writers with known mistakes: read as pyarrow reads them, or refused, but never read wrongly.

Sidecars note who wrote a file. Those of older versions do not, and are asked for what they can tell.
"""

from __future__ import annotations

import decimal
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.page_headers import Page, PageType, parse_pages
from coldparquet.format.parquet_footer import WRITER_CODE
from coldparquet.format.parquet_thrift import ColumnChunk, ColumnMetaData, FileMetaData, PageHeader
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.records import replace
from tests.support.parquet_footers import parquet_bytes, parsed_footer, with_changed_chunks, with_changed_footer
from tests.support.read_pieces import read_pieces
from tests.support.table_copies import sidecar_content

# --- Files as old writers made them: bytes of pyarrow's files, changed as those writers got them wrong ----------------


ARROW_BEFORE_3 = "parquet-cpp version 1.5.1-SNAPSHOT"
PARQUET_MR_BEFORE_1_2_9 = "parquet-mr version 1.2.8 (build 23bf51c)"
_TRUE, _FALSE = 0x11, 0x12
"""Header of a boolean field whose number is one more than that of the field before it; the value is part of it."""


def created_by(file: bytes, writer: str | None) -> bytes:
    """Return the file with another writer in its footer, and nothing else changed."""

    def name(footer: FileMetaData) -> None:
        footer.created_by = writer

    return with_changed_footer(file, name)


def marked_as_not_compressed(file: bytes) -> bytes:
    """Mark all data pages, of version 2 and compressed, as not compressed, as Arrow before 3.0 did."""
    changed = bytearray(file)
    for start, pages in _chunks(file):
        for page in pages:
            if not _is_dictionary(page):
                place = start + page.start + _place_of_mark(file[start + page.start : start + page.body_start])
                changed[place] = _FALSE
    return created_by(bytes(changed), ARROW_BEFORE_3)


def without_dictionary_headers(file: bytes, writer: str = PARQUET_MR_BEFORE_1_2_9) -> bytes:
    """Leave the headers of dictionary pages out of the lengths of chunks, as parquet-mr before 1.2.9 did."""
    header_bytes = {start: pages[0].body_start for start, pages in _chunks(file) if _is_dictionary(pages[0])}
    assert header_bytes, "no chunk has a dictionary"

    def shorten(footer: FileMetaData) -> None:
        for row_group in footer.row_groups:
            for chunk in row_group.columns:
                metadata = chunk.meta_data
                assert metadata is not None
                metadata.total_compressed_size -= header_bytes.get(_start(metadata), 0)

    return created_by(with_changed_footer(file, shorten), writer)


def write_sidecar_without_writer(partition: Path) -> None:
    """Write the sidecar that versions wrote which did not note the writer of the file."""
    content = sidecar_content(partition)
    notes = [entry for entry in content.scratchpad if entry.code != WRITER_CODE]
    (partition / "_pm").write_bytes(encode_sidecar(replace(content, scratchpad=notes)))


def _chunks(file: bytes) -> list[tuple[int, list[Page]]]:
    chunks = [chunk for row_group in parsed_footer(file).row_groups for chunk in row_group.chunks]
    found = []
    for chunk in chunks:
        pages = parse_pages(file[_start(chunk) : _start(chunk) + chunk.total_compressed_size])
        assert pages
        found.append((_start(chunk), pages))
    return found


def _start(chunk: ColumnMetaData) -> int:
    return chunk.dictionary_page_offset or chunk.data_page_offset


def _is_dictionary(page: Page) -> bool:
    return page.header.type == PageType.DICTIONARY


def _place_of_mark(header: bytes) -> int:
    """Find the byte of a page header that says whether the page is compressed: with it, nothing else changes."""
    expected = PageHeader.decode(header, path=None, offset=0)
    assert expected.data_page_header_v2 is not None
    expected.data_page_header_v2.is_compressed = False
    for place, byte in enumerate(header):
        if byte == _TRUE:
            changed = header[:place] + bytes([_FALSE]) + header[place + 1 :]
            if PageHeader.decode(changed, path=None, offset=0) == expected:
                return place
    pytest.fail("a page is not of version 2, or not compressed, as it would have been then")


# --- Files of old writers with known mistakes: read as pyarrow reads them, or refused, but never read wrongly ---------
# Sidecars note who wrote a file. Those of older versions do not, and are asked for what they can tell.


ROWS = 3_000
V2: dict[str, Any] = {"data_page_version": "2.0", "data_page_size": 4_096, "write_batch_size": 100}
DICTIONARIES = ["text", "long"]


def rows_of_all_kinds() -> pa.Table:
    number = np.arange(ROWS)
    return pa.table(
        {
            "number": pa.array(number),
            "nullable": pa.array(number * 0.5, mask=number % 3 == 0),
            "text": pa.array([f"text {index % 8}" for index in range(ROWS)]),
            "long": pa.array([f"{index % 8}" * 99 for index in range(ROWS)]),
            "list": pa.array([[index / 2] * (index % 4) for index in range(ROWS)]),
        }
    )


def written(table: pa.Table | None = None, **options: Any) -> bytes:
    table = rows_of_all_kinds() if table is None else table
    standard: dict[str, Any] = {
        "compression": "snappy",
        "row_group_size": 1_000,
        "use_dictionary": DICTIONARIES,
        "write_page_index": True,
    }
    return parquet_bytes(table, **(standard | options))


def partition_of(directory: Path, file: bytes) -> Path:
    partition = directory / "t" / "2024-03-01"
    partition.mkdir(parents=True)
    (partition / "data.parquet").write_bytes(file)
    return partition


def as_pyarrow_reads(file: bytes) -> list[dict[str, Any]]:
    return pq.read_table(io.BytesIO(file)).to_pylist()


async def rows_of(partition: Path, where: str | None = None, **options: Any) -> list[dict[str, Any]]:
    async with cp.open_table(partition.parent, options=cp.ReadOptions(**options)) as table:
        return (await table.scan(where=where).to_arrow()).to_pylist()


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "brotli", "lz4"])
@pytest.mark.parametrize("use_dictionary", [DICTIONARIES, False])
async def test_compressed_pages_that_arrow_before_3_marked_otherwise(
    tmp_path: Path, compression: str, use_dictionary: Any
) -> None:
    file = marked_as_not_compressed(written(compression=compression, use_dictionary=use_dictionary, **V2))
    expected = as_pyarrow_reads(file)
    assert expected == rows_of_all_kinds().to_pylist()
    partition = partition_of(tmp_path, file)
    assert await rows_of(partition) == expected
    await index_table(partition.parent, pages=True, pack=False)
    assert await rows_of(partition) == expected
    assert await rows_of(partition, strings="dictionary") == expected
    few = [row for row in expected if 700 <= row["number"] < 900]
    for options in ({"page_index": "always"}, {"strings": "dictionary"}, {"page_index": "never"}):
        assert await rows_of(partition, "number >= 700 and number < 900", **options) == few


async def test_the_writer_is_in_the_catalogue_and_in_pieces(tmp_path: Path) -> None:
    file = marked_as_not_compressed(written(**V2))
    partition = partition_of(tmp_path, file)
    await index_table(partition.parent, pages=False, pack=False)
    await pack_table(partition.parent)
    async with cp.open_table(partition.parent) as table:
        pieces = await table.scan(["text", "number"], "number < 1500").pieces(2)
        found = await read_pieces(pieces)
    (partition / "_pm").unlink()
    expected = as_pyarrow_reads(file)
    assert found.to_pylist() == [{"text": row["text"], "number": row["number"]} for row in expected[:1500]]
    assert await rows_of(partition) == expected


async def test_an_old_sidecar_of_such_a_file_is_refused(tmp_path: Path) -> None:
    file = marked_as_not_compressed(written(**V2))
    partition = partition_of(tmp_path, file)
    write_sidecar_without_writer(partition)
    with pytest.raises(UnsupportedError, match="index --force") as caught:
        await rows_of(partition)
    assert caught.value.kind == "UnknownWriter"
    [checked] = (await verify_table(partition.parent)).partitions
    assert [finding.kind for finding in checked.findings if finding.field == "created_by"] == ["WriterNotNoted"]
    await index_table(partition.parent, force=True, pages=False, pack=False)
    assert await rows_of(partition) == as_pyarrow_reads(file)
    [checked] = (await verify_table(partition.parent)).partitions
    assert not [finding.kind for finding in checked.findings if finding.field == "created_by"]


async def test_compressed_pages_that_are_as_long_as_before_are_refused(tmp_path: Path) -> None:
    """Their lengths do not tell them, but they decompress."""
    random = np.random.default_rng(3)
    tried = (random.integers(0, 64, 56, np.uint8).tobytes() for _ in range(1_000))
    values = next(values for values in tried if len(_compressed(values)) == len(values))
    table = pa.table(
        {"a": pa.array(np.frombuffer(values, np.int64))}, pa.schema([pa.field("a", pa.int64(), nullable=False)])
    )
    file = written(table, compression="brotli", use_dictionary=False, data_page_version="2.0")
    assert file.count(values) == 1, "the page is not stored as it is"
    file = created_by(file.replace(values, _compressed(values)), ARROW_BEFORE_3)
    assert pq.read_table(io.BytesIO(file)).equals(table)
    partition = partition_of(tmp_path, file)
    assert await rows_of(partition) == table.to_pylist()
    write_sidecar_without_writer(partition)
    with pytest.raises(UnsupportedError):
        await rows_of(partition)


def _compressed(values: bytes) -> bytes:
    return pa.compress(values, "brotli", asbytes=True)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "brotli", "lz4", "none"])
async def test_old_sidecars_of_other_files_are_read_as_before(tmp_path: Path, version: str, compression: str) -> None:
    """Among them pages that are marked as not compressed because they are not: they would only have grown."""
    table = rows_of_all_kinds().append_column(
        "random", pa.array(np.random.default_rng(7).integers(-(2**63), 2**63, ROWS))
    )
    file = written(table, compression=compression, data_page_version=version, use_dictionary=False)
    partition = partition_of(tmp_path, file)
    write_sidecar_without_writer(partition)
    assert await rows_of(partition) == as_pyarrow_reads(file) == table.to_pylist()


@pytest.mark.parametrize("writer", ["parquet-mr", PARQUET_MR_BEFORE_1_2_9])
@pytest.mark.parametrize("indexing", ["none", "sidecar", "pages"])
async def test_chunks_without_the_headers_of_their_dictionaries(tmp_path: Path, writer: str, indexing: str) -> None:
    file = without_dictionary_headers(written(write_page_index=False), writer)
    partition = partition_of(tmp_path, file)
    if indexing != "none":
        report = await index_table(partition.parent, pages=indexing == "pages", pack=False)
        assert report.count("written") == 1
        assert report.count_pages("written") == (indexing == "pages")
    expected = as_pyarrow_reads(file)
    assert expected == rows_of_all_kinds().to_pylist()
    assert await rows_of(partition) == expected
    assert await rows_of(partition, "number = 2999", page_index="always") == expected[-1:]
    assert (await verify_table(partition.parent, deep=True)).count("error") == 0


async def test_of_other_writers_such_chunks_are_damaged(tmp_path: Path) -> None:
    file = without_dictionary_headers(written(write_page_index=False), "parquet-mr version 1.2.9 (build x)")
    with pytest.raises(FormatError):
        await rows_of(partition_of(tmp_path, file))


DECIMALS = [decimal.Decimal(cents) / 100 for cents in (1, 128, 256)]


def in_the_order_of_arrow_before_4(file: bytes) -> bytes:
    """Bound decimals as if all of their bytes were signed numbers: 0x0080 comes before 0x0001."""
    order = sorted((int(value * 100).to_bytes(4, "big") for value in DECIMALS), key=_signed_bytes)

    def bound(chunk: ColumnChunk) -> None:
        assert chunk.meta_data is not None
        assert chunk.meta_data.statistics is not None
        chunk.meta_data.statistics.min_value, chunk.meta_data.statistics.max_value = order[0], order[-1]

    return with_changed_chunks(file, bound)


def _signed_bytes(value: bytes) -> tuple[int, ...]:
    return tuple(byte - 256 if byte > 127 else byte for byte in value)


def decimals_of_arrow_before_4(writer: str) -> bytes:
    rows = pa.table({"price": pa.array(DECIMALS, pa.decimal128(9, 2))})
    return created_by(in_the_order_of_arrow_before_4(written(rows, write_page_index=False)), writer)


@pytest.mark.parametrize("writer", [ARROW_BEFORE_3, "parquet-cpp-arrow version 3.0.0"])
@pytest.mark.parametrize("indexing", ["none", "sidecar", "old sidecar"])
async def test_bounds_of_decimals_that_arrow_before_4_misordered(tmp_path: Path, writer: str, indexing: str) -> None:
    file = decimals_of_arrow_before_4(writer)
    partition = partition_of(tmp_path, file)
    if indexing == "sidecar":
        await index_table(partition.parent, pages=False, pack=False)
    elif indexing == "old sidecar":
        believed = partition_of(tmp_path / "new", decimals_of_arrow_before_4("parquet-cpp-arrow version 4.0.0"))
        content, place = sidecar_content(believed), sidecar_content(partition)
        assert content.row_groups[0].chunks[0].min is not None
        assert place.row_groups[0].chunks[0].min is None
        old = replace(content, scratchpad=(), parquet_footer_length=place.parquet_footer_length)
        (partition / "_pm").write_bytes(encode_sidecar(old))
    assert await rows_of(partition, "price = 0.01") == [{"price": DECIMALS[0]}]
    assert await rows_of(partition, "price < 1") == [{"price": DECIMALS[0]}]
    async with cp.open_table(partition.parent) as table:
        assert await table.scan().min("price") == DECIMALS[0]


async def test_a_sidecar_that_names_another_writer_is_of_another_file(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, created_by(written(), "writer 1"))
    await index_table(partition.parent, pages=False, pack=False)
    (partition / "data.parquet").write_bytes(created_by(written(), "writer 2"))
    [checked] = (await verify_table(partition.parent)).partitions
    [finding] = [finding for finding in checked.findings if finding.severity == "error"]
    assert (finding.kind, finding.field) == ("SidecarDiffers", "created_by")
