"""Small tables on a simulated store that goes wrong, whose every row is known."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.errors import InvalidInputError
from coldparquet.maintenance.pack import pack_table
from coldparquet.storage.checked import read_whole
from coldparquet.storage.memory import MemoryStore
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.questdb_tables import GOLDEN, assert_same_rows, expected_rows
from tests.support.random_tables import RandomTable, assert_identical, random_table

GOLDEN_NAMES = ("symbols", "o3_rewrite", "codec_zstd")
"""Genuine tables with ``_txn``, Parquet partitions and a native one."""

Replacement: TypeAlias = Literal["other-rows", "same-bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyTable:
    """A table in the bucket."""

    name: str
    rows: pa.Table
    random: RandomTable | None
    """What questions about it are made of; None for genuine tables, of which all is asked."""
    file: str | None
    """``data.parquet`` of its only partition, below its directory; None if there are several."""
    other_file: bytes | None
    """Another content of ``file``: without the last row. None where there is none that our reader takes for it."""

    def assert_rows(self, found: pa.Table, expected: pa.Table) -> None:
        """Compare an answer with rows of this table."""
        if self.random is None:
            assert_same_rows(found, expected)
        else:
            assert_identical(found, expected)


async def make_tables(directory: Path, *, first_seed: int, count: int) -> list[FaultyTable]:
    """Fill a directory with random tables and a few genuine ones.

    Args:
        directory: The bucket's.
        first_seed: Of the first random table.
        count: Number of random tables.
    """
    tables = []
    for name in GOLDEN_NAMES:
        shutil.copytree(GOLDEN / name / "table", directory / name)
        tables.append(FaultyTable(name=name, rows=expected_rows(name), random=None, file=None, other_file=None))
    for number in range(count):
        random = await random_table(first_seed + number)
        files = await _write_objects(random.store, directory / f"random{number}")
        only = f"{files[0]}/data.parquet" if len(files) == 1 else None
        tables.append(
            FaultyTable(
                name=f"random{number}",
                rows=random.rows,
                random=random,
                file=only,
                other_file=None
                if only is None
                else await _without_the_last_row(random, directory / f"random{number}", only),
            )
        )
    await _pack(directory, tables)
    return tables


async def _pack(directory: Path, tables: Sequence[FaultyTable]) -> None:
    """Give a catalogue to every second table that can have one."""
    with ColdStoreServer(directory.parent) as server:
        for table in tables[::2]:
            with suppress(InvalidInputError):  # a partition alone has no catalogue
                await pack_table(f"s3://{directory.name}/{table.name}", storage_options=server.storage_options)


async def _write_objects(store: MemoryStore, directory: Path) -> list[str]:
    """Write the objects of a table as files, and return the names of its partitions."""
    partitions = (await store.list("table")).directories
    for partition in partitions:
        target = directory / partition.partition("/")[2]
        target.mkdir(parents=True)
        for info in (await store.list(partition)).objects:
            (target / info.path.rpartition("/")[2]).write_bytes((await read_whole(store, info.path)).data)
    return [partition.partition("/")[2] for partition in partitions]


async def _without_the_last_row(table: RandomTable, directory: Path, file: str) -> bytes | None:
    shorter = table.rows.slice(0, table.rows.num_rows - 1)
    output = io.BytesIO()
    pq.write_table(shorter, output)
    if len(output.getvalue()) >= (directory / file).stat().st_size:
        return None
    copied = directory.parent / "copied"
    (copied / file).parent.mkdir(parents=True)
    (copied / file).write_bytes(output.getvalue())
    try:
        async with cp.open_table(str(copied)) as opened:
            assert_identical(await opened.scan().to_arrow(), shorter)
    except (AssertionError, cp.ColdParquetError):  # QuestDB's types are more than the file says
        return None
    finally:
        shutil.rmtree(copied)
    return output.getvalue()


@dataclass(slots=True)
class Lane:
    """A store of its own with a copy of all tables, on which one scan runs after the other."""

    directory: Path
    """Of the bucket."""
    caches: Path
    """Where scans keep what they fetch, if they do."""
    server: ColdStoreServer = field(init=False)
    _replacing: tuple[FaultyTable, Replacement, int] | None = None
    _request_count: int = 0

    @contextmanager
    def replacing(self, table: FaultyTable, how: Replacement | None, *, at_request: int) -> Iterator[None]:
        """Replace the table's file when so many requests have arrived, and put the old one back at the end."""
        if how is None or table.file is None:
            yield
            return
        path = self.directory / table.name / table.file
        original = path.read_bytes()
        self._request_count = 0
        self._replacing = table, how, at_request
        try:
            yield
        finally:
            self._replacing = None
            _replace(path, original)

    def before_answer(self, _operation: str, _path: str) -> None:
        """Do what is to be done in the middle of a scan; runs in the server's thread."""
        if self._replacing is None:
            return
        table, how, at_request = self._replacing
        self._request_count += 1
        if self._request_count == at_request and table.file is not None:
            path = self.directory / table.name / table.file
            content = table.other_file if how == "other-rows" else None
            _replace(path, path.read_bytes() if content is None else content)


@contextmanager
def open_lane(tables: Path, root: Path) -> Iterator[Lane]:
    """Copy the tables and serve them.

    Args:
        tables: Directory of the tables.
        root: Where the copy goes.
    """
    shutil.copytree(tables, root / "bucket")
    lane = Lane(root / "bucket", root.with_name(f"{root.name}-caches"))
    with ColdStoreServer(root, before_answer=lane.before_answer) as lane.server:
        yield lane


def _replace(path: Path, content: bytes) -> None:
    """Put another file in place of one, in one step: a reader that has the old one open goes on with it."""
    new = path.with_name(".new")
    new.write_bytes(content)
    os.replace(new, path)  # noqa: PTH105 - what is meant is the system call
