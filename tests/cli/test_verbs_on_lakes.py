"""The verbs on lakes, under their own names and under ``pipeline``: what is printed, exit codes, and that flags reach the jobs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from coldparquet_testing.simulator import ColdStoreServer
from tests.support.command_line import Run, plain
from tests.support.table_copies import copy_table, damage, make_lake


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make_lake(tmp_path / "bucket", "interval_day", "interval_hour")


def test_one_command_takes_one_table_many_or_a_lake(run: Run, lake: Path) -> None:
    first = run("index", lake)
    assert first.exit_code == 0
    assert "index: 8 partitions of 2 tables in" in first.stdout
    assert "8 written (" in first.stdout
    days, hours = lake / "db" / "interval_day", lake / "db" / "interval_hour"
    of_lakes: list[list[str | Path]] = [
        [lake],
        [lake / "db" / "*"],
        [days, hours],
        [days, "--engine", "local"],
        [days, "--processes", "1"],
    ]
    for arguments in of_lakes:
        for command in (["index"], ["pipeline", "index"]):
            report = json.loads(run(*command, *arguments, "--json").stdout)
            assert (report["job"], report["engine"]) == ("index", "local")
            assert report["partition_actions"] == {"kept": 4 if days in arguments and hours not in arguments else 8}
    assert "partition_actions" in json.loads(run("pipeline", "index", days, "--json").stdout)
    assert json.loads(run("index", days, "--json").stdout)["counts"] == {"kept": 4}
    assert "index: 4 partitions in" in run("pipeline", "index", days).stdout


@pytest.mark.parametrize("verb", ["migrate", "compact", "pack", "verify"])
def test_a_lake_of_one_verb(run: Run, tmp_path: Path, verb: str) -> None:
    table = copy_table("interval_day", tmp_path / "db")
    run("index", table)
    here, former = (json.loads(run(*name, tmp_path / "db", "--json").stdout) for name in ([verb], ["pipeline", verb]))
    assert (here["job"], here["is_dry_run"], here["lakes"]) == (verb, False, [str(tmp_path / "db")])
    assert {result["table"] for result in here["results"]} == {str(table)}
    assert [result["partition"] for result in former["results"]] == [result["partition"] for result in here["results"]]


def test_publish_takes_sources_and_then_the_destination(run: Run, tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path / "db")
    lake = run("publish", tmp_path / "db", tmp_path / "published", "--json")
    (result,) = json.loads(lake.stdout)["results"]
    assert (lake.exit_code, result["action"]) == (0, "published")
    assert result["details"]["destination"] == str(tmp_path / "published" / table.name)
    nowhere = run("publish", table)
    assert nowhere.exit_code == 2
    assert "name the table or lake, and then the destination" in plain(nowhere.stderr)
    prices = run("publish", tmp_path / "db", table, tmp_path / "published", "--prices", "ours.json")
    assert prices.exit_code == 2
    assert "it is for one table" in plain(prices.stderr)


def test_a_failure_is_listed_first_and_exits_with_1(run: Run, lake: Path) -> None:
    bad = sorted((lake / "db" / "interval_hour").iterdir())[2]
    damage(bad)
    result = run("pipeline", "index", lake)
    assert result.exit_code == 1
    assert bad.name in result.stdout.splitlines()[1]
    assert "1 failed" in result.stdout
    assert "7 written" in result.stdout


def test_a_lake_that_is_missing_does_not_stop_the_others(run: Run, lake: Path, tmp_path: Path) -> None:
    good, empty = lake / "db" / "interval_day", tmp_path / "empty"
    empty.mkdir()
    result = run("pipeline", "index", empty, good, tmp_path / "absent")
    assert result.exit_code == 1
    assert "empty: no table lies" in plain(result.stdout)
    assert "absent: there is no such" in plain(result.stdout)
    assert "index: 4 partitions of 1 table in" in result.stdout
    assert "; lakes and directories: 2 not opened\n" in result.stdout
    assert (min(good.iterdir()) / "_pm").exists()

    only_bad = run("pipeline", "index", empty, tmp_path / "absent")
    assert only_bad.exit_code == 3
    assert not only_bad.stdout
    assert plain(only_bad.stderr).startswith(f"error: {empty}: no table lies there")


def test_verify_names_what_is_not_sound(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("pipeline", "index", lake)
    sound = run("pipeline", "verify", lake)
    assert sound.exit_code == 0
    [summary] = sound.stdout.splitlines()
    assert re.fullmatch(
        r"verify: 8 partitions of 2 tables in .*: 352 rows, 30.4 KiB of Parquet: nothing wrong", summary
    )
    monkeypatch.chdir(lake)  # short names fit into one line
    days, hours = (sorted(Path("db", name).iterdir()) for name in ("interval_day", "interval_hour"))
    shutil.copytree(days[0], days[0].with_suffix(".1"))
    (days[1] / "_pm").unlink()
    damage(hours[0])
    result = run("pipeline", "verify", "db")
    assert result.exit_code == 1
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[1] for line in lines if line and line[0] in {"error", "warning", "advice"}] == [
        "InvalidValue",
        "NoSidecar",
        "LeftAside",
    ]
    assert [line[:2] for line in lines if line and line[0].startswith("db/")] == [
        ["db/interval_hour", hours[0].name],
        ["db/interval_day", days[1].name],
        ["db/interval_day", f"{days[0].stem}.1"],
    ]
    assert result.stdout.endswith(": 1 error, 1 warning, 1 suggestion\n")


def test_a_long_list_is_cut(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldparquet.cli.output._MOST_LISTED", 3)
    result = run("pipeline", "index", lake, "--dry-run")
    assert sum("would write" in line for line in result.stdout.splitlines()) == 3 + 2  # and the summaries
    assert "... and 5 more; --json shows all" in result.stdout


def test_a_dry_run_of_tiering_shows_dollars(run: Run, tmp_path: Path, lake: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        options = server.storage_options
        flags = ["--storage-option", f"key={options['key']}", "--storage-option", f"secret={options['secret']}"]
        result = run(
            "pipeline", "tier", "s3://bucket/lake", "--storage-class-after", "30d=STANDARD_IA", "--least-bytes", "0",
            "--dry-run", "--endpoint-url", server.endpoint_url, *flags,
        )  # fmt: skip
        assert not [request for request in server.requests if request.method == "PUT"]
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "8 would move (" in result.stdout
    assert "$0.00008" in result.stdout
    assert "a month" in result.stdout
    assert lake.exists()


def test_publish_and_verify(run: Run, tmp_path: Path) -> None:
    copy_table("interval_day", tmp_path / "db")
    published = run("pipeline", "publish", tmp_path / "db", "--to", tmp_path / "published")
    assert published.exit_code == 0, published.stderr
    assert "1 published (" in published.stdout
    assert run("pipeline", "verify", tmp_path / "published", "--deep").exit_code == 0


def test_publish_without_native_partitions_fails_and_says_so(run: Run, tmp_path: Path) -> None:
    copy_table("interval_day", tmp_path / "db")
    for action in ("would publish", "published", "unchanged"):
        flags = ("--dry-run",) if action == "would publish" else ()
        command = (
            "pipeline",
            "publish",
            tmp_path / "db",
            "--to",
            tmp_path / "published",
            "--native",
            "leave",
            "--json",
        )
        published = run(*command, *flags)
        (result,) = json.loads(published.stdout)["results"]
        assert (published.exit_code, result["outcome"], result["action"]) == (1, "failed", action)
        assert (result["kind"], result["reason"]) == ("RowsLeftBehind", "8 rows in native partitions stay behind")


def test_compact_and_convert_take_their_flags(run: Run, tmp_path: Path, lake: Path) -> None:
    commands: list[list[str | Path]] = [
        ["compact", lake, "--dry-run", "--row-group-rows", "1000"],
        ["convert", lake, "--to", tmp_path / "converted", "--dry-run"],
    ]
    for arguments in commands:
        for result in (run(*arguments), run("pipeline", *arguments)):
            assert result.exit_code == 0, result.stdout + result.stderr
    assert not (tmp_path / "converted").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["index", "/nowhere/at/all"],
            3,
            "no such directory; not even its directory /nowhere/at exists; expected a table, or",
        ),
        (["index", "LAKE", "--engine", "ray"], 2, "none of local and spark"),
        (["index", "LAKE", "--tasks", "3"], 2, "it is for --engine spark"),
        (["index", "LAKE", "--engine", "spark", "--processes", "3"], 2, "it is for --engine local"),
        (["tier", "LAKE", "--least-bytes", "some"], 2, "it must be a number of bytes"),
        (["index"], 2, "LAKE"),
        (["tier", "LAKE"], 1, "tier needs a rule"),
        (["tier", "LAKE", "--storage-class-after", "soon=COLD"], 1, "no rule for a storage class"),
        (["publish", "LAKE", "--to", "/x", "--dropped", "maybe"], 1, "refuse, keep, remove"),
        (["publish", "LAKE", "--to", "/x", "--native", "maybe"], 1, "convert, leave, refuse"),
        (["convert", "LAKE", "--to", "/x", "--to-format", "coldparquet"], 1, "(--from-format)"),
        (["convert", "LAKE", "--to", "/x", "--from-format", "csv", "--to-format", "coldparquet"], 1, "(--timestamp)"),
    ],
)
def test_wrong_usage(run: Run, lake: Path, arguments: list[str], code: int, message: str) -> None:
    words = [str(lake) if argument == "LAKE" else argument for argument in arguments]
    for name in ([], ["pipeline"]):
        if name or "publish" not in words:
            result = run(*name, *words)
            assert result.exit_code == code, result.stdout + result.stderr
            assert name == [] or message in plain(result.stdout + result.stderr)


def test_spark_without_java(lake: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "coldparquet", "pipeline", "index", str(lake), "--engine", "spark"]
    environment = {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert "error: Spark did not start: it needs Java 17" in plain(result.stderr)
    assert "Traceback" not in result.stderr


def test_spark_that_is_not_installed(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    result = run("pipeline", "index", lake, "--engine", "spark")
    assert result.exit_code == 1
    assert "needs the package pyspark.sql: pip install 'coldparquet[cli,spark]'" in plain(result.stderr)


@pytest.mark.parametrize("chosen", [None, "/opt/env/bin/python"])
def test_workers_of_spark_run_this_python(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    found = []

    class Builder:
        def appName(self, _name: str) -> Builder:  # noqa: N802 - Spark's name
            return self

        def getOrCreate(self) -> None:  # noqa: N802
            found.append(os.environ["PYSPARK_PYTHON"])
            raise PySparkRuntimeError("JAVA_GATEWAY_EXITED")

    monkeypatch.setenv("PYSPARK_PYTHON", chosen or "to be put back")
    if chosen is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    assert run("pipeline", "index", make_lake(tmp_path / "bucket", "interval_day"), "--engine", "spark").exit_code == 1
    assert found == [chosen or sys.executable]
