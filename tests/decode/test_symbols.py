"""Symbol chunks decode by their parts to the same strings as row by row; also where pyarrow's own shortcut goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.decode.chunk_label import ChunkLabel
from coldparquet.decode.symbols import decode_symbols
from coldparquet.errors import FormatError
from coldparquet.format.page_headers import PageType, parse_pages

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
LABEL = ChunkLabel(path="data.parquet", row_group=0, columns=("sym",))
CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}


def chunk_of(values: list[str | None], codec: Any, **options: Any) -> bytes:
    """Write one column and cut its chunk out of the file."""
    output = pa.BufferOutputStream()
    pq.write_table(pa.table({"sym": pa.array(values, pa.string())}), output, compression=codec, **options)
    content: bytes = output.getvalue().to_pybytes()
    column = pq.ParquetFile(pa.BufferReader(content)).metadata.row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    return content[start : start + column.total_compressed_size]


def decode(chunk: bytes, codec: str, row_count: int) -> Any:
    return decode_symbols(chunk, codec=CODECS[codec], row_count=row_count, max_def_level=1, label=LABEL)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["", "a", "b", "Köln", "🚀" * 9]) | st.none(), min_size=1, max_size=200),
    st.sampled_from(sorted(CODECS)),
    st.sampled_from(["1.0", "2.0"]),
)
def test_equals_the_strings_that_were_written(values: list[str | None], codec: str, page_version: str) -> None:
    chunk = chunk_of(values, codec, data_page_version=page_version, data_page_size=16, write_batch_size=8)
    decoded = decode(chunk, codec, len(values))
    if set(values) == {None}:
        assert decoded is None  # no dictionary entries: nothing to take apart
        return
    assert decoded.to_pylist() == values
    assert sorted(decoded.chunk(0).dictionary.to_pylist()) == sorted({value for value in values if value is not None})


def test_repeated_entries_keep_their_numbers(sparse_file: Any) -> None:
    """The reason for this module: a genuine dictionary with unused, hence empty and equal, entries."""
    path = next(GOLDEN.glob("symbols/table/2024-01-04.*/data.parquet"))
    content = path.read_bytes()
    repeats = False
    for path in sorted(GOLDEN.glob("symbols/table/*/data.parquet")):
        content = path.read_bytes()
        file = sparse_file(content)
        whole = pq.ParquetFile(path)
        for row_group, read in file.plan(file.names).items():
            for column, start, stop in zip(read.columns, read.piece_starts, read.piece_stops, strict=True):
                name = file.names[column]
                pages = parse_pages(content[start:stop])
                if whole.schema_arrow.field(name).type != pa.string() or pages is None:
                    continue
                codec = int(file.sidecar.chunks(column).codec[row_group])
                decoded = decode_symbols(
                    content[start:stop], codec=codec, row_count=read.row_count, max_def_level=1, label=LABEL
                )
                expected = whole.read_row_group(row_group, columns=[name])[name]
                assert decoded is not None
                assert decoded.cast(pa.string()).equals(expected)
                entries = pages[0].header.dictionary_page_header
                assert entries is not None
                repeats |= (entries.num_values or 0) > len(expected.unique()) + 1
    assert repeats, "the fixture no longer has a dictionary with unused entries"


def test_a_chunk_that_left_its_dictionary_is_not_taken_apart() -> None:
    values = [f"symbol {number}" for number in range(2000)]
    chunk = chunk_of(list(values), "none", dictionary_pagesize_limit=1024, write_batch_size=100, data_page_size=512)
    pages = parse_pages(chunk)
    assert pages is not None
    assert pages[0].header.type == PageType.DICTIONARY
    assert decode(chunk, "none", len(values)) is None


def test_plain_chunks_are_not_taken_apart() -> None:
    assert decode(chunk_of(["a", "b"], "zstd", use_dictionary=False), "zstd", 2) is None


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_cut_chunks_are_not_taken_apart(cut: int) -> None:
    assert decode(chunk_of(["a", "b"], "none")[:cut], "none", 2) is None


def test_an_index_without_entry_is_damage() -> None:
    chunk = bytearray(chunk_of(["a", "b", "a"], "none"))
    pages = parse_pages(bytes(chunk))
    assert pages is not None
    # The last byte of a small page holds its bit-packed indices; width 1 becomes width 2, and all indices 3.
    chunk[-1] = 0xFF
    chunk[-3] = 2
    with pytest.raises(FormatError, match="row group 0, column 'sym': the pages do not decode"):
        decode(bytes(chunk), "none", 3)


def test_entries_that_are_no_text_are_damage() -> None:
    chunk = chunk_of(["aaaa", "bbbb"], "none").replace(b"aaaa", b"\xff\xff\xff\xff")
    with pytest.raises(FormatError, match="Invalid UTF8"):
        decode(chunk, "none", 2)


@settings(deadline=None)
@given(st.data())
def test_damaged_chunks_decode_or_are_refused(data: st.DataObject) -> None:
    chunk = bytearray(chunk_of(["a", "b", None, "a", "c"] * 20, "none"))
    for _ in range(data.draw(st.integers(1, 3))):
        chunk[data.draw(st.integers(0, len(chunk) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(bytes(chunk), "none", 100)
    except FormatError:
        return
    if decoded is not None:
        decoded.validate(full=True)
