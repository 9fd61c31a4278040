"""Aligned text on terminals that are narrower than it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coldparquet.cli.output import wrap_long_lines

PLAN = """\
price         $1.60 for a million reads like this, data requests only, in the region
              as S3 Standard would charge

request  partition     first byte   length  for
      1  2024-02-27.4           4  2.8 KiB  row group 0: id, sym, side, price +3 more"""


def test_lines_are_broken_between_words_and_go_on_below_the_facts() -> None:
    assert (
        wrap_long_lines(PLAN, 60)
        == """\
price         $1.60 for a million reads like this, data
              requests only, in the region
              as S3 Standard would charge

request  partition     first byte   length  for
      1  2024-02-27.4           4  2.8 KiB  row group 0: id,
              sym, side, price +3 more"""
    )


def test_what_fits_stays_as_it_is() -> None:
    assert wrap_long_lines(PLAN, 100) == PLAN


@given(text=st.text(alphabet="ab ,-\n"), width=st.integers(1, 40))
def test_no_word_is_lost_or_broken(text: str, width: int) -> None:
    wrapped = wrap_long_lines(text, width)
    assert wrapped.split() == text.split()
    assert all(len(line) <= max(width, 14 + max(map(len, text.split()), default=0)) for line in wrapped.split("\n"))
