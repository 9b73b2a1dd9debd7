"""Concurrent callers of one server. Each has a connection, and sends one request after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from time import perf_counter
from typing import TypeAlias

from bench.wire.connection import Channel, Message
from bench.wire.orders import Order, OrderResult
from bench.wire.requests import OWNERS, CreatedTask, Requests

QUICK, TASK, ENDLESS, ASKING, TIMED = "greet", "always", "wait", "ask", "nap"
"""The tools of all servers: one that ends at once, one that does so and is always a task, one that never ends, one that
asks, and one that ends after a while and returns when it did."""

ARGUMENTS: Mapping[str, Mapping[str, object]] = {
    QUICK: {"name": "you"},
    TASK: {"name": "you"},
    ENDLESS: {},
    ASKING: {"question": "Sure?"},
}
_PAUSE = 0.01
"""Seconds between two polls of a task."""

Action: TypeAlias = Callable[[Channel], Awaitable[object]]


class Callers:
    """Connections to one server, each of which performs one action after the other."""

    def __init__(self, requests: Requests, connections: Sequence[Channel], finished: list[CreatedTask]) -> None:
        self.requests = requests
        self.finished = finished
        """Ended tasks of this server, to poll. They are created when they are first needed."""
        self._connections = connections
        self._owners = cycle(range(OWNERS))

    async def repeat(self, action: Action, order: Order) -> OrderResult:
        """Repeat an action until the time or the count of the order is reached."""
        started_at = perf_counter()
        until = started_at + order.seconds

        def actions() -> Iterator[Action]:
            for number in range(order.count):
                # At least one, however busy the machine is.
                if number and perf_counter() >= until:
                    return
                yield action

        return OrderResult(await self._all(actions()), perf_counter() - started_at)

    async def each(self, actions: Iterable[Action]) -> OrderResult:
        """Perform each action once."""
        started_at = perf_counter()
        return OrderResult(await self._all(iter(actions)), perf_counter() - started_at)

    async def _all(self, remaining: Iterator[Action]) -> int:
        done = 0

        async def work(connection: Channel) -> None:
            nonlocal done
            for action in remaining:
                await action(connection)
                done += 1

        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(work(connection))
        return done

    async def begin(
        self, connection: Channel, tool: str, arguments: Mapping[str, object] | None = None
    ) -> CreatedTask | None:
        """Call a tool with support for tasks. Return the task, or None if the answer is the result."""
        owner = next(self._owners)
        answer = await connection.ask(self.requests.create(tool, arguments or ARGUMENTS[tool], owner))
        # 2025 has the task in the result, in 2026 it is the result.
        task_id = answer.get("task", answer).get("taskId")
        return None if task_id is None else CreatedTask(task_id, owner)

    async def create(
        self, connection: Channel, tool: str, arguments: Mapping[str, object] | None = None
    ) -> CreatedTask:
        task = await self.begin(connection, tool, arguments)
        if task is None:
            raise RuntimeError(f"a call of {tool} was answered with its result, but should be a task")
        return task

    async def create_tasks(self, tool: str, count: int) -> list[CreatedTask]:
        """Create this many tasks."""
        tasks: list[CreatedTask] = []

        async def create_one(connection: Channel) -> None:
            tasks.append(await self.create(connection, tool))

        await self.each([create_one] * count)
        return tasks

    async def until(
        self, tasks: Sequence[CreatedTask], condition: Callable[[Message], bool]
    ) -> dict[CreatedTask, Message]:
        """Poll each task until the condition holds, and return their states. One connection polls, to save load."""
        found: dict[CreatedTask, Message] = {}
        for task in tasks:
            # The tasks run in another process.
            while not condition(state := await self._connections[0].ask(self.requests.get(task))):  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE)
            found[task] = state
        return found

    async def finish(self, tasks: Sequence[CreatedTask]) -> float:
        """Wait until all tasks have ended, and return when that was known. The last ones usually end last."""
        await self.until(tasks[-len(self._connections) :], is_done)
        ended = perf_counter()
        late = [task for task, state in (await self._poll_all(tasks)).items() if not is_done(state)]
        if not late:
            return ended
        await self.until(late, is_done)
        return perf_counter()

    async def _poll_all(self, tasks: Sequence[CreatedTask]) -> dict[CreatedTask, Message]:
        """Poll each task once, over all connections, and return their states."""
        found: dict[CreatedTask, Message] = {}

        def poll(task: CreatedTask) -> Action:
            async def poll_task(connection: Channel) -> None:
                found[task] = await connection.ask(self.requests.get(task))

            return poll_task

        await self.each(map(poll, tasks))
        return found

    async def send_all(self, messages: Sequence[bytes]) -> OrderResult:
        """Send each request once."""
        return await self.each([lambda connection, message=message: connection.ask(message) for message in messages])


def is_done(task: Message) -> bool:
    """Return whether a task has completed. It must not fail or be cancelled."""
    if task["status"] in ("failed", "cancelled"):
        raise RuntimeError(f"a task that should complete did not: {task}")
    return task["status"] == "completed"
