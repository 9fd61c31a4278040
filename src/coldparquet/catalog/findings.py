"""Describes the findings of checks and listings: damage, rows that are missing, and what would make reads cheaper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from coldparquet.errors import ColdParquetError


Severity = Literal["error", "warning", "advice"]
"""``error``: rows are missing, wrong or unreadable. ``warning``: something differs from its writer's intent, or reads
cost more than they must. ``advice``: all is well and could be cheaper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check."""

    severity: Severity
    kind: str
    """Stable CamelCase name of the finding, for programs."""
    message: str
    """The finding, with its numbers, for people."""
    remedy: str | None = None
    """What to do about it; None if there is nothing to do."""
    column: str | None = None
    """The column concerned, if there is a single one."""
    row_groups: tuple[int, ...] = ()
    """The row groups concerned, ascending; empty for all or none."""
    field: str | None = None
    """The field that differs, by its name in the sidecar's format."""


def with_remedy(message: str, remedy: str | None) -> str:
    """Return the message and the remedy, if there is one, in one line."""
    return message if remedy is None else f"{message}; {remedy}"


def finding_of_error(error: ColdParquetError, *, remedy: str | None = None) -> Finding:
    """Turn the error that stopped a check into a finding: its kind, its message, its file."""
    file_name = (error.path or "").rpartition("/")[2]
    field = error.details.get("field")
    return Finding(
        severity="error",
        kind=error.kind,
        message=f"{file_name}: {error.message}" if file_name else error.message,
        remedy=remedy,
        field=field if isinstance(field, str) else None,
    )
