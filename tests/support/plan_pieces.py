"""Reads and plans put together by hand, for tests of what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coldparquet.options import ReadOptions
from coldparquet.plan.coalescing import choose_coalescing
from coldparquet.plan.model import PartitionRead, PlannedRequest, ReadPlan, RowGroupRead, StoreSpeed
from coldparquet.plan.requests import ReadsOfObject, plan_requests

Ranges = list[tuple[int, int]]
SPEED = StoreSpeed(connections=32)


def read_of(
    ranges: Ranges, *, partition_index: int = 0, row_group: int = 0, deferred: RowGroupRead | None = None
) -> RowGroupRead:
    """A row group of which these ranges are fetched, each a column of its own."""
    columns = tuple(range(len(ranges)))
    return RowGroupRead(
        partition_index=partition_index, row_group=row_group, row_group_rows=100, selection=None, columns=columns,
        column_rows=(None,) * len(ranges), piece_columns=np.arange(len(ranges)),
        piece_starts=np.array([start for start, _ in ranges], np.int64),
        piece_stops=np.array([stop for _, stop in ranges], np.int64),
        made_columns=(), all_rows_match=True, deferred=deferred,
    )  # fmt: skip


def partition_of(name: str, **facts: Any) -> PartitionRead:
    return PartitionRead(
        name=name, data_path=f"t/{name}/data.parquet", parquet_size_bytes=10**9, metadata_source="sidecar",
        row_groups_total=1, row_groups_read=1, rows_total=100, rows_read=100, **facts,
    )  # fmt: skip


def requests_of(
    reads: Sequence[RowGroupRead],
    options: ReadOptions,
    *,
    speed: StoreSpeed,
    storage_class: str | None,
    part_bytes: int,
) -> list[PlannedRequest]:
    """The requests of one partition as plans have them, without a wider gap."""
    if not reads:
        return []
    coalescing = choose_coalescing(options, speed, storage_class)
    names = {column: f"c{column}" for read in reads for column in read.columns}
    stages = [(1, list(reads)), *((2, [read.deferred]) for read in reads if read.deferred is not None)]
    return [
        request
        for stage, of_stage in stages
        for request in plan_requests(
            [ReadsOfObject(path="t", column_names=names, reads=of_stage)], gap_bytes=coalescing.gap_bytes,
            max_request_bytes=coalescing.max_request_bytes, part_bytes=part_bytes, stage=stage,
        )
    ]  # fmt: skip


def plan_of(
    reads: Sequence[RowGroupRead],
    options: ReadOptions | None = None,
    *,
    classes: Sequence[str | None] = (None,),
    speed: StoreSpeed = SPEED,
) -> ReadPlan:
    """A plan of these reads, with one partition for each class."""
    options = options or ReadOptions()
    coalescings = tuple(choose_coalescing(options, speed, storage_class) for storage_class in classes)
    part_bytes = coalescings[0].part_bytes(sum(read.bytes_wanted for read in reads), speed.connections)
    requests: list[PlannedRequest] = []
    for index, storage_class in enumerate(classes):
        of_partition = [read for read in reads if read.partition_index == index]
        requests += requests_of(of_partition, options, speed=speed, storage_class=storage_class, part_bytes=part_bytes)
    return ReadPlan(
        table="s3://bucket/t", columns=("c0",), predicate=None, limit=None, partitions_pruned=(),
        partitions=tuple(
            partition_of(f"2024-03-{number:02}", storage_class=storage_class)
            for number, storage_class in enumerate(classes, start=1)
        ),
        row_groups=tuple(reads), requests=tuple(requests), metadata_requests=(), options=options, speed=speed,
        coalescings=coalescings,
    )  # fmt: skip
