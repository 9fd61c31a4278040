"""What changed between two states of a table, case by case; see test_table_histories.py for any history."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from coldparquet.catalog.table_files import read_table_files
from coldparquet.errors import ObjectChangedError
from coldparquet.follow.changes import TableChanges, changes_between, with_growth
from coldparquet.follow.progress import EVERYTHING, next_state, windows_between
from coldparquet.follow.state import PartitionState, TableState, recorded_state
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.storage.local import LocalStore
from tests.support.questdb_tables import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US


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
