"""Converts a sidecar to plain data, for users and for comparison with other implementations.

The names and values are those of the reference implementation's dump. Everything is checked on the way: checksum,
names, repetitions, blocks, codecs, and each older footer with its own checksum.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from coldparquet.errors import FormatError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.sidecar import Sidecar, check_footer_place, open_snapshot, verify_chain
from coldparquet.format.sidecar_header import parse_name, parse_repetition
from coldparquet.format.types import parse_part, parse_stored

if TYPE_CHECKING:
    from coldparquet.format.sidecar_chunks import RawBounds
    from coldparquet.format.sidecar_header import SidecarFooter

LONGEST_SHOWN_CONTENT_BYTES = 4096
"""A longer SCRATCHPAD content is described by its length and CRC-32."""

_CODEC_NAMES = {
    layout.Codec.UNCOMPRESSED: "Uncompressed",
    layout.Codec.SNAPPY: "Snappy",
    layout.Codec.GZIP: "Gzip",
    layout.Codec.LZO: "Lzo",
    layout.Codec.BROTLI: "Brotli",
    layout.Codec.LZ4: "Lz4",
    layout.Codec.ZSTD: "Zstd",
    layout.Codec.LZ4_RAW: "Lz4Raw",
}


_PLAIN_FIELDS = (
    "encodings",
    "stat_flags",
    "stat_sizes",
    "reserved",
    "num_values",
    "byte_range_start",
    "total_compressed",
)
"""Fields of a chunk that are shown as they are stored."""


def describe_sidecar(
    buffer: bytes | bytearray | memoryview,
    *,
    parquet_size_bytes: int | None = None,
    sidecar_size_bytes: int | None = None,
    path: str | None = None,
) -> dict[str, Any]:
    """Check one snapshot of a sidecar completely and return its whole content.

    The arguments are those of `coldparquet.format.sidecar.parse_sidecar`.
    """
    sidecar = open_snapshot(
        memoryview(buffer).cast("B"),
        parquet_size_bytes=parquet_size_bytes,
        sidecar_size_bytes=sidecar_size_bytes,
        path=path,
    )
    sidecar.verify_checksum()
    check_footer_place(sidecar.footer, sidecar.header, path=path)
    columns = _describe_columns(sidecar)
    sidecar.verify_blocks()
    _check_shared_bytes(sidecar)
    return {
        "header": _describe_header(sidecar),
        "columns": columns,
        "row_groups": _describe_row_groups(sidecar),
        "footer": _describe_footer(sidecar.footer),
        "chain": _describe_chain(sidecar),
    }


def _check_shared_bytes(sidecar: Sidecar) -> None:
    """Refuse a file whose bounds and bloom filters overlap so much that showing them multiplies its size."""
    shown_bytes = 0
    for column_index in range(sidecar.column_count):
        chunks = sidecar.chunks(column_index)
        for bounds in (chunks.min, chunks.max):
            _, lengths = bounds.prefix_words()
            shown_bytes += int(lengths[~bounds.inlined].clip(min=0).sum())
    if not sidecar.blooms_external:
        for row_group in range(sidecar.row_group_count):
            for column_index in sidecar.bloom_columns:
                location = sidecar.bloom_location(row_group, column_index)
                shown_bytes += 0 if location is None else location.length_bytes
    if shown_bytes > sidecar.size_bytes:
        raise FormatError(
            f"out-of-line values of {shown_bytes} bytes do not fit {sidecar.size_bytes} bytes: they overlap",
            kind="InvalidValue",
            path=sidecar.path,
            offset=sidecar.header.stop,
            field="out_of_line",
        )


def _describe_header(sidecar: Sidecar) -> dict[str, Any]:
    header = sidecar.header
    return {
        "parquet_meta_file_size": header.committed_size_bytes,
        "feature_flags": header.feature_flags,
        "designated_timestamp": header.designated_timestamp,
        "designated_timestamp_raw": header.designated_timestamp_raw,
        "sorting_column_count_raw": header.sorting_column_count_raw,
        "sorting_columns": list(header.sorting_columns),
        "column_count": header.column_count,
        "bloom_filter_columns": list(header.bloom_columns),
        "bloom_filters_external": header.blooms_external,
        "squash_tracker": header.squash_tracker,
    }


def _describe_columns(sidecar: Sidecar) -> list[dict[str, Any]]:
    # Read from the table, not from parsed descriptors: an unknown physical type is worth showing.
    stored_fields = layout.COLUMN_DESCRIPTOR.dtype.names or ()
    table = [dict(zip(stored_fields, fields, strict=True)) for fields in sidecar.header.descriptors.tolist()]
    names = [parse_name(sidecar.file, index, path=sidecar.path) for index in range(len(table))]
    columns = []
    for index, (name, stored) in enumerate(zip(names, table, strict=True)):
        flags = stored["flags"]
        columns.append(
            {
                "index": index,
                "name": name,
                "name_offset": stored["name_offset"],
                "name_length": stored["name_length"],
                "id": stored["id"],
                "type": stored["type_code"],
                "flags": flags,
                "repetition": parse_repetition(flags, index, path=sidecar.path).name.capitalize(),
                "descending": bool(flags & layout.COLUMN_DESCENDING),
                "is_ascii": bool(flags & layout.COLUMN_IS_ASCII),
                "local_key_is_global": bool(flags & layout.COLUMN_LOCAL_KEY_IS_GLOBAL),
                "fixed_byte_len": stored["fixed_byte_length"],
                "physical_type": stored["physical_type"],
                "max_rep_level": stored["max_rep_level"],
                "max_def_level": stored["max_def_level"],
                "reserved": stored["reserved"],
                **_noted_type(sidecar, index),
            }
        )
    return columns


def _noted_type(sidecar: Sidecar, index: int) -> dict[str, str]:
    """Describe a column of a type that QuestDB does not have, if the scratchpad does."""
    annotation = sidecar.foreign_annotations.get(index)
    stored, part = parse_stored(annotation), parse_part(annotation)
    if part is not None:
        return {"noted_type": f"part of column {part[0]}"}
    return {} if stored is None else {"noted_type": stored[1]}


def _describe_row_groups(sidecar: Sidecar) -> list[dict[str, Any]]:
    columns = [_describe_chunks(sidecar, index) for index in range(sidecar.column_count)]
    row_counts = sidecar.blocks.row_counts.tolist()
    row_groups = []
    for index, block_offset in enumerate(sidecar.footer.block_offsets.tolist()):
        row_group: dict[str, Any] = {
            "index": index,
            "block_offset": block_offset,
            "num_rows": row_counts[index],
            "chunks": [chunks[index] for chunks in columns],
        }
        if sidecar.bloom_columns:
            row_group["blooms"] = [_describe_bloom(sidecar, index, column) for column in sidecar.bloom_columns]
        row_groups.append(row_group)
    return row_groups


def _describe_chunks(sidecar: Sidecar, column_index: int) -> list[dict[str, Any]]:
    """Describe the chunk of one column in every row group."""
    chunks = sidecar.chunks(column_index)
    names = layout.COLUMN_CHUNK.dtype.names or ()
    described = []
    for row_group, fields in enumerate(chunks.stored.tolist()):
        stored = dict(zip(names, fields, strict=True))
        if stored["codec"] > max(layout.Codec):
            raise FormatError(
                f"codec {stored['codec']} of column {column_index} in row group {row_group} is none of Parquet's",
                kind="InvalidValue",
                path=sidecar.path,
                offset=sidecar.blocks.offset_of(row_group, column_index, "codec"),
                field="codec",
                row_group=row_group,
            )
        has_nulls, has_distinct = chunks.has_null_count[row_group], chunks.has_distinct_count[row_group]
        described.append(
            {
                "codec": stored["codec"],
                "codec_name": _CODEC_NAMES[layout.Codec(stored["codec"])],
                **{field: stored[field] for field in _PLAIN_FIELDS},
                "null_count": stored["null_count"] if has_nulls else None,
                "null_count_raw": stored["null_count"],
                "distinct_count": stored["distinct_count"] if has_distinct else None,
                "distinct_count_raw": stored["distinct_count"],
                "min": _describe_bound(chunks.min, row_group),
                "max": _describe_bound(chunks.max, row_group),
            }
        )
    return described


def _describe_bound(bounds: RawBounds, row_group: int) -> dict[str, Any]:
    value = bounds.bytes_at(row_group)
    return {
        "present": bool(bounds.present[row_group]),
        "exact": bool(bounds.exact[row_group]),
        "hex": None if value is None else value.hex(),
    }


def _describe_bloom(sidecar: Sidecar, row_group: int, column_index: int) -> dict[str, Any]:
    offset, length = sidecar.bloom_entry(row_group, column_index)
    if sidecar.blooms_external:
        return {"column": column_index, "parquet_offset": offset, "parquet_length": length}
    bitset = sidecar.bloom_bitset(row_group, column_index)
    if bitset is None:
        return {"column": column_index, "offset": offset, "hex": None}
    return {"column": column_index, "offset": offset, "length": len(bitset), "hex": bitset.hex()}


def _describe_footer(footer: SidecarFooter) -> dict[str, Any]:
    return {
        "offset": footer.offset,
        "length_through_crc": footer.length_bytes,
        "parquet_footer_offset": footer.parquet_footer_offset,
        "parquet_footer_length": footer.parquet_footer_length,
        "parquet_size": footer.parquet_size_bytes,
        "row_group_count": footer.row_group_count,
        "unused_bytes": footer.unused_bytes,
        "prev_parquet_meta_file_size": footer.previous_size_bytes,
        "feature_flags": footer.feature_flags,
        "block_offsets": footer.block_offsets.tolist(),
        "bloom_section_end": footer.bloom_section_stop - footer.offset,
        "seq_txn": footer.seq_txn,
        "scratchpad": [_describe_content(entry.code, entry.content) for entry in footer.scratchpad],
        "crc_file_offset": footer.checksum_offset,
        "checksum_stored": footer.checksum,
    }


def _describe_content(code: int, content: bytes) -> dict[str, Any]:
    if len(content) > LONGEST_SHOWN_CONTENT_BYTES:
        return {"code": code, "length": len(content), "crc32": zlib.crc32(content)}
    return {"code": code, "hex": content.hex()}


def _describe_chain(sidecar: Sidecar) -> list[dict[str, Any]]:
    return [
        {"pm_size": footer.size_bytes, "open": "ok", "checksum": "ok", "footer": _describe_footer(footer)}
        for footer in verify_chain(sidecar)
    ]
