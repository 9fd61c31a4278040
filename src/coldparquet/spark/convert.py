"""Conversions on Spark: any format that it reads into tables of cold partitions, and these into any format that it writes.

A conversion is a Spark job of its own, so that it runs on the driver, one source after the other.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from coldparquet.concurrency import background
from coldparquet.pipelines.convert_job import COLDPARQUET, left_overs
from coldparquet.pipelines.work import WorkResult, failure
from coldparquet.spark.failures import error_of
from coldparquet.spark.writer import write
from coldparquet.storage.open_store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from coldparquet.pipelines.access import Access
    from coldparquet.pipelines.convert_job import ConvertJob
    from coldparquet.pipelines.work import WorkItem

_PLAIN_FILES = frozenset({"csv", "json", "orc", "parquet", "text"})
"""Formats of which a directory without ``_SUCCESS`` is what a killed job left. Others commit by themselves."""


def convert(
    spark: SparkSession, job: ConvertJob, item: WorkItem, access: Access, credentials: str | None
) -> WorkResult:
    """Convert one source; what Spark raises is its result.

    Args:
        spark: The session.
        job: From what to what.
        item: The source.
        access: Settings of the stores; those of formats other than ours are Spark's own.
        credentials: Where executors find settings: ``env:NAME`` or ``file:/path``; None for their environment.
    """
    started_s = time.monotonic()
    try:
        is_written = _convert(spark, job, item, access, credentials)
    except Exception as error:  # noqa: BLE001 - classic Spark raises what Java and py4j raise, Connect what gRPC does
        return failure(item, error_of(error) or error, elapsed_s=time.monotonic() - started_s)
    return WorkResult(
        table=item.table_url,
        outcome="done" if is_written else "nothing to do",
        action="converted" if is_written else "kept",
        reason=None if is_written else "the destination is complete already",
        elapsed_s=time.monotonic() - started_s,
        details={"destination": item.work["destination"]},
    )


def _convert(spark: SparkSession, job: ConvertJob, item: WorkItem, access: Access, credentials: str | None) -> bool:
    """Convert; False if the destination is complete already."""
    destination = item.work["destination"]
    frame = _source(spark, job, item, access, credentials)
    if job.destination_format == COLDPARQUET:
        options = _options(access.destination_options, credentials)
        try:
            write(
                frame,
                destination,
                timestamp=job.timestamp,
                partition_by=job.partition_by,
                symbols=job.symbols,
                options=options,
            )
        except Exception as error:
            known = error_of(error)
            if known is not None and known.kind == "AlreadyExists":
                return False
            raise
        return True
    if job.destination_format in _PLAIN_FILES:
        if background.run(_is_complete(destination, access.destination_options)):
            return False
        frame.write.format(job.destination_format).mode("overwrite").save(destination)
        return True
    try:
        frame.write.format(job.destination_format).mode("error").save(destination)
    except AnalysisException as error:
        if "ALREADY_EXISTS" in (error.getCondition() or "") or "already exists" in str(error):
            return False
        raise
    return True


def _source(spark: SparkSession, job: ConvertJob, item: WorkItem, access: Access, credentials: str | None) -> DataFrame:
    if job.source_format == COLDPARQUET:
        options = _options(access.storage_options, credentials)
        return spark.read.format(COLDPARQUET).options(**options).load(item.table_url)
    if "/" not in item.table_url:  # a name in Spark's catalog: lake.sales.trades
        return spark.table(item.table_url)
    return spark.read.format(job.source_format).load(item.table_url)


def _options(explicit: Mapping[str, Any], credentials: str | None) -> dict[str, str]:
    options = {} if credentials is None else {"credentials": credentials}
    return {**options, "storage_options": json.dumps(dict(explicit))} if explicit else options


async def _is_complete(url: str, storage_options: Mapping[str, Any]) -> bool:
    """Tell whether files are there already; Spark would remove whatever else is, so that this is refused."""
    store, path = open_store(url, storage_options=storage_options)
    try:
        return await left_overs(store, path) is None
    finally:
        await store.aclose()
