"""Drops partitions by what the names of their directories, or the transaction, state. No request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.hive_keys import KeyKind, has_type_of_key
from coldparquet.plan.model import PrunedPartition
from coldparquet.plan.predicate import NANOSECONDS_PER_UNIT
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import NameStatistics, interval_bounds, key_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.catalog.partition import Partition
    from coldparquet.plan.bounds import Bounds
    from coldparquet.scan.model import Question


def prune_partitions(question: Question) -> tuple[list[Partition], list[PrunedPartition]]:
    """Drop the partitions of which the names of their directories prove that no row matches."""
    partitions, predicate = question.snapshot.partitions, question.predicate
    stated = {} if predicate is None else {**_stated_times(question), **_stated_keys(question)}
    if predicate is None or not stated:
        return list(partitions), []
    verdict, _ = prune(predicate, NameStatistics(len(partitions), stated), len(partitions))
    kept = [partition for partition, may_match in zip(partitions, verdict.survives, strict=True) if may_match]
    reason = (
        "names of directories"
        if len(stated) > 1 or question.snapshot.designated_timestamp not in stated
        else "time range"
    )
    pruned = [
        PrunedPartition(name=partition.name, reason=reason)
        for partition, may_match in zip(partitions, verdict.survives, strict=True)
        if not may_match
    ]
    return kept, pruned


def _stated_times(question: Question) -> dict[int, Bounds]:
    """Return the bounds of the designated timestamp that the names of directories, or the transaction, state."""
    snapshot = question.snapshot
    timestamp = snapshot.designated_timestamp
    type_ = None if timestamp is None else snapshot.columns[timestamp].type
    # A damaged sidecar may name any column; directory names bound timestamps only.
    if timestamp is None or type_ is None or type_.arrow.name != "timestamp":
        return {}
    unit_ns = NANOSECONDS_PER_UNIT[type_.arrow.unit or "ns"]
    ranges = [partition.time_range_ns for partition in snapshot.partitions]
    if not any(ranges):
        return {}
    stated = [time_range or (0, 0) for time_range in ranges]
    bounds = interval_bounds(
        lower=_bounds([start // unit_ns for start, _ in stated]),
        upper=_bounds([(stop - 1) // unit_ns for _, stop in stated]),
        known=np.array([known is not None for known in ranges], dtype=bool),
    )
    return {timestamp: bounds}


def _stated_keys(question: Question) -> dict[int, Bounds]:
    """Return the bounds of the predicate's columns that are keys of the partitions' paths."""
    partitions = question.snapshot.partitions
    keys = partitions[0].location.keys if partitions else ()
    columns = {column.name: column for column in question.predicate_columns}
    return {
        columns[key.name].index: key_bounds(
            [partition.location.keys[number].value for partition in partitions],
            are_numbers=key.kind is not KeyKind.TEXT,
        )
        for number, key in enumerate(keys)
        if key.name in columns
        and key.name in question.snapshot.pruning_keys
        and has_type_of_key(columns[key.name].readable_type, key.kind)
    }


def _bounds(values: Sequence[int]) -> npt.NDArray[np.int64]:
    """Clamp timestamps to 64 bits: the first partition of a table has no begin."""
    limits = np.iinfo(np.int64)
    least, greatest = limits.min, limits.max
    return np.array([min(max(value, least), greatest) for value in values], dtype=np.int64)
