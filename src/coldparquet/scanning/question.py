"""A question about one state of a table, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.options import ReadOptions
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.projection import TableColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked of which state of which table: everything that planning needs."""

    url: str
    options: ReadOptions
    snapshot: TableSnapshot
    output_columns: tuple[TableColumn, ...]
    """Columns of the result; none where only the number of rows is wanted."""
    predicate_text: str | None
    predicate: BoundPredicate | None
    limit: int | None

    @property
    def predicate_columns(self) -> tuple[TableColumn, ...]:
        """Columns that the predicate looks at, each once."""
        fields = () if self.predicate is None else self.predicate.fields()
        return tuple(self.snapshot.columns[index] for index in dict.fromkeys(field.index for field in fields))

    @property
    def needed_columns(self) -> tuple[TableColumn, ...]:
        """Columns of the result and of the predicate, each once."""
        return tuple(dict.fromkeys((*self.output_columns, *self.predicate_columns)))
