"""``coldparquet migrate``: what it prints. What it does is tested with ``migrate_table``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.support.table_copies import copy_table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.command_line import Run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return copy_table("interval_day", tmp_path)


def test_write_then_keep(run: Run, table: Path) -> None:
    planned = run("migrate", table, "--dry-run")
    assert planned.exit_code == 0
    assert planned.stdout.splitlines()[-1].startswith("5 partitions: 4 would write (")
    assert not list(table.glob("*/_pm"))

    written = run("migrate", table)
    assert (written.exit_code, written.stderr) == (0, "")
    assert written.stdout.splitlines()[-1].startswith("5 partitions: 4 written (")
    assert "2024-03-02  skipped  in QuestDB's native format" in written.stdout
    assert len(list(table.glob("*/_pm"))) == 4

    assert run("migrate", table).stdout.splitlines()[-1] == "5 partitions: 4 have a sidecar already, 1 skipped"
    assert run("migrate", table, "--force").stdout == written.stdout


def test_json(run: Run, table: Path) -> None:
    report = json.loads(run("migrate", table, "--json").stdout)
    assert report["counts"] == {"written": 4, "skipped": 1}
    assert report["url"] == str(table)
    assert [partition["action"] for partition in report["partitions"]] == ["written"] * 4 + ["skipped"]


def test_a_failure_is_told_and_decides_the_exit_code(run: Run, table: Path) -> None:
    os.truncate(min(table.glob("*/data.parquet")), 10)
    result = run("migrate", table)
    assert result.exit_code == 1
    assert "2024-02-27.4 failed data.parquet: it has 10 bytes" in " ".join(result.stdout.split())
    assert result.stdout.endswith("1 skipped, 1 failed\n")


def test_what_is_no_table(run: Run, table: Path) -> None:
    (table / "_txn").unlink()
    result = run("migrate", table)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("note: skipped: there is no _txn here")
    missing = run("migrate", table / "nothing")
    assert missing.exit_code == 1
    assert missing.stderr.startswith("error: ")
