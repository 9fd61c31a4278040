"""Parses conditions in SQL, such as ``ts >= '2024-03-01' AND (symbol IN ('BTC', 'ETH') OR price IS NULL)``.

sqlglot parses the text. This module accepts the few kinds of nodes that statistics can answer and refuses all others
by name.
"""

from __future__ import annotations

import math
import re
import time
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from coldparquet.errors import InvalidInputError
from coldparquet.expressions.sql_errors import (
    check_size,
    nested_too_deep,
    refused,
    shorten,
    sql_of,
    syntax_error,
    unsupported,
    unterminated,
)
from coldparquet.expressions.sql_times import check_intervals, interval_of, next_day, one_moment, time_of
from coldparquet.plan.predicate import (
    MAX_DIGITS,
    NANOSECONDS_PER_DAY,
    And,
    Column,
    Comparison,
    In,
    Instant,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Value,
    parse_instant,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import Dialect, exp


_TIMESTAMP_TYPES = frozenset(
    {"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"}
)

_LONGEST_PATTERN = 1_000
"""Regular expressions of longer patterns may be refused."""

_WORD = re.compile(r"[A-Za-z_]\w*")
_HEX_BYTES = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_DATE_AS_DIFFERENCE = re.compile(r"(\d{4}) - (\d{1,2}) - (\d{1,2})", re.ASCII)


def parse_sql(text: str, *, now: Instant | None = None) -> Predicate:
    """Parse the text after WHERE in SQL.

    Numbers are exact: without point or exponent they are integers, otherwise decimals; ``0.1::DOUBLE`` is the nearest
    double. ``X'00ff'`` is bytes. ``TIMESTAMP '...'``, ``DATE '...'`` and casts of strings to these are points in time.
    A plain string becomes one when it is compared with a timestamp column: ``ts = '2024-03-01'`` is an instant, and so is
    each of ``ts IN ('2024-03-01')``. Without parentheses it is the whole day, as QuestDB has it. ``now()`` is the time of
    this call. BETWEEN is SQL's: no row satisfies it if the first bound exceeds the second (QuestDB swaps them).

    Args:
        text: The condition.
        now: What ``now()`` is; None for the present.
    """
    # sqlglot takes 50 ms to import, and predicates in Python do not need it.
    from sqlglot import exp  # noqa: PLC0415
    from sqlglot.errors import ParseError, TokenError  # noqa: PLC0415

    check_size(text)
    check_intervals(text)
    try:
        # Condition, not a whole statement: otherwise `a = 1 b` is an alias and `desc = 1` a command.
        expressions = _dialect().parse_into(exp.Condition, text)
    except ParseError as error:
        raise syntax_error(text, error.errors[0]) from None
    except TokenError:
        raise unterminated(text) from None
    except RecursionError:
        raise nested_too_deep(text) from None
    conditions = [expression for expression in expressions if expression is not None]
    if not conditions:
        raise InvalidInputError("the condition is empty; leave it out to read every row", kind="InvalidPredicate")
    if len(conditions) > 1:
        raise InvalidInputError(
            f"the predicate {shorten(text)!r} holds {len(conditions)} conditions; join them with AND or OR",
            kind="InvalidPredicate",
        )
    with one_moment(now):
        return _predicate(conditions[0])


def depends_on_now(text: str) -> bool:
    """Tell whether a condition in SQL means something else tomorrow."""
    now = Instant(time.time_ns())
    return parse_sql(text, now=now) != parse_sql(text, now=next_day(now))


@cache
def _dialect() -> Dialect:
    """Return sqlglot's own dialect, with bytes as ``X'00ff'``."""
    import sqlglot  # noqa: PLC0415

    class Conditions(sqlglot.Dialect):
        class Tokenizer(sqlglot.Tokenizer):
            HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]

    return Conditions()


def _predicate(node: exp.Expr) -> Predicate:
    handler = _HANDLERS.get(node.key)
    if handler is None:
        raise unsupported(node)
    return handler(node)


def _connector(node: exp.Expr, combine: type[And | Or]) -> Predicate:
    # A chain of thousands of conditions is a left-leaning tree, so this is a loop and no recursion.
    operands: list[exp.Expr] = []
    left = node
    while left.key == node.key:
        operands.append(left.expression)
        left = left.this
    operands.append(left)
    return combine(tuple(_predicate(operand) for operand in reversed(operands)))


def _comparison(node: exp.Expr, operator: Operator) -> Predicate:
    left, right = node.this.unnest(), node.expression.unnest()
    if (days := _DayOf.column(left)) is not None:
        return days.compared(operator, days.midnight(right, node))
    if (days := _DayOf.column(right)) is not None:
        return days.compared(operator.flipped, days.midnight(left, node))
    if _is_column(left):
        return Comparison(_column(left), operator, _value(right, node))
    if _is_column(right):
        return Comparison(_column(right), operator.flipped, _value(left, node))
    raise unsupported(node)


def _in(node: exp.Expr) -> Predicate:
    if (period := node.args.get("field")) is not None:
        return _within(node, period)
    _check_arguments(node, {"this", "expressions"})
    if "expressions" not in node.args:  # sqlglot parses an IN that ends too early as one without values
        raise InvalidInputError(
            f"{shorten(node.sql())!r} is not valid SQL: a list of values in parentheses is missing after IN",
            kind="InvalidPredicate",
        )
    if (days := _DayOf.column(node.this)) is not None:
        return Or(tuple(days.compared(Operator.EQUAL, days.midnight(value, node)) for value in node.expressions))
    return In(_column(node.this), tuple(_value(value, node) for value in node.expressions))


def _within(node: exp.Expr, period: exp.Expr) -> Predicate:
    """Return the predicate that a time is in an interval, as QuestDB writes it: ``ts IN '2024-03-01'``."""
    _check_arguments(node, {"this", "field"})
    column = _column(node.this)
    interval = interval_of(period)
    if interval is None:
        raise refused(
            node,
            ": without parentheses IN takes an interval of time, '2024', '2024-03', '2024-03-01', '2024-03-01T12',"
            " '2024-03-01T12:30' and so on, in UTC, or today(); a list of values goes in parentheses, and other times are"
            " ts >= '...' AND ts < '...'",
        )
    return And(
        (Comparison(column, Operator.GREATER_OR_EQUAL, interval[0]), Comparison(column, Operator.LESS, interval[1]))
    )


class _DayOf(NamedTuple):
    """The day of a time, ``ts::DATE`` or ``date_trunc('day', ts)``: what is compared with it becomes a range of times."""

    name: str

    @classmethod
    def column(cls, node: exp.Expr) -> _DayOf | None:
        """Return the day of which column a node is; None if it is something else."""
        node = node.unnest()
        is_cast = node.key == "cast" and _arguments(node) <= {"this", "to"} and node.args["to"].this.name == "DATE"
        unit = node.args.get("unit")
        is_call = (node.key == "date" and _arguments(node) == {"this"}) or (
            node.key in ("datetrunc", "timestamptrunc")
            and _arguments(node) == {"this", "unit"}  # no time zone
            and unit is not None
            and unit.name.upper() == "DAY"
        )
        return cls(_column(node.this)) if (is_cast or is_call) and _is_column(node.this.unnest()) else None

    def midnight(self, node: exp.Expr, whole: exp.Expr) -> Instant | None:
        """Return the begin of the day that a literal is; None for NULL."""
        value = _value(node, whole)
        instant = parse_instant(value) if isinstance(value, str) else value
        if instant is None and value is None:
            return None
        if not isinstance(instant, Instant) or instant.nanoseconds % NANOSECONDS_PER_DAY or instant.has_rest:
            raise refused(whole, ": a DATE is compared with a day, such as '2024-03-01'")
        return instant

    def compared(self, operator: Operator, midnight: Instant | None) -> Predicate:
        """Return the predicate that a time has of its day."""
        if midnight is None:
            return Comparison(self.name, operator, None)
        if operator in (Operator.EQUAL, Operator.NOT_EQUAL):
            day = Column(self.name)
            within = And((day >= midnight, day < next_day(midnight)))
            return within if operator is Operator.EQUAL else Not(within)
        if operator in (Operator.LESS_OR_EQUAL, Operator.GREATER):  # before, or from, the end of the day
            midnight = next_day(midnight)
        is_below = operator in (Operator.LESS, Operator.LESS_OR_EQUAL)
        return Comparison(self.name, Operator.LESS if is_below else Operator.GREATER_OR_EQUAL, midnight)


def _like(node: exp.Expr, escape: str = "") -> Predicate:
    """Return what a pattern means: a value without wildcards, a prefix with ``%`` at its end alone."""
    _check_arguments(node, {"this", "expression", "negate"})
    pattern = node.expression.unnest()
    if pattern.key != "literal" or not pattern.is_string or len(str(pattern.this)) > _LONGEST_PATTERN:
        raise unsupported(node)
    column, text = _column(node.this), str(pattern.this)
    if "\\" in text and not escape:
        raise refused(
            node,
            ": databases differ about a backslash in LIKE; say what it is, LIKE 'a\\_b%' ESCAPE '\\', or write"
            " starts_with(column, 'a_b')",
        )
    parts = _parts_of(node, text, escape)
    begin = list(takewhile(lambda part: part not in ("%", "_"), parts))
    prefix = "".join(part[-1] for part in begin)
    found: Predicate
    if len(begin) == len(parts):
        found = Comparison(column, Operator.EQUAL, prefix)
    elif set(parts[len(begin) :]) == {"%"}:
        found = StartsWith(column, prefix)
    else:
        found = Like(column, "".join(parts))
    return Not(found) if node.args.get("negate") else found


def _parts_of(node: exp.Expr, pattern: str, escape: str) -> list[str]:
    """Return the wildcards and characters of a pattern, with a backslash before characters that look like one."""
    parts, characters = [], iter(pattern)
    for character in characters:
        is_literal = character == escape
        if is_literal:
            character = next(characters, "")  # noqa: PLW2901 - the one that is escaped
            if character not in ("%", "_", escape):
                raise refused(node, f": in LIKE, {escape} stands before %, _ or {escape} alone")
        parts.append(f"\\{character}" if character == "\\" or (is_literal and character in "%_") else character)
    return parts


def _escaped(node: exp.Expr) -> Predicate:
    escape = node.expression.unnest()
    if node.this.key != "like" or escape.key != "literal" or len(str(escape.this)) != 1 or str(escape.this) in "%_":
        raise unsupported(node)
    return _like(node.this, str(escape.this))


def _starts_with(node: exp.Expr) -> Predicate:
    _check_arguments(node, {"this", "expression"})
    prefix = _value(node.expression, node)
    if not isinstance(prefix, str):
        raise unsupported(node)
    return StartsWith(_column(node.this), prefix)


def _between(node: exp.Expr) -> Predicate:
    _check_arguments(node, {"this", "low", "high"})
    if (days := _DayOf.column(node.this)) is not None:
        low, high = (days.midnight(node.args[side], node) for side in ("low", "high"))
        return And((days.compared(Operator.GREATER_OR_EQUAL, low), days.compared(Operator.LESS_OR_EQUAL, high)))
    return Column(_column(node.this)).between(_value(node.args["low"], node), _value(node.args["high"], node))


def _is(node: exp.Expr) -> Predicate:
    if node.expression.key != "null":
        raise unsupported(node)
    return IsNull(_column(node.this))


_HANDLERS: dict[str, Callable[[exp.Expr], Predicate]] = {
    "and": lambda node: _connector(node, And),
    "or": lambda node: _connector(node, Or),
    "not": lambda node: Not(_predicate(node.this)),
    "paren": lambda node: _predicate(node.unnest()),
    "eq": lambda node: _comparison(node, Operator.EQUAL),
    "neq": lambda node: _comparison(node, Operator.NOT_EQUAL),
    "lt": lambda node: _comparison(node, Operator.LESS),
    "lte": lambda node: _comparison(node, Operator.LESS_OR_EQUAL),
    "gt": lambda node: _comparison(node, Operator.GREATER),
    "gte": lambda node: _comparison(node, Operator.GREATER_OR_EQUAL),
    "in": _in,
    "between": _between,
    "is": _is,
    "like": _like,
    "escape": _escaped,
    "startswith": _starts_with,
    "column": lambda node: Comparison(_column(node), Operator.EQUAL, value=True),
    "boolean": lambda node: Literal(bool(node.this)),
    "null": lambda _node: Literal(None),
}
"""The handler of each kind of condition node, by sqlglot's name of the kind."""


def _is_column(node: exp.Expr) -> bool:
    # A qualified name (t.price) has more arguments; `column.*` has a star instead of an identifier.
    return node.key == "column" and node.this.key == "identifier" and _arguments(node) == {"this"}


def _column(node: exp.Expr) -> str:
    node = node.unnest()
    if not _is_column(node):
        raise unsupported(node, hint='; a column name with a dot or blank goes in double quotes: "a.b"')
    return str(node.this.this)


def _value(node: exp.Expr, whole: exp.Expr) -> Value:
    node = node.unnest()
    match node.key:
        case "literal":
            return str(node.this) if node.is_string else _number(str(node.this))
        case "boolean" | "null" as kind:
            return bool(node.this) if kind == "boolean" else None
        case "neg":
            value = _value(node.this, whole)
            if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
                # The minus operator rounds decimals to 28 digits.
                return value.copy_negate() if isinstance(value, Decimal) else -value
        case "hexstring" if _HEX_BYTES.fullmatch(str(node.this)):
            return bytes.fromhex(str(node.this))
        case "cast" if node.this.key == "literal" and _arguments(node) <= {"this", "to"}:
            return _typed(node, whole)
    if (instant := time_of(node)) is not None:
        return instant
    raise _no_value(node, whole)


def _no_value(node: exp.Expr, whole: exp.Expr) -> InvalidInputError:
    if _is_column(node) and (node.this.quoted or _WORD.fullmatch(str(node.this.this))):
        return refused(whole, _column_where_a_value_belongs(node))
    if node.key == "sub" and (date := _DATE_AS_DIFFERENCE.fullmatch(sql_of(node))):
        return refused(whole, f": times go in single quotes: '{'-'.join(date.groups())}'")
    return unsupported(whole)


def _column_where_a_value_belongs(node: exp.Expr) -> str:
    name = str(node.this.this)
    quotes = "double quotes name a column" if node.this.quoted else "a word without quotes names a column"
    as_text = "'" + shorten(name).replace("'", "''") + "'"
    return f": {quotes}, and no two columns can be compared; text goes in single quotes: {as_text}"


def _number(digits: str) -> int | Decimal:
    try:
        if len(digits) <= MAX_DIGITS:
            return int(digits) if digits.isdecimal() else Decimal(digits)
    except InvalidOperation:
        pass
    raise InvalidInputError(
        f"{shorten(digits)!r} is not a number of at most {MAX_DIGITS} digits; write 12, -1.5 or 1.5e-3",
        kind="InvalidPredicate",
    )


def _typed(cast: exp.Expr, whole: exp.Expr) -> float | Instant:
    """Return a literal with an explicit type."""
    text, target = str(cast.this.this), cast.args["to"]
    type_name = str(target.args.get("kind") or target.this.name).upper()
    if type_name == "DOUBLE":
        return _double(text)
    if not cast.this.is_string:
        raise unsupported(whole)
    if target.expressions or type_name not in {*_TIMESTAMP_TYPES, "DATE"}:
        raise unsupported(cast, hint="; write the plain literal, it takes the type of the column")
    return _point_in_time(text, type_name)


def _double(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise InvalidInputError(f"{shorten(text)!r} is not a DOUBLE; write 0.1::DOUBLE", kind="InvalidLiteral")
    return number


def _point_in_time(text: str, type_name: str) -> Instant:
    instant = parse_instant(text)
    if instant is None or (type_name == "DATE" and (instant.nanoseconds % NANOSECONDS_PER_DAY or instant.has_rest)):
        raise InvalidInputError(
            f"{type_name} {shorten(text)!r} is not one; write DATE '2024-03-01' or"
            " TIMESTAMP '2024-03-01T12:30:00.123456Z'",
            kind="InvalidLiteral",
        )
    return instant


def _arguments(node: exp.Expr) -> set[str]:
    return {name for name, value in node.args.items() if value not in (None, [], False)}


def _check_arguments(node: exp.Expr, understood: set[str]) -> None:
    if not _arguments(node) <= understood:
        raise unsupported(node)
