"""A partition whose metadata was read, before it is planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.scanning.native_partition import NativePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartition:
    """A partition, and what was fetched in order to plan it."""

    partition: Partition
    known: PartitionMetadata | NativePlan
    requests: tuple[MetadataRequest, ...]
