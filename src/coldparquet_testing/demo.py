"""``coldparquet demo``: a simulated cold store, a table in it, and two readers that are asked the same questions."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from rich.rule import Rule
from rich.text import Text

from coldparquet.cli.output import facts_table, lines_table, output_console, print_json
from coldparquet.cli.profile import BAR_LEGEND, waterfall
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.prices import PriceTable
from coldparquet.progress import progress_bar
from coldparquet.text import human_bytes, plural
from coldparquet_testing.demo_data import FIRST_DAY, SCHEMA, partition_path, write_trades
from coldparquet_testing.demo_readers import STORAGE_CLASSES, DemoQuestion, DemoResult, ask_coldparquet, ask_pyarrow
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console, RenderableType

    from coldparquet_testing.demo_readers import Answer, ColdparquetAnswer


_WATERFALL_LINES = 25
_MONTH_OF_MINUTES = 30 * 24 * 60
"""How often a dashboard that asks once a minute asks in a month."""


def print_demo(result: DemoResult) -> None:
    """Print the whole report."""
    console = output_console()
    for title, body in (
        ("the question", _question(result)),
        ("what coldparquet asked of the store", _waterfall(result, console)),
        ("side by side with pyarrow", _comparison(result)),
        ("again, a count, a needle", _later(result)),
    ):
        console.print(Rule(Text(title, style="bold"), align="left"))
        console.print()
        console.print(body)
        console.print()
    console.print(_verdict(result))
    console.print()
    console.print(_what_next(), soft_wrap=True)


def _question(result: DemoResult) -> RenderableType:
    plan = result.told.plan
    facts = facts_table()
    size = f"{result.table_rows:,} rows, {human_bytes(result.table_bytes)} of Parquet"
    facts.add_row("table", f"{result.days} daily partitions, {size}")
    facts.add_row("store", "speaks S3; 30 ms to the first byte of each answer, then 90 MB/s on each connection")
    facts.add_row("columns", ", ".join(result.question.columns))
    facts.add_row("where", result.question.where)
    row_groups = sum(partition.row_groups_read for partition in plan.partitions)
    facts.add_row(
        "plan",
        f"{len(plan.partitions)} partitions, {plural(row_groups, 'row group')}: {plural(plan.request_count, 'request')},"
        f" {human_bytes(plan.bytes_fetched)}; known before any data is fetched ('coldparquet explain' shows all of it)",
    )
    return facts


def _waterfall(result: DemoResult, console: Console) -> RenderableType:
    table = waterfall(result.told.request_log, width=console.width, max_lines=_WATERFALL_LINES)
    table.caption, table.caption_justify = BAR_LEGEND, "left"
    return table


_MEASURES: list[tuple[str, Callable[[Answer], float], Callable[[float], str]]] = [
    ("requests", lambda answer: len(answer.requests), "{:,.0f}".format),
    ("bytes", lambda answer: answer.fetched_bytes, lambda value: human_bytes(int(value))),
    ("wall time", lambda answer: answer.wall_s, "{:.2f} s".format),
]


def _comparison(result: DemoResult) -> RenderableType:
    table = lines_table()
    table.add_column("", no_wrap=True)
    headers = ("coldparquet", "pyarrow", f"pyarrow, {len(result.told.plan.partitions)} files")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    rows = [*_MEASURES, ("round trips", lambda answer: answer.round_trips, "{:,.0f}".format)]
    for storage_class, label in STORAGE_CLASSES.items():
        remark = "" if PriceTable.default().of(storage_class).is_verified else " *"
        rows.append((f"a month, {label}{remark}", _price(storage_class), _dollars))
    for label, measure, write in rows:
        base, *others = (measure(answer) for answer in result.answers.values())
        style = _style(base, others)
        table.add_row(label, Text(write(base), style), *(f"{write(other)} {_ratio(other, base)}" for other in others))
    return table


_LATER = {"again": "the same again", "count": "rows of whole days", "needle": "amount > 500"}
"""The later questions, and how the demo calls them."""


def _later(result: DemoResult) -> RenderableType:
    table = lines_table("", " ", "answer", "requests", "bytes", "time", right={"answer", "requests", "bytes", "time"})
    for name, (ours, theirs) in result.later.items():
        for reader, one, other in (("coldparquet", ours, theirs), ("pyarrow", theirs, None)):
            table.add_row(
                _LATER[name] if other is not None else "",
                reader,
                _told(one) if other is not None else "",
                *(
                    Text(write(measure(one)), "" if other is None else _style(measure(one), [measure(other)]))
                    for _, measure, write in _MEASURES
                ),
            )
    return table


def _told(answer: Answer) -> str:
    is_count = answer.rows.schema.names == ["count"]
    return f"{answer.rows['count'][0].as_py():,}" if is_count else plural(answer.rows.num_rows, "row")


def _style(ours: float, others: Sequence[float]) -> str:
    """Colour a number of ours by what it is: the best one, or the worst."""
    if ours <= min(others):
        return "green"
    return "red" if ours > max(others) else ""


def _verdict(result: DemoResult) -> Text:
    rows = next(iter(result.answers.values())).rows.num_rows
    text = Text()
    if result.results_equal:
        text.append(f"All returned the same {rows:,} rows, and the same later, compared value by value.", style="green")
    else:
        text.append("The results differ. This is a bug of coldparquet; please report it.", style="bold red")
    prices = PriceTable.default()
    remarks = (
        "Green: the best of its row. Red: the worst.",
        (
            "The last column of the first table is pyarrow that was given the names of the files to read. In the second table it is"
            f" given them, too, and both keep open what they opened; only {_LATER['needle']} is asked from nothing, of all files."
        ),
        "Round trips: the longest chain of requests of which each began when the one before it was over.",
        (
            f"A month: the question once a minute, {_MONTH_OF_MINUTES:,} times, each time from nothing, at prices of {prices.name},"
            f" {prices.as_of}, without storage. * The price of a GET was not checked against the provider's list."
        ),
    )
    for remark in remarks:
        text.append(f"\n{remark}", style="dim")
    return text


def _what_next() -> Text:
    return Text.assemble(
        "Try it on your own data, and ask it:\n\n",
        ("  coldparquet index s3://bucket/table\n", "bold"),
        ("  coldparquet explain s3://bucket/table -w \"ts >= '2024-03-01'\"", "bold"),
    )


def _price(storage_class: str) -> Callable[[Answer], float]:
    return lambda answer: answer.dollars(storage_class) * _MONTH_OF_MINUTES


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
    questions = _questions(days)
    with progress_bar() as progress:
        making = progress.add_task("making trades", total=days, unit="days")
        table_bytes = write_trades(table_path, days=days, on_day=lambda: progress.advance(making))
        indexing = progress.add_task("writing the index", total=days, unit="days")
        asyncio.run(index_table(table_path, on_progress=lambda _done, _total: progress.advance(indexing)))
        with ColdStoreProcess(root, _COLD_STORE) as server:
            # By the ETags of the store, as 'coldparquet index' does for a table on S3.
            asyncio.run(pack_table(f"s3://{_TABLE}", storage_options=server.storage_options))
            asking = progress.add_task("asking", total=7, unit="readers")
            answers, later, told = _ask_all(server, days, questions, on_answer=lambda: progress.advance(asking))
    return DemoResult(
        days=days, table_bytes=table_bytes, question=questions["week"], told=told, answers=answers, later=later
    )


def _ask_all(
    server: ColdStoreProcess, days: int, questions: dict[str, DemoQuestion], *, on_answer: Callable[[], None]
) -> tuple[dict[str, Answer], dict[str, tuple[Answer, Answer]], ColdparquetAnswer]:
    """Ask every reader; ``on_answer`` is called seven times."""
    # Once without measuring, so that no libraries are loaded while the clock runs.
    first_file = partition_path(Path(_TABLE), FIRST_DAY).as_posix()
    week, again, count, needle = questions.values()
    asyncio.run(ask_coldparquet(server, f"s3://{first_file}", {"week": week}))
    ask_pyarrow(server, [first_file], [week])
    on_answer()

    ours, told = asyncio.run(ask_coldparquet(server, f"s3://{_TABLE}", {"week": week, "again": again, "count": count}))
    on_answer()
    ours |= asyncio.run(ask_coldparquet(server, f"s3://{_TABLE}", {"needle": needle}))[0]
    on_answer()
    [directory] = ask_pyarrow(server, _TABLE, [week])
    on_answer()
    [later_needle] = ask_pyarrow(server, _TABLE, [needle])
    on_answer()
    given_files, later_again = ask_pyarrow(server, [part.data_path for part in told.plan.partitions], [week, again])
    on_answer()
    counted = [partition_path(Path(_TABLE), day).as_posix() for day in _counted_days(days)]
    [later_count] = ask_pyarrow(server, counted, [count])
    on_answer()
    answers = {"coldparquet": ours["week"], "pyarrow": directory, "pyarrow_given_files": given_files}
    theirs = {"again": later_again, "count": later_count, "needle": later_needle}
    return answers, {name: (ours[name], answer) for name, answer in theirs.items()}, told


def _questions(days: int) -> dict[str, DemoQuestion]:
    """Ask for a week from the middle of the table, from noon to noon; of a shorter table for what there is."""
    first = max(0, min(days // 2, days - 8))
    start = datetime.combine(FIRST_DAY + timedelta(days=first), time(12), UTC)
    stop = start + timedelta(days=7)
    week = DemoQuestion(
        columns=("ts", "price", "amount"),
        where=f"ts >= '{start:%Y-%m-%dT%H:%M}' and ts < '{stop:%Y-%m-%dT%H:%M}' and symbol = 'ETH-USD'",
        expression=_between(start, stop) & (pc.field("symbol") == "ETH-USD"),
    )
    counted = _counted_days(days)
    opening, closing = (datetime.combine(day, time(), UTC) for day in (counted[0], counted[-1] + timedelta(days=1)))
    count = DemoQuestion(
        columns=(),
        where=f"ts >= '{opening:%Y-%m-%d}' and ts < '{closing:%Y-%m-%d}'",
        expression=_between(opening, closing),
    )
    needle = DemoQuestion(
        columns=("ts", "price", "amount"), where="amount > 500", expression=pc.field("amount") > pa.scalar(500.0)
    )
    return {"week": week, "again": week, "count": count, "needle": needle}


_COUNTED_DAYS = 10


def _counted_days(days: int) -> list[date]:
    """Return the last days of the first half of the table, or all of a shorter one."""
    last = max(days // 2, min(days, _COUNTED_DAYS))
    return [FIRST_DAY + timedelta(days=number) for number in range(max(0, last - _COUNTED_DAYS), last)]


def _between(start: datetime, stop: datetime) -> pc.Expression:
    ts, time_type = pc.field("ts"), SCHEMA.field("ts").type
    between: pc.Expression = (ts >= pa.scalar(start, time_type)) & (ts < pa.scalar(stop, time_type))
    return between
