"""Values of the genuine QuestDB files as predicates see them, and as QuestDB converts them to other types."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.arrow import TEXT_AS_STORED, arrow_type
from coldparquet.format.parquet_footer import ParquetFooter
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.type_codes import parse_type_name
from coldparquet.format.types import ColumnType, canonical_type
from coldparquet.plan.bind import BoundField
from tests.support.parquet_footers import parsed_footer

# --- Values of the genuine QuestDB files as predicates see them, and the sidecars that follow from their footers ------


GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
FILES = sorted(GOLDEN.rglob("data.parquet"))


def parquet_footer_of(path: Path) -> ParquetFooter:
    return parsed_footer(path.read_bytes(), path=str(path))


def sidecar_of(path: Path) -> Sidecar:
    return parse_sidecar(encode_sidecar(sidecar_content_from_footer(parquet_footer_of(path))))


def domain_values(column: Any, field: BoundField) -> list[Any]:
    """Return the values of a column, row by row, as literals of predicates are compared with them."""
    arrow = field.type.arrow
    storage = column.combine_chunks()
    storage = storage.storage if isinstance(storage, pa.ExtensionArray) else storage
    storage = storage.cast(storage.type.value_type) if pa.types.is_dictionary(storage.type) else storage
    if arrow.name in ("timestamp", "date32"):
        storage = storage.cast(pa.int64() if arrow.name == "timestamp" else pa.int32())
    values: list[Any] = storage.to_pylist()
    if arrow.name.startswith("decimal"):
        return [None if value is None else int(Fraction(value) * 10**arrow.scale) for value in values]
    if arrow.name.startswith("uint"):
        return [None if value is None else value % (1 << int(arrow.name[4:])) for value in values]
    return [value.encode() if isinstance(value, str) else value for value in values]


def some_of(values: list[Any], count: int) -> list[Any]:
    """Pick distinct values, evenly spread from the least to the greatest; neither NULL nor NaN."""
    distinct = sorted({value for value in values if value is not None and value == value})  # noqa: PLR0124
    picks = {round(pick) for pick in np.linspace(0, len(distinct) - 1, count)} if distinct else set()
    return [distinct[pick] for pick in sorted(picks)]


# --- What QuestDB made of values when the type of their column was changed: the answers under
# tests/golden/conversions


CONVERSION_ANSWERS = Path(__file__).resolve().parents[1] / "golden" / "conversions"


@dataclass(frozen=True, slots=True)
class GoldenConversion:
    """One pair of types, and what became of values."""

    stored: str
    wanted: str
    values: tuple[Any, ...]
    answers: tuple[Any, ...]
    """In the form of the files; see the README there."""

    def __str__(self) -> str:
        return f"{self.stored}-{self.wanted}"

    def fails(self, index: int) -> bool:
        """Tell whether QuestDB refuses this value."""
        return isinstance(self.answers[index], dict)


@cache
def type_named(name: str) -> ColumnType:
    return canonical_type(parse_type_name(name))


def array_of(name: str, values: list[Any] | tuple[Any, ...]) -> Any:
    """Return values in the form of the files as Arrow array of a type; symbols as dictionary."""
    type_: Any = arrow_type(type_named(name), text=TEXT_AS_STORED)
    if pa.types.is_floating(type_):
        values = [None if value is None else float.fromhex(value) for value in values]
    elif name == "UUID":
        values = [None if value is None else bytes.fromhex(value) for value in values]
    elif pa.types.is_decimal(type_):
        values = [None if value is None else Context(prec=100).create_decimal(Decimal(value)) for value in values]
    elif pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    elif pa.types.is_dictionary(type_):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, type_)


def _documents() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(CONVERSION_ANSWERS.glob("*.json"))]


CONVERSIONS = [
    GoldenConversion(document["from"], wanted, tuple(document["values"]), tuple(answers))
    for document in _documents()
    for wanted, answers in document["to"].items()
]
REFUSED = [(document["from"], wanted) for document in _documents() for wanted in document["refused"]]
