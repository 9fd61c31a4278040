"""The benchmark of Spark runs, on less data, and what it promises of requests holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from coldparquet.records import replace
from coldparquet_bench import spark_trades
from coldparquet_bench.measurement import OURS
from coldparquet_bench.spark_measurement import run_in_sessions
from tests.support.live_servers import REQUIRED_VARIABLE, install, missing_commands

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.benchmark, pytest.mark.usefixtures("java")]

ASKED = (spark_trades.ONE_DAY, spark_trades.EXTREMES_DAY, spark_trades.THREE_DAYS)


@pytest.fixture
def jars() -> None:
    """What Spark needs to read over S3A."""
    if not missing_commands("mvn"):
        install("spark_jars.sh")
    elif os.environ.get(REQUIRED_VARIABLE):
        pytest.fail(f"the jars of S3A were not fetched: mvn missing on this machine, and {REQUIRED_VARIABLE} is set")
    else:
        pytest.skip("the jars of S3A were not fetched: mvn missing on this machine")


@pytest.mark.usefixtures("jars")
def test_requests_in_spark(tmp_path: Path) -> None:
    everything = spark_trades.benchmark(is_small=True)
    questions = {name: replace(everything.questions[name], warm_calls=1) for name in ASKED}
    results = run_in_sessions(replace(everything, questions=questions), rounds=1, directory=tmp_path)
    one_day, three_days = results[spark_trades.ONE_DAY], results[spark_trades.THREE_DAYS]
    for ours in (OURS, spark_trades.READ):
        assert one_day[ours].warm.data_requests <= one_day[spark_trades.S3A].warm.data_requests / 2
        assert three_days[ours].warm.requests <= three_days[spark_trades.S3A].warm.requests / 4, "of 30 days alone"
    assert results[spark_trades.EXTREMES_DAY][spark_trades.HELPER].first.data_requests == 0
