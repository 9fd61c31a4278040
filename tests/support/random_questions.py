"""Random questions about random tables: conditions of every form, and every combination of techniques."""

from __future__ import annotations

from typing import TYPE_CHECKING

import coldparquet as cp
from coldparquet.plan.predicate import And, Comparison, In, IsNull, Literal, Not, Operator, Or
from tests.support.random_columns import random_literal
from tests.support.random_values import Comparisons

if TYPE_CHECKING:
    from random import Random

    from coldparquet.plan.predicate import Predicate
    from tests.support.random_tables import RandomTable


def random_predicate(random: Random, table: RandomTable, depth: int = 2) -> Predicate:
    """Draw a tree of AND, OR and NOT over all comparisons of all columns; often one that is true for a row or a few."""
    drawn = random.random()
    if drawn < 0.35:
        return _predicate_of_a_row(random, table)
    if drawn < 0.65 and depth:
        parts = tuple(random_predicate(random, table, depth - 1) for _ in range(random.randint(1, 3)))
        return random.choice((And, And, Or))(parts)
    if drawn < 0.72 and depth:
        return Not(random_predicate(random, table, depth - 1))
    return _random_leaf(random, table)


def _random_leaf(random: Random, table: RandomTable) -> Predicate:
    drawn = random.random()
    if drawn > 0.98:
        return Literal(random.choice((True, False, None)))
    name = random.choice(tuple(table.columns))
    column, present = table.columns[name], table.present[name]
    comparisons = column.kind.comparisons
    if comparisons is Comparisons.NULLS or drawn > 0.86:
        return IsNull(name)
    if drawn > 0.65:
        literals = [random_literal(random, column, present) for _ in range(random.choice((0, 1, 2, 3, 20)))]
        return In(name, tuple(literals))
    operators = tuple(Operator) if comparisons is Comparisons.ALL else (Operator.EQUAL, Operator.NOT_EQUAL)
    return Comparison(name, random.choice(operators), random_literal(random, column, present))


def _predicate_of_a_row(random: Random, table: RandomTable) -> Predicate:
    """Draw what holds for one row that is there, and for those like it."""
    row = random.randrange(table.rows.num_rows)
    parts: list[Predicate] = []
    for name in random.choices(tuple(table.columns), k=random.randint(1, 3)):
        column = table.columns[name]
        value = column.values[row]
        if value is None or column.kind.comparisons is Comparisons.NULLS or value != value:  # noqa: PLR0124 - NaN
            parts.append(IsNull(name) if value is None else Not(IsNull(name)))
            continue
        literal = column.kind.literal(random, value)
        others = [random_literal(random, column, table.present[name]) for _ in range(random.randint(0, 4))]
        ranges = (
            (Operator.LESS_OR_EQUAL, Operator.GREATER_OR_EQUAL) if column.kind.comparisons is Comparisons.ALL else ()
        )
        operators = (Operator.EQUAL, Operator.EQUAL, *ranges)
        parts.append(random.choice((Comparison(name, random.choice(operators), literal), In(name, (literal, *others)))))
    return random.choice((And, And, And, Or))(tuple(parts))


def random_options(random: Random) -> cp.ReadOptions:
    """Draw a combination of techniques, and limits from tiny to huge."""
    choose = random.choice
    return cp.ReadOptions(
        sidecar_prefix_bytes=choose((32, 500, 64 * 1024)),
        footer_suffix_bytes=choose((8, 500, 64 * 1024)),
        goal=choose(("fast", "cheap", "few-requests", "few-bytes")),
        coalesce_gap_bytes=choose((None, 0, 1, 1000)),
        max_request_bytes=choose((None, None, 1500)),
        max_concurrency=choose((1, 3, 32)),
        memory_limit_bytes=choose((1, 2000, 100_000, 1 << 28)),
        decode_threads=choose((None, 1)),
        batch_rows=choose((1, 13, 100, 65_536)),
        symbols=choose(("dictionary", "string")),
        strings=choose(("dictionary", "string")),
        statistics=random.random() < 0.8,
        make_constant_columns=random.random() < 0.7,
        bloom_filters=random.random() < 0.7,
        page_index=choose(("auto", "always", "always", "never")),
        late_materialisation=choose(("auto", "always", "always", "never")),
    )
