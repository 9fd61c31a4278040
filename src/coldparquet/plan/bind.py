"""Binds predicates to one table: fields become indexes, literals become values of the column's own domain.

Pruning and the row filter both evaluate this tree, so they cannot disagree about the meaning of a literal. NULL follows
SQL. A NaN that a foreign file stores as a value follows IEEE 754: every comparison with it is false, except ``!=``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.format.types import ColumnType
from coldparquet.format.types import Comparison as Order
from coldparquet.plan.bounds import SortedValues
from coldparquet.plan.columns import unknown_column
from coldparquet.plan.literals import DomainValue, Place, PlacedLiteral, format_value, place_literal, place_literals
from coldparquet.plan.predicate import (
    And,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    Value,
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


@dataclass(frozen=True, slots=True)
class BoundPredicate:
    """A predicate on the rows of one table. ``str()`` writes it as SQL, for people."""

    def fields(self) -> tuple[BoundField, ...]:
        """Return the fields needed to evaluate the predicate, each once, in order of appearance."""
        return tuple({field.index: field for field in _fields(self)}.values())


@dataclass(frozen=True, slots=True)
class BoundComparison(BoundPredicate):
    """``field operator value``; NULL if the field is NULL."""

    field: BoundField
    operator: Operator
    value: DomainValue

    def __str__(self) -> str:
        return f"{quote_name(self.field.name)} {self.operator} {format_value(self.value, self.field.type)}"


@dataclass(frozen=True, slots=True)
class BoundIn(BoundPredicate):
    """The field equals one of ``values``; NULL if the field is NULL."""

    field: BoundField
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
class BoundIsNull(BoundPredicate):
    """The field is NULL; never NULL itself."""

    field: BoundField

    def __str__(self) -> str:
        return f"{quote_name(self.field.name)} IS NULL"


@dataclass(frozen=True, slots=True)
class ConstantUnlessNull(BoundPredicate):
    """A comparison that has the same outcome for every value of the field, such as ``int_column = 3.5``."""

    field: BoundField
    value: bool

    def __str__(self) -> str:
        return f"({value_text(self.value)} unless {quote_name(self.field.name)} IS NULL)"


@dataclass(frozen=True, slots=True)
class BoundLiteral(BoundPredicate):
    """TRUE, FALSE or NULL (None) for every row."""

    value: bool | None

    def __str__(self) -> str:
        return value_text(self.value)


@dataclass(frozen=True, slots=True)
class BoundAnd(BoundPredicate):
    """All of ``parts``."""

    parts: tuple[BoundPredicate, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({part})" if isinstance(part, BoundOr) else str(part) for part in self.parts) or "TRUE"


@dataclass(frozen=True, slots=True)
class BoundOr(BoundPredicate):
    """Any of ``parts``."""

    parts: tuple[BoundPredicate, ...]

    def __str__(self) -> str:
        return " OR ".join(map(str, self.parts)) or "FALSE"


@dataclass(frozen=True, slots=True)
class BoundNot(BoundPredicate):
    """The opposite of ``part``; NULL stays NULL."""

    part: BoundPredicate

    def __str__(self) -> str:
        if isinstance(self.part, BoundIsNull):
            return f"{quote_name(self.part.field.name)} IS NOT NULL"
        return f"NOT ({self.part})"


def bind(predicate: Predicate, fields: Mapping[str, BoundField]) -> BoundPredicate:
    """Bind a predicate to a table."""
    match predicate:
        case And(parts=parts):
            return _joined([bind(part, fields) for part in parts], of_and=True)
        case Or(parts=parts):
            return _joined([bind(part, fields) for part in parts], of_and=False)
        case Not(part=part):
            return BoundNot(bind(part, fields))
    return _bind_leaf(predicate, fields)


def _bind_leaf(predicate: Predicate, fields: Mapping[str, BoundField]) -> BoundPredicate:
    match predicate:
        case Literal(value=value):
            return BoundLiteral(value)
        case IsNull(column=column):
            bound_field = _field(column, fields)
            return BoundLiteral(value=False) if bound_field.type.never_null else BoundIsNull(bound_field)
        case In(column=column, values=values):
            return _bind_in(_field(column, fields), values)
        case Comparison(column=column, operator=operator, value=value):
            return _bind_comparison(_field(column, fields), operator, value)
    raise InvalidInputError(
        f"{type(predicate).__name__} is not a kind of predicate that can be bound", kind="InvalidPredicate"
    )


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
            joined.append(BoundNot(member) if of_and else member)
    if len(joined) == 1 < len(parts):
        return joined[0]
    return BoundAnd(tuple(joined)) if of_and else BoundOr(tuple(joined))


def _listable(part: BoundPredicate, *, of_and: bool) -> BoundComparison | BoundIn | None:
    """Return the search for values that a part of an OR is, or that a part of an AND negates."""
    match part:
        case BoundNot(part=BoundIn() as leaf) if of_and:
            return leaf
        case BoundNot(part=BoundComparison(operator=Operator.EQUAL) as leaf) if of_and:
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


def _fields(bound: BoundPredicate) -> Iterable[BoundField]:
    match bound:
        case BoundAnd(parts=parts) | BoundOr(parts=parts):
            for part in parts:
                yield from _fields(part)
        case BoundNot(part=part):
            yield from _fields(part)
        case BoundComparison() | BoundIn() | BoundIsNull() | ConstantUnlessNull():
            yield bound.field


def _field(column: str, fields: Mapping[str, BoundField]) -> BoundField:
    found = fields.get(column)
    if found is not None:
        return found
    raise unknown_column(column, fields)


def _bind_comparison(bound_field: BoundField, operator: Operator, value: Value) -> BoundPredicate:
    is_equality = operator in (Operator.EQUAL, Operator.NOT_EQUAL)
    _check_comparable(bound_field, needs_order=not is_equality)
    placed = place_literal(value, bound_field.type, bound_field.name, operator)
    match placed.place:
        case Place.NULL:
            return BoundLiteral(None)
        case Place.AT:
            return BoundComparison(bound_field, operator, _value_of(placed))
        case Place.AFTER if not is_equality:
            # Between two neighbouring values, "at least" and "more than" the literal both mean more than the lower
            # neighbour.
            wants_greater = operator in (Operator.GREATER, Operator.GREATER_OR_EQUAL)
            folded = Operator.GREATER if wants_greater else Operator.LESS_OR_EQUAL
            return BoundComparison(bound_field, folded, _value_of(placed))
        case Place.AFTER:
            return _constant(bound_field, outcome=operator is Operator.NOT_EQUAL)
        case Place.BELOW_ALL:
            true_for = (Operator.NOT_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL)
        case Place.ABOVE_ALL:
            true_for = (Operator.NOT_EQUAL, Operator.LESS, Operator.LESS_OR_EQUAL)
    return _constant(bound_field, outcome=operator in true_for)


def _bind_in(bound_field: BoundField, values: tuple[Value, ...]) -> BoundPredicate:
    _check_comparable(bound_field, needs_order=False)
    if not values:
        # An empty list is false even for NULL: NULL has nothing to be compared with.
        return BoundLiteral(value=False)
    found, has_null = place_literals(values, bound_field.type, bound_field.name)
    member = _one_of(bound_field, found) if found else _constant(bound_field, outcome=False)
    return BoundOr((member, BoundLiteral(None))) if has_null else member


def _constant(bound_field: BoundField, *, outcome: bool) -> BoundPredicate:
    return BoundLiteral(outcome) if bound_field.type.never_null else ConstantUnlessNull(bound_field, outcome)


def _value_of(placed: PlacedLiteral) -> DomainValue:
    if placed.value is None:
        raise TypeError(f"a literal {placed.place.value} has no value")
    return placed.value


def _check_comparable(bound_field: BoundField, *, needs_order: bool) -> None:
    column_type = bound_field.type
    if column_type.arrow.name == "list":
        allowed = "IS NULL and IS NOT NULL"
    elif needs_order and column_type.comparison in (Order.BYTES_EQUALITY, Order.BOOLEAN):
        allowed = "=, !=, IN and IS [NOT] NULL"
    else:
        return
    raise UnsupportedError(
        f"column {bound_field.name!r} is {column_type.name}, which has only {allowed}",
        kind="UnsupportedComparison",
        column=bound_field.name,
        type=column_type.name,
    )
