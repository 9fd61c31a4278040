"""``_pages`` on their way to a bucket: carried along where they are right, left behind where they are not."""

from __future__ import annotations

from pathlib import Path

from coldparquet.maintenance.index import index_table
from coldparquet.publish import publish_table
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.transfer import read_whole
from tests.support.table_copies import copy_table


async def published_pages(store: MemoryStore, path: str) -> dict[str, bytes]:
    """The ``_pages`` of all partitions, by the name of the directory."""
    found = {}
    for directory in (await store.list(path)).directories:
        for info in (await store.list(directory)).objects:
            if info.path.endswith("/_pages"):
                found[directory.rpartition("/")[2]] = (await read_whole(store, info.path)).data
    return found


async def test_pages_are_published_beside_their_sidecars(tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    await index_table(table, pages=True)
    store = MemoryStore()
    await publish_table(table, "bucket/t", store=store)
    assert await published_pages(store, "bucket/t") == {
        path.parent.name: path.read_bytes() for path in table.glob("*/_pages")
    }
    again = await index_table("bucket/t", pages=True, store=store)
    assert again.count_pages("kept") == 4


async def test_what_describes_another_file_stays_behind(tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    await index_table(table, pages=True)
    first, second, *others = sorted(table.glob("*/_pages"))
    second.write_bytes(first.read_bytes())
    first.write_bytes(b"garbage")
    store = MemoryStore()
    await publish_table(table, "bucket/t", store=store)
    assert (await published_pages(store, "bucket/t")).keys() == {path.parent.name for path in others}


async def test_pages_of_an_earlier_run_are_not_replaced(tmp_path: Path) -> None:
    """Nothing that exists is; readers check whose pages they are."""
    table = copy_table("interval_day", tmp_path)
    await index_table(table, pages=True)
    first = min(table.glob("*/_pages"))
    store = MemoryStore()
    await store.put("bucket/t/_publishing", b"", overwrite=False)
    await store.put(f"bucket/t/{first.parent.name}/_pages", b"of a run that was killed", overwrite=False)
    await publish_table(table, "bucket/t", store=store)
    assert (await published_pages(store, "bucket/t"))[first.parent.name] == b"of a run that was killed"
