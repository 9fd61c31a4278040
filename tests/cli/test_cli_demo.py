"""``coldparquet demo``: it shows what it promises, all readers agree, and nothing is left behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from coldparquet_testing.demo import _style
from coldparquet_testing.demo_data import ROWS_PER_DAY, write_trades
from coldparquet_testing.demo_readers import Answer
from coldparquet_testing.simulator import ServedRequest
from tests.support.command_line import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made during the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_json(run: Run, folder: Path) -> None:
    result = run("demo", "--days", 5, "--json")
    assert result.exit_code == 0
    demo = json.loads(result.stdout)
    assert demo["results_equal"] is True
    assert demo["table_rows"] == 5 * ROWS_PER_DAY
    ours, theirs = demo["answers"]["coldparquet"], demo["answers"]["pyarrow"]
    assert 0 < ours["rows"] == theirs["rows"] < demo["table_rows"]
    assert ours["requests"] < theirs["requests"]
    assert ours["round_trips"] < theirs["round_trips"]
    # The listing, the look for table files and a catalogue, per partition its sidecar and a look at its data object, where the
    # pages of the newest one lie, what the plan announced. Of more partitions the catalogue tells.
    assert ours["requests"] == 1 + 3 + 5 + 5 + 1 + demo["plan"]["request_count"]
    assert set(demo["later"]) == {"again", "count", "needle"}
    again, count, needle = demo["later"].values()
    assert (again["coldparquet"]["requests"], again["coldparquet"]["rows"]) == (0, ours["rows"])
    assert count["coldparquet"]["bytes"] < 50_000 < count["pyarrow"]["bytes"]
    assert needle["coldparquet"]["rows"] == needle["pyarrow"]["rows"]
    assert list(folder.iterdir()) == []


def test_text_on_a_narrow_terminal(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldparquet.cli.output._PLAIN_WIDTH", 80)
    result = run("demo", "--days", 2)
    assert result.exit_code == 0
    for promised in (
        "2 partitions, ",
        "listing",
        "round trips",
        "wall time",
        "$",
        "the same again",
        "amount > 500",
        "█ until",
    ):
        assert promised in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout
    assert list(folder.iterdir()) == []


def test_numbers_are_green_where_none_is_better() -> None:
    assert [_style(ours, [2.0, 4.0]) for ours in (1.0, 2.0, 3.0, 5.0)] == ["green", "green", "", "red"]


def test_the_data_is_the_same_in_every_run(tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert write_trades(tmp_path / name, days=1, on_day=lambda: None) > 0
    first, second = (tmp_path / name / "2024-01-01.0" / "data.parquet" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_nothing_is_left_behind_when_it_fails(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coldparquet_testing.demo.ask_pyarrow", fail)
    assert run("demo", "--days", 1).exit_code == 130
    assert list(folder.iterdir()) == []


def served(operation: str, started_s: float, finished_s: float) -> ServedRequest:
    return ServedRequest(
        operation=operation,
        method="GET",
        path="market/trades",
        query="",
        range_header=None,
        status=206,
        started_s=started_s,
        finished_s=finished_s,
        bytes_sent=10**9,
    )


def test_an_answer_adds_up_what_the_server_saw() -> None:
    requests = (served("ListObjectsV2", 0, 1), served("GetObject", 1, 2), served("GetObject", 1, 3))
    answer = Answer(rows=pa.table({}), wall_s=3.0, requests=requests)
    assert (answer.round_trips, answer.fetched_bytes) == (2, 3 * 10**9)
    assert answer.dollars("STANDARD") == pytest.approx((5 + 2 * 0.40) / 1e6)
    assert answer.dollars("GLACIER_IR") == pytest.approx((5 + 2 * 10) / 1e6 + 3 * 0.03)
