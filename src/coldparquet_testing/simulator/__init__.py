"""Simulates a cold object store on this machine: S3's requests over a directory, with latency, bandwidth and faults.

    with ColdStoreServer(Path("data"), ColdStoreOptions(first_byte_s=0.03, bandwidth_bytes_per_s=90e6)) as server:
        table = coldparquet.sync.open_table("s3://bucket/trades", storage_options=server.storage_options)
        print(len(server.requests))

The first level of folders below the root are the buckets. Boto3, s3fs, pyarrow, Polars and DuckDB can read from it too,
so readers can be compared on one store. It listens on 127.0.0.1 only. For benchmarks run it in a process of its own
(:class:`ColdStoreProcess`); otherwise it competes for the reader's interpreter lock.
"""

from coldparquet_testing.simulator.faults import FaultKind, FaultRule
from coldparquet_testing.simulator.options import ColdStoreOptions, ServedRequest
from coldparquet_testing.simulator.process import ColdStoreProcess
from coldparquet_testing.simulator.server import ColdStoreServer

__all__ = ["ColdStoreOptions", "ColdStoreProcess", "ColdStoreServer", "FaultKind", "FaultRule", "ServedRequest"]
