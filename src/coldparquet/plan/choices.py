"""Estimates whether a technique that saves bytes is worth a further round trip or more requests, and decoded sizes.

Pure functions of bytes and estimates. Each choice comes with its reason as text, for explain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from coldparquet.errors import UnsupportedError
from coldparquet.plan.statistics import ColumnFacts
from coldparquet.text import human_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.format.sidecar_chunks import RowGroupTable
    from coldparquet.format.types import ColumnType
    from coldparquet.options import Goal, ReadOptions, When
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.model import StoreSpeed
    from coldparquet.plan.selectivity import FloatArray


_VALUE_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float32": 4, "float64": 8, "timestamp": 8, "date32": 4, "time32": 4, "time64": 8, "decimal128": 16,
    "decimal256": 32,
}  # fmt: skip
"""Bytes of one value by the name of its Arrow type."""

_KEY_BYTES = 4
"""A key of a dictionary, or the offset of a text or list."""

_VIEW_BYTES = 16
"""A view of a text."""

_EXPANSION = 3
"""Decoded text and arrays take about this many times the bytes of their compressed pages."""


def decoded_row_bytes(
    table: RowGroupTable, columns: Sequence[int], row_groups: IntArray, options: ReadOptions
) -> npt.NDArray[np.float64]:
    """Estimate the memory that one decoded row takes in each column."""
    row_bytes = np.empty((len(row_groups), len(columns)), np.float64)
    for position, column in enumerate(columns):
        row_bytes[:, position] = _row_bytes(table, column, row_groups, options)
    return row_bytes


def _row_bytes(
    table: RowGroupTable, column: int, row_groups: IntArray, options: ReadOptions
) -> float | npt.NDArray[np.float64]:
    try:
        column_type = table.column_type(column)
    except UnsupportedError:
        return _EXPANSION * _compressed_row_bytes(table, column, row_groups)
    name = column_type.arrow.name
    if name in _VALUE_BYTES:
        return _VALUE_BYTES[name]
    if name == "fixed_size_binary":
        return column_type.arrow.width
    compressed_bytes = _compressed_row_bytes(table, column, row_groups)
    if _stays_dictionary(column_type, options):
        return _KEY_BYTES + compressed_bytes
    if name == "string" and options.strings == "view":
        return _VIEW_BYTES + _EXPANSION * compressed_bytes
    # A dictionary hides the length of texts; bounds show it.
    bound_bytes = _LONGEST_BOUNDS.of(table, column)[row_groups]
    return _KEY_BYTES + np.maximum(_EXPANSION * compressed_bytes, bound_bytes)


def made_row_bytes(column_type: ColumnType, value: bytes | None) -> int:
    """Estimate the memory that one row of a column takes that is null or one value in every row."""
    name = column_type.arrow.name
    if name == "fixed_size_binary":
        return column_type.arrow.width
    return _VALUE_BYTES.get(name, _KEY_BYTES + (0 if value is None else len(value)))


def _longest_bounds(table: RowGroupTable, column: int) -> npt.NDArray[np.int64]:
    """Return the bytes of each chunk's longer bound, shape ``(row_groups,)``; less than 1 without bounds."""
    chunks = table.chunks(column)
    longest: npt.NDArray[np.int64] = np.maximum(chunks.min.prefix_words()[1], chunks.max.prefix_words()[1])
    return longest


_LONGEST_BOUNDS = ColumnFacts(_longest_bounds)


def _compressed_row_bytes(table: RowGroupTable, column: int, row_groups: IntArray) -> npt.NDArray[np.float64]:
    compressed_bytes: npt.NDArray[np.float64] = table.chunks(column).total_compressed_bytes[row_groups] / np.maximum(
        table.row_counts[row_groups], 1
    )
    return compressed_bytes


def _stays_dictionary(column_type: ColumnType, options: ReadOptions) -> bool:
    wanted = options.symbols if column_type.arrow.name == "dictionary" else options.strings
    return column_type.arrow.name in ("dictionary", "string") and wanted not in ("string", "view")


_LEAST_GAIN = 0.1
"""Safety margin: a technique that costs a round trip must promise to save this part of the time or the bytes."""

_CAUTION = 8
"""Safety margin: this many times the expected rows are assumed to survive. Values are seldom spread evenly."""

_INDEX_BYTES_PER_CHUNK = 20
"""Column index and offset index of a chunk, without the part for each page."""

_INDEX_BYTES_PER_PAGE = 26
"""Two bounds of 8 bytes, a null count, and the place of the page. QuestDB's indexes of one page take 45 bytes."""


class Choice(Struct, frozen=True, kw_only=True):
    """Whether to use a technique."""

    pays: bool
    reason: str
    """For people, in lower case and without a full stop. It has no numbers, so that many partitions can share it."""
    details: str = ""
    """The numbers behind it."""


class LateChoice(Struct, frozen=True, kw_only=True, eq=False):
    """Which row groups use late materialisation."""

    late: BoolArray
    """Shape ``(row_groups,)``."""
    reason: str
    """Why there, or why nowhere; for people, in lower case and without a full stop."""
    why_not: str = ""
    """Why not in the others; empty if there are none."""


def page_index_pays(  # noqa: PLR0911, PLR0913 - one return per reason, on all that it depends on
    *,
    index_bytes: int,
    chunk_count: int,
    row_group_bytes: IntArray,
    surviving_fraction: FloatArray,
    extra_round_trip: bool,
    when: When,
    goal: Goal,
    request_bytes: int,
    speed: StoreSpeed,
) -> Choice:
    """Decide whether to fetch the page index of a partition.

    Pages help only if the remaining rows are contiguous. So the fraction is that of the columns that are clustered in
    the file. Of ``k`` pages, a fraction ``f`` of the rows touches ``f * k + 1``.
    """
    read_bytes = int(row_group_bytes.sum())
    if when == "never":
        return Choice(pays=False, reason="switched off")
    if index_bytes <= 0 or read_bytes == 0:
        return Choice(pays=False, reason="the file has no page index" if read_bytes else "no data is fetched")
    if when == "always":
        return Choice(pays=True, reason="asked for")
    pages = max((index_bytes / max(chunk_count, 1) - _INDEX_BYTES_PER_CHUNK) / _INDEX_BYTES_PER_PAGE, 1)
    if round(pages) <= 1:
        return Choice(pays=False, reason="the size of the page index says that chunks have one page each")
    saved_bytes = float((row_group_bytes * (1 - np.minimum(surviving_fraction + 1 / pages, 1))).sum())
    saving = (
        f"about {human_bytes(round(saved_bytes))} of {human_bytes(read_bytes)} can be left out for an index of"
        f" {human_bytes(index_bytes)}"
    )
    if goal == "few-requests":
        return Choice(pays=False, reason="it would take one more request", details=saving)
    if saved_bytes < index_bytes + request_bytes:
        return Choice(pays=False, reason="it would save too little", details=saving)
    worth_it = "it saves more than it costs"
    if goal != "fast" or not extra_round_trip:
        return Choice(pays=True, reason=worth_it, details=saving)
    before_s = speed.seconds(read_bytes)
    after_s = speed.seconds(index_bytes) + speed.seconds(read_bytes - saved_bytes)
    if after_s > (1 - _LEAST_GAIN) * before_s:
        details = f"{saving}, but reading would take {_times(after_s, before_s)}"
        return Choice(pays=False, reason="fetching it first would take longer than what it saves", details=details)
    return Choice(pays=True, reason=worth_it, details=f"{saving}: {_times(after_s, before_s)}")


def late_materialisation_pays(  # noqa: PLR0911, PLR0913 - one return per reason, on all that it depends on
    *,
    first_bytes: IntArray,
    deferred_bytes: IntArray,
    matching_rows: FloatArray,
    row_counts: IntArray,
    page_rows: IntArray,
    other_bytes: int,
    when: When,
    goal: Goal,
    request_bytes: IntArray,
    speed: StoreSpeed,
) -> LateChoice:
    """Decide in which row groups to read the predicate's columns first, and the others only for surviving rows.

    Row groups are fetched in parallel, so one more round trip serves any number of deferred row groups. The estimate of
    the saving is cautious: more rows survive than expected, and they are scattered over the pages.
    """
    nowhere = np.zeros(len(first_bytes), dtype=bool)
    can_wait = (deferred_bytes > 0) & (first_bytes > 0)
    if when == "never" or not can_wait.any():
        return LateChoice(late=nowhere, reason="switched off" if when == "never" else "no column can wait")
    if when == "always":
        return LateChoice(late=can_wait, reason="asked for")
    if goal == "few-requests":
        return LateChoice(late=nowhere, reason="fetching in two steps takes more requests")
    fraction = np.minimum(_CAUTION * matching_rows / np.maximum(row_counts, 1), 1)
    is_touched = 1 - (1 - fraction) ** np.clip(page_rows, 1, np.maximum(row_counts, 1))
    saved_bytes = deferred_bytes * (1 - is_touched)
    is_asked_again = 1 - (1 - fraction) ** np.maximum(row_counts, 1)
    late = can_wait & (saved_bytes >= np.maximum(request_bytes * is_asked_again, _LEAST_GAIN * deferred_bytes))
    total_bytes = int(first_bytes.sum() + deferred_bytes.sum()) + other_bytes
    why_not = _why_at_once(deferred_bytes[~late], request_bytes[~late])
    if not late.any():
        return LateChoice(late=nowhere, reason=why_not)
    saved = float(saved_bytes[late].sum())
    saving = f"about {human_bytes(round(saved))} of {human_bytes(total_bytes)} need not be fetched"
    if goal != "fast":
        return LateChoice(late=late, reason=saving, why_not=why_not)
    before_s, after_s = speed.seconds(total_bytes), speed.first_byte_s + speed.seconds(total_bytes - saved)
    if after_s > (1 - _LEAST_GAIN) * before_s:
        reason = f"{saving}, but reading would take {_times(after_s, before_s)}"
        return LateChoice(late=nowhere, reason=reason)
    return LateChoice(late=late, reason=f"{saving}: {_times(after_s, before_s)}", why_not=why_not)


def _why_at_once(deferred_bytes: IntArray, least_bytes: IntArray) -> str:
    """Say what prevents late materialisation in most of the other row groups; empty if there are none."""
    if len(deferred_bytes) == 0:
        return ""
    if 2 * np.count_nonzero(deferred_bytes < least_bytes) > len(deferred_bytes):
        return "the columns that could be read later are small"
    return "most pages would be needed anyway"


def _times(after_s: float, before_s: float) -> str:
    return f"about {after_s * 1e3:,.0f} ms in two round trips, {before_s * 1e3:,.0f} ms in one"
