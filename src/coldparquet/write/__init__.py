"""Writing tables and partitions: new ones from Arrow, more rows for tables, and updates of local partitions in place."""

from coldparquet.write.begin_write import TableWrite, begin_write
from coldparquet.write.commit_write import CommittedPartition, WrittenTable, abort_write, commit_write
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition_update import UpdatedPartition, append_rows, replace_row_groups
from coldparquet.write.partition_writer import WrittenPartition, write_partition
from coldparquet.write.staging import StagedPart, join_parts, stage_rows
from coldparquet.write.table_write import write_table

__all__ = [
    "CommittedPartition",
    "StagedPart",
    "TableWrite",
    "UpdatedPartition",
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
