"""Binds predicates to one table: fields become indexes, literals become values of the column's own domain.

Pruning and the row filter both evaluate this tree, so they cannot disagree about the meaning of a literal. NULL follows
SQL. A NaN that a foreign file stores as a value follows IEEE 754: every comparison with it is false, except ``!=``.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from coldparquet.errors import InternalError, InvalidInputError, UnsupportedError
from coldparquet.format.types import ColumnType, ValueOrder
from coldparquet.plan.bounds import SortedValues
from coldparquet.plan.columns import unknown_column
from coldparquet.plan.literals import (
    DomainPlace,
    DomainValue,
    PlacedLiteral,
    format_value,
    place_literal,
    place_literals,
)
from coldparquet.plan.predicate import (
    And,
    Comparison,
    Fold,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    Result,
    StartsWith,
    Value,
    leaves,
    quote_name,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SHOWN_VALUES = 5


@dataclass(frozen=True, slots=True)
class BoundField:
    """A column of the table in a predicate."""

    name: str
    index: int
    """Position in the table's schema."""
    type: ColumnType


BoundPredicate: TypeAlias = Predicate
"""A predicate whose leaves are literals and :class:`BoundLeaf`. ``str()`` writes it as SQL, for people."""


@dataclass(frozen=True, slots=True)
class BoundLeaf(Predicate):
    """A test of one field."""

    depth: int = dataclasses.field(init=False, repr=False, compare=False, default=0)
    """One less than unbound: a list with NULL becomes an OR of two leaves, and binding must make no tree too deep."""
    field: BoundField


@dataclass(frozen=True, slots=True)
class BoundComparison(BoundLeaf):
    """``field operator value``; NULL if the field is NULL."""

    operator: Operator
    value: DomainValue

    def __str__(self) -> str:
        return f"{quote_name(self.field.name)} {self.operator} {format_value(self.value, self.field.type)}"


@dataclass(frozen=True, slots=True)
class BoundIn(BoundLeaf):
    """The field equals one of ``values``; NULL if the field is NULL."""

    values: tuple[DomainValue, ...]
    """Distinct, ascending, at least two."""
    search: SortedValues = dataclasses.field(init=False, repr=False, compare=False)
    """The same values, prepared for searches with many bounds at once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "search", SortedValues.of(self.values))

    def __str__(self) -> str:
        shown = ", ".join(format_value(value, self.field.type) for value in self.values[:_SHOWN_VALUES])
        more = f", ... {len(self.values):,} values" if len(self.values) > _SHOWN_VALUES else ""
        return f"{quote_name(self.field.name)} IN ({shown}{more})"


@dataclass(frozen=True, slots=True)
class BoundIsNull(BoundLeaf):
    """The field is NULL; never NULL itself."""

    def __str__(self) -> str:
        return f"{quote_name(self.field.name)} IS NULL"

    def negated_text(self) -> str:
        """Write the opposite as SQL."""
        return f"{quote_name(self.field.name)} IS NOT NULL"


@dataclass(frozen=True, slots=True)
class ConstantUnlessNull(BoundLeaf):
    """A comparison that has the same outcome for every value of the field, such as ``int_column = 3.5``."""

    value: bool

    def __str__(self) -> str:
        return f"({value_text(self.value)} unless {quote_name(self.field.name)} IS NULL)"


@dataclass(frozen=True, slots=True)
class BoundLike(BoundLeaf):
    """The text of the field has the form of a pattern; NULL if the field is NULL. Statistics do not tell."""

    pattern: str
    """As in :class:`coldparquet.plan.predicate.Like`."""

    def __str__(self) -> str:
        return str(Like(self.field.name, self.pattern))

    @property
    def regex(self) -> str:
        """The pattern as a regular expression of the whole text."""
        wildcards = {"%": ".*", "_": "."}
        parts = [
            re.escape(part[-1]) if len(part) > 1 else wildcards.get(part, re.escape(part))
            for part in _parts(self.pattern)
        ]
        return rf"(?s)\A(?:{''.join(parts)})\z"


def _parts(pattern: str) -> list[str]:
    """Return the wildcards and characters of a pattern; escaped ones with their backslash."""
    return re.findall(r"(?s)\\.|.", pattern)


class BoundFold(Fold[Result]):
    """A fold of bound predicates."""

    def leaf(self, leaf: Predicate) -> Result:
        """See :meth:`test`."""
        if isinstance(leaf, BoundLeaf):
            return self.test(leaf)
        raise InternalError(f"a {type(leaf).__name__} is no part of a bound predicate")

    def test(self, leaf: BoundLeaf) -> Result:
        """Return what the test of one field means."""
        raise NotImplementedError


def fields_of(bound: BoundPredicate) -> tuple[BoundField, ...]:
    """Return the fields needed to evaluate a predicate, each once, in order of appearance."""
    return tuple({leaf.field.index: leaf.field for leaf in leaves(bound) if isinstance(leaf, BoundLeaf)}.values())


def bind(predicate: Predicate, fields: Mapping[str, BoundField]) -> BoundPredicate:
    """Bind a predicate to a table."""
    return _Binding(fields).of(predicate)


class _Binding(Fold[Predicate]):
    """Puts the leaves of a table in the place of those of its caller."""

    def __init__(self, fields: Mapping[str, BoundField]) -> None:
        self._fields = fields

    def constant(self, value: bool | None) -> Predicate:
        return Literal(value)

    def all_of(self, results: Iterable[Predicate]) -> Predicate:
        return _joined(list(results), of_and=True)

    def any_of(self, results: Iterable[Predicate]) -> Predicate:
        return _joined(list(results), of_and=False)

    def negated(self, result: Predicate) -> Predicate:
        return Not(result)

    def leaf(self, leaf: Predicate) -> Predicate:
        match leaf:
            case IsNull(column=column):
                field = self._field(column)
                return Literal(value=False) if field.type.never_null else BoundIsNull(field)
            case In(column=column, values=values):
                return _bind_in(self._field(column), values)
            case Comparison(column=column, operator=operator, value=value):
                return _bind_comparison(self._field(column), operator, value)
            case StartsWith(column=column, prefix=prefix):
                return _bind_prefix(self._field(column), prefix)
            case Like(column=column, pattern=pattern):
                return _bind_like(self._field(column), pattern)
        raise InvalidInputError(
            f"{type(leaf).__name__} is not a kind of predicate that can be bound", kind="InvalidPredicate"
        )

    def _field(self, column: str) -> BoundField:
        found = self._fields.get(column)
        if found is None:
            raise unknown_column(column, self._fields)
        return found


def _joined(parts: Sequence[BoundPredicate], *, of_and: bool) -> BoundPredicate:
    """Join parts. All values that a field must not equal (AND) or may equal (OR) become a single list.

    Each part is evaluated separately for every row group; a list of any length takes one step.
    """
    by_field: dict[int, list[BoundComparison | BoundIn]] = {}
    for part in parts:
        if (leaf := _listable(part, of_and=of_and)) is not None:
            by_field.setdefault(leaf.field.index, []).append(leaf)
    joined: list[BoundPredicate] = []
    for part in parts:
        leaf = _listable(part, of_and=of_and)
        alike = [] if leaf is None else by_field[leaf.field.index]
        if leaf is None or len(alike) == 1:
            joined.append(part)
        elif leaf is alike[0]:
            member = _one_of(leaf.field, {value for other in alike for value in _values_of(other)})
            joined.append(Not(member) if of_and else member)
    if len(joined) == 1 < len(parts):
        return joined[0]
    return And(tuple(joined)) if of_and else Or(tuple(joined))


def _listable(part: BoundPredicate, *, of_and: bool) -> BoundComparison | BoundIn | None:
    """Return the search for values that a part of an OR is, or that a part of an AND negates."""
    match part:
        case Not(part=BoundIn() as leaf) if of_and:
            return leaf
        case Not(part=BoundComparison(operator=Operator.EQUAL) as leaf) if of_and:
            return leaf
        case BoundComparison(operator=operator):
            return part if operator is (Operator.NOT_EQUAL if of_and else Operator.EQUAL) else None
        case BoundIn() if not of_and:
            return part
    return None


def _values_of(leaf: BoundComparison | BoundIn) -> tuple[DomainValue, ...]:
    return leaf.values if isinstance(leaf, BoundIn) else (leaf.value,)


def _one_of(bound_field: BoundField, values: set[DomainValue]) -> BoundComparison | BoundIn:
    """Return the predicate that a field equals one of at least one values."""
    if len(values) == 1:
        return BoundComparison(bound_field, Operator.EQUAL, *values)
    return BoundIn(bound_field, tuple(sorted(values)))


def _bind_comparison(bound_field: BoundField, operator: Operator, value: Value) -> BoundPredicate:
    is_equality = operator in (Operator.EQUAL, Operator.NOT_EQUAL)
    _check_comparable(bound_field, needs_order=not is_equality)
    placed = place_literal(value, bound_field.type, bound_field.name, operator)
    match placed.place:
        case DomainPlace.NULL:
            return Literal(None)
        case DomainPlace.AT:
            return BoundComparison(bound_field, operator, _value_of(placed))
        case DomainPlace.AFTER if not is_equality:
            # Between two neighbouring values, "at least" and "more than" the literal both mean more than the lower
            # neighbour.
            wants_greater = operator in (Operator.GREATER, Operator.GREATER_OR_EQUAL)
            folded = Operator.GREATER if wants_greater else Operator.LESS_OR_EQUAL
            return BoundComparison(bound_field, folded, _value_of(placed))
        case DomainPlace.AFTER:
            return _constant(bound_field, outcome=operator is Operator.NOT_EQUAL)
        case DomainPlace.BELOW_ALL:
            true_for = (Operator.NOT_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL)
        case DomainPlace.ABOVE_ALL:
            true_for = (Operator.NOT_EQUAL, Operator.LESS, Operator.LESS_OR_EQUAL)
    return _constant(bound_field, outcome=operator in true_for)


def _bind_in(bound_field: BoundField, values: tuple[Value, ...]) -> BoundPredicate:
    _check_comparable(bound_field, needs_order=False)
    if not values:
        # An empty list is false even for NULL: NULL has nothing to be compared with.
        return Literal(value=False)
    found, has_null = place_literals(values, bound_field.type, bound_field.name)
    member = _one_of(bound_field, found) if found else _constant(bound_field, outcome=False)
    return Or((member, Literal(None))) if has_null else member


def _bind_prefix(bound_field: BoundField, prefix: str) -> BoundPredicate:
    """Bind a prefix as a range of bytes, in which text is compared: at least the prefix, below the next one as long."""
    _check_text(bound_field)
    at_least = _bind_comparison(bound_field, Operator.GREATER_OR_EQUAL, prefix)
    if not prefix:
        return at_least
    encoded = prefix.encode()
    # No byte of UTF-8 is 255, so the last one can be raised.
    above = encoded[:-1] + bytes([encoded[-1] + 1])
    return And((at_least, BoundComparison(bound_field, Operator.LESS, above)))


def _bind_like(bound_field: BoundField, pattern: str) -> BoundPredicate:
    """Bind a pattern, and as a range what stands before its first wildcard: that prunes, and changes no outcome."""
    _check_text(bound_field)
    place_literal(pattern, bound_field.type, bound_field.name)  # refuses what UTF-8 cannot write
    like = BoundLike(bound_field, pattern)
    prefix = "".join(part[-1] for part in takewhile(lambda part: part not in ("%", "_"), _parts(pattern)))
    return And((_bind_prefix(bound_field, prefix), like)) if prefix else like


def _check_text(bound_field: BoundField) -> None:
    if bound_field.type.comparison is not ValueOrder.BYTES:
        name = quote_name(bound_field.name)
        hint = f"; for a month of times write {name} in '2024-03'" if bound_field.type.arrow.name == "timestamp" else ""
        raise UnsupportedError(
            f"column {bound_field.name!r} is {bound_field.type.name}, and only text has a prefix, or the form of a pattern{hint}",
            kind="UnsupportedComparison",
            column=bound_field.name,
            type=bound_field.type.name,
        )


def _constant(bound_field: BoundField, *, outcome: bool) -> BoundPredicate:
    return Literal(outcome) if bound_field.type.never_null else ConstantUnlessNull(bound_field, outcome)


def _value_of(placed: PlacedLiteral) -> DomainValue:
    if placed.value is None:
        raise TypeError(f"a literal {placed.place.value} has no value")
    return placed.value


def _check_comparable(bound_field: BoundField, *, needs_order: bool) -> None:
    column_type = bound_field.type
    if not column_type.is_compared:
        allowed = "IS NULL and IS NOT NULL"
    elif needs_order and column_type.comparison in (ValueOrder.BYTES_EQUALITY, ValueOrder.BOOLEAN):
        allowed = "=, !=, IN and IS [NOT] NULL"
    else:
        return
    raise UnsupportedError(
        f"column {bound_field.name!r} is {column_type.name}, which has only {allowed}",
        kind="UnsupportedComparison",
        column=bound_field.name,
        type=column_type.name,
    )
