"""The benchmark of publishing runs; times are printed, never asserted."""

from __future__ import annotations

import pytest

from tests.benchmarks.publish import CONTENDERS, report, run


@pytest.mark.slow
@pytest.mark.benchmark
def test_every_contender_uploads_the_table() -> None:
    medians_s = run(total_bytes=200_000_000, rounds=1)
    print(report(medians_s, 200_000_000))
    assert medians_s.keys() == CONTENDERS.keys()
