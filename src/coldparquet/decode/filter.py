"""Keeps exactly the rows for which a bound predicate is true; evaluates cheap and selective parts first.

A leaf is evaluated in the domain in which its literal was bound: whole numbers in the column's own unit, doubles,
unscaled decimals, bytes. No conversion loses anything. NULL follows SQL, NaN follows IEEE 754.

The order of evaluation uses nanoseconds per row, as measured with a million rows, and guesses of common predicates.
Only their ratios matter, and only for speed.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from decimal import Decimal
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from coldparquet.decode.arrow import (
    byte_strings_to_arrow,
    mask_to_arrow,
    mask_to_numpy,
    numbers_to_arrow,
    numbers_to_numpy,
)
from coldparquet.errors import InternalError
from coldparquet.plan.bind import (
    BoundComparison,
    BoundFold,
    BoundIn,
    BoundIsNull,
    BoundLeaf,
    BoundLike,
    BoundPredicate,
    ConstantUnlessNull,
    fields_of,
)
from coldparquet.plan.predicate import And, Operator
from coldparquet.plan.selection import RowSelection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.predicate import Or


_MASK_NS = 0.3
_NUMBER_NS = 1.0
_DICTIONARY_NS = 4.0
_BYTES_NS = 9.0
_SEARCH_FACTOR = 4.0
"""Cost of a lookup in a set, relative to a comparison with one value."""
_PATTERN_FACTOR = 10.0

_COPY_NUMBER_NS = 4.0
_COPY_BYTES_NS = 30.0

_SHARE_OF_EQUAL = 0.05
_SHARE_OF_OPERATOR = {Operator.EQUAL: _SHARE_OF_EQUAL, Operator.NOT_EQUAL: 1 - _SHARE_OF_EQUAL}
_SHARE_OF_RANGE = 0.4
_SHARE_OF_NULL = 0.2
_SHARE_OF_PATTERN = 0.1


class _PredicateCost(Struct, frozen=True, kw_only=True):
    """The cost of evaluating a predicate, and the share of rows that it leaves."""

    ns_per_row: float
    share_true: float
    """Estimated share of rows for which it is true."""

    def order_among(self, *, of_and: bool) -> float:
        """Return the sort key of parts: time per row that this part alone decides."""
        share_decided = 1 - self.share_true if of_and else self.share_true
        return self.ns_per_row / max(share_decided, 0.01)


class _RemainingCost(Struct, frozen=True, kw_only=True):
    """The cost of the parts of an AND that are still to be evaluated, in nanoseconds per row."""

    evaluation_ns: float
    copy_ns: float
    """Cost of copying their columns."""
    columns: frozenset[str]

    def dropping_pays(self, matching_count: int, row_count: int) -> bool:
        """Tell whether evaluating them for fewer rows saves more than copying their columns costs."""
        few = matching_count * (self.copy_ns + self.evaluation_ns)
        return few + row_count < row_count * self.evaluation_ns


class _PredicateCosts(BoundFold[_PredicateCost]):
    """The costs of predicates on rows of one schema; each part of a predicate is estimated once.

    Args:
        schema: Types of the columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._types: dict[str, Any] = {}
        # By identity: hashing a predicate takes as long as its list of values. Keeping the predicate keeps its identity
        # valid.
        self._known: dict[int, tuple[BoundPredicate, _PredicateCost]] = {}

    def in_order(self, parts: Sequence[BoundPredicate], *, of_and: bool) -> list[BoundPredicate]:
        """Sort the parts of an AND, or of an OR, so that the first ones decide many rows in little time."""
        return sorted(parts, key=lambda part: self.of(part).order_among(of_and=of_and))

    def of(self, predicate: BoundPredicate) -> _PredicateCost:
        """Estimate the cost of evaluating a predicate."""
        known = self._known.get(id(predicate))
        if known is None:
            known = self._known[id(predicate)] = (predicate, super().of(predicate))
        return known[1]

    def constant(self, value: bool | None) -> _PredicateCost:
        return _PredicateCost(ns_per_row=_MASK_NS, share_true=float(value or 0))

    def all_of(self, results: Iterable[_PredicateCost]) -> _PredicateCost:
        costs = list(results)
        return _PredicateCost(
            ns_per_row=sum(cost.ns_per_row for cost in costs), share_true=prod(cost.share_true for cost in costs)
        )

    def any_of(self, results: Iterable[_PredicateCost]) -> _PredicateCost:
        costs = list(results)
        share = min(sum(cost.share_true for cost in costs), 1.0)
        return _PredicateCost(ns_per_row=sum(cost.ns_per_row for cost in costs), share_true=share)

    def negated(self, result: _PredicateCost) -> _PredicateCost:
        return _PredicateCost(ns_per_row=result.ns_per_row, share_true=1 - result.share_true)

    def test(self, leaf: BoundLeaf) -> _PredicateCost:
        ns_per_row, share_true = _MASK_NS, _SHARE_OF_NULL
        match leaf:
            case BoundIn(field=field):
                ns_per_row, share_true = _SEARCH_FACTOR * self._comparison_ns(field.name), 2 * _SHARE_OF_EQUAL
            case BoundLike(field=field):
                ns_per_row, share_true = _PATTERN_FACTOR * self._comparison_ns(field.name), _SHARE_OF_PATTERN
            case BoundComparison(field=field, operator=operator):
                ns_per_row = self._comparison_ns(field.name)
                share_true = _SHARE_OF_OPERATOR.get(operator, _SHARE_OF_RANGE)
            case ConstantUnlessNull(value=value):
                return self.constant(value)
        return _PredicateCost(ns_per_row=ns_per_row, share_true=share_true)

    def after_each(self, parts: Sequence[BoundPredicate]) -> list[_RemainingCost]:
        """Return the total cost of the parts after each one, in this order of evaluation."""
        remaining = [_RemainingCost(evaluation_ns=0.0, copy_ns=0.0, columns=frozenset())]
        for part in reversed(parts[1:]):
            later = remaining[-1]
            new = {field.name for field in fields_of(part)} - later.columns
            remaining.append(
                _RemainingCost(
                    evaluation_ns=later.evaluation_ns + self.of(part).ns_per_row,
                    copy_ns=later.copy_ns + sum(_copy_ns(self._type_of(name)) for name in new),
                    columns=later.columns | new if new else later.columns,
                )
            )
        return remaining[::-1][: len(parts)]

    def _comparison_ns(self, name: str) -> float:
        type_ = self._type_of(name)
        if pa.types.is_dictionary(type_):
            return _DICTIONARY_NS
        is_wide = _is_text(type_) or pa.types.is_decimal(type_) or pa.types.is_fixed_size_binary(type_)
        return _BYTES_NS if is_wide else _NUMBER_NS

    def _type_of(self, name: str) -> Any:
        if name not in self._types:
            index = self._schema.get_field_index(name)
            self._types[name] = self._schema.field(index).type if index >= 0 else pa.null()
        return self._types[name]


def _copy_ns(type_: Any) -> float:
    return _COPY_BYTES_NS if _is_text(type_) else _COPY_NUMBER_NS


def _is_text(type_: Any) -> bool:
    return pa.types.is_string(type_) or pa.types.is_binary(type_)


# The stubs do not know that these return chunked arrays for chunked arrays.
_AND: Callable[..., Any] = pc.and_kleene
_OR: Callable[..., Any] = pc.or_kleene
_IF_ELSE: Callable[..., Any] = pc.if_else
_MATCH: Callable[..., Any] = pc.match_substring_regex
_IS_IN: Callable[..., Any] = pc.is_in
_MIN_MAX: Callable[..., Any] = pc.min_max
_COMPARE: dict[Operator, Callable[..., Any]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}


def filter_rows(bound: BoundPredicate, table: pa.Table) -> pa.Table:
    """Return the rows for which the predicate is true, in their order; the same object if every row matches."""
    kept = matching_rows(bound, table)
    matching_count = kept.true_count
    if matching_count == table.num_rows:
        return table
    if matching_count == 0:
        return table.slice(0, 0)
    return table.filter(kept)


def matching_rows(bound: BoundPredicate, table: pa.Table) -> pa.BooleanArray:
    """Find the rows for which a predicate is true.

    The parts of an AND are evaluated one after the other, the cheapest and most selective first. Once few rows remain,
    expensive parts are evaluated only for these.
    """
    costs = _PredicateCosts(table.schema)
    parts = costs.in_order(bound.parts, of_and=True) if isinstance(bound, And) else [bound]
    left = _Rows(table, costs)
    # Row numbers, in the table, of the remaining rows, once others have been dropped from ``left``.
    rows: npt.NDArray[np.intp] | None = None
    matches = None
    for part, remaining in zip(parts, costs.after_each(parts), strict=True):
        outcome = _true_or_false(left.of(part))
        matches = outcome if matches is None else _AND(matches, outcome)
        matching_count = matches.true_count
        if not matching_count:
            break
        if remaining.dropping_pays(matching_count, len(matches)):
            mask = mask_to_numpy(matches)
            rows = np.flatnonzero(mask) if rows is None else rows[mask]
            left = left.only(matches, remaining.columns)
            matches = None
    if matches is None:
        return _true_or_false(left.constant(value=True))  # an AND of no parts
    if rows is None:
        return matches
    of_table = np.zeros(table.num_rows, dtype=np.bool_)
    of_table[rows[mask_to_numpy(matches)]] = True
    return mask_to_arrow(of_table)


def _true_or_false(outcome: pa.ChunkedArray[Any]) -> pa.BooleanArray:
    combined: Any = outcome.combine_chunks()
    certain: pa.BooleanArray = combined.fill_null(False) if combined.null_count else combined
    return certain


class _Rows(BoundFold["pa.ChunkedArray[Any]"]):
    """Rows for the evaluation of a predicate; a column is made comparable once, however many parts use it."""

    def __init__(self, table: pa.Table, costs: _PredicateCosts) -> None:
        self._table = table
        self._costs = costs
        self._comparable: dict[str, list[_Comparable]] = {}

    def only(self, matches: pa.BooleanArray, columns: frozenset[str]) -> _Rows:
        """Return the matching rows, with some of the columns."""
        names = [name for name in self._table.column_names if name in columns]
        return _Rows(self._table.select(names).filter(matches), self._costs)

    def parts(self, joined: And | Or) -> Iterable[BoundPredicate]:
        return self._costs.in_order(joined.parts, of_and=isinstance(joined, And))

    def constant(self, value: bool | None) -> pa.ChunkedArray[Any]:
        nulls = pa.nulls(self._table.num_rows, pa.bool_())
        if value is None:
            return pa.chunked_array([nulls])
        return pa.chunked_array([nulls.is_null() if value else nulls.is_valid()])

    def all_of(self, results: Iterable[pa.ChunkedArray[Any]]) -> pa.ChunkedArray[Any]:
        return self._join(results, of_and=True)

    def any_of(self, results: Iterable[pa.ChunkedArray[Any]]) -> pa.ChunkedArray[Any]:
        return self._join(results, of_and=False)

    def negated(self, result: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
        return pc.invert(result)

    def test(self, leaf: BoundLeaf) -> pa.ChunkedArray[Any]:
        name = leaf.field.name
        match leaf:
            case BoundIsNull():
                return self._column(name).is_null()
            case ConstantUnlessNull(value=value):
                return _null_where_null(self.constant(value), self._column(name))
            case BoundComparison() | BoundIn() | BoundLike():
                return self._evaluate_values(leaf, name)
        raise InternalError(f"a {type(leaf).__name__} cannot be evaluated")

    def _join(self, outcomes: Iterable[pa.ChunkedArray[Any]], *, of_and: bool) -> pa.ChunkedArray[Any]:
        """Join parts by AND or OR; stop when no further part can change any row's outcome."""
        joined = None
        for outcome in outcomes:
            joined = outcome if joined is None else (_AND if of_and else _OR)(joined, outcome)
            if _are_all(joined, outcome=not of_and):
                break
        return self.constant(of_and) if joined is None else joined

    def _column(self, name: str) -> pa.ChunkedArray[Any]:
        index = self._table.schema.get_field_index(name)
        if index < 0:
            raise InternalError(f"the predicate needs column {name!r}, which was not decoded")
        return self._table.column(index)

    def _evaluate_values(self, leaf: BoundComparison | BoundIn | BoundLike, name: str) -> pa.ChunkedArray[Any]:
        if name not in self._comparable:
            self._comparable[name] = _comparables(self._column(name))
        outcomes = [_outcome(leaf, comparable) for comparable in self._comparable[name]]
        return (
            outcomes[0]
            if len(outcomes) == 1
            else pa.chunked_array([chunk for outcome in outcomes for chunk in outcome.chunks], type=pa.bool_())
        )


class _Comparable(NamedTuple):
    """Values in the type in which they compare with literals."""

    values: pa.ChunkedArray[Any]
    indices: pa.Array[Any] | None
    """Position in ``values`` of each row's value, for a column that keeps each value once; a null index means null."""


def _comparables(column: pa.ChunkedArray[Any]) -> list[_Comparable]:
    if not pa.types.is_dictionary(column.type):
        return [_Comparable(_cast(column), None)]
    chunks: list[Any] = column.chunks
    return [_Comparable(_cast(pa.chunked_array([chunk.dictionary])), chunk.indices) for chunk in chunks]


def _cast(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    type_ = _comparable_type(column.type)
    return column if column.type.equals(type_) else column.cast(type_)


def _outcome(leaf: BoundComparison | BoundIn | BoundLike, comparable: _Comparable) -> pa.ChunkedArray[Any]:
    values, indices = comparable
    if isinstance(leaf, BoundComparison):
        literal = _domain_array([leaf.value], values.type)[0]
        outcome: pa.ChunkedArray[Any] = _COMPARE[leaf.operator](values, literal)
    elif isinstance(leaf, BoundLike):
        chunks: list[Any] = values.chunks
        # A view and no cast, which would refuse text that is no UTF-8.
        text = pa.chunked_array([chunk.view(pa.string()) for chunk in chunks], type=pa.string())
        outcome = _MATCH(text, leaf.regex)
    else:
        outcome = _null_where_null(_is_listed(leaf, values), values)
    return outcome if indices is None else pa.chunked_array([outcome.combine_chunks().take(indices)])


def _is_listed(leaf: BoundIn, values: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """Tell which values are in a list. The list may be much longer than the column, so it is searched or narrowed."""
    type_ = values.type
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        keys = leaf.search.keys.astype(_numpy_name(type_), copy=False)
        chunks: list[Any] = values.chunks
        columns = [numbers_to_numpy(chunk, keys.dtype) for chunk in chunks]
        found = [keys[np.minimum(np.searchsorted(keys, numbers), len(keys) - 1)] == numbers for numbers in columns]
        return pa.chunked_array(list(map(mask_to_arrow, found)), type=pa.bool_())
    listed = leaf.values
    if leaf.search.prefixes is not None and len(listed) > len(values):
        lowest, highest = _MIN_MAX(values).as_py().values()
        listed = () if lowest is None else listed[bisect_left(listed, lowest) : bisect_right(listed, highest)]
    outcome: pa.ChunkedArray[Any] = _IS_IN(values, _domain_array(listed, type_))
    return outcome


def _are_all(outcomes: pa.ChunkedArray[Any], *, outcome: bool) -> bool:
    chunks: list[Any] = outcomes.chunks
    return all((chunk.true_count if outcome else chunk.false_count) == len(chunk) for chunk in chunks)


def _null_where_null(outcome: pa.ChunkedArray[Any], column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    if column.null_count == 0:
        return outcome
    unless_null: pa.ChunkedArray[Any] = _IF_ELSE(column.is_null(), pa.nulls(1, pa.bool_())[0], outcome)
    return unless_null


def check_comparable(values: Sequence[DomainValue], type_: Any) -> None:
    """Check literals that did not come from :func:`~coldparquet.plan.bind.bind`."""
    array = _domain_array(values, _comparable_type(type_))
    if len(array) < len(values) or array.null_count:
        raise ValueError(f"literals of another type than {type_}")


def _comparable_type(type_: Any) -> Any:
    """Return the type in which a column compares with literals of its domain; every value has its exact counterpart.

    The cast to it copies nothing, except for FLOAT, whose literals are doubles.
    """
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        return pa.int64()
    if pa.types.is_date32(type_) or pa.types.is_time32(type_):
        return pa.int32()
    if pa.types.is_float32(type_):
        return pa.float64()
    return pa.binary() if pa.types.is_string(type_) else type_


def _domain_array(values: Sequence[DomainValue], type_: Any) -> pa.Array[Any]:
    """Return literals as an Arrow array of the comparable type."""
    if pa.types.is_decimal(type_):
        return pa.array([_decimal(int(value), type_.scale) for value in values], type_)
    if pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return byte_strings_to_arrow([value for value in values if isinstance(value, bytes)], type_)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return numbers_to_arrow(np.array(values, dtype=_numpy_name(type_)), type_)
    array: pa.Array[Any] = pa.array(values, type_)
    return array


_numpy_name = functools.cache(str)
"""numpy's names of Arrow's number types."""


def _decimal(unscaled: int, scale: int) -> Decimal:
    # Built from digits, because arithmetic would round to the precision of the decimal context.
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def surviving_rows(bound: BoundPredicate, table: pa.Table) -> tuple[pa.Table, RowSelection]:
    """Keep the rows for which a predicate is true, in their order."""
    kept = matching_rows(bound, table)
    positions = numbers_to_numpy(pc.indices_nonzero(kept), np.uint64).astype(np.int64)
    rows = table if len(positions) == table.num_rows else table.filter(kept)
    return rows, RowSelection.of_ranges(positions, positions + 1)
