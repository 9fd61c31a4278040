"""Sources to publish, in several states, and what readers find where they were published to."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.format.column_versions import encode_column_versions, parse_column_versions
from coldparquet.format.table_metadata import encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import encode_txn, parse_txn
from coldparquet.opening import open_table
from tests.support.questdb_tables import GOLDEN, expected_rows, plain

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from coldparquet.storage.base import ObjectStore

TABLE = "o3_in_place"
"""Its partitions were updated in place, and there are table files of earlier moments."""

SNAPSHOTS = ("0_converted", "1_one_late_row", "2_burst", None)
"""The moments of `TABLE`, the last one by None."""

NATIVE = "2024-01-03"
NATIVE_ROWS = 1000
"""Its native partition, which is the last one and the same at every moment."""


def put_in_state(table: Path, snapshot: str | None) -> None:
    """Give a copy of `TABLE` the table files of a moment; its Parquet files are longer, as they are on a live server."""
    moment = GOLDEN / TABLE / "table" if snapshot is None else GOLDEN / TABLE / "expected" / "snapshots" / snapshot
    for file in ("_txn", "_meta", "_cv"):
        shutil.copyfile(moment / file, table / file)


def change_columns(table: Path) -> None:
    """Rename a column, as a commit that changes `_meta` and `_cv` but no partition."""
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    versions = parse_column_versions((table / "_cv").read_bytes(), path=None)
    slots = list(metadata.slots)
    renamed = len(slots) - 1
    slots[renamed] = replace(slots[renamed], name=f"{slots[renamed].name}_renamed")
    changed = replace(metadata, slots=tuple(slots), metadata_version=metadata.metadata_version + 1)
    (table / "_meta").write_bytes(encode_table_metadata(changed))
    (table / "_cv").write_bytes(encode_column_versions(replace(versions, version=versions.version + 1)))
    following = replace(
        transaction,
        txn=transaction.txn + 1,
        metadata_version=changed.metadata_version,
        column_structure_version=changed.metadata_version,
        column_version=versions.version + 1,
    )
    (table / "_txn").write_bytes(encode_txn(following))


def expected_published_rows(snapshot: str | None) -> pa.Table:
    """The rows that QuestDB answered for `TABLE` at a moment: those of its native partition are published, too."""
    return expected_rows(TABLE, snapshot)


async def read_rows(store: ObjectStore, path: str) -> pa.Table:
    """Read a published table as anybody would."""
    async with open_table(path, store=store) as table:
        return plain(await table.scan().to_arrow())
