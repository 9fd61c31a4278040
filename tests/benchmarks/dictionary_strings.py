"""A text column of 500 distinct values, read as plain strings and as dictionaries: time, and bytes of the Arrow result.

    python tests/benchmarks/dictionary_strings.py

10 million rows, 1 % of them null, pages of 20,000 rows, in a file on this machine's disk. "decode" is from the fetched bytes
of each row group to Arrow, one row group after the other on one thread; "scan" is a whole scan with its threads, which
ends in one table. pyarrow reads the same file, plain and with its own ``read_dictionary``. Medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.decode.arrow import TextAs
from coldparquet.decode.row_group import decode_row_group
from coldparquet.decode.virtual_file import new_row_group_buffer
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.plan.columns import TableColumn
from coldparquet.plan.model import StoredData
from coldparquet.plan.row_groups import prune_row_groups, stored_columns

if TYPE_CHECKING:
    from collections.abc import Callable

DISTINCT_VALUES = 500
NULL_SHARE = 0.01
ROWS_PER_PAGE = 20_000
StringsAs = Literal["dictionary", "string"]


def write_strings(path: Path, *, rows: int, row_group_rows: int) -> None:
    """Write the column: words of 10 to 26 bytes, in random order."""
    random = np.random.default_rng(1)
    words = pa.array([f"venue-{number:03}-{'x' * (number % 17)}" for number in range(DISTINCT_VALUES)])
    schema = pa.schema([("venue", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd", max_rows_per_page=ROWS_PER_PAGE) as writer:
        for start in range(0, rows, row_group_rows):
            count = min(row_group_rows, rows - start)
            indices: Any = pa.array(
                random.integers(0, DISTINCT_VALUES, count, dtype=np.int32), mask=random.random(count) < NULL_SHARE
            )
            writer.write_table(pa.table({"venue": words.take(indices)}), row_group_size=row_group_rows)


class Decoding:
    """The row groups of a file, with their bytes at hand."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        footer_bytes = int.from_bytes(content[-8:-4], "little")
        offset = len(content) - 8 - footer_bytes
        footer = parse_footer(content[offset:-8], path=str(path), offset=offset)
        self._sidecar = parse_sidecar(encode_sidecar(sidecar_content_from_footer(footer)), path=str(path))
        pruned = prune_row_groups(
            self._sidecar,
            output_columns=[0],
            predicate=None,
            predicate_columns={},
            options=cp.ReadOptions(),
        )
        stored = stored_columns(self._sidecar, [0])
        data = StoredData(decoder="parquet", path=str(path), columns=stored, places={0: 0})
        self._reads = pruned.reads_of(slice(0, self._sidecar.row_group_count), data, partition_index=0)
        self._buffers = []
        for read in self._reads:
            buffer = new_row_group_buffer(read)
            for start, stop, place in zip(read.piece_starts, read.piece_stops, read.buffer_offsets, strict=True):
                buffer.place(int(place), memoryview(content)[start:stop])
            self._buffers.append(buffer)

    def decode(self, strings: StringsAs) -> list[pa.Table]:
        column = TableColumn(index=0, name="venue", id=-1, type=self._sidecar.column_type(0))
        text = TextAs(symbols="dictionary", strings=strings)
        return [
            decode_row_group(buffer, read, [column], text=text, check_page_checksums=True)
            for buffer, read in zip(self._buffers, self._reads, strict=True)
        ]


def _scan(path: Path, strings: StringsAs) -> pa.Table:
    async def scan() -> pa.Table:
        async with cp.open_partition(path, options=cp.ReadOptions(strings=strings)) as partition:
            return await partition.scan().to_arrow()

    return asyncio.run(scan())


def _bytes_of(result: list[pa.Table] | pa.Table) -> int:
    tables = result if isinstance(result, list) else [result]
    return sum(table.nbytes for table in tables)


def run(*, rows: int, row_group_rows: int, rounds: int) -> dict[str, dict[str, float]]:
    """Measure every way of reading; return milliseconds and bytes by its name."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data.parquet"
        write_strings(path, rows=rows, row_group_rows=row_group_rows)
        decoding = Decoding(path)
        readers: dict[str, Callable[[], Any]] = {
            "decode, plain": lambda: decoding.decode("string"),
            "decode, dictionary": lambda: decoding.decode("dictionary"),
            "scan, plain": lambda: _scan(path, "string"),
            "scan, dictionary": lambda: _scan(path, "dictionary"),
            "pyarrow, plain": lambda: pq.read_table(path),
            "pyarrow, read_dictionary": lambda: pq.read_table(path, read_dictionary=["venue"]),
        }
        times_s: dict[str, list[float]] = {name: [] for name in readers}
        arrow_bytes: dict[str, int] = {}
        for _ in range(rounds):
            for name, read in readers.items():
                start = time.perf_counter()
                result = read()
                times_s[name].append(time.perf_counter() - start)
                arrow_bytes[name] = _bytes_of(result)
    return {
        name: {"ms": 1000 * statistics.median(times), "arrow_bytes": arrow_bytes[name]}
        for name, times in times_s.items()
    }


def table(results: dict[str, dict[str, float]]) -> str:
    """Lay the results out as Markdown; each way of reading dictionaries is compared with the same one of strings."""
    lines = ["| reader | time | faster | Arrow result | smaller |", "|---|---|---|---|---|"]
    for name, row in results.items():
        plain = results[f"{name.partition(',')[0]}, plain"]
        lines.append(
            f"| {name} | {row['ms']:.0f} ms | {plain['ms'] / row['ms']:.1f}x"
            f" | {row['arrow_bytes'] / 1e6:.1f} MB | {plain['arrow_bytes'] / row['arrow_bytes']:.1f}x |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the column (default 10 million)")
    parser.add_argument("--row-group-rows", type=int, default=1_000_000, help="rows per row group (default 1 million)")
    parser.add_argument("--rounds", type=int, default=5, help="times that each reader reads (default 5)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    arguments = parser.parse_args()
    results = run(rows=arguments.rows, row_group_rows=arguments.row_group_rows, rounds=arguments.rounds)
    print(json.dumps(results, indent=2) if arguments.json else table(results))


if __name__ == "__main__":
    main()
