"""What a command says of a call in the end, whichever way that comes."""

import json
import shlex
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn, Protocol

import typer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.cli.endings import Ending, refuse, tell
from raincheck.cli.following import Left
from raincheck.cli.open_questions import Asked, tell_questions
from raincheck.cli.questions import Asker
from raincheck.cli.reaching import explain_broken, explain_lost, said_by
from raincheck.cli.results import print_result
from raincheck.cli.targets import Target
from raincheck.cli.plain import printable, told_id
from raincheck.client import BadAnswer, CallLost, Handle, ServerUnreachable, Slip, TaskBook, TaskCancelled
from raincheck.core.lifecycle import Status
from raincheck.errors import TaskNotFound


class Closing(Protocol):
    """Where a call is shown and asked about. It is closed before anything else is printed."""

    asker: Asker

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How to speak of a call."""

    target: Target
    book: TaskBook
    named_book: Path | None
    """The book, where it has to be named again."""
    as_json: bool

    def again(self, command: str, task_id: str) -> str:
        """What to type to go on with a task."""
        named = "" if self.named_book is None else f" --book {shlex.quote(str(self.named_book))}"
        return f"raincheck {command} {told_id(task_id)}{named}"

    async def begun(self, beginning: Awaitable[Handle], tool: str, scene: "Closing") -> Handle:
        """Wait until a call has become a task, or has its result; or end, and say why it has not."""
        try:
            return await beginning
        except Left as left:
            scene.close()
            self._give_up(tool, left.ending, scene.asker)
        except CallLost as error:
            scene.close()
            refuse(explain_broken(self.target, error), as_json=self.as_json, ending=Ending.FAILED)
        except ServerUnreachable as error:
            scene.close()
            refuse(explain_lost(self.target, error), as_json=self.as_json)
        except MCPError as error:
            scene.close()
            self.fail(tool, error)

    async def conclude(
        self, result: Awaitable[CallToolResult], handle: Handle, scene: "Closing | None" = None
    ) -> Ending:
        """Wait for a result, and print it, or say what became of it instead."""
        asker = None if scene is None else scene.asker
        try:
            try:
                found = await result
            finally:
                if scene is not None:
                    scene.close()
            return print_result(found, as_json=self.as_json)
        except Left as left:
            return await self.leave(left.ending, handle, asker)
        except TaskCancelled as error:
            refuse(str(error), as_json=self.as_json, ending=Ending.FAILED)
        except MCPError as error:
            self.fail(self._slip(handle).tool, error)
        except TaskNotFound:
            self.not_found(handle)
        except ServerUnreachable as error:
            self.go_on(handle, f"{explain_lost(self.target, error)}\nIts task may well go on. ")
            return Ending.GOES_ON
        except BadAnswer as error:
            refuse(explain_lost(self.target, error), as_json=self.as_json)

    async def leave(self, ending: Ending, handle: Handle, asker: Asker | None) -> Ending:
        """A task that is not waited for any longer."""
        if ending is Ending.ASKS:
            await self.tell_asked(handle, asker)
        elif ending is Ending.INTERRUPTED:
            tell("cancelling it (Ctrl-C again leaves that undone)")
            await self.cancel(handle)
        else:
            self.go_on(handle)
        return ending

    def go_on(self, handle: Handle, why: str = "") -> None:
        """Say how to come back to a task."""
        slip = self._slip(handle)
        if self.as_json:
            typer.echo(json_of(asdict(slip)))
        how = f"{self.again('wait', slip.task_id)} waits for it, {self.again('cancel', slip.task_id)} stops it"
        tell(f"{why}{printable(slip.tool)} goes on as task {printable(slip.task_id)}: {how}.")
        if self.target.ends_with_us:
            tell("Its server ends with this command: the task is taken up again when the next one starts it")

    async def tell_asked(self, handle: Handle, asker: Asker | None) -> None:
        """Say what a task asks, and how to answer."""
        slip = self._slip(handle)
        update = await handle.look()
        asked = [Asked.of(question) for question in update.questions] if update is not None else []
        if not asked and asker is not None and asker.left_open.done():
            asked = [Asked.by_server(asker.left_open.result())]
        if self.as_json:
            facts = {"task_id": slip.task_id, "status": "input_required", "questions": [one.as_json() for one in asked]}
            typer.echo(json_of(facts))
        tell_questions(slip.tool, asked, self.again("answer", slip.task_id))
        tell(f"then: {self.again('wait', slip.task_id)}")

    async def cancel(self, handle: Handle) -> Ending:
        """Stop a task, and say what came of that."""
        slip = self._slip(handle)
        try:
            await handle.cancel()
        except MCPError as error:
            # One that the server does not know is told of as such.
            await handle.look()
            why = f"the server does not cancel it: {printable(error.error.message)}"
            refuse(why, as_json=self.as_json, ending=Ending.FAILED)
        update = await handle.look()
        status = Status.CANCELLED if update is None else update.status
        if self.as_json:
            typer.echo(json.dumps({"task_id": slip.task_id, "status": str(status)}, indent=2))
        if status is Status.CANCELLED:
            await self.book.remove(slip)
            tell(f"task {told_id(slip.task_id)} is cancelled")
            return Ending.DONE
        if update is not None and update.is_ended:
            tell(
                f"task {told_id(slip.task_id)} had ended before ({status}): {self.again('wait', slip.task_id)} shows it"
            )
            return Ending.FAILED
        tell(f"task {told_id(slip.task_id)} is asked to stop: {self.again('get', slip.task_id)} shows whether it has")
        return Ending.DONE

    def _give_up(self, tool: str, ending: Ending, asker: Asker) -> NoReturn:
        """A call that is no task can't be come back to: it is cancelled."""
        if ending is Ending.ASKS:
            asked = printable(asker.left_open.result().message)
            why = f"{printable(tool)} asks: {asked}. There is no terminal to ask at, and no task that could wait: "
            refuse(f"{why}call it at a terminal", as_json=self.as_json, ending=Ending.FAILED)
        is_told = ending is Ending.INTERRUPTED
        why = f"{printable(tool)} is given up{'' if is_told else ': there was no answer in time'}. It was no task yet"
        refuse(f"{why}, so the call is cancelled", as_json=self.as_json, ending=ending if is_told else Ending.FAILED)

    def fail(self, tool: str, error: MCPError) -> NoReturn:
        """End with what the server says."""
        why = f"{printable(tool)} failed: {printable(error.error.message)} ({error.error.code}){said_by(self.target)}"
        refuse(why, as_json=self.as_json, ending=Ending.FAILED)

    def not_found(self, handle: Handle) -> NoReturn:
        """End with a task that is not there."""
        slip = self._slip(handle)
        refuse(
            f"{self.target.shown} does not know task {printable(slip.task_id)}, or not for you: it may be over for "
            f"long, or want the --header that it was called with. {self.again('wait --forget', slip.task_id)} strikes "
            f"it off the book",
            as_json=self.as_json,
        )

    def _slip(self, handle: Handle) -> Slip:
        assert handle.slip is not None  # noqa: S101 - only tasks can be left, or come back to
        return handle.slip
