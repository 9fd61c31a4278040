"""WQ: the two hours of W1 from a partition that QuestDB itself wrote, with its default settings.

    python -m tests.benchmarks.questdb_day

A QuestDB is started (Java 17 and Maven), 5,000,000 trades of one day are inserted, and the day is converted to Parquet: 50
row groups of 100,000 rows, one page per chunk, about 140 MB. Its files carry no column orders, so that Polars and pyarrow
cannot prune by its statistics. QuestDB 9.3.4 writes no sidecar yet: ``coldparquet index`` makes it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from coldparquet.maintenance.index import index_table
from coldparquet_bench.measurement import Benchmark, main, run
from coldparquet_bench.readers import KEPT_OPEN, NO_DATA_KEPT, Question, readers
from coldparquet_bench.report import as_data, report
from coldparquet_bench.trading_day import TWO_HOURS
from tests.support.live_servers import live_questdb

ROWS = 5_000_000
TABLE, DAY = "trades", "2024-03-01"
WQ = "WQ: two hours of a day that QuestDB wrote"
CREATE = (
    f"CREATE TABLE {TABLE} (ts TIMESTAMP, symbol SYMBOL CAPACITY 1024, side SYMBOL, price DOUBLE, amount DOUBLE, id LONG,"
    " note VARCHAR, venue SYMBOL, bid DOUBLE, ask DOUBLE) TIMESTAMP(ts) PARTITION BY DAY BYPASS WAL"
)


def benchmark(*, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a quick look takes fewer rows."""
    question = Question(
        table=TABLE,
        partitions=(DAY,),
        columns=TWO_HOURS.columns,
        conditions=TWO_HOURS.conditions,
    )
    return Benchmark(
        module="tests.benchmarks.questdb_day",
        data=f"day-of-{rows}-trades-of-questdb",
        make_data=partial(_make_day, rows=rows),
        questions={WQ: readers(question, KEPT_OPEN | NO_DATA_KEPT)},
        warm_calls=3,
    )


async def _make_day(bucket: Path, *, rows: int) -> None:
    directory = bucket / TABLE / DAY
    await asyncio.to_thread(_write_by_questdb, directory, rows)
    await index_table(directory, pages=False, pack=False)


def _write_by_questdb(destination: Path, rows: int) -> None:
    step_us = 86_400_000_000 // rows
    insert = (
        f"INSERT INTO {TABLE} SELECT timestamp_sequence('2024-03-01', {step_us}), 'SYM' || rnd_int(0, 499, 0),"  # noqa: S608 - ours
        " rnd_symbol('buy', 'sell'), 60000 + round(rnd_double() * 100, 2), rnd_double(), rnd_long(0, 4611686018427387903, 0),"
        " cast(null AS VARCHAR), rnd_symbol('XNAS', 'XNYS', 'BATS'), 60000 + round(rnd_double() * 100, 2),"
        f" 60000 + round(rnd_double() * 100, 2) FROM long_sequence({rows}, 7, 7)"
    )
    later = f"INSERT INTO {TABLE} (ts, symbol) VALUES ('2024-03-02', 'SYM1')"  # noqa: S608 - as above; the newest partition stays native
    with tempfile.TemporaryDirectory() as directory, live_questdb(Path(directory), settings={}) as server:
        server.run(CREATE, insert, later, f"ALTER TABLE {TABLE} CONVERT PARTITION TO PARQUET LIST '{DAY}'")
        [written] = server.directory(TABLE).glob(f"{DAY}*/data.parquet")
        shutil.copytree(written.parent, destination)


def measure() -> None:
    """Measure, print the table, and write the results where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes per reader (default 3)")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the day")
    parser.add_argument("--data", type=Path, help="keep the data there for the next run")
    parser.add_argument("--output", type=Path, help="results as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.data or Path(temporary)
        results = run(benchmark(rows=arguments.rows), rounds=arguments.rounds, directory=directory)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(as_data(results), indent=1), encoding="utf-8")
    print(report(results))


if __name__ == "__main__":
    if "--reader" in sys.argv:
        main(benchmark())
    else:
        measure()
