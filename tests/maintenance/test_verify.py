"""Verifying tables: sound ones are clean, and every kind of damage is found, named and told apart from the rest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.catalog.findings import Finding
from coldparquet.errors import AccessError, FormatError, InvalidInputError, NotFoundError
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.migrate import migrate_table
from coldparquet.maintenance.partition_check import VerifiedPartition
from coldparquet.maintenance.verify import VerifyReport, verify_table
from coldparquet.options import ReadOptions
from coldparquet.records import replace
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import Listing
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet.write.update import append_rows, replace_row_groups
from tests.support.questdb_tables import PARTITIONS, copy_parquet_partitions
from tests.support.table_copies import (
    add_snapshot,
    change_record,
    contents_of,
    copy_table,
    sidecar_content,
    write_sidecar,
)

TABLES = sorted({partition.table for partition in PARTITIONS})
LAYOUT_ADVICE = {"DeadBytes", "SmallRowGroups"}


def _sound() -> dict[str, bytes]:
    """Two Parquet partitions with the sidecars that belong to them, as objects."""
    objects = {}
    for partition in [partition for partition in PARTITIONS if partition.table == "interval_day"][:2]:
        path = f"days/{partition.directory.name}"
        objects[f"{path}/data.parquet"] = (partition.directory / "data.parquet").read_bytes()
        objects[f"{path}/_pm"] = encode_sidecar(sidecar_content(partition.directory))
    return objects


SOUND = _sound()


def found(report: VerifyReport) -> list[tuple[str, Finding]]:
    """All findings with the name of their partition, but for advice about the layout."""
    return [("", finding) for finding in report.findings] + [
        (partition.name, finding)
        for partition in report.partitions
        for finding in partition.findings
        if finding.kind not in LAYOUT_ADVICE
    ]


async def only_finding(table: Path) -> Finding:
    """The only thing that is wrong, in the first partition."""
    report = await verify_table(table)
    ((name, finding),) = found(report)
    assert name == report.partitions[0].name
    return finding


@pytest.fixture
async def days(tmp_path: Path) -> Path:
    """A whole QuestDB table of four Parquet partitions and a native one, with sidecars."""
    table = copy_table("interval_day", tmp_path)
    await migrate_table(table)
    return table


@pytest.fixture
async def files(tmp_path: Path) -> Path:
    """The same Parquet partitions with sidecars, without the table's files."""
    table = copy_parquet_partitions("interval_day", tmp_path)
    await index_table(table, pages=False, pack=False)
    return table


def parquet_partitions(table: Path) -> list[Path]:
    """Directories of the Parquet partitions, oldest first."""
    return sorted(path.parent for path in table.glob("*/data.parquet"))


def first(table: Path) -> Path:
    return parquet_partitions(table)[0]


@pytest.mark.parametrize("name", TABLES)
async def test_tables_of_questdb_are_clean_once_they_have_sidecars(tmp_path: Path, name: str) -> None:
    table = copy_table(name, tmp_path)
    before = await verify_table(table)
    assert {finding.kind for place, finding in found(before) if place} == {"NoSidecar"}
    await migrate_table(table)
    files_before = contents_of(table)
    report = await verify_table(table)
    assert contents_of(table) == files_before
    assert [finding for place, finding in found(report) if place] == []
    assert report.count("error") == report.count("warning") == 0
    expected = {partition.name: partition.row_count for partition in PARTITIONS if partition.table == name}
    parquet = [partition for partition in report.partitions if partition.format == "parquet"]
    assert {partition.name.partition(".")[0]: partition.rows for partition in parquet} == expected
    assert {partition.sidecar for partition in parquet} == {"present"}


@pytest.mark.parametrize("bloom_columns", [(), ("text",)])
async def test_partitions_of_our_own_are_clean(tmp_path: Path, bloom_columns: tuple[str, ...]) -> None:
    def rows(first_ms: int) -> pa.Table:
        times = pa.array(range(first_ms * 1000, (first_ms + 300) * 1000, 1000), pa.timestamp("us"))
        return pa.table({"ts": times, "text": [f"a text that is long enough {n}" for n in range(300)]})

    partition, options = tmp_path / "1970-01-01", WriteOptions(row_group_rows=200, bloom_columns=bloom_columns)
    await write_partition(partition, rows(0), timestamp="ts", options=options)
    await append_rows(partition, rows(300), options=options)
    await replace_row_groups(partition, {0: rows(0).slice(0, 200)}, options=options)
    report = await verify_table(tmp_path)
    assert found(report) == []
    assert (report.partitions[0].rows, report.partitions[0].sidecar) == (600, "present")


async def test_dead_bytes_are_reported_as_soon_as_compaction_would_remove_them(tmp_path: Path) -> None:
    times = pa.array(range(0, 4_000_000, 1000), pa.timestamp("us"))
    rows, partition = pa.table({"ts": times, "number": range(4000)}), tmp_path / "1970-01-01"
    await write_partition(partition, rows, timestamp="ts")
    kinds = []
    for _ in range(3):
        await replace_row_groups(partition, {0: rows})
        (checked,) = (await verify_table(tmp_path)).partitions
        share = (checked.unused_bytes or 0) / (checked.parquet_size_bytes or 1)
        kinds.append((share > 0.5, [finding.kind for finding in checked.findings]))
    assert kinds == [(False, []), (True, ["DeadBytes"]), (True, ["DeadBytes"])]
    assert checked.findings[0].remedy == "'coldparquet compact' writes the partition anew without them"


@pytest.mark.parametrize("snapshot", ["0_converted", "1_one_late_row"])
async def test_files_that_have_grown_since_the_transaction(tmp_path: Path, snapshot: str) -> None:
    table = copy_table("o3_in_place", tmp_path, snapshot=snapshot)
    await migrate_table(table)
    report = await verify_table(table)
    assert report.count("error") == report.count("warning") == 0
    grown = report.partitions[0]
    assert {finding.kind for finding in grown.findings} - LAYOUT_ADVICE == {"UncommittedBytes"}
    file_bytes = (table / grown.name / "data.parquet").stat().st_size
    assert grown.parquet_size_bytes is not None
    assert f"goes on for {file_bytes - grown.parquet_size_bytes:,} bytes" in grown.findings[0].message


async def test_a_sidecar_that_contradicts_the_footer(days: Path) -> None:
    content = sidecar_content(first(days))
    group = content.row_groups[0]
    moved = replace(group.chunks[1], byte_range_start=group.chunks[1].byte_range_start + 1)
    write_sidecar(first(days), row_groups=[replace(group, chunks=[group.chunks[0], moved, *group.chunks[2:]])])
    finding = await only_finding(days)
    assert (finding.severity, finding.kind, finding.field) == ("error", "SidecarDiffers", "byte_range_start")
    assert (finding.column, finding.row_groups) == (content.columns[1].name, (0,))
    assert finding.remedy == "'coldparquet migrate --force' writes the sidecar anew"


async def test_a_flipped_byte_in_a_sidecar(days: Path) -> None:
    sidecar = bytearray((first(days) / "_pm").read_bytes())
    sidecar[200] ^= 1
    (first(days) / "_pm").write_bytes(sidecar)
    finding = await only_finding(days)
    assert (finding.severity, finding.kind) == ("error", "ChecksumMismatch")
    assert finding.message.startswith("_pm: CRC-32 of the snapshot")


async def test_a_damaged_older_snapshot(days: Path) -> None:
    add_snapshot(first(days), with_damaged_history=False)
    assert found(await verify_table(days)) == []
    add_snapshot(first(days), with_damaged_history=True)
    size_bytes = len(encode_sidecar(sidecar_content(first(days))))
    finding = await only_finding(days)
    assert (finding.severity, finding.kind) == ("error", "ChecksumMismatch")
    assert f"CRC-32 of the snapshot of {size_bytes} bytes" in finding.message


async def test_a_sidecar_of_another_size_than_the_transaction(days: Path) -> None:
    write_sidecar(first(days), parquet_footer_offset=sidecar_content(first(days)).parquet_footer_offset - 1)
    finding = await only_finding(days)
    assert (finding.severity, finding.kind) == ("error", "StaleSidecar")
    assert "none of the 1 snapshots in the sidecar describes a Parquet file of" in finding.message


async def test_a_missing_sidecar(days: Path) -> None:
    (first(days) / "_pm").unlink()
    finding = await only_finding(days)
    assert (finding.severity, finding.kind) == ("warning", "NoSidecar")
    assert finding.remedy == "'coldparquet migrate' writes it"


async def test_a_missing_sidecar_without_transaction(files: Path) -> None:
    (first(files) / "_pm").unlink()
    assert (await only_finding(files)).remedy == "'coldparquet index' writes it"


async def test_a_file_that_was_rewritten_and_its_sidecar_not(files: Path) -> None:
    one, other = parquet_partitions(files)[:2]
    shutil.copyfile(other / "data.parquet", one / "data.parquet")
    stale, misplaced = [finding for name, finding in found(await verify_table(files)) if name == one.name]
    assert (stale.severity, stale.kind) == ("error", "StaleSidecar")
    assert "but data.parquet has 4,010" in stale.message
    assert stale.remedy == "'coldparquet index --force' writes the sidecar anew"
    assert (misplaced.severity, misplaced.kind) == ("error", "TimeRangeMismatch")


async def test_a_file_that_was_replaced_by_another_of_the_same_size(files: Path) -> None:
    data = first(files) / "data.parquet"
    data.write_bytes(data.read_bytes().replace(b"2024", b"2025"))
    content = sidecar_content(first(files))
    groups = [replace(group, row_count=group.row_count + 1) for group in content.row_groups]
    write_sidecar(first(files), row_groups=groups)
    assert (await only_finding(files)).field == "num_rows"


async def test_bytes_behind_what_the_sidecar_describes(files: Path) -> None:
    with (first(files) / "data.parquet").open("ab") as file:
        file.write(b"more")
    finding = await only_finding(files)
    assert (finding.severity, finding.kind) == ("warning", "UncommittedBytes")
    assert "goes on for 4 bytes behind the 4,194 that its sidecar describes" in finding.message


@pytest.mark.parametrize("size", [0, 3, 100, 4193])
async def test_data_that_is_shorter_than_committed(days: Path, size: int) -> None:
    os.truncate(first(days) / "data.parquet", size)
    finding = await only_finding(days)
    assert (finding.severity, finding.kind) == ("error", "DataTooShort")
    assert f"it has {size:,} bytes, but the table's _txn commits 4,194 of it" in finding.message


async def test_a_damaged_footer(days: Path) -> None:
    data = bytearray((first(days) / "data.parquet").read_bytes())
    data[-500:-8] = bytes(492)
    (first(days) / "data.parquet").write_bytes(data)
    finding = await only_finding(days)
    assert finding.severity == "error"
    assert finding.message.startswith("data.parquet: ")


async def test_missing_data(days: Path) -> None:
    (first(days) / "data.parquet").unlink()
    finding = await only_finding(days)
    assert (finding.severity, finding.kind) == ("error", "DataMissing")
    assert finding.message == "there is no data.parquet, although _txn counts its rows"


async def test_missing_data_without_transaction(files: Path) -> None:
    one = first(files)
    (one / "data.parquet").unlink()
    finding = await only_finding(files)
    assert finding.message == "there is no data.parquet, although its sidecar describes it"
    (one / "_pm").unlink()
    finding = await only_finding(files)
    assert (finding.severity, finding.kind) == ("warning", "NotParquet")


@pytest.mark.parametrize("index", [0, 4])
async def test_a_missing_directory(days: Path, index: int) -> None:
    report = await verify_table(days)
    shutil.rmtree(days / report.partitions[index].name)
    ((name, finding),) = found(await verify_table(days))
    assert (name, finding.kind) == (report.partitions[index].name, "DirectoryMissing")


async def test_rows_that_the_transaction_does_not_count(days: Path) -> None:
    change_record(days, lambda record: replace(record, row_count=record.row_count + 1))
    findings = [finding for _, finding in found(await verify_table(days))]
    assert [(finding.severity, finding.kind) for finding in findings] == [
        ("error", "StaleSidecar"),
        ("error", "RowCountMismatch"),
    ]
    assert "counts 49 rows, the Parquet footer at the size that it states 48" in findings[1].message


async def test_directories_that_are_not_read(days: Path) -> None:
    (days / "2024-02-27.3").mkdir()
    (days / "2024-02-20.detached").mkdir()
    (days / "2024-02-21.attachable").mkdir()
    stale, aside = (await verify_table(days)).findings
    assert (stale.severity, stale.kind) == ("advice", "StaleDirectories")
    assert stale.message == "1 old directory, not named by _txn: 2024-02-27.3"
    assert (aside.severity, aside.kind) == ("advice", "DirectoriesSetAside")
    assert aside.message == "2 detached, or not attached yet: 2024-02-20.detached, 2024-02-21.attachable"


async def test_directories_at_other_times_may_hold_rows(days: Path) -> None:
    """A user who puts a day beside a transaction is told that it is not read, and never to delete it."""
    for name in ("2030-01-01", "2030-01", "2030-01-02.7", "2024-02-27T03.9"):
        (days / name).mkdir()
    unread, stale, unnamed = (await verify_table(days)).findings
    assert (unread.severity, unread.kind) == ("warning", "UnreadFiles")
    assert unread.message == "not read, because the table's _txn does not name them: 2030-01, 2030-01-01"
    assert stale.message == "1 old directory, not named by _txn: 2024-02-27T03.9"
    assert (unnamed.severity, unnamed.kind) == ("advice", "UnnamedDirectories")
    assert unnamed.message == "not read, because _txn has no partition of their time: 2030-01-02.7"
    assert unnamed.remedy is not None
    assert "look at their rows before you remove them" in unnamed.remedy


async def test_older_versions_without_transaction(files: Path) -> None:
    shutil.copytree(first(files), files / "2024-02-27.3")
    (finding,) = (await verify_table(files)).findings
    assert finding.message == "2024-02-27.3 was not read: 2024-02-27.4 is a newer version of it"


async def test_chosen_partitions(days: Path) -> None:
    report = await verify_table(days, partitions=["2024-02-28", "2024-03-01.3"])
    assert [partition.name for partition in report.partitions] == ["2024-02-28.1", "2024-03-01.3"]
    with pytest.raises(InvalidInputError, match=r"no partition 2024-02-28\.2, 2025"):
        await verify_table(days, partitions=["2025", "2024-02-28.2"])


async def test_one_partition_or_one_file(files: Path) -> None:
    for path in (first(files), first(files) / "data.parquet"):
        (partition,) = (await verify_table(path)).partitions
        assert (partition.name, partition.sidecar, partition.rows) == ("2024-02-27.4", "present", 48)
    (first(files) / "data.parquet").rename(files / "trades.parquet")
    (single,) = (await verify_table(files / "trades.parquet")).partitions
    assert (single.sidecar, single.rows, single.findings) == (None, 48, ())


async def test_what_cannot_be_verified_at_all(days: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        await verify_table(tmp_path / "nothing")
    (days / "_txn").write_bytes(b"short")
    with pytest.raises(FormatError):
        await verify_table(days)


async def test_a_bad_partition_does_not_stop_the_others(days: Path) -> None:
    one, two, three, four = parquet_partitions(days)
    (one / "_pm").write_bytes(b"garbage")
    os.truncate(two / "data.parquet", 10)
    shutil.rmtree(three)
    report = await verify_table(days)
    assert [(name, finding.severity) for name, finding in found(report)] == [
        (one.name, "error"),
        (two.name, "error"),
        (three.name, "error"),
    ]
    assert report.partitions[3].name == four.name
    assert report.count("error") == 3


def spoil_pages(table: Path) -> tuple[Path, Path]:
    """Damage the ``_pages`` of the first partition, and give the second one those of the first."""
    first, second, *_ = sorted(table.glob("*/_pages"))
    second.write_bytes(first.read_bytes())
    first.write_bytes(first.read_bytes()[:-1])
    return first, second


async def test_pages_that_are_of_no_use_are_found(days: Path) -> None:
    await index_table(days, pages=True, pack=False)
    assert not (await verify_table(days)).count("warning")
    first, second = spoil_pages(days)
    report = await verify_table(days)
    found = [
        (partition.name, finding.severity, finding.kind)
        for partition in report.partitions
        for finding in partition.findings
        if finding.kind.endswith("Pages")
    ]
    assert found == [
        (first.parent.name, "warning", "DamagedPages"),
        (second.parent.name, "warning", "StalePages"),
    ]


async def test_requests(days: Path) -> None:
    trace = TraceStore(LocalStore())
    await verify_table(str(days), store=trace)
    by_reason: dict[str, int] = {}
    for record in trace.records:
        by_reason[record.reason] = by_reason.get(record.reason, 0) + 1
    absent = {record.path.rpartition("/")[2] for record in trace.records if record.status != "ok"}
    assert absent == {"_pages", "_catalogue", "_metadata"}
    assert by_reason["catalogue"] == 1
    assert by_reason["sidecar"] == by_reason["Parquet footer"] == by_reason["page index"] == 4
    assert sum(record.operation == "list" for record in trace.records) == 2
    assert sum(record.fetched_bytes for record in trace.records if record.reason == "Parquet footer") < 4 * 4200


async def test_small_first_requests_bring_the_rest_in_a_second_one(days: Path) -> None:
    trace = TraceStore(LocalStore())
    options = ReadOptions(sidecar_prefix_bytes=32, footer_suffix_bytes=8, max_concurrency=1)
    seen: list[tuple[VerifiedPartition, int]] = []
    report = await verify_table(
        str(days), store=trace, options=options, on_progress=lambda done, total: seen.append((done, total))
    )
    assert found(report) == []
    assert sum(record.reason in {"sidecar", "Parquet footer"} for record in trace.records) == 16
    assert [done for done, _ in seen] == list(report.partitions)
    assert {total for _, total in seen} == {5}


class UnlistableStore(StoreWrapper):
    """Refuses every listing."""

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        raise AccessError(f"listing is not allowed ({first_page_only})", path=path)


async def test_a_table_that_may_not_be_listed(days: Path) -> None:
    report = await verify_table(str(days), store=UnlistableStore(LocalStore()))
    ((_, finding),) = found(report)
    assert (finding.severity, finding.kind) == ("warning", "NotListed")
    assert len(report.partitions) == 5


@pytest.mark.parametrize("name", ["_pm", "data.parquet"])
@given(data=st.data())
@settings(max_examples=40)
async def test_whatever_is_damaged_there_is_a_report(name: str, data: st.DataObject) -> None:
    objects = dict(SOUND)
    content = bytearray(objects[f"days/2024-02-27.4/{name}"])
    # Of the Parquet file only the footer is read.
    at = data.draw(st.integers(0 if name == "_pm" else len(content) - 1000, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    objects[f"days/2024-02-27.4/{name}"] = bytes(content)
    report = await verify_table("days", store=MemoryStore(objects))
    damaged, sound = report.partitions
    assert sound.findings == ()
    if name == "_pm":
        assert {finding.severity for finding in damaged.findings} == {"error"}
