"""What the tests of decoding share: sparse reads of whole Parquet files through their sidecars, and the genuine files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest

from coldparquet.decode.arrow import StringsAs, SymbolsAs, TextAs
from coldparquet.decode.row_group import decode_row_group
from coldparquet.decode.virtual_file import RowGroupBuffer, new_row_group_buffer
from coldparquet.errors import UnsupportedError
from coldparquet.format.parquet_footer import ParquetFooter
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import SidecarContent, encode_sidecar
from coldparquet.options import ReadOptions
from coldparquet.plan.columns import TableColumn
from coldparquet.plan.model import Read, StoredData
from coldparquet.plan.row_groups import prune_row_groups, stored_columns
from tests.support.parquet_footers import parsed_footer
from tests.support.questdb_tables import PARTITIONS, GoldenPartition


class SparseFile:
    """A Parquet file that is read as a scan would read it: chosen chunks of one row group, and nothing else."""

    def __init__(self, content: bytes, path: str = "data.parquet") -> None:
        self.content = content
        self.path = path
        self.sidecar: Sidecar = parse_sidecar(encode_sidecar(self.content_of_sidecar()), path=path)
        self.names = [column.name for column in self.sidecar.columns]

    def footer(self) -> ParquetFooter:
        return parsed_footer(self.content, path=self.path)

    def content_of_sidecar(self) -> SidecarContent:
        """Return what the sidecar says, for tests that change some of it."""
        return sidecar_content_from_footer(self.footer())

    def plan(self, names: Iterable[str], *, make_constant_columns: bool = False) -> dict[int, Read]:
        """Return what each row group that has rows must fetch, by row group."""
        pruned = prune_row_groups(
            self.sidecar,
            output_columns=[self.names.index(name) for name in names],
            predicate=None,
            predicate_columns={},
            options=ReadOptions(make_constant_columns=make_constant_columns),
        )
        reads = pruned.reads_of(slice(0, self.sidecar.row_group_count), self.data(), partition_index=0)
        return {read.row_group: read for read in reads}

    def data(self) -> StoredData:
        """Return what the reads of this file share: the columns of the table are its own."""
        numbers = range(len(self.names))
        readable = [number for number in numbers if self._is_readable(number)]
        return StoredData(
            decoder="parquet",
            path=self.path,
            columns=stored_columns(self.sidecar, readable),
            places={number: number for number in numbers},
            created_by=self.sidecar.created_by,
            is_writer_known=self.sidecar.is_writer_known,
        )

    def _is_readable(self, number: int) -> bool:
        try:
            self.sidecar.column_type(number)
        except UnsupportedError:
            return False
        return True

    def fill(self, read: Read, content: bytes | None = None) -> RowGroupBuffer:
        """Make the virtual files of one read, with the chunks of this file or of another ``content``."""
        buffer = new_row_group_buffer(read)
        data = memoryview(self.content if content is None else content)
        for start, stop, offset in zip(read.piece_starts, read.piece_stops, read.buffer_offsets, strict=True):
            buffer.place(int(offset), data[start:stop])
        return buffer

    def outputs(self, names: Sequence[str]) -> list[TableColumn]:
        places = [self.names.index(name) for name in names]
        return [
            TableColumn(index=place, name=name, id=-1, type=self.sidecar.column_type(place))
            for name, place in zip(names, places, strict=True)
        ]

    def decode(
        self,
        read: Read,
        names: Sequence[str],
        *,
        symbols: SymbolsAs = "dictionary",
        strings: StringsAs = "string",
        content: bytes | None = None,
        check_page_checksums: bool = True,
    ) -> pa.Table:
        """Decode one read, from the chunks of this file or of another ``content``."""
        return decode_row_group(
            self.fill(read, content),
            read,
            self.outputs(names),
            text=TextAs(symbols=symbols, strings=strings),
            check_page_checksums=check_page_checksums,
        )

    def read(
        self, names: Sequence[str], *, symbols: SymbolsAs = "dictionary", strings: StringsAs = "string"
    ) -> pa.Table:
        """Read all row groups one by one."""
        tables = [self.decode(read, names, symbols=symbols, strings=strings) for read in self.plan(names).values()]
        return pa.concat_tables(tables)


@pytest.fixture(params=PARTITIONS, ids=str)
def golden_partition(request: pytest.FixtureRequest) -> GoldenPartition:
    partition: GoldenPartition = request.param
    return partition


@pytest.fixture(scope="session")
def sparse_file() -> type[SparseFile]:
    return SparseFile
