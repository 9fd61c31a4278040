"""Genuine QuestDB partitions decode to what QuestDB answers about them, and to what pyarrow makes of the whole file."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from coldparquet.decode.arrow import TextAs
from coldparquet.decode.row_group import decode_row_group
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.types import resolve_type
from coldparquet.plan.columns import TableColumn

if TYPE_CHECKING:
    from coldparquet.decode.arrow import SymbolsAs

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"


def as_questdb_shows(column: Any) -> Any:
    """Infinities, which the files keep, show as null."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


@pytest.mark.parametrize("symbols", ["dictionary", "string"])
def test_whole_partition_equals_the_answers_of_questdb(
    golden_partition: Any, sparse_file: Any, symbols: SymbolsAs
) -> None:
    file = sparse_file(golden_partition.file.read_bytes())
    decoded = file.read(file.names, symbols=symbols)
    expected = golden_partition.expected()
    assert decoded.num_rows == golden_partition.row_count
    for name in file.names:
        column, answer = decoded[name], expected[name]
        assert decoded.schema.field(name).metadata == expected.schema.field(name).metadata
        if pa.types.is_dictionary(column.type):
            assert symbols == "dictionary"
            column = column.cast(pa.string())
        assert column.type == answer.type
        assert as_questdb_shows(column).equals(answer), name


def test_random_columns_of_random_row_groups_equal_pyarrow_on_the_whole_file(
    golden_partition: Any, sparse_file: Any
) -> None:
    file = sparse_file(golden_partition.file.read_bytes())
    whole = pq.ParquetFile(golden_partition.file)
    rng = random.Random(str(golden_partition))
    for _ in range(4):
        row_group = rng.randrange(whole.num_row_groups)
        names = rng.sample(file.names, rng.randint(1, len(file.names)))
        decoded = file.decode(file.plan(names)[row_group], names, symbols="string")
        expected = whole.read_row_group(row_group, columns=names)
        assert decoded.column_names == names
        for name in names:
            column_type = file.sidecar.column_type(file.names.index(name))
            if column_type.raw_array:
                continue  # pyarrow sees byte strings; the answers of QuestDB are the oracle
            column = expected[name]
            if isinstance(column.type, pa.ExtensionType):
                column = pa.chunked_array([chunk.storage for chunk in column.chunks])
            if column_type.never_null:
                column = column.fill_null(pa.scalar(0).cast(column.type))
            assert decoded[name].equals(column.cast(decoded[name].type)), name


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("symbols/table/*/data.parquet")), ids=lambda path: path.parent.name)
def test_dictionaries_hold_each_occurring_symbol_once(path: Path, sparse_file: Any) -> None:
    file = sparse_file(path.read_bytes())
    symbols = [name for name in file.names if file.sidecar.column_type(file.names.index(name)).name == "SYMBOL"]
    for read in file.plan(symbols).values():
        decoded = file.decode(read, symbols)
        for name in symbols:
            assert decoded[name].type == pa.dictionary(pa.int32(), pa.string())
            for chunk in decoded[name].chunks:
                values = chunk.dictionary.to_pylist()
                assert sorted(values) == sorted(set(chunk.to_pylist()) - {None})


def test_schema_is_that_of_the_answers(sparse_file: Any) -> None:
    folder = GOLDEN / "types_all"
    with pa.ipc.open_file(str(folder / "expected" / "rows.arrow")) as reader:
        expected = reader.schema
    file = sparse_file(next(folder.glob("table/2024-02-28.*/data.parquet")).read_bytes())
    decoded = file.decode(file.plan(file.names)[0], file.names, symbols="string")
    assert decoded.schema.equals(expected, check_metadata=True)


def test_all_null_chunks_are_made_without_their_bytes(sparse_file: Any) -> None:
    file = sparse_file(next(GOLDEN.glob("types_all/table/2024-03-01.*/data.parquet")).read_bytes())
    read = file.plan(file.names)[0]
    assert len(read.made_columns) > 20
    made = [file.names[column] for column in read.made_columns]
    decoded = file.decode(read, made)
    whole = pq.ParquetFile(pa.BufferReader(file.content)).read()
    for name in made:
        assert whole[name].null_count == decoded[name].null_count == read.row_count
        assert decoded[name].type == file.decode(read, [name])[name].type


def test_columns_that_the_partition_lacks_are_null_or_zero(sparse_file: Any) -> None:
    folder = GOLDEN / "column_added_after"
    with pa.ipc.open_file(str(folder / "expected" / "rows.arrow")) as reader:
        expected = reader.read_all()
    file = sparse_file(next(folder.glob("table/2024-01-01.*/data.parquet")).read_bytes())
    added = {
        "num": resolve_type(5, PhysicalType.INT32, 0, 0),
        "flag": resolve_type(1, PhysicalType.BOOLEAN, 0, 0),
        "tag": resolve_type(12, PhysicalType.BYTE_ARRAY, 0, 0),
        "tiny": resolve_type(2, PhysicalType.INT32, 0, 0),
    }
    outputs = [
        TableColumn(index=100 + number, name=name, id=-1, type=type_)
        for number, (name, type_) in enumerate(added.items())
    ]
    read = file.plan(["ts"])[0]
    places = {**read.data.places, **dict.fromkeys(column.index for column in outputs)}
    read = replace(read, data=replace(read.data, places=places))
    decoded = decode_row_group(
        file.fill(read),
        read,
        [*outputs, *file.outputs(["ts"])],
        text=TextAs(symbols="dictionary", strings="string"),
        check_page_checksums=True,
    )
    assert decoded.column_names == [*added, "ts"]
    for name in added:
        assert decoded[name].to_pylist() == expected[name].slice(0, read.row_count).to_pylist()


def test_infinities_stay_values(sparse_file: Any) -> None:
    values = np.array([1.0, np.inf, -np.inf, np.nan])
    output = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": values}), output)
    decoded = sparse_file(output.getvalue().to_pybytes()).read(["x"])
    assert np.array_equal(decoded["x"].to_numpy(), values, equal_nan=True)


def test_no_columns_still_have_rows(sparse_file: Any) -> None:
    file = sparse_file(next(GOLDEN.glob("pages/table/*/data.parquet")).read_bytes())
    decoded = [file.decode(read, []) for read in file.plan([]).values()]
    assert [table.num_rows for table in decoded] == file.sidecar.row_counts.tolist()
