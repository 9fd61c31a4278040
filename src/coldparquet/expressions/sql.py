"""Parses conditions in SQL, such as ``ts >= '2024-03-01' AND (symbol IN ('BTC', 'ETH') OR price IS NULL)``.

sqlglot parses the text. This module accepts the few kinds of nodes that statistics can answer and refuses all others
by name.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from coldparquet.errors import InvalidInputError
from coldparquet.plan.predicate import (
    MAX_DIGITS,
    NANOSECONDS_PER_DAY,
    And,
    Column,
    Comparison,
    In,
    Instant,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    Value,
    parse_instant,
    quote_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import Dialect, exp


MAX_CHARACTERS = 2 * 1024 * 1024
"""Longest text to parse: enough for 100,000 numbers in an IN list, which take about three seconds."""

MAX_NESTING = 24
"""Deepest nesting of parentheses. The parser takes about 20 of Python's 1,000 frames for each."""

ALLOWED = (
    "allowed are AND, OR, NOT, parentheses, and comparisons of one column with literals: = != <> < <= > >=,"
    " [NOT] IN (...), [NOT] BETWEEN ... AND ..., IS [NOT] NULL; literals are numbers, 'strings', TRUE, FALSE, NULL,"
    " TIMESTAMP '...', DATE '...', bytes as X'00ff', and doubles as 0.1::DOUBLE"
)

_TIMESTAMP_TYPES = frozenset(
    {"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"}
)
_SHOWN_CHARACTERS = 80

# Strings, quoted names and comments come first, so that parentheses and words inside them do not count.
_NESTING = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<run>(?:\bNOT\b\s*){25})""",
    re.DOTALL | re.IGNORECASE,
)

_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_HEX_BYTES = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_STATEMENT = re.compile(r"\s*(?:SELECT\b.*\bFROM|WHERE)\s", re.DOTALL | re.IGNORECASE)
_DATE = re.compile(r"\b\d{4}-\d{1,2}-\d{1,2}(?!\d)", re.ASCII)
_DATE_AS_DIFFERENCE = re.compile(r"(\d{4}) - (\d{1,2}) - (\d{1,2})", re.ASCII)

_OWN_KEYWORDS = frozenset({"AND", "BETWEEN", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "TRUE"})
"""SQL words in conditions: seldom meant as the name of a column."""

_SYMBOLS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
"""Spelling of comparisons, by sqlglot's class names."""


def parse_sql(text: str) -> Predicate:
    """Parse the text after WHERE in SQL.

    Numbers are exact: without point or exponent they are integers, otherwise decimals; ``0.1::DOUBLE`` is the nearest
    double. ``X'00ff'`` is bytes. ``TIMESTAMP '...'``, ``DATE '...'`` and casts of strings to these are points in time.
    A plain string becomes one when it is compared with a timestamp column. BETWEEN is SQL's: no row satisfies it if the
    first bound exceeds the second (QuestDB swaps them). A date string is an instant (QuestDB's ``IN '2024-03-01'`` is a
    whole day).
    """
    # sqlglot takes 50 ms to import, and predicates in Python do not need it.
    from sqlglot import exp  # noqa: PLC0415
    from sqlglot.errors import ParseError, TokenError  # noqa: PLC0415

    _check_size(text)
    try:
        # Condition, not a whole statement: otherwise `a = 1 b` is an alias and `desc = 1` a command.
        expressions = _dialect().parse_into(exp.Condition, text)
    except ParseError as error:
        raise _syntax_error(text, error.errors[0]) from None
    except TokenError:
        raise _unterminated(text) from None
    except RecursionError:
        raise _nested_too_deep(text) from None
    conditions = [expression for expression in expressions if expression is not None]
    if not conditions:
        raise InvalidInputError("the condition is empty; leave it out to read every row", kind="InvalidPredicate")
    if len(conditions) > 1:
        raise InvalidInputError(
            f"the predicate {_shorten(text)!r} holds {len(conditions)} conditions; join them with AND or OR",
            kind="InvalidPredicate",
        )
    return _predicate(conditions[0])


@cache
def _dialect() -> Dialect:
    """Return sqlglot's own dialect, with bytes as ``X'00ff'``."""
    import sqlglot  # noqa: PLC0415

    class Conditions(sqlglot.Dialect):
        class Tokenizer(sqlglot.Tokenizer):
            HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]

    return Conditions()


def _check_size(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise InvalidInputError(
            f"the predicate has {len(text):,} characters, more than the {MAX_CHARACTERS:,} that are parsed; give long"
            " lists of values as col(...).is_in([...])",
            kind="InvalidPredicate",
        )
    depth = 0
    for match in _NESTING.finditer(text):
        depth += (match["open"] is not None) - (match["close"] is not None)
        if depth > MAX_NESTING or match["run"] is not None:
            raise _nested_too_deep(text)


def _predicate(node: exp.Expr) -> Predicate:
    handler = _HANDLERS.get(node.key)
    if handler is None:
        raise _unsupported(node)
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
    if _is_column(left):
        return Comparison(_column(left), operator, _value(right, node))
    if _is_column(right):
        return Comparison(_column(right), operator.flipped, _value(left, node))
    raise _unsupported(node)


def _in(node: exp.Expr) -> Predicate:
    _check_arguments(node, {"this", "expressions"})
    if "expressions" not in node.args:  # sqlglot parses an IN that ends too early as one without values
        raise InvalidInputError(
            f"{_shorten(node.sql())!r} is not valid SQL: a list of values in parentheses is missing after IN",
            kind="InvalidPredicate",
        )
    return In(_column(node.this), tuple(_value(value, node) for value in node.expressions))


def _between(node: exp.Expr) -> Predicate:
    _check_arguments(node, {"this", "low", "high"})
    return Column(_column(node.this)).between(_value(node.args["low"], node), _value(node.args["high"], node))


def _is(node: exp.Expr) -> Predicate:
    if node.expression.key != "null":
        raise _unsupported(node)
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
        raise _unsupported(node, hint='; a column name with a dot or blank goes in double quotes: "a.b"')
    return str(node.this.this)


def _value(node: exp.Expr, whole: exp.Expr) -> Value:
    node = node.unnest()
    match node.key:
        case "literal":
            return str(node.this) if node.is_string else _number(str(node.this))
        case "boolean":
            return bool(node.this)
        case "null":
            return None
        case "neg":
            value = _value(node.this, whole)
            if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
                # The minus operator rounds decimals to 28 digits.
                return value.copy_negate() if isinstance(value, Decimal) else -value
        case "hexstring" if _HEX_BYTES.fullmatch(str(node.this)):
            return bytes.fromhex(str(node.this))
        case "cast" if node.this.key == "literal" and _arguments(node) <= {"this", "to"}:
            return _typed(node, whole)
    raise _no_value(node, whole)


def _no_value(node: exp.Expr, whole: exp.Expr) -> InvalidInputError:
    if _is_column(node) and (node.this.quoted or _WORD.fullmatch(str(node.this.this))):
        return _refused(whole, _column_where_a_value_belongs(node))
    if node.key == "sub" and (date := _DATE_AS_DIFFERENCE.fullmatch(_sql_of(node))):
        return _refused(whole, f": times go in single quotes: '{'-'.join(date.groups())}'")
    return _unsupported(whole)


def _column_where_a_value_belongs(node: exp.Expr) -> str:
    name = str(node.this.this)
    quotes = "double quotes name a column" if node.this.quoted else "a word without quotes names a column"
    as_text = "'" + _shorten(name).replace("'", "''") + "'"
    return f": {quotes}, and no two columns can be compared; text goes in single quotes: {as_text}"


def _number(digits: str) -> int | Decimal:
    try:
        if len(digits) <= MAX_DIGITS:
            return int(digits) if digits.isdecimal() else Decimal(digits)
    except InvalidOperation:
        pass
    raise InvalidInputError(
        f"{_shorten(digits)!r} is not a number of at most {MAX_DIGITS} digits; write 12, -1.5 or 1.5e-3",
        kind="InvalidPredicate",
    )


def _typed(cast: exp.Expr, whole: exp.Expr) -> float | Instant:
    """Return a literal with an explicit type."""
    text, target = str(cast.this.this), cast.args["to"]
    type_name = str(target.args.get("kind") or target.this.name).upper()
    if type_name == "DOUBLE":
        return _double(text)
    if not cast.this.is_string:
        raise _unsupported(whole)
    if target.expressions or type_name not in {*_TIMESTAMP_TYPES, "DATE"}:
        raise _unsupported(cast, hint="; write the plain literal, it takes the type of the column")
    return _point_in_time(text, type_name)


def _double(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise InvalidInputError(f"{_shorten(text)!r} is not a DOUBLE; write 0.1::DOUBLE", kind="InvalidLiteral")
    return number


def _point_in_time(text: str, type_name: str) -> Instant:
    instant = parse_instant(text)
    if instant is None or (type_name == "DATE" and (instant.nanoseconds % NANOSECONDS_PER_DAY or instant.has_rest)):
        raise InvalidInputError(
            f"{type_name} {_shorten(text)!r} is not one; write DATE '2024-03-01' or"
            " TIMESTAMP '2024-03-01T12:30:00.123456Z'",
            kind="InvalidLiteral",
        )
    return instant


def _arguments(node: exp.Expr) -> set[str]:
    return {name for name, value in node.args.items() if value not in (None, [], False)}


def _check_arguments(node: exp.Expr, understood: set[str]) -> None:
    if not _arguments(node) <= understood:
        raise _unsupported(node)


def _unsupported(node: exp.Expr, hint: str = "") -> InvalidInputError:
    return _refused(node, f", which cannot be used here; {ALLOWED}{hint}")


def _refused(node: exp.Expr, why: str) -> InvalidInputError:
    fragment = _shorten(_sql_of(node))
    return InvalidInputError(f"the predicate contains {fragment}{why}", kind="UnsupportedPredicate", fragment=fragment)


def _sql_of(node: exp.Expr) -> str:
    try:
        return node.sql(comments=False)
    except RecursionError:
        return node.key.upper()


def _syntax_error(text: str, facts: dict[str, Any]) -> InvalidInputError:
    # sqlglot counts columns to the end of the wrong token; the caret goes under its start.
    line, column = facts["line"], max(facts["col"] - len(facts["highlight"]) + 1, 1)
    unquoted, hint = _QUOTED.sub("", text), ""
    if _STATEMENT.match(unquoted):
        problem = "this is more than a condition; write only what follows WHERE"
    elif date := _DATE.search(unquoted):
        problem = f"times go in single quotes: '{date[0]}'"
    else:
        problem = _in_plain_words(facts["description"], facts["highlight"])
        hint = _hint_on_keywords(unquoted)
    return _at(text, line, column, f"the predicate is not valid SQL: {problem}", hint)


def _hint_on_keywords(unquoted: str) -> str:
    """Return the spelling of the first SQL word that may be meant as a column."""
    for word in _WORD.findall(unquoted):
        if word.upper() not in _OWN_KEYWORDS and (quoted := quote_name(word)) != word:
            return f"\na column whose name is a word of SQL goes in double quotes: {quoted}"
    return ""


def _in_plain_words(description: str, at_fault: str) -> str:
    """Describe what sqlglot missed without the names of its classes."""
    if description == "Invalid expression / Unexpected token":
        return f"{_shorten(at_fault)} was not expected here"
    missing = re.match(r"Required keyword: '(\w+)' missing for <class '[\w.]*?(\w+)'>", description)
    if missing is None:
        return description[:1].lower() + description[1:]
    argument, node_name = missing.groups()
    operator = _SYMBOLS.get(node_name, node_name.upper())
    is_before = argument == "this" and operator != "NOT"
    if operator in {"AND", "OR", "NOT"}:
        return f"a condition is missing {'before' if is_before else 'after'} {operator}"
    return f"a column is missing before {operator}" if is_before else f"a value is missing after {operator}"


def _unterminated(text: str) -> InvalidInputError:
    """Find the quote or comment that never ends: the tokenizer's own error does not say where it is."""
    for match in re.finditer(r"""'(?:[^']|'')*('?)|"(?:[^"]|"")*("?)|--[^\n]*|/\*(?:.*?(\*/)|.*)""", text, re.DOTALL):
        if not match[0].startswith("--") and not any(match.groups()):
            before = text[: match.start()]
            line, column = before.count("\n") + 1, match.start() - (before.rfind("\n") + 1) + 1
            return _at(text, line, column, f"the predicate is not valid SQL: {_opening(match[0])} is never closed")
    return InvalidInputError(f"the predicate {_shorten(text)!r} cannot be read as SQL", kind="InvalidPredicate")


def _opening(unclosed: str) -> str:
    return "/*" if unclosed.startswith("/*") else unclosed[0]


def _at(text: str, line: int, column: int, message: str, hint: str = "") -> InvalidInputError:
    """Show the line with a caret under the error; of a long line, only the surroundings."""
    lines = text.splitlines() or [""]
    shown = lines[min(line, len(lines)) - 1]
    start = max(0, column - 1 - _SHOWN_CHARACTERS // 2)
    window = shown[start : start + _SHOWN_CHARACTERS]
    return InvalidInputError(
        f"{message}\n  {window}\n  {' ' * (column - 1 - start)}^{hint}",
        kind="InvalidPredicate",
        line=line,
        column=column,
    )


def _nested_too_deep(text: str) -> InvalidInputError:
    return InvalidInputError(
        f"the predicate {_shorten(text)!r} is nested deeper than {MAX_NESTING} levels; leave out parentheses, or give a"
        " list of tuples",
        kind="PredicateTooDeep",
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
