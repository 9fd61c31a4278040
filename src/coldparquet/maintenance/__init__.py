"""Keeping tables in order: sidecars that are missing, and whether everything fits together."""

from coldparquet.maintenance.index import IndexedPartition, IndexReport, index_table
from coldparquet.maintenance.migrate import migrate_table
from coldparquet.maintenance.verify import VerifyReport, verify_table

__all__ = ["IndexReport", "IndexedPartition", "VerifyReport", "index_table", "migrate_table", "verify_table"]
