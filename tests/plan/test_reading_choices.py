"""Which techniques are used: where they save enough, and never where the further round trip costs more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.options import Goal
from coldparquet.plan.choices import Choice, LateChoice, late_materialisation_pays, page_index_pays
from coldparquet.plan.model import StoreSpeed

MB = 1_000_000
SPEED = StoreSpeed(connections=32)
GOALS: list[Goal] = ["fast", "cheap", "few-requests", "few-bytes"]
WORTH_A_REQUEST: dict[Goal, int] = {
    "fast": 128 * 1024,
    "cheap": 100_000,
    "few-requests": 16 * 1024 * 1024,
    "few-bytes": 1,
}


def index_choice(**changes: Any) -> Choice:
    """Ask for a partition of 50 row groups of 10 MB in 5 columns of 5 pages, of which a sliver survives."""
    facts: dict[str, Any] = {
        "index_bytes": 250 * 150, "chunk_count": 250, "row_group_bytes": np.full(50, 10 * MB),
        "surviving_fraction": np.full(50, 0.01), "extra_round_trip": True, "when": "auto", "goal": "fast", "speed": SPEED,
        "request_bytes": WORTH_A_REQUEST[changes.get("goal", "fast")],
    }  # fmt: skip
    return page_index_pays(**(facts | changes))


def late_choice(**changes: Any) -> LateChoice:
    """Ask for a needle in row groups of 100,000 rows: 1 MB to find it, 20 MB to show it."""
    row_groups = len(changes.get("first_bytes", range(50)))
    facts: dict[str, Any] = {
        "first_bytes": np.full(row_groups, MB), "deferred_bytes": np.full(row_groups, 20 * MB),
        "matching_rows": np.full(row_groups, 1 / row_groups), "row_counts": np.full(row_groups, 100_000),
        "page_rows": np.full(row_groups, 100_000), "other_bytes": 0, "when": "auto", "goal": "fast", "speed": SPEED,
        "request_bytes": np.full(row_groups, WORTH_A_REQUEST[changes.get("goal", "fast")]),
    }  # fmt: skip
    return late_materialisation_pays(**(facts | changes))


def test_page_index_of_a_large_partition_pays() -> None:
    choice = index_choice()
    assert choice.pays
    assert choice.reason == "it saves more than it costs"
    assert choice.details.startswith("about 377 MiB of 477 MiB can be left out for an index of 36.6 KiB: about ")
    assert choice.details.endswith(" ms in one")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"when": "never"}, "switched off"),
        ({"index_bytes": 0}, "the file has no page index"),
        ({"row_group_bytes": np.zeros(0, np.int64), "surviving_fraction": np.zeros(0)}, "no data is fetched"),
        ({"index_bytes": 250 * 45}, "one page each"),
        ({"surviving_fraction": np.ones(50)}, "it would save too little"),
        ({"row_group_bytes": np.array([2 * MB]), "surviving_fraction": np.array([0.01])}, "would take longer"),
        ({"row_group_bytes": np.array([10_000]), "surviving_fraction": np.array([0.01])}, "it would save too little"),
        ({"goal": "few-requests"}, "one more request"),
    ],
)
def test_page_index_does_not_pay(changes: dict[str, Any], reason: str) -> None:
    choice = index_choice(**changes)
    assert not choice.pays
    assert reason in choice.reason


def test_the_details_have_the_numbers() -> None:
    choice = index_choice(row_group_bytes=np.array([2 * MB]), surviving_fraction=np.array([0.01]))
    assert choice.reason == "fetching it first would take longer than what it saves"
    assert choice.details == (
        "about 1.5 MiB of 1.9 MiB can be left out for an index of 36.6 KiB, but reading would take about 68 ms in two"
        " round trips, 39 ms in one"
    )


def test_page_index_pays_sooner_where_bytes_count_or_nothing_waits_for_it() -> None:
    one_row_group = {"row_group_bytes": np.array([2 * MB]), "surviving_fraction": np.array([0.01])}
    assert index_choice(**one_row_group, goal="few-bytes").pays
    assert index_choice(**one_row_group, goal="cheap").pays
    assert index_choice(**one_row_group, extra_round_trip=False).pays
    assert index_choice(when="always", surviving_fraction=np.ones(50)) == Choice(pays=True, reason="asked for")


def test_a_needle_in_many_row_groups_is_looked_up_late() -> None:
    choice = late_choice()
    assert choice.late.all()
    assert "need not be fetched: about" in choice.reason
    assert choice.reason.endswith(" ms in one")
    assert choice.why_not == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"when": "never"}, "switched off"),
        ({"deferred_bytes": np.zeros(50, np.int64)}, "no column can wait"),
        ({"matching_rows": np.full(50, 100.0)}, "most pages would be needed anyway"),
        (
            {"matching_rows": np.full(50, 50_000.0), "page_rows": np.full(50, 1_000)},
            "most pages would be needed anyway",
        ),
        ({"deferred_bytes": np.full(50, 20_000)}, "the columns that could be read later are small"),
        ({"goal": "few-requests"}, "more requests"),
        ({"first_bytes": np.full(50, 40 * MB), "deferred_bytes": np.full(50, MB)}, "but reading would take about"),
    ],
)
def test_all_columns_are_fetched_at_once(changes: dict[str, Any], reason: str) -> None:
    choice = late_choice(**changes)
    assert not choice.late.any()
    assert reason in choice.reason


def test_one_small_row_group_does_not_wait() -> None:
    small = {"first_bytes": np.array([200_000]), "deferred_bytes": np.array([MB]), "matching_rows": np.array([0.01])}
    assert not late_choice(**small).late.any()
    assert late_choice(**small, goal="few-bytes").late.all()
    # The same store, ten times as near.
    assert late_choice(**small, speed=StoreSpeed(connections=1, first_byte_s=0.003)).late.all()


def test_small_pages_save_where_row_groups_cannot() -> None:
    a_few_rows = {"matching_rows": np.full(50, 5.0)}
    assert not late_choice(**a_few_rows).late.any()
    assert late_choice(**a_few_rows, page_rows=np.full(50, 500)).late.all()


def test_each_row_group_decides_for_itself() -> None:
    matching = np.where(np.arange(50) < 20, 0.01, 50_000)
    choice = late_choice(matching_rows=matching)
    assert choice.late.tolist() == [True] * 20 + [False] * 30
    assert choice.why_not == "most pages would be needed anyway"
    assert (
        late_choice(when="always", deferred_bytes=np.array([0] * 25 + [5] * 25)).late.tolist()
        == [False] * 25 + [True] * 25
    )


@given(data=st.data())
def test_no_choice_promises_less_than_it_costs(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    sizes = st.lists(st.integers(0, 100 * MB), min_size=count, max_size=count).map(
        lambda drawn: np.array(drawn, np.int64)
    )
    first, deferred = data.draw(sizes), data.draw(sizes)
    fractions = np.array(data.draw(st.lists(st.floats(0, 1), min_size=count, max_size=count)))
    goal = data.draw(st.sampled_from(GOALS))
    speed = StoreSpeed(
        connections=data.draw(st.integers(1, 64)),
        first_byte_s=data.draw(st.floats(0, 1)),
        connection_bytes_per_s=data.draw(st.floats(1e4, 1e9)),
    )
    rows = np.full(count, 100_000)
    other_bytes = data.draw(st.integers(0, 10**9))
    choice = late_materialisation_pays(
        first_bytes=first, deferred_bytes=deferred, matching_rows=fractions * rows, row_counts=rows, page_rows=rows // 5,
        other_bytes=other_bytes, when="auto", goal=goal, request_bytes=np.full(count, WORTH_A_REQUEST[goal]), speed=speed,
    )  # fmt: skip
    assert not (choice.late & (deferred == 0)).any()
    assert not (choice.late & (fractions > 0.001)).any()
    total = int(first.sum() + deferred.sum()) + other_bytes
    least_left = total - int(deferred[choice.late].sum())
    if goal == "fast" and choice.late.any():
        assert speed.first_byte_s + speed.seconds(least_left) <= speed.seconds(total)
        # Were the estimate wrong altogether, and everything needed: as much again as the round trip, no more.
        assert speed.first_byte_s + speed.seconds(total) <= 1.5 * speed.seconds(total)
    index = page_index_pays(
        index_bytes=data.draw(st.integers(0, MB)), chunk_count=count, row_group_bytes=deferred, surviving_fraction=fractions,
        extra_round_trip=data.draw(st.booleans()), when="auto", goal=goal, request_bytes=WORTH_A_REQUEST[goal], speed=speed,
    )  # fmt: skip
    assert not index.pays or (fractions < 1).any()


def test_seconds_of_a_transfer() -> None:
    speed = StoreSpeed(connections=4, first_byte_s=0.03, connection_bytes_per_s=50 * MB)
    assert speed.seconds(0) == 0
    assert speed.seconds(100_000) == pytest.approx(0.032)
    assert speed.seconds(200 * MB) == pytest.approx(1.03)
    # A thousand connections are not what a scan waits for: decoding is.
    assert StoreSpeed(connections=1_000).seconds(10_000 * MB) == pytest.approx(10.03)
