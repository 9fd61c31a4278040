"""The errors about data that metadata describes, but that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import NotFoundError

if TYPE_CHECKING:
    from coldparquet.plan.model import StoredData


MISSING_COLUMN_FILE = "MissingColumnFile"
"""Kind of the error about a native partition with a missing file."""

MISSING_FOR_QUESTDB = (
    "QuestDB cannot read the partition either. QuestDB 9.3.4 makes such partitions with CONVERT PARTITION TO NATIVE after a column"
    " was renamed: it writes the column's file under its old name. Give the file the name that is missing, or restore it"
)


def missing_column_file(path: str) -> NotFoundError:
    """Make the error for a column file that does not exist."""
    return NotFoundError(
        "a column file of a native partition is missing. If a QuestDB has replaced the partition since the table was opened,"
        f" refresh the table and plan again. If the file is missing then, too, {MISSING_FOR_QUESTDB}",
        kind=MISSING_COLUMN_FILE,
        path=path,
    )


def data_file_missing(path: str) -> NotFoundError:
    """Make the error for a partition whose metadata was read, but whose Parquet file does not exist."""
    return NotFoundError(
        "this Parquet file is not there, although metadata describes it: it was deleted or replaced, or was not copied with its"
        " sidecar. If a database has replaced it, refresh the table or open it again; else copy the file again, or remove the"
        " directory",
        kind="PartitionMissing",
        path=path,
    )


def data_missing(data: StoredData, path: str) -> NotFoundError:
    """Make the error for a request whose file does not exist."""
    return missing_column_file(path) if data.decoder == "native" else data_file_missing(path)
