"""Partitions that were planned by the table's catalogue, although their Parquet files were replaced since."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.concurrency import gather_or_cancel
from coldparquet.scanning.native_partition import NativePlan
from coldparquet.storage.objects import is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.scanning.known_partition import KnownPartition
    from coldparquet.scanning.question import Question


async def without_stale_entries(question: Question, known: Sequence[KnownPartition]) -> list[KnownPartition]:
    """Read the own sidecars of partitions whose data objects, which were looked at, are not those that were packed.

    Requests: those of :meth:`coldparquet.catalog.partition.Partition.reread_replaced` for each such partition, all at once.

    Args:
        question: What is asked.
        known: Partitions with their metadata.
    """
    reread = await gather_or_cancel([_reread(found) for found in known if _is_stale(question, found)])
    by_name = {found.partition.name: found for found in reread}
    return [by_name.get(found.partition.name, found) for found in known]


def _is_stale(question: Question, found: KnownPartition) -> bool:
    packed, info = found.known, question.snapshot.data_objects.info(found.partition.data_path)
    if isinstance(packed, NativePlan) or info is None or packed.data_etag is None:
        return False
    return is_lasting_etag(info.etag) and info.etag != packed.data_etag


async def _reread(found: KnownPartition) -> KnownPartition:
    metadata = await found.partition.reread_replaced()
    return replace(found, known=metadata, requests=(*found.requests, *metadata.metadata_requests))
