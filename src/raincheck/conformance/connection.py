"""A raw JSON-RPC connection to a server. It records every message unchanged, and answers the server's requests.

A request is pending until its response arrives.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeGuard

PROTOCOL_VERSION = "2025-11-25"
Message = dict[str, Any]


class CommunicationError(Exception):
    """Communication with the server failed: it is gone, does not answer, or sends text that is not a message."""


class ServerDisconnected(CommunicationError):
    """The connection is closed: the server ended, or it ended the session."""


@dataclass(frozen=True)
class ReceivedMessage:
    """A message from the server."""

    message: Message
    source: str
    """The channel that delivered it: a media type, `GET stream` or `stdio`."""

    stream_request_id: int | None
    """The id of the request on whose stream it arrived, if it arrived on one."""

    @property
    def stream(self) -> tuple[str, int | None]:
        """The stream on which it arrived. Messages on different streams have no order."""
        return self.source, self.stream_request_id

    @property
    def params(self) -> Message:
        params = self.message.get("params")
        return params if is_object(params) else {}


@dataclass
class History:
    """All messages received over successive connections."""

    received: list[ReceivedMessage] = field(default_factory=list[ReceivedMessage])
    malformed: list[str] = field(default_factory=list[str])
    """Received text that is not a message."""

    last_id: int = 0
    """The id of the last request. No id is used twice, so that each message belongs to one request."""


@dataclass(frozen=True)
class RpcResponse:
    """The response of the server to a request."""

    method: str
    message: Message
    source: str

    @property
    def error(self) -> Message | None:
        error = self.message.get("error")
        return error if is_object(error) else None

    @property
    def result(self) -> Message | None:
        result = self.message.get("result")
        return result if is_object(result) else None

    @property
    def code(self) -> object:
        return None if self.error is None else self.error.get("code")

    def __str__(self) -> str:
        if self.error is not None:
            return f"the error {self.error.get('code')} {self.error.get('message')!r}"
        return f"the result {shorten(self.message.get('result'))}"


@dataclass(eq=False)
class PendingRequest:
    """A request that was sent."""

    id: int
    method: str
    reply: asyncio.Future[RpcResponse] = field(repr=False)

    @property
    def is_answered(self) -> bool:
        return self.reply.done()


def is_object(value: object) -> TypeGuard[Message]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def parse(text: str) -> Message:
    """Parse a message; integers stay integers. Raises `ValueError` for anything that is not a JSON object."""

    def reject(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    message = json.loads(text, parse_constant=reject)
    if not is_object(message):
        raise ValueError(f"a message must be a JSON object, not {shorten(message)}")
    return message


def shorten(value: object, limit: int = 300) -> str:
    """Format a value as JSON for a message, cut to `limit` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else f"{text[:limit]}…"


class Transport(ABC):
    """Carries messages to and from the server. Received messages go to the connection it was opened for."""

    @abstractmethod
    async def open(self, inbox: "RpcConnection") -> None: ...

    def set_protocol_version(self, version: str) -> None:  # noqa: B027 - only HTTP needs it
        """Set the protocol version of all later messages, if they carry it."""

    async def listen(self) -> None:  # noqa: B027 - likewise
        """Start to listen: the handshake is over, so the server may now send any message."""

    @abstractmethod
    async def send(self, message: Message) -> None: ...

    async def abort_request(self, request_id: int) -> None:
        """Stop listening for the response to a request, without notifying the server. HTTP only."""
        raise NotImplementedError

    def is_stream_open(self, request_id: int) -> bool:  # noqa: ARG002 - of the transport that has streams
        """Return whether the stream that a request opened is still open on the server."""
        return False

    @abstractmethod
    async def close(self) -> None: ...


RequestHandler = Callable[[Message], Message]


class RpcConnection:
    """One client connection: numbers its requests, records received messages, answers the server's requests."""

    def __init__(
        self, transport: Transport, handlers: Mapping[str, RequestHandler], timeout: float, history: History
    ) -> None:
        self.history = history
        self._first_received = len(history.received)
        self._failed_answers: list[str] = []
        self.initialized: Message = {}
        self.timeout = timeout
        self._transport = transport
        self._handlers: dict[str, RequestHandler] = {"ping": lambda _: {}, **handlers}
        self._suspended_methods: set[str] = set()
        self._pending: dict[int, PendingRequest] = {}
        self._received_any = asyncio.Event()
        self._lost_reason: str | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()

    async def open(self, capabilities: Message) -> None:
        """Initialize. Raises `CommunicationError` if the server can't be reached, or answers without a result."""
        client = {"name": "raincheck-conformance", "version": "1"}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": capabilities, "clientInfo": client}
        await self._transport.open(self)
        reply = await self.request("initialize", params)
        if reply.result is None:
            raise CommunicationError(f"initialize returned {reply}; expected a result")
        self.initialized = reply.result
        self._transport.set_protocol_version(str(self.initialized.get("protocolVersion", PROTOCOL_VERSION)))
        await self.notify("notifications/initialized")
        await self._transport.listen()

    async def close(self) -> None:
        for background_task in self._background_tasks:
            background_task.cancel()
        await asyncio.gather(*self._background_tasks, return_exceptions=True)
        await self._transport.close()
        self.connection_lost("the connection was closed")

    async def request(self, method: str, params: Message | None = None) -> RpcResponse:
        """Send a request and wait for its response."""
        return await self.wait_for_reply(await self.send(method, params))

    async def send(self, method: str, params: Message | None = None) -> PendingRequest:
        """Send a request without waiting for its response."""
        self._raise_if_lost()
        self.history.last_id += 1
        pending = PendingRequest(self.history.last_id, method, asyncio.get_running_loop().create_future())
        self._pending[pending.id] = pending
        message = {"jsonrpc": "2.0", "id": pending.id, "method": method}
        await self._put(message if params is None else {**message, "params": params})
        return pending

    async def wait_for_reply(self, pending: PendingRequest, timeout: float | None = None) -> RpcResponse:  # noqa: ASYNC109 - the default is the connection's timeout
        timeout = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(pending.reply)
        except TimeoutError:
            raise CommunicationError(f"{pending.method} was not answered within {timeout:g} s{self._note()}") from None

    async def notify(self, method: str, params: Message | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method}
        await self._put(message if params is None else {**message, "params": params})

    async def abort_request(self, pending: PendingRequest) -> None:
        """Break the connection on which the response would arrive, as a network failure does."""
        self._pending.pop(pending.id, None)
        await self._transport.abort_request(pending.id)

    def stream_of(self, pending: PendingRequest) -> tuple[bool, list[Message]]:
        """Return whether the stream that a request opened is still open, and the messages received on it."""
        received = self.history.received
        messages = [message.message for message in received if message.stream_request_id == pending.id]
        return self._transport.is_stream_open(pending.id), messages

    async def answer(self, request: Message, result: Message) -> None:
        """Answer a request of the server that was not answered automatically."""
        await self._put({"jsonrpc": "2.0", "id": request["id"], "result": result})

    @contextmanager
    def hold_requests(self, method: str) -> Generator[None]:
        """Suspend automatic answers to requests of this method."""
        self._suspended_methods.add(method)
        try:
            yield
        finally:
            self._suspended_methods.discard(method)

    def mark(self) -> int:
        """Return the current position in the history, for `received_since`."""
        return len(self.history.received)

    def received_since(self, mark: int, method: str) -> list[ReceivedMessage]:
        """Return the requests and notifications of a method received after a mark."""
        return [received for received in self.history.received[mark:] if received.message.get("method") == method]

    def new_requests_since(self, mark: int, method: str) -> list[ReceivedMessage]:
        """Return the requests of a method after a mark, without those only sent again after an earlier arrival."""
        # Earlier connections are not compared: a server may restart its request ids on a new connection.
        earlier = [received.message for received in self.history.received[self._first_received : mark]]
        return [received for received in self.received_since(mark, method) if received.message not in earlier]

    async def wait_for_request(self, method: str, mark: int) -> Message:
        """Wait for the first request of a method after a mark, and return it."""

        def find() -> Message | None:
            return next((received.message for received in self.new_requests_since(mark, method)), None)

        return await self.wait_for(find, f"the server sent no {method}")

    async def wait_for(self, find: Callable[[], Message | None], error: str) -> Message:
        """Call `find` again after each received message until it returns one, and return that."""
        try:
            async with asyncio.timeout(self.timeout):
                while (message := find()) is None:
                    self._raise_if_lost()
                    self._received_any.clear()
                    await self._received_any.wait()
                return message
        except TimeoutError:
            raise CommunicationError(f"{error} within {self.timeout:g} s{self._note()}") from None

    @property
    def unanswered(self) -> list[PendingRequest]:
        return [pending for pending in self._pending.values() if not pending.is_answered]

    def receive(self, message: Message, source: str, stream_request_id: int | None = None) -> None:
        """Accept a message, which arrived on the stream of a request if `stream_request_id` names one."""
        self.history.received.append(ReceivedMessage(message, source, stream_request_id))
        self._received_any.set()
        if "method" in message:
            if "id" in message and message["method"] not in self._suspended_methods:
                self._spawn(self._handle_request(message))
            return
        request_id = message.get("id")
        pending = self._pending.pop(request_id, None) if type(request_id) is int else None
        if pending is not None and not pending.is_answered:
            pending.reply.set_result(RpcResponse(pending.method, message, source))

    def receive_malformed(self, text: str) -> None:
        """Accept text that is not a JSON object."""
        self.history.malformed.append(text)

    def fail_request(self, request_id: int, reason: str) -> None:
        """Fail a request that will not be answered."""
        if (pending := self._pending.pop(request_id, None)) is not None and not pending.is_answered:
            kind = CommunicationError if self._lost_reason is None else ServerDisconnected
            pending.reply.set_exception(kind(f"{pending.method} was not answered: {reason}"))
            # Not every request is awaited. Mark the exception as retrieved, so that asyncio does not log it.
            pending.reply.exception()

    def connection_lost(self, reason: str) -> None:
        """Note that no more messages will arrive."""
        self._lost_reason = self._lost_reason or reason
        for request_id in list(self._pending):
            self.fail_request(request_id, self._lost_reason)
        self._received_any.set()

    async def _handle_request(self, request: Message) -> None:
        handler = self._handlers.get(request["method"])
        if handler is not None:
            await self.answer(request, handler(request.get("params") or {}))
            return
        error = {"code": -32601, "message": f"this client does not support {request['method']}"}
        await self._put({"jsonrpc": "2.0", "id": request["id"], "error": error})

    async def _put(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self.timeout):
                await self._transport.send(message)
        except TimeoutError:
            name = message.get("method", "the answer to its request")
            raise CommunicationError(f"the server did not accept {name} within {self.timeout:g} s") from None

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except CommunicationError as error:
                self._failed_answers.append(str(error))

        background_task = asyncio.create_task(run())
        self._background_tasks.add(background_task)
        background_task.add_done_callback(self._background_tasks.discard)

    def _raise_if_lost(self) -> None:
        if self._lost_reason is not None:
            raise ServerDisconnected(self._lost_reason)

    def _note(self) -> str:
        if self._failed_answers:
            return f" ({self._failed_answers[-1]})"
        malformed = self.history.malformed
        return f" (it sent text that is not a message: {shorten(malformed[-1])})" if malformed else ""
