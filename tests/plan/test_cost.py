"""Prices and times of requests, by hand."""

from __future__ import annotations

import pytest

from coldparquet.errors import InvalidInputError
from coldparquet.plan.cost import estimate_dollars, estimate_seconds


def test_dollars() -> None:
    assert estimate_dollars(1_000_000, 10**12) == pytest.approx(0.40)
    assert estimate_dollars(1_000_000, 10**9, storage_class="STANDARD_IA") == pytest.approx(1.01)
    assert estimate_dollars(0, 10**12, storage_class="GLACIER_IR") == pytest.approx(30)
    assert estimate_dollars(0, 0, list_count=1_000_000, storage_class="GLACIER_IR") == pytest.approx(5)
    with pytest.raises(InvalidInputError, match="known: STANDARD"):
        estimate_dollars(1, 1, storage_class="DEEP_ARCHIVE")


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
    estimate = estimate_seconds(stages, concurrency=concurrency, first_byte_s=1, connection_bytes_per_s=100)
    assert estimate == pytest.approx(expected_s)
