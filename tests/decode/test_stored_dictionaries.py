"""Text columns as dictionary arrays: what pyarrow reads by itself is what was written, or is not taken."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldparquet.decode.dictionaries import distinct_entries, is_as_stored
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import FormatError, UnsupportedError

LABEL = ChunkLabel(path="data.parquet", row_group=0, columns=("text",))

words = st.sampled_from(["", "a", "b", "Köln", "🚀" * 9, "\0\0\0\0"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)


def file_of(values: list[str | None], codec: Any = "none", **options: Any) -> bytes:
    """Write a text column between two of numbers, all in one row group."""
    output = pa.BufferOutputStream()
    table = pa.table({"n": range(len(values)), "text": pa.array(values, pa.string()), "m": [0.5] * len(values)})
    pq.write_table(table, output, compression=codec, **options)
    content: bytes = output.getvalue().to_pybytes()
    return content


def chunk_of(content: bytes) -> bytes:
    column = pq.ParquetFile(pa.BufferReader(content)).metadata.row_group(0).column(1)
    start = column.dictionary_page_offset or column.data_page_offset
    return content[start : start + column.total_compressed_size]


def decode(sparse_file: Any, content: bytes, damaged: bytes | None = None) -> Any:
    file = sparse_file(content)
    [read] = file.plan(["n", "text", "m"]).values()
    return file.decode(read, ["n", "text", "m"], strings="dictionary", content=damaged)


def with_entries(content: bytes, before: list[bytes], after: list[bytes]) -> bytes:
    """Replace the entries of the dictionary by others of the same lengths."""
    old, new = (b"".join(len(entry).to_bytes(4, "little") + entry for entry in entries) for entries in (before, after))
    assert (content.count(old), len(old)) == (1, len(new))
    return content.replace(old, new)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(words | st.none(), min_size=1, max_size=200),
    st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4"]),
    st.sampled_from(["1.0", "2.0"]),
    st.sampled_from([8, 64, 1 << 20]),
)
def test_columns_beside_each_other_equal_what_was_written(
    sparse_file: Any, values: list[str | None], codec: str, page_version: str, dictionary_limit: int
) -> None:
    content = file_of(
        values,
        codec,
        data_page_version=page_version,
        data_page_size=16,
        write_batch_size=8,
        dictionary_pagesize_limit=dictionary_limit,
    )
    decoded = decode(sparse_file, content)
    decoded.validate(full=True)
    assert decoded["text"].to_pylist() == values
    assert decoded["n"].to_pylist() == list(range(len(values)))
    written = sorted({value for value in values if value is not None})
    assert all(sorted(part.dictionary.to_pylist()) == written for part in decoded["text"].chunks)


@pytest.mark.parametrize("codec", [("none", 0), ("zstd", 6)])
def test_distinct_entries_that_are_not_empty_are_left_to_pyarrow(codec: tuple[str, int]) -> None:
    name, number = codec
    assert distinct_entries(chunk_of(file_of(["a", "b", None, "a"], name)), number, row_count=4) == 2


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (["a", "", "b"], {}),
        (["a", "b"] * 50 + ["c"] * 50, {"dictionary_pagesize_limit": 4, "write_batch_size": 10}),
        (["a", "b"], {"use_dictionary": False}),
    ],
    ids=["an empty entry", "strings behind the indices", "no dictionary"],
)
def test_other_chunks_are_not(values: list[str | None], options: dict[str, Any]) -> None:
    assert distinct_entries(chunk_of(file_of(values, **options)), 0, row_count=len(values)) is None


def test_pages_of_another_number_of_rows_are_not_either() -> None:
    assert distinct_entries(chunk_of(file_of(["a", "b"])), 0, row_count=3) is None


def test_entries_that_repeat_are_found_out(sparse_file: Any) -> None:
    """pyarrow by itself would return other strings for the entries behind the repeated one."""
    content = with_entries(file_of(["a", "b", "c", "d", None, "c"]), [b"a", b"b", b"c", b"d"], [b"x", b"y", b"x", b"z"])
    assert distinct_entries(chunk_of(content), 0, row_count=6) == 4
    assert decode(sparse_file, content)["text"].to_pylist() == ["x", "y", "x", "z", None, "x"]


def test_text_that_is_not_utf_8_is_damage(sparse_file: Any) -> None:
    content = with_entries(file_of(["aa", "bb"], write_statistics=False), [b"aa", b"bb"], [b"aa", b"\xff\xff"])
    with pytest.raises(FormatError, match=r"column 'text': .*Invalid UTF8"):
        decode(sparse_file, content)


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_without_entry_is_damage(index: int) -> None:
    indices = pa.array([0, index, None], pa.int32())
    array: Any = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    with pytest.raises(FormatError, match=r"column 'text': .* out of bounds: .*should be in \[0, 1\]"):
        is_as_stored(pa.chunked_array([array]), 2, LABEL)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_chunks_decode_or_are_refused(sparse_file: Any, data: st.DataObject) -> None:
    content = file_of(["a", "b", None, "a", "c"] * 20, write_batch_size=50)
    start = content.index(chunk_of(content))
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[start + data.draw(st.integers(0, len(chunk_of(content)) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(sparse_file, content, bytes(damaged))
    except (FormatError, UnsupportedError):
        return
    decoded.validate(full=True)
    assert decoded["n"].to_pylist() == list(range(100))
