"""What lies beside the partitions of a table is told, and tables that keep a log of their files are refused."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import coldparquet as cp
from coldparquet.errors import UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.pipelines import LocalEngine, VerifyJob, run_pipeline
from tests.support.small_tables import DAY, LOGS, QuotingStore, memory, objects, write
from tests.support.table_copies import copy_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


SURELY_MISSING = [
    (["trades-2023-01-02.parquet"], "trades-2023-01-02.parquet"),
    (["data.parquet"], "data.parquet"),
    (["date=2023-01-02/part-0.parquet"], "date=2023-01-02"),
    (["20230103/data.parquet", "2023_01_04/data.parquet", "202302/data.parquet"], "20230103, 202302, 2023_01_04"),
    (["date=2023-01-02/a.parquet", "b.parquet", "20230103/c.parquet"], "b.parquet, 20230103, date=2023-01-02"),
]


@pytest.mark.parametrize(("beside", "told"), SURELY_MISSING)
@pytest.mark.parametrize("on_disk", [False, True])
async def test_a_table_is_not_read_as_if_rows_beside_it_were_none(
    tmp_path: Path, beside: list[str], told: str, *, on_disk: bool
) -> None:
    url = str(write(tmp_path / "t", [DAY, *beside])) if on_disk else "t"
    store = None if on_disk else memory([DAY, *beside])
    with pytest.raises(UnsupportedError) as caught:
        await cp.open_table(url, store=store)
    assert (caught.value.kind, caught.value.path) == ("UnreadFiles", url)
    assert caught.value.message.startswith(
        f"rows are missing: {told} not read, because a partition is one data.parquet"
    )
    assert "pipeline convert" in caught.value.message


async def test_what_is_not_read_is_logged_once_where_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    store = memory([DAY, "loose.parquet"])
    options = cp.ReadOptions(unread="skip")
    async with cp.open_table("t", store=store, options=options) as table:
        assert await table.scan().count() == 10
        await table.refresh()
        explained = (await table.scan().plan()).explain()
        [listed] = [record for record in table.request_log if record.operation == "list"][:1]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("t: rows are missing: loose.parquet not read")
    assert "rows are missing: loose.parquet not read" in explained
    assert listed.path == "t"


async def test_a_second_part_in_a_partition(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = [DAY, "2023-01-01/part-1.parquet", "2023-01-02/data.parquet"]
    table = write(tmp_path / "t", names)
    for url in (table, table / "2023-01-01"):
        with pytest.raises(UnsupportedError, match=r"part-1\.parquet not read") as caught:
            await cp.open_table(url)
        assert caught.value.kind == "UnreadFiles"
    # A listing with a delimiter does not show it, and no request is spent on it.
    async with cp.open_table("t", store=memory(names)) as opened:
        assert await opened.scan().count() == 20
    assert caplog.records == []


async def test_a_listing_for_another_purpose_tells_of_second_parts(caplog: pytest.LogCaptureFixture) -> None:
    days = [f"2023-01-{day:02}" for day in range(1, 21)]
    store = QuotingStore(objects([*(f"{day}/data.parquet" for day in days), "2023-01-07/part-1.parquet"]))
    await index_table("t", store=store, pack=True)
    caplog.clear()
    async with cp.open_table("t", store=store) as table:
        await table.scan(where="x = 3").to_arrow()
        assert [record.operation for record in table.request_log].count("list") == 2
    [record] = caplog.records
    assert record.getMessage().startswith("rows are missing: 2023-01-07/part-1.parquet not read")


HARMLESS = [
    "2023-01-01/_pm.tmp",
    "2023-01-01/.data.parquet.crc",
    "2023-01-01/_SUCCESS",
    "_SUCCESS",
    "._SUCCESS.crc",
    "_metadata",
    "_temporary/0/part-0.parquet",
    ".2023-01-02.coldparquet/data.parquet",
    ".hidden.parquet",
    "2022-12-31.detached/data.parquet",
    "2022-12-30.attachable/data.parquet",
    "wal1/0/_event",
    "txn_seq/_meta",
    "_meta",
    "_cv",
    "sym.c",
    "readme.txt",
]


@pytest.mark.parametrize("on_disk", [False, True])
async def test_what_writers_leave_beside_partitions_is_no_matter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, on_disk: bool
) -> None:
    url = str(write(tmp_path / "t", [DAY, *HARMLESS])) if on_disk else "t"
    store = None if on_disk else memory([DAY, *HARMLESS])
    async with cp.open_table(url, store=store) as table:
        assert await table.scan().count() == 10
    report = await verify_table(url, store=store)
    assert {finding.kind for finding in report.findings} == {"LeftAside"}
    assert (await index_table(url, store=store, dry_run=True)).findings == ()
    assert caplog.records == []


DAY_IN_TRANSACTION = "2024-02-27"
"""An old version of it, without the number of a transaction."""


@pytest.mark.parametrize(
    "beside", [[], ["loose.parquet", "date=2023-01-02/a.parquet", "data.parquet", "2020-01-02/x.parquet"]]
)
async def test_a_table_of_questdb_is_never_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, beside: list[str]
) -> None:
    table = copy_table("interval_day", tmp_path)
    async with cp.open_table(table) as opened:
        rows = await opened.scan().count()
    (table / "2020-01-01.7").mkdir()
    write(table, [*beside, f"{DAY_IN_TRANSACTION}/part-1.parquet"])
    async with cp.open_table(table) as opened:
        assert await opened.scan().count() == rows
    report = await verify_table(table)
    found = [finding for finding in report.findings if finding.kind == "UnreadFiles"]
    assert [finding.severity for finding in found] == ["warning"] * bool(beside)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [one.message for one in found]
    if beside:
        assert found[0].message.endswith("does not name them: data.parquet, loose.parquet, date=2023-01-02, 2020-01-02")


@pytest.mark.parametrize("on_disk", [False, True])
async def test_checks_look_into_partitions(tmp_path: Path, *, on_disk: bool) -> None:
    names = [DAY, "2023-01-01/part-1.parquet", "2023-01-02/data.parquet", "loose.parquet", "junk/data.parquet"]
    url = str(write(tmp_path / "t", names)) if on_disk else "t"
    store = None if on_disk else memory(names)
    verified = await verify_table(url, store=store)
    indexed = await index_table(url, store=store)
    assert indexed.count("written") == 2
    for findings in (verified.findings, indexed.findings):
        assert [(finding.severity, finding.kind) for finding in findings] == [
            ("error", "UnreadFiles"),
            ("warning", "UnreadDirectories"),
        ]
        assert findings[0].message.startswith("rows are missing: loose.parquet, 2023-01-01/part-1.parquet not read")
        assert findings[1].message.startswith("rows may be missing: junk not read")


async def test_a_refresh_does_not_pass_over_a_new_file(tmp_path: Path) -> None:
    url = write(tmp_path / "t", [DAY])
    async with cp.open_table(url) as table:
        write(url, ["2023-01-01/part-1.parquet"])
        with pytest.raises(UnsupportedError, match=r"part-1\.parquet"):
            await table.refresh()


LOGGED_FILES = {
    "plain": ["part-0.parquet"],
    "in directories": ["date=2023-01-02/part-0.parquet"],
    "named as ours": [DAY],
    "one file named as ours": ["data.parquet"],
}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("files", LOGGED_FILES)
async def test_a_table_that_keeps_a_log_is_never_read_by_its_files(tmp_path: Path, log: str, files: str) -> None:
    names = [*LOGGED_FILES[files], LOGS[log]]
    table = write(tmp_path / "t", names)

    async def refused(call: Any) -> None:
        with pytest.raises(UnsupportedError) as caught:
            await call
        assert (caught.value.kind, caught.value.details["format"]) == ("LoggedTable", log)
        assert f"--from-format {log}" in caught.value.message
        assert "--engine spark" in caught.value.message

    for url, store in ((str(table), None), ("t", memory(names))):
        await refused(cp.open_table(url, store=store))
        await refused(index_table(url, store=store))
        await refused(verify_table(url, store=store))
        if files != "one file named as ours" or store is None:  # in an object store no listing is spent on a partition
            await refused(cp.open_partition(url, store=store))


CHILDREN = [
    "date=2023-01-02",
    "date=2023-01-02/data.parquet",
    "data/date=2023-01-02",
    "year=2023/month=01",
    "2023-01-02",
    "2023-01-02/data.parquet",
    "ours",
    "data.parquet",
]
"""Directories in a table that keeps a log, and files of it."""


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("child", CHILDREN)
async def test_what_lies_in_a_table_that_keeps_a_log_is_not_read_alone(tmp_path: Path, log: str, child: str) -> None:
    is_table = child == "ours"
    data = f"{child}/{DAY}" if is_table else child if child.endswith(".parquet") else f"{child}/data.parquet"
    table = write(tmp_path / "t", [data])
    url = table / child
    opens = [cp.open_table] if is_table else [cp.open_table, cp.open_partition]
    for is_refused in (False, True):
        if is_refused:
            write(table, [LOGS[log]])
        calls: list[Callable[[], Any]] = [partial(open_it, url) for open_it in opens]
        calls += [partial(index_table, url, dry_run=True), partial(verify_table, url)]
        if is_table:
            calls += [
                partial(cp.open_partitions, url, ["2023-01-01"]),
                partial(cp.open_partition, url / "2023-01-01"),
            ]
        if url.is_dir():
            calls.append(partial(run_pipeline, VerifyJob(), str(url), engine=LocalEngine(processes=1)))
        for call in calls:
            if not is_refused:
                if isinstance(opened := await call(), cp.Table):
                    await opened.aclose()
                continue
            with pytest.raises(UnsupportedError) as caught:
                await call()
            assert (caught.value.kind, caught.value.details["format"]) == ("LoggedTable", log)
            assert str(table) in str(caught.value)


async def test_a_table_of_questdb_beside_a_log_is_read(tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    write(tmp_path, [LOGS["delta"]])
    [partition] = [found for found in sorted(table.iterdir()) if (found / "data.parquet").exists()][:1]
    for opening in (cp.open_table(table), cp.open_partition(partition)):
        async with opening as opened:
            assert await opened.scan().count()


async def test_a_partition_of_hudi_is_told_by_its_mark() -> None:
    store = memory([".hoodie_partition_metadata", "data.parquet"])
    with pytest.raises(UnsupportedError, match="Hudi"):
        await cp.open_table("t", store=store)


async def test_a_directory_named_metadata_is_no_log() -> None:
    store = memory([DAY, "metadata/readme.json"])
    async with cp.open_table("t", store=store) as table:
        assert await table.scan().count() == 10
