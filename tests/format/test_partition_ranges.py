from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError
from coldparquet.format.partition_names import (
    PartitionInterval,
    parse_partition_directory,
    partition_floor_ns,
    partition_stop_ns,
    recorded_directory_name,
)
from coldparquet.format.partition_records import partition_ranges, partition_stops

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1
DAY_US = 86_400_000_000
YEAR_9999_US = 253_402_300_799_999_999
CALENDAR = [interval for interval in PartitionInterval if interval is not PartitionInterval.NONE]

units = st.booleans()
intervals = st.sampled_from(CALENDAR)


@given(st.lists(st.integers(-(1 << 62), YEAR_9999_US), max_size=9), intervals)
def test_stops_of_many_are_those_of_each_in_microseconds(timestamps: list[int], interval: PartitionInterval) -> None:
    stops = partition_stops(np.array(timestamps, np.int64), interval, is_nanosecond=False)
    assert stops.tolist() == [partition_stop_ns(timestamp * 1000, interval) // 1000 for timestamp in timestamps]


@given(st.lists(st.integers(I64_MIN, I64_MAX), max_size=9), intervals)
def test_stops_of_many_are_those_of_each_in_nanoseconds(timestamps: list[int], interval: PartitionInterval) -> None:
    stops = partition_stops(np.array(timestamps, np.int64), interval, is_nanosecond=True)
    assert stops.tolist() == [min(partition_stop_ns(timestamp, interval), I64_MAX) for timestamp in timestamps]


@given(st.integers(I64_MIN, I64_MAX), st.sampled_from(PartitionInterval), units)
def test_every_time_is_before_its_stop(timestamp: int, interval: PartitionInterval, is_nanosecond: bool) -> None:
    (stop,) = partition_stops(np.array([timestamp], np.int64), interval, is_nanosecond=is_nanosecond).tolist()
    assert timestamp < stop or stop == I64_MAX


@given(st.sets(st.integers(0, YEAR_9999_US), max_size=9), intervals)
def test_ranges_tile_the_time_as_far_as_there_are_partitions(times: set[int], interval: PartitionInterval) -> None:
    timestamps = sorted(times)
    starts, stops = partition_ranges(np.array(timestamps, np.int64), interval, is_nanosecond=False)
    assert (starts < stops).all()
    assert (stops[:-1] <= starts[1:]).all()
    for index, timestamp in enumerate(timestamps):
        assert starts[index] == (I64_MIN if index == 0 and timestamp == 0 else timestamp)
        own_stop = partition_stop_ns(timestamp * 1000, interval) // 1000
        assert stops[index] == min([own_stop, *timestamps[index + 1 : index + 2]])


def test_the_first_week_is_recorded_before_1970() -> None:
    first_week = np.array([-3 * DAY_US, 4 * DAY_US], np.int64)
    starts, stops = partition_ranges(first_week, PartitionInterval.WEEK, is_nanosecond=False)
    assert starts.tolist() == [I64_MIN, 4 * DAY_US]
    assert stops.tolist() == [4 * DAY_US, 11 * DAY_US]


def test_pieces_of_a_split_partition_end_where_the_next_begins() -> None:
    timestamps = np.array([0, 5 * DAY_US, 6 * DAY_US, 31 * DAY_US], np.int64)
    _, stops = partition_ranges(timestamps, PartitionInterval.MONTH, is_nanosecond=False)
    assert stops.tolist() == [5 * DAY_US, 6 * DAY_US, 31 * DAY_US, 59 * DAY_US]


def test_without_partitioning_the_range_is_all_time() -> None:
    starts, stops = partition_ranges(np.array([0]), PartitionInterval.NONE, is_nanosecond=False)
    assert (starts.tolist(), stops.tolist()) == ([I64_MIN], [I64_MAX])


def test_a_table_without_partitions_has_no_ranges() -> None:
    starts, stops = partition_ranges(np.array([], np.int64), PartitionInterval.DAY, is_nanosecond=True)
    assert (starts.tolist(), stops.tolist()) == ([], [])


@given(st.integers(0, YEAR_9999_US), intervals, st.integers(0, 1 << 40))
def test_recorded_names_say_when_the_partition_begins(
    timestamp: int, interval: PartitionInterval, name_txn: int
) -> None:
    name = recorded_directory_name(timestamp, interval, name_txn=name_txn, is_nanosecond=False)
    parsed = parse_partition_directory(name, interval=interval)
    assert parsed is not None
    assert (parsed.timestamp_ns, parsed.name_txn) == (timestamp * 1000, name_txn)
    unversioned = recorded_directory_name(timestamp, interval, name_txn=-1, is_nanosecond=False)
    assert name == f"{unversioned}.{name_txn}"


@given(st.integers(0, I64_MAX), intervals)
def test_recorded_names_of_tables_with_nanoseconds(timestamp: int, interval: PartitionInterval) -> None:
    name = recorded_directory_name(timestamp, interval, name_txn=-1, is_nanosecond=True)
    parsed = parse_partition_directory(name, interval=interval)
    assert parsed is not None
    assert parsed.timestamp_ns == timestamp
    floor_ns = partition_floor_ns(timestamp, interval)
    assert parsed.stop_ns == partition_stop_ns(floor_ns, interval)


@pytest.mark.parametrize(
    ("timestamp", "interval", "name"),
    [
        (-3 * DAY_US, PartitionInterval.WEEK, "1970-W01"),
        (-1, PartitionInterval.DAY, "1970-01-01"),
        (I64_MIN, PartitionInterval.YEAR, "1970"),
        (0, PartitionInterval.NONE, "default"),
        (DAY_US + 1, PartitionInterval.DAY, "1970-01-02T000000-000001"),
    ],
)
def test_recorded_names_at_the_edges(timestamp: int, interval: PartitionInterval, name: str) -> None:
    assert recorded_directory_name(timestamp, interval, name_txn=-1, is_nanosecond=False) == name


def test_times_beyond_the_calendar_are_no_partitions() -> None:
    with pytest.raises(FormatError, match="9999") as caught:
        recorded_directory_name(YEAR_9999_US + 1, PartitionInterval.DAY, name_txn=-1, is_nanosecond=False)
    assert caught.value.details["field"] == "timestamp"
