"""Rows into a file, batch by batch: Parquet, CSV or Arrow. The file appears when it is complete, or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from coldparquet.cli.printable import json_rows, printable_batch
from coldparquet.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROW_GROUP_ROWS = 1024 * 1024
_ROW_GROUP_BYTES = 64 * 1024 * 1024
"""A row group is written when either is reached, so that memory stays bounded and row groups useful."""


class RowSink(Protocol):
    """Takes rows until it is closed. Closing completes the format, not the file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch."""
        ...

    def close(self) -> None:
        """Write what the format has at its end."""
        ...


class ParquetSink:
    """Parquet, zstd-compressed, in row groups of a useful size however small the batches are."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep the batch until a row group is full."""
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= _ROW_GROUP_ROWS or self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def close(self) -> None:
        """Write the rest and the footer."""
        if self._waiting:
            self._write_row_group()
        self._writer.close()

    def _write_row_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._waiting_rows or None)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class ArrowSink:
    """The Arrow IPC file format, also known as Feather version 2."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = pa.ipc.new_file(file, schema)  # type: ignore[arg-type]  # the stubs know only IOBase

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the batch."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


class CsvSink:
    """CSV with a header line; a null is an empty field, an empty text is ``""``."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._write(pa.RecordBatch.from_pylist([], schema=schema), include_header=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows."""
        self._write(batch, include_header=False)

    def close(self) -> None:
        """Do nothing: CSV has no end."""

    def _write(self, batch: pa.RecordBatch, *, include_header: bool) -> None:
        text = pa.BufferOutputStream()
        pa.csv.write_csv(printable_batch(batch), text, pa.csv.WriteOptions(include_header=include_header))
        self._file.write(text.getvalue())


class JsonSink:
    """One JSON object per row and line."""

    def __init__(self, file: BinaryIO, _schema: pa.Schema) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows."""
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in json_rows(batch))
        self._file.write("".join(lines).encode())

    def close(self) -> None:
        """Do nothing: lines have no end."""


MakeSink = Callable[[BinaryIO, pa.Schema], RowSink]

SINKS: dict[str, MakeSink] = {
    ".parquet": ParquetSink,
    ".csv": CsvSink,
    ".arrow": ArrowSink,
    ".feather": ArrowSink,
}
"""Formats by the ending of the file name."""


@contextmanager
def file_in_place(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path``; it becomes ``path`` when the block ends well and vanishes when not.

    Raises:
        NotFoundError: The directory does not exist.
    """
    if not path.parent.is_dir():
        raise NotFoundError("the directory for the output does not exist; make it first", path=str(path.parent))
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Temporary files are private; the finished one gets what a plain open would have given it.
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
