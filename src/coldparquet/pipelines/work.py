"""Pieces of work and what became of them: plain data that goes between processes and machines as JSON.

Nothing in here is an object of another module of the library, so that a driver and its executors need not have exactly
the same version, and nothing is a credential.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from coldparquet.errors import ColdParquetError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

Outcome: TypeAlias = Literal["done", "nothing to do", "failed"]

NOT_OPENED = "not opened"
"""Action of a result that is about no table: a lake, or a directory of one, in which nobody could look for tables."""

FORMAT_VERSION = 1
"""Of the JSON of items and results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One piece of work, about one partition or one table."""

    lake: str
    """URL of the directory below which the table lies, without pattern and without secrets."""
    table: str
    """Path of the table below the lake; empty where the lake itself is the table."""
    partition: str = ""
    """Name of the partition's directory; empty for work on the whole table."""
    cost_bytes: int = 0
    """Roughly what has to be read, so that engines can deal out items evenly; 0 where all items cost the same."""
    work: Mapping[str, Any] = field(default_factory=dict)
    """What else the job wants to know of it, as JSON can hold it."""

    @property
    def table_url(self) -> str:
        """Where the table lies."""
        return join_url(self.lake, self.table)

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps({"version": FORMAT_VERSION, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> WorkItem:
        """Read what :meth:`to_json` has written.

        Raises:
            UnsupportedError: Another version of the library has written it (kind ``OtherVersion``).
        """
        return cls(**_fields(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkResult:
    """What became of one piece of work; a failure is one as well."""

    table: str
    """URL of the table."""
    partition: str = ""
    """Name of the partition's directory; empty for what is about the whole table."""
    outcome: Outcome
    action: str
    """What was done, in the words of the job: ``written``, ``would compact``, ``kept``."""
    reason: str | None = None
    """Why it failed or was left out, or what else a person should know."""
    kind: str | None = None
    """Stable name of the cause of a failure, see :class:`~coldparquet.errors.ColdParquetError`."""
    rows: int | None = None
    size_bytes: int | None = None
    """Of what was written, moved or checked; None where that has no size."""
    dollars: float | None = None
    """What it cost, or would; None where nobody worked that out."""
    elapsed_s: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the job, as JSON can hold them."""

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps({"version": FORMAT_VERSION, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> WorkResult:
        """Read what :meth:`to_json` has written.

        Raises:
            UnsupportedError: Another version of the library has written it (kind ``OtherVersion``).
        """
        return cls(**_fields(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """What is left to do, found from the tables themselves."""

    items: tuple[WorkItem, ...]
    settled: tuple[WorkResult, ...] = ()
    """What is decided without running anything: what needs no work, cannot have any, or failed while it was planned."""
    notes: tuple[str, ...] = ()
    """What a person should know about the choice, one sentence each."""


def failure(item: WorkItem, error: BaseException, *, elapsed_s: float = 0.0) -> WorkResult:
    """Turn an error into the result of an item."""
    return WorkResult(
        table=item.table_url,
        partition=item.partition,
        outcome="failed",
        action="failed",
        reason=reason_of(error),
        kind=error.kind if isinstance(error, ColdParquetError) else type(error).__name__,
        elapsed_s=elapsed_s,
    )


def reason_of(error: BaseException) -> str:
    """Say what an error says, with the name of the file that it is about."""
    if not isinstance(error, ColdParquetError):
        return f"{type(error).__name__}: {error}"
    file_name = (error.path or "").rpartition("/")[2]
    return f"{file_name}: {error.message}" if file_name else error.message


def join_url(lake: str, table: str) -> str:
    """Return the URL of a table below a lake."""
    return f"{lake.rstrip('/')}/{table}" if table else lake


def _fields(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    version = fields.pop("version", None)
    if version != FORMAT_VERSION:
        raise UnsupportedError(
            f"this piece of work has format {version}, and this version of coldparquet knows {FORMAT_VERSION}; install the"
            " same version on the driver and on all executors",
            kind="OtherVersion",
        )
    return fields
