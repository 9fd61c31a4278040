"""What changed between two states of a table, case by case; see test_table_histories.py for any history."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.catalog.table_files import read_table_files
from coldparquet.errors import FormatError, ObjectChangedError, UnsupportedError
from coldparquet.follow.changes import TableChanges, changes_between, with_growth
from coldparquet.follow.progress import EVERYTHING, OnChange, StepLimit, next_state, windows_between
from coldparquet.follow.state import PartitionState, TableState, decode_state, encode_state, recorded_state
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.records import replace
from coldparquet.storage.local import LocalStore
from tests.support.questdb_tables import GOLDEN

HOUR_US = 3_600_000_000
DAY_US = 86_400_000_000


def partition(
    day: float, rows: int, *, name_txn: int = 1, delivered: int = 0, size: int | None = None
) -> PartitionState:
    return PartitionState(
        timestamp=int(day * DAY_US),
        name_txn=name_txn,
        parquet_size_bytes=100 * rows if size is None else size,
        row_count=rows,
        delivered_rows=delivered,
    )


def table(*partitions: PartitionState, **changes: Any) -> TableState:
    values: dict[str, Any] = {"table_id": 3, "txn": 9, "interval": PartitionInterval.DAY, "is_nanosecond": False}
    return TableState(**values | changes, partitions=partitions)


def kinds(found: TableChanges) -> list[tuple[float, str]]:
    return [(change.timestamp / DAY_US, change.kind) for change in found.changes]


def test_each_kind_of_change() -> None:
    before = table(*[partition(day, 10, delivered=10) for day in range(1, 6)])
    now = table(
        partition(1, 10),
        partition(2, 12),
        partition(3, 10, name_txn=5),
        partition(4, 9, size=2_000),
        partition(6, 1),
        txn=12,
    )
    found = changes_between(before, now)
    assert kinds(found) == [(2, "larger"), (3, "rewritten"), (4, "rewritten"), (5, "dropped"), (6, "new")]
    assert [change.reason for change in found.changes][:2] == [
        "12 rows, 10 before",
        "another version with 10 rows, 10 before",
    ]
    assert kinds(with_growth(found, {2 * DAY_US}))[0] == (2, "grown")
    assert kinds(with_growth(found, ()))[0] == (2, "rewritten")


def test_a_version_of_which_nothing_was_handed_over_may_change() -> None:
    before = table(partition(1, 10, delivered=0))
    assert kinds(changes_between(before, table(partition(1, 3, name_txn=4), txn=10))) == [(1, "new")]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([partition(1, 16)], [(1, "rewritten"), (1.5, "dropped")]),  # merged into the first piece
        ([partition(1, 10), partition(1.5, 6), partition(1.75, 3)], [(1.75, "new")]),
        ([partition(1, 10), partition(1.5, 4), partition(1.75, 3)], [(1.5, "rewritten"), (1.75, "rewritten")]),
        ([partition(1, 10), partition(1.5, 8)], [(1.5, "larger")]),
        ([partition(1, 9), partition(1.5, 8)], [(1, "rewritten"), (1.5, "rewritten")]),
    ],
)
def test_pieces_of_a_partition_are_judged_together(
    pieces: list[PartitionState], expected: list[tuple[float, str]]
) -> None:
    before = table(partition(1, 10, delivered=10), partition(1.5, 6, delivered=6))
    assert kinds(changes_between(before, table(*pieces, txn=10))) == expected


def test_a_piece_beside_one_that_is_native_by_now_may_hold_its_rows() -> None:
    before = table(partition(1, 10, delivered=10), partition(2, 6, delivered=6))
    native = frozenset({1 * DAY_US, 2 * DAY_US})
    now = table(partition(1.5, 8), partition(3, 1), txn=10, native_timestamps=native)
    assert kinds(changes_between(before, now)) == [(1.5, "rewritten"), (3, "new")]


def test_other_days_are_not_judged_by_a_dropped_one() -> None:
    before = table(partition(1, 10, delivered=10), partition(2, 6, delivered=6))
    assert kinds(changes_between(before, table(partition(2, 8), txn=10))) == [(1, "dropped"), (2, "larger")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"table_id": 4}, "its id is 4, it was 3"), ({"txn": 8}, "at transaction 8, but was at 9")],
)
def test_another_table_is_told(changes: dict[str, Any], reason: str) -> None:
    before = table(partition(1, 10, delivered=10))
    found = changes_between(before, replace(table(partition(1, 10)), **changes))
    assert found.changes == ()
    assert reason in str(found.replaced)
    with pytest.raises(ObjectChangedError, match=reason):
        next_state(before, found, limit=EVERYTHING, on_change="ignore")
    anew = next_state(before, found, limit=EVERYTHING, on_change="reread")
    assert [window.row_count for window in windows_between(before, anew)] == [10]


def test_a_message_names_few_partitions() -> None:
    before = table(*[partition(day, 10, delivered=10) for day in range(1, 40)])
    now = table(*[partition(day, 10, name_txn=77) for day in range(1, 40)], txn=10)
    with pytest.raises(ObjectChangedError, match=r"1970-01-02\.77: another version .* more\)") as caught:
        next_state(before, changes_between(before, now), limit=EVERYTHING, on_change="error")
    assert len(caught.value.message) < 1_000
    assert len(caught.value.details["partitions"]) == 39


def test_nothing_new_is_the_state_itself() -> None:
    before = table(partition(1, 10, delivered=10))
    after = next_state(
        before, changes_between(before, table(partition(1, 10), txn=50)), limit=EVERYTHING, on_change="error"
    )
    assert after is before


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/table")), ids=lambda path: path.parent.name)
async def test_genuine_tables_without_their_native_partitions(path: Path) -> None:
    files = await read_table_files(LocalStore(), str(path))
    assert files is not None
    state = recorded_state(files)
    in_parquet = [record for index in range(len(files.records)) if (record := files.records.record(index)).is_parquet]
    assert [found.row_count for found in state.partitions] == [record.row_count for record in in_parquet]
    assert len(state.native_timestamps) == len(files.records) - len(in_parquet)
    names = [state.name_of(found) for found in state.partitions]
    assert all((path / name / "data.parquet").is_file() for name in names)


# --- Following a table through any history: rows are handed over exactly once, or the follower says that it cannot
# be


History: TypeAlias = "list[tuple[str, int, int, StepLimit | None]]"
"""Transactions (what, to which day, how many rows), and how far the follower goes after each; None does not look."""

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


# --- States as JSON: what comes out is what went in, small, and damage is told ----------------------------------------


def state_of(*partitions: PartitionState, **changes: Any) -> TableState:
    values: dict[str, Any] = {"table_id": 3, "txn": 9, "interval": PartitionInterval.DAY, "is_nanosecond": False}
    return TableState(**values | changes, partitions=partitions)


@st.composite
def partition_states(draw: st.DrawFn, timestamp: int) -> PartitionState:
    row_count = draw(st.integers(1, (1 << 44) - 1))
    return PartitionState(
        timestamp=timestamp,
        name_txn=draw(st.integers(-1, 1 << 62)),
        parquet_size_bytes=draw(st.just(-1) | st.integers(1, 1 << 50)),
        row_count=row_count,
        object_version=draw(st.integers(0, (1 << 56) - 1)),
        delivered_rows=draw(st.integers(0, row_count)),
        epoch=draw(st.integers(0, 100)),
        epoch_first_row=draw(st.integers(0, row_count)),
    )


@st.composite
def table_states(draw: st.DrawFn) -> TableState:
    timestamps = sorted(draw(st.sets(st.integers(-(1 << 63), (1 << 63) - 1), max_size=8)))
    return state_of(
        *[draw(partition_states(timestamp)) for timestamp in timestamps],
        table_id=draw(st.integers(-1, 1 << 31)),
        txn=draw(st.integers(0, 1 << 62)),
        interval=draw(st.none() | st.sampled_from(PartitionInterval)),
        is_nanosecond=draw(st.booleans()),
        generation=draw(st.integers(0, 9)),
    )


@given(table_states())
def test_a_state_comes_back_as_it_was(state: TableState) -> None:
    document = json.loads(json.dumps(encode_state(state)))
    assert decode_state(document) == state
    assert encode_state(decode_state(document)) == document


def test_a_table_of_ten_years_of_days_takes_less_than_40_kb() -> None:
    source = random.Random(7)
    partitions = []
    for day in range(3_650):
        rows = source.randrange(700_000, 1_300_000)
        size = int(rows * source.uniform(18, 22))
        partitions.append(
            PartitionState(
                timestamp=day * DAY_US,
                name_txn=10 * day + source.randrange(10),
                parquet_size_bytes=size,
                row_count=rows,
                delivered_rows=rows,
            )
        )
    text = json.dumps(encode_state(state_of(*partitions)))
    assert len(text) < 40_000


def test_people_can_read_the_sums() -> None:
    partition = PartitionState(timestamp=0, name_txn=-1, parquet_size_bytes=80, row_count=10, delivered_rows=7)
    document = encode_state(state_of(partition))
    del document["state"]
    assert document == {
        "format": 1,
        "txn": 9,
        "table_id": 3,
        "generation": 0,
        "interval": "DAY",
        "is_nanosecond": False,
        "partitions": 1,
        "rows": 7,
    }


def test_a_later_format_is_told_from_damage() -> None:
    document = encode_state(state_of())
    with pytest.raises(UnsupportedError, match="of format 2, and this version of coldparquet knows format 1") as caught:
        decode_state(document | {"format": 2})
    assert caught.value.kind == "UnknownStateFormat"


@pytest.mark.parametrize("document", [None, [], "x", 5])
def test_what_is_no_object_at_all(document: Any) -> None:
    with pytest.raises(UnsupportedError, match="of format None"):
        decode_state(document)


PARTITION = PartitionState(timestamp=5, name_txn=1, parquet_size_bytes=80, row_count=10, delivered_rows=7)
SOUND = encode_state(state_of(PARTITION))


def packed(*columns: int) -> str:
    planes = b"".join(column.to_bytes(8, "little", signed=True) for column in columns)
    return base64.b64encode(zlib.compress(planes)).decode()


@pytest.mark.parametrize(
    "damage",
    [
        {"state": "not base64 at all"},
        {"state": base64.b64encode(b"no zlib").decode()},
        {"state": None},
        {"partitions": 2},
        {"partitions": -1},
        {"partitions": 1 << 40},
        {"partitions": "many"},
        {"interval": "FORTNIGHT"},
        {"txn": None},
        {"state": packed(5, 1, 80, 10, 0, 11, 0, 0)},  # more rows left than there are
        {"state": packed(5, 1, 80, 10, 0, -1, 0, 0)},
        {"state": packed(5, 1, 80, 0, 0, 0, 0, 0)},  # no rows
        {"state": packed(5, 1, 80, 10, 0, 3, -1, 0)},
        {"state": packed(5, 1, 80, 10, 0, 3, 0, 11)},
        {"state": base64.b64encode(zlib.compress(bytes(100_000_000))).decode()},
    ],
)
def test_damage_is_told(damage: dict[str, Any]) -> None:
    assert decode_state(SOUND | {"state": packed(5, 1, 80, 10, 0, 3, 0, 0)}).partitions == (PARTITION,)
    with pytest.raises(FormatError, match="begin with a new checkpoint"):
        decode_state(SOUND | damage)


@pytest.mark.parametrize("name", sorted(SOUND.keys() - {"format", "rows"}))
def test_nothing_may_be_missing(name: str) -> None:
    with pytest.raises(FormatError, match="begin with a new checkpoint"):
        decode_state({key: value for key, value in SOUND.items() if key != name})


@given(st.binary(max_size=200))
def test_any_bytes_are_a_state_or_an_error(data: bytes) -> None:
    for content in (data, zlib.compress(data)):
        document = SOUND | {"state": base64.b64encode(content).decode()}
        try:
            assert len(decode_state(document).partitions) == 1
        except FormatError:
            continue
