"""The ``_pages`` of a local Parquet file that was just written, from its page index."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.catalog.page_lookup import PAGES_FILE
from coldparquet.format.chunk_places import chunk_places
from coldparquet.format.page_index import page_index_range, parse_page_index
from coldparquet.format.pages_file import encode_pages_file
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.storage.local.errors import translated_errors
from coldparquet.write.local_files import NewFile

if TYPE_CHECKING:
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.write.local_files import FileOperations


def write_pages_file(path: str, footer: ParquetFooter, sidecar: bytes, files: FileOperations) -> int | None:
    """Describe the pages of a Parquet file as its page index does, in a file beside it, and flush that. Blocks.

    Args:
        path: The Parquet file.
        footer: Its footer.
        sidecar: Its sidecar.
        files: How to write to the local disk.

    Returns:
        Size of the file; None if there is no page index, and so none was written.

    Raises:
        StorageError: A file cannot be read or written.
    """
    described = parse_sidecar(sidecar, verify_checksum=False)
    places, tail = chunk_places(described), page_index_range(described)
    with translated_errors(path, None), Path(path).open("rb") as file:
        content = os.pread(file.fileno(), tail.length_bytes, tail.start)
    pages = parse_page_index(footer, content, tail_start=tail.start, places=places).pages
    if pages is None:
        return None
    beside = NewFile(f"{path.rpartition('/')[0]}/{PAGES_FILE}", files)
    beside.append(encode_pages_file(pages, places, parquet_size_bytes=described.parquet_size_bytes))
    beside.flush()
    return beside.size_bytes
