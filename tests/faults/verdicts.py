"""Whether a scan with faults ended well: with exactly the right rows, or with an error that the faults explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    FormatError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet_testing.simulator import FaultKind, ServedRequest
    from tests.faults.fault_cases import FaultCase

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
