"""Run an engine as a standalone program until it receives a stop signal."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from raincheck.engine.engine import Engine

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def run_until_signal(engine: Engine) -> None:
    """Run the engine until SIGTERM or SIGINT, then stop gracefully. A second signal skips the grace period."""
    with stop_signals(engine.skip_grace) as stop_requested:
        async with engine:
            await stop_requested.wait()


@contextmanager
def stop_signals(on_repeat: Callable[[], None], on_stop: Callable[[], None] | None = None) -> Generator[asyncio.Event]:
    """Yield an event that the first stop signal sets, after `on_stop`. Every further signal calls `on_repeat`."""
    stop_requested = asyncio.Event()

    def on_signal() -> None:
        if stop_requested.is_set():
            on_repeat()
        elif on_stop is not None:
            on_stop()
        stop_requested.set()

    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop_requested
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
