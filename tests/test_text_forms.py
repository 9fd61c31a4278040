"""Text is the same text as plain strings, dictionaries and views, and hands over as what it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.decode.arrow import DICTIONARY_TYPE
from coldparquet.decode.dictionaries import SharedDictionaries
from coldparquet.decode.result_text import text_to_views
from coldparquet.errors import FormatError
from coldparquet.format.native import parse_symbol_offsets, parse_symbols
from coldparquet.format.txn import parse_txn
from coldparquet.records import replace
from coldparquet.storage.memory import MemoryStore
from tests.support.questdb_tables import GOLDEN, assert_same_rows, copy_parquet_partitions, expected_rows

TABLES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
SYMBOLS = GOLDEN / "symbols" / "table"
SYMBOL_NAMES = ["many", "few", "ix", "nocache"]
AS_DICTIONARIES = cp.ReadOptions(symbols="dictionary", strings="dictionary")
AS_VIEWS = cp.ReadOptions(strings="view")
GLOBAL = cp.ReadOptions(symbols="global", batch_rows=100)


def symbols_of_table(name: str) -> list[str]:
    """Return the symbols in the order of their keys, as the table's files hold them."""
    counts = parse_txn((SYMBOLS / "_txn").read_bytes(), path=None).symbol_counts
    count = counts[SYMBOL_NAMES.index(name)]
    offsets = parse_symbol_offsets((SYMBOLS / f"{name}.o").read_bytes()[64:], count, path=None)
    strings = parse_symbols((SYMBOLS / f"{name}.c").read_bytes(), offsets, path=None)
    edges = strings.offsets.tolist()
    return [strings.utf8[start:stop].decode() for start, stop in pairwise(edges)]


def dictionary_of(batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
    column: Any = batch.column(name)
    dictionary: pa.Array[Any] = column.dictionary
    return dictionary


def address_of(strings: Any) -> int:
    address: int = strings.buffers()[2].address
    return address


async def batches_of(
    path: Path, columns: Sequence[str], options: cp.ReadOptions, where: str | None = None
) -> list[pa.RecordBatch]:
    async with cp.open_table(path, options=options) as table, table.scan(columns, where).batches() as batches:
        return [batch async for batch in batches]


@pytest.mark.parametrize("symbols", ["dictionary", "global"])
@pytest.mark.parametrize("name", TABLES)
async def test_genuine_tables_have_the_rows_of_questdb(name: str, symbols: Any) -> None:
    options = cp.ReadOptions(symbols=symbols, strings="dictionary")
    async with cp.open_table(GOLDEN / name / "table", options=options) as table:
        rows = await table.scan().to_arrow()
        assert rows.schema == table.schema
    text = {field.name for field in expected_rows(name).schema if pa.types.is_string(field.type)}
    encoded = {field.name for field in rows.schema if pa.types.is_dictionary(field.type)}
    assert encoded == text
    assert_same_rows(rows, expected_rows(name))


class TestOneDictionaryForTheWholeTable:
    async def test_is_that_of_the_tables_symbols(self) -> None:
        batches = await batches_of(SYMBOLS, SYMBOL_NAMES, GLOBAL)
        assert len(batches) > 10
        for name in SYMBOL_NAMES:
            expected = symbols_of_table(name)
            assert all(dictionary_of(batch, name).to_pylist() == expected for batch in batches)
            addresses = {address_of(dictionary_of(batch, name)) for batch in batches}
            assert len(addresses) == 1, "the batches do not share it"
        assert_same_rows(pa.Table.from_batches(batches), expected_rows("symbols").select(SYMBOL_NAMES))

    async def test_costs_the_column_versions_and_two_requests_per_column(self) -> None:
        async with cp.open_table(SYMBOLS, options=GLOBAL) as table:
            opening = {Path(record.path).name for record in table.request_log}
            assert "_cv" in opening
            before = len(table.request_log)
            plan = await table.scan(["ts", "few", "ix"], "ts < '2024-01-02'").plan()
            sent = [Path(record.path).name for record in table.request_log[before:] if record.reason == "symbols"]
            assert sorted(sent) == ["few.c", "few.o", "ix.c", "ix.o"]
            announced = [Path(request.path).name for request in plan.metadata_requests if request.reason == "symbols"]
            assert sorted(announced) == sorted(sent)
            before = len(table.request_log)
            await table.scan(["few"]).plan()
            assert not [record for record in table.request_log[before:] if record.reason == "symbols"]

    async def test_is_shared_once_for_each_row_group_where_calls_give_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        share, running, at_once = SharedDictionaries.share, list[pa.Table](), list[int]()

        def slow(self: SharedDictionaries, table: pa.Table) -> pa.Table:
            running.append(table)
            at_once.append(len(running))
            time.sleep(0.03)
            running.pop()
            return share(self, table)

        monkeypatch.setattr(SharedDictionaries, "share", slow)
        found: list[pa.RecordBatch] = []
        is_over = False
        async with cp.open_table(SYMBOLS, options=GLOBAL) as table, table.scan(SYMBOL_NAMES).batches() as batches:
            while not is_over:
                with suppress(TimeoutError):
                    batch = await asyncio.wait_for(batches.next_batch(), timeout=0.01)
                    is_over = batch is None
                    found += [batch] if batch is not None else []
        assert max(at_once) == 1
        assert_same_rows(pa.Table.from_batches(found), expected_rows("symbols").select(SYMBOL_NAMES))

    async def test_streams_to_ipc_without_being_sent_again(self) -> None:
        batches = await batches_of(SYMBOLS, SYMBOL_NAMES, GLOBAL)
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        assert writer.stats.num_dictionary_batches == len(SYMBOL_NAMES)
        read = pa.ipc.open_stream(stream.getvalue()).read_all()
        assert_same_rows(read, expected_rows("symbols").select(SYMBOL_NAMES))

    @pytest.mark.parametrize("has_symbol_files", [False, True])
    async def test_grows_where_the_tables_symbols_are_not_known(
        self, tmp_path: Path, *, has_symbol_files: bool
    ) -> None:
        """Without ``_txn``; and with one, but opened with other options, so that ``_cv`` was not read."""
        path = SYMBOLS if has_symbol_files else copy_parquet_partitions("symbols", tmp_path)
        async with cp.open_table(path) as table:
            scan = table.scan(SYMBOL_NAMES, "ts < '2024-01-05'", options=GLOBAL)
            async with scan.batches() as stream:
                batches = [batch async for batch in stream]
        for name in SYMBOL_NAMES:
            known: list[Any] = []
            for batch in batches:
                dictionary = dictionary_of(batch, name).to_pylist()
                assert dictionary[: len(known)] == known
                assert len(set(dictionary)) == len(dictionary)
                known = dictionary
        rows = expected_rows("symbols").select(SYMBOL_NAMES)
        assert_same_rows(pa.Table.from_batches(batches), rows.slice(0, rows.num_rows - 1))
        stream_of_deltas = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        with pa.ipc.new_stream(stream_of_deltas, batches[0].schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        assert writer.stats.num_replaced_dictionaries == 0

    async def test_missing_symbol_files_are_no_obstacle(self) -> None:
        store = MemoryStore()
        for file in SYMBOLS.rglob("*"):
            if file.is_file() and file.suffix not in {".o", ".c", ".k", ".v"}:
                await store.put(f"bucket/{file.relative_to(SYMBOLS)}", file.read_bytes(), overwrite=False)
        async with cp.open_table("bucket", store=store, options=GLOBAL) as table:
            rows = await table.scan(SYMBOL_NAMES, "ts < '2024-01-05'").to_arrow()
        expected = expected_rows("symbols").select(SYMBOL_NAMES)
        assert_same_rows(rows, expected.slice(0, expected.num_rows - 1))


def write_parquet(path: Path, values: list[str | None], **options: Any) -> None:
    table = pa.table({"n": range(len(values)), "text": pa.array(values, pa.string())})
    pq.write_table(table, path, **options)


words = st.sampled_from(["", "a", "b", "ab", "Köln", "of 12 bytes.", "of more than 12 bytes"])
questions = st.sampled_from(
    [
        "text = 'a'",
        "text <> ''",
        "text in ('', 'b', 'x')",
        "text > 'a' or n < 3",
        "text is null",
        "not text < 'b'",
        "n > 7",
    ]
)


@settings(max_examples=30)
@given(
    values=st.lists(words | st.none(), min_size=1, max_size=60),
    where=st.none() | questions,
    row_group_size=st.integers(1, 60),
    dictionary_limit=st.sampled_from([1, 16, 1 << 20]),
    use_dictionary=st.booleans(),
)
def test_questions_have_the_same_answer_as_plain_text(  # noqa: PLR0917 - what a file can be like
    tmp_path_factory: pytest.TempPathFactory,
    values: list[str | None],
    where: str | None,
    row_group_size: int,
    dictionary_limit: int,
    use_dictionary: bool,
) -> None:
    directory = tmp_path_factory.mktemp("text")
    path, without = directory / "data.parquet", directory / "without.parquet"
    write_parquet(without, values, use_dictionary=False)
    write_parquet(
        path,
        values,
        row_group_size=row_group_size,
        write_batch_size=4,
        data_page_size=32,
        dictionary_pagesize_limit=dictionary_limit,
        use_dictionary=use_dictionary,
    )

    async def ask(file: Path, options: cp.ReadOptions | None = None) -> pa.Table:
        async with cp.open_partition(file) as partition:
            return await partition.scan(["text", "n"], where, options=options).to_arrow()

    never_encoded, plain = asyncio.run(ask(without)), asyncio.run(ask(path))
    encoded = asyncio.run(ask(path, AS_DICTIONARIES))
    viewed = asyncio.run(ask(path, AS_VIEWS))
    assert encoded.schema.field("text").type == DICTIONARY_TYPE
    assert viewed.schema.field("text").type == pa.string_view()
    viewed.validate(full=True)
    assert plain.schema.field("text").type == never_encoded.schema.field("text").type == pa.string()
    assert viewed.to_pylist() == encoded.to_pylist() == plain.to_pylist() == never_encoded.to_pylist()


@pytest.mark.parametrize("strings", ["string", "view"])
async def test_strings_of_a_row_group_are_one_batch(tmp_path: Path, strings: Any) -> None:
    """They are dictionary-encoded while they are decoded, which pyarrow does in parts of 65,536 rows."""
    values = [None if number % 9 == 0 else f"value {number % 7}" for number in range(70_000)]
    write_parquet(tmp_path / "data.parquet", values)
    batches = await batches_of(tmp_path / "data.parquet", ["text"], cp.ReadOptions(batch_rows=100_000, strings=strings))
    assert [batch.num_rows for batch in batches] == [70_000]
    assert batches[0].column("text").cast(pa.string()).equals(pa.array(values))


async def test_invalid_text_in_a_dictionary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    write_parquet(path, ["good", "evil"] * 10, compression="none", store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"\x04\0\0\0evil", b"\x04\0\0\0e\xffil"))
    async with cp.open_partition(path) as partition:
        with pytest.raises(FormatError, match="row group 0, column 'text'") as caught:
            await partition.scan(["text"]).to_arrow()
    assert caught.value.details["field"] == "values"


async def test_few_rows_do_not_keep_a_large_dictionary(tmp_path: Path) -> None:
    values: list[str | None] = [f"value {number % 5000}" for number in range(20_000)]
    write_parquet(tmp_path / "data.parquet", values, row_group_size=10_000)
    batches = await batches_of(tmp_path / "data.parquet", ["text"], AS_DICTIONARIES, "n in (3, 7, 5003, 15007)")
    assert [dictionary_of(batch, "text").to_pylist() for batch in batches] == [["value 3", "value 7"], ["value 7"]]
    assert [batch.column("text").to_pylist() for batch in batches] == [["value 3", "value 7", "value 3"], ["value 7"]]


@pytest.mark.parametrize("name", TABLES)
async def test_views_of_genuine_tables_are_the_text_of_questdb(name: str) -> None:
    async with (
        cp.open_table(GOLDEN / name / "table") as table,
        cp.open_table(GOLDEN / name / "table", options=AS_VIEWS) as viewed,
    ):
        plain, rows = await table.scan().to_arrow(), await viewed.scan().to_arrow()
        assert rows.schema == viewed.schema
    rows.validate(full=True)
    strings, views = {pa.string()}, {pa.string_view()}
    assert {field.name for field in rows.schema if field.type in views} == {
        field.name for field in plain.schema if field.type in strings
    }
    assert rows.cast(plain.schema).equals(plain)


async def test_views_of_few_rows_do_not_keep_a_large_dictionary(tmp_path: Path) -> None:
    values: list[str | None] = [f"a long value, number {number % 5000}" for number in range(20_000)]
    write_parquet(tmp_path / "data.parquet", values, row_group_size=10_000)
    [batch] = await batches_of(tmp_path / "data.parquet", ["text"], AS_VIEWS, "n in (3, 7, 5003, 15007)")
    assert batch.column("text").to_pylist() == [f"a long value, number {number}" for number in (3, 7, 3, 7)]
    assert batch.get_total_buffer_size() < 500


async def test_views_of_some_rows_do_not_keep_long_text_of_others(tmp_path: Path) -> None:
    values: list[str | None] = [f"{number}" * 100_000 if number < 10 else "short" for number in range(1000)]
    write_parquet(tmp_path / "data.parquet", values)
    [batch] = await batches_of(tmp_path / "data.parquet", ["text"], AS_VIEWS, "text = 'short'")
    assert batch.column("text").to_pylist() == ["short"] * 990
    assert batch.get_total_buffer_size() < 20_000


async def test_views_of_a_column_that_a_file_lacks_share_one_block(tmp_path: Path) -> None:
    for name, columns in (("2024-03-01", ["n"]), ("2024-03-02", ["n", "text"])):
        (tmp_path / name).mkdir()
        rows = pa.table({"n": np.arange(500_000), "text": pa.nulls(500_000, pa.string())}).select(columns)
        pq.write_table(rows, tmp_path / name / "data.parquet", row_group_size=500_000)
    async with cp.open_table(tmp_path, options=replace(AS_VIEWS, columns_from="all")) as table:
        rows = await table.scan(["text"]).to_arrow()
    assert (rows.num_rows, rows["text"].null_count) == (1_000_000, 1_000_000)
    assert rows["text"].chunk(0).get_total_buffer_size() <= 65_536 * 17
    chunks: list[Any] = rows["text"].chunks[:5]
    addresses = {chunk.buffers()[1].address for chunk in chunks}
    assert len(addresses) == 1


async def test_a_short_last_batch_of_views_does_not_keep_the_text_of_all_rows(tmp_path: Path) -> None:
    values: list[str | None] = [f"a long value, number {number}" for number in range(21_000)]
    write_parquet(tmp_path / "data.parquet", values, use_dictionary=False)
    options = replace(AS_VIEWS, batch_rows=20_000)
    whole, last = await batches_of(tmp_path / "data.parquet", ["text"], options)
    assert whole.column("text").to_pylist() + last.column("text").to_pylist() == values
    assert last.get_total_buffer_size() < 60_000


async def test_a_short_last_batch_of_views_of_one_long_text_shares_it(tmp_path: Path) -> None:
    values: list[str | None] = ["x" * 100_000] * 2100
    write_parquet(tmp_path / "data.parquet", values)
    _, last = await batches_of(tmp_path / "data.parquet", ["text"], replace(AS_VIEWS, batch_rows=2000))
    assert last.column("text").to_pylist() == values[2000:]
    assert last.get_total_buffer_size() < 200_000


async def test_views_of_text_that_is_large_as_strings_take_no_more_than_its_dictionary(tmp_path: Path) -> None:
    """Plain strings of it would be cut into batches of an eighth of the memory limit."""
    values: list[str | None] = [f"{number % 2}" * 100_000 for number in range(1000)]
    write_parquet(tmp_path / "data.parquet", values)
    [batch] = await batches_of(tmp_path / "data.parquet", ["text"], AS_VIEWS)
    assert batch.column("text").to_pylist() == values
    assert batch.get_total_buffer_size() < 300_000


VALUES: list[str | None] = ["b", "", None, "a", "b", "c", None, ""]


class TestViewsAreTakenWhereStringsAre:
    """pyarrow cannot filter them; answers and engines do, and get plain strings first."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        for day in (1, 2):
            (tmp_path / "table" / f"2024-03-0{day}").mkdir(parents=True)
            ts = pa.array(
                [datetime(2024, 3, day, hour, tzinfo=UTC) for hour in range(len(VALUES))], pa.timestamp("us", "UTC")
            )
            rows = pa.table({"ts": ts, "text": VALUES, "n": range(len(VALUES))})
            pq.write_table(
                rows, tmp_path / "table" / f"2024-03-0{day}" / "data.parquet", sorting_columns=[pq.SortingColumn(0)]
            )
        return tmp_path / "table"

    @pytest.mark.parametrize(
        "ask",
        [
            lambda scan: scan.tail(3),
            lambda scan: scan.tail(0),
            lambda scan: scan.top_k(5),
            lambda scan: scan.latest_by("text"),
            lambda scan: scan.head(3),
            lambda scan: scan.to_arrow(),
        ],
    )
    @pytest.mark.parametrize("where", [None, "text > 'a'", "n > 100", pc.field("text") == "b"])
    def test_answers(self, path: Path, ask: Callable[[Any], pa.Table], where: Any) -> None:
        options = cp.ReadOptions(timestamp="ts")
        with cp.sync.open_table(path, options=options) as table:
            plain = ask(table.scan(where=where))
        with cp.sync.open_table(path, options=replace(options, strings="view")) as table:
            found = ask(table.scan(where=where))
            assert found.schema == table.schema
            assert table.scan(where=where).count() == len(table.scan(where=where).to_arrow())
        assert found.schema.field("text").type == pa.string_view()
        assert found.cast(plain.schema).equals(plain)

    @pytest.mark.parametrize("where", [None, "text > 'a'", pc.field("text").isin(["b", ""])])
    def test_numbers_about_text(self, path: Path, where: Any) -> None:
        found = []
        for strings in ("string", "view"):
            options = cp.ReadOptions(timestamp="ts", strings=strings)
            with cp.sync.open_table(path, options=options) as table:
                scan = table.scan(where=where)
                found.append((scan.count(), scan.min("text"), scan.max("text"), scan.null_count("text")))
        assert found[0] == found[1]

    def test_dask_gets_plain_strings(self, path: Path) -> None:
        pytest.importorskip("dask.dataframe")
        import coldparquet.dask  # noqa: PLC0415 - only where dask is installed

        frame = coldparquet.dask.from_table(str(path), ["text", "n"], options=AS_VIEWS)
        assert frame[frame["text"] == "b"]["n"].compute().tolist() == [0, 4, 0, 4]

    @pytest.mark.parametrize("symbols", ["dictionary", "global", "string"])
    async def test_beside_symbols(self, symbols: Any) -> None:
        path = GOLDEN / "interval_day" / "table"
        options = cp.ReadOptions(symbols=symbols)
        async with cp.open_table(path, options=options) as table:
            plain = await table.scan().to_arrow()
        async with cp.open_table(path, options=replace(options, strings="view", batch_rows=7)) as table:
            found = await table.scan().to_arrow()
        assert found.cast(plain.schema).equals(plain)

    def test_datasets_have_plain_strings(self, path: Path) -> None:
        expression = pc.field("text") == pc.utf8_lower(pc.scalar("B"))  # pyarrow filters by what has no translation
        with cp.sync.open_table(path, options=AS_VIEWS) as table:
            dataset = table.to_pyarrow_dataset()
            assert dataset.schema.field("text").type == pa.string()
            assert dataset.to_table(["n"], filter=expression)["n"].to_pylist() == [0, 4, 0, 4]
            assert dataset.to_table().schema == dataset.schema

    async def test_pieces(self, path: Path) -> None:
        async with cp.open_table(path, options=AS_VIEWS) as table:
            pieces = await table.scan(["text"]).pieces(2)
            batches = []
        for piece in pieces.pieces:
            async with cp.pieces.read_piece(piece) as stream:
                batches += [batch async for batch in stream]
        assert all(batch.schema == pieces.schema for batch in batches)
        assert pa.Table.from_batches(batches, pieces.schema)["text"].to_pylist() == VALUES * 2


class TestHandOver:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        write_parquet(tmp_path / "data.parquet", VALUES, row_group_size=3)
        return tmp_path / "data.parquet"

    def test_pandas_gets_a_categorical(self, path: Path) -> None:
        with cp.sync.open_partition(path, options=AS_DICTIONARIES) as partition:
            frame = partition.scan(["text"]).to_pandas()
        assert isinstance(frame["text"].dtype, pd.CategoricalDtype)
        assert [None if pd.isna(value) else value for value in frame["text"]] == VALUES

    def test_polars_gets_a_categorical(self, path: Path) -> None:
        with cp.sync.open_partition(path, options=AS_DICTIONARIES) as partition:
            frame = partition.scan(["text"]).to_polars()
        assert frame.schema["text"] == pl.Categorical
        assert frame["text"].to_list() == VALUES

    @pytest.mark.parametrize("ask", [lambda table: table.scan().to_polars(), lambda table: table.lazy().collect()])
    def test_polars_gets_views_by_itself(
        self, path: Path, ask: Callable[[cp.sync.Table], pl.DataFrame], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[frozenset[str]] = []

        def noted(table: pa.Table, names: frozenset[str]) -> pa.Table:
            made.append(names)
            return text_to_views(table, names)

        monkeypatch.setattr("coldparquet.scan.work.text_to_views", noted)
        with cp.sync.open_partition(path) as partition:
            frame = ask(partition)
            assert partition.scan(["text"]).to_arrow().schema.field("text").type == pa.string()
        assert made[0] == {"text"}
        assert made[-1] == set()
        assert frame.schema["text"] == pl.String
        assert frame["text"].to_list() == VALUES

    @pytest.mark.parametrize("where", [None, "b"])
    def test_lazy_frames_of_views(self, path: Path, where: str | None) -> None:
        with cp.sync.open_partition(path, options=AS_VIEWS) as partition:
            frame = partition.lazy()
            frame = frame if where is None else frame.filter(pl.col("text") == where)
            found = frame.collect()
        assert found.schema["text"] == pl.String
        assert found["text"].to_list() == [value for value in VALUES if where in {None, value}]

    def test_pandas_and_duckdb_take_views(self, path: Path) -> None:
        with cp.sync.open_partition(path, options=AS_VIEWS) as partition:
            frame, rows = partition.scan(["text"]).to_pandas(), partition.scan(["text"]).to_arrow()
        assert [None if pd.isna(value) else value for value in frame["text"]] == VALUES
        assert duckdb.from_arrow(rows).filter("text = 'b'").aggregate("count(*)").fetchall() == [(2,)]

    def test_a_stream_of_the_c_interface_has_the_same_rows(self, path: Path) -> None:
        """Each row group with its own dictionary, as Arrow's stream interface allows."""
        with cp.sync.open_partition(path, options=AS_DICTIONARIES) as partition:
            read = pa.RecordBatchReader.from_stream(partition.scan(["text"])).read_all()
            frame = pl.DataFrame(partition.scan(["text"]))
        assert read.schema.field("text").type == DICTIONARY_TYPE
        assert read.column("text").to_pylist() == VALUES
        assert frame["text"].to_list() == VALUES

    def test_ipc_and_parquet_files_hold_the_same_rows(self, path: Path, tmp_path: Path) -> None:
        with cp.sync.open_partition(path, options=AS_DICTIONARIES) as partition:
            rows = partition.scan(["text"]).to_arrow()
        with pa.ipc.new_file(str(tmp_path / "rows.arrow"), rows.schema) as writer:
            writer.write_table(rows)
        assert pa.ipc.open_file(str(tmp_path / "rows.arrow")).read_all().column("text").to_pylist() == VALUES
        pq.write_table(rows, tmp_path / "rows.parquet")
        assert pq.read_table(tmp_path / "rows.parquet").column("text").to_pylist() == VALUES
