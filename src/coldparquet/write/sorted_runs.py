"""Rows in any order -> rows in time order, in bounded memory: sorted runs on the local disk, merged when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyarrow import ipc

from coldparquet.storage.local.errors import translated_errors
from coldparquet.write.sorted_merge import merge_sorted, sorted_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_RUN_BATCH_ROWS = 16_384
_RUN_BATCH_BYTES = 1024 * 1024
"""A merge holds a batch of each run in memory, so that wide rows make short batches."""

_MOST_RUNS = 64
"""So many runs are merged into one: each is an open file and a batch in memory."""

_CODEC: Literal["lz4"] = "lz4"


class SortedRuns:
    """Collects rows and gives them back in ascending order of the timestamp, equal ones in the order in which they came.

    Args:
        directory: Of the local disk, for runs that do not fit into memory; whoever made it removes it.
        timestamp: Name of the column to sort by, which is never null.
        memory_limit_bytes: Rows of about this size are held in memory; sorting them takes as much once more.
    """

    def __init__(self, directory: str, *, timestamp: str, memory_limit_bytes: int) -> None:
        self._directory = directory
        self._timestamp = timestamp
        self._memory_limit_bytes = memory_limit_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._runs: list[str] = []
        self._run_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, all of one schema."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._memory_limit_bytes:
            self._write_run(self._take_waiting())

    def merged(self) -> Iterator[pa.RecordBatch]:
        """Return all rows in order; nothing is added after that."""
        streams: list[Iterable[pa.RecordBatch]] = [read_run(path) for path in self._runs]
        if self._waiting:
            streams.append(self._take_waiting())
        return merge_sorted(streams, timestamp=self._timestamp)

    def _take_waiting(self) -> list[pa.RecordBatch]:
        table = sorted_rows(self._waiting, timestamp=self._timestamp)
        self._waiting, self._waiting_bytes = [], 0
        return table.to_batches()

    def _write_run(self, batches: Iterable[pa.RecordBatch]) -> None:
        if len(self._runs) == _MOST_RUNS:
            older = [read_run(path) for path in self._runs]
            merged = self._next_path()
            write_run(merged, merge_sorted(older, timestamp=self._timestamp))
            for path in self._runs:
                Path(path).unlink()
            self._runs = [merged]
        path = self._next_path()
        write_run(path, batches)
        self._runs.append(path)

    def _next_path(self) -> str:
        self._run_count += 1
        return f"{self._directory}/{self._run_count}.run"


class RunWriter:
    """Writes rows to a local file, in pieces that are small enough for a merge of many. Blocks.

    Args:
        path: The file; it is made or emptied.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with translated_errors(path, None):
            self._file = pa.OSFile(path, "wb")
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the next rows, all of one schema."""
        with translated_errors(self._path, None):
            if self._writer is None:
                options = ipc.IpcWriteOptions(compression=_CODEC)
                self._writer = ipc.new_stream(self._file, batch.schema, options=options)
            fitting_rows = batch.num_rows * _RUN_BATCH_BYTES // max(batch.nbytes, 1)
            step = max(1, min(fitting_rows, _RUN_BATCH_ROWS))
            for start in range(0, batch.num_rows, step):
                self._writer.write_batch(batch.slice(start, step))

    def close(self) -> None:
        """End the file."""
        with translated_errors(self._path, None), self._file:
            if self._writer is not None:
                self._writer.close()


def write_run(path: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Write rows to a local file; see :class:`RunWriter`."""
    run = RunWriter(path)
    try:
        for batch in batches:
            run.write(batch)
    finally:
        run.close()


def read_run(path: str) -> Iterator[pa.RecordBatch]:
    """Read the rows of a run, batch by batch; none of a file without any. Blocks."""
    with translated_errors(path, None):
        if not Path(path).stat().st_size:
            return
        with pa.OSFile(path, "rb") as file, ipc.open_stream(file) as reader:
            yield from reader
