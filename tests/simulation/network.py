"""The way between callers and processes: messages are delayed, lost and delivered twice."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from typing import TypeVar

from raincheck.engine.engine import Engine
from tests.simulation.loop import LANE, Lane, SimulatedLoop
from tests.simulation.processes import SimulatedProcess

T = TypeVar("T")

Operation = Callable[[Engine, SimulatedProcess], Awaitable[T]]
"""What a process does for a caller."""


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """Probabilities, and the longest delay of a message in seconds."""

    lost: float = 0.0
    duplicated: float = 0.0
    abandoned: float = 0.0
    """A process learns that a caller does not wait any longer, and cancels what it does for it."""
    delay: float = 0.05


class NoReply(Exception):
    """No reply came in time."""


class Network:
    """Carries calls to processes, and replies back."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, faults: NetworkFaults) -> None:
        self.faults = faults
        self._loop = loop
        self._rng = rng
        self._context = Context()
        self._context.run(LANE.set, loop.base)

    async def call(self, process: SimulatedProcess, operation: Operation[T], timeout: float) -> T:  # noqa: ASYNC109 - virtual seconds
        """Have a process run the operation, and return its reply.

        Raises:
            NoReply: it may have run, or not.
        """
        reply: asyncio.Future[T] = self._loop.create_future()
        running: list[asyncio.Task[None]] = []

        def deliver() -> None:
            if process.engine is not None:
                running.append(process.spawn(self._run(process.engine, process, operation, reply)))

        copies = 2 if self._rng.random() < self.faults.duplicated else 1
        for _ in range(copies):
            if self._rng.random() >= self.faults.lost:
                self._later(deliver)
        done, _ = await asyncio.wait([reply], timeout=timeout)
        if not done:
            reply.cancel()
            if self._rng.random() < self.faults.abandoned:
                for task in running:
                    task.cancel()
            raise NoReply
        return reply.result()

    async def _run(
        self, engine: Engine, process: SimulatedProcess, operation: Operation[T], reply: "asyncio.Future[T]"
    ) -> None:
        lane = process.lane
        try:
            result = await operation(engine, process)
        except Exception as error:  # noqa: BLE001 - any error is the reply
            self._reply(lane, reply, None, error)
        else:
            self._reply(lane, reply, result, None)

    def _reply(self, lane: Lane, reply: "asyncio.Future[T]", result: T | None, error: Exception | None) -> None:
        def settle() -> None:
            if reply.done():
                return
            if error is not None:
                reply.set_exception(error)
            else:
                reply.set_result(result)  # pyright: ignore[reportArgumentType] - there is a result if there is no error

        if not lane.is_dead and self._rng.random() >= self.faults.lost:
            self._later(settle)

    def _later(self, callback: Callable[[], None]) -> None:
        self._loop.call_later(self._rng.random() * self.faults.delay, callback, context=self._context)
