"""Runs in a task: sends data requests for the driver's pieces, decodes the data and passes it to Spark.

Only plain data travels: bytes of pieces, which carry their own version, and settings as a dictionary.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pyarrow as pa

from coldparquet.options import StoreOptions
from coldparquet.pieces.read import read_piece_batches
from coldparquet.spark.conversion import to_spark
from coldparquet.spark.credentials import Credentials
from coldparquet.spark.garbage import spare_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from coldparquet.spark.task_settings import TaskSettings


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Call a function in every task of a DataFrame, as ``DataFrame.mapInArrow``, but without pandas warnings.

    PySpark 4.3 declares such functions as it declares those of pandas, and then warns of pandas 3, which is not used
    here.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return frame.mapInArrow(function, schema)


def read_pieces(pieces: Iterable[bytes], settings: TaskSettings) -> Iterator[pa.RecordBatch]:
    """Read pieces one after the other, as Spark's batches.

    Requests: those of the pieces, for data alone.
    """
    schema = pa.ipc.read_schema(pa.py_buffer(settings.arrow_schema))
    storage_options = Credentials.from_dict(settings.credentials).storage_options()
    store_options = StoreOptions(max_attempts=settings.max_attempts)
    for piece in pieces:
        batches = read_piece_batches(
            piece,
            storage_options=storage_options,
            store_options=store_options,
            url=settings.url,
            memory_limit_bytes=settings.memory_limit_bytes,
            max_concurrency=settings.max_concurrency,
            batch_rows=settings.batch_rows,
        )
        for batch in batches:
            yield to_spark(batch, schema)
    spare_garbage_collection("reading")
