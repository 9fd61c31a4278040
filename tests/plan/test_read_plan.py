from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InternalError
from coldparquet.format.types import TypeTag, canonical_type
from coldparquet.options import Coalescing, ReadOptions
from coldparquet.plan.model import (
    CHUNK,
    MetadataRequest,
    PartitionRead,
    PlannedRequest,
    PrunedPartition,
    Read,
    ReadPlan,
    RowGroupsDropped,
    StoredColumn,
    StoredData,
    StoreSpeed,
)
from coldparquet.plan.requests import Placement, place, plan_requests
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.text import human_bytes

NAMES = dict(enumerate(["ts", "symbol", "price", "amount", "fee", "note"]))
PATH = "bucket/trades/2024-03-01/data.parquet"
DATA = StoredData(
    decoder="parquet",
    path=PATH,
    columns={number: StoredColumn(name=name, type=canonical_type(TypeTag.LONG)) for number, name in NAMES.items()},
    places={},
)


def row_group(
    number: int,
    chunks: dict[int, tuple[int, int]],
    *,
    partition_index: int = 0,
    rows: int = 100,
    all_rows_match: bool = False,
    data: StoredData | None = None,
) -> Read:
    return Read(
        partition_index=partition_index,
        data=DATA if data is None else data,
        row_group=number,
        row_group_rows=rows,
        columns=tuple(chunks),
        column_rows=(None,) * len(chunks),
        chunks=np.zeros(len(chunks), CHUNK),
        piece_columns=np.arange(len(chunks)),
        piece_starts=np.array([start for start, _ in chunks.values()], dtype=np.int64),
        piece_stops=np.array([stop for _, stop in chunks.values()], dtype=np.int64),
        all_rows_match=all_rows_match,
    )


def requests_for(reads: list[Read], *, gap: int = 0, cap: int = 1000) -> tuple[PlannedRequest, ...]:
    return plan_requests([reads], Coalescing(gap_bytes=gap, max_request_bytes=cap, least_part_bytes=1))


def test_buffer_offsets_follow_file_order_not_column_order() -> None:
    read = row_group(0, {2: (500, 600), 0: (4, 54), 1: (300, 310)})
    assert read.buffer_offsets.tolist() == [64, 4, 54]
    assert read.bytes_wanted == 160


def test_empty_chunk_shares_the_place_of_the_next() -> None:
    read = row_group(0, {0: (10, 20), 1: (10, 10), 2: (20, 20)})
    assert read.buffer_offsets.tolist() == [4, 4, 14]


def test_row_group_without_chunks() -> None:
    read = row_group(0, {})
    assert (read.buffer_offsets.tolist(), read.bytes_wanted) == ([], 0)
    assert requests_for([read]) == ()
    assert requests_for([]) == ()
    assert place([read], ()).first_of_request.tolist() == [0]


@pytest.mark.parametrize(
    ("reads", "gap", "cap", "expected"),
    [
        pytest.param([row_group(3, {0: (4, 54)})], 0, 1000, [(4, 54, "row group 3: ts")], id="one chunk"),
        pytest.param(
            [row_group(number, {0: (number * 100, number * 100 + 50)}) for number in (3, 4, 5)],
            50,
            1000,
            [(300, 550, "row groups 3-5: ts")],
            id="across row groups",
        ),
        pytest.param(
            [row_group(number, {2: (number * 100, number * 100 + 100)}) for number in (3, 5, 6, 9)],
            300,
            1000,
            [(300, 1000, "row groups 3, 5-6, 9: price")],
            id="spans",
        ),
        pytest.param(
            [row_group(0, {5: (0, 10), 0: (10, 20), 2: (90, 99)})],
            0,
            1000,
            [(0, 20, "row group 0: note, ts"), (90, 99, "row group 0: price")],
            id="two requests",
        ),
        pytest.param(
            [row_group(0, {column: (column * 10, column * 10 + 10) for column in range(6)})],
            0,
            1000,
            [(0, 60, "row group 0: ts, symbol, price, amount +2 more")],
            id="many columns",
        ),
        pytest.param(
            [row_group(number, {0: (number * 10, number * 10 + 10)}) for number in range(0, 12, 2)],
            10,
            1000,
            [(0, 110, "row groups 0, 2, 4, 6 +2 more: ts")],
            id="many row groups",
        ),
        pytest.param(
            [row_group(7, {2: (0, 250)})],
            0,
            100,
            [
                (0, 84, "row group 7: price (part 1 of 3)"),
                (84, 167, "row group 7: price (part 2 of 3)"),
                (167, 250, "row group 7: price (part 3 of 3)"),
            ],
            id="split chunk",
        ),
    ],
)
def test_requests_and_their_reasons(
    reads: list[Read], gap: int, cap: int, expected: list[tuple[int, int, str]]
) -> None:
    requests = requests_for(reads, gap=gap, cap=cap)
    assert [(r.byte_range.start, r.byte_range.stop, r.reason) for r in requests] == expected
    assert {(r.path, r.partition_index, r.stage) for r in requests} == {(PATH, 0, 1)}


def test_placements_join_chunks_that_touch() -> None:
    reads = [row_group(0, {0: (4, 10), 1: (10, 30)}), row_group(1, {0: (40, 45), 1: (50, 60)})]
    placements = place(reads, requests_for(reads, gap=20))
    assert placements.of_request(0) == [
        Placement(row_group_read=0, source_offset=0, destination_offset=4, length_bytes=26),
        Placement(row_group_read=1, source_offset=36, destination_offset=4, length_bytes=5),
        Placement(row_group_read=1, source_offset=46, destination_offset=9, length_bytes=10),
    ]


def test_requests_that_miss_a_chunk_are_a_bug() -> None:
    reads = [row_group(0, {0: (4, 10), 1: (20, 30)})]
    (request,) = requests_for(reads, gap=100)
    short = replace(request, byte_range=ByteRange(4, 29))
    for requests in [(short,), ()]:
        with pytest.raises(InternalError):
            place(reads, requests)


@st.composite
def partitions(draw: st.DrawFn) -> list[Read]:
    """Chunks anywhere, in any order, even overlapping, as damaged metadata may have them."""
    chunk = st.tuples(st.integers(0, 500), st.integers(0, 80)).map(lambda pair: (pair[0], sum(pair)))
    groups = draw(st.lists(st.dictionaries(st.integers(0, 5), chunk, max_size=6), max_size=6))
    return [row_group(number, chunks) for number, chunks in enumerate(groups)]


@given(partitions(), st.integers(0, 100), st.integers(1, 200))
def test_every_chunk_arrives_whole_at_its_place(reads: list[Read], gap: int, cap: int) -> None:
    file = np.random.default_rng(1).integers(0, 256, 600, dtype=np.uint8)
    requests = requests_for(reads, gap=gap, cap=cap)
    placements = place(reads, requests)
    buffers = [np.zeros(4 + read.bytes_wanted, dtype=np.uint8) for read in reads]
    writes = [np.zeros(4 + read.bytes_wanted, dtype=np.int64) for read in reads]
    for number, request in enumerate(requests):
        fetched = file[request.byte_range.start : request.byte_range.stop]
        copies = placements.of_request(number)
        assert copies, "each request serves a read"
        for copy in copies:
            source = fetched[copy.source_offset :][: copy.length_bytes]
            destination = slice(copy.destination_offset, copy.destination_offset + copy.length_bytes)
            buffers[copy.row_group_read][destination] = source
            writes[copy.row_group_read][destination] += 1
    assert placements.first_of_request[-1] == len(placements.length_bytes)
    for read, buffer, written in zip(reads, buffers, writes, strict=True):
        assert written[:4].tolist() == [0] * 4
        assert set(written[4:].tolist()) <= {1}
        for start, stop, offset in zip(read.piece_starts, read.piece_stops, read.buffer_offsets, strict=True):
            assert buffer[offset : offset + stop - start].tolist() == file[start:stop].tolist()


def example_plan(*, limit: int | None = None) -> ReadPlan:
    options = ReadOptions(coalesce_gap_bytes=64, max_request_bytes=4096)
    first = [row_group(number, {0: (number * 1000, number * 1000 + 300)}, rows=1000) for number in (2, 3)]
    third = [row_group(0, {0: (4, 1028), 2: (1034, 2058)}, partition_index=2, rows=500, all_rows_match=True)]
    partitions = tuple(
        PartitionRead(
            name=name,
            data_path=f"bucket/trades/{name}/data.parquet",
            parquet_size_bytes=100_000,
            metadata_source="footer" if kept == 1 else "sidecar",
            row_groups_total=50,
            row_groups_read=kept,
            rows_total=50_000,
            rows_read=rows,
            dropped=(RowGroupsDropped(reason="price > 100", row_groups=50 - kept),),
            made_columns=("note",) if kept == 1 else (),
            notes=("The footer cost 1 request.",) if kept == 1 else (),
        )
        for name, kept, rows in [("2024-03-01", 2, 2000), ("2024-03-02", 0, 0), ("2024-03-03", 1, 500)]
    )
    requests = [
        request
        for index, reads in ((0, first), (2, third))
        for request in plan_requests(
            [[replace(read, data=replace(DATA, path=partitions[index].data_path)) for read in reads]],
            Coalescing(gap_bytes=64, max_request_bytes=4096, least_part_bytes=1),
        )
    ]
    return ReadPlan(
        table="s3://bucket/trades",
        columns=("ts", "price", "note"),
        predicate="ts >= '2024-03-01' AND price > 100",
        limit=limit,
        partitions_pruned=tuple(
            PrunedPartition(name=f"2024-02-{day:02d}", reason="ts >= '2024-03-01'") for day in range(1, 29)
        ),
        partitions=partitions,
        row_groups=(*first, *third),
        requests=tuple(requests),
        metadata_requests=(
            MetadataRequest(path="a/_pm", byte_range=ByteRange(0, 65536), reason="sidecar prefix", fetched_bytes=4000),
            MetadataRequest(path="c/data.parquet", byte_range=SuffixRange(65536), reason="footer", fetched_bytes=65536),
            MetadataRequest(path="bucket/trades", byte_range=None, reason="listing", fetched_bytes=0, operation="list"),
        ),
        options=options,
        speed=StoreSpeed(connections=options.max_concurrency, is_remote=True),
    )


def empty_plan() -> ReadPlan:
    return replace(example_plan(), partitions=(), row_groups=(), requests=(), metadata_requests=())


def test_plan_numbers() -> None:
    plan = example_plan()
    assert (plan.request_count, plan.round_trips) == (3, 1)
    assert (plan.bytes_wanted, plan.bytes_fetched) == (600 + 2048, 600 + 2054)
    assert (plan.rows_at_least, plan.rows_at_most) == (500, 2500)
    assert [len(plan.row_groups_of(index)) for index in range(3)] == [2, 0, 1]
    assert [request.byte_range.start for request in plan.requests_of(0)] == [2000, 3000]
    numbers = [plan.numbers_of(index) for index in range(3)]
    assert [n.request_count for n in numbers] == [2, 0, 1]
    assert [n.bytes_wanted for n in numbers] == [600, 0, 2048]
    assert [n.bytes_fetched for n in numbers] == [600, 0, 2054]


def test_limit_bounds_the_rows() -> None:
    assert (example_plan(limit=700).rows_at_least, example_plan(limit=700).rows_at_most) == (500, 700)
    assert (example_plan(limit=0).rows_at_least, example_plan(limit=0).rows_at_most) == (0, 0)


def test_nothing_to_fetch_takes_no_round_trip() -> None:
    plan = empty_plan()
    assert (plan.request_count, plan.round_trips, plan.bytes_wanted, plan.bytes_fetched) == (0, 0, 0, 0)
    assert "nothing: no data byte is needed" in plan.explain()
    assert plan.as_dict()["estimate"]["seconds"] == 0


def test_stages_are_round_trips() -> None:
    plan = example_plan()
    staged = replace(plan, requests=(*plan.requests[:2], replace(plan.requests[2], stage=2)))
    assert staged.round_trips == 2
    assert "(round trip 2)" in staged.explain()


def test_plan_pickles() -> None:
    plan = pickle.loads(pickle.dumps(example_plan()))  # noqa: S301 - our own bytes
    assert plan.as_dict() == example_plan().as_dict()


def test_dict_is_json_and_complete() -> None:
    plan = example_plan()
    data = json.loads(json.dumps(plan.as_dict()))
    assert data["requests"][2] == {
        "partition": "2024-03-03",
        "path": "bucket/trades/2024-03-03/data.parquet",
        "start": 4,
        "stop": 2058,
        "reason": "row group 0: ts, price",
        "stage": 1,
    }
    assert data["partitions"][0]["row_groups"] == [2, 3]
    assert data["partitions"][0]["dropped"] == [{"reason": "price > 100", "row_groups": 48}]
    assert [(r["start"], r["suffix_bytes"]) for r in data["metadata_requests"]] == [
        (0, None),
        (None, 65536),
        (None, None),
    ]
    estimate = data["estimate"]
    assert estimate["dollars"] == pytest.approx(3 * 0.40 / 1e6)
    assert estimate["dollars_if_all_in"]["GLACIER_IR"] == pytest.approx(3 * 10 / 1e6 + 2654 * 0.03 / 1e9)
    assert set(data["goals"]) == {"fast", "cheap", "few-requests", "few-bytes"}


EXPLAINED = """\
Read plan for s3://bucket/trades

columns       ts, price, note
where         ts >= '2024-03-01' AND price > 100

partitions    3 of 31 looked into, 28 pruned by ts >= '2024-03-01'
row groups    3 of 150 read, 147 pruned by price > 100
result rows   between 500 and 2,500
"""


def test_explain_says_what_matters() -> None:
    text = example_plan().explain()
    assert text.startswith(EXPLAINED)
    for part in [
        "footer\n",
        "'coldparquet index' describes the files once, in place of footers",
        "    made without fetching: note",
        "    The footer cost 1 request.",
        "3 requests in 1 round trip",
        "2.6 KiB for 2.6 KiB wanted (0.2% more)",
        "$1.20 for a million reads like this, data requests only, in the region",
        "with the prices of Amazon S3, us-east-1, 2026-11",
        "3 requests, 2.6 KiB in STANDARD (assumed)",
        "3 metadata requests, 67.9 KiB to make this plan",
        "2 GETs and 1 LIST: $5.80 for a million plans like this",
        "row group 0: ts, price",
        "in other classes $1.20 (INTELLIGENT_TIERING, REDUCED_REDUNDANCY),",
        "$3.03 (STANDARD_IA, ONEZONE_IA), $30.08 (GLACIER_IR), $0.092",
        "(EXPRESS_ONEZONE)",
    ]:
        assert part in text
    assert not any(line != line.rstrip() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 100


def test_explain_of_local_files_tells_what_s3_would_charge() -> None:
    plan = example_plan()
    text = replace(plan, speed=replace(plan.speed, is_remote=False)).explain()
    for part in [
        "30 ms to each first byte, then 55 MiB/s each (published for S3; a disk is faster)",
        "price         $1.20 for a million reads like this, data requests only, in the region",
        "as S3 Standard would charge, with the prices of Amazon S3, us-east-1, 2026-11",
        "2 GETs and 1 LIST\n",
    ]:
        assert part in text
    assert "(assumed)" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_explain_counts_row_groups_by_reason_where_there_are_several() -> None:
    plan = example_plan()
    others = (RowGroupsDropped(reason="fee < 0", row_groups=2), RowGroupsDropped(reason="price > 100", row_groups=47))
    text = replace(plan, partitions=(replace(plan.partitions[0], dropped=others), *plan.partitions[1:])).explain()
    assert (
        "147 pruned (some for several reasons)\n              146 by price > 100\n                2 by fee < 0" in text
    )


def test_a_lower_bound_of_zero_rows_is_not_told() -> None:
    plan = example_plan()
    unsure = tuple(replace(read, all_rows_match=False) for read in plan.row_groups)
    assert "result rows   at most 2,500\n" in replace(plan, row_groups=unsure).explain()


def test_the_look_at_an_absent_sidecar_is_a_get() -> None:
    spent = [
        MetadataRequest(path="bucket/trades/2024-03-01/_pm", byte_range=None, reason="no sidecar", fetched_bytes=0),
        MetadataRequest(path="bucket/trades", byte_range=None, reason="listing", fetched_bytes=0, operation="list"),
    ]
    data = replace(example_plan(), metadata_requests=tuple(spent)).as_dict()
    assert [request["operation"] for request in data["metadata_requests"]] == ["get", "list"]
    assert data["estimate"]["metadata_dollars"] == pytest.approx((0.40 + 5) / 1e6)


def test_explain_lists_twenty_requests_and_counts_the_rest() -> None:
    plan = example_plan()
    many = replace(plan, requests=plan.requests[:1] * 1234)
    assert "... and 1,214 more" in many.explain()
    assert len(many.explain().splitlines()) < 60


def test_explain_of_a_wide_table_and_a_long_predicate_stays_readable() -> None:
    plan = replace(
        example_plan(),
        columns=tuple(f"c{number}" for number in range(1000)),
        predicate=f"c0 IN ({', '.join(map(str, range(5000)))})",
    )
    assert "c10, c11 and 988 more" in plan.explain()
    assert max(map(len, plan.explain().splitlines())) < 400


def test_explain_of_a_big_read_prices_the_read_itself() -> None:
    plan = example_plan()
    big = replace(plan.requests[0], byte_range=ByteRange(0, 10**9))
    text = replace(plan, requests=(big,) * 50_000).explain()
    assert "$0.020 for this read, data requests only, in the region" in text
    assert replace(plan, limit=1000).explain().count("limit         1,000") == 1


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (65536, "64 KiB"),
        (104_857, "102 KiB"),
        (1_048_575, "1 MiB"),
        (8 << 20, "8 MiB"),
        (10**10, "9.3 GiB"),
        (5 << 50, "5,120 TiB"),
    ],
)
def test_human_bytes(count: int, expected: str) -> None:
    assert human_bytes(count) == expected
