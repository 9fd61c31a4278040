"""WQ: few requests answer the two hours of W1 from a day that QuestDB wrote with its default settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coldparquet_bench.measurement import OURS, run
from tests.benchmarks import questdb_day

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.usefixtures("questdb"),  # it says what is missing where there can be no QuestDB
]


def test_two_hours_of_questdb_take_at_most_ten_requests(tmp_path: Path) -> None:
    readers = (OURS, "Polars")
    [results] = run(questdb_day.benchmark(rows=1_000_000).only(*readers), rounds=1, directory=tmp_path).values()
    ours, polars = (results[name] for name in readers)
    assert ours.answer == polars.answer > 0
    assert ours.first.requests <= 10
    assert ours.first.megabytes < polars.first.megabytes / 2, "whose statistics nobody else may believe"
    assert ours.warm.requests == 0
