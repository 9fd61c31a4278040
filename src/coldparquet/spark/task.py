"""What runs in a task: data requests for the pieces that the driver sent, decoded and handed to Spark.

Everything that travels is plain data: bytes of pieces, which carry their own version, and settings as a dictionary.
"""

from __future__ import annotations

import gc
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from coldparquet.options import StoreOptions
from coldparquet.pieces.reading import read_piece_batches
from coldparquet.spark.conversion import to_spark
from coldparquet.spark.credentials import Credentials
from coldparquet.storage.open_store import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from coldparquet.spark.options import SourceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """How a task reads its pieces. Not shown: it may hold credentials that somebody wrote out."""

    arrow_schema: bytes
    """The schema that Spark demands of every batch, as Arrow serialises it."""
    credentials: Mapping[str, Any]
    """As :meth:`Credentials.as_dict`; references are resolved in the task."""
    url: str | None
    """The table's URL if it holds a secret itself, a query string, which pieces never do."""
    memory_limit_bytes: int
    max_concurrency: int
    batch_rows: int
    cache_directory: str | None
    max_attempts: int

    def __repr__(self) -> str:
        return f"<TaskSettings: {self.memory_limit_bytes:,} bytes of memory>"

    @classmethod
    def of(cls, options: SourceOptions, arrow_schema: pa.Schema) -> Self:
        """Take what a task needs from the options of a data source."""
        read = options.read_options
        secret_urls = [url for url in options.urls if shown_url(url) != url]
        return cls(
            arrow_schema=arrow_schema.serialize().to_pybytes(),
            credentials=options.credentials.as_dict(),
            url=secret_urls[0] if len(options.urls) == len(secret_urls) == 1 else None,
            memory_limit_bytes=read.memory_limit_bytes,
            max_concurrency=read.max_concurrency,
            batch_rows=read.batch_rows,
            cache_directory=options.store_options.cache_directory,
            max_attempts=options.store_options.max_attempts,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data that a task can be sent."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make the settings that :meth:`as_dict` has taken apart."""
        return cls(**data)


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
    store_options = StoreOptions(cache_directory=settings.cache_directory, max_attempts=settings.max_attempts)
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
