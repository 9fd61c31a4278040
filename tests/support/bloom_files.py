"""Bloom filters for tests: made by the letter of the specification, and asked of whole Parquet files."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.format.blooms import BloomTransfer, bloom_hashes, refer_to_blooms
from coldparquet.format.parquet_thrift import (
    BloomAlgorithm,
    BloomCompression,
    BloomFilterHeader,
    BloomHash,
)
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.thrift import Empty
from tests.support.parquet_fragments import parsed_footer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coldparquet.format.types import ColumnType
    from coldparquet.plan.literals import DomainValue

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
    sink = pa.BufferOutputStream()
    blooms = {name: {"ndv": ndv or row_group_rows, "fpp": 0.001} for name in table.schema.names}
    pq.write_table(
        table, sink, row_group_size=row_group_rows, store_schema=False, bloom_filter_options=blooms, **options
    )
    return sink.getvalue().to_pybytes()


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
