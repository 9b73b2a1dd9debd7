"""Event loops: waiting for whichever comes first, telling where one is, and how long to wait before another try."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

import anyio

from raincheck.core.retry import RetryPolicy

T = TypeVar("T")

PAUSES = RetryPolicy(first=timedelta(milliseconds=200), most=timedelta(seconds=5), jitter=0.0)
"""The waits between tries at a store that is away: they grow, and stay bounded however long that takes."""


async def first_of(*events: Awaitable[object]) -> None:
    """Wait until one of them is done. The others are given up."""
    jobs = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for job in jobs:
            job.cancel()


async def see_through(work: Awaitable[T]) -> T:
    """Wait for something to its end, however often whoever waits is cancelled meanwhile, and be cancelled then."""
    job = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    # Scopes of anyio would cancel again at every turn of the loop.
    with anyio.CancelScope(shield=True):
        while not job.done():
            try:
                await asyncio.shield(job)
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
    return job.result()


def pause_after(tries: int) -> float:
    """How many seconds to wait after so many tries at a store that is away."""
    return PAUSES.wait(tries, chance=0.0).total_seconds()


def runs_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is called in that event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
