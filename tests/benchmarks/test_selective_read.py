"""The benchmark of the README runs, and its request counts hold; times are printed, never asserted."""

from __future__ import annotations

import pytest

from tests.benchmarks.harness import OURS, report, run
from tests.benchmarks.selective_read import ASKED, benchmark


@pytest.mark.slow
@pytest.mark.benchmark
def test_the_selective_read_takes_the_requests_that_the_readme_says() -> None:
    results = run(benchmark().only(OURS, "Polars", "pyarrow"), rounds=1)
    print(report(results))
    ours = results[ASKED][OURS]
    assert ours.first.requests == 8, "sidecar and page file, and two requests for each of three row groups"
    assert ours.warm.requests == 6
    assert ours.first.megabytes < results[ASKED]["Polars"].first.megabytes
