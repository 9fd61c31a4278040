"""A writer dies at any operation: readers find the old rows or the new ones, and a second run succeeds.

Each operation is tried not begun, half done and done, with disks that keep all that was written, only what was flushed, or
what was written last before what was written first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count, product
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import NotFoundError
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import WriteOptions, append_rows, replace_row_groups, write_partition
from coldparquet.write.files import LocalFiles
from tests.support.power_cut import FailingFiles, Loss, Moment, PowerCut, few_or_all_points, tried
from tests.support.written_tables import assert_same_rows, contents, read_rows, trades

Change = Callable[[Path, LocalFiles | None], Awaitable[Any]]
OPTIONS = WriteOptions(row_group_rows=60)
OLD = trades(0, 150)
ADDED = trades(150, 100)
REPLACED = trades(60, 60, venue="okx")


async def cuts(
    prepare: Callable[[], Awaitable[Any]], change: Change, directory: Path, loss: Loss, most_points: int | None
) -> AsyncIterator[str]:
    """Carry out a change again and again, and stop at some of its operations; yields what was stopped, and how."""
    undisturbed = FailingFiles()
    await prepare()
    await change(directory, undisturbed)
    assert len(undisturbed.operations) > 3
    for number, moment in tried(list(product(range(len(undisturbed.operations)), get_args(Moment))), most_points):
        await prepare()
        files = FailingFiles(cut_at=number, moment=moment, loss=loss)
        with pytest.raises(PowerCut):
            await change(directory, files)
        yield f"{moment} {files.operations[-1]} {number}"


@few_or_all_points
@pytest.mark.parametrize("loss", get_args(Loss))
async def test_new_partition(loss: Loss, most_points: int | None, tmp_path: Path) -> None:
    table = tmp_path / "trades"
    directory = table / "1970-01-02.1"
    runs = count()

    async def change(path: Path, files: LocalFiles | None) -> None:
        await write_partition(path, ADDED, timestamp="ts", options=OPTIONS, files=files)

    async def prepare() -> None:
        if table.exists():
            table.rename(tmp_path / f"old-{next(runs)}")
        await write_partition(table / "1970-01-01.1", OLD, timestamp="ts", options=OPTIONS)

    seen = set()
    async for cut in cuts(prepare, change, directory, loss, most_points):
        async with cp.open_table(table) as opened:
            found = await opened.scan().to_arrow()
        seen.add(found.num_rows)
        assert_same_rows(found, OLD if found.num_rows == OLD.num_rows else pa.concat_tables([OLD, ADDED]))
        if found.num_rows == OLD.num_rows:
            with pytest.raises(NotFoundError):
                await read_rows(directory)
            await change(directory, None)
        assert_same_rows(await read_rows(directory), ADDED)
        assert sorted(path.name for path in table.iterdir()) == ["1970-01-01.1", "1970-01-02.1"], cut
    assert seen == {OLD.num_rows, OLD.num_rows + ADDED.num_rows}


CHANGES: dict[str, tuple[Change, pa.Table]] = {
    "append": (
        lambda path, files: append_rows(path, ADDED, options=OPTIONS, files=files),
        pa.concat_tables([OLD, ADDED]),
    ),
    "replace": (
        lambda path, files: replace_row_groups(path, {1: REPLACED}, files=files),
        pa.concat_tables([OLD.slice(0, 60), REPLACED, OLD.slice(120)]),
    ),
}


@few_or_all_points
@pytest.mark.parametrize("loss", get_args(Loss))
@pytest.mark.parametrize(("name", "has_sidecar"), [("append", True), ("append", False), ("replace", True)])
async def test_update(name: str, has_sidecar: bool, loss: Loss, most_points: int | None, tmp_path: Path) -> None:
    change, new = CHANGES[name]
    directory = tmp_path / "1970-01-01.1"
    await write_partition(directory, OLD, timestamp="ts", options=OPTIONS)
    originals = contents(directory)
    if not has_sidecar:
        del originals["_pm"]

    async def prepare() -> None:
        for path in directory.iterdir():
            path.unlink()
        for file_name, content in originals.items():
            (directory / file_name).write_bytes(content)

    seen: set[bool] = set()
    async for cut in cuts(prepare, change, directory, loss, most_points):
        found = await read_rows(directory)
        is_new = bool(found.equals(new))
        seen.add(is_new)
        assert_same_rows(found, new if is_new else OLD)
        if not is_new:
            await change(directory, None)
        assert_same_rows(await read_rows(directory), new)
        assert list(contents(directory)) == ["_pm", "data.parquet"], cut
        # The next update works on what the cut left behind.
        await append_rows(directory, trades(900, 3))
        assert (await read_rows(directory)).num_rows == new.num_rows + 3
    assert seen == {False, True}


async def test_a_second_cut_while_recovering_from_the_first(tmp_path: Path) -> None:
    change, new = CHANGES["append"]
    directory = tmp_path / "1970-01-01.1"
    await write_partition(directory, OLD, timestamp="ts", options=OPTIONS)
    for number in range(5):
        with pytest.raises(PowerCut):
            await change(directory, FailingFiles(cut_at=number, moment="torn"))
        assert_same_rows(await read_rows(directory), OLD)
    await change(directory, None)
    assert_same_rows(await read_rows(directory), new)


class _DyingStore(StoreWrapper):
    """Dies before or after its ``number``-th put."""

    def __init__(self, store: MemoryStore, number: int, *, is_after: bool) -> None:
        super().__init__(store)
        self._puts_left = number
        self._is_after = is_after

    async def put(self, path: str, data: bytes, **options: Any) -> str | None:
        self._puts_left -= 1
        if self._puts_left or self._is_after:
            etag = await super().put(path, data, **options)
        if self._puts_left:
            return etag
        raise PowerCut


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("number", [1, 2])
async def test_new_partition_on_an_object_store(number: int, is_after: bool) -> None:
    store, path = MemoryStore(), "bucket/trades/1970-01-01.1"
    with pytest.raises(PowerCut):
        await write_partition(
            path, OLD, timestamp="ts", options=OPTIONS, store=_DyingStore(store, number, is_after=is_after)
        )
    if (number, is_after) == (1, False):
        with pytest.raises(NotFoundError):
            await read_rows(path, store=store)
    else:
        assert_same_rows(await read_rows(path, store=store), OLD)
    if (number, is_after) != (2, True):
        await write_partition(path, OLD, timestamp="ts", options=OPTIONS, store=store)
    assert_same_rows(await read_rows(path, store=store), OLD)
    assert [info.path.rpartition("/")[2] for info in (await store.list(path)).objects] == ["_pm", "data.parquet"]
