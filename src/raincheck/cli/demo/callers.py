"""The demo's three callers of one tool: one for each protocol generation, and one without tasks, like most hosts.

The tool's question is shown to the user, who may answer it within a timeout.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from mcp.client import Client
from mcp.client.session import ElicitationFnT
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from rich.console import Console
from rich.text import Text

from raincheck.cli.demo.screen import CallerRow, DemoScreen
from raincheck.client import TaskClient
from raincheck.client.connection import ServerConnection
from raincheck.clock import SystemClock
from raincheck.core.payload import Json
from raincheck.wire.fields import as_object

ANSWER_TIMEOUT = 6.0


class Person:
    """Asks at the terminal, with a timeout. Without a terminal or an answer, the answer is yes."""

    def __init__(self, console: Console, *, is_there: bool) -> None:
        self._console = console
        self._is_there = is_there

    async def ask(self, question: str) -> tuple[bool, str]:
        """Return whether the answer is yes, and how it was given."""
        if not self._is_there:
            return True, "the default"
        prompt = Text.assemble((question, "bold"), f" [Y/n] (yes after {ANSWER_TIMEOUT:.0f} s) ")
        self._console.print(prompt, end="")
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                line = await _next_line()
        except TimeoutError:
            self._console.print()
            return True, "the default"
        return not line.strip().lower().startswith("n"), "your answer"


async def _next_line() -> str:
    loop, stdin = asyncio.get_running_loop(), sys.stdin
    ready: asyncio.Future[str] = loop.create_future()
    loop.add_reader(stdin, lambda: ready.done() or ready.set_result(stdin.readline()))
    try:
        return await ready
    finally:
        loop.remove_reader(stdin)


TOOL = "print_book"


async def call_with_tasks(
    screen: DemoScreen, row: CallerRow, url: str, arguments: Mapping[str, Any], mode: str, ask: ElicitationFnT | None
) -> tuple[str, Mapping[str, Any]]:
    """Call as a host with tasks: receive a task, and follow it."""
    async with TaskClient(url, mode=mode, elicitation_callback=ask) as client:
        handle = await client.call(TOOL, arguments)
        task_id = handle.task_id or ""
        row.has_task = True
        screen.print_event(f"{row.name} receives a task at once: {task_id[:12]}…")
        async for update in handle:
            done = row.total if update.is_ended else update.progress.done if update.progress else None
            screen.update(row, status=update.status, message=update.message or "", done=done)
        result = await handle.result()
    return task_id, value_of(result)


async def call_without_tasks(
    screen: DemoScreen, row: CallerRow, url: str, arguments: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """Call as a host without tasks: its model reads the answer, and sends the next call."""
    connection = ServerConnection(url, lambda: Client(url, mode="legacy"), reconnect_timeout=30.0, clock=SystemClock())
    await connection.open()
    try:
        screen.update(row, status="waits", message="an ordinary call, which stays open")
        result, task_id = await (await connection.client()).call_tool(TOOL, dict(arguments)), ""
        while (task := _live_task(result)) is not None:
            task_id, next_call = task["task_id"], task["next"]
            tool, call = next_call["tool"], next_call["arguments"]
            row.has_task = True
            screen.print_event(f"{row.name} receives a text about the task: its model calls {tool}")
            screen.update(row, status=task["status"], message=f"its model calls {tool}", done=task.get("progress"))
            result = await connection.request(_tool_request(tool, call), response_timeout=None)
        screen.update(row, status="completed", message="", done=row.total)
        return task_id, value_of(result)
    finally:
        await connection.close()


def _tool_request(tool: str, arguments: dict[str, Any]) -> Callable[[Client], Awaitable[CallToolResult]]:
    return lambda client: client.call_tool(tool, arguments)


def _live_task(result: CallToolResult) -> Mapping[str, Any] | None:
    """Return the answer's data about a task that has not ended; None if it has."""
    task = as_object(cast("Json", result.structured_content))
    return task if "task_id" in task and "next" in task else None


def value_of(result: CallToolResult) -> Mapping[str, Any]:
    """Return the tool's result.

    Raises:
        MCPError: the tool returned an error.
    """
    if result.is_error:
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        raise MCPError(-32_000, " ".join(texts))
    return cast("Mapping[str, Any]", result.structured_content)
