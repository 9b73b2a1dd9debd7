"""The client that the checks use to call the server under test, with a method for each task request."""

import asyncio
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from raincheck.conformance.connection import (
    History,
    Message,
    PendingRequest,
    RequestHandler,
    RpcConnection,
    RpcResponse,
    is_array,
    is_object,
    shorten,
)
from raincheck.conformance.requirements import TERMINAL, NotApplicable, RequirementNotMet, expect_result, task_in
from raincheck.conformance.roles import Role, Roles
from raincheck.conformance.transport import ConformanceTarget

CAPABILITIES: Message = {"elicitation": {"form": {}}, "sampling": {}}
SAMPLE: Message = {
    "role": "assistant",
    "content": {"type": "text", "text": "In short: it rained."},
    "model": "conformance",
    "stopReason": "endTurn",
}
ENDED_TOO_SOON = "the tool of the role 'slow' ended before it could be cancelled: make it run longer"
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Timings:
    """Time limits and intervals of a run."""

    timeout: float = 10.0
    """Seconds that a response may take."""

    quiet_period: float = 0.3
    """Seconds of silence after which the suite assumes that no message will come."""

    poll_interval: float = 0.05
    """Seconds between two polls of a task."""


@dataclass(frozen=True)
class TaskUnderTest:
    """A task that was created, with the `CreateTaskResult` that announced it."""

    id: str
    result: Message
    started_at: float

    @property
    def task(self) -> Message:
        return self.result["task"]


class ConformanceClient(RpcConnection):
    """One connection to the server, with the requests that the checks send."""

    def __init__(
        self,
        target: ConformanceTarget,
        roles: Roles,
        timings: Timings,
        *,
        as_other: bool = False,
        history: History | None = None,
    ) -> None:
        content = dict(roles["asks"].answer) if "asks" in roles else {}
        answers: dict[str, RequestHandler] = {
            "elicitation/create": lambda _: {"action": "accept", "content": content},
            "sampling/createMessage": lambda _: SAMPLE,
        }
        super().__init__(target.make_transport(as_other=as_other), answers, timings.timeout, history or History())
        self.target = target
        self.roles = roles
        self.timings = timings
        self.tools: dict[str, Message] = {}
        self.retry_problems: list[str] = []
        """Problems on earlier connections that did not recur on a new one."""

        self._unfinished: set[str] = set()

    async def connect(self, capabilities: Message = CAPABILITIES) -> None:
        """Open the connection and read the list of tools. Raises `CommunicationError` if that fails."""
        try:
            await self.open(capabilities)
            await self._read_tools()
        except BaseException:
            await self.close()
            raise

    @asynccontextmanager
    async def open_second(
        self, *, as_other: bool = False, capabilities: Message = CAPABILITIES
    ) -> AsyncGenerator["ConformanceClient"]:
        """Open a second connection, as the same caller or as the other one."""
        caller = ConformanceClient(self.target, self.roles, self.timings, as_other=as_other)
        await caller.connect(capabilities)
        try:
            yield caller
        finally:
            await caller.close()

    def capability(self, *path: str) -> object:
        """Return the value that the server declares at a path of its capabilities, or `None`."""
        value: object = self.initialized.get("capabilities")
        for key in path:
            value = value.get(key) if is_object(value) else None
        return value

    def task_support(self, tool: str) -> object:
        """Return the `execution.taskSupport` of a tool: `forbidden` if it declares none."""
        execution = self.tools[tool].get("execution")
        support = execution.get("taskSupport") if is_object(execution) else None
        return "forbidden" if support is None else support

    def role(self, name: str) -> Role:
        return self.roles[name]

    def require_optional_task(self, role: str) -> None:
        """Skip a check if the tool can't also be called without a task."""
        if self.task_support(self.role(role).tool) != "optional":
            raise NotApplicable(f"the tool of the role {role!r} can be called only as a task")

    async def call(self, role: str, **params: object) -> RpcResponse:
        """Call a tool without a task, unless `params` has a `task`."""
        called = self.roles[role]
        message = {"name": called.tool, "arguments": dict(called.arguments), **params}
        return await self.request("tools/call", message)

    async def start_task(self, role: str, **params: object) -> TaskUnderTest:
        """Call a tool as a task and return the task."""
        reply = await self.call(role, **{"task": {"ttl": 60_000}, **params})
        result = expect_result(reply)
        task_id = task_in(result).get("taskId")
        if not isinstance(task_id, str):
            raise RequirementNotMet(f"a call with a task returned {reply}; expected a task with a taskId")
        self._unfinished.add(task_id)
        return TaskUnderTest(task_id, result, time.monotonic())

    async def run_task(self, role: str, **params: object) -> tuple[TaskUnderTest, Message]:
        """Call a tool as a task, wait for its end with any status, and return the task as created and as ended."""
        new_task = await self.start_task(role, **params)
        return new_task, await self.wait_for_end(new_task.id)

    async def start_and_cancel(self, role: str) -> tuple[TaskUnderTest, Message]:
        """Call a tool as a task, cancel it while it runs, and return the task and the result of the cancellation."""
        new_task = await self.start_task(role)
        return new_task, expect_result(await self.cancel_running_task(new_task))

    async def get_task(self, task_id: str, **params: object) -> RpcResponse:
        reply = await self.request("tasks/get", {"taskId": task_id, **params})
        if reply.result is not None and reply.result.get("status") in TERMINAL:
            self._unfinished.discard(task_id)
        return reply

    async def get_status(self, task_id: str) -> object:
        return expect_result(await self.get_task(task_id)).get("status")

    async def get_result(self, task_id: str, **params: object) -> RpcResponse:
        reply = await self.wait_for_reply(await self.request_result(task_id, **params), self.result_timeout)
        self._unfinished.discard(task_id)
        return reply

    async def request_result(self, task_id: str, **params: object) -> PendingRequest:
        """Send `tasks/result` without waiting for the response."""
        return await self.send("tasks/result", {"taskId": task_id, **params})

    async def cancel_task(self, task_id: str, **params: object) -> RpcResponse:
        self._unfinished.discard(task_id)
        return await self.request("tasks/cancel", {"taskId": task_id, **params})

    async def cancel_running_task(self, task: TaskUnderTest) -> RpcResponse:
        """Cancel a running task. Skips the check if the task ended before it could be cancelled."""
        reply = await self.cancel_task(task.id)
        if reply.error is not None and await self.get_status(task.id) in ("completed", "failed"):
            raise NotApplicable(ENDED_TOO_SOON)
        return reply

    @property
    def result_timeout(self) -> float:
        """Seconds that a task may take to end."""
        return self.timings.timeout + max((role.takes for role in self.roles.values()), default=0)

    async def wait_for_status(self, task_id: str, statuses: Collection[str]) -> Message:
        """Poll until the task has one of the statuses, and return it. It must not end with another status."""
        deadline = time.monotonic() + self.result_timeout
        while True:
            task = expect_result(await self.get_task(task_id))
            status = task.get("status")
            if status in statuses:
                return task
            if status in TERMINAL or time.monotonic() > deadline:
                expected = " or ".join(sorted(statuses))
                raise RequirementNotMet(f"the task is {shorten(status)} ({shorten(task)}); expected {expected}")
            await asyncio.sleep(self.timings.poll_interval)

    async def wait_for_end(self, task_id: str) -> Message:
        """Poll until the task is terminal, with any status, and return it."""
        return await self.wait_for_status(task_id, TERMINAL)

    async def list_pages(self, limit: int = 1_000) -> AsyncGenerator[Message]:
        """Yield the pages of `tasks/list`, following `nextCursor`."""
        seen: set[str] = set()
        params: Message = {}
        while True:
            page = expect_result(await self.request("tasks/list", params))
            yield page
            cursor = page.get("nextCursor")
            if cursor is None:
                return
            if not isinstance(cursor, str) or cursor in seen or len(seen) == limit:
                raise RequirementNotMet(
                    f"nextCursor {shorten(cursor)} is not a string, was sent before or follows {limit:,} others: "
                    "the last page must have none"
                )
            seen.add(cursor)
            params = {"cursor": cursor}

    async def list_tasks(self) -> list[Message]:
        """Return every task of `tasks/list`, read page by page."""
        return [task async for page in self.list_pages() for task in objects_in(page.get("tasks"))]

    async def wait_quiet_period(self) -> None:
        """Wait long enough for a message that must not come to arrive."""
        await asyncio.sleep(self.timings.quiet_period)

    async def clean_up(self) -> None:
        """Cancel the tasks that a check left running, so that they do not disturb the next check."""
        unfinished, self._unfinished = self._unfinished, set()
        if self.capability("tasks", "cancel") is not None:
            for task_id in unfinished:
                await self.request("tasks/cancel", {"taskId": task_id})

    async def _read_tools(self) -> None:
        params: Message = {}
        for _ in range(1_000):
            page = (await self.request("tools/list", params)).result
            if page is None:
                return  # a server without tools: the checks that need one are skipped and report it
            self.tools.update({str(tool.get("name")): tool for tool in objects_in(page.get("tools"))})
            if not isinstance(page.get("nextCursor"), str):
                return
            params = {"cursor": page["nextCursor"]}


def objects_in(value: object) -> list[Message]:
    """Return the objects in a list, or nothing if the value is not a list."""
    return [item for item in value if is_object(item)] if is_array(value) else []
