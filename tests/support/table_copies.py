"""Copies of the genuine QuestDB tables: changed, damaged, altered as a statement would, in lakes, ready to publish."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from coldparquet.format.blooms import BloomTransfer
from coldparquet.format.native import encode_column_versions, parse_column_versions
from coldparquet.format.partition_records import PartitionRecord, PartitionRecords
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_writer import FooterSpec, SidecarContent, encode_footer, encode_sidecar
from coldparquet.format.table_metadata import MetadataSlot, encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import TableTransaction, encode_txn, parse_txn, replace_partitions
from coldparquet.format.type_codes import parse_type_name
from coldparquet.maintenance.index import index_table
from coldparquet.opening import open_table
from coldparquet.pipelines import PipelineReport
from coldparquet.records import replace
from coldparquet.storage.base import ObjectStore
from tests.support.parquet_footers import parsed_footer
from tests.support.questdb_tables import GOLDEN, PARTITIONS, copy_parquet_partitions, expected_rows, plain

# --- Copies of golden tables that may be changed, and changes to their files that only a check would notice -----------


def copy_table(name: str, directory: Path, *, snapshot: str | None = None) -> Path:
    """Copy a golden table with all its files, in the end or with the table files of an earlier moment."""
    copied = directory / name
    shutil.copytree(GOLDEN / name / "table", copied)
    if snapshot is not None:
        for file in ("_txn", "_meta", "_cv"):
            shutil.copyfile(GOLDEN / name / "expected" / "snapshots" / snapshot / file, copied / file)
    return copied


async def indexed_copy(name: str, directory: Path) -> Path:
    """Copy a golden table, and write sidecars for all of its Parquet partitions."""
    copied = copy_table(name, directory)
    assert (await index_table(copied, pages=False, pack=False)).count("failed") == 0
    return copied


def contents_of(table: Path) -> dict[str, tuple[bytes, int]]:
    """Content and modification time of every file, by its path in the table."""
    return {
        str(path.relative_to(table)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in table.rglob("*")
        if path.is_file()
    }


def sidecar_content(partition: Path) -> SidecarContent:
    """What the sidecar of a partition should say."""
    data = (partition / "data.parquet").read_bytes()
    transfer = BloomTransfer(parsed_footer(data), inline_bytes=65_536)
    while transfer.wanted() is not None:
        transfer.receive([(0, data)])
    return transfer.content()


def write_sidecar(partition: Path, **changes: Any) -> None:
    """Write a sidecar that is sound in itself, but says something else than the footer."""
    (partition / "_pm").write_bytes(encode_sidecar(replace(sidecar_content(partition), **changes)))


def records_of(transaction: TableTransaction) -> list[PartitionRecord]:
    return [transaction.partitions.record(index) for index in range(len(transaction.partitions))]


def rewrite_txn(table: Path, change: Callable[[TableTransaction], TableTransaction]) -> TableTransaction:
    """Change what ``_txn`` says."""
    changed = change(parse_txn((table / "_txn").read_bytes(), path=None))
    (table / "_txn").write_bytes(encode_txn(changed))
    return changed


def with_records(transaction: TableTransaction, records: Sequence[PartitionRecord], **changes: Any) -> TableTransaction:
    """Name other partitions, and count their rows."""
    return replace(
        transaction,
        transient_row_count=records[-1].row_count,
        fixed_row_count=sum(record.row_count for record in records[:-1]),
        partitions=PartitionRecords.of(records),
        **changes,
    )


def change_record(table: Path, change: Callable[[PartitionRecord], PartitionRecord], *, index: int = 0) -> None:
    """Change what ``_txn`` says about one partition."""

    def changed(transaction: TableTransaction) -> TableTransaction:
        records = records_of(transaction)
        records[index] = change(records[index])
        first, last = transaction.min_timestamp, transaction.max_timestamp
        return replace_partitions(transaction, PartitionRecords.of(records), min_timestamp=first, max_timestamp=last)

    rewrite_txn(table, changed)


def add_snapshot(partition: Path, *, with_damaged_history: bool) -> None:
    """Append a footer to a sidecar that repeats the newest one; damage what came before, but not its own checksum."""
    content = sidecar_content(partition)
    file = bytearray(encode_sidecar(content))
    block_offsets = parse_sidecar(bytes(file)).footer.block_offsets.tolist()
    if with_damaged_history:
        file[-8] ^= 1  # the stored checksum of the older footer
    footer = encode_footer(
        FooterSpec(
            parquet_footer_offset=content.parquet_footer_offset,
            parquet_footer_length=content.parquet_footer_length,
            previous_size_bytes=len(file),
        ),
        block_offsets=block_offsets,
        bloom_matrix=b"",
        checksum_so_far=zlib.crc32(file[8:]),
    )
    file += footer
    file[:8] = len(file).to_bytes(8, "little")
    (partition / "_pm").write_bytes(file)


# --- Golden tables with other columns than QuestDB has given them: what its ALTER TABLE leaves behind -----------------


def slots_of(table: Path) -> list[MetadataSlot]:
    return list(parse_table_metadata((table / "_meta").read_bytes(), path=None).slots)


def position(slots: list[MetadataSlot], name: str) -> int:
    return next(index for index, slot in enumerate(slots) if slot.name == name and not slot.is_dropped)


def alter(table: Path, slots: list[MetadataSlot]) -> None:
    """Give the table other columns, as a statement does: a new version of `_meta`, and a `_txn` that names it."""
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    version = metadata.metadata_version + 1
    changed = replace(metadata, slots=tuple(slots), metadata_version=version)
    (table / "_meta").write_bytes(encode_table_metadata(changed))
    rewrite_txn(table, lambda txn: replace(txn, txn=txn.txn + 1, metadata_version=version))


def change_type(table: Path, name: str, *types: str) -> None:
    """Change the type of a column once or several times: each change is a new slot in the place of the first one."""
    for type_name in types:
        slots = slots_of(table)
        old = position(slots, name)
        original = old if slots[old].replaced_index is None else slots[old].replaced_index
        slots[old] = replace(slots[old], is_dropped=True)
        slots.append(MetadataSlot(name=name, type_code=parse_type_name(type_name), replaced_index=original))
        alter(table, slots)


# --- Lakes of golden tables on a local disk and on a simulated cold store ---------------------------------------------


def make_lake(root: Path, *tables: str) -> Path:
    """Copy the Parquet partitions of golden tables, without sidecars, below a directory ``lake/db``."""
    database = root / "lake" / "db"
    for table in tables:
        copy_parquet_partitions(table, database)
    return root / "lake"


def partition_count(*tables: str) -> int:
    """Return how many Parquet partitions golden tables have."""
    return sum(partition.table in tables for partition in PARTITIONS)


def expected_of(table: str) -> pa.Table:
    """Return the rows that QuestDB answers for the Parquet partitions of a golden table."""
    return pa.concat_tables([partition.expected() for partition in PARTITIONS if partition.table == table])


def fates(report: PipelineReport) -> dict[str, str]:
    """Return the action by table and partition: ``{"interval_day/2024-01-01": "written"}``."""
    return {
        f"{result.table.rpartition('/')[2]}/{result.partition}".rstrip("/"): result.action for result in report.results
    }


def damage(partition: Path) -> None:
    """Let a Parquet file end as none does."""
    data = partition / "data.parquet"
    data.write_bytes(data.read_bytes()[:-4] + b"NOPE")


# --- Sources to publish, in several states, and what readers find where they were published to ------------------------


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
    """Read a published table as any reader would."""
    async with open_table(path, store=store) as table:
        return plain(await table.scan().to_arrow())
