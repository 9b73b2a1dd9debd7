"""The two workers of `bench.dispatch`, ours and one of bare Procrastinate. `python -m` runs one of them."""

import asyncio
import sys
from collections.abc import Callable
from time import monotonic

from procrastinate import App, PsycopgConnector

from raincheck import Engine, Settings, Toolbox, open_store, run_until_signal

OURS, BARE = "ours", "bare"

CONCURRENCY = 8


def toolbox(report_start: Callable[[], object]) -> Toolbox:
    """Return the tool of our side."""
    tools = Toolbox()

    @tools.tool(name="work")
    async def work() -> None:
        report_start()

    return tools


def bare_app(url: str, report_start: Callable[[], object]) -> App:
    """Return the app of the bare side."""
    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="work")
    async def work() -> None:
        report_start()

    return app


async def _run_ours(url: str) -> None:
    async with open_store(url) as store:
        engine = Engine(store, toolbox(_report_start), settings=Settings(concurrency=CONCURRENCY))
        asyncio.get_running_loop().call_later(1, print_ready)
        await run_until_signal(engine)


async def _run_bare(url: str) -> None:
    app = bare_app(url, _report_start)
    async with app.open_async():
        asyncio.get_running_loop().call_later(1, print_ready)
        # Finished jobs are deleted on our side too, so both tables stay small.
        await app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="always")


def _report_start() -> None:
    print(monotonic(), flush=True)


def print_ready() -> None:
    print("ready", flush=True)


if __name__ == "__main__":
    which, where = sys.argv[1:]
    asyncio.run(_run_ours(where) if which == OURS else _run_bare(where))
