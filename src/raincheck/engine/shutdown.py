"""Running an engine as a program of its own, until it is told to stop."""

import asyncio
import signal

from raincheck.engine.engine import Engine

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def run_until_signal(engine: Engine) -> None:
    """Run the engine until SIGTERM or SIGINT, then stop in good order. A second signal cuts the waiting short."""
    told = asyncio.Event()

    def tell() -> None:
        if told.is_set():
            engine.hurry()
        told.set()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, tell)
    try:
        async with engine:
            await told.wait()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
