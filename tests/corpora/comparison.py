"""One Parquet file read by us in every mode, and by pyarrow: values, and answers to random questions."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.errors import ColdParquetError, UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore
from tests.support.random_tables import assert_identical

PARTITION = "corpus/one"
QUESTIONS = 6
"""For each file and mode; the seed is the file's length, so that they are the same in each run."""
LAST_ROWS = 3
_COMPARISONS = {"__eq__": pc.equal, "__lt__": pc.less, "__ge__": pc.greater_equal}


class Mode(StrEnum):
    """From what a file is planned."""

    FOOTER = "no sidecar"
    SIDECAR = "index --no-pages"
    PAGES = "index"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one file in one mode."""

    outcome: str
    """``equal``; ``refused``, also where single columns are; ``unreadable``, for pyarrow too; ``no oracle``."""
    reason: str = ""
    """Of a refusal: class and text of our error."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What pyarrow says of a file."""

    rows: pa.Table | None
    """None where it refuses the file."""
    is_valid: bool
    """Whether it calls all of the values valid: text is UTF-8, and times of day lie in a day."""


async def compare(data: bytes, mode: Mode, known: Expected) -> Verdict:
    """Compare one file; raises AssertionError where a row differs, and what is no error of ours as it is.

    Args:
        data: The file.
        mode: From what it is planned.
        known: What :func:`read_with_pyarrow` says of it. It is read once for all modes: that may take most of the time.
    """
    expected = known.rows
    try:
        store = await _store(data, mode)
        async with cp.open_partition(PARTITION, store=store) as partition:
            refused = [reason async for reason in _refused_columns(partition)]
            names = [name for name in partition.schema.names if name not in {column for column, _ in refused}]
            if refused and expected is None:  # it refuses the whole file
                return Verdict("unreadable", refused[0][1])
            if refused and not names:
                return Verdict("refused" if known.is_valid else "unreadable", refused[0][1])
            found = await partition.scan(names or None).to_arrow()  # a list of no columns is refused
            if expected is None:
                return Verdict("no oracle")
            assert_same(found, expected.select(names))
            await _ask(partition, found, Random(len(data)))
            await _ask_for_the_last_rows(partition, found)
    except ColdParquetError as error:
        return Verdict("refused" if known.is_valid else "unreadable", f"{type(error).__name__}: {error}")
    return Verdict("refused", refused[0][1]) if refused else Verdict("equal")


def read_with_pyarrow(data: bytes) -> Expected:
    """Read a file with pyarrow."""
    try:
        options: dict[str, Any] = {"page_checksum_verification": True, "arrow_extensions_enabled": False}
        rows = pq.ParquetFile(io.BytesIO(data), **options).read()
    except (pa.ArrowException, OSError, ValueError, NotImplementedError):
        return Expected(None, is_valid=False)
    try:
        rows.validate(full=True)
    except (pa.ArrowException, ValueError):
        return Expected(rows, is_valid=False)
    return Expected(rows, is_valid=True)


async def _store(data: bytes, mode: Mode) -> MemoryStore:
    store = MemoryStore()
    await store.put(f"{PARTITION}/data.parquet", data, overwrite=False)
    if mode is not Mode.FOOTER:
        # Where that fails, opening the partition says why.
        await index_table(PARTITION, store=store, pages=mode is Mode.PAGES, pack=False)
    return store


async def _refused_columns(partition: cp.Table) -> AsyncIterator[tuple[str, str]]:
    """Yield the columns that cannot be read although others can, with the reason."""
    try:
        await partition.scan().to_arrow()
    except UnsupportedError as error:
        if (left_out := error.details.get("column")) not in partition.schema.names:
            yield str(left_out), f"{type(error).__name__}: {error}"
        for name in partition.schema.names:
            try:
                await partition.scan([name]).to_arrow()
            except UnsupportedError as of_column:
                yield name, f"{type(of_column).__name__}: {of_column}"
        if len(partition.schema.names) <= 1:  # none is left of a file of half floats alone
            raise error from None


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Equal values, in types that hold the same: each converts into the other without loss."""
    assert found.schema.names == expected.schema.names
    assert found.num_rows == expected.num_rows, f"{found.num_rows} rows instead of {expected.num_rows}"
    if not expected.schema.names:
        return  # Arrow casts tables without columns to tables without rows
    for position, field in enumerate(expected.schema):
        if pa.types.is_null(field.type):  # what no value has; the file's physical type is as good
            column = expected.column(position).cast(found.schema.field(position).type)
            expected = expected.set_column(position, field.name, column)
    assert_identical(found.cast(expected.schema.remove_metadata()), expected)
    assert_identical(_plain(expected).cast(_plain(found).schema), _plain(found))


def _plain(table: pa.Table) -> pa.Table:
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.schema.names)


async def _ask(partition: cp.Table, rows: pa.Table, random: Random) -> None:
    """Ask for values that are there; the oracle is Arrow's comparison of the rows, which are those that pyarrow read."""
    rows = _plain(rows)
    names = [name for name in rows.schema.names if name and _may_be_asked(rows.schema.field(name).type)]
    for _ in range(QUESTIONS if names and rows.num_rows else 0):
        name = random.choice(names)
        column = rows.column(name)
        if not _has_order(column.type):
            await _ask_for_nulls(partition, rows, name)
            continue
        value = column[random.randrange(len(column))]
        try:
            literal = value.as_py()
        except (OverflowError, ValueError):
            continue  # Python has no such date
        if literal is None:
            where, mask = cp.col(name).is_null(), pc.is_null(column)
        else:
            word = random.choice(list(_COMPARISONS))
            where, mask = getattr(cp.col(name), word)(literal), _COMPARISONS[word](column, value)
        wanted = rows.filter(mask)
        question = partition.scan([name], where)
        assert await question.count() == wanted.num_rows, f"count where {where}"
        assert_same(await question.to_arrow(), wanted.select([name]))


async def _ask_for_nulls(partition: cp.Table, rows: pa.Table, name: str) -> None:
    """Ask for the rows of which a nested column is null, and for the others."""
    for where, mask in (
        (cp.col(name).is_null(), pc.is_null(rows.column(name))),
        (~cp.col(name).is_null(), pc.is_valid(rows.column(name))),
    ):
        wanted = rows.filter(mask)
        question = partition.scan([name], where)
        assert await question.count() == wanted.num_rows, f"count where {where}"
        assert_same(await question.to_arrow(), wanted.select([name]))


async def _ask_for_the_last_rows(partition: cp.Table, rows: pa.Table) -> None:
    count = min(LAST_ROWS, rows.num_rows)
    assert_same(
        await partition.scan(rows.schema.names or None).tail(LAST_ROWS), rows.slice(rows.num_rows - count, count)
    )


def _may_be_asked(type_: Any) -> bool:
    return _has_order(type_) or pa.types.is_nested(type_) or pa.types.is_float16(type_)


def _has_order(type_: Any) -> bool:
    return not pa.types.is_float16(type_) and any(
        matches(type_)
        for matches in (
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_decimal,
            pa.types.is_string,
            pa.types.is_timestamp,
            pa.types.is_date,
        )
    )
