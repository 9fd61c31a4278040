"""Random columns: sorted or not, few values or many, NULLs strewn or in runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.support.random_values import Comparisons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from tests.support.random_values import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomColumn:
    """A column of a random table."""

    kind: Kind
    values: list[Any]
    """One per row, None for NULL."""
    is_required: bool
    """Whether the file is told that there are no NULLs."""

    def field(self, name: str) -> pa.Field[Any]:
        """Return the Arrow field with which the column is written."""
        metadata = {"questdb.type": self.kind.questdb_type} if self.kind.questdb_type else None
        return pa.field(name, self.kind.storage, nullable=not self.is_required, metadata=metadata)

    def array(self) -> Any:
        """Return the values in the Arrow type in which they are written."""
        storage = self.kind.storage
        if isinstance(storage, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(storage, pa.array(self.values, storage.storage_type))
        if pa.types.is_dictionary(storage):
            return pa.array(self.values, storage.value_type).dictionary_encode()
        if pa.types.is_temporal(storage):
            integers = pa.int32() if storage.bit_width == 32 else pa.int64()
            return pa.array(self.values, integers).view(storage)
        return pa.array(self.values, storage)


def random_column(random: Random, kind: Kind, rows: int) -> RandomColumn:
    """Draw a column of a random pattern: sorted or not, few or many values, NULLs strewn or in runs."""
    values = _PATTERNS[random.choice(tuple(_PATTERNS))](random, kind, rows)
    if not kind.never_null:
        values = random.choice((_keep, _strew_nulls, _null_runs, _keep, _all_null, _strew_nulls))(random, values)
    is_required = kind.never_null or (None not in values and random.random() < 0.2)
    return RandomColumn(kind=kind, values=values, is_required=is_required)


def random_literal(random: Random, column: RandomColumn, present: Sequence[Any]) -> Any:
    """Draw a literal: a value of the column, one close to it, or one far away; sometimes NULL."""
    drawn = random.random()
    if drawn < 0.02:
        return None
    if drawn < 0.15 and column.kind.extremes:
        return column.kind.literal(random, random.choice(column.kind.extremes))
    value = random.choice(present) if present and drawn < 0.85 else column.kind.draw(random)
    if drawn > 0.65:
        value = column.kind.near(random, value)
    return column.kind.literal(random, value)


def _ascending(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: (value != value, value))  # noqa: PLR0124 - NaN, last


def _independent(random: Random, kind: Kind, rows: int) -> list[Any]:
    return [kind.draw(random) for _ in range(rows)]


def _few(random: Random, kind: Kind, rows: int) -> list[Any]:
    return random.choices([kind.draw(random) for _ in range(random.randint(1, 6))], k=rows)


def _sorted(random: Random, kind: Kind, rows: int) -> list[Any]:
    values = random.choice((_independent, _few))(random, kind, rows)
    return values if kind.comparisons is Comparisons.NULLS else _ascending(values)


def _descending(random: Random, kind: Kind, rows: int) -> list[Any]:
    return _sorted(random, kind, rows)[::-1]


def _almost_sorted(random: Random, kind: Kind, rows: int) -> list[Any]:
    values = _sorted(random, kind, rows)
    for _ in range(random.randint(1, 5)):
        first, second = random.randrange(rows), random.randrange(rows)
        values[first], values[second] = values[second], values[first]
    return values


def _runs(random: Random, kind: Kind, rows: int) -> list[Any]:
    values: list[Any] = []
    while len(values) < rows:
        values += [kind.draw(random)] * random.choice((1, 10, 50, 200))
    return values[:rows]


_PATTERNS: Mapping[str, Callable[[Random, Kind, int], list[Any]]] = {
    "independent": _independent,
    "few": _few,
    "sorted": _sorted,
    "descending": _descending,
    "almost sorted": _almost_sorted,
    "runs": _runs,
}


def _keep(_random: Random, values: list[Any]) -> list[Any]:
    return values


def _strew_nulls(random: Random, values: list[Any]) -> list[Any]:
    share = random.choice((0.02, 0.3, 0.95))
    return [None if random.random() < share else value for value in values]


def _null_runs(random: Random, values: list[Any]) -> list[Any]:
    result = list(values)
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(values))
        stop = min(start + random.choice((5, 40, 150)), len(values))
        result[start:stop] = [None] * (stop - start)
    return result


def _all_null(random: Random, values: list[Any]) -> list[Any]:
    return [None] * len(values) if random.random() < 0.4 else values
