from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.plan.predicate import (
    NANOSECONDS_PER_UNIT,
    Instant,
    format_instant,
    format_time_of_day,
    parse_instant,
    parse_time_of_day,
)

UNITS = st.sampled_from(sorted(NANOSECONDS_PER_UNIT))
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=OFFSETS), st.sampled_from("T "))
def test_iso_text_means_what_datetime_means(moment: datetime, separator: str) -> None:
    parsed = parse_instant(moment.isoformat(sep=separator))
    since_epoch = moment - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = (since_epoch.days * 86_400 + since_epoch.seconds) * 10**6 + since_epoch.microseconds
    assert parsed == Instant(microseconds * 1_000)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_nanoseconds_agree_with_numpy(nanoseconds: int) -> None:
    text = f"{np.datetime64(nanoseconds, 'ns')}"
    assert parse_instant(text) == Instant(nanoseconds)
    assert format_instant(nanoseconds, "ns") == f"{text}Z"


@given(st.integers(-719_162, 2_932_896), st.integers(0, 10**18), UNITS)
def test_text_of_every_unit_reads_back(days: int, part: int, unit: str) -> None:
    steps_per_day = NANOSECONDS_PER_UNIT["d"] // NANOSECONDS_PER_UNIT[unit]
    steps = days * steps_per_day + part % steps_per_day
    parsed = parse_instant(format_instant(steps, unit))
    assert parsed is not None
    assert parsed.in_unit(unit) == (steps, False)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2024", "2024-01-01T00:00:00Z"),
        ("2024-03", "2024-03-01T00:00:00Z"),
        ("2024-03-01", "2024-03-01T00:00:00Z"),
        ("2024-03-01T12", "2024-03-01T12:00:00Z"),
        ("2024-03-01 12:30", "2024-03-01T12:30:00Z"),
        ("2024-03-01T12:30:00.5", "2024-03-01T12:30:00.500000Z"),
        ("2024-03-01t12:30:00z", "2024-03-01T12:30:00Z"),
        ("2024-03-01T12:30:00 +0200", "2024-03-01T10:30:00Z"),
        ("2024-03-01T12:30-05", "2024-03-01T17:30:00Z"),
        ("2024-02-29T23:59:59.999999999", "2024-02-29T23:59:59.999999999Z"),
    ],
)
def test_spellings_of_questdb_users(text: str, same: str) -> None:
    assert parse_instant(text) == parse_instant(same) is not None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "24",
            "2024-",
            "2024-13",
            "2023-02-29",
            "0000",
            "2024-03-01T",
            "2024-03-01T24",
            "2024-03-01T12:60",
            "now",
        ),
        *("2024-03-01T12:00:60", "2024-03-01Z", "2024-03-01T12:00+25", "\u0662024", "2024-03-01T12:00:00.", "2024\n"),
    ],
)
def test_other_text_is_no_instant(text: str) -> None:
    assert parse_instant(text) is None


def test_digits_beyond_nanoseconds_leave_a_rest() -> None:
    assert parse_instant("1970-01-01T00:00:00.0000000010") == Instant(1)
    assert parse_instant("1970-01-01T00:00:00.0000000011") == Instant(1, has_rest=True)
    assert Instant(1_999).in_unit("us") == (1, True)
    assert Instant(-1).in_unit("us") == (-1, True)
    assert Instant(5, has_rest=True).in_unit("ns") == (5, True)


def test_text_has_no_more_digits_than_needed() -> None:
    assert str(Instant(0)) == "1970-01-01T00:00:00Z"
    assert str(Instant(1_500_000)) == "1970-01-01T00:00:00.0015Z"
    assert str(Instant(2**70)) == str(2**70)


def test_years_beyond_iso_are_written_as_numbers() -> None:
    assert format_instant(2**62, "us") == str(2**62)
    assert format_instant(-(2**62), "ms") == str(-(2**62))


@given(st.integers(0, 86_399_999_999))
def test_times_of_day_read_back(microseconds: int) -> None:
    parsed = parse_time_of_day(format_time_of_day(microseconds, "us"))
    assert parsed == Instant(microseconds * 1_000)


@pytest.mark.parametrize("text", ["24:00", "12:60", "1:00", "12:00Z", ""])
def test_other_text_is_no_time_of_day(text: str) -> None:
    assert parse_time_of_day(text) is None
