"""In which words a command speaks of a call: how to come back to it, why it failed, whether it has stopped."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import typer
from mcp.shared.exceptions import MCPError

from raincheck.cli.exit_codes import Ending, refuse, tell
from raincheck.cli.prompts.questions import Asker
from raincheck.cli.remote.connect import explain_lost, explain_raised, is_raised, said_by
from raincheck.cli.remote.saved_calls import Ledger, shown_slip
from raincheck.cli.remote.target import Target
from raincheck.client import BadAnswer, Handle, ServerUnreachable, Slip, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused
from raincheck.operations.describe import json_of, printable, told_id, typed


def slip_of(handle: Handle) -> Slip:
    """The slip of a task: only tasks can be left, or come back to."""
    assert handle.slip is not None  # noqa: S101 - it is one
    return handle.slip


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How to speak of a call."""

    target: Target
    book: Ledger
    named_book: Path | None
    """The book, where it has to be named again."""
    as_json: bool

    def again(self, command: str, task_id: str, *options: str) -> str:
        """What to type to go on with a task."""
        named = [] if self.named_book is None else ["--book", str(self.named_book)]
        return typed(command, task_id, *named, *options)

    def go_on(self, slip: Slip, why: str = "") -> None:
        """Say how to come back to a task."""
        if self.as_json:
            typer.echo(json_of(asdict(shown_slip(slip))))
        wait, cancel = (self.again(command, slip.task_id) for command in ("wait", "cancel"))
        how = f"{wait} waits for it, {cancel} stops it"
        tool, name = printable(slip.tool), f"task {printable(slip.task_id)}"
        if self.target.ends_with_us:
            # Nothing runs it until then.
            now = f"rests as {name}, since its server ends with this command"
            tell(f"{why}{tool} {now}: {how}. Either starts the server again.")
        else:
            tell(f"{why}{tool} goes on as {name}: {how}.")
        if self.target.has_secret:
            tell("what is secret in its server's address is not kept: give that again then, by --server URL")

    def go_on_lost(self, slip: Slip, error: ServerUnreachable | BadAnswer) -> Ending:
        """Say how to come back to a task whose server is away, or out of its mind."""
        hope = "" if self.target.ends_with_us else "Its task may well go on. "
        self.go_on(slip, f"{explain_lost(self.target, error)}\n{hope}")
        return Ending.GOES_ON

    def tell_cancelled(self, slip: Slip, update: Update) -> Ending:
        """Say whether a task has stopped."""
        if self.as_json:
            typer.echo(json_of({"task_id": slip.task_id, "status": str(update.status)}))
        name = f"task {told_id(slip.task_id)}"
        if update.status is Status.CANCELLED:
            tell(f"{name} is cancelled")
            return Ending.DONE
        if update.is_ended:
            tell(f"{name} had ended before ({update.status}): {self.again('wait', slip.task_id)} shows it")
            return Ending.FAILED
        tell(f"{name} is asked to stop: {self.again('get', slip.task_id)} shows whether it has")
        return Ending.DONE

    def tell_refused(self, slip: Slip, update: Update | None, refused: CancelRefused) -> Ending:
        """Say why a task is not cancelled."""
        if self.as_json:
            status = None if update is None else str(update.status)
            why = {"reason": refused.reason, "message": refused.why}
            typer.echo(json_of({"task_id": slip.task_id, "status": status, "refused": why}))
        reason, why = printable(refused.reason), printable(refused.why)
        tell(f"task {told_id(slip.task_id)} can't be cancelled ({reason}): {why}. It goes on")
        return Ending.FAILED

    def give_up(self, tool: str, ending: Ending, asker: Asker, code: int) -> NoReturn:
        """A call that is no task can't be come back to: it is cancelled."""
        if ending is Ending.ASKS:
            asked = printable(asker.left_open.result().message)
            why = f"{printable(tool)} asks: {asked}. There is no terminal to ask at, and no task that could wait: "
            refuse(f"{why}call it at a terminal", as_json=self.as_json, ending=Ending.FAILED)
        is_told = ending is Ending.INTERRUPTED
        why = f"{printable(tool)} is given up{'' if is_told else ': there was no answer in time'}. It was no task yet"
        refuse(f"{why}, so the call is cancelled", as_json=self.as_json, ending=code if is_told else Ending.FAILED)

    def fail(self, tool: str, error: MCPError, slip: Slip | None = None) -> NoReturn:
        """End with what the server says."""
        why = f"{printable(tool)} failed: {printable(error.error.message)} ({error.error.code})"
        why += explain_raised(slip) if self.target.ends_with_us and is_raised(error) else said_by(self.target)
        refuse(why, as_json=self.as_json, ending=Ending.FAILED)

    def not_found(self, slip: Slip) -> NoReturn:
        """End with a task that is not there."""
        refuse(
            f"{self.target.shown} does not know task {printable(slip.task_id)}, or not for you: it may be over for "
            f"long, or want the --header that it was called with, or the --server with what was secret in it. "
            f"{self.again('wait', slip.task_id, '--forget')} strikes it off the book",
            as_json=self.as_json,
        )
