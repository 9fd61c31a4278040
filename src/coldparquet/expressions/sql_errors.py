"""Errors about conditions in SQL: where a syntax error lies, in plain words, and what to write instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError
from coldparquet.plan.predicate import quote_name

if TYPE_CHECKING:
    from sqlglot import exp

MAX_CHARACTERS = 2 * 1024 * 1024
"""Longest text to parse: enough for 100,000 numbers in an IN list, which take about three seconds."""

MAX_NESTING = 24
"""Deepest nesting of parentheses. The parser takes about 20 of Python's 1,000 frames for each."""

ALLOWED = (
    "allowed are AND, OR, NOT, parentheses, and comparisons of one column with literals: = != <> < <= > >=,"
    " [NOT] IN (...), [NOT] BETWEEN ... AND ..., IS [NOT] NULL, [NOT] LIKE 'abc%', starts_with(column, 'abc'), and times as"
    " ts IN '2024-03' and ts::DATE = '2024-03-01'; literals are numbers, 'strings', TRUE, FALSE, NULL, TIMESTAMP '...',"
    " DATE '...', now() - INTERVAL '1 day', bytes as X'00ff', and doubles as 0.1::DOUBLE"
)

_SHOWN_CHARACTERS = 80

# Strings, quoted names and comments come first, so that parentheses and words inside them do not count.
_NESTING = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<run>(?:\bNOT\b\s*){25})""",
    re.DOTALL | re.IGNORECASE,
)

_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_STATEMENT = re.compile(r"\s*(?:SELECT\b.*\bFROM|WHERE)\s", re.DOTALL | re.IGNORECASE)
_DATE = re.compile(r"\b\d{4}-\d{1,2}-\d{1,2}(?!\d)", re.ASCII)

_OWN_KEYWORDS = frozenset({"AND", "BETWEEN", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "TRUE"})
"""SQL words in conditions: seldom meant as the name of a column."""

_SYMBOLS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
"""Spelling of comparisons, by sqlglot's class names."""


def check_size(text: str) -> None:
    """Refuse a text that takes too long to parse, or is nested too deep for it."""
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
            raise nested_too_deep(text)


def unsupported(node: exp.Expr, hint: str = "") -> InvalidInputError:
    """Refuse a part of a condition; say what is allowed."""
    return refused(node, f", which cannot be used here; {ALLOWED}{hint}")


def refused(node: exp.Expr, why: str) -> InvalidInputError:
    """Refuse a part of a condition."""
    fragment = shorten(sql_of(node))
    return InvalidInputError(f"the predicate contains {fragment}{why}", kind="UnsupportedPredicate", fragment=fragment)


def sql_of(node: exp.Expr) -> str:
    """Write a part of a condition in one line."""
    try:
        return node.sql(comments=False)
    except RecursionError:
        return node.key.upper()


def syntax_error(text: str, facts: dict[str, Any]) -> InvalidInputError:
    """Describe an error that sqlglot found."""
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
        return f"{shorten(at_fault)} was not expected here"
    missing = re.match(r"Required keyword: '(\w+)' missing for <class '[\w.]*?(\w+)'>", description)
    if missing is None:
        return description[:1].lower() + description[1:]
    argument, node_name = missing.groups()
    operator = _SYMBOLS.get(node_name, node_name.upper())
    is_before = argument == "this" and operator != "NOT"
    if operator in {"AND", "OR", "NOT"}:
        return f"a condition is missing {'before' if is_before else 'after'} {operator}"
    return f"a column is missing before {operator}" if is_before else f"a value is missing after {operator}"


def unterminated(text: str) -> InvalidInputError:
    """Find the quote or comment that never ends: the tokenizer's own error does not say where it is."""
    for match in re.finditer(r"""'(?:[^']|'')*('?)|"(?:[^"]|"")*("?)|--[^\n]*|/\*(?:.*?(\*/)|.*)""", text, re.DOTALL):
        if not match[0].startswith("--") and not any(match.groups()):
            before = text[: match.start()]
            line, column = before.count("\n") + 1, match.start() - (before.rfind("\n") + 1) + 1
            return _at(text, line, column, f"the predicate is not valid SQL: {_opening(match[0])} is never closed")
    return InvalidInputError(f"the predicate {shorten(text)!r} cannot be read as SQL", kind="InvalidPredicate")


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


def nested_too_deep(text: str) -> InvalidInputError:
    """Describe a condition that the parser does not survive."""
    return InvalidInputError(
        f"the predicate {shorten(text)!r} is nested deeper than {MAX_NESTING} levels; leave out parentheses, or give a"
        " list of tuples",
        kind="PredicateTooDeep",
    )


def shorten(text: str) -> str:
    """Cut text that is too long for an error."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
