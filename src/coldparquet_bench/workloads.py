"""The workloads by name, with what each is to show and how far we want to be ahead."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from coldparquet_bench import (
    engines,
    full_scan,
    goals,
    hive_lake,
    hive_spark,
    late_materialisation,
    needle,
    planning,
    row_group_sizes,
    slow_and_refusing_store,
    small_files,
    spark_trades,
    trading_day,
    wide_table,
    year_of_trades,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet_bench.measurement import Benchmark
    from coldparquet_bench.small_files import SmallFiles
    from coldparquet_bench.spark_measurement import SparkBenchmark


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of question, asked of everybody."""

    name: str
    title: str
    full: tuple[Callable[[], Benchmark | SmallFiles | SparkBenchmark], ...]
    """What a run measures."""
    small: tuple[Callable[[], Benchmark | SmallFiles | SparkBenchmark], ...]
    """The same on less data: shows that it works, and how requests and bytes compare, in seconds."""
    is_default: bool = True
    """Whether it runs where no workload is named."""


_SMALL_DAY_ROWS = 200_000
_FEW_FILES = 200


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            name="day",
            title="W1 and W4: two hours, and thirty seconds, of one day",
            full=(trading_day.benchmark,),
            small=(partial(trading_day.benchmark, rows=_SMALL_DAY_ROWS),),
        ),
        Workload(
            name="year",
            title="W2 and W6: a week, and the extremes, of a year of days",
            full=(year_of_trades.benchmark,),
            small=(partial(year_of_trades.benchmark, days=30, rows=4_000),),
        ),
        Workload(
            name="needle",
            title="W3: one row in 50 days",
            full=(needle.benchmark,),
            small=(partial(needle.benchmark, days=5, rows=25_000),),
        ),
        Workload(
            name="scan",
            title="W5: all of 1 GB",
            full=(full_scan.benchmark,),
            small=(partial(full_scan.benchmark, days=2, rows=_SMALL_DAY_ROWS),),
        ),
        Workload(
            name="wide",
            title="W7: three of 1,000 columns",
            full=(wide_table.benchmark,),
            small=(partial(wide_table.benchmark, columns=100),),
        ),
        Workload(
            name="faults",
            title="W8: a slow store that refuses requests",
            full=(slow_and_refusing_store.benchmark, partial(slow_and_refusing_store.benchmark, has_faults=False)),
            small=(
                partial(slow_and_refusing_store.benchmark, rows=_SMALL_DAY_ROWS, calls=10),
                partial(slow_and_refusing_store.benchmark, rows=_SMALL_DAY_ROWS, calls=10, has_faults=False),
            ),
        ),
        Workload(
            name="prices",
            title="W9: dollars by goal and storage class",
            full=tuple(partial(goals.benchmark, name) for name in goals.CLASSES),
            small=tuple(partial(goals.benchmark, name, rows=_SMALL_DAY_ROWS) for name in goals.CLASSES),
        ),
        Workload(
            name="row-groups",
            title="thirty seconds of a day in three layouts",
            full=(row_group_sizes.benchmark,),
            small=(partial(row_group_sizes.benchmark, rows=_SMALL_DAY_ROWS),),
        ),
        Workload(
            name="late",
            title="late materialisation, where it pays and where not",
            full=(late_materialisation.benchmark,),
            small=(partial(late_materialisation.benchmark, rows=_SMALL_DAY_ROWS),),
        ),
        Workload(
            name="engines",
            title="Polars, DuckDB and pyarrow on the files, and on our table",
            full=(engines.benchmark,),
            small=(partial(engines.benchmark, days=30, rows=4_000),),
            is_default=False,  # it compares engines with themselves
        ),
        Workload(
            name="hive",
            title="a Hive lake of three files a day, without and with an index",
            full=(hive_lake.benchmark, hive_spark.benchmark),
            small=(
                partial(hive_lake.benchmark, days=hive_spark.SMALL_DAYS, rows=hive_spark.SMALL_ROWS),
                partial(hive_spark.benchmark, is_small=True),
            ),
            is_default=False,  # its data takes a minute to make, and Spark needs Java and jars
        ),
        Workload(
            name="index",
            title="sidecars for 10,000 small files",
            full=(small_files.SmallFiles,),
            small=(partial(small_files.SmallFiles, files=_FEW_FILES, process_counts=(1,)),),
            is_default=False,  # it compares no readers, and takes minutes
        ),
        Workload(
            name="planning",
            title="planning 3,650 partitions, and 100,000 row groups",
            full=(planning.many_partitions, planning.many_row_groups),
            small=(partial(planning.many_partitions, days=100), partial(planning.many_row_groups, days=10)),
            is_default=False,  # it compares no readers
        ),
        Workload(
            name="spark",
            title="Spark: its own S3A reader and ours in one session",
            full=(spark_trades.benchmark,),
            small=(partial(spark_trades.benchmark, is_small=True),),
            is_default=False,  # it needs Java, and jars that localstack/spark_jars.sh fetches
        ),
    )
}
"""In the order in which they run."""
