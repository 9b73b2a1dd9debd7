"""Event loops: waiting for whichever comes first, telling where one is, and how long to wait before another try."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

from raincheck.core.retry import RetryPolicy

PAUSES = RetryPolicy(first=timedelta(milliseconds=200), most=timedelta(seconds=5), jitter=0.0)
"""The waits between tries at a store or a server that is away: they grow, and stay bounded however long that takes."""


async def first_of(*events: Awaitable[object]) -> None:
    """Wait until one of them is done. The others are given up."""
    jobs = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for job in jobs:
            job.cancel()


def pause_after(tries: int) -> float:
    """How many seconds to wait after so many tries at something that is away."""
    return PAUSES.wait(tries, chance=0.0).total_seconds()


def runs_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is called in that event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
