"""Copies a QuestDB table to object storage, as Parquet, so that readers always see one whole version of it.

A published table is a QuestDB table directory in a bucket. Its `_txn` defines the version. It is replaced last, in one
request, and only if no other publisher replaced it meanwhile:

    2024-03-01.12/data.parquet, _pm   the partitions: written once, never changed; with _pages where the source has it
    _meta.v7, _cv.v3                  immutable copies of the table files by the version that `_txn` names
    _published.v41-9f3c2a10           which partitions the version 41 of the table has, and where they came from
    side.o, .c, .k, .v, _name         files that QuestDB also needs to restore the table
    _meta, _cv                        as in any table; a reader that finds another version than its `_txn` names takes
                                      the immutable copy
    _txn                              the commit
    _publishing                       only until the first commit: tells readers that the table is incomplete

In a directory QuestDB appends to Parquet files and their sidecars. Objects cannot be appended to. So a partition that
was updated in place is written as a whole again, under a new version suffix. The old version stays for readers that
still use the old `_txn`, until :func:`publish_table` is told to purge.

A partition in QuestDB's native format is written as Parquet, with its sidecar. The manifest records what the source's
table files said of it then. It is converted again only if they say something else. `_txn` counts the rows that are left
behind, directly behind the transaction, so that no reader mistakes the copy for the whole table.

To restore a published table, copy its directory below the database's `db` directory, add a file `_todo_` of 40 zero
bytes, and start the database. The `txn_seq` of a WAL table is not copied, so this restores only a table without
write-ahead log. QuestDB adds rows behind the last one of such a table only if its last partition is native: run ALTER
TABLE ... CONVERT PARTITION TO NATIVE first. The symbols' index files `.k` and `.v` are complete only if no one wrote to
the table while it was published.
"""

from coldparquet.prices import StorageClassRule, parse_storage_class_rule
from coldparquet.publish.publisher import publish_table
from coldparquet.publish.report import PublishedPartition, PublishOptions, PublishProgress, PublishReport

__all__ = [
    "PublishOptions",
    "PublishProgress",
    "PublishReport",
    "PublishedPartition",
    "StorageClassRule",
    "parse_storage_class_rule",
    "publish_table",
]
