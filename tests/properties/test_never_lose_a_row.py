"""Random tables and questions with every combination of techniques; see ``never_lose_a_row`` for more of them."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import pytest

from tests.properties.never_lose_a_row import CASES_PER_TABLE, check_table

SOAK_PARTS, SOAK_TABLES = 10, 100
FIRST_SEED = int(os.environ.get("COLDPARQUET_SEED", time.time_ns() % 10**9))
"""Of the soak; another one in each run, unless the environment names it."""


@pytest.mark.parametrize("seed", range(10))
async def test_no_technique_changes_the_rows(seed: int) -> None:
    assert await check_table(seed, cases=6) == 6


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_PARTS))
def test_no_technique_changes_the_rows_of_many_tables(part: int) -> None:
    first_seed = FIRST_SEED + part * SOAK_TABLES
    sys.stdout.write(f"COLDPARQUET_SEED={FIRST_SEED}: tables {first_seed} to {first_seed + SOAK_TABLES - 1}\n")
    cases = sum(asyncio.run(check_table(first_seed + number)) for number in range(SOAK_TABLES))
    assert cases == SOAK_TABLES * CASES_PER_TABLE
