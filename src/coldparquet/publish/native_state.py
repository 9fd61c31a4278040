"""Whether a native partition is still what a published Parquet file was made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from coldparquet.format.partition_names import UNVERSIONED
from coldparquet.publish.source import record_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.catalog.partition_location import PartitionLocation
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


def native_state(source: SourceTable, location: PartitionLocation) -> NativeState:
    """Return the state of a native partition of the source."""
    record = record_of(location)
    columns = {}
    for column in source.metadata.columns:
        version = source.column_versions.column(record.timestamp, column.writer_index)
        if version.top is not None and version.top < record.row_count:
            columns[column.writer_index] = (version.name_txn, version.top)
    return NativeState(
        name_txn=record.name_txn,
        row_count=record.row_count,
        squash_count=record.squash_count,
        seq_txn=record.native_seq_txn,
        truncate_version=source.transaction.truncate_version,
        columns=columns,
    )
