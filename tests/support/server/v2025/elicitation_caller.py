"""A caller of 2025-11-25 that is asked things, in raw messages: it knows on which stream each came, and streams break.

Every message is held against the schema of that version, and must have no word of a later one.
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
from tests.support.server.example import Shop
from tests.support.server.transports import HttpWire, MemoryWire, Message, StreamWire

VERSION = "2025-11-25"
RELATED = "io.modelcontextprotocol/related-task"

ASKABLE: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}

GET = "GET"
"""The stream of a session that belongs to no request."""

LATER_WORDS = frozenset(
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
class Asked:
    """A request of the server."""

    id: int | str
    method: str
    params: Message
    stream: object
    """The id of the request on whose stream it came, or `GET`; None where one connection carries all."""

    @property
    def task_id(self) -> str | None:
        """Which task asks, as far as it says."""
        return self.params.get("_meta", {}).get(RELATED, {}).get("taskId")


class Begun:
    """A request that is under way."""

    def __init__(self, request_id: int, method: str) -> None:
        self.id = request_id
        self.method = method
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    async def result(self) -> Message:
        """What it is answered with.

        Raises:
            Refused: an error.
        """
        answer = await self.answer
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]


class Link(Protocol):
    """What carries messages."""

    async def send(self, message: Message) -> None: ...


class G1Caller:
    """One connection, or one session."""

    _ids = count(1)
    """For all of them: a server that keeps what it sends tells streams apart by nothing else."""

    def __init__(self, link: Link, capabilities: Mapping[str, Any] | None = None, version: str = VERSION) -> None:
        self.link = link
        self.capabilities = dict(ASKABLE if capabilities is None else capabilities)
        self.version = version
        self.hello: Message = {}
        self.all_asked: list[Asked] = []
        self.notifications: list[Message] = []
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._withdrawn: asyncio.Queue[int | str] = asyncio.Queue()
        self._begun: dict[int, Begun] = {}

    async def greet(self) -> None:
        client = {"name": "tests", "version": "1"}
        hello = {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": client}
        self.hello = await self.request("initialize", hello)
        assert self.hello["protocolVersion"] == self.version
        await self.link.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def begin(self, method: str, params: Mapping[str, Any] | None = None) -> Begun:
        """Send a request, and leave its answer for later."""
        begun = Begun(next(self._ids), method)
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
        """Call a tool as a task, and give its id."""
        return (await self.call(tool, arguments, task=task))["task"]["taskId"]

    async def get(self, task_id: str) -> Message:
        return await self.request("tasks/get", {"taskId": task_id})

    async def cancel(self, task_id: str) -> Message:
        return await self.request("tasks/cancel", {"taskId": task_id})

    async def wait(self, task_id: str) -> Begun:
        """Begin to wait for a result."""
        return await self.begin("tasks/result", {"taskId": task_id})

    async def result(self, task_id: str) -> Message:
        return await self.request("tasks/result", {"taskId": task_id})

    async def listed(self) -> list[str]:
        """The ids of the first page of tasks."""
        return [task["taskId"] for task in (await self.request("tasks/list", {}))["tasks"]]

    async def question(self) -> Asked:
        """What the server asks next."""
        return await self._asked.get()

    async def withdrawal(self) -> int | str:
        """The id of the next question that the server takes back."""
        return await self._withdrawn.get()

    async def reply(self, asked: Asked, **told: Any) -> None:
        """Answer a question: with a `result`, or an `error`."""
        await self.link.send({"jsonrpc": "2.0", "id": asked.id, **told})

    async def take_back(self, begun: Begun) -> None:
        """Tell the server that a request is not wanted any more."""
        params = {"requestId": begun.id}
        await self.link.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def settle(self) -> None:
        """Long enough for what was sent before to have been seen to, as far as nothing holds it up."""
        for _ in range(20):
            await self.request("ping")

    async def asks_nothing(self) -> bool:
        """Whether everything that was asked so far has been looked at by the test."""
        await self.settle()
        return self._asked.empty()

    def receive(self, message: Message, stream: object) -> None:
        later = LATER_WORDS.intersection(words_of(message))
        assert not later, f"{later} in {message}"
        if "method" not in message:
            self._take_answer(message, stream)
        elif "id" in message:
            validate(REQUESTS[message["method"]], message, VERSION)
            asked = Asked(message["id"], message["method"], message.get("params", {}), stream)
            self.all_asked.append(asked)
            self._asked.put_nowait(asked)
        else:
            if message["method"] in NOTIFICATIONS:
                validate(NOTIFICATIONS[message["method"]], message, VERSION)
            self.notifications.append(message)
            if message["method"] == "notifications/cancelled":
                self._take_withdrawal(message["params"])

    def _take_withdrawal(self, params: Message) -> None:
        """What is about a task says so, and of which. What never got here may be withdrawn, too."""
        for asked in self.all_asked:
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


def words_of(value: object) -> Iterator[str]:
    """The names of all fields in a message, at any depth."""
    if isinstance(value, Mapping):
        for name, inner in value.items():  # pyright: ignore[reportUnknownVariableType] - any JSON
            yield str(name)  # pyright: ignore[reportUnknownArgumentType]
            yield from words_of(inner)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list):
        for inner in value:  # pyright: ignore[reportUnknownVariableType]
            yield from words_of(inner)  # pyright: ignore[reportUnknownArgumentType]


class HttpLink:
    """One session over HTTP: each request has a connection of its own, which can be broken."""

    def __init__(self, wire: HttpWire, group: asyncio.TaskGroup, headers: Mapping[str, str], version: str) -> None:
        self._wire = wire
        self._group = group
        self._headers = {"accept": "application/json, text/event-stream", **headers}
        self._version = version
        self.receive: Callable[[Message, object], None]
        self.session: str | None = None
        self._jobs: dict[object, asyncio.Task[None]] = {}
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
            self._jobs[message["id"]] = self._group.create_task(self._exchange(message))
            return
        response = await self._wire.client.post(self._wire.url, json=message, headers=self.headers)
        assert response.status_code == 202, response.text

    async def listen(self) -> None:
        """Open the stream that belongs to no request."""
        opened = asyncio.Event()
        self._jobs[GET] = self._group.create_task(self._listen(opened))
        await opened.wait()

    async def break_off(self, stream: object) -> None:
        """Close the connection of a request, without a word."""
        job = self._jobs.pop(stream)
        job.cancel()
        await asyncio.wait([job])

    def resume(self, stream: object) -> None:
        """Take up a stream that broke, where the server keeps what it sends."""
        self._jobs[stream] = self._group.create_task(self._listen(asyncio.Event(), stream))

    async def leave(self) -> None:
        """End the session."""
        response = await self._wire.client.delete(self._wire.url, headers=self.headers)
        assert response.status_code == 200, response.text

    async def close(self) -> None:
        for stream in list(self._jobs):
            await self.break_off(stream)

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
async def in_session(
    wire: HttpWire, headers: Mapping[str, str] | None = None, *, version: str = VERSION, **caller: Any
) -> AsyncGenerator[tuple[G1Caller, HttpLink]]:
    """A session over HTTP, and what carries it."""
    async with asyncio.TaskGroup() as group:
        link = HttpLink(wire, group, headers or {}, version)
        one = G1Caller(link, version=version, **caller)
        link.receive = one.receive
        try:
            await one.greet()
            yield one, link
        finally:
            await link.close()


@asynccontextmanager
async def connected(shop: Shop | MCPServer[Any], **caller: Any) -> AsyncGenerator[G1Caller]:
    """A connection in memory. When it is left, the server sees its end, as when a process closes a pipe."""
    server = shop.mcp if isinstance(shop, Shop) else shop
    lowlevel: Any = getattr(server, "_lowlevel_server")  # noqa: B009 - it has no public name
    async with (
        create_client_server_memory_streams() as ((read, write), (server_read, server_write)),
        asyncio.TaskGroup() as group,
    ):
        options = lowlevel.create_initialization_options()
        group.create_task(lowlevel.run(server_read, server_write, options, raise_exceptions=True))
        one = G1Caller(MemoryWire(write), **caller)

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
async def on_stream(wire: StreamWire, **caller: Any) -> AsyncGenerator[G1Caller]:
    """A caller on a connection that is there already, such as a process's streams."""
    came: asyncio.Queue[Message] = asyncio.Queue()
    setattr(wire, "receive", came.put_nowait)  # noqa: B010 - in the place of a method
    one = G1Caller(wire, **caller)

    async def listen() -> None:
        while True:
            one.receive(await came.get(), None)

    async with asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        await one.greet()
        yield one
        listening.cancel()
