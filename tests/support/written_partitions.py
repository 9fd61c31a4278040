"""Rows to write, and what a reader finds afterwards."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import coldparquet as cp
from coldparquet.format.column_versions import parse_column_versions
from coldparquet.format.native import (
    parse_symbol_offsets,
    parse_symbols,
    symbol_file_name,
    symbol_offsets_range,
)
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import parse_txn
from tests.support.questdb_tables import plain

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from coldparquet.storage.base import ObjectStore

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
