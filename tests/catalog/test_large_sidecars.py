"""Sidecars that are longer than the first guess by far: what is asked for behind it, and that all of it is one version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.catalog.partition import look_up_sidecar
from coldparquet.catalog.table_files import partition_location
from coldparquet.errors import ObjectChangedError
from coldparquet.maintenance.index import index_table
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.open import open_store
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.small_tables import QuotingStore

if TYPE_CHECKING:
    from pathlib import Path

    from coldparquet.storage.requests import FetchedRange, RangeRequest

ROWS, COLUMNS = 200, 100
GUESS_BYTES = cp.ReadOptions().sidecar_prefix_bytes
PATH = "bucket/db/2024-03-01"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one partition, of whose sidecar about 1.2 MB lie behind the first guess."""
    root = tmp_path_factory.mktemp("store")
    directory = root / PATH
    directory.mkdir(parents=True)
    times = pa.array(np.arange(ROWS) + 1_709_251_200_000_000, pa.timestamp("us", "UTC"))
    columns = {f"c{number}": pa.array(np.arange(ROWS) * number) for number in range(COLUMNS)}
    table = pa.table({"ts": times, **columns})
    pq.write_table(table, directory / "data.parquet", row_group_size=1, use_dictionary=False)
    asyncio.run(index_table(directory))
    return root


async def sidecar_ranges(root: Path, options: cp.ReadOptions) -> list[str | None]:
    """Ask a question; return which ranges of the sidecar the server was asked for."""
    with ColdStoreServer(root) as server:
        async with cp.open_partition(f"s3://{PATH}", storage_options=server.storage_options, options=options) as table:
            rows = await table.scan(["c7", "c90"], "c1 >= 50 and c1 < 60").to_arrow()
        assert rows.column("c90").to_pylist() == [90 * number for number in range(50, 60)]
        asked = [served.range_header for served in server.requests if served.path.endswith("/_pm")]
    return sorted(asked, key=lambda header: int((header or "").removeprefix("bytes=").partition("-")[0]))


async def test_the_rest_comes_in_parts_side_by_side(root: Path) -> None:
    size_bytes = (root / PATH / "_pm").stat().st_size
    middle = GUESS_BYTES + (size_bytes - GUESS_BYTES) // 2
    assert await sidecar_ranges(root, cp.ReadOptions()) == [
        f"bytes=0-{GUESS_BYTES - 1}",
        f"bytes={GUESS_BYTES}-{middle - 1}",
        f"bytes={middle}-{size_bytes - 1}",
    ]


@pytest.mark.parametrize("options", [cp.ReadOptions(goal="few-requests"), cp.ReadOptions(max_concurrency=1)])
async def test_the_rest_comes_in_one_request_where_that_is_wanted(root: Path, options: cp.ReadOptions) -> None:
    size_bytes = (root / PATH / "_pm").stat().st_size
    assert await sidecar_ranges(root, options) == [
        f"bytes=0-{GUESS_BYTES - 1}",
        f"bytes={GUESS_BYTES}-{size_bytes - 1}",
    ]


class ReplacedMeanwhile(QuotingStore):
    """Replaces the sidecar as soon as the first part of its rest has been answered."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        answer = await super().get(request)
        if answer.start == GUESS_BYTES:
            await self.put(f"{PATH}/_pm", bytes(100), overwrite=True)
        return answer


async def test_parts_of_two_versions_are_never_put_together(root: Path) -> None:
    store = CheckedStore(ReplacedMeanwhile({f"{PATH}/_pm": (root / PATH / "_pm").read_bytes()}))
    with pytest.raises(ObjectChangedError) as caught:
        await look_up_sidecar(store, partition_location(PATH), cp.ReadOptions(), connections=64)
    assert caught.value.path == f"{PATH}/_pm"


async def test_a_damaged_size_costs_no_request_beyond_the_first(root: Path, tmp_path: Path) -> None:
    sidecar = bytearray((root / PATH / "_pm").read_bytes())
    sidecar[:8] = (1 << 30).to_bytes(8, "little")
    (tmp_path / PATH).mkdir(parents=True)
    (tmp_path / PATH / "_pm").write_bytes(sidecar)
    with ColdStoreServer(tmp_path) as server:
        store, _ = open_store(f"s3://{PATH}", storage_options=server.storage_options)
        found = await look_up_sidecar(CheckedStore(store), partition_location(PATH), cp.ReadOptions(), connections=64)
        await store.aclose()
        assert [served.range_header for served in server.requests] == [f"bytes=0-{GUESS_BYTES - 1}"]
    assert found.state == "damaged"
    assert f"the object ends at {len(sidecar)}" in str(found.problem)
