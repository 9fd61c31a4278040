from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import (
    DAY_NS,
    EARLIEST_NS,
    HOUR_NS,
    LATEST_NS,
    SECOND_NS,
    PartitionInterval,
    format_partition_directory,
    infer_interval,
    parse_partition_directory,
    partition_floor_ns,
    partition_stop_ns,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
HOUR, DAY, WEEK = PartitionInterval.HOUR, PartitionInterval.DAY, PartitionInterval.WEEK
MONTH, YEAR, NONE = PartitionInterval.MONTH, PartitionInterval.YEAR, PartitionInterval.NONE
CALENDAR = (HOUR, DAY, WEEK, MONTH, YEAR)

MARCH_1 = 1_709_251_200 * SECOND_NS
MARCH_5 = MARCH_1 + 4 * DAY_NS
AT_12_34 = MARCH_1 + (12 * 3600 + 34 * 60) * SECOND_NS
AT_12_34_56 = AT_12_34 + 56 * SECOND_NS

NAMES = [
    (MARCH_1 + 14 * HOUR_NS, HOUR, "2024-03-01T14"),
    (MARCH_1, HOUR, "2024-03-01T00"),
    (MARCH_1, DAY, "2024-03-01"),
    (MARCH_1 - 4 * DAY_NS, WEEK, "2024-W09"),
    (MARCH_1, MONTH, "2024-03"),
    (1_704_067_200 * SECOND_NS, YEAR, "2024"),
    (MARCH_1, NONE, "default"),
    (MARCH_5, WEEK, "2024-W10-2"),
    (MARCH_5, MONTH, "2024-03-05"),
    (MARCH_5, YEAR, "2024-03-05"),
    (MARCH_5 + 7 * HOUR_NS, DAY, "2024-03-05T07"),
    (MARCH_5 + 7 * HOUR_NS, WEEK, "2024-W10-2T07"),
    (MARCH_5 - DAY_NS + 7 * HOUR_NS, WEEK, "2024-W10-1T07"),
    (AT_12_34, HOUR, "2024-03-01T123400"),
    (AT_12_34, WEEK, "2024-W09-5T123400"),
    (AT_12_34_56 + 1000, DAY, "2024-03-01T123456-000001"),
    (AT_12_34_56 + 1000, YEAR, "2024-03-01T123456-000001"),
    (1_735_516_800 * SECOND_NS, WEEK, "2025-W01"),
    (1_609_459_200 * SECOND_NS, WEEK, "2020-W53-5"),
    (0, DAY, "1970-01-01"),
    (-5000, DAY, "1970-01-01"),
    (-5000, YEAR, "1970"),
    (-3 * DAY_NS, WEEK, "1970-W01"),
]

timestamps_us = st.integers(0, (1 << 62) // 1000)
intervals = st.sampled_from(CALENDAR)


@pytest.mark.parametrize(("timestamp_ns", "interval", "name"), NAMES)
def test_names_as_questdb_writes_them(timestamp_ns: int, interval: PartitionInterval, name: str) -> None:
    assert format_partition_directory(timestamp_ns, interval) == name
    assert format_partition_directory(timestamp_ns, interval, name_txn=0) == f"{name}.0"
    parsed = parse_partition_directory(f"{name}.12", interval=interval)
    assert parsed is not None
    assert (parsed.base_name, parsed.name_txn, parsed.interval) == (name, 12, interval)


def test_nanoseconds_have_nine_digits() -> None:
    name = format_partition_directory(AT_12_34_56 + 1000, DAY, is_nanosecond=True)
    assert name == "2024-03-01T123456-000001000"
    parsed = parse_partition_directory(name, interval=DAY)
    assert parsed is not None
    assert parsed.timestamp_ns == AT_12_34_56 + 1000
    with pytest.raises(InvalidInputError, match="microseconds"):
        format_partition_directory(AT_12_34_56 + 1, DAY)


@given(st.integers(0, 1 << 62), intervals, st.integers(-1, 1 << 40), st.booleans())
def test_parsing_undoes_formatting(timestamp_ns: int, interval: PartitionInterval, name_txn: int, nanos: bool) -> None:
    timestamp_ns -= 0 if nanos else timestamp_ns % 1000
    name = format_partition_directory(timestamp_ns, interval, name_txn=name_txn, is_nanosecond=nanos)
    known = parse_partition_directory(name, interval=interval)
    unknown = parse_partition_directory(name)
    assert known is not None
    assert unknown is not None
    assert known.timestamp_ns == unknown.timestamp_ns == timestamp_ns
    assert known.name_txn == name_txn
    assert known.stop_ns == partition_stop_ns(timestamp_ns, interval)
    # Without the interval the range may be larger, never smaller.
    assert unknown.start_ns == known.start_ns
    assert unknown.stop_ns >= known.stop_ns
    assert unknown.interval in {None, interval}


@given(
    st.from_regex(
        r"\A\d{4}(-(0\d|1[0-2])(-[0-3]\d)?|-W[0-5]\d(-[1-7])?)?(T[0-2]\d([0-5]\d[0-5]\d(-(\d{6}|\d{9}))?)?)?(\.\d{1,3})?\Z"
    ),
    intervals,
)
def test_formatting_undoes_parsing(name: str, interval: PartitionInterval) -> None:
    parsed = parse_partition_directory(name, interval=interval)
    if parsed is None:
        return
    nanos = len(parsed.base_name.partition("T")[2]) == len("123456-123456789")
    assert name == format_partition_directory(
        parsed.timestamp_ns, interval, name_txn=parsed.name_txn, is_nanosecond=nanos
    )


@given(timestamps_us, intervals)
def test_partitions_tile_the_time(timestamp_us: int, interval: PartitionInterval) -> None:
    timestamp_ns = timestamp_us * 1000
    floor_ns, stop_ns = partition_floor_ns(timestamp_ns, interval), partition_stop_ns(timestamp_ns, interval)
    assert floor_ns <= timestamp_ns < stop_ns
    assert partition_floor_ns(stop_ns, interval) == stop_ns
    assert partition_stop_ns(floor_ns, interval) == stop_ns
    assert partition_floor_ns(stop_ns - 1, interval) == floor_ns


@pytest.mark.parametrize("interval", CALENDAR)
def test_rows_from_before_1970_belong_to_the_first_partition(interval: PartitionInterval) -> None:
    parsed = parse_partition_directory(format_partition_directory(-(10**18), interval), interval=interval)
    assert parsed is not None
    assert parsed.start_ns == EARLIEST_NS
    assert parsed.timestamp_ns == (-3 * DAY_NS if interval is WEEK else 0)


def test_default_holds_all_time() -> None:
    parsed = parse_partition_directory("default.3")
    assert parsed is not None
    assert (parsed.interval, parsed.start_ns, parsed.stop_ns) == (NONE, EARLIEST_NS, LATEST_NS)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_meta",
        "wal1",
        "2024-03-01.detached",
        "2024-03-01.attachable",
        "2024-03-01.12.detached",
        "2024-03-01.",
        "2024-03-01.01",
        "2024-03-01.-1",
        "2024-3-1",
        "2024-02-30",
        "2024-13",
        "2021-W53",
        "2024-W00",
        "2024-W09-8",
        "2024T05",
        "2024-03T05",
        "2024-03-01T24",
        "2024-03-01T1234",
        "2024-03-01T126000",
        "2024-03-01T120000",
        "2024-03-01T123400-000000",
        "2024-03-01T123456-0001",
        "1969-12-31",
        "0000",
        "2024-03-01\n",
        "２０２４",  # noqa: RUF001 - digits that are not ASCII
    ],
)
def test_other_names_are_no_partitions(name: str) -> None:
    assert parse_partition_directory(name) is None


@pytest.mark.parametrize(
    ("name", "interval"),
    [("2024-01-01", YEAR), ("2024-03-01", MONTH), ("2024-03-05T00", DAY), ("2024-03-05", HOUR), ("2024-03-05", WEEK)],
)
def test_names_that_an_interval_would_not_give(name: str, interval: PartitionInterval) -> None:
    assert parse_partition_directory(name) is not None
    assert parse_partition_directory(name, interval=interval) is None


def test_times_beyond_the_calendar_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="9999"):
        format_partition_directory((1 << 63) * 100_000, DAY)


@pytest.mark.parametrize(
    ("names", "interval"),
    [
        ([], None),
        (["_meta", "2024-03-01.detached"], None),
        (["2024-03-01", "2024-03-02.4"], DAY),
        (["2024-03-01T05", "2024-03-01T06.1"], HOUR),
        (["2024-03-05", "2024-03-05T07.3"], DAY),
        (["2024-03", "2024-03-05.3", "2024-03-06T123456-000001.4"], MONTH),
        (["2024", "2024-03-05"], YEAR),
        (["2024-W09", "2024-W09-5T07"], WEEK),
        (["default.2"], NONE),
        (["2024-03-05T123400"], None),
        (["2024-03", "2024"], None),
    ],
)
def test_the_interval_follows_from_all_names(names: list[str], interval: PartitionInterval | None) -> None:
    assert infer_interval(names) is interval


@pytest.mark.parametrize("table", sorted(path.name for path in GOLDEN.iterdir() if (path / "table").is_dir()))
def test_directories_of_genuine_tables(table: str) -> None:
    partitions = json.loads((GOLDEN / table / "expected/partitions.json").read_bytes())
    directories = {path.name for path in (GOLDEN / table / "table").iterdir() if path.is_dir()}
    interval = infer_interval(directories)
    assert interval is not None
    assert interval.name == partitions[0]["partitionBy"]
    parsed = [parse_partition_directory(name, interval=interval) for name in directories]
    base_names = {directory.base_name for directory in parsed if directory is not None}
    for partition in partitions:
        if partition["attached"]:
            assert partition["name"] in base_names
