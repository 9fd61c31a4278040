"""The benchmark of the README runs, and its request counts hold; times are printed, never asserted."""

from __future__ import annotations

import pytest

from tests.benchmarks.selective_read import run, table


@pytest.mark.slow
@pytest.mark.benchmark
def test_the_selective_read_takes_the_requests_that_the_readme_says() -> None:
    results = run(rounds=1)
    print(table(results))
    ours = results["coldparquet"]
    assert ours["first_requests"] == 7, "the sidecar and two requests for each of three row groups"
    assert ours["warm_requests"] == 6
    assert ours["first_mb"] < results["Polars"]["first_mb"]
