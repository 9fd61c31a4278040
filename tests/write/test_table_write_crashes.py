"""A write dies at file operations and at requests: readers find the old table or the new one, and a second run succeeds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pytest

from coldparquet.errors import AccessError, ColdParquetError, NotFoundError, StorageError
from coldparquet.storage.base import ObjectStore, StoreWrapper
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import write_table
from coldparquet.write.begin import WriteMode
from coldparquet_testing.stores import DyingStore
from tests.support.power_cut import FailingFiles, Loss, Moment, PowerCut, few_or_all_points, tried
from tests.support.written_tables import in_order, overwritten, read_table, same_rows, ticks

URL = "bucket/trades"
OLD = ticks(60, days=3)
ADDED = ticks(40, seed=1, days=2, first_day=1)
CHANGES: dict[str, tuple[pa.Table | None, WriteMode, pa.Table]] = {
    "new table": (None, "append", in_order([ADDED])),
    "append": (OLD, "append", in_order([OLD, ADDED])),
    "overwrite": (OLD, "overwrite", overwritten(OLD, ADDED)),
}
"""What is there, how rows are added, and what is there then."""

changes = pytest.mark.parametrize("change", CHANGES)


async def look(url: object, change: str, store: ObjectStore | None = None) -> bool:
    """Check that the table is the old one or the new one; return whether it is the new one."""
    before, _, after = CHANGES[change]
    try:
        found = await read_table(url, store=store)
    except NotFoundError:
        assert before is None
        return False
    if same_rows(found, after):
        return True
    assert before is not None
    assert same_rows(found, in_order([before]))
    return False


async def prepared(change: str) -> MemoryStore:
    store, (before, _, _) = MemoryStore(), CHANGES[change]
    if before is not None:
        await write_table(URL, before, timestamp="ts", store=store)
    return store


@few_or_all_points
@changes
async def test_requests(change: str, most_points: int | None) -> None:
    mode = CHANGES[change][1]
    undisturbed = DyingStore(await prepared(change))
    await write_table(URL, ADDED, timestamp="ts", mode=mode, store=undisturbed)
    seen = set()
    for number, when in tried(
        list(product(range(undisturbed.call_count), get_args(Literal["before", "after"]))), most_points
    ):
        objects = await prepared(change)
        dying = DyingStore(objects, at_call=number, when=when)
        try:
            await write_table(URL, ADDED, timestamp="ts", mode=mode, store=dying)
        except ColdParquetError:
            assert dying.is_dead
        is_new = await look(URL, change, objects)
        seen.add(is_new)
        if not is_new:  # the same rows once more
            await write_table(URL, ADDED, timestamp="ts", mode=mode, store=objects)
            assert await look(URL, change, objects)
        await write_table(
            URL, ADDED, mode="overwrite", store=objects
        )  # what the dead one has left does not stand in the way
    assert seen == {True, False}


@few_or_all_points
@pytest.mark.parametrize("loss", get_args(Loss))
@changes
async def test_file_operations(
    change: str, loss: Loss, tmp_path: Path, most_points: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One after the other: the disk of these tests does not know which of two threads has lost its power.
    monkeypatch.setattr("coldparquet.write.stage._PARTITIONS_AT_ONCE", 1)
    before, mode, _ = CHANGES[change]
    original, table = tmp_path / "original", tmp_path / "db" / "trades"
    original.mkdir()
    if before is not None:
        await write_table(original, before, timestamp="ts")

    def restore() -> None:
        shutil.rmtree(table, ignore_errors=True)
        shutil.copytree(original, table)

    restore()
    undisturbed = FailingFiles()
    await write_table(table, ADDED, timestamp="ts", mode=mode, files=undisturbed)
    points = [
        (number, moment)
        for number, operation in enumerate(undisturbed.operations)
        for moment in get_args(Moment)
        if moment != "torn" or operation == "write_at"  # nothing else can be half done
    ]
    for number, moment in tried(points, most_points):
        restore()
        with pytest.raises(PowerCut):
            await write_table(
                table, ADDED, timestamp="ts", mode=mode, files=FailingFiles(cut_at=number, moment=moment, loss=loss)
            )
        assert not await look(table, change)
        await write_table(table, ADDED, timestamp="ts", mode=mode)
        assert await look(table, change)


class ForgetfulStore(StoreWrapper):
    """Loses the answer to every write of `_txn`."""

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        etag = await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)
        if path.endswith("/_txn"):
            raise StorageError("the connection broke off", path=path)
        return etag


class KeepingStore(StoreWrapper):
    """Refuses to remove anything."""

    async def delete(self, paths: Sequence[str]) -> None:
        raise AccessError("removing is not permitted", path=paths[0])


@pytest.mark.parametrize("kind", [ForgetfulStore, KeepingStore])
@changes
async def test_what_is_committed_is_no_failure(change: str, kind: type[StoreWrapper]) -> None:
    """A caller that got an error would write the rows once more, and have them twice."""
    objects = await prepared(change)
    written = await write_table(URL, ADDED, timestamp="ts", mode=CHANGES[change][1], store=kind(objects))
    assert await look(URL, change, objects)
    assert written.is_written
    assert written.txn is not None
    assert (written.not_removed is None) == (kind is ForgetfulStore)
