"""W8: the two hours of W1 from a store that answers 2 % of the requests 20 times later, and refuses 2 % with 503.

Every call fetches: with what was fetched kept, there would be nothing to measure after the first one.
"""

from __future__ import annotations

from coldparquet.records import replace
from coldparquet_bench.measurement import COLD_STORE, OURS, Benchmark, main
from coldparquet_bench.readers import NO_DATA_KEPT, readers
from coldparquet_bench.trading_day import ROWS, TWO_HOURS, day_benchmark

CALLS = 100
W8 = "W8: W1 again and again, 2 % of the requests 20 times slower and 2 % refused"
SOUND = "W8: the same from a store without faults"
FAULTY_STORE = replace(
    COLD_STORE, slow_tail_probability=0.02, slow_tail_factor=20.0, error_503_probability=0.02, seed=8
)


def benchmark(*, rows: int = ROWS, calls: int = CALLS, has_faults: bool = True) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer rows, less often."""
    fetching = {name: make for name, make in readers(TWO_HOURS, NO_DATA_KEPT).items() if name != OURS}
    return day_benchmark(
        "coldparquet_bench.slow_and_refusing_store",
        {W8 if has_faults else SOUND: fetching},
        rows=rows,
        warm_calls=calls,
        store=FAULTY_STORE if has_faults else COLD_STORE,
    )


if __name__ == "__main__":
    with_faults, without = benchmark(), benchmark(has_faults=False)
    main(replace(with_faults, questions={**with_faults.questions, **without.questions}))
