"""Keeping tables in order: sidecars that are missing, and whether everything fits together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.lazy_names import lazy_names

if TYPE_CHECKING:
    from coldparquet.maintenance.index import IndexReport, index_table
    from coldparquet.maintenance.migrate import migrate_table
    from coldparquet.maintenance.sidecars import IndexedPartition
    from coldparquet.maintenance.verify import VerifyReport, verify_table

__all__ = ["IndexReport", "IndexedPartition", "VerifyReport", "index_table", "migrate_table", "verify_table"]

_MODULES = {
    "IndexReport": "coldparquet.maintenance.index",
    "IndexedPartition": "coldparquet.maintenance.sidecars",
    "VerifyReport": "coldparquet.maintenance.verify",
    "index_table": "coldparquet.maintenance.index",
    "migrate_table": "coldparquet.maintenance.migrate",
    "verify_table": "coldparquet.maintenance.verify",
}
"""Where each name is defined. They are imported when they are used: who writes sidecars has no use for all that verifies them."""


if not TYPE_CHECKING:  # type checkers know which names there are
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
