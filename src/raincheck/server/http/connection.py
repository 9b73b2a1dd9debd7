"""A connection of the HTTP server, with its timeouts."""

import asyncio
import socket
from contextlib import suppress
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT = 60.0
"""Seconds for a request to arrive, with its body. For the first request they start when the client connects."""

WRITE_TIMEOUT = 60.0
"""Seconds for which a client may leave a response unread. A client that reads slowly has as long as it needs."""

TCP_OPTIONS = {
    # asyncio does this by itself only if the listening socket was created with a protocol number.
    "TCP_NODELAY": 1,
    # A request may be in progress for hours. Its connection is closed if the client's host is gone.
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,  # all within TCP_USER_TIMEOUT, which would end the probes
    # The kernel ends a connection whose client does not read. Linux only.
    "TCP_USER_TIMEOUT": int(WRITE_TIMEOUT * 1000),
}
"""Options of every connection, where the platform has them."""


class HttpConnection(H11Protocol):
    """A connection that is closed when it is idle, its request incomplete, or its response unread, for too long.

    While a request is in progress, it has no timeout: a stream may be silent for hours.
    """

    waiting_since = 0.0
    """When it was opened, finished a response, or received the first bytes of the request that is still incomplete."""

    _request_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    @property
    def is_in_progress(self) -> bool:
        """Whether a request has fully arrived, and its response is not complete."""
        # None until the first request, despite uvicorn's annotation.
        cycle = cast("object | None", self.cycle)
        return cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def is_idle_since(self, time: float) -> bool:
        """Return whether it has waited for a request since this time, and the client has read everything."""
        return not self.is_in_progress and not self.transport.get_write_buffer_size() and self.waiting_since <= time

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn has it
        super().connection_made(transport)
        # This fails if the client has already disconnected.
        with suppress(OSError):
            connection = transport.get_extra_info("socket")
            for name, value in TCP_OPTIONS.items():
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._start_request_timer()

    def data_received(self, data: bytes) -> None:
        before = self.conn.their_state, self.cycle
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # the body is invalid, but a response has already started
            self.transport.abort()
        if before[0] is h11.SEND_BODY and before != (self.conn.their_state, self.cycle):
            self._stop_request_timer()  # of the body, even if the next request has started
        self._update_request_timer()

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()
        self._update_request_timer()
        self._update_write_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_request_timer()
        self._update_write_timer()
        super().connection_lost(exc)

    def _update_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
        if unread := self.transport.get_write_buffer_size():
            self._write_timer = self.loop.call_later(WRITE_TIMEOUT, self._abort_if_unread, unread)

    def _abort_if_unread(self, size: int) -> None:
        """Close the connection if as much is unread as before. A response that still grows is checked later."""
        is_growing = self.cycle.response_started and not self.cycle.response_complete and not self.flow.write_paused
        if self.transport.get_write_buffer_size() < size:
            self._update_write_timer()
        elif not is_growing:
            self.transport.abort()

    def _update_request_timer(self) -> None:
        state = self.conn.their_state
        if state is not h11.SEND_BODY and not (state is h11.IDLE and self.conn.trailing_data[0]):
            self._stop_request_timer()
            self._restart_idle_timer()
        elif self._request_timer is None:
            self._start_request_timer()

    def _restart_idle_timer(self) -> None:
        """Time out the idle connection again: uvicorn stops its timer at the late end of a request answered early."""
        cycle = cast("object | None", self.cycle)
        if cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
            handler = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, handler)

    def _start_request_timer(self) -> None:
        self.waiting_since = self.loop.time()
        self._request_timer = self.loop.call_later(REQUEST_TIMEOUT, self.transport.close)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None
