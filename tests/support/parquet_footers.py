"""Parquet files in memory, and those whose footers are changed: updated in place, or lying about values."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.format.parquet_footer import ParquetFooter, parse_footer
from coldparquet.format.parquet_thrift import ColumnChunk, ColumnIndex, FileMetaData, OffsetIndex
from coldparquet.write.footer_edit import FooterBytes, KeptRowGroup, NewRowGroup, SplicedFooter, splice_footers
from tests.support.questdb_tables import GOLDEN


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    """Write a table as pyarrow writes it."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


# --- Parquet files that are updated in place: new row groups by pyarrow behind the old file, and QuestDB's own
# updates


def footer_bytes(file: bytes) -> FooterBytes:
    length = int.from_bytes(file[-8:-4], "little")
    return FooterBytes(content=file[-8 - length : -8], offset=len(file) - 8 - length, path="data.parquet")


def parsed_footer(file: bytes, *, path: str | None = "data.parquet") -> ParquetFooter:
    raw = footer_bytes(file)
    return parse_footer(raw.content, path=path, offset=raw.offset)


class _Sink(io.RawIOBase):
    """Keeps what is written, unless told to throw it away."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = bytearray()
        self.is_keeping = True

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.is_keeping:
            self.kept += data
        return memoryview(data).nbytes


def written_at(start: int, table: pa.Table, **options: Any) -> bytes:
    """Write two row groups and a footer, to be placed at ``start`` of a file; at 0 it is a whole file."""
    sink = _Sink()
    # pyarrow counts the bytes of a stream itself, so a stream gets to another position only by writing.
    stream = pa.PythonFile(sink, mode="w")
    metadata = options.pop("metadata", {})
    with pq.ParquetWriter(stream, table.schema, store_schema=False, **options) as writer:
        if start:
            sink.kept.clear()
            sink.is_keeping = False
            stream.write(bytes(start - stream.tell()))
            sink.is_keeping = True
        writer.add_key_value_metadata(metadata)
        writer.write_table(table, row_group_size=table.num_rows // 2)
    return bytes(sink.kept)


def appended_to(
    file: bytes, table: pa.Table, order: Sequence[KeptRowGroup | NewRowGroup], **options: Any
) -> tuple[bytes, SplicedFooter]:
    """Append a table of two row groups to a file."""
    placed = file + written_at(len(file), table, **options)
    spliced = splice_footers(footer_bytes(file), footer_bytes(placed), order)
    return placed[: spliced.offset] + spliced.tail, spliced


def snapshots_of_updates() -> dict[str, list[bytes]]:
    """Return the files that QuestDB updated in place, by partition: each as it was at every snapshot, oldest first."""
    table = GOLDEN / "o3_in_place"
    answers = [*sorted((table / "expected" / "snapshots").iterdir()), table / "expected"]
    listings = [json.loads((answer / "partitions.json").read_text()) for answer in answers]
    found = {}
    for partition in [entry["name"] for entry in listings[0] if entry["isParquet"]]:
        (path,) = (table / "table").glob(f"{partition}.*/data.parquet")
        data = path.read_bytes()
        sizes = [entry["parquetFileSize"] for listing in listings for entry in listing if entry["name"] == partition]
        found[partition] = [data[:size] for size in dict.fromkeys(sizes)]
    return found


# --- Parquet files whose metadata was changed afterwards: page indexes and bloom filters that lie ---------------------


_FRAME_BYTES = 8
"""Length of the footer and magic bytes, at the end of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkIndexes:
    """What a file says of the pages of one column chunk; change it in place."""

    row_group: int
    column: int
    row_count: int
    """Rows of the row group."""
    offsets: OffsetIndex
    bounds: ColumnIndex


def with_changed_indexes(file: bytes, change: Callable[[ChunkIndexes], None]) -> bytes:
    """Return the file with its page indexes changed, and everything else as it was.

    Args:
        file: A file whose chunks all have both indexes.
        change: Is called with those of every chunk, in file order.
    """
    footer_start, footer = _footer(file)
    tail = b""
    for row_group_number, row_group in enumerate(footer.row_groups):
        for column_number, chunk in enumerate(row_group.columns):
            indexes = ChunkIndexes(
                row_group=row_group_number,
                column=column_number,
                row_count=row_group.num_rows,
                offsets=OffsetIndex.decode(_located(file, chunk.offset_index_offset), path=None, offset=0),
                bounds=ColumnIndex.decode(_located(file, chunk.column_index_offset), path=None, offset=0),
            )
            change(indexes)
            encoded = indexes.offsets.encode()
            chunk.offset_index_offset, chunk.offset_index_length = footer_start + len(tail), len(encoded)
            tail += encoded
            encoded = indexes.bounds.encode()
            chunk.column_index_offset, chunk.column_index_length = footer_start + len(tail), len(encoded)
            tail += encoded
    return file[:footer_start] + tail + _framed(footer)


def with_changed_chunks(file: bytes, change: Callable[[ColumnChunk], None]) -> bytes:
    """Return the file with what its footer says of column chunks changed.

    Args:
        file: The file.
        change: Is called with every chunk, in file order.
    """

    def change_chunks(footer: FileMetaData) -> None:
        for row_group in footer.row_groups:
            for chunk in row_group.columns:
                change(chunk)

    return with_changed_footer(file, change_chunks)


def with_changed_footer(file: bytes, change: Callable[[FileMetaData], None]) -> bytes:
    """Return the file with its footer changed in place, and everything before it as it was."""
    footer_start, footer = _footer(file)
    change(footer)
    return file[:footer_start] + _framed(footer)


def _footer(file: bytes) -> tuple[int, FileMetaData]:
    start = len(file) - _FRAME_BYTES - int.from_bytes(file[-_FRAME_BYTES:-4], "little")
    return start, FileMetaData.decode(file[start:-_FRAME_BYTES], path=None, offset=start)


def _framed(footer: FileMetaData) -> bytes:
    content = footer.encode()
    return content + len(content).to_bytes(4, "little") + b"PAR1"


def _located(file: bytes, start: int | None) -> bytes:
    assert start, "the chunk has no page index"
    return file[start:]
