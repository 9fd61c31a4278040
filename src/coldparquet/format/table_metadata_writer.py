"""Model to bytes: write a `_meta` file."""

from __future__ import annotations

import struct

from coldparquet.errors import ColdParquetError, InvalidInputError
from coldparquet.format import table_metadata_layout as layout
from coldparquet.format.table_metadata import MetadataSlot, TableMetadata, parse_table_metadata
from coldparquet.format.utf16 import encode_name


def encode_table_metadata(metadata: TableMetadata) -> bytes:
    """Write a `_meta` file; what was parsed and not changed becomes the same bytes.

    Raises:
        InvalidInputError: A number does not fit its field, or a name, a type or the designated timestamp is none that
            `parse_table_metadata` accepts.
    """
    minor_version_word = 0
    if metadata.minor_version is not None:
        checksum = layout.minor_version_checksum(metadata.metadata_version, len(metadata.slots))
        minor_version_word = metadata.minor_version << 16 | checksum
    designated = metadata.designated_timestamp
    try:
        header = layout.HEADER.pack(
            len(metadata.slots),
            metadata.interval,
            layout.NO_DESIGNATED_TIMESTAMP if designated is None else designated,
            layout.TABLE_VERSION,
            metadata.table_id,
            metadata.max_uncommitted_rows,
            metadata.o3_max_lag_us,
            metadata.metadata_version,
            metadata.wal_enabled,
            minor_version_word,
            metadata.ttl,
            metadata.reserved,
        )
        encoded = b"".join(
            [
                header,
                *(_encode_slot(slot) for slot in metadata.slots),
                *(encode_name(slot.name) for slot in metadata.slots),
                metadata.trailer,
            ]
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise InvalidInputError(f"this metadata does not fit a _meta file: {error}") from error
    try:
        parse_table_metadata(encoded, path=None)
    except ColdParquetError as error:
        raise InvalidInputError(f"this would not be a valid _meta file: {error.message}") from error
    return encoded


def _encode_slot(slot: MetadataSlot) -> bytes:
    return layout.SLOT.pack(
        -slot.type_code if slot.is_dropped else slot.type_code,
        slot.flags,
        slot.index_block_capacity,
        slot.symbol_capacity,
        slot.encoding_word,
        0 if slot.replaced_index is None else slot.replaced_index + 1,
        slot.reserved,
    )
