"""Reading a price table from JSON, with errors that say which field is wrong and what was expected there."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from coldparquet.errors import InvalidInputError, NotFoundError
from coldparquet.prices import Price, PriceTable, RestorePrice, RestoreTier, StorageClassPrices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_MOST_BYTES = 1024 * 1024
"""A longer file is something else."""

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
_PRICES_OF_CLASS = ("million_gets", "million_heads", "million_puts", "million_lists", "gb_retrieved", "gb_month")
_PRICES_OF_RESTORE = ("million_requests", "gb")
_HOURS_OF_RESTORE = ("hours_typical", "hours_most")
_TIERS: tuple[RestoreTier, ...] = get_args(RestoreTier)


def read_price_table(path: Path) -> PriceTable:
    """Read a price table; see :meth:`coldparquet.prices.PriceTable.read`, also for what it raises."""
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
            known[name] = _class_prices(name, field, known.get(name), origin)
    if not known:
        fields["classes"].refuse("at least one storage class")
    counts = fields.get("counts_transfer_out")
    return PriceTable(
        name=file.required(fields, "name").text(),
        as_of=origin.as_of,
        classes=tuple(known.values()),
        gb_transferred_out=file.price_of(
            fields, "gb_transferred_out", origin, otherwise=None if base is None else base.gb_transferred_out
        ),
        counts_transfer_out=counts.truth() if counts else base is not None and base.counts_transfer_out,
    )


def _base(field: _Field | None) -> PriceTable | None:
    if field is None:
        return None
    if field.text() != "default":
        field.refuse('"default", the table of the library')
    return PriceTable.default()


def _class_prices(name: str, field: _Field, base: StorageClassPrices | None, origin: Price) -> StorageClassPrices:
    fields = field.members((*_PRICES_OF_CLASS, "restores", "must_be_restored"))

    def price(key: str) -> Price:
        return field.price_of(fields, key, origin, otherwise=None if base is None else getattr(base, key))

    restores = {restore.tier: restore for restore in base.restores} if base else {}
    if "restores" in fields:
        of_tier = fields["restores"].members(_TIERS)
        restores |= {tier: _restore_price(tier, of_tier[tier], origin) for tier in _TIERS if tier in of_tier}
    must = fields.get("must_be_restored")
    return StorageClassPrices(
        name=name,
        million_gets=price("million_gets"),
        million_heads=price("million_heads"),
        million_puts=price("million_puts"),
        million_lists=price("million_lists"),
        gb_retrieved=price("gb_retrieved"),
        gb_month=price("gb_month"),
        restores=tuple(restores.values()),
        must_be_restored=must.truth() if must else base is not None and base.must_be_restored,
    )


def _restore_price(tier: RestoreTier, field: _Field, origin: Price) -> RestorePrice:
    fields = field.members((*_PRICES_OF_RESTORE, *_HOURS_OF_RESTORE))
    typical, most = (field.required(fields, key).number("a number of hours") for key in _HOURS_OF_RESTORE)
    return RestorePrice(
        tier=tier,
        million_requests=field.price_of(fields, "million_requests", origin),
        gb=field.price_of(fields, "gb", origin),
        hours_typical=typical,
        hours_most=most,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """A value somewhere in the file, and the way to it."""

    path: str
    name: str
    """``classes.STANDARD.million_gets``; empty for the whole file."""
    value: Any

    def refuse(self, expected: str) -> NoReturn:
        """Raise the error for a value that is not what was expected."""
        shown = json.dumps(self.value)
        raise InvalidInputError(
            f"{self.name or 'the file'} is {shown if len(shown) <= 60 else shown[:60] + ' ...'}; expected {expected}",
            kind="InvalidPrices",
            path=self.path,
            field=self.name,
            expected=expected,
        )

    def entries(self) -> dict[str, _Field]:
        """Return what an object holds, under any names."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        prefix = f"{self.name}." if self.name else ""
        return {key: _Field(path=self.path, name=f"{prefix}{key}", value=value) for key, value in self.value.items()}

    def members(self, allowed: Iterable[str]) -> dict[str, _Field]:
        """Return what an object holds, under these names only."""
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

    def price_of(
        self, fields: Mapping[str, _Field], key: str, origin: Price, *, otherwise: Price | None = None
    ) -> Price:
        """Return the price in one of the fields of this object; it may be missing where another table has one."""
        if otherwise is not None and key not in fields:
            return otherwise
        return self.required(fields, key).price(origin)

    def price(self, origin: Price) -> Price:
        """Return a price: of a number with the origin of the whole file, of an object with what it says of its own."""
        if not isinstance(self.value, dict):
            return replace(origin, dollars=self.number("a number of dollars"))
        fields = self.members(("dollars", "as_of", "source", "verified"))
        return Price(
            dollars=self.required(fields, "dollars").number("a number of dollars"),
            as_of=fields["as_of"].text() if "as_of" in fields else origin.as_of,
            source=fields["source"].text() if "source" in fields else origin.source,
            verified=fields["verified"].truth() if "verified" in fields else origin.verified,
        )


def _json_of(path: Path) -> Any:
    """Read JSON in which no name comes twice."""
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
