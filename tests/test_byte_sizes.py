"""Sizes as people write them."""

from __future__ import annotations

import pytest

from coldparquet.options import parse_byte_count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1000000", 10**6),
        ("250MB", 250 * 10**6),
        ("250M", 250 * 10**6),
        ("1.5GiB", 1_610_612_736),
        ("1.5 gib", 1_610_612_736),
        ("12 B", 12),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_byte_count(text) == count


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e6", "1.2.3", "5XB", "1,000", "٣", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="it must be a number of bytes, such as"):
        parse_byte_count(text)
