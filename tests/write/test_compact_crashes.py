"""Compaction dies at file operations and at requests: readers find every row, and a second run completes.

The rows are the same before and after, so what readers find is told by the directories that they read. Each run
purges as well, so that it also dies while it removes what it has replaced.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pytest

from coldparquet.errors import StorageError
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.local import LocalStore
from coldparquet.write.compact import CompactionOptions, compact_table
from coldparquet_testing.stores import DyingStore
from tests.support.power_cut import FailingFiles, Loss, Moment, PowerCut, few_or_all_points, tried
from tests.support.table_copies import copy_table
from tests.support.written_tables import in_memory, partition_names, scan_rows

TABLE = "symbols"
"""Of its partitions one is worth compacting, and has indexes beside it."""
DUE = "2024-01-01"
PURGING = CompactionOptions(purge_after_s=0)
When = Literal["before", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A table before compaction, and what is to be found there afterwards."""

    path: Path
    rows: pa.Table
    old_names: list[str]
    has_transaction: bool

    def copy(self) -> Path:
        """Copy the table to where the copy before it was."""
        copy = self.path.with_name(f"{self.path.name}-copy")
        shutil.rmtree(copy, ignore_errors=True)
        return Path(shutil.copytree(self.path, copy))

    def new_names(self) -> list[str]:
        return [f"{DUE}.9" if name.startswith(DUE) else name for name in self.old_names]


@pytest.fixture(params=[True, False], ids=["with _txn", "without"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    table = copy_table(TABLE, tmp_path)
    if not request.param:
        for file in [path for path in table.iterdir() if path.is_file()]:
            file.unlink()
        shutil.rmtree(table / "2024-01-05.3")  # native: without a transaction it cannot be read
    return Place(
        path=table,
        rows=await scan_rows(table),
        old_names=await partition_names(table),
        has_transaction=request.param,
    )


async def look(place: Place, url: object, store: ObjectStore | None = None) -> bool:
    """Check that every row is there; return whether the new version is the one that is read."""
    assert (await scan_rows(url, store=store)).equals(place.rows)
    names = await partition_names(url, store=store)
    return bases(names) == bases(place.old_names) and names != place.old_names


def bases(names: list[str]) -> list[str]:
    return [name.partition(".")[0] for name in names]


async def complete(place: Place, url: object, store: ObjectStore | None = None) -> None:
    """Run it once more, and find what an undisturbed run leaves, and nothing else."""
    report = await compact_table(url, partitions=[DUE], purge=True, options=PURGING, store=store)  # type: ignore[arg-type]
    assert report.count("failed") == 0
    assert await look(place, url, store)
    listed = store or LocalStore()
    names = [path.rpartition("/")[2] for path in (await listed.list(str(url))).directories]
    assert sorted(names) == sorted(await partition_names(url, store=store))
    for name in names:
        files = [info.path.rpartition("/")[2] for info in (await listed.list(f"{url}/{name}")).objects]
        if name.startswith(DUE):
            assert sorted(files) == ["_pm", "data.parquet", *(["ix.k", "ix.v"] if place.has_transaction else [])]


@few_or_all_points
@pytest.mark.parametrize("loss", get_args(Loss))
async def test_file_operations(place: Place, loss: Loss, most_points: int | None) -> None:
    undisturbed = FailingFiles()
    await compact_table(place.copy(), partitions=[DUE], purge=True, options=PURGING, files=undisturbed)
    assert len(undisturbed.operations) > 10
    points = [
        (number, moment)
        for number, operation in enumerate(undisturbed.operations)
        for moment in get_args(Moment)
        if moment != "torn" or operation == "write_at"  # nothing else can be half done
    ]
    seen = set()
    for number, moment in tried(points, most_points):
        table = place.copy()
        files = FailingFiles(cut_at=number, moment=moment, loss=loss)
        with pytest.raises(PowerCut):
            await compact_table(table, partitions=[DUE], purge=True, options=PURGING, files=files)
        seen.add(await look(place, table))
        await complete(place, table)
    assert seen == {True, False}


class FilesOfTheDying(FailingFiles):
    """File operations of a process that dies with its store."""

    __slots__ = ("store",)

    def _do(self, *arguments: object, **options: object) -> None:
        if self.store.is_dead:  # type: ignore[attr-defined]
            raise PowerCut
        super()._do(*arguments, **options)  # type: ignore[arg-type]


def deaths(undisturbed: DyingStore, most_points: int | None) -> list[tuple[int, When]]:
    """Return numbers of calls to die in, and when; out of those that a run needed that came to its end."""
    assert undisturbed.call_count > 10
    return tried(list(product(range(undisturbed.call_count), get_args(When))), most_points)


@few_or_all_points
async def test_requests_of_a_table_on_a_disk(place: Place, most_points: int | None) -> None:
    undisturbed, files = DyingStore(LocalStore()), FailingFiles()
    await compact_table(
        str(place.copy()), partitions=[DUE], purge=True, options=PURGING, files=files, store=undisturbed
    )
    seen = set()
    for number, when in deaths(undisturbed, most_points):
        table = place.copy()
        store = DyingStore(LocalStore(), at_call=number, when=when)
        dying_files = FilesOfTheDying()
        dying_files.store = store  # type: ignore[attr-defined]
        try:
            report = await compact_table(
                str(table), partitions=[DUE], purge=True, options=PURGING, files=dying_files, store=store
            )
            assert report.count("failed") == 1
        except (PowerCut, StorageError):
            pass
        assert store.is_dead
        seen.add(await look(place, table))
        await complete(place, table)
    assert seen == {True, False}


@few_or_all_points
async def test_requests_of_a_table_on_an_object_store(place: Place, most_points: int | None) -> None:
    undisturbed = DyingStore(await in_memory(place.path))
    await compact_table("t", partitions=[DUE], purge=True, options=PURGING, store=undisturbed)
    seen = set()
    for number, when in deaths(undisturbed, most_points):
        objects = await in_memory(place.path)
        store = DyingStore(objects, at_call=number, when=when)
        try:
            report = await compact_table("t", partitions=[DUE], purge=True, options=PURGING, store=store)
            assert report.count("failed") == 1
        except StorageError:
            pass
        assert store.is_dead
        seen.add(await look(place, "t", objects))
        await complete(place, "t", objects)
    assert seen == {True, False}
