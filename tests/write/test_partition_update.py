"""Updates in place: what they add, what they leave alone, and what they refuse."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.errors import (
    AccessError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.write import WriteOptions, append_rows, replace_row_groups, write_partition
from coldparquet.write.files import LocalFiles, exclusive_lock
from tests.support.written_tables import SECOND_US, assert_same_rows, contents, read_rows, trades

OPTIONS = WriteOptions(row_group_rows=100, page_rows=20)


@pytest.fixture
async def partition(tmp_path: Path) -> Path:
    """Seconds 0 to 249 in three row groups."""
    await write_partition(tmp_path / "1970-01-01.1", trades(0, 250), timestamp="ts", options=OPTIONS)
    return tmp_path / "1970-01-01.1"


async def test_appends_row_groups(partition: Path) -> None:
    updated = await append_rows(partition, trades(250, 150), options=OPTIONS)
    assert (updated.row_count, updated.row_group_count) == (400, 5)
    assert (updated.first_timestamp, updated.last_timestamp) == (0, 399 * SECOND_US)
    assert updated.parquet_size_bytes == (partition / "data.parquet").stat().st_size
    assert updated.sidecar_size_bytes == (partition / "_pm").stat().st_size
    assert_same_rows(await read_rows(partition), pa.concat_tables([trades(0, 250), trades(250, 150)]))
    assert_same_rows(pq.read_table(partition / "data.parquet"), pa.concat_tables([trades(0, 250), trades(250, 150)]))


async def test_appends_a_stream(partition: Path) -> None:
    batches = trades(250, 250).to_batches(max_chunksize=40)
    updated = await append_rows(partition, iter(batches), options=OPTIONS)
    assert updated.row_group_count == 6
    assert_same_rows(await read_rows(partition), pa.concat_tables([trades(0, 250), trades(250, 250)]))


@pytest.mark.parametrize("name", ["data.parquet", "_pm"])
async def test_files_that_lie_elsewhere_are_not_changed(partition: Path, name: str) -> None:
    elsewhere = partition.parent / f"elsewhere-{name}"
    (partition / name).rename(elsewhere)
    (partition / name).symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    with pytest.raises(AccessError) as caught:
        await append_rows(partition, trades(250, 5))
    assert caught.value.kind == "LinkLeadsOutside"
    assert elsewhere.read_bytes() == before


@pytest.mark.parametrize("name", ["data.parquet", "_pm"])
async def test_a_pipe_is_not_waited_for(partition: Path, name: str) -> None:
    (partition / name).unlink()
    os.mkfifo(partition / name)
    with pytest.raises(StorageError, match="pipe"):
        await append_rows(partition, trades(250, 5))


async def test_columns_are_found_by_name(partition: Path) -> None:
    turned = trades(250, 5).select(["venue", "price", "ts", "symbol"])
    await append_rows(partition, turned)
    assert_same_rows(await read_rows(partition), pa.concat_tables([trades(0, 250), trades(250, 5)]))


async def test_replaces_row_groups(partition: Path) -> None:
    before = (partition / "data.parquet").stat().st_size
    new: Mapping[int, pa.Table] = {2: trades(200, 90, venue="okx"), 0: trades(10, 50, venue="okx")}
    updated = await replace_row_groups(partition, new)
    assert (updated.row_count, updated.row_group_count) == (240, 3)
    assert (updated.first_timestamp, updated.last_timestamp) == (10 * SECOND_US, 289 * SECOND_US)
    assert before // 2 < updated.unused_bytes < before
    assert_same_rows(await read_rows(partition), pa.concat_tables([new[0], trades(100, 100), new[2]]))
    assert parse_sidecar((partition / "_pm").read_bytes()).footer.unused_bytes == updated.unused_bytes


async def test_nothing_that_was_committed_changes(partition: Path) -> None:
    data, sidecar = (partition / "data.parquet").read_bytes(), (partition / "_pm").read_bytes()
    await append_rows(partition, trades(250, 10))
    await replace_row_groups(partition, {1: trades(100, 100, venue="okx")})
    assert (partition / "data.parquet").read_bytes().startswith(data)
    assert (partition / "_pm").read_bytes()[8:].startswith(sidecar[8:])
    older = parse_sidecar((partition / "_pm").read_bytes(), parquet_size_bytes=len(data))
    assert older.total_rows == 250


async def test_equal_timestamps_may_follow(partition: Path) -> None:
    await append_rows(partition, trades(249, 2))
    assert (await read_rows(partition)).num_rows == 252


NO_ROWS = trades(0, 1).slice(1)
REFUSED: list[tuple[Any, str, str]] = [
    (trades(248, 3), "NotSorted", r"row 0 is out of order: its timestamp 248000000 lies before 249000000"),
    (pa.concat_tables([trades(250, 3), trades(251, 1)]), "NotSorted", r"row 3 .* of row 2; sort the rows"),
    ({1: trades(98, 5)}, "NotSorted", r"row 0 .* 98000000 lies before 99000000"),
    ({1: trades(150, 60)}, "NotSorted", r"row 59 .* 209000000 lies behind 200000000 of the next row group"),
    ({0: trades(50, 100), 1: trades(120, 50)}, "NotSorted", r"row 0 .* 120000000 lies before 149000000"),
    ({-1: trades(0, 1)}, "UnknownRowGroup", "there are 0 to 2"),
    ({3: trades(0, 1)}, "UnknownRowGroup", "there are 0 to 2"),
    (trades(250, 1).drop(["venue"]), "SchemaMismatch", "must be the same"),
    (NO_ROWS, "NoRows", "no rows"),
    ([], "NoRows", "no rows"),
    ({0: NO_ROWS}, "NoRows", "no rows"),
    ({0: []}, "NoRows", "no rows"),
]
"""Rows to append, or by row group those to replace it."""


@pytest.mark.parametrize(("rows", "kind", "message"), REFUSED)
async def test_what_is_refused_leaves_no_trace(rows: Any, kind: str, message: str, partition: Path) -> None:
    before = contents(partition)
    with pytest.raises(InvalidInputError, match=message) as caught:
        await (replace_row_groups if isinstance(rows, dict) else append_rows)(partition, rows)
    assert caught.value.kind == kind
    assert contents(partition) == before


async def test_a_stream_that_fails_leaves_no_trace(partition: Path) -> None:
    before = (partition / "data.parquet").read_bytes()
    rows = [*trades(250, 300).to_batches(), *trades(0, 1).to_batches()]
    with pytest.raises(InvalidInputError, match="row 300 is out of order"):
        await append_rows(partition, rows, options=OPTIONS)
    assert (partition / "data.parquet").read_bytes() == before


async def test_several_row_groups_replaced_at_once_keep_their_order(partition: Path) -> None:
    await replace_row_groups(partition, {0: trades(0, 150), 1: trades(150, 50), 2: trades(200, 50)})
    assert_same_rows(await read_rows(partition), trades(0, 250))


async def test_one_writer_at_a_time(partition: Path) -> None:
    with exclusive_lock(str(partition)), pytest.raises(InvalidInputError, match="another writer") as caught:
        await append_rows(partition, trades(250, 1))
    assert caught.value.kind == "PartitionLocked"
    await append_rows(partition, trades(250, 1))


async def test_no_partition(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        await append_rows(tmp_path / "1970-01-01", trades(0, 1))
    (tmp_path / "1970-01-01").mkdir()
    with pytest.raises(NotFoundError):
        await append_rows(tmp_path / "1970-01-01", trades(0, 1))


async def test_a_sidecar_is_made_first_where_there_is_none(partition: Path) -> None:
    (partition / "_pm").unlink()
    (partition / "._pm.coldparquet").write_bytes(b"left by an update that was cut off")
    before = (partition / "data.parquet").stat().st_size
    await append_rows(partition, trades(250, 10))
    sidecar = (partition / "_pm").read_bytes()
    assert parse_sidecar(sidecar, parquet_size_bytes=before).total_rows == 250
    assert parse_sidecar(sidecar).total_rows == 260
    assert list(contents(partition)) == ["_pm", "data.parquet"]


async def test_starts_from_the_size_that_the_transaction_states(partition: Path) -> None:
    committed = (partition / "data.parquet").stat().st_size
    await append_rows(partition, trades(250, 10, venue="never committed"))
    updated = await append_rows(partition, trades(250, 5), committed_parquet_bytes=committed)
    assert updated.row_count == 255
    assert_same_rows(await read_rows(partition), pa.concat_tables([trades(0, 250), trades(250, 5)]))
    sidecar = parse_sidecar((partition / "_pm").read_bytes())
    assert [footer.parquet_size_bytes for footer in sidecar.chain()] == [updated.parquet_size_bytes, committed]


async def test_a_file_shorter_than_its_sidecar_says(partition: Path) -> None:
    size = (partition / "data.parquet").stat().st_size
    os.truncate(partition / "data.parquet", size - 1)
    with pytest.raises(FormatError, match="its sidecar describes") as caught:
        await append_rows(partition, trades(250, 1))
    assert caught.value.kind == "Truncated"


@pytest.mark.parametrize("content", [b"", b"PAR1" + bytes(100), b"PAR1" + bytes(8) + b"\xff\xff\xff\x7fPAR1"])
async def test_a_damaged_file_without_sidecar_is_a_format_error(partition: Path, content: bytes) -> None:
    (partition / "_pm").unlink()
    (partition / "data.parquet").write_bytes(content)
    with pytest.raises(FormatError):
        await append_rows(partition, trades(250, 1))
    assert contents(partition) == {"data.parquet": content}


class FullDisk(LocalFiles):
    """Has no room for one file."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        if path.endswith(self._name):
            raise StorageError("No space left on device", path=path)
        super().write_at(path, offset, data)


@pytest.mark.parametrize("name", ["data.parquet", "_pm"])
async def test_a_full_disk_leaves_the_partition_as_it_was(partition: Path, name: str) -> None:
    before = contents(partition)
    with pytest.raises(StorageError, match="No space"):
        await append_rows(partition, trades(250, 150), files=FullDisk(name))
    assert contents(partition) == before


async def test_foreign_files_are_updated_too(tmp_path: Path) -> None:
    fields: list[Any] = [
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("small", pa.uint8()),
        pa.field("day", pa.date32()),
        pa.field("money", pa.decimal128(7, 2)),
        pa.field("text", pa.string(), nullable=False),
    ]
    columns: list[list[Any]] = [[SECOND_US, 2 * SECOND_US], [1, None], [3, None], [1, 2], ["a", "b"]]
    rows = pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)], schema=pa.schema(fields)
    )
    directory = tmp_path / "1970-01-01"
    directory.mkdir()
    pq.write_table(rows, directory / "data.parquet", sorting_columns=[pq.SortingColumn(0)])
    late = rows.slice(1)
    await append_rows(directory, late)
    assert_same_rows(pq.read_table(directory / "data.parquet"), pa.concat_tables([rows, late]))
    assert_same_rows(await read_rows(directory), pa.concat_tables([rows, late]))


async def test_what_cannot_be_updated_is_named(tmp_path: Path) -> None:
    rows = pa.table({"v": [1, 2], "items": [[1.0], [2.0]]})
    pq.write_table(rows, tmp_path / "data.parquet")
    with pytest.raises(UnsupportedError, match="'items' cannot be updated in place"):
        await append_rows(tmp_path, rows)
    pq.write_table(
        rows.select(["v"]), tmp_path / "data.parquet", sorting_columns=[pq.SortingColumn(0, descending=True)]
    )
    (tmp_path / "_pm").unlink()
    with pytest.raises(UnsupportedError, match="sorted otherwise"):
        await append_rows(tmp_path, rows.select(["v"]))
