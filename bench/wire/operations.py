"""The operations of the client. Each creates the tasks it needs before the measurement, and ends leftovers after it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter

from bench.wire.callers import ARGUMENTS, ASKING, ENDLESS, QUICK, TASK, Callers, is_done
from bench.wire.connection import Channel
from bench.wire.delay_operations import polled, told
from bench.wire.orders import Operation, Order, OrderResult
from bench.wire.requests import CreatedTask

PREPARED = 60
"""The highest number of tasks that are prepared for an operation that is performed once on each."""

STRIDE = 7_919
"""The distance between two tasks that are polled in succession: a prime, so that all tasks are polled equally."""


async def _call(callers: Callers, order: Order) -> OrderResult:
    async def act(connection: Channel) -> None:
        await connection.ask(callers.requests.call(QUICK, ARGUMENTS[QUICK]))

    return await callers.repeat(act, order)


async def _create(callers: Callers, order: Order) -> OrderResult:
    tasks: list[CreatedTask] = []

    async def act(connection: Channel) -> None:
        tasks.append(await callers.create(connection, TASK))

    result = await callers.repeat(act, order)
    await callers.finish(tasks)
    return result


async def _get(callers: Callers, order: Order) -> OrderResult:
    if not callers.finished:
        callers.finished.extend(await callers.create_tasks(TASK, PREPARED))
        await callers.finish(callers.finished)
    return await _poll(callers, order, callers.finished)


async def _get_working(callers: Callers, order: Order) -> OrderResult:
    tasks = await callers.create_tasks(ENDLESS, order.callers)
    result = await _poll(callers, order, tasks)
    await callers.send_all([callers.requests.cancel(task) for task in tasks])
    return result


async def _poll(callers: Callers, order: Order, tasks: Sequence[CreatedTask]) -> OrderResult:
    numbers = iter(range(order.count))

    async def act(connection: Channel) -> None:
        await connection.ask(callers.requests.get(tasks[next(numbers) * STRIDE % len(tasks)]))

    return await callers.repeat(act, order)


async def _cancel(callers: Callers, order: Order) -> OrderResult:
    tasks = await callers.create_tasks(ENDLESS, min(PREPARED, order.count))
    return await callers.send_all([callers.requests.cancel(task) for task in tasks])


async def _update(callers: Callers, order: Order) -> OrderResult:
    tasks = await callers.create_tasks(ASKING, min(PREPARED, order.count))
    states = await callers.until(tasks, lambda task: task["status"] == "input_required")
    update = callers.requests.update
    done = await callers.send_all([update(task, state["inputRequests"]) for task, state in states.items()])
    await callers.finish(tasks)
    return done


async def _result(callers: Callers, order: Order) -> OrderResult:
    """Call, and have the result: at once, or by waiting for it in 2025, or by asking again and again in 2026."""

    async def act(connection: Channel) -> None:
        task = await callers.begin(connection, QUICK)
        if task is None:
            return
        if callers.requests.generation == "2025-11-25":
            await connection.ask(callers.requests.result(task))
            return
        while not is_done(await connection.ask(callers.requests.get(task))):
            pass

    return await callers.repeat(act, order)


async def _fill(callers: Callers, order: Order) -> OrderResult:
    """Create finished tasks to poll. When the last ones have ended, nearly all have."""
    started_at = perf_counter()
    tasks = await callers.create_tasks(TASK, order.count)
    await callers.until(tasks[-order.callers :], is_done)
    callers.finished.extend(tasks)
    return OrderResult(len(tasks), perf_counter() - started_at)


async def _all_done(callers: Callers, order: Order) -> OrderResult:
    """Create all tasks at once, and wait until the last has ended."""
    started_at = perf_counter()
    tasks = await callers.create_tasks(TASK, order.count)
    return OrderResult(len(tasks), await callers.finish(tasks) - started_at)


async def _leave(callers: Callers, order: Order) -> OrderResult:
    """Create tasks that never end."""
    started_at = perf_counter()
    return OrderResult(len(await callers.create_tasks(ENDLESS, order.count)), perf_counter() - started_at)


OPERATIONS: Mapping[Operation, Callable[[Callers, Order], Awaitable[OrderResult]]] = {
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
