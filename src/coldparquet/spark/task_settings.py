"""How a task reads its pieces, as plain data that the driver sends with them. Importing it loads little."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from coldparquet import __version__
from coldparquet.errors import UnsupportedError
from coldparquet.storage.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from coldparquet.spark.options import SourceOptions


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
            raise UnsupportedError(
                f"the driver sends its tasks settings of version {version}, and this is coldparquet {__version__}, which"
                f" knows version {SETTINGS_VERSION}; install the same release on the driver and on all executors",
                kind="OtherRelease",
                settings_version=version,
                known_version=SETTINGS_VERSION,
                read_by=__version__,
            )
        return cls(**settings)
