"""Asking the bloom filters of one file that lies in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.plan.bind import BoundField, BoundPredicate, bind
from coldparquet.plan.blooms import BloomProbes, find_lookups
from coldparquet.plan.coalesce import coalesce
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.plan.where import parse_predicate
from tests.support.bloom_files import file_with_blooms, sidecar_in_memory, sidecar_to_keep
from tests.support.parquet_fragments import parsed_footer

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.ranges import ByteRange

SIDECARS: dict[str, Callable[[bytes], Sidecar]] = {
    "inlined": lambda file: sidecar_to_keep(file, inline_bytes=1 << 30),
    "external": lambda file: sidecar_to_keep(file, inline_bytes=0),
    "derived": sidecar_in_memory,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    survives: list[bool]
    """Row groups that are left after filters and statistics."""
    probes: BloomProbes
    rounds: list[list[tuple[int, int]]] = field(default_factory=list)
    """Ranges that were wanted, without repetitions."""

    @property
    def bytes_wanted(self) -> int:
        return sum(stop - start for ranges in self.rounds for start, stop in ranges)


def fields_of(sidecar: Sidecar) -> dict[str, BoundField]:
    return {
        column.name: BoundField(column.name, column.index, sidecar.column_type(column.index))
        for column in sidecar.columns
    }


def bound(where: str, fields: dict[str, BoundField]) -> BoundPredicate:
    predicate = parse_predicate(where)
    assert predicate is not None
    return bind(predicate, fields)


def ask(predicate: BoundPredicate, sidecar: Sidecar, file: bytes) -> Asked:
    places: dict[int, int | None] = {index: index for index in range(sidecar.column_count)}
    statistics, count = SidecarStatistics(sidecar, places), sidecar.row_group_count
    undecided = prune(predicate, statistics, count)[0].survives
    probes = BloomProbes(
        sidecar, find_lookups(predicate, statistics, table=sidecar, columns=places, row_groups=undecided)
    )
    rounds = []
    while (wanted := probes.wanted()) is not None:
        rounds.append(sorted(set(zip(wanted.starts.tolist(), wanted.stops.tolist(), strict=True))))
        # Pieces that touch, and gaps that nobody asked for, as from any coalescer.
        pieces = coalesce(wanted.starts, wanted.stops, gap_bytes=20, max_request_bytes=100)
        pairs = zip(pieces.starts.tolist(), pieces.stops.tolist(), strict=True)
        probes.receive([(start, file[start:stop]) for start, stop in pairs])
    asked = SidecarStatistics(sidecar, places, blooms=probes.answers())
    survives = prune(predicate, asked, count)[0].survives
    assert not (survives & ~undecided).any()
    return Asked(survives=survives.tolist(), probes=probes, rounds=rounds)


def numbers_file(row_groups: int = 4, rows: int = 4000, **columns: Any) -> tuple[bytes, list[int]]:
    """A file of random 62-bit numbers, in which minima and maxima decide nothing."""
    random = Random(7)
    values = [random.getrandbits(62) for _ in range(row_groups * rows)]
    for row_group in range(row_groups):
        values[row_group * rows], values[row_group * rows + 1] = 0, 2**62
    return file_with_blooms(pa.table({"id": values, **columns}), row_group_rows=rows), values


def with_references(file: bytes, change: Callable[[ByteRange], ByteRange]) -> Sidecar:
    """Make a sidecar whose references are those of the footer, changed."""
    content = sidecar_content_from_footer(parsed_footer(file))
    derived = sidecar_in_memory(file)
    row_groups = []
    for row_group, spec in enumerate(content.row_groups):
        place = derived.bloom_location(row_group, 0)
        assert place is not None
        row_groups.append(replace(spec, chunks=[replace(spec.chunks[0], bloom_reference=change(place))]))
    return parse_sidecar(encode_sidecar(replace(content, row_groups=row_groups, blooms_external=True)))
