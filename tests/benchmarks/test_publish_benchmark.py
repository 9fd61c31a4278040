"""The benchmark of publishing runs; times are printed, never asserted."""

from __future__ import annotations

import pytest

from tests.benchmarks.publish import CONTENDERS, report, run

TOTAL_BYTES = 20_000_000
"""To see that it runs; the module itself measures with more."""


@pytest.mark.slow
@pytest.mark.benchmark
def test_every_contender_uploads_the_table() -> None:
    medians_s = run(total_bytes=TOTAL_BYTES, rounds=1)
    print(report(medians_s, TOTAL_BYTES))
    assert medians_s.keys() == CONTENDERS.keys()
