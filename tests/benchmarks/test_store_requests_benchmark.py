from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks import store_requests

if TYPE_CHECKING:
    from pathlib import Path


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
