"""What the demo prints: the question, the plan, a picture of the requests, and all readers side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.rule import Rule
from rich.text import Text

from coldparquet.cli.demo_readers import STORAGE_CLASSES
from coldparquet.cli.output import facts_table, lines_table, output_console, wrap_long_lines
from coldparquet.cli.profile import waterfall
from coldparquet.prices import PriceTable
from coldparquet.text import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from coldparquet.cli.demo_readers import Answer, DemoResult

_WATERFALL_LINES = 25
_PER_READS = 1_000_000
"""One read costs millionths of a dollar; the price of so many can be compared."""


def print_demo(result: DemoResult) -> None:
    """Print the whole report."""
    console = output_console()
    for title, body in (
        ("the question", _question(result)),
        (
            "the plan, made before any data was fetched",
            Text(wrap_long_lines(result.told.plan.explain(), console.width)),
        ),
        ("the requests", waterfall(result.told.request_log, width=console.width, max_lines=_WATERFALL_LINES)),
        ("side by side", _comparison(result)),
    ):
        console.print(Rule(Text(title, style="bold"), align="left"))
        console.print()
        console.print(body, soft_wrap=isinstance(body, Text))
        console.print()
    console.print(_verdict(result))
    console.print()
    console.print(_what_next(), soft_wrap=True)


def _question(result: DemoResult) -> RenderableType:
    facts = facts_table()
    size = f"{result.table_rows:,} rows, {human_bytes(result.table_bytes)} of Parquet"
    facts.add_row("table", f"{result.days} daily partitions, {size}")
    facts.add_row("store", "speaks S3; 30 ms to the first byte of each answer, then 90 MB/s on each connection")
    facts.add_row("columns", ", ".join(result.question.columns))
    facts.add_row("where", result.question.where)
    return facts


def _comparison(result: DemoResult) -> RenderableType:
    table = lines_table()
    table.add_column("", no_wrap=True)
    headers = ("coldparquet", "pyarrow", f"pyarrow, {len(result.told.plan.partitions)} files")
    for header, name in zip(headers, result.answers, strict=True):
        table.add_column(header, justify="right", no_wrap=True, style="green" if name == "coldparquet" else None)
    rows: list[tuple[str, Callable[[Answer], float], Callable[[float], str]]] = [
        ("requests", lambda answer: len(answer.requests), "{:,.0f}".format),
        ("bytes", lambda answer: answer.fetched_bytes, lambda value: human_bytes(int(value))),
        ("round trips", lambda answer: answer.round_trips, "{:,.0f}".format),
        ("wall time", lambda answer: answer.wall_s, "{:.2f} s".format),
    ]
    for storage_class, label in STORAGE_CLASSES.items():
        remark = "" if PriceTable.default().of(storage_class).is_verified else " *"
        rows.append((f"a million times, {label}{remark}", _price(storage_class), _dollars))
    for label, measure, write in rows:
        base, *others = (measure(answer) for answer in result.answers.values())
        table.add_row(label, write(base), *(f"{write(other)} {_ratio(other, base)}" for other in others))
    return table


def _verdict(result: DemoResult) -> Text:
    rows = next(iter(result.answers.values())).rows.num_rows
    text = Text()
    if result.results_equal:
        text.append(f"All three returned the same {rows:,} rows, compared value by value.", style="green")
    else:
        text.append("The results differ. This is a bug of coldparquet; please report it.", style="bold red")
    for remark in (
        "The last column is pyarrow that was told which files to read.",
        "Round trips: the longest chain of requests of which each began when the one before it was over.",
        f"Dollars: estimates with the prices of {PriceTable.default().name}, {PriceTable.default().as_of}. * The price of a GET was not checked against the provider's list.",
    ):
        text.append(f"\n{remark}", style="dim")
    return text


def _what_next() -> Text:
    return Text.assemble(
        "Try it on your own data:  ",
        ("coldparquet index s3://bucket/table", "bold"),
        "\n             and ask it:  ",
        ("coldparquet explain s3://bucket/table --where \"ts >= '2024-03-01'\"", "bold"),
    )


def _price(storage_class: str) -> Callable[[Answer], float]:
    return lambda answer: answer.dollars(storage_class) * _PER_READS


def _ratio(other: float, base: float) -> str:
    """Write how many times as much it is, in a fixed width so that the numbers before it stay aligned."""
    ratio = other / base if base else 0.0
    return f"({ratio:.0f}x)".rjust(6) if ratio >= 9.95 else f"({ratio:.1f}x)".rjust(6)


def _dollars(value: float) -> str:
    return f"${value:,.0f}" if value >= 100 else f"${value:,.2f}"
