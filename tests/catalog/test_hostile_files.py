"""Table files and metadata that lie: an error of ours or the right rows, never wrong ones."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.errors import FormatError, NotFoundError, ObjectChangedError, StorageError, UnsupportedError
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import SidecarContent, encode_sidecar
from coldparquet.format.txn import parse_txn
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.records import replace
from coldparquet.storage import urls
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.memory import MemoryStore
from tests.support.parquet_footers import parquet_bytes, parsed_footer
from tests.support.questdb_tables import PARTITIONS, copy_parquet_partitions
from tests.support.table_copies import change_record, contents_of, copy_table, records_of, rewrite_txn

# --- Table files and directories that lie: clear errors, never a row too few or too many, and nothing but our own
# errors


LARGEST = (1 << 63) - 1
LAST_DAY = "2024-03-02"
FIRST_DAY = "2024-02-27"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four partitions in Parquet, and a native one, the last."""
    return copy_table("interval_day", tmp_path)


def change_transaction(table: Path, **changes: Any) -> None:
    rewrite_txn(table, lambda transaction: replace(transaction, **changes))


async def rows_of(table: Path, where: str | None = None) -> int:
    async with cp.open_table(table) as opened:
        return (await opened.scan(where=where).to_arrow()).num_rows


async def test_a_largest_timestamp_at_the_end_of_all_times(table: Path) -> None:
    change_transaction(table, max_timestamp=LARGEST)
    assert await rows_of(table) == 200
    assert await rows_of(table, f"ts >= '{LAST_DAY}'") == 8


async def test_a_largest_timestamp_before_the_last_partition(table: Path) -> None:
    change_transaction(table, min_timestamp=0, max_timestamp=1)
    with pytest.raises(FormatError, match="after the largest timestamp of all rows, 1"):
        await cp.open_table(table)


async def test_two_records_of_one_directory(table: Path) -> None:
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    first, second, *others = records_of(transaction)
    records = [replace(first, timestamp=-100), replace(second, timestamp=0), *others]
    change_transaction(table, partitions=PartitionRecords.of(records))
    with pytest.raises(FormatError, match="both named 1970-01-01, so their rows would be read twice") as caught:
        await cp.open_table(table)
    assert caught.value.path == f"{table}/_txn"


@pytest.fixture
async def misnamed(tmp_path: Path) -> Path:
    """Partitions without table files, of which the first has the name of a time two months later."""
    path = copy_parquet_partitions("interval_day", tmp_path)
    first = min(path.iterdir())
    assert first.name.startswith(FIRST_DAY)
    first.rename(path / "2024-05-01")
    await index_table(path, pages=False, pack=False)
    return path


async def test_questions_about_times_refuse_rows_of_other_times(misnamed: Path) -> None:
    for where in ("ts >= '2024-05-01'", "ts is not null", "price > 0 and ts > '2024-03-01'"):
        with pytest.raises(FormatError, match="2024-02-27T00:00:00Z to 2024-02-27T23:30:00Z, outside of") as caught:
            await rows_of(misnamed, where)
        assert (caught.value.kind, caught.value.path) == ("TimeRangeMismatch", f"{misnamed}/2024-05-01")


async def test_rows_of_other_times_are_read_where_no_partition_was_left_out_by_its_time(misnamed: Path) -> None:
    assert await rows_of(misnamed) == 4 * 48


async def test_a_record_of_other_times_than_the_rows(table: Path) -> None:
    day_us = 86_400_000_000
    change_record(table, lambda first: replace(first, timestamp=first.timestamp - day_us))
    shutil.move(table / f"{FIRST_DAY}.4", table / "2024-02-26.4")
    with pytest.raises(FormatError) as caught:
        await rows_of(table, "ts < '2024-03-01'")
    assert caught.value.kind == "TimeRangeMismatch"


async def test_verify_finds_rows_of_other_times(misnamed: Path) -> None:
    *sound, wrong = (await verify_table(misnamed)).partitions
    assert [partition.findings for partition in sound] == [()] * 3
    kinds = [(finding.severity, finding.kind, finding.column) for finding in wrong.findings]
    assert kinds == [("error", "TimeRangeMismatch", "ts")]


GOOD = {
    name: {f"b/{path}": content for path, (content, _) in contents_of(partition.directory.parent).items()}
    for name, partition in {partition.table: partition for partition in PARTITIONS}.items()
    if name in {"interval_day", "nanos_day", "column_added_after"}
}
OUR_ERRORS = (FormatError, NotFoundError, ObjectChangedError, StorageError, UnsupportedError)
WORDS = st.sampled_from([0, 1, -1, 255, 1 << 31, 1 << 40, 1 << 61, LARGEST, -LARGEST - 1])


@given(
    name=st.sampled_from(sorted(GOOD)),
    file=st.sampled_from(["_txn", "_meta", "_cv"]),
    at=st.integers(0, 90),
    word=WORDS | st.integers(-LARGEST, LARGEST),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_word_of_a_table_file_that_lies(
    name: str, file: str, at: int, word: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldparquet.catalog.table_files._RETRY_DELAYS_S", (0.0,))
    files = dict(GOOD[name])
    content = bytearray(files[f"b/{file}"])
    offset = min(8 * at, len(content) - 8)
    content[offset : offset + 8] = struct.pack("<q", word)
    files[f"b/{file}"] = bytes(content)
    with suppress(*OUR_ERRORS):
        async with cp.open_table("b", store=MemoryStore(files)) as table:
            rows = await table.scan().to_arrow()
            assert rows.num_rows == sum(partition.rows or 0 for partition in table.partitions)
            assert await table.scan(where="ts >= '2024-03-01'").count() <= rows.num_rows


# --- Sidecars whose checksum is right and whose content is not, and URLs with secrets ---------------------------------


ROWS = 1_000


@pytest.fixture(scope="module")
def data() -> bytes:
    numbers, texts = pa.array(range(ROWS), pa.int64()), pa.array(["a", "b"] * (ROWS // 2))
    return parquet_bytes(pa.table({"x": numbers, "text": texts}), row_group_size=ROWS // 4)


@pytest.fixture(scope="module")
def content(data: bytes) -> SidecarContent:
    return sidecar_content_from_footer(parsed_footer(data))


def store_of(data: bytes, content: SidecarContent) -> MemoryStore:
    return MemoryStore({"t/data.parquet": data, "t/_pm": encode_sidecar(content)})


def all_null(content: SidecarContent, row_count: int) -> SidecarContent:
    return replace(
        content,
        row_groups=[
            replace(
                row_group,
                row_count=row_count,
                chunks=[
                    replace(chunk, num_values=row_count, null_count=row_count, min=None, max=None)
                    for chunk in row_group.chunks
                ],
            )
            for row_group in content.row_groups
        ],
    )


async def test_a_billion_nulls_take_no_memory(data: bytes, content: SidecarContent) -> None:
    async with cp.open_table("t", store=store_of(data, all_null(content, 1 << 30))) as table:
        before_bytes = pa.total_allocated_bytes()
        rows = await table.scan().to_arrow()
        assert rows.num_rows == 4 << 30
        assert rows.column("x").slice(1 << 31, 2).to_pylist() == [None, None]
        assert pa.total_allocated_bytes() - before_bytes < 50_000_000


async def test_row_groups_beyond_all_reason_are_refused(data: bytes, content: SidecarContent) -> None:
    async with cp.open_table("t", store=store_of(data, all_null(content, 1 << 40))) as table:
        with pytest.raises(cp.errors.FormatError, match="1,099,511,627,776 rows") as caught:
            await table.scan().to_arrow()
        assert caught.value.details["field"] == "NUM_ROWS"


async def test_a_designated_timestamp_that_is_text_prunes_nothing(data: bytes, content: SidecarContent) -> None:
    lie = replace(content, designated_timestamp=1)
    async with cp.open_table("t", store=store_of(data, lie)) as table:
        assert await table.scan(["x"], "text > 'a'").count() == ROWS // 2


async def test_signatures_in_a_url_are_shown_nowhere(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_store(_url: str, **_options: object) -> tuple[ObjectStore, str]:
        return MemoryStore({"t/data.parquet": data}), "t/data.parquet"

    monkeypatch.setattr("coldparquet.table.open_store", open_store)
    async with cp.open_table("https://user:hunter2@host/t/data.parquet?X-Amz-Signature=hunter2") as table:
        scan = table.scan()
        plan = await scan.plan()
        assert table.url == "https://host/t/data.parquet"
        shown = (repr(table), repr(scan), repr(plan), plan.explain(), json.dumps(plan.as_dict()), pickle.dumps(plan))
        assert not any("hunter2" in str(text) for text in shown)


@pytest.mark.parametrize("url", ["s3://bucket/a?b#c", "/data/a?b#c", "data/a?b#c", "file:///a?b#c"])
def test_urls_without_secrets_are_shown_whole(url: str) -> None:
    assert urls.shown_url(url) == url
