"""A file for spark-submit: ``spark-submit .../pyspark_coldparquet/submit.py index s3://bucket/db``.

It takes what ``coldparquet pipeline`` takes, and runs it on the session that spark-submit has made. To find it::

    spark-submit "$(python -c 'import pyspark_coldparquet.submit as it; print(it.__file__)')" index s3://bucket/db

spark-submit prints the driver's standard error on standard output, too: with ``--json`` the report is the last line. This is
no file of ``coldparquet`` itself, because Python looks for modules beside the file that it runs.
"""

from __future__ import annotations

import sys

from coldparquet.cli.app import main


def pipeline_arguments(given: list[str]) -> list[str]:
    """Return the arguments of the command ``coldparquet`` for those of this file; what is said of the engine goes last."""
    is_job = bool(given) and not given[0].startswith("-")
    return ["pipeline", *given[:1], *(["--engine", "spark"] if is_job else []), *given[1:]]


if __name__ == "__main__":
    sys.argv[1:] = pipeline_arguments(sys.argv[1:])
    main()
