"""Functions of Arrow batches as tasks of Spark."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Call a function in every task of a DataFrame, as ``DataFrame.mapInArrow`` does, but without a word on pandas.

    PySpark 4.3 declares such functions as it declares those of pandas, and then warns of pandas 3, which no row comes near.

    Args:
        frame: Its batches are given to the function.
        function: Takes the batches of a task, and yields others.
        schema: Of what it yields.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return frame.mapInArrow(function, schema)
