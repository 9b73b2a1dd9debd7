"""`raincheck serve`: serve a file or a module on stdio, HTTP or a Unix socket, until a signal or the client ends it."""

import asyncio
import errno
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import typer
from anyio.abc import TaskStatus
from mcp.server.stdio import stdio_server

from raincheck.cli.exit_codes import echo_err, fail_with_error
from raincheck.cli.loader import load_tasks, redirect_stdout_to_stderr, run_with_reload
from raincheck.cli.output.log import LogFormat, LogFormatOption, install_handler
from raincheck.engine.process_signals import stop_signals
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.server import Tasks
from raincheck.server.http.server import HttpServer
from raincheck.server.sdk_compat import lowlevel_of
from raincheck.server.unix.server import serve_until_signal

STDIN = 0

CHUNK_SIZE = 65_536

ListenCallback = Callable[[str], None]
"""Called with the address once the server listens."""


async def serve_stdio(tasks: Tasks) -> None:
    """Serve the parent process, until it closes stdin, or a signal arrives."""
    server = lowlevel_of(tasks.server)
    end = _closable_stdin()
    with stop_signals(tasks.skip_grace, end):
        async with stdio_server() as (read, write):
            try:
                # The SDK restores stdout when it is done, and its buffer may still contain text.
                with redirect_stdout(sys.stderr):
                    await server.run(read, write, server.create_initialization_options())
            finally:
                # The SDK reads stdin in a thread that blocks until stdin ends.
                end()


def _closable_stdin() -> Callable[[], None]:
    """Make stdin end when the returned function is called, and not only when the client closes it.

    A thread that reads stdin can't be stopped. This thread forwards its input, and is never joined.
    """
    real = os.dup(STDIN)
    local, remote = socket.socketpair()
    os.dup2(remote.fileno(), STDIN)
    remote.close()

    def end() -> None:
        # The socket is not closed: its descriptor could be reused by the time that the thread writes to it.
        try:
            local.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def forward() -> None:
        try:
            while chunk := os.read(real, CHUNK_SIZE):
                local.sendall(chunk)
        except OSError:
            return
        finally:
            end()

    threading.Thread(target=forward, name="stdin", daemon=True).start()
    return end


async def serve_http(tasks: Tasks, host: str, port: int, on_listen: ListenCallback) -> None:
    """Serve Streamable HTTP, until a signal arrives.

    Raises:
        ConfigurationError: it can't listen on this address.
    """
    app = tasks.server.streamable_http_app(host=host)
    http = HttpServer(app)

    def skip_grace() -> None:
        http.handle_exit(signal.SIGINT, None)
        tasks.skip_grace()

    stop = partial(http.handle_exit, signal.SIGTERM, None)
    with _bind_socket(host, port) as listening, stop_signals(skip_grace, stop):
        # The HTTP server would print a startup error with its whole traceback.
        async with app.router.lifespan_context(app):
            on_listen(f"http://{_url_host(host)}:{listening.getsockname()[1]}/mcp")
            await http.serve(sockets=[listening])


async def serve_unix(tasks: Tasks, path: Path, on_listen: ListenCallback) -> None:
    """Serve on a Unix socket, until a signal arrives.

    Raises:
        ConfigurationError: it can't listen on this path.
    """

    class Status(TaskStatus[None]):
        def started(self, value: None = None) -> None:
            del value
            on_listen(f"unix:{path}")

    await serve_until_signal(tasks.serve_unix(path, task_status=Status()), tasks.skip_grace)


def parse_endpoint(text: str) -> tuple[str, int]:
    """Parse `127.0.0.1:8000`, `[::1]:8000`, or a port alone, which listens on this machine only.

    Raises:
        ConfigurationError: the text has another form.
    """
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdigit() and int(port) < 65_536) or (":" in host and bare == host):
        raise ConfigurationError(f"{text!r} is not an address to listen on: write HOST:PORT, as in 127.0.0.1:8000")
    return bare or "127.0.0.1", int(port)


def _url_host(host: str) -> str:
    """Format a host for a URL. The wildcard address is not reachable, so it becomes the loopback address."""
    usable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - the user chose the address
    return f"[{usable}]" if ":" in usable else usable


def is_reachable_from_network(host: str) -> bool:
    """Return whether other machines may reach a server that listens on this host."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def has_authentication(server: object) -> bool:
    """Return whether an HTTP server requires authentication: one of the SDK, or of FastMCP."""
    own = getattr(getattr(server, "settings", None), "auth", None)
    return own is not None or getattr(getattr(server, "server", None), "auth", None) is not None


def _bind_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        number = error.errno or 0
        if number < 0:  # from `getaddrinfo`
            reason, remedy = f"there is no host {host!r}", "use an address of this machine, such as 127.0.0.1"
        elif number == errno.EADDRNOTAVAIL:
            reason, remedy = os.strerror(number), "use an address of this machine, or 0.0.0.0 for all of them"
        elif number == errno.EACCES:
            reason, remedy = os.strerror(number), "choose a port of at least 1024"
        else:
            reason, remedy = os.strerror(number), "choose another port, or stop the program that uses it"
        raise ConfigurationError(f"can't listen on {host}:{port} ({reason}): {remedy}") from error


@contextmanager
def unwrap_error_groups() -> Generator[None]:
    """Raise raincheck's own errors unwrapped: libraries wrap them in groups."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = group.subgroup(RaincheckError)
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if error is None:
            raise
        raise error from group


EPILOG = """
TARGET is a file or a module, optionally with a colon and the name of the Tasks object or of the server. It may also be
a file of workflows that ends in .yaml, or a folder of such files, which are reloaded when they change.

Examples:

\b
  raincheck serve server.py
  raincheck serve server.py:mcp --http 127.0.0.1:8000
  raincheck serve workflows.yaml --http 127.0.0.1:8000
  raincheck serve package.server:tasks --unix /run/user/1000/reports.sock --store /var/lib/tasks.db

On stdio, stdout is reserved for messages; all other output goes to stderr. SIGINT and SIGTERM stop the server
gracefully, and a second signal skips the grace period of running tools. Exit codes: 0 success; 2 the server could not
be started.
"""

TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="The file or module to load, such as server.py:mcp.")
]
StoreOption = Annotated[
    str | None, typer.Option(metavar="URL", help="The store, as a URL or a path. Overrides the store of TARGET.")
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(metavar="NUMBER", help="The maximum number of concurrent attempts. Overrides the setting of TARGET."),
]


def serve(
    target: TargetArgument,
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve the parent process. The default.")] = False,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Streamable HTTP. The URL is printed on stderr.")
    ] = None,
    unix: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Serve on a Unix socket, which only this user can access.")
    ] = None,
    store: StoreOption = None,
    no_work: Annotated[
        bool, typer.Option("--no-work", help="Accept tasks and answer requests, but leave running them to workers.")
    ] = False,
    concurrency: ConcurrencyOption = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Once the server listens, print its address as one line of JSON (not on stdio)."),
    ] = False,
    log_format: LogFormatOption = None,
) -> None:
    """Serve the tools and tasks of a file or a module."""
    try:
        if stdio + (http is not None) + (unix is not None) > 1:
            raise ConfigurationError("--stdio, --http and --unix exclude each other: start a process for each")
        if as_json and http is None and unix is None:
            raise ConfigurationError("on stdio, stdout is reserved for messages: use --json with --http or --unix")
        if no_work and concurrency is not None:
            raise ConfigurationError("--no-work runs no tasks: leave out --concurrency")
        overrides = {"store": store, "works": False if no_work else None, "concurrency": concurrency}
        _serve(target, http, unix, overrides, log_format, as_json=as_json)
    except RaincheckError as error:
        # On stdio, stdout is reserved for messages.
        fail_with_error(error, as_json=as_json and not (http is None and unix is None))


def _serve(
    target: str,
    http: str | None,
    unix: Path | None,
    overrides: dict[str, Any],
    log_format: LogFormat | None,
    *,
    as_json: bool,
) -> None:
    endpoint = None if http is None else parse_endpoint(http)
    with redirect_stdout_to_stderr():
        tasks = load_tasks(target)
    install_handler(log_format, is_quiet=endpoint is None and unix is None)
    tasks.configure(**overrides)

    def on_listen(address: str) -> None:
        echo_err(f"{tasks.server.name!r} is served at {address}")
        if endpoint is not None and is_reachable_from_network(endpoint[0]) and not has_authentication(tasks.server):
            remedy = f"use --http 127.0.0.1:{endpoint[1]} to accept only local connections"
            echo_err(
                f"warning: authentication is not configured, so anyone who can reach this host can call these tools: "
                f"{remedy}"
            )
        if as_json:
            typer.echo(json.dumps({"name": tasks.server.name, "at": address}))

    if endpoint is not None:
        serving = serve_http(tasks, *endpoint, on_listen)
    elif unix is not None:
        serving = serve_unix(tasks, unix, on_listen)
    else:
        if sys.stdin.isatty():
            echo_err(
                f"{tasks.server.name!r} is served on stdio, for a host that starts this command. To serve a URL, use "
                f"--http 127.0.0.1:8000"
            )
        serving = serve_stdio(tasks)
    with unwrap_error_groups():
        asyncio.run(run_with_reload(tasks, serving))
