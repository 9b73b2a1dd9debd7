"""A caller of 2025-11-25 that sends raw messages, and validates every received one against the published schema.

Received messages are recorded in order. Answers go to their requests, and questions of the server wait for an answer.
A message must name its task where its own fields do not, and only there.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.support.schemas import validate
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.transports import Message
from tests.support.server.transports_v2025 import (
    V2025HttpTransport,
    V2025Transport,
    v2025_http,
    v2025_memory,
    v2025_serving,
)

VERSION = "2025-11-25"
RELATED = "io.modelcontextprotocol/related-task"
IMMEDIATE = "io.modelcontextprotocol/model-immediate-response"

ASKABLE: Mapping[str, Any] = {"elicitation": {"form": {}}, "sampling": {}}

ANSWERS = {
    "initialize": "InitializeResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "tasks/get": "GetTaskResult",
    "tasks/result": "CallToolResult",
    "tasks/list": "ListTasksResult",
    "tasks/cancel": "CancelTaskResult",
}
MESSAGES = {
    "notifications/tasks/status": "TaskStatusNotification",
    "notifications/progress": "ProgressNotification",
    "elicitation/create": "ElicitRequest",
    "sampling/createMessage": "CreateMessageRequest",
    "roots/list": "ListRootsRequest",
}
"""The schema types of messages that are not answers."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message, and the id of the request whose stream it arrived on; None for the connection's own."""

    message: Message
    stream: object


class Call:
    """A request in flight."""

    def __init__(self, message: Message, place: int) -> None:
        self.place = place
        """Number of messages that had been received when it was sent."""
        self.id: int = message["id"]
        self.method: str = message["method"]
        self.params: Mapping[str, Any] = message.get("params", {})
        self.received: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    @property
    def asks_for_task(self) -> bool:
        return self.method == "tools/call" and self.params.get("task") is not None

    @property
    def token(self) -> object:
        match self.params:
            case {"_meta": {"progressToken": token}}:
                return token
            case _:
                return None

    @property
    def task_id(self) -> str | None:
        """The task that it created, if any."""
        answer: Message = self.received.result() if self.received.done() else {}
        return answer.get("result", {}).get("task", {}).get("taskId")

    async def result(self) -> Message:
        """Return the result.

        Raises:
            Refused: the answer is an error.
        """
        answer = await asyncio.shield(self.received)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]


class V2025Caller:
    """One connection."""

    _ids = count(1)

    def __init__(
        self, transport: V2025Transport, *, capabilities: Mapping[str, Any] | None = None, version: str = VERSION
    ) -> None:
        self.transport = transport
        self.version = version
        self.capabilities = dict(ASKABLE if capabilities is None else capabilities)
        self.welcome: Message = {}
        """The server's initialize result."""
        self.received: list[ReceivedMessage] = []
        self.questions: asyncio.Queue[Message] = asyncio.Queue()
        self.faults: list[BaseException] = []
        """Errors in received messages."""
        self._calls: dict[int, Call] = {}
        self._changed = asyncio.Event()
        transport.receive = self._receive

    @property
    def http(self) -> V2025HttpTransport:
        """The transport, where it is HTTP."""
        assert isinstance(self.transport, V2025HttpTransport)
        return self.transport

    async def greet(self) -> Message:
        """Do the handshake, and return the server's initialize result."""
        hello = {
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "tests", "version": "1"},
        }
        self.welcome = await self.request("initialize", hello)
        await self.notify("notifications/initialized")
        return self.welcome

    async def begin(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> Call:
        """Send a request without waiting for the answer."""
        message: Message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method}
        if params is not None or meta is not None:
            message["params"] = {**(params or {}), **({} if meta is None else {"_meta": meta})}
        call = self._calls[message["id"]] = Call(message, len(self.received))
        await self.transport.send(message)
        return call

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> Message:
        """The result of a request.

        Raises:
            Refused: there is none.
        """
        return await (await self.begin(method, params, **more)).result()

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self.transport.send(
            {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}
        )

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Message:
        """Call a tool; as a task, with `task={}`."""
        return await self.request("tools/call", {"name": tool, "arguments": dict(arguments or {}), **more}, meta=meta)

    async def create(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Message:
        """Call a tool as a task: the task."""
        return (await self.call(tool, arguments, task=more.pop("task", {}), **more))["task"]

    async def start(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Call a tool as a task: its id."""
        return (await self.create(tool, arguments, **more))["taskId"]

    async def get(self, task_id: str) -> Message:
        return await self.request("tasks/get", {"taskId": task_id})

    async def wait(self, task_id: str) -> Call:
        """Start to wait for a result. The server has received the request when this returns."""
        waiting = await self.begin("tasks/result", {"taskId": task_id})
        await self.transport.reach(waiting.id)
        for _ in range(2):
            # Where each request has its own connection, an immediate refusal may arrive a little later.
            await self.ping()
        return waiting

    async def result(self, task_id: str) -> Message:
        return await self.request("tasks/result", {"taskId": task_id})

    async def cancel(self, task_id: str) -> Message:
        return await self.request("tasks/cancel", {"taskId": task_id})

    async def page(self, cursor: object = None) -> Message:
        return await self.request("tasks/list", None if cursor is None else {"cursor": cursor})

    async def ping(self) -> None:
        assert await self.request("ping") == {}

    async def give_up(self, call: Call) -> None:
        """Cancel a request."""
        await self.notify("notifications/cancelled", {"requestId": call.id})

    def forget_calls(self) -> None:
        """Forget all answered calls, so that their tokens are free."""
        self._calls = {number: call for number, call in self._calls.items() if not call.received.done()}

    async def asked(self) -> Message:
        """Return the next question of the server."""
        return await self.questions.get()

    async def reply(self, question: Message, result: Mapping[str, Any]) -> None:
        """Answer a question, and name its task as the question does."""
        meta = question["params"].get("_meta", {})
        reported = {"_meta": {RELATED: meta[RELATED]}} if RELATED in meta else {}
        await self.transport.send({"jsonrpc": "2.0", "id": question["id"], "result": {**result, **reported}})

    async def refuse(self, question: Message, code: int = -1, message: str = "not now") -> None:
        """Answer a question with an error."""
        await self.transport.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": code, "message": message}})

    async def seen(self, wanted: Callable[[Message], bool]) -> ReceivedMessage:
        """Return the first message that matches, received already or later."""
        place = 0
        while True:
            news = self._changed
            for one in self.received[place:]:
                if wanted(one.message):
                    return one
            assert not self.faults, self.faults
            place = len(self.received)
            await news.wait()

    def pushed(self, method: str, task_id: str | None = None) -> list[Message]:
        """Return the params of received notifications, of one task or of all."""
        params = [one.message["params"] for one in self.received if one.message.get("method") == method]
        return [one for one in params if task_id is None or one.get("taskId") == task_id]

    def statuses(self, task_id: str) -> list[str]:
        """Return the statuses that were pushed for a task."""
        return [one["status"] for one in self.pushed("notifications/tasks/status", task_id)]

    async def until(self, task_id: str, status: str) -> Message:
        """Wait for the notification that the task has this status."""
        messages = await self.seen(lambda one: _is_status(one, task_id, status))
        return messages.message["params"]

    async def until_progress(self, progress: float) -> ReceivedMessage:
        return await self.seen(lambda one: _is_progress(one) and one["params"]["progress"] == progress)

    def _receive(self, message: Message, stream: object) -> None:
        try:
            self._take(message)
        except Exception as fault:  # noqa: BLE001 - every waiting call gets the error
            self.faults.append(fault)
            for call in self._calls.values():
                if not call.received.done():
                    call.received.set_exception(fault)
        self.received.append(ReceivedMessage(message, stream))
        news, self._changed = self._changed, asyncio.Event()
        news.set()

    def _take(self, message: Message) -> None:
        if "method" not in message:
            call = self._calls[message["id"]]
            assert not call.received.done(), f"{message} is a second answer"
            _check_answer(call, message)
            call.received.set_result(message)
            for one in self.received[call.place :]:
                # By now the task of the call is known.
                if _is_progress(one.message) and one.message["params"]["progressToken"] == call.token:
                    self._check_progress(one.message["params"])
            return
        method, params = message["method"], message.get("params", {})
        if method in MESSAGES:
            validate(MESSAGES[method], message, VERSION)
        if "id" in message:
            self._check_question(params)
            self.questions.put_nowait(message)
        elif method == "notifications/progress":
            self._check_progress(params)
        else:
            assert RELATED not in json.dumps(params), f"{method} must not name its task twice"

    def _check_progress(self, params: Message) -> None:
        """Check that progress belongs to a call with this token, and names the task of the call, if any."""
        token, meta = params["progressToken"], params.get("_meta", {})
        (call,) = [one for one in self._calls.values() if one.token == token and type(one.token) is type(token)]
        assert (RELATED in meta) is call.asks_for_task, params
        if call.task_id is not None:
            assert meta[RELATED] == {"taskId": call.task_id}

    def _check_question(self, params: Message) -> None:
        """Check that a question names a task that is waited for, or belongs to a call with a hidden task."""
        related = params.get("_meta", {}).get(RELATED)
        if related is not None:
            ids = [call.params["taskId"] for call in self._calls.values() if call.method == "tasks/result"]
            assert related in [{"taskId": one} for one in ids], params
        else:
            calls_without_task = [
                one for one in self._calls.values() if one.method == "tools/call" and not one.asks_for_task
            ]
            assert calls_without_task, f"no call without a task is open, so nothing may be asked: {params}"


def _check_answer(call: Call, message: Message) -> None:
    """Check that an answer fits the schema of its request, and names the task only where it must."""
    reported = json.dumps(message)
    assert "raincheck/handed-out" not in reported, "internal metadata must not reach callers"
    if "error" in message:
        validate("JSONRPCErrorResponse", message, VERSION)
        # Of the SDK, "Connection closed" has the same code.
        is_cancelled = call.method == "tasks/result" and message["error"]["message"].startswith("Task cancelled")
        assert reported.count(RELATED) == int(is_cancelled), message
        if is_cancelled:
            assert message["error"]["code"] == -32000
            assert message["error"]["data"] == {"_meta": {RELATED: {"taskId": call.params["taskId"]}}}
        return
    validate("JSONRPCResultResponse", message, VERSION)
    result = message["result"]
    name = "CreateTaskResult" if "task" in result and call.asks_for_task else ANSWERS.get(call.method, "Result")
    validate(name, result, VERSION)
    assert reported.count(RELATED) == int(call.method == "tasks/result"), message
    assert "resultType" not in result, "a field of another version"
    if call.method == "tasks/result":
        assert result["_meta"][RELATED] == {"taskId": call.params["taskId"]}


def _is_status(message: Message, task_id: str, status: str) -> bool:
    params = message.get("params", {})
    is_status = message.get("method") == "notifications/tasks/status"
    return is_status and (params["taskId"], params["status"]) == (task_id, status)


def _is_progress(message: Message) -> bool:
    return message.get("method") == "notifications/progress"


@asynccontextmanager
async def connected(transport: V2025Transport, **options: Any) -> AsyncGenerator[V2025Caller]:
    """Yield a caller after the handshake. Invalid messages fail the test at the end, at the latest."""
    caller = V2025Caller(transport, **options)
    await caller.greet()
    yield caller
    assert not caller.faults, caller.faults


@asynccontextmanager
async def v2025_caller(server: ExampleServer, way: str = "memory", **options: Any) -> AsyncGenerator[V2025Caller]:
    """Yield a caller of a server: in memory, or over HTTP in one of its modes, with the connection's own stream.

    `headers` are for HTTP.
    """
    headers: dict[str, str] = options.pop("headers", {})
    if way == "memory":
        async with v2025_memory(server.mcp) as transport, connected(transport, **options) as caller:
            yield caller
        return
    async with (
        v2025_serving(server.mcp, way) as serving,
        v2025_http(serving, **headers) as http,
        connected(http, **options) as caller,
    ):
        if "stateless" not in way:
            await http.listen()
        yield caller
