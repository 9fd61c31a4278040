"""Sends the bodies of a simulated cold store at a set rate, whole or broken, and breaks connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from coldparquet_testing.simulator.call import Call, Outcome, sleep_until

if TYPE_CHECKING:
    from coldparquet.ranges import ByteRange
    from coldparquet_testing.simulator.faults import FaultKind
    from coldparquet_testing.simulator.objects import OpenedObject

_PIECE_BYTES = 128 * 1024
"""Bodies are sent in pieces of this size: 1.5 ms at 90 MB/s, near the resolution of the event loop's sleep."""

_GONE_CHECK_S = 0.02
"""Interval at which a request without an answer checks whether its client has disconnected."""

_DELIVERY_S = 0.01
"""Time for bytes to arrive before a reset, which discards what the client has not yet received."""

_BROKEN_BODIES: tuple[FaultKind, ...] = ("cut-body", "reset-body", "stall-body", "trickle", "damaged-body")


class BodySender:
    """Sends bodies.

    Args:
        bandwidth_bytes_per_s: Rate of one connection; None is as fast as possible.
    """

    def __init__(self, bandwidth_bytes_per_s: float | None) -> None:
        self._bandwidth_bytes_per_s = bandwidth_bytes_per_s

    def due_s(self, call: Call, sent_bytes: int) -> float:
        """Return when this many bytes of the body have been transferred."""
        bandwidth = self._bandwidth_bytes_per_s
        return call.first_byte_due_s + (sent_bytes / bandwidth if bandwidth else 0.0)

    async def send(
        self, call: Call, outcome: Outcome, opened: OpenedObject, wanted: ByteRange, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Send a part of an object with the status of the outcome."""
        if wanted.length_bytes <= _PIECE_BYTES and not call.meets(*_BROKEN_BODIES):
            # Headers and body leave together when the body is due: one sleep is twice as precise as two.
            await sleep_until(self.due_s(call, wanted.length_bytes))
            outcome.bytes_sent = wanted.length_bytes
            body = opened.read(wanted.start, wanted.length_bytes)
            return web.Response(status=outcome.status, headers=headers, body=body)
        response = web.StreamResponse(status=outcome.status, headers=headers)
        # Clients may disconnect early.
        with suppress(ConnectionResetError):
            await sleep_until(call.first_byte_due_s)
            await response.prepare(call.request)
            if call.meets("trickle"):
                await self._trickle(call, outcome, response, opened, wanted)
            else:
                await self._send_pieces(call, outcome, response, opened, wanted)
        return response

    async def _send_pieces(
        self, call: Call, outcome: Outcome, response: web.StreamResponse, opened: OpenedObject, wanted: ByteRange
    ) -> None:
        """Send the bytes so that the last one leaves at ``first byte + length / bandwidth``.

        The pieces follow a schedule from the first byte on, so that late wake-ups do not add up.
        """
        ends_early = call.meets("cut-body", "reset-body", "stall-body")
        stop = wanted.start + wanted.length_bytes // 2 if ends_early else wanted.stop
        damaged = wanted.start + wanted.length_bytes // 2 if call.meets("damaged-body") else -1
        for start in range(wanted.start, stop, _PIECE_BYTES):
            piece = opened.read(start, min(_PIECE_BYTES, stop - start))
            if 0 <= damaged - start < len(piece):
                at = damaged - start
                piece = piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]
            await sleep_until(self.due_s(call, start + len(piece) - wanted.start))
            await response.write(piece)
            outcome.bytes_sent += len(piece)
        if call.meets("stall-body"):
            await wait_until_gone(call)
        elif call.meets("reset-body"):
            await asyncio.sleep(_DELIVERY_S)
            reset(call)
        elif outcome.bytes_sent < wanted.length_bytes and call.request.transport:
            call.request.transport.close()

    async def _trickle(
        self, call: Call, outcome: Outcome, response: web.StreamResponse, opened: OpenedObject, wanted: ByteRange
    ) -> None:
        """Send one byte after the other until the client gives up."""
        pause_s = 0.0 if call.fault is None else call.fault.pause_s
        for position in range(wanted.start, wanted.stop):
            await response.write(opened.read(position, 1))
            outcome.bytes_sent += 1
            await asyncio.sleep(pause_s)


async def break_connection(call: Call) -> web.Response:
    """Perform the faults ``hang``, ``reset`` and ``half-answer``; the returned response is never sent."""
    await sleep_until(call.first_byte_due_s)
    transport = call.request.transport
    if call.meets("hang"):
        await wait_until_gone(call)
    elif call.meets("half-answer") and transport is not None:
        transport.write(b"HTTP/1.1 206 Partial Content\r\nContent-Le")
        transport.close()
    else:
        reset(call)
    return web.Response()


async def wait_until_gone(call: Call) -> None:
    """Wait until the client has closed the connection."""
    while call.request.transport is not None and not call.request.transport.is_closing():  # noqa: ASYNC110 - no event for it
        await asyncio.sleep(_GONE_CHECK_S)


def reset(call: Call) -> None:
    """End the connection with a TCP reset instead of an orderly close."""
    transport = call.request.transport
    if transport is None:
        return
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
