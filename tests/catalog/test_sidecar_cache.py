"""Kept sidecars: asked about, trusted, or fetched anew; never used where they say something else than the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import coldparquet as cp
from coldparquet.catalog.caches import SidecarCache
from coldparquet.catalog.partition import SidecarLookup, look_up_sidecar
from coldparquet.catalog.table_files import PartitionLocation
from coldparquet.format.partition_records import PartitionRecord
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.storage.cache import Cache, MemoryCache
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.disk_cache import DiskCache
from coldparquet.storage.log import TraceStore, metadata_requests
from coldparquet.storage.memory import MemoryStore
from tests.support.disk_caches import poison
from tests.support.small_tables import QuotingStore

if TYPE_CHECKING:
    from coldparquet.plan.model import MetadataRequest

SIDECARS = Path(__file__).resolve().parents[1] / "golden" / "pm"
OLD, NEW = ((SIDECARS / name).read_bytes() for name in ("03_sample_a.pm", "15_five_groups.pm"))
DIRECTORY = "table/2024-03-01"
LOCATION = PartitionLocation(
    name="2024-03-01",
    directory_path=DIRECTORY,
    data_path=f"{DIRECTORY}/data.parquet",
    sidecar_path=f"{DIRECTORY}/_pm",
    directory=None,
)


class Setting:
    """A store with one sidecar, and readers that come one after the other."""

    def __init__(self, disk: DiskCache | None = None, *, trust_s: float = 0.0, has_memory: bool = True) -> None:
        self.objects: MemoryStore = QuotingStore({f"{DIRECTORY}/_pm": OLD})
        self.now_s = 1_000_000.0
        memory = MemoryCache(1_000_000 if has_memory else 0)
        cache = Cache("sidecar", lambda: self.objects.label, memory=memory, disk=disk)
        self.cache = SidecarCache(cache, trust_s=trust_s, clock=lambda: self.now_s)
        self.spent: list[MetadataRequest] = []

    async def look_up(self, *, prefix_bytes: int = 65_536, location: PartitionLocation = LOCATION) -> SidecarLookup:
        """Look the sidecar up as a new reader does; what that cost is in ``spent``."""
        self.spent = []
        trace = TraceStore(self.objects)
        options = cp.ReadOptions(sidecar_prefix_bytes=prefix_bytes)
        with metadata_requests(self.spent):
            found = await look_up_sidecar(CheckedStore(trace), location, options, cache=self.cache)
        assert len(trace.records) == len(self.spent)
        return found

    @property
    def costs(self) -> list[tuple[str, int]]:
        """Reason and received bytes of what the last reader sent."""
        return [(request.reason, request.fetched_bytes) for request in self.spent]


async def test_a_kept_sidecar_costs_a_question_and_no_bytes() -> None:
    setting = Setting()
    first = await setting.look_up()
    assert setting.costs == [("sidecar", len(OLD))]
    again = await setting.look_up()
    assert setting.costs == [("sidecar, unchanged", 0)]
    assert again.state == first.state == "present"
    assert bytes(again.file) == bytes(first.file)


async def test_a_large_sidecar_that_is_kept_costs_one_question() -> None:
    setting = Setting()
    await setting.look_up(prefix_bytes=64)
    assert len(setting.costs) == 2
    found = await setting.look_up(prefix_bytes=64)
    assert setting.costs == [("sidecar, unchanged", 0)]
    assert found.sidecar is not None


async def test_a_newer_sidecar_takes_the_place_of_the_kept_one() -> None:
    setting = Setting()
    await setting.look_up()
    await setting.objects.put(f"{DIRECTORY}/_pm", NEW, overwrite=True)
    for expected in ([("sidecar", len(NEW))], [("sidecar, unchanged", 0)]):
        found = await setting.look_up()
        assert setting.costs == expected
        assert bytes(found.file) == NEW[: len(found.file)]


async def test_a_trusted_sidecar_costs_nothing_until_its_time_is_over() -> None:
    setting = Setting(trust_s=60)
    await setting.look_up()
    setting.now_s += 59
    assert (await setting.look_up()).state == "present"
    assert setting.costs == []
    setting.now_s += 2
    await setting.look_up()
    assert setting.costs == [("sidecar, unchanged", 0)]
    setting.now_s += 59
    await setting.look_up()
    assert setting.costs == []
    setting.now_s -= 3_600  # a clock that was put back
    await setting.look_up()
    assert setting.costs == [("sidecar, unchanged", 0)]
    await setting.cache.distrust(f"{DIRECTORY}/_pm")
    await setting.look_up()
    assert setting.costs == [("sidecar, unchanged", 0)]


async def test_a_trusted_sidecar_of_another_state_of_the_table_is_asked_for() -> None:
    setting = Setting(trust_s=60)
    await setting.look_up()
    await setting.objects.put(f"{DIRECTORY}/_pm", NEW, overwrite=True)
    sidecar = parse_sidecar(NEW)
    record = PartitionRecord(
        timestamp=0, row_count=sidecar.total_rows, is_parquet=True, parquet_size=sidecar.parquet_size_bytes
    )
    location = replace(LOCATION, record=record)
    found = await setting.look_up(location=location)
    assert setting.costs == [("sidecar", len(NEW))]
    assert found.sidecar is not None
    assert found.sidecar.parquet_size_bytes == sidecar.parquet_size_bytes


async def test_the_next_process_finds_it_on_disk(tmp_path: Path) -> None:
    def setting() -> Setting:
        return Setting(DiskCache(str(tmp_path), limit_bytes=10_000_000), trust_s=60)

    first = setting()
    await first.look_up()
    second = setting()
    second.now_s += 30
    assert (await second.look_up()).state == "present"
    assert second.costs == []
    third = setting()
    third.now_s += 90
    await third.look_up()
    assert third.costs == [("sidecar, unchanged", 0)]
    fourth = setting()
    fourth.now_s += 120
    await fourth.look_up()
    assert fourth.costs == []


async def test_a_poisoned_sidecar_on_disk_is_fetched_anew(tmp_path: Path) -> None:
    def setting() -> Setting:
        return Setting(DiskCache(str(tmp_path), limit_bytes=10_000_000), trust_s=60, has_memory=False)

    await setting().look_up()
    poison(tmp_path)
    again = setting()
    assert bytes((await again.look_up()).file) == OLD
    assert again.costs == [("sidecar", len(OLD))]
    last = setting()
    await last.look_up()
    assert last.costs == []


async def test_damaged_absent_and_unversioned_sidecars_are_not_kept() -> None:
    setting = Setting()
    await setting.objects.put(f"{DIRECTORY}/_pm", OLD[:-50] + bytes(50), overwrite=True)
    for _ in range(2):
        assert (await setting.look_up()).state == "damaged"
        assert setting.costs == [("sidecar", len(OLD))]
    await setting.objects.delete([f"{DIRECTORY}/_pm"])
    assert (await setting.look_up()).state == "absent"
    setting.objects = MemoryStore({f"{DIRECTORY}/_pm": OLD})
    for _ in range(2):
        await setting.look_up()
        assert setting.costs == [("sidecar", len(OLD))]
