"""Sidecars whose checksum is right and whose content is not, and URLs with secrets."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.storage import urls
from coldparquet.storage.memory import MemoryStore

if TYPE_CHECKING:
    from coldparquet.format.sidecar_writer import SidecarContent
    from coldparquet.storage.base import ObjectStore

ROWS = 1_000


@pytest.fixture(scope="module")
def data() -> bytes:
    sink = pa.BufferOutputStream()
    numbers, texts = pa.array(range(ROWS), pa.int64()), pa.array(["a", "b"] * (ROWS // 2))
    pq.write_table(pa.table({"x": numbers, "text": texts}), sink, row_group_size=ROWS // 4)
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="module")
def content(data: bytes) -> SidecarContent:
    length = int.from_bytes(data[-8:-4], "little")
    footer_offset = len(data) - 8 - length
    return sidecar_content_from_footer(parse_footer(data[footer_offset:-8], path="x", offset=footer_offset))


def store_of(data: bytes, content: SidecarContent) -> MemoryStore:
    return MemoryStore({"t/data.parquet": data, "t/_pm": encode_sidecar(content)})


def all_null(content: SidecarContent, row_count: int) -> SidecarContent:
    return replace(
        content,
        row_groups=[
            replace(
                row_group,
                row_count=row_count,
                chunks=[
                    replace(chunk, num_values=row_count, null_count=row_count, min=None, max=None)
                    for chunk in row_group.chunks
                ],
            )
            for row_group in content.row_groups
        ],
    )


async def test_a_billion_nulls_take_no_memory(data: bytes, content: SidecarContent) -> None:
    async with cp.open_table("t", store=store_of(data, all_null(content, 1 << 30))) as table:
        before_bytes = pa.total_allocated_bytes()
        rows = await table.scan().to_arrow()
        assert rows.num_rows == 4 << 30
        assert rows.column("x").slice(1 << 31, 2).to_pylist() == [None, None]
        assert pa.total_allocated_bytes() - before_bytes < 50_000_000


async def test_row_groups_beyond_all_reason_are_refused(data: bytes, content: SidecarContent) -> None:
    async with cp.open_table("t", store=store_of(data, all_null(content, 1 << 40))) as table:
        with pytest.raises(cp.errors.FormatError, match="1,099,511,627,776 rows") as caught:
            await table.scan().to_arrow()
        assert caught.value.details["field"] == "NUM_ROWS"


async def test_a_designated_timestamp_that_is_text_prunes_nothing(data: bytes, content: SidecarContent) -> None:
    lie = replace(content, designated_timestamp=1)
    async with cp.open_table("t", store=store_of(data, lie)) as table:
        assert await table.scan(["x"], "text > 'a'").count() == ROWS // 2


async def test_signatures_in_a_url_are_shown_nowhere(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_store(_url: str, **_options: object) -> tuple[ObjectStore, str]:
        return MemoryStore({"t/data.parquet": data}), "t/data.parquet"

    monkeypatch.setattr("coldparquet.table.open_store", open_store)
    async with cp.open_table("https://user:hunter2@host/t/data.parquet?X-Amz-Signature=hunter2") as table:
        scan = table.scan()
        plan = await scan.plan()
        assert table.url == "https://host/t/data.parquet"
        shown = (repr(table), repr(scan), repr(plan), plan.explain(), json.dumps(plan.as_dict()), pickle.dumps(plan))
        assert not any("hunter2" in str(text) for text in shown)


@pytest.mark.parametrize("url", ["s3://bucket/a?b#c", "/data/a?b#c", "data/a?b#c", "file:///a?b#c"])
def test_urls_without_secrets_are_shown_whole(url: str) -> None:
    assert urls.shown_url(url) == url
