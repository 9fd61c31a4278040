"""One page of an S3 listing: XML to paths."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from coldparquet.errors import StorageError
from coldparquet.storage.base import ObjectInfo
from coldparquet.storage.s3_errors import parse_xml

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""1,000 keys of 1,024 bytes, each byte percent-encoded, and their attributes stay below 4 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPage:
    """What one ListObjectsV2 answer says about the level below a prefix."""

    directories: tuple[str, ...]
    """Full paths, without a trailing slash."""
    objects: tuple[ObjectInfo, ...]
    has_marker: bool
    """An object with the prefix itself as its key: how some tools write an empty directory."""
    next_token: str | None


def parse_list_page(body: bytes, *, bucket: str, prefix: str) -> ListedPage:
    """Parse the answer to ListObjectsV2 with ``delimiter=/``.

    Args:
        body: The XML document.
        bucket: Becomes the first part of every path.
        prefix: The prefix that was asked for: empty, or with a slash at its end.

    Raises:
        StorageError: ``kind="BadListing"``: the answer is not what ListObjectsV2 promises.
    """
    try:
        root = parse_xml(body)
        decode = unquote_plus if root.findtext("EncodingType") == "url" else str
        found = [
            ObjectInfo(
                path=f"{bucket}/{decode(entry.findtext('Key', ''))}",
                size_bytes=int(entry.findtext("Size", "")),
                etag=entry.findtext("ETag"),
            )
            for entry in root.iter("Contents")
        ]
        # A name without characters ("a//b") cannot be told from its parent once the slash is gone; skip it.
        prefixes = [decode(entry.findtext("Prefix", "")) for entry in root.iter("CommonPrefixes")]
        folders = [name for name in prefixes if name.endswith("/") and name != f"{prefix}/"]
        truncated = root.findtext("IsTruncated") == "true"
        token = root.findtext("NextContinuationToken")
    except (ET.ParseError, ValueError):
        raise _bad_listing(bucket, prefix) from None
    inside = all(name.startswith(prefix) for name in folders)
    goes_on = token is not None and bool(found or prefixes)
    if root.tag != "ListBucketResult" or not inside or (truncated and not goes_on):
        raise _bad_listing(bucket, prefix)
    return ListedPage(
        directories=tuple(f"{bucket}/{name[:-1]}" for name in folders),
        objects=tuple(info for info in found if info.path != f"{bucket}/{prefix}"),
        has_marker=any(info.path == f"{bucket}/{prefix}" for info in found),
        next_token=token if truncated else None,
    )


def _bad_listing(bucket: str, prefix: str) -> StorageError:
    return StorageError(
        "the store's answer to ListObjectsV2 cannot be understood; is endpoint_url that of an S3 store?",
        path=f"{bucket}/{prefix}",
        kind="BadListing",
    )
