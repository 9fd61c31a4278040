"""W1 and W4: two hours, and thirty seconds, of one cold day that Arrow wrote.

2,000,000 trades in 20 row groups of 10 columns, pages of 64 KiB with a page index, zstd, about 100 MB; with its sidecar and
``_pages``, as ``coldparquet index`` makes them. Two hours touch 3 of the 20 row groups, thirty seconds one page of
each column.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.maintenance.index import index_table
from coldparquet_bench.measurement import COLD_STORE, Benchmark, main
from coldparquet_bench.readers import KEPT_OPEN, NO_DATA_KEPT, Question, readers
from coldparquet_bench.trades import DAY_COLUMNS, day_name, trades

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coldparquet_bench.measurement import MakeReader
    from coldparquet_testing.simulator import ColdStoreOptions

ROWS, ROW_GROUPS, PAGE_BYTES = 2_000_000, 20, 64 * 1024
TABLE, DAY = "trades", day_name(0)
TWO_HOURS = Question(
    table=TABLE,
    partitions=(DAY,),
    columns=("ts", "price"),
    conditions=(("ts", ">=", datetime(2024, 3, 1, 9, 30)), ("ts", "<", datetime(2024, 3, 1, 11, 30))),  # noqa: DTZ001 - UTC
)
THIRTY_SECONDS = Question(
    table=TABLE,
    partitions=(DAY,),
    columns=("ts", "price", "amount"),
    conditions=(("ts", ">=", datetime(2024, 3, 1, 14)), ("ts", "<", datetime(2024, 3, 1, 14, 0, 30))),  # noqa: DTZ001 - UTC
)
W1, W4 = "W1: two columns of two hours of one day", "W4: three columns of thirty seconds of one day"
WAYS = {**KEPT_OPEN, **NO_DATA_KEPT}


def benchmark(*, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer rows."""
    return day_benchmark(
        "coldparquet_bench.trading_day",
        {W1: readers(TWO_HOURS, WAYS), W4: readers(THIRTY_SECONDS, WAYS)},
        rows=rows,
        warm_calls=5,
    )


def day_benchmark(
    module: str,
    questions: Mapping[str, Mapping[str, MakeReader]],
    *,
    rows: int,
    warm_calls: int,
    store: ColdStoreOptions = COLD_STORE,
) -> Benchmark:
    """Ask questions about the day."""
    return Benchmark(
        module=module,
        data=f"day-of-{rows}-trades",
        make_data=partial(_make_day, rows=rows),
        questions=questions,
        warm_calls=warm_calls,
        store=store,
    )


async def _make_day(bucket: Path, *, rows: int) -> None:
    directory = bucket / TABLE / DAY
    directory.mkdir(parents=True)
    day = trades(0, rows, columns=DAY_COLUMNS)
    # QuestDB's designated timestamp is never null; saying so makes a foreign file's sorted timestamp one.
    day = day.set_column(0, pa.field("ts", day.schema.field("ts").type, nullable=False), day.column("ts"))
    pq.write_table(
        day,
        directory / "data.parquet",
        row_group_size=rows // ROW_GROUPS,
        compression="zstd",
        use_dictionary=["symbol", "side", "venue"],  # type: ignore[arg-type] # Arrow would make one of 100,000 different prices, too
        data_page_size=PAGE_BYTES,
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(0)],
    )
    await index_table(directory)


if __name__ == "__main__":
    main(benchmark())
