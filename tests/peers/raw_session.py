"""A raw session with a peer: requests and responses are sent and returned unchanged, without validation."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any

from mcp.client import ClientRequestContext
from mcp.client.session import ClientSession
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import ElicitRequestParams, ElicitResult

from tests.support.peers import Peer

Json = dict[str, Any]

EXTENSION = "io.modelcontextprotocol/tasks"
MODERN = "2026-07-28"
TERMINAL = ("completed", "failed", "cancelled")


class PeerSession:
    """A session with a peer, after the handshake."""

    def __init__(self, session: ClientSession, dispatcher: JSONRPCDispatcher[Any], *, has_tasks: bool) -> None:
        self.session = session
        self.hello: Json = {}
        """The result of `initialize` or `server/discover`."""
        self._dispatcher = dispatcher
        self._has_tasks = has_tasks

    async def greet(self, version: str) -> None:
        """Do the handshake of a version."""
        if version == MODERN:
            self.hello = await self.request("server/discover")
        else:
            initialized = await self.session.initialize()
            self.hello = initialized.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def request(self, method: str, **params: Any) -> Json:
        """Send a request and return its result.

        Raises:
            MCPError: the server answered with an error.
        """
        if self.session.protocol_version is not None:
            return await self._dispatcher.send_raw_request(
                method, params, {"headers": {"mcp-protocol-version": self.session.protocol_version}}
            )
        capabilities: Json = {"elicitation": {}, **({"extensions": {EXTENSION: {}}} if self._has_tasks else {})}
        meta: Json = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
        name = params.get("taskId", params.get("name"))
        if name is not None:
            headers["mcp-name"] = name
        params = {**params, "_meta": {**meta, **params.get("_meta", {})}}
        return await self._dispatcher.send_raw_request(method, params, {"headers": headers})

    async def call(self, tool: str, arguments: Mapping[str, Any], **params: Any) -> Json:
        return await self.request("tools/call", name=tool, arguments=dict(arguments), **params)

    async def until(self, task_id: str, *statuses: str) -> Json:
        """Poll a task until it has one of these statuses, or has ended."""
        while True:
            task = await self.request("tasks/get", taskId=task_id)
            if task["status"] in (*statuses, *TERMINAL):
                return task

    async def refusal(self, method: str, **params: Any) -> Json:
        """Send a request that must be rejected, and return the error."""
        try:
            result = await self.request(method, **params)
        except MCPError as refused:
            return refused.error.model_dump(by_alias=True, exclude_none=True)
        raise AssertionError(f"{method} was answered with {result}")


class ReceivedMessages:
    """The notifications and input requests that a server sent."""

    def __init__(self) -> None:
        self.notifications: list[Json] = []
        self.questions: list[Json] = []

    def of(self, method: str) -> list[Json]:
        """Return the parameters of the notifications of a method."""
        return [message["params"] for message in self.notifications if message["method"] == method]

    def take(self, item: SessionMessage | Exception) -> None:
        if isinstance(item, Exception):
            raise item
        message = item.message.model_dump(by_alias=True, mode="json", exclude_none=True)
        if "method" in message and "id" not in message:
            self.notifications.append(message)

    async def answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        self.questions.append(params.model_dump(by_alias=True, mode="json", exclude_none=True))
        return ElicitResult(action="accept", content={"sure": True})


class RecordingStream:
    """A stream that records each item that is read from it, since a session drops unknown messages."""

    def __init__(self, stream: Any, received: ReceivedMessages) -> None:
        self._stream = stream
        self._messages = received

    async def receive(self) -> SessionMessage | Exception:
        item = await self._stream.receive()
        self._messages.take(item)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "RecordingStream":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item = await anext(self._stream)
        self._messages.take(item)
        return item

    async def __aenter__(self) -> "RecordingStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(exc_type, exc_val, exc_tb)


@asynccontextmanager
async def open_session(
    peer: Peer,
    url: str | None = None,
    *,
    version: str | None = None,
    has_tasks: bool = True,
    received: ReceivedMessages | None = None,
) -> AsyncGenerator[PeerSession]:
    """Open a session with a peer: at a URL, or else with a new process on stdio."""
    received = received or ReceivedMessages()
    async with AsyncExitStack() as stack:
        transport = stdio_client(peer.on_stdio()) if url is None else streamable_http_client(url)
        read, write = await stack.enter_async_context(transport)
        dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(RecordingStream(read, received), write)
        session = ClientSession(dispatcher=dispatcher, elicitation_callback=received.answer)
        wire = PeerSession(await stack.enter_async_context(session), dispatcher, has_tasks=has_tasks)
        await wire.greet(version or peer.version)
        yield wire
