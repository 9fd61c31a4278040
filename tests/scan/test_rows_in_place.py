"""Large row groups that one answer brings as a whole are decoded where they lie, without a copy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.options import MIB
from coldparquet.plan.model import PlannedRequest
from coldparquet.plan.requests import Placements
from coldparquet.ranges import ByteRange
from coldparquet.scan import arriving
from coldparquet.scan.arriving import PartitionFetches
from coldparquet.scan.memory import Lease, Quota
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.simulator.faults import FaultRule

ROW_GROUPS, ROW_GROUP_ROWS = 3, 50_000
EACH_ALONE = cp.ReadOptions(max_request_bytes=1_800_000)
ALL_AT_ONCE = cp.ReadOptions(max_request_bytes=64 * 1024 * 1024)
CUT = FaultRule("cut-body", path="*data.parquet", times=1)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    generator = np.random.default_rng(11)
    count = ROW_GROUPS * ROW_GROUP_ROWS
    return pa.table(
        {
            "id": np.arange(count),
            "price": generator.random(count),
            "venue": pa.array(np.array(["XETR", "XNAS", "XLON"])[generator.integers(0, 3, count)]),
            "size": generator.integers(0, 2**62, count),
        }
    )


@pytest.fixture
async def bucket(tmp_path: Path, rows: pa.Table) -> Path:
    directory = tmp_path / "bucket" / "day"
    directory.mkdir(parents=True)
    pq.write_table(
        rows, directory / "data.parquet", row_group_size=ROW_GROUP_ROWS, compression="none", use_dictionary=False
    )
    await index_table(directory, pages=False, pack=False)
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the methods that made the memory of row groups."""
    names: list[str] = []

    def note(name: str) -> None:
        method = getattr(arriving, name)

        def noted(*arguments: Any) -> Any:
            names.append(name)
            return method(*arguments)

        monkeypatch.setattr(arriving, name, noted)

    note("new_buffer")
    note("row_group_in_place")
    return names


async def scan(
    bucket: Path,
    options: cp.ReadOptions,
    *,
    columns: list[str] | None = None,
    where: str | None = None,
    store: ColdStoreOptions | None = None,
) -> tuple[pa.Table, int]:
    """Return the rows, and how many GETs of the Parquet file brought them."""
    with ColdStoreServer(bucket, store or ColdStoreOptions()) as server:
        async with cp.open_partition("s3://bucket/day", storage_options=server.storage_options) as table:
            found = await table.scan(columns, where, options=options).to_arrow()
        gets = [one for one in server.requests if one.operation == "GetObject" and one.path.endswith("data.parquet")]
        return found, len(gets)


def same(found: pa.Table, expected: pa.Table) -> bool:
    return bool(found.cast(expected.schema).equals(expected))


async def test_each_row_group_is_a_request_of_its_own(bucket: Path, rows: pa.Table, made: list[str]) -> None:
    found, requests = await scan(bucket, EACH_ALONE)
    assert same(found, rows)
    assert requests == ROW_GROUPS
    assert made == ["row_group_in_place"] * ROW_GROUPS


async def test_one_answer_serves_several_row_groups(bucket: Path, rows: pa.Table, made: list[str]) -> None:
    found, requests = await scan(bucket, ALL_AT_ONCE)
    assert same(found, rows)
    assert requests == 1
    assert made == ["row_group_in_place"] * ROW_GROUPS


async def test_a_filter_sees_the_same_rows(bucket: Path, rows: pa.Table) -> None:
    found, _ = await scan(bucket, EACH_ALONE, where="price < 0.001 and venue = 'XNAS'")
    expected = rows.filter((pc.field("price") < 0.001) & (pc.field("venue") == "XNAS"))
    assert same(found, expected)


async def test_columns_with_wide_gaps_between_them_are_copied(bucket: Path, rows: pa.Table, made: list[str]) -> None:
    found, _ = await scan(bucket, ALL_AT_ONCE, columns=["id", "size"])
    assert same(found, rows.select(["id", "size"]))
    assert set(made) == {"new_buffer"}


async def test_an_error_while_bytes_are_placed_reaches_the_reader(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_read: Any) -> None:
        raise UnsupportedError("compressed with LZO", kind="UnsupportedCodec")

    monkeypatch.setattr(arriving, "new_buffer", refuse)
    with pytest.raises(UnsupportedError) as caught:
        await scan(bucket, ALL_AT_ONCE, columns=["id", "size"])
    assert caught.value.kind == "UnsupportedCodec"


async def test_a_body_that_breaks_off_is_completed(bucket: Path, rows: pa.Table, made: list[str]) -> None:
    found, requests = await scan(bucket, EACH_ALONE, store=ColdStoreOptions(faults=(CUT,)))
    assert same(found, rows)
    assert requests == ROW_GROUPS + 1
    assert made == ["row_group_in_place"] * ROW_GROUPS


async def test_damaged_pages_name_row_group_and_column(bucket: Path) -> None:
    path = bucket / "bucket" / "day" / "data.parquet"
    chunk = pq.read_metadata(path).row_group(2).column(1)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(FormatError, match="row group 2, column 'price': the pages do not decode"):
        await scan(bucket, EACH_ALONE)


def places_of(reads: list[Any], _requests: Any) -> Placements:
    """Let every read have 1 MiB."""
    each = np.arange(len(reads))
    return Placements(
        row_group_read=each,
        source_offset=each * MIB,
        destination_offset=each,
        length_bytes=np.full(len(reads), MIB),
        first_of_request=np.array([0, len(reads)]),
    )


async def test_a_shared_answer_counts_once_until_the_last_row_group_has_done_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arriving, "place", places_of)
    monkeypatch.setattr(arriving, "stays_in_place", lambda _read: True)
    monkeypatch.setattr(arriving, "row_group_in_place", lambda *arguments: arguments)
    answer, room = bytes(3 * MIB), Quota(3 * MIB)
    reads: list[Any] = ["first", "second", "dropped"]
    request = PlannedRequest(
        partition_index=0, path="day/data.parquet", byte_range=ByteRange(50, 50 + 3 * MIB), reason="row groups"
    )
    fetches = PartitionFetches([request], reads, room)
    first, [fetch] = fetches.join(0, Lease(room, rank=0))  # the rank of the others has not come
    fetch.distribute(answer)
    await first.complete()
    buffer: Any = first.take_buffer()
    assert buffer == ("first", answer, 50)
    assert room.most_held == len(answer)
    first.drop()
    second, new = fetches.join(1, Lease(room, rank=1))
    assert new == []
    await second.complete()
    buffer = second.take_buffer()
    assert buffer == ("second", answer, 50)
    fetches.leave_out(2)
    later = asyncio.create_task(room.take(3 * MIB, rank=9))
    await asyncio.sleep(0)
    assert not later.done()
    second.drop()
    await later
    assert room.most_held == len(answer)
