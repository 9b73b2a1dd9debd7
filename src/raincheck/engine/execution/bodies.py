"""Bodies that run, in the event loop or in a thread; `isolated` has those in a process.

All look the same to whoever started them: something that will end, and that can be asked to stop.
"""

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Protocol

from raincheck.core.payload import Json
from raincheck.engine.execution.api import Desk, Facts
from raincheck.engine.execution.context import SyncTaskContext, TaskContext, Waiting
from raincheck.engine.execution.threads import start_in_thread
from raincheck.engine.tool import TaskTool


@dataclass(frozen=True, slots=True)
class Returned:
    """The body came to its end."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised something, or was taken down."""

    error: BaseException


Ending = Returned | Raised


@dataclass(frozen=True, slots=True)
class BodyCall:
    """Everything that a body is started with."""

    tool: TaskTool
    arguments: Mapping[str, Json]
    facts: Facts
    desk: Desk
    is_stopped: Callable[[], bool]
    """Asked by the body whether it has to stop."""
    variables: contextvars.Context

    def with_context(self, context: TaskContext | SyncTaskContext) -> Mapping[str, Any]:
        """The arguments, and the context where the body takes one."""
        name = self.tool.context_name
        return self.arguments if name is None else {**self.arguments, name: context}


class Body(Protocol):
    """A body that runs."""

    @property
    def ended(self) -> asyncio.Future[Ending]:
        """How it ended. Never cancelled, never an exception."""
        ...

    @property
    def leftovers(self) -> Set[asyncio.Future[Any]]:
        """Threads of its steps that run on, whether or not it has ended."""
        ...

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Call this when it has ended."""
        ...

    def ask_to_stop(self) -> bool:
        """Tell it to stop, and say whether that was news to somebody: not to a thread, and not once it has ended."""
        ...


class LoopBody:
    """A coroutine in the event loop. Asked to stop, it is cancelled."""

    def __init__(self, call: BodyCall) -> None:
        context = TaskContext(call.facts, call.desk, call.is_stopped)
        arguments = call.with_context(context)
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._ending: Ending = Raised(asyncio.CancelledError())
        self.leftovers: Set[asyncio.Future[Any]] = context.threads.running
        running = self._run(call.tool, arguments)
        self.job = asyncio.create_task(running, name=f"body of {call.facts.id}", context=call.variables)
        self.job.add_done_callback(self._end)
        self._tell: Callable[[], None] | None = None

    async def _run(self, tool: TaskTool, arguments: Mapping[str, Any]) -> None:
        # Whatever it raises ends here: asyncio lets SystemExit and KeyboardInterrupt take down the whole loop.
        try:
            self._ending = Returned(await tool.body(**arguments))
        except BaseException as error:  # noqa: BLE001 - the body's, whatever it is
            self._ending = Raised(error)
        # Here and not when the job is done, which is a turn of the loop later.
        self._end()

    def _end(self, _: object = None) -> None:
        """It is over, perhaps because the job was cancelled before its first step."""
        if not self.ended.done():
            self.ended.set_result(self._ending)
            if self._tell is not None:
                self._tell()

    def when_ended(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        if self.ended.done():
            tell()

    def ask_to_stop(self) -> bool:
        return self.job.cancel()


class ThreadBody:
    """A plain function in a thread. It can't be stopped, but its next call to its context does not return."""

    leftovers: Set[asyncio.Future[Any]] = frozenset()

    def __init__(self, call: BodyCall) -> None:
        waiting = Waiting(asyncio.get_running_loop())
        context = SyncTaskContext(call.facts, call.desk, call.is_stopped, waiting)
        arguments = call.with_context(context)

        def run() -> Ending:
            try:
                return Returned(call.tool.body(**arguments))
            except BaseException as error:  # noqa: BLE001 - the body's, whatever it is
                return Raised(error)

        self.ended = call.variables.run(start_in_thread, run, name=f"raincheck-{call.tool.name}")

    def when_ended(self, tell: Callable[[], None]) -> None:
        self.ended.add_done_callback(lambda _: tell())

    def ask_to_stop(self) -> bool:
        """It learns of it when it asks for something: the desk refuses it from now on."""
        return False
