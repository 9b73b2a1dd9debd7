"""Monitor a call until it ends, times out, asks a question that can't be answered here, or the user presses Ctrl-C.

Then report the outcome: a result, a task that was detached from, or one that was cancelled.
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

from raincheck.cli.exit_codes import SIGNAL_EXIT_BASE, ExitCode, echo_err, fail, fatal_signals, redirect_dead_terminals
from raincheck.cli.output.progress import ProgressDisplay, show_update
from raincheck.cli.output.results import print_result
from raincheck.cli.prompts.forms import EndOfInput, PromptInterrupt, Terminal
from raincheck.cli.prompts.questions import ElicitationPrompter, OpenInputRequest, echo_questions
from raincheck.cli.remote.connect import explain_call_lost, explain_unreachable
from raincheck.cli.remote.messages import CallReporter, task_ref_of
from raincheck.cli.remote.saved_calls import DeferredSavedCalls, redact_task_ref
from raincheck.client import CallLost, Handle, InvalidResponse, ServerUnreachable, TaskCancelled, TaskRef, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused, ConfigurationError, TaskNotFound
from raincheck.operations.describe import format_json, printable

T = TypeVar("T")

ELICITATION = "elicitation/create"

MENU = "[d]etach and come back later, [c]ancel it, or Enter to wait on:"


def follow_updates(handle: Handle) -> AsyncGenerator[Update]:
    """Return the task's updates. The caller closes the generator if it stops before the end."""
    return cast("AsyncGenerator[Update]", aiter(handle))


class WaitInterrupt(Exception):
    """The command stops waiting for the call. The exit code tells why."""

    def __init__(self, exit_code: ExitCode, exit_code_without_task: int | None = None) -> None:
        super().__init__(exit_code.name)
        self.exit_code = exit_code
        self.exit_code_without_task = exit_code if exit_code_without_task is None else exit_code_without_task
        """The exit code if there is no task to detach from."""


class CallMonitor:
    """Waits for the server, the call and its result, and handles the timeout, questions and Ctrl-C."""

    def __init__(
        self, shown: ProgressDisplay, asker: ElicitationPrompter, terminal: Terminal | None, timeout: float | None
    ) -> None:
        self._shown = shown
        self._asker = asker
        self._terminal = terminal
        self._interrupts: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._timeout = timeout
        self._timeout_reached = asyncio.get_running_loop().create_future()
        self._is_waiting = False
        self._stopped_by: signal.Signals | None = None

    def start_timeout(self) -> None:
        """Start the timeout. It does not include the time to connect to the server."""
        if self._timeout is not None:
            asyncio.get_running_loop().call_later(self._timeout, self._on_timeout)

    def _on_timeout(self) -> None:
        if not self._timeout_reached.done():
            self._timeout_reached.set_result(None)

    @contextmanager
    def handle_signals(self) -> Generator[None]:
        """Handle Ctrl-C and other fatal signals inside the context."""
        loop, command = asyncio.get_running_loop(), asyncio.current_task()
        assert command is not None  # noqa: S101 - called from a background task
        numbers = (signal.SIGINT, *fatal_signals())
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number, command)
        try:
            yield
        except asyncio.CancelledError as error:
            if self._stopped_by is None:
                raise
            raise typer.Exit(SIGNAL_EXIT_BASE + self._stopped_by) from error
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals, command: "asyncio.Task[Any]") -> None:
        redirect_dead_terminals()
        if not self._is_waiting:
            self._stopped_by = number
            # Abandon the current operation, such as cancelling a task of an unavailable server.
            command.cancel()
            return
        self._interrupts.put_nowait(number)
        if self._terminal is not None:
            self._terminal.abort()

    async def wait_for_server(self, work: Awaitable[T]) -> T:
        """Wait for the server. Ctrl-C ends the command, since nothing has been called yet."""
        try:
            return await self._wait(work, None)
        except WaitInterrupt as left:
            self._shown.close()
            echo_err("given up, before anything was called")
            raise typer.Exit(left.exit_code_without_task) from left

    async def wait_for_start(self, call: Awaitable[T]) -> T:
        """Wait for the response to the call itself. There is no task to resume yet.

        Raises:
            WaitInterrupt: the call was given up, and cancelled on the server.
        """
        return await self._wait(call, None)

    async def wait_for_result(self, handle: Handle) -> CallToolResult:
        """Wait for the result of a task.

        Raises:
            WaitInterrupt: the command stops waiting for it.
            And what `Handle.result` raises.
        """
        return await self._wait(self._follow(handle), handle)

    async def _follow(self, handle: Handle) -> CallToolResult:
        async with aclosing(follow_updates(handle)) as updates:
            async for update in updates:
                show_update(self._shown, update)
                if any(question.method != ELICITATION for question in update.questions):
                    # A question for a model, or for folders: this command can answer neither.
                    raise WaitInterrupt(ExitCode.NEEDS_INPUT)
        return await handle.result()

    async def _wait(self, work: Awaitable[T], handle: Handle | None) -> T:
        job = asyncio.ensure_future(work)
        self._is_waiting = True
        try:
            while True:
                interrupted = asyncio.ensure_future(self._interrupts.get())
                waiting: list[asyncio.Future[Any]] = [job, interrupted, self._asker.unanswered, self._timeout_reached]
                try:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    interrupted.cancel()
                if job.done():
                    return job.result()
                if interrupted.done() and not interrupted.cancelled():
                    await self._ask_while_running(job, self._ask_next_action(interrupted.result(), handle))
                elif self._asker.unanswered.done():
                    raise WaitInterrupt(ExitCode.NEEDS_INPUT)
                elif self._timeout_reached.done():
                    raise WaitInterrupt(ExitCode.STILL_RUNNING)
        finally:
            self._is_waiting = False
            job.cancel()
            await asyncio.wait([job])
            if not job.cancelled():
                # Retrieve the exception of work that ended meanwhile, since its outcome is not needed any more.
                job.exception()

    async def _ask_while_running(self, job: "asyncio.Future[T]", asking: Coroutine[Any, Any, None]) -> None:
        """Run the menu while the work is still running. The work's outcome takes precedence."""
        menu = asyncio.ensure_future(asking)
        try:
            await asyncio.wait([menu, job], return_when=asyncio.FIRST_COMPLETED)
        finally:
            menu.cancel()
            await asyncio.wait([menu])
        if not menu.cancelled() and not job.done():
            menu.result()

    async def _ask_next_action(self, number: signal.Signals, handle: Handle | None) -> None:
        """Ask what to do after a signal. Returns if the user wants to keep waiting."""
        if handle is None:
            raise WaitInterrupt(ExitCode.INTERRUPTED, SIGNAL_EXIT_BASE + number)
        if self._terminal is None or number is not signal.SIGINT:
            raise WaitInterrupt(ExitCode.STILL_RUNNING)
        async with self._terminal.prompt_lock:
            with self._shown.suspend():
                choice = await self._choose(self._terminal)
        if choice == "d":
            raise WaitInterrupt(ExitCode.STILL_RUNNING)
        if choice == "c":
            raise WaitInterrupt(ExitCode.INTERRUPTED)
        self._terminal.may_prompt.set()

    async def _choose(self, terminal: Terminal) -> str:
        terminal.print_line()
        while True:
            try:
                choice = (await terminal.ask(MENU)).lower()[:1]
            except (PromptInterrupt, EndOfInput):
                # Pressing Ctrl-C twice means to detach at once.
                return "d"
            if choice in ("", "d", "c"):
                return choice


class ClosableUI(Protocol):
    """The display and prompts of a call. It is closed before other output is printed."""

    prompter: ElicitationPrompter

    def close(self) -> None: ...


async def start_call(
    reporter: CallReporter, call: Awaitable[Handle], tool: str, ui: ClosableUI, saved_calls: DeferredSavedCalls
) -> Handle:
    """Wait until a call has become a task, or has its result. Otherwise exit with the reason."""
    try:
        return await call
    except (WaitInterrupt, ConfigurationError) as error:
        ui.close()
        if saved_calls.task_ref is not None:
            # The task exists, but saving its reference is in progress, or failed.
            await _report_unsaved(reporter, saved_calls, saved_calls.task_ref)
        if not isinstance(error, WaitInterrupt):
            raise
        reporter.fail_abandoned(tool, error.exit_code, ui.prompter, error.exit_code_without_task)
    except CallLost as error:
        ui.close()
        fail(explain_call_lost(reporter.target, error), as_json=reporter.as_json, exit_code=ExitCode.FAILED)
    except ServerUnreachable as error:
        ui.close()
        fail(explain_unreachable(reporter.target, error), as_json=reporter.as_json)
    except MCPError as error:
        ui.close()
        reporter.fail_with_error(tool, error)


async def _report_unsaved(manner: CallReporter, ledger: DeferredSavedCalls, slip: TaskRef) -> NoReturn:
    why = "it may not be saved"
    try:
        why = await ledger.wait_until_saved()
    finally:
        manner.report_running(slip)
        if why is not None:
            echo_err(
                f"{why}. Keep this task reference, with which TaskRef.load() resumes it: {redact_task_ref(slip).dump()}"
            )
    raise typer.Exit(ExitCode.STILL_RUNNING)


async def finish_call(
    reporter: CallReporter, result: Awaitable[CallToolResult], handle: Handle, ui: ClosableUI | None = None
) -> ExitCode:
    """Wait for a result, print it or report the outcome, then remove the saved call."""
    try:
        ending = await _conclude(reporter, result, handle, ui)
    except typer.Exit:
        await reporter.saved_calls.remove_ended()
        raise
    await reporter.saved_calls.remove_ended()
    return ending


async def _conclude(
    manner: CallReporter, result: Awaitable[CallToolResult], handle: Handle, scene: ClosableUI | None
) -> ExitCode:
    slip = task_ref_of(handle)
    try:
        try:
            found = await result
        finally:
            if scene is not None:
                scene.close()
        return print_result(found, as_json=manner.as_json)
    except WaitInterrupt as left:
        return await leave_task(manner, left.exit_code, handle, None if scene is None else scene.prompter)
    except TaskCancelled as error:
        fail(printable(str(error)), as_json=manner.as_json, exit_code=ExitCode.FAILED)
    except MCPError as error:
        manner.fail_with_error(slip.tool, error, slip)
    except TaskNotFound:
        manner.fail_not_found(slip)
    except ServerUnreachable as error:
        return manner.report_unreachable(slip, error)
    except InvalidResponse as error:
        fail(explain_unreachable(manner.target, error), as_json=manner.as_json)


async def leave_task(
    reporter: CallReporter, exit_code: ExitCode, handle: Handle, prompter: ElicitationPrompter | None
) -> ExitCode:
    """Stop waiting for a task, and report how to resume it. If an error occurs, the task can still be resumed."""
    slip = task_ref_of(handle)
    try:
        if exit_code is ExitCode.NEEDS_INPUT:
            await report_questions(reporter, handle, prompter)
            return exit_code
        if exit_code is ExitCode.INTERRUPTED:
            echo_err("cancelling it (Ctrl-C again leaves that undone)")
            reporter.report_cancelled(slip, await _stop(reporter, handle))
            return exit_code
    except TaskNotFound:
        reporter.fail_not_found(slip)
    except CancelRefused as refused:
        why = f"({printable(refused.reason)}): {printable(refused.why)}"
        reporter.report_running(slip, f"its workflow does not allow that {why}. ")
        return ExitCode.STILL_RUNNING
    except MCPError as error:
        reporter.report_running(slip, f"the server refuses that: {printable(error.error.message)}. ")
        return ExitCode.STILL_RUNNING
    except (ServerUnreachable, InvalidResponse) as error:
        return reporter.report_unreachable(slip, error)
    except asyncio.CancelledError as error:
        # The user pressed Ctrl-C again.
        reporter.report_running(slip, "left undone. ")
        raise typer.Exit(ExitCode.STILL_RUNNING) from error
    reporter.report_running(slip)
    return exit_code


async def report_questions(reporter: CallReporter, handle: Handle, prompter: ElicitationPrompter | None) -> None:
    """Print the task's questions, and how to answer them."""
    slip = task_ref_of(handle)
    update = await handle.poll()
    asked = [OpenInputRequest.from_question(question) for question in update.questions] if update is not None else []
    if not asked and prompter is not None and prompter.unanswered.done():
        asked = [OpenInputRequest.from_elicitation(prompter.unanswered.result())]
    if reporter.as_json:
        facts = {"task_id": slip.task_id, "status": "input_required", "questions": [one.to_json() for one in asked]}
        typer.echo(format_json(facts))
    echo_questions(slip.tool, asked, partial(reporter.follow_up_command, "answer", slip.task_id))
    echo_err(f"then: {reporter.follow_up_command('wait', slip.task_id)}")


async def cancel_and_report(reporter: CallReporter, handle: Handle) -> ExitCode:
    """Cancel a task, and report the outcome."""
    try:
        update = await _stop(reporter, handle)
    except CancelRefused as refused:
        return reporter.report_cancel_refused(task_ref_of(handle), await handle.poll(), refused)
    except MCPError as error:
        why = f"the server does not cancel it: {printable(error.error.message)}"
        fail(why, as_json=reporter.as_json, exit_code=ExitCode.FAILED)
    return reporter.report_cancelled(task_ref_of(handle), update)


async def _stop(manner: CallReporter, handle: Handle) -> Update:
    try:
        await handle.cancel()
    except MCPError:
        # Report a task that the server does not know as not found.
        await handle.poll()
        raise
    update = await handle.poll()
    assert update is not None  # noqa: S101 - the handle has a task
    if update.status is Status.CANCELLED:
        await manner.saved_calls.remove(task_ref_of(handle))
        await manner.saved_calls.remove_ended()
    return update
