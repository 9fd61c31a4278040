"""The golden sidecars' specs, in the words of our writer."""

from __future__ import annotations

from typing import Any

from coldparquet.format.sidecar_from_footer import convert_chunk
from coldparquet.format.sidecar_header import ScratchpadEntry
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import BoundSpec, ChunkSpec, ColumnSpec, RowGroupSpec, SidecarContent
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.write.sidecar_update import SidecarChange


def bound_from_spec(spec: dict[str, Any] | None) -> BoundSpec | None:
    if spec is None:
        return None
    value = bytes.fromhex(spec["hex"]) if "hex" in spec else repeated(spec)
    return BoundSpec(value, exact=spec.get("exact", True), place=spec.get("place"))


def repeated(spec: dict[str, Any]) -> bytes:
    pattern = bytes.fromhex(spec["repeat"])
    length: int = spec["length"]
    return (pattern * (length // len(pattern) + 1))[:length]


def chunk_from_spec(spec: dict[str, Any]) -> ChunkSpec:
    bloom, reference = spec.get("bloom"), spec.get("bloom_ref")
    if bloom is not None:
        bloom = repeated(bloom) if isinstance(bloom, dict) else bytes.fromhex(bloom)
    return ChunkSpec(
        codec=spec["codec"],
        encodings=spec["encodings"],
        num_values=spec["num_values"],
        byte_range_start=spec["byte_range_start"],
        total_compressed_bytes=spec["total_compressed"],
        null_count=spec.get("null_count"),
        distinct_count=spec.get("distinct_count"),
        min=bound_from_spec(spec.get("min")),
        max=bound_from_spec(spec.get("max")),
        bloom_bitset=bloom,
        bloom_reference=None if reference is None else ByteRange(reference[0], sum(reference)),
    )


def chunk_from_thrift(spec: dict[str, Any]) -> ChunkSpec:
    statistics = spec.get("statistics", {})
    chunk = convert_chunk(
        codec=spec["codec"],
        encodings=spec.get("encodings", ()),
        num_values=spec["num_values"],
        total_compressed=spec.get("total_compressed_size", 0),
        dictionary_page_offset=spec.get("dictionary_page_offset"),
        data_page_offset=spec.get("data_page_offset", 0),
        null_count=statistics.get("null_count"),
        distinct_count=statistics.get("distinct_count"),
        min_value=bytes.fromhex(statistics["min_value"]) if "min_value" in statistics else None,
        max_value=bytes.fromhex(statistics["max_value"]) if "max_value" in statistics else None,
        is_min_exact=statistics.get("is_min_value_exact"),
        is_max_exact=statistics.get("is_max_value_exact"),
    )
    if spec.get("bloom_filter_offset", 0) > 0 and spec.get("bloom_filter_length", 0) > 0:
        chunk = replace(chunk, bloom_bitset=bytes.fromhex(spec["bloom"]))
    return chunk


def row_group_from_spec(spec: dict[str, Any]) -> RowGroupSpec:
    chunks = (
        [chunk_from_thrift(chunk) for chunk in spec["thrift"]]
        if "thrift" in spec
        else [chunk_from_spec(chunk) for chunk in spec["chunks"]]
    )
    return RowGroupSpec(row_count=spec["num_rows"], chunks=chunks)


def scratchpad_entry_from_spec(spec: dict[str, Any]) -> ScratchpadEntry:
    return ScratchpadEntry(spec["code"], bytes.fromhex(spec["hex"]) if "hex" in spec else bytes(spec["zeros"]))


def content_from_spec(spec: dict[str, Any]) -> SidecarContent:
    return SidecarContent(
        columns=[
            ColumnSpec(
                name=column["name"],
                id=column["id"],
                type_code=column["type"],
                flags=column["flags"],
                fixed_byte_length=column.get("fixed_byte_len", 0),
                physical_type=PhysicalType(column["physical_type"]),
                max_rep_level=column.get("max_rep_level", 0),
                max_def_level=column.get("max_def_level", 0),
            )
            for column in spec.get("columns", ())
        ],
        row_groups=[row_group_from_spec(row_group) for row_group in spec.get("row_groups", ())],
        parquet_footer_offset=spec.get("parquet_footer", {}).get("offset", 0),
        parquet_footer_length=spec.get("parquet_footer", {}).get("length", 0),
        designated_timestamp=spec.get("designated_timestamp"),
        sorting_columns=spec.get("sorting_columns", ()),
        unused_bytes=spec.get("unused_bytes", 0),
        squash_tracker=spec.get("squash_tracker"),
        seq_txn=spec.get("seq_txn"),
        scratchpad=[scratchpad_entry_from_spec(entry) for entry in spec.get("scratchpad", ())],
        blooms_external=spec.get("bloom_filters_external", False),
    )


def change_from_spec(spec: dict[str, Any]) -> SidecarChange:
    footer, scratchpad = spec.get("parquet_footer", {}), spec.get("scratchpad")
    return SidecarChange(
        replaced={entry["index"]: row_group_from_spec(entry["row_group"]) for entry in spec.get("replace", ())},
        appended=[row_group_from_spec(row_group) for row_group in spec.get("append", ())],
        parquet_footer_offset=footer.get("offset"),
        parquet_footer_length=footer.get("length"),
        unused_bytes=spec.get("unused_bytes"),
        seq_txn=spec.get("seq_txn"),
        scratchpad=None if scratchpad is None else [scratchpad_entry_from_spec(entry) for entry in scratchpad],
    )
