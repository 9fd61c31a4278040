"""Which of the points at which a process can die are tried: a few of each change in every run, all of them in a soak."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

Point = TypeVar("Point")

FEW = 8

few_or_all_points = pytest.mark.parametrize(
    "most_points", [FEW, pytest.param(None, marks=pytest.mark.soak)], ids=["few points", "all points"]
)
"""For tests that hand ``most_points`` to `tried`."""


def tried(points: Sequence[Point], most_points: int | None) -> list[Point]:
    """Return that many of the points at equal distances, the first and the last among them; all if None."""
    if most_points is None or most_points >= len(points):
        return list(points)
    return [points[number * (len(points) - 1) // (most_points - 1)] for number in range(most_points)]
