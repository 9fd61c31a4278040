"""What tests of compaction look at: files value by value, and which directories a table has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.format.parquet_footer import QuestdbMetadata, parse_questdb_json
from coldparquet.storage.memory import MemoryStore
from tests.support.parquet_fragments import parsed_footer
from tests.support.table_copies import contents_of

if TYPE_CHECKING:
    from pathlib import Path

    from coldparquet.storage.base import ObjectStore


def stored_rows(directory: Path) -> pa.Table:
    """All rows of a Parquet file as somebody reads them who knows nothing of QuestDB."""
    return pq.read_table(directory / "data.parquet", partitioning=None)


def assert_stored_alike(new: Path, old: Path) -> None:
    """Two partitions hold the same values, bit for bit, in columns of the same names, types and ids."""
    ours, theirs = stored_rows(new), stored_rows(old)
    assert ours.schema.names == theirs.schema.names
    for name in theirs.schema.names:
        found, wanted = ours.column(name).combine_chunks(), theirs.column(name).combine_chunks()
        if found.type != wanted.type:  # pyarrow knows UUIDs by an annotation that older files lack
            found = found.cast(wanted.type)
        assert bits(found).equals(bits(wanted)), name
    assert [(leaf.name, leaf.field_id, leaf.max_def_level) for leaf in footer_of(new).leaves] == [
        (leaf.name, leaf.field_id, leaf.max_def_level) for leaf in footer_of(old).leaves
    ]


def bits(array: Any) -> Any:
    """Floating point as integers: NaN then equals NaN, and -0.0 is not 0.0."""
    views: dict[Any, Any] = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}
    return array.view(views[array.type]) if array.type in views else array


def footer_of(directory: Path) -> Any:
    return parsed_footer((directory / "data.parquet").read_bytes())


def questdb_of(directory: Path) -> QuestdbMetadata:
    footer = footer_of(directory)
    return parse_questdb_json(footer.questdb_json, column_count=len(footer.leaves))


def row_counts(directory: Path) -> list[int]:
    return [row_group.row_count for row_group in footer_of(directory).row_groups]


def directories(table: Path) -> list[str]:
    return sorted(path.name for path in table.iterdir() if path.is_dir())


async def scan_rows(url: Any, *, store: ObjectStore | None = None) -> pa.Table:
    async with cp.open_table(url, store=store) as table:
        return await table.scan().to_arrow()


async def partition_names(url: Any, *, store: ObjectStore | None = None) -> list[str]:
    async with cp.open_table(url, store=store) as table:
        return [partition.name for partition in table.partitions]


async def in_memory(path: Path) -> MemoryStore:
    """Put a table into a dictionary, as the object store's ``t``."""
    store = MemoryStore()
    for name, (content, _) in contents_of(path).items():
        await store.put(f"t/{name}", content, overwrite=False)
    return store
