"""A caller of 2026-07-28 that sends raw messages, and validates every answer against the published schema."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from itertools import count
from typing import Any

from tests.support.schemas import validate
from tests.support.server.transports import Message, Transport

EXTENSION = "io.modelcontextprotocol/tasks"
VERSION = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

TASKS: dict[str, Any] = {"extensions": {EXTENSION: {}}}
ASKABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}}

ANSWERS = {"tasks/get": "GetTaskResult", "tasks/update": "UpdateTaskResult", "tasks/cancel": "CancelTaskResult"}

TERMINAL = ("completed", "failed", "cancelled")


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']} {error.get('data', '')}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Caller:
    """One caller of a server. `capabilities` are what it declares with each request."""

    _ids = count(1)

    def __init__(
        self,
        transport: Transport,
        *,
        capabilities: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.transport = transport
        self.capabilities = dict({**TASKS, **ASKABLE} if capabilities is None else capabilities)
        self.headers = dict(headers or {})
        self.notifications: list[Message] = []
        """Received messages other than answers, in order."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Message:
        """Send a request and return its result.

        Raises:
            Refused: the answer is an error.
        """
        message = self.message(method, params, meta)
        async with aclosing(self.transport.exchange(message, {**self.routing(message), **(headers or {})})) as messages:
            async for one in messages:
                if "id" in one:
                    return self._read(method, one)
                self.notifications.append(one)
        raise AssertionError(f"{method} was never answered")

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Message:
        """Call a tool. Return its result, a task, or its input requests."""
        meta = more.pop("meta", None)
        return await self.request("tools/call", {"name": tool, "arguments": dict(arguments or {}), **more}, meta=meta)

    async def start(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Call a tool that answers with a task, and return the task's id."""
        created = await self.call(tool, arguments, **more)
        assert created["resultType"] == "task", created
        return created["taskId"]

    async def get(self, task_id: str) -> Message:
        return await self.request("tasks/get", {"taskId": task_id})

    async def update(self, task_id: str, responses: Mapping[str, Any]) -> Message:
        return await self.request("tasks/update", {"taskId": task_id, "inputResponses": dict(responses)})

    async def cancel(self, task_id: str) -> Message:
        return await self.request("tasks/cancel", {"taskId": task_id})

    async def until(self, task_id: str, *statuses: str) -> Message:
        """Subscribe to a task until it has one of these statuses, or has ended."""
        async with self.listening(task_id) as pushed:
            async for task in pushed:
                if task["status"] in (statuses or TERMINAL) or task["status"] in TERMINAL:
                    return await self.get(task_id)
        raise AssertionError(f"the stream ended before task {task_id} was {statuses}")

    async def result(self, task_id: str) -> Message:
        """Return the result of a task that completes."""
        task = await self.until(task_id)
        assert task["status"] == "completed", task
        return task["result"]

    @asynccontextmanager
    async def listening(self, *task_ids: str, **others: Any) -> AsyncGenerator[AsyncGenerator[Message]]:
        """Subscribe to tasks. Yield the pushed tasks after the acknowledgement, which is stored in `self.agreed`."""
        message = self.message("subscriptions/listen", {"notifications": {"taskIds": list(task_ids), **others}})
        async with aclosing(self.transport.exchange(message, self.routing(message))) as messages:
            first = await anext(messages)
            if "error" in first:
                raise Refused(first["error"])
            validate("SubscriptionsAcknowledgedNotification", first)
            assert first["params"]["_meta"][SUBSCRIPTION] == message["id"]
            self.agreed: Message = first["params"]["notifications"]
            async with aclosing(self._pushed(messages, message["id"])) as pushed:
                yield pushed

    async def _pushed(self, messages: AsyncGenerator[Message], request_id: object) -> AsyncGenerator[Message]:
        async for one in messages:
            if one.get("method") == "notifications/tasks":
                validate("TaskStatusNotification", one)
                assert one["params"]["_meta"][SUBSCRIPTION] == request_id
                yield {name: value for name, value in one["params"].items() if name != "_meta"}
            elif "id" in one:
                validate("SubscriptionsListenResult", self._read("subscriptions/listen", one))
            else:
                self.notifications.append(one)

    def message(
        self, method: str, params: Mapping[str, Any] | None = None, meta: Mapping[str, Any] | None = None
    ) -> Message:
        envelope = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        body = {**(params or {}), "_meta": {**envelope, **(meta or {})}}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": body}

    def routing(self, message: Message) -> dict[str, str]:
        params = message["params"]
        name = params.get("taskId", params.get("name"))
        routing = {"mcp-protocol-version": VERSION, "mcp-method": message["method"]}
        return {**routing, **({"mcp-name": name} if isinstance(name, str) else {}), **self.headers}

    def _read(self, method: str, answer: Message) -> Message:
        if "error" in answer:
            validate("JSONRPCErrorResponse", answer)
            raise Refused(answer["error"])
        validate("JSONRPCResultResponse", answer)
        result = answer["result"]
        kinds = {"task": "CreateTaskResult", "input_required": "InputRequiredResult"}
        kind = kinds.get(result["resultType"], "CallToolResult") if method == "tools/call" else ANSWERS.get(method)
        if kind is not None:
            validate(kind, result)
        return result
