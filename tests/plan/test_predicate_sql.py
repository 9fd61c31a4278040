from __future__ import annotations

import math
import time
from datetime import date, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot.tokens import Tokenizer

from coldparquet.errors import ColdParquetError, InvalidInputError
from coldparquet.expressions.sql import depends_on_now, parse_sql
from coldparquet.expressions.sql_errors import MAX_NESTING
from coldparquet.expressions.where import parse_predicate
from coldparquet.format.type_codes import TypeTag, parse_type_name
from coldparquet.format.types import canonical_type
from coldparquet.plan.bind import BoundField, bind
from coldparquet.plan.predicate import (
    And,
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
    Value,
    col,
    parse_instant,
)
from tests.support.predicate_trees import trees

MARCH = parse_instant("2024-03-01")
NOW = parse_instant("2024-03-31T12")
NOON = parse_instant("2024-03-01T12:30:00.123456789Z")


def _within(begin: str, end: str) -> Predicate:
    return (col("ts") >= parse_instant(begin)) & (col("ts") < parse_instant(end))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", col("a") == 1),
        ("a == 1", col("a") == 1),
        ("a != 1", col("a") != 1),
        ("a <> 1", col("a") != 1),
        ("a < 1 and b > 2", (col("a") < 1) & (col("b") > 2)),
        ("a<=1 OR b>=2", (col("a") <= 1) | (col("b") >= 2)),
        ("a = 1 or b = 2 and c = 3", (col("a") == 1) | ((col("b") == 2) & (col("c") == 3))),
        ("(a = 1 or b = 2) and c = 3", ((col("a") == 1) | (col("b") == 2)) & (col("c") == 3)),
        ("not a = 1", ~(col("a") == 1)),
        ("not not a = 1", Not(Not(col("a") == 1))),
        ("not (a = 1 and b = 2)", ~((col("a") == 1) & (col("b") == 2))),
        ("3 < a", col("a") > 3),
        ("3 >= a", col("a") <= 3),
        ("'x' = a", col("a") == "x"),
        ("(a) = (1)", col("a") == 1),
        ("a in (1, 2)", col("a").is_in([1, 2])),
        ("a not in ('x', null)", ~col("a").is_in(["x", None])),
        ("a in ()", col("a").is_in([])),
        ("a between -1 and 2.5", col("a").between(-1, Decimal("2.5"))),
        ("a not between 1 and 2 and b = 3", ~col("a").between(1, 2) & (col("b") == 3)),
        ("a is null", col("a").is_null()),
        ("a is not null", col("a").is_not_null()),
        ("flag", col("flag") == True),  # noqa: E712 - it is how a boolean column is compared
        ("not flag and a = 1", ~(col("flag") == True) & (col("a") == 1)),  # noqa: E712
        ("true or null", Literal(True) | Literal(None)),
        ("a = null", col("a") == None),  # noqa: E711
        ("a = 'it''s -- not /* a comment'", col("a") == "it's -- not /* a comment"),
        ("a = ''", col("a") == ""),
        ("a = 1 -- why\n and b = 2 /* because */", (col("a") == 1) & (col("b") == 2)),
        ("a = 1;", col("a") == 1),
        ("ts >= timestamp '2024-03-01'", col("ts") >= MARCH),
        ("ts >= TIMESTAMP '2024-03-01T12:30:00.123456789Z'", col("ts") >= NOON),
        ("'2024-03-01'::timestamp <= ts", col("ts") >= MARCH),
        ("ts = cast('2024-03-01' as timestamp)", col("ts") == MARCH),
        ("ts in (date '2024-03-01', '2024-03-02'::date)", col("ts").is_in([MARCH, parse_instant("2024-03-02")])),
        ("ts >= '2024-03-01'", col("ts") >= "2024-03-01"),
        ("ts in '2024'", _within("2024-01-01", "2025-01-01")),
        ("ts in '2024-02'", _within("2024-02-01", "2024-03-01")),
        ("ts not in '2024-12'", ~_within("2024-12-01", "2025-01-01")),
        ("ts in '2024-03-01'", _within("2024-03-01", "2024-03-02")),
        ("ts in '2024-03-01T12'", _within("2024-03-01T12", "2024-03-01T13")),
        ("ts in '2024-03-01 12:59'", _within("2024-03-01T12:59", "2024-03-01T13")),
        ("ts in '2024-03-01T23:59:59'", _within("2024-03-01T23:59:59", "2024-03-02")),
        ("ts in '2024-03-01T12:00:00.28'", _within("2024-03-01T12:00:00.28", "2024-03-01T12:00:00.29")),
        ("ts in ('2024-03-01')", col("ts").is_in(["2024-03-01"])),
        ("ts in today()", _within("2024-03-31", "2024-04-01")),
        ("ts in yesterday()", _within("2024-03-30", "2024-03-31")),
        ("ts < current_timestamp", col("ts") < NOW),
        ("ts >= current_date", col("ts") >= parse_instant("2024-03-31")),
        (
            "ts between now() - interval '90 minutes' and now()",
            col("ts").between(parse_instant("2024-03-31T10:30"), NOW),
        ),
        ("ts > now() - interval '1 month'", col("ts") > parse_instant("2024-02-29T12")),
        ("ts > now() - interval '1 day 2 hours' + interval '1' minute", col("ts") > parse_instant("2024-03-30T10:01")),
        ("ts > dateadd('M', -1, now())", col("ts") > parse_instant("2024-02-29T12")),
        ("ts > dateadd('m', 1, '2024-03-01')", col("ts") > parse_instant("2024-03-01T00:01")),
        ("ts > now() - '2 years'::interval", col("ts") > parse_instant("2022-03-31T12")),
        ("ts::date = '2024-03-01'", _within("2024-03-01", "2024-03-02")),
        ("ts::date > '2024-03-01'", col("ts") >= parse_instant("2024-03-02")),
        ("a like 'abc%'", col("a").starts_with("abc")),
        ("a not like 'abc%'", ~col("a").starts_with("abc")),
        ("a like 'abc'", col("a") == "abc"),
        ("a not like '%abc'", ~Like("a", "%abc")),
        (r"a like 'a!_b!!_\%' escape '!'", Like("a", r"a\_b!_\\%")),
        (r"a like 'a\_b\%\\%' escape '\'", col("a").starts_with("a_b%\\")),
        ("starts_with(a, 'it''s')", col("a").starts_with("it's")),
    ],
)
def test_sql_becomes_the_same_tree_as_python(text: str, tree: Predicate) -> None:
    assert parse_sql(text, now=NOW) == tree


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("a in 'BTC'", "a list of values goes in parentheses"),
        ("ts in '2024-03-01T00:00Z'", "in UTC"),
        ("ts in '2024-03;1d'", "other times are ts >= '...' AND ts < '...'"),
        ("ts in today", "or today\\(\\)"),
        (r"a like 'x\_y%'", r"databases differ about a backslash in LIKE; say what it is, LIKE 'a\\_b%' ESCAPE"),
        (r"a like 'x\y' escape '\'", "stands before %, _ or"),
        ("ts::date = '2024-03-01T12'", "a DATE is compared with a day"),
    ],
)
def test_other_forms_are_told_what_to_type(text: str, advice: str) -> None:
    with pytest.raises(InvalidInputError, match=advice) as caught:
        parse_sql(text)
    assert caught.value.kind == "UnsupportedPredicate"
    assert "allowed are" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "ts > now() - interval '1 fortnight'",
        "ts > now() - interval '1.5 days'",
        "ts > now() - INTERVAL'-1 day'",
        "ts > now() - interval '1M'",
        "ts > now() - '-1 day'::interval",
        "ts > now() + interval '9000 years'",
    ],
)
def test_what_is_no_interval_or_leads_too_far_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"is no interval of time|lead out of the years") as caught:
        parse_sql(text)
    assert caught.value.kind == "InvalidLiteral"


def test_an_expression_of_polars_is_told_where_to_go() -> None:
    with pytest.raises(
        InvalidInputError, match=r"of type Expr; .* goes to the table's lazy frame: table.lazy\(\).filter"
    ):
        parse_predicate(pl.col("price") > 3)  # type: ignore[arg-type]


def test_now_is_one_moment_and_the_present_one() -> None:
    before = time.time_ns()
    parsed = parse_sql("a < now() and b < now()")
    assert isinstance(parsed, And)
    [one, other] = {leaf.value for leaf in parsed.parts if isinstance(leaf, Comparison)} | {None}
    moment = one if other is None else other
    assert isinstance(moment, Instant)
    assert before <= moment.nanoseconds <= time.time_ns()
    assert depends_on_now("a = 1 or ts in today()")
    assert depends_on_now("ts > now() - interval '2000 years'")
    assert not depends_on_now("today = 'now()' and a = 'interval ''1.5'''")


@pytest.mark.parametrize(
    ("digits", "value"),
    [
        ("12345678901234567890123", 12345678901234567890123),
        ("0.1", Decimal("0.1")),
        ("1.50", Decimal("1.50")),
        (".5", Decimal("0.5")),
        ("1e3", Decimal(1000)),
        ("-2.5E-3", Decimal("-0.0025")),
        ("-7", -7),
        ("- -7", 7),
        ("-(7)", -7),
        ("+7", 7),
    ],
)
def test_numbers_are_exact(digits: str, value: int | Decimal) -> None:
    parsed = parse_sql(f"a = {digits}")
    assert isinstance(parsed, Comparison)
    assert parsed.value == value
    assert type(parsed.value) is type(value)


@pytest.mark.parametrize(
    "name",
    ["ts", "timestamp", "date", "time", "symbol", "value", "key", "order", "left", "interval", "uuid", "int", "double"],
)
def test_types_and_words_of_sql_name_columns_without_quotes(name: str) -> None:
    assert parse_sql(f"{name} > 1 and {name} in ('a') or {name} is null").columns() == (name,)


@pytest.mark.parametrize(
    "name", ["desc", "group", "user", "index", "year", "end", "limit", "level", "side", "größe", "交易", "_x"]
)
def test_more_names_that_need_no_quotes(name: str) -> None:
    assert parse_sql(f"{name} > 1 and {name} in ('a') or {name} is null").columns() == (name,)


@pytest.mark.parametrize("name", ["a b", 'say "hi"', "select", "a.b", "1st", "'", "--", "(", "größe"])
def test_any_name_can_be_quoted(name: str) -> None:
    assert parse_sql(str(col(name) > 1)).columns() == (name,)


@pytest.mark.parametrize("word", sorted(word.lower() for word in Tokenizer.KEYWORDS if word.isidentifier()))
def test_every_word_of_sql_survives_the_way_through_text(word: str) -> None:
    predicate = (col(word) > 1) & ~col(word).is_in(["x", "y"]) & col(word).is_null()
    assert parse_sql(str(predicate)) == predicate


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("a = 1 and f(b) = 1", "F(b) = 1"),
        ("ts > now(3)", "ts > NOW(3)"),
        ("a = 1 or b + 1 = 2", "b + 1 = 2"),
        ("1 = 1", "1 = 1"),
        ("a ilike 'x%'", "a ILIKE 'x%'"),
        ("a like 'x%' escape '%'", "ESCAPE '%'"),
        ("a like null", "a LIKE NULL"),
        ("starts_with(a, 3)", "STARTS_WITH(a, 3)"),
        ("now() > now()", "NOW() > NOW()"),
        ("ts > now() - 1", "NOW() - 1"),
        ("ts > dateadd('q', 1, now())", "DATEADD"),
        ("a in (select 1)", "a IN (SELECT 1)"),
        ("a = ?", "a = ?"),
        ("a = :p", "a = :p"),
        ("a = $1", "a = $1"),
        ("a is true", "a IS TRUE"),
        ("a <=> 1", "a IS NOT DISTINCT FROM 1"),
        ("t.a = 1", "t.a"),
        ("a = 'x'::uuid", "CAST('x' AS UUID)"),
        ("a = 1::int", "a = CAST(1 AS INT)"),
        ("ts = timestamp(3) '2024'", "2024"),
        ("a = -'x'", "a = -'x'"),
        ("a = -null", "a = -NULL"),
        ("a = -true", "a = -TRUE"),
        ("a between symmetric 1 and 2", "BETWEEN"),
        ("a = 'b' 'c'", "a = "),
        ("a[1] = 2", "a["),
        ("case when a = 1 then true end", "CASE WHEN"),
        ("3", "3"),
        ("'x'", "'x'"),
        ("cast(a as timestamp) > '2024'", "CAST(a AS TIMESTAMP)"),
        ("ts >= date '2024-03-01' + 1", "+ 1"),
    ],
)
def test_other_sql_is_refused_by_name(text: str, fragment: str) -> None:
    with pytest.raises(InvalidInputError, match="allowed are AND, OR, NOT") as caught:
        parse_sql(text)
    assert caught.value.kind == "UnsupportedPredicate"
    assert fragment in caught.value.message


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('symbol = "BTC"', "double quotes name a column, .* text goes in single quotes: 'BTC'"),
        ('symbol in ("it\'s", "ETH")', "double quotes name a column, .* text goes in single quotes: 'it''s'"),
        ("symbol = BTC", "a word without quotes names a column, .* text goes in single quotes: 'BTC'"),
        ("ts > 2024-03-01", "times go in single quotes: '2024-03-01'"),
        ("ts between 2024-03-01 and 2024-03-02", "times go in single quotes: '2024-03-01'"),
    ],
)
def test_what_lacks_its_quotes_is_told_so(text: str, advice: str) -> None:
    with pytest.raises(InvalidInputError, match=advice) as caught:
        parse_sql(text)
    assert caught.value.kind == "UnsupportedPredicate"
    assert "allowed are" not in caught.value.message


def test_a_difference_of_many_numbers_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="which cannot be used here"):
        parse_sql("a = " + " - ".join(["2024"] * 5_000))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("price >", "a value is missing after >"),
        ("a = 1 and b = = 2", "a value is missing after ="),
        ("a between 1", "a value is missing after BETWEEN"),
        ("a in", "a list of values in parentheses is missing after IN"),
        ("a in and b = 1", "a list of values in parentheses is missing after IN"),
        ("= 1", "a column is missing before ="),
        ("a = 1 and", "a condition is missing after AND"),
        ("not", "a condition is missing after NOT"),
        ("a b", "b was not expected here"),
        ("select * from trades where a = 1", "write only what follows WHERE"),
        ("where a = 1", "write only what follows WHERE"),
        ("ts > 2024-03-01 12:00:00", "times go in single quotes: '2024-03-01'"),
        ("ts > 2024-03-01T12:00:00", "times go in single quotes: '2024-03-01'"),
    ],
)
def test_syntax_errors_say_what_is_missing(text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match="not valid SQL") as caught:
        parse_sql(text)
    assert caught.value.message.splitlines()[0].endswith(problem)
    assert "double quotes" not in caught.value.message


@pytest.mark.parametrize(("text", "quoted"), [("case = 1", '"case"'), ("a = 'from' and Select > 2", '"Select"')])
def test_only_a_word_of_sql_brings_the_advice_to_quote_it(text: str, quoted: str) -> None:
    with pytest.raises(InvalidInputError, match="not valid SQL") as caught:
        parse_sql(text)
    assert caught.value.message.endswith(f"a column whose name is a word of SQL goes in double quotes: {quoted}")


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a = x y", 1, 7),
        ("a = 1 and", 1, 7),
        ("a = 1\nand b = = 2", 2, 9),
        ("a = 1 order by b", 1, 7),
        ("a > 1 as b", 1, 7),
        ("(a = 1", 1, 6),
        ("a = 1)", 1, 6),
        ("a = 'x", 1, 5),
        ("b = 'y'\n  and a = 'x", 2, 11),
        ('"a = 1', 1, 1),
        ("a = 1 /* x", 1, 7),
    ],
)
def test_syntax_error_points_at_the_spot(text: str, line: int, column: int) -> None:
    with pytest.raises(InvalidInputError, match="not valid SQL") as caught:
        parse_sql(text)
    assert caught.value.kind == "InvalidPredicate"
    assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)
    shown, caret = caught.value.message.splitlines()[1:3]
    assert shown.strip() == text.splitlines()[line - 1].strip()
    assert caret.index("^") - 2 == column - 1


def test_a_long_line_is_shown_around_the_spot() -> None:
    with pytest.raises(InvalidInputError, match="not valid SQL") as caught:
        parse_sql("a = 1 and " * 100 + "b = x y")
    shown, caret = caught.value.message.splitlines()[1:3]
    assert len(shown) <= 82
    assert shown[caret.index("^")] == "y"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the condition is empty; leave it out"),
        ("   ", "the condition is empty; leave it out"),
        ("-- nothing", "the condition is empty; leave it out"),
        ("a = 1; b = 2", "2 conditions"),
        ("a = 1e", "'1e' is not a number"),
        ("a = " + "9" * 5000, "is not a number of at most"),
    ],
)
def test_text_that_is_no_single_condition(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        parse_sql(text)
    assert caught.value.kind == "InvalidPredicate"


@pytest.mark.parametrize("text", ["ts = timestamp '2024-13-01'", "ts = timestamp 'soon'", "ts = date '2024-03-01T12'"])
def test_a_typed_literal_must_be_one(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not one; write") as caught:
        parse_sql(text)
    assert caught.value.kind == "InvalidLiteral"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "not " * 10_000 + "a",
        "f(" * 10_000,
        "a[" * 10_000,
        "{" * 10_000,
        "case when " * 10_000,
        "(((not " * 10_000,
    ],
)
def test_deep_nesting_is_refused_not_followed(text: str) -> None:
    started_s = time.process_time()
    with pytest.raises(InvalidInputError, match="nested deeper") as caught:
        parse_sql(text)
    assert caught.value.kind == "PredicateTooDeep"
    assert time.process_time() - started_s < 5
    assert len(caught.value.message) < 400


def test_nesting_up_to_the_limit_works() -> None:
    assert parse_sql("(" * MAX_NESTING + "a = 1" + ")" * MAX_NESTING) == (col("a") == 1)
    assert parse_sql("not " * 20 + "a = 1").depth == 21


def test_parentheses_in_strings_and_comments_do_not_nest() -> None:
    assert parse_sql("a = '" + "(" * 1000 + "' -- ((" + "(" * 1000) == (col("a") == "(" * 1000)


def test_text_of_a_megabyte_works_and_of_three_is_refused() -> None:
    parsed = parse_sql("a = '" + "x" * 1_000_000 + "'")
    assert isinstance(parsed, Comparison)
    assert parsed.value == "x" * 1_000_000
    with pytest.raises(InvalidInputError, match="give long lists of values as"):
        parse_sql("a = '" + "x" * 3_000_000 + "'")


def test_thousands_of_conditions_become_a_flat_tree() -> None:
    parsed = parse_sql(" and ".join(f"a != {number}" for number in range(3_000)))
    assert isinstance(parsed, And)
    assert parsed.parts[2_999] == Comparison("a", Operator.NOT_EQUAL, 2_999)
    assert isinstance(parse_sql(" or ".join(["a = 1", "b = 2"] * 500)), Or)


@pytest.mark.slow
def test_an_in_list_of_100_000_numbers_works() -> None:
    parsed = parse_sql(f"a in ({', '.join(map(str, range(100_000)))})")
    assert parsed == In("a", tuple(range(100_000)))


NAMES = st.text(min_size=1, max_size=6).filter(lambda name: "\0" not in name and name.isprintable())
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.floats(allow_nan=False),
    st.binary(max_size=6),
    st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
    st.integers(-(10**18), 10**18).map(Instant),
)
LEAVES = st.one_of(
    st.builds(Comparison, NAMES, st.sampled_from(Operator), VALUES),
    st.builds(In, NAMES, st.lists(VALUES, max_size=4).map(tuple)),
    st.builds(IsNull, NAMES),
    st.builds(Literal, st.sampled_from([True, False, None])),
)
TREES = trees(LEAVES, least=2, max_leaves=8)


def test_no_digit_of_a_negative_decimal_is_lost() -> None:
    """Decimals of a column have up to 76 digits; Python's arithmetic keeps 28."""
    digits = "12345678901234567890123456789012345678.000000000000000000000000000000000001"
    assert parse_sql(f"a = -{digits}") == Comparison("a", Operator.EQUAL, Decimal(f"-{digits}"))


@given(TREES)
def test_text_of_a_predicate_parses_to_the_same_predicate(tree: Predicate) -> None:
    assert parse_sql(str(tree)) == tree


# In the years 1 to 9999: ISO text, and so SQL, has no others, and refuses them.
TIMES = st.one_of(
    st.datetimes(),
    st.datetimes(timezones=st.timezones()),
    st.dates(),
    st.times(),
    st.tuples(st.integers(-(10**18), 10**18), st.booleans()).map(lambda parts: Instant(*parts)),
    st.tuples(st.integers(-(2**60), 2**60), st.sampled_from(["ms", "us", "ns", "ps", "fs", "as"])).map(
        lambda parts: np.int64(parts[0] % (10**14 if parts[1] == "ms" else 2**57)).astype(f"datetime64[{parts[1]}]")
    ),
    st.integers(0, 9_000).map(lambda year: np.datetime64(f"{year + 1:04d}", "Y")),
)
OTHERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(-3, 3),
    st.floats(width=32, allow_nan=False),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=4),
    st.binary(min_size=16, max_size=16),
)
TYPES = [
    *map(
        parse_type_name, ["LONG", "DOUBLE", "FLOAT", "BOOLEAN", "CHAR", "VARCHAR", "BINARY", "UUID", "LONG256", "IPv4"]
    ),
    *map(parse_type_name, ["DATE", "TIMESTAMP", "TIMESTAMP_NS", "DECIMAL(18,3)", "DECIMAL(76,40)", "GEOHASH(4c)"]),
]


@given(
    st.one_of(VALUES, TIMES, OTHERS),
    st.sampled_from(Operator),
    st.sampled_from(TYPES),
    st.booleans(),
)
@example(1.2890453718526518e18, Operator.GREATER, TypeTag.LONG, False)
@example(0.1, Operator.EQUAL, parse_type_name("DECIMAL(18,3)"), False)
@example(-math.inf, Operator.LESS, TypeTag.DOUBLE, True)
@example(datetime(1850, 1, 1, tzinfo=ZoneInfo("Europe/Paris")), Operator.LESS, TypeTag.TIMESTAMP, False)
def test_text_of_a_predicate_selects_the_same_rows(
    value: Value, operator: Operator, type_code: int, is_list: bool
) -> None:
    fields = {"x": BoundField(name="x", index=0, type=canonical_type(type_code))}
    tree: Predicate = In("x", (value, None)) if is_list else Comparison("x", operator, value)
    try:
        bound = bind(tree, fields)
    except ColdParquetError:
        return  # such a predicate selects nothing, and what its text does is another matter
    assert bind(parse_sql(str(tree)), fields) == bound


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("X'00fF'", b"\x00\xff"),
        ("x''", b""),
        ("0.1::double", 0.1),
        ("-1e-3::DOUBLE", -0.001),
        ("cast('-Infinity' as double)", -math.inf),
    ],
)
def test_bytes_and_doubles_have_literals(text: str, value: Value) -> None:
    assert parse_sql(f"a = {text}") == (col("a") == value)


@pytest.mark.parametrize("text", ["'x'::double", "'nan'::double"])
def test_a_double_must_be_one(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a DOUBLE") as caught:
        parse_sql(f"a = {text}")
    assert caught.value.kind == "InvalidLiteral"


@pytest.mark.parametrize("text", ["X'0'", "X'0g'", "X'0_00'", "X' 0'"])
def test_bytes_have_two_digits_each(text: str) -> None:
    with pytest.raises(InvalidInputError, match="the predicate"):
        parse_sql(f"a = {text}")


@pytest.mark.parametrize("number", [10**1000, -(10**5000), Decimal("1" * 1001)], ids=["int", "huge", "decimal"])
def test_numbers_that_no_text_may_hold_are_refused_when_the_predicate_is_built(number: object) -> None:
    with pytest.raises(InvalidInputError, match="more than 1,000 digits") as caught:
        col("a").is_in([1, number])  # type: ignore[list-item]
    assert caught.value.kind == "InvalidLiteral"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**400, "1" + "0" * 400),
        (Decimal("-1E+400"), "-1E+400"),
        (math.inf, "'Infinity'::DOUBLE"),
        (Decimal("-Infinity"), "'-Infinity'::DOUBLE"),
    ],
    ids=["int", "decimal", "inf", "decimal inf"],
)
def test_numbers_beyond_all_doubles_have_a_text(value: Value, text: str) -> None:
    """They are finite, and no double: a row with an infinity is not less than they are."""
    predicate = col("a") == value
    assert str(predicate) == f"a = {text}"
    assert str(parse_sql(str(predicate))) == str(predicate)


@given(st.text(alphabet=st.sampled_from("a1'\"()[]{}=<>!,;.-+*/ \n?:$@\\%andorinotul")))
def test_any_text_is_a_predicate_or_a_clear_error(text: str) -> None:
    kind = None
    try:
        parse_sql(text)
    except InvalidInputError as error:
        kind = error.kind
    expected = {"InvalidPredicate", "UnsupportedPredicate", "PredicateTooDeep", "InvalidLiteral", "InvalidColumnName"}
    assert kind is None or kind in expected


@pytest.mark.parametrize(
    ("filters", "tree"),
    [
        ([("a", "=", 1)], col("a") == 1),
        ([("a", "==", 1)], col("a") == 1),
        ([("a", "!=", 1)], col("a") != 1),
        ([("a", "<>", 1)], col("a") != 1),
        ([("a", "<", 1), ("b", ">=", "x")], (col("a") < 1) & (col("b") >= "x")),
        ([["a", "<=", 1], ["b", ">", 2]], (col("a") <= 1) & (col("b") > 2)),
        ([[("a", "=", 1)], [("b", "=", 2), ("c", "=", 3)]], (col("a") == 1) | ((col("b") == 2) & (col("c") == 3))),
        ([[("a", "=", 1), ("b", "=", 2)]], (col("a") == 1) & (col("b") == 2)),
        (((("a", "=", 1),), (("b", "=", 2),)), (col("a") == 1) | (col("b") == 2)),
        ((("a", "=", 1), ("b", "=", 2)), (col("a") == 1) & (col("b") == 2)),
        ([("a", "in", ["x", "y"])], col("a").is_in(["x", "y"])),
        ([("a", " NOT  IN ", {3})], ~col("a").is_in([3])),
        ([("a", "in", np.array([1, 2]))], col("a").is_in([1, 2])),
        ([("a", "between", (1, 2))], col("a").between(1, 2)),
        ([("a", "is null", None)], col("a").is_null()),
        ([("a", "IS NOT NULL")], col("a").is_not_null()),
        ([("a", "=", None)], col("a") == None),  # noqa: E711
        ([("a", ">", date(2024, 3, 1))], col("a") > date(2024, 3, 1)),
    ],
)
def test_tuples_become_the_same_tree_as_python(filters: Any, tree: Predicate) -> None:
    assert parse_predicate(filters) == tree


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([], "give None to read every row"),
        (("a", "=", 1), "put a single condition in a list"),
        ([("a", "~", 1)], "known operators are"),
        ([("a", "like", "x%")], "known operators are"),
        ([("a", "=")], r"expected \(column, operator, value\)"),
        ([("a", "=", 1, 2)], r"expected \(column, operator, value\)"),
        ([("a", 1, 2)], r"expected \(column, operator, value\)"),
        ([(1, "=", 2)], "a column is named by a non-empty string"),
        ([("a", "in", "xy")], "takes several values"),
        ([("a", "in", 3)], "takes several values"),
        ([("a", "between", (1,))], "takes two values"),
        ([("a", "is null", 3)], "known operators are"),
        ([[("a", "=", 1)], []], "expected a list of"),
        ([("a", "=", 1), "b"], r"expected \(column, operator, value\)"),
        ([[("a", "=", 1)], ("b", "=", 2)], "expected a list of"),
        ([3], r"expected \(column, operator, value\)"),
    ],
)
def test_malformed_filters_say_what_is_expected(filters: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_predicate(filters)


def test_a_long_malformed_filter_is_shown_in_part() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_predicate([("a", "~", "x" * 100_000)])
    assert len(caught.value.message) < 300


def test_where_takes_every_form() -> None:
    price = col("price") > 3
    assert parse_predicate(None) is None
    assert parse_predicate(price) is price
    assert parse_predicate("price > 3") == price
    assert parse_predicate([("price", ">", 3)]) == price
    assert parse_predicate(col("flag")) == (col("flag") == True)  # noqa: E712


@pytest.mark.parametrize("where", [3, {"a": 1}, b"a = 1", True])
def test_where_refuses_other_things(where: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"a predicate cannot be of type (int|dict|bytes|bool);") as caught:
        parse_predicate(where)
    assert caught.value.kind == "InvalidPredicate"
