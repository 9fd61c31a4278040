"""Encodes a piece as bytes and back: a frame, a JSON document, and sections of bytes and numbers after it.

The document holds what is small: table, options, columns, predicate, and for each share its path, version and request
shape. There may be many columns and Parquet partitions, so these are lists of fields in a fixed order, and each type
and shape occurs once. A native partition is an object with names. Then follow the dictionaries, the reads of all
Parquet partitions (see :mod:`coldparquet.pieces.plain`) and, share by share, its sidecar and any pages; for a native
partition, its reads. No object is pickled, and nothing is a secret.

The sidecar is cut down to what a piece decodes: some row groups, some columns, and hardly any statistics. It is a
sidecar like any other, so the code that decodes a table also decodes a piece. Cut is what only planning needs: bloom
filters, and minima and maxima except for chunks that are made from them.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from coldparquet.catalog.table_files import TableMoment
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.parquet_footer import writer_entry
from coldparquet.format.partition_records import PartitionRecord
from coldparquet.format.sidecar_header import ScratchpadEntry
from coldparquet.format.sidecar_writer import ColumnSpec, FooterSpec, SidecarContent, encode_footer, encode_header
from coldparquet.format.types import FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations
from coldparquet.options import Coalescing, ReadOptions
from coldparquet.pieces.checks import check_types, refuses_nonsense
from coldparquet.pieces.frame import (
    NativeShare,
    ParquetShare,
    PieceContent,
    PieceNumbers,
    RequestShape,
    SectionReader,
    SectionWriter,
    damaged_piece,
    frame_content,
    unframe_content,
)
from coldparquet.pieces.plain import (
    add_native_reads,
    add_pages,
    add_reads,
    add_strings,
    column_of,
    field_values,
    made_of,
    native_column_of,
    next_native_reads,
    next_pages,
    next_reads,
    next_strings,
    plain_column,
    plain_files,
    plain_native_column,
    plain_predicate,
    plain_type,
    predicate_of,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_header import ColumnDescriptor
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.model import RowGroupRead


T = TypeVar("T", bound="Hashable")

_DOCUMENT = (
    "table",
    "numbers",
    "options",
    "types",
    "columns",
    "output_columns",
    "predicate",
    "predicate_text",
    "late_part_bytes",
    "symbols",
    "dictionaries",
    "moment",
    "shapes",
    "shares",
)
"""The fields of the document, in order: names would take a tenth of a small piece."""

_OF_THE_DRIVER = frozenset(
    {"prices", "restore", "archived", "check_storage_classes", "columns_from", "sidecars", "unread"}
)
"""Options that only matter before the first piece is made."""


def encode_piece(content: PieceContent, numbers: PieceNumbers) -> bytes:
    """Encode a piece."""
    shapes = _numbered(share.shape for share in content.shares)
    types = _numbered(column.readable_type for column in content.columns)
    document = {
        "table": content.table,
        "numbers": field_values(numbers),
        "options": _plain_options(content.options),
        "types": [plain_type(column_type) for column_type in types],
        "columns": [plain_column(column, types) for column in content.columns],
        "output_columns": content.output_column_count,
        "predicate": None if content.predicate is None else plain_predicate(content.predicate),
        "predicate_text": content.predicate_text,
        "late_part_bytes": content.late_part_bytes,
        "symbols": {str(index): list(symbols) for index, symbols in content.symbols.items()},
        "dictionaries": len(content.dictionaries),
        "moment": None if content.moment is None else asdict(content.moment),
        "shapes": [_plain_shape(shape) for shape in shapes],
        "shares": [
            _plain_native_share(share, shapes) if isinstance(share, NativeShare) else _plain_share(share, shapes)
            for share in content.shares
        ],
    }
    sections = SectionWriter()
    sections.add_bytes(
        json.dumps([document[name] for name in _DOCUMENT], separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
    )
    for strings in content.dictionaries:
        add_strings(sections, strings)
    in_parquet = [share for share in content.shares if isinstance(share, ParquetShare)]
    add_reads(sections, [read for share in in_parquet for read in share.reads])
    for share in content.shares:
        if isinstance(share, NativeShare):
            add_native_reads(sections, share.reads)
            continue
        sections.add_bytes(share.sidecar)
        if share.pages is not None:
            add_pages(sections, share.pages)
    return frame_content(sections.finish())


def decode_numbers(data: bytes) -> tuple[str, PieceNumbers]:
    """Return the table of a piece and the numbers given to :func:`encode_piece`. Raises like :func:`decode_piece`."""
    document = _document(SectionReader(unframe_content(data)))
    with refuses_nonsense():
        numbers = made_of(PieceNumbers, document["numbers"])
        check_types(numbers)
        return str(document["table"]), numbers


def decode_piece(data: bytes) -> PieceContent:
    """Decode a piece."""
    sections = SectionReader(unframe_content(data))
    document = _document(sections)
    with refuses_nonsense():
        content = _content(document, sections)
        check_types(content)
    sections.finish()
    return content


def _document(sections: SectionReader) -> Mapping[str, Any]:
    try:
        document = json.loads(bytes(sections.bytes()).decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise damaged_piece(f"its document is no JSON ({error})") from error
    if not isinstance(document, list) or len(document) != len(_DOCUMENT):
        raise damaged_piece(f"its document is no JSON list of {len(_DOCUMENT)} values")
    return dict(zip(_DOCUMENT, document, strict=True))


def _content(document: Mapping[str, Any], sections: SectionReader) -> PieceContent:
    types = [type_of(column_type) for column_type in document["types"]]
    columns = tuple(column_of(column, types) for column in document["columns"])
    by_index = {column.index: column for column in columns}
    predicate, moment = document["predicate"], document["moment"]
    dictionaries = tuple(next_strings(sections) for _ in range(document["dictionaries"]))
    shapes = [_shape(shape) for shape in document["shapes"]]
    reads: dict[int, list[RowGroupRead]] = defaultdict(list)
    for read in next_reads(sections):
        reads[read.partition_index].append(read)
    return PieceContent(
        table=document["table"],
        options=ReadOptions(**document["options"], check_storage_classes=False),
        columns=columns,
        output_column_count=document["output_columns"],
        predicate=None if predicate is None else predicate_of(predicate, by_index),
        predicate_text=document["predicate_text"],
        late_part_bytes=document["late_part_bytes"],
        symbols={int(index): tuple(symbols) for index, symbols in document["symbols"].items()},
        dictionaries=dictionaries,
        moment=None if moment is None else TableMoment(**moment),
        shares=tuple(
            _native_share(share, shapes, number, sections)
            if isinstance(share, dict)
            else _share(share, shapes, tuple(reads[number]), sections)
            for number, share in enumerate(document["shares"])
        ),
    )


def _numbered(values: Iterable[T]) -> dict[T, int]:
    """Number the distinct values in order of appearance."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def _plain_options(options: ReadOptions) -> dict[str, Any]:
    """Return the options that differ from the defaults."""
    defaults = ReadOptions()
    names = [field.name for field in fields(ReadOptions) if field.name not in _OF_THE_DRIVER]
    return {name: getattr(options, name) for name in names if getattr(options, name) != getattr(defaults, name)}


def _plain_share(share: ParquetShare, shapes: Mapping[RequestShape, int]) -> list[Any]:
    return [
        share.name,
        share.data_path,
        share.metadata_source,
        share.etag,
        share.pages_etag,
        share.may_grow,
        share.places,
        None if share.pages is None else [share.pages.row_group_count, share.pages.column_count],
        shapes[share.shape],
    ]


def _share(
    plain: Sequence[Any],
    shapes: Sequence[RequestShape],
    reads: tuple[RowGroupRead, ...],
    sections: SectionReader,
) -> ParquetShare:
    name, data_path, metadata_source, etag, pages_etag, may_grow, places, page_counts, shape = plain
    sidecar, pages = bytes(sections.bytes()), None
    if page_counts is not None:
        row_group_count, column_count = page_counts
        pages = next_pages(sections, row_group_count=row_group_count, column_count=column_count)
    return ParquetShare(
        name=name,
        data_path=data_path,
        metadata_source=metadata_source,
        etag=etag,
        pages_etag=pages_etag,
        may_grow=may_grow,
        sidecar=sidecar,
        places=tuple(places),
        pages=pages,
        shape=shapes[shape],
        reads=reads,
    )


def _plain_native_share(share: NativeShare, shapes: Mapping[RequestShape, int]) -> dict[str, Any]:
    return {
        "name": share.name,
        "data_path": share.data_path,
        "record": asdict(share.record),
        "columns": [plain_native_column(column) for column in share.columns],
        "dictionaries": {str(index): position for index, position in share.dictionaries.items()},
        "files": plain_files(share.reads),
        "shape": shapes[share.shape],
    }


def _native_share(
    plain: Mapping[str, Any], shapes: Sequence[RequestShape], number: int, sections: SectionReader
) -> NativeShare:
    return NativeShare(
        name=plain["name"],
        data_path=plain["data_path"],
        record=PartitionRecord(**plain["record"]),
        columns=tuple(native_column_of(column) for column in plain["columns"]),
        dictionaries={int(index): position for index, position in plain["dictionaries"].items()},
        shape=shapes[plain["shape"]],
        reads=next_native_reads(sections, files=plain["files"], partition_index=number),
    )


def _plain_shape(shape: RequestShape) -> list[Any]:
    return [field_values(shape.coalescing), shape.part_bytes, field_values(shape.late_coalescing)]


def _shape(plain: Sequence[Any]) -> RequestShape:
    coalescing, part_bytes, late_coalescing = plain
    return RequestShape(
        coalescing=made_of(Coalescing, coalescing),
        part_bytes=part_bytes,
        late_coalescing=made_of(Coalescing, late_coalescing),
    )


_BOUND_FLAGS = layout.STAT_PRESENT | layout.STAT_INLINED | layout.STAT_EXACT
_BOTH_BOUND_FLAGS = _BOUND_FLAGS | _BOUND_FLAGS << layout.STAT_MAX_SHIFT
_PACKED_WORD = 0
_STAT_FLAGS_BYTE = layout.COLUMN_CHUNK.offset("stat_flags")
_STAT_SIZES_BYTE = layout.COLUMN_CHUNK.offset("stat_sizes")
_WITHOUT_BOUNDS = np.uint64(
    0xFFFF_FFFF_FFFF_FFFF ^ (_BOTH_BOUND_FLAGS << 8 * _STAT_FLAGS_BYTE | 0xFF << 8 * _STAT_SIZES_BYTE)
)
"""The bits of a packed word that are not about bounds: codec, encodings, and which counts are known."""

_BOUND_WORDS = (6, 7)


class SidecarReducer:
    """Cuts down the sidecars of a table. Most have the same header, which is made once for all of them."""

    def __init__(self) -> None:
        self._headers: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        """By the bytes of the whole header and the kept columns: the new header, padded for a block."""

    def reduce(
        self, sidecar: Sidecar, *, columns: tuple[int, ...], row_groups: IntArray, keeps_bounds: BoolArray
    ) -> bytes:
        """Write a sidecar with some row groups and columns of another one, for the same Parquet file."""
        file = bytearray(self._header(sidecar, columns))
        words = _block_words(sidecar, columns, row_groups, keeps_bounds)
        out_of_line = _move_long_bounds(sidecar, columns, row_groups, keeps_bounds, words)
        block_offsets = []
        for number, block in enumerate(words):
            block_offsets.append(len(file))
            file += block.tobytes()
            file += out_of_line.get(number, b"")
        file += encode_footer(
            FooterSpec(
                parquet_footer_offset=sidecar.footer.parquet_footer_offset,
                parquet_footer_length=sidecar.footer.parquet_footer_length,
                scratchpad=_notes(sidecar, columns),
            ),
            block_offsets=block_offsets,
            bloom_matrix=b"",
            checksum_so_far=zlib.crc32(memoryview(file)[layout.CHECKSUM_START :]),
        )
        layout.COMMITTED_SIZE.pack_into(file, 0, len(file))
        return bytes(file)

    def _header(self, sidecar: Sidecar, columns: tuple[int, ...]) -> bytes:
        whole = bytes(sidecar.file[layout.CHECKSUM_START : sidecar.header.stop])
        found = self._headers.get((whole, columns))
        if found is None:
            content = SidecarContent(
                columns=[_specification(sidecar.column(column)) for column in columns],
                row_groups=(),  # their blocks are copied
                parquet_footer_offset=sidecar.footer.parquet_footer_offset,
                parquet_footer_length=sidecar.footer.parquet_footer_length,
            )
            header = encode_header(content, bloom_columns=())
            found = header + bytes(-len(header) % layout.BLOCK_ALIGNMENT)
            self._headers[whole, columns] = found
        return found


def _specification(column: ColumnDescriptor) -> ColumnSpec:
    return ColumnSpec(
        name=column.name,
        type_code=column.type_code,
        physical_type=column.physical_type,
        id=column.id,
        flags=column.flags,
        fixed_byte_length=column.fixed_byte_length,
        max_rep_level=column.max_rep_level,
        max_def_level=column.max_def_level,
    )


def _notes(sidecar: Sidecar, columns: Sequence[int]) -> list[ScratchpadEntry]:
    known = sidecar.foreign_annotations
    kept = {number: known[column] for number, column in enumerate(columns) if column in known}
    # The designated timestamp, which identifies files of QuestDB, may not be among the columns.
    notes = [writer_entry(sidecar.created_by)] if sidecar.is_writer_known else []
    if kept:
        notes.append(ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations(kept)))
    return notes


def _block_words(
    sidecar: Sidecar, columns: Sequence[int], row_groups: IntArray, keeps_bounds: BoolArray
) -> npt.NDArray[np.uint64]:
    """Copy row counts and chunks, shape ``(row groups, words of a block)``."""
    blocks = sidecar.blocks
    first_words = blocks.first_words[row_groups]
    chunk_words = 1 + layout.CHUNK_WORDS * np.array(columns, dtype=np.int64)
    places = first_words[:, None, None] + chunk_words[:, None] + np.arange(layout.CHUNK_WORDS)
    chunks = blocks.words[places]
    chunks[~keeps_bounds, _PACKED_WORD] &= _WITHOUT_BOUNDS
    for word in _BOUND_WORDS:
        chunks[~keeps_bounds, word] = 0
    row_counts = blocks.words[first_words][:, None]
    return np.concatenate([row_counts, chunks.reshape(len(row_groups), -1)], axis=1).astype("<u8", copy=False)


def _move_long_bounds(
    sidecar: Sidecar,
    columns: Sequence[int],
    row_groups: IntArray,
    keeps_bounds: BoolArray,
    words: npt.NDArray[np.uint64],
) -> dict[int, bytes]:
    """Copy kept bounds from behind their old block to behind the new one, and update their places in its words."""
    behind: dict[int, bytearray] = {}
    for number, column in zip(*(places.tolist() for places in np.nonzero(keeps_bounds)), strict=True):
        chunks, row_group = sidecar.chunks(columns[column]), int(row_groups[number])
        for bounds, word in zip((chunks.min, chunks.max), _BOUND_WORDS, strict=True):
            if not bounds.present[row_group] or bounds.inlined[row_group]:
                continue
            value = bounds.bytes_at(row_group) or b""
            of_block = behind.setdefault(number, bytearray())
            reference = len(of_block) << layout.OUT_OF_LINE_LENGTH_BITS | len(value)
            words[number, 1 + layout.CHUNK_WORDS * column + word] = reference
            of_block += value
    return {number: bytes(found) + bytes(-len(found) % layout.BLOCK_ALIGNMENT) for number, found in behind.items()}
