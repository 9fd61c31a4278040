"""Which rows of which native column an error is about, in the words that a person can use to find them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.decode.chunk_label import ChunkLabel

if TYPE_CHECKING:
    from coldparquet.errors import FormatError
    from coldparquet.format.native_layout import Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsLabel(ChunkLabel):
    """The values of one column in one slice of a native partition, of which only those behind the top have bytes."""

    first_row: int
    """First row of the partition that has bytes here."""

    def __str__(self) -> str:
        return f"rows from {self.first_row:,} on, column {', '.join(map(repr, self.columns))}"

    def check(self, holds: Mask, message: str, *, field: str) -> None:
        """Raise the error about the first row for which something does not hold.

        Args:
            holds: Shape ``(rows,)``.
            message: What is wrong with it.
            field: What is damaged.

        Raises:
            FormatError: It does not hold for all rows.
        """
        if not holds.all():
            raise self.damaged_row(int(holds.argmin()), message, field=field)

    def damaged_row(self, row: int, message: str, *, field: str) -> FormatError:
        """Return the error about one row, counted from ``first_row``."""
        return self.damaged(
            f"row {self.first_row + row:,} {message}; the partition is damaged: leave the column out, or restore the"
            " partition",
            field=field,
            row=self.first_row + row,
        )
