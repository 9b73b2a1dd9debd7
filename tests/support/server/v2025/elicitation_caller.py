"""A 2025-11-25 caller in raw messages that answers questions. It records their streams, which can break.

Every message is validated against the schema of that version, and must have no field of a later version.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import httpx2
from mcp.server.mcpserver import MCPServer
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from tests.support.schemas import validate
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.transports import HttpTransport, MemoryTransport, Message, StreamTransport

VERSION = "2025-11-25"
RELATED = "io.modelcontextprotocol/related-task"

ASKABLE: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}

GET = "GET"
"""The session's own stream, which belongs to no request."""

LATER_FIELDS = frozenset(
    {"resultType", "ttlMs", "pollIntervalMs", "inputRequests", "inputResponses", "requestState"}
    | {"io.modelcontextprotocol/subscriptionId", "io.modelcontextprotocol/protocolVersion"}
)

RESULTS = {
    "initialize": "InitializeResult",
    "tasks/get": "GetTaskResult",
    "tasks/list": "ListTasksResult",
    "tasks/cancel": "CancelTaskResult",
    "tasks/result": "CallToolResult",
    "tools/list": "ListToolsResult",
    "ping": "Result",
}
REQUESTS = {
    "elicitation/create": "ElicitRequest",
    "sampling/createMessage": "CreateMessageRequest",
    "roots/list": "ListRootsRequest",
    "tasks/get": "GetTaskRequest",
    "tasks/result": "GetTaskPayloadRequest",
    "tasks/cancel": "CancelTaskRequest",
}
NOTIFICATIONS = {
    "notifications/cancelled": "JSONRPCNotification",
    "notifications/progress": "ProgressNotification",
    "notifications/tasks/status": "TaskStatusNotification",
}


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request of the server."""

    id: int | str
    method: str
    params: Message
    stream: object
    """The id of the request on whose stream it arrived, or `GET`; None if one connection carries all messages."""

    @property
    def task_id(self) -> str | None:
        """The id of the task that asks, if the request names it."""
        return self.params.get("_meta", {}).get(RELATED, {}).get("taskId")


class PendingRequest:
    """A request that is under way."""

    def __init__(self, request_id: int, method: str) -> None:
        self.id = request_id
        self.method = method
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    async def result(self) -> Message:
        """Return the result of the request.

        Raises:
            Refused: the answer is an error.
        """
        answer = await self.answer
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]


class Link(Protocol):
    """The transport of messages."""

    async def send(self, message: Message) -> None: ...


class ElicitationCaller:
    """One connection, or one session."""

    _ids = count(1)
    """Unique for all callers, because a server with an event store distinguishes streams only by request id."""

    def __init__(self, link: Link, capabilities: Mapping[str, Any] | None = None, version: str = VERSION) -> None:
        self.link = link
        self.capabilities = dict(ASKABLE if capabilities is None else capabilities)
        self.version = version
        self.hello: Message = {}
        self.all_requests: list[ServerRequest] = []
        self.notifications: list[Message] = []
        self._asked: asyncio.Queue[ServerRequest] = asyncio.Queue()
        self._withdrawn: asyncio.Queue[int | str] = asyncio.Queue()
        self._begun: dict[int, PendingRequest] = {}

    async def greet(self) -> None:
        client = {"name": "tests", "version": "1"}
        hello = {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": client}
        self.hello = await self.request("initialize", hello)
        assert self.hello["protocolVersion"] == self.version
        await self.link.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def begin(self, method: str, params: Mapping[str, Any] | None = None) -> PendingRequest:
        """Send a request without waiting for its answer."""
        begun = PendingRequest(next(self._ids), method)
        self._begun[begun.id] = begun
        message = {"jsonrpc": "2.0", "id": begun.id, "method": method}
        await self.link.send(message if params is None else {**message, "params": dict(params)})
        return begun

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """The result of a request.

        Raises:
            Refused: there is none.
        """
        return await (await self.begin(method, params)).result()

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Message:
        """Call a tool without a task, unless `more` asks for one."""
        return await self.request("tools/call", {"name": tool, "arguments": dict(arguments or {}), **more})

    async def start(self, tool: str, arguments: Mapping[str, Any] | None = None, **task: Any) -> str:
        """Call a tool as a task, and return the task's id."""
        return (await self.call(tool, arguments, task=task))["task"]["taskId"]

    async def get(self, task_id: str) -> Message:
        return await self.request("tasks/get", {"taskId": task_id})

    async def cancel(self, task_id: str) -> Message:
        return await self.request("tasks/cancel", {"taskId": task_id})

    async def wait(self, task_id: str) -> PendingRequest:
        """Start to wait for a result."""
        return await self.begin("tasks/result", {"taskId": task_id})

    async def result(self, task_id: str) -> Message:
        return await self.request("tasks/result", {"taskId": task_id})

    async def list_ids(self) -> list[str]:
        """The ids of the first page of tasks."""
        return [task["taskId"] for task in (await self.request("tasks/list", {}))["tasks"]]

    async def question(self) -> ServerRequest:
        """The next request of the server."""
        return await self._asked.get()

    async def withdrawal(self) -> int | str:
        """The id of the next question that the server withdraws."""
        return await self._withdrawn.get()

    async def reply(self, asked: ServerRequest, **response: Any) -> None:
        """Answer a question: with a `result`, or an `error`."""
        await self.link.send({"jsonrpc": "2.0", "id": asked.id, **response})

    async def cancel_request(self, begun: PendingRequest) -> None:
        """Cancel a request."""
        params = {"requestId": begun.id}
        await self.link.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def settle(self) -> None:
        """Wait long enough for the server to handle everything that was sent before."""
        for _ in range(20):
            await self.request("ping")

    async def has_no_question(self) -> bool:
        """Whether the test has read every question so far."""
        await self.settle()
        return self._asked.empty()

    def receive(self, message: Message, stream: object) -> None:
        later = LATER_FIELDS.intersection(field_names(message))
        assert not later, f"{later} in {message}"
        if "method" not in message:
            self._take_answer(message, stream)
        elif "id" in message:
            validate(REQUESTS[message["method"]], message, VERSION)
            asked = ServerRequest(message["id"], message["method"], message.get("params", {}), stream)
            self.all_requests.append(asked)
            self._asked.put_nowait(asked)
        else:
            if message["method"] in NOTIFICATIONS:
                validate(NOTIFICATIONS[message["method"]], message, VERSION)
            self.notifications.append(message)
            if message["method"] == "notifications/cancelled":
                self._take_withdrawal(message["params"])

    def _take_withdrawal(self, params: Message) -> None:
        """A withdrawal names the task of its question. A question that never arrived may be withdrawn, too."""
        for asked in self.all_requests:
            if asked.id == params["requestId"]:
                assert params.get("_meta", {}).get(RELATED) == asked.params.get("_meta", {}).get(RELATED), params
                self._withdrawn.put_nowait(asked.id)

    def _take_answer(self, message: Message, stream: object) -> None:
        begun = self._begun.pop(message["id"])
        assert stream in (None, begun.id), "an answer on the stream of something else"
        if "error" in message:
            validate("JSONRPCErrorResponse", message, VERSION)
        else:
            validate("JSONRPCResultResponse", message, VERSION)
            kind = RESULTS.get(begun.method, "CallToolResult")
            validate("CreateTaskResult" if "task" in message["result"] else kind, message["result"], VERSION)
        begun.answer.set_result(message)


def field_names(value: object) -> Iterator[str]:
    """The names of all fields in a message, at any depth."""
    if isinstance(value, Mapping):
        for name, inner in value.items():  # pyright: ignore[reportUnknownVariableType] - any JSON
            yield str(name)  # pyright: ignore[reportUnknownArgumentType]
            yield from field_names(inner)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list):
        for inner in value:  # pyright: ignore[reportUnknownVariableType]
            yield from field_names(inner)  # pyright: ignore[reportUnknownArgumentType]


class HttpLink:
    """One session over HTTP. Each request has its own connection, which can be broken."""

    def __init__(
        self, transport: HttpTransport, group: asyncio.TaskGroup, headers: Mapping[str, str], version: str
    ) -> None:
        self._wire = transport
        self._group = group
        self._headers = {"accept": "application/json, text/event-stream", **headers}
        self._version = version
        self.receive: Callable[[Message, object], None]
        self.session: str | None = None
        self._stream_tasks: dict[object, asyncio.Task[None]] = {}
        self._last_events: dict[object, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        session = {} if self.session is None else {"mcp-session-id": self.session}
        return {**self._headers, "mcp-protocol-version": self._version, **session}

    def show(self, **headers: str) -> None:
        """Send other headers from now on."""
        self._headers.update(headers)

    async def send(self, message: Message) -> None:
        if "method" in message and "id" in message:
            self._stream_tasks[message["id"]] = self._group.create_task(self._exchange(message))
            return
        response = await self._wire.client.post(self._wire.url, json=message, headers=self.headers)
        assert response.status_code == 202, response.text

    async def listen(self) -> None:
        """Open the session's own stream."""
        opened = asyncio.Event()
        self._stream_tasks[GET] = self._group.create_task(self._listen(opened))
        await opened.wait()

    async def disconnect(self, stream: object) -> None:
        """Close the connection of a request without notifying the server."""
        task = self._stream_tasks.pop(stream)
        task.cancel()
        await asyncio.wait([task])

    def resume(self, stream: object) -> None:
        """Resume a broken stream of a server with an event store."""
        self._stream_tasks[stream] = self._group.create_task(self._listen(asyncio.Event(), stream))

    async def leave(self) -> None:
        """End the session."""
        response = await self._wire.client.delete(self._wire.url, headers=self.headers)
        assert response.status_code == 200, response.text

    async def close(self) -> None:
        for stream in list(self._stream_tasks):
            await self.disconnect(stream)

    async def _exchange(self, message: Message) -> None:
        async with self._wire.client.stream("POST", self._wire.url, json=message, headers=self.headers) as response:
            self.session = response.headers.get("mcp-session-id", self.session)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                await self._read(response, message["id"])
            else:
                body = json.loads(await response.aread())
                self.receive({**body, "id": message["id"]}, message["id"])

    async def _listen(self, opened: asyncio.Event, stream: object = GET) -> None:
        last = {"last-event-id": self._last_events[stream]} if stream in self._last_events else {}
        async with self._wire.client.stream("GET", self._wire.url, headers={**self.headers, **last}) as response:
            assert response.status_code == 200
            opened.set()
            await self._read(response, stream)

    async def _read(self, response: httpx2.Response, stream: object) -> None:
        async for line in response.aiter_lines():
            if line.startswith("id:"):
                self._last_events[stream] = line.removeprefix("id:").strip()
            # The first event of a stream that can be resumed is empty.
            if line.startswith("data:") and line.removeprefix("data:").strip():
                self.receive(json.loads(line.removeprefix("data:")), stream)


@asynccontextmanager
async def http_session(
    transport: HttpTransport, headers: Mapping[str, str] | None = None, *, version: str = VERSION, **caller: Any
) -> AsyncGenerator[tuple[ElicitationCaller, HttpLink]]:
    """A session over HTTP, and its link."""
    async with asyncio.TaskGroup() as group:
        link = HttpLink(transport, group, headers or {}, version)
        one = ElicitationCaller(link, version=version, **caller)
        link.receive = one.receive
        try:
            await one.greet()
            yield one, link
        finally:
            await link.close()


@asynccontextmanager
async def connected(example_server: ExampleServer | MCPServer[Any], **caller: Any) -> AsyncGenerator[ElicitationCaller]:
    """A connection in memory. On exit, the server sees its end, as when a process closes a pipe."""
    server = example_server.mcp if isinstance(example_server, ExampleServer) else example_server
    lowlevel: Any = getattr(server, "_lowlevel_server")  # noqa: B009 - it has no public name
    async with (
        create_client_server_memory_streams() as ((read, write), (server_read, server_write)),
        asyncio.TaskGroup() as group,
    ):
        options = lowlevel.create_initialization_options()
        group.create_task(lowlevel.run(server_read, server_write, options, raise_exceptions=True))
        one = ElicitationCaller(MemoryTransport(write), **caller)

        async def listen() -> None:
            async for item in read:
                assert isinstance(item, SessionMessage), item
                one.receive(item.message.model_dump(by_alias=True, mode="json", exclude_none=True), None)

        group.create_task(listen())
        try:
            await one.greet()
            yield one
        finally:
            await write.aclose()


@asynccontextmanager
async def on_stream(transport: StreamTransport, **caller: Any) -> AsyncGenerator[ElicitationCaller]:
    """A caller on an existing connection, such as a process's streams."""
    came: asyncio.Queue[Message] = asyncio.Queue()
    setattr(transport, "receive", came.put_nowait)  # noqa: B010 - in the place of a method
    one = ElicitationCaller(transport, **caller)

    async def listen() -> None:
        while True:
            one.receive(await came.get(), None)

    async with asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        await one.greet()
        yield one
        listening.cancel()
