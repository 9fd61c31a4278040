"""Jobs over whole lakes, in pieces of plain data that any engine can run.

    report = await run_pipeline(IndexJob(), "s3://bucket/db")
    report = await run_pipeline(CompactJob(), "s3://bucket/db/*", engine=coldparquet.spark.SparkEngine(spark=spark))

A job finds what is left to do in the tables themselves, cuts it into items (one partition, or one table, each), runs every
item wherever the engine wants it to, and finishes on the driver. One bad partition does not stop the others, and running a
job again does only what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.lazy_names import lazy_names

if TYPE_CHECKING:
    from coldparquet.maintenance.index import IndexJob
    from coldparquet.maintenance.migrate import MigrateJob
    from coldparquet.maintenance.pack import PackJob
    from coldparquet.maintenance.tier import TierJob
    from coldparquet.maintenance.verify import VerifyJob
    from coldparquet.pipelines.model import PipelineReport
    from coldparquet.pipelines.run import LocalEngine, run_pipeline
    from coldparquet.publish.job import PublishJob
    from coldparquet.write.compact_job import CompactJob
    from coldparquet.write.convert import ConvertJob

__all__ = [
    "CompactJob",
    "ConvertJob",
    "IndexJob",
    "LocalEngine",
    "MigrateJob",
    "PackJob",
    "PipelineReport",
    "PublishJob",
    "TierJob",
    "VerifyJob",
    "run_pipeline",
]

_MODULES = {
    "CompactJob": "coldparquet.write.compact_job",
    "ConvertJob": "coldparquet.write.convert",
    "IndexJob": "coldparquet.maintenance.index",
    "LocalEngine": "coldparquet.pipelines.run",
    "MigrateJob": "coldparquet.maintenance.migrate",
    "PackJob": "coldparquet.maintenance.pack",
    "PipelineReport": "coldparquet.pipelines.model",
    "PublishJob": "coldparquet.publish.job",
    "TierJob": "coldparquet.maintenance.tier",
    "VerifyJob": "coldparquet.maintenance.verify",
    "run_pipeline": "coldparquet.pipelines.run",
}
"""Where each name is defined. They are imported when they are used: a worker imports this package for one of them."""


if not TYPE_CHECKING:  # type checkers know which names there are
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
