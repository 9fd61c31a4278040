"""A running QuestDB: statements over HTTP, and its answers as Arrow tables of the types that coldparquet gives."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import UUID

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    ToArrow = Callable[[list[Any]], pa.Array[Any]]

REPLY_TIMEOUT_S = 120
SETTLE_TIMEOUT_S = 60
MAX_DECIMAL128_PRECISION = 38
GEOHASH_LETTERS = "0123456789bcdefghjkmnpqrstuvwxyz"


class SqlError(Exception):
    """QuestDB refused a statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQuestDB:
    """A running QuestDB."""

    http_port: int
    root: Path

    @property
    def log(self) -> Path:
        """What the server prints."""
        return self.root / "server.log"

    def run(self, *statements: str) -> None:
        """Run statements one after the other, each when the one before has been applied."""
        for statement in statements:
            self.send(statement)
            self.settle()

    def send(self, statement: str) -> None:
        """Run a statement without waiting until a table with a write-ahead log has applied it."""
        self._exec(statement)

    def settle(self) -> None:
        """Wait until every table has applied what was committed to its write-ahead log."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline:
            waiting = []
            for record in self._records("wal_tables()"):
                if record["suspended"]:
                    raise SqlError(f"{record['name']} is suspended: {record['errorMessage']}")
                if record["writerTxn"] != record["sequencerTxn"] or record["bufferedTxnSize"]:
                    waiting.append(record["name"])
            if not waiting:
                return
            time.sleep(0.01)
        raise SqlError(f"not applied within {SETTLE_TIMEOUT_S} s: {waiting}")

    def ask(self, sql: str) -> pa.Table:
        """Return the answer to a query.

        Not for BINARY, which the interface does not tell, nor for arrays with NaN or null elements.
        """
        reply = self._exec(sql)
        values = zip(*reply["dataset"], strict=True) if reply["dataset"] else [()] * len(reply["columns"])
        arrays = [_column(column, list(answered)) for column, answered in zip(reply["columns"], values, strict=True)]
        return pa.table(arrays, names=[column["name"] for column in reply["columns"]])

    def rows(self, table: str, where: str | None = None, *, columns: str = "*") -> pa.Table:
        """Return rows of a table in the server's order, which is that of coldparquet."""
        condition = "" if where is None else f" where {where}"
        answer = self.ask(f"select {columns} from '{table}'{condition}")  # noqa: S608 - the tests' own words
        # A function that fails halfway ends the reply early, as valid JSON.
        assert answer.num_rows == self.count(table, where)
        return answer

    def rows_of_file(self, path: str) -> pa.Table:
        """Return the rows of a Parquet file below its directory ``import``."""
        return self.ask(f"select * from read_parquet('{path}')")  # noqa: S608 - the tests' own words

    def count(self, table: str, where: str | None = None) -> int:
        """Count rows of a table."""
        condition = "" if where is None else f" where {where}"
        reply = self._exec(f"select count() from '{table}'{condition}")  # noqa: S608 - the tests' own words
        count: int = reply["dataset"][0][0]
        return count

    def partitions(self, table: str) -> list[dict[str, Any]]:
        """Return what ``table_partitions`` says of each partition."""
        return self._records(f"table_partitions('{table}')")

    def directory(self, table: str) -> Path:
        """Return where a table lies on the disk."""
        for record in self._records("tables()"):
            if record["table_name"] == table:
                return self.root / "db" / str(record["directoryName"])
        raise SqlError(f"there is no table {table}")

    def _records(self, sql: str) -> list[dict[str, Any]]:
        reply = self._exec(sql)
        names = [column["name"] for column in reply["columns"]]
        return [dict(zip(names, row, strict=True)) for row in reply["dataset"]]

    def _exec(self, sql: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=REPLY_TIMEOUT_S)
        try:
            connection.request("GET", "/exec?" + urlencode({"query": sql}))
            reply: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if "error" in reply:
            raise SqlError(f"{sql}\n{reply['error']}")
        return reply


def _column(column: Mapping[str, Any], values: list[Any]) -> pa.Array[Any]:
    name, _, arguments = column["type"].rstrip(")").partition("(")
    if name == "ARRAY":
        kind: pa.DataType = pa.float64()
        for _ in range(column["dim"]):
            kind = pa.list_(kind)
        return pa.array(values, kind)
    if name == "DECIMAL":
        precision, scale = map(int, arguments.split(","))
        decimals = [None if value is None else Decimal(value) for value in values]
        decimal = pa.decimal128 if precision <= MAX_DECIMAL128_PRECISION else pa.decimal256
        return pa.array(decimals, decimal(precision, scale))
    if name == "GEOHASH":
        return _geohashes(arguments, values)
    return TO_ARROW[name](values)


def _geohashes(arguments: str, values: list[str | None]) -> pa.Array[Any]:
    """Make integers of what is shown as text: five bits a letter, or one bit a digit."""
    bits = int(arguments[:-1]) * (5 if arguments.endswith("c") else 1)
    kind = pa.int8() if bits < 8 else pa.int16() if bits < 16 else pa.int32() if bits < 32 else pa.int64()
    return pa.array([None if value is None else _geohash(value, as_letters=bits % 5 == 0) for value in values], kind)


def _geohash(text: str, *, as_letters: bool) -> int:
    if not as_letters:
        return int(text, 2)
    number = 0
    for letter in text:
        number = number * 32 + GEOHASH_LETTERS.index(letter)
    return number


def _plain(kind: pa.DataType) -> ToArrow:
    return lambda values: pa.array(values, kind)


def _instants(unit: str) -> ToArrow:
    return lambda values: pa.array(values, pa.string()).cast(pa.timestamp(unit, "UTC"))


def _characters(values: list[str]) -> pa.Array[Any]:
    return pa.array([ord(value) if value else 0 for value in values], pa.uint16())


def _uuids(values: list[str | None]) -> pa.Array[Any]:
    return pa.array([None if value is None else UUID(value).bytes for value in values], pa.binary(16))


def _addresses(values: list[str | None]) -> pa.Array[Any]:
    numbers = [None if value is None else int.from_bytes(map(int, value.split("."))) for value in values]
    return pa.array(numbers, pa.uint32())


def _long256s(values: list[str]) -> pa.Array[Any]:
    return pa.array([int(value, 16).to_bytes(32, "little") if value else None for value in values], pa.binary(32))


TO_ARROW: dict[str, ToArrow] = {
    "BOOLEAN": _plain(pa.bool_()),
    "BYTE": _plain(pa.int8()),
    "SHORT": _plain(pa.int16()),
    "CHAR": _characters,
    "INT": _plain(pa.int32()),
    "LONG": _plain(pa.int64()),
    "DATE": _instants("ms"),
    "TIMESTAMP": _instants("us"),
    "TIMESTAMP_NS": _instants("ns"),
    "FLOAT": _plain(pa.float32()),
    "DOUBLE": _plain(pa.float64()),
    "STRING": _plain(pa.string()),
    "VARCHAR": _plain(pa.string()),
    "SYMBOL": _plain(pa.string()),
    "LONG256": _long256s,
    "UUID": _uuids,
    "IPv4": _addresses,
}
