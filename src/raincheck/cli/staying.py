"""What a command says of a call in the end, whichever way that comes."""

import asyncio
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

import typer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.cli.book import Ledger
from raincheck.cli.endings import Ending, refuse, tell
from raincheck.cli.following import Left
from raincheck.cli.open_questions import Asked, tell_questions
from raincheck.cli.plain import json_of, printable, told_id, typed
from raincheck.cli.questions import Asker
from raincheck.cli.reaching import explain_broken, explain_lost, explain_raised, is_raised, said_by
from raincheck.cli.results import print_result
from raincheck.cli.targets import Target
from raincheck.client import BadAnswer, CallLost, Handle, ServerUnreachable, Slip, TaskBook, TaskCancelled, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import ConfigurationError, TaskNotFound


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

    def again(self, command: str, task_id: str, *options: str) -> str:
        """What to type to go on with a task."""
        named = [] if self.named_book is None else ["--book", str(self.named_book)]
        return typed(command, task_id, *named, *options)

    async def begun(self, beginning: Awaitable[Handle], tool: str, scene: "Closing", ledger: Ledger) -> Handle:
        """Wait until a call has become a task, or has its result; or end, and say why it has not."""
        try:
            return await beginning
        except (Left, ConfigurationError) as error:
            scene.close()
            if ledger.slip is not None:
                # It has become a task, which is just being written into the book, or can't be.
                await self._go_on_unwritten(ledger, ledger.slip)
            if not isinstance(error, Left):
                raise
            self._give_up(tool, error.ending, scene.asker)
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
            refuse(printable(str(error)), as_json=self.as_json, ending=Ending.FAILED)
        except MCPError as error:
            self.fail(self._slip(handle).tool, error, self._slip(handle))
        except TaskNotFound:
            self.not_found(handle)
        except ServerUnreachable as error:
            return self._go_on_lost(handle, error)
        except BadAnswer as error:
            refuse(explain_lost(self.target, error), as_json=self.as_json)

    async def leave(self, ending: Ending, handle: Handle, asker: Asker | None) -> Ending:
        """A task that is not waited for any longer. Whatever goes wrong with that, it can be come back to."""
        slip = self._slip(handle)
        try:
            if ending is Ending.ASKS:
                await self.tell_asked(handle, asker)
                return ending
            if ending is Ending.INTERRUPTED:
                tell("cancelling it (Ctrl-C again leaves that undone)")
                self.tell_cancelled(slip, await self._stop(handle))
                return ending
        except TaskNotFound:
            self.not_found(handle)
        except MCPError as error:
            self.go_on(slip, f"the server refuses that: {printable(error.error.message)}. ")
            return Ending.GOES_ON
        except (ServerUnreachable, BadAnswer) as error:
            return self._go_on_lost(handle, error)
        except asyncio.CancelledError as error:
            # Ctrl-C again.
            self.go_on(slip, "left undone. ")
            raise typer.Exit(Ending.GOES_ON) from error
        self.go_on(slip)
        return ending

    def go_on(self, slip: Slip, why: str = "") -> None:
        """Say how to come back to a task."""
        if self.as_json:
            typer.echo(json_of(asdict(slip)))
        how = f"{self.again('wait', slip.task_id)} waits for it, {self.again('cancel', slip.task_id)} stops it"
        tell(f"{why}{printable(slip.tool)} goes on as task {printable(slip.task_id)}: {how}.")
        if self.target.has_secret:
            tell("what is secret in its server's address is not kept: give that again then, by --server URL")
        if self.target.ends_with_us:
            tell("its server ends with this command: the task rests until a command such as these starts it again")

    def _go_on_lost(self, handle: Handle, error: ServerUnreachable | BadAnswer) -> Ending:
        self.go_on(self._slip(handle), f"{explain_lost(self.target, error)}\nIts task may well go on. ")
        return Ending.GOES_ON

    async def _go_on_unwritten(self, ledger: Ledger, slip: Slip) -> NoReturn:
        why = "it may not be in the book"
        try:
            why = await ledger.settle()
        finally:
            self.go_on(slip)
            if why is not None:
                tell(f"{why}. So keep this slip, with which Python takes it up: {slip.dump()}")
        raise typer.Exit(Ending.GOES_ON)

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
        tell_questions(slip.tool, asked, partial(self.again, "answer", slip.task_id))
        tell(f"then: {self.again('wait', slip.task_id)}")

    async def cancel(self, handle: Handle) -> Ending:
        """Stop a task, and say what came of that."""
        try:
            update = await self._stop(handle)
        except MCPError as error:
            why = f"the server does not cancel it: {printable(error.error.message)}"
            refuse(why, as_json=self.as_json, ending=Ending.FAILED)
        return self.tell_cancelled(self._slip(handle), update)

    async def _stop(self, handle: Handle) -> Update:
        try:
            await handle.cancel()
        except MCPError:
            # One that the server does not know is told of as such.
            await handle.look()
            raise
        update = await handle.look()
        assert update is not None  # noqa: S101 - of a task
        if update.status is Status.CANCELLED:
            await self.book.remove(self._slip(handle))
        return update

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

    def _give_up(self, tool: str, ending: Ending, asker: Asker) -> NoReturn:
        """A call that is no task can't be come back to: it is cancelled."""
        if ending is Ending.ASKS:
            asked = printable(asker.left_open.result().message)
            why = f"{printable(tool)} asks: {asked}. There is no terminal to ask at, and no task that could wait: "
            refuse(f"{why}call it at a terminal", as_json=self.as_json, ending=Ending.FAILED)
        is_told = ending is Ending.INTERRUPTED
        why = f"{printable(tool)} is given up{'' if is_told else ': there was no answer in time'}. It was no task yet"
        refuse(f"{why}, so the call is cancelled", as_json=self.as_json, ending=ending if is_told else Ending.FAILED)

    def fail(self, tool: str, error: MCPError, slip: Slip | None = None) -> NoReturn:
        """End with what the server says."""
        why = f"{printable(tool)} failed: {printable(error.error.message)} ({error.error.code})"
        why += explain_raised(slip) if self.target.ends_with_us and is_raised(error) else said_by(self.target)
        refuse(why, as_json=self.as_json, ending=Ending.FAILED)

    def not_found(self, handle: Handle) -> NoReturn:
        """End with a task that is not there."""
        slip = self._slip(handle)
        refuse(
            f"{self.target.shown} does not know task {printable(slip.task_id)}, or not for you: it may be over for "
            f"long, or want the --header that it was called with, or the --server with what was secret in it. "
            f"{self.again('wait', slip.task_id, '--forget')} strikes it off the book",
            as_json=self.as_json,
        )

    def _slip(self, handle: Handle) -> Slip:
        assert handle.slip is not None  # noqa: S101 - only tasks can be left, or come back to
        return handle.slip
