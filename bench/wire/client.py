"""The client process: `python -m bench.wire.client` reads orders from stdin and writes results to stdout.

An order is a line of JSON: the server, the operation, the number of concurrent callers, and the duration. Each caller
has a connection, and sends its next request after the answer to the previous one. A result is a line of JSON, too.
"""

import asyncio
import json
import sys
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import asdict

from bench.wire.connection import connected
from bench.wire.operations import OPERATIONS, Callers
from bench.wire.orders import Order, OrderResult
from bench.wire.requests import CreatedTask, Generation, Requests

TIMEOUT = 240.0
"""Seconds after which an order fails."""


class Client:
    """Executes orders."""

    def __init__(self) -> None:
        self._requests: dict[tuple[int, Generation], Requests] = {}
        self._finished: defaultdict[int, list[CreatedTask]] = defaultdict(list)

    async def do(self, order: Order) -> OrderResult:
        async with asyncio.timeout(TIMEOUT):
            return await self._do(order)

    async def _do(self, order: Order) -> OrderResult:
        requests = await self._requests_to(order.port, order.generation)
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(connected(order.port)) for _ in range(order.callers)]
            return await OPERATIONS[order.operation](Callers(requests, connections, self._finished[order.port]), order)

    async def _requests_to(self, port: int, generation: Generation) -> Requests:
        if (existing := self._requests.get((port, generation))) is not None:
            return existing
        self._requests[port, generation] = requests = Requests(port, generation)
        if generation == "2025-11-25":
            async with connected(port) as connection:
                await connection.ask(requests.initialize())
                requests.session = connection.session
                await connection.notify(requests.initialized())
        return requests


async def _main() -> None:
    client = Client()
    while line := await asyncio.to_thread(sys.stdin.readline):
        result = await client.do(Order(**json.loads(line)))
        print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
