"""What object stores charge, as data: requests, retrieval, storage, restores, and bytes that leave the region.

The table of the library is ``prices.json`` beside this module. Your own, for another region, another store or what you have
negotiated, is a file of the same form, see :meth:`PriceTable.read`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    import os

STANDARD = "STANDARD"
"""The class of objects for which S3 names none, and of listings."""

BYTES_PER_PRICED_GB = 1e9
"""Prices are per GB; the decimal one makes the estimate err on the expensive side."""

_DAYS_PER_MONTH = 30

RequestKind: TypeAlias = Literal["get", "head", "list", "put"]
"""What S3 tells apart on its invoice; the requests of an upload in parts count as ``put``. Deleting is free."""
RestoreTier: TypeAlias = Literal["Expedited", "Standard", "Bulk"]
"""How fast S3 restores an archived object, in S3's own words; DEEP_ARCHIVE knows no ``Expedited``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One figure of a price table, and how far to trust it."""

    dollars: float
    as_of: str
    """Month in which it was looked up: ``2026-11``."""
    source: str
    """Where it was found: an address, or whatever the maker of the table wrote."""
    verified: bool
    """Whether the store itself or two independent publications say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePrice:
    """What it costs and takes to make archived objects readable for some days, in one tier."""

    tier: RestoreTier
    million_requests: Price
    """A million objects, however large they are."""
    gb: Price
    """Each GB of them."""
    hours_typical: float
    hours_most: float
    """S3 promises nothing; most restores are over by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClassPrices:
    """Prices of one storage class."""

    name: str
    """S3's own: ``STANDARD_IA``."""
    million_gets: Price
    million_heads: Price
    million_puts: Price
    """Also of the requests of an upload in parts."""
    million_lists: Price
    gb_retrieved: Price
    """What reading costs besides the request; that of archived objects is part of restoring them."""
    gb_month: Price
    """Of storing."""
    restores: tuple[RestorePrice, ...] = ()
    """One per tier, for classes whose objects are or may be archived."""
    must_be_restored: bool = False
    """Whether no object of the class can be read before it was restored."""

    @property
    def is_verified(self) -> bool:
        """Whether both prices that reading depends on are."""
        return self.million_gets.verified and self.gb_retrieved.verified


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """Prices of a store, in dollars."""

    name: str
    """Whose prices, for people: ``Amazon S3, us-east-1``."""
    as_of: str
    """Month in which the table was put together; single prices may be older."""
    classes: tuple[StorageClassPrices, ...]
    gb_transferred_out: Price
    """Each GB that leaves the region; within it transfer is free."""
    counts_transfer_out: bool = False
    """Whether reads leave the region, so that every byte is charged with ``gb_transferred_out``."""

    def __hash__(self) -> int:
        # Options are keys of caches; to hash every price would take longer than to compute what these hold.
        return hash((self.name, self.as_of))

    @staticmethod
    def default() -> PriceTable:
        """Return the table that comes with the library. It is read once."""
        return _default_table()

    @staticmethod
    def read(path: str | os.PathLike[str]) -> PriceTable:
        """Read a table of your own. No request; local files only.

        It is a JSON object as ``prices.json`` in the directory of this module: ``name``, ``as_of``, ``source``,
        ``gb_transferred_out``, ``counts_transfer_out`` and ``classes``. A price is a number of dollars, which takes
        ``as_of``, ``source`` and ``verified`` from the top of the file, or an object with ``dollars`` and any of these. With
        ``"based_on": "default"`` whatever the file leaves out is that of the library's table, so that it need not say more
        than ``{"based_on": "default", "name": "ours", "as_of": "2026-11", "classes": {"STANDARD_IA": {"gb_retrieved":
        0.008}}}``.

        Raises:
            NotFoundError: There is no such file.
            InvalidInputError: It cannot be read, is no JSON, or is no table (kind ``InvalidPrices``); ``field`` says where.
        """
        from coldparquet.price_file import read_price_table  # noqa: PLC0415 - hardly anybody brings prices

        return read_price_table(Path(path))

    def find(self, storage_class: str | None) -> StorageClassPrices | None:
        """Return the prices of a class, None if they are not known; a class of None is ``STANDARD``."""
        wanted = storage_class or STANDARD
        return next((prices for prices in self.classes if prices.name == wanted), None)

    def of(self, storage_class: str | None) -> StorageClassPrices:
        """Return the prices of a class.

        Raises:
            InvalidInputError: They are not known (kind ``UnknownStorageClass``).
        """
        found = self.find(storage_class)
        if found is None:
            raise InvalidInputError(
                f"no price known for storage class {storage_class or STANDARD!r} in the table {self.name!r}; known:"
                f" {', '.join(prices.name for prices in self.classes)}",
                kind="UnknownStorageClass",
                storage_class=storage_class or STANDARD,
            )
        return found

    def request_dollars(
        self, kind: RequestKind, *, storage_class: str | None = None, retrieved_bytes: int = 0, count: int = 1
    ) -> float | None:
        """Price requests of one kind; None where no price is known for the class.

        Args:
            kind: What was asked.
            storage_class: Where the object lies; None is ``STANDARD``.
            retrieved_bytes: What the requests bring, all together; 0 for all but GETs.
            count: How many requests.
        """
        prices = self.find(storage_class)
        if prices is None:
            return None
        match kind:
            case "get":
                million = prices.million_gets
            case "head":
                million = prices.million_heads
            case "list":
                million = prices.million_lists
            case "put":
                million = prices.million_puts
        return count * million.dollars / 1e6 + retrieved_bytes * self.dollars_per_byte(prices)

    def read_dollars(
        self, *, get_count: int, retrieved_bytes: int, list_count: int = 0, storage_class: str | None = None
    ) -> float:
        """Price GETs of objects of one class, and listings, which cost the same whatever they list.

        Raises:
            InvalidInputError: No price is known for the class (kind ``UnknownStorageClass``).
        """
        prices = self.of(storage_class)
        listing = list_count * self.of(STANDARD).million_lists.dollars / 1e6
        gets = get_count * prices.million_gets.dollars / 1e6
        return listing + gets + retrieved_bytes * self.dollars_per_byte(prices)

    def dollars_per_byte(self, prices: StorageClassPrices) -> float:
        """Return what each byte costs that is read of a class, apart from its request."""
        transfer = self.gb_transferred_out.dollars if self.counts_transfer_out else 0.0
        return (prices.gb_retrieved.dollars + transfer) / BYTES_PER_PRICED_GB

    def break_even_bytes(self, storage_class: str | None) -> float:
        """Return how many bytes cost as much as one GET: infinitely many where bytes are free, or no price is known."""
        prices = self.find(storage_class)
        per_byte = 0.0 if prices is None else self.dollars_per_byte(prices)
        return float("inf") if prices is None or per_byte == 0 else prices.million_gets.dollars / 1e6 / per_byte

    def restore_price(self, storage_class: str, tier: RestoreTier) -> RestorePrice:
        """Return what one tier of restoring costs and takes.

        Raises:
            InvalidInputError: The class is unknown (kind ``UnknownStorageClass``), or has no such tier (``NoSuchTier``).
        """
        prices = self.of(storage_class)
        for restore in prices.restores:
            if restore.tier == tier:
                return restore
        tiers = ", ".join(restore.tier for restore in prices.restores)
        raise InvalidInputError(
            f"{prices.name} is not restored in tier {tier!r}; " + (f"use {tiers}" if tiers else "it needs no restore"),
            kind="NoSuchTier",
            storage_class=prices.name,
            tier=tier,
        )

    def restore_dollars(
        self, storage_class: str, tier: RestoreTier, *, object_count: int, object_bytes: int, days: int
    ) -> float:
        """Price a restore: requests, retrieval, and storing the copies in S3 Standard for so many days.

        Args:
            storage_class: Where the objects lie.
            tier: How fast.
            object_count: How many objects.
            object_bytes: Their size, all together.
            days: How long the copies stay.

        Raises:
            InvalidInputError: As :meth:`restore_price`.
        """
        price = self.restore_price(storage_class, tier)
        gigabytes = object_bytes / BYTES_PER_PRICED_GB
        copies = gigabytes * self.of(STANDARD).gb_month.dollars * days / _DAYS_PER_MONTH
        return object_count * price.million_requests.dollars / 1e6 + gigabytes * price.gb.dollars + copies


@cache
def _default_table() -> PriceTable:
    from coldparquet.price_file import read_price_table  # noqa: PLC0415 - plans without a price need no table

    return read_price_table(Path(__file__).with_name("prices.json"))
