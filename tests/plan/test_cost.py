"""Times of requests, by hand."""

from __future__ import annotations

import pytest

from coldparquet.plan.cost import estimate_seconds
from coldparquet.plan.model import StoreSpeed


@pytest.mark.parametrize(
    ("stages", "concurrency", "expected_s"),
    [
        ([], 4, 0),
        ([[]], 4, 0),
        ([[100]], 4, 2),
        ([[100, 100, 100, 100]], 4, 2),
        ([[100, 100, 100, 100]], 2, 4),
        ([[300, 0, 0, 0]], 2, 4),
        ([[100], [0, 200]], 4, 2 + 3),
    ],
)
def test_seconds(stages: list[list[int]], concurrency: int, expected_s: float) -> None:
    speed = StoreSpeed(connections=concurrency, first_byte_s=1, connection_bytes_per_s=100)
    assert estimate_seconds(stages, speed=speed) == pytest.approx(expected_s)
