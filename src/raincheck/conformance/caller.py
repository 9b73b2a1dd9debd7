"""A caller of the server: the requests about tasks in short words, for the checks."""

import asyncio
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from raincheck.conformance.messages import History, Message, Pending, Reply, is_array, is_object, shorten
from raincheck.conformance.outcome import Inapplicable, Unmet
from raincheck.conformance.roles import Role, Roles
from raincheck.conformance.shapes import TERMINAL, expect_result, task_in
from raincheck.conformance.transport import Target
from raincheck.conformance.transport.base import Answerer, Connection

CAPABILITIES: Message = {"elicitation": {"form": {}}, "sampling": {}}
SAMPLE: Message = {
    "role": "assistant",
    "content": {"type": "text", "text": "In short: it rained."},
    "model": "conformance",
    "stopReason": "endTurn",
}
TOO_SOON = "the tool of the role 'slow' ended before it could be cancelled: let it take longer"
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Pace:
    """How long things may take."""

    timeout: float = 10.0
    """Seconds that an answer may take."""

    quiet: float = 0.3
    """Seconds without a word, after which it is taken that none will come."""

    poll: float = 0.05
    """Seconds between two looks at a task."""


@dataclass(frozen=True)
class Begun:
    """A task that was created, with the result that said so."""

    id: str
    result: Message
    at: float

    @property
    def task(self) -> Message:
        return self.result["task"]


class Caller:
    """One connection, and what can be done over it."""

    def __init__(self, connection: Connection, target: Target, roles: Roles, pace: Pace) -> None:
        self.connection = connection
        self.target = target
        self.roles = roles
        self.pace = pace
        self.tools: dict[str, Message] = {}
        self.unsteady: list[str] = []
        """What went wrong on connections before this one, and not on a new one."""

        self._unfinished: set[str] = set()

    @classmethod
    async def connect(
        cls,
        target: Target,
        roles: Roles,
        pace: Pace,
        *,
        other: bool = False,
        capabilities: Message = CAPABILITIES,
        history: History | None = None,
    ) -> "Caller":
        """Open a connection and read what the server has. Raises `Trouble` if that does not work."""

        def answer_user(_: Message) -> Message:
            content = dict(roles["asks"].answer) if "asks" in roles else {}
            return {"action": "accept", "content": content}

        answers: dict[str, Answerer] = {
            "elicitation/create": answer_user,
            "sampling/createMessage": lambda _: SAMPLE,
        }
        connection = Connection(target.make_transport(other=other), answers, pace.timeout, history or History())
        caller = cls(connection, target, roles, pace)
        try:
            await connection.open(capabilities)
            await caller._read_tools()
        except BaseException:
            await connection.close()
            raise
        return caller

    @asynccontextmanager
    async def beside(self, *, other: bool = False, capabilities: Message = CAPABILITIES) -> AsyncGenerator["Caller"]:
        """A second connection: of the same caller, or of the other one."""
        caller = await Caller.connect(self.target, self.roles, self.pace, other=other, capabilities=capabilities)
        try:
            yield caller
        finally:
            await caller.connection.close()

    def capability(self, *path: str) -> object:
        """What the server declares at a place of its capabilities, or `None`."""
        found: object = self.connection.initialized.get("capabilities")
        for step in path:
            found = found.get(step) if is_object(found) else None
        return found

    def support(self, tool: str) -> object:
        """What a tool says of tasks: `forbidden` where it says nothing."""
        execution = self.tools[tool].get("execution")
        said = execution.get("taskSupport") if is_object(execution) else None
        return "forbidden" if said is None else said

    def role(self, name: str) -> Role:
        return self.roles[name]

    def need_optional(self, role: str) -> None:
        """Leave a check out if the tool can't be called without a task too."""
        if self.support(self.role(role).tool) != "optional":
            raise Inapplicable(f"the tool of the role {role!r} can't be called without a task too")

    async def call(self, role: str, **more: object) -> Reply:
        """Call a tool without a task, unless `more` has one."""
        return await self.connection.request("tools/call", self._params(role, more))

    async def begin(self, role: str, **more: object) -> Begun:
        """Call a tool as a task, and take the task."""
        reply = await self.call(role, **{"task": {"ttl": 60_000}, **more})
        result = expect_result(reply)
        task_id = task_in(result).get("taskId")
        if not isinstance(task_id, str):
            raise Unmet(f"a call with a task gave {reply}, and a task with a taskId was due")
        self._unfinished.add(task_id)
        return Begun(task_id, result, time.monotonic())

    def _params(self, role: str, more: Message) -> Message:
        played = self.role(role)
        return {"name": played.tool, "arguments": dict(played.arguments), **more}

    async def get(self, task_id: str, **more: object) -> Reply:
        reply = await self.connection.request("tasks/get", {"taskId": task_id, **more})
        if reply.result is not None and reply.result.get("status") in TERMINAL:
            self._unfinished.discard(task_id)
        return reply

    async def status(self, task_id: str) -> object:
        return expect_result(await self.get(task_id)).get("status")

    async def result(self, task_id: str, **more: object) -> Reply:
        reply = await self.connection.reply_to(await self.wait(task_id, **more), self.patience)
        self._unfinished.discard(task_id)
        return reply

    async def wait(self, task_id: str, **more: object) -> Pending:
        """Ask for the result, and leave it for later."""
        return await self.connection.send("tasks/result", {"taskId": task_id, **more})

    async def cancel(self, task_id: str, **more: object) -> Reply:
        self._unfinished.discard(task_id)
        return await self.connection.request("tasks/cancel", {"taskId": task_id, **more})

    async def cancel_live(self, begun: Begun) -> Reply:
        """Cancel a task that still works. One that was too fast for that is no fault of the server."""
        reply = await self.cancel(begun.id)
        if reply.error is not None and await self.status(begun.id) in ("completed", "failed"):
            raise Inapplicable(TOO_SOON)
        return reply

    @property
    def patience(self) -> float:
        """How long a task may take to end."""
        return self.pace.timeout + max((role.takes for role in self.roles.values()), default=0)

    async def until(self, task_id: str, statuses: Collection[str]) -> Message:
        """The task, when it has one of the statuses. It must not end with another."""
        deadline = time.monotonic() + self.patience
        while True:
            task = expect_result(await self.get(task_id))
            status = task.get("status")
            if status in statuses:
                return task
            if status in TERMINAL or time.monotonic() > deadline:
                due = " or ".join(sorted(statuses))
                raise Unmet(f"the task is {shorten(status)} ({shorten(task)}), and {due} was due")
            await asyncio.sleep(self.pace.poll)

    async def ended(self, task_id: str) -> Message:
        """The task, when it has ended in whichever way."""
        return await self.until(task_id, TERMINAL)

    async def pages(self, limit: int = 1_000) -> AsyncGenerator[Message]:
        """The pages of `tasks/list`, following `nextCursor`."""
        seen: set[str] = set()
        params: Message = {}
        while True:
            page = expect_result(await self.connection.request("tasks/list", params))
            yield page
            cursor = page.get("nextCursor")
            if cursor is None:
                return
            if not isinstance(cursor, str) or cursor in seen or len(seen) == limit:
                raise Unmet(f"nextCursor {shorten(cursor)} came again or leads on without end: the last page has none")
            seen.add(cursor)
            params = {"cursor": cursor}

    async def listed(self) -> list[Message]:
        """Every task of `tasks/list`, page by page."""
        return [task async for page in self.pages() for task in objects_in(page.get("tasks"))]

    async def stay_quiet(self) -> None:
        """Give what must not come the time to come."""
        await asyncio.sleep(self.pace.quiet)

    async def clear_up(self) -> None:
        """Cancel what a check left running, so that it does not get into the way of the next."""
        unfinished, self._unfinished = self._unfinished, set()
        if self.capability("tasks", "cancel") is not None:
            for task_id in unfinished:
                await self.connection.request("tasks/cancel", {"taskId": task_id})

    async def _read_tools(self) -> None:
        params: Message = {}
        for _ in range(1_000):
            page = (await self.connection.request("tools/list", params)).result
            if page is None:
                return  # a server without tools: there is nothing to call, and the checks say so
            self.tools.update({str(tool.get("name")): tool for tool in objects_in(page.get("tools"))})
            if not isinstance(page.get("nextCursor"), str):
                return
            params = {"cursor": page["nextCursor"]}


def objects_in(value: object) -> list[Message]:
    """The objects in a list, as far as it is one."""
    return [one for one in value if is_object(one)] if is_array(value) else []
