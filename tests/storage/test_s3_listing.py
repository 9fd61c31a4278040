"""Listings: pages, names, and answers that are none."""

from __future__ import annotations

import time
from contextlib import suppress
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import StorageError
from coldparquet.storage.http_errors import XmlReader, parse_refusal, parse_xml, refusal_error
from coldparquet.storage.s3.xml import ListedPage, parse_list_page


def page(content: str) -> bytes:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"{content}</ListBucketResult>"
    ).encode()


def listed_page(body: bytes, *, bucket: str, prefix: str) -> ListedPage:
    reader = XmlReader()
    with suppress(ET.ParseError, ValueError):
        reader.feed(body)
    return parse_list_page(reader, bucket=bucket, prefix=prefix)


def test_objects_and_directories() -> None:
    listed = listed_page(
        page(
            "<Name>bucket</Name><Prefix>db/</Prefix><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
            "<NextContinuationToken>abc==</NextContinuationToken>"
            "<Contents><Key>db/</Key><Size>0</Size></Contents>"
            "<Contents><Key>db/a%2Bb+c%3D%C3%A9</Key><ETag>&quot;1&quot;</ETag><Size>12</Size></Contents>"
            "<CommonPrefixes><Prefix>db/2024-03-01/</Prefix></CommonPrefixes>"
            "<CommonPrefixes><Prefix>db//</Prefix></CommonPrefixes>"
        ),
        bucket="bucket",
        prefix="db/",
    )
    assert [(info.path, info.size_bytes, info.etag) for info in listed.objects] == [("bucket/db/a+b c=é", 12, '"1"')]
    assert listed.directories == ("bucket/db/2024-03-01",)
    assert listed.has_marker
    assert listed.next_token == "abc=="  # noqa: S105


def test_names_without_url_encoding_are_taken_as_they_are() -> None:
    listed = listed_page(page("<Contents><Key>a+b%20c</Key><Size>1</Size></Contents>"), bucket="bucket", prefix="")
    assert listed.objects[0].path == "bucket/a+b%20c"
    assert (listed.has_marker, listed.next_token) == (False, None)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_name_survives_url_encoding(name: str) -> None:
    body = page(f"<EncodingType>url</EncodingType><Contents><Key>{quote(name)}</Key><Size>1</Size></Contents>")
    assert [info.path for info in listed_page(body, bucket="b", prefix="").objects] == [f"b/{name}"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b"<ListBucketResult>",
        b"\xff",
        page("<Contents><Key>a</Key></Contents>"),
        page("<Contents><Key>a</Key><Size>many</Size></Contents>"),
        page("<IsTruncated>true</IsTruncated>"),
        page("<IsTruncated>true</IsTruncated><Contents><Key>a</Key><Size>1</Size></Contents>"),
        page("<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"),
        page("<CommonPrefixes><Prefix>elsewhere/</Prefix></CommonPrefixes>"),
        b'<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult>&b;</ListBucketResult>',
    ],
)
def test_answers_that_are_no_listing(body: bytes) -> None:
    with pytest.raises(StorageError) as caught:
        listed_page(body, bucket="bucket", prefix="db/")
    assert caught.value.kind == "BadListing"


@given(st.binary())
def test_any_bytes(body: bytes) -> None:
    with pytest.raises(StorageError):
        listed_page(body, bucket="bucket", prefix="")


def test_a_long_token_in_small_blocks_is_parsed_in_a_time_that_grows_with_its_length() -> None:
    reader = XmlReader()
    started_s = time.process_time()
    reader.feed(b"<a b='")
    for _ in range(4_000):
        reader.feed(b"x" * 1_000)
    reader.feed(b"'/>")
    assert len(reader.root().get("b", "")) == 4_000_000
    assert time.process_time() - started_s < 2.0, "about 0.1 s; parsed block by block it was more than ten seconds"


@pytest.mark.parametrize("encoding", ["rot13", "zlib", "hex", "utf-7", "none"])
def test_encodings_that_xml_cannot_have(encoding: str) -> None:
    document = f"<?xml version='1.0' encoding='{encoding}'?><ListBucketResult/>".encode()
    with pytest.raises((ET.ParseError, ValueError)):
        parse_xml(document)


def test_what_a_server_says_is_short_and_steers_no_terminal() -> None:
    evil = "<Error><Code>%s</Code><Message>\x9b31m\u202e</Message></Error>" % ("\u202e\x9bA" * 9_999)
    message = str(refusal_error(parse_refusal(500, {}, evil.encode()), path="bucket/\x1bkey"))
    assert len(message) < 1_000
    assert message.isprintable()
