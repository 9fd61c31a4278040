"""``coldparquet demo``: a simulated cold store, a table in it, and two readers that are asked the same question."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.rule import Rule
from rich.text import Text

from coldparquet.cli.output import facts_table, lines_table, output_console, plan_text, print_json
from coldparquet.cli.profile import waterfall
from coldparquet.cli.progress import progress_bar
from coldparquet.maintenance.index import index_table
from coldparquet.prices import PriceTable
from coldparquet.text import human_bytes
from coldparquet_testing.demo_data import FIRST_DAY, partition_path, write_trades
from coldparquet_testing.demo_readers import STORAGE_CLASSES, DemoQuestion, DemoResult, ask_coldparquet, ask_pyarrow
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from coldparquet_testing.demo_readers import Answer, ColdparquetAnswer


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
            Text(plan_text(result.told.plan, console.width)),
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


_TABLE = "market/trades"
"""Bucket and key of the table's directory."""

_COLD_STORE = ColdStoreOptions(first_byte_s=0.030, bandwidth_bytes_per_s=90e6)
"""What published medians of S3 Standard say: 30 ms to the first byte, up to 90 MB/s on one connection."""


def run_demo(*, days: int, as_json: bool) -> None:
    """Make the table, ask the question, show what happened, and leave nothing behind."""
    with _temporary_folder() as folder:
        result = _run(folder, days)
    if as_json:
        print_json(result.as_dict())
    else:
        print_demo(result)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="coldparquet-demo-"))
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder)
        except KeyboardInterrupt:
            # Removing hundreds of files takes long enough to be interrupted; this is what the interrupt is for.
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _run(root: Path, days: int) -> DemoResult:
    table_path = root / _TABLE
    question = _demo_question(days)
    with progress_bar() as progress:
        making = progress.add_task("making trades", total=days, unit="days")
        table_bytes = write_trades(table_path, days=days, on_day=lambda: progress.advance(making))
        indexing = progress.add_task("writing sidecars", total=days, unit="days")
        asyncio.run(index_table(table_path, on_progress=lambda _done, _total: progress.advance(indexing)))
        with ColdStoreServer(root, _COLD_STORE) as server:
            asking = progress.add_task("asking the question", total=4, unit="readers")
            answers, told = _ask_all(server, question, on_answer=lambda: progress.advance(asking))
    return DemoResult(days=days, table_bytes=table_bytes, question=question, told=told, answers=answers)


def _ask_all(
    server: ColdStoreServer, question: DemoQuestion, *, on_answer: Callable[[], None]
) -> tuple[dict[str, Answer], ColdparquetAnswer]:
    """Ask every reader; ``on_answer`` is called four times."""
    # Once without measuring, so that no libraries are loaded while the clock runs.
    first_file = partition_path(Path(_TABLE), FIRST_DAY).as_posix()
    ask_coldparquet(server, f"s3://{first_file}", question)
    ask_pyarrow(server, [first_file], question)
    on_answer()

    answers = {}
    answers["coldparquet"], told = ask_coldparquet(server, f"s3://{_TABLE}", question)
    on_answer()
    answers["pyarrow"] = ask_pyarrow(server, _TABLE, question)
    on_answer()
    files = [partition.data_path for partition in told.plan.partitions]
    answers["pyarrow_given_files"] = ask_pyarrow(server, files, question)
    on_answer()
    return answers, told


def _demo_question(days: int) -> DemoQuestion:
    """Ask for a week from the middle of the table, from noon to noon; of a shorter table for what there is."""
    first = max(0, min(days // 2, days - 8))
    start = datetime.combine(FIRST_DAY + timedelta(days=first), time(12), UTC)
    return DemoQuestion(
        columns=("ts", "price", "amount"), symbol="ETH-USD", start=start, stop=start + timedelta(days=7)
    )
