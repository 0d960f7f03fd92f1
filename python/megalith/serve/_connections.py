"""Connections: how many there may be, and how long each may keep the server waiting."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import uuid
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import get_client_addr

HEAD_SECONDS = 10.0
"""So long the head of a request may take to come."""
BODY_SECONDS = 30.0
"""The same of its body."""
LINGER_SECONDS = 2.0
"""So long a client that has its answer may send nothing of the rest of its request, before it is closed."""
BATCH = 32
"""Connections that are taken at once, before they are counted."""
LINGERING = 32
"""Of connections that linger, after their answer, so many do not count."""
_RESERVE = 3 * BATCH + LINGERING + 32
"""Descriptors for these, and for files that are open for a moment."""
MOST = 4096


class Gate:
    """What all connections share."""

    def __init__(self, most: int, write_seconds: float) -> None:
        self.most, self._write_seconds = most, write_seconds
        self.receiving: dict[Connection, None] = {}
        """Those whose request has not come, the one that has waited longest first. They make room for others."""
        self.lingering: dict[Connection, None] = {}
        self.hurries = False
        """The server stops: nobody waits for clients that do not read."""

    @property
    def write_seconds(self) -> float:
        return min(1.0, self._write_seconds) if self.hurries else self._write_seconds


def room_for_connections() -> int:
    """As many as there may be descriptors, with the greatest limit that this process may set itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (OSError, ValueError):
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MOST
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = 64
    return min(MOST, soft - used - _RESERVE)


class _Transport:
    """The connection's, which closes as the connection says."""

    def __init__(self, inner: Any, connection: Connection) -> None:
        self.inner, self._connection = inner, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def is_closing(self) -> bool:
        return self._connection.lingers or self.inner.is_closing()

    def close(self) -> None:
        self._connection.leave()


class Connection(H11Protocol):
    """One that is given up when its request does not come, or its answer is not read."""

    gate: Gate

    def connection_made(self, transport: Any) -> None:
        self.lingers = False
        super().connection_made(_Transport(transport, self))  # type: ignore[arg-type]
        self._phase: type[h11.IDLE] | type[h11.SEND_BODY] | None = None
        self._request_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._has_begun = False
        if len(self.connections) - len(self.gate.lingering) > self.gate.most:
            if not self.gate.receiving:
                self._has_begun = True  # its request is on the way
                self._say(503, "the server has as many connections as it takes; try again later", "too_many_connections")
                return
            late = next(iter(self.gate.receiving))
            late._expect(None)
            late.transport.abort()
        self._look()

    def data_received(self, data: bytes) -> None:
        if self.lingers:
            self._heard = self.loop.time()
            return
        self._has_begun = True
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        self.gate.lingering.pop(self, None)
        for timer in (self._write_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.lingers:
            return
        state = self.conn.their_state
        self._expect(None if self.transport.is_closing() or state not in (h11.IDLE, h11.SEND_BODY) else state)

    def _expect(self, phase: Any) -> None:
        if phase is self._phase and self._request_timer is not None:
            return  # what comes bit by bit has no more time
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None
        self.gate.receiving.pop(self, None)
        self._phase = phase
        if phase is not None:
            self.gate.receiving[self] = None
            # The application says 408 of a body that is late, if it reads one.
            seconds = HEAD_SECONDS if phase is h11.IDLE else BODY_SECONDS + 5
            self._request_timer = self.loop.call_later(seconds, self._is_late)

    def _is_late(self) -> None:
        self._request_timer = None
        if self._phase is h11.IDLE and self._has_begun and not self.transport.is_closing():
            self._say(408, f"the request did not come within {HEAD_SECONDS:g} s", None)
        else:
            self.transport.abort()

    def leave(self) -> None:
        """Closes it. Of a request that has not come as a whole the rest is read and forgotten first: who closes with bytes
        unread resets the connection, and the client may not see its answer."""
        inner = self.transport.inner  # type: ignore[attr-defined]
        if self.lingers or inner.is_closing():
            return
        if not self._has_begun or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY, h11.ERROR):
            inner.close()
            return
        self.lingers, self._heard = True, self.loop.time()
        self._expect(None)
        self.gate.lingering[self] = None
        if len(self.gate.lingering) > LINGERING:
            late = next(iter(self.gate.lingering))
            self.gate.lingering.pop(late)
            late.transport.abort()
        inner.write_eof()
        inner.resume_reading()
        self._linger(self._heard + BODY_SECONDS)

    def _linger(self, end: float) -> None:
        now, seconds = self.loop.time(), min(LINGER_SECONDS, self.gate.write_seconds)
        if now >= min(end, self._heard + seconds):
            self.transport.abort()
        else:
            self._linger_timer = self.loop.call_later(seconds / 4, self._linger, end)

    def _say(self, status: int, message: str, code: str | None) -> None:
        """In place of an answer of the application."""
        kind = "server_error" if status >= 500 else "invalid_request_error"
        body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                ("Connection", "close"),
                ("x-request-id", uuid.uuid4().hex),
            ]
            for event in (
                h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self._close()

    def send_400_response(self, msg: str) -> None:
        if self.access_log:
            self.access_logger.info('%s - no HTTP', get_client_addr({"client": self.client}))
        self._say(400, "the request is not HTTP", None)

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for another protocol goes on with this one, as HTTP has it."""

    def _close(self) -> None:
        """What is not read is not waited for."""
        self.transport.close()
        self.loop.call_later(self.gate.write_seconds, self.transport.abort)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif self.conn.their_state is h11.IDLE:
            self._has_begun = False
            self.gate.receiving[self] = None  # waits for another request, if there is no need of its place

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.gate.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def hurry(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = self.loop.call_later(self.gate.write_seconds, self.transport.abort)
