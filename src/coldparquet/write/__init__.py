"""Writes tables and partitions: new ones from Arrow, more rows for tables, and updates of local partitions in place."""

from coldparquet.write.begin import TableWrite, begin_write
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import WrittenPartition, write_partition
from coldparquet.write.stage import StagedPart, join_parts, stage_rows
from coldparquet.write.table import CommittedPartition, WrittenTable, abort_write, commit_write, write_table
from coldparquet.write.update import append_rows, replace_row_groups

__all__ = [
    "CommittedPartition",
    "StagedPart",
    "TableWrite",
    "WriteOptions",
    "WrittenPartition",
    "WrittenTable",
    "abort_write",
    "append_rows",
    "begin_write",
    "commit_write",
    "join_parts",
    "replace_row_groups",
    "stage_rows",
    "write_partition",
    "write_table",
]
