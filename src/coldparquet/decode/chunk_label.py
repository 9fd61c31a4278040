"""Which column chunk an error is about, in the words that a person can use to find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLabel:
    """The chunk of one column in one row group, or of several columns that are decoded at once."""

    path: str | None
    """The Parquet file."""
    row_group: int
    columns: tuple[str, ...]

    def __str__(self) -> str:
        noun = "column" if len(self.columns) == 1 else "columns"
        return f"row group {self.row_group}, {noun} {', '.join(map(repr, self.columns))}"

    def damaged(self, message: str, **details: Any) -> FormatError:
        """Return the error that the chunk's bytes are wrong."""
        return FormatError(
            f"{self}: {message}", path=self.path, row_group=self.row_group, columns=self.columns, **details
        )


def together(labels: Sequence[ChunkLabel]) -> ChunkLabel:
    """Return the label of several chunks, at least one, of the same row group."""
    names = tuple(name for label in labels for name in label.columns)
    return ChunkLabel(path=labels[0].path, row_group=labels[0].row_group, columns=names)
