"""Which partitions that have more rows than before begin with the rows that they had before.

QuestDB adds rows to a partition by writing row groups behind the end of its Parquet file, and a footer behind those. So the
earlier state lies in the same file still: the sidecar leads to it by the size that the file had, and so does the earlier
footer, which ends there. Where all of its row groups are in the present state as they were, in the same places, the rows
before the new ones are the same. A file that was sorted anew, or compacted, holds nothing of the earlier state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.partition import Partition, read_packed
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.footer_blooms import sidecar_in_memory
from coldparquet.format.sidecar import parse_sidecar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.catalog.table_changes import PartitionChange
    from coldparquet.catalog.table_state import PartitionState
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions


async def find_grown(
    snapshot: TableSnapshot,
    changes: Iterable[PartitionChange],
    partitions: Mapping[int, Partition],
    *,
    options: ReadOptions,
) -> frozenset[int]:
    """Find out which of some larger partitions begin with the rows that they had before.

    Requests: the metadata of each, which reading its rows needs anyway, all at once. Where it has no sidecar, or one that has
    forgotten the earlier state, 1 or 2 more for the earlier Parquet footer.

    Args:
        snapshot: The table as it lies there.
        changes: The partitions.
        partitions: Those of the snapshot by their begins.
        options: How to read.

    Returns:
        The begins of those that do. Where nothing is left that proves it, they do not.

    Raises:
        NotFoundError: One of them is not there any more.
        FormatError: The metadata of its present state is damaged.
    """
    asked = [change for change in changes if change.before is not None and change.timestamp in partitions]
    await read_packed([partitions[change.timestamp] for change in asked])
    answers = await gather_or_cancel(
        [
            _has_grown(snapshot, partitions[change.timestamp], change.before, options)
            for change in asked
            if change.before is not None
        ]
    )
    return frozenset(change.timestamp for change, has_grown in zip(asked, answers, strict=True) if has_grown)


async def _has_grown(
    snapshot: TableSnapshot, partition: Partition, before: PartitionState, options: ReadOptions
) -> bool:
    record = partition.location.record
    if record is None or before.parquet_size_bytes <= 0 or before.parquet_size_bytes >= record.parquet_size:
        return False
    metadata = await partition.metadata()
    kept = _earlier_snapshot(metadata.sidecar, before)
    if kept is not None:
        return _begins_with(metadata.sidecar, kept)
    then = replace(record, row_count=before.row_count, parquet_size=before.parquet_size_bytes)
    try:
        footer = await Partition(replace(partition.location, record=then), snapshot.store, options).read_footer([])
        earlier = sidecar_in_memory(footer)
    except (FormatError, UnsupportedError):
        return False  # no footer ends there: the file is another one
    return _begins_with(metadata.sidecar, earlier)


def _earlier_snapshot(sidecar: Sidecar, before: PartitionState) -> Sidecar | None:
    """Return the snapshot that a sidecar keeps of an earlier state; None if it keeps none."""
    try:
        earlier = parse_sidecar(
            sidecar.file,
            path=sidecar.path,
            parquet_size_bytes=before.parquet_size_bytes,
            sidecar_size_bytes=sidecar.size_bytes,
        )
    except (FormatError, UnsupportedError):
        return None
    return earlier if earlier.total_rows == before.row_count else None


def _begins_with(now: Sidecar, before: Sidecar) -> bool:
    """Tell whether the first row groups of a partition are, byte for byte, all those of an earlier state."""
    count = before.row_group_count
    if now.row_group_count < count or now.column_count != before.column_count:
        return False
    if not np.array_equal(now.row_counts[:count], before.row_counts):
        return False
    return all(
        now.column(index).name == before.column(index).name
        and np.array_equal(now.chunks(index).byte_range_start[:count], before.chunks(index).byte_range_start)
        and np.array_equal(
            now.chunks(index).total_compressed_bytes[:count], before.chunks(index).total_compressed_bytes
        )
        for index in range(before.column_count)
    )
