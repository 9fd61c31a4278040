"""Defines the options and the report of publishing a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from coldparquet.errors import InvalidInputError
from coldparquet.options import MIB
from coldparquet.prices import STANDARD, PriceTable

if TYPE_CHECKING:
    from coldparquet.maintenance.pack import PackReport
    from coldparquet.prices import StorageClassRule
    from coldparquet.publish.changes import DroppedPartitions, NativePartitions


_DAY_S = 86_400.0
_DROPPED = ("refuse", "keep", "remove")
_NATIVE = ("convert", "leave", "refuse")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """How to publish a table."""

    dry_run: bool = False
    """Write nothing; report what would be written and what that costs."""

    native: NativePartitions = "convert"
    """What to do about partitions in QuestDB's native format, usually the newest one. ``"convert"`` writes them as
    Parquet, again after each change; followers of the copy (``tail``, Spark streams) then see rewritten partitions.
    ``"leave"`` publishes a table without their rows, and tells its readers. ``"refuse"`` publishes nothing."""

    dropped: DroppedPartitions = "refuse"
    """What to do about published partitions that the source has dropped, all of them after ``TRUNCATE``. The bucket may
    be their archive (``"keep"``), or they may be unwanted there too (``"remove"``). The default refuses to guess, and
    asks."""

    storage_classes: tuple[StorageClassRule, ...] = ()
    """Storage classes for the data of older partitions. Sidecars and table files, which every reader needs, keep the
    bucket's."""

    purge: bool = False
    """Afterwards remove versions that no reader can still need."""

    purge_after_s: float = _DAY_S
    """How long a version is kept after its successor's commit. Choose more than the longest use of one open table.
    Choose more than the longest publisher run, too: its writes are only committed at its end."""

    pack: bool = False
    """Make the catalogue of the published table where there is none; from it readers plan with one request (see
    :func:`coldparquet.maintenance.pack.pack_table`). An existing one is renewed in any case."""

    memory_limit_bytes: int = 128 * MIB
    """Memory for data that is read and not yet sent: 8 parts of 16 MiB fill a fast network."""

    max_concurrency: int = 16
    """Most concurrent requests at the destination."""

    prices: PriceTable | None = None
    """Prices of requests and storage, for the report; None uses the library's table."""

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
            self.price_table.of(storage_class)  # fail now, and not after everything is written

    @property
    def price_table(self) -> PriceTable:
        """The prices for the cost estimate.

        Raises:
            InvalidInputError: While the options are made: the table lacks a class (kind ``UnknownStorageClass``).
        """
        return self.prices or PriceTable.default()


PublishAction = Literal[
    "published", "would publish", "converted", "would convert", "found", "unchanged", "kept", "removed", "left behind"
]
"""``converted``: it is native, and was written as Parquet. ``found``: a killed run had already written it, byte for
byte. ``kept``: the source has dropped it since it was published. ``removed``: it was published, and is no longer part
of the table. ``left behind``: it is native."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPartition:
    """The result for one partition."""

    name: str
    """Its directory in the source; in the published table where the source has none."""
    published_name: str | None
    """Its directory in the published table; None where it is not part of it."""
    action: PublishAction
    rows: int
    parquet_size_bytes: int | None = None
    """None for native partitions, and for those that would be converted."""
    native_size_bytes: int | None = None
    """Size of its rows in QuestDB's column files, where it was or would be converted from these."""
    sidecar_bytes: int | None = None
    """Size of the sidecar where it was read."""
    storage_class: str | None = None
    """Storage class of its data; None for the bucket's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishCost:
    """The requests and bytes that a run sends: computed beforehand, without reads for comparison."""

    sent_bytes: int
    """Data and sidecars; table files are small beside them. Partitions to be converted count with the size of their
    column files; the Parquet is smaller."""
    write_count: int
    """PUTs, and the requests of uploads in parts."""
    read_count: int
    """GETs, HEADs and listings of the destination."""
    dollars: float
    """Cost of the requests, by ``PublishOptions.prices``; sending bytes into S3 is free."""
    dollars_per_month: float
    """Cost of storing the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReport:
    """The result of publishing, or of a dry run."""

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
    """In time order; partitions of the published table come first."""
    table_files: tuple[str, ...]
    """Names of the written objects beside the partitions, in this order; in a dry run those that would be written."""
    cost: PublishCost
    purged: tuple[str, ...]
    """Directories and objects of older versions that were removed."""
    notes: tuple[str, ...]
    elapsed_s: float
    catalogue: PackReport | None = None
    """The result for the published table's catalogue; None where there is none."""

    @property
    def rows(self) -> int:
        """Rows of the published table."""
        return sum(partition.rows for partition in self.partitions if partition.published_name is not None)

    @property
    def rows_left_behind(self) -> int:
        """Rows of native partitions, which are not published."""
        return sum(partition.rows for partition in self.partitions if partition.action == "left behind")

    def count(self, action: PublishAction) -> int:
        """Return the number of partitions with this result."""
        return sum(partition.action == action for partition in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data that ``json.dumps`` takes."""
        counts = dict(Counter(partition.action for partition in self.partitions))
        return {**asdict(self), "rows": self.rows, "rows_left_behind": self.rows_left_behind, "counts": counts}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishProgress:
    """Progress of a run."""

    sent_bytes: int
    """Bytes of data; data that already exists counts as sent."""
    total_bytes: int
    finished_partitions: int
    total_partitions: int
