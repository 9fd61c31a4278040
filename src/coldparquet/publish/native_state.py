"""Whether a native partition is still what a published Parquet file was made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.format.column_versions import ABSENT_TOP
from coldparquet.format.partition_names import UNVERSIONED
from coldparquet.publish.source import is_parquet, record_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.publish.source import SourceTable

_UNCHANGED_COLUMN = (UNVERSIONED, 0)
"""Name txn and top of a column that no UPDATE has touched, in a partition that began with it."""

_NUMBERS = ("name_txn", "row_count", "squash_count", "seq_txn", "truncate_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeState:
    """What a table's files say of a native partition. As long as they say the same, it has the same rows."""

    name_txn: int
    row_count: int
    squash_count: int
    seq_txn: int
    truncate_version: int
    columns: Mapping[int, tuple[int, int]]
    """Name txn and top of the columns that have values in it, by writer index; any that is not here has
    ``_UNCHANGED_COLUMN``."""

    def has_same_rows(self, now: NativeState) -> bool:
        """Tell whether a file that was made of this state holds the rows of a later one.

        Columns that were dropped since do not matter: the file has them, and nobody reads them.
        """
        return replace(self, columns={}) == replace(now, columns={}) and all(
            self.columns.get(writer_index, _UNCHANGED_COLUMN) == version
            for writer_index, version in now.columns.items()
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> NativeState:
        """Read what :meth:`as_json` has made.

        Raises:
            ValueError, TypeError, KeyError or AttributeError: It is something else.
        """
        numbers = {name: int(document[name]) for name in _NUMBERS}
        columns = {int(index): (int(name_txn), int(top)) for index, (name_txn, top) in document["columns"].items()}
        return cls(**numbers, columns=columns)

    def as_json(self) -> dict[str, Any]:
        """Return what ``json.dumps`` takes, without what goes without saying."""
        changed = {str(index): list(version) for index, version in self.columns.items() if version != _UNCHANGED_COLUMN}
        return {**{name: getattr(self, name) for name in _NUMBERS}, "columns": changed}


def native_states(source: SourceTable) -> dict[int, NativeState]:
    """Return the states of the native partitions of the source by their timestamps."""
    records = [record_of(location) for location in source.locations if not is_parquet(location)]
    columns: list[dict[int, tuple[int, int]]] = [{} for _ in records]
    timestamps = np.array([record.timestamp for record in records], np.int64)
    for column in source.metadata.columns:
        name_txns, tops = source.column_versions.columns(timestamps, column.writer_index)
        for record, known, name_txn, top in zip(records, columns, name_txns.tolist(), tops.tolist(), strict=True):
            if ABSENT_TOP < top < record.row_count:
                known[column.writer_index] = (name_txn, top)
    return {
        record.timestamp: NativeState(
            name_txn=record.name_txn,
            row_count=record.row_count,
            squash_count=record.squash_count,
            seq_txn=record.native_seq_txn,
            truncate_version=source.transaction.truncate_version,
            columns=known,
        )
        for record, known in zip(records, columns, strict=True)
    }
