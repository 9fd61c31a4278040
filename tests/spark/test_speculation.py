"""Spark runs a second copy of a task that hangs: every row is there once all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import coldparquet as cp
from tests.support.spark_jobs import ROWS, SETTINGS, write_and_read_with_copies
from tests.support.spark_sessions import run_in_spark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,  # minutes: Spark copies a task only once it has hung for long
    pytest.mark.usefixtures("java"),
]


def test_of_two_copies_of_a_task_one_counts(tmp_path: Path) -> None:
    table = tmp_path / "trades"
    found = run_in_spark(
        write_and_read_with_copies,
        str(table),
        str(tmp_path / "markers"),
        mode="hosts",
        directory=tmp_path / "spark",
        settings=SETTINGS,
    )
    assert found["attempts"] == {"write": 2, "read": 2}, "otherwise nothing was tried"
    assert found["numbers"] == list(range(ROWS))
    assert found["counted"] == ROWS
    with cp.sync.open_table(table) as opened:
        assert opened.scan(["number"]).to_arrow().sort_by("number")["number"].to_pylist() == list(range(ROWS))
        named = {Path(partition.directory_path).name for partition in opened.partitions}
    assert named == {path.name for path in table.iterdir() if path.is_dir()}, "nothing of the copy that lost is left"
