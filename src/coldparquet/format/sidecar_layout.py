"""Defines the layout of a sidecar (`_pm`): every constant with its meaning and its section of the format.

A sidecar is little-endian and has four parts::

    header      32 fixed bytes, column descriptors, sorting columns, names, header sections
    blocks      one per row group, 8-aligned: row count, one 64-byte chunk per column, out-of-line bytes
    footer      40 fixed bytes, one block offset per row group, footer sections, CRC-32
    trailer     4 bytes: the length of the footer, which locates the footer from the end

An update appends blocks and another footer behind the old trailer, so one file can hold many footers; see
`coldparquet.format.sidecar_header` for the chain that links them. "Section" in the comments below means a section
of QuestDB's `docs/parquet-metadata.md`.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import numpy as np

from coldparquet.format.binary import Record

# --- Header, section "File header" -----------------------------------------------------------------------------------

COMMITTED_SIZE = struct.Struct("<Q")
"""PARQUET_META_FILE_SIZE at offset 0: the committed size, written last, the only part that no checksum covers."""

CHECKSUM_START = 8
"""First byte that the CRC-32 of a footer covers: everything behind the committed size."""

HEADER = Record(
    committed_size_bytes="u8",
    feature_flags="u8",
    designated_timestamp="i4",  # negative: none
    sorting_column_count="u4",
    column_count="u4",
    reserved="u4",
)
"""The fixed part of the header."""

NO_DESIGNATED_TIMESTAMP = -1
"""What writers store as the designated timestamp of a file that has none."""

COLUMN_DESCRIPTOR = Record(
    name_offset="u8",
    id="i4",
    type_code="i4",
    flags="i4",
    fixed_byte_length="i4",
    name_length="u4",
    physical_type="u1",
    max_rep_level="u1",
    max_def_level="u1",
    reserved="u1",
)
"""Section "Column descriptor"."""

COLUMN_INDEX_DTYPE = np.dtype("<u4")
"""Section "Sorting column", and the bloom column list: one column index."""

# --- Header feature flags, section "Feature flags" -------------------------------------------------------------------

OPTIONAL_FLAGS = 0x0000_0000_FFFF_FFFF
"""Bits 0-31 of both flag words: a reader may ignore those it does not know. Bits 32-63 it may not."""

HEADER_BLOOM_FILTERS = 1 << 0
"""A bloom column list follows the names, and every footer has a bloom matrix."""

HEADER_BLOOM_FILTERS_EXTERNAL = 1 << 1
"""Bloom bitsets are in the Parquet file; valid only together with `HEADER_BLOOM_FILTERS`."""

HEADER_SORTED_BY_TIMESTAMP = 1 << 2
"""Sorted by the designated timestamp, ascending, although the sorting array is absent."""

HEADER_SQUASH_TRACKER = 1 << 3
"""An i64 follows the bloom column list; never -1, because then the writer clears the bit."""

KNOWN_HEADER_FLAGS = (
    HEADER_BLOOM_FILTERS | HEADER_BLOOM_FILTERS_EXTERNAL | HEADER_SORTED_BY_TIMESTAMP | HEADER_SQUASH_TRACKER
)
"""Header bits that this reader understands; no required one is defined yet."""

UNSET = -1
"""SQUASH_TRACKER and SEQ_TXN use this number for "no value"; it is never stored."""

# --- Column flags, section "Column flags" ----------------------------------------------------------------------------

COLUMN_LOCAL_KEY_IS_GLOBAL = 1 << 0
"""SYMBOL: the keys in the Parquet dictionary are the keys of the table's symbol table."""

COLUMN_IS_ASCII = 1 << 1
"""VARCHAR: every value is ASCII."""

COLUMN_REPETITION_SHIFT = 2
"""Lowest bit of the two-bit repetition."""

COLUMN_REPETITION_MASK = 0b11
"""The two repetition bits, after the shift."""

COLUMN_DESCENDING = 1 << 4
"""A sorting column in descending order."""


class Repetition(IntEnum):
    """Parquet repetition of a column; the fourth two-bit number is invalid."""

    REQUIRED = 0
    OPTIONAL = 1
    REPEATED = 2


class PhysicalType(IntEnum):
    """Parquet physical types, with Parquet's own numbers."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


class Codec(IntEnum):
    """Parquet compression codecs, with Parquet's own numbers."""

    UNCOMPRESSED = 0
    SNAPPY = 1
    GZIP = 2
    LZO = 3
    BROTLI = 4
    LZ4 = 5
    ZSTD = 6
    LZ4_RAW = 7


class Encoding(IntEnum):
    """Parquet encodings, with Parquet's own numbers."""

    PLAIN = 0
    PLAIN_DICTIONARY = 2
    """In a dictionary page: plain values; in a data page: indices. Older name of what RLE_DICTIONARY means."""
    RLE = 3
    BIT_PACKED = 4
    DELTA_BINARY_PACKED = 5
    DELTA_LENGTH_BYTE_ARRAY = 6
    DELTA_BYTE_ARRAY = 7
    RLE_DICTIONARY = 8
    BYTE_STREAM_SPLIT = 9


# --- Row group blocks and column chunks, section "Row group blocks" --------------------------------------------------

BLOCK_ALIGNMENT_BITS = 3
"""Footers store block and bloom offsets shifted right by this much, so both are multiples of 8."""

BLOCK_ALIGNMENT = 1 << BLOCK_ALIGNMENT_BITS
"""Blocks and inlined bloom filters begin at multiples of 8 bytes."""

MAX_SHIFTED_OFFSET = 0xFFFF_FFFF
"""Largest block or bloom offset that fits its u32, after the shift."""

ROW_COUNT = Record(row_count="u8")
"""A block begins with the number of rows of its row group."""

COLUMN_CHUNK = Record(
    codec="u1",
    encodings="u1",
    stat_flags="u1",
    stat_sizes="u1",
    reserved="u4",
    num_values="u8",
    byte_range_start="u8",
    total_compressed="u8",
    null_count="u8",
    distinct_count="u8",
    min="u8",
    max="u8",
)
"""Section "Column chunk"; `min` and `max` are the bytes of the bounds, or references to out-of-line bytes."""

WORD_BYTES = 8
"""Blocks are read as u64 words: they and their chunks begin at multiples of 8."""

CHUNK_WORDS = COLUMN_CHUNK.size // WORD_BYTES
"""Words of one column chunk."""

ENCODING_PLAIN = 1 << 0
ENCODING_RLE_DICTIONARY = 1 << 1
ENCODING_DELTA_BINARY_PACKED = 1 << 2
ENCODING_DELTA_LENGTH_BYTE_ARRAY = 1 << 3
ENCODING_DELTA_BYTE_ARRAY = 1 << 4
ENCODING_BYTE_STREAM_SPLIT = 1 << 5
"""The ENCODINGS mask; PLAIN_DICTIONARY counts as RLE_DICTIONARY, RLE and BIT_PACKED levels are not recorded."""

ENCODING_BITS: dict[int, int] = {
    Encoding.PLAIN: ENCODING_PLAIN,
    Encoding.PLAIN_DICTIONARY: ENCODING_RLE_DICTIONARY,
    Encoding.DELTA_BINARY_PACKED: ENCODING_DELTA_BINARY_PACKED,
    Encoding.DELTA_LENGTH_BYTE_ARRAY: ENCODING_DELTA_LENGTH_BYTE_ARRAY,
    Encoding.DELTA_BYTE_ARRAY: ENCODING_DELTA_BYTE_ARRAY,
    Encoding.RLE_DICTIONARY: ENCODING_RLE_DICTIONARY,
    Encoding.BYTE_STREAM_SPLIT: ENCODING_BYTE_STREAM_SPLIT,
}
"""The bit of each Parquet encoding that is recorded."""

STAT_PRESENT = 1 << 0
STAT_INLINED = 1 << 1
STAT_EXACT = 1 << 2
"""STAT_FLAGS of one side: min uses them as they are, max shifted left by `STAT_MAX_SHIFT`."""

STAT_MAX_SHIFT = 3
"""The three flags of max stand three bits above those of min."""

STAT_DISTINCT_COUNT_PRESENT = 1 << 6
STAT_NULL_COUNT_PRESENT = 1 << 7
"""STAT_FLAGS: the two counts are known; otherwise their fields are 0 and mean nothing."""

STAT_SIZE_BITS = 4
"""STAT_SIZES: low nibble the inline byte length of min, high nibble that of max."""

MAX_INLINE_BYTES = 8
"""Section "Stat encoding": bounds of 1-8 bytes stand in their word, longer ones out of line, none is empty."""

OUT_OF_LINE_LENGTH_BITS = 16
"""An out-of-line reference is `(offset << 16) | length`, the offset counted from the end of the block's chunks."""

MAX_OUT_OF_LINE_BYTES = (1 << OUT_OF_LINE_LENGTH_BITS) - 1
"""Longest bound that the format can hold."""

BLOOM_LENGTH = struct.Struct("<i")
"""An inlined bloom filter is its length in bytes, then the bitset; a length of 0 or less means absent."""

# --- Footer, section "Footer" ----------------------------------------------------------------------------------------

FOOTER = Record(
    parquet_footer_offset="u8",
    parquet_footer_length="u4",
    row_group_count="u4",
    unused_bytes="u8",
    previous_size_bytes="u8",
    feature_flags="u8",
)
"""The fixed part of the footer."""

BLOCK_OFFSET_DTYPE = np.dtype("<u4")
"""Section "Row group entry": one block offset, shifted."""

CHECKSUM = struct.Struct("<I")
"""CRC-32 (zlib's) over `[CHECKSUM_START, this field)`."""

TRAILER = struct.Struct("<I")
"""FOOTER_LENGTH: bytes from the start of the footer up to and including the checksum."""

PARQUET_MAGIC_BYTES = 4
"""A Parquet file begins with the magic ``PAR1``; no chunk begins before it ends."""

PARQUET_TAIL_BYTES = 8
"""Behind a Parquet footer follow its length and the magic, so the Parquet size is offset + length + 8."""

BLOOM_OFFSET_DTYPE = np.dtype("<u4")
"""Bloom matrix entry when inlined: shifted offset in the sidecar; 0 is absent."""

BLOOM_REFERENCE = Record(offset="u8", length="u8")
BLOOM_REFERENCE_DTYPE = BLOOM_REFERENCE.dtype
"""Bloom matrix entry when external: range in the Parquet file; (0, 0) is absent."""

FOOTER_SEQ_TXN = 1 << 0
"""An i64 follows the bloom matrix; never -1, because then the writer clears the bit."""

FOOTER_SCRATCHPAD = 1 << 1
"""Tagged byte strings follow: u32 count, then per entry u32 code, u32 length, content."""

FOOTER_COVERING_INDEX = 1 << 2
"""Covering index entries follow: u32 count, then 20 bytes each. Only together with the next bit."""

FOOTER_COVERING_INDEX_REQUIRED = 1 << 32
"""The required half of COVERING_INDEX: such a partition has no native index files.

This bit must be known. A reader that looked values up in the native index of such a partition would find none and
answer wrongly, so the bit is required. This library never uses native indexes: a scan of the Parquet chunks is right
with or without them. So the section is parsed, shown and otherwise ignored.
"""

KNOWN_FOOTER_FLAGS_WITHOUT_COVERING = FOOTER_SEQ_TXN | FOOTER_SCRATCHPAD
"""Footer bits that this reader understands in a footer without COVERING_INDEX."""

KNOWN_FOOTER_FLAGS = KNOWN_FOOTER_FLAGS_WITHOUT_COVERING | FOOTER_COVERING_INDEX | FOOTER_COVERING_INDEX_REQUIRED
"""Footer bits that this reader understands."""

SIGNED_64 = Record(number="i8")
"""SQUASH_TRACKER and SEQ_TXN."""

COUNT = struct.Struct("<I")
"""The count in front of the bloom column list, the SCRATCHPAD and the COVERING_INDEX."""

SCRATCHPAD_ENTRY = Record(code="u4", length="u4")
"""What precedes the content of a SCRATCHPAD entry."""

MAX_SCRATCHPAD_BYTES = 1 << 20
"""Count, entry headers and contents of a SCRATCHPAD together may take 1 MiB and no byte more."""

COVERING_INDEX_ENTRY = Record(column_id="u4", index_txn="u8", index_metadata_bytes="u8")
"""See `coldparquet.format.sidecar_header.CoveringIndexEntry`."""

MAX_CHAIN_STEPS = 100_000
"""Longest walk back through older footers. Partitions are rewritten long before; the limit guards against crafted
files."""

MAX_COMMITTED_BYTES = 1 << 30
"""Largest sidecar to fetch: 1 GiB, which 16,000 columns x 1,000 row groups just fill; usual ones take tens of KiB."""


def column_flags(
    *,
    repetition: Repetition,
    descending: bool = False,
    is_ascii: bool = False,
    local_key_is_global: bool = False,
) -> int:
    """Return the FLAGS field of a column descriptor."""
    flags = repetition << COLUMN_REPETITION_SHIFT
    if descending:
        flags |= COLUMN_DESCENDING
    if is_ascii:
        flags |= COLUMN_IS_ASCII
    if local_key_is_global:
        flags |= COLUMN_LOCAL_KEY_IS_GLOBAL
    return flags


def block_bytes(column_count: int) -> int:
    """Return the size of a block without its out-of-line bytes, which is also their start."""
    return ROW_COUNT.size + COLUMN_CHUNK.size * column_count
