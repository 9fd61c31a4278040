"""How to publish: every knob with its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError
from coldparquet.options import MIB
from coldparquet.prices import STANDARD, PriceTable

if TYPE_CHECKING:
    from coldparquet.publish.changes import DroppedPartitions, NativePartitions
    from coldparquet.publish.storage_classes import StorageClassRule

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
