"""All jobs by their names, and as plain data: how one goes to another process."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError
from coldparquet.pipelines.compact_job import CompactJob
from coldparquet.pipelines.convert_job import ConvertJob
from coldparquet.pipelines.index_job import IndexJob, MigrateJob
from coldparquet.pipelines.publish_job import PublishJob
from coldparquet.pipelines.tier_job import TierJob
from coldparquet.pipelines.verify_job import VerifyJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.pipelines.job import Job

JOBS: dict[str, type[Job]] = {
    job.name: job for job in (IndexJob, VerifyJob, MigrateJob, CompactJob, PublishJob, TierJob, ConvertJob)
}
"""In the order of the command line's help."""


def job_as_dict(job: Job) -> dict[str, Any]:
    """Return a job as plain data that ``json.dumps`` takes: its name as ``job``, and its fields."""
    return {"job": job.name, **asdict(job)}


def job_from_dict(data: Mapping[str, Any]) -> Job:
    """Make a job from plain data; what is left out has its default.

    Raises:
        InvalidInputError: There is no such job (kind ``UnknownJob``), it has no such field (``UnknownOption``), or a value
            cannot be meant.
    """
    given = dict(data)
    name = given.pop("job", None)
    job_class = JOBS.get(name) if isinstance(name, str) else None
    if job_class is None:
        raise InvalidInputError(f"there is no job {name!r}; there are {', '.join(JOBS)}", kind="UnknownJob")
    known = {one.name for one in fields(job_class)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise InvalidInputError(
            f"the job {name} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}", kind="UnknownOption"
        )
    return job_class(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})
