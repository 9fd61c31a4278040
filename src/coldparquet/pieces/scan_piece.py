"""Pieces of a scan, as their users see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from coldparquet.pieces.piece_format import decode_numbers, decode_piece, encode_piece
from coldparquet.pieces.planned_piece import PlannedPiece, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from coldparquet.pieces.piece_content import PieceContent, PieceNumbers
    from coldparquet.plan.read_plan import ReadPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPiece:
    """Some row groups of a scan, in table order, with everything that reading them takes but for credentials.

    It is bytes and a few numbers: it pickles, fits into a task of any engine, and costs no memory beyond its bytes. Made by
    :meth:`coldparquet.scan.Scan.pieces`; read by :func:`coldparquet.pieces.read_piece`.
    """

    table: str
    """URL of the table, without credentials."""
    numbers: PieceNumbers
    encoded: bytes = field(repr=False)

    @classmethod
    def of(cls, content: PieceContent, numbers: PieceNumbers) -> Self:
        """Encode what a piece says."""
        return cls(table=content.table, numbers=numbers, encoded=encode_piece(content, numbers))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Take a piece from bytes.

        Args:
            data: What :meth:`to_bytes` returned, perhaps in another process.

        Raises:
            FormatError: The bytes are no piece, or were damaged on their way.
            UnsupportedError: Another version of coldparquet wrote them (kind ``UnknownPieceVersion``).
        """
        table, numbers = decode_numbers(data)
        return cls(table=table, numbers=numbers, encoded=bytes(data))

    def to_bytes(self) -> bytes:
        """Return the piece as bytes, in the format of :mod:`coldparquet.pieces.piece_frame`."""
        return self.encoded

    @property
    def row_group_count(self) -> int:
        """Row groups, or runs of them, that are read one by one."""
        return self.numbers.row_group_count

    @property
    def rows_at_most(self) -> int:
        """Upper bound of the rows: the predicate may leave fewer."""
        return self.numbers.rows_at_most

    @property
    def fetched_bytes(self) -> int:
        """Bytes that its requests fetch at most."""
        return self.numbers.fetched_bytes

    @property
    def request_count(self) -> int:
        """Number of its GETs at most."""
        return self.numbers.request_count

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types of its rows."""
        return schema_of(self.content())

    def content(self) -> PieceContent:
        """Decode what it says. Raises what :meth:`from_bytes` raises."""
        return decode_piece(self.encoded)

    def plan(self) -> ReadPlan:
        """Return what reading it will do."""
        return PlannedPiece.of(self.content()).plan

    def explain(self) -> str:
        """Describe for a person what reading it will do."""
        return self.plan().explain()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanPieces:
    """All pieces of a scan: read one after the other they are its rows, in its order."""

    pieces: tuple[ScanPiece, ...]
    """In table order; none where nothing is left to read."""
    schema: pa.Schema
    """Columns and Arrow types of the rows of each."""
    plan: ReadPlan
    """Of the whole scan."""

    def __repr__(self) -> str:
        return f"<ScanPieces of {self.plan.table}: {len(self.pieces)} pieces>"

    def __len__(self) -> int:
        return len(self.pieces)

    def __iter__(self) -> Iterator[ScanPiece]:
        return iter(self.pieces)
