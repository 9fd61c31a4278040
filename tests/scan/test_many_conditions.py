"""Conditions of thousands of parts cost about as much as they have parts."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.decode.filter import _PredicateCosts
from coldparquet.expressions.where import Where
from coldparquet.plan.predicate import And, Fold, Or, Predicate, col
from coldparquet.write import WriteOptions, write_partition

ROWS = 20_000


@pytest.fixture
async def partition(tmp_path: Path) -> Path:
    """Four row groups: ascending numbers, their texts, and the numbers modulo 7."""
    numbers = range(ROWS)
    times = pa.array(numbers, pa.timestamp("us", "UTC"))
    texts = [f"text {number}" for number in numbers]
    rows = pa.table({"ts": times, "n": numbers, "text": texts, "seventh": [n % 7 for n in numbers]})
    path = tmp_path / "1970-01-01.1"
    await write_partition(path, rows, timestamp="ts", options=WriteOptions(row_group_rows=ROWS // 4))
    return path


async def numbers_where(path: Path, where: Where) -> tuple[list[int], float]:
    """Return the matching numbers, and the processor seconds of everything between the condition and the rows."""
    async with cp.open_partition(path) as table:
        start = process_time()
        scan = table.scan(["n"], where)
        (await scan.plan()).explain()
        found = await scan.to_arrow()
        numbers: list[Any] = found["n"].to_pylist()
        return numbers, process_time() - start


@pytest.mark.parametrize(
    ("where", "expected", "most_seconds"),
    [
        pytest.param(And(tuple(col("n") > n for n in range(3_000))), range(3_000, ROWS), 5, id="and of ranges"),
        pytest.param(" and ".join(f"n != {n}" for n in range(3_000)), range(3_000, ROWS), 5, id="and of unequal"),
        pytest.param(
            And(tuple((col("n") != n) | (col("seventh") == 9) for n in range(1_000))),
            range(1_000, ROWS),
            5,
            id="and of or",
        ),
        pytest.param(Or(tuple(col("n") == 3 * n for n in range(10_000))), range(0, ROWS, 3), 3, id="or"),
        pytest.param([[("text", "=", f"text {n}")] for n in range(10_000)], range(10_000), 3, id="or of texts"),
        pytest.param(col("n").is_in(range(0, 3_000_000, 3)), range(0, ROWS, 3), 5, id="in"),
        pytest.param(~col("n").is_in(range(1, 1_000_000)), [0], 5, id="not in"),
    ],
)
async def test_many_parts(partition: Path, where: Where, expected: range | list[int], most_seconds: float) -> None:
    found, seconds = await numbers_where(partition, where)
    assert found == list(expected)
    assert seconds < most_seconds, "a hundred times less is usual than where the time grows with the square"


async def test_every_part_is_weighed_once_per_row_group(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weighed = 0
    fold = Fold.of

    def count(self: Fold[Any], predicate: Predicate) -> Any:
        nonlocal weighed
        weighed += isinstance(self, _PredicateCosts)
        return fold(self, predicate)

    monkeypatch.setattr(Fold, "of", count)
    parts = [(col("seventh") < 7) | (col("n") < n) for n in range(50)]
    found, _ = await numbers_where(partition, And((*parts, col("n") != 5, col("seventh") >= 0)))
    assert len(found) == ROWS - 1
    # Three for each OR, and what is left of the whole by statistics.
    assert 0 < weighed <= 4 * (3 * len(parts) + 3)
