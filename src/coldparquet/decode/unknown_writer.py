"""Pages that may be compressed although they say that they are not, in files of which nobody noted the writer.

Arrow before 3.0 compressed data pages of version 2 and marked them as not compressed. pyarrow tells such a file by its
writer, which sidecars that QuestDB or older versions of this library made do not name. What a page holds tells it nearly as
well: what is not compressed is as long as it says, and does not decompress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.dictionary_pages import SEPARABLE_CODECS
from coldparquet.decode.virtual_file import CODECS
from coldparquet.errors import UnsupportedError
from coldparquet.format.page_headers import PageType, iterate_pages

if TYPE_CHECKING:
    from coldparquet.decode.chunk_label import ChunkLabel
    from coldparquet.format.page_headers import Page


def check_compression_marks(pages: bytes, codec: int, label: ChunkLabel) -> None:
    """Check that the data pages of a chunk which say that they are not compressed cannot be.

    Args:
        pages: Pages with their headers. A writer makes all data pages of a chunk of one version.
        codec: Parquet compression codec of the chunk.
        label: The chunk, for error messages.

    Raises:
        UnsupportedError: A page may be compressed (kind ``UnknownWriter``).
    """
    for page in iterate_pages(pages, len(pages)) if codec else ():
        if page.header.type == PageType.DATA:
            return
        if _may_be_compressed(page, pages, codec):
            raise UnsupportedError(
                f"{label}: a page is marked as not compressed but may be, as in files of Arrow before 3.0, and the sidecar"
                " does not note who wrote the file: make it anew with 'coldparquet index --force'",
                kind="UnknownWriter",
                path=label.path,
                row_group=label.row_group,
                columns=label.columns,
            )


def _may_be_compressed(page: Page, pages: bytes, codec: int) -> bool:
    """Tell whether the values of a page may be compressed although it says that they are not."""
    header = page.header.data_page_header_v2
    if page.header.type != PageType.DATA_V2 or header is None or header.is_compressed is not False:
        return False
    levels_bytes = (header.definition_levels_byte_length or 0) + (header.repetition_levels_byte_length or 0)
    values = memoryview(pages)[page.body_start + levels_bytes : page.stop]
    size_bytes = (page.header.uncompressed_page_size or 0) - levels_bytes
    if len(values) != size_bytes:
        return True
    name: Any = CODECS[codec]  # the stubs list Arrow's names
    if name not in SEPARABLE_CODECS:
        return size_bytes > 0
    try:
        pa.decompress(values, decompressed_size=size_bytes, codec=name, asbytes=True)
    except (pa.ArrowException, OSError):
        return False
    return size_bytes > 0
