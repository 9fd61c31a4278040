"""Text columns as dictionary arrays: what pyarrow reads by itself is what was written, or is not taken."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldparquet.decode.arrow import DICTIONARY_TYPE
from coldparquet.decode.dictionaries import SharedDictionaries, distinct_entries, is_as_stored, without_unused_values
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.page_headers import FetchedPages
from tests.support.parquet_footers import parquet_bytes

LABEL = ChunkLabel(path="data.parquet", row_group=0, columns=("text",))

words = st.sampled_from(["", "a", "b", "Köln", "🚀" * 9, "\0\0\0\0"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)


def file_of(values: list[str | None], codec: Any = "none", **options: Any) -> bytes:
    """Write a text column between two of numbers, all in one row group."""
    table = pa.table({"n": range(len(values)), "text": pa.array(values, pa.string()), "m": [0.5] * len(values)})
    return parquet_bytes(table, compression=codec, **options)


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
    assert distinct_entries(FetchedPages(chunk_of(file_of(["a", "b", None, "a"], name))), number, row_count=4) == 2


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
    assert distinct_entries(FetchedPages(chunk_of(file_of(values, **options))), 0, row_count=len(values)) is None


def test_pages_of_another_number_of_rows_are_not_either() -> None:
    assert distinct_entries(FetchedPages(chunk_of(file_of(["a", "b"]))), 0, row_count=3) is None


def test_entries_that_repeat_are_found_out(sparse_file: Any) -> None:
    """pyarrow by itself would return other strings for the entries behind the repeated one."""
    content = with_entries(file_of(["a", "b", "c", "d", None, "c"]), [b"a", b"b", b"c", b"d"], [b"x", b"y", b"x", b"z"])
    assert distinct_entries(FetchedPages(chunk_of(content)), 0, row_count=6) == 4
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
        is_as_stored(pa.chunked_array([array]), [2], [len(array)], LABEL)


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


# --- Tables that come one after the other end up with one dictionary, in which no number ever changes its meaning -----


NONE_KNOWN = pa.array([], pa.string())


def encoded(indices: list[int | None], dictionary: list[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(dictionary, pa.string()))


def table_of(*parts: Any) -> pa.Table:
    return pa.table({"n": pa.nulls(sum(map(len, parts))), "sym": pa.chunked_array(parts, type=DICTIONARY_TYPE)})


def dictionaries_of(table: pa.Table) -> list[list[str]]:
    parts: list[Any] = table.column("sym").chunks
    return [part.dictionary.to_pylist() for part in parts]


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    dictionary = draw(st.lists(st.sampled_from(["", "a", "b", "c", "d", "e"]), unique=True, max_size=6))
    index = st.none() if not dictionary else st.none() | st.integers(0, len(dictionary) - 1)
    return encoded(draw(st.lists(index, max_size=10)), dictionary)


@given(
    st.lists(st.lists(arrays(), min_size=1, max_size=3), max_size=6),
    st.lists(st.sampled_from(["", "a", "c", "x"]), unique=True),
)
def test_values_stay_and_each_dictionary_begins_with_the_one_before(parts: list[list[Any]], known: list[str]) -> None:
    shared = SharedDictionaries({"sym": pa.array(known, pa.string())})
    before = known
    for of_table in parts:
        table = table_of(*of_table)
        result = shared.share(table)
        result.validate(full=True)
        assert result.to_pylist() == table.to_pylist()
        assert result.schema == table.schema
        [dictionary] = {tuple(dictionary) for dictionary in dictionaries_of(result)}
        assert list(dictionary[: len(before)]) == before
        assert len(set(dictionary)) == len(dictionary)
        before = list(dictionary)


def test_a_table_that_has_the_dictionary_is_not_copied() -> None:
    shared = SharedDictionaries({"sym": NONE_KNOWN})
    for table in (table_of(encoded([0, 1], ["a", "b"])), table_of(encoded([0, None, 2], ["a", "b", "c"]))):
        indices: Any = table.column("sym").chunk(0)
        result: Any = shared.share(table).column("sym").chunk(0)
        assert result.indices.buffers()[1].address == indices.indices.buffers()[1].address
    [dictionary] = dictionaries_of(shared.share(table_of(encoded([0], ["a"]))))
    assert dictionary == ["a", "b", "c"]


def test_known_strings_are_the_dictionary_of_every_table() -> None:
    known: Any = pa.array(["a", "b", "c"])
    shared = SharedDictionaries({"sym": known})
    for dictionary in (["c"], ["b", "c"], ["a"]):
        result: Any = shared.share(table_of(encoded([0], dictionary))).column("sym").chunk(0)
        assert result.dictionary.buffers()[2].address == known.buffers()[2].address
        assert result.to_pylist() == [dictionary[0]]


def test_values_that_no_row_has_are_not_taken_over() -> None:
    shared = SharedDictionaries({"sym": pa.array(["a"])})
    assert dictionaries_of(shared.share(table_of(encoded([1], ["x", "b"])))) == [["a", "b"]]


def test_columns_of_other_names_are_left_alone() -> None:
    table = table_of(encoded([0], ["b"]))
    assert SharedDictionaries({"other": NONE_KNOWN}).share(table) is table


@pytest.mark.parametrize(
    ("array", "dictionary"),
    [
        (encoded([2, None, 0], ["a", "b", "c"]), ["a", "c"]),
        (encoded([None], ["a"]), []),
        (encoded([], []), []),
        (encoded([9, 1, 1, 0], ["a", "b", *list("0123456789")]).slice(1), ["a", "b"]),
    ],
    ids=["some", "nulls", "nothing", "slice"],
)
def test_values_that_no_row_has_are_dropped(array: Any, dictionary: list[str]) -> None:
    result: Any = without_unused_values(array)
    result.validate(full=True)
    assert result.to_pylist() == array.to_pylist()
    assert result.dictionary.to_pylist() == dictionary
