"""The footer of a Parquet file that holds the rows of another one: what a Parquet library does not know is put in.

`coldparquet.format.parquet_footer_rewrite` is about files that are updated in place; here every row group is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import InternalError
from coldparquet.format.parquet_footer import QUESTDB_KEY, parse_footer
from coldparquet.format.parquet_thrift import KeyValue
from coldparquet.format.thrift_fields import (
    FieldType,
    RawField,
    encode_fields,
    encode_structure_list,
    parse_fields,
    parse_structure_list,
)
from coldparquet.format.written_footer import with_schema_of

if TYPE_CHECKING:
    from coldparquet.format.parquet_footer_rewrite import FooterBytes

_KEY_VALUE_METADATA = 5
"""Field number of FileMetaData in parquet.thrift."""


def rewritten_footer(written: FooterBytes, old: FooterBytes, *, questdb_json: str | None) -> bytes:
    """Complete the footer of a file that holds all rows of another one.

    The file keeps all key-value metadata of the old one. One that QuestDB described keeps the column types by this
    description, and the schema is the new writer's, which annotates types as QuestDB does now. In any other file the
    annotations of the schema are all there is of the types, so that the old schema is taken over.

    Args:
        written: The footer as the Parquet library wrote it.
        old: The footer of the file that the rows come from.
        questdb_json: QuestDB's description of the columns; None in files of other writers.

    Returns:
        Thrift bytes, to be stored in the place of the written ones.

    Raises:
        InternalError: The columns are stored otherwise than in the old file.
        FormatError: The old footer is damaged.
    """
    _check_columns(written, old)
    content = written.content if questdb_json is not None else with_schema_of(written.content, old.content)
    key_values = []
    for raw in _key_values(old.content):
        if KeyValue.decode(raw, path=old.path, offset=old.offset).key != QUESTDB_KEY:
            key_values.append(raw)
        elif questdb_json is not None:
            key_values.append(KeyValue(key=QUESTDB_KEY, value=questdb_json).encode())
    fields = [field for field in parse_fields(content) if field.number != _KEY_VALUE_METADATA]
    if key_values:
        fields.append(RawField(_KEY_VALUE_METADATA, FieldType.LIST, encode_structure_list(key_values)))
    return encode_fields(sorted(fields, key=lambda field: field.number))


def _key_values(content: bytes) -> list[bytes]:
    values = {field.number: field.value for field in parse_fields(content)}
    return parse_structure_list(values[_KEY_VALUE_METADATA]) if _KEY_VALUE_METADATA in values else []


def _check_columns(written: FooterBytes, old: FooterBytes) -> None:
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
