"""What a run did, as data: an Arrow table, plain data for JSON, numbers for a summary."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from coldparquet.pipelines.work import WorkResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from coldparquet.pipelines.work import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """What became of every partition and table that a run was about."""

    job: str
    engine: str
    lakes: tuple[str, ...]
    is_dry_run: bool
    results: tuple[WorkResult, ...]
    """By table and partition; what is about a whole table comes before its partitions."""
    notes: tuple[str, ...]
    elapsed_s: float

    def count(self, outcome: Outcome) -> int:
        """Return how many results have this outcome."""
        return sum(result.outcome == outcome for result in self.results)

    @property
    def actions(self) -> dict[str, int]:
        """How many results met each fate, the most frequent one first, whatever they are about."""
        return _counted(self.results)

    @property
    def partition_actions(self) -> dict[str, int]:
        """The same of the results about one partition."""
        return _counted(result for result in self.results if result.partition)

    @property
    def table_actions(self) -> dict[str, int]:
        """The same of the results about a table as a whole, or about a lake that could not be opened."""
        return _counted(result for result in self.results if not result.partition)

    @property
    def dollars(self) -> float | None:
        """What everything cost, or would; None where nobody worked that out."""
        known = [result.dollars for result in self.results if result.dollars is not None]
        return sum(known) if known else None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data that ``json.dumps`` takes."""
        return {
            "job": self.job,
            "engine": self.engine,
            "lakes": list(self.lakes),
            "is_dry_run": self.is_dry_run,
            "outcomes": dict(Counter(result.outcome for result in self.results)),
            "partition_actions": self.partition_actions,
            "table_actions": self.table_actions,
            "dollars": self.dollars,
            "elapsed_s": self.elapsed_s,
            "notes": list(self.notes),
            "results": [asdict(result) for result in self.results],
        }

    def to_arrow(self) -> pa.Table:
        """Return one row per result: ``spark.createDataFrame(report.to_arrow())``, ``report.to_arrow().to_pandas()``.

        The columns are the fields of :class:`~coldparquet.pipelines.work.WorkResult`; ``details`` is JSON text.
        """
        import pyarrow as pa  # noqa: PLC0415 - whoever prints a report needs no Arrow

        text, number, amount = pa.string(), pa.int64(), pa.float64()
        types = {"rows": number, "size_bytes": number, "dollars": amount, "elapsed_s": amount}
        schema = pa.schema([pa.field(one.name, types.get(one.name, text)) for one in fields(WorkResult)])
        rows = [
            {**asdict(result), "details": json.dumps(result.details, ensure_ascii=False)} for result in self.results
        ]
        return pa.Table.from_pylist(rows, schema=schema)


def _counted(results: Iterable[WorkResult]) -> dict[str, int]:
    return dict(Counter(result.action for result in results).most_common())
