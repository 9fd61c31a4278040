"""Builds predicates as trees of comparisons, in Python ``col("price") > 3``, and the points in time in them.

The leaves hold column names, and values as the caller gave them. ``bind`` puts leaves of one table in their place; AND,
OR, NOT and literals are the same nodes in both trees, and :class:`Fold` is the one walk over them. NULL follows SQL: a
comparison with a missing value is neither true nor false, and a row is kept only if the whole predicate is true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from ipaddress import IPv4Address
from typing import Generic, NoReturn, TypeAlias, TypeVar
from uuid import UUID

import numpy as np
from msgspec import Struct

from coldparquet.errors import InvalidInputError

NANOSECONDS_PER_DAY = 86_400 * 1_000_000_000

NANOSECONDS_PER_UNIT = {"d": NANOSECONDS_PER_DAY, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds in one step of the units in which columns count time."""

_FRACTION_DIGITS = {"d": 0, "s": 0, "ms": 3, "us": 6, "ns": 9}
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TIME_OF_DAY = r"(?P<hour>\d{2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d+))?)?)?"
_OFFSET = r"(?:Z|(?P<sign>[+-])(?P<offset_hour>\d{2})(?::?(?P<offset_minute>\d{2}))?)"
_INSTANT = re.compile(
    rf"(?P<year>\d{{4}})(?:-(?P<month>\d{{2}})(?:-(?P<day>\d{{2}})(?:[T ]{_TIME_OF_DAY} ?{_OFFSET}?)?)?)?",
    re.ASCII | re.IGNORECASE,
)
_TIME = re.compile(_TIME_OF_DAY, re.ASCII)


class Instant(Struct, frozen=True, order=True):
    """A point in time: whole nanoseconds since 1970-01-01 UTC, and whether a smaller fraction follows them."""

    nanoseconds: int
    has_rest: bool = False
    """True if the instant is strictly between ``nanoseconds`` and the next one."""

    def in_unit(self, unit: str) -> tuple[int, bool]:
        """Return the whole steps of ``unit`` (d, s, ms, us, ns) since 1970, and whether a rest was rounded down."""
        steps, rest = divmod(self.nanoseconds, NANOSECONDS_PER_UNIT[unit])
        return steps, self.has_rest or rest != 0

    def __str__(self) -> str:
        text = format_instant(self.nanoseconds, "ns")
        if self.has_rest and text.endswith("Z"):
            return f"{text[:-1]}1Z"  # some digit after the ninth: it is not kept, and decides nothing
        return text.removesuffix("Z").rstrip("0").rstrip(".") + "Z" if text.endswith("Z") else text


def instant_of(moment: datetime) -> Instant:
    """Convert a datetime exactly; one without time zone is UTC. Nanoseconds of a pandas Timestamp are kept."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    microseconds = (aware - _EPOCH) // timedelta(microseconds=1)
    return Instant(microseconds * 1_000 + getattr(moment, "nanosecond", 0))


def instant_of_date(day: date) -> Instant:
    """Convert a date to its midnight, UTC."""
    return Instant((day.toordinal() - _EPOCH_ORDINAL) * NANOSECONDS_PER_DAY)


def parse_instant(text: str) -> Instant | None:
    """Parse ``2024``, ``2024-03``, ``2024-03-01``, ``2024-03-01T12``, ``2024-03-01 12:30:00.123456789+02:00``.

    Missing parts are the earliest possible; without offset the time is UTC. Any number of fraction digits.

    Returns:
        The instant, or None if the text is not one.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    try:
        day = date(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    except ValueError:
        return None
    time_of_day = _time_of_day(match)
    if time_of_day is None:
        return None
    offset_hours, offset_minutes = int(match["offset_hour"] or 0), int(match["offset_minute"] or 0)
    if offset_hours > 23 or offset_minutes > 59:
        return None
    offset = (offset_hours * 60 + offset_minutes) * 60 * NANOSECONDS_PER_UNIT["s"]
    nanoseconds = instant_of_date(day).nanoseconds + time_of_day.nanoseconds
    return Instant(nanoseconds + offset if match["sign"] == "-" else nanoseconds - offset, time_of_day.has_rest)


def parse_time_of_day(text: str) -> Instant | None:
    """Parse ``12``, ``12:30`` or ``12:30:00.123``, counted from midnight; None if the text is no time of day."""
    match = _TIME.fullmatch(text)
    return None if match is None else _time_of_day(match)


def _time_of_day(match: re.Match[str]) -> Instant | None:
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = match["fraction"] or ""
    nanoseconds = int(fraction[:9].ljust(9, "0"))
    seconds = (hour * 60 + minute) * 60 + second
    return Instant(seconds * NANOSECONDS_PER_UNIT["s"] + nanoseconds, has_rest=fraction[9:].strip("0") != "")


def format_instant(steps: int, unit: str) -> str:
    """Write a count of ``unit`` since 1970 as ISO text with as many digits as the unit has.

    Counts outside the years 1 to 9999, which ISO text cannot hold, are written as the number itself.
    """
    days, nanoseconds = divmod(steps * NANOSECONDS_PER_UNIT[unit], NANOSECONDS_PER_DAY)
    try:
        day = date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
    except (ValueError, OverflowError):
        return str(steps)
    return day if unit == "d" else f"{day}T{format_time_of_day(nanoseconds // NANOSECONDS_PER_UNIT[unit], unit)}Z"


def format_time_of_day(steps: int, unit: str) -> str:
    """Write a count of ``unit`` since midnight as ``12:30:00.123``."""
    seconds, rest = divmod(steps * NANOSECONDS_PER_UNIT[unit], NANOSECONDS_PER_UNIT["s"])
    digits = _FRACTION_DIGITS[unit]
    fraction = f".{rest // NANOSECONDS_PER_UNIT[unit]:0{digits}d}" if digits else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


Value: TypeAlias = (
    bool
    | int
    | float
    | Decimal
    | str
    | bytes
    | datetime
    | date
    | time
    | Instant
    | np.datetime64
    | UUID
    | IPv4Address
    | None
)
"""What a column can be compared with. None is NULL, and so are NaN and NaT, as in QuestDB."""

MAX_DIGITS = 1_000
"""Longest number: more digits than the exact value of any double has."""

MAX_DEPTH = 100
"""Deepest tree that can be built: every walk over one may then simply recurse."""

_FIRST_TOO_LONG: int = 10**MAX_DIGITS
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WORDS_OF_SQL = frozenset(
    """
    all alter and any array as between call case cast connect_by_root create cross current_catalog current_date
    current_time current_timestamp current_user describe distinct drop else end except execute exists explain extract
    false fetch for from glob grant group having if ilike in inner insert intersect interval into is isnull join lateral
    like limit list localtime localtimestamp map not notnull null nullable object on optimize or order outer
    partitioned_by prepare qualify range regexp rename returning revoke rlike rollback select session_user show similar
    straight_join struct tablesample then true try_cast uncache union using vacuum values when where with xor
    """.split()  # noqa: SIM905 - ninety quoted words, one per line, would be harder to read
)
"""Words that need double quotes as column names: SQL gives them a meaning of their own."""


class Operator(StrEnum):
    """The six comparisons."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="

    @property
    def flipped(self) -> Operator:
        """The operator with its sides exchanged: ``3 < x`` is ``x > 3``."""
        return _FLIPPED.get(self, self)


_FLIPPED = {
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on rows. Combine with ``&``, ``|`` and ``~``; ``str()`` writes it as SQL that means the same."""

    depth: int = field(init=False, repr=False, compare=False, default=1)
    """Number of nodes on the longest path to a leaf, both included."""

    def columns(self) -> tuple[str, ...]:
        """Return the names of the predicate's columns, each once, in order of appearance."""
        tests = [leaf for leaf in leaves(self) if isinstance(leaf, Comparison | In | IsNull | StartsWith | Like)]
        return tuple(dict.fromkeys(leaf.column for leaf in tests))

    def negated_text(self) -> str:
        """Write the opposite as SQL."""
        return f"NOT ({self})"

    def __and__(self, other: Predicate) -> Predicate:
        return And((self, _as_predicate(other)))

    def __or__(self, other: Predicate) -> Predicate:
        return Or((self, _as_predicate(other)))

    def __invert__(self) -> Predicate:
        return self.part if isinstance(self, Not) else Not(self)

    def __bool__(self) -> NoReturn:
        raise InvalidInputError(
            "a predicate is neither true nor false by itself; combine predicates with & | ~ instead of 'and', 'or',"
            " 'not' and 'in', each comparison in parentheses: (col('a') > 1) & (col('b') < 2);"
            " write a range as col('a').between(1, 2), not as 1 <= col('a') <= 2",
            kind="PredicateAsBoolean",
        )


@dataclass(frozen=True, slots=True)
class Comparison(Predicate):
    """``column operator value``."""

    column: str
    operator: Operator
    value: Value

    def __post_init__(self) -> None:
        _check_column(self.column)
        object.__setattr__(self, "operator", Operator(self.operator))
        object.__setattr__(self, "value", as_value(self.value, self.column))

    def __str__(self) -> str:
        return f"{quote_name(self.column)} {self.operator} {value_text(self.value)}"


@dataclass(frozen=True, slots=True)
class In(Predicate):
    """``column`` equals one of ``values``; a NULL among them makes the answer NULL where it would be false."""

    column: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        _check_column(self.column)
        values = tuple(self.values)
        kinds = set(map(type, values))
        if not kinds <= _PLAIN_KINDS or (int in kinds and _is_any_too_long(values)):
            values = tuple([as_value(value, self.column) for value in values])
        object.__setattr__(self, "values", values)

    def __str__(self) -> str:
        return f"{quote_name(self.column)} IN ({', '.join(map(value_text, self.values))})"

    def negated_text(self) -> str:
        """Write the opposite as SQL."""
        return f"{quote_name(self.column)} NOT IN ({', '.join(map(value_text, self.values))})"


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """``column`` has no value. Always true or false, never NULL."""

    column: str

    def __post_init__(self) -> None:
        _check_column(self.column)

    def __str__(self) -> str:
        return f"{quote_name(self.column)} IS NULL"

    def negated_text(self) -> str:
        """Write the opposite as SQL."""
        return f"{quote_name(self.column)} IS NOT NULL"


@dataclass(frozen=True, slots=True)
class StartsWith(Predicate):
    """The text ``column`` begins with ``prefix``; every text begins with the empty one."""

    column: str
    prefix: str

    def __post_init__(self) -> None:
        _check_column(self.column)
        if not isinstance(self.prefix, str):
            raise InvalidInputError(
                f"column {self.column!r} is to begin with {self.prefix!r}; expected text, such as"
                f" col({self.column!r}).starts_with('BTC')",
                kind="InvalidLiteral",
                column=self.column,
            )

    def __str__(self) -> str:
        return f"starts_with({quote_name(self.column)}, {value_text(self.prefix)})"


@dataclass(frozen=True, slots=True)
class Like(Predicate):
    """The text ``column`` has the form of ``pattern``: ``%`` is any text, ``_`` any character; a backslash stands before these."""

    column: str
    pattern: str

    def __str__(self) -> str:
        return f"{quote_name(self.column)} {self._written('LIKE')}"

    def negated_text(self) -> str:
        """Write the opposite as SQL."""
        return f"{quote_name(self.column)} {self._written('NOT LIKE')}"

    def _written(self, operator: str) -> str:
        escape = " ESCAPE '\\'" if "\\" in self.pattern else ""
        return f"{operator} {value_text(self.pattern)}{escape}"


@dataclass(frozen=True, slots=True)
class Literal(Predicate):
    """TRUE, FALSE or NULL (None) for every row."""

    depth: int = field(init=False, repr=False, compare=False, default=0)
    """None of its own: see :class:`coldparquet.plan.bind.BoundLeaf`."""
    value: bool | None

    def __str__(self) -> str:
        return value_text(self.value)


@dataclass(frozen=True, slots=True)
class And(Predicate):
    """All of ``parts``. Parts that are themselves an And are merged into this one."""

    parts: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        parts = tuple(inner for part in self.parts for inner in (part.parts if isinstance(part, And) else (part,)))
        object.__setattr__(self, "parts", parts)
        _set_depth(self, parts)

    def __str__(self) -> str:
        return " AND ".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.parts) or "TRUE"


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    """Any of ``parts``. Parts that are themselves an Or are merged into this one."""

    parts: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        parts = tuple(inner for part in self.parts for inner in (part.parts if isinstance(part, Or) else (part,)))
        object.__setattr__(self, "parts", parts)
        _set_depth(self, parts)

    def __str__(self) -> str:
        return " OR ".join(map(str, self.parts)) or "FALSE"


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    """The opposite of ``part``; NULL stays NULL."""

    part: Predicate

    def __post_init__(self) -> None:
        _set_depth(self, (self.part,))

    def __str__(self) -> str:
        return self.part.negated_text()


def leaves(predicate: Predicate) -> Iterator[Predicate]:
    """Yield the comparisons, literals and other leaves of a tree from left to right."""
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            for part in parts:
                yield from leaves(part)
        case Not(part=part):
            yield from leaves(part)
        case _:
            yield predicate


Result = TypeVar("Result")


class Fold(Generic[Result]):
    """One meaning of predicates: what a leaf means, and how AND, OR and NOT combine that.

    A new kind of inner node belongs here; a new kind of leaf only in those folds that need to know it.
    """

    def of(self, predicate: Predicate) -> Result:
        """Return what a predicate means."""
        match predicate:
            case And():
                return self.all_of(map(self.of, self.parts(predicate)))
            case Or():
                return self.any_of(map(self.of, self.parts(predicate)))
            case Not(part=part):
                return self.negated(self.of(part))
            case Literal(value=value):
                return self.constant(value)
        return self.leaf(predicate)

    def parts(self, joined: And | Or) -> Iterable[Predicate]:
        """Return the parts of an AND or OR as they are to be folded, in their order."""
        return joined.parts

    def leaf(self, leaf: Predicate) -> Result:
        """Return what a leaf other than a literal means."""
        raise NotImplementedError

    def constant(self, value: bool | None) -> Result:
        """Return what TRUE, FALSE or NULL means."""
        raise NotImplementedError

    def all_of(self, results: Iterable[Result]) -> Result:
        """Combine the parts of an AND. They come lazily: those that are not taken are not evaluated."""
        raise NotImplementedError

    def any_of(self, results: Iterable[Result]) -> Result:
        """Combine the parts of an OR."""
        return self.negated(self.all_of(map(self.negated, results)))

    def negated(self, result: Result) -> Result:
        """Return the opposite."""
        raise NotImplementedError


class Column:
    """A column by name, to be compared: ``col("price") > 3``. Not a predicate itself."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        _check_column(name)
        self.name = name

    def __eq__(self, value: Value) -> Comparison:  # type: ignore[override]
        return Comparison(self.name, Operator.EQUAL, value)

    def __ne__(self, value: Value) -> Comparison:  # type: ignore[override]
        return Comparison(self.name, Operator.NOT_EQUAL, value)

    def __lt__(self, value: Value) -> Comparison:
        return Comparison(self.name, Operator.LESS, value)

    def __le__(self, value: Value) -> Comparison:
        return Comparison(self.name, Operator.LESS_OR_EQUAL, value)

    def __gt__(self, value: Value) -> Comparison:
        return Comparison(self.name, Operator.GREATER, value)

    def __ge__(self, value: Value) -> Comparison:
        return Comparison(self.name, Operator.GREATER_OR_EQUAL, value)

    def is_in(self, values: Iterable[Value]) -> In:
        """Return the predicate that the column equals one of ``values``."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidInputError(
                f"col({self.name!r}).is_in({values!r}): expected several values, for example is_in(['BTC', 'ETH'])",
                kind="InvalidLiteral",
            )
        return In(self.name, tuple(values))

    def between(self, low: Value, high: Value) -> Predicate:
        """Return the predicate ``low <= column <= high``; no row satisfies it when ``low`` exceeds ``high``."""
        return And((self >= low, self <= high))

    def starts_with(self, prefix: str) -> StartsWith:
        """Return the predicate that a text column begins with ``prefix``."""
        return StartsWith(self.name, prefix)

    def is_null(self) -> IsNull:
        """Return the predicate that the column has no value."""
        return IsNull(self.name)

    def is_not_null(self) -> Not:
        """Return the predicate that the column has a value."""
        return Not(IsNull(self.name))

    def __bool__(self) -> NoReturn:
        raise InvalidInputError(
            f"col({self.name!r}) has no truth value; compare it: col({self.name!r}) == True", kind="PredicateAsBoolean"
        )

    def __and__(self, other: object) -> NoReturn:
        raise self._needs_parentheses("&")

    __rand__ = __and__

    def __or__(self, other: object) -> NoReturn:
        raise self._needs_parentheses("|")

    __ror__ = __or__

    def _needs_parentheses(self, operator: str) -> InvalidInputError:
        return InvalidInputError(
            f"{operator} binds tighter than comparisons: write (col({self.name!r}) > 1) {operator} (...), each comparison in"
            " parentheses",
            kind="InvalidPredicate",
        )

    def __repr__(self) -> str:
        return f"col({self.name!r})"


def col(name: str) -> Column:
    """Name a column to compare it: ``(cp.col("price") > 3) & cp.col("symbol").is_in(["BTC", "ETH"])``.

    Raises:
        InvalidInputError: The name is not a string, or is empty.
    """
    return Column(name)


_PLAIN_KINDS = frozenset({bool, int, str, bytes, date, time, Instant, UUID, IPv4Address, type(None)})
"""Kinds of values that need no conversion for comparison."""


def as_value(value: object, column: str) -> Value:
    """Check that a column can be compared with ``value``; numpy scalars become Python's, NaN and NaT None."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        value = value.item()
    if _is_nan(value):
        return None
    if _has_too_many_digits(value):
        raise InvalidInputError(
            f"column {column!r} is compared with a number of more than {MAX_DIGITS:,} digits",
            kind="InvalidLiteral",
            column=column,
        )
    if value is None or isinstance(
        value,
        bool | int | float | Decimal | str | bytes | date | time | Instant | np.datetime64 | UUID | IPv4Address,
    ):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    what = f"the column {value!r}" if isinstance(value, Column) else f"a {type(value).__name__}"
    raise InvalidInputError(
        f"column {column!r} is compared with {what}; expected a number, string, bytes, datetime, date, Decimal,"
        " UUID, IPv4Address or numpy scalar",
        kind="InvalidLiteral",
        column=column,
    )


def _is_nan(value: object) -> bool:
    match value:
        case float():
            return math.isnan(value)
        case Decimal():
            return value.is_nan()
        case datetime() | np.datetime64():
            return str(value) == "NaT"
    return False


def _has_too_many_digits(value: object) -> bool:
    if isinstance(value, Decimal):
        return len(value.as_tuple().digits) > MAX_DIGITS
    return isinstance(value, int) and abs(value) >= _FIRST_TOO_LONG


def _is_any_too_long(values: Sequence[object]) -> bool:
    """Tell whether an integer has too many digits: checking the extremes is fast even for a million."""
    integers: list[int] = [value for value in values if type(value) is int]
    return max(integers) >= _FIRST_TOO_LONG or min(integers) <= -_FIRST_TOO_LONG


def quote_name(name: str) -> str:
    """Write a column name as SQL does: in double quotes unless it is a plain word without a meaning in SQL."""
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _WORDS_OF_SQL:
        return name
    return '"' + name.replace('"', '""') + '"'


def value_text(value: Value) -> str:
    """Write a value as a SQL literal of the same meaning. UUIDs and addresses become strings, bytes ``X'00ff'``.

    SQL numbers are exact. So a double whose shortest spelling is another number is written as a double
    (``0.1::DOUBLE``).
    """
    match value:
        case None | bool():
            return _KEYWORDS[value]
        case int() | float() | Decimal():
            return _number_text(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime() | Instant() | np.datetime64():
            text = value.isoformat() if isinstance(value, datetime) else str(value)
            if isinstance(value, datetime) and parse_instant(text) is None:
                text = str(instant_of(value))  # the offset of its time zone has seconds
            return f"TIMESTAMP '{text}'"
        case date():
            return f"DATE '{value}'"
    return "'" + str(value).replace("'", "''") + "'"


def _number_text(value: float | Decimal) -> str:
    if isinstance(value, Decimal) and value.is_infinite():
        value = float(value)
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "'Infinity'::DOUBLE" if value > 0 else "'-Infinity'::DOUBLE"
    text = str(value)
    return text if Decimal(text) == Decimal(value) else f"{text}::DOUBLE"


_KEYWORDS = {None: "NULL", True: "TRUE", False: "FALSE"}


def _check_column(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInputError(f"a column is named by a non-empty string, not by {name!r}", kind="InvalidColumnName")


def _as_predicate(other: object) -> Predicate:
    if isinstance(other, Predicate):
        return other
    raise InvalidInputError(
        f"a predicate can be combined with another predicate, not with {other!r}; put each comparison in parentheses,"
        " because & and | bind tighter than ==",
        kind="InvalidPredicate",
    )


def _set_depth(node: Predicate, parts: tuple[Predicate, ...]) -> None:
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > MAX_DEPTH:
        raise InvalidInputError(
            f"the predicate is nested deeper than {MAX_DEPTH} levels; join its parts in one list of tuples instead",
            kind="PredicateTooDeep",
        )
    object.__setattr__(node, "depth", depth)
