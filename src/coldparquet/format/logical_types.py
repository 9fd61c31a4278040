"""Parquet's annotations, which say what the values of a column mean beyond their physical type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LogicalKind(StrEnum):
    """What an annotation says about the values of a column."""

    STRING = "STRING"
    INTEGER = "INTEGER"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    UUID = "UUID"
    LIST = "LIST"
    OTHER = "OTHER"
    """Annotated with something that changes nothing for us: ENUM, JSON, BSON, MAP, INTERVAL, FLOAT16 and newer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalType:
    """One annotation; Parquet's older converted types and newer logical types say the same in two ways."""

    kind: LogicalKind
    unit: str | None = None
    """``ms``, ``us`` or ``ns`` of TIME and TIMESTAMP."""
    is_utc: bool = True
    """TIMESTAMP only: instants (true), or local date-times without a zone."""
    bit_width: int = 0
    """INTEGER only: 8, 16, 32 or 64."""
    is_signed: bool = True
    """INTEGER only."""
    precision: int = 0
    """DECIMAL only: number of decimal digits."""
    scale: int = 0
    """DECIMAL only: digits after the point."""
