"""Late materialisation: the predicate's column first, then only what is left; where it pays and where it must not be used.

    python -m tests.benchmarks.late_materialisation

One day of trades, 2,000,000 rows of 10 columns in 20 row groups of five pages, about 110 MB. The amounts are random, so
that no statistics prune. All columns are wanted of 12 trades, of 90 (in half of all pages), and of nine in ten. The three
readings of ours differ in `ReadOptions.late_materialisation` alone: "auto" must be about as good as the better of the two.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition_writer import write_partition
from tests.benchmarks.harness import Benchmark, main
from tests.benchmarks.peers import Question, readers
from tests.benchmarks.trades import COLUMNS, trades

if TYPE_CHECKING:
    from pathlib import Path

ROWS, ROW_GROUP_ROWS, PAGE_ROWS = 2_000_000, 100_000, 20_000
DAY = "2024-03-01"
LEAST_AMOUNT = {"12 of 2,000,000 rows": 12.0, "90 rows, in half of the pages": 10.0, "nine rows in ten": 0.1}


def benchmark(*, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer rows."""
    return Benchmark(
        module="tests.benchmarks.late_materialisation",
        make_data=partial(_make_day, rows=rows),
        questions={
            name: readers(
                Question(table="amounts", partition=DAY, columns=COLUMNS, conditions=(("amount", ">=", least),)),
                never=cp.ReadOptions(late_materialisation="never"),
                always=cp.ReadOptions(late_materialisation="always"),
            )
            for name, least in LEAST_AMOUNT.items()
        },
    )


async def _make_day(bucket: Path, *, rows: int) -> None:
    directory = bucket / "amounts" / DAY
    options = WriteOptions(row_group_rows=ROW_GROUP_ROWS, page_rows=PAGE_ROWS)
    await write_partition(directory, trades(0, rows), timestamp="ts", options=options)
    await index_table(directory, pages=True)


if __name__ == "__main__":
    main(__doc__, benchmark())
