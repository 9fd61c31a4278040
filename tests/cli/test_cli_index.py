"""``coldparquet index``: what it prints. What it does is tested with ``index_table``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.command_line import Run


@pytest.fixture
def table(questdb_table: Callable[[str], Path]) -> Path:
    return questdb_table("interval_day")


def test_write_then_keep(run: Run, table: Path) -> None:
    planned = run("index", table, "--dry-run")
    assert planned.exit_code == 0
    assert "4 partitions: 4 would write" in planned.stdout
    assert not list(table.glob("*/_pm"))

    written = run("index", table)
    assert (written.exit_code, written.stderr) == (0, "")
    assert written.stdout.startswith("4 partitions: 4 written (")
    assert len(list(table.glob("*/_pm"))) == 4

    assert run("index", table).stdout == "4 partitions: 4 have a sidecar already\n"
    assert run("index", table, "--force").stdout == written.stdout


def test_json(run: Run, table: Path) -> None:
    report = json.loads(run("index", table, "--json").stdout)
    assert report["counts"] == {"written": 4}
    assert report["url"] == str(table)
    for partition in report["partitions"]:
        assert partition["action"] == "written"
        assert partition["path"].endswith("/_pm")
        assert partition["sidecar_bytes"] > 0


def test_pages_are_told_beside_the_sidecars(run: Run, table: Path) -> None:
    planned = run("index", table, "--pages", "--dry-run")
    assert planned.stdout.count("_pages: ") == 5
    written = run("index", table, "--pages")
    assert written.exit_code == 0
    sidecars, pages = written.stdout.splitlines()
    assert sidecars.startswith("4 partitions: 4 written (")
    assert pages.startswith("_pages: 4 written (")
    assert pages.endswith("); 28 of 28 column chunks described")
    report = json.loads(run("index", table, "--pages", "--json").stdout)
    assert {partition["pages"]["action"] for partition in report["partitions"]} == {"kept"}
    assert {partition["pages"] for partition in json.loads(run("index", table, "--json").stdout)["partitions"]} == {
        None
    }


def test_files_of_another_name_are_told_and_fail(run: Run, table: Path) -> None:
    first, *others = sorted(table.iterdir())
    for partition in others:
        (partition / "data.parquet").rename(partition / "part-0.parquet")
    told = (
        "holds part-0.parquet, but no data.parquet: rename it, or convert the lake with 'coldparquet pipeline convert'"
    )
    mixed = run("index", table)
    assert mixed.exit_code == 1
    assert " ".join(mixed.stdout.split()).count(told) == 3
    assert run("index", table).exit_code == 1  # also when the other one has a sidecar

    (first / "_pm").unlink()
    (first / "data.parquet").rename(first / "part-0.parquet")
    (first / "part-1.parquet").touch()
    alone = run("index", table)
    assert alone.exit_code == 1
    text = " ".join(alone.stdout.split())
    assert "holds part-0.parquet, part-1.parquet, but no data.parquet: convert the lake" in text
    assert text.endswith("4 partitions: 4 skipped")
    counted = run("count", table)
    assert (counted.exit_code, counted.stdout) == (1, "")
    expected = "there is no data.parquet in this directory, and a partition is one file of that name; it holds"
    first_told, _, second_told = counted.stderr.partition(" part-0.parquet, part-1.parquet: convert the lake")
    assert first_told.endswith(expected)
    assert "or the partition was removed or replaced since" in second_told


def test_a_failure_is_told_and_decides_the_exit_code(run: Run, table: Path) -> None:
    run("index", table)
    first, second, third, _ = sorted(table.iterdir())
    (first / "_pm").write_bytes(b"garbage")
    pq.write_table(pq.read_table(second / "data.parquet").slice(0, 1), second / "data.parquet")
    (third / "_pm").unlink()
    result = run("index", table)
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert f"{first.name} failed" in text
    assert f"{second.name} written stale: it described" in text
    assert text.endswith("1 has a sidecar already, 1 failed, 1 of the old ones stale")
