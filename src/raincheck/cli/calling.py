"""Calling a tool: connect, check what is sent, call, and stay with it."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from mcp.shared.exceptions import MCPError
from rich.console import Console

from raincheck.cli.arguments import check_arguments, read_arguments, read_files
from raincheck.cli.book import Ledger
from raincheck.cli.book_option import book_path
from raincheck.cli.endings import Ending, Unusable
from raincheck.cli.following import Vigil
from raincheck.cli.headers import read_headers
from raincheck.cli.listing import find_tool, list_tools, print_tools
from raincheck.cli.live import Bar, Lines, Shown
from raincheck.cli.manner import Manner
from raincheck.cli.plain import printable
from raincheck.cli.questions import Asker
from raincheck.cli.reaching import quiet, reach, said_by
from raincheck.cli.results import print_result
from raincheck.cli.staying import begun, conclude
from raincheck.cli.targets import Target, read_target
from raincheck.cli.terminal import Terminal
from raincheck.cli.wishes import Wishes
from raincheck.client import Handle, Progress


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
