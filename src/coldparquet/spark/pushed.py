"""What Spark asks of one scan, as the class of ``coldparquet.jar`` writes it into a private option: filters, limit, aggregates.

::

    {"filters": [{"filter": {"operator": ">", "column": "ts", "values": [{"timestamp": 0}]}, "exact": true}], "limit": 5}

A filter that is ``exact`` is applied here alone, so one that has no translation ends the query. Spark applies the others
again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, Self

from pyspark.sql import datasource

from coldparquet.errors import InternalError, InvalidInputError
from coldparquet.plan.predicate import And, Not, Or, Predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coldparquet.spark.filters import ColumnMeanings

_INNER = {"AND": And, "OR": Or}
_COMPARISONS = {
    "=": datasource.EqualTo,
    "<=>": datasource.EqualNullSafe,
    "<": datasource.LessThan,
    "<=": datasource.LessThanOrEqual,
    ">": datasource.GreaterThan,
    ">=": datasource.GreaterThanOrEqual,
    "STARTS_WITH": datasource.StringStartsWith,
}
_VALUES: dict[str, Callable[[Any], Any]] = {
    "timestamp": lambda micros: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros),
    "timestamp_ntz": lambda micros: datetime(1970, 1, 1) + timedelta(microseconds=micros),  # noqa: DTZ001 - it has no zone
    "date": lambda days: date(1970, 1, 1) + timedelta(days=days),
    "double": float,
    "decimal": Decimal,
    "string": str,
    "plain": lambda value: value,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedFilter:
    """A filter as plain data."""

    tree: dict[str, Any]
    is_exact: bool
    """Whether Spark does not apply it again."""

    @property
    def columns(self) -> set[str]:
        """The columns that it names."""
        return {leaf["column"] for leaf in _leaves(self.tree)}

    def predicate(self, meanings: ColumnMeanings) -> Predicate | None:
        """Translate it; None if it has no translation and Spark applies it as well."""
        return _predicate(self.tree, meanings)

    def refuse(self) -> None:
        """End the query if Spark does not apply this filter, which has no translation."""
        if self.is_exact:
            raise InternalError(
                f"Spark leaves the filter {self} to coldparquet, which does not know it; its rows would be wrong, so the query ends"
                " here: please report it, and run it without coldparquet's jar in spark.jars",
                kind="UnknownFilter",
            )

    def __str__(self) -> str:
        return json.dumps(self.tree, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One of ``count``, ``min`` and ``max``; of rows if it has no column."""

    function: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.function}({self.column or '*'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What Spark asks of one scan beside its columns."""

    filters: tuple[PushedFilter, ...] = ()
    limit: int | None = None
    aggregates: tuple[Aggregate, ...] | None = None
    asks: Literal["rows", "columns", "tables"] = "rows"
    """What is answered: the tasks of a scan, the columns of tables, or the tables below a directory."""
    load: str | None = None
    """Names the load that the scan is of; see :func:`coldparquet.spark.tables.opened_tables`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the option.

        Raises:
            InvalidInputError: It is not what the jar of this release writes (kind ``InvalidOption``).
        """
        try:
            return cls._of(**json.loads(text))
        except (ValueError, TypeError, KeyError):
            raise InvalidInputError(
                f"the option coldparquet.pushed is {text[:200]!r}, which this release does not know; only coldparquet's jar sets it, so"
                " leave it out, and let spark.jars name the jar of this installation, coldparquet.spark.jar()",
                kind="InvalidOption",
                option="coldparquet.pushed",
            ) from None

    @classmethod
    def _of(
        cls,
        *,
        filters: Sequence[Mapping[str, Any]] = (),
        aggregates: Sequence[Mapping[str, str]] | None = None,
        **others: Any,
    ) -> Self:
        return cls(
            filters=tuple(PushedFilter(tree=one["filter"], is_exact=one["exact"]) for one in filters),
            aggregates=None if aggregates is None else tuple(Aggregate(**one) for one in aggregates),
            **others,
        )

    @property
    def filter_columns(self) -> list[str]:
        """The columns of all filters, each once."""
        return sorted(set[str]().union(*(one.columns for one in self.filters)))


def _leaves(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "parts" not in tree:
        yield tree
        return
    for part in tree["parts"]:
        yield from _leaves(part)


def _predicate(tree: dict[str, Any], meanings: ColumnMeanings) -> Predicate | None:
    operator = tree["operator"]
    if "parts" in tree:
        parts = [_predicate(part, meanings) for part in tree["parts"]]
        known = tuple(part for part in parts if part is not None)
        if len(known) < len(parts):
            return None
        return Not(known[0]) if operator == "NOT" else _INNER[operator](known)
    leaf = _leaf(
        operator, (tree["column"],), [_VALUES[kind](value) for one in tree["values"] for kind, value in one.items()]
    )
    return None if leaf is None else meanings.predicate(leaf)


def _leaf(operator: str, column: tuple[str], values: list[Any]) -> datasource.Filter | None:
    """Make Spark's own filter of Python sources."""
    match operator:
        case "IS_NULL":
            return datasource.IsNull(column)
        case "IS_NOT_NULL":
            return datasource.IsNotNull(column)
        case "IN":
            return datasource.In(column, tuple(values))
        case "<>":
            return datasource.Not(datasource.EqualTo(column, values[0]))
    known = _COMPARISONS.get(operator)
    return None if known is None else known(column, values[0])
