"""Waiting by means of a task, for at most so long, however often the task is parked meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from raincheck.core.payload import Json
from raincheck.engine.process_desk import local_desk
from raincheck.workflows.action import Occasion


async def recorded_in_time(seconds: float | None, occasion: Occasion, work: Callable[[], Awaitable[Json]]) -> Json:
    """Record what comes of something that waits, or that nothing did in time, and return what is on record."""
    task = occasion.task
    if seconds is None:
        return await task.step(occasion.name, partial(_same, await work()))
    waiting = asyncio.ensure_future(work())
    clock = asyncio.ensure_future(task.sleep(seconds, name=f"{occasion.name} timeout"))
    try:
        await asyncio.wait([waiting, clock], return_when=asyncio.FIRST_COMPLETED)
        is_late = not waiting.done()
        record = _too_late(seconds) if is_late else waiting.result()
        # Before the work is cancelled: an attempt that goes on must have asked for all that was asked for before.
        recorded = await task.step(occasion.name, partial(_same, record))
        if is_late:
            # What it asked, if it did.
            await local_desk(task).withdraw(occasion.name)
        return recorded
    finally:
        waiting.cancel()
        clock.cancel()
        await asyncio.gather(waiting, clock, return_exceptions=True)


def _too_late(seconds: float) -> Json:
    return {"error": {"kind": "timeout", "message": f"it took longer than {seconds:g} s"}}


async def _same(record: Json) -> Json:
    return record
