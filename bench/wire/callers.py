"""Those who call a server at once: each has a connection, and does one thing after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from time import perf_counter
from typing import TypeAlias

from bench.wire.connection import Channel, Message
from bench.wire.orders import Order, Told
from bench.wire.requests import OWNERS, Made, Requests

QUICK, TASK, ENDLESS, ASKING, TIMED = "greet", "always", "wait", "ask", "nap"
"""The tools that all servers have: one ends at once, one does so and is always a task, one never ends, one asks, and
one ends after a while and says when it did."""

ARGUMENTS: Mapping[str, Mapping[str, object]] = {
    QUICK: {"name": "you"},
    TASK: {"name": "you"},
    ENDLESS: {},
    ASKING: {"question": "Sure?"},
}
_PAUSE = 0.01
"""Seconds between two looks at a task that others work on."""

One: TypeAlias = Callable[[Channel], Awaitable[object]]


class Callers:
    """Connections to one server, each of which does one thing after the other."""

    def __init__(self, requests: Requests, connections: Sequence[Channel], finished: list[Made]) -> None:
        self.requests = requests
        self.finished = finished
        """Tasks of this server that have ended, to poll. Made when they are first needed."""
        self._connections = connections
        self._owners = cycle(range(OWNERS))

    async def repeat(self, one: One, order: Order) -> Told:
        """Do it until the time is up, or until it was done often enough."""
        begun = perf_counter()
        until = begun + order.seconds

        def left() -> Iterator[One]:
            for _ in range(order.count):
                if perf_counter() >= until:
                    return
                yield one

        return Told(await self._all(left()), perf_counter() - begun)

    async def each(self, ones: Iterable[One]) -> Told:
        """Do each of them once."""
        begun = perf_counter()
        return Told(await self._all(iter(ones)), perf_counter() - begun)

    async def _all(self, left: Iterator[One]) -> int:
        done = 0

        async def work(connection: Channel) -> None:
            nonlocal done
            for one in left:
                await one(connection)
                done += 1

        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(work(connection))
        return done

    async def begin(self, connection: Channel, tool: str, arguments: Mapping[str, object] | None = None) -> Made | None:
        """Call a tool as one who can take a task. None if the answer is its result."""
        owner = next(self._owners)
        answer = await connection.ask(self.requests.create(tool, arguments or ARGUMENTS[tool], owner))
        # 2025 has the task in the result, in 2026 it is the result.
        task_id = answer.get("task", answer).get("taskId")
        return None if task_id is None else Made(task_id, owner)

    async def create(self, connection: Channel, tool: str, arguments: Mapping[str, object] | None = None) -> Made:
        made = await self.begin(connection, tool, arguments)
        if made is None:
            raise RuntimeError(f"a call of {tool} was answered at once, and should be a task")
        return made

    async def made(self, tool: str, count: int) -> list[Made]:
        """So many new tasks."""
        tasks: list[Made] = []

        async def one(connection: Channel) -> None:
            tasks.append(await self.create(connection, tool))

        await self.each([one] * count)
        return tasks

    async def until(self, tasks: Sequence[Made], is_so: Callable[[Message], bool]) -> dict[Made, Message]:
        """How the tasks are, when it is so with all of them. One looks, not to be in the way of those who work."""
        found: dict[Made, Message] = {}
        for task in tasks:
            # Another process: there is nothing else to wait on.
            while not is_so(told := await self._connections[0].ask(self.requests.get(task))):  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE)
            found[task] = told
        return found

    async def finish(self, tasks: Sequence[Made]) -> float:
        """Wait until all have ended, and say when that was known. The last ones mostly end last."""
        await self.until(tasks[-len(self._connections) :], is_done)
        ended = perf_counter()
        late = [task for task, state in (await self._seen(tasks)).items() if not is_done(state)]
        if not late:
            return ended
        await self.until(late, is_done)
        return perf_counter()

    async def _seen(self, tasks: Sequence[Made]) -> dict[Made, Message]:
        """How the tasks are. All look."""
        found: dict[Made, Message] = {}

        def look(task: Made) -> One:
            async def one(connection: Channel) -> None:
                found[task] = await connection.ask(self.requests.get(task))

            return one

        await self.each(map(look, tasks))
        return found

    async def ask(self, messages: Sequence[bytes]) -> Told:
        """Ask each of it once."""
        return await self.each([lambda connection, message=message: connection.ask(message) for message in messages])


def is_done(task: Message) -> bool:
    """Whether a task has ended that should end well."""
    if task["status"] in ("failed", "cancelled"):
        raise RuntimeError(f"a task that should complete did not: {task}")
    return task["status"] == "completed"
