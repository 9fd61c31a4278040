"""Writing partitions: new ones from Arrow, and updates of local ones in place."""

from coldparquet.write.options import WriteOptions
from coldparquet.write.partition_update import UpdatedPartition, append_rows, replace_row_groups
from coldparquet.write.partition_writer import WrittenPartition, write_partition

__all__ = [
    "UpdatedPartition",
    "WriteOptions",
    "WrittenPartition",
    "append_rows",
    "replace_row_groups",
    "write_partition",
]
