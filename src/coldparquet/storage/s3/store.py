"""S3 and what speaks its language: ranged GETs, listings, conditional PUTs and uploads in parts.

Whatever is written carries its CRC-32, which S3 compares with the bytes that arrive; and what S3 answers as the
checksum of what it holds is compared with ours.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from coldparquet.errors import ColdParquetError, NotFoundError, StorageError
from coldparquet.records import replace
from coldparquet.storage.base import PlainStore
from coldparquet.storage.http import RANGE_ANSWERS, may_be_whole, range_headers, read_xml, take_ranged_answer
from coldparquet.storage.http_errors import parse_refusal, refusal_error
from coldparquet.storage.refusals import already_exists, version_gone
from coldparquet.storage.requests import Listing, ObjectInfo, Upload, UploadedPart
from coldparquet.storage.s3 import xml as s3_xml
from coldparquet.storage.s3.client import S3Call, S3Connection, encoded_query, object_call

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import aiohttp

    from coldparquet.options import StoreOptions
    from coldparquet.prices import RestoreTier
    from coldparquet.storage.http_errors import Refusal, XmlReader
    from coldparquet.storage.requests import FetchedRange, RangeRequest

_RESTORING = frozenset({HTTPStatus.OK, HTTPStatus.ACCEPTED})
"""200: there is a restored copy already, and it stays longer now."""
_ABORTED = frozenset({HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND})
_COPIED = frozenset({HTTPStatus.OK, HTTPStatus.PRECONDITION_FAILED})
_CONFLICTS = frozenset({HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED})
"""Answers to a write whose condition does not hold; 409: another conditional write of the same key is under way."""
_CONFLICT_CODES = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})


class S3Store(PlainStore):
    """An :class:`~coldparquet.storage.base.ObjectStore` over S3. Paths are ``bucket/key``.

    Nothing is looked up before the first request. The store belongs to the event loop that makes it.

    Args:
        storage_options: As for s3fs; see :func:`~coldparquet.storage.s3.parameters.parse_s3_options`. What they leave
            open comes from the AWS environment variables, the profile, and on AWS the machine's role.
        store_options: How long a connection and a silence may take.
        versions: Versions of objects (S3's ``versionId``) by path. If there are any, nothing else can be read: a sidecar
            beside such an object describes its newest version. Newest versions are pinned by ``If-Match`` instead: to name
            them in requests takes the permission ``s3:GetObjectVersion``, which readers need not have.

    Raises:
        InvalidInputError: An option is unknown or cannot be meant.
    """

    has_storage_classes = has_version_listings = has_spare_connections = True

    def __init__(
        self,
        *,
        storage_options: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
        store_options: StoreOptions | None = None,
    ) -> None:
        self._connection = S3Connection(storage_options=storage_options, store_options=store_options)
        self._versions = dict(versions or {})

    def __repr__(self) -> str:
        return f"<S3Store {self.label}>"

    @property
    def label(self) -> str:
        """``s3 (eu-west-1)`` or ``s3 (http://127.0.0.1:9000)``."""
        return self._connection.label

    @property
    def reader(self) -> str | None:
        """The access key, which is no secret."""
        return self._connection.reader

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range, clipped at the end of the object. 1 request. See :class:`ObjectStore` for the errors."""
        headers = range_headers(request)
        if may_be_whole(request):
            headers |= s3_xml.ASK_FOR_CHECKSUM
        call = object_call(
            "GET",
            request.path,
            self._version_of(request.path),
            headers=headers,
            accepted=RANGE_ANSWERS,
            is_hedge=request.is_hedge,
            facts={"byte_range": request.byte_range},
        )

        async def take(response: aiohttp.ClientResponse) -> FetchedRange:
            return await take_ranged_answer(response, request, stall_timeout_s=self._connection.stall_timeout_s)

        return await self._connection.exchange(call, take)

    async def info(self, path: str) -> ObjectInfo:
        """Ask with HEAD, checksum, class and restore state included. 1 request. See :class:`ObjectStore` for the errors."""

        async def take(response: aiohttp.ClientResponse) -> ObjectInfo:
            return s3_xml.info_from_headers(path, response.headers)

        call = object_call("HEAD", path, self._version_of(path), headers=s3_xml.ASK_FOR_CHECKSUM)
        return await self._connection.exchange(call, take)

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """List one level. 1 request per 1,000 entries. See :class:`ObjectStore` for the errors."""
        bucket, prefix = _folder(path)
        directories: set[str] = set()
        objects: dict[str, ObjectInfo] = {}
        progress = s3_xml.ListingProgress(path)
        exists = False
        token: str | None = None
        while True:
            page = await self._list_page(path, bucket, prefix, token)
            directories.update(page.directories)
            objects.update((info.path, info) for info in page.objects)
            exists = exists or page.has_marker
            token = page.next_token
            if token is None or first_page_only:
                break
            progress.note([*page.directories, *(info.path for info in page.objects)] or [token])
        if not (directories or objects or exists):
            raise NotFoundError("there is no such object or directory; check the path", path=path)
        return Listing(
            directories=tuple(sorted(directories)),
            objects=tuple(objects[name] for name in sorted(objects)),
            is_complete=token is None,
        )

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        """List the objects between two paths. 1 request per 1,000. See :class:`ObjectStore` for the errors."""
        bucket, prefix = _folder(path)
        # What both have in common, all in between has: so a page ends where nothing more is of interest.
        pairs = enumerate(zip(start, stop, strict=False))
        length = next((place for place, (one, other) in pairs if one != other), min(len(start), len(stop)))
        common = start[:length].removeprefix(f"{bucket}/")
        prefix = common if common.startswith(prefix) else prefix
        found: dict[str, ObjectInfo] = {}
        progress = s3_xml.ListingProgress(path)
        token: str | None = None
        while True:
            page = await self._list_page(path, bucket, prefix, token, behind=start.removeprefix(f"{bucket}/"))
            found.update((info.path, info) for info in page.objects if start < info.path < stop)
            token = page.next_token
            if token is None or any(info.path >= stop for info in page.objects):
                return tuple(found[name] for name in sorted(found))
            progress.note([info.path for info in page.objects] or [token])

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write one object. 1 request; S3 takes up to 5 GiB in one. See :class:`ObjectStore` for the errors."""
        crc32 = await s3_xml.crc32_of(data)
        headers = {
            "Content-Type": "application/octet-stream",
            **s3_xml.checksum_headers(crc32),
            **s3_xml.class_header(storage_class),
        }
        answer = await self._write(
            object_call("PUT", path, headers=headers, body=data), overwrite=overwrite, if_match=if_match
        )
        s3_xml.check_stored_crc(answer, crc32, path=path)
        return answer.headers.get("ETag")

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Begin a multipart upload whose parts carry CRC-32s. 1 request."""
        headers = {
            "Content-Type": "application/octet-stream",
            "x-amz-checksum-algorithm": "CRC32",
            **s3_xml.class_header(storage_class),
        }
        answer = await self._exchange(object_call("POST", path, {"uploads": ""}, headers=headers))
        upload_id = s3_xml.parse_upload_id(answer.body, path=path)
        return Upload(path=path, upload_id=upload_id, storage_class=storage_class)

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:  # noqa: ARG002 - S3 orders parts by number
        """Send one part. 1 request. See :class:`ObjectStore` for the errors."""
        crc32 = await s3_xml.crc32_of(data)
        headers = {
            "Content-Type": "application/octet-stream",
            **s3_xml.checksum_headers(crc32),
        }
        query = {"partNumber": str(number), "uploadId": upload.upload_id}
        answer = await self._exchange(object_call("PUT", upload.path, query, headers=headers, body=data))
        s3_xml.check_stored_crc(answer, crc32, path=upload.path)
        etag = answer.headers.get("ETag")
        if etag is None:
            raise StorageError("the store took a part but gave no ETag for it", kind="BadAnswer", path=upload.path)
        return UploadedPart(number=number, size_bytes=len(data), etag=etag, crc32=crc32)

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Complete a multipart upload. 1 request. See :class:`ObjectStore` for the errors."""
        call = object_call(
            "POST",
            upload.path,
            {"uploadId": upload.upload_id},
            headers={"Content-Type": "application/xml"},
            body=s3_xml.complete_document(parts),
        )
        answer = await self._write(call, overwrite=overwrite, if_match=None)
        if s3_xml.is_refusal(answer.body, path=upload.path):
            refusal = self._late_refusal(answer)
            if refusal.code in _CONFLICT_CODES:
                raise already_exists(upload.path)
            raise refusal_error(refusal, path=upload.path)
        return s3_xml.parse_completed(answer.body, parts, path=upload.path)

    async def abort_upload(self, upload: Upload) -> None:
        """Throw the parts away. 1 request."""
        await self._abort(upload.path, upload.upload_id)

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Abort the older multipart uploads below ``path``. 1 request per 1,000 uploads, and 1 for each old one."""
        bucket, prefix = _folder(path)
        query = {"encoding-type": "url", "prefix": prefix, "uploads": ""}
        old: list[s3_xml.UnfinishedUpload] = []
        progress = s3_xml.ListingProgress(path)
        while True:
            call = S3Call(path=path, bucket=bucket, target=encoded_query(query))
            page = s3_xml.parse_upload_page(await self._listed(call), bucket=bucket, prefix=prefix)
            old += [found for found in page.uploads if found.started_s < started_before_s]
            if page.next_markers is None:
                break
            markers = page.next_markers
            progress.note([" ".join(markers)])
            query |= {"key-marker": markers[0], "upload-id-marker": markers[1]}
        for found in old:
            await self._abort(found.path, found.upload_id)
        return len(old)

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, those of one bucket together. 1 request per 1,000. See :class:`ObjectStore` for the errors."""
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, _, key = path.partition("/")
            by_bucket.setdefault(bucket, []).append(key)
        for bucket, keys in by_bucket.items():
            for start in range(0, len(keys), s3_xml.MAX_DELETED_KEYS):
                body = s3_xml.delete_document(keys[start : start + s3_xml.MAX_DELETED_KEYS])
                headers = {"Content-Type": "application/xml", "Content-MD5": s3_xml.md5_header(body)}
                answer = await self._exchange(
                    S3Call(method="POST", path=bucket, bucket=bucket, target="?delete=", headers=headers, body=body)
                )
                s3_xml.check_deleted(answer.body, bucket=bucket)

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:
        """Ask for a restored copy with RestoreObject. 1 request. See :class:`ObjectStore` for the errors."""
        call = object_call(
            "POST",
            path,
            {"restore": "", **self._version_of(path)},
            headers={"Content-Type": "application/xml"},
            body=s3_xml.restore_document(tier=tier, days=days),
            accepted=_RESTORING,
        )
        try:
            await self._exchange(call)
        except ColdParquetError as refusal:
            meaning = s3_xml.restore_refusal(refusal, tier=tier)
            if meaning is not None:
                raise meaning from None

    async def change_class(self, path: str, *, storage_class: str, if_match: str) -> str | None:
        """Copy an object onto itself with CopyObject. 1 request. See :class:`ObjectStore` for the errors."""
        headers = {
            "x-amz-copy-source": quote(path),
            "x-amz-copy-source-if-match": if_match,
            **s3_xml.class_header(storage_class),
        }
        call = object_call("PUT", path, headers=headers, accepted=_COPIED)
        answer = await self._exchange(call)
        if answer.status == HTTPStatus.PRECONDITION_FAILED:
            raise version_gone(path, if_match, found_etag=None)
        if s3_xml.is_refusal(answer.body, path=path):
            refusal = self._late_refusal(answer)
            raise refusal_error(refusal, path=path)
        return s3_xml.parse_copied(answer.body, path=path)

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is fine; a closed store opens again with the next request."""
        await self._connection.aclose()

    def _version_of(self, path: str) -> dict[str, str]:
        if self._versions and path not in self._versions:
            raise NotFoundError("only a version of another object was opened", path=path)
        version_id = self._versions.get(path)
        return {} if version_id is None else {"versionId": version_id}

    async def _list_page(
        self, path: str, bucket: str, prefix: str, token: str | None, *, behind: str | None = None
    ) -> s3_xml.ListedPage:
        """Fetch a page of one level or, where a key is given, of all keys behind it."""
        query = {"encoding-type": "url", "list-type": "2", "prefix": prefix}
        query |= {"delimiter": "/"} if behind is None else {"start-after": behind}
        if token is not None:
            query["continuation-token"] = token
        call = S3Call(path=path, bucket=bucket, target=encoded_query(query))
        return s3_xml.parse_list_page(await self._listed(call), bucket=bucket, prefix=prefix)

    async def _listed(self, call: S3Call) -> XmlReader:
        stall_s = self._connection.stall_timeout_s
        return await self._connection.exchange(
            call, lambda response: read_xml(response, s3_xml.MAX_PAGE_BYTES, stall_s=stall_s)
        )

    async def _exchange(self, call: S3Call) -> s3_xml.WriteAnswer:
        stall_s = self._connection.stall_timeout_s
        return await self._connection.exchange(
            call, lambda response: s3_xml.take_write_answer(response, stall_timeout_s=stall_s)
        )

    def _late_refusal(self, answer: s3_xml.WriteAnswer) -> Refusal:
        """Return what is wrong where S3 has said 200 before it knew. Such an error is one of the server's."""
        return parse_refusal(
            HTTPStatus.INTERNAL_SERVER_ERROR, answer.headers, answer.body, redact=self._connection.redact
        )

    async def _write(self, call: S3Call, *, overwrite: bool, if_match: str | None) -> s3_xml.WriteAnswer:
        """Send a write that may have a condition."""
        condition = s3_xml.condition_headers(overwrite=overwrite, if_match=if_match)
        if not condition:
            return await self._exchange(call)
        call = replace(call, headers={**call.headers, **condition}, accepted=call.accepted | _CONFLICTS)
        try:
            answer = await self._exchange(call)
        except NotFoundError as error:
            if if_match is not None and error.details.get("code") == "NoSuchKey":  # there is nothing to replace
                raise _conflict(call.path, if_match) from None
            raise
        if answer.status in _CONFLICTS:
            raise _conflict(call.path, if_match)
        return answer

    async def _abort(self, path: str, upload_id: str) -> None:
        await self._exchange(object_call("DELETE", path, {"uploadId": upload_id}, accepted=_ABORTED))


def _conflict(path: str, if_match: str | None) -> ColdParquetError:
    """Return the error for a write whose condition does not hold."""
    return already_exists(path) if if_match is None else version_gone(path, if_match, found_etag=None)


def _folder(path: str) -> tuple[str, str]:
    """Return the bucket and the prefix of all keys below a path."""
    bucket, _, rest = path.strip("/").partition("/")
    return bucket, f"{rest}/" if rest else ""
