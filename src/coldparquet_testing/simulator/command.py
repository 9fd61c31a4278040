"""The simulated cold store as a command, with one argument for each of its options.

    python -m coldparquet_testing.simulator --root DIRECTORY --first-byte-ms 30 --bandwidth-mb 90
        --storage-class 'bucket/trades/2023*=GLACIER' --clock-speed 3600 --fault 'slow-down,operation=*,probability=0.02'

It prints its address as one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import stat
import threading
from pathlib import Path
from typing import get_args

from coldparquet.errors import InvalidInputError
from coldparquet_testing.simulator.checksums import Algorithm
from coldparquet_testing.simulator.faults import FaultRule
from coldparquet_testing.simulator.handler import ColdStoreHandler
from coldparquet_testing.simulator.objects import DirectoryStore
from coldparquet_testing.simulator.options import ColdStoreOptions
from coldparquet_testing.simulator.server import serve

SECRET_KEY_VARIABLE = "COLD_STORE_SECRET_KEY"  # noqa: S105 - the name of a variable
"""Environment variable for the command line's ``secret_key``; arguments are visible to every user."""

_FLAGS = ("keep_versions", "requester_pays")
_NUMBERS = (
    *("slow_tail_probability", "slow_tail_factor", "error_503_probability", "cut_body_probability"),
    *("requests_per_second", "stale_listing_s", "clock_speed"),
)


def command_line_for(root: Path, options: ColdStoreOptions, *, port: int) -> list[str]:
    """Return the arguments that make :func:`main` serve ``root`` with ``options``, all but the secret."""
    arguments = ["--root", str(root), "--port", str(port), "--seed", str(options.seed)]
    arguments += ["--first-byte-ms", repr(options.first_byte_s * 1e3)]
    if options.bandwidth_bytes_per_s is not None:
        arguments += ["--bandwidth-mb", repr(options.bandwidth_bytes_per_s / 1e6)]
    for name in _NUMBERS:
        if (value := getattr(options, name)) is not None:
            arguments += [_argument(name), repr(value)]
    arguments += [_argument(name) for name in _FLAGS if getattr(options, name)]
    if options.checksum_of_files is not None:
        arguments += ["--checksum-of-files", options.checksum_of_files]
    for pattern, storage_class in options.storage_classes.items():
        arguments += ["--storage-class", f"{pattern}={storage_class}"]
    for rule in options.faults:
        arguments += ["--fault", rule.as_text()]
    return arguments


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; print one JSON line when the port is open.

    When standard input is a pipe, its end stops the server too, so that it does not outlive its parent program.
    """
    given = _parser().parse_args(arguments)
    options = ColdStoreOptions(
        first_byte_s=given.first_byte_ms / 1e3,
        bandwidth_bytes_per_s=given.bandwidth_mb * 1e6 if given.bandwidth_mb else None,
        seed=given.seed,
        checksum_of_files=given.checksum_of_files,
        storage_classes=dict(given.storage_class),
        faults=tuple(given.fault),
        secret_key=os.environ.get(SECRET_KEY_VARIABLE),
        **{name: getattr(given, name) for name in (*_NUMBERS, *_FLAGS)},
    )
    asyncio.run(_serve_until_told(given.root, options, given.port))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m coldparquet_testing.simulator", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    defaults = ColdStoreOptions()
    texts = {
        "slow_tail_probability": "share of slow requests",
        "slow_tail_factor": "how much slower they are",
        "error_503_probability": "share of requests that fail",
        "cut_body_probability": "share of bodies that end too early",
        "requests_per_second": "more are answered with 503 SlowDown",
        "stale_listing_s": "how long a listing stays as it was",
        "clock_speed": "seconds of the restores' clock in one of ours",
        "keep_versions": "keep what is replaced or deleted, by version",
        "requester_pays": "refuse requests that do not say that the requester pays",
    }
    parser.add_argument("--root", type=Path, required=True, help="directory whose folders are the buckets")
    parser.add_argument("--port", type=int, default=0, help="TCP port; 0 takes a free one")
    parser.add_argument("--seed", type=int, default=0, help="start of the random numbers")
    parser.add_argument("--first-byte-ms", type=float, default=0.0, help="latency of every request")
    parser.add_argument("--bandwidth-mb", type=float, help="million bytes per second of one connection")
    for name in _NUMBERS:
        parser.add_argument(_argument(name), type=float, default=getattr(defaults, name), help=texts[name])
    for name in _FLAGS:
        parser.add_argument(_argument(name), action="store_true", help=texts[name])
    parser.add_argument("--checksum-of-files", choices=get_args(Algorithm), help="checksum told of whole files")
    parser.add_argument(
        "--storage-class", type=_class_rule, action="append", default=[], metavar="PATTERN=CLASS",
        help="class of the objects whose bucket/key matches",
    )  # fmt: skip
    parser.add_argument(
        "--fault", type=_fault_rule, action="append", default=[], metavar="KIND[,NAME=VALUE...]",
        help="what goes wrong, such as reset-body,path=bucket/t/*,probability=0.1",
    )  # fmt: skip
    return parser


def _argument(name: str) -> str:
    return "--" + name.replace("_", "-")


def _class_rule(text: str) -> tuple[str, str]:
    pattern, _, storage_class = text.rpartition("=")
    return pattern, storage_class


def _fault_rule(text: str) -> FaultRule:
    try:
        return FaultRule.parse(text)
    except InvalidInputError as error:
        raise argparse.ArgumentTypeError(error.message) from None


async def _serve_until_told(root: Path, options: ColdStoreOptions, port: int) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    def wait_for_end_of_input() -> None:
        # Not sys.stdin.read: a thread that waits inside its buffer makes the interpreter abort at exit.
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stopping.set)

    async with serve(ColdStoreHandler(DirectoryStore(root), options).answer, port=port) as opened_port:
        print(json.dumps({"endpoint_url": f"http://127.0.0.1:{opened_port}"}), flush=True)  # noqa: T201
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            threading.Thread(target=wait_for_end_of_input, daemon=True).start()
        await stopping.wait()
