"""Holds the prices of object stores as data: requests, retrieval, storage, restores, and bytes that leave the region.

The library's table is ``prices.json`` beside this module. Your own table, for another region, another store or
negotiated prices, is a file of the same form, see :meth:`PriceTable.read`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import MISSING, dataclass
from dataclasses import fields as dataclass_fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, TypeVar, get_args

from coldparquet.errors import InvalidInputError, NotFoundError
from coldparquet.records import replace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence


STANDARD = "STANDARD"
"""The class of objects for which S3 names none, and of listings."""

BYTES_PER_PRICED_GB = 1e9
"""Prices are per GB; the decimal one makes the estimate err on the expensive side."""

_DAYS_PER_MONTH = 30

RequestKind: TypeAlias = Literal["get", "head", "list", "put"]
"""The kinds of requests on S3's invoice; the requests of a multipart upload count as ``put``. Deletes are free."""
RestoreTier: TypeAlias = Literal["Expedited", "Standard", "Bulk"]
"""How fast S3 restores an archived object, in S3's own words; DEEP_ARCHIVE has no ``Expedited``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One figure of a price table, and how far to trust it."""

    dollars: float
    as_of: str
    """Month of the lookup: ``2026-11``."""
    source: str
    """Its source: an address, or any text of the table's author."""
    verified: bool
    """Whether the store itself or two independent publications state it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePrice:
    """Price and duration of making archived objects readable for some days, in one tier."""

    tier: RestoreTier
    hours_typical: float
    hours_most: float
    """S3 guarantees nothing; most restores complete within this time."""
    million_requests: Price
    """Dollars for a million objects of any size."""
    gb: Price
    """Dollars for each GB of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClassPrices:
    """Prices of one storage class."""

    name: str
    """S3's own: ``STANDARD_IA``."""
    million_gets: Price
    million_heads: Price
    million_puts: Price
    """Includes the requests of a multipart upload."""
    million_lists: Price
    gb_retrieved: Price
    """Price of reading besides the request; for archived objects it is part of the restore."""
    gb_month: Price
    """Of storage."""
    restores: tuple[RestorePrice, ...] = ()
    """One per tier, for classes whose objects are or may be archived."""
    must_be_restored: bool = False
    """Whether every object of the class needs a restore before it can be read."""

    @property
    def is_verified(self) -> bool:
        """Whether both prices for reading are verified."""
        return self.million_gets.verified and self.gb_retrieved.verified


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """Prices of a store, in dollars."""

    name: str
    """The store in words, for people: ``Amazon S3, us-east-1``."""
    as_of: str
    """Month of the table; single prices may be older."""
    classes: tuple[StorageClassPrices, ...]
    gb_transferred_out: Price
    """Each GB that leaves the region; within it transfer is free."""
    counts_transfer_out: bool = False
    """Whether reads leave the region, so that every byte is charged with ``gb_transferred_out``."""

    def __hash__(self) -> int:
        # Options are keys of caches, and hashing every price would take longer than computing the cached values.
        return hash((self.name, self.as_of))

    @staticmethod
    def default() -> PriceTable:
        """Return the table that comes with the library. It is read once."""
        return _default_table()

    @staticmethod
    def read(path: str | os.PathLike[str]) -> PriceTable:
        """Read a table of your own. No request; local files only.

        It is a JSON object like ``prices.json`` in the directory of this module: ``name``, ``as_of``, ``source``,
        ``gb_transferred_out``, ``counts_transfer_out`` and ``classes``. A price is a number of dollars, which takes
        ``as_of``, ``source`` and ``verified`` from the top of the file, or an object with ``dollars`` and any of these.
        With ``"based_on": "default"`` the library's table supplies everything that the file omits. So this is enough:
        ``{"based_on": "default", "name": "ours", "as_of": "2026-11", "classes": {"STANDARD_IA": {"gb_retrieved":
        0.008}}}``.

        Raises:
            NotFoundError: There is no such file.
            InvalidInputError: It is unreadable, not JSON, or not a table (kind ``InvalidPrices``); ``field`` says
                where.
        """
        return _read_table(Path(path))

    def find(self, storage_class: str | None) -> StorageClassPrices | None:
        """Return the prices of a class, None if unknown; a class of None is ``STANDARD``."""
        wanted = storage_class or STANDARD
        return next((prices for prices in self.classes if prices.name == wanted), None)

    def of(self, storage_class: str | None) -> StorageClassPrices:
        """Return the prices of a class.

        Raises:
            InvalidInputError: They are unknown (kind ``UnknownStorageClass``).
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
        """Price requests of one kind; None if the class has no known price.

        Args:
            kind: Kind of the requests.
            storage_class: Storage class of the object; None is ``STANDARD``.
            retrieved_bytes: Total bytes that the requests fetch; 0 for all but GETs.
            count: How many requests.
        """
        prices = self.find(storage_class)
        if prices is None:
            return None
        of_kind: dict[RequestKind, Price] = {
            "get": prices.million_gets,
            "head": prices.million_heads,
            "list": prices.million_lists,
            "put": prices.million_puts,
        }
        return count * of_kind[kind].dollars / 1e6 + retrieved_bytes * self.dollars_per_byte(prices)

    def read_dollars(
        self, *, get_count: int, retrieved_bytes: int, list_count: int = 0, storage_class: str | None = None
    ) -> float:
        """Price GETs of objects of one class, and listings, which cost the same for all classes.

        Raises:
            InvalidInputError: The class has no known price (kind ``UnknownStorageClass``).
        """
        prices = self.of(storage_class)
        listing = list_count * self.of(STANDARD).million_lists.dollars / 1e6
        gets = get_count * prices.million_gets.dollars / 1e6
        return listing + gets + retrieved_bytes * self.dollars_per_byte(prices)

    def dollars_per_byte(self, prices: StorageClassPrices) -> float:
        """Return the price of each byte read from a class, without its request."""
        transfer = self.gb_transferred_out.dollars if self.counts_transfer_out else 0.0
        return (prices.gb_retrieved.dollars + transfer) / BYTES_PER_PRICED_GB

    def break_even_bytes(self, storage_class: str | None) -> float:
        """Return how many bytes cost as much as one GET: infinity if bytes are free, or no price is known."""
        prices = self.find(storage_class)
        per_byte = 0.0 if prices is None else self.dollars_per_byte(prices)
        return float("inf") if prices is None or per_byte == 0 else prices.million_gets.dollars / 1e6 / per_byte

    def restore_price(self, storage_class: str, tier: RestoreTier) -> RestorePrice:
        """Return price and duration of one restore tier.

        Raises:
            InvalidInputError: The class is unknown (kind ``UnknownStorageClass``), or has no such tier
                (``NoSuchTier``).
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
        """Price a restore: requests, retrieval, and storage of the copies in S3 Standard for some days.

        Args:
            storage_class: Storage class of the objects.
            tier: How fast.
            object_count: How many objects.
            object_bytes: Their total size.
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
    return _read_table(Path(__file__).with_name("prices.json"))


_MOST_BYTES = 1024 * 1024
"""A longer file is not a price table."""

_TABLE_FIELDS = (
    "name",
    "as_of",
    "source",
    "verified",
    "based_on",
    "gb_transferred_out",
    "counts_transfer_out",
    "classes",
)
Made = TypeVar("Made", "StorageClassPrices", "RestorePrice")
_TIERS: tuple[RestoreTier, ...] = get_args(RestoreTier)


def _read_table(path: Path) -> PriceTable:
    file = _Field(path=str(path), name="", value=_json_of(path))
    fields = file.members(_TABLE_FIELDS)
    base = _base(fields.get("based_on"))
    origin = Price(
        dollars=0.0,
        as_of=file.required(fields, "as_of").text(),
        source=fields["source"].text() if "source" in fields else "your own table",
        verified=fields["verified"].truth() if "verified" in fields else True,
    )
    known = {prices.name: prices for prices in base.classes} if base else {}
    if base is None or "classes" in fields:
        for name, field in file.required(fields, "classes").entries().items():
            known[name] = _read(StorageClassPrices, field, origin, base=known.get(name), name=name)
    if not known:
        fields["classes"].refuse("at least one storage class")
    counts = fields.get("counts_transfer_out")
    if base is None or "gb_transferred_out" in fields:
        transfer = _price(file.required(fields, "gb_transferred_out"), origin)
    else:
        transfer = base.gb_transferred_out
    return PriceTable(
        name=file.required(fields, "name").text(),
        as_of=origin.as_of,
        classes=tuple(known.values()),
        gb_transferred_out=transfer,
        counts_transfer_out=counts.truth() if counts else base is not None and base.counts_transfer_out,
    )


def _base(field: _Field | None) -> PriceTable | None:
    if field is None:
        return None
    if field.text() != "default":
        field.refuse('"default", the table of the library')
    return PriceTable.default()


def _read(kind: type[Made], field: _Field, origin: Price, *, base: Made | None = None, **known: Any) -> Made:
    """Make a dataclass of an object, each field by its type; what is missing is that of ``base``, or the default."""
    wanted = [described for described in dataclass_fields(kind) if described.name not in known]
    members = field.members([described.name for described in wanted])
    for described in wanted:
        name, otherwise = described.name, None if base is None else getattr(base, described.name)
        if name in members:
            known[name] = _READERS[str(described.type)](members[name], origin, otherwise)
        elif base is not None:
            known[name] = otherwise
        elif described.default is MISSING:
            field.required(members, name)
    return kind(**known)


def _restores(field: _Field, origin: Price, others: tuple[RestorePrice, ...] | None = None) -> tuple[RestorePrice, ...]:
    of_tier = field.members(_TIERS)
    found = {restore.tier: restore for restore in others or ()}
    found |= {tier: _read(RestorePrice, of_tier[tier], origin, tier=tier) for tier in _TIERS if tier in of_tier}
    return tuple(found.values())


def _price(field: _Field, origin: Price, _other: Price | None = None) -> Price:
    """Read a number with the origin of the whole file, or an object with its own origin."""
    if not isinstance(field.value, dict):
        return replace(origin, dollars=field.number("a number of dollars"))
    members = field.members(("dollars", "as_of", "source", "verified"))
    return Price(
        dollars=field.required(members, "dollars").number("a number of dollars"),
        as_of=members["as_of"].text() if "as_of" in members else origin.as_of,
        source=members["source"].text() if "source" in members else origin.source,
        verified=members["verified"].truth() if "verified" in members else origin.verified,
    )


_READERS: dict[str, Callable[[_Field, Price, Any], Any]] = {
    "Price": _price,
    "float": lambda field, _origin, _other: field.number("a number of hours"),
    "bool": lambda field, _origin, _other: field.truth(),
    "tuple[RestorePrice, ...]": _restores,
}
"""By the type of a dataclass's field, how it is read from JSON, given the origin of its prices and its value so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """A value in the file, and its path."""

    path: str
    name: str
    """``classes.STANDARD.million_gets``; empty for the whole file."""
    value: Any

    def refuse(self, expected: str) -> NoReturn:
        """Raise the error for an unexpected value."""
        shown = json.dumps(self.value)
        raise InvalidInputError(
            f"{self.name or 'the file'} is {shown if len(shown) <= 60 else shown[:60] + ' ...'}; expected {expected}",
            kind="InvalidPrices",
            path=self.path,
            field=self.name,
            expected=expected,
        )

    def entries(self) -> dict[str, _Field]:
        """Return the fields of an object, with any names."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        prefix = f"{self.name}." if self.name else ""
        return {key: _Field(path=self.path, name=f"{prefix}{key}", value=value) for key, value in self.value.items()}

    def members(self, allowed: Iterable[str]) -> dict[str, _Field]:
        """Return the fields of an object, with these names only."""
        fields = self.entries()
        for key, field in fields.items():
            if key not in allowed:
                field.refuse(f"no such field; known here: {', '.join(allowed)}")
        return fields

    def required(self, fields: Mapping[str, _Field], key: str) -> _Field:
        """Return one of the fields of this object."""
        if key not in fields:
            self.refuse(f"a field {key!r} in it")
        return fields[key]

    def text(self) -> str:
        """Return a string that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            self.refuse("a string")
        return self.value

    def truth(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            self.refuse("true or false")
        return self.value

    def number(self, what: str) -> float:
        """Return a number that is not negative."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.refuse(f"{what}, at least 0")
        try:
            number = float(self.value)
        except OverflowError:
            number = math.inf
        if not 0 <= number < math.inf:
            self.refuse(f"{what}, at least 0")
        return number


def _json_of(path: Path) -> Any:
    """Read JSON without repeated names."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError("there is no such price table", path=str(path)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInputError(
            f"the price table cannot be read: {reason}", kind="InvalidPrices", path=str(path)
        ) from None
    if len(data) > _MOST_BYTES:
        raise InvalidInputError(
            f"more than {_MOST_BYTES:,} bytes: this is no price table", kind="InvalidPrices", path=str(path)
        )
    try:
        return json.loads(data, object_pairs_hook=_distinct)
    except RecursionError:
        reason = "lists or objects lie in each other too deeply"
    except ValueError as error:  # JSON, UTF-8, or a number of thousands of digits
        reason = str(error)
    raise InvalidInputError(f"the price table is no JSON: {reason}", kind="InvalidPrices", path=str(path))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is named twice in one object")
    return found


_RULE = re.compile(r"(?P<days>\d{1,6})d=(?P<storage_class>[A-Z_]{1,30})", re.ASCII)
_DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClassRule:
    """Selects a storage class for partitions that ended long enough ago."""

    after_days: int
    storage_class: str
    """A class in the library's price table that answers a GET without a restore."""

    def __post_init__(self) -> None:
        known = [prices.name for prices in PriceTable.default().classes if not prices.must_be_restored]
        if self.storage_class not in known:
            raise InvalidInputError(
                f"storage class {self.storage_class!r} is none of {', '.join(known)}; partitions in archive classes"
                " could not be read without restoring them first, so move them there by a lifecycle rule if you want to",
                kind="UnknownStorageClass",
            )
        if self.after_days < 0:
            raise InvalidInputError(f"an age of {self.after_days} days; expected 0 or more")


def parse_storage_class_rule(text: str) -> StorageClassRule:
    """Parse a rule such as ``30d=GLACIER_IR``.

    Raises:
        InvalidInputError: The text is not such a rule, or the class is unknown.
    """
    match = _RULE.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text!r} is no rule for a storage class; write it as 30d=GLACIER_IR")
    return StorageClassRule(after_days=int(match["days"]), storage_class=match["storage_class"])


def storage_class_of(ended_s: float, rules: Sequence[StorageClassRule], *, now_s: float) -> str | None:
    """Return the class of the rule with the largest age that a partition has reached; None for the bucket's default."""
    reached = [rule for rule in rules if now_s - ended_s >= rule.after_days * _DAY_S]
    return max(reached, key=_after_days).storage_class if reached else None


def _after_days(rule: StorageClassRule) -> int:
    return rule.after_days
