"""Run the client process, and send it orders."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict

from bench.wire.orders import Order, OrderResult


class Client:
    """The client process, which executes one order after the other."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def do(self, order: Order) -> OrderResult:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client could not do {order}: see its error above")
        return OrderResult(**json.loads(line))


@asynccontextmanager
async def client() -> AsyncGenerator[Client]:
    """Run a client process until the end of the context."""
    command = (sys.executable, "-m", "bench.wire.client")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        yield Client(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
