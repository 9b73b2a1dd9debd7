"""An in-process server of either protocol generation, with scripted responses."""

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


class ServerDied(Exception):
    """Makes the server die instead of responding."""


class NeverResponds(Exception):
    """Makes the server never respond."""


Answer = Mapping[str, Any] | Exception | Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class FakeServer:
    """Responds from a list for each method. The last response is repeated."""

    def __init__(self, version: str = "2026-07-28", *, tool: Mapping[str, Any] | None = None) -> None:
        self.version = version
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.connections = 0
        self.open = 0
        """The number of open connections."""
        self._answers: dict[str, list[Answer]] = {}
        self._write: Any = None
        self._news = asyncio.Event()
        self._replies: dict[str | int, asyncio.Future[JSONRPCResponse | JSONRPCError]] = {}
        tasks: dict[str, Any] = {"requests": {"tools": {"call": {}}}}
        listed = {**TOOL, **(tool or {})}
        if version == "2026-07-28":
            capabilities: dict[str, Any] = {"tools": {}, "extensions": {EXTENSION: {}}}
            cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
            self.set_responses(
                "server/discover", {"supportedVersions": [version], "capabilities": capabilities, **cached}
            )
            self.set_responses("tools/list", {"tools": [listed], **cached})
            self.set_responses("tools/call", {"resultType": "task", **WORKING})
            self.set_responses("subscriptions/listen", NeverResponds())
        else:
            hello = {"protocolVersion": version, "serverInfo": {"name": "fake", "version": "1"}}
            self.set_responses("initialize", {**hello, "capabilities": {"tools": {}, "tasks": tasks}})
            self.set_responses("tools/list", {"tools": [{**listed, "execution": {"taskSupport": "optional"}}]})
            self.set_responses("tools/call", {"task": WORKING})
            self.set_responses("tasks/result", DONE)

    def set_responses(self, method: str, *answers: Answer) -> None:
        self._answers[method] = list(answers)

    def set_tasks(self, *tasks: Mapping[str, Any]) -> None:
        """Set the responses to `tasks/get`."""
        extra = {"resultType": "complete"} if self.version == "2026-07-28" else {}
        self.set_responses("tasks/get", *({**extra, "taskId": "t", **task} for task in tasks))

    def complete_after(self, *before: Mapping[str, Any]) -> None:
        """Set the states before the task completes."""
        self.set_tasks(*before, {"status": "completed", "result": {**DONE, "resultType": "complete"}})

    def client(self, **options: Any) -> TaskClient:
        options.setdefault("mode", "auto" if self.version == "2026-07-28" else "legacy")
        return TaskClient(self.connect, name="fake", **options)

    def count_requests(self, method: str) -> int:
        """Return how often a method was called."""
        return sum(asked == method for asked, _ in self.asked)

    async def wait_until(self, is_it: Callable[[], bool]) -> None:
        """Wait until a condition holds, which is checked after each request and connection."""
        while not is_it():
            self._news.clear()
            await self._news.wait()

    async def push(self, method: str, params: dict[str, Any]) -> None:
        await self._write.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, params=params)))

    async def ask(self, message: str) -> JSONRPCResponse | JSONRPCError:
        """Send a question for the task, as servers of 2025-11-25 do, and return the response."""
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
        async with asyncio.TaskGroup() as running:
            async for item in read:
                if isinstance(item.message, JSONRPCRequest):
                    running.create_task(self._answer(item.message, write))
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
        if isinstance(answer, ServerDied):
            await write.aclose()
        elif isinstance(answer, MCPError):
            data = ErrorData(code=answer.error.code, message=answer.error.message, data=answer.error.data)
            await write.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request.id, error=data)))
        elif not isinstance(answer, Exception):
            await write.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request.id, result=dict(answer))))
