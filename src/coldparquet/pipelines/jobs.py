"""All jobs by their names, and as plain data: how one goes to another process."""

from __future__ import annotations

from dataclasses import asdict, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.pipelines.job import Job

JOBS = {
    "index": ("coldparquet.pipelines.index_job", "IndexJob"),
    "verify": ("coldparquet.pipelines.verify_job", "VerifyJob"),
    "migrate": ("coldparquet.pipelines.index_job", "MigrateJob"),
    "compact": ("coldparquet.pipelines.compact_job", "CompactJob"),
    "publish": ("coldparquet.pipelines.publish_job", "PublishJob"),
    "tier": ("coldparquet.pipelines.tier_job", "TierJob"),
    "convert": ("coldparquet.pipelines.convert_job", "ConvertJob"),
}
"""Module and class of each, in the order of the command line's help. Workers import the one that they run: all of them take a
second."""


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
    if not isinstance(name, str) or name not in JOBS:
        raise InvalidInputError(f"there is no job {name!r}; there are {', '.join(JOBS)}", kind="UnknownJob")
    module, class_name = JOBS[name]
    job_class: type[Job] = getattr(import_module(module), class_name)
    known = {one.name for one in fields(job_class)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise InvalidInputError(
            f"the job {name} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}", kind="UnknownOption"
        )
    return job_class(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})
