"""Compaction through the S3 protocol: the data first, `_txn` last and on a condition."""

from __future__ import annotations

from pathlib import Path

import coldparquet as cp
from coldparquet.write.compact import CompactionOptions, compact_table
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.questdb_tables import assert_same_rows, expected_rows
from tests.support.table_copies import copy_table
from tests.support.written_tables import directories

URL = "s3://bucket/symbols"


async def test_the_server_sees_the_commit_last(tmp_path: Path) -> None:
    table = copy_table("symbols", tmp_path / "bucket")
    with ColdStoreServer(tmp_path) as server:
        options = CompactionOptions(purge_after_s=0)
        report = await compact_table(URL, storage_options=server.storage_options)
        assert report.count("compacted") == 1
        writes = [served.path.rpartition("symbols/")[2] for served in server.requests if served.method == "PUT"]
        new = "2024-01-01.9"
        assert writes == [f"{new}/data.parquet", f"{new}/_pm", f"{new}/ix.k", f"{new}/ix.v", "_txn"]
        async with cp.open_table(URL, storage_options=server.storage_options) as opened:
            assert opened.partitions[0].name == new
            assert_same_rows(await opened.scan().to_arrow(), expected_rows("symbols"))
        report = await compact_table(URL, purge=True, options=options, storage_options=server.storage_options)
        assert (report.count("compacted"), report.purged) == (0, ("2024-01-01.8",))
    assert "2024-01-01.8" not in [name for name in directories(table) if any((table / name).iterdir())]
