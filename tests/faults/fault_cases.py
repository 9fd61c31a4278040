"""Random scans with random faults, each belonging to a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal, TypeAlias

import coldparquet as cp
from coldparquet_testing.simulator import FaultKind, FaultRule
from tests.support.random_tables import random_options, random_predicate
from tests.support.row_outcomes import matching_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.plan.predicate import Predicate
    from tests.faults.faulty_tables import FaultyTable, Replacement

Act: TypeAlias = Literal["rows", "count", "tail", "first batch"]

STALL_S = 1.5
"""Silence that counts as a stall: long enough for a busy machine, short enough to be met often."""

ANYWHERE: tuple[FaultKind, ...] = (
    *("slow-down", "too-many-requests", "server-error", "forbidden", "expired-token"),
    *("reset", "half-answer"),
)
"""Faults of every operation."""
OF_OBJECTS: tuple[FaultKind, ...] = ("cut-body", "reset-body", "wrong-range", "wrong-etag", "whole-object")
SLOW: tuple[FaultKind, ...] = ("hang", "stall-body", "trickle")
"""Faults that cost a stall each."""
NO_LIE = ("*/data.parquet", "*/_pm", "*/_pages")
"""Where ``not-found`` may strike. A store that denies ``_txn`` makes another table of it, and nobody could tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCase:
    """One scan and what goes wrong with it."""

    table: FaultyTable
    act: Act
    columns: tuple[str, ...]
    where: Predicate | None
    limit: int | None
    options: cp.ReadOptions
    store_options: cp.StoreOptions
    rules: tuple[FaultRule, ...]
    replacement: Replacement | None
    at_request: int
    """When the file is replaced."""
    cancelled_after_s: float | None
    is_cached_on_disk: bool
    """Whether sidecars and ranges are kept between the scans of a lane."""

    def __str__(self) -> str:
        return (
            f"{self.table.name}: {self.act} of {self.columns} where {self.where} limit {self.limit}\n  {self.rules}, "
            f"{self.replacement} at request {self.at_request}, cancelled after {self.cancelled_after_s}\n"
            f"  {self.store_options}\n  {self.options}\n  {'with' if self.is_cached_on_disk else 'without'} a cache on disk"
        )

    def rows(self, *, of_other_file: bool = False) -> list[int]:
        """Return the numbers of the rows that are the answer.

        Args:
            of_other_file: As if the table's file had been replaced before the scan began.
        """
        count = self.table.rows.num_rows
        values = {} if self.table.random is None else self.table.random.values
        found = matching_rows(self.where, values, count)
        if of_other_file:
            found = [row for row in found if row != count - 1]
        return found if self.limit is None else found[: self.limit]


def random_case(seed: int, tables: Sequence[FaultyTable]) -> FaultCase:
    """Draw the case that belongs to a seed."""
    random = Random(f"fault case {seed}")
    caching = Random(f"caching of fault case {seed}")
    is_cached_on_disk = caching.random() < 0.3
    table = random.choice(tables)
    names = table.rows.schema.names
    is_random = table.random is not None
    how: list[Replacement | None] = [None]
    if table.file is not None:
        how.append("same-bytes")
    if table.other_file is not None:
        how.append("other-rows")
    act: Act = random.choice(("rows", "rows", "rows", "count", "tail", "first batch"))
    return FaultCase(
        table=table,
        act=act,
        columns=tuple(random.sample(names, random.randint(1, len(names)))) if is_random else tuple(names),
        where=random_predicate(random, table.random) if table.random is not None and random.random() < 0.7 else None,
        limit=None if act == "tail" else random.choice((None, None, None, 0, 1, 10)),
        options=random_options(random),
        store_options=cp.StoreOptions(
            max_attempts=random.choice((1, 2, 4)),
            connect_timeout_s=5.0,
            stall_timeout_s=STALL_S,
            hedging=random.random() < 0.5,
            cache_limit_bytes=random.choice((0, 10_000, 1 << 26)),
            # Only data is ever replaced, of which trusted sidecars say nothing new.
            sidecar_trust_s=caching.choice((0.0, 3600.0)) if is_cached_on_disk else 0.0,
            use_catalogue=caching.random() < 0.9,
        ),
        rules=_random_rules(random),
        replacement=random.choice(how) if random.random() < 0.3 else None,
        at_request=random.randint(1, 12),
        cancelled_after_s=random.uniform(0, 0.1) if random.random() < 0.1 else None,
        is_cached_on_disk=is_cached_on_disk,
    )


def _random_rules(random: Random) -> tuple[FaultRule, ...]:
    """Draw what goes wrong: nothing, one thing once, or many things now and then."""
    drawn = random.random()
    if drawn < 0.1:
        return ()
    if drawn < 0.6:
        return (
            _random_rule(random, probability=1.0, skip=random.randint(0, 8), times=random.choice((1, 1, 2, 3, None))),
        )
    share = random.choice((0.02, 0.1, 0.3))
    return tuple(_random_rule(random, probability=share) for _ in range(random.randint(1, 5)))


def _random_rule(random: Random, *, probability: float, skip: int = 0, times: int | None = None) -> FaultRule:
    drawn = random.random()
    if drawn < 0.45:
        kind, path, operation = random.choice(ANYWHERE), "*", random.choice(("*", "GetObject", "HeadObject"))
    elif drawn < 0.8:
        kind, path, operation = random.choice(OF_OBJECTS), random.choice(("*", *NO_LIE)), "GetObject"
    elif drawn < 0.92:
        kind, path, operation = "not-found", random.choice(NO_LIE), random.choice(("GetObject", "*"))
    else:
        kind, path, operation = random.choice(SLOW), "*", "GetObject"
        times = 1 if times is None else times
    return FaultRule(
        kind, path=path, operation=operation, probability=probability, skip=skip, times=times, pause_s=STALL_S / 4
    )
