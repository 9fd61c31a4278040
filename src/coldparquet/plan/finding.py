"""What a check of a partition's files found: plain data, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from coldparquet.errors import ColdParquetError

Severity = Literal["error", "warning", "advice"]
"""``error``: rows are missing, wrong or unreadable. ``warning``: something is not as its writer meant it, or reads cost
more than they must. ``advice``: all is well and could be cheaper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check has to say."""

    severity: Severity
    kind: str
    """Stable CamelCase name of what was found, for programs."""
    message: str
    """What was found, with the numbers, for a person."""
    remedy: str | None = None
    """What to do about it; None where there is nothing to do."""
    column: str | None = None
    """The column that it is about, where it is about one."""
    row_groups: tuple[int, ...] = ()
    """The row groups that it is about, ascending; empty where it is about all or none."""
    field: str | None = None
    """The field that differs, by its name in the sidecar's format."""


def with_remedy(message: str, remedy: str | None) -> str:
    """Say what was found, and what to do about it if there is anything, in one line."""
    return message if remedy is None else f"{message}; {remedy}"


def finding_of_error(error: ColdParquetError, *, remedy: str | None = None) -> Finding:
    """Turn what stopped a check into a finding: its kind, its message, the file that it is about."""
    file_name = (error.path or "").rpartition("/")[2]
    field = error.details.get("field")
    return Finding(
        severity="error",
        kind=error.kind,
        message=f"{file_name}: {error.message}" if file_name else error.message,
        remedy=remedy,
        field=field if isinstance(field, str) else None,
    )
