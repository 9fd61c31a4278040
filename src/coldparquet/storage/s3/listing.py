"""One page of an S3 listing, of objects or of unfinished uploads: XML to paths."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from coldparquet.errors import StorageError
from coldparquet.storage.objects import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.storage.s3.errors import XmlReader

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""1,000 keys of 1,024 bytes, each byte percent-encoded, and their attributes stay below 4 MiB."""
_MOST_PAGES = 2_000
_MOST_KEPT_BYTES = 512 * 1024 * 1024
_BYTES_PER_NAME = 400
"""What is kept of an object beside its name, roughly. More than a million names fit into the limit, on 1,200 pages of S3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPage:
    """What one ListObjectsV2 answer says about the level below a prefix."""

    directories: tuple[str, ...]
    """Full paths, without a trailing slash."""
    objects: tuple[ObjectInfo, ...]
    has_marker: bool
    """An object with the prefix itself as its key: how some tools write an empty directory."""
    next_token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedUpload:
    """A multipart upload that was neither completed nor aborted."""

    path: str
    upload_id: str
    started_s: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPage:
    """What one ListMultipartUploads answer says."""

    uploads: tuple[UnfinishedUpload, ...]
    next_markers: tuple[str, str] | None
    """Key and upload id behind which the next page begins."""


class ListingProgress:
    """Sees to it that a listing comes to an end, whatever a server answers: page behind page of new names, or of none.

    Args:
        path: What is listed.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: set[str] = set()
        self._pages = 0
        self._kept_bytes = 0

    def note(self, names: Iterable[str]) -> None:
        """Note the names of a page behind which there is another one, or where that begins if they do not count.

        Raises:
            StorageError: ``kind="BadListing"``: the page brought no new name; ``kind="ListingTooLong"``: there are too many
                pages or names.
        """
        new = set(names) - self._names
        if not new:
            raise StorageError(
                "the store repeats a page of its listing for ever, or goes on without a name in it",
                path=self._path,
                kind="BadListing",
            )
        self._names |= new
        self._pages += 1
        self._kept_bytes += sum(_BYTES_PER_NAME + len(name) for name in new)
        if self._pages >= _MOST_PAGES or self._kept_bytes > _MOST_KEPT_BYTES:
            raise StorageError(
                f"the listing goes on after {self._pages:,} pages with {len(self._names):,} names, and was given up; is this"
                " the directory of a table?",
                path=self._path,
                kind="ListingTooLong",
            )


def parse_list_page(answer: XmlReader, *, bucket: str, prefix: str) -> ListedPage:
    """Parse the answer to ListObjectsV2 with ``delimiter=/``.

    Args:
        answer: The XML document.
        bucket: Becomes the first part of every path.
        prefix: The prefix that was asked for: empty, or with a slash at its end.

    Raises:
        StorageError: ``kind="BadListing"``: the answer is not what ListObjectsV2 promises.
    """
    try:
        root = answer.root()
        decode = unquote_plus if root.findtext("EncodingType") == "url" else str
        found = [
            ObjectInfo(
                path=f"{bucket}/{decode(entry.findtext('Key', ''))}",
                size_bytes=int(entry.findtext("Size", "")),
                etag=entry.findtext("ETag"),
                modified_s=_seconds(entry.findtext("LastModified")),
                storage_class=entry.findtext("StorageClass"),
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


def parse_upload_page(answer: XmlReader, *, bucket: str, prefix: str) -> UploadPage:
    """Parse the answer to ListMultipartUploads.

    Args:
        answer: The XML document.
        bucket: Becomes the first part of every path.
        prefix: The prefix that was asked for.

    Raises:
        StorageError: ``kind="BadListing"``: the answer is not what ListMultipartUploads promises.
    """
    try:
        root = answer.root()
        decode = unquote_plus if root.findtext("EncodingType") == "url" else str
        uploads = [
            UnfinishedUpload(
                path=f"{bucket}/{decode(entry.findtext('Key', ''))}",
                upload_id=entry.findtext("UploadId", ""),
                started_s=_seconds(entry.findtext("Initiated", "")) or 0.0,
            )
            for entry in root.iter("Upload")
        ]
        key_marker, id_marker = root.findtext("NextKeyMarker"), root.findtext("NextUploadIdMarker")
        truncated = root.findtext("IsTruncated") == "true"
    except (ET.ParseError, ValueError):
        raise _bad_listing(bucket, prefix) from None
    if root.tag != "ListMultipartUploadsResult" or (truncated and not key_marker):
        raise _bad_listing(bucket, prefix)
    return UploadPage(
        # Whatever a store answers, nothing outside of the prefix is touched.
        uploads=tuple(found for found in uploads if found.path.startswith(f"{bucket}/{prefix}")),
        next_markers=(decode(key_marker), id_marker or "") if truncated and key_marker else None,
    )


def _seconds(iso: str | None) -> float | None:
    """Return the seconds since 1970 of a time as S3's documents write it."""
    return None if iso is None else datetime.fromisoformat(iso).timestamp()


def _bad_listing(bucket: str, prefix: str) -> StorageError:
    return StorageError(
        "the store's answer to a listing cannot be understood; is endpoint_url that of an S3 store?",
        path=f"{bucket}/{prefix}",
        kind="BadListing",
    )
