"""What the first decoding of a process takes longer than all later ones, done before anybody waits for it.

Arrow's code is paged in, its tables of functions are filled, and each thread gets memory of its own: about 3 ms of
processor time, where later decoding of a few rows takes 0.5 ms.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from coldparquet.decode.chunk_label import ChunkLabel
from coldparquet.decode.filter import filter_rows
from coldparquet.decode.one_column_file import one_column_file
from coldparquet.decode.parquet_reader import read_columns
from coldparquet.format.column_types import resolve_type
from coldparquet.format.page_headers import PageType
from coldparquet.format.page_thrift import DataPageHeader, PageHeader
from coldparquet.format.parquet_schema import LeafSpec
from coldparquet.format.sidecar_layout import Codec, Encoding, PhysicalType
from coldparquet.format.type_codes import TypeTag
from coldparquet.plan.bind import BoundAnd, BoundComparison, BoundField
from coldparquet.plan.predicate import Operator

_TIMES = np.arange(4, dtype=np.int64)


@cache
def decode_for_the_first_time() -> None:
    """Decode and filter four timestamps; nothing when it is called again. Blocks for some milliseconds."""
    type_ = resolve_type(TypeTag.TIMESTAMP, PhysicalType.INT64, 0, 0)
    leaf = LeafSpec(name="time", physical_type=PhysicalType.INT64, max_def_level=0, logical=type_.parquet_logical)
    page = _TIMES.tobytes()
    header = PageHeader(
        type=PageType.DATA,
        uncompressed_page_size=len(page),
        compressed_page_size=len(page),
        data_page_header=DataPageHeader(
            num_values=len(_TIMES),
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    file = one_column_file([header.encode(), page], leaf, value_count=len(_TIMES), codec=Codec.UNCOMPRESSED)
    label = ChunkLabel(path=None, row_group=0, columns=(leaf.name,))
    [times] = read_columns(file, {leaf.name: label}, check_page_checksums=False)
    field = BoundField(name=leaf.name, index=0, type=type_)
    since_second = BoundComparison(field, Operator.GREATER_OR_EQUAL, 1)
    before_last = BoundComparison(field, Operator.LESS, 3)
    filter_rows(BoundAnd((since_second, before_last)), pa.table({leaf.name: times}))
