"""A Spark driver for one job: ``python -m tests.support.spark_driver ORDER ANSWER``; see :func:`~tests.support.spark_sessions.run_in_spark`."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.spark_sessions import CLUSTER_MASTER, MASTER, Mode


def main(order_file: Path, answer_file: Path) -> None:
    """Run the job that the order names, and write what it returned or raised."""
    order = json.loads(order_file.read_text())
    module, _, function = order["job"].partition(":")
    try:
        session = _session(order["mode"], order["settings"])
        job = getattr(importlib.import_module(module), function)
        answer = {"answer": job(session, *order["arguments"])}
        session.stop()
    except Exception:  # noqa: BLE001 - whatever it is, the test is to show it
        answer = {"error": traceback.format_exc()}
    answer_file.write_text(json.dumps(answer))


def _session(mode: Mode, settings: dict[str, str]) -> SparkSession:
    builder: Any = SparkSession.builder
    builder = builder.appName("coldparquet tests").config(map=settings)
    if mode == "connect":
        session: SparkSession = builder.remote(MASTER).getOrCreate()
    else:
        session = builder.master(CLUSTER_MASTER if mode == "cluster" else MASTER).getOrCreate()
    return session


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
