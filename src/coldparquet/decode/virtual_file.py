"""A Parquet file made up of just the chunks that were fetched, in one buffer that pyarrow decodes.

Layout: ``PAR1``, the chunks packed in ascending file order, a footer synthesised from the sidecar, its length,
``PAR1``. The sidecar alone says everything that decoding needs, so the real footer is never fetched. The buffer has its
final size before the first byte arrives, and each byte is copied once: from the answer of the store to its final place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.chunk_label import ChunkLabel
from coldparquet.decode.placed_buffer import PlacedBuffer
from coldparquet.errors import UnsupportedError
from coldparquet.format.parquet_footer import (
    PARQUET_MAGIC,
    VirtualChunk,
    VirtualRowGroup,
    encode_footer,
    frame_footer,
)
from coldparquet.format.parquet_schema import LeafSpec
from coldparquet.format.sidecar_layout import ENCODING_PLAIN, ENCODING_RLE_DICTIONARY, Codec

if TYPE_CHECKING:
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.read_plan import RowGroupRead

CODECS = tuple(codec.name.lower() for codec in Codec)
"""Parquet's compression codecs by number, with Arrow's names. Arrow never has LZO, other ones by its build."""


class RowGroupBuffer(PlacedBuffer):
    """The virtual file of one row group, to be filled in any order.

    Args:
        payload_bytes: Total length of the chunks.
        file_end: What follows them: footer, length and magic.
    """

    def __init__(self, payload_bytes: int, file_end: bytes) -> None:
        super().__init__(payload_bytes, before=PARQUET_MAGIC, behind=file_end)

    def parquet_file(self) -> pa.Buffer:
        """Return the finished file; it shares the memory of this object.

        Raises:
            InternalError: Bytes are missing.
        """
        return pa.py_buffer(self.bytes())


def one_column_file(pages: bytes, leaf: LeafSpec, *, value_count: int, codec: int) -> pa.Buffer:
    """Make a virtual file of one flat column from the bytes of its pages.

    Args:
        pages: Pages with their headers; a dictionary page may come first.
        leaf: The column.
        value_count: Number of rows.
        codec: Parquet compression codec of the pages.
    """
    chunk = VirtualChunk(
        start=len(PARQUET_MAGIC),
        length_bytes=len(pages),
        value_count=value_count,
        codec=codec,
        encodings=ENCODING_PLAIN | ENCODING_RLE_DICTIONARY,
    )
    footer = encode_footer([leaf], [VirtualRowGroup(row_count=value_count, chunks=[chunk])])
    return pa.py_buffer(PARQUET_MAGIC + pages + frame_footer(footer))


def new_row_group_buffer(read: RowGroupRead, sidecar: Sidecar, *, path: str | None) -> RowGroupBuffer:
    """Make the virtual file of one row group, complete but for the bytes of its chunks.

    Args:
        read: The row group, and which of its chunks will be placed at ``read.buffer_offsets``.
        sidecar: The partition's sidecar.
        path: The Parquet file, for error messages.

    Raises:
        UnsupportedError: A chunk is compressed with a codec that pyarrow cannot read, or its column is nested in a way
            that the sidecar does not describe.
    """
    leaves, chunks = [], []
    for column, start, length in zip(
        read.columns,
        read.buffer_offsets.tolist(),
        (read.piece_stops - read.piece_starts).tolist(),
        strict=True,
    ):
        descriptor = sidecar.column(column)
        stored = sidecar.chunks(column)
        codec = int(stored.codec[read.row_group])
        _check_codec(codec, ChunkLabel(path=path, row_group=read.row_group, columns=(descriptor.name,)))
        leaves.append(
            LeafSpec(
                # pyarrow chooses columns by name, and takes dots for paths into structs.
                name=f"{column}:{descriptor.name.replace('.', '_')}",
                physical_type=descriptor.physical_type,
                fixed_byte_length=descriptor.fixed_byte_length,
                repetition=descriptor.repetition,
                max_rep_level=descriptor.max_rep_level,
                max_def_level=descriptor.max_def_level,
                logical=sidecar.column_type(column).parquet_logical,
            )
        )
        chunks.append(
            VirtualChunk(
                start=start,
                length_bytes=length,
                value_count=int(stored.num_values[read.row_group]),
                codec=codec,
                encodings=int(stored.encodings[read.row_group]),
            )
        )
    footer = encode_footer(leaves, [VirtualRowGroup(row_count=read.row_count, chunks=chunks)])
    return RowGroupBuffer(read.bytes_wanted, frame_footer(footer))


def _check_codec(codec: int, label: ChunkLabel) -> None:
    if codec >= len(CODECS):
        raise label.damaged(f"there is no compression codec {codec}", field="codec")
    name: Any = CODECS[codec]  # the stubs list Arrow's names
    if codec != 0 and (name == "lzo" or not pa.Codec.is_available(name)):
        raise UnsupportedError(
            f"{label}: compressed with {name.upper()}, which this build of pyarrow cannot read; rewrite the file with"
            " another codec, for example ZSTD",
            kind="UnsupportedCodec",
            path=label.path,
            row_group=label.row_group,
            columns=label.columns,
            codec=name,
        )
