"""``_pages`` beside what is written: made on request, made anew by a compaction, never of the wrong file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import WriteOptions
from coldparquet.write.compact import CompactionOptions, compact_table
from coldparquet.write.partition import write_partition
from coldparquet.write.update import append_rows
from tests.support.paged_files import PagedFile, assert_same_pages, pages_beside, rows_of_all_kinds
from tests.support.table_copies import copy_table

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS: dict[str, Any] = {"row_group_rows": 2_500, "page_rows": 700}


def assert_right(partition: Path) -> None:
    """The pages are those of the file, all of them."""
    found = pages_beside(partition)
    data = (partition / "data.parquet").read_bytes()
    assert_same_pages(found, PagedFile.of(data).indexed().pages)
    assert (found.first_page[1:] > found.first_page[:-1]).all()


async def test_a_partition_is_written_with_its_pages(tmp_path: Path) -> None:
    rows = rows_of_all_kinds()
    partition = tmp_path / "2024-03-01"
    written = await write_partition(partition, rows, timestamp="ts", options=WriteOptions(pages=True, **OPTIONS))
    assert sorted(path.name for path in partition.iterdir()) == ["_pages", "_pm", "data.parquet"]
    assert written.pages_size_bytes == (partition / "_pages").stat().st_size
    assert_right(partition)
    report = await index_table(partition, pages=True)
    assert report.count_pages("kept") == 1


async def test_objects_get_theirs_too() -> None:
    store = MemoryStore()
    options = WriteOptions(pages=True, **OPTIONS)
    await write_partition("t/2024-03-01", rows_of_all_kinds(), timestamp="ts", options=options, store=store)
    names = [info.path.rpartition("/")[2] for info in (await store.list("t/2024-03-01")).objects]
    assert names == ["_pages", "_pm", "data.parquet"]
    report = await index_table("t/2024-03-01", pages=True, store=store)
    assert report.count_pages("kept") == 1


async def test_without_being_asked_for_there_are_none(tmp_path: Path) -> None:
    written = await write_partition(tmp_path / "2024-03-01", rows_of_all_kinds(), timestamp="ts")
    assert written.pages_size_bytes is None
    assert not (tmp_path / "2024-03-01" / "_pages").exists()


def test_pages_need_a_page_index() -> None:
    with pytest.raises(InvalidInputError, match="page_index"):
        WriteOptions(pages=True, page_index=False)


@pytest.mark.parametrize("had_pages", [True, False])
@pytest.mark.parametrize("asks", [True, False])
async def test_a_compaction_writes_them_anew_where_there_were_some(
    tmp_path: Path, *, had_pages: bool, asks: bool
) -> None:
    table = copy_table("o3_rewrite", tmp_path)
    await index_table(table, pages=had_pages)
    before = {path.parent.name for path in table.glob("*/_pages")}
    options = CompactionOptions(write=WriteOptions(pages=asks))
    report = await compact_table(table, force=True, options=options)
    compacted = [table / (done.new_name or "") for done in report.partitions if done.action == "compacted"]
    assert compacted
    for partition in compacted:
        assert partition.name not in before
        if had_pages or asks:
            assert_right(partition)
        else:
            assert not (partition / "_pages").exists()


async def test_pages_from_before_an_update_are_refused(tmp_path: Path) -> None:
    """The update appends row groups, so that the Parquet file has another size."""
    rows = rows_of_all_kinds()
    partition = tmp_path / "2024-03-01"
    await write_partition(partition, rows.slice(0, 5_000), timestamp="ts", options=WriteOptions(pages=True, **OPTIONS))
    await append_rows(partition, rows.slice(5_000))
    with pytest.raises(FormatError) as caught:
        pages_beside(partition)
    assert caught.value.kind == "StalePages"
    assert (await index_table(partition, pages=True)).count_pages("written") == 1
    file = PagedFile.of((partition / "data.parquet").read_bytes())
    assert_same_pages(pages_beside(partition), file.indexed_anywhere().pages)
