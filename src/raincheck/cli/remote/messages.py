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
    """Return the reference of a task: only tasks can be detached from and resumed."""
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
        """Report how to come back to a task that continues."""
        if self.as_json:
            typer.echo(format_json(asdict(redact_task_ref(task_ref))))
        wait, cancel = (self.follow_up_command(command, task_ref.task_id) for command in ("wait", "cancel"))
        how = f"{wait} waits for it, {cancel} stops it"
        tool, name = printable(task_ref.tool), f"task {printable(task_ref.task_id)}"
        if self.target.ends_with_command:
            # Nothing runs the task until then.
            now = f"rests as {name}, since its server ends with this command"
            echo_err(f"{prefix}{tool} {now}: {how}. Either starts the server again.")
        else:
            echo_err(f"{prefix}{tool} goes on as {name}: {how}.")
        if self.target.has_secret:
            echo_err("what is secret in its server's address is not kept: give that again then, by --server URL")

    def report_unreachable(self, slip: TaskRef, error: ServerUnreachable | InvalidResponse) -> ExitCode:
        """Report how to come back to a task whose server is unavailable, or responds with invalid data."""
        hope = "" if self.target.ends_with_command else "Its task may well go on. "
        self.report_running(slip, f"{explain_unreachable(self.target, error)}\n{hope}")
        return ExitCode.STILL_RUNNING

    def report_cancelled(self, slip: TaskRef, update: Update) -> ExitCode:
        """Report whether a task has stopped."""
        if self.as_json:
            typer.echo(format_json({"task_id": slip.task_id, "status": str(update.status)}))
        name = f"task {format_id(slip.task_id)}"
        if update.status is Status.CANCELLED:
            echo_err(f"{name} is cancelled")
            return ExitCode.SUCCESS
        if update.is_ended:
            echo_err(
                f"{name} had ended before ({update.status}): {self.follow_up_command('wait', slip.task_id)} shows it"
            )
            return ExitCode.FAILED
        echo_err(f"{name} is asked to stop: {self.follow_up_command('get', slip.task_id)} shows whether it has")
        return ExitCode.SUCCESS

    def report_cancel_refused(self, slip: TaskRef, update: Update | None, refused: CancelRefused) -> ExitCode:
        """Report why a task is not cancelled."""
        if self.as_json:
            status = None if update is None else str(update.status)
            why = {"reason": refused.reason, "message": refused.why}
            typer.echo(format_json({"task_id": slip.task_id, "status": status, "refused": why}))
        reason, why = printable(refused.reason), printable(refused.why)
        echo_err(f"task {format_id(slip.task_id)} can't be cancelled ({reason}): {why}. It goes on")
        return ExitCode.FAILED

    def fail_abandoned(self, tool: str, reason: ExitCode, prompter: ElicitationPrompter, exit_code: int) -> NoReturn:
        """Exit after a call that is no task was given up. It can't be resumed, so it is cancelled."""
        if reason is ExitCode.NEEDS_INPUT:
            asked = printable(prompter.unanswered.result().message)
            why = f"{printable(tool)} asks: {asked}. There is no terminal to ask at, and no task that could wait: "
            fail(f"{why}call it at a terminal", as_json=self.as_json, exit_code=ExitCode.FAILED)
        is_told = reason is ExitCode.INTERRUPTED
        why = f"{printable(tool)} is given up{'' if is_told else ': there was no answer in time'}. It was no task yet"
        fail(
            f"{why}, so the call is cancelled",
            as_json=self.as_json,
            exit_code=exit_code if is_told else ExitCode.FAILED,
        )

    def fail_with_error(self, tool: str, error: MCPError, slip: TaskRef | None = None) -> NoReturn:
        """Exit with the server's error."""
        why = f"{printable(tool)} failed: {printable(error.error.message)} ({error.error.code})"
        why += (
            explain_tool_exception(slip)
            if self.target.ends_with_command and is_tool_exception(error)
            else format_server_output(self.target)
        )
        fail(why, as_json=self.as_json, exit_code=ExitCode.FAILED)

    def fail_not_found(self, slip: TaskRef) -> NoReturn:
        """Exit because the task does not exist on the server."""
        fail(
            f"{self.target.display_name} does not know task {printable(slip.task_id)}, or not for you: it may be over "
            f"for long, or want the --header that it was called with, or the --server with what was secret in it. "
            f"{self.follow_up_command('wait', slip.task_id, '--forget')} removes it from the saved calls",
            as_json=self.as_json,
        )
