"""Monitor a call until it ends, times out, asks a question that can't be answered here, or the user presses Ctrl-C.

The client reconnects without notification, so a wrapper around its transport detects disconnects.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, TypeVar, cast

import typer
from anyio.abc import ObjectReceiveStream
from mcp.client import Transport
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import CallToolResult, JSONRPCError
from rich.console import Console

from raincheck.cli.exit_codes import (
    FATAL,
    SIGNAL_EXIT_BASE,
    ExitCode,
    echo_err,
    redirect_dead_terminals,
    without_ignored,
)
from raincheck.cli.output.progress import BarDisplay, ProgressDisplay
from raincheck.cli.prompts.questions import ELICITATION, ElicitationPrompter, PromptInterrupt, Terminal
from raincheck.client import Handle, TaskProgress, Update

T = TypeVar("T")

MENU = "[d]etach and come back later, [c]ancel the task, or Enter to keep waiting:"


def follow_updates(handle: Handle) -> AsyncGenerator[Update]:
    """Return the task's updates. The caller closes the generator if it stops before the end."""
    return cast("AsyncGenerator[Update]", aiter(handle))


class WaitInterrupt(Exception):
    """The command stops waiting for the call. The exit code gives the reason."""

    def __init__(self, exit_code: ExitCode, exit_code_without_task: int | None = None) -> None:
        super().__init__(exit_code.name)
        self.exit_code = exit_code
        self.exit_code_without_task = exit_code if exit_code_without_task is None else exit_code_without_task
        """The exit code if there is no task to detach from."""


class CallMonitor:
    """Waits for the server, the call and its result: shows progress, asks questions, handles Ctrl-C and the timeout."""

    def __init__(self, tool: str, timeout: float | None) -> None:
        self.tool = tool
        console = Console(stderr=True)
        self._terminal = Terminal(console) if Terminal.is_interactive() else None
        self.display = BarDisplay(console) if console.is_terminal else ProgressDisplay()
        self.prompter = ElicitationPrompter(tool, self.display, self._terminal)
        self._interrupts: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._timeout = timeout
        self._timeout_reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_waiting = False
        self._stopped_by: signal.Signals | None = None

    @contextmanager
    def open(self) -> Generator[None]:
        """Show the display and handle signals inside the context, and restore the terminal afterwards."""
        loop, command = asyncio.get_running_loop(), asyncio.current_task()
        assert command is not None  # noqa: S101 - called from a background task
        numbers = (signal.SIGINT, *without_ignored(*FATAL))
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number, command)
        try:
            self.display.start("connecting", None)
            yield
        except asyncio.CancelledError as error:
            if self._stopped_by is None:
                raise
            raise typer.Exit(SIGNAL_EXIT_BASE + self._stopped_by) from error
        finally:
            self.display.close()
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals, command: "asyncio.Task[Any]") -> None:
        redirect_dead_terminals()
        if not self._is_waiting:
            self._stopped_by = number
            # Give up the current operation, such as cancelling a task of an unavailable server.
            command.cancel()
            return
        self._interrupts.put_nowait(number)
        if self._terminal is not None:
            self._terminal.abort()

    async def show_progress(self, progress: TaskProgress, message: str | None) -> None:
        """Show the progress that a server without tasks sends while the call waits."""
        self.display.show(progress, message, "working")

    async def wait_for_server(self, work: Awaitable[T]) -> T:
        """Wait for the server. Ctrl-C ends the command, since nothing has been called yet."""
        try:
            return await self._wait(work, None)
        except WaitInterrupt as interrupt:
            self.display.close()
            echo_err("interrupted before the tool was called")
            raise typer.Exit(interrupt.exit_code_without_task) from interrupt

    def start_timeout(self) -> None:
        """Start the timeout. It does not include the time to connect to the server."""
        if self._timeout is not None:
            asyncio.get_running_loop().call_later(self._timeout, self._timeout_reached.set_result, None)

    async def wait_for_start(self, call: Awaitable[T]) -> T:
        """Wait for the response to the call itself. There is no task to resume yet. An error closes the display.

        Raises:
            WaitInterrupt: the call was given up, and cancelled on the server.
        """
        self.display.start(self.tool, None)
        try:
            return await self._wait(call, None)
        except Exception:
            self.display.close()
            raise

    async def wait_for_result(self, handle: Handle) -> CallToolResult:
        """Wait for the result of a task, then close the display.

        Raises:
            WaitInterrupt: the command stops waiting for it.
            And the errors of `Handle.result`.
        """
        self.display.start(self.tool, handle.task_id)
        try:
            return await self._wait(self._follow(handle), handle)
        finally:
            self.display.close()

    async def _follow(self, handle: Handle) -> CallToolResult:
        async with aclosing(follow_updates(handle)) as updates:
            async for update in updates:
                self.display.show(update.progress, update.message, str(update.status))
                if any(question.method != ELICITATION for question in update.questions):
                    # A question for a model, or for a list of folders: this command can answer neither.
                    raise WaitInterrupt(ExitCode.NEEDS_INPUT)
        return await handle.result()

    async def _wait(self, work: Awaitable[T], handle: Handle | None) -> T:
        running = asyncio.ensure_future(work)
        self._is_waiting = True
        try:
            while True:
                interrupted = asyncio.ensure_future(self._interrupts.get())
                ends: list[asyncio.Future[Any]] = [running, self.prompter.unanswered, self._timeout_reached]
                try:
                    await asyncio.wait([interrupted, *ends], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    interrupted.cancel()
                if running.done():
                    return running.result()
                if interrupted.done() and not interrupted.cancelled():
                    await self._ask_while_running(running, self._ask_next_action(interrupted.result(), handle))
                elif self.prompter.unanswered.done():
                    raise WaitInterrupt(ExitCode.NEEDS_INPUT)
                elif self._timeout_reached.done():
                    raise WaitInterrupt(ExitCode.STILL_RUNNING)
        finally:
            self._is_waiting = False
            running.cancel()
            await asyncio.wait([running])
            if not running.cancelled():
                # Retrieve the exception of work that has ended by now, since its outcome is no longer needed.
                running.exception()

    async def _ask_while_running(self, running: "asyncio.Future[T]", show_menu: Coroutine[Any, Any, None]) -> None:
        """Run the menu while the work is still running. The work's outcome takes precedence."""
        menu = asyncio.ensure_future(show_menu)
        try:
            await asyncio.wait([menu, running], return_when=asyncio.FIRST_COMPLETED)
        finally:
            menu.cancel()
            await asyncio.wait([menu])
        if not menu.cancelled() and not running.done():
            menu.result()

    async def _ask_next_action(self, number: signal.Signals, handle: Handle | None) -> None:
        """Ask what to do after a signal. Returns if the user wants to keep waiting."""
        if handle is None:
            raise WaitInterrupt(ExitCode.INTERRUPTED, SIGNAL_EXIT_BASE + number)
        if self._terminal is None or number is not signal.SIGINT:
            raise WaitInterrupt(ExitCode.STILL_RUNNING)
        async with self._terminal.prompt_lock:
            with self.display.suspend():
                choice = await self._choose(self._terminal)
        if choice == "d":
            raise WaitInterrupt(ExitCode.STILL_RUNNING)
        if choice == "c":
            raise WaitInterrupt(ExitCode.INTERRUPTED)
        self._terminal.may_prompt.set()

    async def _choose(self, terminal: Terminal) -> str:
        terminal.print_line()
        while True:
            try:
                choice = (await terminal.ask(MENU)).lower()[:1]
            except (PromptInterrupt, EOFError):
                # A second Ctrl-C detaches at once.
                return "d"
            if choice in ("", "d", "c"):
                return choice


Incoming = SessionMessage | Exception


class ConnectionMonitor:
    """Makes connections, and reports disconnects: each connection after the first response replaces a lost one."""

    def __init__(self, connect: Callable[[], Transport], display: ProgressDisplay) -> None:
        self._connect = connect
        self._display = display
        self._was_connected = False
        self._is_lost = False

    def connect(self) -> Transport:
        if self._was_connected and not self._is_lost:
            self._is_lost = True
            self._display.on_disconnect()
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        async with self._connect() as (read, write):
            yield _ObservedStream(read, self._on_message), write

    def _on_message(self, message: Incoming) -> None:
        # If the server is unavailable, the transport itself produces an exception, or a response with an error.
        if isinstance(message, Exception) or isinstance(message.message, JSONRPCError):
            return
        self._was_connected = True
        if self._is_lost:
            self._is_lost = False
            self._display.on_reconnect()


class _ObservedStream(ObjectReceiveStream[Incoming]):
    """A stream of messages that reports each one to a callback."""

    def __init__(self, read: ReadStream[Incoming], on_message: Callable[[Incoming], None]) -> None:
        self._read = read
        self._on_message = on_message

    @property
    def last_context(self) -> object:
        """An attribute that the SDK reads from its streams."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> Incoming:
        message = await self._read.receive()
        self._on_message(message)
        return message

    async def aclose(self) -> None:
        await self._read.aclose()
