"""Messages of commands about a call: how to resume it, why it failed, whether it has stopped."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import typer
from mcp.shared.exceptions import MCPError

from raincheck.cli.exit_codes import ExitCode, echo_err, fail
from raincheck.cli.prompts.questions import ElicitationPrompter
from raincheck.cli.remote.connect import (
    explain_tool_exception,
    explain_unreachable,
    format_server_output,
    is_tool_exception,
)
from raincheck.cli.remote.saved_calls import DeferredSavedCalls, redact_task_ref
from raincheck.cli.remote.target import CallTarget
from raincheck.client import Handle, InvalidResponse, ServerUnreachable, TaskRef, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused
from raincheck.operations.describe import format_command, format_id, format_json, printable


def task_ref_of(handle: Handle) -> TaskRef:
    """Return the reference of a task: only tasks can be resumed."""
    assert handle.task_ref is not None  # noqa: S101 - the call is a task
    return handle.task_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReporter:
    """Reports the state of a call on the terminal or as JSON."""

    target: CallTarget
    saved_calls: DeferredSavedCalls
    calls_path: Path | None
    """The file of saved calls, if a follow-up command has to name it."""
    as_json: bool

    def follow_up_command(self, command: str, task_id: str, *options: str) -> str:
        """Return the command with which the user continues with a task."""
        named = [] if self.calls_path is None else ["--calls", str(self.calls_path)]
        return format_command(command, task_id, *named, *options)

    def report_running(self, task_ref: TaskRef, prefix: str = "") -> None:
        """Report how to resume a task that continues."""
        if self.as_json:
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
        self.report_running(task_ref, f"{explain_unreachable(self.target, error)}\n{note}")
        return ExitCode.STILL_RUNNING

    def report_cancelled(self, task_ref: TaskRef, update: Update) -> ExitCode:
        """Report whether a task has stopped."""
        if self.as_json:
            typer.echo(format_json({"task_id": task_ref.task_id, "status": str(update.status)}))
        name = f"task {format_id(task_ref.task_id)}"
        if update.status is Status.CANCELLED:
            echo_err(f"{name} is cancelled")
            return ExitCode.SUCCESS
        if update.is_ended:
            echo_err(
                f"{name} had already ended ({update.status}): "
                f"{self.follow_up_command('wait', task_ref.task_id)} shows its outcome"
            )
            return ExitCode.FAILED
        echo_err(f"{name} was asked to stop: {self.follow_up_command('get', task_ref.task_id)} shows whether it has")
        return ExitCode.SUCCESS

    def report_cancel_refused(self, task_ref: TaskRef, update: Update | None, refused: CancelRefused) -> ExitCode:
        """Report why a task is not cancelled."""
        if self.as_json:
            status = None if update is None else str(update.status)
            detail = {"reason": refused.reason, "message": refused.explanation}
            typer.echo(format_json({"task_id": task_ref.task_id, "status": status, "refused": detail}))
        reason, explanation = printable(refused.reason), printable(refused.explanation)
        echo_err(f"task {format_id(task_ref.task_id)} can't be cancelled ({reason}): {explanation}. It continues")
        return ExitCode.FAILED

    def fail_abandoned(self, tool: str, reason: ExitCode, prompter: ElicitationPrompter, exit_code: int) -> NoReturn:
        """Exit after a call that is no task was given up. The call can't be resumed, so it is cancelled."""
        if reason is ExitCode.NEEDS_INPUT:
            question = printable(prompter.unanswered.result().message)
            fail(
                f"{printable(tool)} asks: {question}. There is no terminal to ask at, and the call is not a task that "
                f"could wait: call it at a terminal",
                as_json=self.as_json,
                exit_code=ExitCode.FAILED,
            )
        is_interrupted = reason is ExitCode.INTERRUPTED
        fail(
            f"{printable(tool)} {'was interrupted' if is_interrupted else 'did not respond in time'}. "
            f"It was not a task yet, so the call is cancelled",
            as_json=self.as_json,
            exit_code=exit_code if is_interrupted else ExitCode.FAILED,
        )

    def fail_with_error(self, tool: str, error: MCPError, task_ref: TaskRef | None = None) -> NoReturn:
        """Exit with the server's error."""
        message = f"{printable(tool)} failed: {printable(error.error.message)} ({error.error.code})"
        message += (
            explain_tool_exception(task_ref)
            if self.target.ends_with_command and is_tool_exception(error)
            else format_server_output(self.target)
        )
        fail(message, as_json=self.as_json, exit_code=ExitCode.FAILED)

    def fail_not_found(self, task_ref: TaskRef) -> NoReturn:
        """Exit because the server does not know the task."""
        fail(
            f"{self.target.display_name} does not know task {printable(task_ref.task_id)}, or you may not see it: it "
            f"may "
            f"have expired, or require the --header of the call, or --server with the secrets in the address. "
            f"{self.follow_up_command('wait', task_ref.task_id, '--forget')} removes it from the saved calls",
            as_json=self.as_json,
        )
