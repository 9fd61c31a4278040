"""How to publish a table, and what publishing did, or would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coldparquet.errors import InvalidInputError
from coldparquet.options import MIB
from coldparquet.prices import STANDARD, PriceTable

if TYPE_CHECKING:
    from coldparquet.maintenance.pack import PackReport
    from coldparquet.publish.changes import DroppedPartitions, NativePartitions
    from coldparquet.publish.source import StorageClassRule


_DAY_S = 86_400.0
_DROPPED = ("refuse", "keep", "remove")
_NATIVE = ("convert", "leave", "refuse")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """How to publish a table."""

    dry_run: bool = False
    """Write nothing, and say what would be written and what that costs."""

    native: NativePartitions = "convert"
    """What to do about partitions in QuestDB's native format, usually the newest one. ``"convert"`` writes them as Parquet,
    anew whenever they have changed; whoever follows the copy (``tail``, Spark streams) then sees them rewritten.
    ``"leave"`` publishes a table without their rows, of which it tells its readers. ``"refuse"`` publishes nothing."""

    dropped: DroppedPartitions = "refuse"
    """What to do about published partitions that the source has dropped, all of them after ``TRUNCATE``. They may have been moved to the bucket for good
    (``"keep"``) or be meant to go there too (``"remove"``); nothing tells, so the default asks."""

    storage_classes: tuple[StorageClassRule, ...] = ()
    """Classes of the data of older partitions. Sidecars and table files, which every reader needs, keep the bucket's."""

    purge: bool = False
    """Afterwards remove versions that no reader can need any more."""

    purge_after_s: float = _DAY_S
    """How long a version is kept after another one was committed: as long as anybody reads one open table, and longer
    than any publisher runs, since what it has written is not committed before its end."""

    pack: bool = False
    """Make the catalogue of the published table, from which readers plan with one request (see
    :func:`coldparquet.maintenance.pack.pack_table`), where there is none. One that is there is renewed in any case."""

    memory_limit_bytes: int = 128 * MIB
    """Data that was read and not sent yet: 8 parts of 16 MiB fill a fast network."""

    max_concurrency: int = 16
    """Requests at the destination at once."""

    prices: PriceTable | None = None
    """What requests and storing cost, for the report; None takes the table of the library."""

    def __post_init__(self) -> None:
        for name, choices in {"dropped": _DROPPED, "native": _NATIVE}.items():
            if getattr(self, name) not in choices:
                raise InvalidInputError(
                    f"PublishOptions.{name} is {getattr(self, name)!r}; use one of {', '.join(choices)}"
                )
        for name, least in {"purge_after_s": 0, "memory_limit_bytes": 1, "max_concurrency": 1}.items():
            if not getattr(self, name) >= least:  # NaN is not
                raise InvalidInputError(f"PublishOptions.{name} is {getattr(self, name)}; it must be at least {least}")
        for storage_class in (STANDARD, *(rule.storage_class for rule in self.storage_classes)):
            self.price_table.of(storage_class)  # now, and not when all is written and the bill is made out

    @property
    def price_table(self) -> PriceTable:
        """The prices to reckon with.

        Raises:
            InvalidInputError: While the options are made: the table lacks a class (kind ``UnknownStorageClass``).
        """
        return self.prices or PriceTable.default()


PublishAction = Literal[
    "published", "would publish", "converted", "would convert", "found", "unchanged", "kept", "removed", "left behind"
]
"""``converted``: it is native, and was written as Parquet. ``found``: it was there already, byte for byte, as after a run
that was killed. ``kept``: the source has dropped it since it was published. ``removed``: it was published, and is no part
of the table any more. ``left behind``: it is native."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPartition:
    """What became of one partition."""

    name: str
    """Its directory in the source; in the published table where the source has none."""
    published_name: str | None
    """Its directory in the published table; None where it is not in there."""
    action: PublishAction
    rows: int
    parquet_size_bytes: int | None = None
    """None for native partitions, and for those that would be converted."""
    native_size_bytes: int | None = None
    """What its rows take in QuestDB's column files, where it was or would be converted from these."""
    sidecar_bytes: int | None = None
    """Size of the sidecar where it was looked at."""
    storage_class: str | None = None
    """Class that its data is written to; None for the bucket's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishCost:
    """What a run sends: worked out beforehand, and not counting what it reads to compare."""

    sent_bytes: int
    """Data and sidecars; table files are small beside them. Partitions that would be converted count as their column files,
    which Parquet makes smaller."""
    write_count: int
    """PUTs, and the requests of uploads in parts."""
    read_count: int
    """GETs, HEADs and listings of the destination."""
    dollars: float
    """Of the requests, by ``PublishOptions.prices``; sending bytes into S3 is free."""
    dollars_per_month: float
    """What storing the bytes costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReport:
    """What publishing did, or would do."""

    source: str
    destination: str
    txn: int
    """Transaction of the source that is published now."""
    previous_txn: int | None
    """Transaction that was published before; None the first time."""
    is_dry_run: bool
    is_committed: bool
    """Whether ``_txn`` was replaced; False if there was nothing to do, and in a dry run."""
    partitions: tuple[PublishedPartition, ...]
    """In time order, those first that are in the published table."""
    table_files: tuple[str, ...]
    """Names of the objects beside the partitions that were written, in this order; in a dry run those that would be."""
    cost: PublishCost
    purged: tuple[str, ...]
    """Directories and objects of older versions that were removed."""
    notes: tuple[str, ...]
    elapsed_s: float
    catalogue: PackReport | None = None
    """What became of the published table's catalogue; None where there is none."""

    @property
    def rows(self) -> int:
        """Rows of the published table."""
        return sum(partition.rows for partition in self.partitions if partition.published_name is not None)

    @property
    def rows_left_behind(self) -> int:
        """Rows of native partitions, which are not published."""
        return sum(partition.rows for partition in self.partitions if partition.action == "left behind")

    def count(self, action: PublishAction) -> int:
        """Return how many partitions met this fate."""
        return sum(partition.action == action for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishProgress:
    """How far a run has come."""

    sent_bytes: int
    """Of data; what was found already counts as sent."""
    total_bytes: int
    finished_partitions: int
    total_partitions: int
