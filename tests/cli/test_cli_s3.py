"""Every command against moto, an S3 that others wrote: index a table there, then read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from tests.support.command_line import Run
from tests.support.questdb_tables import PARTITIONS

ROWS = sum(partition.row_count for partition in PARTITIONS if partition.table == "interval_day")


@pytest.fixture
def bucket() -> Iterator[Any]:
    """A client whose bucket holds the table ``db/trades``."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        aws_access_key_id="access-key",
        aws_secret_access_key="secret-key",  # noqa: S106 - moto takes any
        region_name="us-east-1",
    )
    s3_backends.reset()  # of an earlier test of this process
    client.create_bucket(Bucket="bucket")
    for partition in PARTITIONS:
        if partition.table == "interval_day":
            data = (partition.directory / "data.parquet").read_bytes()
            client.put_object(Bucket="bucket", Key=f"db/trades/{partition.directory.name}/data.parquet", Body=data)
    yield client
    client.close()
    server.stop()


def test_index_then_read(run: Run, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-key")
    store = ("--endpoint-url", bucket.meta.endpoint_url)
    table = "s3://bucket/db/trades"

    before = {info["Key"]: info["ETag"] for info in bucket.list_objects_v2(Bucket="bucket")["Contents"]}
    assert json.loads(run("index", table, "--json", *store).stdout)["counts"] == {"written": len(before)}
    after = {info["Key"]: info["ETag"] for info in bucket.list_objects_v2(Bucket="bucket")["Contents"]}
    assert {key: after[key] for key in before} == before
    new = {key.replace("data.parquet", name) for key in before for name in ("_pm", "_pages")}
    assert after.keys() - before.keys() == new | {"db/trades/_catalogue"}
    assert f": {len(before)} unchanged\n" in run("index", table, *store).stdout

    partition = next(iter(before)).removesuffix("/data.parquet")
    assert json.loads(run("inspect", f"s3://bucket/{partition}", "--json", *store).stdout)["columns"]
    assert run("count", table, *store).stdout == f"{ROWS}\n"
    plan = json.loads(run("explain", table, "--json", *store).stdout)
    assert {read["metadata_source"] for read in plan["partitions"]} == {"sidecar"}
    assert len(run("scan", table, "--json", *store).stdout.splitlines()) == ROWS


def test_an_index_of_a_table_of_others_lies_elsewhere(run: Run, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-key")
    bucket.create_bucket(Bucket="mine")
    table, flags = "s3://bucket/db/trades", ("--index", "s3://mine/trades", "--endpoint-url", bucket.meta.endpoint_url)
    missing = run("verify", table, *flags)
    assert missing.exit_code == 1
    assert "'coldparquet index s3://bucket/db/trades --index s3://mine/trades' writes the index anew" in " ".join(
        missing.stdout.split()
    )
    assert run("index", table, *flags).exit_code == 0
    assert [info["Key"] for info in bucket.list_objects_v2(Bucket="mine")["Contents"]] == ["trades/_catalogue"]
    assert all(info["Key"].endswith(".parquet") for info in bucket.list_objects_v2(Bucket="bucket")["Contents"])
    plan = json.loads(run("explain", table, "--json", *flags).stdout)
    assert {read["metadata_source"] for read in plan["partitions"]} == {"catalogue"}
    assert run("count", table, *flags).stdout == f"{ROWS}\n"
    *_, verdict, spent = run("verify", table, *flags).stdout.splitlines()
    assert verdict.endswith(": nothing wrong")
    assert re.fullmatch(r"sent \d+ requests: [\d.]+ KiB fetched, \$0\.\d+", spent)
    *_, written, spent = run("index", table, *flags).stdout.splitlines()
    assert written.startswith("_catalogue: unchanged")
    spent_as_json = json.loads(run("index", table, *flags, "--json").stdout)["spent"]
    assert spent.startswith(f"sent {spent_as_json['request_count']} requests: ")
