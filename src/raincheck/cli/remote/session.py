"""Calling a tool: connect, check what is sent, call, and stay with it.

Answering what a task asks, without waiting for what becomes of it.

Going on with a call that another command left under way.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import typer
from mcp.client.session import ElicitationFnT
from mcp.shared.exceptions import MCPError
from rich.console import Console

from raincheck.cli.exit_codes import Ending, Unusable, refuse, tell
from raincheck.cli.options import Wishes, book_path, read_headers
from raincheck.cli.output.progress import Bar, Lines, Shown, words
from raincheck.cli.output.results import find_tool, list_tools, print_result, print_tools
from raincheck.cli.prompts.arguments import check_arguments, read_arguments, read_files
from raincheck.cli.prompts.forms import Terminal
from raincheck.cli.prompts.questions import SAMPLING, Asked, Asker
from raincheck.cli.remote.connect import Guard, Told, quiet, reach, said_by
from raincheck.cli.remote.messages import Manner
from raincheck.cli.remote.monitor import Vigil, begun, cancel, conclude, tell_asked, updates_of
from raincheck.cli.remote.saved_calls import Ledger, find_slip
from raincheck.cli.remote.target import Target, read_target
from raincheck.client import Handle, Progress, Question, ServerUnreachable, TaskBook, Update, by_hand
from raincheck.core.lifecycle import Status
from raincheck.errors import InvalidValue, TaskNotFound
from raincheck.operations.describe import json_of, printable, told_id
from raincheck.operations.redact import shown_server


def make_target(server: str, wishes: Wishes, *, is_kept: bool = False) -> Target:
    """The server that is meant, by whoever calls it or by a book.

    Raises:
        Unusable: it can't be one.
    """
    if not wishes.is_verbose:
        quiet()
    try:
        headers = read_headers(wishes.headers or [])
    except ValueError as error:
        raise Unusable(str(error)) from error
    return read_target(server, headers, is_heard=wishes.is_verbose, is_kept=is_kept)


def make_manner(target: Target, book: Ledger, wishes: Wishes) -> Manner:
    return Manner(target=target, book=book, named_book=wishes.named_book, as_json=wishes.as_json)


class Scene:
    """Everything that a command needs to stay with a call."""

    def __init__(self, tool: str, timeout: float | None) -> None:
        self.tool = tool
        self.console = Console(stderr=True)
        self.terminal = Terminal(self.console) if Terminal.is_there() else None
        self.shown: Shown = Bar(self.console) if self.console.is_terminal else Lines()
        self.asker = Asker(tool, self.shown, self.terminal)
        self.vigil = Vigil(self.shown, self.asker, self.terminal, timeout)

    @contextmanager
    def set(self) -> Generator[None]:
        """While it is in use. The terminal is left as it was."""
        with self.vigil.watching():
            self.shown.begin("connecting", None)
            try:
                yield
            finally:
                self.close()

    async def progressed(self, progress: Progress, message: str | None) -> None:
        """Told by a server that has no tasks, while the call waits."""
        self.shown.show(progress, message, "working")

    async def stay(self, handle: Handle, manner: Manner) -> Ending:
        """Wait for the end of a task."""
        self.shown.begin(self.tool, handle.task_id)
        return await conclude(manner, self.vigil.until_ended(handle), handle, self)

    def close(self) -> None:
        """Nothing more is shown: the terminal is as it was."""
        self.shown.close()


async def show_tools(server: str, wishes: Wishes) -> Ending:
    """List the tools of a server."""
    target = make_target(server, wishes)
    async with reach(target, book=None, asked=None, within=wishes.within) as client, _telling(target):
        tools = await list_tools(await client.connected())
    print_tools(tools, as_json=wishes.as_json)
    return Ending.DONE


async def call_tool(
    server: str, name: str, words: list[str], wishes: Wishes, *, detaches: bool, key: str | None, checks: bool
) -> Ending:
    """Call a tool, and wait for the result unless it is to be left alone."""
    given = read_files(words)
    target, book = make_target(server, wishes), Ledger(book_path(wishes.named_book))
    # A book that can't be used is better known before there is a task.
    await book.slips()
    manner, scene = make_manner(target, book, wishes), Scene(name, wishes.timeout)
    with scene.set():
        guard, shown = scene.vigil.until_there, scene.shown
        async with reach(target, book=book, asked=scene.asker, within=wishes.within, guard=guard, told=shown) as client:
            async with _telling(target):
                tool = find_tool(await guard(list_tools(await client.connected())), name)
            arguments = read_arguments(given, tool.input_schema)
            if checks:
                check_arguments(name, arguments, tool.input_schema)
            scene.vigil.begin()
            shown.begin(name, None)
            beginning = client.call(name, arguments, key=key, progressed=scene.progressed)
            handle = await begun(manner, scene.vigil.until_begun(beginning), name, scene, book)
            if handle.slip is None:
                scene.close()
                return print_result(await handle.result(), as_json=wishes.as_json)
            if detaches:
                scene.close()
                manner.go_on(handle.slip)
                return Ending.DONE
            return await scene.stay(handle, manner)


@asynccontextmanager
async def _telling(target: Target) -> AsyncGenerator[None]:
    """What goes wrong before anything is called is told as such."""
    try:
        yield
    except MCPError as error:
        raise Unusable(
            f"{target.shown} can't tell which tools it has: {printable(error.error.message)}{said_by(target)}"
        ) from error


@asynccontextmanager
async def taken_up(
    given: str,
    wishes: Wishes,
    *,
    asked: ElicitationFnT | None = None,
    guard: Guard | None = None,
    told: Told | None = None,
    keeps: bool = True,
) -> AsyncGenerator[tuple[Handle, Manner]]:
    """A call that is under way, and its server. If it is kept, its result can be fetched again.

    Raises:
        Unusable: there is no such call, or its server can't be reached.
    """
    book = Ledger(book_path(wishes.named_book))
    slip = await find_slip(book, given)
    target = make_target(wishes.server or slip.server, wishes, is_kept=wishes.server is None)
    if target.name != slip.server:
        raise Unusable(
            f"task {told_id(slip.task_id)} is known to {shown_server(slip.server)}, and not to {target.shown}"
        )
    manner = make_manner(target, book, wishes)
    kept = None if keeps else book
    async with reach(target, book=kept, asked=asked, within=wishes.within, guard=guard, told=told) as client:
        handle = client.take_up(slip)
        try:
            yield handle, manner
        except TaskNotFound:
            manner.not_found(slip)
        except MCPError as error:
            manner.fail(slip.tool, error, slip)
        except ServerUnreachable as error:
            raise typer.Exit(manner.go_on_lost(slip, error)) from error


async def wait_for(given: str, wishes: Wishes) -> Ending:
    """Wait for the end of a task."""
    slip = await find_slip(TaskBook(book_path(wishes.named_book)), given)
    scene = Scene(slip.tool, wishes.timeout)
    with scene.set():
        there, shown = scene.vigil.until_there, scene.shown
        async with taken_up(slip.task_id, wishes, asked=scene.asker, guard=there, told=shown, keeps=False) as taken:
            handle, manner = taken
            scene.vigil.begin()
            return await scene.stay(handle, manner)


async def look_at(given: str, wishes: Wishes) -> Ending:
    """Show a task as it is."""
    async with taken_up(given, wishes) as (handle, manner):
        update = await handle.look()
        assert update is not None  # noqa: S101 - of a task
        if update.is_ended:
            return await conclude(manner, handle.result(), handle)
        if update.status is Status.INPUT_REQUIRED:
            await tell_asked(manner, handle, None)
            return Ending.ASKS
        _show(update, as_json=wishes.as_json)
        return Ending.GOES_ON


async def cancel_task(given: str, wishes: Wishes) -> Ending:
    """Stop a task."""
    async with taken_up(given, wishes) as (handle, manner):
        return await cancel(manner, handle)


async def forget_task(book: TaskBook, given: str, *, as_json: bool) -> Ending:
    """Strike a call off the book."""
    slip = await find_slip(book, given)
    await book.remove(slip)
    if as_json:
        typer.echo(json_of({"task_id": slip.task_id, "forgotten": True}))
    server = printable(shown_server(slip.server))
    tell(f"task {told_id(slip.task_id)} of {server} is struck off the book; it was not stopped")
    return Ending.DONE


def _show(update: Update, *, as_json: bool) -> None:
    progress = update.progress
    if as_json:
        facts = {
            "task_id": update.task_id,
            "status": str(update.status),
            "message": update.message,
            "progress": None if progress is None else {"done": progress.done, "total": progress.total},
        }
        typer.echo(json_of(facts))
        return
    said = [str(update.status), *([] if progress is None else [words(progress)]), *filter(None, [update.message])]
    typer.echo(printable(", ".join(said)))


Words = list[str | dict[str, Any]]

TAKEN_WITHIN = 10.0
"""Seconds for a server to take an answer. Some ask only while somebody waits."""


async def answer_task(given: str, values: list[str], action: str, key: str | None, wishes: Wishes) -> Ending:
    """Answer one question of a task."""
    words = read_files(values)
    async with taken_up(given, wishes, asked=by_hand) as (handle, manner):
        try:
            async with asyncio.timeout(TAKEN_WITHIN):
                answered = await _answer(handle, words, action, key)
        except TimeoutError:
            refuse("the server did not ask, or did not take the answer, in time: try again", as_json=wishes.as_json)
        except (MCPError, InvalidValue) as error:
            why = error.error.message if isinstance(error, MCPError) else str(error)
            refuse(f"the server refuses the answer: {printable(why)}", as_json=wishes.as_json, ending=Ending.FAILED)
        assert handle.slip is not None  # noqa: S101 - it is a task
        if wishes.as_json:
            typer.echo(json.dumps({"task_id": handle.slip.task_id, "key": answered, "action": action}, indent=2))
        tell(f"answered. {manner.again('wait', handle.slip.task_id)} waits for what becomes of it")
        return Ending.DONE


async def _answer(handle: Handle, values: Words, action: str, key: str | None) -> str:
    """Answer, and return the key of the question."""
    answered: str | None = None
    async with aclosing(updates_of(handle)) as updates:
        async for update in updates:
            open_keys = {question.key for question in update.questions}
            # A server that asks by itself has the answer when it asks no more, or something else: what is on its way to
            # it would be lost if this ended.
            is_taken = answered not in open_keys and (bool(open_keys) or not update.asks_itself)
            if answered is not None and (update.status is not Status.INPUT_REQUIRED or is_taken):
                return answered
            if answered is None and (update.questions or update.status is not Status.INPUT_REQUIRED):
                question = _choose(update, key)
                await handle.answer({question.key: _made(question, values, action)})
                answered = question.key
    if answered is None:
        raise Unusable("the task has ended, and asks nothing")
    return answered


def _choose(update: Update, key: str | None) -> Question:
    keys = ", ".join(f"{question.key} ({question.message})" for question in update.questions)
    if not update.questions:
        raise Unusable(f"the task asks nothing just now: it is {update.status}")
    if key is None and len(update.questions) > 1:
        raise Unusable(f"the task asks several things: say which by --key, one of {printable(keys)}")
    found = [question for question in update.questions if key is None or question.key.startswith(key)]
    if len(found) != 1:
        raise Unusable(f"no single question has the key {key!r}: the task asks {printable(keys)}")
    return found[0]


def _made(question: Question, values: Words, action: str) -> dict[str, Any]:
    asked = Asked.of(question)
    if asked.method == SAMPLING:
        return _reply(values, action)
    if asked.method != "elicitation/create":
        raise Unusable(f"this command can't answer {asked.method}")
    if action != "accept":
        return {"action": action}
    schema = asked.schema or {}
    content = read_arguments(values, schema)
    check_arguments("it", content, schema, verb="answered")
    return {"action": action} if asked.schema is None else {"action": action, "content": content}


def _reply(values: Words, action: str) -> dict[str, Any]:
    """What a model would have said."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    if action != "accept":
        raise Unusable("a model is asked, which can't decline: give text=…, or cancel the task")
    content = read_arguments(values, schema)
    check_arguments("it", content, schema, verb="answered")
    return {"role": "assistant", "model": "human", "content": {"type": "text", "text": content["text"]}}
