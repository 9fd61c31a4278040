"""``coldparquet demo``: one selective question to a year of trades on a simulated cold store, asked in several ways."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.cli.demo_data import FIRST_DAY, partition_path, write_trades
from coldparquet.cli.demo_readers import DemoQuestion, DemoResult, ask_coldparquet, ask_pyarrow
from coldparquet.cli.demo_report import print_demo
from coldparquet.cli.output import print_json, progress_bar
from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coldparquet.cli.demo_readers import Answer, ColdparquetAnswer

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
    question = _question(days)
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


def _question(days: int) -> DemoQuestion:
    """Ask for a week from the middle of the table, from noon to noon; of a shorter table for what there is."""
    first = max(0, min(days // 2, days - 8))
    start = datetime.combine(FIRST_DAY + timedelta(days=first), time(12), UTC)
    return DemoQuestion(
        columns=("ts", "price", "amount"), symbol="ETH-USD", start=start, stop=start + timedelta(days=7)
    )
