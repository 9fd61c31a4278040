"""Text chunks decode by their parts to the same strings as row by row; also where pyarrow's own shortcut goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.decode.dictionaries import decode_dictionary_chunk
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.page_headers import FetchedPages, Page, PageType, parse_pages
from tests.support.parquet_footers import parquet_bytes

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
LABEL = ChunkLabel(path="data.parquet", row_group=0, columns=("sym",))
CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}

words = st.sampled_from(["", "a", "b", "Köln", "🚀" * 9]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)


def chunk_of(values: list[str | None], codec: Any, **options: Any) -> bytes:
    """Write one column and cut its chunk out of the file."""
    content = parquet_bytes(pa.table({"sym": pa.array(values, pa.string())}), compression=codec, **options)
    column = pq.ParquetFile(pa.BufferReader(content)).metadata.row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    return content[start : start + column.total_compressed_size]


def decode(chunk: bytes, codec: str, row_count: int, known: list[str] | None = None) -> Any:
    return decode_dictionary_chunk(
        FetchedPages(chunk),
        codec=CODECS[codec],
        created_by=None,
        row_count=row_count,
        max_def_level=1,
        label=LABEL,
        known=None if known is None else pa.array(known, pa.string()),
        check_page_checksums=True,
    )


def pages_of(chunk: bytes) -> list[Page]:
    pages = parse_pages(chunk)
    assert pages is not None
    return pages


def occurring(values: list[str | None]) -> list[str]:
    return sorted({value for value in values if value is not None})


@given(
    st.lists(words | st.none(), min_size=1, max_size=200),
    st.sampled_from(sorted(CODECS)),
    st.sampled_from(["1.0", "2.0"]),
    st.sampled_from([1, 8, 64, 1 << 20]),
)
def test_equals_the_strings_that_were_written(
    values: list[str | None], codec: str, page_version: str, dictionary_limit: int
) -> None:
    """The smaller the limit of the dictionary, the sooner the writer goes over to plain strings."""
    chunk = chunk_of(
        values,
        codec,
        data_page_version=page_version,
        data_page_size=16,
        write_batch_size=8,
        dictionary_pagesize_limit=dictionary_limit,
    )
    decoded = decode(chunk, codec, len(values))
    if decoded is None:
        assert set(values) == {None}  # no dictionary entries: nothing to take apart
        return
    decoded.validate(full=True)
    assert decoded.to_pylist() == values
    assert all(sorted(part.dictionary.to_pylist()) == occurring(values) for part in decoded.chunks)


@pytest.mark.parametrize("page_version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_chunk_that_left_its_dictionary_gets_one(codec: str, page_version: str) -> None:
    values = [None if number % 11 == 0 else f"symbol {number % 900}" for number in range(2000)]
    chunk = chunk_of(
        values,
        codec,
        dictionary_pagesize_limit=1024,
        write_batch_size=100,
        data_page_size=512,
        data_page_version=page_version,
    )
    kinds = [page.header.type for page in pages_of(chunk)]
    assert kinds[0] == PageType.DICTIONARY
    decoded = decode(chunk, codec, len(values))
    assert decoded.to_pylist() == values
    assert decoded.num_chunks == 2, "the fixture no longer holds indices and strings"
    assert decoded.chunk(0).dictionary.equals(decoded.chunk(1).dictionary)
    assert sorted(decoded.chunk(0).dictionary.to_pylist()) == occurring(values)


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("page_version", ["1.0", "2.0"])
@pytest.mark.parametrize("known", [None, ["z", "a"]])
def test_chunks_without_dictionary_get_one(encoding: str, page_version: str, known: list[str] | None) -> None:
    values = ["a", "", None, "b", "a", None, ""]
    chunk = chunk_of(values, "zstd", use_dictionary=False, column_encoding=encoding, data_page_version=page_version)
    decoded = decode(chunk, "zstd", len(values), known)
    assert decoded.to_pylist() == values
    dictionary = decoded.chunks[-1].dictionary.to_pylist()
    assert dictionary == (["a", "", "b"] if known is None else ["z", "a", "", "b"])


def test_pages_of_a_part_of_the_rows_decode_with_the_dictionary_page() -> None:
    values = ["a", "b", None, "c"] * 25
    chunk = chunk_of(list(values), "none", write_batch_size=8, max_rows_per_page=20)
    dictionary, *data = pages_of(chunk)
    assert len(data) == 5
    some = chunk[: dictionary.stop] + chunk[data[1].start : data[1].stop] + chunk[data[3].start : data[3].stop]
    assert decode(some, "none", 40).to_pylist() == values[20:40] + values[60:80]


class TestRepeatedEntries:
    """The reason for taking chunks apart: genuine dictionaries with unused, hence empty and equal, entries."""

    def test_of_genuine_chunks_keep_their_numbers(self, sparse_file: Any) -> None:
        repeats = False
        for path in sorted(GOLDEN.glob("symbols/table/*/data.parquet")):
            content = path.read_bytes()
            file = sparse_file(content)
            whole = pq.ParquetFile(path)
            for row_group, read in file.plan(file.names).items():
                for column, start, stop in zip(read.columns, read.piece_starts, read.piece_stops, strict=True):
                    name, chunk = file.names[column], content[start:stop]
                    if whole.schema_arrow.field(name).type != pa.string():
                        continue
                    codec = int(file.sidecar.chunks(column).codec[row_group])
                    decoded: Any = decode_dictionary_chunk(
                        FetchedPages(chunk),
                        codec=codec,
                        created_by=None,
                        row_count=read.row_count,
                        max_def_level=1,
                        label=LABEL,
                        check_page_checksums=True,
                    )
                    expected = whole.read_row_group(row_group, columns=[name])[name]
                    assert decoded is not None
                    assert decoded.cast(pa.string()).equals(expected)
                    assert sorted(decoded.chunk(0).dictionary.to_pylist()) == occurring(expected.to_pylist())
                    entries = pages_of(chunk)[0].header.dictionary_page_header
                    repeats |= ((entries.num_values if entries else 0) or 0) > len(expected.unique()) + 1
        assert repeats, "the fixture no longer has a dictionary with unused entries"

    @pytest.mark.parametrize(
        ("entries", "strings", "dictionary"),
        [
            (["x", "y", "x"], ["x", "y", "x", None, "y"], ["x", "y"]),
            (["", "", "x"], ["", "", "x", None, ""], ["x", ""]),
            (["", "x", "x"], ["", "x", "x", None, "x"], ["x", ""]),
        ],
        ids=["text", "empty", "both"],
    )
    def test_that_rows_use_become_one_value(
        self, entries: list[str], strings: list[str | None], dictionary: list[str]
    ) -> None:
        chunk = with_entries(chunk_of(["a", "b", "c", None, "b"], "none"), entries)
        decoded = decode(chunk, "none", 5)
        assert decoded.to_pylist() == strings
        assert decoded.chunk(0).dictionary.to_pylist() == dictionary

    def test_that_no_row_uses_become_no_value(self) -> None:
        chunk = with_entries(chunk_of(["a", "b", None, "b"], "none"), ["x", "y", "", ""])
        assert decode(chunk, "none", 4).chunk(0).dictionary.to_pylist() == ["x", "y"]


class TestKnownStrings:
    """With the symbols of the table, indices become their keys."""

    def test_at_their_places_are_the_dictionary(self) -> None:
        chunk = with_entries(chunk_of(["a", "b", "c", None, "c"], "none"), ["x", "y", "z"])
        decoded = decode(chunk, "none", 5, ["x", "y", "z", "not here"])
        assert decoded.chunk(0).indices.to_pylist() == [0, 1, 2, None, 2]
        assert decoded.chunk(0).dictionary.to_pylist() == ["x", "y", "z", "not here"]

    def test_are_left_out_where_no_row_uses_them(self) -> None:
        """As QuestDB writes: the entries of symbols that the chunk does not use are empty."""
        pages = chunk_of(["a", "b", "c", None, "b"], "none")  # rows use the entries 0, 1, 2
        decoded = decode(with_entries(pages, ["x", "y", "z", "", ""]), "none", 5, ["x", "y", "z", "p", "q", "r"])
        assert decoded.to_pylist() == ["x", "y", "z", None, "y"]
        assert decoded.chunk(0).dictionary.to_pylist() == ["x", "y", "z", "p", "q", "r"]

    def test_an_entry_that_is_empty_and_used_is_the_empty_string(self) -> None:
        """Never the symbol that the table has at its place."""
        pages = with_entries(chunk_of(["a", "b", "c", None, "b"], "none"), ["x", "", "z"])
        decoded = decode(pages, "none", 5, ["x", "y", "z"])
        assert decoded.to_pylist() == ["x", "", "z", None, ""]
        assert decoded.chunk(0).dictionary.to_pylist() == ["x", "y", "z", ""]
        decoded = decode(pages, "none", 5, ["x", "y", "z", ""])
        assert decoded.chunk(0).indices.to_pylist() == [0, 3, 2, None, 3]

    @pytest.mark.parametrize("known", [["b", "c", "a", "d"], ["c", "x"], [], [""]])
    def test_elsewhere_are_looked_up_and_lacking_ones_appended(self, known: list[str]) -> None:
        values = ["a", "", "b", None, "c", "a"]
        decoded = decode(chunk_of(list(values), "none"), "none", 6, known)
        assert decoded.to_pylist() == values
        dictionary = decoded.chunk(0).dictionary.to_pylist()
        assert dictionary[: len(known)] == known
        assert sorted(dictionary) == sorted({*known, "a", "b", "c", ""})


def with_entries(chunk: bytes, entries: list[str]) -> bytes:
    """Replace the dictionary page of an uncompressed chunk."""
    header, stop = pages_of(chunk)[0].header, pages_of(chunk)[0].stop
    assert header.dictionary_page_header is not None
    encoded = [entry.encode() for entry in entries]
    body = b"".join(len(entry).to_bytes(4, "little") + entry for entry in encoded)
    header.uncompressed_page_size = header.compressed_page_size = len(body)
    header.dictionary_page_header.num_values = len(entries)
    return header.encode() + body + chunk[stop:]


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_cut_chunks_are_not_taken_apart(cut: int) -> None:
    assert decode(chunk_of(["a", "b"], "none")[:cut], "none", 2) is None


def test_indices_without_dictionary_page_are_not_taken_apart() -> None:
    chunk = chunk_of(["a", "b"], "none")
    assert decode(chunk[pages_of(chunk)[0].stop :], "none", 2) is None


def test_pages_of_another_number_of_rows_are_not_taken_apart() -> None:
    assert decode(chunk_of(["a", "b"], "none"), "none", 3) is None


def test_an_index_without_entry_is_damage() -> None:
    chunk = bytearray(chunk_of(["a", "b", "a"], "none"))
    # The last byte of a small page holds its bit-packed indices; width 1 becomes width 2, and all indices 3.
    chunk[-1] = 0xFF
    chunk[-3] = 2
    with pytest.raises(FormatError, match="row group 0, column 'sym': the pages do not decode"):
        decode(bytes(chunk), "none", 3)


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}], ids=["dictionary", "plain"])
def test_strings_that_are_no_text_are_damage(options: dict[str, Any]) -> None:
    chunk = chunk_of(["aaaa", "bbbb"], "none", write_statistics=False, **options)
    with pytest.raises(FormatError, match="Invalid UTF8"):
        decode(chunk.replace(b"aaaa", b"\xff\xff\xff\xff"), "none", 2)


@given(st.data(), st.sampled_from([8, 1 << 20]))
def test_damaged_chunks_decode_or_are_refused(data: st.DataObject, dictionary_limit: int) -> None:
    values = ["a", "b", None, "a", "c"] * 20
    chunk = bytearray(chunk_of(list(values), "none", dictionary_pagesize_limit=dictionary_limit, write_batch_size=50))
    for _ in range(data.draw(st.integers(1, 3))):
        chunk[data.draw(st.integers(0, len(chunk) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(bytes(chunk), "none", 100)
    except (FormatError, UnsupportedError):
        return
    if decoded is not None:
        decoded.validate(full=True)
