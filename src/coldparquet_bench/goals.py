"""W9: what the question of W1 costs by goal and storage class, and what it costs with other readers.

The simulated store says of every object that it lies in the class, so that the goal ``cheap`` can go by its prices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import coldparquet as cp
from coldparquet.records import replace
from coldparquet_bench.measurement import BUCKET, COLD_STORE, Benchmark, main
from coldparquet_bench.readers import OurWay, readers
from coldparquet_bench.trading_day import ROWS, TWO_HOURS, day_benchmark

if TYPE_CHECKING:
    from coldparquet.options import Goal

GOALS: tuple[Goal, ...] = ("fast", "cheap", "few-requests", "few-bytes")
CLASSES = ("STANDARD", "STANDARD_IA", "GLACIER_IR")
W9 = {name: f"W9: what the two hours of W1 cost in {name}" for name in CLASSES}


def benchmark(storage_class: str, *, rows: int = ROWS) -> Benchmark:
    """Make the benchmark of one storage class; a smoke test asks for fewer rows."""
    ways = {f"goal {goal}": OurWay(options=cp.ReadOptions(goal=goal)) for goal in GOALS}
    return day_benchmark(
        "coldparquet_bench.goals",
        {W9[storage_class]: readers(TWO_HOURS, ways)},
        rows=rows,
        warm_calls=1,
        store=replace(COLD_STORE, storage_classes={f"{BUCKET}/*": storage_class}),
    )


if __name__ == "__main__":
    questions = {name: of_name for each in CLASSES for name, of_name in benchmark(each).questions.items()}
    main(replace(benchmark(CLASSES[0]), questions=questions))
