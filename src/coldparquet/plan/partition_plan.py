"""From one sidecar to the row groups and column chunks that a question needs. Pure: no byte is fetched here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError
from coldparquet.format.sidecar_layout import (
    CHUNK_BYTE_RANGE_START_WORD,
    CHUNK_NUM_VALUES_WORD,
    CHUNK_TOTAL_COMPRESSED_WORD,
)
from coldparquet.plan.made_chunks import made_chunks
from coldparquet.plan.prune import PruneReport, prune
from coldparquet.plan.read_plan import RowGroupRead
from coldparquet.plan.statistics import SidecarStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.bloom_probes import BloomAnswers

_PARQUET_MAGIC_BYTES = 4
"""No chunk begins before the magic ``PAR1`` ends."""

_COUNT_WORDS = slice(CHUNK_NUM_VALUES_WORD, CHUNK_TOTAL_COMPRESSED_WORD + 1)
"""The words of a chunk with the number of its values and its place."""

_LARGEST_COUNT = 2**63 - 1

_MAX_ROW_GROUP_ROWS = 2**31 - 1
"""Row groups of writers hold a few million rows. Damaged metadata may claim any number, and a column that is made
without fetching would be made that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRowGroups:
    """What pruning left of one partition."""

    reads: tuple[RowGroupRead, ...]
    """Surviving row groups, ascending."""
    report: PruneReport | None
    """What each part of the predicate dropped; None without a predicate, or if statistics are not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChunkTable:
    """The needed chunks of the surviving row groups, arrays of shape ``(row groups, columns)``."""

    columns: tuple[int, ...]
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    is_made: npt.NDArray[np.bool_]
    """Whether a chunk is made, not fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What the reads of row groups have in common that fetch and make the same columns, in whatever partition."""

    fetched: npt.NDArray[np.intp]
    """Positions in the table of chunks."""
    columns: tuple[int, ...]
    column_rows: tuple[None, ...]
    piece_columns: npt.NDArray[np.int64]
    made_columns: tuple[int, ...]


@lru_cache(maxsize=1024)
def _parts_of(columns: tuple[int, ...], is_wanted: bytes, is_made: bytes) -> _Parts:
    """Tell what is fetched and made of columns, given one byte for each of them."""
    wanted, made = np.frombuffer(is_wanted, np.bool_), np.frombuffer(is_made, np.bool_)
    (fetched,) = (wanted & ~made).nonzero()
    return _Parts(
        fetched=fetched,
        columns=tuple([columns[position] for position in fetched.tolist()]),
        column_rows=(None,) * len(fetched),
        piece_columns=np.arange(len(fetched)),
        made_columns=tuple([columns[position] for position in (wanted & made).nonzero()[0].tolist()]),
    )


def plan_row_groups(  # noqa: PLR0913 - knobs are required keywords here; their defaults live in ReadOptions
    sidecar: Sidecar,
    *,
    partition_index: int,
    output_columns: Sequence[int],
    predicate: BoundPredicate | None,
    predicate_columns: Mapping[int, int | None],
    use_statistics: bool,
    make_constant_columns: bool,
    blooms: BloomAnswers | None = None,
) -> PartitionRowGroups:
    """Prune the row groups of one partition and list the chunks that the survivors need.

    A row group in which every row matches needs no chunk for the predicate alone. A chunk that is null in every row, or
    holds one value in every row, is made, not fetched.

    Args:
        sidecar: What is known about the partition.
        partition_index: Its position in the plan.
        output_columns: Sidecar indexes of the columns of the result that this partition has.
        predicate: Bound to the columns of the table; None selects every row.
        predicate_columns: Sidecar index of each field of the predicate by its index in the table; None where the
            partition was written without the column.
        use_statistics: Whether minima, maxima and null counts decide anything; otherwise every row group with rows
            survives a predicate, and all of its rows are tested.
        make_constant_columns: Whether chunks that hold one value in every row, by the statistics, are made as well.
        blooms: What bloom filters answered, where they were asked.

    Raises:
        FormatError: A chunk lies outside the data of the Parquet file or holds another number of values than rows, or a
            row group claims more rows than any has.
    """
    row_counts = sidecar.row_counts
    _check_row_counts(sidecar)
    survives = row_counts > 0
    all_match = np.full(sidecar.row_group_count, predicate is None)
    report = None
    if predicate is not None and use_statistics:
        statistics = SidecarStatistics(sidecar, predicate_columns, blooms=blooms)
        verdict, report = prune(predicate, statistics, sidecar.row_group_count)
        survives &= verdict.survives
        all_match = verdict.all_rows_match
    (surviving,) = survives.nonzero()
    for_predicate = {place for place in predicate_columns.values() if place is not None}
    chunks = _chunk_table(
        sidecar,
        tuple(sorted({*output_columns, *for_predicate})),
        surviving,
        make_constant_columns=make_constant_columns and use_statistics,
    )
    output = frozenset(output_columns)
    is_output = np.array([column in output for column in chunks.columns], dtype=np.bool_)
    wanted = is_output | ~all_match[surviving, np.newaxis]
    reads = []
    numbers, counts, match = surviving.tolist(), row_counts[surviving].tolist(), all_match[surviving].tolist()
    for position, (row_group, row_count, all_rows_match) in enumerate(zip(numbers, counts, match, strict=True)):
        part = _parts_of(chunks.columns, wanted[position].tobytes(), chunks.is_made[position].tobytes())
        reads.append(
            RowGroupRead(
                partition_index=partition_index,
                row_group=row_group,
                row_group_rows=row_count,
                selection=None,
                columns=part.columns,
                column_rows=part.column_rows,
                piece_columns=part.piece_columns,
                piece_starts=chunks.starts[position, part.fetched],
                piece_stops=chunks.stops[position, part.fetched],
                made_columns=part.made_columns,
                all_rows_match=all_rows_match,
            )
        )
    return PartitionRowGroups(reads=tuple(reads), report=report)


def _check_row_counts(sidecar: Sidecar) -> None:
    if sidecar.row_counts.max(initial=0) > _MAX_ROW_GROUP_ROWS:
        row_group = int(np.argmax(sidecar.row_counts))
        raise FormatError(
            f"row group {row_group} claims {int(sidecar.row_counts[row_group]):,} rows, but at most"
            f" {_MAX_ROW_GROUP_ROWS:,} can be; make the sidecar anew with 'coldparquet index --force'",
            path=sidecar.path,
            field="NUM_ROWS",
            row_group=row_group,
        )


def _chunk_table(
    sidecar: Sidecar, columns: tuple[int, ...], row_groups: npt.NDArray[np.intp], *, make_constant_columns: bool
) -> _ChunkTable:
    words = sidecar.blocks.chunk_words(row_groups, np.array(columns, dtype=np.intp))
    if words[..., _COUNT_WORDS].max(initial=0) > _LARGEST_COUNT:
        _refuse_counts(sidecar, columns)
    counts = words.view(np.int64)
    starts = counts[..., CHUNK_BYTE_RANGE_START_WORD]
    stops = starts + counts[..., CHUNK_TOTAL_COMPRESSED_WORD]
    is_made = made_chunks(sidecar, columns, row_groups, words, make_constant_columns=make_constant_columns)
    is_right = counts[..., CHUNK_NUM_VALUES_WORD] == sidecar.row_counts[row_groups, np.newaxis]
    if not is_right.all():
        is_right |= [sidecar.column(column).max_rep_level > 0 for column in columns]
        _check(is_right, sidecar, row_groups, columns, "NUM_VALUES differs from NUM_ROWS")
    data_stop = sidecar.footer.parquet_footer_offset
    is_inside = (starts >= _PARQUET_MAGIC_BYTES) & (stops >= starts) & (stops <= data_stop) | is_made
    if not is_inside.all():
        message = f"the chunk lies outside the data of the file, [4, {data_stop})"
        _check(is_inside, sidecar, row_groups, columns, message)
    return _ChunkTable(columns=columns, starts=starts, stops=stops, is_made=is_made)


def _refuse_counts(sidecar: Sidecar, columns: Sequence[int]) -> None:
    """Gather the counts one by one, of which at least one is beyond any file, so that the error says which."""
    for chunks in map(sidecar.chunks, columns):
        _ = chunks.num_values, chunks.byte_range_start, chunks.total_compressed_bytes


def _check(
    holds: npt.NDArray[np.bool_],
    sidecar: Sidecar,
    row_groups: npt.NDArray[np.intp],
    columns: Sequence[int],
    message: str,
) -> None:
    wrong_columns, wrong_row_groups = (~holds).T.nonzero()
    if len(wrong_columns):
        row_group, column = int(row_groups[wrong_row_groups[0]]), sidecar.column(columns[wrong_columns[0]]).name
        raise FormatError(
            f"row group {row_group}, column {column!r}: {message}; make the sidecar anew with 'coldparquet index --force'",
            path=sidecar.path,
            field="COLUMN_CHUNKS",
            row_group=row_group,
            column=column,
        )
