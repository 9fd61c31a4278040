"""The job ``convert`` on Spark.

Conversions read any Spark format into tables of cold partitions, and write these tables to any Spark format.

A conversion is a Spark job of its own, so conversions run on the driver, one source after the other. Formats that are
not part of Spark need their own package on it, built for this version of Spark. Delta 4.4, which is built for Spark
4.2, writes on 4.3. But it reads there by name alone and with ``spark.databricks.delta.v2.enableMode=STRICT``. Iceberg
1.12, built for Spark 4.1, does not load on 4.3; on 4.1 it was tested both ways, with names of a catalog.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from coldparquet.concurrency import background
from coldparquet.errors import InternalError
from coldparquet.pipelines.model import Place, WorkResult, failure
from coldparquet.spark.errors import error_of
from coldparquet.spark.writer import write
from coldparquet.write.convert import COLDPARQUET, ConvertJob, check_same_columns, left_overs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from coldparquet.pipelines.model import Access, Job, WorkItem


_PLAIN_FILES = frozenset({"csv", "json", "orc", "parquet", "text"})
"""Formats in which a directory without ``_SUCCESS`` comes from a killed job. Others have their own commits."""


def convert(spark: SparkSession, job: Job, item: WorkItem, access: Access, credentials: str | None) -> WorkResult:
    """Convert one source; an error of Spark becomes its result."""
    started_s = time.monotonic()
    if not isinstance(job, ConvertJob):
        raise InternalError(f"{job.name} converts nothing")
    try:
        is_written = _convert(spark, job, item, access, credentials)
    except Exception as error:  # noqa: BLE001 - classic Spark raises what Java and py4j raise, Connect what gRPC does
        return failure(item, error_of(error) or error, elapsed_s=time.monotonic() - started_s)
    return WorkResult(
        table=item.table_url,
        outcome="done" if is_written else "nothing to do",
        action="converted" if is_written else "kept",
        reason=None
        if is_written
        else "the destination is complete already; whether the source changed since was not looked at",
        elapsed_s=time.monotonic() - started_s,
        details={"destination": item.work["destination"]},
    )


def _convert(spark: SparkSession, job: ConvertJob, item: WorkItem, access: Access, credentials: str | None) -> bool:
    """Convert; False if the destination is already complete."""
    destination = item.work["destination"]
    frame = _source(spark, job, item, access, credentials)
    if job.destination_format in _PLAIN_FILES:
        if background.run(_is_complete(destination, access)):
            return False
        frame.write.format(job.destination_format).mode("overwrite").save(destination)
        return True
    options = _options(access.destination_options, credentials) if job.destination_format == COLDPARQUET else {}
    try:
        if job.destination_format == COLDPARQUET:
            write(
                frame,
                destination,
                timestamp=job.timestamp,
                partition_by=job.partition_by,
                symbols=job.symbols,
                options=options,
            )
        elif _is_name(destination):
            frame.write.format(job.destination_format).mode("error").saveAsTable(destination)
        else:
            frame.write.format(job.destination_format).mode("error").save(destination)
    except Exception as error:
        if not _says_that_it_exists(error):
            raise
        found = _loaded(spark, job.destination_format, destination, options)
        check_same_columns(found.columns, frame.columns, destination)
        return False
    return True


def _says_that_it_exists(error: Exception) -> bool:
    """Tell whether the table existed before. Such tables are committed as a whole, so that one is complete."""
    known = error_of(error)
    if known is not None:
        return known.kind == "AlreadyExists"
    return isinstance(error, AnalysisException) and (error.getCondition() or "").endswith("_EXISTS")


def _source(spark: SparkSession, job: ConvertJob, item: WorkItem, access: Access, credentials: str | None) -> DataFrame:
    is_ours = job.source_format == COLDPARQUET
    options = _options(access.storage_options, credentials) if is_ours else {}
    return _loaded(spark, job.source_format, item.table_url, options)


def _loaded(spark: SparkSession, source_format: str, place: str, options: Mapping[str, str]) -> DataFrame:
    if source_format != COLDPARQUET and _is_name(place):
        return spark.table(place)
    return spark.read.format(source_format).options(**options).load(place)


def _is_name(place: str) -> bool:
    """Tell whether a place is a name in Spark's catalog, such as ``lake.sales.trades``, and not a URL."""
    return "/" not in place


def _options(explicit: Mapping[str, Any], credentials: str | None) -> dict[str, str]:
    options = {} if credentials is None else {"credentials": credentials}
    return {**options, "secret_options": json.dumps(dict(explicit))} if explicit else options


async def _is_complete(url: str, access: Access) -> bool:
    """Tell whether the files exist. Spark would remove all other content, so that is refused."""
    place = Place(url, access.destination_options, access.store_options)
    async with place.opened(max_concurrency=access.max_concurrency) as opened:
        return await left_overs(opened.stack.store, opened.path) is None
