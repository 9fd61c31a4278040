"""Advice about files as pyarrow and QuestDB write them: given where it helps, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.catalog.findings import Finding
from coldparquet.format.page_index import encode_pages_file
from coldparquet.maintenance.file_checks import PartitionCheck, check_partition
from tests.support.paged_files import PagedFile
from tests.support.parquet_footers import parquet_bytes, parsed_footer
from tests.support.questdb_tables import GOLDEN, PARTITIONS, GoldenPartition

ROWS = 100_000


def trades(rows: int = ROWS) -> pa.Table:
    fields: list[pa.Field[Any]] = [
        pa.field("time", pa.timestamp("us"), nullable=False),
        pa.field("price", pa.float64()),
    ]
    time = pa.array(np.arange(rows), pa.timestamp("us"))
    return pa.table([time, pa.array(np.arange(rows) / 7)], schema=pa.schema(fields))


def written(table: pa.Table, **changes: Any) -> bytes:
    options: dict[str, Any] = {
        "compression": "zstd",
        "data_page_size": 100_000,
        "row_group_size": ROWS,
        "sorting_columns": [pq.SortingColumn(0)],
        "use_dictionary": False,
        "write_page_index": True,
    }
    return parquet_bytes(table, **options | changes)


def checked(file: bytes) -> PartitionCheck:
    return check_partition(parsed_footer(file), None, recorded_rows=None, time_range_ns=None, sidecar_remedy="")


def advice(file: bytes) -> list[Finding]:
    return list(checked(file).findings)


def test_nothing_to_say_about_a_good_file() -> None:
    assert advice(written(trades(2 * ROWS))) == []


@pytest.mark.parametrize("page_rows", [1_000, 50_000, 99_999, ROWS])
def test_one_page_per_chunk(page_rows: int) -> None:
    findings = advice(written(trades(2 * ROWS), max_rows_per_page=page_rows, data_page_size=2_000_000))
    if page_rows < ROWS:
        assert findings == []
    else:
        (finding,) = findings
        assert (finding.severity, finding.kind, finding.row_groups) == ("advice", "OnePagePerChunk", (0, 1))


def test_small_row_groups_need_no_pages() -> None:
    assert advice(written(trades(30_000), max_rows_per_page=30_000)) == []


def test_no_page_index() -> None:
    (finding,) = advice(written(trades(ROWS + 10), write_page_index=False))
    assert (finding.severity, finding.kind, finding.row_groups) == ("advice", "NoPageIndex", (0,))


def test_pages_that_are_described_beside_the_file_need_no_index() -> None:
    for page_rows, kinds in ((1_000, []), (ROWS, ["OnePagePerChunk"])):
        options = {"max_rows_per_page": page_rows, "data_page_size": 2_000_000, "write_page_index": False}
        file = PagedFile.of(written(trades(ROWS), **options))
        pages = file.walked().pages
        assert pages is not None
        beside = encode_pages_file(pages, file.places, parquet_size_bytes=len(file.data))
        check = check_partition(
            file.footer,
            file.sidecar,
            recorded_rows=None,
            time_range_ns=None,
            sidecar_remedy="",
            pages_file=beside,
        )
        assert [finding.kind for finding in check.findings] == kinds


def test_small_row_groups() -> None:
    (finding,) = advice(written(trades(30_000), row_group_size=5_000))
    assert (finding.severity, finding.kind) == ("advice", "SmallRowGroups")
    assert finding.message.startswith("6 row groups of 5,000 rows on average, where 1 would do")
    assert advice(written(trades(30_000), row_group_size=25_000)) == []


def test_uncompressed_chunks() -> None:
    (finding,) = advice(written(trades(), compression="none"))
    assert (finding.severity, finding.kind) == ("advice", "Uncompressed")
    assert finding.message == "1.5 MiB of 1.5 MiB are not compressed: price, time"
    assert advice(written(trades(), compression={"time": "none", "price": "zstd"})) == []
    assert advice(written(trades(30_000), compression="none")) == []


def test_statistics_that_are_missing() -> None:
    findings = advice(written(trades(), write_statistics=["time"]))
    assert [(finding.severity, finding.kind, finding.row_groups) for finding in findings] == [
        ("advice", "StatisticsMissing", (0,)),
        ("advice", "StatisticsMissing", (0,)),
    ]
    assert [finding.message.partition(" in ")[0] for finding in findings] == [
        "no min and max of price",
        "no null counts of price",
    ]


def test_a_column_without_values_needs_no_bounds() -> None:
    rows = trades(100).set_column(1, "price", pa.nulls(100, pa.float64()))
    assert advice(written(rows)) == []


def test_an_empty_text_is_no_missing_bound() -> None:
    texts = pa.array(["", "a"] * 50)
    assert advice(written(trades(100).set_column(1, "text", texts))) == []


def test_a_designated_timestamp_without_bounds() -> None:
    (finding,) = advice(written(trades(2 * ROWS), write_statistics=["price"]))
    assert (finding.severity, finding.kind, finding.column) == ("warning", "TimestampBoundsMissing", "time")
    assert finding.row_groups == (0, 1)


def test_no_designated_timestamp() -> None:
    (finding,) = advice(written(trades(), sorting_columns=None))
    assert (finding.severity, finding.kind) == ("advice", "NoDesignatedTimestamp")


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_files_of_questdb_are_sound(partition: GoldenPartition) -> None:
    check = checked((partition.directory / "data.parquet").read_bytes())
    assert check.row_count == partition.row_count
    assert {finding.severity for finding in check.findings} <= {"advice"}
    assert {finding.kind for finding in check.findings} <= {"DeadBytes", "SmallRowGroups"}
    assert 0 <= check.unused_bytes <= check.other_bytes


def test_a_third_of_dead_bytes_is_not_worth_a_rewrite() -> None:
    file = (GOLDEN / "o3_in_place" / "table" / "2024-01-01.2" / "data.parquet").read_bytes()
    check = checked(file)
    assert (len(file), check.unused_bytes, check.other_bytes) == (71_470, 23_845, 26_934)
    assert "DeadBytes" not in {finding.kind for finding in check.findings}


def test_more_dead_bytes_than_there_is_room_for() -> None:
    file = (GOLDEN / "o3_in_place" / "table" / "2024-01-01.2" / "data.parquet").read_bytes()
    wrong = file.replace(b'"unused_bytes":23845', b'"unused_bytes":66666')
    assert wrong != file
    finding = next(finding for finding in checked(wrong).findings if finding.severity == "error")
    assert finding.kind == "UnusedBytesContradicted"
    assert finding.message == "66,666 bytes are noted as dead, but chunks and footer leave only 26,934 unused"
