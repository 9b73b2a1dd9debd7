"""Work that is not to be given up half-way, though whoever waits for it is cancelled."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def see_through(work: Awaitable[T]) -> T:
    """Wait for something to its end, however often whoever waits is cancelled meanwhile.

    It is cancelled then, unless the work has failed: that is what is raised.
    """
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
