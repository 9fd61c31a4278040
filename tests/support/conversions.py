"""What QuestDB made of values when the type of their column was changed: the answers under tests/golden/conversions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.arrow import TEXT_AS_STORED, arrow_type
from coldparquet.format.type_codes import parse_type_name
from coldparquet.format.types import canonical_type

if TYPE_CHECKING:
    from coldparquet.format.types import ColumnType

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "conversions"


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
    return [json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*.json"))]


CONVERSIONS = [
    GoldenConversion(document["from"], wanted, tuple(document["values"]), tuple(answers))
    for document in _documents()
    for wanted, answers in document["to"].items()
]
REFUSED = [(document["from"], wanted) for document in _documents() for wanted in document["refused"]]
