"""Translates pyarrow expressions to predicates: what pyarrow, DuckDB, Polars, DataFusion, ibis and Ray push down.

The result says whether it is exact. If so, the predicate keeps the very rows that the expression keeps, and nobody has
to filter again. If not, it keeps these rows and perhaps others: parts of an AND that have no translation are left out.
Where Arrow and the library differ, there is none:

* Arrow compares numbers of different kinds as doubles; integers from 2^53 on would be rounded.
* ``is_in`` tells -0.0 from 0.0, and a null of the column is in a list that has a null.
* A literal that is no value of a FLOAT column is rounded by some engines and not by others.
* UUID, IPv4, CHAR, LONG128, LONG256 and geohashes are bytes or integers to the engines: only IS NULL means the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.expressions.tree import (
    Field,
    FunctionCall,
    NestedField,
    UnknownTreeError,
    Value,
    paths_of,
    read_tree,
    write_tree,
)
from coldparquet.plan.predicate import And, Comparison, In, IsNull, Literal, Not, Operator, Or, Predicate, StartsWith

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    import pyarrow.compute as pc

    from coldparquet.expressions.tree import Node

_OPERATORS = {
    "equal": Operator.EQUAL,
    "not_equal": Operator.NOT_EQUAL,
    "less": Operator.LESS,
    "less_equal": Operator.LESS_OR_EQUAL,
    "greater": Operator.GREATER,
    "greater_equal": Operator.GREATER_OR_EQUAL,
}
_OPPOSITES = {Operator.GREATER: Operator.LESS_OR_EQUAL, Operator.GREATER_OR_EQUAL: Operator.LESS}

_QUESTDB_TYPE_KEY = b"questdb.type"
_STORED_OTHERWISE = ("CHAR", "IPv4", "UUID", "LONG128", "LONG256", "GEOHASH")
"""Types whose values are bytes or integers in Arrow, while their literals are text here."""

_FIRST_ROUNDED = 1 << 53
"""From here on not every integer is a double."""

_MATCH, _SKIP, _EMIT_NULL, _INCONCLUSIVE = range(4)
"""What ``is_in`` does with nulls: Arrow's ``SetLookupOptions::NullMatchingBehavior``."""


class Dialect(Struct, frozen=True, kw_only=True):
    """What the same expression means to the engine that made it."""

    nan_is_largest: bool = False
    """Whether NaN is above all other numbers and equals itself, as in Polars, DuckDB and DataFusion; else as in IEEE 754."""
    zeros_differ: bool = True
    """Whether ``is_in`` tells -0.0 from 0.0."""
    hides_nulls: bool = False
    """Whether an expression does not tell what ``is_in`` does with NULL, nor that a time of one unit may equal several of a
    finer one. Its translation then is never exact."""
    hides_nan: bool = False
    """Whether ``true`` stands for a comparison such as ``<= NaN``, which is NULL for NULL: DuckDB 1 does not say of which column."""


ARROW = Dialect()
POLARS = Dialect(nan_is_largest=True, zeros_differ=False, hides_nulls=True)
DUCKDB = Dialect(nan_is_largest=True, zeros_differ=False, hides_nan=True)
"""DataFusion, too."""


class Translation(Struct, frozen=True):
    """The predicate that an expression becomes."""

    predicate: Predicate | None
    """True at least where the expression is. None: nothing of it is understood, and every row may be wanted."""
    left_out: str | None = None
    """A part of the expression that the predicate lacks; None where it is exact."""

    @property
    def is_exact(self) -> bool:
        """Whether the predicate is true just where the expression is."""
        return self.left_out is None


def translate(expression: pc.Expression, schema: pa.Schema, dialect: Dialect = ARROW) -> Translation:
    """Translate an expression about the columns of a schema, as far as possible."""
    try:
        tree = read_tree(expression)
    except UnknownTreeError as error:
        return Translation(None, str(error))
    try:
        return _Translator(schema, dialect).at_least(tree)
    except (InvalidInputError, RecursionError) as error:  # nested too deep, or a number of a thousand digits
        return Translation(None, str(error))


def expression_for_arrow(expression: pc.Expression, schema: pa.Schema, dialect: Dialect) -> pc.Expression:
    """Return the expression that means to Arrow what the given one means to its engine: NaN is the largest number.

    Raises:
        UnsupportedError: It has a part that cannot be written anew.
    """
    if not dialect.nan_is_largest:
        return expression
    try:
        tree = read_tree(expression)
        floating = {path for path in paths_of(tree) if pa.types.is_floating(_type_at(schema, path))}
        return write_tree(_with_largest_nan(tree, floating)) if floating else expression
    except (UnknownTreeError, RecursionError) as error:
        raise UnsupportedError(
            f"a filter cannot be evaluated as its engine means it: {error or 'nested too deep'}; leave it out, and filter the"
            " result",
            kind="UnsupportedFilter",
        ) from error


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> Any:
    """Return the type of a column, or of a field of one; null of those that do not exist, which Arrow refuses."""
    type_: Any = pa.struct(list(schema))
    for name in path:
        if not pa.types.is_struct(type_) or type_.get_field_index(name) < 0:
            return pa.null()
        type_ = type_.field(name).type
    return type_


def _with_largest_nan(node: Node, floating: AbstractSet[tuple[str, ...]]) -> Node:  # noqa: PLR0911 - one case per operator
    """Write comparisons of numbers of which one may be NaN with ``is_nan``, which is NULL for NULL."""
    if not isinstance(node, FunctionCall):
        return node
    arguments = tuple(_with_largest_nan(part, floating) for part in node.arguments)
    if node.function not in _OPERATORS or not paths_of(node) & floating:
        return FunctionCall(node.function, arguments, node.options)
    one, other = arguments
    match _OPERATORS[node.function]:
        case Operator.EQUAL:
            return _or(_and(_is_nan(one), _is_nan(other)), _call("equal", one, other))
        case Operator.NOT_EQUAL:
            return _call("invert", _or(_and(_is_nan(one), _is_nan(other)), _call("equal", one, other)))
        case Operator.GREATER:
            return _is_above(one, other)
        case Operator.LESS:
            return _is_above(other, one)
        case Operator.GREATER_OR_EQUAL:
            return _call("invert", _is_above(other, one))
    return _call("invert", _is_above(one, other))


def _is_above(one: Node, other: Node) -> Node:
    return _or(_and(_is_nan(one), _call("invert", _is_nan(other))), _call("greater", one, other))


def _is_nan(node: Node) -> Node:
    return _call("is_nan", node)


def _and(one: Node, other: Node) -> Node:
    return _call("and_kleene", one, other)


def _or(one: Node, other: Node) -> Node:
    return _call("or_kleene", one, other)


def _call(function: str, *arguments: Node) -> Node:
    return FunctionCall(function, arguments, {})


def exact_predicate(expression: pc.Expression, schema: pa.Schema) -> Predicate:
    """Translate an expression that nobody will evaluate again.

    Raises:
        InvalidInputError: It has a part that the library does not evaluate.
    """
    found = translate(expression, schema)
    if found.predicate is None or not found.is_exact:
        raise InvalidInputError(
            f"the pyarrow expression has a part that is not understood here: {found.left_out}; understood are & | ~ and"
            " comparisons of one column with a literal of its type, isin, is_null, is_valid and starts_with; leave that part"
            " out and filter the rows with pyarrow, or use to_pyarrow_dataset(), which does both",
            kind="InvalidPredicate",
        )
    return found.predicate


class _NoTranslationError(Exception):
    """This part of an expression has no translation, or one with another meaning."""


class _Translator:
    def __init__(self, schema: pa.Schema, dialect: Dialect) -> None:
        self._schema = schema
        self._dialect = dialect

    def at_least(self, node: Node) -> Translation:
        """Return a predicate that is true where the expression is."""
        if isinstance(node, FunctionCall) and node.function in ("and_kleene", "and"):
            parts = [self.at_least(part) for part in _parts(node)]
            known = tuple(part.predicate for part in parts if part.predicate is not None)
            left_out = next((part.left_out for part in parts if not part.is_exact), None)
            return Translation(None if not known else known[0] if len(known) == 1 else And(known), left_out)
        if isinstance(node, FunctionCall) and node.function in ("or_kleene", "or"):
            parts = [self.at_least(part) for part in _parts(node)]
            known = tuple(part.predicate for part in parts if part.predicate is not None)
            left_out = next((part.left_out for part in parts if not part.is_exact), None)
            if node.function == "or":  # null beside true is null to Arrow
                left_out = left_out or "or"
            return Translation(Or(known) if len(known) == len(parts) else None, left_out)
        try:
            if self._dialect.hides_nulls and isinstance(node, FunctionCall) and node.function == "is_in":
                return Translation(self._member_or_null(node), "what is_in does with NULL")
            return Translation(self._exactly(node), "what NULL means" if self._dialect.hides_nulls else None)
        except _NoTranslationError as error:
            return Translation(None, str(error))

    def _exactly(self, node: Node) -> Predicate:  # noqa: C901, PLR0911, PLR0912 - one case per function
        """Return a predicate that is true, false and NULL just where the expression is."""
        match node:
            case Value(scalar=scalar) if pa.types.is_boolean(scalar.type) or pa.types.is_null(scalar.type):
                if self._dialect.hides_nan and scalar.as_py():
                    raise UnsupportedError(
                        "DuckDB 1 asks for all rows where a condition compares with NaN, and rows with NULL would be among them; ask"
                        " for IS NOT NULL in its place (all numbers are <= NaN), or use DuckDB 2",
                        kind="UnsupportedFilter",
                    )
                return Literal(scalar.as_py())
            case Field(name=name) if pa.types.is_boolean(self._type(name)):
                return Comparison(name, Operator.EQUAL, value=True)
            case FunctionCall(function="and_kleene"):
                return And(tuple(self._exactly(part) for part in _parts(node)))
            case FunctionCall(function="or_kleene"):
                return Or(tuple(self._exactly(part) for part in _parts(node)))
            case FunctionCall(function="invert", arguments=(part,)):
                return ~self._exactly(part)
            case FunctionCall(function="is_null", arguments=(Field(name=name),), options=options) if not _is_set(
                options, "nan_is_null"
            ):
                return self._is_null(name)
            case FunctionCall(function="is_valid", arguments=(Field(name=name),)):
                return Not(self._is_null(name))
            case FunctionCall(function="is_in", arguments=(Field(name=name),), options=options):
                return self._is_in(name, options)
            case FunctionCall(
                function="if_else",
                arguments=(
                    FunctionCall(function="is_valid", arguments=(Field(name=name),)),
                    FunctionCall(function="is_in", arguments=(Field(name=same),), options=options),
                    Value(scalar=otherwise),
                ),
            ) if name == same and not otherwise.is_valid:  # DuckDB 2: NULL for NULL, as SQL has it
                return self._member(name, options, of_null=None)
            case FunctionCall(function="starts_with", arguments=(Field(name=name),), options=options) if not _is_set(
                options, "ignore_case"
            ):
                return self._starts_with(name, options)
            case FunctionCall(function=function, arguments=(Field(name=name), Value(scalar=scalar))) if (
                function in _OPERATORS
            ):
                return self._comparison(name, _OPERATORS[function], scalar)
            case FunctionCall(function=function, arguments=(Value(scalar=scalar), Field(name=name))) if (
                function in _OPERATORS
            ):
                return self._comparison(name, _OPERATORS[function].flipped, scalar)
        raise _NoTranslationError(_text_of(node))

    def _field(self, name: str) -> Any:
        index = self._schema.get_field_index(name)
        if index < 0:
            raise _NoTranslationError(f"the column {name!r}")
        return self._schema.field(index)

    def _type(self, name: str) -> Any:
        type_: Any = self._field(name).type
        return type_.value_type if pa.types.is_dictionary(type_) else type_

    def _is_null(self, name: str) -> Predicate:
        self._field(name)
        return IsNull(name)

    def _comparison(self, name: str, operator: Operator, scalar: Any) -> Predicate:
        value = self._literal(name, scalar)
        if value is None:
            return Literal(None)
        is_equality = operator in (Operator.EQUAL, Operator.NOT_EQUAL)
        if not is_equality and (pa.types.is_boolean(self._type(name)) or _is_bytes(self._type(name))):
            raise _NoTranslationError(f"{operator} of the {self._type(name)} {name!r}")
        opposite = _OPPOSITES.get(operator)
        if self._dialect.nan_is_largest and opposite is not None and pa.types.is_floating(self._type(name)):
            return Not(Comparison(name, opposite, value))  # NaN is no lower number
        return Comparison(name, operator, value)

    def _is_in(self, name: str, options: dict[str, Any]) -> Predicate:
        nulls = options["null_matching_behavior"].as_py() if "null_matching_behavior" in options else _MATCH
        if self._dialect.hides_nulls:
            raise _NoTranslationError("is_in within another condition")
        if nulls in (_EMIT_NULL, _INCONCLUSIVE):
            return self._member(name, options, of_null=None, drops_null=nulls == _EMIT_NULL)
        return self._member(name, options, of_null=nulls == _MATCH)

    def _member_or_null(self, call: FunctionCall) -> Predicate:
        match call.arguments:
            case (Field(name=name),):
                values = self._literals(name, _listed(call.options["value_set"]))
                return Or((IsNull(name), In(name, tuple(value for value in values if value is not None))))
        raise _NoTranslationError(_text_of(call))

    def _member(
        self, name: str, options: dict[str, Any], *, of_null: bool | None, drops_null: bool = False
    ) -> Predicate:
        """Return the membership in a list.

        Args:
            name: The column.
            options: Those of ``is_in``.
            of_null: Of a NULL of the column: True if it equals one in the list, False if it is in no list, None if the
                answer is NULL, as SQL has it.
            drops_null: Whether NULL in the list does not count. Else SQL's answer is NULL for what is not in the list.
        """
        values = self._literals(name, _listed(options["value_set"]))
        if self._dialect.zeros_differ and pa.types.is_floating(self._type(name)) and 0 in values:
            raise _NoTranslationError("0.0 in a list")
        found = tuple(value for value in values if value is not None)
        has_null = len(found) < len(values)
        if of_null is None:
            return In(name, found if drops_null or not has_null else (*found, None))
        if of_null and has_null:
            return Or((IsNull(name), In(name, found))) if found else IsNull(name)
        return And((Not(IsNull(name)), In(name, found)))

    def _starts_with(self, name: str, options: dict[str, Any]) -> Predicate:
        if not _is_text(self._type(name)):
            raise _NoTranslationError(f"starts_with of {self._type(name)}")
        pattern = options["pattern"].as_py()
        return StartsWith(name, pattern.decode() if isinstance(pattern, bytes) else pattern)

    def _literals(self, name: str, listed: Any) -> list[Any]:
        type_ = self._type(name)
        self._check_comparable(name)
        if any(are(type_) and are(listed.type) for are in (pa.types.is_integer, _is_text)):  # 10,000 in a millisecond
            values: list[Any] = listed.to_pylist()
            return values
        return [self._literal(name, scalar) for scalar in listed]

    def _check_comparable(self, name: str) -> None:
        declared = (self._field(name).metadata or {}).get(_QUESTDB_TYPE_KEY, b"").decode()
        if declared.startswith(_STORED_OTHERWISE):
            raise _NoTranslationError(f"a comparison with the {declared} {name!r}")

    def _literal(self, name: str, scalar: Any) -> Any:
        """Return a literal, if comparing it with the column means the same to Arrow and to the library."""
        type_, given = self._type(name), scalar.type
        self._check_comparable(name)
        if not scalar.is_valid:
            return None
        is_rounded = (
            self._dialect.hides_nulls
            and pa.types.is_timestamp(type_)
            and pa.types.is_timestamp(given)
            and type_.unit != given.unit
        )
        value = None if is_rounded else _literal_of(type_, scalar)
        if value is None:
            raise _NoTranslationError(f"a comparison of {name!r}, which is {type_}, with {scalar.as_py()!r} as {given}")
        return value


def _parts(joined: FunctionCall) -> list[Node]:
    """Return what a chain of ANDs or ORs joins: a loop, because it may have thousands of parts."""
    found: list[Node] = []
    left: list[Node] = [joined]
    while left:
        node = left.pop()
        if isinstance(node, FunctionCall) and node.function == joined.function:
            left.extend(reversed(node.arguments))
        else:
            found.append(node)
    return found


def _literal_of(type_: Any, scalar: Any) -> Any:  # noqa: PLR0911 - one case per kind of type
    """Return a literal that is not NULL; None where it does not mean the same."""
    given = scalar.type
    if pa.types.is_dictionary(given):
        return _literal_of(type_, scalar.value)
    if pa.types.is_timestamp(type_) and pa.types.is_timestamp(given):
        return np.datetime64(scalar.value, given.unit) if (given.tz is None) == (type_.tz is None) else None
    if pa.types.is_date32(given) and (pa.types.is_date32(type_) or (pa.types.is_timestamp(type_) and type_.tz is None)):
        return np.datetime64(scalar.value, "D")
    if pa.types.is_floating(type_):
        return _float_literal(type_, scalar.as_py()) if _is_number(given) else None
    if pa.types.is_integer(type_) and _is_number(given):
        value = scalar.as_py()
        # A NaN is unequal to all, and not NULL.
        return value if isinstance(value, int) or abs(value) < _FIRST_ROUNDED else None
    if pa.types.is_decimal(type_):
        return scalar.as_py() if pa.types.is_decimal(given) or pa.types.is_integer(given) else None
    alike = (pa.types.is_boolean, _is_text, _is_bytes)
    return scalar.as_py() if any(are(type_) and are(given) for are in alike) else None


def _float_literal(type_: Any, value: float) -> float | None:
    if math.isnan(value) or (isinstance(value, int) and abs(value) >= _FIRST_ROUNDED):
        return None
    with np.errstate(over="ignore"):
        is_rounded = pa.types.is_float32(type_) and math.isfinite(value) and float(np.float32(value)) != value
    return None if is_rounded else value


def _is_number(type_: Any) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_)


def _is_text(type_: Any) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def _is_bytes(type_: Any) -> bool:
    return pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_)


def _is_set(options: dict[str, Any], name: str) -> bool:
    return name in options and bool(options[name].as_py())


def _listed(value_set: Any) -> Any:
    """Return the scalars of a list that ``pickle`` wrote as a list of one row."""
    return value_set.values if isinstance(value_set, pa.ListScalar | pa.LargeListScalar) else value_set


def _text_of(node: Node) -> str:
    match node:
        case Field(name=name):
            return f"the column {name!r} as a condition"
        case Value(scalar=scalar):
            return f"the literal {scalar.as_py()!r} as a condition"
        case FunctionCall(function=function, arguments=arguments):
            inner = next((part.function for part in arguments if isinstance(part, FunctionCall)), None)
            nested = next((part.path for part in arguments if isinstance(part, NestedField)), None)
            if nested is not None:
                return f"{function}() of nested_field_ref {'.'.join(nested)}"
            return f"{function}() of {inner}()" if inner else f"{function}()"
        case NestedField(path=path):
            return f"nested_field_ref {'.'.join(path)} as a condition"
