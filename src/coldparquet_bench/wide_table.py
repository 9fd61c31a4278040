"""W7: three of 1,000 columns, twenty minutes of one cold day of 10,000 rows in 50 row groups."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_bench.measurement import Benchmark, main
from coldparquet_bench.readers import Question, readers
from coldparquet_bench.trades import day_name, trades

if TYPE_CHECKING:
    from pathlib import Path

ROWS, COLUMNS, ROW_GROUPS = 10_000, 1_000, 50
TABLE, DAY = "wide", day_name(0)
W7 = "W7: three of 1,000 columns"


def benchmark(*, columns: int = COLUMNS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer columns."""
    question = Question(
        table=TABLE,
        partitions=(DAY,),
        columns=("ts", "sensor_7", "sensor_90"),
        conditions=(("ts", ">=", datetime(2024, 3, 1, 12)), ("ts", "<", datetime(2024, 3, 1, 12, 20))),  # noqa: DTZ001 - UTC
    )
    return Benchmark(
        module="coldparquet_bench.wide_table",
        data=f"{columns}-columns",
        make_data=partial(_make_day, columns=columns),
        questions={W7: readers(question)},
    )


async def _make_day(bucket: Path, *, columns: int) -> None:
    random = np.random.default_rng(7)
    day = trades(0, ROWS, columns=("ts",))
    for number in range(columns - 1):
        day = day.append_column(f"sensor_{number}", pa.array(random.normal(size=ROWS)))
    options = WriteOptions(row_group_rows=ROWS // ROW_GROUPS)
    await write_partition(bucket / TABLE / DAY, day, timestamp="ts", options=options)


if __name__ == "__main__":
    main(benchmark())
