"""Encodes a piece as bytes and back: a frame, a JSON document, and sections of bytes and numbers after it.

The document holds what is small: table, options, columns, predicate, and for each share its path, version and request
shape. There may be many columns and partitions, so these are lists of fields in a fixed order, and each type, stored
column and shape occurs once. Then follow the symbols and pages of the shares, and the reads of all of them (see
:mod:`coldparquet.pieces.plain`). No object is pickled, and nothing is a secret.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from coldparquet.catalog.table_files import TableMoment
from coldparquet.format.partition_records import PartitionRecord
from coldparquet.options import Coalescing, ReadOptions
from coldparquet.pieces.checks import check_types, refuses_nonsense
from coldparquet.pieces.frame import (
    PieceContent,
    PieceNumbers,
    PieceShare,
    RequestShape,
    SectionReader,
    SectionWriter,
    damaged_piece,
    frame_content,
    unframe_content,
)
from coldparquet.pieces.plain import (
    add_pages,
    add_reads,
    add_strings,
    column_of,
    field_values,
    made_of,
    next_pages,
    next_reads,
    next_strings,
    plain_column,
    plain_predicate,
    plain_stored,
    plain_type,
    predicate_of,
    stored_of,
    type_of,
)
from coldparquet.plan.model import StoredData, StoredFile

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from coldparquet.format.binary import Utf8Strings
    from coldparquet.plan.model import StoredColumn


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
    "stored",
    "schemas",
    "shares",
)
"""The fields of the document, in order: names would take a tenth of a small piece."""

_OF_THE_DRIVER = frozenset(
    {
        "prices",
        "restore",
        "archived",
        "check_storage_classes",
        "columns_from",
        "sidecars",
        "unread",
        "timestamp",
        "index",
        "format",
        "keys",
    }
)
"""Options that only matter before the first piece is made."""


def encode_piece(content: PieceContent, numbers: PieceNumbers) -> bytes:
    """Encode a piece."""
    shapes = _numbered(share.shape for share in content.shares)
    types = _numbered(column.readable_type for column in content.columns)
    stored = _numbered(column for share in content.shares for column in share.data.columns.values())
    schemas = _numbered(_schema(share.data, stored) for share in content.shares)
    dictionaries = {id(strings): strings for share in content.shares for strings in share.data.symbols.values()}
    position = {key: number for number, key in enumerate(dictionaries)}
    sections = SectionWriter()
    for strings in dictionaries.values():
        add_strings(sections, strings)
    shares = []
    for share in content.shares:
        data = share.data
        plain: list[Any] = [
            share.name,
            data.path,
            share.metadata_source,
            share.etag,
            shapes[share.shape],
            schemas[_schema(data, stored)],
            data.size_bytes,
            data.etag,
            data.may_grow,
            data.created_by,
            data.is_writer_known,
            None if data.pages is None else add_pages(sections, data.pages),
        ]
        if share.record is not None:
            symbols = [[number, position[id(strings)]] for number, strings in data.symbols.items()]
            plain += [asdict(share.record), symbols, data.files]
        shares.append(plain)
    add_reads(sections, content.reads)
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
        "dictionaries": len(dictionaries),
        "moment": None if content.moment is None else asdict(content.moment),
        "shapes": [_plain_shape(shape) for shape in shapes],
        "stored": [plain_stored(column) for column in stored],
        "schemas": list(schemas),
        "shares": shares,
    }
    text = json.dumps([document[name] for name in _DOCUMENT], separators=(",", ":"), ensure_ascii=False)
    first = SectionWriter()
    first.add_bytes(text.encode("utf-8", "surrogatepass"))
    return frame_content(first.finish() + sections.finish())


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
    dictionaries = [next_strings(sections) for _ in range(document["dictionaries"])]
    shapes = [_shape(shape) for shape in document["shapes"]]
    schemas = [
        (
            {number: stored_of(document["stored"][position], number, by_index) for number, position in numbers},
            {int(index): place for index, place in places},
        )
        for numbers, places in document["schemas"]
    ]
    shares = tuple(_share(share, shapes, schemas, dictionaries, sections) for share in document["shares"])
    return PieceContent(
        table=document["table"],
        options=ReadOptions(**document["options"], check_storage_classes=False),
        columns=columns,
        output_column_count=document["output_columns"],
        predicate=None if predicate is None else predicate_of(predicate, by_index),
        predicate_text=document["predicate_text"],
        late_part_bytes=document["late_part_bytes"],
        symbols={int(index): tuple(symbols) for index, symbols in document["symbols"].items()},
        moment=None if moment is None else TableMoment(**moment),
        shares=shares,
        reads=next_reads(sections, [share.data for share in shares]),
    )


def _numbered(values: Iterable[T]) -> dict[T, int]:
    """Number the distinct values in order of appearance."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def _plain_options(options: ReadOptions) -> dict[str, Any]:
    """Return the options that differ from the defaults."""
    defaults = ReadOptions()
    names = [field.name for field in fields(ReadOptions) if field.name not in _OF_THE_DRIVER]
    return {name: getattr(options, name) for name in names if getattr(options, name) != getattr(defaults, name)}


_Schema: TypeAlias = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int | None], ...]]


def _schema(data: StoredData, stored: Mapping[StoredColumn, int]) -> _Schema:
    """Return the columns and places of a partition as numbers: most partitions have the same."""
    return tuple((number, stored[column]) for number, column in data.columns.items()), tuple(data.places.items())


def _share(
    plain: Sequence[Any],
    shapes: Sequence[RequestShape],
    schemas: Sequence[tuple[Mapping[int, StoredColumn], Mapping[int, int | None]]],
    dictionaries: Sequence[Utf8Strings],
    sections: SectionReader,
) -> PieceShare:
    (
        name,
        path,
        source,
        etag,
        shape,
        schema,
        size_bytes,
        data_etag,
        may_grow,
        created_by,
        is_writer_known,
        pages,
        *native,
    ) = plain
    record, symbols, files = native or (None, [], [])
    columns, places = schemas[schema]
    return PieceShare(
        name=name,
        metadata_source=source,
        etag=etag,
        shape=shapes[shape],
        record=None if record is None else PartitionRecord(**record),
        data=StoredData(
            decoder="parquet" if record is None else "native",
            path=path,
            columns=columns,
            places=places,
            size_bytes=size_bytes,
            etag=data_etag,
            may_grow=may_grow,
            created_by=created_by,
            is_writer_known=is_writer_known,
            files=tuple(StoredFile(*file) for file in files),
            symbols={int(number): dictionaries[position] for number, position in symbols},
            pages=None if pages is None else next_pages(sections, pages),
        ),
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
