"""How late a caller knows that its task has ended: told by the server, or by asking as often as the server says."""

import asyncio
import time
from contextlib import aclosing

from bench.wire.callers import TIMED, Callers, is_done
from bench.wire.connection import Channel, Message, connected
from bench.wire.orders import Order, Told
from bench.wire.requests import Made

SPREAD = 2 / 3
"""How much the tasks differ in length, as a part of it: asked at the same moments, all would be equally late."""


async def told(callers: Callers, order: Order) -> Told:
    """One task after the other, each with a subscription."""
    late: list[float] = []

    async def one(connection: Channel) -> None:
        task = await _begin(callers, connection, order.seconds)
        async with (
            connected(callers.requests.port) as subscribed,
            aclosing(subscribed.stream(callers.requests.listen(task))) as messages,
        ):
            async for message in messages:
                if message["method"] == "notifications/tasks" and is_done(message["params"]):
                    late.append(_late(message["params"]["result"]))
                    break

    done = await callers.each([one] * order.count)
    if len(late) != order.count:
        raise RuntimeError(f"of {order.count} tasks, the ends of {len(late)} were told before their streams ended")
    return Told(done.count, done.seconds, late, [order.seconds] * len(late))


async def polled(callers: Callers, order: Order) -> Told:
    """All at once, each asked for when the server said to ask again."""
    late: list[float] = []
    lengths = [order.seconds * (1 + SPREAD * ((number + 0.5) / order.count - 0.5)) for number in range(order.count)]
    left, lasted = iter(lengths), list[float]()

    async def one(connection: Channel) -> None:
        seconds = next(left)
        task = await _begin(callers, connection, seconds)
        while not is_done(state := await connection.ask(callers.requests.get(task))):
            # The field has another name in 2025.
            pause = state.get("pollIntervalMs", state.get("pollInterval", 0))
            await asyncio.sleep(pause / 1_000)
        known = _now()
        result = state.get("result") or await connection.ask(callers.requests.result(task))
        late.append(_late(result, known))
        lasted.append(seconds)

    done = await callers.each([one] * order.count)
    return Told(done.count, done.seconds, late, lasted)


async def _begin(callers: Callers, connection: Channel, seconds: float) -> Made:
    return await callers.create(connection, TIMED, {"seconds": seconds})


def _late(result: Message, known: float | None = None) -> float:
    """Seconds from its end, which it says itself, to when that was known: now, unless it was before."""
    return (known or _now()) - float(result["structuredContent"]["result"])


def _now() -> float:
    return time.time()  # noqa: TID251 - what other processes can compare with
