"""States as JSON: what comes out is what went in, small, and damage is told."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.follow.state import PartitionState, TableState, decode_state, encode_state
from coldparquet.format.partition_names import PartitionInterval

DAY_US = 86_400_000_000


def state_of(*partitions: PartitionState, **changes: Any) -> TableState:
    values: dict[str, Any] = {"table_id": 3, "txn": 9, "interval": PartitionInterval.DAY, "is_nanosecond": False}
    return TableState(**values | changes, partitions=partitions)


@st.composite
def partition_states(draw: st.DrawFn, timestamp: int) -> PartitionState:
    row_count = draw(st.integers(1, (1 << 44) - 1))
    return PartitionState(
        timestamp=timestamp,
        name_txn=draw(st.integers(-1, 1 << 62)),
        parquet_size_bytes=draw(st.just(-1) | st.integers(1, 1 << 50)),
        row_count=row_count,
        object_version=draw(st.integers(0, (1 << 56) - 1)),
        delivered_rows=draw(st.integers(0, row_count)),
        epoch=draw(st.integers(0, 100)),
        epoch_first_row=draw(st.integers(0, row_count)),
    )


@st.composite
def table_states(draw: st.DrawFn) -> TableState:
    timestamps = sorted(draw(st.sets(st.integers(-(1 << 63), (1 << 63) - 1), max_size=8)))
    return state_of(
        *[draw(partition_states(timestamp)) for timestamp in timestamps],
        table_id=draw(st.integers(-1, 1 << 31)),
        txn=draw(st.integers(0, 1 << 62)),
        interval=draw(st.none() | st.sampled_from(PartitionInterval)),
        is_nanosecond=draw(st.booleans()),
        generation=draw(st.integers(0, 9)),
    )


@given(table_states())
def test_a_state_comes_back_as_it_was(state: TableState) -> None:
    document = json.loads(json.dumps(encode_state(state)))
    assert decode_state(document) == state
    assert encode_state(decode_state(document)) == document


def test_a_table_of_ten_years_of_days_takes_less_than_40_kb() -> None:
    source = random.Random(7)
    partitions = []
    for day in range(3_650):
        rows = source.randrange(700_000, 1_300_000)
        size = int(rows * source.uniform(18, 22))
        partitions.append(
            PartitionState(
                timestamp=day * DAY_US,
                name_txn=10 * day + source.randrange(10),
                parquet_size_bytes=size,
                row_count=rows,
                delivered_rows=rows,
            )
        )
    text = json.dumps(encode_state(state_of(*partitions)))
    assert len(text) < 40_000


def test_people_can_read_the_sums() -> None:
    partition = PartitionState(timestamp=0, name_txn=-1, parquet_size_bytes=80, row_count=10, delivered_rows=7)
    document = encode_state(state_of(partition))
    del document["state"]
    assert document == {
        "format": 1,
        "txn": 9,
        "table_id": 3,
        "generation": 0,
        "interval": "DAY",
        "is_nanosecond": False,
        "partitions": 1,
        "rows": 7,
    }


def test_a_later_format_is_told_from_damage() -> None:
    document = encode_state(state_of())
    with pytest.raises(UnsupportedError, match="of format 2, and this version of coldparquet knows format 1") as caught:
        decode_state(document | {"format": 2})
    assert caught.value.kind == "UnknownStateFormat"


@pytest.mark.parametrize("document", [None, [], "x", 5])
def test_what_is_no_object_at_all(document: Any) -> None:
    with pytest.raises(UnsupportedError, match="of format None"):
        decode_state(document)


PARTITION = PartitionState(timestamp=5, name_txn=1, parquet_size_bytes=80, row_count=10, delivered_rows=7)
SOUND = encode_state(state_of(PARTITION))


def packed(*columns: int) -> str:
    planes = b"".join(column.to_bytes(8, "little", signed=True) for column in columns)
    return base64.b64encode(zlib.compress(planes)).decode()


@pytest.mark.parametrize(
    "damage",
    [
        {"state": "not base64 at all"},
        {"state": base64.b64encode(b"no zlib").decode()},
        {"state": None},
        {"partitions": 2},
        {"partitions": -1},
        {"partitions": 1 << 40},
        {"partitions": "many"},
        {"interval": "FORTNIGHT"},
        {"txn": None},
        {"state": packed(5, 1, 80, 10, 0, 11, 0, 0)},  # more rows left than there are
        {"state": packed(5, 1, 80, 10, 0, -1, 0, 0)},
        {"state": packed(5, 1, 80, 0, 0, 0, 0, 0)},  # no rows
        {"state": packed(5, 1, 80, 10, 0, 3, -1, 0)},
        {"state": packed(5, 1, 80, 10, 0, 3, 0, 11)},
        {"state": base64.b64encode(zlib.compress(bytes(100_000_000))).decode()},
    ],
)
def test_damage_is_told(damage: dict[str, Any]) -> None:
    assert decode_state(SOUND | {"state": packed(5, 1, 80, 10, 0, 3, 0, 0)}).partitions == (PARTITION,)
    with pytest.raises(FormatError, match="begin with a new checkpoint"):
        decode_state(SOUND | damage)


@pytest.mark.parametrize("name", sorted(SOUND.keys() - {"format", "rows"}))
def test_nothing_may_be_missing(name: str) -> None:
    with pytest.raises(FormatError, match="begin with a new checkpoint"):
        decode_state({key: value for key, value in SOUND.items() if key != name})


@given(st.binary(max_size=200))
def test_any_bytes_are_a_state_or_an_error(data: bytes) -> None:
    for content in (data, zlib.compress(data)):
        document = SOUND | {"state": base64.b64encode(content).decode()}
        try:
            assert len(decode_state(document).partitions) == 1
        except FormatError:
            continue
