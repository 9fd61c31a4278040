"""Some pages of some columns decode to exactly the rows that are selected; pyarrow reads the whole file for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InternalError
from coldparquet.format.page_headers import PageType
from coldparquet.format.page_index import parse_page_index
from coldparquet.format.pages import PartitionPages, chunk_places
from coldparquet.format.parquet_thrift import DataPageHeader, PageHeader
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_layout import Encoding
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import canonical_type
from coldparquet.plan.model import Read
from coldparquet.plan.selection import RowSelection
from coldparquet.records import replace
from tests.decode.conftest import SparseFile
from tests.support.parquet_footers import parquet_bytes
from tests.support.questdb_tables import plain
from tests.support.row_outcomes import selection_of

ROWS = 600
FIELDS: list[pa.Field[Any]] = [
    pa.field("whole", pa.int64()),
    pa.field("row", pa.int32(), nullable=False),
    pa.field("ratio", pa.float64()),
    pa.field("flag", pa.bool_()),
    pa.field("word", pa.string()),
    pa.field("text", pa.string()),
    pa.field("id", pa.binary(16)),
    pa.field("money", pa.decimal128(25, 2)),
    pa.field("at", pa.timestamp("us", tz="UTC")),
    pa.field("list", pa.list_(pa.float64())),
    pa.field("matrix", pa.list_(pa.list_(pa.float64()))),
]


def values(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    some_null = random.random(ROWS) < 0.2
    words = np.array(["", "a", "bb", "a longer text", "é🚀"])

    def lists(depth: int) -> list[Any]:
        if depth == 0:
            return [float(number) for number in random.integers(0, 9, random.integers(0, 4))]
        return [lists(depth - 1) for _ in range(random.integers(0, 3))]

    return pa.table(
        {
            "whole": pa.array(random.integers(-9, 9, ROWS), mask=some_null),
            "row": pa.array(np.arange(ROWS, dtype=np.int32)),
            "ratio": pa.array(random.random(ROWS)),
            "flag": pa.array(random.random(ROWS) < 0.5, mask=some_null),
            "word": pa.array(words[random.integers(0, len(words), ROWS)], mask=some_null),
            "text": pa.array([f"row {row} {'x' * (row % 30)}" for row in range(ROWS)]),
            "id": pa.array([random.bytes(16) for _ in range(ROWS)], pa.binary(16)),
            "money": pa.array(random.integers(-(10**9), 10**9, ROWS))
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(25, 2)),
            "at": pa.array(random.integers(0, 10**15, ROWS), pa.timestamp("us", tz="UTC"), mask=some_null),
            "list": pa.array([None if row % 7 == 3 else lists(0) for row in range(ROWS)], pa.list_(pa.float64())),
            "matrix": pa.array(
                [None if row % 5 == 1 else lists(1) for row in range(ROWS)], pa.list_(pa.list_(pa.float64()))
            ),
        },
        schema=pa.schema(FIELDS),
    )


def written(table: pa.Table, **options: Any) -> bytes:
    return parquet_bytes(table, **{"write_page_index": True, "row_group_size": ROWS} | options)


def pages_of(file: SparseFile) -> PartitionPages | None:
    found = parse_page_index(file.footer(), file.content, tail_start=0, places=chunk_places(file.sidecar))
    return found.pages


def cut(read: Read, pages: PartitionPages | None, selection: RowSelection, whole: Sequence[int] = ()) -> Read:
    """Keep the pages that hold selected rows, but all pages of the columns ``whole``; runs of pages are one piece."""
    assert pages is not None
    columns, column_rows, pieces = [], [], []
    for position, column in enumerate(read.columns):
        rows = None
        ranges = [(int(read.piece_starts[position]), int(read.piece_stops[position]))]
        chunk = read.row_group * pages.column_count + column
        of_chunk = slice(pages.first_page[chunk], pages.first_page[chunk + 1])
        # pyarrow may write two last pages of lists that begin at the same row: such an index is not used.
        if column not in whole and of_chunk.start < of_chunk.stop:
            starts = pages.first_rows[of_chunk]
            stops = np.append(starts[1:], read.row_group_rows)
            kept = selection.overlaps(starts, stops)
            rows = RowSelection.of_ranges(starts[kept], stops[kept])
            places = np.append(pages.dictionary_starts[chunk], pages.starts[of_chunk][kept])
            ends = np.append(pages.dictionary_stops[chunk], pages.stops[of_chunk][kept])
            ranges = joined(places.tolist(), ends.tolist())
        columns.append(column)
        column_rows.append(rows)
        pieces += [(position, start, stop) for start, stop in ranges]
    piece_columns, piece_starts, piece_stops = np.array(pieces, dtype=np.int64).T
    return replace(
        read,
        selection=selection,
        column_rows=tuple(column_rows),
        piece_columns=piece_columns,
        piece_starts=piece_starts,
        piece_stops=piece_stops,
    )


def joined(starts: list[int], stops: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for start, stop in zip(starts, stops, strict=True):
        if start == stop:
            continue
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))
    return ranges


def rows_of(table: pa.Table, selection: RowSelection) -> list[dict[str, Any]]:
    rows = [row for start, stop in zip(selection.starts, selection.stops, strict=True) for row in range(start, stop)]
    result: list[dict[str, Any]] = table.take(rows).to_pylist()
    return result


@cache
def sample(seed: int) -> pa.Table:
    return values(seed)


SELECTIONS = st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(1, 200)), min_size=1, max_size=6).map(
    lambda spans: selection_of(
        np.logical_or.reduce([(np.arange(ROWS) >= at) & (np.arange(ROWS) < at + length) for at, length in spans])
    )
)


FILE_OPTIONS = st.fixed_dictionaries(
    {
        "data_page_size": st.sampled_from([1, 100, 700, 5000]),
        "write_batch_size": st.sampled_from([3, 17, 100]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "compression": st.sampled_from(["none", "snappy", "zstd", "lz4", "gzip"]),
        "use_dictionary": st.booleans(),
        "dictionary_pagesize_limit": st.sampled_from([1 << 20, 40]),
    }
)


READS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 3),
        "options": FILE_OPTIONS,
        "selection": SELECTIONS,
        "whole": st.lists(st.integers(0, 10), max_size=3),
        "strings": st.sampled_from(["string", "dictionary"]),
    }
)


@settings(max_examples=20)
@given(READS)
def test_selected_rows_equal_those_of_the_whole_file(read: dict[str, Any]) -> None:
    check_selected_rows(**read)


@pytest.mark.soak
@settings(max_examples=2000)
@given(READS)
def test_selected_rows_of_many_files_equal_those_of_the_whole_file(read: dict[str, Any]) -> None:
    check_selected_rows(**read)


def check_selected_rows(
    *, seed: int, options: dict[str, Any], selection: RowSelection, whole: list[int], strings: Any
) -> None:
    table = sample(seed)
    file = SparseFile(written(table, **options))
    read = cut(file.plan(file.names)[0], pages_of(file), selection, whole)
    decoded = file.decode(read, file.names, strings=strings)
    assert decoded.num_rows == read.row_count == selection.row_count
    decoded.validate(full=True)
    assert decoded.to_pylist() == rows_of(table, selection)


def test_rows_of_golden_partitions(golden_partition: Any, sparse_file: Any) -> None:
    file = sparse_file(golden_partition.file.read_bytes())
    pages = pages_of(file)
    for read in file.plan(file.names).values():
        rows = read.row_group_rows
        selection = RowSelection.of_ranges(np.array([rows // 4, rows - rows // 8]), np.array([rows // 2, rows]))
        if pages is None or not selection.row_count:
            continue
        everything = file.decode(read, file.names)
        starts, lengths = selection.starts.tolist(), (selection.stops - selection.starts).tolist()
        expected = pa.concat_tables(map(everything.slice, starts, lengths))
        decoded = file.decode(cut(read, pages, selection), file.names)
        assert decoded.schema == expected.schema
        # By representation, in which NaN equals NaN.
        assert repr(decoded.to_pylist()) == repr(expected.to_pylist())


@settings(max_examples=15)
@given(SELECTIONS, st.sampled_from(["1.0", "2.0"]))
def test_encodings_of_single_columns(selection: RowSelection, version: Any) -> None:
    table = sample(0).select(["whole", "row", "ratio", "text", "id"])
    encodings: Any = {
        "whole": "DELTA_BINARY_PACKED",
        "row": "BYTE_STREAM_SPLIT",
        "ratio": "BYTE_STREAM_SPLIT",
        "text": "DELTA_BYTE_ARRAY",
        "id": "PLAIN",
    }
    content = written(
        table,
        use_dictionary=False,
        column_encoding=encodings,
        data_page_version=version,
        data_page_size=400,
        write_batch_size=20,
    )
    file = SparseFile(content)
    read = cut(file.plan(file.names)[0], pages_of(file), selection)
    assert file.decode(read, file.names, strings="dictionary").to_pylist() == rows_of(table, selection)


def test_int96(sparse_file: Any) -> None:
    table = pa.table({"t": pa.array(range(1000), pa.timestamp("ns")), "n": range(1000)})
    file = sparse_file(
        written(
            table, row_group_size=1000, use_deprecated_int96_timestamps=True, data_page_size=300, write_batch_size=10
        )
    )
    selection = RowSelection.of_ranges(np.array([15, 990]), np.array([32, 1000]))
    read = cut(file.plan(file.names)[0], pages_of(file), selection)
    assert file.decode(read, file.names).to_pylist() == rows_of(table, selection)


def test_whole_chunks_with_a_selection(sparse_file: Any) -> None:
    file = sparse_file(written(sample(0)))
    selection = RowSelection.of_ranges(np.array([1, 300]), np.array([2, 599]))
    read = replace(file.plan(file.names)[0], selection=selection)
    assert file.decode(read, file.names).to_pylist() == rows_of(sample(0), selection)


def test_columns_with_the_same_rows_share_a_file(sparse_file: Any) -> None:
    table = pa.table({"a": range(1000), "b": range(1000), "c": [0.5] * 1000})
    file = sparse_file(written(table, row_group_size=1000, max_rows_per_page=100, use_dictionary=False))
    pages = pages_of(file)
    selection = RowSelection.of_ranges(np.array([150, 850]), np.array([160, 860]))
    read = cut(file.plan(["a", "b", "c"])[0], pages, selection, whole=[1])
    assert read.bytes_wanted < sum(map(len, (file.content,))) / 2
    buffer = file.fill(read)
    columns_and_rows = [
        ([column.position for column in held.columns], None if held.rows is None else held.rows.row_count)
        for held in buffer.files
    ]
    assert columns_and_rows == [([0, 2], 200), ([1], None)]
    # The files end one behind the other, and share the pages in front of them.
    first, second = buffer.parquet_file(0), buffer.parquet_file(1)
    assert second.size > first.size
    assert first.address == second.address
    assert file.decode(read, ["c", "b", "a"]).to_pylist() == [
        {"c": 0.5, "b": row, "a": row} for row in [*range(150, 160), *range(850, 860)]
    ]


def test_rows_that_make_up_most_of_the_pages_are_not_copied(sparse_file: Any) -> None:
    table = pa.table({"n": pa.array(range(100_000), pa.int64())})
    file = sparse_file(written(table, row_group_size=100_000, use_dictionary=False))
    read = file.plan(["n"])[0]
    most = file.decode(replace(read, selection=RowSelection.of_range(1, 99_999)), ["n"])["n"]
    assert most.chunk(0).offset == 1
    few = file.decode(replace(read, selection=RowSelection.of_range(1, 1000)), ["n"])["n"]
    assert few.get_total_buffer_size() < 10_000, "the other rows would stay in memory"
    scattered = selection_of(np.arange(100_000) % 3 > 0)
    many = file.decode(replace(read, selection=scattered), ["n"])["n"]
    assert many.num_chunks == 1, "one slice for each of 33,333 ranges is slower than a copy"
    assert many.to_pylist() == [row for row in range(100_000) if row % 3]


def test_rows_that_were_not_fetched_cannot_be_selected(sparse_file: Any) -> None:
    file = sparse_file(written(sample(0), max_rows_per_page=50, write_batch_size=10))
    read = cut(file.plan(["row"])[0], pages_of(file), RowSelection.of_range(100, 110))
    for selection in (RowSelection.of_range(100, 200), None):
        with pytest.raises(InternalError, match="fetched"):
            file.decode(replace(read, selection=selection), ["row"])


def test_few_rows_of_many_pages_are_one_chunk(sparse_file: Any) -> None:
    file = sparse_file(written(sample(0), max_rows_per_page=50, write_batch_size=10))
    starts = np.arange(0, ROWS, 100)
    read = cut(file.plan(file.names)[0], pages_of(file), RowSelection.of_ranges(starts, starts + 2))
    decoded = file.decode(read, file.names, strings="dictionary")
    assert {column.num_chunks for column in decoded.columns} == {1}


def lying(file: SparseFile, name: str, selection: RowSelection, shift: int) -> Read:
    """Cut a column by an index that says of every page but the first that it begins ``shift`` rows earlier."""
    pages = pages_of(file)
    assert pages is not None
    wrong = replace(pages, first_rows=np.where(pages.first_rows > 0, pages.first_rows - shift, 0))
    return cut(file.plan([name])[0], wrong, selection)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("name", ["row", "list", "word"])
@pytest.mark.parametrize("selection", [(0, 5), (250, 260), (0, 5, 250, 260), (0, 5, 595, 600)])
@pytest.mark.parametrize("strings", ["string", "dictionary"])
def test_an_index_that_is_wrong_about_rows_is_an_error(
    name: str, version: Any, selection: tuple[int, ...], strings: Any
) -> None:
    file = SparseFile(written(sample(0), data_page_version=version, max_rows_per_page=50, write_batch_size=10))
    rows = RowSelection.of_ranges(np.array(selection[::2]), np.array(selection[1::2]))
    assert file.decode(lying(file, name, rows, 0), [name]).to_pylist() == rows_of(sample(0).select([name]), rows)
    # Of (250, 260) every page still has 50 rows: which ones, no page can tell.
    if selection == (250, 260):
        return
    with pytest.raises(FormatError, match=rf"row group 0, column '{name}': .*expected .*page_index='never'"):
        file.decode(lying(file, name, rows, 3), [name], strings=strings)


def test_pages_of_other_lengths_whose_sum_is_right_are_an_error() -> None:
    column = pa.array([[float(row)] for row in range(400)])
    file = SparseFile(written(pa.table({"list": column, "n": range(400)}), max_rows_per_page=100, use_dictionary=False))
    pages = pages_of(file)
    assert pages is not None
    assert pages.first_rows.tolist() == [0, 100, 200, 300] * 2
    selection = RowSelection.of_ranges(np.array([20, 320]), np.array([21, 321]))
    # 90 rows are promised by the first page, 110 by the last one.
    wrong = replace(pages, first_rows=np.array([0, 90, 200, 290] * 2))
    for name in ("list", "n"):
        with pytest.raises(FormatError, match="200 rows, expected 200 in 2 ranges"):
            file.decode(cut(file.plan([name])[0], wrong, selection), [name])


def test_lists_that_begin_in_the_middle_of_a_row_are_an_error(sparse_file: Any) -> None:
    file = sparse_file(written(pa.table({"list": [[1.0]]}), compression="none"))
    # Repetition levels 1, 1, 0, 1: the rest of a row, and a row of two elements; then definition levels, all 3.
    levels = b"\2\0\0\0\3\x0b" + b"\2\0\0\0\x08\3"
    body = levels + np.arange(4.0).tobytes()
    header = PageHeader(
        type=PageType.DATA,
        uncompressed_page_size=len(body),
        compressed_page_size=len(body),
        data_page_header=DataPageHeader(
            num_values=4,
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    page = header.encode() + body
    rows = RowSelection.of_range(1, 2)
    read = replace(
        file.plan(["list"])[0],
        row_group_rows=2,
        selection=rows,
        column_rows=(rows,),
        piece_starts=np.array([0]),
        piece_stops=np.array([len(page)]),
    )
    with pytest.raises(FormatError, match=r"row group 0, column 'list': .*at the start of a record"):
        file.decode(read, ["list"], content=page)


def test_pieces_that_are_not_pages_are_an_error(sparse_file: Any) -> None:
    table = pa.table({"n": range(1000), "list": [[1.0]] * 1000})
    file = sparse_file(written(table, row_group_size=1000, max_rows_per_page=100, use_dictionary=False))
    selection = RowSelection.of_range(150, 160)
    for name in ("n", "list"):
        read = cut(file.plan([name])[0], pages_of(file), selection)
        for start, stop in ((1, 0), (0, 1), (0, -1)):
            moved = replace(read, piece_starts=read.piece_starts + start, piece_stops=read.piece_stops + stop)
            with pytest.raises(FormatError, match=f"row group 0, column '{name}': "):
                file.decode(moved, [name])


# --- Chunks whose statistics prove that every row holds one value are made; the rows are those of the file all the
# same


CONSTANT_ROWS = 100

CONSTANTS: dict[str, Any] = {
    "long": pa.array([-(2**63)] * CONSTANT_ROWS, pa.int64()),
    "int": pa.array([-7] * CONSTANT_ROWS, pa.int32()),
    "short": pa.array([-3] * CONSTANT_ROWS, pa.int16()),
    "byte": pa.array([127] * CONSTANT_ROWS, pa.int8()),
    "day": pa.array([date(1969, 12, 31)] * CONSTANT_ROWS),
    "ms": pa.array([-1] * CONSTANT_ROWS, pa.timestamp("ms", tz="UTC")),
    "us": pa.array([1] * CONSTANT_ROWS, pa.timestamp("us")),
    "clock": pa.array([5] * CONSTANT_ROWS, pa.time64("ns")),
    "text": pa.array(["é🚀ab"] * CONSTANT_ROWS),
    "blob": pa.array([b"\0\xff"] * CONSTANT_ROWS, pa.binary()),
    "id": pa.array([bytes(range(16))] * CONSTANT_ROWS, pa.binary(16)),
    "hash": pa.array([b"\x80" * 32] * CONSTANT_ROWS, pa.binary(32)),
    "money": pa.array([Decimal("-1.250")] * CONSTANT_ROWS, pa.decimal128(18, 3)),
    "cents": pa.array([Decimal("0.05")] * CONSTANT_ROWS, pa.decimal128(4, 2)),
}
FETCHED: dict[str, Any] = {
    "ratio": pa.array([0.5] * CONSTANT_ROWS),
    "single": pa.array([0.5] * CONSTANT_ROWS, pa.float32()),
    "zeros": pa.array([0.0, -0.0] * (CONSTANT_ROWS // 2)),
    "nan": pa.array([1.0] + [float("nan")] * (CONSTANT_ROWS - 1)),
    "flag": pa.array([True] * CONSTANT_ROWS),
    "long_text": pa.array(["123456789"] * CONSTANT_ROWS),
    "empty": pa.array([""] * CONSTANT_ROWS),
    "some_null": pa.array([1] * (CONSTANT_ROWS - 1) + [None]),
    "two": pa.array([1] * (CONSTANT_ROWS - 1) + [2]),
    "two_ids": pa.array([bytes(16)] * (CONSTANT_ROWS - 1) + [bytes(15) + b"\1"], pa.binary(16)),
    "wide": pa.array([Decimal(1)] * CONSTANT_ROWS, pa.decimal128(38, 0)),
    "unsigned": pa.array([5] * CONSTANT_ROWS, pa.uint32()),
    "list": pa.array([[1.0]] * CONSTANT_ROWS),
}


def written_constants(columns: dict[str, Any], *, required: bool = False, **options: Any) -> bytes:
    table = pa.table(columns)
    if required:
        table = table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))
    return parquet_bytes(table, **options)


def made_names(file: Any, read: Any) -> set[str]:
    return {file.names[column] for column in read.made_columns}


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("use_dictionary", [False, True])
def test_one_value_in_every_row_is_made(sparse_file: Any, required: bool, use_dictionary: bool) -> None:
    columns = CONSTANTS | FETCHED
    if required:
        del columns["some_null"]
    content = written_constants(
        columns, required=required, use_dictionary=use_dictionary, store_decimal_as_integer=required
    )
    file = sparse_file(content)
    (fetched,), (made,) = (file.plan(file.names, make_constant_columns=make).values() for make in (False, True))
    assert made_names(file, fetched) == set()
    assert made_names(file, made) == set(CONSTANTS)
    for strings in ("string", "dictionary"):
        expected = file.decode(fetched, file.names, strings=strings)
        decoded = file.decode(made, file.names, strings=strings)
        decoded.validate(full=True)
        assert decoded.schema == expected.schema
        assert repr(decoded.to_pylist()) == repr(expected.to_pylist())


def test_golden_rows_are_the_same(golden_partition: Any, sparse_file: Any) -> None:
    file = sparse_file(golden_partition.file.read_bytes())
    fetched, made = (file.plan(file.names, make_constant_columns=make) for make in (False, True))
    for row_group, read in made.items():
        if read.made_columns != fetched[row_group].made_columns:
            expected, decoded = (file.decode(plan[row_group], file.names) for plan in (fetched, made))
            assert decoded.schema == expected.schema
            assert plain(decoded).equals(plain(expected))


def test_designated_timestamps_are_always_fetched(sparse_file: Any) -> None:
    """Their bounds may be just the first and the last value, whether or not the rows are in order."""
    file = sparse_file(
        written_constants({"ts": pa.array([5] * CONSTANT_ROWS, pa.timestamp("us", tz="UTC")), "n": [1] * CONSTANT_ROWS})
    )
    content = replace(file.content_of_sidecar(), designated_timestamp=0)
    file.sidecar = parse_sidecar(encode_sidecar(content), path=None)
    (read,) = file.plan(["ts", "n"], make_constant_columns=True).values()
    assert made_names(file, read) == {"n"}


def test_null_chunks_are_made_whatever_is_asked(sparse_file: Any) -> None:
    file = sparse_file(written_constants({"n": pa.nulls(5, pa.int64()), "m": [1] * 5}))
    (read,) = file.plan(["n", "m"]).values()
    assert made_names(file, read) == {"n"}
    (read,) = file.plan(["n", "m"], make_constant_columns=True).values()
    assert made_names(file, read) == {"n", "m"}
    assert file.decode(read, ["n", "m"]).to_pylist() == [{"n": None, "m": 1}] * 5


@pytest.mark.parametrize("flag", ["min", "max", "null_count"])
def test_what_is_not_certain_is_fetched(sparse_file: Any, flag: str) -> None:
    """Bounds that may be cut, and chunks of which it is not known how many nulls they hold."""
    file = sparse_file(written_constants({"n": [7] * 5}))
    content = file.content_of_sidecar()
    row_group = content.row_groups[0]
    chunk = row_group.chunks[0]
    if flag == "null_count":
        changed = replace(chunk, null_count=None)
    else:
        bound = getattr(chunk, flag)
        changed = replace(chunk, **{flag: replace(bound, exact=False)})
    content = replace(content, row_groups=(replace(row_group, chunks=(changed,)),))
    file.sidecar = parse_sidecar(encode_sidecar(content), path=None)
    (read,) = file.plan(["n"], make_constant_columns=True).values()
    assert read.made_columns == ()


def test_a_selection_of_a_constant(sparse_file: Any) -> None:
    file = sparse_file(written_constants({"n": [7] * 200_000, "m": range(200_000)}))
    (read,) = file.plan(["n", "m"], make_constant_columns=True).values()
    assert made_names(file, read) == {"n"}
    assert file.decode(read, ["n"])["n"].get_total_buffer_size() < 1_000_000, "one block of values is repeated"
    selected = replace(read, selection=RowSelection.of_ranges(np.array([5, 100_000]), np.array([6, 180_000])))
    decoded = file.decode(selected, ["n", "m"])
    assert decoded["m"].to_pylist() == [5, *range(100_000, 180_000)]
    assert decoded["n"].to_pylist() == [7] * 80_001


@pytest.mark.parametrize(("tag", "expected"), [(TypeTag.VARCHAR, "7"), (TypeTag.LONG, 7), (TypeTag.DOUBLE, 7.0)])
@pytest.mark.parametrize("strings", ["string", "dictionary"])
def test_constants_become_the_type_that_their_column_has_now(
    sparse_file: Any, tag: TypeTag, expected: Any, strings: Any
) -> None:
    file = sparse_file(written_constants({"n": pa.array([7] * 3, pa.int32())}))
    (n,) = file.outputs(["n"])
    file.outputs = lambda _names: [replace(n, type=canonical_type(tag))]
    (read,) = file.plan(["n"], make_constant_columns=True).values()
    assert made_names(file, read) == {"n"}
    assert file.decode(read, ["n"], strings=strings)["n"].to_pylist() == [expected] * 3


def test_a_constant_that_is_not_text_is_damage(sparse_file: Any) -> None:
    content = written_constants({"t": ["abcdefg"] * 5}, use_dictionary=False, compression="none")
    file = sparse_file(content.replace(b"abcdefg", b"abcdef\xff"))
    (read,) = file.plan(["t"], make_constant_columns=True).values()
    assert made_names(file, read) == {"t"}
    with pytest.raises(FormatError, match="row group 0, column 't'"):
        file.decode(read, ["t"])
