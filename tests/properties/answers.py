"""Answers that need no rows, or only the newest ones, against the rows themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import coldparquet as cp
from tests.support.random_tables import TIMESTAMP, RandomTable, assert_identical
from tests.support.random_values import Comparisons

TOP_ROWS = 7
"""Newest and oldest rows that are asked for: fewer than most tables have."""


async def check_answers(scan: cp.Scan, table: RandomTable, column: str, rows: Sequence[int]) -> None:
    """Check what a scan answers about one of its columns.

    Args:
        scan: The question, without a limit.
        table: What it is asked of.
        column: A column of the result.
        rows: Numbers of the rows that match, ascending.
    """
    values = table.columns[column].values
    assert await scan.any() == bool(rows), "any"
    assert await scan.null_count(column) == sum(values[row] is None for row in rows), "null_count"
    await _check_bounds(scan, table, column, rows)
    if TIMESTAMP in table.columns:
        await _check_times(scan, table, rows)
        await _check_top(scan, table, rows)
        await _check_latest(scan, table, column, rows)


async def _check_bounds(scan: cp.Scan, table: RandomTable, column: str, rows: Sequence[int]) -> None:
    """Compare the least and the largest value, of types that have an order."""
    kind = table.columns[column].kind
    if kind.comparisons is not Comparisons.ALL or isinstance(kind.storage, pa.BaseExtensionType):
        return
    matching = table.rows.column(column).take(pa.array(rows, pa.int64()))
    if pa.types.is_dictionary(matching.type):
        matching = matching.cast(pa.string())
    wanted, found = pc.min_max(matching), await scan.min_max(column)
    for side in ("min", "max"):
        actual, expected = found[side], wanted[side]
        is_equal = actual.as_py() == expected.as_py() if pa.types.is_floating(actual.type) else actual.equals(expected)
        is_nan = pa.types.is_floating(actual.type) and str(actual) == str(expected) == "nan"
        assert is_equal or is_nan, f"{side} of {column}: {actual} instead of {expected}"


async def _check_times(scan: cp.Scan, table: RandomTable, rows: Sequence[int]) -> None:
    times = table.rows.column(TIMESTAMP)
    first = times[rows[0]].as_py() if rows else None
    last = times[rows[-1]].as_py() if rows else None
    assert await scan.first_timestamp() == first, "first_timestamp"
    assert await scan.last_timestamp() == last, "last_timestamp"


async def _check_top(scan: cp.Scan, table: RandomTable, rows: Sequence[int]) -> None:
    """Compare the newest and the oldest rows; rows are stored by time, so that table order tells which they are."""
    wanted = table.rows.select(scan.schema.names)
    newest, oldest = rows[::-1][:TOP_ROWS], rows[:TOP_ROWS]
    assert_identical(await scan.top_k(TOP_ROWS), wanted.take(pa.array(newest, pa.int64())))
    assert_identical(await scan.top_k(TOP_ROWS, ascending=True), wanted.take(pa.array(oldest, pa.int64())))


async def _check_latest(scan: cp.Scan, table: RandomTable, column: str, rows: Sequence[int]) -> None:
    """Compare the newest row of each key; of rows of one time, the last one in table order counts."""
    kind = table.columns[column].kind
    if kind.comparisons is Comparisons.NULLS or pa.types.is_floating(kind.storage):
        return  # no keys: numbers that are hardly ever equal, and lists
    values = table.columns[column].values
    newest: dict[Any, int] = {values[row]: row for row in rows}
    wanted = table.rows.select(scan.schema.names).take(pa.array(sorted(newest.values()), pa.int64()))
    assert_identical(await scan.latest_by(column), wanted)
