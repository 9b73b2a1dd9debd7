"""Measure how late a caller knows that its task has ended, by a subscription or by polling at the server's interval."""

import asyncio
import time
from contextlib import aclosing

from bench.wire.callers import TIMED, Callers, is_done
from bench.wire.connection import Channel, Message, connected
from bench.wire.orders import Order, OrderResult
from bench.wire.requests import CreatedTask

SPREAD = 2 / 3
"""The spread of the tasks' lengths, as a fraction of it. With equal lengths, all polls would be equally late."""


async def told(callers: Callers, order: Order) -> OrderResult:
    """Run one task after the other, each with a subscription."""
    late: list[float] = []

    async def run_task(connection: Channel) -> None:
        task = await _create(callers, connection, order.seconds)
        async with (
            connected(callers.requests.port) as subscribed,
            aclosing(subscribed.stream(callers.requests.listen(task))) as messages,
        ):
            async for message in messages:
                if message["method"] == "notifications/tasks" and is_done(message["params"]):
                    late.append(_late(message["params"]["result"]))
                    break

    done = await callers.each([run_task] * order.count)
    if len(late) != order.count:
        raise RuntimeError(
            f"only {len(late)} of {order.count} subscriptions reported the end before their streams ended"
        )
    return OrderResult(done.count, done.seconds, late, [order.seconds] * len(late))


async def polled(callers: Callers, order: Order) -> OrderResult:
    """Run all tasks at once, and poll each at the interval that the server returns."""
    late: list[float] = []
    lengths = [order.seconds * (1 + SPREAD * ((number + 0.5) / order.count - 0.5)) for number in range(order.count)]
    remaining, lasted = iter(lengths), list[float]()

    async def run_task(connection: Channel) -> None:
        seconds = next(remaining)
        task = await _create(callers, connection, seconds)
        while not is_done(state := await connection.ask(callers.requests.get(task))):
            # The field has another name in 2025.
            pause = state.get("pollIntervalMs", state.get("pollInterval", 0))
            await asyncio.sleep(pause / 1_000)
        known_at = _now()
        result = state.get("result") or await connection.ask(callers.requests.result(task))
        late.append(_late(result, known_at))
        lasted.append(seconds)

    done = await callers.each([run_task] * order.count)
    return OrderResult(done.count, done.seconds, late, lasted)


async def _create(callers: Callers, connection: Channel, seconds: float) -> CreatedTask:
    return await callers.create(connection, TIMED, {"seconds": seconds})


def _late(result: Message, known_at: float | None = None) -> float:
    """Return the seconds from the end that the task recorded to when the caller knew it (by default, now)."""
    return (known_at or _now()) - float(result["structuredContent"]["result"])


def _now() -> float:
    return time.time()  # noqa: TID251 - comparable between processes
