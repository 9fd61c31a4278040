"""What the simulated cold store does wrong on purpose: to whom, how often, and what a client sees of it."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InvalidInputError
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.simulator.command import command_line_for
from coldparquet_testing.simulator.command import main as serve_until_told
from coldparquet_testing.simulator.faults import FaultDice, FaultRule
from tests.support.http_servers import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = bytes(range(250)) * 4
SILENCE_S = 0.25
"""After so long without a byte, none comes."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ColdStoreServer]:
    (tmp_path / "bucket").mkdir()
    for name in ("x", "y"):
        (tmp_path / "bucket" / name).write_bytes(CONTENT)
    with ColdStoreServer(tmp_path) as server:
        yield server


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("slow-down", 503, b"SlowDown"),
        ("too-many-requests", 429, b"TooManyRequests"),
        ("server-error", 500, b"InternalError"),
        ("not-found", 404, b"NoSuchKey"),
        ("forbidden", 403, b"AccessDenied"),
        ("expired-token", 400, b"ExpiredToken"),
    ],
)
def test_refusals(server: ColdStoreServer, kind: str, status: int, code: bytes) -> None:
    server.set_faults(FaultRule(kind, operation="*", retry_after_s=7))  # type: ignore[arg-type]
    answered, headers, body = ask(server, "/bucket/x")
    assert (answered, headers["Retry-After"]) == (status, "7")
    assert b"<Code>" + code in body
    assert ask(server, "/bucket/x", method="HEAD")[0] == ask(server, "/bucket?list-type=2")[0] == status
    assert {request.fault for request in server.requests} == {kind}
    server.set_faults()
    assert ask(server, "/bucket/x")[0] == 200
    assert server.requests[-1].fault is None


def test_redirect(server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("redirect", location="http://elsewhere.example/x"))
    status, headers, _ = ask(server, "/bucket/x")
    assert (status, headers["Location"]) == (307, "http://elsewhere.example/x")


@pytest.mark.parametrize(("kind", "expected"), [("cut-body", CONTENT[5:55]), ("reset-body", b"")])
def test_half_bodies(server: ColdStoreServer, kind: str, expected: bytes) -> None:
    server.set_faults(FaultRule(kind))  # type: ignore[arg-type]
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)) as caught:
        ask(server, "/bucket/x", Range="bytes=5-104")
    assert isinstance(caught.value, ConnectionResetError if kind == "reset-body" else http.client.IncompleteRead)
    if isinstance(caught.value, http.client.IncompleteRead):
        assert caught.value.partial == expected
    assert (server.requests[0].status, server.requests[0].bytes_sent) == (206, 50)


def test_no_answer(server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("reset"))
    with pytest.raises(ConnectionResetError):
        ask(server, "/bucket/x")
    assert (server.requests[0].status, server.requests[0].fault) == (0, "reset")


def test_half_an_answer(server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("half-answer"))
    host, _, port = server.endpoint_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET /bucket/x HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b"".join(iter(lambda: connection.recv(4096), b""))
    assert received == b"HTTP/1.1 206 Partial Content\r\nContent-Le"


@pytest.mark.parametrize(("kind", "arrives"), [("hang", b""), ("stall-body", CONTENT[:500]), ("trickle", CONTENT[:2])])
def test_answers_that_never_end(server: ColdStoreServer, kind: str, arrives: bytes) -> None:
    server.set_faults(FaultRule(kind, pause_s=0.15))  # type: ignore[arg-type]
    connection = http.client.HTTPConnection(server.endpoint_url.removeprefix("http://"), timeout=60)
    connection.request("GET", "/bucket/x")
    if kind == "hang":
        connection.sock.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            connection.getresponse()
    else:
        answer = connection.getresponse()
        assert answer.read(len(arrives)) == arrives
        if kind == "stall-body":
            connection.sock.settimeout(SILENCE_S)
            with pytest.raises(TimeoutError):
                answer.read(1)
        answer.close()
    connection.close()
    deadline_s = time.monotonic() + 60
    while not server.requests:  # the server notices that its client has gone
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert server.requests[0].bytes_sent < len(CONTENT)


def test_wrong_headers_and_damaged_bytes(server: ColdStoreServer) -> None:
    etag = ask(server, "/bucket/x")[1]["ETag"]
    server.set_faults(FaultRule("wrong-range", times=1), FaultRule("wrong-etag"))
    _, headers, body = ask(server, "/bucket/x", Range="bytes=5-104")
    assert (headers["Content-Range"], body) == ("bytes 6-104/1000", CONTENT[5:105])
    _, headers, body = ask(server, "/bucket/x", Range="bytes=5-104", If_Match=etag)
    assert (headers["ETag"] != etag, body) == (True, CONTENT[5:105])
    server.set_faults(FaultRule("whole-object"))
    status, headers, body = ask(server, "/bucket/x", Range="bytes=5-104")
    assert (status, headers["Content-Range"], body) == (200, None, CONTENT)
    server.set_faults(FaultRule("damaged-body"))
    body = ask(server, "/bucket/x")[2]
    different = [position for position in range(1_000) if body[position] != CONTENT[position]]
    assert different == [500]


def test_faults_of_bodies_leave_other_requests_alone(server: ColdStoreServer) -> None:
    for kind in ("cut-body", "wrong-range", "wrong-etag", "whole-object", "damaged-body"):
        server.set_faults(FaultRule(kind, operation="*"))
        assert ask(server, "/bucket?list-type=2")[2].count(b"<Contents>") == 2


def test_rules_choose_by_path_operation_and_number(server: ColdStoreServer) -> None:
    server.set_faults(
        FaultRule("forbidden", operation="HeadObject"),
        FaultRule("not-found", path="bucket/y", skip=1, times=2),
    )
    assert [ask(server, "/bucket/y")[0] for _ in range(5)] == [200, 404, 404, 200, 200]
    assert ask(server, "/bucket/x")[0] == 200
    assert ask(server, "/bucket/x", method="HEAD")[0] == 403


@given(st.integers(0, 1_000), st.floats(0, 1), st.lists(st.sampled_from(["a", "b"]), max_size=40))
def test_the_fate_of_a_request_depends_on_its_number_among_its_like(
    seed: int, probability: float, others: list[str]
) -> None:
    rules = [FaultRule("hang", path="a", probability=probability), FaultRule("reset", path="b", probability=0.5)]
    alone, mixed = FaultDice(rules, seed=seed), FaultDice(rules, seed=seed)
    fates = [mixed.roll("GetObject", name) for name in others if mixed or name]
    wanted = [alone.roll("GetObject", "a") for name in others if name == "a"]
    assert [fate for fate, name in zip(fates, others, strict=True) if name == "a"] == wanted


def test_the_first_rule_that_strikes_counts_and_does_not_change_the_others() -> None:
    second = FaultRule("reset", probability=0.5)
    alone = FaultDice([FaultRule("hang", times=0), second], seed=3)
    both = FaultDice([FaultRule("hang", probability=0.5), second], seed=3)
    expected = [alone.roll("GetObject", "x") for _ in range(100)]
    found = [both.roll("GetObject", "x") for _ in range(100)]
    assert {rule.kind for rule in found if rule} == {"hang", "reset"}
    assert all(
        rule == wanted for rule, wanted in zip(found, expected, strict=True) if not (rule and rule.kind == "hang")
    )


RULES = st.builds(
    FaultRule,
    st.sampled_from(["slow-down", "reset-body", "trickle"]),
    path=st.text(st.characters(codec="ascii", exclude_characters=","), min_size=1),
    operation=st.sampled_from(["*", "GetObject", "PutObject"]),
    probability=st.floats(0, 1),
    skip=st.integers(0, 9),
    times=st.none() | st.integers(0, 9),
    retry_after_s=st.none() | st.integers(0, 99),
    pause_s=st.floats(0, 9),
)


@given(RULES)
def test_rules_as_text(rule: FaultRule) -> None:
    assert FaultRule.parse(rule.as_text()) == rule


@pytest.mark.parametrize(
    "text", ["", "explosion", "hang,probability=2", "hang,skip=-1", "hang,skip=x", "hang,tide=1", "redirect", "hang,"]
)
def test_rules_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(InvalidInputError):
        FaultRule.parse(text)


def test_requests_above_the_rate_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    with ColdStoreServer(tmp_path, ColdStoreOptions(requests_per_second=5)) as server:
        answers: list[tuple[int, Any, bytes]] = []
        while not answers or answers[-1][0] == 200:  # on a machine that is too busy for five a second, not the sixth
            answers.append(ask(server, "/bucket", method="HEAD"))
        assert len(answers) > 5
        status, headers, _ = answers[-1]
        assert (status, headers["Retry-After"]) == (503, "1")
        time.sleep(0.3)
        assert ask(server, "/bucket", method="HEAD")[0] == 200


@pytest.mark.parametrize(("stale_listing_s", "objects"), [(600.0, 1), (1e-3, 2)])
def test_stale_listings(tmp_path: Path, stale_listing_s: float, objects: int) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "x").write_bytes(b"")
    with ColdStoreServer(tmp_path, ColdStoreOptions(stale_listing_s=stale_listing_s)) as server:
        assert ask(server, "/bucket?list-type=2")[2].count(b"<Contents>") == 1
        (tmp_path / "bucket" / "y").write_bytes(b"")
        assert ask(server, "/bucket/y")[0] == 200
        time.sleep(0.01)
        assert ask(server, "/bucket?list-type=2")[2].count(b"<Contents>") == objects


def test_before_answer_can_replace_an_object(tmp_path: Path) -> None:
    path = tmp_path / "bucket" / "x"
    path.parent.mkdir()
    path.write_bytes(b"old")
    seen: list[tuple[str, str]] = []

    def replace(operation: str, name: str) -> None:
        seen.append((operation, name))
        if len(seen) == 2:
            path.write_bytes(b"new")

    with ColdStoreServer(tmp_path, before_answer=replace) as server:
        assert [ask(server, "/bucket/x")[2] for _ in range(3)] == [b"old", b"new", b"new"]
    assert seen == [("GetObject", "bucket/x")] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"faults": (FaultRule("hang", probability=0.1), FaultRule("trickle", path="b/*", pause_s=2))},
        {"storage_classes": {"b/a=b*": "GLACIER", "*": "INTELLIGENT_TIERING/ARCHIVE_ACCESS"}, "clock_speed": 3600.0},
        {"requests_per_second": 9.5, "stale_listing_s": 1.0, "checksum_of_files": "CRC32C"},
        {"keep_versions": True, "requester_pays": True, "seed": 7, "bandwidth_bytes_per_s": 9e6},
    ],
)
def test_every_option_survives_the_command_line(
    tmp_path: Path, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ColdStoreOptions(**options)  # type: ignore[arg-type]
    given: list[ColdStoreOptions] = []

    async def remember(_root: Path, parsed: ColdStoreOptions, _port: int) -> None:
        given.append(parsed)

    monkeypatch.setattr("coldparquet_testing.simulator.command._serve_until_told", remember)
    worker = threading.Thread(target=serve_until_told, args=[command_line_for(tmp_path, wanted, port=0)])
    worker.start()  # an event loop of its own
    worker.join()
    assert given == [wanted]
