"""``coldparquet pipeline``: what is printed, what exit codes mean, and that flags reach the jobs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coldparquet_testing.simulator import ColdStoreServer
from tests.support.command_line import plain
from tests.support.table_copies import copy_table, damage, make_lake

if TYPE_CHECKING:
    from tests.support.command_line import Run


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make_lake(tmp_path / "bucket", "interval_day", "interval_hour")


def test_index_and_what_is_left(run: Run, lake: Path) -> None:
    first = run("pipeline", "index", lake)
    assert first.exit_code == 0
    assert "index: 8 partitions of 2 tables in" in first.stdout
    assert "8 written (" in first.stdout
    again = run("pipeline", "index", lake / "db" / "*_day", "--json")
    report = json.loads(again.stdout)
    assert (report["job"], report["engine"], report["partition_actions"]) == ("index", "local", {"kept": 4})


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
    assert result.stdout.rstrip().endswith("; lakes and directories: 2 not opened")
    assert (min(good.iterdir()) / "_pm").exists()

    only_bad = run("pipeline", "index", empty, tmp_path / "absent")
    assert only_bad.exit_code == 1
    assert not only_bad.stdout
    assert plain(only_bad.stderr).startswith(f"error: {empty}: no table lies there")


def test_verify_counts_partitions_and_tables_apart_and_names_what_is_not_sound(
    run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("pipeline", "index", lake)
    sound = run("pipeline", "verify", lake)
    assert sound.exit_code == 0
    [summary] = sound.stdout.splitlines()
    assert summary.startswith("verify: 8 partitions of 2 tables in")
    assert re.search(r": 8 sound \([^)]*\); tables: 2 sound$", summary)

    monkeypatch.chdir(lake)  # short names fit into one line
    days, hours = (sorted(Path("db", name).iterdir()) for name in ("interval_day", "interval_hour"))
    shutil.copytree(days[0], days[0].with_suffix(".1"))
    (days[1] / "_pm").unlink()
    damage(hours[0])
    result = run("pipeline", "verify", "db")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.split()[:3] for line in lines if line.startswith("db/")] == [
        ["db/interval_hour", hours[0].name, "error"],
        ["db/interval_day", days[1].name, "warning"],
        ["db/interval_day", "advice", f"{days[0].stem}.1"],
    ]
    counts = lines[-1].partition(": ")[2].partition(": ")[2]
    assert re.sub(r" \([^)]*\)", "", counts) == "6 sound, 1 warning, 1 error; tables: 1 advice, 1 sound"


def test_a_long_list_is_cut(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldparquet.cli.output._MOST_LISTED", 3)
    result = run("pipeline", "index", lake, "--dry-run")
    assert sum("would write" in line for line in result.stdout.splitlines()) == 3 + 1  # and the summary
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


def test_migrate_compact_and_convert_take_their_flags(run: Run, tmp_path: Path, lake: Path) -> None:
    commands: list[list[str | Path]] = [
        ["migrate", lake, "--dry-run"],
        ["compact", lake, "--dry-run", "--row-group-rows", "1000"],
        ["convert", lake, "--to", tmp_path / "converted", "--dry-run"],
    ]
    for arguments in commands:
        result = run("pipeline", *arguments)
        assert result.exit_code == 0, result.stdout + result.stderr
    assert not (tmp_path / "converted").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["index", "/nowhere/at/all"],
            1,
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
    result = run("pipeline", *(str(lake) if argument == "LAKE" else argument for argument in arguments))
    assert result.exit_code == code, result.stdout + result.stderr
    assert message in plain(result.stdout + result.stderr)


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
