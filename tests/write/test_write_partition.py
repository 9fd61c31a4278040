"""New partitions: what is in the two files, what the options change, and what is refused."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.format.parquet_footer import parse_footer, parse_questdb_json
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import WriteOptions, append_rows, write_partition
from tests.support.written_tables import assert_same_rows, contents, read_rows, trades

NAME = "2024-03-01.1"


def footer_of(directory: Path) -> Any:
    return pq.ParquetFile(directory / "data.parquet").metadata


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def sidecar_of(directory: Path) -> Sidecar:
    return parse_sidecar((directory / "_pm").read_bytes())


async def test_file_and_sidecar_agree(tmp_path: Path) -> None:
    written = await write_partition(
        tmp_path / NAME, trades(0, 1_050), timestamp="ts", options=WriteOptions(row_group_rows=500, page_rows=100)
    )
    assert (written.row_count, written.row_group_count, written.page_count) == (1_050, 3, 4 * (5 + 5 + 1))
    assert (written.first_timestamp, written.last_timestamp) == (0, 1_049_000_000)
    assert written.directory == str(tmp_path / NAME)

    footer, sidecar = footer_of(tmp_path / NAME), sidecar_of(tmp_path / NAME)
    assert [footer.row_group(group).num_rows for group in range(3)] == [500, 500, 50] == sidecar.row_counts.tolist()
    assert sidecar.parquet_size_bytes == written.parquet_size_bytes
    for group in range(3):
        assert footer.row_group(group).sorting_columns == (pq.SortingColumn(0),)
        for index in range(4):
            column, chunks = footer.row_group(group).column(index), sidecar.chunks(index)
            assert column.total_compressed_size == chunks.total_compressed_bytes[group]
            assert column.compression == "ZSTD"
            assert column.has_column_index
            assert column.has_offset_index
            assert column.statistics.null_count == chunks.null_count[group]
            assert column.statistics.has_min_max
    assert names_in(tmp_path) == [NAME]
    assert list(contents(tmp_path / NAME)) == ["_pm", "data.parquet"]


async def test_the_footer_says_whose_file_it_is(tmp_path: Path) -> None:
    ids = {"ts": 0, "price": 5}
    fields: list[Any] = [
        pa.field("ts", pa.timestamp("ns"), metadata={"PARQUET:field_id": str(ids["ts"])}),
        pa.field("price", pa.float64(), metadata={"PARQUET:field_id": str(ids["price"])}),
    ]
    rows = pa.table([pa.array([1, 2], pa.timestamp("ns")), pa.array([1.0, 2.0])], schema=pa.schema(fields))
    await write_partition(tmp_path / NAME, rows, timestamp="ts")
    footer = footer_of(tmp_path / NAME)
    assert footer.created_by.startswith("parquet-cpp-arrow")
    assert list(footer.metadata) == [b"questdb"]
    described = parse_questdb_json(footer.metadata[b"questdb"].decode(), column_count=2)
    assert [(column.type_code, column.id) for column in described.columns] == [(393_224, 0), (10, 5)]
    assert [column.id for column in sidecar_of(tmp_path / NAME).columns] == [0, 5]


async def test_a_table_of_written_partitions_is_one_table(tmp_path: Path) -> None:
    day = 86_400
    for number in range(3):
        await write_partition(tmp_path / f"1970-01-0{number + 1}.0", trades(number * day, 100), timestamp="ts")
    async with cp.open_table(tmp_path) as table:
        found = await table.scan().to_arrow()
    assert_same_rows(found, pa.concat_tables([trades(number * day, 100) for number in range(3)]))


@pytest.mark.parametrize("page_rows", [1, 7, 100])
async def test_pages_have_their_number_of_rows(page_rows: int, tmp_path: Path) -> None:
    await write_partition(tmp_path / NAME, trades(0, 301), timestamp="ts", options=WriteOptions(page_rows=page_rows))
    file = (tmp_path / NAME / "data.parquet").read_bytes()
    sidecar = sidecar_of(tmp_path / NAME)
    footer = parse_footer(
        file[sidecar.footer.parquet_footer_offset :][: sidecar.footer.parquet_footer_length], path=None, offset=0
    )
    lengths = footer.row_groups[0].offset_index_lengths
    # A page's entry in the offset index takes at least three bytes, and there is one for each page.
    assert min(lengths) >= 3 * -(-301 // page_rows)
    assert_same_rows(await read_rows(tmp_path / NAME), trades(0, 301))


async def test_page_index_can_be_left_out(tmp_path: Path) -> None:
    await write_partition(tmp_path / NAME, trades(0, 10), timestamp="ts", options=WriteOptions(page_index=False))
    assert not footer_of(tmp_path / NAME).row_group(0).column(0).has_offset_index


async def test_codecs_by_column(tmp_path: Path) -> None:
    options = WriteOptions(codec="lz4_raw", column_codecs={"price": "none", "venue": "brotli", "symbol": "snappy"})
    await write_partition(tmp_path / NAME, trades(0, 1_000), timestamp="ts", options=options)
    group = footer_of(tmp_path / NAME).row_group(0)
    codecs = {group.column(index).path_in_schema: group.column(index).compression for index in range(4)}
    assert codecs == {"ts": "LZ4", "symbol": "SNAPPY", "price": "UNCOMPRESSED", "venue": "BROTLI"}
    assert_same_rows(await read_rows(tmp_path / NAME), trades(0, 1_000))


async def test_encodings(tmp_path: Path) -> None:
    count = 1_000
    texts = pa.table({"once": [str(number) for number in range(count)], "often": ["a", "b"] * (count // 2)})
    rows = trades(0, count)
    for name in texts.schema.names:
        rows = rows.append_column(name, texts.column(name))
    options = WriteOptions(column_encodings={"price": "byte_stream_split"})
    await write_partition(tmp_path / NAME, rows, timestamp="ts", options=options)
    group = footer_of(tmp_path / NAME).row_group(0)
    encodings = {group.column(index).path_in_schema: set(group.column(index).encodings) for index in range(6)}
    assert "DELTA_BINARY_PACKED" in encodings["ts"]
    assert "BYTE_STREAM_SPLIT" in encodings["price"]
    assert "DELTA_LENGTH_BYTE_ARRAY" in encodings["once"]
    for name in ("symbol", "venue", "often"):
        assert "RLE_DICTIONARY" in encodings[name]
    assert_same_rows(await read_rows(tmp_path / NAME), rows)


async def test_bloom_filters_are_in_the_file(tmp_path: Path) -> None:
    options = WriteOptions(bloom_columns=("symbol", "price"), row_group_rows=400)
    await write_partition(tmp_path / NAME, trades(0, 1_000), timestamp="ts", options=options)
    for group in range(3):
        columns = [footer_of(tmp_path / NAME).row_group(group).column(index) for index in range(4)]
        assert [column.bloom_filter_offset is not None for column in columns] == [False, True, True, False]
        symbol, price = columns[1].bloom_filter_length, columns[2].bloom_filter_length
        assert symbol < 100 < price < 2_000  # as many bits as there are distinct values
    assert_same_rows(await read_rows(tmp_path / NAME), trades(0, 1_000))


async def test_table_keys_of_symbols(tmp_path: Path) -> None:
    symbols = {"symbol": ["XRP", "ETH", "", "BTC", "never used"]}
    await write_partition(tmp_path / NAME, trades(0, 30), timestamp="ts", symbols=symbols)
    column = sidecar_of(tmp_path / NAME).column(1)
    assert column.local_key_is_global
    file = pq.ParquetFile(tmp_path / NAME / "data.parquet", read_dictionary=["symbol"])
    raw: Any = file.read().column("symbol").chunk(0)
    assert raw.dictionary.to_pylist() == symbols["symbol"][:4]  # up to the last that is used
    assert_same_rows(await read_rows(tmp_path / NAME), trades(0, 30))


async def test_streams_are_cut_into_row_groups(tmp_path: Path) -> None:
    rows = trades(0, 1_000)
    in_memory = []

    def batches() -> Iterator[pa.RecordBatch]:
        for start in (0, 3, 90, 500, 501):
            stop = {0: 3, 3: 90, 90: 500, 500: 501, 501: 1_000}[start]
            in_memory.append(stop - start)
            yield from rows.slice(start, stop - start).combine_chunks().to_batches()

    options = WriteOptions(row_group_rows=150)
    sources: dict[str, Any] = {
        "iterator": batches(),
        "reader": pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=70)),
        "tables": [rows.slice(0, 400), rows.slice(400, 0), rows.slice(400)],
        "table": rows,
        "batch": rows.combine_chunks().to_batches()[0],
    }
    for name, source in sources.items():
        written = await write_partition(tmp_path / name, source, timestamp="ts", options=options)
        assert written.row_group_count == 7
        assert_same_rows(await read_rows(tmp_path / name), rows)
    assert sum(in_memory) == 1_000


@pytest.mark.parametrize("text", [pa.string(), pa.string_view()])
async def test_sorts_when_told_to(tmp_path: Path, text: pa.DataType) -> None:
    rows = trades(0, 200).append_column("word", pa.array([f"word {number}" for number in range(200)]))
    shuffled = rows.take(np.random.default_rng(7).permutation(200))
    shuffled = shuffled.set_column(rows.num_columns - 1, "word", shuffled["word"].cast(text))
    await write_partition(tmp_path / NAME, shuffled, timestamp="ts", options=WriteOptions(sort=True, row_group_rows=33))
    assert_same_rows(await read_rows(tmp_path / NAME), rows)


async def test_names_the_first_row_out_of_order(tmp_path: Path) -> None:
    rows = pa.concat_tables([trades(0, 250), trades(100, 5)])
    with pytest.raises(
        InvalidInputError, match=r"row 250 is out of order: its timestamp 100000000 .* row 249"
    ) as caught:
        await write_partition(tmp_path / NAME, rows, timestamp="ts", options=WriteOptions(row_group_rows=100))
    assert caught.value.kind == "NotSorted"
    assert names_in(tmp_path) == []


async def test_without_a_timestamp_any_order_is_fine(tmp_path: Path) -> None:
    rows = pa.concat_tables([trades(50, 5), trades(0, 5)])
    await write_partition(tmp_path / "default", rows, timestamp=None)
    assert sidecar_of(tmp_path / "default").designated_timestamp is None
    assert_same_rows(await read_rows(tmp_path / "default"), rows)


async def test_an_existing_partition_is_not_replaced(tmp_path: Path) -> None:
    await write_partition(tmp_path / NAME, trades(0, 5), timestamp="ts")
    with pytest.raises(InvalidInputError, match="its next version") as caught:
        await write_partition(tmp_path / NAME, trades(5, 5), timestamp="ts")
    assert caught.value.kind == "AlreadyExists"
    assert_same_rows(await read_rows(tmp_path / NAME), trades(0, 5))


async def test_a_link_in_the_place_of_the_hidden_directory_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"x")
    (tmp_path / f".{NAME}.coldparquet").symlink_to(elsewhere)
    with pytest.raises(InvalidInputError, match="symbolic link") as caught:
        await write_partition(tmp_path / NAME, trades(0, 5), timestamp="ts")
    assert caught.value.kind == "LinkLeadsOutside"
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]


async def test_a_link_is_no_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInputError) as caught:
        await write_partition(tmp_path / NAME, trades(0, 5), timestamp="ts")
    assert caught.value.kind == "AlreadyExists"
    assert names_in(tmp_path) == sorted([NAME, "elsewhere"])


async def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    await write_partition(tmp_path / NAME, trades(0, 5), timestamp="ts")
    assert_same_rows(await read_rows(tmp_path / NAME), trades(0, 5))


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no rows": ({"rows": trades(0, 1).slice(1)}, "NoRows", "at least one"),
    "no batches": ({"rows": []}, "NoRows", "at least one"),
    "not rows": ({"rows": 7}, "InvalidInput", "int cannot be written"),
    "mixed batches": (
        {"rows": [trades(0, 1).select(["ts"]), trades(1, 1).select(["ts", "price"])]},
        "SchemaMismatch",
        "batch 1 has other columns",
    ),
    "repeated name": (
        {"rows": pa.table([pa.array([1]), pa.array([1])], names=["a", "a"]), "timestamp": None},
        "Schema",
        "do not repeat",
    ),
    "unknown timestamp": ({"timestamp": "time"}, "UnknownColumn", "'time'"),
    "no timestamp": ({"timestamp": "price"}, "NotATimestamp", "DOUBLE"),
    "timestamps that cannot be sorted": (
        {
            "rows": pa.table(
                [pa.array([2, 1], pa.timestamp("us")).dictionary_encode()],
                schema=pa.schema(
                    [
                        pa.field(
                            "ts",
                            pa.dictionary(pa.int32(), pa.timestamp("us")),
                            metadata={"questdb.type": "TIMESTAMP"},
                        )
                    ]
                ),
            ),
            "options": WriteOptions(sort=True),
        },
        "DoesNotFit",
        "cannot be sorted",
    ),
    "unknown column in options": ({"options": WriteOptions(bloom_columns=("x",))}, "UnknownColumn", "'x'"),
    "wrong encoding": (
        {"options": WriteOptions(column_encodings={"symbol": "plain"})},
        "InvalidEncoding",
        "use one of dictionary",
    ),
    "symbols of another column": ({"symbols": {"venue": ["a"]}}, "UnknownColumn", "venue"),
    "repeated symbols": ({"symbols": {"symbol": ["BTC", "BTC"]}}, "InvalidInput", "repeat"),
    "symbols that are no strings": ({"symbols": {"symbol": [1, 2]}}, "InvalidInput", "no strings"),
    "unknown symbol": ({"symbols": {"symbol": ["BTC"]}}, "UnknownSymbol", "'ETH'"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refuses(case: str, tmp_path: Path) -> None:
    arguments, kind, message = REFUSED[case]
    rows = arguments.get("rows", trades(0, 5))
    others = {"timestamp": "ts", **{name: value for name, value in arguments.items() if name != "rows"}}
    with pytest.raises(InvalidInputError, match=message) as caught:
        await write_partition(tmp_path / NAME, rows, **others)
    assert caught.value.kind == kind
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    "options",
    [
        {"codec": "lzo"},
        {"codec_level": 23},
        {"codec": "snappy", "codec_level": 1},
        {"column_codecs": {"a": "ZSTD"}},
        {"column_encodings": {"a": "rle"}},
        {"row_group_rows": 0},
        {"row_group_rows": 2**40},
        {"page_rows": 2**70},
        {"page_rows": 1.5},
        {"bloom_fpp": 1.0},
        {"bloom_columns": "price"},
    ],
)
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidInputError, match=f"WriteOptions.{'codec' if 'column_codecs' in options else list(options)[-1]}"
    ):
        WriteOptions(**options)


async def test_object_store() -> None:
    store = MemoryStore()
    rows = trades(0, 500)
    written = await write_partition("bucket/t/1970-01-01.3", rows, timestamp="ts", store=store)
    assert written.directory == "bucket/t/1970-01-01.3"
    assert_same_rows(await read_rows("bucket/t/1970-01-01.3", store=store), rows)
    assert (await store.info("bucket/t/1970-01-01.3/data.parquet")).size_bytes == written.parquet_size_bytes

    with pytest.raises(InvalidInputError, match="exists already"):
        await write_partition("bucket/t/1970-01-01.3", rows, timestamp="ts", store=store)


async def test_a_cut_off_upload_can_be_repeated_with_the_same_rows() -> None:
    store, path = MemoryStore(), "bucket/t/1970-01-01.3"
    await write_partition(path, trades(0, 500), timestamp="ts", store=store)
    await store.delete([f"{path}/_pm"])
    with pytest.raises(InvalidInputError, match="exists already"):
        await write_partition(path, trades(1, 500), timestamp="ts", store=store)
    await write_partition(path, trades(0, 500), timestamp="ts", store=store)
    assert_same_rows(await read_rows(path, store=store), trades(0, 500))


async def test_objects_are_not_updated_in_place() -> None:
    with pytest.raises(UnsupportedError, match="write a new version of the partition"):
        await append_rows("memory://bucket/t/1970-01-01.3", trades(0, 1))


async def test_a_stream_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    made: list[weakref.ref[pa.RecordBatch]] = []
    most_alive = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most_alive
        for number in range(40):
            [batch] = trades(number * 100, 100).to_batches()
            made.append(weakref.ref(batch))
            most_alive = max(most_alive, sum(reference() is not None for reference in made))
            yield batch

    await write_partition(tmp_path / NAME, batches(), timestamp="ts", options=WriteOptions(row_group_rows=200))
    assert len(made) == 40
    assert most_alive <= 4  # two make a row group


async def test_cancelling_leaves_nothing_behind(tmp_path: Path) -> None:
    is_reading, may_go_on = threading.Event(), threading.Event()

    def batches(first: int) -> Iterator[pa.RecordBatch]:
        yield from trades(first, 100).to_batches()
        is_reading.set()
        may_go_on.wait()
        yield from trades(first + 100, 200).to_batches()

    async def cancelled(writing: Coroutine[Any, Any, Any]) -> None:
        is_reading.clear()
        may_go_on.clear()
        task = asyncio.create_task(writing)
        await asyncio.to_thread(is_reading.wait)
        task.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    options = WriteOptions(row_group_rows=50)
    await cancelled(write_partition(tmp_path / NAME, batches(0), timestamp="ts", options=options))
    assert names_in(tmp_path) == []

    await write_partition(tmp_path / NAME, trades(0, 100), timestamp="ts")
    before = contents(tmp_path / NAME)
    await cancelled(append_rows(tmp_path / NAME, batches(100), options=options))
    assert contents(tmp_path / NAME) == before
