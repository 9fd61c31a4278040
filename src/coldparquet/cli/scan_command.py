"""``coldparquet scan``, ``explain`` and ``count``: one question about a table, answered in three ways."""

from __future__ import annotations

import asyncio
import csv
import sys
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import typer
from rich.cells import cell_len
from rich.text import Text

from coldparquet.cli.output import (
    file_in_place,
    lines_table,
    output_console,
    plan_text,
    print_json,
)
from coldparquet.cli.rows import SINKS, CsvSink, JsonSink, ParquetSink, text_columns
from coldparquet.errors import InvalidInputError
from coldparquet.opening import open_table
from coldparquet.progress import error_console
from coldparquet.records import replace
from coldparquet.text import few_names, plural, visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import BinaryIO

    from rich.table import Table as RichTable

    from coldparquet.cli.flags import CachedStoreFlags, ReadFlags
    from coldparquet.cli.profile import ScanProfile
    from coldparquet.cli.rows import MakeSink
    from coldparquet.opening import Opening
    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.plan.model import ReadPlan
    from coldparquet.table import Table
    from coldparquet.table_scan import Scan

_SHOWN_ROWS = 50
"""Rows that a terminal gets."""

_CELL_WIDTH = 40
"""A longer text is cut off in the terminal's table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuestion:
    """What the flags of ``scan``, ``explain`` and ``count`` say."""

    url: str
    storage_options: Mapping[str, Any]
    store_options: StoreOptions
    options: ReadOptions
    columns: tuple[str, ...] | None
    """None for all."""
    where: str | None
    limit: int | None
    tail: int | None = None
    """The last so many rows; None for all."""


def question_about(
    url: str,
    *,
    store: CachedStoreFlags,
    reads: ReadFlags,
    columns: list[str] | None = None,
    where: str | None,
    limit: int | None,
    tail: int | None = None,
) -> TableQuestion:
    """Put together what the flags say; ``columns`` are lists as they were typed."""
    return TableQuestion(
        url=url,
        storage_options=store.storage_options(),
        store_options=store.store_options(),
        options=reads.read_options(),
        columns=_split_columns(columns),
        where=where,
        limit=limit,
        tail=tail,
    )


def _split_columns(lists: list[str] | None) -> tuple[str, ...] | None:
    """Split ``--columns ts,price``; a name that holds a comma is put in double quotes."""
    if not lists:
        return None
    try:
        return tuple(name for names in csv.reader(lists, skipinitialspace=True) for name in names)
    except csv.Error:
        raise InvalidInputError(
            "the list of columns cannot be taken apart; put a name with a comma or a line break in double quotes",
            kind="BadColumns",
        ) from None


def explain(question: TableQuestion, *, as_json: bool) -> None:
    """Print the plan. Requests: metadata only."""
    plan = asyncio.run(_plan(question))
    if as_json:
        facts = plan.as_dict()
        del facts["table"]
        print_json({"url": question.url, "source": facts.pop("snapshot"), **facts})  # named as in other reports
    else:
        sys.stdout.write(plan_text(plan, output_console().width if sys.stdout.isatty() else None) + "\n")


def count(question: TableQuestion, *, as_json: bool) -> None:
    """Print the number of rows."""
    rows = asyncio.run(_count(question))
    if as_json:
        print_json({"url": question.url, "rows": rows})
    else:
        sys.stdout.write(f"{rows}\n")


def scan(question: TableQuestion, *, output: str, as_json: bool, profile: ScanProfile) -> None:
    """Write the rows to a file or to standard output, or show the first ones on a terminal; then tell how it went."""
    if output != "-":
        _scan_to_file(question, output, as_json=as_json, profile=profile)
    elif sys.stdout.isatty() and not as_json:
        asyncio.run(_show(question, profile))
    else:
        asyncio.run(_scan_to(question, sys.stdout.buffer, JsonSink if as_json else CsvSink, profile))


def _scan_to_file(question: TableQuestion, output: str, *, as_json: bool, profile: ScanProfile) -> None:
    path = Path(output).expanduser()
    make_sink = SINKS.get(path.suffix)
    if "://" in output or make_sink is None:
        raise typer.BadParameter(f"expected a local file that ends in {', '.join(SINKS)}, or -", param_hint="--output")
    with file_in_place(path) as file:
        rows = asyncio.run(_scan_to(question, file, make_sink, profile, progress=True))
    if as_json:
        print_json({"url": question.url, "output": str(path), "rows": rows, "bytes": path.stat().st_size})
    else:
        output_console().print(f"{plural(rows, 'row')} in {path}", soft_wrap=True)


async def _scan_to(
    question: TableQuestion,
    file: BinaryIO,
    make_sink: MakeSink,
    profile: ScanProfile,
    *,
    progress: bool = False,
) -> int:
    """Stream the rows into a file and return how many there were. Nothing is written before the first of them are read."""
    # Only Parquet takes dictionaries that differ from batch to batch.
    options = replace(question.options, symbols="dictionary" if make_sink is ParquetSink else "string")
    rows = 0
    async with _opened(question, options) as table:
        chosen = _scan_of(table, question)
        await _warn_of_skipped(question, chosen)
        async with _profiled(profile, table, chosen, has_plan=question.tail is None):
            if question.tail is not None:
                last = await chosen.tail(question.tail)
                with closing(make_sink(file, chosen.schema)) as sink:
                    for last_batch in last.to_batches():
                        await asyncio.to_thread(sink.write, last_batch)
                return last.num_rows
            async with chosen.batches(progress=progress) as batches:
                # Before the sink, which may write a header: with nothing after it, that would be a valid empty answer.
                batch = await batches.next_batch()
                with closing(make_sink(file, chosen.schema)) as sink:
                    while batch is not None:
                        await asyncio.to_thread(sink.write, batch)
                        rows += batch.num_rows
                        batch = await batches.next_batch()
    return rows


@asynccontextmanager
async def _profiled(profile: ScanProfile, table: Table, scan: Scan, *, has_plan: bool) -> AsyncIterator[None]:
    """Tell how it went what is done inside, also if it fails: that is when people want to know."""
    try:
        yield
    except BaseException:
        profile.tell(table, scan, None)
        raise
    if profile.is_wanted:
        profile.tell(table, scan, await scan.plan() if has_plan else None)


def _opened(question: TableQuestion, options: ReadOptions) -> Opening:
    return open_table(
        question.url,
        storage_options=question.storage_options,
        options=options,
        store_options=question.store_options,
    )


def _scan_of(table: Table, question: TableQuestion) -> Scan:
    return table.scan(question.columns, question.where, limit=question.limit)


async def _plan(question: TableQuestion) -> ReadPlan:
    async with _opened(question, question.options) as table:
        return await _scan_of(table, question).plan()


async def _count(question: TableQuestion) -> int:
    async with _opened(question, question.options) as table:
        chosen = _scan_of(table, question)
        rows = await chosen.count()
        await _warn_of_skipped(question, chosen)
        return rows


async def _warn_of_skipped(question: TableQuestion, scan: Scan) -> None:
    """Say on standard error which partitions are missing from the answer, if the flags allow that."""
    if question.options.archived != "skip":
        return
    skipped = (await scan.plan()).partitions_skipped
    if skipped:
        names = few_names([partition.name for partition in skipped])
        message = f"warning: rows are missing: {plural(len(skipped), 'archived partition')} skipped: {names}"
        error_console().print(message, soft_wrap=True)


async def _show(question: TableQuestion, profile: ScanProfile) -> None:
    """Show the first rows on the terminal, or the last ones of the last ones wanted; no more than these are read."""
    options = replace(question.options, symbols="string")
    async with _opened(question, options) as table:
        chosen = _scan_of(table, question)
        await _warn_of_skipped(question, chosen)
        async with _profiled(profile, table, chosen, has_plan=question.tail is None):
            if question.tail is not None:
                rows = await chosen.tail(min(_SHOWN_ROWS, question.tail))
                summary = f"the last {plural(rows.num_rows, 'row')}"
            else:
                plan = await chosen.plan()
                shown = _SHOWN_ROWS if question.limit is None else min(_SHOWN_ROWS, question.limit)
                rows = await chosen.head(shown)
                summary = _summary(rows.num_rows, shown, plan)
    console = output_console()
    rich_table, left_out = _rich_table(rows, width=console.width)
    console.print(rich_table)
    console.print(Text(summary, style="dim"))
    if left_out:
        names = ", ".join(left_out)
        console.print(Text(f"{plural(len(left_out), 'column')} without room here: {names}", style="dim"))


def _summary(row_count: int, asked: int, plan: ReadPlan) -> str:
    least, most = plan.rows_at_least, plan.rows_at_most
    if row_count < asked or most <= row_count:
        return plural(row_count, "row")
    total = f"{most:,}" if least == most else f"up to {most:,}"
    return f"the first {row_count:,} of {total} rows; --output FILE writes all of them"


def _rich_table(rows: pa.Table, *, width: int) -> tuple[RichTable, list[str]]:
    """Return a table of the columns that fit side by side, and the names of those that do not."""
    table = lines_table()
    batch = rows.combine_chunks().to_batches()
    columns = text_columns(batch[0]) if batch else [[] for _ in rows.schema]
    shown: list[list[str]] = []
    for field, texts in zip(rows.schema, columns, strict=True):
        name, *cells = map(visible, [field.name, *texts])
        needed = min(_CELL_WIDTH, max(map(cell_len, [name, *cells]))) + 2
        if shown and needed > width:
            break
        width -= needed
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=_CELL_WIDTH,
        )
        shown.append(cells)
    for row in zip(*shown, strict=True):
        table.add_row(*map(Text, row))
    return table, rows.schema.names[len(shown) :]
