"""The commands that show what the library can do."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

from typing import Annotated

import typer

from coldparquet.cli.flags import Json
from coldparquet.cli.output import reported_failures


def demo(
    days: Annotated[int, typer.Option(min=1, max=366, metavar="DAYS", help="Days of trades to make.")] = 365,
    as_json: Json = False,
) -> None:
    """See it work on a year of trades, side by side with pyarrow."""
    with reported_failures(as_json=as_json):
        from coldparquet.cli.demo import run_demo

        run_demo(days=days, as_json=as_json)


def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="day, year, needle, scan, wide, faults, prices, row-groups, late: all of these if none is given; index,"
            " planning, spark: only if asked for.",
        ),
    ] = None,
    *,
    question: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Only questions whose name begins with this, such as 'W2:'; may be repeated."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Fresh processes per reader.")] = 3,
    small: Annotated[
        bool, typer.Option("--small", help="Less data: done in seconds, but the results are not representative.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Keep the data there, up to 3 GB, for the next run.")
    ] = None,
    pictures: Annotated[str | None, typer.Option(metavar="DIRECTORY", help="Draw the results there, as SVG.")] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Results as JSON.")] = None,
    redraw: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Measure nothing: draw the --pictures of results that --output wrote."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure this library and every other reader that is installed, in turn, on a simulated cold store."""
    with reported_failures(as_json=as_json):
        from coldparquet.cli.bench_command import bench_and_report, redraw_pictures

        if redraw:
            redraw_pictures(redraw, question or (), pictures)
            return
        bench_and_report(
            workloads,
            questions=question or (),
            rounds=rounds,
            is_small=small,
            data_directory=data,
            pictures_directory=pictures,
            output=output,
            as_json=as_json,
        )
