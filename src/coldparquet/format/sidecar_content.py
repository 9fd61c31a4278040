"""What a sidecar (`_pm`) is to say, as plain data: what its writer takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.format import sidecar_layout as layout
    from coldparquet.format.sidecar_footer import CoveringIndexEntry, ScratchpadEntry
    from coldparquet.ranges import ByteRange


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpec:
    """One leaf column, as its descriptor will say it."""

    name: str
    type_code: int
    """QuestDB type code; -1 where none could be inferred."""
    physical_type: layout.PhysicalType
    id: int = -1
    """Writer index of the column in its QuestDB table, or -1."""
    flags: int = 0
    """See `coldparquet.format.sidecar_layout.column_flags`."""
    fixed_byte_length: int = 0
    """Length of a FIXED_LEN_BYTE_ARRAY, otherwise 0."""
    max_rep_level: int = 0
    max_def_level: int = 0


@dataclass(frozen=True, slots=True)
class BoundSpec:
    """One bound of a chunk: the bytes of a Parquet `min_value` or `max_value`, unchanged."""

    value: bytes
    """An empty value is written as an absent bound: the format cannot tell them apart."""
    exact: bool = True
    """False where the value was truncated or widened and merely bounds the data."""
    place: Literal["inline", "out_of_line"] | None = None
    """Where the bytes go; None means inline up to 8 bytes and out of line above, as every writer does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpec:
    """One column chunk."""

    codec: int
    encodings: int
    """Mask of `sidecar_layout.ENCODING_*`."""
    num_values: int
    byte_range_start: int
    """First byte of the chunk in the Parquet file: that of its dictionary page if there is one."""
    total_compressed_bytes: int
    null_count: int | None = None
    distinct_count: int | None = None
    min: BoundSpec | None = None
    max: BoundSpec | None = None
    bloom_bitset: bytes | None = None
    """Split-block bloom filter without its Thrift header, to be inlined in the sidecar."""
    bloom_reference: ByteRange | None = None
    """Where the bitset lies in the Parquet file; only with `SidecarContent.blooms_external`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupSpec:
    """One row group: its rows and one chunk per column."""

    row_count: int
    chunks: Sequence[ChunkSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterSpec:
    """What one footer says apart from its row groups."""

    parquet_footer_offset: int
    parquet_footer_length: int
    unused_bytes: int = 0
    previous_size_bytes: int = 0
    """Committed size of the snapshot that this footer follows, or 0."""
    seq_txn: int | None = None
    scratchpad: Sequence[ScratchpadEntry] = ()
    covering_index: Sequence[CoveringIndexEntry] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarContent:
    """Everything that a new sidecar says. Feature flags follow from it and are not given."""

    columns: Sequence[ColumnSpec]
    row_groups: Sequence[RowGroupSpec]
    parquet_footer_offset: int
    parquet_footer_length: int
    designated_timestamp: int | None = None
    sorting_columns: Sequence[int] = ()
    unused_bytes: int = 0
    squash_tracker: int | None = None
    seq_txn: int | None = None
    scratchpad: Sequence[ScratchpadEntry] = ()
    covering_index: Sequence[CoveringIndexEntry] = ()
    bloom_columns: Sequence[int] | None = None
    """Columns that get a place in the bloom matrix; None means those with a filter in any row group."""
    blooms_external: bool = False
    """Filters stay in the Parquet file and the sidecar only refers to them."""
