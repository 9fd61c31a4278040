"""Edits Parquet footers: of a file that is updated in place, and of one with the rows of another.

An update appends row groups and a footer behind the file's end, and changes nothing before it. The first N bytes stay a
whole Parquet file for every reader that knows the older size N. A Parquet writer that starts its offsets at the file's
end makes the new row groups, so its footer, the fragment's, has the right offsets. `splice_footers` combines the old
footer and the fragment's.

The new footer takes over row groups and all else of the old footer as bytes, so unknown fields survive. Only the number
of rows, the list of row groups and QuestDB's JSON are written anew.

`rewritten_footer` completes the footer of a file whose row groups are all new. The `with_...` functions add column
facts that a Parquet library cannot be told, before the footer is stored.

All of these footers describe flat columns, so the schema is its root and one element per column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.errors import FormatError, InternalError, InvalidInputError
from coldparquet.format.parquet_footer import (
    QUESTDB_KEY,
    QuestdbMetadata,
    encode_questdb_json,
    frame_footer,
    parse_footer,
    parse_questdb_json,
)
from coldparquet.format.parquet_schema import SchemaLeaf
from coldparquet.format.parquet_thrift import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
    Statistics,
)
from coldparquet.format.sidecar_layout import PARQUET_TAIL_BYTES
from coldparquet.format.thrift import RawValue, edited, raw_elements, raw_value
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.format.parquet_footer import ParquetFooter, QuestdbColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterBytes:
    """The footer of a Parquet file, and its place in it."""

    content: bytes
    """Its Thrift bytes, without the length and magic behind them."""
    offset: int
    """Where they begin in the file."""
    path: str | None = None

    @property
    def stop(self) -> int:
        """Size of the file that ends with this footer."""
        return self.offset + len(self.content) + PARQUET_TAIL_BYTES


@dataclass(frozen=True, slots=True)
class KeptRowGroup:
    """A row group of the old footer, by its index there."""

    index: int


@dataclass(frozen=True, slots=True)
class NewRowGroup:
    """A row group of the fragment, by its index there."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplicedFooter:
    """The footer of the updated file."""

    content: bytes
    """Its Thrift bytes."""
    offset: int
    """Where they go: the place of the fragment's own footer."""
    unused_bytes: int
    """Dead bytes in the whole file, as far as footers have counted them."""

    @property
    def tail(self) -> bytes:
        """What to write at `offset`: the footer, its length and the magic."""
        return frame_footer(self.content)

    @property
    def parquet_size_bytes(self) -> int:
        """Size of the updated file."""
        return self.offset + len(self.content) + PARQUET_TAIL_BYTES


def splice_footers(
    old: FooterBytes,
    fragment: FooterBytes,
    row_groups: Sequence[KeptRowGroup | NewRowGroup],
    *,
    seq_txn: int | None = None,
) -> SplicedFooter:
    """Make the footer of a file to which a fragment was appended.

    What the JSON of QuestDB says about the new row groups is taken from the fragment's own: a column keeps ``format``
    (its symbol keys are those of the table) and ``ascii`` only if the JSON of every row group in use has it.
    """
    old_footer = parse_footer(old.content, path=old.path, offset=old.offset)
    new_footer = parse_footer(fragment.content, path=fragment.path, offset=fragment.offset)
    _check_columns(old_footer, new_footer)
    _check_order(row_groups, len(old_footer.row_groups), len(new_footer.row_groups), old.path)
    old_row_groups, new_row_groups = (_elements(footer, "row_groups") for footer in (old, fragment))
    kept = {entry.index for entry in row_groups if isinstance(entry, KeptRowGroup)}
    dropped = [raw for index, raw in enumerate(old_row_groups) if index not in kept]
    # Now dead: the old footer, everything between it and the first new chunk, and the row groups left out.
    growth = _check_place(new_footer, old, fragment) - old.offset + sum(_dead_bytes(raw, old) for raw in dropped)
    questdb = _merge_questdb(old_footer, new_footer, seq_txn, is_all_new=not kept)
    unused_bytes = growth + (questdb.unused_bytes if questdb else 0)

    selected = [
        (old_row_groups if isinstance(entry, KeptRowGroup) else new_row_groups)[entry.index] for entry in row_groups
    ]
    row_count = sum(
        (old_footer if isinstance(entry, KeptRowGroup) else new_footer).row_groups[entry.index].row_count
        for entry in row_groups
    )
    changes: dict[str, RawValue] = {"num_rows": row_count, "row_groups": selected}
    if questdb is not None:
        document = encode_questdb_json(replace(questdb, unused_bytes=unused_bytes))
        changes["key_value_metadata"] = _with_questdb_json(_elements(old, "key_value_metadata"), document)
    if not all(new_footer.has_type_order):
        # The order of bounds is declared for all row groups of a file at once.
        changes["column_orders"] = None
    content = edited(old.content, FileMetaData, **changes)
    return SplicedFooter(content=content, offset=fragment.offset, unused_bytes=unused_bytes)


def _check_columns(old: ParquetFooter, new: ParquetFooter) -> None:
    """Refuse a fragment whose columns differ in meaning; field ids are QuestDB's, and not every writer has them."""
    if len(old.leaves) != len(new.leaves):
        raise _mismatch(f"it has {len(new.leaves)} columns, the file has {len(old.leaves)}", new.path)
    for old_leaf, new_leaf in zip(old.leaves, new.leaves, strict=True):
        for name in SchemaLeaf.__struct_fields__:
            if name == "elements":  # which say all of it again, with the ids
                continue
            ours, theirs = getattr(new_leaf, name), getattr(old_leaf, name)
            if ours != theirs and not (name == "field_id" and ours is None):
                message = f"{name} of its column {new_leaf.name!r} is {ours!r}, in the file {theirs!r}"
                raise _mismatch(message, new.path)


def _check_order(
    row_groups: Sequence[KeptRowGroup | NewRowGroup], old_count: int, new_count: int, path: str | None
) -> None:
    kept = sorted(entry.index for entry in row_groups if isinstance(entry, KeptRowGroup))
    if len(set(kept)) != len(kept) or (kept and not 0 <= kept[0] <= kept[-1] < old_count):
        raise _invalid(f"row groups {kept} are kept of {old_count}; each can be kept once", "row_groups", path)
    new = sorted(entry.index for entry in row_groups if isinstance(entry, NewRowGroup))
    if new != list(range(new_count)):
        raise _invalid(f"row groups {new} are used of a fragment with {new_count}; use each once", "row_groups", path)


def _check_place(new: ParquetFooter, old: FooterBytes, fragment: FooterBytes) -> int:
    """Check that the fragment's chunks are between the old file and the fragment's footer; return their start."""
    ranges = [chunk.byte_range for row_group in new.row_groups for chunk in row_group.chunks]
    # A fragment without chunks begins, and ends, with its footer.
    start = min((first for first, _ in ranges), default=fragment.offset)
    stop = max((last for _, last in ranges), default=fragment.offset)
    if not old.stop <= start <= stop <= fragment.offset:
        raise _invalid(
            f"the new chunks take bytes {start} to {stop}, but the old file ends at {old.stop} and their footer begins "
            f"at {fragment.offset}; write them with offsets in the whole file",
            "offset",
            fragment.path,
        )
    return start


def _dead_bytes(row_group: bytes, old: FooterBytes) -> int:
    """Return the bytes that become dead with a row group: the span of its chunks, and its parts elsewhere.

    Writers put page indexes, and some put bloom filters, behind all row groups. A filter behind the last chunk counts
    only where the footer has its length, which QuestDB's footers do not.
    """
    chunks = RowGroup.decode(row_group, path=old.path, offset=old.offset).columns
    pages, blooms = [], []
    index_bytes = 0
    for chunk in chunks:
        if chunk.meta_data is None:
            raise InternalError("parse_footer let a column chunk without metadata pass", path=old.path)
        pages.append(chunk.meta_data.byte_range)
        bloom_offset, bloom_bytes = chunk.meta_data.bloom_filter_offset, chunk.meta_data.bloom_filter_length
        if bloom_offset and bloom_bytes:
            blooms.append((bloom_offset, bloom_offset + bloom_bytes))
        index_bytes += (chunk.column_index_length or 0) + (chunk.offset_index_length or 0)
    if not pages:
        return 0
    begin, end = min(start for start, _ in pages), max(stop for _, stop in pages)
    blooms_elsewhere = sum(stop - start for start, stop in blooms if start >= end or stop <= begin)
    return end - begin + blooms_elsewhere + index_bytes


def _merge_questdb(
    old: ParquetFooter, new: ParquetFooter, seq_txn: int | None, *, is_all_new: bool
) -> QuestdbMetadata | None:
    """Return what QuestDB's JSON says of old and new row groups together, the dead bytes still those of the old file."""
    if old.questdb_json is None:
        return None
    old_questdb = parse_questdb_json(old.questdb_json, column_count=len(old.leaves), path=old.path)
    new_questdb = (
        None
        if new.questdb_json is None
        else parse_questdb_json(new.questdb_json, column_count=len(new.leaves), path=new.path)
    )
    new_columns: Sequence[QuestdbColumn | None] = new_questdb.columns if new_questdb else [None] * len(new.leaves)
    has_new_rows = bool(new.row_groups)
    if seq_txn is None and new_questdb is not None:
        seq_txn = new_questdb.seq_txn
    return replace(
        old_questdb,
        columns=tuple(
            _merge_column(old_column, new_column, is_all_new=is_all_new) if has_new_rows else old_column
            for old_column, new_column in zip(old_questdb.columns, new_columns, strict=True)
        ),
        seq_txn=old_questdb.seq_txn if seq_txn is None else seq_txn,
    )


def _merge_column(old: QuestdbColumn, new: QuestdbColumn | None, *, is_all_new: bool) -> QuestdbColumn:
    is_new_ascii = new is not None and new.is_ascii is True
    has_new_keys = new is not None and new.local_key_is_global
    return replace(
        old,
        local_key_is_global=has_new_keys and (is_all_new or old.local_key_is_global),
        is_ascii=None if old.is_ascii is None else is_new_ascii and (is_all_new or old.is_ascii),
    )


def _elements(footer: FooterBytes, field: str) -> list[bytes]:
    """Return the structures that a list of the footer holds, as bytes."""
    try:
        return raw_elements(footer.content, FileMetaData, field, is_optional=True)
    except FormatError as error:
        raise FormatError(error.message, kind=error.kind, path=footer.path, **error.details) from error


def _with_questdb_json(key_values: Sequence[bytes], document: str) -> list[bytes]:
    """Return the key-value entries with another JSON under QuestDB's key, the first one where it repeats."""
    keys = [KeyValue.decode(raw, path=None, offset=0).key for raw in key_values]
    position = keys.index(QUESTDB_KEY)
    entry = KeyValue(key=QUESTDB_KEY, value=document).encode()
    return [*key_values[:position], entry, *key_values[position + 1 :]]


def _mismatch(message: str, path: str | None) -> InvalidInputError:
    return InvalidInputError(
        f"the new row groups do not fit the file: {message}; write a new file instead",
        kind="SchemaMismatch",
        path=path,
        field="schema",
    )


def _invalid(message: str, field: str, path: str | None) -> InvalidInputError:
    return InvalidInputError(message, kind="InvalidValue", path=path, field=field)


def with_decimal_precisions(footer: bytes, precisions: Mapping[int, int]) -> bytes:
    """Set the digits of decimals that were written with all digits of their width."""
    schema = raw_elements(footer, FileMetaData, "schema")
    for column, precision in precisions.items():
        element = SchemaElement.decode(schema[column + 1], path=None, offset=0)
        element.precision = precision
        if element.logicalType is not None and element.logicalType.DECIMAL is not None:
            element.logicalType.DECIMAL.precision = precision
        schema[column + 1] = element.encode()
    return edited(footer, FileMetaData, schema=schema)


def with_null_counts(footer: bytes, null_counts: Sequence[Mapping[int, int]]) -> bytes:
    """State the null counts of chunks that were written without statistics."""
    row_groups = raw_elements(footer, FileMetaData, "row_groups")
    for index, (row_group, counts) in enumerate(zip(row_groups, null_counts, strict=True)):
        chunks = raw_elements(row_group, RowGroup, "columns")
        for column, count in counts.items():
            statistics = Statistics(null_count=count)
            metadata = edited(
                raw_value(chunks[column], ColumnChunk, "meta_data"), ColumnMetaData, statistics=statistics
            )
            chunks[column] = edited(chunks[column], ColumnChunk, meta_data=metadata)
        row_groups[index] = edited(row_group, RowGroup, columns=chunks)
    return edited(footer, FileMetaData, row_groups=row_groups)


def with_schema_of(footer: bytes, other: bytes) -> bytes:
    """Give a footer the schema of another one: other names, annotations and field ids for columns that are stored alike."""
    schema = raw_elements(other, FileMetaData, "schema")
    if _storage(raw_elements(footer, FileMetaData, "schema")) != _storage(schema):
        raise InternalError("the new row groups are not stored as the schema of the file says", field="schema")
    return edited(footer, FileMetaData, schema=schema)


def _storage(schema: Sequence[bytes]) -> list[tuple[int | None, int, int | None]]:
    """Return what each element below the root says about bytes: physical type, length and repetition."""
    elements = [SchemaElement.decode(element, path=None, offset=0) for element in schema[1:]]
    return [(element.type, element.type_length or 0, element.repetition_type) for element in elements]


def rewritten_footer(written: FooterBytes, old: FooterBytes, *, questdb_json: str | None) -> bytes:
    """Complete the footer of a file that holds all rows of another one.

    The file keeps all key-value metadata of the old one. If QuestDB described the old file, this description keeps the
    column types. The schema is then the new writer's, which annotates types as QuestDB does now. In any other file only
    the schema's annotations define the types, so the old schema is taken over.
    """
    _check_same_columns(written, old)
    content = written.content if questdb_json is not None else with_schema_of(written.content, old.content)
    key_values = []
    for raw in _elements(old, "key_value_metadata"):
        if KeyValue.decode(raw, path=old.path, offset=old.offset).key != QUESTDB_KEY:
            key_values.append(raw)
        elif questdb_json is not None:
            key_values.append(KeyValue(key=QUESTDB_KEY, value=questdb_json).encode())
    return edited(content, FileMetaData, key_value_metadata=key_values or None)


def _check_same_columns(written: FooterBytes, old: FooterBytes) -> None:
    """Check that the new chunks are stored as the old ones: the library was told types, not their storage.

    Arrays are the exception: those that were nested lists are byte strings now, as QuestDB prefers them.
    """
    ours, theirs = (
        parse_footer(footer.content, path=footer.path, offset=footer.offset).leaves for footer in (written, old)
    )
    for new, before in zip(ours, theirs, strict=True):
        stored, expected = (
            (leaf.name, leaf.physical_type, leaf.fixed_byte_length, leaf.max_def_level) for leaf in (new, before)
        )
        if stored != expected and not before.max_rep_level:
            raise InternalError(f"a column stored as {expected} was written as {stored}", path=old.path)
