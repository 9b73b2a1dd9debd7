"""What becomes of a call in the end, whichever way that comes: a result, a task that is left, or one that stops."""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import NoReturn, Protocol

import typer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.cli.book import Ledger, shown_slip
from raincheck.cli.endings import Ending, refuse, tell
from raincheck.cli.following import Left
from raincheck.cli.manner import Manner, slip_of
from raincheck.cli.open_questions import Asked, tell_questions
from raincheck.cli.plain import json_of, printable
from raincheck.cli.questions import Asker
from raincheck.cli.reaching import explain_broken, explain_lost
from raincheck.cli.results import print_result
from raincheck.client import BadAnswer, CallLost, Handle, ServerUnreachable, Slip, TaskCancelled, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused, ConfigurationError, TaskNotFound


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
