# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet"]
# ///
"""Keep a lake in order every night: python examples/nightly_pipeline.py [LAKE], or on Spark: spark-submit the same.

A night that was cut off is continued by the next one: each job finds in the tables themselves what is left to do.
"""

import asyncio
import os
import sys

from coldparquet.pipelines import CompactJob, IndexJob, LocalEngine, TierJob, VerifyJob, run_pipeline
from coldparquet.pipelines.model import Engine, Job


def engine() -> Engine:
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit sets it, on a cluster too
        return LocalEngine()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only there

    from coldparquet.spark import SparkEngine  # noqa: PLC0415

    return SparkEngine(spark=SparkSession.builder.getOrCreate())


def jobs(lake: str) -> list[Job]:
    upkeep: list[Job] = [IndexJob(), CompactJob(purge=True)]
    if lake.startswith("s3://"):  # says what it would cost; without dry_run it is done
        upkeep.append(TierJob(storage_class_after=("90d=GLACIER_IR",), dry_run=True))
    return [*upkeep, VerifyJob()]


async def main(lake: str) -> int:
    failed = 0
    for job in jobs(lake):
        report = await run_pipeline(job, lake, engine=engine())
        cost = "" if report.dollars is None else f", ${report.dollars:.4f}"
        print(f"{report.job}: {report.actions}{cost}")
        for result in report.results:
            if result.outcome == "failed":
                print(f"  {result.table} {result.partition}: {result.reason}")
        failed += report.count("failed")
    return 1 if failed else 0


sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "trades")))
