"""Runs in a task: sends data requests for the driver's pieces, decodes the data and passes it to Spark.

Only plain data travels: bytes of pieces, which carry their own version, and settings as a dictionary.
"""

from __future__ import annotations

import gc
import warnings
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from coldparquet.errors import UnsupportedError
from coldparquet.options import StoreOptions
from coldparquet.pieces.read import read_piece_batches
from coldparquet.spark.conversion import to_spark
from coldparquet.spark.credentials import Credentials
from coldparquet.storage.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from coldparquet.spark.options import SourceOptions


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
    spare_garbage_collection()


@cache
def spare_garbage_collection() -> None:
    """Exclude the modules imported so far from garbage collection, once in a process.

    Spark's workers collect after every task, which takes 10 ms where some hundred modules are loaded.
    """
    gc.freeze()


SETTINGS_VERSION = 1
"""Incremented with every change of the fields of :class:`TaskSettings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """How a task reads its pieces. Not shown: it may hold explicit credentials."""

    arrow_schema: bytes
    """The schema that Spark requires of every batch, as Arrow serialises it."""
    credentials: Mapping[str, Any]
    """As :meth:`Credentials.as_dict`; references are resolved in the task."""
    url: str | None
    """The table's URL if it contains a secret itself, a query string, which pieces never do."""
    memory_limit_bytes: int
    max_concurrency: int
    batch_rows: int
    max_attempts: int

    def __repr__(self) -> str:
        return f"<TaskSettings: {self.memory_limit_bytes:,} bytes of memory>"

    @classmethod
    def of(cls, options: SourceOptions, arrow_schema: pa.Schema) -> Self:
        """Extract a task's settings from the options of a data source."""
        read = options.read_options
        secret_urls = [url for url in options.urls if shown_url(url) != url]
        return cls(
            arrow_schema=arrow_schema.serialize().to_pybytes(),
            credentials=options.credentials.as_dict(),
            url=secret_urls[0] if len(options.urls) == len(secret_urls) == 1 else None,
            memory_limit_bytes=read.memory_limit_bytes,
            max_concurrency=read.max_concurrency,
            batch_rows=read.batch_rows,
            max_attempts=options.store_options.max_attempts,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for a task."""
        return {"version": SETTINGS_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore the settings from the result of :meth:`as_dict`."""
        settings = dict(data)
        version = settings.pop("version", None)
        if version != SETTINGS_VERSION:
            from coldparquet.pieces.frame import installed_release  # noqa: PLC0415 - only needed here

            raise UnsupportedError(
                f"the driver sends its tasks settings of version {version}, and this is coldparquet {installed_release()}, which"
                f" knows version {SETTINGS_VERSION}; install the same release on the driver and on all executors",
                kind="OtherRelease",
                settings_version=version,
                known_version=SETTINGS_VERSION,
                read_by=installed_release(),
            )
        return cls(**settings)
