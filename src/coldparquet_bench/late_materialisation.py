"""Late materialisation: the predicate's column first, then only what is left; where it pays and where it must not be used.

One day of trades, 2,000,000 rows of 10 columns in 20 row groups of five pages, about 100 MB. The amounts are random, and
those asked for are neither the least nor the largest, so that no minimum and maximum prunes, neither of a row group nor
of a page. All columns are wanted of hardly any trade, of one or two, of a hundred (in most pages), and of nine in ten. The
readings of ours differ in ``ReadOptions.late_materialisation`` alone: the adaptive one must be about as good as the better
of the others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_bench.measurement import Benchmark, main
from coldparquet_bench.readers import OurWay, Question, readers
from coldparquet_bench.trades import COLUMNS, day_name, trades

if TYPE_CHECKING:
    from pathlib import Path

ROWS, ROW_GROUP_ROWS, PAGE_ROWS = 2_000_000, 100_000, 20_000
DAY = day_name(0)
AMOUNTS = {
    "hardly any row": (5.0, 5.00001),
    "one or two rows": (5.0, 5.0001),
    "a hundred rows, in most pages": (5.0, 5.0075),
    "nine rows in ten": (0.1, 9.0),
}


def benchmark(*, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer rows."""
    ways = {
        "never late": OurWay(options=cp.ReadOptions(late_materialisation="never")),
        "always late": OurWay(options=cp.ReadOptions(late_materialisation="always")),
    }
    return Benchmark(
        module="coldparquet_bench.late_materialisation",
        data=f"amounts-of-{rows}-trades",
        make_data=partial(_make_day, rows=rows),
        warm_calls=2,
        questions={name: readers(_question(least, below), ways) for name, (least, below) in AMOUNTS.items()},
    )


def _question(least: float, below: float) -> Question:
    conditions = (("amount", ">=", least), ("amount", "<", below))
    return Question(table="amounts", partitions=(DAY,), columns=COLUMNS, conditions=conditions)


async def _make_day(bucket: Path, *, rows: int) -> None:
    directory = bucket / "amounts" / DAY
    options = WriteOptions(row_group_rows=ROW_GROUP_ROWS, page_rows=PAGE_ROWS)
    await write_partition(directory, trades(0, rows), timestamp="ts", options=options)
    await index_table(directory)


if __name__ == "__main__":
    main(benchmark())
