"""Table files and directories that lie: clear errors, never a row too few or too many, and nothing but our own errors."""

from __future__ import annotations

import shutil
import struct
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.errors import FormatError, NotFoundError, ObjectChangedError, StorageError, UnsupportedError
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.format.txn import encode_txn, parse_txn
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.storage.memory import MemoryStore
from tests.support.questdb_tables import PARTITIONS, copy_parquet_partitions
from tests.support.table_copies import contents_of, copy_table

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = (1 << 63) - 1
LAST_DAY = "2024-03-02"
FIRST_DAY = "2024-02-27"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four partitions in Parquet, and a native one, the last."""
    return copy_table("interval_day", tmp_path)


def change_transaction(table: Path, **changes: Any) -> None:
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    (table / "_txn").write_bytes(encode_txn(replace(transaction, **changes)))


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
    first, second, *others = [transaction.partitions.record(index) for index in range(5)]
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
    await index_table(path)
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
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    first, *others = [transaction.partitions.record(index) for index in range(5)]
    change_transaction(
        table, partitions=PartitionRecords.of([replace(first, timestamp=first.timestamp - day_us), *others])
    )
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
