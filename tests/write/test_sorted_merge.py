"""Merging sorted streams, and cutting them into partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.format.partition_names import PartitionInterval, partition_floor_ns
from coldparquet.write.rows import SortedRuns, merge_sorted, partitions_of, read_run, write_run

HOUR_US = 3_600_000_000
times = st.lists(st.integers(-5, 12), max_size=9)


def batch(values: list[int], first_number: int = 0) -> pa.RecordBatch:
    """Return rows at these hours, numbered."""
    return pa.record_batch(
        {
            "ts": pa.array([value * HOUR_US for value in values], pa.timestamp("us", "UTC")),
            "number": pa.array(range(first_number, first_number + len(values)), pa.int64()),
        }
    )


def pairs(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    columns: list[Any] = [(found["ts"].cast(pa.int64()).to_pylist(), found["number"].to_pylist()) for found in batches]
    return [(time // HOUR_US, number) for pair in columns for time, number in zip(*pair, strict=True)]


@given(streams=st.lists(st.lists(times, max_size=4), max_size=4))
def test_a_merge_is_a_stable_sort(streams: list[list[list[int]]]) -> None:
    numbered: list[list[pa.RecordBatch]] = []
    number = 0
    for stream in streams:
        values = sorted(value for part in stream for value in part)
        cuts = [len(part) for part in stream]
        batches = []
        for length in cuts:
            batches.append(batch(values[:length], number))
            values, number = values[length:], number + length
        numbered.append(batches)
    expected = sorted(pairs([found for stream in numbered for found in stream]), key=lambda pair: pair[0])
    assert pairs(list(merge_sorted(numbered, timestamp="ts"))) == expected


@given(batches=st.lists(times, max_size=80), memory_limit_bytes=st.sampled_from([1, 100, 10_000]))
def test_runs_are_a_stable_sort_however_little_memory_there_is(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], memory_limit_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("runs")
    runs = SortedRuns(str(directory), timestamp="ts", memory_limit_bytes=memory_limit_bytes)
    given_rows, number = [], 0
    for values in batches:
        given_rows.append(batch(values, number))
        number += len(values)
        runs.add(given_rows[-1])
    assert pairs(list(runs.merged())) == sorted(pairs(given_rows), key=lambda pair: pair[0])
    assert len(list(directory.iterdir())) <= 64


@pytest.mark.parametrize("interval", [PartitionInterval.HOUR, PartitionInterval.DAY, PartitionInterval.WEEK])
@given(batches=st.lists(st.lists(st.integers(-90, 400), max_size=9), max_size=5))
def test_partitions_are_cut_where_they_begin(interval: PartitionInterval, batches: list[list[int]]) -> None:
    values = sorted(value for part in batches for value in part)
    streams, number = [], 0
    for part in batches:
        streams.append(batch(values[number : number + len(part)], number))
        number += len(part)
    found = {
        floor: pairs(list(rows))
        for floor, rows in partitions_of(streams, timestamp="ts", interval=interval, is_nanosecond=False)
    }
    expected: dict[int, list[tuple[int, int]]] = {}
    for position, value in enumerate(values):
        floor = partition_floor_ns(value * HOUR_US * 1000, interval) // 1000
        expected.setdefault(floor, []).append((value, position))
    assert found == expected


def test_wide_rows_make_short_batches(tmp_path: Path) -> None:
    wide = pa.record_batch({"ts": pa.array(range(500), pa.timestamp("us")), "text": ["x" * 20_000] * 500})
    write_run(str(tmp_path / "run"), [wide])
    batches = list(read_run(str(tmp_path / "run")))
    assert pa.Table.from_batches(batches) == pa.Table.from_batches([wide])
    assert max(batch.nbytes for batch in batches) < 2 * 1024 * 1024
