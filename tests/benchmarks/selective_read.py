"""The selective read of one cold partition, against Polars and others, on the same simulated store in one run.

    python -m tests.benchmarks.selective_read

One day of trades, 2,000,000 rows in 20 row groups of 10 columns, about 100 MB, written by Arrow with page index; two
columns and two hours of it are wanted, which touches 3 row groups.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.maintenance.index import index_table
from tests.benchmarks.harness import Benchmark, main
from tests.benchmarks.peers import Question, readers
from tests.benchmarks.trades import trades

if TYPE_CHECKING:
    from pathlib import Path

ROWS, ROW_GROUPS = 2_000_000, 20
QUESTION = Question(
    table="trades",
    partition="2024-03-01",
    columns=("ts", "price"),
    conditions=(("ts", ">=", datetime(2024, 3, 1, 9, 30)), ("ts", "<", datetime(2024, 3, 1, 11, 30))),  # noqa: DTZ001 - UTC
)
ASKED = "two columns of two hours of one day"


def benchmark(*, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer rows."""
    return Benchmark(
        module="tests.benchmarks.selective_read",
        make_data=partial(_make_day, rows=rows),
        questions={ASKED: readers(QUESTION)},
        warm_calls=5,
    )


async def _make_day(bucket: Path, *, rows: int) -> None:
    directory = bucket / QUESTION.table / "2024-03-01"
    directory.mkdir(parents=True)
    day = trades(0, rows)
    # QuestDB's designated timestamp is never null; saying so makes a foreign file's sorted timestamp one.
    day = day.set_column(0, pa.field("ts", day.schema.field("ts").type, nullable=False), day.column("ts"))
    pq.write_table(
        day,
        directory / "data.parquet",
        row_group_size=rows // ROW_GROUPS,
        compression="zstd",
        data_page_size=64 * 1024,
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(0)],
    )
    await index_table(directory)


if __name__ == "__main__":
    main(__doc__, benchmark())
