"""What a table refuses to hold: names that QuestDB does not allow, and numbers that would become other ones."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from coldparquet.errors import InvalidInputError
from coldparquet.write import write_table
from tests.support.written_tables import read_table

if TYPE_CHECKING:
    from pathlib import Path

TIMES = pa.array([0, 1, 2], pa.timestamp("us", "UTC"))


@pytest.mark.parametrize("name", ["a*", "a.b", "price (usd)", "a-b", "x\x00", "\ufeffx", "", "n" * 128])
async def test_a_name_that_questdb_does_not_allow(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="rename it") as refused:
        await write_table(tmp_path / "t", pa.table({"ts": TIMES, name: [1, 2, 3]}), timestamp="ts")
    assert (refused.value.kind, refused.value.details["field"]) == ("Schema", name)
    assert not (tmp_path / "t").exists()


async def test_names_that_questdb_allows(tmp_path: Path) -> None:
    names = ["price in $", "été", "a_b", "#1", "n" * 127]
    rows = pa.table({"ts": TIMES, **{name: [1, 2, 3] for name in names}})
    await write_table(tmp_path / "t", rows, timestamp="ts")
    assert (await read_table(tmp_path / "t")).column_names == ["ts", *names]


async def test_a_number_too_large_for_its_column(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small = pa.array([0.5, None, float("inf")], pa.float32())
    await write_table(table, pa.table({"ts": TIMES, "price": small}), timestamp="ts")
    fits = pa.table({"ts": TIMES, "price": [3.0e38, float("-inf"), None]})
    await write_table(table, fits, mode="append")
    before = await read_table(table)
    with pytest.raises(InvalidInputError, match=r"column 'price' .* FLOAT: .*1e\+300 is too large") as refused:
        await write_table(table, pa.table({"ts": TIMES, "price": [1.0, 1e300, 2e300]}), mode="append")
    assert (refused.value.kind, refused.value.details["field"]) == ("DoesNotFit", "price")
    assert (await read_table(table)).equals(before)


async def write_prices(table: Path) -> None:
    small = pa.array([0.5, None, 1.0], pa.float32())
    await write_table(table, pa.table({"ts": TIMES, "price": small}), timestamp="ts")


@pytest.mark.parametrize(
    "prices",
    [
        pa.array([Decimal(10) ** 50, None, Decimal(1)], pa.decimal256(60, 0)),
        pa.array(["inf", "1e39", None]),
        pa.array([1e300, None, 1.0]).dictionary_encode(),
    ],
    ids=["decimals", "texts", "doubles with repetitions"],
)
async def test_no_number_becomes_infinite(prices: Any, tmp_path: Path) -> None:
    await write_prices(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=r"column 'price' .* FLOAT: .* is too large for float") as refused:
        await write_table(tmp_path / "t", pa.table({"ts": TIMES, "price": prices}), mode="append")
    assert refused.value.kind == "DoesNotFit"


@pytest.mark.parametrize(
    "prices", [pa.array(["-Infinity", None, "1"]), pa.array(["-inf", None, "1"]).dictionary_encode()]
)
async def test_what_was_infinite_stays_so(prices: Any, tmp_path: Path) -> None:
    await write_prices(tmp_path / "t")
    await write_table(tmp_path / "t", pa.table({"ts": TIMES, "price": prices}), mode="append")
    found: list[Any] = (await read_table(tmp_path / "t"))["price"].drop_null().to_pylist()
    assert sorted(found) == [float("-inf"), 0.5, 1.0, 1.0]
