"""Never lose a row: random tables, random questions, every combination of techniques, and always the same rows.

    python -m tests.properties.never_lose_a_row --tables 1000

Each table belongs to a seed, and each case to a table and a number; a failure names both. To see one again:

    python -m tests.properties.never_lose_a_row --first-seed 4711 --tables 1
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import traceback
from dataclasses import dataclass
from random import Random

import pyarrow as pa

import coldparquet as cp
from coldparquet.plan.predicate import Predicate
from tests.properties.answers import check_answers
from tests.support.random_tables import RandomTable, assert_identical, random_options, random_predicate, random_table
from tests.support.row_outcomes import matching_rows

# ruff: noqa: T201 - a command prints


CASES_PER_TABLE = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question about one table."""

    columns: tuple[str, ...]
    where: Predicate | None
    limit: int | None
    tail: int
    asks_for_answers: bool
    """Whether minimum, maximum and the like are asked for, too."""
    options: cp.ReadOptions
    opens_anew: bool
    """Whether the table is opened for this question alone, so that no metadata is known."""


class WrongAnswerError(AssertionError):
    """A case that went wrong, with everything to see it again."""


async def check_table(seed: int, *, cases: int = CASES_PER_TABLE) -> int:
    """Ask questions about the table that belongs to a seed, and return their number.

    Raises:
        WrongAnswerError: An answer is not the expected one, or no answer came.
    """
    try:
        table = await random_table(seed)
    except Exception as error:
        raise WrongAnswerError(f"seed {seed}: no table: {type(error).__name__}: {error}") from error
    random = Random(seed + 1)
    shared = await table.open(random_options(random))
    try:
        for number in range(cases):
            case = _random_case(random, table)
            try:
                if case.opens_anew:
                    async with table.open(case.options) as opened:
                        await _check(opened, table, case)
                else:
                    await _check(shared, table, case)
            except Exception as error:
                raise WrongAnswerError(
                    f"seed {seed}, case {number}: {type(error).__name__}: {error}\n  {case}\n  {table.shape}"
                ) from error
    finally:
        await shared.aclose()
    return cases


def _random_case(random: Random, table: RandomTable) -> Case:
    names = list(table.columns)
    return Case(
        columns=tuple(random.sample(names, random.randint(1, len(names)))),
        where=None if random.random() < 0.05 else random_predicate(random, table),
        limit=random.choice((None, None, None, 0, 1, 10, 100)),
        tail=random.choice((0, 1, 10, 500)),
        asks_for_answers=random.random() < 0.4,
        options=random_options(random),
        opens_anew=random.random() < 0.4,
    )


async def _check(opened: cp.Table, table: RandomTable, case: Case) -> None:
    rows = matching_rows(case.where, table.values, table.rows.num_rows)
    wanted = table.rows.select(case.columns)
    scan = opened.scan(case.columns, case.where, limit=case.limit, options=case.options)
    limited = rows if case.limit is None else rows[: case.limit]
    assert_identical(await scan.to_arrow(), wanted.take(pa.array(limited, pa.int64())))
    assert await scan.count() == len(limited), "count"
    unlimited = opened.scan(case.columns, case.where, options=case.options)
    newest = rows[len(rows) - min(case.tail, len(rows)) :]
    assert_identical(await unlimited.tail(case.tail), wanted.take(pa.array(newest, pa.int64())))
    if case.asks_for_answers:
        await check_answers(unlimited, table, case.columns[0], rows)


def main() -> None:
    """Check tables one after the other; print each failure and go on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--tables", type=int, default=100, help=f"number of tables, {CASES_PER_TABLE} cases each")
    arguments = parser.parse_args()
    print(f"first seed {arguments.first_seed}", flush=True)
    cases, failed = 0, []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.tables):
        try:
            cases += asyncio.run(check_table(seed))
        except WrongAnswerError as error:
            failed.append(seed)
            cause = traceback.format_exception(error.__cause__, limit=-4)
            print(error, *cause[:-1], sep="\n", flush=True)
    print(f"{cases} cases passed; seeds that failed: {failed or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
