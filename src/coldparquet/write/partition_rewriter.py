"""Writing the rows of a partition again: rows as they are stored in, ``data.parquet`` and ``_pm`` out."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.catalog.partition_location import DATA_FILE, SIDECAR_FILE
from coldparquet.errors import InternalError
from coldparquet.format.file_writer import DERIVED_CODES
from coldparquet.format.page_counts import count_pages, offset_index_span
from coldparquet.format.parquet_footer import frame_footer, parse_footer
from coldparquet.format.parquet_footer_rewrite import FooterBytes
from coldparquet.format.rewritten_footer import rewritten_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.type_codes import TypeTag
from coldparquet.storage.threads import wait_in_thread
from coldparquet.write.local_files import NewFile
from coldparquet.write.parquet_writer import RowGroupWriter
from coldparquet.write.row_groups import TimeOrder, split_rows
from coldparquet.write.stored_blooms import sidecar_content_of_file
from coldparquet.write.stored_pages import write_pages_file
from coldparquet.write.stored_values import stored_table

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Coroutine, Iterator

    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.scanning.batch_stream import BatchStream
    from coldparquet.write.local_files import FileOperations
    from coldparquet.write.options import WriteOptions
    from coldparquet.write.rewrite_source import RewriteSource


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenFiles:
    """What was written for one partition."""

    parquet_size_bytes: int
    sidecar_size_bytes: int
    pages_size_bytes: int | None
    """None unless a ``_pages`` was written."""
    row_group_count: int
    page_count: int | None
    """Data pages; None without a page index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRewriter:
    """Writes the files of one partition into a local directory. Blocks, while the event loop fetches and decodes.

    In memory are the rows that the stream holds, and those of one old and one new row group.
    """

    source: RewriteSource
    stream: BatchStream
    """Its rows as they are stored; open."""
    schema: pa.Schema
    """Of the stream."""
    loop: asyncio.AbstractEventLoop
    """Where the stream lives."""
    options: WriteOptions
    files: FileOperations
    on_rows: Callable[[int], None]
    """Called with the number of rows of each row group that was written, in the event loop."""

    def write(self, directory: str, give_up: threading.Event) -> RewrittenFiles:
        """Write and flush its files.

        Raises:
            InvalidInputError: The rows are not in the order of the designated timestamp (kind ``NotSorted``).
            ColdParquetError: Whatever reading raises.
        """
        data = NewFile(f"{directory}/{DATA_FILE}", self.files)
        footer = self._write_data(data, give_up)
        sidecar = NewFile(f"{directory}/{SIDECAR_FILE}", self.files)
        described = self._encode_sidecar(data.path, footer)
        sidecar.append(described)
        sidecar.flush()
        pages_bytes = write_pages_file(data.path, footer, described, self.files) if self.options.pages else None
        return RewrittenFiles(
            parquet_size_bytes=data.size_bytes,
            sidecar_size_bytes=sidecar.size_bytes,
            pages_size_bytes=pages_bytes,
            row_group_count=len(footer.row_groups),
            page_count=_count_pages(data.path, footer),
        )

    def copy(self, path: str, pieces: Iterator[Coroutine[Any, Any, bytes]], give_up: threading.Event) -> None:
        """Write and flush one more file, whose pieces come one after the other."""
        file = NewFile(path, self.files)
        for piece in pieces:
            file.append(wait_in_thread(piece, self.loop, give_up))
        file.flush()

    def _write_data(self, data: NewFile, give_up: threading.Event) -> ParquetFooter:
        source, timestamp = self.source, self.source.timestamp
        order, row_count = TimeOrder(), 0
        with RowGroupWriter(
            data.append, start=0, columns=source.columns, options=self.options, sorted_by=timestamp
        ) as writer:
            batches = self._batches(give_up)
            for group in split_rows(self.schema, batches, row_group_rows=self.options.row_group_rows):
                if give_up.is_set():
                    raise asyncio.CancelledError
                stored = self._stored(group)
                if timestamp is not None:
                    order.check(stored.column(timestamp))
                writer.write(stored)
                row_count += group.num_rows
                self.loop.call_soon_threadsafe(self.on_rows, group.num_rows)
            written = writer.finish(source.questdb_json or "{}")
        before = source.footer
        if row_count != before.parsed.row_count:
            raise InternalError(f"{row_count} of {before.parsed.row_count} rows were written", path=data.path)
        content = rewritten_footer(
            FooterBytes(content=written.content, offset=written.offset, path=data.path),
            before.stored,
            questdb_json=source.questdb_json,
        )
        data.append(frame_footer(content))
        data.flush()
        return parse_footer(content, path=data.path, offset=written.offset)

    def _batches(self, give_up: threading.Event) -> Iterator[pa.RecordBatch]:
        while (rows := wait_in_thread(self.stream.next_row_group(), self.loop, give_up)) is not None:
            yield from rows.to_batches()

    def _stored(self, rows: pa.Table) -> pa.Table:
        """Convert rows to what the Parquet writer takes; byte strings that hold arrays are that already."""
        columns = self.source.columns
        is_raw = [
            column.tag is TypeTag.ARRAY and pa.types.is_binary(rows.schema.field(column.name).type)
            for column in columns
        ]
        converted = stored_table(rows, [column for column, raw in zip(columns, is_raw, strict=True) if not raw])
        arrays = [
            rows.column(column.name).combine_chunks() if raw else converted.column(column.name)
            for column, raw in zip(columns, is_raw, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=pa.schema([column.arrow_field() for column in columns]))

    def _encode_sidecar(self, data_path: str, footer: ParquetFooter) -> bytes:
        content, inherited = sidecar_content_of_file(data_path, footer), self.source.inherited
        tokens = [entry for entry in inherited.scratchpad if entry.code not in DERIVED_CODES]
        return encode_sidecar(
            replace(
                content,
                squash_tracker=inherited.squash_tracker,
                seq_txn=inherited.seq_txn,
                scratchpad=[*content.scratchpad, *tokens],
            )
        )


def _count_pages(path: str, footer: ParquetFooter) -> int | None:
    span = offset_index_span(footer)
    if span is None:
        return None
    with Path(path).open("rb") as file:
        return count_pages(footer, os.pread(file.fileno(), span.length_bytes, span.start), span)
