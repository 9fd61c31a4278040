"""What the verbs show: a bar while they work, then what became of one table or of many, as text."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from coldparquet.catalog.packed import CATALOGUE_FILE
from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.catalog.table_files import PARQUET_METADATA_FILE
from coldparquet.cli.advice import in_flags
from coldparquet.cli.output import (
    Name,
    action_word,
    lines_table,
    output_console,
    print_listed,
    print_more,
    print_sentence,
)
from coldparquet.pipelines.model import NOT_OPENED
from coldparquet.progress import error_console, progress_bar
from coldparquet.records import replace
from coldparquet.text import few_names, human_bytes, human_dollars, human_price, human_seconds, plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from coldparquet.pipelines.model import PipelineReport, WorkResult

_BYTES_PER_MB = 1e6
_STYLES = {"done": "green", "nothing to do": "dim", "failed": "red"}


VERBING = {
    "index": "indexing",
    "migrate": "migrating",
    "verify": "verifying",
    "pack": "packing",
    "compact": "compacting",
    "publish": "publishing",
}
"""What is shown while verbs work that have a report of their own for one table."""


_AFTER_INTERRUPT = {
    "verify": "; nothing was written",
    "pack": "; run it again",
}
"""What to do when a verb was interrupted; what others have done is kept."""


@contextmanager
def verb_progress(job: str, *, unit: str = "partitions", is_dry_run: bool = False) -> Iterator[Callable[..., None]]:
    """Show how far a verb is: yields what is to be called with what was done and the number of all, or a state of it.

    If it is interrupted, how far it came is said, and what running it again will do.
    """
    finished, of_all = 0, ""
    with progress_bar() as progress:
        task = progress.add_task(VERBING[job] if unit == "partitions" else job, total=None, unit=unit)

        def advance(done: Any, total: int | None = None) -> None:
            nonlocal finished, of_all
            finished = finished + 1 if total is not None else done.finished_partitions
            of_all = f" of {plural(done.total_partitions if total is None else total, unit[:-1])}"
            if total is not None:
                progress.update(task, total=total, advance=1)
            elif job == "compact":
                progress.update(task, total=done.total_rows, completed=done.written_rows, unit="rows")
            else:
                sizes = (size / _BYTES_PER_MB for size in (done.total_bytes, done.sent_bytes))
                sizes_told = dict(zip(("total", "completed"), sizes, strict=True))
                progress.update(task, description=f"publishing {finished}{of_all}", unit="MB", **sizes_told)

        try:
            yield advance
        except (KeyboardInterrupt, asyncio.CancelledError):
            progress.stop()
            after = "; nothing was written" if is_dry_run else "; run it again to continue"
            told = f"interrupted: {finished:,}{of_all} done{_AFTER_INTERRUPT.get(job, after)}"
            error_console().print(told if of_all else "interrupted before anything was done", soft_wrap=True)
            raise


def print_report(report: PipelineReport) -> None:
    """Print what is worth a line of its own, then the notes, then a line that sums everything up."""
    console = output_console()
    told = _Told(report)
    told.print_lines(console)
    for note in report.notes:
        console.print(Text(f"note: {visible(note)}", style="dim"))
    for line in told.summary():
        print_sentence(console, line)


class _Told:
    """What is told of a report."""

    def __init__(self, report: PipelineReport) -> None:
        self._report = report
        results = report.results
        self._places = [result for result in results if result.action == NOT_OPENED]
        self._partitions = [result for result in results if result.partition]
        self._tables = [result for result in results if not result.partition and result.action != NOT_OPENED]
        self._table_count = len({result.table for result in (*self._partitions, *self._tables)})
        self._is_one_table = self._table_count == 1 and not self._places

    def print_lines(self, console: Console) -> None:
        """Print what became of single partitions and tables, as far as that is remarkable."""
        results: Sequence[WorkResult] = self._report.results
        if self._report.job == "verify":
            checked = [result for result in results if "findings" in result.details]
            results = [result for result in results if "findings" not in result.details]
            self._print_findings(console, checked)
        if self._report.job == "compact":
            changed = [result for result in results if result.action in {"compacted", "would compact"}]
            results = [result for result in results if result not in changed]
            print_listed(console, self._change_table, changed)
        if self._report.job == "publish":
            changed = [result for result in self._partitions if result.action != "unchanged"]
            results = [result for result in self._tables if result.reason or not self._is_one_table]
            print_listed(console, _published_table, changed)
        remarkable = [result for result in results if result.reason or result.action.startswith("would ")]
        if self._is_one_table:
            remarkable = [result for result in remarkable if not _is_of_catalogue(result)]
        print_listed(console, self._result_table, sorted(remarkable, key=_worst_first))
        if self._report.job == "pack":
            left_out = [
                (f"{self._place(result)} {visible(names)}".strip(), reason)
                for result in self._tables
                for reason, names in result.details.get("left_out", {}).items()
            ]
            print_listed(console, _left_out_table, left_out, noun="reasons")
        for result in self._tables:
            removed = result.details.get("directories") or result.details.get("purged")
            if removed:
                verb = "would be removed" if result.action.startswith("would") else "removed"
                place = "" if self._is_one_table else f"{visible(result.table)}: "
                names = few_names([visible(name) for name in removed])
                console.print(Text(f"{place}{plural(len(removed), 'old version')} {verb}: {names}"))

    def summary(self) -> Iterator[Text]:
        """Write ``index: 365 partitions of 4 tables in 2.1 s: 360 written (1.2 MiB), 5 unchanged; tables: 4 catalogue written``."""
        catalogues = [result for result in self._tables if self._is_one_table and _is_of_catalogue(result)]
        transactions = [result for result in self._tables if self._partitions and "txn" in result.details]
        tables = [result for result in self._tables if result not in catalogues and result not in transactions]
        if self._partitions or tables or self._places:
            yield self._counts(tables)
        pages = [pages for result in self._partitions if (pages := result.details.get("pages")) is not None]
        if pages:
            yield _pages_line(pages)
        yield from map(_transaction_line, transactions)
        for result in catalogues:
            yield from _catalogue_lines(result)
        spent = self._report.spent
        is_priced = any(lake.startswith(_PRICED_SCHEMES) for lake in self._report.lakes)
        if is_priced and self._report.job in _TELLING_REQUESTS:
            fetched = f"{human_bytes(spent.fetched_bytes)} fetched, {human_price(spent.dollars)}"
            yield Text(f"sent {plural(spent.request_count, 'request')}: {fetched}")

    def _counts(self, tables: Sequence[WorkResult]) -> Text:
        subject = "" if self._is_one_table else plural(self._table_count, "table")
        if self._partitions:
            subject = f"{plural(len(self._partitions), 'partition')}{f' of {subject}' if subject else ''}"
        head = (
            f"{self._report.job}: {subject or 'the table'}{self._source()} in {human_seconds(self._report.elapsed_s)}"
        )
        if self._report.job == "verify":
            groups = [self._verdict(), _fates("", [one for one in tables if "findings" not in one.details])]
        else:
            groups = [_fates("", self._partitions), _fates("tables: " if self._partitions else "", tables)]
        groups.append(_fates("lakes and directories: ", self._places))
        return Text(f"{head}: ") + Text("; ").join(group for group in groups if group)

    def _source(self) -> str:
        sources = [result.details["source"] for result in self._tables if "source" in result.details]
        return f" ({sources[0]})" if self._is_one_table and sources else ""

    def _place(self, result: WorkResult) -> str:
        """Name a partition, or a table where there are several."""
        return visible(result.partition if self._is_one_table else f"{result.table} {result.partition}".rstrip())

    def _result_table(self, results: Sequence[WorkResult]) -> Table:
        named = [] if self._is_one_table else ["table"]
        table = lines_table(*named, "partition", "", " ", no_wrap={""})
        for result in results:
            table.add_row(
                *([] if self._is_one_table else [Name(result.table)]),
                Name(result.partition),
                Text(action_word(result.action), style=_STYLES[result.outcome]),
                Text(visible(result.reason or _amounts([result]))),
            )
        return table

    def _change_table(self, results: Sequence[WorkResult]) -> Table:
        """Show what became of files, or why something will; a narrow terminal has no room for both."""
        is_done = all(result.action == "compacted" for result in results)
        numbers = ("bytes", "row groups", *(["pages"] if is_done else []))
        why = [] if is_done else ["why"]
        table = lines_table("partition", *numbers, *why, right=numbers, no_wrap=numbers)
        for result in results:
            shapes = [shape for name in ("before", "after") if (shape := result.details[name]) is not None]
            pages = " -> ".join("unknown" if shape["pages"] is None else f"{shape['pages']:,}" for shape in shapes)
            new_name = result.details["directory"]
            names = self._place(result) + (f" -> {new_name}" if new_name != result.partition else "")
            table.add_row(
                Name(names),
                " -> ".join(human_bytes(shape["parquet_size_bytes"]) for shape in shapes),
                " -> ".join(f"{shape['row_groups']:,}" for shape in shapes),
                pages if is_done else Text(result.reason or ""),
            )
        return table

    def _print_findings(self, console: Console, results: Sequence[WorkResult]) -> None:
        """Print findings of one kind together; what is said of several partitions alike is said once."""
        kinds: dict[tuple[str, str, str | None], dict[str, list[tuple[str, str]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for result in results:
            for finding in result.details["findings"]:
                message = visible(in_flags(finding["message"]))
                # Advice differs in numbers alone; of what is wrong they matter.
                alike = _NUMBERS.sub("#", message) if finding["severity"] == "advice" else message
                kind = finding["severity"], finding["kind"], finding["remedy"]
                kinds[kind][alike].append((self._place(result), message))
        for (severity, name, remedy), by_message in sorted(
            kinds.items(), key=lambda one: [*_SEVERITIES].index(one[0][0])
        ):
            console.print(Text(f"{severity} ", style=f"bold {_SEVERITIES[severity][0]}") + Text(name, style="bold"))
            told_of = [*by_message.values()]
            named = any(place for told in told_of for place, _ in told)
            table = lines_table(*([""] if named else []), " ", indent=2)
            for told in told_of[:_FINDINGS_LISTED]:
                table.add_row(*_finding_cells(told, named=named))
            console.print(table)
            print_more(console, sum(map(len, told_of[_FINDINGS_LISTED:])), indent=2)
            if remedy is not None:
                console.print(Padding(Text(f"to do: {in_flags(remedy)}", style="green"), (0, 0, 0, 2)))
            console.print()

    def _verdict(self) -> Text:
        """Write ``5,000,000 rows, 1.2 GiB of Parquet, 1 native (not checked): 1 error, 2 warnings``."""
        results = [result for result in (*self._partitions, *self._tables) if "findings" in result.details]
        facts = [plural(sum(result.rows or 0 for result in results), "row")]
        is_deep = any(result.details.get("read_bytes") for result in results)
        size = human_bytes(sum(result.size_bytes or 0 for result in results))
        facts.append(f"{size} {'read and compared' if is_deep else 'of Parquet'}")
        native = sum(result.details.get("format") == "native" for result in results)
        if native:
            facts.append(f"{native:,} native (not checked)")
        found = Counter(finding["severity"] for result in results for finding in result.details["findings"])
        counts = [
            Text(plural(found[severity], noun), style=style)
            for severity, (style, noun) in _SEVERITIES.items()
            if found[severity]
        ]
        verdict = Text(", ").join(counts) if counts else Text("nothing wrong", style="green")
        return Text(f"{', '.join(facts)}: ") + verdict


def _catalogue_lines(result: WorkResult) -> Iterator[Text]:
    """Write ``_catalogue: written (186 KiB), 365 of 365 partitions``, and ``_metadata: written (85 KiB), 365 files``."""
    metadata = result.details.get("parquet_metadata")
    if metadata is None or result.details["partitions"] or result.reason:
        yield _catalogue_line(result)
    if metadata is not None:
        size = "" if metadata["size_bytes"] is None else f" ({human_bytes(metadata['size_bytes'])})"
        files = f", {plural(metadata['file_count'], 'file')}" if metadata["file_count"] else ""
        reason = f": {visible(metadata['reason'])}" if metadata["reason"] else ""
        yield Text(f"{PARQUET_METADATA_FILE}: {metadata['action']}{size}{files}{reason}")


def _catalogue_line(result: WorkResult) -> Text:
    facts, size_bytes = result.details, result.size_bytes
    line = Text(f"{CATALOGUE_FILE}: ")
    line += Text(result.action.removeprefix("catalogue "), style=_STYLES[result.outcome])
    line += Text("" if size_bytes is None else f" ({human_bytes(size_bytes)})")
    if facts["partitions"]:
        line += Text(f", {facts['packed']:,} of {plural(facts['partitions'], 'partition')}")
    for what, noun in (("bloom", "bloom filters"), ("pages", "page indexes")):
        for name, word in ((f"{what}_bytes", ""), (f"left_out_{what}_bytes", "without ")):
            if facts[name]:
                line += Text(f", {word}{human_bytes(facts[name])} of {noun}")
    return line + Text(f": {visible(result.reason)}" if result.reason else "")


def _transaction_line(result: WorkResult) -> Text:
    """Write ``transaction 4, after 3: published, 3,001 rows; sent 122 KiB in 22 writes and 1 read``."""
    facts, is_planned = result.details, result.action.startswith("would")
    before = "" if facts["previous_txn"] is None else f", after {facts['previous_txn']:,}"
    line = Text(f"transaction {facts['txn']:,}{before}: ") + Text(result.action, style=_STYLES[result.outcome])
    requests = f"{plural(facts['write_count'], 'write')} and {plural(facts['read_count'], 'read')}"
    sent = f"{'would send about' if is_planned else 'sent'} {human_bytes(result.size_bytes or 0)} in {requests}"
    is_priced = facts["destination"].startswith(_PRICED_SCHEMES)
    dollars = f": {_amounts([replace(result, size_bytes=0)])}" if is_priced else ""
    return line + Text(f", {result.rows or 0:,} rows; {sent}{dollars}")


_PRICED_SCHEMES = ("s3://", "s3a://")
_TELLING_REQUESTS = {"index", "migrate", "verify", "pack", "compact"}
"""Of these verbs all requests are counted; what the others spend, a line of their own tells, or nothing."""
_FINDINGS_LISTED = 10
"""Findings of one kind that the text lists before it says how many more there are."""
_SEVERITIES = {"error": ("red", "error"), "warning": ("yellow", "warning"), "advice": ("cyan", "suggestion")}
"""Style and noun of each, from the worst on; the order in which findings are shown."""


_NUMBERS = re.compile(r"\d[\d,.]*")


def _finding_cells(told: Sequence[tuple[str, str]], *, named: bool) -> list[Name | Text]:
    """Say a finding of one partition, or of several alike: how many, the first and the last one, and what is said of the first."""
    [(first, message), *others] = told
    if not named or not others:
        return [*([Name(first)] if named else []), Text(message)]
    last = others[-1][0]
    is_of_first = any(other != message for _, other in others)
    places = f"{first} … {last}{', numbers of the first' if is_of_first else ''}"
    return [Name(plural(len(told), "partition")), Text(message) + Text(f"\n{places}", style="dim")]


def _is_of_catalogue(result: WorkResult) -> bool:
    return "packed" in result.details


def _worst_first(result: WorkResult) -> tuple[int, bool]:
    return ("failed", "done", "nothing to do").index(result.outcome), result.action != "warning"


def _left_out_table(left_out: Sequence[tuple[str, str]]) -> Table:
    table = lines_table("", "")
    for names, reason in left_out:
        table.add_row(Text(names), Text(f"left out: {visible(reason)}", style="yellow"))
    return table


def _pages_line(pages: Iterable[Mapping[str, Any]]) -> Text:
    """Write ``_pages: 365 written (1.2 MiB); 3,650 of 3,650 column chunks described``."""
    pages = list(pages)
    sizes = Counter[str]()
    for one in pages:
        sizes[one["action"]] += one["size_bytes"] or 0
    counts = Counter(one["action"] for one in pages)
    told = [f"{count:,} {action} ({human_bytes(sizes[action])})" for action, count in counts.most_common()]
    known, chunks = sum(one["chunks_known"] for one in pages), sum(one["chunk_count"] for one in pages)
    return Text(f"{PAGES_FILE}: {', '.join(told)}; {known:,} of {chunks:,} column chunks described")


def _fates(label: str, results: Sequence[WorkResult]) -> Text:
    """Write ``tables: 3 sound, 1 advice``, the most frequent one first; nothing where there are no results."""
    by_action: dict[str, list[WorkResult]] = {}
    for result in results:
        by_action.setdefault(result.action, []).append(result)
    parts = []
    for action, same in sorted(by_action.items(), key=lambda one: -len(one[1])):
        amounts = _amounts(same) if same[0].outcome == "done" else ""
        told = f"{len(same):,} {action_word(action)}{f' ({amounts})' if amounts else ''}"
        parts.append(Text(told, style=_STYLES[same[0].outcome]))
    return Text(label if parts else "") + Text(", ").join(parts)


def _pages_bytes(result: WorkResult) -> int:
    """Return how much of what ``index`` wrote is told in a line of its own."""
    return (result.details.get("pages") or {}).get("size_bytes") or 0


def _amounts(results: Sequence[WorkResult]) -> str:
    """Write how many bytes, what they were before, and dollars; nothing where they were not counted."""
    size_bytes = sum((result.size_bytes or 0) - _pages_bytes(result) for result in results)
    shapes = [
        (before, after) for one in results if (before := one.details.get("before")) and (after := one.details["after"])
    ]
    before_bytes = sum(before["parquet_size_bytes"] for before, _ in shapes)
    dollars = [result.dollars for result in results if result.dollars is not None]
    monthly = [month for result in results if (month := result.details.get("dollars_per_month")) is not None]
    amounts = [human_bytes(size_bytes)] if size_bytes else []
    if before_bytes:
        amounts = [f"{human_bytes(before_bytes)} -> {human_bytes(size_bytes)}"]
    if dollars:
        amounts.append(human_dollars(sum(dollars)))
    if monthly:
        per_month = sum(monthly)
        amounts.append(f"{'-' if per_month < 0 else '+'}{human_dollars(abs(per_month))} a month")
    return ", ".join(amounts)


def _published_table(results: Sequence[WorkResult]) -> Table:
    texts, numbers = ("partition", "", "published as"), ("rows", "Parquet")
    table = lines_table(*texts, *numbers, " ", right=numbers, no_wrap={*texts, *numbers, " "})
    for result in results:
        size = "-" if result.size_bytes is None else human_bytes(result.size_bytes)
        table.add_row(
            Text(visible(result.partition)),
            Text(result.action, style=_STYLES[result.outcome]),
            Text(visible(result.details["published_name"] or "-")),
            f"{result.rows:,}",
            f"from {size}" if result.details["is_size_of_columns"] and result.size_bytes else size,
            result.details["storage_class"] or "",
        )
    return table
