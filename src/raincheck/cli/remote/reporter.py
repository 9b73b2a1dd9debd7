"""Report the outcome of a call: its result or error, or a task that keeps running and how to resume it."""

import asyncio
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from typing import NoReturn

import typer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.cli.exit_codes import ExitCode, echo_err, fail
from raincheck.cli.options import ConnectionOptions
from raincheck.cli.output.results import print_result
from raincheck.cli.prompts.questions import ElicitationPrompter, OpenInputRequest
from raincheck.cli.remote.monitor import CallMonitor, WaitInterrupt
from raincheck.cli.remote.saved_calls import DeferredSavedCalls, redact_task_ref
from raincheck.cli.remote.target import CallTarget
from raincheck.client import (
    CallLost,
    Handle,
    InvalidResponse,
    ResponseTooLarge,
    ServerUnreachable,
    TaskCancelled,
    TaskRef,
    Update,
)
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused, ConfigurationError, TaskNotFound
from raincheck.operations.describe import format_command, format_id, format_json, printable
from raincheck.wire.fields import as_object


def task_ref_of(handle: Handle) -> TaskRef:
    """Return the reference of a task: only tasks can be resumed."""
    assert handle.task_ref is not None  # noqa: S101 - the call is a task
    return handle.task_ref


@dataclass(frozen=True, slots=True)
class CallReporter:
    """Reports the outcome of a call on the terminal or as JSON."""

    target: CallTarget
    saved_calls: DeferredSavedCalls
    options: ConnectionOptions

    def follow_up_command(self, command: str, task_id: str, *options: str) -> str:
        """Return the command with which the user continues with a task."""
        path = self.options.calls_path
        named = [] if path is None else ["--calls", str(path)]
        return format_command(command, task_id, *named, *options)

    async def start(self, call: Awaitable[Handle], monitor: CallMonitor) -> Handle:
        """Wait until a call has become a task, or has its result. Otherwise exit with the reason."""
        try:
            return await monitor.wait_for_start(call)
        except (WaitInterrupt, ConfigurationError) as error:
            if self.saved_calls.task_ref is not None:
                # The task exists, but saving its reference is in progress, or failed.
                await self._report_unsaved(self.saved_calls.task_ref)
            if not isinstance(error, WaitInterrupt):
                raise
            self._fail_abandoned(error, monitor)
        except CallLost as error:
            self._fail(self.target.explain_lost(error))
        except ServerUnreachable as error:
            fail(self.target.explain_unreachable(error), as_json=self.options.as_json)
        except MCPError as error:
            self.fail_with_error(monitor.tool, error)

    async def _report_unsaved(self, task_ref: TaskRef) -> NoReturn:
        reason = "the call may not be saved"
        try:
            reason = await self.saved_calls.wait_until_saved()
        finally:
            self.report_running(task_ref)
            if reason is not None:
                reference = redact_task_ref(task_ref).dump()
                echo_err(f"{reason}. Store this task reference, which TaskRef.load() reads: {reference}")
        raise typer.Exit(ExitCode.STILL_RUNNING)

    def _fail_abandoned(self, interrupt: WaitInterrupt, monitor: CallMonitor) -> NoReturn:
        """Exit after a call that is no task was given up. The call can't be resumed, so it is cancelled."""
        tool = printable(monitor.tool)
        if interrupt.exit_code is ExitCode.NEEDS_INPUT:
            question = printable(monitor.prompter.unanswered.result().message)
            self._fail(
                f"{tool} asks: {question}. There is no terminal to ask at, and the call is not a task that could wait: "
                f"call it at a terminal"
            )
        is_interrupted = interrupt.exit_code is ExitCode.INTERRUPTED
        self._fail(
            f"{tool} {'was interrupted' if is_interrupted else 'did not respond in time'}. "
            f"It was not a task yet, so the call is cancelled",
            interrupt.exit_code_without_task if is_interrupted else ExitCode.FAILED,
        )

    async def finish(
        self, result: Awaitable[CallToolResult], handle: Handle, prompter: ElicitationPrompter | None = None
    ) -> ExitCode:
        """Wait for a result, print it or report the outcome, then remove the saved call."""
        try:
            exit_code = await self._conclude(result, handle, prompter)
        except typer.Exit:
            await self.saved_calls.remove_ended()
            raise
        await self.saved_calls.remove_ended()
        return exit_code

    async def _conclude(
        self, result: Awaitable[CallToolResult], handle: Handle, prompter: ElicitationPrompter | None
    ) -> ExitCode:
        task_ref = task_ref_of(handle)
        try:
            return print_result(await result, as_json=self.options.as_json)
        except WaitInterrupt as interrupt:
            return await self._leave(handle, interrupt.exit_code, prompter)
        except TaskCancelled as error:
            self._fail(printable(str(error)))
        except MCPError as error:
            self.fail_with_error(task_ref.tool, error, task_ref)
        except TaskNotFound:
            self.fail_not_found(task_ref)
        except ServerUnreachable as error:
            return self.report_unreachable(task_ref, error)
        except InvalidResponse as error:
            fail(self.target.explain_unreachable(error), as_json=self.options.as_json)
        except ResponseTooLarge as error:
            again = self.follow_up_command("wait", task_ref.task_id, "--max-response-bytes", "BYTES")
            fail(f"{error}. The server still has it: {again} reads it", as_json=self.options.as_json)

    async def _leave(self, handle: Handle, exit_code: ExitCode, prompter: ElicitationPrompter | None) -> ExitCode:
        """Stop waiting for a task, and report how to resume it. If an error occurs, it is reported too."""
        task_ref = task_ref_of(handle)
        try:
            if exit_code is ExitCode.NEEDS_INPUT:
                await self.report_questions(handle, prompter)
                return exit_code
            if exit_code is ExitCode.INTERRUPTED:
                echo_err("cancelling the task (Ctrl-C again gives that up)")
                self._report_cancelled(task_ref, await self._stop(handle))
                return exit_code
        except TaskNotFound:
            self.fail_not_found(task_ref)
        except CancelRefused as refused:
            reason = f"({printable(refused.reason)}): {printable(refused.explanation)}"
            self.report_running(task_ref, f"its workflow does not allow it to be cancelled {reason}. ")
            return ExitCode.STILL_RUNNING
        except MCPError as error:
            self.report_running(task_ref, f"the server refused the request: {printable(error.error.message)}. ")
            return ExitCode.STILL_RUNNING
        except (ServerUnreachable, InvalidResponse) as error:
            return self.report_unreachable(task_ref, error)
        except asyncio.CancelledError as error:
            # The user pressed Ctrl-C again.
            self.report_running(task_ref, "not cancelled. ")
            raise typer.Exit(ExitCode.STILL_RUNNING) from error
        self.report_running(task_ref)
        return exit_code

    def report_running(self, task_ref: TaskRef, prefix: str = "") -> None:
        """Report how to resume a task that continues."""
        if self.options.as_json:
            typer.echo(format_json(asdict(redact_task_ref(task_ref))))
        wait, cancel = (self.follow_up_command(command, task_ref.task_id) for command in ("wait", "cancel"))
        hint = f"{wait} waits for it, {cancel} cancels it"
        tool, name = printable(task_ref.tool), f"task {printable(task_ref.task_id)}"
        if self.target.ends_with_command:
            # No server runs the task until then.
            state = f"is stored as {name}, but its server ends with this command"
            echo_err(f"{prefix}{tool} {state}: {hint}. Both start the server again.")
        else:
            echo_err(f"{prefix}{tool} keeps running as {name}: {hint}.")
        if self.target.has_secret:
            echo_err("the secrets in the server's address are not saved: give the address again, with --server URL")

    def report_unreachable(self, task_ref: TaskRef, error: ServerUnreachable | InvalidResponse) -> ExitCode:
        """Report how to resume a task whose server is unavailable, or responds with invalid data."""
        note = "" if self.target.ends_with_command else "The task may still be running. "
        self.report_running(task_ref, f"{self.target.explain_unreachable(error)}\n{note}")
        return ExitCode.STILL_RUNNING

    async def report_questions(self, handle: Handle, prompter: ElicitationPrompter | None = None) -> None:
        """Print the task's questions, and how to answer them."""
        task_ref = task_ref_of(handle)
        update = await handle.poll()
        requests = [] if update is None else [OpenInputRequest.from_question(question) for question in update.questions]
        if not requests and prompter is not None and prompter.unanswered.done():
            requests = [OpenInputRequest.from_elicitation(prompter.unanswered.result())]
        if self.options.as_json:
            questions = [asdict(request) for request in requests]
            facts = {"task_id": task_ref.task_id, "status": "input_required", "questions": questions}
            typer.echo(format_json(facts))
        for request in requests:
            echo_err(f"{printable(task_ref.tool)} asks: {printable(request.message)}")
            if request.url is not None:
                echo_err(f"  open {printable(request.url)}")
            fields = request.describe_fields()
            for field in fields:
                echo_err(f"  {printable(field)}")
            key = ["--key", request.key] if len(requests) > 1 and request.key is not None else []
            command = self.follow_up_command("answer", task_ref.task_id, *key)
            echo_err(f"answer with: {command}{' name=value …' if fields else ''} (or --decline)")
        echo_err(f"then: {self.follow_up_command('wait', task_ref.task_id)}")

    async def cancel(self, handle: Handle) -> ExitCode:
        """Cancel a task, and report the outcome."""
        try:
            update = await self._stop(handle)
        except CancelRefused as refused:
            return self._report_cancel_refused(task_ref_of(handle), await handle.poll(), refused)
        except MCPError as error:
            self._fail(f"the server refused to cancel the task: {printable(error.error.message)}")
        return self._report_cancelled(task_ref_of(handle), update)

    async def _stop(self, handle: Handle) -> Update:
        try:
            await handle.cancel()
        except MCPError:
            # Report a task that the server does not know as not found.
            await handle.poll()
            raise
        update = await handle.poll()
        assert update is not None  # noqa: S101 - the handle has a task
        if update.status is Status.CANCELLED:
            await self.saved_calls.remove(task_ref_of(handle))
            await self.saved_calls.remove_ended()
        return update

    def _report_cancelled(self, task_ref: TaskRef, update: Update) -> ExitCode:
        """Report whether a task has stopped."""
        if self.options.as_json:
            typer.echo(format_json({"task_id": task_ref.task_id, "status": str(update.status)}))
        name = f"task {format_id(task_ref.task_id)}"
        if update.status is Status.CANCELLED:
            echo_err(f"{name} is cancelled")
            return ExitCode.SUCCESS
        if update.is_ended:
            wait = self.follow_up_command("wait", task_ref.task_id)
            echo_err(f"{name} had already ended ({update.status}): {wait} shows its outcome")
            return ExitCode.FAILED
        echo_err(f"{name} was asked to stop: {self.follow_up_command('get', task_ref.task_id)} shows whether it has")
        return ExitCode.SUCCESS

    def _report_cancel_refused(self, task_ref: TaskRef, update: Update | None, refused: CancelRefused) -> ExitCode:
        """Report why a task is not cancelled."""
        if self.options.as_json:
            status = None if update is None else str(update.status)
            detail = {"reason": refused.reason, "message": refused.explanation}
            typer.echo(format_json({"task_id": task_ref.task_id, "status": status, "refused": detail}))
        reason, explanation = printable(refused.reason), printable(refused.explanation)
        echo_err(f"task {format_id(task_ref.task_id)} can't be cancelled ({reason}): {explanation}. It continues")
        return ExitCode.FAILED

    def fail_with_error(self, tool: str, error: MCPError, task_ref: TaskRef | None = None) -> NoReturn:
        """Exit with the server's error."""
        message = f"{printable(tool)} failed: {printable(error.error.message)} ({error.error.code})"
        # A raincheck server reports an exception of a tool so, and shows its details only to its operator.
        is_tool_exception = "errorId" in as_object(error.error.data)
        if not self.target.ends_with_command or not is_tool_exception:
            message += self.target.format_stderr()
        elif task_ref is None:
            message += "\n--verbose shows the exception"
        else:
            show = f"{format_command('tasks show', task_ref.task_id)} --store …"
            message += f"\n{show}, with the server's store, shows the exception. So does --verbose while the tool runs"
        self._fail(message)

    def fail_not_found(self, task_ref: TaskRef) -> NoReturn:
        """Exit because the server does not know the task."""
        fail(
            f"{self.target.display_name} does not know task {printable(task_ref.task_id)}, or you may not see it: it "
            f"may have expired, or require the --header of the call, or --server with the secrets in the address. "
            f"{self.follow_up_command('wait', task_ref.task_id, '--forget')} removes it from the saved calls",
            as_json=self.options.as_json,
        )

    def _fail(self, message: str, exit_code: int = ExitCode.FAILED) -> NoReturn:
        fail(message, as_json=self.options.as_json, exit_code=exit_code)
