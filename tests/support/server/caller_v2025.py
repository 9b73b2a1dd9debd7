"""A caller of 2025-11-25 in raw messages, which holds whatever comes against the published schema of that version.

Everything that comes is kept in its order. Answers go to whoever asked, questions of the server wait to be answered.
Which task a message belongs to must be said wherever the message itself does not say it, and nowhere else.
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
from tests.support.server.example import Shop
from tests.support.server.transports import Message
from tests.support.server.transports_v2025 import G1HttpWire, G1Wire, g1_http, g1_memory, g1_serving

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
"""What the schema calls what comes unasked."""


@dataclass(frozen=True, slots=True)
class Came:
    """A message, and the id of the request whose stream it came on; None for the connection's own."""

    message: Message
    stream: object


class Call:
    """A request under way."""

    def __init__(self, message: Message, place: int) -> None:
        self.place = place
        """How much had come when it was sent."""
        self.id: int = message["id"]
        self.method: str = message["method"]
        self.params: Mapping[str, Any] = message.get("params", {})
        self.came: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

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
        """The task that it made, if it did."""
        answer: Message = self.came.result() if self.came.done() else {}
        return answer.get("result", {}).get("task", {}).get("taskId")

    async def result(self) -> Message:
        """What it is answered with.

        Raises:
            Refused: an error.
        """
        answer = await asyncio.shield(self.came)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]


class G1Caller:
    """One connection."""

    _ids = count(1)

    def __init__(self, wire: G1Wire, *, capabilities: Mapping[str, Any] | None = None, version: str = VERSION) -> None:
        self.wire = wire
        self.version = version
        self.capabilities = dict(ASKABLE if capabilities is None else capabilities)
        self.welcome: Message = {}
        """What the server says of itself."""
        self.came: list[Came] = []
        self.questions: asyncio.Queue[Message] = asyncio.Queue()
        self.faults: list[BaseException] = []
        """What came that should not have."""
        self._calls: dict[int, Call] = {}
        self._news = asyncio.Event()
        wire.receive = self._receive

    @property
    def http(self) -> G1HttpWire:
        """The wire, where it is HTTP."""
        assert isinstance(self.wire, G1HttpWire)
        return self.wire

    async def greet(self) -> Message:
        """The handshake. It returns what the server says of itself."""
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
        """Send a request, and go on."""
        message: Message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method}
        if params is not None or meta is not None:
            message["params"] = {**(params or {}), **({} if meta is None else {"_meta": meta})}
        call = self._calls[message["id"]] = Call(message, len(self.came))
        await self.wire.send(message)
        return call

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> Message:
        """The result of a request.

        Raises:
            Refused: there is none.
        """
        return await (await self.begin(method, params, **more)).result()

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self.wire.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

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
        """Begin to wait for a result. The server has got the request when this returns."""
        waiting = await self.begin("tasks/result", {"taskId": task_id})
        await self.wire.reach(waiting.id)
        for _ in range(2):
            # Where each request has a connection of its own, what is refused at once may come a little later.
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
        """Take a request back."""
        await self.notify("notifications/cancelled", {"requestId": call.id})

    def forget_calls(self) -> None:
        """Forget whatever was answered, so that its token is free."""
        self._calls = {number: call for number, call in self._calls.items() if not call.came.done()}

    async def asked(self) -> Message:
        """The next question, which waits for its answer."""
        return await self.questions.get()

    async def reply(self, question: Message, result: Mapping[str, Any]) -> None:
        """Answer a question, and say which task that belongs to, as the question does."""
        meta = question["params"].get("_meta", {})
        told = {"_meta": {RELATED: meta[RELATED]}} if RELATED in meta else {}
        await self.wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {**result, **told}})

    async def refuse(self, question: Message, code: int = -1, message: str = "not now") -> None:
        """Answer a question with an error."""
        await self.wire.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": code, "message": message}})

    async def seen(self, wanted: Callable[[Message], bool]) -> Came:
        """The first message like this, whether it has come already or not."""
        place = 0
        while True:
            news = self._news
            for one in self.came[place:]:
                if wanted(one.message):
                    return one
            assert not self.faults, self.faults
            place = len(self.came)
            await news.wait()

    def pushed(self, method: str, task_id: str | None = None) -> list[Message]:
        """Params of the notifications that came, of one task or of all."""
        params = [one.message["params"] for one in self.came if one.message.get("method") == method]
        return [one for one in params if task_id is None or one.get("taskId") == task_id]

    def statuses(self, task_id: str) -> list[str]:
        """The statuses that were pushed for a task."""
        return [one["status"] for one in self.pushed("notifications/tasks/status", task_id)]

    async def until(self, task_id: str, status: str) -> Message:
        """Wait until it is pushed that the task has this status."""
        came = await self.seen(lambda one: _is_status(one, task_id, status))
        return came.message["params"]

    async def until_progress(self, progress: float) -> Came:
        return await self.seen(lambda one: _is_progress(one) and one["params"]["progress"] == progress)

    def _receive(self, message: Message, stream: object) -> None:
        try:
            self._take(message)
        except Exception as fault:  # noqa: BLE001 - whatever it is, whoever waits is told
            self.faults.append(fault)
            for call in self._calls.values():
                if not call.came.done():
                    call.came.set_exception(fault)
        self.came.append(Came(message, stream))
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _take(self, message: Message) -> None:
        if "method" not in message:
            call = self._calls[message["id"]]
            assert not call.came.done(), f"{message} is a second answer"
            _check_answer(call, message)
            call.came.set_result(message)
            for one in self.came[call.place :]:
                # By now it is known which task that was.
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
        """It is for a call that gave this token, and says which task that is, if it is one."""
        token, meta = params["progressToken"], params.get("_meta", {})
        (call,) = [one for one in self._calls.values() if one.token == token and type(one.token) is type(token)]
        assert (RELATED in meta) is call.asks_for_task, params
        if call.task_id is not None:
            assert meta[RELATED] == {"taskId": call.task_id}

    def _check_question(self, params: Message) -> None:
        """It is of a task that is waited for, which it names; or of a call whose task nobody sees."""
        related = params.get("_meta", {}).get(RELATED)
        if related is not None:
            ids = [call.params["taskId"] for call in self._calls.values() if call.method == "tasks/result"]
            assert related in [{"taskId": one} for one in ids], params
        else:
            plain = [one for one in self._calls.values() if one.method == "tools/call" and not one.asks_for_task]
            assert plain, f"nobody who asks for no task is there to ask {params}"


def _check_answer(call: Call, message: Message) -> None:
    """It is what the schema has for such a request, and names the task where it must and nowhere else."""
    told = json.dumps(message)
    assert "raincheck/handed-out" not in told, "what stands for a task in the server is not for callers"
    if "error" in message:
        validate("JSONRPCErrorResponse", message, VERSION)
        # Of the SDK, "Connection closed" has the same code.
        is_cancelled = call.method == "tasks/result" and message["error"]["message"].startswith("Task cancelled")
        assert told.count(RELATED) == int(is_cancelled), message
        if is_cancelled:
            assert message["error"]["code"] == -32000
            assert message["error"]["data"] == {"_meta": {RELATED: {"taskId": call.params["taskId"]}}}
        return
    validate("JSONRPCResultResponse", message, VERSION)
    result = message["result"]
    name = "CreateTaskResult" if "task" in result and call.asks_for_task else ANSWERS.get(call.method, "Result")
    validate(name, result, VERSION)
    assert told.count(RELATED) == int(call.method == "tasks/result"), message
    assert "resultType" not in result, "a word of another version"
    if call.method == "tasks/result":
        assert result["_meta"][RELATED] == {"taskId": call.params["taskId"]}


def _is_status(message: Message, task_id: str, status: str) -> bool:
    params = message.get("params", {})
    is_status = message.get("method") == "notifications/tasks/status"
    return is_status and (params["taskId"], params["status"]) == (task_id, status)


def _is_progress(message: Message) -> bool:
    return message.get("method") == "notifications/progress"


@asynccontextmanager
async def connected(wire: G1Wire, **options: Any) -> AsyncGenerator[G1Caller]:
    """A caller that has said hello. What came wrong fails the test in the end, at the latest."""
    caller = G1Caller(wire, **options)
    await caller.greet()
    yield caller
    assert not caller.faults, caller.faults


@asynccontextmanager
async def calling(shop: Shop, way: str = "memory", **options: Any) -> AsyncGenerator[G1Caller]:
    """A caller of a shop: in memory, or over HTTP in one of its modes; there, with the stream that is nobody's answer.

    `headers` are for HTTP.
    """
    headers: dict[str, str] = options.pop("headers", {})
    if way == "memory":
        async with g1_memory(shop.mcp) as wire, connected(wire, **options) as caller:
            yield caller
        return
    async with (
        g1_serving(shop.mcp, way) as serving,
        g1_http(serving, **headers) as http,
        connected(http, **options) as caller,
    ):
        if "stateless" not in way:
            await http.listen()
        yield caller
