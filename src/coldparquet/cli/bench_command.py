"""``coldparquet bench``: the benchmarks, on this machine, against every other reader that is installed."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from coldparquet.bench.measurement import run
from coldparquet.bench.pictures import draw, require_matplotlib
from coldparquet.bench.report import as_data, percentiles, prices, report
from coldparquet.bench.spark_measurement import SparkBenchmark, run_in_sessions
from coldparquet.bench.workloads import WORKLOADS
from coldparquet.cli.output import print_json, progress_bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.bench.measurement import Results
    from coldparquet.bench.workloads import Workload


def bench_and_report(
    names: Sequence[str] | None,
    *,
    rounds: int,
    is_small: bool,
    data_directory: str | None,
    pictures_directory: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Run workloads one after the other, and print their tables as Markdown.

    Args:
        names: Of :data:`WORKLOADS`; all that need no Java if not given.
        rounds: Fresh processes per reader.
        is_small: Whether to take less data.
        data_directory: Where data is made and kept for the next run; a temporary one if not given.
        pictures_directory: Where to draw pictures.
        output: File for the results as JSON.
        as_json: Whether to print JSON in place of tables.

    Raises:
        typer.BadParameter: There is no such workload.
        UnsupportedError: Pictures are wanted, and what draws them is not installed. Nothing was measured.
    """
    chosen = _chosen(names)
    if pictures_directory is not None:
        require_matplotlib()
    results: dict[str, Results] = {}
    with ExitStack() as stack:
        directory = Path(data_directory or stack.enter_context(tempfile.TemporaryDirectory()))
        progress = stack.enter_context(progress_bar())
        task = progress.add_task("measuring", total=len(chosen), unit="workloads")
        for workload in chosen:
            progress.update(task, description=workload.title)

            def show(reader: str, title: str = workload.title) -> None:
                progress.update(task, description=f"{title}: {reader}")

            for make in workload.small if is_small else workload.full:
                benchmark = make()
                if isinstance(benchmark, SparkBenchmark):
                    results |= run_in_sessions(benchmark, rounds=rounds, directory=directory, on_way=show)
                else:
                    results |= run(benchmark, rounds=rounds, directory=directory, on_reader=show)
            progress.advance(task)
    if output is not None:
        Path(output).write_text(json.dumps(as_data(results), indent=1), encoding="utf-8")
    if pictures_directory is not None:
        draw(results, Path(pictures_directory))
    if as_json:
        print_json(as_data(results))
    else:
        sys.stdout.write(_text(results, {workload.name for workload in chosen}))


def _chosen(names: Sequence[str] | None) -> list[Workload]:
    unknown = [name for name in names or () if name not in WORKLOADS]
    if unknown:
        raise typer.BadParameter(
            f"there is no workload {unknown[0]!r}; there are: {', '.join(WORKLOADS)}", param_hint="WORKLOAD"
        )
    if not names:
        return [workload for workload in WORKLOADS.values() if workload.is_default]
    return [workload for workload in WORKLOADS.values() if workload.name in names]


def _text(results: Mapping[str, Results], names: set[str]) -> str:
    parts = [report(results)]
    if "faults" in names:
        parts += ["### How long the calls of W8 took", percentiles(results)]
    if "prices" in names:
        parts += ["### W9: dollars for a million first calls, by storage class", prices(results)]
    return "\n\n".join(parts) + "\n"
