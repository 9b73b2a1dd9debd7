"""Staying with a call until it ends, its time is over, it asks what nobody answers, or somebody presses Ctrl-C.

What becomes of a call in the end, whichever way that comes: a result, a task that is left, or one that stops.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar, cast

import typer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.cli.exit_codes import BY_SIGNAL, Ending, fatal_signals, let_go_of_dead_terminals, refuse, tell
from raincheck.cli.output.progress import Shown, show_update
from raincheck.cli.output.results import print_result
from raincheck.cli.prompts.forms import Aborted, Gone, Terminal
from raincheck.cli.prompts.questions import Asked, Asker, tell_questions
from raincheck.cli.remote.connect import explain_broken, explain_lost
from raincheck.cli.remote.messages import Manner, slip_of
from raincheck.cli.remote.saved_calls import Ledger, shown_slip
from raincheck.client import BadAnswer, CallLost, Handle, ServerUnreachable, Slip, TaskCancelled, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused, ConfigurationError, TaskNotFound
from raincheck.operations.describe import json_of, printable

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


class Closing(Protocol):
    """Where a call is shown and asked about. It is closed before anything else is printed."""

    asker: Asker

    def close(self) -> None: ...


async def begun(manner: Manner, beginning: Awaitable[Handle], tool: str, scene: Closing, ledger: Ledger) -> Handle:
    """Wait until a call has become a task, or has its result; or end, and say why it has not."""
    try:
        return await beginning
    except (Left, ConfigurationError) as error:
        scene.close()
        if ledger.slip is not None:
            # It has become a task, which is just being written into the book, or can't be.
            await _go_on_unwritten(manner, ledger, ledger.slip)
        if not isinstance(error, Left):
            raise
        manner.give_up(tool, error.ending, scene.asker, error.code)
    except CallLost as error:
        scene.close()
        refuse(explain_broken(manner.target, error), as_json=manner.as_json, ending=Ending.FAILED)
    except ServerUnreachable as error:
        scene.close()
        refuse(explain_lost(manner.target, error), as_json=manner.as_json)
    except MCPError as error:
        scene.close()
        manner.fail(tool, error)


async def _go_on_unwritten(manner: Manner, ledger: Ledger, slip: Slip) -> NoReturn:
    why = "it may not be in the book"
    try:
        why = await ledger.settle()
    finally:
        manner.go_on(slip)
        if why is not None:
            tell(f"{why}. So keep this slip, with which Python takes it up: {shown_slip(slip).dump()}")
    raise typer.Exit(Ending.GOES_ON)


async def conclude(
    manner: Manner, result: Awaitable[CallToolResult], handle: Handle, scene: Closing | None = None
) -> Ending:
    """Wait for a result, and print it, or say what became of it instead. Then it is struck off the book."""
    try:
        ending = await _conclude(manner, result, handle, scene)
    except typer.Exit:
        await manner.book.strike_off()
        raise
    await manner.book.strike_off()
    return ending


async def _conclude(manner: Manner, result: Awaitable[CallToolResult], handle: Handle, scene: Closing | None) -> Ending:
    slip = slip_of(handle)
    try:
        try:
            found = await result
        finally:
            if scene is not None:
                scene.close()
        return print_result(found, as_json=manner.as_json)
    except Left as left:
        return await leave(manner, left.ending, handle, None if scene is None else scene.asker)
    except TaskCancelled as error:
        refuse(printable(str(error)), as_json=manner.as_json, ending=Ending.FAILED)
    except MCPError as error:
        manner.fail(slip.tool, error, slip)
    except TaskNotFound:
        manner.not_found(slip)
    except ServerUnreachable as error:
        return manner.go_on_lost(slip, error)
    except BadAnswer as error:
        refuse(explain_lost(manner.target, error), as_json=manner.as_json)


async def leave(manner: Manner, ending: Ending, handle: Handle, asker: Asker | None) -> Ending:
    """A task that is not waited for any longer. Whatever goes wrong with that, it can be come back to."""
    slip = slip_of(handle)
    try:
        if ending is Ending.ASKS:
            await tell_asked(manner, handle, asker)
            return ending
        if ending is Ending.INTERRUPTED:
            tell("cancelling it (Ctrl-C again leaves that undone)")
            manner.tell_cancelled(slip, await _stop(manner, handle))
            return ending
    except TaskNotFound:
        manner.not_found(slip)
    except CancelRefused as refused:
        why = f"({printable(refused.reason)}): {printable(refused.why)}"
        manner.go_on(slip, f"its workflow does not allow that {why}. ")
        return Ending.GOES_ON
    except MCPError as error:
        manner.go_on(slip, f"the server refuses that: {printable(error.error.message)}. ")
        return Ending.GOES_ON
    except (ServerUnreachable, BadAnswer) as error:
        return manner.go_on_lost(slip, error)
    except asyncio.CancelledError as error:
        # Ctrl-C again.
        manner.go_on(slip, "left undone. ")
        raise typer.Exit(Ending.GOES_ON) from error
    manner.go_on(slip)
    return ending


async def tell_asked(manner: Manner, handle: Handle, asker: Asker | None) -> None:
    """Say what a task asks, and how to answer."""
    slip = slip_of(handle)
    update = await handle.look()
    asked = [Asked.of(question) for question in update.questions] if update is not None else []
    if not asked and asker is not None and asker.left_open.done():
        asked = [Asked.by_server(asker.left_open.result())]
    if manner.as_json:
        facts = {"task_id": slip.task_id, "status": "input_required", "questions": [one.as_json() for one in asked]}
        typer.echo(json_of(facts))
    tell_questions(slip.tool, asked, partial(manner.again, "answer", slip.task_id))
    tell(f"then: {manner.again('wait', slip.task_id)}")


async def cancel(manner: Manner, handle: Handle) -> Ending:
    """Stop a task, and say what came of that."""
    try:
        update = await _stop(manner, handle)
    except CancelRefused as refused:
        return manner.tell_refused(slip_of(handle), await handle.look(), refused)
    except MCPError as error:
        why = f"the server does not cancel it: {printable(error.error.message)}"
        refuse(why, as_json=manner.as_json, ending=Ending.FAILED)
    return manner.tell_cancelled(slip_of(handle), update)


async def _stop(manner: Manner, handle: Handle) -> Update:
    try:
        await handle.cancel()
    except MCPError:
        # One that the server does not know is told of as such.
        await handle.look()
        raise
    update = await handle.look()
    assert update is not None  # noqa: S101 - of a task
    if update.status is Status.CANCELLED:
        await manner.book.remove(slip_of(handle))
        await manner.book.strike_off()
    return update
