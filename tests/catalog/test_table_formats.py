"""Tables of Delta and Iceberg, read in place: their packages tell the live files, and the rows are those that they read."""

from __future__ import annotations

import asyncio
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreServer
from coldparquet_testing.simulator.faults import FaultRule

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")


def rows(first: int, count: int = 10, **columns: Any) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([date(2024, 3, 1 + number % 3) for number in ids]),
            "venue": [("a b", "Zürich", None)[number % 3] for number in ids],
            "price": [number * 0.5 for number in ids],
            **columns,
        }
    )


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.sort_by("id").to_pylist()
    return found


def opened(url: object, table_format: Any) -> cp.sync.Table:
    return cp.sync.open_table(str(url), options=cp.ReadOptions(format=table_format))


def test_a_delta_table_has_the_rows_of_its_newest_version(tmp_path: Path) -> None:
    place = str(tmp_path / "delta")
    deltalake.write_deltalake(place, rows(0), partition_by=["day", "venue"])
    deltalake.write_deltalake(place, rows(10, extra=["x"] * 10), mode="append", schema_mode="merge")
    table = deltalake.DeltaTable(place)
    table.delete("id = 3")
    with pytest.raises(cp.errors.UnsupportedError, match=r"ReadOptions\(format='delta'\)"):
        cp.sync.open_table(place)
    expected = pa.table(deltalake.DeltaTable(place).to_pyarrow_table())
    with opened(place, "delta") as delta:
        found = delta.scan(["id", "day", "venue", "price", "extra"]).to_arrow()
        assert in_order(found) == in_order(expected.select(["id", "day", "venue", "price", "extra"]))
        assert found.schema.field("day").type == pa.date32()
        assert delta.scan(where="day = '2024-03-02' and venue = 'Zürich'").count() == 7
        assert delta.scan(where="venue is null").count() == 6
        plan = delta.scan(where="day = '2024-03-02'").plan()
        assert "version 2 of a Delta table" in plan.explain()
        assert plan.partitions_pruned
        table.delete("id > 5")
        delta.refresh()
        assert delta.scan().count() == 5


def test_a_delta_table_with_deletion_vectors_is_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(0), configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(cp.errors.UnsupportedError, match="deletion vectors") as caught:
        opened(tmp_path, "delta")
    assert caught.value.kind == "TableFeature"


def test_a_partition_column_of_an_odd_type_is_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [1], "flag": [True]}), partition_by=["flag"])
    with pytest.raises(cp.errors.UnsupportedError, match="'flag' is of the type bool"):
        opened(tmp_path, "delta")


@pytest.fixture
def iceberg(tmp_path: Path) -> Any:
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("test", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("db")
    return catalog.create_table("db.trades", schema=rows(0).schema)


def test_an_iceberg_table_has_the_rows_of_its_current_snapshot(iceberg: Any) -> None:
    iceberg.append(rows(0))
    iceberg.append(rows(10))
    iceberg.delete("id = 3")
    place = iceberg.location().removeprefix("file://")
    with pytest.raises(cp.errors.UnsupportedError, match=r"ReadOptions\(format='iceberg'\)"):
        cp.sync.open_table(place)
    for url in (iceberg.location(), place):
        with opened(url, "iceberg") as table:
            assert in_order(table.scan().to_arrow()) == in_order(iceberg.scan().to_arrow())
            assert table.scan(where="id >= 10").count() == 10
            assert "of an Iceberg table" in table.scan().plan().explain()


@pytest.mark.parametrize("lacking", [[], ["day", "venue", "id"]])
def test_partition_values_of_iceberg_are_columns_that_files_may_lack(lacking: list[str], iceberg: Any) -> None:
    """Files that Hive wrote, and a migrated table kept, lack their partition columns, as the specification permits."""
    with iceberg.update_spec() as update:
        for name in ("day", "venue", "id"):
            update.add_identity(name)
    with iceberg.update_schema() as update:
        update.add_column("extra", iceberg.schema().find_type("venue"))
    iceberg.append(rows(0, 6, extra=["x"] * 6))
    expected = iceberg.scan().to_arrow()
    for task in iceberg.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        pq.write_table(pq.ParquetFile(path).read().drop_columns(lacking), path)
    with opened(iceberg.location(), "iceberg") as table:
        found = table.scan(expected.column_names).to_arrow()
        assert in_order(found) == in_order(expected)
        assert found.schema.field("day").type == pa.date32()
        for where, count in (("day = '2024-03-02'", 2), ("venue is null", 2), ("venue = 'a b' and id >= 3", 1)):
            assert table.scan(where=where).count() == count
            assert sum(read.rows_read for read in table.scan(where=where).plan().partitions) == count


def test_an_iceberg_table_with_a_nested_partition_column_is_refused(iceberg: Any) -> None:
    types = import_module("pyiceberg.types")
    with iceberg.update_schema() as update:
        inner = types.NestedField(field_id=100, name="q", field_type=types.LongType(), required=False)
        update.add_column("p", types.StructType(inner))
    with iceberg.update_spec() as update:
        update.add_identity("p.q")
    iceberg.append(rows(0, p=[{"q": 1}] * 10))
    with pytest.raises(cp.errors.UnsupportedError, match="that are nested"), opened(iceberg.location(), "iceberg"):
        pass


def test_an_iceberg_table_of_which_some_files_have_partition_values_is_refused(iceberg: Any) -> None:
    iceberg.append(rows(0))
    with iceberg.update_spec() as update:
        update.add_identity("day")
    with opened(iceberg.location(), "iceberg") as table:
        assert table.scan().count() == 10
    iceberg.append(rows(10))
    with pytest.raises(cp.errors.UnsupportedError, match="in some of its files only"):
        opened(iceberg.location(), "iceberg")


def test_a_partition_value_of_iceberg_of_an_odd_type_is_refused(iceberg: Any) -> None:
    with iceberg.update_spec() as update:
        update.add_identity("price")
    iceberg.append(rows(0))
    with pytest.raises(cp.errors.UnsupportedError, match="'price' is of the type double"):
        opened(iceberg.location(), "iceberg")


def test_an_iceberg_table_with_a_renamed_column_is_refused(iceberg: Any) -> None:
    iceberg.append(rows(0))
    with iceberg.update_schema() as update:
        update.rename_column("price", "cost")
    with pytest.raises(cp.errors.UnsupportedError, match="renamed") as caught:
        opened(iceberg.location(), "iceberg")
    assert caught.value.kind == "TableFeature"


def test_what_cannot_be_certain_of_an_iceberg_table_is_refused(iceberg: Any) -> None:
    iceberg.append(rows(0))
    place = Path(iceberg.location().removeprefix("file://"))
    newest = Path(iceberg.metadata_location.removeprefix("file://"))
    other = newest.with_name(f"{newest.name[:6]}other.metadata.json")
    other.write_bytes(newest.read_bytes())
    with pytest.raises(cp.errors.UnsupportedError, match="catalog") as caught:
        opened(place, "iceberg")
    assert caught.value.kind == "AmbiguousMetadata"


def test_a_store_that_refuses_is_an_error_of_ours_without_its_answer(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    with ColdStoreServer(tmp_path) as server:
        server.set_faults(FaultRule("forbidden", operation="*"))
        for table_format in ("delta", "iceberg"):
            read = cp.ReadOptions(format=table_format)
            with pytest.raises(cp.errors.ColdParquetError) as caught:
                cp.sync.open_table("s3://bucket/t", storage_options=server.storage_options, options=read)
            assert "<" not in caught.value.message


def test_what_is_no_such_table_says_so(tmp_path: Path) -> None:
    for table_format in ("delta", "iceberg"):
        with pytest.raises(cp.errors.ColdParquetError) as caught:
            opened(tmp_path, table_format)
        assert isinstance(caught.value, cp.errors.NotFoundError)
    with pytest.raises(cp.errors.InvalidInputError):
        cp.ReadOptions(format="hudi")  # type: ignore[arg-type]


def test_an_index_of_live_files_serves_a_delta_table_in_a_store(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "bucket" / "delta"), rows(0, 30), partition_by=["day"])
    deltalake.write_deltalake(str(tmp_path / "bucket" / "delta"), rows(30, 30), mode="append")
    deltalake.DeltaTable(str(tmp_path / "bucket" / "delta")).delete("id < 3")
    with ColdStoreServer(tmp_path) as server:
        options, place = server.storage_options, "s3://bucket/indexes/delta"
        report = asyncio.run(
            index_table(
                "s3://bucket/delta", storage_options=options, format="delta", index=place, pages=False, pack=False
            )
        )
        assert report.catalogue is not None
        assert (report.catalogue.action, report.catalogue.packed_count) == ("written", 6)
        read = cp.ReadOptions(format="delta", index=place)
        with cp.sync.open_table("s3://bucket/delta", storage_options=options, options=read) as table:
            assert table.scan().count() == 57
            assert table.scan(where="id >= 50").to_arrow().num_rows == 10
            data = {record.path for record in table.request_log if record.path.endswith(".parquet")}
            assert len(data) == 3
