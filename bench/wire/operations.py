"""What a client does, to be measured. What it needs for that is made before, and what it left behind is ended after."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter

from bench.wire.callers import ARGUMENTS, ASKING, ENDLESS, QUICK, TASK, Callers, is_done
from bench.wire.connection import Channel
from bench.wire.knowing import polled, told
from bench.wire.orders import Operation, Order, Told
from bench.wire.requests import Made

PREPARED = 60
"""Tasks at most that are made first, for what is done once with each."""

STRIDE = 7_919
"""A prime. From one task to the one that is polled next, so that of many the last are asked for like the first."""


async def _call(callers: Callers, order: Order) -> Told:
    async def one(connection: Channel) -> None:
        await connection.ask(callers.requests.call(QUICK, ARGUMENTS[QUICK]))

    return await callers.repeat(one, order)


async def _create(callers: Callers, order: Order) -> Told:
    tasks: list[Made] = []

    async def one(connection: Channel) -> None:
        tasks.append(await callers.create(connection, TASK))

    told = await callers.repeat(one, order)
    await callers.finish(tasks)
    return told


async def _get(callers: Callers, order: Order) -> Told:
    if not callers.finished:
        callers.finished.extend(await callers.made(TASK, PREPARED))
        await callers.finish(callers.finished)
    return await _polled(callers, order, callers.finished)


async def _get_working(callers: Callers, order: Order) -> Told:
    tasks = await callers.made(ENDLESS, order.callers)
    told = await _polled(callers, order, tasks)
    await callers.ask([callers.requests.cancel(task) for task in tasks])
    return told


async def _polled(callers: Callers, order: Order, tasks: Sequence[Made]) -> Told:
    numbers = iter(range(order.count))

    async def one(connection: Channel) -> None:
        await connection.ask(callers.requests.get(tasks[next(numbers) * STRIDE % len(tasks)]))

    return await callers.repeat(one, order)


async def _cancel(callers: Callers, order: Order) -> Told:
    tasks = await callers.made(ENDLESS, min(PREPARED, order.count))
    return await callers.ask([callers.requests.cancel(task) for task in tasks])


async def _update(callers: Callers, order: Order) -> Told:
    tasks = await callers.made(ASKING, min(PREPARED, order.count))
    asking = await callers.until(tasks, lambda task: task["status"] == "input_required")
    update = callers.requests.update
    done = await callers.ask([update(task, state["inputRequests"]) for task, state in asking.items()])
    await callers.finish(tasks)
    return done


async def _result(callers: Callers, order: Order) -> Told:
    """Call, and have the result: at once, or by waiting for it in 2025, or by asking again and again in 2026."""

    async def one(connection: Channel) -> None:
        task = await callers.begin(connection, QUICK)
        if task is None:
            return
        if callers.requests.generation == "2025-11-25":
            await connection.ask(callers.requests.result(task))
            return
        while not is_done(await connection.ask(callers.requests.get(task))):
            pass

    return await callers.repeat(one, order)


async def _fill(callers: Callers, order: Order) -> Told:
    """Finished tasks to poll. Where the last have ended, nearly all have."""
    begun = perf_counter()
    tasks = await callers.made(TASK, order.count)
    await callers.until(tasks[-order.callers :], is_done)
    callers.finished.extend(tasks)
    return Told(len(tasks), perf_counter() - begun)


async def _all_done(callers: Callers, order: Order) -> Told:
    """All at once, until the last has ended."""
    begun = perf_counter()
    tasks = await callers.made(TASK, order.count)
    return Told(len(tasks), await callers.finish(tasks) - begun)


async def _leave(callers: Callers, order: Order) -> Told:
    """Tasks that go on."""
    begun = perf_counter()
    return Told(len(await callers.made(ENDLESS, order.count)), perf_counter() - begun)


OPERATIONS: Mapping[Operation, Callable[[Callers, Order], Awaitable[Told]]] = {
    "call": _call,
    "create": _create,
    "get": _get,
    "get working": _get_working,
    "cancel": _cancel,
    "update": _update,
    "result": _result,
    "all done": _all_done,
    "fill": _fill,
    "leave": _leave,
    "told": told,
    "polled": polled,
}
