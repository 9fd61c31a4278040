"""``coldparquet pack``, and ``--pack`` of other commands: what they print. What they do is tested with ``pack_table``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.small_tables import TABLE, partitions_alone
from tests.support.table_copies import copy_table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.command_line import Run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return copy_table("interval_day", tmp_path)


def last_line(text: str) -> str:
    """Return what is said of the catalogue, which is said last, in one line."""
    return " ".join(text[text.rindex("_catalogue: ") :].split())


def test_pack_and_pack_again(run: Run, table: Path) -> None:
    run("index", table)
    planned = run("pack", table, "--dry-run")
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert last_line(planned.stdout).startswith("_catalogue: would write (")
    assert not (table / "_catalogue").exists()

    written = run("pack", table)
    assert written.exit_code == 0
    assert "2024-03-02  left out: in QuestDB's native format" in written.stdout
    assert last_line(written.stdout).startswith("_catalogue: written (")
    words = "), 4 of 5 partitions: readers use it in copies on S3, not here, where no listing tells versions"
    assert last_line(written.stdout).endswith(words)
    assert last_line(run("pack", table).stdout) == last_line(written.stdout).replace("written", "unchanged")
    assert "catalogue" not in run("explain", table).stdout


def test_json(run: Run, table: Path) -> None:
    run("index", table)
    report = json.loads(run("pack", table, "--json").stdout)
    assert (report["url"], report["action"], report["packed"]) == (str(table), "written", 4)
    assert report["catalogue_bytes"] == (table / "_catalogue").stat().st_size
    assert [partition["reason"] for partition in report["partitions"]] == [None] * 4 + ["in QuestDB's native format"]


def test_where_there_is_nothing_to_pack_the_command_fails(run: Run, tmp_path: Path) -> None:
    for path, data in partitions_alone(15).items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    result = run("pack", tmp_path / TABLE)
    assert result.exit_code == 1
    words = " ".join(result.stdout.split())
    assert "and 3 more" in words
    assert "left out: without a _txn" in words
    assert words.endswith("there is no partition with a sidecar that can be packed")


@pytest.mark.parametrize("command", ["index", "migrate"])
def test_other_commands_make_and_renew_it(run: Run, table: Path, command: str) -> None:
    assert "_catalogue" not in run(command, table).stdout
    assert last_line(run(command, table, "--pack").stdout).startswith("_catalogue: written (")
    renewed = json.loads(run(command, table, "--json").stdout)
    assert renewed["catalogue"]["action"] == "unchanged"


def test_compact_and_publish(run: Run, table: Path, tmp_path: Path) -> None:
    compacted = run("compact", table, "--force", "--pack")
    assert (compacted.exit_code, compacted.stderr) == (0, "")
    assert "_catalogue: written (" in compacted.stdout
    published = run("publish", table, tmp_path / "published", "--pack")
    assert (published.exit_code, published.stderr) == (0, "")
    assert "_catalogue: written (" in published.stdout
    again = json.loads(run("publish", table, tmp_path / "published", "--json").stdout)
    assert again["catalogue"]["action"] == "unchanged"
