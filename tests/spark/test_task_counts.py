"""How many tasks a data source makes of a scan, where nobody tells it how many cores there are."""

from __future__ import annotations

import pytest

from coldparquet.pieces.frame import PieceNumbers
from coldparquet.pieces.read import ScanPiece
from coldparquet.spark.early_plan import BYTES_PER_TASK, default_task_count, shares_of


def pieces_of(*fetched_bytes: int) -> list[ScanPiece]:
    return [
        ScanPiece(
            table="t",
            numbers=PieceNumbers(row_group_count=1, rows_at_most=1, fetched_bytes=size_bytes, request_count=1),
            encoded=str(number).encode(),
        )
        for number, size_bytes in enumerate(fetched_bytes)
    ]


@pytest.mark.parametrize(
    ("worthwhile", "count"), [(1, 1), (128, 128), (129, 128), (512, 256), (3_200, 640), (1 << 21, 16_384)]
)
def test_large_scans_get_larger_tasks_not_only_more_of_them(worthwhile: int, count: int) -> None:
    assert default_task_count(worthwhile) == count


def test_pieces_of_a_large_scan_are_shared_out_evenly_and_in_order() -> None:
    pieces = pieces_of(*[1_000 + number % 7 for number in range(800)])
    shares = shares_of(pieces, most=None)
    assert len(shares) == default_task_count(800) == 320
    assert [piece for share in shares for piece in share] == pieces
    assert {len(share) for share in shares} <= {2, 3}
    assert [len(share) for share in shares_of(pieces[:128], most=None)] == [1] * 128


def test_whoever_says_how_many_gets_them() -> None:
    pieces = pieces_of(*[BYTES_PER_TASK] * 100)
    assert len(shares_of(pieces, most=100)) == 100
    assert len(shares_of(pieces, most=7)) == 7


def test_small_tables_share_tasks() -> None:
    small = pieces_of(*[1_000] * 50)
    assert len(shares_of(small, most=None, together=True)) == 1
    large = pieces_of(*[BYTES_PER_TASK // 4] * 50)
    assert len(shares_of(large, most=None, together=True)) == 50
    assert len(shares_of(large, most=6, together=True)) == 6
