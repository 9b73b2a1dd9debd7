"""What a client does, to be measured. What it needs for that is made before, and what it left behind is ended after."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from time import perf_counter
from typing import TypeAlias

from bench.wire.connection import Connection, Message
from bench.wire.orders import Operation, Order, Told
from bench.wire.requests import OWNERS, Made, Requests

QUICK, TASK, ENDLESS, ASKING = "greet", "always", "wait", "ask"
"""The tools that all servers have: one ends at once, one does so and is always a task, one never ends, one asks."""

PREPARED = 200
"""Tasks at most that are made first, for what is done once with each."""

_ARGUMENTS: Mapping[str, Mapping[str, object]] = {
    QUICK: {"name": "you"},
    TASK: {"name": "you"},
    ENDLESS: {},
    ASKING: {"question": "Sure?"},
}
_PAUSE = 0.01
"""Seconds between two looks at a task that others work on."""

One: TypeAlias = Callable[[Connection], Awaitable[object]]


class Callers:
    """Connections to one server, each of which does one thing after the other."""

    def __init__(self, requests: Requests, connections: Sequence[Connection], finished: list[Made]) -> None:
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

        async def work(connection: Connection) -> None:
            nonlocal done
            for one in left:
                await one(connection)
                done += 1

        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(work(connection))
        return done

    async def begin(self, connection: Connection, tool: str) -> Made | None:
        """Call a tool as one who can take a task. None if the answer is its result."""
        owner = next(self._owners)
        answer = await connection.ask(self.requests.create(tool, _ARGUMENTS[tool], owner))
        # 2025 has the task in the result, in 2026 it is the result.
        task_id = answer.get("task", answer).get("taskId")
        return None if task_id is None else Made(task_id, owner)

    async def create(self, connection: Connection, tool: str) -> Made:
        made = await self.begin(connection, tool)
        if made is None:
            raise RuntimeError(f"a call of {tool} was answered at once, and should be a task")
        return made

    async def made(self, tool: str, count: int) -> list[Made]:
        """So many new tasks."""
        tasks: list[Made] = []

        async def one(connection: Connection) -> None:
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

    async def ask(self, messages: Sequence[bytes]) -> Told:
        """Ask each of it once."""
        return await self.each([lambda connection, message=message: connection.ask(message) for message in messages])


async def _call(callers: Callers, order: Order) -> Told:
    async def one(connection: Connection) -> None:
        await connection.ask(callers.requests.call(QUICK, _ARGUMENTS[QUICK]))

    return await callers.repeat(one, order)


async def _create(callers: Callers, order: Order) -> Told:
    tasks: list[Made] = []

    async def one(connection: Connection) -> None:
        tasks.append(await callers.create(connection, TASK))

    told = await callers.repeat(one, order)
    await callers.until(tasks, _is_done)
    return told


async def _get(callers: Callers, order: Order) -> Told:
    if not callers.finished:
        callers.finished.extend(await callers.made(TASK, PREPARED))
        await callers.until(callers.finished, _is_done)
    return await _polled(callers, order, callers.finished)


async def _get_working(callers: Callers, order: Order) -> Told:
    tasks = await callers.made(ENDLESS, order.callers)
    told = await _polled(callers, order, tasks)
    await callers.ask([callers.requests.cancel(task) for task in tasks])
    return told


async def _polled(callers: Callers, order: Order, tasks: Sequence[Made]) -> Told:
    numbers = iter(range(order.count))

    async def one(connection: Connection) -> None:
        await connection.ask(callers.requests.get(tasks[next(numbers) % len(tasks)]))

    return await callers.repeat(one, order)


async def _cancel(callers: Callers, order: Order) -> Told:
    tasks = await callers.made(ENDLESS, min(PREPARED, order.count))
    return await callers.ask([callers.requests.cancel(task) for task in tasks])


async def _update(callers: Callers, order: Order) -> Told:
    tasks = await callers.made(ASKING, min(PREPARED, order.count))
    asking = await callers.until(tasks, lambda task: task["status"] == "input_required")
    update = callers.requests.update
    told = await callers.ask([update(task, told["inputRequests"]) for task, told in asking.items()])
    await callers.until(tasks, _is_done)
    return told


async def _result(callers: Callers, order: Order) -> Told:
    """Call, and have the result: at once, or by waiting for it in 2025, or by asking again and again in 2026."""

    async def one(connection: Connection) -> None:
        task = await callers.begin(connection, QUICK)
        if task is None:
            return
        if callers.requests.generation == "2025-11-25":
            await connection.ask(callers.requests.result(task))
            return
        while not _is_done(await connection.ask(callers.requests.get(task))):
            pass

    return await callers.repeat(one, order)


async def _all_done(callers: Callers, order: Order) -> Told:
    """All at once, until the last has ended. Who creates much looks at the last ones first, as the first are done."""
    begun = perf_counter()
    tasks = await callers.made(TASK, order.count)
    last = tasks[-order.callers :]
    await callers.until(last, _is_done)
    seconds = perf_counter() - begun
    # Should another still be at work, the time was not up.
    looked = perf_counter()
    ended = await callers.until(tasks[: -order.callers], first := _Watch())
    return Told(len(ended) + len(last), seconds + (perf_counter() - looked if first.waited else 0))


class _Watch:
    """Whether a task has ended, and whether any had not when it was looked at first."""

    def __init__(self) -> None:
        self.waited = False

    def __call__(self, task: Message) -> bool:
        is_done = _is_done(task)
        self.waited |= not is_done
        return is_done


def _is_done(task: Message) -> bool:
    if task["status"] in ("failed", "cancelled"):
        raise RuntimeError(f"a task that should complete did not: {task}")
    return task["status"] == "completed"


OPERATIONS: Mapping[Operation, Callable[[Callers, Order], Awaitable[Told]]] = {
    "call": _call,
    "create": _create,
    "get": _get,
    "get working": _get_working,
    "cancel": _cancel,
    "update": _update,
    "result": _result,
    "all done": _all_done,
}
