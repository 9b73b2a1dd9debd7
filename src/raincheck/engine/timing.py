"""Event loops: waiting for whichever comes first, and telling where one is."""

import asyncio
from collections.abc import Awaitable


async def first_of(*events: Awaitable[object]) -> None:
    """Wait until one of them is done. The others are given up."""
    jobs = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for job in jobs:
            job.cancel()


def runs_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is called in that event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
