"""Compares a sidecar with the Parquet footer that it describes.

Both sides are sidecars: the existing one, and one derived from the footer. So the rules of the derivation (which bounds
are trustworthy, what a dictionary offset of 0 means) are in one place. The comparison is one of arrays over all row
groups, one per column and field.

A fact on one side only is no contradiction. The sidecar may know less than the footer; reads then fetch more than
necessary. It may state what the footer does not confirm; then only the pages could decide. The exception are the bounds
of the designated timestamp: QuestDB takes them from the pages if a footer has none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from coldparquet.catalog.findings import Finding
from coldparquet.format import sidecar_layout as layout
from coldparquet.text import row_group_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coldparquet.catalog.findings import Severity
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_chunks import ChunkColumn, RawBounds
    from coldparquet.format.sidecar_header import ColumnDescriptor
    from coldparquet.plan.bounds import BoolArray

_COLUMNS_NAMED = 5
"""Columns with the same difference that get a finding of their own; one more finding counts the others."""

_WORDS_AT_ONCE = 1 << 20
"""Bounds the memory of the first, coarse comparison to a few times 8 MiB."""

_COLUMN_FIELDS = (
    "name",
    "id",
    "type_code",
    "physical_type",
    "fixed_byte_length",
    "max_rep_level",
    "max_def_level",
    "repetition",
    "descending",
    "is_ascii",
    "local_key_is_global",
)

_NUMBERS = ("num_values", "byte_range_start", "total_compressed")
_STATISTICS = ("null_count", "distinct_count")

_LONGEST_SHOWN_BOUND_BYTES = 16

_Kind = Literal[
    "SidecarDiffers", "StatisticsNotVouchedFor", "StatisticsLeftOut", "ForeignTypeNotNoted", "WriterNotNoted"
]

_SEVERITIES: dict[_Kind, Severity] = {
    "SidecarDiffers": "error",
    "StatisticsNotVouchedFor": "warning",
    "StatisticsLeftOut": "warning",
    "ForeignTypeNotNoted": "warning",
    "WriterNotNoted": "warning",
}


def compare_sidecars(found: Sidecar, derived: Sidecar, *, remedy: str) -> tuple[Finding, ...]:
    """Compare a sidecar with the one derived from its Parquet footer."""
    differences = list(_differing_numbers(found, derived))
    if found.column_count == derived.column_count:
        differences += _differing_columns(found, derived)
        if found.row_group_count == derived.row_group_count:
            differences += _differing_row_counts(found, derived)
            for index in _suspect_columns(found, derived):
                differences += _ColumnOfChunks(
                    found.chunks(index),
                    derived.chunks(index),
                    derived.column(index),
                    is_designated=index == derived.designated_timestamp,
                ).differences()
    return tuple(_findings(differences, remedy))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    field: str
    found: str = ""
    """The value in the sidecar, in the first differing row group."""
    true: str = ""
    """The value in the footer, likewise."""
    kind: _Kind = "SidecarDiffers"
    column: str | None = None
    row_groups: tuple[int, ...] = ()


def _differing_numbers(found: Sidecar, derived: Sidecar) -> Iterator[_Difference]:
    for field, stated, true in (
        ("parquet_footer_offset", found.footer.parquet_footer_offset, derived.footer.parquet_footer_offset),
        ("parquet_footer_length", found.footer.parquet_footer_length, derived.footer.parquet_footer_length),
        ("column_count", found.column_count, derived.column_count),
        ("row_group_count", found.row_group_count, derived.row_group_count),
    ):
        if stated != true:
            yield _Difference(field=field, found=f"{stated:,}", true=f"{true:,}")
    if derived.created_by not in {None, found.created_by}:
        kind: _Kind = "WriterNotNoted" if found.created_by is None else "SidecarDiffers"
        yield _Difference(field="created_by", found=repr(found.created_by), true=repr(derived.created_by), kind=kind)
    for field, indexes, true_indexes in (
        ("designated_timestamp", found.designated_timestamp, derived.designated_timestamp),
        ("sorting_columns", list(found.sorting_columns), list(derived.sorting_columns)),
    ):
        if indexes != true_indexes:
            yield _Difference(field=field, found=str(indexes), true=str(true_indexes))


def _differing_columns(found: Sidecar, derived: Sidecar) -> Iterator[_Difference]:
    notes, true_notes = found.foreign_annotations, derived.foreign_annotations
    for column, true_column in zip(found.columns, derived.columns, strict=True):
        for field in _COLUMN_FIELDS:
            stated, true = getattr(column, field), getattr(true_column, field)
            if stated != true:
                yield _Difference(field=field, found=_shown(stated), true=_shown(true), column=true_column.name)
        if notes.get(column.index) != true_notes.get(column.index):
            yield _Difference(field="scratchpad", kind="ForeignTypeNotNoted", column=true_column.name)


def _differing_row_counts(found: Sidecar, derived: Sidecar) -> Iterator[_Difference]:
    stated, true = found.blocks.row_counts, derived.blocks.row_counts
    yield from _contradictions("num_rows", None, stated, true)


def _suspect_columns(found: Sidecar, derived: Sidecar) -> list[int]:
    """Return the columns whose chunks need a full comparison: their words differ, or their bounds are out of order."""
    column_count, row_group_count = derived.column_count, derived.row_group_count
    if column_count == 0:
        return []
    row_groups_at_once = max(1, _WORDS_AT_ONCE // (layout.CHUNK_WORDS * column_count))
    columns = np.arange(column_count)
    suspect = np.zeros(column_count, np.bool_)
    for start in range(0, row_group_count, row_groups_at_once):
        row_groups = slice(start, start + row_groups_at_once)
        chunks, true_chunks = (side.blocks.chunks(row_groups, columns) for side in (found, derived))
        suspect |= (chunks != true_chunks).any(axis=0)
        for shift in (0, layout.STAT_MAX_SHIFT):
            side_flags = chunks["stat_flags"] >> shift
            is_out_of_line = side_flags & (layout.STAT_PRESENT | layout.STAT_INLINED) == layout.STAT_PRESENT
            suspect |= is_out_of_line.any(axis=0)
    return np.flatnonzero(suspect).tolist()


@dataclass(frozen=True, slots=True)
class _ColumnOfChunks:
    """The chunks of one column on both sides."""

    found: ChunkColumn
    derived: ChunkColumn
    column: ColumnDescriptor
    is_designated: bool

    def differences(self) -> Iterator[_Difference]:
        name = self.column.name
        found, derived = self.found.stored, self.derived.stored
        for field in ("codec", "encodings", *_NUMBERS):
            yield from _contradictions(field, name, found[field], derived[field])
        for field in _STATISTICS:
            stated, known = getattr(self.found, f"has_{field}"), getattr(self.derived, f"has_{field}")
            yield from _contradictions(field, name, found[field], derived[field], where=stated & known)
            yield from self._known_to_one_side(field, stated & ~known, known & ~stated)
        yield from self._differing_bounds("min", self.found.min, self.derived.min)
        yield from self._differing_bounds("max", self.found.max, self.derived.max)

    def _differing_bounds(self, field: str, found: RawBounds, derived: RawBounds) -> Iterator[_Difference]:
        prefixes, lengths = found.prefix_words()
        true_prefixes, true_lengths = derived.prefix_words()
        stated, known = lengths >= 0, true_lengths >= 0
        both = stated & known
        differs = both & ((prefixes != true_prefixes) | (lengths != true_lengths))
        for row_group in np.flatnonzero(both & ~differs & (true_lengths > layout.WORD_BYTES)).tolist():
            differs[row_group] = found.bytes_at(row_group) != derived.bytes_at(row_group)
        if differs.any():
            row_groups = np.flatnonzero(differs).tolist()
            first = row_groups[0]
            yield _Difference(
                field=field,
                found=_shown_bound(found, first),
                true=_shown_bound(derived, first),
                column=self.column.name,
                row_groups=tuple(row_groups),
            )
        yield from _contradictions(f"{field}_exact", self.column.name, found.exact, derived.exact, where=both)
        from_pages = stated & ~known & self.is_designated
        yield from self._known_to_one_side(field, stated & ~known & ~from_pages, known & ~stated)

    def _known_to_one_side(self, field: str, only_found: BoolArray, only_derived: BoolArray) -> Iterator[_Difference]:
        kinds: tuple[tuple[_Kind, BoolArray], ...] = (
            ("StatisticsNotVouchedFor", only_found),
            ("StatisticsLeftOut", only_derived),
        )
        for kind, where in kinds:
            row_groups = np.flatnonzero(where).tolist()
            if row_groups:
                yield _Difference(field=field, kind=kind, column=self.column.name, row_groups=tuple(row_groups))


def _contradictions(
    field: str,
    column: str | None,
    found: npt.NDArray[np.unsignedinteger | np.bool_],
    true: npt.NDArray[np.unsignedinteger | np.bool_],
    *,
    where: BoolArray | None = None,
) -> Iterator[_Difference]:
    differs = found != true if where is None else (found != true) & where
    row_groups = np.flatnonzero(differs).tolist()
    if row_groups:
        first = row_groups[0]
        yield _Difference(
            field=field,
            found=f"{int(found[first]):,}",
            true=f"{int(true[first]):,}",
            column=column,
            row_groups=tuple(row_groups),
        )


def _shown_bound(bounds: RawBounds, row_group: int) -> str:
    """Write the bytes of one bound in storage order."""
    value = bounds.bytes_at(row_group) or b""
    shown = value[:_LONGEST_SHOWN_BOUND_BYTES].hex()
    return f"0x{shown}..." if len(value) > _LONGEST_SHOWN_BOUND_BYTES else f"0x{shown}"


def _shown(value: object) -> str:
    return value.name if isinstance(value, layout.PhysicalType | layout.Repetition) else repr(value)


def _findings(differences: Iterable[_Difference], remedy: str) -> Iterator[Finding]:
    """Report each difference once: those of one field in many columns become a few findings and a count."""
    alike: dict[tuple[_Kind, str], list[_Difference]] = defaultdict(list)
    for difference in differences:
        alike[difference.kind, difference.field].append(difference)
    for (kind, field), group in alike.items():
        severity = _SEVERITIES[kind]
        for difference in group[:_COLUMNS_NAMED]:
            yield Finding(
                severity=severity,
                kind=kind,
                message=_message(difference),
                remedy=remedy,
                column=difference.column,
                row_groups=difference.row_groups,
                field=field,
            )
        others = group[_COLUMNS_NAMED:]
        if others:
            yield Finding(
                severity=severity,
                kind=kind,
                message=f"{field}: the same in {len(others):,} more columns, {_first_and_last(others)}",
                remedy=remedy,
                field=field,
            )


def _message(difference: _Difference) -> str:
    row_groups = list(difference.row_groups)
    column = "" if difference.column is None else f" of column {difference.column!r}"
    where = f" in {row_group_spans(row_groups)}" if row_groups else ""
    what = f"{difference.field}{column}"
    if difference.kind == "StatisticsNotVouchedFor":
        return f"{what} is in the sidecar{where}, but the footer does not vouch for it: readers may miss rows"
    if difference.kind == "StatisticsLeftOut":
        return f"{what} is in the footer{where}, but not in the sidecar: reads prune less than they could"
    if difference.kind == "ForeignTypeNotNoted":
        return f"the sidecar does not note how the Parquet type{column} differs from QuestDB's: it reads as QuestDB's"
    if difference.kind == "WriterNotNoted":
        return (
            "the sidecar does not note who wrote the file: pages that old writers mark wrongly are refused, and bounds of"
            " decimals are not used"
        )
    first = f" (row group {row_groups[0]})" if len(row_groups) > 1 else ""
    return f"{what} differs{where}: {difference.found} in the sidecar, {difference.true} in the footer{first}"


def _first_and_last(differences: Sequence[_Difference]) -> str:
    first, last = differences[0].column, differences[-1].column
    return f"{first!r}" if first == last else f"{first!r} to {last!r}"
