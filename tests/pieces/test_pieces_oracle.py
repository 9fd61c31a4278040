"""Oracle: the pieces of a scan, read one after the other from their bytes alone, are the rows of the scan."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.records import replace
from tests.support.questdb_tables import GOLDEN, assert_same_rows, expected_rows
from tests.support.random_tables import assert_identical, random_options, random_predicate, random_table
from tests.support.read_pieces import read_pieces
from tests.support.table_copies import copy_table

TABLES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", TABLES)
async def test_every_genuine_table(name: str, tmp_path: Path) -> None:
    table = copy_table(name, tmp_path)
    for most in (3, 1000):
        async with cp.open_table(table) as opened:
            scan = opened.scan()
            pieces = await scan.pieces(most)
            assert len(pieces) <= most
            assert pieces.schema.equals(scan.schema)
            assert_same_rows(await read_pieces(pieces), expected_rows(name))
        await index_table(table, pages=True, pack=False)  # at first footers tell, and then sidecars


@pytest.mark.parametrize("name", TABLES)
async def test_questions_about_genuine_tables(name: str, tmp_path: Path) -> None:
    rows = expected_rows(name)
    draw = np.random.default_rng(rows.num_rows)
    ts = rows.column("ts").cast(pa.int64()).to_numpy()
    async with cp.open_table(copy_table(name, tmp_path)) as table:
        for _ in range(2):
            columns = list(draw.choice(rows.schema.names, size=draw.integers(1, 4), replace=False))
            begin, end = sorted(draw.choice(ts, size=2).tolist())
            pieces = await table.scan(columns, (cp.col("ts") >= begin) & (cp.col("ts") < end)).pieces(4)
            is_wanted = pa.array((ts >= begin) & (ts < end))
            assert_same_rows(await read_pieces(pieces), rows.filter(is_wanted).select(columns))


@pytest.mark.parametrize(
    "seed", [*range(1, 10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(10, 60)))]
)
async def test_random_questions_about_random_tables(seed: int) -> None:
    table = await random_table(seed)
    draw = random.Random(seed)
    for _ in range(3):
        predicate = None if draw.random() < 0.2 else random_predicate(draw, table)
        columns = draw.sample(list(table.columns), draw.randint(1, len(table.columns)))
        options = random_options(draw)
        async with table.open(replace(options, batch_rows=max(options.batch_rows, 100))) as opened:
            scan = opened.scan(columns, predicate)
            expected = await scan.to_arrow()
            pieces = await scan.pieces(draw.choice((1, 2, 5, 100)), target_bytes=draw.choice((None, 1, 300_000)))
            message = f"seed {seed}: {predicate} of {columns}; {table.shape}"
            found = await read_pieces(pieces, store=table.store)
            assert found.num_rows == expected.num_rows, message
            assert_identical(found, expected)
            counted = await opened.scan([], predicate).pieces(3)
            assert (await _count(counted, table.store)) == expected.num_rows, message


async def _count(pieces: cp.pieces.ScanPieces, store: Any) -> int:
    rows = 0
    for piece in pieces:
        async with cp.pieces.read_piece(piece, store=store) as batches:
            async for batch in batches:
                assert batch.num_columns == 0
                rows += batch.num_rows
    return rows


@pytest.mark.parametrize("symbols", ["dictionary", "global", "string"])
async def test_symbols_are_as_the_options_say(symbols: Any, tmp_path: Path) -> None:
    options = cp.ReadOptions(symbols=symbols)
    async with cp.open_table(copy_table("symbols", tmp_path), options=options) as table:
        scan = table.scan()
        assert_identical(await read_pieces(await scan.pieces(4)), await scan.to_arrow())


async def test_global_symbols_have_one_number_in_all_pieces(tmp_path: Path) -> None:
    options = cp.ReadOptions(symbols="global")
    async with cp.open_table(copy_table("interval_month", tmp_path), options=options) as table:
        pieces = await table.scan(["sym"]).pieces(5)
        chunks: list[Any] = (await read_pieces(pieces)).column("sym").chunks
    dictionaries = [chunk.dictionary for chunk in chunks]
    longest = max(dictionaries, key=len)
    assert len(dictionaries) > 2
    assert len(longest) > 1
    assert all(longest[: len(dictionary)].equals(dictionary) for dictionary in dictionaries)


async def test_nothing_to_read_is_no_piece(tmp_path: Path) -> None:
    async with cp.open_table(copy_table("interval_month", tmp_path)) as table:
        pieces = await table.scan(where="ts < '1999-01-01'").pieces()
        assert len(pieces) == 0
        assert list(pieces) == []
        assert pieces.schema.equals(table.schema)


def test_the_blocking_twin_gives_the_same(tmp_path: Path) -> None:
    with cp.sync.open_table(copy_table("interval_month", tmp_path)) as table:
        scan = table.scan(["ts", "price"], "price > 0")
        pieces = scan.pieces(3)
        batches = [batch for piece in pieces for batch in cp.pieces.read_piece_batches(piece.to_bytes())]
        assert_identical(pa.Table.from_batches(batches, pieces.schema), scan.to_arrow())
    cp.pieces.close_stores()


async def test_a_limit_is_refused(tmp_path: Path) -> None:
    async with cp.open_table(copy_table("interval_month", tmp_path)) as table:
        with pytest.raises(cp.errors.InvalidInputError, match="limit the rows where they come together") as caught:
            await table.scan(limit=5).pieces()
        assert caught.value.kind == "LimitNotAllowed"
        with pytest.raises(cp.errors.InvalidInputError, match="most_pieces is 0"):
            await table.scan().pieces(0)
        with pytest.raises(cp.errors.InvalidInputError, match="target_bytes is 'x'"):
            await table.scan().pieces(target_bytes="x")  # type: ignore[arg-type]
