"""The memory limit holds, requests cost what is said, and reports mark disturbed times; times are printed, never asserted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldparquet.records import replace
from coldparquet_bench import stolen_time
from coldparquet_bench.measurement import COLD_STORE, OURS, Result, Spent
from coldparquet_bench.report import report
from coldparquet_bench.stolen_time import StolenTime
from tests.benchmarks import store_requests
from tests.benchmarks.memory_ceiling import ROW_BYTES, make_partition, scan_in_child

PROCESS_MB = 100
"""Interpreter and libraries take about 90 MB before anything is read."""


@pytest.mark.benchmark
def test_a_small_limit_bounds_the_memory_of_the_process(tmp_path: Path) -> None:
    make_partition(tmp_path / "day", row_groups=2, row_group_mb=80)
    found = scan_in_child(tmp_path / "day", 32)
    assert found.rows == 2 * (80 * 1024 * 1024 // ROW_BYTES)
    assert found.held_mb <= 32
    assert found.peak_mb - found.before_mb < 100, "without a limit it is the 160 MB of the partition and more"


@pytest.fixture(scope="module")
def four_gigabytes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("memory") / "day"
    make_partition(directory, row_groups=4, row_group_mb=1024)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.soak
@pytest.mark.benchmark
@pytest.mark.parametrize("where", [None, "size < 50"])
def test_four_gigabytes_are_scanned_in_256_mb(four_gigabytes: Path, where: str | None) -> None:
    found = scan_in_child(four_gigabytes, 256, where)
    print(found)
    assert found.peak_mb < 256 + PROCESS_MB


@pytest.mark.benchmark
def test_processor_time_of_a_get(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = store_requests.main(["--requests", "32", "--rounds", "1", "--json", str(tmp_path / "found.json")])
    assert json.loads((tmp_path / "found.json").read_text()) == found
    assert {"s3fs _cat_file", "S3Store", "WebStore"} <= found["us_per_get"].keys()
    assert capsys.readouterr().out.count("us/GET") == len(found["us_per_get"])


@pytest.mark.soak
def test_a_get_takes_a_third_of_the_processor_time_of_s3fs(tmp_path: Path) -> None:
    """Processor time, of both in one run: a machine that is busy takes longer for either."""
    found = store_requests.main(["--requests", "200", "--rounds", "3", "--json", str(tmp_path / "found.json")])
    assert found["us_per_get"]["S3Store"] <= found["us_per_get"]["s3fs _cat_file"] / 3


# --- Times that were measured while a host served other machines are marked as such -----------------------------------


NOTHING = Spent(log=(), store=COLD_STORE)
RESULT = Result(
    answer=1,
    first_s=0.2,
    warm_s=0.1,
    warm_times_s=(0.1,),
    first_processor_s=None,
    warm_processor_s=None,
    peak_memory_mb=None,
    stolen_fraction=None,
    first=NOTHING,
    warm=NOTHING,
)


def test_what_the_kernel_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "stat"
    monkeypatch.setattr(stolen_time, "_FILE", file)
    file.write_text("cpu 100 0 50 800 10 0 0 40 7 7\ncpu0 1 2 3\n")
    stolen = StolenTime()
    assert stolen.fraction is None, "no time has passed"
    file.write_text("cpu 150 0 60 820 10 0 0 60 9 9\ncpu0 1 2 3\n")
    assert stolen.fraction == pytest.approx(20 / 100), "guests' times are parts of the others"


@pytest.mark.parametrize("content", [None, "", "intr 1 2\n", "cpu 1 2 3 4\n"])
def test_a_system_that_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None) -> None:
    if content is not None:
        (tmp_path / "stat").write_text(content)
    monkeypatch.setattr(stolen_time, "_FILE", tmp_path / "stat")
    assert StolenTime().fraction is None


@pytest.mark.parametrize(("fraction", "is_told"), [(None, False), (0.0, False), (0.02, False), (0.21, True)])
def test_the_report_says_so(fraction: float | None, *, is_told: bool) -> None:
    disturbed = replace(RESULT, stolen_fraction=fraction)
    text = report({"W1": {OURS: RESULT, "Polars": disturbed}})
    assert ("The host gave 21% of the processors to other machines meanwhile: measure again." in text) == is_told
