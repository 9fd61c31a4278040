from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.options import ReadOptions
from coldparquet.plan.choices import decoded_row_bytes
from tests.support.paged_columns import KINDS, LONG, Chunk, Kind, Partition, as_value

SYMBOL = Kind(type_code=12, physical_type=PhysicalType.BYTE_ARRAY, rows=st.none(), literals=st.none(), encode=as_value)


@pytest.mark.parametrize(
    ("kind", "options", "row_bytes"),
    [
        (LONG, ReadOptions(), 8),
        (KINDS["byte"], ReadOptions(), 1),
        (KINDS["uuid"], ReadOptions(), 16),
        (KINDS["decimal"], ReadOptions(), 16),
        # 10 rows in 20 bytes, of texts up to 30 bytes.
        (KINDS["varchar"], ReadOptions(), 34),
        (KINDS["varchar"], ReadOptions(strings="dictionary"), 6),
        (KINDS["varchar"], ReadOptions(strings="view"), 22),
        (SYMBOL, ReadOptions(), 6),
        (SYMBOL, ReadOptions(symbols="string"), 34),
    ],
)
def test_bytes_of_a_decoded_row(kind: Kind, options: ReadOptions, row_bytes: float) -> None:
    chunk = Chunk(values=range(10), page_starts=None, page_bytes=[20], bounds=(b"a", b"z" * 30))
    partition = Partition(kinds=[LONG, kind], chunks=[[chunk, chunk]])
    assert decoded_row_bytes(partition.sidecar, [1], np.array([0]), options).tolist() == [[row_bytes]]
    assert decoded_row_bytes(partition.sidecar, [], np.array([0]), options).shape == (1, 0)


def test_types_that_are_not_read_are_guessed_from_their_bytes() -> None:
    unknown = Kind(
        type_code=999, physical_type=PhysicalType.BYTE_ARRAY, rows=st.none(), literals=st.none(), encode=as_value
    )
    chunk = Chunk(values=range(10), page_starts=None, page_bytes=[200])
    partition = Partition(kinds=[unknown], chunks=[[chunk]])
    assert decoded_row_bytes(partition.sidecar, [0], np.array([0]), ReadOptions()).tolist() == [[60]]
