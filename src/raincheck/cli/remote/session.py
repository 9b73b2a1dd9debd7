"""Sessions of commands with a server: call a tool, resume a saved call, answer a question.

A tool call connects, checks the arguments, calls, and monitors the call. Resuming continues with a call that another
command detached from. Answering does not wait for the task afterwards.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import typer
from mcp.client.session import ElicitationFnT
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation, Tool

from raincheck.cli.exit_codes import ExitCode, UsageError, echo_err, fail
from raincheck.cli.options import ConnectionOptions, calls_path, parse_headers
from raincheck.cli.output.progress import format_progress
from raincheck.cli.output.results import find_tool, print_result, print_tools
from raincheck.cli.prompts.arguments import Schema, check_arguments, parse_arguments, read_files
from raincheck.cli.prompts.questions import ELICITATION, SAMPLING, OpenInputRequest
from raincheck.cli.remote.monitor import CallMonitor, ConnectionMonitor, follow_updates
from raincheck.cli.remote.reporter import CallReporter
from raincheck.cli.remote.saved_calls import DeferredSavedCalls, find_task_ref
from raincheck.cli.remote.target import CallTarget, parse_target
from raincheck.client import Handle, Question, SavedCalls, ServerUnreachable, TaskClient, TaskRef, Update, answer_later
from raincheck.client.protocols.base import read_all_tools
from raincheck.core.lifecycle import Status
from raincheck.errors import InvalidValue, TaskNotFound
from raincheck.operations.describe import format_id, format_json, printable, redact_server
from raincheck.wire.fallback_text import format_duration

NOISY = ("mcp", "httpx2", "httpcore2", "raincheck")
"""The loggers that would print to the terminal."""


def silence_library_logs() -> None:
    """Silence the libraries' loggers: the command itself reports what matters."""
    for name in NOISY:
        logger = logging.getLogger(name)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


def make_target(server: str, options: ConnectionOptions, *, is_saved: bool = False) -> CallTarget:
    """Return the target of a call or of a saved call.

    Raises:
        UsageError: it is not a valid target.
    """
    if not options.is_verbose:
        silence_library_logs()
    headers = parse_headers(options.headers or [])
    return parse_target(
        server,
        headers,
        max_response_bytes=options.max_response_bytes,
        show_stderr=options.is_verbose,
        is_saved=is_saved,
    )


@asynccontextmanager
async def connect_client(
    target: CallTarget,
    timeout: float,  # noqa: ASYNC109 - it applies to connecting, not to the context
    *,
    monitor: CallMonitor | None = None,
    saved_calls: SavedCalls | None = None,
    elicitation_callback: ElicitationFnT | None = None,
) -> AsyncGenerator[TaskClient]:
    """Connect a client. `monitor` waits for the connection, shows later disconnects, and asks the server's questions.

    Raises:
        UsageError: it can't connect. The error contains the reason, and what to do.
    """
    client = TaskClient(
        target.connect if monitor is None else ConnectionMonitor(target.connect, monitor.display).connect,
        name=target.name,
        saved_calls=saved_calls,
        elicitation_callback=elicitation_callback if monitor is None else monitor.prompter,
        client_info=Implementation(name="raincheck", version=version("raincheck")),
    )
    try:
        async with asyncio.timeout(timeout):
            await (client.__aenter__() if monitor is None else monitor.wait_for_server(client.__aenter__()))
    except TimeoutError as error:
        raise UsageError(
            f"{target.display_name} did not respond within {format_duration(timeout)}: check that it is an MCP server, "
            f"or allow more time with --connect-timeout{target.format_stderr()}"
        ) from error
    except ServerUnreachable as error:
        raise UsageError(target.explain_unreachable(error)) from error
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)


async def open_saved_calls(options: ConnectionOptions) -> DeferredSavedCalls:
    """Return the saved calls. Fails before there is a task if they can't be used."""
    saved_calls = DeferredSavedCalls(calls_path(options.calls_path))
    await saved_calls.list_refs()
    return saved_calls


async def show_tools(server: str, options: ConnectionOptions) -> ExitCode:
    target = make_target(server, options)
    async with connect_client(target, options.connect_timeout) as client:
        tools = await _list_tools(client, target)
    print_tools(tools, as_json=options.as_json)
    return ExitCode.SUCCESS


async def call_tool(
    server: str,
    name: str,
    words: list[str],
    options: ConnectionOptions,
    *,
    timeout: float | None,  # noqa: ASYNC109 - the task keeps running after it
    detach: bool,
    idempotency_key: str | None,
    validate: bool,
) -> ExitCode:
    """Call a tool, and wait for the result unless `detach` is set."""
    inputs = read_files(words)
    target, saved_calls = make_target(server, options), await open_saved_calls(options)
    reporter, monitor = CallReporter(target, saved_calls, options), CallMonitor(name, timeout)
    with monitor.open():
        async with connect_client(target, options.connect_timeout, monitor=monitor, saved_calls=saved_calls) as client:
            tool = find_tool(await monitor.wait_for_server(_list_tools(client, target)), name)
            arguments = parse_arguments(inputs, tool.input_schema)
            if validate:
                check_arguments(name, arguments, tool.input_schema)
            monitor.start_timeout()
            call = client.call(name, arguments, key=idempotency_key, progress_callback=monitor.show_progress)
            handle = await reporter.start(call, monitor)
            if handle.task_ref is None:
                monitor.display.close()
                return print_result(await handle.result(), as_json=options.as_json)
            if detach:
                monitor.display.close()
                reporter.report_running(handle.task_ref)
                return ExitCode.SUCCESS
            return await reporter.finish(monitor.wait_for_result(handle), handle, monitor.prompter)


async def _list_tools(client: TaskClient, target: CallTarget) -> list[Tool]:
    """Return the server's tools. An error is reported as that of the list, since nothing has been called yet."""
    try:
        connected = await client.connected()
        return await read_all_tools(lambda cursor: connected.list_tools(cursor=cursor))
    except MCPError as error:
        reason = f"{printable(error.error.message)}{target.format_stderr()}"
        raise UsageError(f"{target.display_name} can't list its tools: {reason}") from error


@asynccontextmanager
async def resume_call(
    task_ref: TaskRef,
    saved_calls: DeferredSavedCalls,
    options: ConnectionOptions,
    *,
    monitor: CallMonitor | None = None,
    elicitation_callback: ElicitationFnT | None = None,
) -> AsyncGenerator[tuple[Handle, CallReporter]]:
    """Connect to the server of a saved call. Without a monitor, its result can be fetched again.

    Raises:
        UsageError: the server is not that of the call, or can't be reached.
    """
    target = make_target(options.server or task_ref.server, options, is_saved=options.server is None)
    if target.name != task_ref.server:
        raise UsageError(
            f"task {format_id(task_ref.task_id)} belongs to {redact_server(task_ref.server)}, not to "
            f"{target.display_name}: leave out --server, or give the same server"
        )
    reporter = CallReporter(target, saved_calls, options)
    async with connect_client(
        target,
        options.connect_timeout,
        monitor=monitor,
        saved_calls=None if monitor is None else saved_calls,
        elicitation_callback=elicitation_callback,
    ) as client:
        try:
            yield client.resume(task_ref), reporter
        except TaskNotFound:
            reporter.fail_not_found(task_ref)
        except MCPError as error:
            reporter.fail_with_error(task_ref.tool, error, task_ref)
        except ServerUnreachable as error:
            raise typer.Exit(reporter.report_unreachable(task_ref, error)) from error


async def find_saved_call(id_prefix: str, options: ConnectionOptions) -> tuple[TaskRef, DeferredSavedCalls]:
    """Return a saved call, and the saved calls that it is in.

    Raises:
        UsageError: there is no such call.
    """
    saved_calls = DeferredSavedCalls(calls_path(options.calls_path))
    return await find_task_ref(saved_calls, id_prefix), saved_calls


async def wait_for_task(id_prefix: str, options: ConnectionOptions, timeout: float | None) -> ExitCode:  # noqa: ASYNC109 - the task keeps running after it
    """Wait for the end of a task."""
    task_ref, saved_calls = await find_saved_call(id_prefix, options)
    monitor = CallMonitor(task_ref.tool, timeout)
    with monitor.open():
        async with resume_call(task_ref, saved_calls, options, monitor=monitor) as (handle, reporter):
            monitor.start_timeout()
            return await reporter.finish(monitor.wait_for_result(handle), handle, monitor.prompter)


async def print_status(id_prefix: str, options: ConnectionOptions) -> ExitCode:
    """Show the current state of a task."""
    async with resume_call(*await find_saved_call(id_prefix, options), options) as (handle, reporter):
        update = await handle.poll()
        assert update is not None  # noqa: S101 - the handle has a task
        if update.is_ended:
            return await reporter.finish(handle.result(), handle)
        if update.status is Status.INPUT_REQUIRED:
            await reporter.report_questions(handle)
            return ExitCode.NEEDS_INPUT
        _print_update(update, as_json=options.as_json)
        return ExitCode.STILL_RUNNING


async def cancel_task(id_prefix: str, options: ConnectionOptions) -> ExitCode:
    async with resume_call(*await find_saved_call(id_prefix, options), options) as (handle, reporter):
        return await reporter.cancel(handle)


def _print_update(update: Update, *, as_json: bool) -> None:
    progress = update.progress
    if as_json:
        facts = {"task_id": update.task_id, "status": str(update.status), "message": update.message}
        typer.echo(format_json({**facts, "progress": None if progress is None else asdict(progress)}))
        return
    amount = None if progress is None else format_progress(progress)
    typer.echo(printable(", ".join(filter(None, [str(update.status), amount, update.message]))))


ArgumentWords = list[str | dict[str, Any]]

ANSWER_TIMEOUT = 10.0
"""Seconds for a server to accept an answer. Some servers ask only while a caller waits."""


async def answer_task(
    id_prefix: str, values: list[str], action: str, key: str | None, options: ConnectionOptions
) -> ExitCode:
    """Answer one question of a task."""
    words = read_files(values)
    task_ref, saved_calls = await find_saved_call(id_prefix, options)
    async with resume_call(task_ref, saved_calls, options, elicitation_callback=answer_later) as (handle, reporter):
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                answered_key = await _answer(handle, words, action, key)
        except TimeoutError:
            message = "the server did not ask its question, or did not accept the answer, in time: try again"
            fail(message, as_json=options.as_json)
        except (MCPError, InvalidValue) as error:
            reason = error.error.message if isinstance(error, MCPError) else str(error)
            message = f"the server refused the answer: {printable(reason)}"
            fail(message, as_json=options.as_json, exit_code=ExitCode.FAILED)
        if options.as_json:
            typer.echo(json.dumps({"task_id": task_ref.task_id, "key": answered_key, "action": action}, indent=2))
        echo_err(f"answered: {reporter.follow_up_command('wait', task_ref.task_id)} waits for the result")
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
    if request.method != ELICITATION:
        raise UsageError(f"this command can't answer {request.method}")
    if action != "accept":
        return {"action": action}
    content = _parse_answer(values, request.schema or {})
    return {"action": action} if request.schema is None else {"action": action, "content": content}


def _build_reply(values: ArgumentWords, action: str) -> dict[str, Any]:
    """Build the reply to a sampling request, in place of a model."""
    if action != "accept":
        raise UsageError("the question is for a model, which can't decline: answer with text=…, or cancel the task")
    content = _parse_answer(
        values, {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    )
    return {"role": "assistant", "model": "human", "content": {"type": "text", "text": content["text"]}}


def _parse_answer(values: ArgumentWords, schema: Schema) -> dict[str, Any]:
    content = parse_arguments(values, schema)
    check_arguments("the question", content, schema, verb="answered")
    return content
