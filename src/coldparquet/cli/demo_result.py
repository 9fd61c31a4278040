"""What the demo found out, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.cli.demo_data import ROWS_PER_DAY

if TYPE_CHECKING:
    from coldparquet.cli.demo_readers import Answer, ColdparquetAnswer, DemoQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Everything that the demo shows."""

    days: int
    table_bytes: int
    question: DemoQuestion
    told: ColdparquetAnswer
    answers: dict[str, Answer]
    """By the name of the reader; coldparquet's comes first."""

    @property
    def table_rows(self) -> int:
        """Rows of the whole table."""
        return self.days * ROWS_PER_DAY

    @property
    def results_equal(self) -> bool:
        """Whether all readers returned the same rows in the same order."""
        first, *others = (answer.rows for answer in self.answers.values())
        return all(first.equals(other) for other in others)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "days": self.days,
            "table_rows": self.table_rows,
            "table_bytes": self.table_bytes,
            "columns": list(self.question.columns),
            "where": self.question.where,
            "results_equal": self.results_equal,
            "answers": {name: answer.as_dict() for name, answer in self.answers.items()},
            "plan": self.told.plan.as_dict(),
        }
