"""Callers: they submit tasks, and poll, wait for, answer, pause and cancel them over an unreliable network."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from raincheck.core.owner import Owner
from raincheck.core.records import Task, View
from raincheck.core.values import Json
from raincheck.engine.engine import Engine
from raincheck.errors import ConfigurationError, IllegalTransition, StoreError, TaskNotFound
from tests.simulation.checks import Checks
from tests.simulation.network import Network, NoReply
from tests.simulation.processes import SimulatedProcess
from tests.simulation.scenario import Plan, draw_plan, draw_tool

T = TypeVar("T")

UNSUCCESSFUL = (NoReply, StoreError, TaskNotFound, IllegalTransition)
"""Replies that a caller has to expect."""

UNKNOWN_ID = "0" * 44
"""An id that no task has."""

ACTIONS = {
    "submit": 3,
    "again": 1,
    "poll": 4,
    "wait": 3,
    "answer": 6,
    "cancel": 0.7,
    "pause": 0.5,
    "resume": 1,
    "spy": 1,
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a task."""

    key: str | None
    tool: str
    plan: Plan
    ttl: timedelta | None


class Caller:
    """A caller of one owner. Callers of one owner share its tasks."""

    def __init__(
        self,
        name: str,
        owner: Owner,
        known: list[str],
        network: Network,
        processes: list[SimulatedProcess],
        checks: Checks,
        rng: random.Random,
    ) -> None:
        self._name = name
        self._owner = owner
        self._known = known
        self.strangers: list[str] = []
        """The tasks of another owner."""
        self._network = network
        self._processes = processes
        self._checks = checks
        self._rng = rng
        self._requests: list[Request] = []
        self._numbers = itertools.count()
        self._waiting: list[asyncio.Task[None]] = []

    async def run(self, seconds: float, max_tasks: int) -> None:
        """Make calls for this many seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            (action,) = self._rng.choices(list(ACTIONS), list(ACTIONS.values()))
            if action == "submit" and len(self._requests) >= max_tasks:
                action = "answer"
            await self._try(action)
            await asyncio.sleep(self._rng.expovariate(1 / 0.3))

    async def _try(self, action: str) -> None:
        if action == "submit":
            self._requests.append(self._draw_request())
        if action in ("submit", "again"):
            if self._requests:
                request = self._requests[-1] if action == "submit" else self._rng.choice(self._requests)
                await self._attempt(self._submit(request))
        elif action == "spy":
            if self.strangers:
                await self._attempt(self._call(self._spy(self._rng.choice(self.strangers))))
        elif self._known:
            task_id = self._rng.choice(self._known[-6:])
            if action == "wait":
                self._waiting.append(asyncio.create_task(self._attempt(self._call(self._wait(task_id), timeout=30.0))))
            else:
                await self._attempt(getattr(self, f"_{action}")(task_id))

    async def _attempt(self, call: Awaitable[object]) -> None:
        try:
            await call
        except UNSUCCESSFUL:
            return

    def _call(
        self, operation: Callable[[Engine, SimulatedProcess], Awaitable[T]], timeout: float = 2.0
    ) -> Awaitable[T]:
        return self._network.call(self._rng.choice(self._processes), operation, timeout)

    async def settle(self, has_live_tasks: Callable[[], bool]) -> None:
        """Answer every question and resume every task of the owner, until all tasks have ended."""
        while has_live_tasks():
            await self._attempt(self._settle_round())
            await asyncio.sleep(0.5)
        for task_id in self._known:
            await self._attempt(self._poll(task_id))

    async def _settle_round(self) -> None:
        # Also tasks whose ids were lost on their way here.
        page = await self._call(lambda engine, _: engine.list_tasks(owner=self._owner))
        for task in page.tasks:
            if task.phase == "paused" or task.pausing:
                await self._attempt(self._resume(task.id))
            if task.open_inputs and not task.is_terminal:
                await self._attempt(self._answer(task.id))

    # What processes do for the caller.

    def _draw_request(self) -> "Request":
        # Without a key, a message that is delivered twice or sent again creates another task.
        key = f"{self._name} {next(self._numbers)}" if self._rng.random() < 0.7 else None
        ttl = self._rng.choice([None, timedelta(seconds=2), timedelta(hours=1)])
        return Request(key, draw_tool(self._rng), draw_plan(self._rng), ttl)

    async def _submit(self, request: "Request") -> None:
        async def submit(engine: Engine, process: SimulatedProcess) -> Task:
            del process
            arguments: Json = {"plan": request.plan}
            task = await engine.submit(
                request.tool, arguments, owner=self._owner, idempotency_key=request.key, ttl=request.ttl
            )
            self._checks.submitted(task, self._owner, request.key)
            return task

        task = await self._call(submit)
        if task.id not in self._known:
            self._known.append(task.id)

    async def _poll(self, task_id: str) -> View:
        async def poll(engine: Engine, process: SimulatedProcess) -> View:
            read_at = process.clock.now()
            view = await self._found(task_id, engine.view(task_id, owner=self._owner))
            self._checks.viewed(view, read_at)
            return view

        return await self._call(poll)

    def _wait(self, task_id: str) -> Callable[[Engine, SimulatedProcess], Awaitable[View]]:
        async def wait(engine: Engine, process: SimulatedProcess) -> View:
            with self._checks.waiting(task_id, process.lane) as check:
                view = await self._found(task_id, engine.wait(task_id, owner=self._owner))
                check(view)
            return view

        return wait

    async def _answer(self, task_id: str) -> View:
        view = await self._poll(task_id)
        number = next(self._numbers)
        answers = {question.key: {"roots": [f"answer {number}"]} for question in view.inputs}

        async def answer(engine: Engine, process: SimulatedProcess) -> Task:
            del process
            try:
                return await self._found(task_id, engine.answer(task_id, answers, owner=self._owner))
            except IllegalTransition:
                self._checks.refused(task_id)
                raise

        if answers:
            await self._call(answer)
        return view

    async def _cancel(self, task_id: str) -> None:
        async def cancel(engine: Engine, process: SimulatedProcess) -> Task:
            del process
            try:
                task = await self._found(task_id, engine.cancel(task_id, owner=self._owner))
            except IllegalTransition:
                self._checks.refused(task_id)
                raise
            self._checks.cancelled(task)
            return task

        await self._call(cancel)

    async def _pause(self, task_id: str) -> None:
        await self._call(lambda engine, _: self._found(task_id, engine.pause(task_id, owner=self._owner)))

    async def _resume(self, task_id: str) -> None:
        await self._call(lambda engine, _: self._found(task_id, engine.resume(task_id, owner=self._owner)))

    def _spy(self, task_id: str) -> Callable[[Engine, SimulatedProcess], Awaitable[None]]:
        async def spy(engine: Engine, process: SimulatedProcess) -> None:
            del process
            unknown, foreign = await self._refusal(engine, UNKNOWN_ID), await self._refusal(engine, task_id)
            if foreign.replace(task_id, UNKNOWN_ID) != unknown:
                raise AssertionError(f"another owner's task answers {foreign!r}, and an unknown one {unknown!r}")

        return spy

    async def _refusal(self, engine: Engine, task_id: str) -> str:
        try:
            view = await engine.view(task_id, owner=self._owner)
        except TaskNotFound as error:
            return str(error)
        return f"{view.task}"

    async def _found(self, task_id: str, reply: Awaitable[T]) -> T:
        try:
            return await reply
        except TaskNotFound:
            self._checks.not_found(task_id)
            raise
        except ConfigurationError as error:
            # The process is stopping.
            raise NoReply from error
