"""Copies of golden tables that may be changed, and changes to their files that only a check would notice."""

from __future__ import annotations

import shutil
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coldparquet.format.blooms import BloomTransfer
from coldparquet.format.partition_records import PartitionRecord, PartitionRecords
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_writer import FooterSpec, SidecarContent, encode_footer, encode_sidecar
from coldparquet.format.txn import encode_txn, parse_txn, replace_partitions
from tests.support.parquet_fragments import parsed_footer
from tests.support.questdb_tables import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def copy_table(name: str, directory: Path, *, snapshot: str | None = None) -> Path:
    """Copy a golden table with all its files, in the end or with the table files of an earlier moment."""
    copied = directory / name
    shutil.copytree(GOLDEN / name / "table", copied)
    if snapshot is not None:
        for file in ("_txn", "_meta", "_cv"):
            shutil.copyfile(GOLDEN / name / "expected" / "snapshots" / snapshot / file, copied / file)
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


def change_record(table: Path, change: Callable[[PartitionRecord], PartitionRecord], *, index: int = 0) -> None:
    """Change what ``_txn`` says about one partition."""
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    records = [transaction.partitions.record(i) for i in range(len(transaction.partitions))]
    records[index] = change(records[index])
    changed = replace_partitions(
        transaction,
        PartitionRecords.of(records),
        min_timestamp=transaction.min_timestamp,
        max_timestamp=transaction.max_timestamp,
    )
    (table / "_txn").write_bytes(encode_txn(changed))


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
