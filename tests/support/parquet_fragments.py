"""Parquet files that are updated in place: new row groups by pyarrow behind the old file, and QuestDB's own updates."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.format.footer_edit import (
    FooterBytes,
    KeptRowGroup,
    NewRowGroup,
    SplicedFooter,
    splice_footers,
)
from coldparquet.format.parquet_footer import ParquetFooter, parse_footer
from tests.support.questdb_tables import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Sequence


def footer_bytes(file: bytes) -> FooterBytes:
    length = int.from_bytes(file[-8:-4], "little")
    return FooterBytes(content=file[-8 - length : -8], offset=len(file) - 8 - length, path="data.parquet")


def parsed_footer(file: bytes) -> ParquetFooter:
    raw = footer_bytes(file)
    return parse_footer(raw.content, path=raw.path, offset=raw.offset)


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
