"""``coldparquet compact``: what it prints. What it does is tested with ``compact_table``."""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.support.table_copies import contents_of, copy_table
from tests.support.written_tables import directories

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.command_line import Run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return copy_table("o3_in_place", tmp_path)


def words(text: str) -> str:
    return " ".join(text.split())


def test_plan_then_compact_then_purge(run: Run, table: Path) -> None:
    before = contents_of(table)
    planned = run("compact", table, "--dry-run")
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert "2024-01-01.2 69.8 KiB 6 6 row groups of 167 rows on average, where 1 would do" in words(planned.stdout)
    assert planned.stdout.endswith("3 partitions (transaction 7 of _txn): 2 would compact, 1 skipped\n")
    assert contents_of(table) == before

    done = run("compact", table)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "2024-01-01.2 -> 2024-01-01.7 69.8 KiB -> " in words(done.stdout)
    assert " 6 -> 1 unknown -> 7" in words(done.stdout)
    assert "2024-01-03 skipped in QuestDB's native format" in words(done.stdout)
    assert "3 partitions (transaction 9 of _txn): 2 compacted (139 KiB -> " in words(done.stdout)

    again = run("compact", table, "--purge")
    assert words(again.stdout).endswith("3 partitions (transaction 9 of _txn): 2 unchanged, 1 skipped")
    planned = run("compact", table, "--purge", "--purge-after-hours", 0, "--dry-run")
    assert "2 old versions would be removed: 2024-01-01.2, 2024-01-02.1" in planned.stdout
    assert len(directories(table)) == 5
    purged = run("compact", table, "--purge", "--purge-after-hours", 0)
    assert "2 old versions removed: 2024-01-01.2, 2024-01-02.1" in purged.stdout
    assert directories(table) == ["2024-01-01.7", "2024-01-02.8", "2024-01-03"]


def test_json(run: Run, table: Path) -> None:
    report = json.loads(run("compact", table, "--json", "--force", "-p", "2024-01-02").stdout)
    assert report["counts"] == {"compacted": 1}
    assert (report["url"], report["source"], report["txn"]) == (str(table), "transaction 7 of _txn", 8)
    [done] = report["partitions"]
    assert (done["name"], done["new_name"], done["rows"]) == ("2024-01-02.1", "2024-01-02.7", 1041)
    assert (done["before"]["row_groups"], done["after"]["row_groups"]) == (5, 1)
    assert done["after"]["parquet_size_bytes"] < done["before"]["parquet_size_bytes"]


def test_a_failure_is_told_and_decides_the_exit_code(run: Run, table: Path) -> None:
    os.truncate(table / "2024-01-01.2" / "data.parquet", 10)
    result = run("compact", table)
    assert result.exit_code == 1
    assert "2024-01-01.2 failed data.parquet: " in words(result.stdout)
    assert words(result.stdout).endswith("1 skipped, 1 failed")


def test_a_running_server_is_an_error(run: Run, table: Path) -> None:
    with (table.parent / "tables.d.lock").open("w") as server:
        fcntl.flock(server, fcntl.LOCK_EX)
        result = run("compact", table)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "a QuestDB server is running on this database" in words(result.stderr)
        as_json = json.loads(run("compact", table, "--json").stdout)
        assert as_json["error"]["kind"] == "ServerRunning"


def test_what_is_no_table(run: Run, table: Path) -> None:
    missing = run("compact", table / "nothing")
    assert missing.exit_code == 1
    assert missing.stderr.startswith("error: ")
    unknown = run("compact", table, "--partition", "2031-01-01")
    assert unknown.exit_code == 1
    assert "no partition 2031-01-01" in unknown.stderr
