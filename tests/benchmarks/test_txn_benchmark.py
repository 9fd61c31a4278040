"""What reading the partitions of a large table costs.

Run with ``pytest tests/benchmarks/test_txn_benchmark.py -m benchmark -s``. Times are printed, never asserted.
``BENCHMARK_SYMBOLS`` chooses another size of the symbol dictionary.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from coldparquet.format.native import parse_symbol_offsets, parse_symbols
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.format.partition_records import PartitionRecords, partition_ranges
from coldparquet.format.txn import TableTransaction, encode_txn, parse_txn

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.benchmark

HOUR_US = 3_600_000_000
ROWS_PER_PARTITION = 1000
SYMBOLS = int(os.environ.get("BENCHMARK_SYMBOLS", "100000"))


def make_transaction(partition_count: int) -> TableTransaction:
    words = np.empty((partition_count, 4), np.int64)
    words[:, 0] = np.arange(partition_count) * HOUR_US
    words[:, 1] = ROWS_PER_PARTITION | 1 << 61
    words[:, 2] = np.arange(partition_count)
    words[:, 3] = 24_000
    return TableTransaction(
        txn=partition_count,
        transient_row_count=ROWS_PER_PARTITION,
        fixed_row_count=ROWS_PER_PARTITION * (partition_count - 1),
        min_timestamp=0,
        max_timestamp=partition_count * HOUR_US - 1,
        metadata_version=0,
        column_structure_version=0,
        data_version=0,
        partition_table_version=partition_count,
        column_version=0,
        truncate_version=0,
        seq_txn=partition_count,
        symbol_counts=(10,) * 20,
        partitions=PartitionRecords.from_words(words),
    )


def milliseconds(action: Callable[[], object], *, repeat: int) -> float:
    """Best of `repeat` runs: the one that the machine disturbed least."""
    best = float("inf")
    for _ in range(repeat):
        started = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - started)
    return best * 1000


@pytest.mark.parametrize("partition_count", [3_650, 100_000])
def test_partitions_of_a_large_table(partition_count: int) -> None:
    transaction = make_transaction(partition_count)
    data = encode_txn(transaction)
    parsed = parse_txn(data, path=None)
    assert parsed.partitions.record(partition_count - 1) == transaction.partitions.record(partition_count - 1)

    def ranges() -> tuple[np.ndarray, np.ndarray]:
        return partition_ranges(parsed.partitions.timestamps, PartitionInterval.HOUR, is_nanosecond=False)

    print(f"\n{partition_count:,} partitions: _txn {len(data):,} B")
    print(f"  parse_txn         {milliseconds(lambda: parse_txn(data, path=None), repeat=10):8.3f} ms")
    print(f"  partition_ranges  {milliseconds(ranges, repeat=10):8.3f} ms")
    print(f"  encode_txn        {milliseconds(lambda: encode_txn(transaction), repeat=10):8.3f} ms")


@pytest.mark.parametrize("accent", ["", "é"])
def test_a_large_symbol_dictionary(accent: str) -> None:
    symbols = [f"instrument-{number:07}{accent}" for number in range(SYMBOLS)]
    lengths = np.array([4 + 2 * len(symbols[0])] * len(symbols), np.int64)
    offsets_file = np.concatenate([[0], np.cumsum(lengths)]).astype("<i8").tobytes()
    length = (len(symbols[0])).to_bytes(4, "little")
    chars = b"".join(length + symbol.encode("utf-16-le") for symbol in symbols)

    def parse() -> int:
        return len(parse_symbols(chars, parse_symbol_offsets(offsets_file, len(symbols), path=None), path=None))

    assert parse() == len(symbols)
    what = "with accents" if accent else "ASCII"
    print(f"\n{SYMBOLS:,} symbols {what}, {len(chars):,} B: {milliseconds(parse, repeat=3):8.1f} ms")
