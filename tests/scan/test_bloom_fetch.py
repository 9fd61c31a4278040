"""The requests for bloom filters: few, small, all at once, and bound to the version of the file that was planned."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import NotFoundError, ObjectChangedError
from coldparquet.options import COALESCING_BY_GOAL, Coalescing
from coldparquet.plan.blooms import BloomProbes, find_lookups
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.ranges import ByteRange
from coldparquet.scan.evidence import BLOOM_REASON, fetch_blooms
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.log import TraceStore, metadata_requests
from coldparquet.storage.memory import MemoryStore
from tests.support.blooms import (
    SIDECARS,
    bound,
    fields_of,
    file_with_blooms,
    numbers_file,
    sidecar_in_memory,
    sidecar_to_keep,
    with_references,
)

if TYPE_CHECKING:
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.model import MetadataRequest
    from coldparquet.storage.requests import FetchedRange, RangeRequest

PATH = "t/2024-01-01/data.parquet"
FAST = COALESCING_BY_GOAL["fast"]
SINGLE = Coalescing(gap_bytes=0, max_request_bytes=1 << 20, least_part_bytes=1 << 20)


def probes_of(where: str, sidecar: Sidecar) -> BloomProbes:
    predicate = bound(where, fields_of(sidecar))
    statistics = SidecarStatistics(sidecar)
    undecided = prune(predicate, statistics, sidecar.row_group_count)[0].survives
    columns: dict[int, int | None] = {index: index for index in range(sidecar.column_count)}
    return BloomProbes(
        sidecar, find_lookups(predicate, statistics, table=sidecar, columns=columns, row_groups=undecided)
    )


async def fetched(
    file: bytes, probes: BloomProbes, coalescing: Coalescing
) -> tuple[list[MetadataRequest], TraceStore, tuple[str, ...]]:
    trace = TraceStore(MemoryStore({PATH: file}))
    with metadata_requests() as spent:
        answers = await fetch_blooms(CheckedStore(trace), PATH, probes, coalescing=coalescing, may_grow=False)
    assert [(request.path, request.byte_range) for request in spent] == [
        (record.path, record.byte_range) for record in trace.records
    ]
    assert {record.reason for record in trace.records} <= {BLOOM_REASON}
    return spent, trace, answers.notes


async def test_filters_in_the_sidecar_cost_no_request() -> None:
    file, _ = numbers_file()
    spent, _, _ = await fetched(file, probes_of("id = 5", SIDECARS["inlined"](file)), FAST)
    assert spent == []


async def test_one_block_per_filter_in_one_round_trip() -> None:
    file, _ = numbers_file()
    sidecar = SIDECARS["external"](file)
    spent, _, _ = await fetched(file, probes_of("id = 5", sidecar), SINGLE)
    assert [request.fetched_bytes for request in spent] == [32] * 4
    for row_group, request in enumerate(spent):
        place = sidecar.bloom_location(row_group, 0)
        assert place is not None
        assert isinstance(request.byte_range, ByteRange)
        assert place.start <= request.byte_range.start < request.byte_range.stop <= place.stop
        assert (request.byte_range.start - place.start) % 32 == 0


class _AnswersTogether(StoreWrapper):
    """Answers nothing before so many requests have arrived."""

    def __init__(self, store: MemoryStore, count: int) -> None:
        super().__init__(store)
        self._barrier = asyncio.Barrier(count)

    async def get(self, request: RangeRequest) -> FetchedRange:
        await self._barrier.wait()
        return await super().get(request)


async def test_all_requests_of_a_round_trip_are_in_flight_together() -> None:
    file, _ = numbers_file()
    store = _AnswersTogether(MemoryStore({PATH: file}), count=4)
    probes = probes_of("id = 5", SIDECARS["external"](file))
    async with asyncio.timeout(60):
        with metadata_requests() as spent:
            await fetch_blooms(store, PATH, probes, coalescing=SINGLE, may_grow=False)
    assert len(spent) == 4


async def test_filters_that_lie_side_by_side_are_fetched_together() -> None:
    file, _ = numbers_file(rows=100)
    spent, _, _ = await fetched(file, probes_of("id = 5", SIDECARS["external"](file)), FAST)
    assert len(spent) == 1
    assert spent[0].fetched_bytes < 4 * 1024


async def test_a_second_round_trip_only_for_large_filters_of_unknown_length() -> None:
    requests = []
    for rows in (30, 4000):
        file, _ = numbers_file(rows=rows)
        sidecar = with_references(file, lambda place: ByteRange(place.start, place.start))
        spent, _, _ = await fetched(file, probes_of("id = 5", sidecar), SINGLE)
        requests.append([request.fetched_bytes for request in spent])
    small, large = requests
    assert len(small) == 1  # the four guesses overlap
    assert large == [512] * 4 + [32] * 4


async def test_a_file_that_was_replaced_is_noticed() -> None:
    file, _ = numbers_file()
    sidecar = SIDECARS["external"](file)
    with pytest.raises(ObjectChangedError):
        await fetched(file[:-1], probes_of("id = 5", sidecar), FAST)
    with pytest.raises(NotFoundError):
        await fetch_blooms(
            CheckedStore(MemoryStore()), PATH, probes_of("id = 5", sidecar), coalescing=FAST, may_grow=False
        )


async def test_damaged_filters_are_noted() -> None:
    file, _ = numbers_file(row_groups=1, rows=40)
    place = sidecar_in_memory(file).bloom_location(0, 0)
    assert place is not None
    damaged = file[: place.start] + b"\xff" * 20 + file[place.start + 20 :]
    _, _, notes = await fetched(damaged, probes_of("id = 5", sidecar_in_memory(file)), FAST)
    assert len(notes) == 1


def _needles(partitions: int) -> tuple[dict[str, bytes], int]:
    """Partitions of random numbers, with sidecars; the needle is in row group 1 of the last one."""
    random, objects, needle = Random(11), {}, 0
    for day in range(1, partitions + 1):
        numbers = [random.getrandbits(62) for _ in range(6000)]
        numbers[::3000] = [0, 0]
        numbers[1::3000] = [2**62, 2**62]
        needle = numbers[4500]
        file = file_with_blooms(pa.table({"id": numbers, "price": [0.5] * 6000}), row_group_rows=3000)
        directory = f"t/2024-01-{day:02}"
        objects[f"{directory}/data.parquet"] = file
        objects[f"{directory}/_pm"] = bytes(sidecar_to_keep(file, inline_bytes=65_536 if day % 2 else 0).file)
    return objects, needle


async def test_a_needle_in_a_table_reads_one_row_group() -> None:
    objects, needle = _needles(5)
    trace = TraceStore(MemoryStore(objects))
    async with cp.open_table("t", store=trace) as table:
        rows = await table.scan(where=f"id = {needle}").to_arrow()
        assert rows.column("id").to_pylist() == [needle]
        data = [record for record in trace.records if record.reason.startswith("row group")]
        assert {record.path for record in data} == {"t/2024-01-05/data.parquet"}
        blooms = [record for record in trace.records if record.reason == BLOOM_REASON]
        assert {record.path for record in blooms} == {"t/2024-01-02/data.parquet", "t/2024-01-04/data.parquet"}
        before = len(trace.records)
        assert (await table.scan(where="id = 77").to_arrow()).num_rows == 0
        assert {record.reason for record in trace.records[before:]} == {BLOOM_REASON}


async def test_switched_off_filters_are_not_asked() -> None:
    objects, needle = _needles(2)
    trace = TraceStore(MemoryStore(objects))
    async with cp.open_table("t", store=trace, options=cp.ReadOptions(bloom_filters=False)) as table:
        rows = await table.scan(where=f"id = {needle}").to_arrow()
    assert rows.num_rows == 1
    assert BLOOM_REASON not in {record.reason for record in trace.records}
