"""Running as a program of its own, until it is told to stop."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from raincheck.engine.engine import Engine

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def run_until_signal(engine: Engine) -> None:
    """Run the engine until SIGTERM or SIGINT, then stop in good order. A second signal cuts the waiting short."""
    with signals(engine.hurry) as told:
        async with engine:
            await told.wait()


@contextmanager
def signals(hurry: Callable[[], None]) -> Generator[asyncio.Event]:
    """An event that is set by the first signal to stop. Every further one hurries."""
    told = asyncio.Event()

    def tell() -> None:
        if told.is_set():
            hurry()
        told.set()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, tell)
    try:
        yield told
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
