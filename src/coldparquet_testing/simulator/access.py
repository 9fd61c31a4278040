"""Admits or refuses requests before any lookup: overload, faults, signatures and requester pays."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from coldparquet_testing.simulator.faults import REFUSALS, FaultRule
from coldparquet_testing.simulator.objects import AnswerError
from coldparquet_testing.simulator.signatures import is_signed_with

if TYPE_CHECKING:
    from coldparquet_testing.simulator.call import Call
    from coldparquet_testing.simulator.faults import FaultKind
    from coldparquet_testing.simulator.options import ColdStoreOptions

_REFUSALS: dict[FaultKind, tuple[HTTPStatus, str, str]] = {
    "slow-down": (HTTPStatus.SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate."),
    "too-many-requests": (HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests", "Please reduce your request rate."),
    "server-error": (HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "We encountered an internal error."),
    "not-found": (HTTPStatus.NOT_FOUND, "NoSuchKey", "The specified key does not exist."),
    "forbidden": (HTTPStatus.FORBIDDEN, "AccessDenied", "Access Denied"),
    "expired-token": (HTTPStatus.BAD_REQUEST, "ExpiredToken", "The provided token has expired."),
    "redirect": (HTTPStatus.TEMPORARY_REDIRECT, "TemporaryRedirect", "Please send it to the other address."),
}


class AccessCheck:
    """Refuses requests independently of their target.

    Args:
        options: Rate, secret, and whether the requester pays.
    """

    def __init__(self, options: ColdStoreOptions) -> None:
        self._options = options
        self._expired_tokens: set[str] = set()
        self._tokens_left = options.requests_per_second or 0.0
        self._filled_s = time.monotonic()

    def expire_session_token(self, token: str) -> None:
        """Refuse requests with this session token from now on."""
        self._expired_tokens.add(token)

    def pass_or_refuse(self, call: Call) -> None:
        """Admit a request.

        Raises:
            AnswerError: The refusal.
        """
        if call.fault is not None and call.fault.kind in REFUSALS:
            raise _refusal(call.fault)
        rate = self._options.requests_per_second
        if rate is not None and not self._has_room(rate):
            raise _refusal(FaultRule("slow-down", retry_after_s=1))
        headers = call.request.headers
        if self._expired_tokens and headers.get("x-amz-security-token") in self._expired_tokens:
            raise _refusal(FaultRule("expired-token"))
        if self._options.requester_pays and headers.get("x-amz-request-payer") != "requester":
            raise _refusal(FaultRule("forbidden"))
        if self._options.secret_key is not None:
            _check_signature(call, self._options.secret_key)

    def _has_room(self, rate: float) -> bool:
        """Take one token from the token bucket, which refills at the rate and holds one second's worth."""
        now_s = time.monotonic()
        self._tokens_left = min(max(rate, 1.0), self._tokens_left + (now_s - self._filled_s) * rate)
        self._filled_s = now_s
        if self._tokens_left < 1:
            return False
        self._tokens_left -= 1
        return True


def _refusal(rule: FaultRule) -> AnswerError:
    status, code, message = _REFUSALS[rule.kind]
    headers: dict[str, str] = {}
    if rule.retry_after_s is not None:
        headers["Retry-After"] = str(rule.retry_after_s)
    if rule.location is not None:
        headers["Location"] = rule.location
    return AnswerError(status, code, message, headers=headers)


def _check_signature(call: Call, secret_key: str) -> None:
    request = call.request
    if "Authorization" not in request.headers and "X-Amz-Signature" not in call.query:
        raise _refusal(FaultRule("forbidden"))
    if not is_signed_with(secret_key, method=request.method, raw_path=request.raw_path, headers=request.headers):
        raise AnswerError(
            HTTPStatus.FORBIDDEN, "SignatureDoesNotMatch", "The signature is not the one that we calculated."
        )
