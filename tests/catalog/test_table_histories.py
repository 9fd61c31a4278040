"""Following a table through any history: rows are handed over exactly once, or the follower says that it cannot be."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import ObjectChangedError
from coldparquet.follow.changes import changes_between, with_growth
from coldparquet.follow.progress import OnChange, StepLimit, next_state, windows_between
from coldparquet.follow.state import PartitionState, TableState, decode_state, encode_state
from coldparquet.format.partition_names import PartitionInterval

History: TypeAlias = "list[tuple[str, int, int, StepLimit | None]]"
"""Transactions (what, to which day, how many rows), and how far the follower goes after each; None does not look."""

DAY_US = 86_400_000_000
BYTES_PER_ROW = 10


@dataclass
class Producer:
    """A table of days whose rows have numbers, with every version of every partition that there ever was."""

    txn: int = 0
    next_row: int = 0
    files: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    live: dict[int, PartitionState] = field(default_factory=dict)
    native: dict[int, PartitionState] = field(default_factory=dict)
    table_id: int = 7

    def state(self) -> TableState:
        return TableState(
            table_id=self.table_id,
            txn=self.txn,
            interval=PartitionInterval.DAY,
            is_nanosecond=False,
            partitions=tuple(self.live[timestamp] for timestamp in sorted(self.live)),
            native_timestamps=frozenset(self.native),
        )

    def rows_of(self, partition: PartitionState) -> tuple[int, ...]:
        return self.files[partition.timestamp, partition.version]

    def rows(self) -> set[int]:
        return {row for partition in self.live.values() for row in self.rows_of(partition)}

    def new_rows(self, count: int) -> tuple[int, ...]:
        self.next_row += count
        return tuple(range(self.next_row - count, self.next_row))

    def commit(self, timestamp: int, rows: tuple[int, ...], *, in_place: bool) -> None:
        before = self.live.get(timestamp)
        stays = in_place and before is not None
        partition = PartitionState(
            timestamp=timestamp,
            name_txn=before.name_txn if stays and before else self.txn,
            parquet_size_bytes=(before.parquet_size_bytes if stays and before else 0) + BYTES_PER_ROW * len(rows),
            row_count=len(rows),
        )
        self.live[timestamp] = partition
        self.files[timestamp, partition.version] = rows

    def act(self, action: str, day: int, count: int) -> None:
        """Do something to a day, if it is possible there, as one transaction."""
        self.txn += 1
        begin, piece = day * DAY_US, day * DAY_US + DAY_US // 2
        target = piece if count % 2 and piece in self.live else begin
        before = self.live.get(target)
        if before is not None:
            self._change(action, before, count)
        elif action == "publish" and target not in self.native:
            self.commit(target, self.new_rows(count), in_place=False)

    def _change(self, action: str, before: PartitionState, count: int) -> None:
        target, rows = before.timestamp, self.rows_of(before)
        if action in ("append", "append elsewhere"):
            self.commit(target, rows + self.new_rows(count), in_place=action == "append")
        elif action == "insert before":
            self.commit(target, self.new_rows(count) + rows, in_place=bool(count % 3))
        elif action == "compact":
            self.commit(target, rows, in_place=False)
        elif action == "drop":
            del self.live[target]
        elif action == "to native":
            self.native[target] = self.live.pop(target)
        else:
            self._move_rows(action, target - target % DAY_US, count)

    def _move_rows(self, action: str, begin: int, count: int) -> None:
        """Split a day into two pieces, or merge them."""
        piece = begin + DAY_US // 2
        pieces = [self.rows_of(self.live[timestamp]) for timestamp in (begin, piece) if timestamp in self.live]
        if action == "merge" and len(pieces) > 1:
            del self.live[piece]
            self.commit(begin, pieces[0] + pieces[1], in_place=False)
        elif action == "split" and len(pieces) == 1 and begin in self.live and len(pieces[0]) > 1:
            cut = len(pieces[0]) // 2
            self.commit(begin, pieces[0][:cut], in_place=False)
            self.commit(piece, pieces[0][cut:] + self.new_rows(count), in_place=False)


@dataclass
class Follower:
    """Goes on from what it wrote down, after each step, as a restarted job would."""

    producer: Producer
    on_change: OnChange
    checkpoint: str
    seen: Counter[int] = field(default_factory=Counter)

    @classmethod
    def at_the_begin(cls, producer: Producer, on_change: OnChange) -> Follower:
        state = producer.state().with_nothing_delivered()
        return cls(producer, on_change, json.dumps(encode_state(state)))

    def step(self, limit: StepLimit) -> int:
        start = decode_state(json.loads(self.checkpoint))
        now = self.producer.state()
        found = changes_between(start, now)
        grown = {
            change.timestamp
            for change in found.larger
            if change.before is not None
            and change.now is not None
            and self.producer.rows_of(change.now)[: change.before.row_count] == self.producer.rows_of(change.before)
        }
        end = next_state(start, with_growth(found, grown), limit=limit, on_change=self.on_change)
        self.checkpoint = json.dumps(encode_state(end))
        windows = windows_between(start, end)
        # Spark plans a batch again after a crash, from what it wrote down before.
        assert windows_between(start, decode_state(json.loads(self.checkpoint))) == windows
        rows = [
            row
            for window in windows
            for row in self.producer.rows_of(window.partition)[window.first_row : window.stop_row]
        ]
        self.seen.update(rows)
        if limit.rows is not None:
            assert len(rows) <= limit.rows
        if limit.partitions is not None:
            assert len(windows) <= limit.partitions
        if limit.compressed_bytes is not None and len(rows) > 1:
            taken_bytes = sum(
                window.partition.parquet_size_bytes * window.row_count / window.partition.row_count
                for window in windows
            )
            assert taken_bytes <= limit.compressed_bytes
        return len(rows)

    def follow(self, history: History, last_limit: StepLimit) -> None:
        """See a history unfold, looking now and then, and take what is left in the end."""
        for action, day, count, limit in history:
            self.producer.act(action, day, count)
            if limit is not None:
                self.step(limit)
        self.catch_up(last_limit)

    def catch_up(self, limit: StepLimit) -> None:
        while self.step(limit):
            pass
        settled = self.checkpoint
        assert self.step(limit) == 0
        assert self.checkpoint == settled, "Spark would start one empty batch after the other"


limits = st.builds(
    StepLimit,
    partitions=st.none() | st.integers(1, 3),
    rows=st.none() | st.integers(1, 12),
    compressed_bytes=st.none() | st.integers(1, 200),
)
APPENDS = ("publish", "append", "append elsewhere")
REWRITES = ("insert before", "compact", "split", "merge")
REMOVALS = ("drop", "to native")


def histories(*actions: str) -> st.SearchStrategy[History]:
    """Transactions, some of which the follower looks at while there are more to come."""
    return st.lists(
        st.tuples(st.sampled_from(actions), st.integers(0, 3), st.integers(1, 7), st.none() | limits), max_size=20
    )


@given(histories(*APPENDS), limits, st.sampled_from(["error", "ignore", "reread", "append"]))
def test_every_row_of_a_table_that_only_grows_comes_exactly_once(
    history: History, last_limit: StepLimit, on_change: OnChange
) -> None:
    producer = Producer()
    follower = Follower.at_the_begin(producer, on_change)
    follower.follow(history, last_limit)
    assert follower.seen == Counter(producer.rows())


@given(histories(*APPENDS, *REWRITES, *REMOVALS), limits)
def test_no_row_comes_twice_or_is_lost_unless_it_is_said(history: History, last_limit: StepLimit) -> None:
    producer = Producer()
    follower = Follower.at_the_begin(producer, "error")
    refused = None
    try:
        follower.follow(history, last_limit)
    except ObjectChangedError as error:
        refused = error.kind
    assert refused in (None, "PartitionsRewritten", "PartitionsDropped")
    assert refused is not None or producer.rows() <= follower.seen.keys()
    assert max(follower.seen.values(), default=1) == 1


@given(histories(*APPENDS, *REWRITES, *REMOVALS), limits)
def test_reread_brings_every_row_that_the_table_holds(history: History, last_limit: StepLimit) -> None:
    producer = Producer()
    follower = Follower.at_the_begin(producer, "reread")
    follower.follow(history, last_limit)
    assert producer.rows() <= follower.seen.keys()
    assert follower.step(StepLimit()) == 0


@given(histories(*APPENDS, *REWRITES, *REMOVALS), limits)
def test_ignore_never_brings_a_row_twice(history: History, last_limit: StepLimit) -> None:
    producer = Producer()
    follower = Follower.at_the_begin(producer, "ignore")
    follower.follow(history, last_limit)
    assert max(follower.seen.values(), default=1) == 1
    assert follower.step(StepLimit()) == 0


@given(histories(*APPENDS), histories(*APPENDS), limits, st.booleans())
def test_a_table_that_was_created_anew_comes_only_if_that_is_wanted(
    before: History,
    after: History,
    last_limit: StepLimit,
    is_put_back: bool,
) -> None:
    producer = Producer(txn=1)
    careful = Follower.at_the_begin(producer, "error")
    eager = Follower.at_the_begin(producer, "reread")
    for action, day, count, _ in before:
        producer.act(action, day, count)
    careful.catch_up(last_limit)
    eager.catch_up(last_limit)
    producer.live.clear()
    for action, day, count, _ in after:
        producer.act(action, day, count)
    if is_put_back:
        producer.txn = -1
    else:
        producer.table_id += 1
    with pytest.raises(ObjectChangedError, match="not the table that was followed") as caught:
        careful.step(last_limit)
    assert caught.value.kind == "TableReplaced"
    eager.catch_up(last_limit)
    assert producer.rows() <= eager.seen.keys()
    assert max(eager.seen.values(), default=1) == 1


def test_a_table_that_was_emptied_has_dropped_its_partitions() -> None:
    producer = Producer()
    follower = Follower.at_the_begin(producer, "error")
    producer.act("publish", 1, 4)
    follower.catch_up(StepLimit())
    producer.act("drop", 1, 4)
    assert follower.step(StepLimit()) == 0
    producer.act("publish", 1, 6)
    assert follower.step(StepLimit()) == 6


@given(histories(*APPENDS, "compact"), limits)
def test_append_trusts_that_earlier_rows_stay_first(history: History, last_limit: StepLimit) -> None:
    producer = Producer()
    follower = Follower.at_the_begin(producer, "append")
    follower.follow(history, last_limit)
    assert follower.seen == Counter(producer.rows())


def test_a_partition_that_turns_native_and_back_is_not_handed_over_again() -> None:
    producer = Producer()
    follower = Follower.at_the_begin(producer, "error")
    producer.act("publish", 1, 4)
    follower.catch_up(StepLimit())
    producer.act("to native", 1, 2)
    assert follower.step(StepLimit()) == 0
    producer.live[DAY_US] = producer.native.pop(DAY_US)
    producer.txn += 1
    assert follower.step(StepLimit()) == 0
    producer.act("append", 1, 2)
    assert follower.step(StepLimit()) == 2


def test_all_that_is_there_can_be_passed_over() -> None:
    producer = Producer()
    producer.act("publish", 1, 4)
    latest = producer.state().with_all_delivered()
    follower = Follower(producer, "error", json.dumps(encode_state(latest)))
    assert follower.step(StepLimit()) == 0
    producer.act("append", 1, 3)
    assert follower.step(StepLimit()) == 3
    assert sorted(follower.seen) == [4, 5, 6]


def test_several_steps_between_two_looks_are_one() -> None:
    producer = Producer()
    for day in range(3):
        producer.act("publish", day, 5)
    start = producer.state().with_nothing_delivered()
    state = start
    for _ in range(3):
        state = next_state(state, changes_between(state, producer.state()), limit=StepLimit(rows=4), on_change="error")
    windows = windows_between(start, state)
    assert [(window.first_row, window.stop_row) for window in windows] == [(0, 5), (0, 5), (0, 2)]
    assert windows_between(state, replace(state, txn=99)) == ()
