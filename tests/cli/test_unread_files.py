"""What the commands say of files that are not read, and of tables that keep a log of theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import Run
from tests.support.small_tables import DAY, LOGS, write


def test_commands_tell_on_standard_error_and_by_their_exit_codes(run: Run, tmp_path: Path) -> None:
    table = write(tmp_path / "t", [DAY, "date=2023-01-02/a\x1b[31m.parquet", "b\x1b[31m.parquet"])
    for command in ("count", "scan", "explain"):
        refused = run(command, table)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "rows are missing: b" in refused.stderr
        assert "--unread skip reads the others alone" in refused.stderr
        allowed = run(command, table, "--unread", "skip")
        assert allowed.exit_code == 0
        assert allowed.stderr.startswith(f"warning: {table}: rows are missing: b")
        assert "\x1b" not in allowed.stderr
    for command, code in (("index", 1), ("verify", 1), ("inspect", 1)):
        found = run(command, table)
        assert found.exit_code == code
        assert "rows are missing: b" in " ".join(found.stdout.split())
        told = json.loads(run(command, table, "--json").stdout)
        findings = told["files"][0]["findings"] if "files" in told else told["findings"]
        assert findings[0]["kind"] == "UnreadFiles"
    piped = run("pipeline", "index", table, "--json")
    assert piped.exit_code == 1
    assert "UnreadFiles" in piped.stdout


@pytest.mark.parametrize("log", LOGS)
def test_inspect_says_that_a_table_keeps_a_log(run: Run, tmp_path: Path, log: str) -> None:
    result = run("inspect", write(tmp_path / "t", ["date=2023-01-02/part-0.parquet", LOGS[log]]))
    assert result.exit_code == 1
    assert f"--from-format {log}" in result.stderr


def test_searches_for_tables_pass_by_tables_that_keep_a_log(run: Run, tmp_path: Path) -> None:
    lake = write(tmp_path / "lake", [f"ours/{DAY}", "theirs/date=2023-01-02/data.parquet", f"theirs/{LOGS['delta']}"])
    indexed = run("pipeline", "index", lake, "--json")
    assert indexed.exit_code == 0
    assert sorted(path.relative_to(lake).as_posix() for path in lake.rglob("_pm")) == ["ours/2023-01-01/_pm"]
    refused = run("pipeline", "index", lake / "theirs")
    assert refused.exit_code == 1
    assert "--from-format delta" in refused.stderr
