"""``--goal``, the budgets and ``--prices``, as scan, explain and count take them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coldparquet_bench.workloads import WORKLOADS
from tests.support.command_line import Run, plain
from tests.support.pages import ROOT


@pytest.mark.parametrize("command", ["scan", "count"])
@pytest.mark.parametrize(
    ("flag", "said"),
    [
        (("--max-requests", "0"), "max_requests is 0"),
        (("--max-bytes", "1B"), "max_bytes is 1"),
        (("--max-usd", "0"), "max_usd is $0.00"),
    ],
)
def test_budgets_refuse(
    run: Run, questdb_table: Callable[[str], Path], command: str, flag: tuple[str, str], said: str
) -> None:
    result = run(command, questdb_table("row_groups"), "--where", "id != 5", *flag)
    assert result.exit_code != 0
    assert said in result.stderr
    assert result.stdout == ""


def test_explain_shows_goal_budget_and_prices(run: Run, questdb_table: Callable[[str], Path], tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(
        json.dumps({"based_on": "default", "name": "our region", "as_of": "2026-10", "classes": {"STANDARD": {"million_gets": 7}}})
    )  # fmt: skip
    url = questdb_table("row_groups")
    result = run("explain", url, "--goal", "few-bytes", "--max-requests", "0", "--prices", prices)
    assert result.exit_code == 0
    assert "goal few-bytes: gaps up to 0 B read over" in result.stdout
    assert "with the prices of our region, 2026-10" in result.stdout
    assert "budget        exceeded, so that nothing would be read: max_requests is 0" in result.stdout
    told = json.loads(run("explain", url, "--prices", prices, "--json").stdout)
    assert told["estimate"]["dollars"] == pytest.approx(told["request_count"] * 7e-6)
    assert told["estimate"]["prices"] == "our region"
    assert set(told["goals"]) == {"fast", "cheap", "few-requests", "few-bytes"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--goal", "best"], "'best' is not known; use one of fast, cheap, few-requests, few-bytes"),
        (["--max-bytes", "much"], "it must be a number of bytes"),
        (["--max-usd", "-1"], "greater than or equal to 0"),
        (["--prices", "/nowhere/prices.json"], "there is no such price table"),
    ],
)
def test_wrong_flags(run: Run, questdb_table: Callable[[str], Path], flags: list[str], said: str) -> None:
    result = run("explain", questdb_table("row_groups"), *flags)
    assert result.exit_code == (3 if "--prices" in flags else 2)
    assert said in plain(result.stderr)


def test_the_help_names_all_workloads(run: Run) -> None:
    text = plain(run("bench", "--help").stdout)
    defaults = [name for name, workload in WORKLOADS.items() if workload.is_default]
    others = [name for name, workload in WORKLOADS.items() if not workload.is_default]
    assert f"{', '.join(defaults)}: all of these if none is given; {', '.join(others)}: only if asked for." in text


def test_benchmarks_are_chosen_before_anything_is_measured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = run("bench", "hour")
    assert unknown.exit_code == 2
    assert "there is no workload 'hour'; there are: day," in plain(unknown.stderr)
    monkeypatch.setattr("coldparquet_bench.pictures.find_spec", lambda _name: None)
    undrawn = run("bench", "day", "--pictures", "pictures")
    assert undrawn.exit_code == 1
    assert "pictures need matplotlib" in undrawn.stderr
    nothing = run("bench", "day", "--before", "no-checkout")
    assert nothing.exit_code == 2
    assert "no-checkout has no src/coldparquet_bench; give a checkout" in plain(nothing.stderr)
    unmeasured = run("bench", "index", "--before", str(ROOT))
    assert unmeasured.exit_code == 2
    assert "Spark and index are measured in this version alone" in plain(unmeasured.stderr)
