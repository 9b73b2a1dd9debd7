"""Three callers of the same tool: of either generation, and one without tasks, as most hosts are.

The person who watches, if there is one: may answer, and need not.
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

from raincheck.cli.demo.screen import Board, Line
from raincheck.client import TaskClient
from raincheck.client.connection import Connection
from raincheck.clock import SystemClock
from raincheck.core.payload import Json
from raincheck.wire.fields import as_object

ANSWERS_WITHIN = 6.0


class Person:
    """Asks at the terminal for a while. Nobody there, or no answer, is a yes."""

    def __init__(self, console: Console, *, is_there: bool) -> None:
        self._console = console
        self._is_there = is_there

    async def ask(self, question: str) -> tuple[bool, str]:
        """Whether they say yes, and who said it."""
        if not self._is_there:
            return True, "by itself"
        prompt = Text.assemble((question, "bold"), f" [Y/n] (answers itself in {ANSWERS_WITHIN:.0f} s) ")
        self._console.print(prompt, end="")
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                line = await _next_line()
        except TimeoutError:
            self._console.print()
            return True, "by itself"
        return not line.strip().lower().startswith("n"), "as you said"


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
    board: Board, line: Line, url: str, arguments: Mapping[str, Any], mode: str, ask: ElicitationFnT | None
) -> tuple[str, Mapping[str, Any]]:
    """A host that takes tasks: it is handed one, and follows it."""
    async with TaskClient(url, mode=mode, elicitation_callback=ask) as client:
        handle = await client.call(TOOL, arguments)
        task_id = handle.task_id or ""
        line.has_task = True
        board.tell(f"{line.name} has a task at once: {task_id[:12]}…")
        async for update in handle:
            done = line.total if update.is_ended else update.progress.done if update.progress else None
            board.see(line, status=update.status, says=update.message or "", done=done)
        result = await handle.result()
    return task_id, value_of(result)


async def call_without(
    board: Board, line: Line, url: str, arguments: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """A host that knows nothing of tasks: its model reads what it is told, and makes the next call."""
    connection = Connection(url, lambda: Client(url, mode="legacy"), patience=30.0, clock=SystemClock())
    await connection.open()
    try:
        board.see(line, status="waits", says="an ordinary call, which stays open")
        result, task_id = await (await connection.client()).call_tool(TOOL, dict(arguments)), ""
        while (told := _facts(result)) is not None:
            task_id, following = told["task_id"], told["next"]
            tool, call = following["tool"], following["arguments"]
            line.has_task = True
            board.tell(f"{line.name} is told in words how to go on: its model calls {tool}")
            board.see(line, status=told["status"], says=f"its model calls {tool}", done=told.get("progress"))
            result = await connection.request(_calling(tool, call), within=None)
        board.see(line, status="completed", says="", done=line.total)
        return task_id, value_of(result)
    finally:
        await connection.close()


def _calling(tool: str, arguments: dict[str, Any]) -> Callable[[Client], Awaitable[CallToolResult]]:
    return lambda client: client.call_tool(tool, arguments)


def _facts(result: CallToolResult) -> Mapping[str, Any] | None:
    """What a caller is told of a task that has not ended; None if it has."""
    told = as_object(cast("Json", result.structured_content))
    return told if "task_id" in told and "next" in told else None


def value_of(result: CallToolResult) -> Mapping[str, Any]:
    """What the tool returned.

    Raises:
        MCPError: an error.
    """
    if result.is_error:
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        raise MCPError(-32_000, " ".join(texts))
    return cast("Mapping[str, Any]", result.structured_content)
