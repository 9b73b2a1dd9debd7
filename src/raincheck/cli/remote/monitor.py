"""Monitor a call until it ends, times out, asks a question that can't be answered here, or the user presses Ctrl-C.

Then report the outcome: a result, a task that keeps running, or a cancelled task.
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

MENU = "[d]etach and come back later, [c]ancel the task, or Enter to keep waiting:"


def follow_updates(handle: Handle) -> AsyncGenerator[Update]:
    """Return the task's updates. The caller closes the generator if it stops before the end."""
    return cast("AsyncGenerator[Update]", aiter(handle))


class WaitInterrupt(Exception):
    """The command stops waiting for the call. The exit code gives the reason."""

    def __init__(self, exit_code: ExitCode, exit_code_without_task: int | None = None) -> None:
        super().__init__(exit_code.name)
        self.exit_code = exit_code
        self.exit_code_without_task = exit_code if exit_code_without_task is None else exit_code_without_task
        """The exit code if there is no task to detach from."""


class CallMonitor:
    """Waits for the server, the call and its result, and handles the timeout, questions and Ctrl-C."""

    def __init__(
        self, display: ProgressDisplay, prompter: ElicitationPrompter, terminal: Terminal | None, timeout: float | None
    ) -> None:
        self._display = display
        self._prompter = prompter
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
            # Give up the current operation, such as cancelling a task of an unavailable server.
            command.cancel()
            return
        self._interrupts.put_nowait(number)
        if self._terminal is not None:
            self._terminal.abort()

    async def wait_for_server(self, work: Awaitable[T]) -> T:
        """Wait for the server. Ctrl-C ends the command, since nothing has been called yet."""
        try:
            return await self._wait(work, None)
        except WaitInterrupt as interrupt:
            self._display.close()
            echo_err("interrupted before the tool was called")
            raise typer.Exit(interrupt.exit_code_without_task) from interrupt

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
            And the errors of `Handle.result`.
        """
        return await self._wait(self._follow(handle), handle)

    async def _follow(self, handle: Handle) -> CallToolResult:
        async with aclosing(follow_updates(handle)) as updates:
            async for update in updates:
                show_update(self._display, update)
                if any(question.method != ELICITATION for question in update.questions):
                    # A question for a model, or for a list of folders: this command can answer neither.
                    raise WaitInterrupt(ExitCode.NEEDS_INPUT)
        return await handle.result()

    async def _wait(self, work: Awaitable[T], handle: Handle | None) -> T:
        running = asyncio.ensure_future(work)
        self._is_waiting = True
        try:
            while True:
                interrupted = asyncio.ensure_future(self._interrupts.get())
                waiting: list[asyncio.Future[Any]] = [
                    running,
                    interrupted,
                    self._prompter.unanswered,
                    self._timeout_reached,
                ]
                try:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    interrupted.cancel()
                if running.done():
                    return running.result()
                if interrupted.done() and not interrupted.cancelled():
                    await self._ask_while_running(running, self._ask_next_action(interrupted.result(), handle))
                elif self._prompter.unanswered.done():
                    raise WaitInterrupt(ExitCode.NEEDS_INPUT)
                elif self._timeout_reached.done():
                    raise WaitInterrupt(ExitCode.STILL_RUNNING)
        finally:
            self._is_waiting = False
            running.cancel()
            await asyncio.wait([running])
            if not running.cancelled():
                # Retrieve the exception of work that has ended by now, since its outcome is no longer needed.
                running.exception()

    async def _ask_while_running(self, running: "asyncio.Future[T]", show_menu: Coroutine[Any, Any, None]) -> None:
        """Run the menu while the work is still running. The work's outcome takes precedence."""
        menu = asyncio.ensure_future(show_menu)
        try:
            await asyncio.wait([menu, running], return_when=asyncio.FIRST_COMPLETED)
        finally:
            menu.cancel()
            await asyncio.wait([menu])
        if not menu.cancelled() and not running.done():
            menu.result()

    async def _ask_next_action(self, number: signal.Signals, handle: Handle | None) -> None:
        """Ask what to do after a signal. Returns if the user wants to keep waiting."""
        if handle is None:
            raise WaitInterrupt(ExitCode.INTERRUPTED, SIGNAL_EXIT_BASE + number)
        if self._terminal is None or number is not signal.SIGINT:
            raise WaitInterrupt(ExitCode.STILL_RUNNING)
        async with self._terminal.prompt_lock:
            with self._display.suspend():
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
                # A second Ctrl-C detaches at once.
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


async def _report_unsaved(reporter: CallReporter, saved_calls: DeferredSavedCalls, task_ref: TaskRef) -> NoReturn:
    reason = "the call may not be saved"
    try:
        reason = await saved_calls.wait_until_saved()
    finally:
        reporter.report_running(task_ref)
        if reason is not None:
            echo_err(
                f"{reason}. Store this task reference, which TaskRef.load() reads: {redact_task_ref(task_ref).dump()}"
            )
    raise typer.Exit(ExitCode.STILL_RUNNING)


async def finish_call(
    reporter: CallReporter, result: Awaitable[CallToolResult], handle: Handle, ui: ClosableUI | None = None
) -> ExitCode:
    """Wait for a result, print it or report the outcome, then remove the saved call."""
    try:
        exit_code = await _conclude(reporter, result, handle, ui)
    except typer.Exit:
        await reporter.saved_calls.remove_ended()
        raise
    await reporter.saved_calls.remove_ended()
    return exit_code


async def _conclude(
    reporter: CallReporter, result: Awaitable[CallToolResult], handle: Handle, ui: ClosableUI | None
) -> ExitCode:
    task_ref = task_ref_of(handle)
    try:
        try:
            tool_result = await result
        finally:
            if ui is not None:
                ui.close()
        return print_result(tool_result, as_json=reporter.as_json)
    except WaitInterrupt as interrupt:
        return await leave_task(reporter, interrupt.exit_code, handle, None if ui is None else ui.prompter)
    except TaskCancelled as error:
        fail(printable(str(error)), as_json=reporter.as_json, exit_code=ExitCode.FAILED)
    except MCPError as error:
        reporter.fail_with_error(task_ref.tool, error, task_ref)
    except TaskNotFound:
        reporter.fail_not_found(task_ref)
    except ServerUnreachable as error:
        return reporter.report_unreachable(task_ref, error)
    except InvalidResponse as error:
        fail(explain_unreachable(reporter.target, error), as_json=reporter.as_json)


async def leave_task(
    reporter: CallReporter, exit_code: ExitCode, handle: Handle, prompter: ElicitationPrompter | None
) -> ExitCode:
    """Stop waiting for a task, and report how to resume it. If an error occurs, it is reported too."""
    task_ref = task_ref_of(handle)
    try:
        if exit_code is ExitCode.NEEDS_INPUT:
            await report_questions(reporter, handle, prompter)
            return exit_code
        if exit_code is ExitCode.INTERRUPTED:
            echo_err("cancelling the task (Ctrl-C again gives that up)")
            reporter.report_cancelled(task_ref, await _stop(reporter, handle))
            return exit_code
    except TaskNotFound:
        reporter.fail_not_found(task_ref)
    except CancelRefused as refused:
        reason = f"({printable(refused.reason)}): {printable(refused.explanation)}"
        reporter.report_running(task_ref, f"its workflow does not allow it to be cancelled {reason}. ")
        return ExitCode.STILL_RUNNING
    except MCPError as error:
        reporter.report_running(task_ref, f"the server refused the request: {printable(error.error.message)}. ")
        return ExitCode.STILL_RUNNING
    except (ServerUnreachable, InvalidResponse) as error:
        return reporter.report_unreachable(task_ref, error)
    except asyncio.CancelledError as error:
        # The user pressed Ctrl-C again.
        reporter.report_running(task_ref, "not cancelled. ")
        raise typer.Exit(ExitCode.STILL_RUNNING) from error
    reporter.report_running(task_ref)
    return exit_code


async def report_questions(reporter: CallReporter, handle: Handle, prompter: ElicitationPrompter | None) -> None:
    """Print the task's questions, and how to answer them."""
    task_ref = task_ref_of(handle)
    update = await handle.poll()
    requests = [OpenInputRequest.from_question(question) for question in update.questions] if update is not None else []
    if not requests and prompter is not None and prompter.unanswered.done():
        requests = [OpenInputRequest.from_elicitation(prompter.unanswered.result())]
    if reporter.as_json:
        facts = {
            "task_id": task_ref.task_id,
            "status": "input_required",
            "questions": [request.to_json() for request in requests],
        }
        typer.echo(format_json(facts))
    echo_questions(task_ref.tool, requests, partial(reporter.follow_up_command, "answer", task_ref.task_id))
    echo_err(f"then: {reporter.follow_up_command('wait', task_ref.task_id)}")


async def cancel_and_report(reporter: CallReporter, handle: Handle) -> ExitCode:
    """Cancel a task, and report the outcome."""
    try:
        update = await _stop(reporter, handle)
    except CancelRefused as refused:
        return reporter.report_cancel_refused(task_ref_of(handle), await handle.poll(), refused)
    except MCPError as error:
        message = f"the server refused to cancel the task: {printable(error.error.message)}"
        fail(message, as_json=reporter.as_json, exit_code=ExitCode.FAILED)
    return reporter.report_cancelled(task_ref_of(handle), update)


async def _stop(reporter: CallReporter, handle: Handle) -> Update:
    try:
        await handle.cancel()
    except MCPError:
        # Report a task that the server does not know as not found.
        await handle.poll()
        raise
    update = await handle.poll()
    assert update is not None  # noqa: S101 - the handle has a task
    if update.status is Status.CANCELLED:
        await reporter.saved_calls.remove(task_ref_of(handle))
        await reporter.saved_calls.remove_ended()
    return update
