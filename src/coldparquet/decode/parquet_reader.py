"""pyarrow's Parquet reader for virtual files, with its errors in our words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.decode.chunk_label import together
from coldparquet.errors import UnsupportedError
from coldparquet.format.parquet_footer import PARQUET_MAGIC
from coldparquet.options import KIB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.decode.chunk_label import ChunkLabel
    from coldparquet.errors import FormatError

_LEAST_BYTES_FOR_THREADS = 256 * KIB
"""Less decodes within a millisecond or two, and to hand a column to another thread and wait for it takes a twentieth of one."""


def read_columns(  # noqa: PLR0913 - one file, and what is to become of its columns
    file: pa.Buffer,
    labels: Mapping[str, ChunkLabel],
    *,
    end_beside: bytes | None = None,
    int96_unit: Literal["s", "ns"] = "ns",
    as_dictionary: Sequence[str] = (),
    check_page_checksums: bool,
) -> list[pa.ChunkedArray[Any]]:
    """Decode columns of a virtual file, on the calling thread.

    Args:
        file: The file, which has one row group and nothing but columns of one leaf.
        end_beside: Footer, length and magic, where the file itself ends with its pages.
        labels: The columns to decode by their names in the file, with those for error messages; at least one.
        int96_unit: Unit of the timestamps that INT96 values become.
        as_dictionary: Names of text columns that become dictionary arrays. Of a dictionary page pyarrow drops repeated entries
            without renumbering the indices, so that whoever asks for this must look at what comes out.
        check_page_checksums: Whether the CRC-32 of each page that has one is compared.

    Returns:
        One array per label, in their order. Lengths are those of the pages.

    Raises:
        FormatError: The pages do not decode; names the first column that fails by itself.
        UnsupportedError: pyarrow does not implement an encoding.
    """
    try:
        parquet = pq.ParquetFile(
            pa.BufferReader(file),
            metadata=None if end_beside is None else pq.read_metadata(pa.BufferReader(PARQUET_MAGIC + end_beside)),
            coerce_int96_timestamp_unit=int96_unit,
            read_dictionary=list(as_dictionary),
            pre_buffer=False,  # all of it is in memory: another thread would only hand it over
            page_checksum_verification=check_page_checksums,
        )
    except (pa.ArrowException, OSError) as error:
        raise _translated(error, together(list(labels.values()))) from error
    names = list(labels)
    try:
        # Arrow's threads share the columns: the end of a read waits for few row groups, not for one per processor.
        table = parquet.read_row_group(
            0, columns=names, use_threads=len(names) > 1 and file.size >= _LEAST_BYTES_FOR_THREADS
        )
        return [table.column(name) for name in names]
    except (pa.ArrowException, OSError):
        return [_read_column(parquet, name, label) for name, label in labels.items()]


def _read_column(parquet: pq.ParquetFile, name: str, label: ChunkLabel) -> pa.ChunkedArray[Any]:
    try:
        return parquet.read_row_group(0, columns=[name], use_threads=False).column(name)
    except (pa.ArrowException, OSError) as error:
        raise _translated(error, label) from error


def _translated(error: Exception, label: ChunkLabel) -> FormatError | UnsupportedError:
    reason = " ".join(str(error).split())  # messages about Thrift contain line breaks
    if isinstance(error, pa.ArrowNotImplementedError):
        return UnsupportedError(
            f"{label}: pyarrow cannot decode it: {reason}",
            path=label.path,
            row_group=label.row_group,
            columns=label.columns,
        )
    return label.damaged(
        f"the pages do not decode: {reason}; either they are damaged, or the file was rewritten after its sidecar ('coldparquet"
        f" index --force' writes that anew), or pyarrow {pa.__version__} does not read how the file was written: try another version"
    )


def check_values(array: pa.ChunkedArray[Any], label: ChunkLabel) -> None:
    """Check what pyarrow decodes without complaint although whoever gets it next may crash.

    Raises:
        FormatError: Text is not UTF-8, an index has no entry in its dictionary, or a decimal has more digits than its type.
    """
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise label.damaged(
            f"{error}; the file's writer stored what the column's type does not allow: rewrite the column with another type,"
            " or leave it out with columns=[...]",
            field="values",
        ) from error
