"""A question about a table: :class:`Scan`."""

from coldparquet.scan.row_questions import row_limit
from coldparquet.scan.table_scan import Scan

__all__ = ["Scan", "row_limit"]
