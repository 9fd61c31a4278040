"""Reads of native partitions, and the symbols that these refer to, as sections and plain data, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.pieces.piece_checks import checked_strings
from coldparquet.pieces.plain_types import plain_type, type_of
from coldparquet.plan.native_read import NativeColumn, NativeFile, NativeRead, NativeSymbol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.format.utf16 import Utf8Strings
    from coldparquet.pieces.sections import SectionReader, SectionWriter


def plain_native_column(column: NativeColumn) -> dict[str, Any]:
    """Return a column of a native partition as plain data."""
    symbol = column.symbol
    return {
        "index": column.index,
        "name": column.name,
        "type": plain_type(column.type),
        "name_txn": column.name_txn,
        "top": column.top,
        "symbol": None if symbol is None else [symbol.count, symbol.name_txn],
    }


def native_column_of(plain: Mapping[str, Any]) -> NativeColumn:
    """Undo :func:`plain_native_column`."""
    symbol = plain["symbol"]
    return NativeColumn(
        index=plain["index"],
        name=plain["name"],
        type=type_of(plain["type"]),
        name_txn=plain["name_txn"],
        top=plain["top"],
        symbol=None if symbol is None else NativeSymbol(count=symbol[0], name_txn=symbol[1]),
    )


def plain_files(reads: Sequence[NativeRead]) -> list[list[Any]]:
    """Return the files of a partition's reads as plain data."""
    return [[file.column, file.role, file.path] for file in reads[0].files]


def add_native_reads(sections: SectionWriter, reads: Sequence[NativeRead]) -> None:
    """Write the reads of one partition, but for its files and itself."""
    sections.add_numbers([read.row_group for read in reads])
    sections.add_numbers([read.first_row for read in reads])
    sections.add_numbers([read.row_count for read in reads])
    sections.add_numbers([int(read.all_rows_match) for read in reads])
    sections.add_numbers([len(read.made_columns) for read in reads])
    sections.add_numbers([column for read in reads for column in read.made_columns])
    # File by file, so that neighbours are alike.
    sections.add_numbers(np.stack([read.starts for read in reads], axis=1).ravel())
    sections.add_numbers(np.stack([read.stops - read.starts for read in reads], axis=1).ravel())


def next_native_reads(
    sections: SectionReader, *, files: Sequence[Sequence[Any]], partition_index: int
) -> tuple[NativeRead, ...]:
    """Undo :func:`add_native_reads`.

    Args:
        sections: At the place where the reads were written.
        files: What :func:`plain_files` returned.
        partition_index: Position of the partition in the plan of the piece.
    """
    shared_files = tuple(NativeFile(column, role, path) for column, role, path in files)
    numbers, first_rows, row_counts, matches = (sections.numbers().tolist() for _ in range(4))
    made_columns = list(sections.lists())
    starts = sections.numbers().reshape(len(shared_files), len(numbers))
    stops = starts + sections.numbers().reshape(len(shared_files), len(numbers))
    return tuple(
        NativeRead(
            partition_index=partition_index,
            row_group=numbers[position],
            first_row=first_rows[position],
            row_count=row_counts[position],
            files=shared_files,
            starts=np.ascontiguousarray(starts[:, position]),
            stops=np.ascontiguousarray(stops[:, position]),
            made_columns=tuple(made_columns[position].tolist()),
            all_rows_match=bool(matches[position]),
        )
        for position in range(len(numbers))
    )


def add_strings(sections: SectionWriter, strings: Utf8Strings) -> None:
    """Write the symbols of a column."""
    sections.add_numbers(strings.offsets.astype(np.int64))
    sections.add_bytes(strings.utf8)


def next_strings(sections: SectionReader) -> Utf8Strings:
    """Undo :func:`add_strings`."""
    offsets = sections.numbers()
    return checked_strings(bytes(sections.bytes()), offsets)
