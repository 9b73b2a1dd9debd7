"""Serving on each transport, until a signal or the other end says that it is over."""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from ipaddress import ip_address
from pathlib import Path

from anyio.abc import TaskStatus
from mcp.server.stdio import stdio_server

from raincheck.engine.shutdown import signals
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.server import Tasks
from raincheck.server.http_server import HttpServer
from raincheck.server.sdk import lowlevel_of
from raincheck.server.unix import serve_until_signal

STDIN = 0

PIECE = 65_536

Listens = Callable[[str], None]
"""Told where it is served, when it is."""


async def serve_stdio(tasks: Tasks) -> None:
    """Serve whoever started this process, until they close stdin, or a signal comes."""
    server = lowlevel_of(tasks.server)
    end = _stdin_that_ends()
    with signals(tasks.hurry) as told:
        stopping = asyncio.ensure_future(told.wait())
        stopping.add_done_callback(lambda _: end())
        try:
            async with stdio_server() as (read, write):
                try:
                    # The SDK leaves stdout to what is printed when it is done, and something may be left in its buffer.
                    with redirect_stdout(sys.stderr):
                        await server.run(read, write, server.create_initialization_options())
                finally:
                    # The SDK reads in a thread that nothing else gets out of its waiting.
                    end()
        finally:
            stopping.cancel()


def _stdin_that_ends() -> Callable[[], None]:
    """Have stdin end when this is called, and not only when whoever writes to it closes it.

    A thread that reads stdin can't be told to stop. This one passes on what it reads, and nobody waits for it.
    """
    real = os.dup(STDIN)
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), STDIN)
    theirs.close()

    def end() -> None:
        # Nothing is closed: the number of the file could be another's by the time that the thread writes to it.
        try:
            ours.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def pass_on() -> None:
        try:
            while piece := os.read(real, PIECE):
                ours.sendall(piece)
        except OSError:
            return
        finally:
            end()

    threading.Thread(target=pass_on, name="stdin", daemon=True).start()
    return end


async def serve_http(tasks: Tasks, host: str, port: int, listens: Listens) -> None:
    """Serve Streamable HTTP, until a signal comes.

    Raises:
        ConfigurationError: it can't listen there.
    """
    app = tasks.server.streamable_http_app(host=host)
    http = HttpServer(app)

    def hurry() -> None:
        http.handle_exit(signal.SIGINT, None)
        tasks.hurry()

    with _listen(host, port) as listening, signals(hurry) as told:
        stopping = asyncio.ensure_future(told.wait())
        stopping.add_done_callback(lambda _: http.handle_exit(signal.SIGTERM, None))
        try:
            # Not left to the HTTP server, which would print what keeps it from starting with all of its stack.
            async with app.router.lifespan_context(app):
                listens(f"http://{_called(host)}:{listening.getsockname()[1]}/mcp")
                await http.serve(sockets=[listening])
        finally:
            stopping.cancel()


async def serve_unix(tasks: Tasks, path: Path, listens: Listens) -> None:
    """Serve on a Unix socket, until a signal comes.

    Raises:
        ConfigurationError: it can't listen there.
    """

    class Status(TaskStatus[None]):
        def started(self, value: None = None) -> None:
            del value
            listens(f"unix:{path}")

    await serve_until_signal(tasks.serve_unix(path, task_status=Status()), tasks.hurry)


def parse_endpoint(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:8000`, `[::1]:8000`, or of a port alone, which is for this machine.

    Raises:
        ConfigurationError: it is something else.
    """
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdigit() and int(port) < 65_536) or (":" in host and bare == host):
        raise ConfigurationError(f"{text!r} is not where a server can listen: write HOST:PORT, as in 127.0.0.1:8000")
    return bare or "127.0.0.1", int(port)


def _called(host: str) -> str:
    """A host as it stands in a URL. That of all addresses is no address: there it is this machine's own."""
    usable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what is listened at was chosen
    return f"[{usable}]" if ":" in usable else usable


def is_open_to_others(host: str) -> bool:
    """Whether other machines may get through to what listens there."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def asks_who(server: object) -> bool:
    """Whether an HTTP server lets in only whom it knows: one of the SDK, or of FastMCP."""
    own = getattr(getattr(server, "settings", None), "auth", None)
    return own is not None or getattr(getattr(server, "server", None), "auth", None) is not None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        # The words of `socket.gaierror` are its own; others repeat the address.
        why = error.strerror if isinstance(error, socket.gaierror) or error.errno is None else os.strerror(error.errno)
        raise ConfigurationError(
            f"it can't listen at {host}:{port} ({why}): choose another port, or stop what is there"
        ) from error


@contextmanager
def unwrapped() -> Generator[None]:
    """An error of ours is raised as it is: libraries wrap it in groups on its way."""
    try:
        yield
    except BaseExceptionGroup as group:
        ours = group.subgroup(RaincheckError)
        while isinstance(ours, BaseExceptionGroup):
            ours = ours.exceptions[0]
        if ours is None:
            raise
        raise ours from group
