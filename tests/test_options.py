"""Options: limits, goals and how they become request lengths."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest

import coldparquet as cp
from coldparquet.errors import InvalidInputError
from coldparquet.options import COALESCING_BY_GOAL, MAX_RESTORE_DAYS, MIB, ReadOptions, RestoreTerms


@pytest.mark.parametrize(
    ("wanted_bytes", "part_bytes"),
    [(0, 3 * MIB // 4), (2 * MIB, 3 * MIB // 4), (64 * MIB, 2 * MIB), (10_000 * MIB, 4 * MIB)],
)
def test_fast_reads_use_all_connections_before_requests_grow(wanted_bytes: int, part_bytes: int) -> None:
    assert COALESCING_BY_GOAL[ReadOptions().goal].part_bytes(wanted_bytes, max_concurrency=32) == part_bytes


@pytest.mark.parametrize(
    "wrong",
    [
        {"sidecar_prefix_bytes": 31},
        {"coalesce_gap_bytes": -1},
        {"max_request_bytes": 0},
        {"max_concurrency": 0},
        {"memory_limit_bytes": 0},
        {"batch_rows": 1.5},
        {"max_concurrency": "3"},
        {"memory_limit_bytes": None},
        {"decode_threads": 0},
        {"symbols": "categories"},
        {"goal": "best"},
        {"goal": []},
        {"max_bytes": -1},
        {"max_requests": 1.5},
        {"max_usd": float("nan")},
        {"max_usd": "1"},
        {"prices": {"STANDARD": 1}},
        {"archived": "skip", "check_storage_classes": False},
        {"archived": "restore", "check_storage_classes": False},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_option_out_of_its_range_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match=f"ReadOptions.{next(iter(wrong))} is"):
        ReadOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("days", [0, True, 1.5, MAX_RESTORE_DAYS + 1, 2**31, 10**12])
def test_a_copy_is_restored_for_a_number_of_days_that_can_be_meant(days: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"RestoreTerms\.days is"):
        RestoreTerms(days=days)
    assert RestoreTerms(days=MAX_RESTORE_DAYS).days == 3_650


def test_help_names_every_switch() -> None:
    text = inspect.getdoc(ReadOptions) or ""
    assert [field.name for field in fields(ReadOptions) if f"``{field.name}``" not in text] == []


def test_options_of_another_type_are_refused() -> None:
    wrong: list[Any] = [{"goal": "cheap"}, {}, "fast", ReadOptions]
    for options in wrong:
        for open_ in (cp.open_table, cp.open_partition, cp.sync.open_table):
            with pytest.raises(InvalidInputError, match=r"it must be ReadOptions, such as .*ReadOptions\(goal="):
                open_("nowhere", options=options)
