"""Comparing what the metadata of a partition claims with every value that its Parquet file holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.decode.arrow_schema import PLAIN_TEXT
from coldparquet.decode.domain_values import to_domain_value
from coldparquet.decode.row_group import OutputColumn, decode_row_group
from coldparquet.decode.untyped_compute import compute
from coldparquet.decode.virtual_file import new_row_group_buffer
from coldparquet.errors import ColdParquetError, UnsupportedError
from coldparquet.format.column_types import Comparison
from coldparquet.maintenance.bloom_check import BloomCheck
from coldparquet.plan.bind import BoundField, BoundIsNull
from coldparquet.plan.exact_bounds import exact_bounds
from coldparquet.plan.finding import Finding, finding_of_error
from coldparquet.plan.page_statistics import PageStatistics
from coldparquet.plan.read_plan import RowGroupRead
from coldparquet.plan.statistics import SidecarStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bounds import Bounds
    from coldparquet.plan.exact_bounds import ExactBounds
    from coldparquet.plan.literals import DomainValue

_REMEDY = (
    "readers may miss rows: make the sidecar anew with 'coldparquet index --force', and tell whoever wrote the file"
)


def check_values(
    sidecar: Sidecar, pages: PartitionPages | None, read_at: Callable[[int, int], bytes], *, path: str
) -> list[Finding]:
    """Decode every column chunk, with the checksums of its pages, and compare its values with what is claimed of them.

    Claims are those that reads rely on: numbers of rows and nulls, bounds of row groups and of pages, bounds that stand for
    values, bloom filters, and that the designated timestamp never goes back within a row group. One chunk is in memory
    at a time. Blocks.

    Args:
        sidecar: What is claimed.
        pages: What is claimed of single pages; None for nothing.
        read_at: Returns bytes of the Parquet file, given the first one and how many.
        path: The Parquet file, for the findings.
    """
    findings: list[Finding] = []
    for column in range(sidecar.column_count):
        try:
            claims = _ColumnClaims.of(sidecar, column, pages)
            blooms = BloomCheck(sidecar, column, read_at)
        except UnsupportedError as error:
            findings.append(replace(finding_of_error(error), severity="warning", column=sidecar.column(column).name))
            continue
        problems: dict[tuple[str, str, str | None], list[int]] = {}
        for row_group in np.flatnonzero(sidecar.row_counts).tolist():
            try:
                values = _decode(sidecar, column, row_group, read_at, path=path)
            except ColdParquetError as error:
                finding = finding_of_error(error)
                findings.append(replace(finding, column=claims.field.name, row_groups=(row_group,)))
                continue
            found = list(claims.problems(row_group, values))
            if blooms.denied_values(row_group, values):
                found.append(("BloomMismatch", "its bloom filter denies values that are there", None))
            for kind, message, field in found:
                problems.setdefault((kind, message, field), []).append(row_group)
        findings += [
            Finding(
                severity="error",
                kind=kind,
                message=f"column {claims.field.name!r}: {message}",
                remedy=_REMEDY,
                column=claims.field.name,
                row_groups=tuple(row_groups),
                field=field,
            )
            for (kind, message, field), row_groups in problems.items()
        ]
    return findings


def _decode(sidecar: Sidecar, column: int, row_group: int, read_at: Callable[[int, int], bytes], *, path: str) -> Any:
    """Decode one chunk, as an Arrow array of plain values; one without bytes is made as reads make it."""
    chunks = sidecar.chunks(column)
    start, length_bytes = int(chunks.byte_range_start[row_group]), int(chunks.total_compressed_bytes[row_group])
    fetched = (column,) if length_bytes else ()
    read = RowGroupRead(
        partition_index=0,
        row_group=row_group,
        row_group_rows=int(sidecar.row_counts[row_group]),
        selection=None,
        columns=fetched,
        column_rows=(None,) * len(fetched),
        piece_columns=np.zeros(len(fetched), dtype=np.int64),
        piece_starts=np.full(len(fetched), start, dtype=np.int64),
        piece_stops=np.full(len(fetched), start + length_bytes, dtype=np.int64),
        made_columns=() if fetched else (column,),
        all_rows_match=True,
    )
    buffer = new_row_group_buffer(read, sidecar, path=path)
    if fetched:
        buffer.place(int(read.buffer_offsets[0]), memoryview(read_at(start, length_bytes)))
    descriptor = sidecar.column(column)
    output = OutputColumn(name=descriptor.name, type=sidecar.column_type(column), place=column)
    rows = decode_row_group(
        buffer, read, sidecar, columns=[output], text=PLAIN_TEXT, path=path, check_page_checksums=True
    )
    return rows.column(0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ColumnClaims:
    """What is claimed of one column, in every row group."""

    field: BoundField
    exact: ExactBounds
    of_pages: PageStatistics | None
    is_sorted: bool
    """Whether it is the designated timestamp."""

    @classmethod
    def of(cls, sidecar: Sidecar, column: int, pages: PartitionPages | None) -> _ColumnClaims:
        field = BoundField(name=sidecar.column(column).name, index=column, type=sidecar.column_type(column))
        places: dict[int, int | None] = {column: column}
        of_pages = None
        if pages is not None:
            of_pages = PageStatistics(
                BoundIsNull(field),
                sidecar=sidecar,
                places=places,
                pages=pages,
                row_groups=np.arange(sidecar.row_group_count),
                by_row_group=SidecarStatistics(sidecar, places),
            )
        return cls(
            field=field,
            exact=exact_bounds(sidecar, column, field),
            of_pages=of_pages,
            is_sorted=sidecar.designated_timestamp == column,
        )

    def problems(self, row_group: int, values: Any) -> Iterator[tuple[str, str, str | None]]:
        """Yield what is wrong in one row group: kind, message, field of the sidecar."""
        facts = _Facts.of(values, self.field)
        exact = self.exact
        stated_nulls = int(exact.null_counts[row_group])
        if stated_nulls not in {-1, facts.null_count}:
            message = f"{facts.null_count:,} rows are NULL, {stated_nulls:,} by the sidecar"
            yield "StatisticsMismatch", message, "NULL_COUNT"
        if exact.bounds is not None:
            outside = list(_outside(exact.bounds, row_group, facts, "the sidecar"))
            yield from outside or self._not_exact(row_group, facts)
        if self.of_pages is not None:
            yield from self._page_problems(self.of_pages, row_group, values)
        if self.is_sorted and compute.any(compute.less(values[1:], values[:-1])).as_py():
            yield "UnsortedTimestamps", "the designated timestamp goes back within a row group", None

    def _not_exact(self, row_group: int, facts: _Facts) -> Iterator[tuple[str, str, str | None]]:
        """Compare bounds that answer ``min`` and ``max`` with the values themselves."""
        marked = np.zeros(len(self.exact.null_counts), np.bool_)
        marked[row_group] = True
        if self.exact.is_least_known[row_group] and self.exact.least(marked) != facts.least:
            yield "StatisticsMismatch", "the minimum is marked as exact, and no value has it", "MIN"
        if self.exact.is_greatest_known[row_group] and self.exact.greatest(marked) != facts.greatest:
            yield "StatisticsMismatch", "the maximum is marked as exact, and no value has it", "MAX"

    def _page_problems(
        self, of_pages: PageStatistics, row_group: int, values: Any
    ) -> Iterator[tuple[str, str, str | None]]:
        bounds, segments = of_pages.bounds(self.field), of_pages.segments
        if bounds is None:
            return
        for segment in np.flatnonzero(segments.row_groups == row_group).tolist():
            start, stop = int(segments.starts[segment]), int(segments.stops[segment])
            facts = _Facts.of(values[start:stop], self.field)
            yield from dict.fromkeys(_outside(bounds, segment, facts, "_pages"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What some values are, in the terms of bounds."""

    null_count: int
    value_count: int
    """Values that are not NULL."""
    least: DomainValue | None
    """None without any value, or for types without an order; NaN counts for neither."""
    greatest: DomainValue | None

    @classmethod
    def of(cls, values: Any, field: BoundField) -> _Facts:
        least = greatest = None
        if field.type.comparison is not Comparison.NONE and field.type.arrow.name != "list":
            ordered = compute.drop_null(values)
            if field.type.comparison is Comparison.FLOAT:
                ordered = ordered.filter(compute.invert(compute.is_nan(ordered)))
            extremes = compute.min_max(ordered)
            least, greatest = to_domain_value(extremes["min"]), to_domain_value(extremes["max"])
        return cls(
            null_count=values.null_count,
            value_count=len(values) - values.null_count,
            least=least,
            greatest=greatest,
        )


def _outside(bounds: Bounds, unit: int, facts: _Facts, source: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield the claims of one row group or page that its values break."""
    if facts.value_count and not bounds.may_hold_values[unit]:
        yield "StatisticsMismatch", f"there are values where all rows are NULL by {source}", "NULL_COUNT"
    if facts.null_count and not bounds.may_hold_nulls[unit]:
        yield "StatisticsMismatch", f"there are NULLs where none is by {source}", "NULL_COUNT"
    lower, upper = bounds.lower, bounds.upper
    if facts.least is not None and lower is not None and lower.known[unit] and lower.above(facts.least)[unit]:
        yield "StatisticsMismatch", f"a value lies below the minimum of {source}", "MIN"
    most = facts.greatest
    if most is not None and upper is not None and upper.known[unit] and not upper.at_or_above(most)[unit]:
        yield "StatisticsMismatch", f"a value lies above the maximum of {source}", "MAX"
