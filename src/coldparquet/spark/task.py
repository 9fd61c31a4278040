"""What runs in a task: data requests for the pieces that the driver sent, decoded and handed to Spark.

Everything that travels is plain data: bytes of pieces, which carry their own version, and settings as a dictionary.
"""

from __future__ import annotations

import gc
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from coldparquet.options import StoreOptions
from coldparquet.pieces.reading import read_piece_batches
from coldparquet.spark.conversion import to_spark
from coldparquet.spark.credentials import Credentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coldparquet.spark.task_settings import TaskSettings


def read_pieces(pieces: Iterable[bytes], settings: TaskSettings) -> Iterator[pa.RecordBatch]:
    """Read pieces one after the other, as Spark takes them.

    Requests: those of the pieces, for data alone.

    Args:
        pieces: What ``ScanPiece.to_bytes`` made.
        settings: How to read them.

    Raises:
        ObjectChangedError: An object is not the one that the driver has seen.
        NotFoundError: A partition is gone.
        UnsupportedError: The driver runs another version of the library, whose pieces this one does not know.
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
    spare_garbage_collection()


@cache
def spare_garbage_collection() -> None:
    """Take what is imported by now out of garbage collection, once in a process.

    Spark's workers collect after every task, which takes 10 ms where some hundred modules are loaded.
    """
    gc.freeze()
