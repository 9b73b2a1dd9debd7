"""The client, as a process of its own: `python -m bench.wire.client` takes orders on stdin and tells on stdout.

An order is a line of JSON: which server, what to do, by how many callers at once, and for how long. Each caller has a
connection, and sends its next request when it has the answer to the last. What is told is a line of JSON, too.
"""

import asyncio
import json
import sys
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import asdict

from bench.wire.connection import connected
from bench.wire.operations import OPERATIONS, Callers
from bench.wire.orders import Order, Told
from bench.wire.requests import Generation, Made, Requests

TIMEOUT = 240.0
"""Seconds that an order may take, before all is given up."""


class Client:
    """Does as ordered."""

    def __init__(self) -> None:
        self._requests: dict[tuple[int, Generation], Requests] = {}
        self._finished: defaultdict[int, list[Made]] = defaultdict(list)

    async def do(self, order: Order) -> Told:
        async with asyncio.timeout(TIMEOUT):
            return await self._do(order)

    async def _do(self, order: Order) -> Told:
        requests = await self._requests_to(order.port, order.generation)
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(connected(order.port)) for _ in range(order.callers)]
            return await OPERATIONS[order.operation](Callers(requests, connections, self._finished[order.port]), order)

    async def _requests_to(self, port: int, generation: Generation) -> Requests:
        if (known := self._requests.get((port, generation))) is not None:
            return known
        self._requests[port, generation] = requests = Requests(port, generation)
        if generation == "2025-11-25":
            async with connected(port) as connection:
                await connection.ask(requests.initialize())
                requests.session = connection.session
                await connection.tell(requests.initialized())
        return requests


async def _main() -> None:
    client = Client()
    while line := await asyncio.to_thread(sys.stdin.readline):
        told = await client.do(Order(**json.loads(line)))
        print(json.dumps(asdict(told)), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
