"""Each verb once: the function for one table, a lake of one here, and one in processes tell the same and leave the same files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldparquet.maintenance import index_table, migrate_table
from coldparquet.pipelines import CompactJob, IndexJob, LocalEngine, MigrateJob, PackJob, VerifyJob, run, run_pipeline
from coldparquet.pipelines.lakes import one_table
from coldparquet.pipelines.model import Place
from tests.support.table_copies import contents_of, copy_table, damage

TABLE = "interval_day"
MakeJob = Any
VERBS: dict[str, MakeJob] = {
    "index": IndexJob,
    "index pages": lambda **dry: IndexJob(pages=True, pack=True, **dry),
    "migrate": MigrateJob,
    "pack": PackJob,
    "verify": VerifyJob,
    "verify deep": lambda **dry: VerifyJob(deep=True, **dry),
    "compact": lambda **dry: CompactJob(force=True, **dry),
}


async def prepared(verb: str, root: Path) -> Path:
    """Copy a table of QuestDB of which one Parquet file is damaged, with sidecars where the verb is not about them."""
    table = copy_table(TABLE, root)
    if verb in {"pack", "verify", "verify deep"}:
        await index_table(table, pages=False, pack=False)
    damage(sorted(path.parent for path in table.glob("*/data.parquet"))[1])
    return table


def told(results: Any, table: Path) -> list[dict[str, Any]]:
    """What results say, but for the time, the place and the requests, and for details of what needed nothing.

    Compaction numbers versions in the order in which it comes to the partitions.
    """
    plain = []
    for result in sorted(results, key=lambda one: (one.partition, one.action)):
        said = json.loads(result.to_json().replace(str(table), "TABLE")) | {"elapsed_s": 0.0, "spent": {}}
        said["details"].pop("directory", None)
        if result.outcome == "nothing to do":
            said |= {"details": {}, "size_bytes": None}
        plain.append(said)
    return plain


def files_of(table: Path) -> dict[str, bytes]:
    """Every file but ``_txn``, by its path without versions."""
    return {
        path.partition(".")[0] + "/" + path.rpartition("/")[2]: content
        for path, (content, *_) in sorted(contents_of(table).items())
        if path != "_txn"
    }


@pytest.fixture(params=["inline", "processes"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    if request.param == "processes":
        monkeypatch.setattr(run, "SMALL_ITEMS_PER_WORKER", 1)
    return LocalEngine(processes=1 if request.param == "inline" else 2)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("verb", VERBS)
async def test_one_table_and_a_lake_of_one(verb: str, engine: LocalEngine, tmp_path: Path, *, dry_run: bool) -> None:
    if dry_run and verb.startswith("verify"):
        pytest.skip("a dry run of verify looks at nothing")
    alone, of_lake = [await prepared(verb, tmp_path / name) for name in ("alone", "lake")]
    before = contents_of(alone)
    job = VERBS[verb](dry_run=dry_run)
    seen: list[object] = []
    async with one_table(Place(alone)) as opened:
        run_alone = await job.on_table(opened, lambda *done: seen.append(done))
    assert seen or dry_run
    found = await run_pipeline(job, str(of_lake), engine=engine)
    assert told(found.results, of_lake) == told(run_alone.results, alone)
    assert files_of(of_lake) == files_of(alone)
    assert (contents_of(alone) == before) == (dry_run or verb.startswith("verify"))
    if dry_run or verb.startswith("verify"):
        return
    again = await run_pipeline(VERBS[verb.removesuffix(" pages")](), str(of_lake), engine=engine)
    assert verb == "compact" or again.count("done") == 0


@pytest.mark.parametrize("function", [index_table, migrate_table])
async def test_what_is_planned_is_what_is_written(function: Callable[..., Any], tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    planned, written = await function(table, dry_run=True), await function(table)
    assert [done.action for done in planned.partitions] == ["would write"] * 4 + ["skipped"]
    assert [done.sidecar_bytes for done in planned.partitions] == [done.sidecar_bytes for done in written.partitions]
    before = contents_of(table)
    kept = await function(table)
    assert [(done.action, done.is_stale) for done in kept.partitions] == [("kept", False)] * 4 + [("skipped", False)]
    assert contents_of(table) == before
