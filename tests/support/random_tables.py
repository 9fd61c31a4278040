"""Random tables in a store in memory: rows of every type, written by us or by others, in many physical shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.plan.predicate import (
    And,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
)
from coldparquet.storage.memory import MemoryStore
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from tests.support.parquet_footers import parquet_bytes
from tests.support.random_values import (
    FOREIGN_KINDS,
    QUESTDB_KINDS,
    Comparisons,
    Kind,
    RandomColumn,
    random_column,
    random_literal,
)

TIMESTAMP = "ts"
MOST_PAGES = 60
"""Of one column in one file, about: more pages only take longer."""
_DAY_US = 86_400_000_000
_FIRST_DAY_US = 19_783 * _DAY_US  # 2024-03-01
_SIDECAR, _PAGES = "_pm", "_pages"


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomTable:
    """A table and everything that is known of it."""

    store: MemoryStore
    path: str
    columns: Mapping[str, RandomColumn]
    present: Mapping[str, list[Any]]
    """Values of each column without NULL, to draw literals from."""
    rows: pa.Table
    """As they were written, in table order."""
    shape: str
    """How it was written, for people."""

    @property
    def values(self) -> dict[str, list[Any]]:
        """Values of each column as Python compares them, None for NULL."""
        return {name: column.values for name, column in self.columns.items()}

    def open(self, options: cp.ReadOptions) -> Any:
        """Open it with the options."""
        return cp.open_table(self.path, store=self.store, options=options)


async def random_table(seed: int) -> RandomTable:
    """Write the table that belongs to a seed."""
    random = Random(seed)
    is_foreign = random.random() < 0.6
    row_count = random.choice((1, 2, 50, 300, 300, 700, 2000))
    day_count = random.choice((1, 1, 1, 3)) if row_count > 10 else 1
    columns = _random_columns(random, FOREIGN_KINDS if is_foreign else QUESTDB_KINDS, row_count, day_count)
    schema = pa.schema([column.field(name) for name, column in columns.items()])
    rows = pa.Table.from_arrays([column.array() for column in columns.values()], schema=schema)
    store, shapes = MemoryStore(), []
    for day, part in enumerate(_split_into_days(rows, columns, day_count)):
        directory = f"table/2024-03-0{day + 1}"
        if is_foreign:
            content, shape = _foreign_file(random, part, columns)
            await store.put(f"{directory}/data.parquet", content, overwrite=False)
        else:
            options = _write_options(random, columns, part.num_rows)
            timestamp = TIMESTAMP if TIMESTAMP in columns else None
            await write_partition(directory, part, timestamp=timestamp, options=options, store=store)
            shape = str(options)
        shapes.append(shape)
    shapes.append(await _index(random, store))
    return RandomTable(
        store=store,
        path="table",
        columns=columns,
        present={name: [value for value in column.values if value is not None] for name, column in columns.items()},
        rows=rows,
        shape=f"{row_count} rows, columns { ({name: column.kind.name for name, column in columns.items()}) }; "
        + "; ".join(shapes),
    )


# --- Rows -------------------------------------------------------------------------------------------------------------


def _random_columns(random: Random, kinds: tuple[Kind, ...], row_count: int, day_count: int) -> dict[str, RandomColumn]:
    columns = {}
    if day_count > 1 or random.random() < 0.6:
        span = (0, 1, row_count // 3 + 1, 10**6, _DAY_US * day_count - 1)
        limit = _DAY_US * day_count - 1 if day_count > 1 else random.choice(span)
        steps = sorted(random.randint(0, limit) for _ in range(row_count))
        kind = next(kind for kind in kinds if kind.name == "timestamp[us, tz=UTC]")
        columns[TIMESTAMP] = RandomColumn(kind=kind, values=[_FIRST_DAY_US + step for step in steps], is_required=True)
    for number in range(random.randint(1, 8)):
        columns[f"c{number}"] = random_column(random, random.choice(kinds), row_count)
    return columns


def _split_into_days(rows: pa.Table, columns: Mapping[str, RandomColumn], day_count: int) -> list[pa.Table]:
    if day_count == 1:
        return [rows]
    days = [(value - _FIRST_DAY_US) // _DAY_US for value in columns[TIMESTAMP].values]
    starts = [sum(day < wanted for day in days) for wanted in range(day_count + 1)]
    parts = [rows.slice(start, stop - start) for start, stop in pairwise(starts)]
    return [part for part in parts if part.num_rows]


# --- Files ------------------------------------------------------------------------------------------------------------


def _write_options(random: Random, columns: Mapping[str, RandomColumn], row_count: int) -> WriteOptions:
    bloomable = [
        name
        for name, column in columns.items()
        if column.kind.comparisons is not Comparisons.NULLS and column.kind.name != "bool"
    ]
    return WriteOptions(
        codec=random.choice(("zstd", "lz4_raw", "snappy", "gzip", "brotli", "none")),
        row_group_rows=random.choice((1_000_000, max(row_count // 3, 1), max(row_count // 7, 1))),
        page_rows=max(random.choice((1_000_000, 1, 7, 20, 100)), row_count // MOST_PAGES),
        page_index=random.random() < 0.8,
        bloom_columns=tuple(name for name in bloomable if random.random() < 0.4),
        bloom_fpp=random.choice((0.01, 0.5)),
    )


def _foreign_file(random: Random, rows: pa.Table, columns: Mapping[str, RandomColumn]) -> tuple[bytes, str]:
    """Write rows as others may, and say how."""
    encodings = {
        name: random.choice((*column.kind.encodings, "PLAIN"))
        for name, column in columns.items()
        if random.random() < 0.3
    }
    blooms = {
        name: {"ndv": random.choice((1, 100, 3000)), "fpp": random.choice((0.01, 0.3))}
        for name, column in columns.items()
        if random.random() < 0.4 and column.kind.comparisons is not Comparisons.NULLS and column.kind.name != "bool"
    }
    # Older versions of the format store nanoseconds and UINT32 as other types.
    needs_version_2 = any("ns" in column.kind.name or column.kind.name == "uint32" for column in columns.values())
    least_page_rows = rows.num_rows // MOST_PAGES
    settings: dict[str, Any] = {
        "row_group_size": random.choice((1_000_000, max(rows.num_rows // 3, 1), max(rows.num_rows // 7, 1))),
        "compression": random.choice(("none", "snappy", "gzip", "brotli", "zstd", "lz4")),
        "data_page_size": random.choice((1, 64, 300, 2000, 1 << 20)),
        "write_batch_size": max(random.choice((1, 5, 16, 64, 1024)), least_page_rows),
        "max_rows_per_page": random.choice((None, None, max(1, least_page_rows), 77)),
        "data_page_version": random.choice(("1.0", "2.0")),
        "version": "2.6" if needs_version_2 else random.choice(("1.0", "2.4", "2.6")),
        "use_dictionary": random.choice(([], [name for name in columns if name not in encodings])),
        "dictionary_pagesize_limit": random.choice((None, 1, 50)),
        "column_encoding": encodings or None,
        "write_statistics": random.choice((True, True, True, False, [*columns][:2])),
        "write_page_index": random.random() < 0.8,
        "store_schema": random.random() < 0.5,
        "store_decimal_as_integer": not encodings and random.random() < 0.5,
        "bloom_filter_options": blooms or None,
        "sorting_columns": [pq.SortingColumn(0)] if TIMESTAMP in columns else None,
    }
    return parquet_bytes(rows, **settings), f"pyarrow {settings}"


async def _index(random: Random, store: MemoryStore) -> str:
    """Write or remove sidecars and page files, and say which."""
    drawn = random.random()
    if drawn < 0.35:
        await index_table("table", store=store, pages=True, pack=False)
        kept = f"{_SIDECAR} and {_PAGES}"
    elif drawn < 0.8:
        await index_table("table", store=store, pages=False, pack=False)
        kept = _SIDECAR
    else:
        partitions = (await store.list("table")).directories
        await store.delete([f"{partition}/{_SIDECAR}" for partition in partitions])
        kept = "no sidecar"
    return kept


# --- Comparing --------------------------------------------------------------------------------------------------------


def assert_identical(found: pa.Table, expected: pa.Table) -> None:
    """Equal names, types but for dictionaries and views, and bits: NaN equals NaN, and -0.0 is not 0.0."""
    assert found.schema.names == expected.schema.names
    assert found.num_rows == expected.num_rows, f"{found.num_rows} rows instead of {expected.num_rows}"
    for name in expected.schema.names:
        actual, wanted = _bits(found.column(name)), _bits(expected.column(name))
        assert actual.type == wanted.type, f"{name}: {actual.type} instead of {wanted.type}"
        if not actual.equals(wanted):
            pairs = enumerate(zip(actual.to_pylist(), wanted.to_pylist(), strict=True))
            different = [(row, *pair) for row, pair in pairs if pair[0] != pair[1]]
            raise AssertionError(f"{name}: (row, found, expected) {different[:5]}, {len(different)} rows in all")


def _bits(column: Any) -> Any:
    """Return values that are equal if their bits are."""
    array: Any = column
    if isinstance(column, pa.ChunkedArray):
        array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays([_bits(array.keys), _bits(array.items)], ["key", "value"])
        return pa.ListArray.from_arrays(array.offsets, entries, mask=pc.is_null(array))
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, _bits(array.values), mask=pc.is_null(array))
    if pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        children = [_bits(array.field(number)) for number in range(len(names))]
        return pa.StructArray.from_arrays(children, names, mask=pc.is_null(array)) if names else array
    if pa.types.is_floating(array.type):
        return array.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[array.type.bit_width])
    return array


# --- Random questions about random tables: conditions of every form, and every combination of techniques --------------


def random_predicate(random: Random, table: RandomTable, depth: int = 2) -> Predicate:
    """Draw a tree of AND, OR and NOT over all comparisons of all columns; often one that is true for a row or a few."""
    drawn = random.random()
    if drawn < 0.35:
        return _predicate_of_a_row(random, table)
    if drawn < 0.65 and depth:
        parts = tuple(random_predicate(random, table, depth - 1) for _ in range(random.randint(1, 3)))
        return random.choice((And, And, Or))(parts)
    if drawn < 0.72 and depth:
        return Not(random_predicate(random, table, depth - 1))
    return _random_leaf(random, table)


def _random_leaf(random: Random, table: RandomTable) -> Predicate:
    drawn = random.random()
    if drawn > 0.98:
        return Literal(random.choice((True, False, None)))
    name = random.choice(tuple(table.columns))
    column, present = table.columns[name], table.present[name]
    comparisons = column.kind.comparisons
    if comparisons is Comparisons.NULLS or drawn > 0.86:
        return IsNull(name)
    if drawn > 0.65:
        literals = [random_literal(random, column, present) for _ in range(random.choice((0, 1, 2, 3, 20)))]
        return In(name, tuple(literals))
    operators = tuple(Operator) if comparisons is Comparisons.ALL else (Operator.EQUAL, Operator.NOT_EQUAL)
    operator, literal = random.choice(operators), random_literal(random, column, present)
    if isinstance(literal, str) and pa.types.is_string(_text_type(column.kind.storage)):
        if operator is Operator.LESS:
            return StartsWith(name, literal[: len(literal) // 2])
        if operator is Operator.GREATER:
            half = "".join(
                f"\\{letter}" if letter in "%_\\" else letter for letter in literal[: len(literal) // 2 + 1][:12]
            )
            return Like(name, (f"%{half}", f"{half}_%", f"_%{half[-1:]}%")[len(literal) % 3])
    return Comparison(name, operator, literal)


def _text_type(type_: Any) -> Any:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _predicate_of_a_row(random: Random, table: RandomTable) -> Predicate:
    """Draw what holds for one row that is there, and for those like it."""
    row = random.randrange(table.rows.num_rows)
    parts: list[Predicate] = []
    for name in random.choices(tuple(table.columns), k=random.randint(1, 3)):
        column = table.columns[name]
        value = column.values[row]
        if value is None or column.kind.comparisons is Comparisons.NULLS or value != value:  # noqa: PLR0124 - NaN
            parts.append(IsNull(name) if value is None else Not(IsNull(name)))
            continue
        literal = column.kind.literal(random, value)
        others = [random_literal(random, column, table.present[name]) for _ in range(random.randint(0, 4))]
        ranges = (
            (Operator.LESS_OR_EQUAL, Operator.GREATER_OR_EQUAL) if column.kind.comparisons is Comparisons.ALL else ()
        )
        operators = (Operator.EQUAL, Operator.EQUAL, *ranges)
        parts.append(random.choice((Comparison(name, random.choice(operators), literal), In(name, (literal, *others)))))
    return random.choice((And, And, And, Or))(tuple(parts))


def random_options(random: Random) -> cp.ReadOptions:
    """Draw a combination of techniques, and limits from tiny to huge."""
    choose = random.choice
    return cp.ReadOptions(
        sidecar_prefix_bytes=choose((32, 500, 64 * 1024)),
        footer_suffix_bytes=choose((8, 500, 64 * 1024)),
        goal=choose(("fast", "cheap", "few-requests", "few-bytes")),
        coalesce_gap_bytes=choose((None, 0, 1, 1000)),
        max_request_bytes=choose((None, None, 1500)),
        max_concurrency=choose((1, 3, 32)),
        memory_limit_bytes=choose((1, 2000, 100_000, 1 << 28)),
        decode_threads=choose((None, 1)),
        batch_rows=choose((1, 13, 100, 65_536)),
        symbols=choose(("dictionary", "string")),
        strings=choose(("dictionary", "string", "view")),
        statistics=random.random() < 0.8,
        make_constant_columns=random.random() < 0.7,
        bloom_filters=random.random() < 0.7,
        page_index=choose(("auto", "always", "always", "never")),
        late_materialisation=choose(("auto", "always", "always", "never")),
    )
