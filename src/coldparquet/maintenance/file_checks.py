"""Checks the fetched metadata of one Parquet partition in every possible way. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coldparquet.catalog.findings import Finding, finding_of_error
from coldparquet.errors import ColdParquetError, FormatError, UnsupportedError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.blooms import sidecar_in_memory
from coldparquet.format.page_index import parse_pages_file
from coldparquet.format.pages import chunk_places
from coldparquet.format.parquet_footer import PARQUET_MAGIC, parse_questdb_json
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.maintenance.advice import advise
from coldparquet.maintenance.sidecar_comparison import compare_sidecars
from coldparquet.plan.prune import misplaced_times, stated_time_range_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldparquet.format.pages import PartitionPages
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bounds import BoolArray, IntArray


_CHUNKS_NAMED = 5
"""Misplaced chunks with a finding of their own; one more finding counts the others."""

_COPY_AGAIN = "copy the partition again; where its source says the same, its writer is at fault: write it anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLayout:
    """How the bytes of one Parquet file are used."""

    findings: tuple[Finding, ...]
    """Chunks that are outside of the file or overlap."""
    chunk_bytes: int
    """Bytes in column chunks, each counted once."""
    other_bytes: int
    """Bytes outside of chunks, footer and magic bytes: dead row groups, page indexes, bloom filters."""


def lay_out_chunks(sidecar: Sidecar) -> ChunkLayout:
    """Check the chunk ranges of a snapshot, and sum their lengths."""
    columns = range(sidecar.column_count)
    starts = _numbers(sidecar, "byte_range_start")
    lengths = _numbers(sidecar, "total_compressed")
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
    is_empty = np.tile(sidecar.row_counts == 0, sidecar.column_count)  # some writers give chunks without rows no place
    findings = [*_outside(places, ~(inside | is_empty), limit)]
    # Ranges inside the file fit signed numbers, unless the claimed size of the file does not.
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
    """All chunks of a file as flat arrays: those of the first column over all row groups, then those of the second."""

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


def _numbers(sidecar: Sidecar, field: str) -> npt.NDArray[np.uint64]:
    """Gather one field of every chunk, column by column; shape (columns x row groups,)."""
    return sidecar.blocks.chunk_field(field).T.reshape(-1)


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
    # The chunk that reaches furthest so far is the last one that reaches as far as all before it together.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheck:
    """What the metadata of one partition says, and what is wrong with it."""

    findings: tuple[Finding, ...]
    row_count: int
    row_group_count: int
    column_count: int
    unused_bytes: int
    """Dead bytes in the Parquet file, as its writer recorded them."""
    other_bytes: int
    """Bytes outside of column chunks and footer: dead bytes, page indexes and bloom filters."""
    sidecar: Sidecar
    """What readers plan with: the existing sidecar or, without one, the footer in the same form."""
    pages: PartitionPages | None
    """The content of the ``_pages``; None if there is no usable one."""


def check_partition(  # noqa: PLR0913 - what can be told is told by name
    footer: ParquetFooter,
    found: Sidecar | None,
    *,
    recorded_rows: int | None,
    time_range_ns: tuple[int, int] | None,
    sidecar_remedy: str,
    pages_file: bytes | None = None,
) -> PartitionCheck:
    """Check a footer and its sidecar against each other, and each for impossible values."""
    derived = parse_sidecar(
        encode_sidecar(sidecar_content_from_footer(footer)), path=footer.path, verify_checksum=False
    )
    findings = [*_compare_rows(derived.total_rows, recorded_rows), *_compare_times(derived, time_range_ns)]
    usable = derived
    if found is not None:
        differences = _differences(found, derived, sidecar_remedy)
        findings += differences
        if not any(finding.severity == "error" for finding in differences):
            usable = found
    chunk_layout = lay_out_chunks(usable)
    findings += chunk_layout.findings
    noted = _noted_unused_bytes(footer)
    unused_bytes = max(noted, usable.footer.unused_bytes)
    findings += _compare_unused_bytes(noted, usable.footer.unused_bytes, chunk_layout.other_bytes)
    pages, problems = _parse_pages(pages_file, usable)
    findings += problems
    findings += advise(footer, usable, unused_bytes=unused_bytes, pages=pages)
    return PartitionCheck(
        findings=tuple(findings),
        row_count=derived.total_rows,
        row_group_count=derived.row_group_count,
        column_count=derived.column_count,
        unused_bytes=unused_bytes,
        other_bytes=chunk_layout.other_bytes,
        sidecar=found or sidecar_in_memory(footer),
        pages=pages,
    )


def _differences(found: Sidecar, derived: Sidecar, remedy: str) -> tuple[Finding, ...]:
    try:
        return compare_sidecars(found, derived, remedy=remedy)
    except ColdParquetError as error:
        return (finding_of_error(error, remedy=remedy),)


def _parse_pages(data: bytes | None, sidecar: Sidecar) -> tuple[PartitionPages | None, tuple[Finding, ...]]:
    if data is None:
        return None, ()
    try:
        pages = parse_pages_file(
            data,
            parquet_size_bytes=sidecar.parquet_size_bytes,
            etag=None,
            places=chunk_places(sidecar),
            path=None,
        )
    except (FormatError, UnsupportedError) as error:
        problem = Finding(
            severity="warning",
            kind="StalePages" if error.kind == "StalePages" else "DamagedPages",
            message=f"_pages: {error.message}",
            remedy="until then readers look for the pages in the Parquet file, which takes a round trip more",
        )
        return None, (problem,)
    return pages, ()


def _compare_rows(row_count: int, recorded_rows: int | None) -> Iterator[Finding]:
    if recorded_rows not in {None, row_count}:
        yield Finding(
            severity="error",
            kind="RowCountMismatch",
            message=f"the table's _txn counts {recorded_rows:,} rows, the Parquet footer at the size that it states"
            f" {row_count:,}: one of them is from another state of the table",
            remedy="copy the partition and the table's files again, data first and _txn last",
            field="row_count",
        )


def _compare_times(derived: Sidecar, time_range_ns: tuple[int, int] | None) -> Iterator[Finding]:
    column = derived.designated_timestamp
    if time_range_ns is None or column is None:
        return
    stated = stated_time_range_ns(derived, column)
    found = misplaced_times(stated, time_range_ns)
    if found is not None:
        yield Finding(
            severity="error",
            kind="TimeRangeMismatch",
            message=f"the rows are of {found}, outside of the times that the directory's name, and the _txn if there is one,"
            " give the partition: questions about times miss them",
            remedy="give the directory the name of its times, or copy the partition and the table's files again",
            column=derived.column(column).name,
            field="timestamp",
        )


def _noted_unused_bytes(footer: ParquetFooter) -> int:
    if footer.questdb_json is None:
        return 0
    return parse_questdb_json(footer.questdb_json, column_count=len(footer.leaves), path=footer.path).unused_bytes


def _compare_unused_bytes(in_footer: int, in_sidecar: int, other_bytes: int) -> Iterator[Finding]:
    largest = max(in_footer, in_sidecar)
    if largest > other_bytes:
        yield Finding(
            severity="error",
            kind="UnusedBytesContradicted",
            message=f"{largest:,} bytes are noted as dead, but chunks and footer leave only {other_bytes:,} unused",
            remedy="look at the writer of the file: it counts wrongly, or two row groups share chunks",
            field="unused_bytes",
        )
    # A sidecar made from a footer says 0 (note section 6.2); one of an update repeats the footer's number.
    elif in_sidecar not in {0, in_footer}:
        yield Finding(
            severity="warning",
            kind="UnusedBytesDiffer",
            message=f"dead bytes are {in_sidecar:,} in the sidecar, {in_footer:,} in the footer: the decision when to"
            " rewrite the partition rests on them",
            field="unused_bytes",
        )
