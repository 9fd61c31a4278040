"""The front door has just these names, and all of them are documented."""

from __future__ import annotations

import inspect

import coldparquet as cp

NAMES = [
    "ColdParquetError",
    "Predicate",
    "ReadOptions",
    "ReadPlan",
    "RestoreTerms",
    "RestoreTicket",
    "Scan",
    "Sidecar",
    "StoreOptions",
    "Table",
    "col",
    "errors",
    "open_partition",
    "open_table",
    "parse_sidecar",
    "pieces",
    "sync",
]


def test_public_names() -> None:
    assert cp.__all__ == NAMES


def test_everything_public_is_documented() -> None:
    for name in NAMES:
        item = getattr(cp, name)
        assert inspect.getdoc(item), name
        if inspect.isclass(item):
            for member_name, member in inspect.getmembers(item, inspect.isfunction):
                if not member_name.startswith("_"):
                    assert inspect.getdoc(member), f"{name}.{member_name}"
