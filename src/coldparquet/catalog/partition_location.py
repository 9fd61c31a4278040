"""Where a partition lies: what its path, and the table's transaction, tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.format.partition_names import parse_partition_directory

if TYPE_CHECKING:
    from coldparquet.format.partition_intervals import PartitionInterval
    from coldparquet.format.partition_names import PartitionDirectory
    from coldparquet.format.txn import PartitionRecord

DATA_FILE = "data.parquet"
SIDECAR_FILE = "_pm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLocation:
    """Where a partition lies, and what is known of it without looking at it."""

    name: str
    """Directory name, such as ``2024-03-01.12``."""
    directory_path: str
    data_path: str
    sidecar_path: str | None
    """None for a Parquet file that is not named ``data.parquet``: such files share directories."""
    directory: PartitionDirectory | None
    """The time range that the name, or the transaction, says; None where the name follows no partition pattern."""
    record: PartitionRecord | None = None
    """What the table's transaction file says of it; None where there is none."""
    is_listed: bool = False
    """Whether a listing showed the directory; otherwise nobody knows yet that it exists."""
    is_being_updated: bool = False
    """Whether the Parquet file was seen to go on behind the committed bytes, as during an update in place."""

    @property
    def committed_size_bytes(self) -> int | None:
        """Size of the Parquet file that the table's transaction states; None where it states none."""
        record = self.record
        return record.parquet_size if record is not None and record.is_parquet and record.parquet_size > 0 else None

    @property
    def may_grow(self) -> bool:
        """Whether somebody may append to the files while they are read; what was committed does not change."""
        return self.record is not None or self.is_being_updated

    @property
    def is_native(self) -> bool:
        """Whether the transaction says that the partition is in QuestDB's own column files."""
        return self.record is not None and not self.record.is_parquet


def partition_location(
    path: str, *, interval: PartitionInterval | None = None, is_listed: bool = False
) -> PartitionLocation:
    """Say where a partition lies, given its directory or its Parquet file and, where known, its table's interval."""
    path = path.rstrip("/")
    if path.endswith(".parquet"):
        directory_path, _, file_name = path.rpartition("/")
        sidecar_path = f"{directory_path}/{SIDECAR_FILE}" if file_name == DATA_FILE else None
        name = directory_path.rpartition("/")[2] if sidecar_path else file_name
        data_path = path
    else:
        directory_path, name = path, path.rpartition("/")[2]
        data_path, sidecar_path = f"{path}/{DATA_FILE}", f"{path}/{SIDECAR_FILE}"
    directory = parse_partition_directory(name, interval=interval) if sidecar_path else None
    return PartitionLocation(
        name=name,
        directory_path=directory_path,
        data_path=data_path,
        sidecar_path=sidecar_path,
        directory=directory,
        is_listed=is_listed,
    )
