"""``coldparquet bench``: the benchmarks, on this machine, against every other reader that is installed."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from coldparquet.cli.output import print_json
from coldparquet.errors import UnsupportedError
from coldparquet.progress import error_console, progress_bar
from coldparquet.records import replace
from coldparquet_bench.measurement import Benchmark, run
from coldparquet_bench.pictures import draw, require_matplotlib
from coldparquet_bench.report import as_data, percentiles, prices, report
from coldparquet_bench.small_files import SmallFiles, index_table_of, run_small_files
from coldparquet_bench.spark_measurement import SparkBenchmark, run_in_sessions
from coldparquet_bench.spark_session import require_spark
from coldparquet_bench.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from coldparquet_bench.measurement import Results
    from coldparquet_bench.small_files import IndexRun
    from coldparquet_bench.workloads import Workload

Asked = TypeVar("Asked")


def bench_and_report(
    names: Sequence[str] | None,
    *,
    questions: Sequence[str],
    rounds: int,
    is_small: bool,
    data_directory: str | None,
    before_directory: str | None,
    pictures_directory: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Run workloads one after the other, and print their tables as Markdown."""
    chosen = _chosen(names)
    if pictures_directory is not None:
        require_matplotlib()
    results: dict[str, Results] = {}
    index_runs: list[IndexRun] = []
    benchmarks = chosen_benchmarks(chosen, questions, is_small=is_small)
    before = None if before_directory is None else _checkout(Path(before_directory), chain.from_iterable(benchmarks))
    with ExitStack() as stack:
        directory = Path(data_directory or stack.enter_context(tempfile.TemporaryDirectory()))
        progress = stack.enter_context(progress_bar())
        task = progress.add_task("measuring", total=len(chosen), unit="workloads")
        for workload, of_workload in zip(chosen, benchmarks, strict=True):
            progress.update(task, description=workload.title)

            def show(reader: str, title: str = workload.title) -> None:
                progress.update(task, description=f"{title}: {reader}")

            for benchmark in of_workload:
                if isinstance(benchmark, SparkBenchmark):
                    results |= _run_in_spark(benchmark, rounds=rounds, directory=directory, on_way=show)
                elif isinstance(benchmark, SmallFiles):
                    index_runs += run_small_files(benchmark, rounds=rounds, directory=directory, on_run=show)
                else:
                    results |= run(benchmark, rounds=rounds, directory=directory, before=before, on_reader=show)
            progress.advance(task)
    measured = as_data(results, index_runs) | {"before": None if before is None else str(before)}
    if output is not None:
        Path(output).write_text(json.dumps(measured, indent=1), encoding="utf-8")
    if pictures_directory is not None:
        draw(measured, Path(pictures_directory))
    if as_json:
        print_json(measured)
    else:
        sys.stdout.write(_text(results, index_runs))


def _checkout(directory: Path, benchmarks: Iterable[Benchmark | SmallFiles | SparkBenchmark]) -> Path:
    """Return the checkout of another version, if it is one, and these benchmarks can measure it."""
    if not (directory / "src" / "coldparquet_bench").is_dir():
        raise typer.BadParameter(
            f"{directory} has no src/coldparquet_bench; give a checkout of another version, as 'git worktree add' makes it",
            param_hint="--before",
        )
    if not all(isinstance(benchmark, Benchmark) for benchmark in benchmarks):
        raise typer.BadParameter(
            "Spark and index are measured in this version alone: choose other questions with --question",
            param_hint="--before",
        )
    return directory


def _run_in_spark(
    benchmark: SparkBenchmark, *, rounds: int, directory: Path, on_way: Callable[[str], None]
) -> dict[str, Results]:
    """Measure; an optional benchmark is left out aloud where Spark cannot be run."""
    try:
        require_spark()
    except UnsupportedError as error:
        if not benchmark.is_optional:
            raise
        error_console().print(f"Spark is left out of {', '.join(benchmark.questions)}: {error.message}")
        return {}
    return run_in_sessions(benchmark, rounds=rounds, directory=directory, on_way=on_way)


def redraw_pictures(results_files: Sequence[str], questions: Sequence[str], pictures_directory: str | None) -> None:
    """Draw the pictures of earlier runs."""
    if pictures_directory is None:
        raise typer.BadParameter("give --pictures, the directory to draw them in", param_hint="--redraw")
    results: dict[str, Any] = {}
    for results_file in results_files:
        try:
            results |= json.loads(Path(results_file).read_text(encoding="utf-8"))["results"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise typer.BadParameter(f"{results_file} holds no results: {error}", param_hint="--redraw") from error
    drawn = _beginning(results, tuple(questions)) if questions else results
    if not drawn:
        raise typer.BadParameter(f"{', '.join(results_files)}: there is no such question", param_hint="--redraw")
    draw({"results": drawn}, Path(pictures_directory))


def _chosen(names: Sequence[str] | None) -> list[Workload]:
    unknown = [name for name in names or () if name not in WORKLOADS]
    if unknown:
        raise typer.BadParameter(
            f"there is no workload {unknown[0]!r}; there are: {', '.join(WORKLOADS)}", param_hint="WORKLOAD"
        )
    if not names:
        return [workload for workload in WORKLOADS.values() if workload.is_default]
    return [workload for workload in WORKLOADS.values() if workload.name in names]


def chosen_benchmarks(
    workloads: Sequence[Workload], beginnings: Sequence[str], *, is_small: bool
) -> list[list[Benchmark | SmallFiles | SparkBenchmark]]:
    """Make the benchmarks of the workloads, with those questions alone that begin so."""
    benchmarks = [[make() for make in (workload.small if is_small else workload.full)] for workload in workloads]
    if not beginnings:
        return benchmarks
    asked = [[_only(benchmark, tuple(beginnings)) for benchmark in of_workload] for of_workload in benchmarks]
    if not any(benchmark is not None for of_workload in asked for benchmark in of_workload):
        known = [
            name for many in benchmarks for one in many if not isinstance(one, SmallFiles) for name in one.questions
        ]
        raise typer.BadParameter(f"no question begins so; there are: {'; '.join(known)}", param_hint="--question")
    return [[benchmark for benchmark in of_workload if benchmark is not None] for of_workload in asked]


def _only(
    benchmark: Benchmark | SmallFiles | SparkBenchmark, beginnings: tuple[str, ...]
) -> Benchmark | SparkBenchmark | None:
    """Return a benchmark with those of its questions that begin so; None if there is none."""
    if isinstance(benchmark, SmallFiles):
        return None
    if isinstance(benchmark, SparkBenchmark):
        ways = _beginning(benchmark.questions, beginnings)
        return replace(benchmark, questions=ways) if ways else None
    readers = _beginning(benchmark.questions, beginnings)
    return replace(benchmark, questions=readers) if readers else None


def _beginning(questions: Mapping[str, Asked], beginnings: tuple[str, ...]) -> dict[str, Asked]:
    return {name: asked for name, asked in questions.items() if name.startswith(beginnings)}


def _text(results: Mapping[str, Results], index_runs: Sequence[IndexRun]) -> str:
    parts = [report(results)] if results else []
    asked = {question.partition(":")[0] for question in results}
    if "W8" in asked:
        parts += ["### How long the calls of W8 took", percentiles(results)]
    if "W9" in asked:
        parts += ["### W9: dollars for a million first calls, by storage class", prices(results)]
    if index_runs:
        parts += ["### Sidecars for small files", index_table_of(index_runs)]
    return "\n\n".join(parts) + "\n"
