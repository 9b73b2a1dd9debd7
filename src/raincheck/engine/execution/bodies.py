"""Runs bodies in the event loop or in a thread. `isolation.process_body` runs them in a process.

All have the same interface: a body ends at some point, and can be asked to stop.
"""

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Protocol

from raincheck._async import start_in_thread
from raincheck.core.values import Json
from raincheck.engine.execution.context import TaskApi, TaskContext, TaskInfo
from raincheck.engine.execution.sync_context import LoopCaller, SyncTaskContext
from raincheck.engine.tool import TaskTool


@dataclass(frozen=True, slots=True)
class BodyResult:
    """The body returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class BodyFailure:
    """The body raised an error, or was stopped."""

    error: BaseException


BodyOutcome = BodyResult | BodyFailure


@dataclass(frozen=True, slots=True)
class BodyCall:
    """Everything that a body is started with."""

    tool: TaskTool
    arguments: Mapping[str, Json]
    info: TaskInfo
    api: TaskApi
    is_stopped: Callable[[], bool]
    """Called by the body to check whether it has to stop."""
    context_variables: contextvars.Context

    def with_context(self, context: TaskContext | SyncTaskContext) -> Mapping[str, Any]:
        """Return the arguments, with the context if the body takes one."""
        name = self.tool.context_parameter
        return self.arguments if name is None else {**self.arguments, name: context}


class Body(Protocol):
    """A running body."""

    @property
    def ended(self) -> asyncio.Future[BodyOutcome]:
        """The body's outcome. Never cancelled, never an exception."""
        ...

    @property
    def leftovers(self) -> Set[asyncio.Future[Any]]:
        """Threads of its steps that are still running, whether or not the body has ended."""
        ...

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call this when the body has ended."""
        ...

    def request_stop(self) -> bool:
        """Ask the body to stop. Returns whether it was notified: a thread is not, nor is a body that has ended."""
        ...


class LoopBody:
    """A coroutine in the event loop. It is cancelled to stop it."""

    def __init__(self, call: BodyCall) -> None:
        context = TaskContext(call.info, call.api, call.is_stopped)
        arguments = call.with_context(context)
        self.ended: asyncio.Future[BodyOutcome] = asyncio.get_running_loop().create_future()
        self._ending: BodyOutcome = BodyFailure(asyncio.CancelledError())
        self.leftovers: Set[asyncio.Future[Any]] = context.step_threads.running
        running = self._run(call.tool, arguments)
        self.main_task = asyncio.create_task(running, name=f"body of {call.info.id}", context=call.context_variables)
        self.main_task.add_done_callback(self._end)
        self._on_end_callback: Callable[[], None] | None = None

    async def _run(self, tool: TaskTool, arguments: Mapping[str, Any]) -> None:
        # Every exception ends here: asyncio lets SystemExit and KeyboardInterrupt take down the whole loop.
        try:
            self._ending = BodyResult(await tool.body(**arguments))
        except BaseException as error:  # noqa: BLE001 - any error of the body
            self._ending = BodyFailure(error)
        # Here and not when the asyncio task is done, which is a turn of the loop later.
        self._end()

    def _end(self, _: object = None) -> None:
        """Set the outcome. The asyncio task may have been cancelled before its first step."""
        if not self.ended.done():
            self.ended.set_result(self._ending)
            if self._on_end_callback is not None:
                self._on_end_callback()

    def on_end(self, callback: Callable[[], None]) -> None:
        self._on_end_callback = callback
        if self.ended.done():
            callback()

    def request_stop(self) -> bool:
        return self.main_task.cancel()


class ThreadBody:
    """A plain function in a thread. It can't be stopped, but its next call to its context does not return."""

    leftovers: Set[asyncio.Future[Any]] = frozenset()

    def __init__(self, call: BodyCall) -> None:
        loop_caller = LoopCaller(asyncio.get_running_loop())
        context = SyncTaskContext(call.info, call.api, call.is_stopped, loop_caller)
        arguments = call.with_context(context)

        def run() -> BodyOutcome:
            try:
                return BodyResult(call.tool.body(**arguments))
            except BaseException as error:  # noqa: BLE001 - any error of the body
                return BodyFailure(error)

        self.ended = call.context_variables.run(start_in_thread, run, name=f"raincheck-{call.tool.name}")

    def on_end(self, callback: Callable[[], None]) -> None:
        self.ended.add_done_callback(lambda _: callback())

    def request_stop(self) -> bool:
        """Do nothing. The body is stopped at its next call, which the task API now refuses."""
        return False
