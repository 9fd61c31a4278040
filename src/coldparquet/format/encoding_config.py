"""How a column is to be written to Parquet: the encoding word of its slot in `_meta`.

bits 0-7 encoding, 8-15 codec, 16-23 compression level + 1, 24 set for this column, 25 bloom filter
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from coldparquet.errors import InvalidInputError


class ParquetEncoding(IntEnum):
    """Encodings that a column can ask for when its partitions become Parquet."""

    DEFAULT = 0
    PLAIN = 1
    RLE_DICTIONARY = 2
    DELTA_LENGTH_BYTE_ARRAY = 3
    DELTA_BINARY_PACKED = 4
    BYTE_STREAM_SPLIT = 5


class ParquetCodec(IntEnum):
    """Codecs that a column can ask for when its partitions become Parquet."""

    DEFAULT = 0
    UNCOMPRESSED = 1
    SNAPPY = 2
    GZIP = 3
    BROTLI = 4
    ZSTD = 5
    LZ4_RAW = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingConfig:
    """How a column is to be written to Parquet; it says nothing about files that exist."""

    encoding: int = ParquetEncoding.DEFAULT
    """A `ParquetEncoding`, or a number that a newer version knows."""
    codec: int = ParquetCodec.DEFAULT
    """A `ParquetCodec`, or a number that a newer version knows."""
    level: int | None = None
    """Compression level; None for the codec's default."""
    is_explicit: bool = False
    """Set for this column, not taken over from the server."""
    has_bloom_filter: bool = False


def parse_encoding_word(word: int) -> EncodingConfig | None:
    """Take the encoding word of a slot apart; None for 0, which asks for nothing."""
    if word == 0:
        return None
    stored_level = word >> 16 & 0xFF
    return EncodingConfig(
        encoding=word & 0xFF,
        codec=word >> 8 & 0xFF,
        level=stored_level - 1 if stored_level else None,
        is_explicit=bool(word >> 24 & 1),
        has_bloom_filter=bool(word >> 25 & 1),
    )


def format_encoding_word(config: EncodingConfig | None) -> int:
    """Put the encoding word of a slot together.

    Raises:
        InvalidInputError: A number does not fit its byte.
    """
    if config is None:
        return 0
    stored_level = 0 if config.level is None else config.level + 1
    for what, value in (("encoding", config.encoding), ("codec", config.codec), ("level + 1", stored_level)):
        if not 0 <= value <= 0xFF:
            raise InvalidInputError(f"{what} of an encoding config is {value}; expected 0 to 255")
    return (
        config.encoding
        | config.codec << 8
        | stored_level << 16
        | config.is_explicit << 24
        | config.has_bloom_filter << 25
    )
