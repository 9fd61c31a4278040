"""Rows to write, and what was written: partitions, tables, compacted tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.format.native import (
    parse_column_versions,
    parse_symbol_offsets,
    parse_symbols,
    symbol_file_name,
    symbol_offsets_range,
)
from coldparquet.format.parquet_footer import QuestdbMetadata, parse_questdb_json
from coldparquet.format.partition_names import PartitionInterval, partition_floor_ns
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import parse_txn
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.memory import MemoryStore
from tests.support.parquet_footers import parsed_footer
from tests.support.questdb_tables import plain
from tests.support.table_copies import contents_of

# --- Rows to write, and what a reader finds afterwards ----------------------------------------------------------------


SECOND_US = 1_000_000


async def read_rows(directory: str | os.PathLike[str], *, store: ObjectStore | None = None) -> pa.Table:
    """Read all rows of a partition as any user does."""
    async with cp.open_partition(directory, store=store) as partition:
        return await partition.scan().to_arrow()


def trades(first: int, count: int, *, venue: str = "kraken") -> pa.Table:
    """One trade per second from the ``first``-th second of a day on; each row is unlike every other."""
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "ts": pa.array(numbers * SECOND_US, pa.timestamp("us", "UTC")),
            "symbol": pa.array(
                [("BTC", "ETH", None)[number % 3] for number in numbers], pa.dictionary(pa.int32(), pa.string())
            ),
            "price": pa.array(numbers * 0.25),
            "venue": pa.array([venue] * count),
        }
    )


def assert_same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Equal names, types but for how strings are encoded, and values; NaN equals NaN."""
    assert found.schema.names == expected.schema.names
    for name in expected.schema.names:
        found_values, expected_values = found.column(name), expected.column(name)
        if pa.types.is_dictionary(expected_values.type):
            found_values, expected_values = found_values.cast(pa.string()), expected_values.cast(pa.string())
        assert found_values.type == expected_values.type, name
        if not plain(pa.table({name: found_values})).equals(plain(pa.table({name: expected_values}))):
            assert str(found_values.to_pylist()) == str(expected_values.to_pylist()), name  # where there is NaN


def contents(directory: Path) -> dict[str, bytes]:
    """Content of every file of a directory, by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def table_symbols(table: Path) -> dict[str, list[Any]]:
    """Symbols of each SYMBOL column of a genuine table, by their keys."""
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    versions = parse_column_versions((table / "_cv").read_bytes(), path=None)
    symbols = {}
    for column in metadata.columns:
        if column.symbol_index is None:
            continue
        count = transaction.symbol_counts[column.symbol_index]
        name_txn = versions.symbol_name_txn(column.writer_index)
        place = symbol_offsets_range(count)
        offsets_file = (table / symbol_file_name(column.name, "o", name_txn)).read_bytes()
        offsets = parse_symbol_offsets(offsets_file[place.start : place.stop], count, path=None)
        characters = (table / symbol_file_name(column.name, "c", name_txn)).read_bytes()[: int(offsets[-1])]
        strings = parse_symbols(characters, offsets, path=None)
        ends = strings.offsets.tolist()
        symbols[column.name] = [strings.utf8[start:stop].decode() for start, stop in pairwise(ends)]
    return symbols


# --- Rows for tables, and what a table holds after a sequence of writes -----------------------------------------------


DAY_US = 86_400_000_000
START_US = 19_723 * DAY_US
"""2024-01-01."""


def ticks(count: int, *, seed: int = 0, days: int = 3, first_day: int = 0, distinct: int = 10**9) -> pa.Table:
    """Rows at random times of some days, in no order; each row is unlike every other.

    Args:
        count: Number of rows.
        seed: Of the random numbers.
        days: Number of days.
        first_day: After 2024-01-01.
        distinct: Timestamps of a day differ in at most so many ways.
    """
    random = np.random.default_rng(seed)
    steps = random.integers(0, distinct, count) * (DAY_US // distinct)
    times = START_US + (first_day + random.integers(0, days, count)) * DAY_US + steps
    numbers = np.arange(count) + 1_000_000 * seed
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "side": pa.array([("buy", "sell", None)[number % 3] for number in numbers]),
            "price": pa.array(random.random(count)),
            "number": pa.array(numbers),
        }
    )


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all rows by time, those of one time in the order in which they were written."""
    rows = pa.concat_tables(tables)
    return rows.take(pc.sort_indices(rows.column("ts"))).combine_chunks()


def overwritten(before: pa.Table, rows: pa.Table, interval: PartitionInterval = PartitionInterval.DAY) -> pa.Table:
    """Return what is left of a table, and the rows that have replaced their partitions."""
    touched = pa.array(sorted(set(floors(rows, interval))), pa.int64())
    stays = pc.invert(pc.is_in(pa.array(floors(before, interval), pa.int64()), touched))
    return in_order([before.filter(stays), rows])


def floors(rows: pa.Table, interval: PartitionInterval) -> list[int]:
    """Return for each row when its partition begins, in nanoseconds."""
    times: Any = rows.column("ts").cast(pa.int64()).to_pylist()
    return [partition_floor_ns(time * 1000, interval) for time in times]


async def read_table(url: object, *, store: ObjectStore | None = None, **options: Any) -> pa.Table:
    """Read all rows of a table as any user does, text as plain strings."""
    read_options = cp.ReadOptions(symbols="string")
    async with cp.open_table(str(url), store=store, options=read_options, **options) as table:
        return await table.scan().to_arrow()


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    """Tell whether two tables have the same columns and values in the same order."""
    return bool(found.replace_schema_metadata().cast(expected.schema).combine_chunks().equals(expected))


def read_with_pyarrow(table: Path, names: Sequence[str]) -> pa.Table:
    """Read the Parquet files of these partitions with pyarrow alone."""
    return pa.concat_tables([pq.read_table(table / name / "data.parquet") for name in names])


def names_in(directory: Path) -> list[str]:
    """Return the names of what lies in a directory."""
    return sorted(path.name for path in directory.iterdir())


# --- What tests of compaction look at: files value by value, and which directories a table has ------------------------


def stored_rows(directory: Path) -> pa.Table:
    """All rows of a Parquet file as a reader reads them that knows nothing of QuestDB."""
    return pq.read_table(directory / "data.parquet", partitioning=None)


def assert_stored_alike(new: Path, old: Path) -> None:
    """Two partitions hold the same values, bit for bit, in columns of the same names, types and ids."""
    ours, theirs = stored_rows(new), stored_rows(old)
    assert ours.schema.names == theirs.schema.names
    for name in theirs.schema.names:
        found, wanted = ours.column(name).combine_chunks(), theirs.column(name).combine_chunks()
        if found.type != wanted.type:  # pyarrow knows UUIDs by an annotation that older files lack
            found = found.cast(wanted.type)
        assert bits(found).equals(bits(wanted)), name
    assert [(leaf.name, leaf.field_id, leaf.max_def_level) for leaf in footer_of(new).leaves] == [
        (leaf.name, leaf.field_id, leaf.max_def_level) for leaf in footer_of(old).leaves
    ]


def bits(array: Any) -> Any:
    """Floating point as integers: NaN then equals NaN, and -0.0 is not 0.0."""
    views: dict[Any, Any] = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}
    return array.view(views[array.type]) if array.type in views else array


def footer_of(directory: Path) -> Any:
    return parsed_footer((directory / "data.parquet").read_bytes())


def questdb_of(directory: Path) -> QuestdbMetadata:
    footer = footer_of(directory)
    return parse_questdb_json(footer.questdb_json, column_count=len(footer.leaves))


def row_counts(directory: Path) -> list[int]:
    return [row_group.row_count for row_group in footer_of(directory).row_groups]


def directories(table: Path) -> list[str]:
    return sorted(path.name for path in table.iterdir() if path.is_dir())


async def scan_rows(url: Any, *, store: ObjectStore | None = None) -> pa.Table:
    async with cp.open_table(url, store=store) as table:
        return await table.scan().to_arrow()


async def partition_names(url: Any, *, store: ObjectStore | None = None) -> list[str]:
    async with cp.open_table(url, store=store) as table:
        return [partition.name for partition in table.partitions]


async def in_memory(path: Path) -> MemoryStore:
    """Put a table into a dictionary, as the object store's ``t``."""
    store = MemoryStore()
    for name, (content, _) in contents_of(path).items():
        await store.put(f"t/{name}", content, overwrite=False)
    return store
