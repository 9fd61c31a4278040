"""How to compact a table, and what became of it: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from coldparquet.errors import InvalidInputError
from coldparquet.options import MIB
from coldparquet.write.options import WriteOptions

if TYPE_CHECKING:
    from coldparquet.maintenance.pack import PackReport

CompactionAction = Literal["compacted", "would compact", "kept", "skipped", "failed"]
"""``kept``: writing it anew is not worth it. ``skipped``: it cannot be written anew, or is none of ours to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """How to compact."""

    write: WriteOptions = field(default_factory=WriteOptions)
    """How to store the rows; ``sort`` does not matter, and columns that have bloom filters keep them."""

    purge_after_s: float = 86_400.0
    """How long a version is kept after another one replaced it: as long as anybody reads one open table."""

    memory_limit_bytes: int = 64 * MIB
    """Rows that were fetched or decoded and not written yet; a row group on its way to the file comes on top."""

    max_concurrency: int = 16
    """Requests at once, and partitions whose footers are looked at at once. They are written one after the other: each
    keeps several processors busy."""

    def __post_init__(self) -> None:
        for name, least in {"purge_after_s": 0, "memory_limit_bytes": 1, "max_concurrency": 1}.items():
            if not getattr(self, name) >= least:  # NaN is not
                raise InvalidInputError(
                    f"CompactionOptions.{name} is {getattr(self, name)}; it must be at least {least}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """How the rows of a partition are stored."""

    parquet_size_bytes: int
    unused_bytes: int
    """Dead bytes of row groups that were replaced."""
    row_groups: int
    pages: int | None
    """Data pages; None where no page index tells, or nobody looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedPartition:
    """What became of one partition."""

    name: str
    """Its directory before, such as ``2024-03-01.12``."""
    action: CompactionAction
    reason: str | None
    """Why it was written anew, skipped, or failed; None where it was kept."""
    new_name: str | None = None
    """Its directory now; None where that is the same, or not decided yet."""
    rows: int | None = None
    before: FileShape | None = None
    """None where the partition was not looked at, or could not be."""
    after: FileShape | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What compacting a table did, or would do."""

    url: str
    source: str
    """What decided which partitions the table has, for people: ``transaction 12 of _txn``."""
    txn: int | None
    """The last one that this run committed, or the one that it found; None where a directory listing decides."""
    is_dry_run: bool
    partitions: tuple[CompactedPartition, ...]
    """In time order."""
    purged: tuple[str, ...]
    """Directories of replaced versions that were removed, or would be."""
    notes: tuple[str, ...]
    elapsed_s: float
    catalogue: PackReport | None = None
    """What became of the table's catalogue; None where there is none."""

    def count(self, action: CompactionAction) -> int:
        """Return how many partitions met this fate."""
        return sum(partition.action == action for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionProgress:
    """How far a run has come."""

    written_rows: int
    total_rows: int
    """Of the partitions that are written anew."""
    finished_partitions: int
    total_partitions: int
