"""Thirty seconds of one cold day in three layouts: pages instead of row groups.

3,000,000 trades of 10 columns, about 150 MB, 20,000 rows a page, with page index; three columns of 30 seconds are wanted,
some 1,000 rows. The day is there in row groups as large as QuestDB and we make them by default, as Polars does, and as Arrow
does, each with sidecar and ``_pages``, as ``coldparquet index`` makes them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coldparquet.maintenance.index import index_table
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_bench.measurement import Benchmark, main
from coldparquet_bench.readers import Question, readers
from coldparquet_bench.trades import day_name, trades
from coldparquet_bench.trading_day import THIRTY_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

ROWS, PAGE_ROWS = 3_000_000, 20_000
DAY = day_name(0)
ROW_GROUP_ROWS = {f"row groups of {rows:,} rows": rows for rows in (100_000, 262_144, 1_048_576)}


def benchmark(*, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer rows."""
    return Benchmark(
        module="coldparquet_bench.row_group_sizes",
        data=f"three-layouts-of-{rows}-trades",
        make_data=partial(_make_days, rows=rows),
        questions={name: readers(_question(row_group_rows)) for name, row_group_rows in ROW_GROUP_ROWS.items()},
    )


def _question(row_group_rows: int) -> Question:
    return Question(
        table=f"trades_by_{row_group_rows}",
        partitions=(DAY,),
        columns=THIRTY_SECONDS.columns,
        conditions=THIRTY_SECONDS.conditions,
    )


async def _make_days(bucket: Path, *, rows: int) -> None:
    day = trades(0, rows)
    for row_group_rows in ROW_GROUP_ROWS.values():
        directory = bucket / _question(row_group_rows).table / DAY
        options = WriteOptions(row_group_rows=row_group_rows, page_rows=PAGE_ROWS)
        await write_partition(directory, day, timestamp="ts", options=options)
        await index_table(directory)


if __name__ == "__main__":
    main(benchmark())
