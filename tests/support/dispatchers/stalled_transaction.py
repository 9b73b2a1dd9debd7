"""A process that suspends itself in the middle of a transaction: `python stalled_transaction.py URL`."""

import asyncio
import os
import signal
import sys
from typing import Any

from psycopg import AsyncConnection, AsyncCursor

from raincheck.engine import Engine, Toolbox
from raincheck.stores.postgres import PostgresStore

toolbox = Toolbox()


@toolbox.tool
async def quick() -> None: ...


class StallingConnection(AsyncConnection[tuple[Any, ...]]):
    """Suspends the process before it commits."""

    async def execute(self, query: Any, *args: Any, **kwargs: Any) -> AsyncCursor[tuple[Any, ...]]:
        if query == "COMMIT":
            print("sleeps", flush=True)  # noqa: T201 - what the test waits for
            os.kill(os.getpid(), signal.SIGSTOP)
        return await super().execute(query, *args, **kwargs)


async def main(url: str) -> None:
    store = PostgresStore(url, connection_class=StallingConnection)
    await store.open()
    # With a key, so that it takes more than one statement.
    await Engine(store, toolbox, works=False).submit("quick", idempotency_key="once")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
