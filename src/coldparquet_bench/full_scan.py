"""W5: every row and column of ten cold days, about 1 GB, in batches that are thrown away."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_bench.measurement import Benchmark, main
from coldparquet_bench.readers import Question, readers
from coldparquet_bench.trades import DAY_COLUMNS, day_name, trades

if TYPE_CHECKING:
    from pathlib import Path

DAYS, ROWS, ROW_GROUPS = 10, 2_000_000, 20
TABLE = "days"
W5 = "W5: all of 1 GB"


def benchmark(*, days: int = DAYS, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer days of fewer rows."""
    return Benchmark(
        module="coldparquet_bench.full_scan",
        data=f"{days}-full-days-of-{rows}-trades",
        make_data=partial(_make_days, days=days, rows=rows),
        questions={W5: readers(Question(table=TABLE, columns=DAY_COLUMNS))},
        warm_calls=1,
    )


async def _make_days(bucket: Path, *, days: int, rows: int) -> None:
    options = WriteOptions(row_group_rows=rows // ROW_GROUPS)
    for day in range(days):
        of_day = trades(day, rows, columns=DAY_COLUMNS)
        await write_partition(bucket / TABLE / day_name(day), of_day, timestamp="ts", options=options)


if __name__ == "__main__":
    main(benchmark())
