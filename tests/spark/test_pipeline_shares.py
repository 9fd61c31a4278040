"""What a task of a pipeline does, without Spark: dealing items out, and running those that it was dealt."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from coldparquet.errors import ColdParquetError, InvalidInputError, StorageError, UnsupportedError
from coldparquet.pipelines import IndexJob
from coldparquet.pipelines.model import Access, Lake, LakeStores, WorkItem, WorkResult, job_as_dict
from coldparquet.spark.engine import SparkEngine, deal, run_shares
from tests.support.table_copies import damage, make_lake, partition_count

if TYPE_CHECKING:
    from pathlib import Path


def item(number: int, cost_bytes: int = 0) -> WorkItem:
    return WorkItem(lake="/lake", table="t", partition=str(number), cost_bytes=cost_bytes)


@pytest.mark.parametrize(
    ("costs", "shares", "expected"),
    [
        ([0, 0, 0, 0, 0], 2, [3, 2]),
        ([9, 5, 4], 2, [1, 2]),
        ([1, 1, 1], 3, [1, 1, 1]),
    ],
)
def test_items_are_dealt_out_evenly(costs: list[int], shares: int, expected: list[int]) -> None:
    dealt = deal([item(number, cost) for number, cost in enumerate(costs)], shares)
    assert [len(share) for share in dealt] == expected
    assert sorted(one.partition for share in dealt for one in share) == [str(number) for number in range(len(costs))]


def terms(**changes: Any) -> str:
    return json.dumps(
        {
            "job": job_as_dict(IndexJob(pages=False, pack=False)),
            "credentials": None,
            "access": Access().as_dict(),
        }
        | changes
    )


async def items_of(lake: Path) -> list[WorkItem]:
    async with LakeStores(Access()) as stores:
        return list((await IndexJob(pages=False, pack=False).plan([Lake.parse(str(lake))], stores)).items)


async def test_a_share_of_items_becomes_their_results(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, "interval_day", "interval_hour")
    bad = min((lake / "db" / "interval_day").iterdir())
    damage(bad)
    shares = deal(await items_of(lake), 2)
    batch = pa.RecordBatch.from_pydict(
        {"task": [0, 1], "items": ["\n".join(one.to_json() for one in share) for share in shares]}
    )

    # In a thread: a task of Spark has no event loop.
    answers = await asyncio.to_thread(lambda: list(run_shares(terms(), iter([batch]))))
    results = [WorkResult.from_json(str(text)) for answer in answers for text in answer.column("result").to_pylist()]
    assert len(results) == partition_count("interval_day", "interval_hour")
    assert [result.partition for result in results if result.outcome == "failed"] == [bad.name]
    assert len(list(lake.rglob("_pm"))) == len(results) - 1


def test_credentials_are_resolved_in_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_pydict({"task": [0], "items": [item(1).to_json()]})
    with pytest.raises(InvalidInputError, match="no such environment variable"):
        list(run_shares(terms(credentials="env:LAKE_SETTINGS"), iter([batch])))
    monkeypatch.setenv("LAKE_SETTINGS", '{"unknown": 1}')
    (answer,) = run_shares(terms(credentials="env:LAKE_SETTINGS"), iter([batch]))
    assert WorkResult.from_json(str(answer.column("result")[0])).outcome == "failed"


def test_items_of_another_version() -> None:
    line = json.dumps({**json.loads(item(1).to_json()), "version": 99})
    batch = pa.RecordBatch.from_pydict({"task": [0], "items": [line]})
    with pytest.raises(UnsupportedError, match="same version"):
        list(run_shares(terms(), iter([batch])))


@pytest.mark.parametrize(
    ("raised", "error_class", "kind", "words"),
    [
        (
            "Job 3 cancelled\n\tat org.apache.spark",
            StorageError,
            "EngineFailed",
            "the Spark job failed (Job 3 cancelled)",
        ),
        ("Traceback:\n  File ...\nMemoryError: 4 GiB\n\tat org", StorageError, "EngineFailed", "(MemoryError: 4 GiB)"),
        ("No module named 'coldparquet'", UnsupportedError, "MissingPackage", "has no package coldparquet"),
        ("coldparquet.errors.InvalidInputError: no [NoCredentials]", InvalidInputError, "NoCredentials", "no"),
    ],
)
async def test_why_a_job_failed_as_a_whole(
    raised: str, error_class: type[ColdParquetError], kind: str, words: str
) -> None:
    spark = MagicMock()
    spark.createDataFrame.side_effect = RuntimeError(raised)
    results: list[WorkResult] = []
    async with LakeStores(Access()) as stores:
        with pytest.raises(error_class) as caught:
            await SparkEngine(spark=spark, tasks=1).execute(
                IndexJob(pages=False, pack=False), [item(1)], stores, results.append
            )
    assert caught.value.kind == kind
    assert words in str(caught.value)
    assert "org.apache" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"tasks": 0}, {"credentials": "secret"}])
def test_engines_that_cannot_be_meant(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        SparkEngine(spark=None, **wrong)  # type: ignore[arg-type]
