"""Keep exactly the rows for which a bound predicate is true.

A leaf is evaluated in the domain in which its literal was bound: whole numbers in the column's own unit, doubles,
unscaled decimals, bytes. Nothing is converted with loss. NULL follows SQL, NaN follows IEEE 754.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.numpy_bridge import byte_strings_to_arrow, mask_to_arrow, mask_to_numpy, numbers_to_arrow
from coldparquet.decode.predicate_cost import copy_ns_per_row, in_order, predicate_cost
from coldparquet.errors import InternalError
from coldparquet.plan.bind import (
    BoundAnd,
    BoundComparison,
    BoundIn,
    BoundIsNull,
    BoundLiteral,
    BoundNot,
    BoundOr,
    ConstantUnlessNull,
)
from coldparquet.plan.predicate import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.literals import DomainValue

# The stubs do not know that these return what they are given: chunked arrays for chunked arrays.
_AND: Callable[..., Any] = pc.and_kleene
_OR: Callable[..., Any] = pc.or_kleene
_IF_ELSE: Callable[..., Any] = pc.if_else
_IS_IN: Callable[..., Any] = pc.is_in
_COMPARE: dict[Operator, Callable[..., Any]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}


def filter_rows(bound: BoundPredicate, table: pa.Table) -> pa.Table:
    """Return the rows for which the predicate is true, in their order; the same object if that is every row.

    Args:
        bound: The predicate.
        table: Holds at least the predicate's fields, by name.
    """
    kept = matching_rows(bound, table)
    matching_count = kept.true_count
    if matching_count == table.num_rows:
        return table
    if matching_count == 0:
        return table.slice(0, 0)
    return table.filter(kept)


def matching_rows(bound: BoundPredicate, table: pa.Table) -> pa.BooleanArray:
    """Find the rows for which a predicate is true.

    The parts of an AND are evaluated one after the other, the cheapest and most selective first. Once few rows are left,
    expensive parts only see those.

    Args:
        bound: The predicate.
        table: Holds at least the predicate's fields, by name, with the Arrow types of ``arrow_schema``.

    Returns:
        True where it is true, else false, shape ``(rows,)``.

    Raises:
        InternalError: A field is not in the table.
    """
    parts = in_order(bound.parts, table.schema, of_and=True) if isinstance(bound, BoundAnd) else [bound]
    left = table
    # Row numbers in the table of the rows that are left, once others have been dropped from ``left``.
    rows: npt.NDArray[np.intp] | None = None
    matches = None
    for number, part in enumerate(parts):
        outcome = _true_or_false(_evaluate(part, left))
        matches = outcome if matches is None else _AND(matches, outcome)
        matching_count, remaining = matches.true_count, parts[number + 1 :]
        if not matching_count:
            break
        if remaining and _dropping_pays(remaining, matching_count, left):
            mask = mask_to_numpy(matches)
            rows = np.flatnonzero(mask) if rows is None else rows[mask]
            names = {field.name for later in remaining for field in later.fields()}
            left = left.select([name for name in left.column_names if name in names]).filter(matches)
            matches = None
    if matches is None:
        return _true_or_false(_constant(table, outcome=True))  # an AND of no parts
    if rows is None:
        return matches
    of_table = np.zeros(table.num_rows, dtype=np.bool_)
    of_table[rows[mask_to_numpy(matches)]] = True
    return mask_to_arrow(of_table)


def _dropping_pays(remaining: Sequence[BoundPredicate], matching_count: int, table: pa.Table) -> bool:
    """Tell whether evaluating the remaining parts for few rows saves more than copying the values of these costs."""
    evaluation_ns = sum(predicate_cost(part, table.schema).ns_per_row for part in remaining)
    names = {field.name for part in remaining for field in part.fields()}
    copy_ns = copy_ns_per_row(list(names), table.schema)
    return matching_count * (copy_ns + evaluation_ns) + table.num_rows < table.num_rows * evaluation_ns


def _true_or_false(outcome: pa.ChunkedArray[Any]) -> pa.BooleanArray:
    combined: Any = outcome.combine_chunks()
    certain: pa.BooleanArray = combined.fill_null(False) if combined.null_count else combined
    return certain


def _evaluate(bound: BoundPredicate, table: pa.Table) -> pa.ChunkedArray[Any]:
    match bound:
        case BoundAnd(parts=parts):
            return _join(parts, table, of_and=True)
        case BoundOr(parts=parts):
            return _join(parts, table, of_and=False)
        case BoundNot(part=part):
            return pc.invert(_evaluate(part, table))
        case leaf:
            return _evaluate_leaf(leaf, table)


def _join(parts: Sequence[BoundPredicate], table: pa.Table, *, of_and: bool) -> pa.ChunkedArray[Any]:
    """Join parts by AND or OR; stops where no further part can change the outcome of any row."""
    joined = _constant(table, outcome=of_and)
    for part in in_order(parts, table.schema, of_and=of_and):
        joined = (_AND if of_and else _OR)(joined, _evaluate(part, table))
        if _are_all(joined, outcome=not of_and):
            break
    return joined


def _are_all(outcomes: pa.ChunkedArray[Any], *, outcome: bool) -> bool:
    chunks: list[Any] = outcomes.chunks
    return all((chunk.true_count if outcome else chunk.false_count) == len(chunk) for chunk in chunks)


def _evaluate_leaf(leaf: BoundPredicate, table: pa.Table) -> pa.ChunkedArray[Any]:
    match leaf:
        case BoundLiteral(value=value):
            return _constant(table, outcome=value)
        case BoundIsNull(field=field):
            return _column(field.name, table).is_null()
        case ConstantUnlessNull(field=field, value=value):
            return _null_where_null(_constant(table, outcome=value), _column(field.name, table))
        case BoundComparison(field=field) | BoundIn(field=field):
            return _evaluate_values(leaf, _column(field.name, table))
        case _:
            raise InternalError(f"a {type(leaf).__name__} cannot be evaluated")


def _column(name: str, table: pa.Table) -> pa.ChunkedArray[Any]:
    index = table.schema.get_field_index(name)
    if index < 0:
        raise InternalError(f"the predicate needs column {name!r}, which was not decoded")
    return table.column(index)


def _constant(table: pa.Table, *, outcome: bool | None) -> pa.ChunkedArray[Any]:
    nulls = pa.nulls(table.num_rows, pa.bool_())
    if outcome is None:
        return pa.chunked_array([nulls])
    return pa.chunked_array([nulls.is_null() if outcome else nulls.is_valid()])


def _null_where_null(outcome: pa.ChunkedArray[Any], column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    if column.null_count == 0:
        return outcome
    unless_null: pa.ChunkedArray[Any] = _IF_ELSE(column.is_null(), pa.nulls(1, pa.bool_())[0], outcome)
    return unless_null


def _evaluate_values(leaf: BoundComparison | BoundIn, column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    if pa.types.is_dictionary(column.type):
        # Each distinct value is looked at once; a null index takes a null.
        chunks: list[Any] = column.chunks
        outcomes = [
            _evaluate_values(leaf, pa.chunked_array([chunk.dictionary])).combine_chunks().take(chunk.indices)
            for chunk in chunks
        ]
        return pa.chunked_array(outcomes, type=pa.bool_())
    comparable = column.cast(_comparable_type(column.type))
    if isinstance(leaf, BoundComparison):
        literal = _domain_array([leaf.value], comparable.type)[0]
        outcome: pa.ChunkedArray[Any] = _COMPARE[leaf.operator](comparable, literal)
        return outcome
    return _null_where_null(_IS_IN(comparable, _domain_array(leaf.values, comparable.type)), comparable)


def check_comparable(values: Sequence[DomainValue], type_: Any) -> None:
    """Check literals that :func:`~coldparquet.plan.bind.bind` has not made itself.

    Args:
        values: They are to be compared with the values of one column.
        type_: Arrow type of the column, text as plain strings.

    Raises:
        Exception: One of them cannot be: whatever numpy or Arrow say.
    """
    array = _domain_array(values, _comparable_type(type_))
    if len(array) < len(values) or array.null_count:
        raise ValueError(f"literals of another type than {type_}")


def _comparable_type(type_: Any) -> Any:
    """Return the type in which a column compares with literals of its domain; every value has its exact counterpart.

    But for FLOAT, where literals are doubles, the cast to it copies nothing.
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
    if pa.types.is_floating(type_) and 0.0 in values:
        # Sets are looked up by the bits of a double, by which the two zeros differ.
        values = [*values, math.copysign(0.0, -1.0), 0.0]
    if pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return byte_strings_to_arrow([value for value in values if isinstance(value, bytes)], type_)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return numbers_to_arrow(np.array(values, dtype=str(type_)), type_)
    array: pa.Array[Any] = pa.array(values, type_)
    return array


def _decimal(unscaled: int, scale: int) -> Decimal:
    # Built from digits, because arithmetic would round to the precision of the decimal context.
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
