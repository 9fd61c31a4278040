"""Deciding which partitions of a table are written anew, by their footers alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coldparquet.errors import ColdParquetError, NotFoundError, UnsupportedError
from coldparquet.plan.compaction_policy import compaction_reason
from coldparquet.write.compaction_report import CompactedPartition, FileShape
from coldparquet.write.rewrite_source import read_footer

if TYPE_CHECKING:
    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.write.compaction_report import CompactionAction
    from coldparquet.write.options import WriteOptions
    from coldparquet.write.rewrite_source import PartitionFooter, RewriteSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePartition:
    """A partition that is to be written anew."""

    footer: PartitionFooter
    reason: str

    @property
    def location(self) -> PartitionLocation:
        """Where it lies, and what the table says of it."""
        return self.footer.location


async def look_at_partition(
    store: ObjectStore, location: PartitionLocation, options: ReadOptions, *, row_group_rows: int, force: bool
) -> DuePartition | CompactedPartition:
    """Decide about one partition; only bugs raise. 1 or 2 requests, none for those that are not in Parquet.

    Args:
        store: Where it lies; it should pin versions.
        location: The partition.
        options: How to read.
        row_group_rows: Rows that its row groups should have.
        force: Whether it is to be written anew even if that is not worth it.
    """
    excuse = _excuse(location.record)
    if excuse is not None:
        return _without_footer(location, "skipped", excuse)
    try:
        footer = await read_footer(store, location, options)
    except NotFoundError as error:
        if location.record is None:
            return _without_footer(location, "skipped", "there is no data.parquet")
        return failed(location, error)
    except ColdParquetError as error:
        return failed(location, error)
    reason = compaction_reason(
        size_bytes=footer.stored.stop,
        unused_bytes=footer.unused_bytes,
        row_counts=footer.row_counts,
        row_group_rows=row_group_rows,
    )
    if footer.parsed.row_count and (reason or force):
        return DuePartition(footer=footer, reason=reason or "asked for")
    return CompactedPartition(
        name=location.name, action="kept", reason=None, rows=footer.parsed.row_count, before=file_shape(footer)
    )


def options_for_file(options: WriteOptions, source: RewriteSource, table: TableFiles | None) -> WriteOptions:
    """Say how to store one partition: columns that have bloom filters keep them.

    Args:
        options: They name columns as the table does, or as the file does where no table file tells.
        source: The partition; its columns have the names that they had when it was written.
        table: The table's own files.
    """
    if table is not None:
        current = {column.writer_index: column.name for column in table.metadata.columns}
        names = {column.name: current[column.id] for column in source.columns if column.id in current}
        codecs, encodings = options.column_codecs, options.column_encodings
        options = replace(
            options,
            column_codecs={name: codecs[known] for name, known in names.items() if known in codecs},
            column_encodings={name: encodings[known] for name, known in names.items() if known in encodings},
            bloom_columns=tuple(name for name, known in names.items() if known in options.bloom_columns),
        )
    return replace(options, bloom_columns=tuple(dict.fromkeys((*options.bloom_columns, *source.bloom_columns))))


def failed(location: PartitionLocation, error: ColdParquetError) -> CompactedPartition:
    """Report a partition that could not be written anew."""
    file_name = (error.path or location.data_path).rpartition("/")[2]
    action: CompactionAction = "skipped" if isinstance(error, UnsupportedError) else "failed"
    return _without_footer(location, action, f"{file_name}: {error.message}")


def _excuse(record: PartitionRecord | None) -> str | None:
    """Say why a partition is none of ours to write, by what the table's ``_txn`` says of it."""
    if record is None:
        return None
    if not record.is_parquet:
        return "in QuestDB's native format"
    if record.unknown_flags:
        return f"marked in a way that this version does not know ({record.unknown_flags:#x})"
    if record.is_read_only:
        return "read-only, as partitions are that were attached through a symbolic link"
    if record.has_remote_copy:
        return "its server has a copy of it elsewhere, which would not be the same any more"
    return None


def file_shape(footer: PartitionFooter, *, page_count: int | None = None) -> FileShape:
    """Say how the rows of a partition are stored."""
    return FileShape(
        parquet_size_bytes=footer.stored.stop,
        unused_bytes=footer.unused_bytes,
        row_groups=len(footer.parsed.row_groups),
        pages=page_count,
    )


def _without_footer(location: PartitionLocation, action: CompactionAction, reason: str) -> CompactedPartition:
    record = location.record
    return CompactedPartition(
        name=location.name, action=action, reason=reason, rows=None if record is None else record.row_count
    )
