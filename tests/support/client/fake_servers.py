"""A server that says whatever a test has it say, of either generation, in this process."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from raincheck.client import TaskClient

RELATED = "io.modelcontextprotocol/related-task"
EXTENSION = "io.modelcontextprotocol/tasks"
WORKING: dict[str, Any] = {"taskId": "t", "status": "working"}
TOOL: dict[str, Any] = {"name": "work", "inputSchema": {"type": "object"}}
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


class Dead(Exception):
    """The server dies instead of answering."""


class Hung(Exception):
    """The server never answers."""


Answer = Mapping[str, Any] | Exception | Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class Fake:
    """Has a list of answers for each method. The last one is for all that follow."""

    def __init__(self, version: str = "2026-07-28", *, tool: Mapping[str, Any] | None = None) -> None:
        self.version = version
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.connections = 0
        self.open = 0
        """How many of them are open."""
        self._answers: dict[str, list[Answer]] = {}
        self._write: Any = None
        self._news = asyncio.Event()
        self._replies: dict[str | int, asyncio.Future[JSONRPCResponse | JSONRPCError]] = {}
        tasks: dict[str, Any] = {"requests": {"tools": {"call": {}}}}
        listed = {**TOOL, **(tool or {})}
        if version == "2026-07-28":
            capabilities: dict[str, Any] = {"tools": {}, "extensions": {EXTENSION: {}}}
            cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
            self.says("server/discover", {"supportedVersions": [version], "capabilities": capabilities, **cached})
            self.says("tools/list", {"tools": [listed], **cached})
            self.says("tools/call", {"resultType": "task", **WORKING})
            self.says("subscriptions/listen", Hung())
        else:
            hello = {"protocolVersion": version, "serverInfo": {"name": "fake", "version": "1"}}
            self.says("initialize", {**hello, "capabilities": {"tools": {}, "tasks": tasks}})
            self.says("tools/list", {"tools": [{**listed, "execution": {"taskSupport": "optional"}}]})
            self.says("tools/call", {"task": WORKING})
            self.says("tasks/result", DONE)

    def says(self, method: str, *answers: Answer) -> None:
        self._answers[method] = list(answers)

    def shows(self, *tasks: Mapping[str, Any]) -> None:
        """What `tasks/get` says, one after the other."""
        extra = {"resultType": "complete"} if self.version == "2026-07-28" else {}
        self.says("tasks/get", *({**extra, "taskId": "t", **task} for task in tasks))

    def ends(self, *before: Mapping[str, Any]) -> None:
        """What it shows before it is done."""
        self.shows(*before, {"status": "completed", "result": {**DONE, "resultType": "complete"}})

    def client(self, **options: Any) -> TaskClient:
        options.setdefault("mode", "auto" if self.version == "2026-07-28" else "legacy")
        return TaskClient(self.connect, name="fake", **options)

    def times(self, method: str) -> int:
        """How often a method was called."""
        return sum(asked == method for asked, _ in self.asked)

    async def until(self, is_it: Callable[[], bool]) -> None:
        """Until something is so, which comes of what was asked or of a connection."""
        while not is_it():
            self._news.clear()
            await self._news.wait()

    async def push(self, method: str, params: dict[str, Any]) -> None:
        await self._write.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, params=params)))

    async def ask(self, message: str) -> JSONRPCResponse | JSONRPCError:
        """Ask the caller something for the task, as servers of 2025-11-25 do, and return what comes back."""
        number = f"ask-{len(self._replies)}"
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        params: dict[str, Any] = {"message": message, "requestedSchema": {"type": "object", "properties": {}}}
        params["_meta"] = {RELATED: {"taskId": "t"}}
        request = JSONRPCRequest(jsonrpc="2.0", id=number, method="elicitation/create", params=params)
        await self._write.send(SessionMessage(request))
        return await reply

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        self.connections += 1
        self.open += 1
        self._news.set()
        async with create_client_server_memory_streams() as (ours, (read, write)):
            self._write = write
            serving = asyncio.create_task(self._serve(read, write))
            try:
                yield ours
            finally:
                serving.cancel()
                await asyncio.wait([serving])
                self.open -= 1

    async def _serve(self, read: Any, write: Any) -> None:
        async with asyncio.TaskGroup() as jobs:
            async for item in read:
                if isinstance(item.message, JSONRPCRequest):
                    jobs.create_task(self._answer(item.message, write))
                elif isinstance(item.message, JSONRPCResponse | JSONRPCError) and item.message.id is not None:
                    self._replies[item.message.id].set_result(item.message)

    async def _answer(self, request: JSONRPCRequest, write: Any) -> None:
        self.asked.append((request.method, request.params or {}))
        self._news.set()
        answers = self._answers.get(request.method, [MCPError(-32601, "Method not found")])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            try:
                answer = await answer(request.params or {})
            except MCPError as error:
                answer = error
        if isinstance(answer, Dead):
            await write.aclose()
        elif isinstance(answer, MCPError):
            data = ErrorData(code=answer.error.code, message=answer.error.message, data=answer.error.data)
            await write.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request.id, error=data)))
        elif not isinstance(answer, Exception):
            await write.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request.id, result=dict(answer))))
