"""The benchmarks run, on less data, and what they promise of requests and bytes holds; times are printed, never asserted."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coldparquet.cli.commands import app
from coldparquet.records import replace
from coldparquet_bench import (
    engines,
    goals,
    hive_lake,
    late_materialisation,
    needle,
    slow_and_refusing_store,
    spark_trades,
    trading_day,
    year_of_trades,
)
from coldparquet_bench.command import chosen_benchmarks
from coldparquet_bench.measurement import BEFORE, BUCKET, OURS, Benchmark, run
from coldparquet_bench.report import percentiles, report
from coldparquet_bench.spark_measurement import SparkBenchmark
from coldparquet_bench.trades import day_name
from coldparquet_bench.workloads import WORKLOADS
from coldparquet_testing.simulator.faults import FaultRule
from tests.support.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.benchmark]

KEPT, WITHOUT = f"{OURS}, kept open", f"{OURS}, without a catalogue"
MOST_BLOOM_BYTES = 2 * 5 * 8_192 + 1_000
"""Of the filters of two columns in five row groups, headers included."""


def test_one_day(tmp_path: Path) -> None:
    """The requests that the README says, on the data that it names."""
    results = run(
        trading_day.benchmark().only(OURS, KEPT, f"{OURS}, no data kept", "Polars"),
        rounds=1,
        directory=tmp_path,
    )
    print(report(results))
    for question, least_part in ((trading_day.W1, 0.9), (trading_day.W4, 0.2)):
        ours, polars = results[question][OURS], results[question]["Polars"]
        # Both ask the same at first. On a busy machine one of them may send a request after another's answer has come.
        trips = min(results[question][name].first.round_trips for name in (OURS, KEPT))
        assert trips == 2, "sidecar, _pages and a look at the file at once; then the data"
        assert ours.warm.data_requests == 0, "the file is looked at, no more"
        assert ours.warm.round_trips == 1
        assert results[question][KEPT].warm.requests == 0, "everything was kept"
        assert results[question][f"{OURS}, no data kept"].warm.round_trips == 1, "just the data"
        assert ours.first.megabytes <= polars.first.megabytes * least_part


def test_a_year(tmp_path: Path) -> None:
    bench = year_of_trades.benchmark(days=30, rows=4_000).only(OURS, KEPT, WITHOUT, "Polars")
    bench = replace(bench, questions={name: ask for name, ask in bench.questions.items() if name != year_of_trades.W2X})
    results = run(bench, rounds=1, directory=tmp_path)
    print(report(results))
    week = results[year_of_trades.W2]
    assert week[WITHOUT].first.requests <= 30
    assert week[WITHOUT].first.requests < week["Polars"].first.requests
    assert week[OURS].first.requests <= 15, "a listing in place of seven sidecars and seven looks"
    assert week[OURS].first.data_requests == year_of_trades.DAYS_ASKED, "a small partition in one piece"
    assert week[OURS].warm.megabytes < 0.1, "everything is asked for again, and none of it has changed"
    for question in (year_of_trades.COUNT, year_of_trades.LARGEST):
        for reader in (OURS, KEPT, WITHOUT):
            assert results[question][reader].first.data_requests == 0
        assert results[question][KEPT].warm.requests == 0
        assert results[question][OURS].first.requests <= 8
    newest = results[year_of_trades.TAIL][OURS].first
    data = {r.path for r in newest.log if r.operation == "GetObject" and r.path.endswith(".parquet")}
    assert data == {f"{BUCKET}/{year_of_trades.TABLE}/2024-03-30/data.parquet"}


@pytest.mark.slow
def test_engines_on_the_files_and_on_our_table(tmp_path: Path) -> None:
    names = [name for engine in ("Polars", "DuckDB", "pyarrow") for name in (engine, f"{OURS} in {engine}")]
    bench = engines.benchmark(days=30, rows=4_000)
    bench = replace(bench, questions={engines.HOUR: bench.questions[engines.HOUR]})
    [results] = run(bench, rounds=1, directory=tmp_path).values()
    with_metadata = "pyarrow with our _metadata"
    assert list(results) == [*names[1::-1], *names[3:1:-1], *names[5:3:-1], with_metadata]
    assert results[with_metadata].first.requests <= 6
    for engine in ("Polars", "DuckDB", "pyarrow"):
        assert results[f"{OURS} in {engine}"].first.requests <= 10
        assert results[engine].first.requests > 30


@pytest.mark.slow
def test_a_hive_lake_with_and_without_its_index(tmp_path: Path) -> None:
    days = 20
    files, week_files = days * hive_lake.FILES, 7 * hive_lake.FILES
    bench = hive_lake.benchmark(days=days, rows=500).only(hive_lake.WITH_INDEX, OURS, "Polars", "DuckDB")
    asked = {hive_lake.BY_KEY: week_files, hive_lake.BY_TIME: week_files, hive_lake.COUNT: 0}
    bench = replace(bench, questions={question: bench.questions[question] for question in asked})
    results = run(bench, rounds=1, directory=tmp_path)
    print(report(results))
    for question, matching in asked.items():
        of_question = results[question]
        assert len({repr(measured.answer) for measured in of_question.values()}) == 1
        indexed = of_question[hive_lake.WITH_INDEX].first
        assert indexed.requests <= matching + 6, "the files with matching rows; two that look for a _txn, and four"
        assert indexed.data_requests <= matching
        assert of_question[OURS].first.requests <= files + 6, "one request for each file, and those that open"


def test_spark_is_left_out_of_the_hive_lake_aloud_where_it_cannot_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDPARQUET_CACHE", str(tmp_path))  # where the jars would be
    result = CliRunner().invoke(app, ["bench", "hive", "--small", "--question", "in Spark: a week"])
    assert result.exit_code == 0
    assert f"Spark is left out of in Spark: {hive_lake.BY_KEY}: " in " ".join(result.stderr.split())


def test_a_needle_takes_data_of_its_own_partition_alone(tmp_path: Path) -> None:
    days, row_groups = 5, 5
    bench = needle.benchmark(days=days, rows=row_groups * needle.ROW_GROUP_ROWS).only(OURS, WITHOUT, "Polars")
    results = run(bench, rounds=1, directory=tmp_path)
    print(report(results))
    for of_column in results.values():
        ours = of_column[WITHOUT].first
        assert of_column[WITHOUT].answer == 1
        assert ours.megabytes <= of_column["Polars"].first.megabytes / 5
        taken_bytes: Counter[str] = Counter()
        for request in ours.log:
            taken_bytes[request.path] += request.bytes_sent
        home = f"{BUCKET}/{needle.UNPACKED}/{day_name(needle.NEEDLE_DAY % days)}/data.parquet"
        others = {path: taken for path, taken in taken_bytes.items() if path.endswith(".parquet") and path != home}
        beyond_blooms = [path for path, taken in others.items() if taken > MOST_BLOOM_BYTES]
        assert len(beyond_blooms) <= 1, "one false positive of 25 filters is usual, more are not"
        asked = Counter(request.path for request in ours.log if request.path.endswith(".parquet"))
        looked_at = Counter(request.path for request in ours.log if request.operation == "HeadObject")
        assert sum((asked - looked_at).values()) <= days + 5, "one request brings the filters of a partition"
        with_catalogue = of_column[OURS].first
        touched = {r.path for r in with_catalogue.log if r.operation == "GetObject" and r.path.endswith(".parquet")}
        assert len(touched) <= 2, "one stripe of the catalogue tells which partitions may hold it"


@pytest.mark.soak
def test_late_materialisation_fetches_less_where_little_is_left(tmp_path: Path) -> None:
    never, always = f"{OURS}, never late", f"{OURS}, always late"
    bench = late_materialisation.benchmark(rows=300_000).only(OURS, never, always)
    rarely, *_, mostly = bench.questions
    bench = replace(bench, questions={name: bench.questions[name] for name in (rarely, mostly)})
    results = run(bench, rounds=1, directory=tmp_path)
    print(report(results))
    rare, common = results[rarely], results[mostly]
    assert rare[always].first.megabytes < rare[never].first.megabytes / 2
    assert common[OURS].first.megabytes <= common[never].first.megabytes * 1.01


def test_faults_change_no_answer(tmp_path: Path) -> None:
    reader = f"{OURS}, no data kept"
    one_refused = FaultRule("slow-down", path="*/data.parquet", times=1)
    refusing = replace(slow_and_refusing_store.FAULTY_STORE, faults=(one_refused,))
    faulty = replace(slow_and_refusing_store.benchmark(rows=200_000, calls=20).only(reader), store=refusing)
    sound = slow_and_refusing_store.benchmark(rows=200_000, calls=1, has_faults=False).only(reader)
    [[with_faults], [without]] = (
        [of_question[reader] for of_question in run(bench, rounds=1, directory=tmp_path).values()]
        for bench in (faulty, sound)
    )
    print(percentiles({slow_and_refusing_store.W8: {reader: with_faults}}))
    assert with_faults.answer == without.answer > 0
    assert 503 in {request.status for request in with_faults.first.log}


def test_the_command_prints_tables_and_draws_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldparquet_bench.readers.find_spec", lambda name: name == "polars")  # one peer is enough
    arguments = ["bench", "wide", "--question", "W7", "--small", "--rounds", "1", "--data", str(tmp_path / "data")]
    arguments += ["--pictures", str(tmp_path / "pictures"), "--output", str(tmp_path / "results.json")]
    printed = CliRunner().invoke(app, arguments).stdout
    assert "W7: three of 1,000 columns" in printed
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert results["W7: three of 1,000 columns"][OURS]["first"]["requests"] > 0
    redrawn = ["bench", "--redraw", str(tmp_path / "results.json"), "--pictures", str(tmp_path / "redrawn")]
    assert CliRunner().invoke(app, redrawn).exit_code == 0
    for scheme in ("light", "dark"):
        drawn = (tmp_path / "pictures" / f"three-of-1-000-columns-{scheme}.svg").read_text()
        assert "Three of 1,000 columns" in drawn
        assert (tmp_path / "redrawn" / f"three-of-1-000-columns-{scheme}.svg").read_text() == drawn


def test_another_version_is_measured_in_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldparquet_bench.readers.find_spec", lambda _name: None)  # without the peers
    before = tmp_path / "before"
    for package in ("coldparquet", "coldparquet_bench", "coldparquet_testing"):
        shutil.copytree(ROOT / "src" / package, before / "src" / package, ignore=shutil.ignore_patterns("__pycache__"))
    arguments = ["bench", "day", "--question", "W4", "--small", "--rounds", "1"]
    arguments += ["--data", str(tmp_path / "data"), "--before", str(before)]
    printed = CliRunner().invoke(app, arguments).stdout
    assert f"| {OURS}{BEFORE} |" in printed
    assert f"| {KEPT}{BEFORE} |" in printed
    assert "coldparquet, compared with before: first call " in printed
    assert "requests 1.00x, bytes 1.00x" in printed
    assert list((before / "src").rglob("coldparquet/**/table.*.pyc")), "it is compiled as an installation is"

    counting = before / "src" / "coldparquet_bench" / "readers.py"
    counting.write_text(counting.read_text().replace("rows += batch.num_rows", "rows += 1 + batch.num_rows"))
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code != 0
    assert "the readers disagree" in outcome.stderr, "it is the code of that version that is measured"

    asking = before / "src" / "coldparquet_bench" / "trading_day.py"
    asking.write_text(asking.read_text().replace("W4: three columns", "W4: some columns"))
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 1
    assert "did not answer 'W4: three columns" in outcome.stderr


def test_the_command_indexes_small_files(tmp_path: Path) -> None:
    arguments = ["bench", "index", "--small", "--rounds", "1", "--data", str(tmp_path)]
    printed = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "results.json")]).stdout
    assert "Sidecars for small files" in printed
    [run_of_one] = json.loads((tmp_path / "results.json").read_text())["index"]
    assert (run_of_one["processes"], run_of_one["files"]) == (1, 200)
    assert run_of_one["requests"] - 2 * run_of_one["files"] < 20, (
        "a footer and a sidecar for each, and a few for the table"
    )
    assert not list(tmp_path.rglob("_pm")), "the next run begins as this one did"


def test_questions_that_no_workload_asks_are_refused(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["bench", "day", "index", "--data", str(tmp_path), "--question", "W5"])
    assert outcome.exit_code != 0
    assert "no question begins so" in outcome.stderr
    assert not list(tmp_path.iterdir()), "nothing was measured"


def test_some_of_the_questions_are_asked() -> None:
    asked = chosen_benchmarks([WORKLOADS[name] for name in ("day", "index", "spark")], ("W4", "S5"), is_small=True)
    [day], of_index, [spark] = asked
    assert not of_index
    assert isinstance(day, Benchmark)
    assert isinstance(spark, SparkBenchmark)
    assert [*day.questions, *spark.questions] == [trading_day.W4, spark_trades.WEEK]


@pytest.mark.parametrize("content", ["", "[]", '{"results": {}}', "no JSON"])
def test_what_holds_no_results_is_not_redrawn(tmp_path: Path, content: str) -> None:
    (tmp_path / "results.json").write_text(content)
    arguments = ["bench", "--redraw", str(tmp_path / "results.json")]
    assert "give --pictures" in CliRunner().invoke(app, arguments).stderr
    outcome = CliRunner().invoke(app, [*arguments, "--pictures", str(tmp_path / "pictures")])
    assert outcome.exit_code != 0
    assert "results.json" in re.sub(r"[\s│]", "", outcome.stderr)  # the box breaks long paths anywhere
    assert not (tmp_path / "pictures").exists()


@pytest.mark.soak
def test_the_command_compares_goals_by_their_prices(tmp_path: Path) -> None:
    arguments = ["bench", "prices", "--small", "--rounds", "1", "--data", str(tmp_path / "data")]
    printed = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "results.json")]).stdout
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert set(results) == set(goals.W9.values())
    for storage_class, question in goals.W9.items():
        assert storage_class in printed
        dollars = {name: result["first"]["dollars"] for name, result in results[question].items()}
        ours = {name: spent for name, spent in dollars.items() if name.startswith(OURS)}
        assert ours[f"{OURS}, goal cheap"] == min(ours.values()), ours


def test_unknown_workloads_are_named() -> None:
    outcome = CliRunner().invoke(app, ["bench", "yaer"])
    assert outcome.exit_code != 0
    assert "'yaer'" in outcome.stderr
    assert "year" in outcome.stderr
