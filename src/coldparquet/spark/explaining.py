"""What the library plans for a DataFrame."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.spark.early_plan import explanation_text
from coldparquet.spark.reader import PiecesPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_SCAN = "DataSourceV2ScanRelation"
_TABLE = "PythonTable"


def explain(df: DataFrame) -> str:
    """Say which requests a DataFrame will cost, and why, for each ``spark.read.format("coldparquet")`` in it.

    It is the plan that Spark holds for the DataFrame, with the filters that Spark pushed, and not one made for the occasion; making it
    costs what planning the first action costs, which then need not do it again.

    DataFrames of :func:`coldparquet.spark.read`, and those of Spark Connect, hold no plan of ours:
    :func:`coldparquet.spark.explain_read` says what reading costs.

    Args:
        df: Of a classic session. Scans that hide in a cached DataFrame or in a subquery are not found.

    Raises:
        UnsupportedError: The session is one of Spark Connect, whose plans lie on the server (kind ``ConnectSession``).
        InvalidInputError: Nothing in the DataFrame is read by the data source (kind ``NoColdParquetScan``).
    """
    execution = getattr(df, "_jdf", None)
    if execution is None:
        raise UnsupportedError(
            "a Spark Connect client does not hold the plan of a DataFrame; ask for the same columns and rows with"
            " coldparquet.spark.explain_read(spark, url, columns=..., where=...)",
            kind="ConnectSession",
        )
    texts = [text for scan in _scans(execution.queryExecution().optimizedPlan()) if (text := _text(scan)) is not None]
    if not texts:
        raise InvalidInputError(
            'nothing in this DataFrame is read with spark.read.format("coldparquet"); if it is one of'
            " coldparquet.spark.read(), which Spark holds no plan of, give the same arguments to"
            " coldparquet.spark.explain_read(spark, url, columns=..., where=...)",
            kind="NoColdParquetScan",
        )
    return "\n\n".join(texts)


def _scans(plan: Any) -> Iterator[Any]:
    leaves = plan.collectLeaves()
    for position in range(leaves.size()):
        leaf = leaves.apply(position)
        if leaf.getClass().getSimpleName() == _SCAN and leaf.relation().table().getClass().getSimpleName() == _TABLE:
            yield leaf.scan()


def _text(scan: Any) -> str | None:
    """Return the explanation that travels in the first partition; None for data sources of others."""
    partitions = scan.toBatch().planInputPartitions()
    first = pickle.loads(bytes(partitions[0].pickedPartition())) if len(partitions) else None  # noqa: S301 - from our own driver
    if not isinstance(first, PiecesPartition) or first.explanation is None:
        return None
    return explanation_text(first.explanation)
