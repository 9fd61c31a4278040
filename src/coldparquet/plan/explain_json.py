"""A read plan as plain data, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldparquet.plan.budgets import exceeded_limits, planned_restores
from coldparquet.plan.cost import (
    ClassReads,
    dollars_of,
    metadata_dollars,
    plan_seconds,
    prices_of,
    reads_by_class,
    restore_offers_of,
)
from coldparquet.plan.goal_comparison import compare_goals
from coldparquet.ranges import SuffixRange

if TYPE_CHECKING:
    from coldparquet.plan.read_plan import MetadataRequest, ReadPlan


def explain_dict(plan: ReadPlan) -> dict[str, Any]:
    """Describe a plan as plain data that ``json.dumps`` takes. Byte ranges are half-open."""
    return {
        "table": plan.table,
        "columns": list(plan.columns),
        "snapshot": plan.snapshot,
        "notes": list(plan.notes),
        "predicate": plan.predicate,
        "limit": plan.limit,
        "rows_at_least": plan.rows_at_least,
        "rows_at_most": plan.rows_at_most,
        "request_count": plan.request_count,
        "bytes_wanted": plan.bytes_wanted,
        "bytes_fetched": plan.bytes_fetched,
        "round_trips": plan.round_trips,
        "estimate": _estimate_dict(plan),
        "goals": _goals_dict(plan),
        "partitions_pruned": [{"name": pruned.name, "reason": pruned.reason} for pruned in plan.partitions_pruned],
        "partitions_skipped": [
            {"name": skipped.name, "storage_class": skipped.storage_class, "size_bytes": skipped.size_bytes}
            for skipped in plan.partitions_skipped
        ],
        "partitions": [_partition_dict(plan, index) for index in range(len(plan.partitions))],
        "requests": [
            {
                "partition": plan.partitions[request.partition_index].name,
                "path": request.path,
                "start": request.byte_range.start,
                "stop": request.byte_range.stop,
                "reason": request.reason,
                "stage": request.stage,
            }
            for request in plan.requests
        ],
        "metadata_requests": [_metadata_dict(request) for request in plan.metadata_requests],
        "options": {
            "goal": plan.options.goal,
            "coalesce_gap_bytes": plan.widest_gap_bytes,
            "max_request_bytes": plan.longest_request_bytes,
            "max_concurrency": plan.options.max_concurrency,
            "max_bytes": plan.options.max_bytes,
            "max_requests": plan.options.max_requests,
            "max_usd": plan.options.max_usd,
        },
    }


def _estimate_dict(plan: ReadPlan) -> dict[str, Any]:
    prices, speed = prices_of(plan.options), plan.speed
    reads = reads_by_class(plan)
    data, metadata = dollars_of(reads, prices), metadata_dollars(plan, prices)
    restores = planned_restores(plan)
    readable = [entry for entry in prices.classes if not entry.must_be_restored]
    in_class = {
        entry.name: ClassReads(
            storage_class=entry.name, request_count=plan.request_count, fetched_bytes=plan.bytes_fetched
        )
        for entry in readable
    }
    return {
        "seconds": plan_seconds(plan),
        "dollars": data.amount,
        "metadata_dollars": metadata.amount,
        "restores": [offer.as_dict() for offer in restore_offers_of(plan) or ()],
        "unpriced_classes": sorted({*data.unpriced_classes, *metadata.unpriced_classes}),
        "by_storage_class": [
            {"storage_class": read.storage_class, "requests": read.request_count, "bytes": read.fetched_bytes}
            for read in reads
        ],
        "dollars_if_all_in": {name: dollars_of([read], prices).amount for name, read in in_class.items()},
        "unverified_prices": [entry.name for entry in prices.classes if not entry.is_verified],
        "prices": prices.name,
        "prices_as_of": prices.as_of,
        "counts_transfer_out": prices.counts_transfer_out,
        "first_byte_s": speed.first_byte_s,
        "is_first_byte_measured": speed.is_first_byte_measured,
        "connection_bytes_per_s": speed.connection_bytes_per_s,
        "is_throughput_measured": speed.is_throughput_measured,
        "concurrency": speed.connections,
        "restore_dollars": None if restores is None else restores.dollars,
        "exceeded": exceeded_limits(plan),
    }


def _goals_dict(plan: ReadPlan) -> dict[str, Any]:
    return {
        cost.goal: {
            "request_count": cost.request_count,
            "bytes_fetched": cost.bytes_fetched,
            "round_trips": cost.round_trips,
            "seconds": cost.seconds,
            "dollars": cost.dollars.amount,
        }
        for cost in compare_goals(plan)
    }


def _partition_dict(plan: ReadPlan, index: int) -> dict[str, Any]:
    partition, numbers = plan.partitions[index], plan.numbers_of(index)
    return {
        "name": partition.name,
        "data_path": partition.data_path,
        "parquet_size_bytes": partition.parquet_size_bytes,
        "storage_class": partition.storage_class,
        "is_archived": partition.is_archived,
        "is_being_restored": partition.is_being_restored,
        "metadata_source": partition.metadata_source,
        "row_groups_total": partition.row_groups_total,
        "row_groups_read": partition.row_groups_read,
        "row_groups": list(dict.fromkeys(read.row_group for read in plan.row_groups_of(index))),
        "rows_total": partition.rows_total,
        "rows_read": partition.rows_read,
        "request_count": numbers.request_count,
        "bytes_wanted": numbers.bytes_wanted,
        "bytes_fetched": numbers.bytes_fetched,
        "dropped": [
            {"reason": dropped.reason, "row_groups": dropped.row_groups}
            for dropped in partition.dropped
            if dropped.row_groups
        ],
        "made_columns": list(partition.made_columns),
        "techniques": [
            {
                "name": technique.name,
                "is_used": technique.is_used,
                "affected": technique.affected,
                "considered": technique.considered,
                "unit": technique.unit,
                "reason": technique.reason,
                "details": technique.details,
            }
            for technique in partition.techniques
        ],
        "notes": list(partition.notes),
    }


def _metadata_dict(request: MetadataRequest) -> dict[str, Any]:
    asked: dict[str, int | None]
    match request.byte_range:
        case None:
            asked = {"start": None, "stop": None, "suffix_bytes": None}
        case SuffixRange(length_bytes):
            asked = {"start": None, "stop": None, "suffix_bytes": length_bytes}
        case byte_range:
            asked = {"start": byte_range.start, "stop": byte_range.stop, "suffix_bytes": None}
    return {
        "operation": request.operation,
        "path": request.path,
        **asked,
        "reason": request.reason,
        "fetched_bytes": request.fetched_bytes,
    }
