"""Golden tables with other columns than QuestDB has given them: what its ALTER TABLE leaves behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.format.table_metadata import MetadataSlot, encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import encode_txn, parse_txn
from coldparquet.format.type_codes import parse_type_name

if TYPE_CHECKING:
    from pathlib import Path


def slots_of(table: Path) -> list[MetadataSlot]:
    return list(parse_table_metadata((table / "_meta").read_bytes(), path=None).slots)


def position(slots: list[MetadataSlot], name: str) -> int:
    return next(index for index, slot in enumerate(slots) if slot.name == name and not slot.is_dropped)


def alter(table: Path, slots: list[MetadataSlot]) -> None:
    """Give the table other columns, as a statement does: a new version of `_meta`, and a `_txn` that names it."""
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    version = metadata.metadata_version + 1
    changed = replace(metadata, slots=tuple(slots), metadata_version=version)
    (table / "_meta").write_bytes(encode_table_metadata(changed))
    (table / "_txn").write_bytes(encode_txn(replace(transaction, txn=transaction.txn + 1, metadata_version=version)))


def change_type(table: Path, name: str, *types: str) -> None:
    """Change the type of a column once or several times: each change is a new slot in the place of the first one."""
    for type_name in types:
        slots = slots_of(table)
        old = position(slots, name)
        original = old if slots[old].replaced_index is None else slots[old].replaced_index
        slots[old] = replace(slots[old], is_dropped=True)
        slots.append(MetadataSlot(name=name, type_code=parse_type_name(type_name), replaced_index=original))
        alter(table, slots)
