"""Random scans with random faults, each belonging to a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

import pyarrow as pa

import coldparquet as cp
from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    FormatError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
)
from coldparquet.plan.predicate import Predicate
from coldparquet_testing.simulator import FaultKind, FaultRule, ServedRequest
from tests.faults.faulty_tables import FaultyTable, Replacement
from tests.support.random_tables import random_options, random_predicate
from tests.support.row_outcomes import matching_rows

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
"""Where ``not-found`` may strike. A store that denies ``_txn`` makes another table of it, and no reader could tell."""


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


# --- Whether a scan with faults ended well: with exactly the right rows, or with an error that the faults explain -----


_BROKEN = frozenset({"Timeout", "ShortRead", "ConnectionFailed"})
"""Kinds of a connection that broke, which look alike to a client: a reset may come before or after the bytes."""

TRANSIENT: frozenset[FaultKind] = frozenset({
    "slow-down", "too-many-requests", "server-error", "hang", "reset", "half-answer", "cut-body", "reset-body", "stall-body",
})  # fmt: skip
"""Faults after which another attempt succeeds."""

_EXPLAINED: dict[FaultKind, tuple[type[ColdParquetError], frozenset[str] | None]] = {
    "slow-down": (StorageError, frozenset({"SlowDown"})),
    "too-many-requests": (StorageError, frozenset({"SlowDown"})),
    "server-error": (StorageError, frozenset({"ServerError"})),
    "forbidden": (AccessError, frozenset({"AccessDenied"})),
    "expired-token": (AccessError, frozenset({"ExpiredToken"})),
    "not-found": (NotFoundError, None),
    "hang": (StorageError, _BROKEN),
    "reset": (StorageError, _BROKEN),
    "half-answer": (StorageError, _BROKEN),
    "cut-body": (StorageError, _BROKEN),
    "reset-body": (StorageError, _BROKEN),
    "stall-body": (StorageError, _BROKEN),
    "trickle": (StorageError, _BROKEN),
    "wrong-range": (StorageError, frozenset({"WrongRange"})),
    "whole-object": (StorageError, frozenset({"RangeIgnored"})),
    "wrong-etag": (ObjectChangedError, None),
}
"""Error class and kinds (None is any) that each fault may end with."""

_REPLACED: tuple[type[ColdParquetError], ...] = (ObjectChangedError, FormatError)
"""What a file that was replaced may end with: noticed by its version, or because it is not the one of its sidecar."""


def verdict(case: FaultCase, outcome: pa.Table | int | BaseException, served: Sequence[ServedRequest]) -> str | None:
    """Return what is wrong with the end of a scan; None if all is well.

    Args:
        case: What was asked, and what went wrong.
        outcome: Rows, their number, or the error.
        served: All requests as the server saw them.
    """
    if isinstance(outcome, pa.Table | int):
        return _verdict_on_answer(case, outcome)
    if not isinstance(outcome, ColdParquetError):
        return f"not an error of ours: {type(outcome).__name__}: {outcome}"
    struck = [request.fault for request in served if request.fault is not None]
    if not _explains(case, outcome, struck):
        return f"an error that {sorted(set(struck))} and {case.replacement} do not explain: {_text(outcome)}"
    is_over = case.replacement is None and set(struck) <= TRANSIENT
    if is_over and len(struck) < case.store_options.max_attempts:
        return f"given up after {len(struck)} failures of {case.store_options.max_attempts}: {_text(outcome)}"
    return None


def _verdict_on_answer(case: FaultCase, answer: pa.Table | int) -> str | None:
    problems = []
    for of_other_file in (False, True) if case.replacement == "other-rows" else (False,):
        rows = case.rows(of_other_file=of_other_file)
        try:
            if isinstance(answer, int):
                assert answer == len(rows), f"{answer} rows instead of {len(rows)}"
            else:
                expected = case.table.rows.select(case.columns).take(pa.array(_shown(case, rows), pa.int64()))
                case.table.assert_rows(answer, expected)
        except AssertionError as error:
            problems.append(f"wrong rows: {error}")
        else:
            return None
    return "; ".join(problems)


def _shown(case: FaultCase, rows: list[int]) -> list[int]:
    return rows[-TAIL_ROWS:] if case.act == "tail" else rows


TAIL_ROWS = 5
"""How many of the newest rows are asked for."""


def _explains(case: FaultCase, error: ColdParquetError, struck: Sequence[str]) -> bool:
    if case.replacement is not None and isinstance(error, _REPLACED):
        return True
    # An answer to HEAD has no body that could say more than its status.
    if "expired-token" in struck and error.details.get("code") == "BadRequest":
        return True
    if "slow-down" in struck and error.details.get("code") == "ServiceUnavailable":
        return True
    for fault in struck:
        for known, (error_class, kinds) in _EXPLAINED.items():
            if known == fault and isinstance(error, error_class) and (kinds is None or error.kind in kinds):
                return True
    return False


def _text(error: ColdParquetError) -> str:
    return f"{type(error).__name__} {error.kind}: {error} {error.details}"
