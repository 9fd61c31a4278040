"""A Spark driver for one job: ``python -m tests.support.spark_driver ORDER ANSWER``; see :func:`~tests.support.spark_sessions.run_in_spark`."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tests.support.spark_sessions import CLUSTER_MASTER, HOSTS, MASTER, Mode


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
    elif mode == "hosts":
        session = builder.master(_cluster_on_hosts(settings)).getOrCreate()
    else:
        session = builder.master(CLUSTER_MASTER if mode == "cluster" else MASTER).getOrCreate()
    return session


def _cluster_on_hosts(settings: dict[str, str]) -> str:
    """Start a cluster inside of the driver's JVM, as Spark's ``local-cluster`` does, with a host for each of its two workers."""
    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
    gateway: Any = SparkContext._gateway
    jvm: Any = SparkContext._jvm
    conf = jvm.org.apache.spark.SparkConf().set("spark.master.rest.enabled", "false")
    deploy = jvm.org.apache.spark.deploy
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)._1().address().toSparkURL()
    masters = gateway.new_array(jvm.String, 1)
    masters[0] = master
    none = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    for number, host in enumerate(HOSTS):
        number_of_worker = jvm.scala.Some(number)
        directory = f"{settings['spark.local.dir']}/{host}"
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, 1024, masters, directory, number_of_worker, conf, none
        )
    url: str = master
    return url


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
