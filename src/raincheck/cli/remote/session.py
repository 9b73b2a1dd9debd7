"""Sessions of commands with a server: call a tool, resume a saved call, answer a question.

A tool call connects, checks the arguments, calls, and monitors the call. Resuming continues with a call that another
command detached from. Answering does not wait for the task afterwards.
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

from raincheck.cli.exit_codes import ExitCode, UsageError, echo_err, fail
from raincheck.cli.options import ConnectionOptions, calls_path, parse_headers
from raincheck.cli.output.progress import BarDisplay, LineDisplay, ProgressDisplay, format_progress
from raincheck.cli.output.results import find_tool, list_tools, print_result, print_tools
from raincheck.cli.prompts.arguments import check_arguments, parse_arguments, read_files
from raincheck.cli.prompts.forms import Terminal
from raincheck.cli.prompts.questions import SAMPLING, ElicitationPrompter, OpenInputRequest
from raincheck.cli.remote.connect import (
    ConnectionListener,
    Guard,
    connect_client,
    format_server_output,
    silence_library_logs,
)
from raincheck.cli.remote.messages import CallReporter
from raincheck.cli.remote.monitor import (
    CallMonitor,
    cancel_and_report,
    finish_call,
    follow_updates,
    report_questions,
    start_call,
)
from raincheck.cli.remote.saved_calls import DeferredSavedCalls, find_task_ref
from raincheck.cli.remote.target import CallTarget, parse_target
from raincheck.client import Handle, Question, SavedCalls, ServerUnreachable, TaskProgress, Update, answer_later
from raincheck.core.lifecycle import Status
from raincheck.errors import InvalidValue, TaskNotFound
from raincheck.operations.describe import format_id, format_json, printable
from raincheck.operations.redact import redact_server


def make_target(server: str, options: ConnectionOptions, *, is_saved: bool = False) -> CallTarget:
    """Return the target of a call or of a saved call.

    Raises:
        UsageError: it is not a valid target.
    """
    if not options.is_verbose:
        silence_library_logs()
    try:
        headers = parse_headers(options.headers or [])
    except ValueError as error:
        raise UsageError(str(error)) from error
    return parse_target(server, headers, show_stderr=options.is_verbose, is_saved=is_saved)


def make_reporter(target: CallTarget, saved_calls: DeferredSavedCalls, options: ConnectionOptions) -> CallReporter:
    return CallReporter(target=target, saved_calls=saved_calls, calls_path=options.calls_path, as_json=options.as_json)


class CallUI:
    """The display, prompts and monitor that a command uses for a call."""

    def __init__(self, tool: str, timeout: float | None) -> None:
        self.tool = tool
        self.console = Console(stderr=True)
        self.terminal = Terminal(self.console) if Terminal.is_interactive() else None
        self.display: ProgressDisplay = BarDisplay(self.console) if self.console.is_terminal else LineDisplay()
        self.prompter = ElicitationPrompter(tool, self.display, self.terminal)
        self.monitor = CallMonitor(self.display, self.prompter, self.terminal, timeout)

    @contextmanager
    def open(self) -> Generator[None]:
        """Show the display inside the context, and restore the terminal afterwards."""
        with self.monitor.handle_signals():
            self.display.start("connecting", None)
            try:
                yield
            finally:
                self.close()

    async def on_progress(self, progress: TaskProgress, message: str | None) -> None:
        """Show the progress that a server without tasks sends while the call waits."""
        self.display.show(progress, message, "working")

    async def wait_for_end(self, handle: Handle, reporter: CallReporter) -> ExitCode:
        """Wait for the end of a task."""
        self.display.start(self.tool, handle.task_id)
        return await finish_call(reporter, self.monitor.wait_for_result(handle), handle, self)

    def close(self) -> None:
        """Close the display, and restore the terminal."""
        self.display.close()


async def show_tools(server: str, options: ConnectionOptions) -> ExitCode:
    """List the tools of a server."""
    target = make_target(server, options)
    async with (
        connect_client(target, saved_calls=None, elicitation_callback=None, timeout=options.connect_timeout) as client,
        _tool_list_errors(target),
    ):
        tools = await list_tools(await client.connected())
    print_tools(tools, as_json=options.as_json)
    return ExitCode.SUCCESS


async def call_tool(
    server: str,
    name: str,
    words: list[str],
    options: ConnectionOptions,
    *,
    detach: bool,
    idempotency_key: str | None,
    validate: bool,
) -> ExitCode:
    """Call a tool, and wait for the result unless `detach` is set."""
    inputs = read_files(words)
    target, saved_calls = make_target(server, options), DeferredSavedCalls(calls_path(options.calls_path))
    # Fail before there is a task if the saved calls can't be used.
    await saved_calls.list_refs()
    reporter, ui = make_reporter(target, saved_calls, options), CallUI(name, options.timeout)
    with ui.open():
        guard, display = ui.monitor.wait_for_server, ui.display
        async with connect_client(
            target,
            saved_calls=saved_calls,
            elicitation_callback=ui.prompter,
            timeout=options.connect_timeout,
            guard=guard,
            listener=display,
        ) as client:
            async with _tool_list_errors(target):
                tool = find_tool(await guard(list_tools(await client.connected())), name)
            arguments = parse_arguments(inputs, tool.input_schema)
            if validate:
                check_arguments(name, arguments, tool.input_schema)
            ui.monitor.start_timeout()
            display.start(name, None)
            call = client.call(name, arguments, key=idempotency_key, progress_callback=ui.on_progress)
            handle = await start_call(reporter, ui.monitor.wait_for_start(call), name, ui, saved_calls)
            if handle.task_ref is None:
                ui.close()
                return print_result(await handle.result(), as_json=options.as_json)
            if detach:
                ui.close()
                reporter.report_running(handle.task_ref)
                return ExitCode.SUCCESS
            return await ui.wait_for_end(handle, reporter)


@asynccontextmanager
async def _tool_list_errors(target: CallTarget) -> AsyncGenerator[None]:
    """Report errors of the tool list as such, since nothing has been called yet."""
    try:
        yield
    except MCPError as error:
        raise UsageError(
            f"{target.display_name} can't list its tools: {printable(error.error.message)}"
            f"{format_server_output(target)}"
        ) from error


@asynccontextmanager
async def resume_call(
    id_prefix: str,
    options: ConnectionOptions,
    *,
    elicitation_callback: ElicitationFnT | None = None,
    guard: Guard | None = None,
    listener: ConnectionListener | None = None,
    keep_saved: bool = True,
) -> AsyncGenerator[tuple[Handle, CallReporter]]:
    """Open a saved call and connect to its server. With `keep_saved`, its result can be fetched again.

    Raises:
        UsageError: guard is no such call, or its server can't be reached.
    """
    saved_calls = DeferredSavedCalls(calls_path(options.calls_path))
    task_ref = await find_task_ref(saved_calls, id_prefix)
    target = make_target(options.server or task_ref.server, options, is_saved=options.server is None)
    if target.name != task_ref.server:
        raise UsageError(
            f"task {format_id(task_ref.task_id)} belongs to {redact_server(task_ref.server)}, not to "
            f"{target.display_name}: "
            f"leave out --server, or give the same server"
        )
    reporter = make_reporter(target, saved_calls, options)
    client_saved_calls = None if keep_saved else saved_calls
    async with connect_client(
        target,
        saved_calls=client_saved_calls,
        elicitation_callback=elicitation_callback,
        timeout=options.connect_timeout,
        guard=guard,
        listener=listener,
    ) as client:
        handle = client.resume(task_ref)
        try:
            yield handle, reporter
        except TaskNotFound:
            reporter.fail_not_found(task_ref)
        except MCPError as error:
            reporter.fail_with_error(task_ref.tool, error, task_ref)
        except ServerUnreachable as error:
            raise typer.Exit(reporter.report_unreachable(task_ref, error)) from error


async def wait_for_task(id_prefix: str, options: ConnectionOptions) -> ExitCode:
    """Wait for the end of a task."""
    task_ref = await find_task_ref(SavedCalls(calls_path(options.calls_path)), id_prefix)
    ui = CallUI(task_ref.tool, options.timeout)
    with ui.open():
        guard, display = ui.monitor.wait_for_server, ui.display
        async with resume_call(
            task_ref.task_id, options, elicitation_callback=ui.prompter, guard=guard, listener=display, keep_saved=False
        ) as resumed:
            handle, reporter = resumed
            ui.monitor.start_timeout()
            return await ui.wait_for_end(handle, reporter)


async def print_status(id_prefix: str, options: ConnectionOptions) -> ExitCode:
    """Show the current state of a task."""
    async with resume_call(id_prefix, options) as (handle, reporter):
        update = await handle.poll()
        assert update is not None  # noqa: S101 - the handle has a task
        if update.is_ended:
            return await finish_call(reporter, handle.result(), handle)
        if update.status is Status.INPUT_REQUIRED:
            await report_questions(reporter, handle, None)
            return ExitCode.NEEDS_INPUT
        _print_update(update, as_json=options.as_json)
        return ExitCode.STILL_RUNNING


async def cancel_task(id_prefix: str, options: ConnectionOptions) -> ExitCode:
    """Cancel a task."""
    async with resume_call(id_prefix, options) as (handle, reporter):
        return await cancel_and_report(reporter, handle)


async def forget_task(saved_calls: SavedCalls, id_prefix: str, *, as_json: bool) -> ExitCode:
    """Remove a saved call."""
    task_ref = await find_task_ref(saved_calls, id_prefix)
    await saved_calls.remove(task_ref)
    if as_json:
        typer.echo(format_json({"task_id": task_ref.task_id, "forgotten": True}))
    server = printable(redact_server(task_ref.server))
    echo_err(
        f"removed task {format_id(task_ref.task_id)} of {server} from the saved calls. The task itself was not "
        f"cancelled"
    )
    return ExitCode.SUCCESS


def _print_update(update: Update, *, as_json: bool) -> None:
    progress = update.progress
    if as_json:
        facts = {
            "task_id": update.task_id,
            "status": str(update.status),
            "message": update.message,
            "progress": None if progress is None else {"done": progress.done, "total": progress.total},
        }
        typer.echo(format_json(facts))
        return
    parts = [
        str(update.status),
        *([] if progress is None else [format_progress(progress)]),
        *filter(None, [update.message]),
    ]
    typer.echo(printable(", ".join(parts)))


ArgumentWords = list[str | dict[str, Any]]

ANSWER_TIMEOUT = 10.0
"""Seconds for a server to accept an answer. Some servers ask only while a caller waits."""


async def answer_task(
    id_prefix: str, values: list[str], action: str, key: str | None, options: ConnectionOptions
) -> ExitCode:
    """Answer one question of a task."""
    words = read_files(values)
    async with resume_call(id_prefix, options, elicitation_callback=answer_later) as (handle, reporter):
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                answered_key = await _answer(handle, words, action, key)
        except TimeoutError:
            fail(
                "the server did not ask its question, or did not accept the answer, in time: try again",
                as_json=options.as_json,
            )
        except (MCPError, InvalidValue) as error:
            reason = error.error.message if isinstance(error, MCPError) else str(error)
            fail(
                f"the server refused the answer: {printable(reason)}",
                as_json=options.as_json,
                exit_code=ExitCode.FAILED,
            )
        assert handle.task_ref is not None  # noqa: S101 - the handle has a task
        if options.as_json:
            typer.echo(
                json.dumps({"task_id": handle.task_ref.task_id, "key": answered_key, "action": action}, indent=2)
            )
        echo_err(f"answered: {reporter.follow_up_command('wait', handle.task_ref.task_id)} waits for the result")
        return ExitCode.SUCCESS


async def _answer(handle: Handle, values: ArgumentWords, action: str, key: str | None) -> str:
    """Answer, and return the key of the question."""
    answered: str | None = None
    async with aclosing(follow_updates(handle)) as updates:
        async for update in updates:
            open_keys = {question.key for question in update.questions}
            # A server that sends its questions has accepted the answer once it asks no question, or a different one.
            # If the command ended earlier, it would lose the answer that is in flight.
            is_accepted = answered not in open_keys and (bool(open_keys) or not update.server_asks)
            if answered is not None and (update.status is not Status.INPUT_REQUIRED or is_accepted):
                return answered
            if answered is None and (update.questions or update.status is not Status.INPUT_REQUIRED):
                question = _choose_question(update, key)
                await handle.answer({question.key: _build_answer(question, values, action)})
                answered = question.key
    if answered is None:
        raise UsageError("the task has ended, so there is no question to answer")
    return answered


def _choose_question(update: Update, key: str | None) -> Question:
    keys = ", ".join(f"{question.key} ({question.message})" for question in update.questions)
    if not update.questions:
        raise UsageError(f"the task has no open question: it is {update.status}")
    if key is None and len(update.questions) > 1:
        raise UsageError(f"the task has several open questions: choose one with --key, of {printable(keys)}")
    matches = [question for question in update.questions if key is None or question.key.startswith(key)]
    if len(matches) != 1:
        raise UsageError(f"the key {key!r} matches no single question: the open questions are {printable(keys)}")
    return matches[0]


def _build_answer(question: Question, values: ArgumentWords, action: str) -> dict[str, Any]:
    request = OpenInputRequest.from_question(question)
    if request.method == SAMPLING:
        return _build_reply(values, action)
    if request.method != "elicitation/create":
        raise UsageError(f"this command can't answer {request.method}")
    if action != "accept":
        return {"action": action}
    schema = request.schema or {}
    content = parse_arguments(values, schema)
    check_arguments("the question", content, schema, verb="answered")
    return {"action": action} if request.schema is None else {"action": action, "content": content}


def _build_reply(values: ArgumentWords, action: str) -> dict[str, Any]:
    """Build the reply to a sampling request, in place of a model."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    if action != "accept":
        raise UsageError("the question is for a model, which can't decline: answer with text=…, or cancel the task")
    content = parse_arguments(values, schema)
    check_arguments("the question", content, schema, verb="answered")
    return {"role": "assistant", "model": "human", "content": {"type": "text", "text": content["text"]}}
