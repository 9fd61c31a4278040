"""What explain says of the techniques: added up over partitions where used, one reason where not."""

from __future__ import annotations

from typing import Any

from coldparquet.options import ReadOptions
from coldparquet.plan.model import PartitionRead, ReadPlan, StoreSpeed, Technique

LABELS = ("bloom filter", "page index", "late reading")


def partition(number: int, *techniques: Technique, row_groups_read: int = 4) -> PartitionRead:
    return PartitionRead(
        name=f"2024-03-{number:02}", data_path=f"t/2024-03-{number:02}/data.parquet", parquet_size_bytes=5_000,
        metadata_source="sidecar", row_groups_total=4, row_groups_read=row_groups_read, rows_total=400, rows_read=100,
        techniques=techniques,
    )  # fmt: skip


def plan_of(*partitions: PartitionRead) -> ReadPlan:
    return ReadPlan(
        table="t", columns=("x",), predicate="x = 1", limit=None, partitions_pruned=(), partitions=partitions,
        row_groups=(), requests=(), metadata_requests=(), options=ReadOptions(), speed=StoreSpeed(connections=32),
    )  # fmt: skip


def said(*partitions: PartitionRead) -> list[str]:
    """Return the lines of the techniques, each put back into one."""
    section = plan_of(*partitions).explain().split("\n\n")[2].split("\n")
    begin = next((index for index, line in enumerate(section) if line.startswith(LABELS)), len(section))
    return [line for line in section[begin:] if not line.startswith("result rows")]


def bloom(affected: int, considered: int) -> Technique:
    return Technique(name="bloom filter", is_used=True, unit="row groups", affected=affected, considered=considered)


def unused_index(reason: str, details: str = "") -> Technique:
    return Technique(name="page index", is_used=False, unit="rows", reason=reason, details=details)


def test_counts_are_added_up() -> None:
    partitions = [partition(number, bloom(4, 4), row_groups_read=0) for number in (1, 2, 3)]
    assert said(*partitions, partition(4, bloom(3, 4))) == [
        "bloom filter  ruled out 15 of 16 row groups in 4 partitions"
    ]
    assert said(partition(1, bloom(3_000, 4_000))) == ["bloom filter  ruled out 3,000 of 4,000 row groups"]


def test_the_reason_is_that_of_most_partitions_and_without_the_numbers_of_one() -> None:
    little = [partition(number, unused_index("it would save too little", f"about {number} KiB")) for number in (1, 2)]
    assert said(*little) == ["page index    not used in 2 partitions: it would save too little"]
    assert said(*little, partition(3, unused_index("none was found"))) == [
        "page index    not used in 3 partitions, in 2 of them because: it would save too",
        "              little",
    ]
    assert said(little[0]) == ["page index    not used: it would save too little (about 1 KiB)"]


def test_used_here_and_not_there() -> None:
    late = Technique(
        name="late reading", is_used=True, unit="row groups", affected=3, considered=4, reason="it pays: 3 ms"
    )
    at_once = Technique(name="late reading", is_used=False, unit="row groups", reason="the columns are small")
    assert said(partition(1, late), partition(2, late), partition(3, at_once)) == [
        "late reading  fetches the condition's columns first for 6 of 8 row groups in 2",
        "              partitions: it pays: 3 ms",
        "              not used in 1 partition: the columns are small",
    ]


def test_what_left_nothing_out_is_no_gain() -> None:
    index = Technique(name="page index", is_used=True, unit="rows", considered=100_000, reason="the pages are at hand")
    assert said(partition(1, index)) == ["page index    all 100,000 rows may match"]


def test_where_nothing_is_read_only_what_was_used_counts() -> None:
    nothing_left = partition(1, bloom(4, 4), unused_index("it would save too little"), row_groups_read=0)
    assert said(nothing_left) == ["bloom filter  ruled out 4 of 4 row groups"]
    assert said(nothing_left, partition(2, unused_index("none was found")))[1:] == [
        "page index    not used in 1 partition: none was found"
    ]


def test_the_dict_keeps_each_partition() -> None:
    index = unused_index("it would save too little", "about 1 KiB")
    data: list[dict[str, Any]] = plan_of(partition(1, bloom(3, 4), index, row_groups_read=0)).as_dict()["partitions"]
    assert data[0]["techniques"] == [
        {"name": "bloom filter", "is_used": True, "affected": 3, "considered": 4, "unit": "row groups", "reason": "",
         "details": ""},
        {"name": "page index", "is_used": False, "affected": 0, "considered": 0, "unit": "rows",
         "reason": "it would save too little", "details": "about 1 KiB"},
    ]  # fmt: skip
