"""Where the column chunks of a Parquet file lie: inside the file, each by itself, and what they leave unused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coldparquet.format import sidecar_layout as layout
from coldparquet.format.parquet_footer import PARQUET_MAGIC
from coldparquet.plan.finding import Finding

if TYPE_CHECKING:
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bounds import BoolArray, IntArray

_CHUNKS_NAMED = 5
"""Misplaced chunks that get a finding of their own; one more finding counts the others."""

_COPY_AGAIN = "copy the partition again; where its source says the same, its writer is at fault: write it anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLayout:
    """How the bytes of one Parquet file are used."""

    findings: tuple[Finding, ...]
    """Chunks that lie outside of the file or on one another."""
    chunk_bytes: int
    """Bytes in column chunks, each counted once."""
    other_bytes: int
    """Bytes in neither a chunk, nor the footer, nor the magic bytes: dead row groups, page indexes, bloom filters."""


def lay_out_chunks(sidecar: Sidecar) -> ChunkLayout:
    """Check the chunk ranges of a snapshot, and sum them up.

    Args:
        sidecar: Its ranges are not trusted: they may exceed the file and 64 bits.
    """
    columns = range(sidecar.column_count)
    starts = _words(sidecar, layout.CHUNK_BYTE_RANGE_START_WORD)
    lengths = _words(sidecar, layout.CHUNK_TOTAL_COMPRESSED_WORD)
    places = _Places(
        column_names=[sidecar.column(index).name for index in columns],
        row_group_count=sidecar.row_group_count,
        starts=starts,
        lengths=lengths,
    )
    first, limit = len(PARQUET_MAGIC), sidecar.footer.parquet_footer_offset
    inside = (
        (starts >= first) & (starts <= limit) & (lengths <= np.uint64(limit) - np.minimum(starts, np.uint64(limit)))
    )
    findings = [*_outside(places, ~inside, limit)]
    # Ranges inside the file fit signed numbers, unless the file itself is said to be larger than any.
    used = np.flatnonzero(inside & (lengths > 0) & (starts + lengths < np.uint64(1 << 63)))
    order = used[np.argsort(starts[used], kind="stable")]
    begins, ends = starts[order].astype(np.int64), (starts + lengths)[order].astype(np.int64)
    reached = np.maximum.accumulate(ends)
    findings += _overlapping(places, order, begins, reached, ends)
    before = np.concatenate([begins[:1], reached[:-1]])
    chunk_bytes = int(np.maximum(ends - np.maximum(begins, before), 0).sum())
    footer_bytes = sidecar.footer.parquet_footer_length + layout.PARQUET_TAIL_BYTES
    return ChunkLayout(
        findings=tuple(findings),
        chunk_bytes=chunk_bytes,
        other_bytes=sidecar.parquet_size_bytes - first - chunk_bytes - footer_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """All chunks of a file, flat: those of the first column over all row groups, then those of the second."""

    column_names: list[str]
    row_group_count: int
    starts: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]

    def column_of(self, index: int) -> str:
        return self.column_names[index // self.row_group_count]

    def row_group_of(self, index: int) -> int:
        return index % self.row_group_count

    def describe(self, index: int) -> str:
        start, length = int(self.starts[index]), int(self.lengths[index])
        return (
            f"column {self.column_of(index)!r} of row group {self.row_group_of(index)}"
            f" (bytes {start:,} to {start + length:,})"
        )


def _words(sidecar: Sidecar, word: int) -> npt.NDArray[np.uint64]:
    """Gather one word of every chunk, column by column; shape (columns x row groups,)."""
    gathered = [sidecar.chunks(index).raw_word(word) for index in range(sidecar.column_count)]
    return np.concatenate(gathered) if gathered else np.empty(0, np.uint64)


def _outside(places: _Places, outside: BoolArray, limit: int) -> list[Finding]:
    found = np.flatnonzero(outside).tolist()
    findings = [
        Finding(
            severity="error",
            kind="ChunkOutsideFile",
            message=f"{places.describe(index)} does not lie between the first bytes of the file and its footer at {limit:,}",
            remedy=_COPY_AGAIN,
            column=places.column_of(index),
            row_groups=(places.row_group_of(index),),
        )
        for index in found[:_CHUNKS_NAMED]
    ]
    return findings + _and_more("ChunkOutsideFile", len(found), "chunks lie outside of the file")


def _overlapping(
    places: _Places, order: npt.NDArray[np.intp], begins: IntArray, reached: IntArray, ends: IntArray
) -> list[Finding]:
    """Report the chunks that begin before all earlier ones have ended."""
    overlaps = np.flatnonzero(begins[1:] < reached[:-1]) + 1
    # The chunk that reaches furthest so far is the last one that reached as far as all before it together.
    furthest = np.maximum.accumulate(np.where(ends == reached, np.arange(len(ends)), 0))
    findings = []
    for position in overlaps[:_CHUNKS_NAMED].tolist():
        index, other = int(order[position]), int(order[furthest[position - 1]])
        findings.append(
            Finding(
                severity="error",
                kind="ChunksOverlap",
                message=f"{places.describe(index)} overlaps {places.describe(other)}",
                remedy=_COPY_AGAIN,
                column=places.column_of(index),
                row_groups=tuple(sorted({places.row_group_of(index), places.row_group_of(other)})),
            )
        )
    return findings + _and_more("ChunksOverlap", len(overlaps), "chunks overlap others")


def _and_more(kind: str, count: int, what: str) -> list[Finding]:
    others = count - _CHUNKS_NAMED
    message = f"{others:,} more {what}"
    return [Finding(severity="error", kind=kind, message=message, remedy=_COPY_AGAIN)] if others > 0 else []
