"""Files with bloom filters, and questions put to them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from coldparquet.expressions.where import parse_predicate
from coldparquet.format.blooms import BloomTransfer, bloom_hashes, refer_to_blooms
from coldparquet.format.parquet_thrift import BloomAlgorithm, BloomCompression, BloomFilterHeader, BloomHash
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.thrift import Empty
from coldparquet.format.types import ColumnType
from coldparquet.plan.bind import BoundField, BoundPredicate, bind
from coldparquet.plan.blooms import BloomProbes, find_lookups
from coldparquet.plan.coalesce import coalesce
from coldparquet.plan.literals import DomainValue
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from tests.support.parquet_footers import parquet_bytes, parsed_footer

# --- Bloom filters for tests: made by the letter of the specification, and asked of whole Parquet files ---------------


_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


def bitset_of_hashes(hashes: Iterable[int], block_count: int) -> bytes:
    """Make a filter, one bit after the other."""
    words = [0] * (8 * block_count)
    for value in hashes:
        block = (value >> 32) * block_count >> 32
        for number, salt in enumerate(_SALTS):
            words[8 * block + number] |= 1 << ((value & 0xFFFF_FFFF) * salt % (1 << 32) >> 27)
    return struct.pack(f"<{len(words)}I", *words)


def bitset_of(values: Sequence[DomainValue], column_type: ColumnType, block_count: int) -> bytes:
    """Make a filter of values in the domain of a column."""
    found = bloom_hashes(values, column_type)
    assert found is not None
    return bitset_of_hashes(found.hashes.tolist(), block_count)


def encoded_header(bitset_bytes: int, **changes: Any) -> bytes:
    """Encode the header of a filter; changes replace its fields."""
    fields: dict[str, Any] = {
        "numBytes": bitset_bytes,
        "algorithm": BloomAlgorithm(BLOCK=Empty()),
        "hash": BloomHash(XXHASH=Empty()),
        "compression": BloomCompression(UNCOMPRESSED=Empty()),
    }
    return BloomFilterHeader(**{**fields, **changes}).encode()


def sidecar_in_memory(file: bytes) -> Sidecar:
    """Make the sidecar that a reader derives from the footer alone, with references as the footer states them."""
    footer = parsed_footer(file)
    return parse_sidecar(encode_sidecar(refer_to_blooms(sidecar_content_from_footer(footer), footer)))


def sidecar_to_keep(file: bytes, *, inline_bytes: int) -> Sidecar:
    """Make the sidecar that is written beside a file."""
    transfer = BloomTransfer(parsed_footer(file), inline_bytes=inline_bytes)
    while transfer.wanted() is not None:
        transfer.receive([(0, file)])
    return parse_sidecar(encode_sidecar(transfer.content()))


def file_with_blooms(table: pa.Table, *, row_group_rows: int, ndv: int | None = None, **options: Any) -> bytes:
    """Write a table with a bloom filter on every column."""
    blooms = {name: {"ndv": ndv or row_group_rows, "fpp": 0.001} for name in table.schema.names}
    return parquet_bytes(
        table, row_group_size=row_group_rows, store_schema=False, bloom_filter_options=blooms, **options
    )


def domain_values(column: pa.Array[Any] | pa.ChunkedArray[Any], column_type: ColumnType) -> list[DomainValue]:
    """Return the values of a column in the domain of its type, without nulls."""
    values: Any = column.drop_null()
    arrow = column_type.arrow
    if arrow.name in {"timestamp", "time64"}:
        values = values.cast(pa.int64())
    elif arrow.name in {"date32", "time32"}:
        values = values.cast(pa.int32())
    found = values.to_pylist()
    if arrow.name.startswith("decimal"):
        # Arrow's decimals all have the column's scale; arithmetic would round them.
        return [int("".join(map(str, value.as_tuple().digits))) * (-1 if value < 0 else 1) for value in found]
    return [value.encode() if isinstance(value, str) else value for value in found]


# --- Asking the bloom filters of one file that lies in memory ---------------------------------------------------------


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
    lookups = find_lookups(predicate, statistics, table=sidecar, columns=places, row_groups=undecided)
    probes = BloomProbes(sidecar, lookups)
    first = probes.wanted()
    assert probes.are_at_hand is (first is None)
    assert lookups.wanted_bytes(count).sum() == (0 if first is None else (first.stops - first.starts).sum())
    rounds = []
    while (wanted := probes.wanted()) is not None:
        rounds.append(sorted(set(zip(wanted.starts.tolist(), wanted.stops.tolist(), strict=True))))
        # Pieces that touch, and gaps that were not asked for, as from any coalescer.
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
