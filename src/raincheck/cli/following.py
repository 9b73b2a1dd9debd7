"""Staying with a call until it ends, its time is over, it asks what nobody answers, or somebody presses Ctrl-C."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar, cast

import typer
from mcp_types import CallToolResult

from raincheck.cli.endings import Ending, tell
from raincheck.cli.live import Shown, show_update
from raincheck.cli.questions import Asker
from raincheck.cli.terminal import Aborted, Gone, Terminal
from raincheck.cli.tidying import BY_SIGNAL, fatal_signals, let_go_of_dead_terminals
from raincheck.client import Handle, Update

T = TypeVar("T")

ELICITATION = "elicitation/create"

MENU = "[d]etach and come back later, [c]ancel it, or Enter to wait on:"


def updates_of(handle: Handle) -> AsyncGenerator[Update]:
    """The task as it changes. To be closed by whoever leaves it before it has ended."""
    return cast("AsyncGenerator[Update]", aiter(handle))


class Left(Exception):
    """The call is not waited for any longer. The ending says why."""

    def __init__(self, ending: Ending, code: int | None = None) -> None:
        super().__init__(ending.name)
        self.ending = ending
        self.code = ending if code is None else code
        """What to end with, where there is no task to leave."""


class Vigil:
    """Waits for something of a call, with an eye on the clock, on the questions and on Ctrl-C."""

    def __init__(self, shown: Shown, asker: Asker, terminal: Terminal | None, timeout: float | None) -> None:
        self._shown = shown
        self._asker = asker
        self._terminal = terminal
        self._interrupts: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._timeout = timeout
        self._over = asyncio.get_running_loop().create_future()
        self._is_waiting = False
        self._stopped_by: signal.Signals | None = None

    def begin(self) -> None:
        """The time begins: not before the server is there."""
        if self._timeout is not None:
            asyncio.get_running_loop().call_later(self._timeout, self._time_is_over)

    def _time_is_over(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    @contextmanager
    def watching(self) -> Generator[None]:
        """Take Ctrl-C and other signals that end programs, and give them back at the end."""
        loop, command = asyncio.get_running_loop(), asyncio.current_task()
        assert command is not None  # noqa: S101 - this is called in one
        numbers = (signal.SIGINT, *fatal_signals())
        for number in numbers:
            loop.add_signal_handler(number, self._interrupted, number, command)
        try:
            yield
        except asyncio.CancelledError as error:
            if self._stopped_by is None:
                raise
            raise typer.Exit(BY_SIGNAL + self._stopped_by) from error
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _interrupted(self, number: signal.Signals, command: "asyncio.Task[Any]") -> None:
        let_go_of_dead_terminals()
        if not self._is_waiting:
            self._stopped_by = number
            # Whatever is being done then, such as cancelling a task of a server that is away, is left undone.
            command.cancel()
            return
        self._interrupts.put_nowait(number)
        if self._terminal is not None:
            self._terminal.abort()

    async def until_there(self, work: Awaitable[T]) -> T:
        """Wait for the server. Ctrl-C ends the command: nothing has been called yet."""
        try:
            return await self._wait(work, None)
        except Left as left:
            self._shown.close()
            tell("given up, before anything was called")
            raise typer.Exit(left.code) from left

    async def until_begun(self, beginning: Awaitable[T]) -> T:
        """Wait for an answer to the call itself. There is nothing to come back to yet.

        Raises:
            Left: it was given up, and the server told so.
        """
        return await self._wait(beginning, None)

    async def until_ended(self, handle: Handle) -> CallToolResult:
        """Wait for the result of a task.

        Raises:
            Left: it is waited for no longer.
            And what `Handle.result` does.
        """
        return await self._wait(self._follow(handle), handle)

    async def _follow(self, handle: Handle) -> CallToolResult:
        async with aclosing(updates_of(handle)) as updates:
            async for update in updates:
                show_update(self._shown, update)
                if any(question.method != ELICITATION for question in update.questions):
                    # A model, or folders: there is none of that here.
                    raise Left(Ending.ASKS)
        return await handle.result()

    async def _wait(self, work: Awaitable[T], handle: Handle | None) -> T:
        job = asyncio.ensure_future(work)
        self._is_waiting = True
        try:
            while True:
                interrupted = asyncio.ensure_future(self._interrupts.get())
                waiting: list[asyncio.Future[Any]] = [job, interrupted, self._asker.left_open, self._over]
                try:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    interrupted.cancel()
                if job.done():
                    return job.result()
                if interrupted.done() and not interrupted.cancelled():
                    await self._ask_meanwhile(job, self._ask_what_now(interrupted.result(), handle))
                elif self._asker.left_open.done():
                    raise Left(Ending.ASKS)
                elif self._over.done():
                    raise Left(Ending.GOES_ON)
        finally:
            self._is_waiting = False
            job.cancel()
            await asyncio.wait([job])
            if not job.cancelled():
                # Whatever came of it by now, it is not waited for any longer.
                job.exception()

    async def _ask_meanwhile(self, job: "asyncio.Future[T]", asking: Coroutine[Any, Any, None]) -> None:
        """Ask what to do, for as long as there is something to do. What has ended by then has ended."""
        menu = asyncio.ensure_future(asking)
        try:
            await asyncio.wait([menu, job], return_when=asyncio.FIRST_COMPLETED)
        finally:
            menu.cancel()
            await asyncio.wait([menu])
        if not menu.cancelled() and not job.done():
            menu.result()

    async def _ask_what_now(self, number: signal.Signals, handle: Handle | None) -> None:
        """Returns if the work is to be waited for all the same."""
        if handle is None:
            raise Left(Ending.INTERRUPTED, BY_SIGNAL + number)
        if self._terminal is None or number is not signal.SIGINT:
            raise Left(Ending.GOES_ON)
        async with self._terminal.turn:
            with self._shown.aside():
                choice = await self._choose(self._terminal)
        if choice == "d":
            raise Left(Ending.GOES_ON)
        if choice == "c":
            raise Left(Ending.INTERRUPTED)
        self._terminal.free.set()

    async def _choose(self, terminal: Terminal) -> str:
        terminal.say()
        while True:
            try:
                choice = (await terminal.ask(MENU)).lower()[:1]
            except (Aborted, Gone):
                # Somebody who presses it twice wants to leave at once.
                return "d"
            if choice in ("", "d", "c"):
                return choice
