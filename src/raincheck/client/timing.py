"""Waiting no longer than one should, on a clock that may be a test's."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from raincheck.clock import Clock


@asynccontextmanager
async def at_most(clock: Clock, seconds: float | None) -> AsyncGenerator[asyncio.Timeout]:
    """Let the block take so many seconds, or as many as it takes. `expired()` tells its TimeoutError from others.

    Raises:
        TimeoutError: it takes longer.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:

        def end() -> None:
            # It may just have come to its end by itself.
            with suppress(RuntimeError):
                scope.reschedule(loop.time())

        prevent = (lambda: None) if seconds is None else clock.call_later(seconds, end)
        try:
            yield scope
        finally:
            prevent()
