"""Scans over a store that goes wrong; see ``random_scans`` for more of them. And: the judge is no pushover."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.errors import AccessError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.records import replace
from coldparquet_testing.simulator import ServedRequest
from tests.faults.fault_cases import FaultCase, random_case, verdict
from tests.faults.faulty_tables import make_tables
from tests.faults.random_scans import run_scans
from tests.support.leaks import TaskWatch
from tests.support.request_logs import served_request

SOAK_PARTS, SOAK_SCANS = 10, 1_000
SEED = int(os.environ.get("COLDPARQUET_SEED", time.time_ns() % 10**9))
"""Of the soak; another one in each run, unless the environment names it."""


@pytest.mark.slow
async def test_rows_or_the_right_error_and_nothing_left(tmp_path: Path) -> None:
    tally = await run_scans(range(150), seed=20_261_121, directory=tmp_path)
    assert tally.failures == []
    assert tally.scans == 150
    assert tally.outcomes["rows"] > 50
    assert len(tally.outcomes) > 3
    assert len(tally.faults) > 10


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_PARTS))
def test_ten_thousand_scans(part: int, tmp_path: Path) -> None:
    seed = SEED + part
    sys.stdout.write(
        f"COLDPARQUET_SEED={SEED}: python -m tests.faults.random_scans --seed {seed} --scans {SOAK_SCANS}\n"
    )
    tally = asyncio.run(run_scans(range(SOAK_SCANS), seed=seed, directory=tmp_path))
    assert tally.failures == []
    assert tally.scans == SOAK_SCANS


@pytest.fixture
async def case(tmp_path: Path) -> FaultCase:
    """A scan of all rows of a random table, tried four times, with nothing wrong."""
    tables = [table for table in await make_tables(tmp_path, first_seed=5, count=1) if table.random]
    drawn = random_case(1, tables)
    return replace(
        drawn, act="rows", columns=tuple(tables[0].rows.schema.names), where=None, limit=None, replacement=None,
        cancelled_after_s=None, store_options=cp.StoreOptions(max_attempts=4),
    )  # fmt: skip


def served(*faults: str | None) -> list[ServedRequest]:
    return [served_request(fault=fault) for fault in faults]


async def test_the_judge_wants_exactly_the_rows(case: FaultCase) -> None:
    rows = case.table.rows
    assert verdict(case, rows, served(None)) is None
    assert "wrong rows" in str(verdict(case, rows.slice(1), served("reset")))
    assert "wrong rows" in str(verdict(case, rows.slice(0, rows.num_rows - 1), served()))
    assert "wrong rows" in str(verdict(case, rows.num_rows - 1, served()))
    assert verdict(case, rows.num_rows, served()) is None
    replaced = replace(case, replacement="other-rows")
    assert verdict(replaced, rows.slice(0, rows.num_rows - 1), served()) is None
    assert verdict(replaced, rows, served()) is None
    assert "wrong rows" in str(verdict(replaced, rows.slice(1), served()))


SLOW_DOWN = StorageError("later", kind="SlowDown")


@pytest.mark.parametrize(
    ("outcome", "faults", "complaint"),
    [
        (SLOW_DOWN, ("slow-down",) * 4, None),
        (SLOW_DOWN, ("slow-down",) * 3, "given up after 3 failures of 4"),
        (SLOW_DOWN, ("reset",) * 9, "do not explain"),
        (SLOW_DOWN, (), "do not explain"),
        (AccessError("no", kind="AccessDenied"), ("forbidden",), None),
        (AccessError("no", kind="AccessDenied"), ("expired-token",), "do not explain"),
        (NotFoundError("gone"), ("not-found", "reset"), None),
        (ObjectChangedError("replaced"), ("wrong-etag",), None),
        (ObjectChangedError("replaced"), ("wrong-range",), "do not explain"),
        (TimeoutError("no end"), ("hang",), "not an error of ours"),
        (KeyError("x"), (), "not an error of ours"),
    ],
)
async def test_the_judge_wants_the_right_error(
    case: FaultCase, outcome: Exception, faults: tuple[str, ...], complaint: str | None
) -> None:
    found = verdict(case, outcome, served(*faults))
    assert found is None if complaint is None else complaint in str(found)


async def test_a_replaced_file_explains_its_errors(case: FaultCase) -> None:
    replaced = replace(case, replacement="same-bytes")
    for error in (ObjectChangedError("replaced"), cp.errors.FormatError("stale")):
        assert verdict(replaced, error, served()) is None
        assert "do not explain" in str(verdict(case, error, served()))


async def test_tasks_that_outlive_their_block_are_found() -> None:
    watch = TaskWatch()
    with watch.owned() as tidy:
        await asyncio.create_task(asyncio.sleep(0))
    assert await watch.leftovers(tidy) == []
    with watch.owned() as untidy:
        left = asyncio.create_task(asyncio.sleep(60), name="forgotten")
    (text,) = await watch.leftovers(untidy)
    assert "forgotten" in text
    left.cancel()
