"""``verify_table(deep=True)``: every byte is read, and what is claimed of the values is compared with them."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.catalog.findings import Finding
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.maintenance import deep_check
from coldparquet.maintenance.deep_check import check_values
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.records import replace
from coldparquet.storage.log import TraceStore
from coldparquet.storage.requests import ObjectInfo, StoredChecksum
from tests.support.archive_store import ArchiveStore
from tests.support.blooms import file_with_blooms
from tests.support.parquet_footers import parquet_bytes
from tests.support.table_copies import copy_table

ROWS, GROUP_ROWS = 4_000, 1_000
PATH = "day/data.parquet"
START_US = 1_709_251_200_000_000


def make_file(*, page_checksums: bool = False) -> bytes:
    """Uncompressed pages of plain values, so that tests can change single ones: a timestamp, a number, a text with nulls."""
    ts = START_US + np.arange(ROWS) * 1_000_000
    table = pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "n": np.arange(ROWS) * 10,
            "s": pa.array([None if row % 7 == 0 else f"text {row:04}" for row in range(ROWS)]),
        }
    )
    table = table.set_column(0, pa.field("ts", table.schema.field("ts").type, nullable=False), table.column("ts"))
    return parquet_bytes(
        table,
        row_group_size=GROUP_ROWS,
        compression="none",
        use_dictionary=False,
        data_page_size=2_048,
        write_batch_size=256,
        write_page_checksum=page_checksums,
        sorting_columns=[pq.SortingColumn(0)],
    )


def with_number(data: bytes, old: int, new: int) -> bytes:
    """Write another 64-bit number over the first one of a page that has this value; its statistics are left as they were."""
    before = old.to_bytes(8, "little", signed=True)
    # In the page it stands between its neighbours; statistics hold it alone.
    neighbours = (
        before + (old + 10).to_bytes(8, "little") if old < 10**9 else before + (old + 1_000_000).to_bytes(8, "little")
    )
    place = data.index(neighbours)
    return data[:place] + new.to_bytes(8, "little", signed=True) + data[place + 8 :]


async def store_of(data: bytes, *, pages: bool = False, damaged: bytes | None = None) -> ArchiveStore:
    """A partition with the sidecar of ``data``, whose Parquet file has since become ``damaged``."""
    store = ArchiveStore()
    await store.put(PATH, data, overwrite=False)
    await index_table("day", store=store, pages=pages, pack=False)
    if damaged is not None:
        assert len(damaged) == len(data)
        await store.put(PATH, damaged, overwrite=True)
    return store


async def errors_of(store: ArchiveStore) -> list[Finding]:
    shallow = await verify_table("day", store=store)
    assert shallow.count("error") == 0, "metadata alone does not tell"
    report = await verify_table("day", store=store, deep=True)
    [partition] = report.partitions
    return [finding for finding in partition.findings if finding.severity == "error"]


@pytest.mark.parametrize("name", ["types_all_groups", "pages", "codecs", "o3_in_place", "column_added_after", "bloom"])
async def test_nothing_is_wrong_with_what_questdb_wrote(name: str, tmp_path: Path) -> None:
    table = copy_table(name, tmp_path)
    report = await verify_table(table, deep=True)
    assert report.count("error") == 0
    parquet = [partition for partition in report.partitions if partition.format == "parquet"]
    assert parquet
    assert [partition.read_bytes for partition in parquet] == [
        (table / partition.name / "data.parquet").stat().st_size for partition in parquet
    ]


async def test_a_sound_file_with_pages_and_page_checksums() -> None:
    assert await errors_of(await store_of(make_file(page_checksums=True), pages=True)) == []


async def test_a_page_that_does_not_match_its_checksum() -> None:
    data = make_file(page_checksums=True)
    [found] = await errors_of(await store_of(data, damaged=with_number(data, 15_000, 15_001)))
    assert (found.column, found.row_groups) == ("n", (1,))
    assert "could not verify page integrity" in found.message


@pytest.mark.parametrize(
    ("new", "field", "message"), [(-1, "MIN", "below the minimum"), (1 << 40, "MAX", "above the max")]
)
async def test_a_value_outside_of_its_bounds(new: int, field: str, message: str) -> None:
    data = make_file()
    [found] = await errors_of(await store_of(data, damaged=with_number(data, 15_000, new)))
    assert (found.kind, found.column, found.row_groups, found.field) == ("StatisticsMismatch", "n", (1,), field)
    assert message in found.message
    assert "readers may miss rows" in (found.remedy or "")


async def test_a_minimum_that_no_value_has() -> None:
    data = make_file()
    [found] = await errors_of(await store_of(data, damaged=with_number(data, 10_000, 10_001)))
    assert (found.kind, found.field) == ("StatisticsMismatch", "MIN")
    assert "marked as exact, and no value has it" in found.message


async def test_a_value_outside_of_the_bounds_of_its_page_only() -> None:
    data = make_file()
    damaged = with_number(data, 11_000, 19_000)
    assert await errors_of(await store_of(data, damaged=damaged)) == [], "its row group has such values"
    [found] = await errors_of(await store_of(data, pages=True, damaged=damaged))
    assert (found.kind, found.row_groups) == ("StatisticsMismatch", (1,))
    assert "above the maximum of _pages" in found.message


async def test_timestamps_that_go_back() -> None:
    data = make_file()
    damaged = with_number(data, START_US + 1_500_000_000, START_US + 1_400_000_000)
    [found] = await errors_of(await store_of(data, damaged=damaged))
    assert (found.kind, found.column, found.row_groups) == ("UnsortedTimestamps", "ts", (1,))


class ChecksumStore(ArchiveStore):
    """Keeps a checksum of each object; of ``claimed`` instead, if it is given."""

    claimed: bytes | None = None

    async def info(self, path: str) -> ObjectInfo:
        found = await super().info(path)
        data = self._object(path).data if self.claimed is None else self.claimed
        return replace(found, checksum=StoredChecksum(value=zlib.crc32(data)))


async def test_the_checksum_of_the_object_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep_check, "_PIECE_BYTES", 10_000)
    data, store = make_file(), ChecksumStore()
    await store.put(PATH, data, overwrite=False)
    await index_table("day", store=store, pages=False, pack=False)
    trace = TraceStore(store)
    report = await verify_table("day", store=trace, deep=True)
    [partition] = report.partitions
    assert (partition.checksum, partition.read_bytes, report.count("error")) == ("CRC32", len(data), 0)
    pieces = [record.byte_range for record in trace.records if record.reason == "every byte"]
    assert sum(piece.length_bytes for piece in pieces if piece is not None) == len(data)
    assert len(pieces) == -(-len(data) // 10_000)
    store.claimed = data[:-1] + b"x"
    report = await verify_table("day", store=store, deep=True)
    [finding] = [finding for finding in report.partitions[0].findings if finding.severity == "error"]
    assert finding.kind == "ChecksumMismatch"
    assert report.partitions[0].checksum is None


async def test_archived_objects_are_not_read_and_that_is_said() -> None:
    store = await store_of(make_file())
    store.archive(PATH)
    report = await verify_table("day", store=store, deep=True)
    [finding] = [finding for finding in report.partitions[0].findings if finding.kind == "ObjectArchived"]
    assert finding.severity == "warning"
    assert finding.remedy == "'coldparquet restore', then verify again"
    assert report.partitions[0].read_bytes is None


@pytest.mark.parametrize(("claimed", "message"), [(0, "NULLs where none is"), (144, "143 rows are NULL, 144 by")])
def test_null_counts_are_compared(claimed: int, message: str) -> None:
    data = make_file()
    footer_start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    content = sidecar_content_from_footer(parse_footer(data[footer_start:-8], path=PATH, offset=footer_start))
    chunks = list(content.row_groups[1].chunks)
    chunks[2] = replace(chunks[2], null_count=claimed)
    row_groups = [*content.row_groups]
    row_groups[1] = replace(row_groups[1], chunks=chunks)
    sidecar = parse_sidecar(encode_sidecar(replace(content, row_groups=row_groups)), path=PATH)
    findings = check_values(sidecar, (), lambda start, length: data[start : start + length], path=PATH)
    assert {(finding.column, finding.row_groups, finding.field) for finding in findings} == {("s", (1,), "NULL_COUNT")}
    assert message in " ".join(finding.message for finding in findings)


@pytest.mark.parametrize("has_sidecar", [True, False])
async def test_a_bloom_filter_that_denies_a_value(has_sidecar: bool) -> None:
    table = pa.table({"n": np.arange(ROWS) * 10, "s": [f"text {row}" for row in range(ROWS)]})
    data = file_with_blooms(table, row_group_rows=GROUP_ROWS, compression="none", use_dictionary=False)
    for damaged in (None, with_number(data, 15_000, 15_003)):
        store = ArchiveStore()
        await store.put(PATH, data, overwrite=False)
        if has_sidecar:
            await index_table("day", store=store, pages=False, pack=False)
        if damaged is not None:
            await store.put(PATH, damaged, overwrite=True)
        errors = await errors_of(store)
        assert [(found.kind, found.column, found.row_groups) for found in errors] == (
            [] if damaged is None else [("BloomMismatch", "n", (1,))]
        )
