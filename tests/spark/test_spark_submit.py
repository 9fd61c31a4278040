"""Pipelines that ``spark-submit`` starts, in a driver of their own and in the session of the tests."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from coldparquet.pipelines import LocalEngine
from pyspark_coldparquet import submit
from tests.support.spark_sessions import JOB_TIMEOUT_S, MASTER, ROOT, environment, session_settings
from tests.support.table_copies import make_lake, partition_count

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_a_job_by_spark_submit(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, "interval_day")
    settings = [
        part for name, value in session_settings(tmp_path / "spark").items() for part in ("--conf", f"{name}={value}")
    ]
    spark_submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [spark_submit, "--master", MASTER, *settings, submit.__file__, "index", lake, "--tasks", "2", "--json"],
        cwd=tmp_path,
        env=os.environ | environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=JOB_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])  # behind whatever the driver has written to standard error
    assert (report["engine"], report["partition_actions"]) == ("spark", {"written": partition_count("interval_day")})


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (["index", "s3://bucket/db"], ["pipeline", "index", "--engine", "spark", "s3://bucket/db"]),
        (
            ["verify", "/db", "--engine", "local"],
            ["pipeline", "verify", "--engine", "spark", "/db", "--engine", "local"],
        ),
        (["--help"], ["pipeline", "--help"]),
        ([], ["pipeline"]),
    ],
)
def test_arguments_of_the_file(given: list[str], arguments: list[str]) -> None:
    assert submit.pipeline_arguments(given) == arguments


@pytest.mark.usefixtures("spark")
def test_the_nightly_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lake = make_lake(tmp_path, "interval_day")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "0")  # as in a driver that spark-submit has started
    monkeypatch.setattr(sys, "argv", ["nightly_pipeline.py", str(lake)])
    monkeypatch.delattr(LocalEngine, "execute")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / "nightly_pipeline.py"))
    assert ended.value.code == 0
    names = [line.partition(":")[0] for line in capfd.readouterr().out.splitlines()]
    assert names == ["index", "compact", "verify"]
