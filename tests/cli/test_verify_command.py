"""``coldparquet verify``: what it prints, and its exit code. What it finds is tested with ``verify_table``."""

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
def table(tmp_path: Path, run: Run) -> Path:
    copied = copy_table("interval_day", tmp_path)
    assert run("migrate", copied).exit_code == 0
    return copied


def parquet_partitions(table: Path) -> list[Path]:
    return sorted(path.parent for path in table.glob("*/data.parquet"))


def test_nothing_wrong(run: Run, table: Path) -> None:
    result = run("verify", table)
    assert (result.exit_code, result.stderr) == (0, "")
    assert " ".join(result.stdout.split()) == (
        "5 partitions (transaction 5 of _txn), 200 rows, 15.7 KiB of Parquet, 1 native (not checked): nothing wrong"
    )


def test_findings_are_grouped_from_the_worst_on(run: Run, table: Path) -> None:
    one, two, three, _ = parquet_partitions(table)
    (one / "_pm").unlink()
    (two / "_pm").unlink()
    os.truncate(three / "data.parquet", 100)
    old = f"{one.name.partition('.')[0]}.0"
    (table / old).mkdir()
    result = run("verify", table)
    assert result.exit_code == 1
    blocks = [" ".join(block.split()) for block in result.stdout.split("\n\n")]
    assert blocks[0].startswith(f"error DataTooShort {three.name} data.parquet: it has 100 bytes")
    assert blocks[0].endswith("to do: copy the partition again")
    assert blocks[1].startswith(f"warning NoSidecar {one.name} there is no _pm")
    assert f" {two.name} there is no _pm" in blocks[1]
    assert blocks[1].endswith("to do: 'coldparquet migrate' writes it")
    assert blocks[2].startswith(f"advice StaleDirectories 1 old directory, not named by _txn: {old}")
    assert blocks[3].endswith("1 error, 2 warnings, 1 suggestion")


def test_warnings_leave_the_exit_code_at_0(run: Run, table: Path) -> None:
    for partition in parquet_partitions(table):
        (partition / "_pm").unlink()
    result = run("verify", table)
    assert result.exit_code == 0
    assert " ".join(result.stdout.split()).endswith("1 native (not checked): 4 warnings")


def test_many_findings_of_a_kind_are_counted(run: Run, tmp_path: Path) -> None:
    for day in range(1, 31):
        (tmp_path / f"2024-03-{day:02}").mkdir()
    result = run("verify", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.count("there is neither") == 10
    assert "... and 20 more; --json shows all" in result.stdout


def test_json(run: Run, table: Path) -> None:
    first = parquet_partitions(table)[0]
    (first / "_pm").unlink()
    report = json.loads(run("verify", table, "--json").stdout)
    assert report["url"] == str(table)
    assert report["source"] == "transaction 5 of _txn"
    assert report["counts"] == {"error": 0, "warning": 1, "advice": 0}
    assert report["findings"] == []
    partition, *others, native = report["partitions"]
    assert {key: partition[key] for key in ("name", "format", "sidecar", "rows", "row_groups", "unused_bytes")} == {
        "name": first.name,
        "format": "parquet",
        "sidecar": "absent",
        "rows": 48,
        "row_groups": 1,
        "unused_bytes": 0,
    }
    (finding,) = partition["findings"]
    assert finding["severity"] == "warning"
    assert finding["kind"] == "NoSidecar"
    assert finding["remedy"] == "'coldparquet migrate' writes it"
    assert [other["findings"] for other in others] == [[], [], []]
    assert (native["format"], native["sidecar"], native["row_groups"]) == ("native", None, None)


def test_one_partition(run: Run, table: Path) -> None:
    report = json.loads(run("verify", table, "--json", "-p", "2024-02-28", "-p", "2024-02-29.2").stdout)
    assert [partition["name"] for partition in report["partitions"]] == ["2024-02-28.1", "2024-02-29.2"]
    unknown = run("verify", table, "--partition", "2025-01-01")
    assert unknown.exit_code == 1
    assert "the table has no partition 2025-01-01" in unknown.stderr


def test_names_do_not_reach_the_terminal_raw(run: Run, table: Path) -> None:
    (table / "2024\x1b[31m").mkdir()
    assert "\x1b" not in run("verify", table).stdout


def test_deep_reads_every_byte_and_finds_what_metadata_does_not_tell(run: Run, table: Path) -> None:
    result = run("verify", table, "--deep")
    assert result.exit_code == 0
    assert "15.7 KiB of Parquet, 15.7 KiB read and compared, 1 native" in " ".join(result.stdout.split())
    partition = parquet_partitions(table)[0]
    content = bytearray((partition / "data.parquet").read_bytes())
    content[40:60] = bytes(20)  # in the pages of the first column
    (partition / "data.parquet").write_bytes(content)
    assert run("verify", table).exit_code == 0
    damaged = json.loads(run("verify", table, "--deep", "--json").stdout)
    assert damaged["counts"]["error"] >= 1
    assert damaged["partitions"][0]["read_bytes"] == len(content)
