"""``coldparquet pipeline``: run a job over lakes, and say what became of everything."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from coldparquet.cli.output import FAILED, action_word, output_console, print_json, print_listed
from coldparquet.cli.upkeep_output import counted
from coldparquet.pipelines.model import NOT_OPENED, job_from_dict
from coldparquet.pipelines.run import LocalEngine, run_pipeline
from coldparquet.text import human_bytes, human_dollars, human_seconds, plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from coldparquet.pipelines.model import Engine, PipelineReport, WorkResult

_STYLES = {"done": "green", "nothing to do": "dim", "failed": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """What the flags say about the engine."""

    name: str
    processes: int | None
    """Of the local one."""
    tasks: int | None
    """Of Spark."""
    credentials: str | None
    """Where executors of Spark find storage options."""


def run_and_report(
    job: Mapping[str, Any],
    lakes: Sequence[str],
    *,
    engine: EngineChoice,
    storage_options: Mapping[str, Any],
    destination_options: Mapping[str, Any],
    as_json: bool,
) -> int:
    """Run a job and print what happened."""
    made = job_from_dict(job)
    with _started(engine) as started, counted(made.name, unit="items") as advance:
        report = asyncio.run(
            run_pipeline(
                made,
                lakes,
                engine=started,
                storage_options=storage_options,
                destination_options=destination_options,
                on_progress=advance,
            )
        )
    if as_json:
        print_json(report.as_dict())
    else:
        _print_report(output_console(), report)
    return FAILED if report.count("failed") else 0


@contextmanager
def _started(engine: EngineChoice) -> Iterator[Engine]:
    """Start the engine; a Spark session that was not there before is stopped in the end."""
    _refuse_others(engine)
    if engine.name == "local":
        yield LocalEngine(processes=engine.processes)
        return
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only this engine needs it
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from coldparquet.spark.engine import SparkEngine  # noqa: PLC0415
    from coldparquet.spark.errors import error_of  # noqa: PLC0415

    is_ours = SparkSession.getActiveSession() is None
    if is_ours:
        # Workers take the python3 of PATH otherwise, which is another one where this environment is not activated.
        # spark-submit hands spark.pyspark.python over as this variable.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        spark = SparkSession.builder.appName("coldparquet").getOrCreate()
    except PySparkException as error:
        raise error_of(error) or error from None
    try:
        yield SparkEngine(spark=spark, tasks=engine.tasks, credentials=engine.credentials)
    finally:
        if is_ours:
            spark.stop()


def _refuse_others(engine: EngineChoice) -> None:
    """Make sure that there is such an engine, and that it knows the flags that are given."""
    flags: dict[str, dict[str, object]] = {
        "local": {"--processes": engine.processes},
        "spark": {"--tasks": engine.tasks, "--credentials": engine.credentials},
    }
    if engine.name not in flags:
        raise typer.BadParameter(f"{engine.name!r} is none of local and spark", param_hint="--engine")
    for other, values in flags.items():
        for flag, value in values.items():
            if other != engine.name and value is not None:
                raise typer.BadParameter(f"it is for --engine {other}", param_hint=flag)


def _print_report(console: Console, report: PipelineReport) -> None:
    remarkable = [result for result in report.results if result.reason or result.action.startswith("would ")]
    remarkable.sort(key=_worst_first)
    print_listed(console, _result_table, remarkable)
    for note in report.notes:
        console.print(Text(f"note: {visible(note)}", style="dim"))
    console.print(_summary(report), soft_wrap=True)


def _result_table(results: Sequence[WorkResult]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("table", overflow="fold")
    table.add_column("partition", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    for result in results:
        table.add_row(
            Text(visible(result.table)),
            Text(visible(result.partition)),
            Text(action_word(result.action), style=_STYLES[result.outcome]),
            Text(visible(result.reason or _amounts([result]))),
        )
    return table


def _worst_first(result: WorkResult) -> tuple[int, bool]:
    return ("failed", "done", "nothing to do").index(result.outcome), result.action != "warning"


def _summary(report: PipelineReport) -> Text:
    """Write ``index: 365 partitions of 4 tables in 2.1 s: 360 written (1.2 MiB), 5 unchanged; tables: 4 catalogue written``."""
    places = [result for result in report.results if result.action == NOT_OPENED]
    partitions = [result for result in report.results if result.partition]
    tables = [result for result in report.results if not result.partition and result.action != NOT_OPENED]
    subject = plural(len({result.table for result in (*partitions, *tables)}), "table")
    if partitions:
        subject = f"{plural(len(partitions), 'partition')} of {subject}"
    groups = [
        _fates("", partitions),
        _fates("tables: " if partitions else "", tables),
        _fates("lakes and directories: ", places),
    ]
    head = f"{report.job}: {subject} in {human_seconds(report.elapsed_s)}: "
    return Text(head) + Text("; ").join(group for group in groups if group)


def _fates(label: str, results: Sequence[WorkResult]) -> Text:
    """Write ``tables: 3 sound, 1 advice``, the most frequent one first; nothing where there are no results."""
    by_action: dict[str, list[WorkResult]] = {}
    for result in results:
        by_action.setdefault(result.action, []).append(result)
    parts = []
    for action, same in sorted(by_action.items(), key=lambda one: -len(one[1])):
        amounts = _amounts(same) if same[0].outcome == "done" else ""
        parts.append(
            Text(
                f"{len(same):,} {action_word(action)}{f' ({amounts})' if amounts else ''}",
                style=_STYLES[same[0].outcome],
            )
        )
    return Text(label if parts else "") + Text(", ").join(parts)


def _amounts(results: Sequence[WorkResult]) -> str:
    """Write how many bytes and dollars; nothing where nobody counted."""
    size_bytes = sum(result.size_bytes or 0 for result in results)
    dollars = [result.dollars for result in results if result.dollars is not None]
    monthly = [month for result in results if (month := result.details.get("dollars_per_month")) is not None]
    amounts = [human_bytes(size_bytes)] if size_bytes else []
    if dollars:
        amounts.append(human_dollars(sum(dollars)))
    if monthly:
        per_month = sum(monthly)
        amounts.append(f"{'-' if per_month < 0 else '+'}{human_dollars(abs(per_month))} a month")
    return ", ".join(amounts)
