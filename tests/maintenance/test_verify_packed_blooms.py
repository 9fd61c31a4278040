"""What ``verify`` says of the bloom filters that a catalogue holds: one that is wrong loses rows."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.catalog.packed import CATALOGUE_FILE
from coldparquet.catalog.table_files import PartitionLocation
from coldparquet.format.catalogue_blooms import PackedBloom
from coldparquet.format.catalogue_file import PackedSidecar, parse_catalogue_index
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.packed_entries import read_blooms
from coldparquet.maintenance.verify import VerifyReport, verify_table
from coldparquet.pipelines import VerifyJob, run_pipeline
from coldparquet.records import replace
from coldparquet.storage.checked import read_whole
from coldparquet.storage.log import TraceStore
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.small_tables import TABLE, QuotingStore, StoreWithClasses, objects_of

DAYS, ROWS = 4, 600
WRONG_DAY = "2024-03-02"
CATALOGUE = f"{TABLE}/{CATALOGUE_FILE}"


def _ids(day: int) -> list[int]:
    return [int(number) for number in np.random.default_rng(day).integers(1 << 20, 1 << 60, ROWS)]


@cache
def _objects() -> dict[str, bytes]:
    async def write(directory: Path) -> None:
        for day in range(DAYS):
            times = (19_783 + day) * 86_400_000_000 + np.arange(ROWS) * 1_000_000
            rows = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "id": _ids(day)})
            options = WriteOptions(row_group_rows=ROWS // 2, bloom_columns=("id",))
            await write_partition(directory / f"2024-03-{day + 1:02}", rows, timestamp="ts", options=options)
        await index_table(directory, force=True, inline_bloom_bytes=0, pages=False, pack=False)

    with TemporaryDirectory() as directory:
        asyncio.run(write(Path(directory)))
        return objects_of(Path(directory))


@pytest.fixture(scope="module", autouse=True)
def _written() -> None:
    _objects()


async def packed() -> QuotingStore:
    store = StoreWithClasses(dict(_objects()))
    assert (await pack_table(TABLE, store=store)).bloom_bytes > 0
    return store


@pytest.fixture
def a_wrong_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packer puts an empty filter in place of one that is full."""

    async def forget(location: PartitionLocation, packed: PackedSidecar, **how: Any) -> tuple[PackedBloom, ...]:
        first, *others = await read_blooms(location, packed, **how)
        if location.name == WRONG_DAY:
            first = replace(first, bitset=bytes(len(first.bitset)))
        return (first, *others)

    monkeypatch.setattr("coldparquet.maintenance.pack.read_blooms", forget)


def said(report: VerifyReport) -> list[tuple[str, str, str]]:
    """Whom each finding about the catalogue is about, how bad it is, and its kind."""
    of_partitions = [(partition.name, finding) for partition in report.partitions for finding in partition.findings]
    findings = [*(("", finding) for finding in report.findings), *of_partitions]
    return [(name, each.severity, each.kind) for name, each in findings if each.kind.startswith("Catalogue")]


@pytest.mark.parametrize("deep", [False, True])
async def test_right_ones_are_right(deep: bool) -> None:
    assert not said(await verify_table(TABLE, store=await packed(), deep=deep))


@pytest.mark.usefixtures("a_wrong_filter")
async def test_a_filter_that_loses_rows_is_an_error() -> None:
    store = await packed()
    async with cp.open_table(TABLE, store=store) as table:
        wanted = [_ids(day)[0] for day in range(DAYS)]
        rows = await table.scan(["id"], [("id", "in", wanted)]).to_arrow()
    assert rows.num_rows == DAYS - 1, "the row that the wrong filter denies is lost"
    report = await verify_table(TABLE, store=store, deep=True)
    assert said(report) == [(WRONG_DAY, "error", "CatalogueDiffers")]
    [finding] = [
        finding for partition in report.partitions for finding in partition.findings if finding.severity == "error"
    ]
    assert (finding.column, finding.row_groups) == ("id", (0,))
    assert "coldparquet pack" in str(finding.remedy)


@pytest.mark.parametrize("inline_bloom_bytes", [0, 1 << 20])
async def test_filters_that_lie_elsewhere_by_now_are_the_same_ones(inline_bloom_bytes: int) -> None:
    store = await packed()
    await index_table(
        f"{TABLE}/{WRONG_DAY}", store=store, force=True, inline_bloom_bytes=inline_bloom_bytes, pages=False, pack=False
    )
    assert not said(await verify_table(TABLE, store=store, deep=True))


async def test_filters_of_a_replaced_file_are_asked_by_nobody() -> None:
    store = await packed()
    await store.delete([f"{TABLE}/{WRONG_DAY}/_pm"])
    await store.put(f"{TABLE}/{WRONG_DAY}/data.parquet", _objects()[f"{TABLE}/2024-03-03/data.parquet"], overwrite=True)
    async with cp.open_table(TABLE, store=store) as table:
        assert await table.scan(where=[("id", "=", _ids(2)[0])]).count() == 2, "the day after is there twice"
    assert not said(await verify_table(TABLE, store=store, deep=True))


@pytest.mark.usefixtures("a_wrong_filter")
async def test_pipelines_find_it_too(tmp_path: Path) -> None:
    for path, data in _objects().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    with ColdStoreServer(tmp_path) as server:
        keys = server.storage_options
        await pack_table(f"s3://{TABLE}", storage_options=keys)
        report = await run_pipeline(VerifyJob(deep=True), "s3://bucket", storage_options=keys)
    assert [(result.partition, result.kind) for result in report.results if result.outcome == "failed"] == [
        (WRONG_DAY, "CatalogueDiffers")
    ]


@pytest.mark.parametrize(
    ("part", "deep", "is_found"), [("index", False, True), ("stripes", False, False), ("stripes", True, True)]
)
async def test_damaged_ones_are_said_to_be_of_no_use(part: str, deep: bool, is_found: bool) -> None:
    store = await packed()
    data = bytearray((await read_whole(store, CATALOGUE)).data)
    index = parse_catalogue_index(bytes(data), path=None)
    place = index.blooms_range if part == "index" else index.stripes_range
    assert place is not None
    data[place.stop - 1] ^= 1
    await store.put(CATALOGUE, bytes(data), overwrite=True)
    report = await verify_table(TABLE, store=store, deep=deep)
    assert said(report) == ([("", "warning", "CatalogueNotUsed")] if is_found else [])
    if is_found:
        assert "the bloom filters in _catalogue are not used" in report.findings[0].message


async def test_requests() -> None:
    counts = []
    for deep in (False, True):
        trace = TraceStore(await packed())
        await verify_table(TABLE, store=trace, deep=deep)
        counts.append(sum(record.path == CATALOGUE for record in trace.records))
    assert counts == [1, 1], "a small catalogue comes whole in its first request"
