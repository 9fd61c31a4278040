"""A local partition as it is before an update: its committed snapshot, its footer, and how its columns are stored."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.catalog.partition_location import DATA_FILE, SIDECAR_FILE
from coldparquet.decode.arrow_schema import DICTIONARY_TYPE, TEXT_AS_STORED, arrow_type
from coldparquet.errors import FormatError, NotFoundError, UnsupportedError
from coldparquet.format.footer_fetch import FooterFetch
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.parquet_footer_rewrite import FooterBytes
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.type_codes import TypeTag, is_decimal
from coldparquet.storage.local.errors import translated_errors
from coldparquet.write.stored_blooms import sidecar_content_of_file
from coldparquet.write.stored_columns import StoredColumn, decimal_of_width, with_symbols

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.write.local_files import FileOperations

_FOOTER_GUESS_BYTES = 64 * 1024
_NEW_SIDECAR = "._pm.coldparquet"
"""Name of a sidecar that is being written; it becomes one by being renamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingPartition:
    """What an update starts from."""

    directory: str
    data_path: str
    sidecar_path: str
    data_bytes: int
    """Length of the Parquet file, dead bytes of an update that was cut off included: here the new bytes go."""
    sidecar_file: bytes
    sidecar: Sidecar
    """The committed snapshot."""
    footer: FooterBytes
    """The footer that this snapshot describes."""
    columns: tuple[StoredColumn, ...]

    @property
    def timestamp(self) -> int | None:
        """Index of the designated timestamp."""
        return self.sidecar.designated_timestamp

    @property
    def ascii_columns(self) -> tuple[int, ...]:
        """Indexes of the columns of which the sidecar promises that all values are ASCII."""
        return tuple(index for index, column in enumerate(self.sidecar.columns) if column.is_ascii)

    def time_bounds(self) -> list[tuple[int, int] | None]:
        """Return the first and the last designated timestamp of each row group.

        None for row groups without rows, and for all where there is no designated timestamp.

        Raises:
            UnsupportedError: They are not known, so nobody can tell where rows belong.
        """
        has_rows = self.sidecar.row_counts > 0
        if self.timestamp is None:
            return [None] * len(has_rows)
        chunks = self.sidecar.chunks(self.timestamp)
        if not (chunks.min.inlined & chunks.max.inlined)[has_rows].all():
            raise UnsupportedError(
                "some row groups have no bounds of the designated timestamp, so the order of the rows cannot be kept;"
                " write a new partition directory",
                kind="UnknownOrder",
                path=self.sidecar_path,
            )
        firsts, lasts = chunks.min.raw.view(np.int64).tolist(), chunks.max.raw.view(np.int64).tolist()
        triples = zip(has_rows.tolist(), firsts, lasts, strict=True)
        return [(first, last) if is_there else None for is_there, first, last in triples]


def read_partition(
    directory: str,
    *,
    committed_parquet_bytes: int | None,
    symbols: Mapping[str, Sequence[str] | pa.Array[Any]],
    files: FileOperations,
) -> ExistingPartition:
    """Read what an update must know, and write the sidecar first where there is none.

    Without a sidecar the file's end says which footer counts, and while an update is under way there is none at the end.

    Args:
        directory: The partition directory, locked.
        committed_parquet_bytes: Size of the Parquet file that the table's ``_txn`` states; None takes the newest snapshot
            that the sidecar has committed.
        symbols: By SYMBOL column, all symbols of the table in the order of their keys.
        files: How to write.

    Raises:
        NotFoundError: There is no Parquet file.
        FormatError: Sidecar or footer are damaged, or the file is shorter than the snapshot says.
        UnsupportedError: It has columns or an order that an update in place cannot continue.
    """
    data_path, sidecar_path = f"{directory}/{DATA_FILE}", f"{directory}/{SIDECAR_FILE}"
    with translated_errors(data_path, None):
        data_bytes = Path(data_path).stat().st_size
    try:
        with translated_errors(sidecar_path, None):
            sidecar_file = Path(sidecar_path).read_bytes()
    except NotFoundError:
        derived = _read_footer(data_path, committed_parquet_bytes)
        sidecar_file = encode_sidecar(sidecar_content_of_file(data_path, _parsed(derived)))
        _write_sidecar(directory, sidecar_file, files)
    sidecar = parse_sidecar(sidecar_file, parquet_size_bytes=committed_parquet_bytes, path=sidecar_path)
    if data_bytes < sidecar.parquet_size_bytes:
        raise FormatError(
            f"the file has {data_bytes:,} bytes, its sidecar describes {sidecar.parquet_size_bytes:,}; restore it",
            kind="Truncated",
            path=data_path,
            offset=data_bytes,
        )
    footer = _read_footer(data_path, sidecar.parquet_size_bytes)
    _check_order(sidecar)
    columns = with_symbols(_stored_columns(sidecar, _parsed(footer)), symbols)
    _check_symbols(sidecar, columns)
    return ExistingPartition(
        directory=directory,
        data_path=data_path,
        sidecar_path=sidecar_path,
        data_bytes=data_bytes,
        sidecar_file=sidecar_file,
        sidecar=sidecar,
        footer=footer,
        columns=columns,
    )


def _read_footer(path: str, size_bytes: int | None) -> FooterBytes:
    fetch = FooterFetch(path=path, suffix_bytes=_FOOTER_GUESS_BYTES, size_bytes=size_bytes)
    with translated_errors(path, None), Path(path).open("rb") as file:
        while (wanted := fetch.next_range) is not None:
            start = _start_of(wanted, os.fstat(file.fileno()).st_size)
            file.seek(start)
            fetch.receive(file.read(wanted.length_bytes), start=start)
    return FooterBytes(content=fetch.footer, offset=fetch.footer_offset, path=path)


def _start_of(wanted: ByteRange | SuffixRange, file_bytes: int) -> int:
    return getattr(wanted, "start", max(0, file_bytes - wanted.length_bytes))


def _parsed(footer: FooterBytes) -> ParquetFooter:
    return parse_footer(footer.content, path=footer.path, offset=footer.offset)


def _write_sidecar(directory: str, content: bytes, files: FileOperations) -> None:
    path = f"{directory}/{_NEW_SIDECAR}"
    if os.path.lexists(path):
        files.unlink(path)  # left by an update that was cut off
    files.create(path)
    files.write_at(path, 0, content)
    files.flush(path)
    files.rename(path, f"{directory}/{SIDECAR_FILE}")
    files.flush_directory(directory)


def _check_order(sidecar: Sidecar) -> None:
    timestamp = sidecar.designated_timestamp
    if sidecar.sorting_columns not in {(), (timestamp,)} or any(
        sidecar.column(index).descending for index in sidecar.sorting_columns
    ):
        raise UnsupportedError(
            "its rows are sorted otherwise than by the ascending designated timestamp, and an update would not keep that"
            " order; write a new partition directory",
            kind="UnsupportedOrder",
            path=sidecar.path,
        )


def _stored_columns(sidecar: Sidecar, footer: ParquetFooter) -> tuple[StoredColumn, ...]:
    columns = []
    for index, leaf in enumerate(footer.leaves):
        descriptor, type_ = sidecar.column(index), sidecar.column_type(index)
        if leaf.max_rep_level or leaf.physical_type is PhysicalType.INT96:
            raise _unsupported(sidecar, leaf.name, "it is stored as a nested list or as INT96")
        storage: Any = arrow_type(type_, text=TEXT_AS_STORED)
        if is_decimal(type_.tag):
            if leaf.physical_type is not PhysicalType.FIXED_LEN_BYTE_ARRAY:
                raise _unsupported(sidecar, leaf.name, "its decimals are stored in another form than ours")
            storage = decimal_of_width(leaf.fixed_byte_length, type_.arrow.scale)
        elif type_.tag is TypeTag.ARRAY:
            storage = pa.binary()
        columns.append(
            StoredColumn(
                name=leaf.name,
                type_code=descriptor.type_code,
                id=leaf.field_id,
                storage=DICTIONARY_TYPE if type_.tag is TypeTag.SYMBOL else storage,
                is_required=leaf.max_def_level == 0,
            )
        )
    return tuple(columns)


def _check_symbols(sidecar: Sidecar, columns: Sequence[StoredColumn]) -> None:
    for index, column in enumerate(columns):
        if sidecar.column(index).local_key_is_global and column.symbols is None:
            raise _unsupported(
                sidecar, column.name, "its dictionaries have the keys of the table's symbols, so pass them as symbols"
            )


def _unsupported(sidecar: Sidecar, column: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"column {column!r} cannot be updated in place: {why}; or write a new partition directory",
        kind="UnsupportedUpdate",
        path=sidecar.path,
        field=column,
    )
