"""How a task reads its pieces, as plain data that the driver sends along with them. Importing this loads little."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from coldparquet.errors import UnsupportedError
from coldparquet.storage.open_store import shown_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from coldparquet.spark.options import SourceOptions

SETTINGS_VERSION = 1
"""Raised with every change of the fields of :class:`TaskSettings`."""


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
            max_attempts=options.store_options.max_attempts,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data that a task can be sent."""
        return {"version": SETTINGS_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make the settings that :meth:`as_dict` has taken apart.

        Raises:
            UnsupportedError: Another release of the library did, whose settings this one does not know (kind ``OtherRelease``).
        """
        settings = dict(data)
        version = settings.pop("version", None)
        if version != SETTINGS_VERSION:
            from coldparquet.pieces.piece_frame import installed_release  # noqa: PLC0415 - nobody else has use for it

            raise UnsupportedError(
                f"the driver sends its tasks settings of version {version}, and this is coldparquet {installed_release()}, which"
                f" knows version {SETTINGS_VERSION}; install the same release on the driver and on all executors",
                kind="OtherRelease",
                settings_version=version,
                known_version=SETTINGS_VERSION,
                read_by=installed_release(),
            )
        return cls(**settings)
