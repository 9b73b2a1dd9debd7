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
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import typer
from anyio.abc import TaskStatus
from mcp.server.stdio import stdio_server

from raincheck.cli.exit_codes import echo_err, fail_with_error
from raincheck.cli.output.log import LogFormat, LogFormatOption, install_handler
from raincheck.engine.signals import stop_signals
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.server import Tasks
from raincheck.server.http.server import HttpServer
from raincheck.server.sdk_compat import lowlevel_of
from raincheck.server.unix.server import serve_until_signal

STDIN = 0

PIECE = 65_536

ListenCallback = Callable[[str], None]
"""Called with the address once the server listens."""


async def serve_stdio(tasks: Tasks) -> None:
    """Serve the process that started this one, until it closes stdin, or a signal arrives."""
    server = lowlevel_of(tasks.server)
    end = _closable_stdin()
    with stop_signals(tasks.skip_grace) as told:
        stopping = asyncio.ensure_future(told.wait())
        stopping.add_done_callback(lambda _: end())
        try:
            async with stdio_server() as (read, write):
                try:
                    # The SDK restores stdout for printing when it is done, and its buffer may still hold text.
                    with redirect_stdout(sys.stderr):
                        await server.run(read, write, server.create_initialization_options())
                finally:
                    # The SDK reads stdin in a thread that blocks until stdin ends.
                    end()
        finally:
            stopping.cancel()


def _closable_stdin() -> Callable[[], None]:
    """Make stdin end when the returned function is called, and not only when the other side closes it.

    A thread that reads stdin can't be stopped. This one forwards what it reads, and is never waited for.
    """
    real = os.dup(STDIN)
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), STDIN)
    theirs.close()

    def end() -> None:
        # Nothing is closed: another file could have the same number by the time that the thread writes to it.
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


async def serve_http(tasks: Tasks, host: str, port: int, on_listen: ListenCallback) -> None:
    """Serve Streamable HTTP, until a signal arrives.

    Raises:
        ConfigurationError: it can't listen on this address.
    """
    app = tasks.server.streamable_http_app(host=host)
    http = HttpServer(app)

    def hurry() -> None:
        http.handle_exit(signal.SIGINT, None)
        tasks.skip_grace()

    with _bind_socket(host, port) as listening, stop_signals(hurry) as told:
        stopping = asyncio.ensure_future(told.wait())
        stopping.add_done_callback(lambda _: http.handle_exit(signal.SIGTERM, None))
        try:
            # Not left to the HTTP server, which would print a startup error with its whole traceback.
            async with app.router.lifespan_context(app):
                on_listen(f"http://{_url_host(host)}:{listening.getsockname()[1]}/mcp")
                await http.serve(sockets=[listening])
        finally:
            stopping.cancel()


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
        raise ConfigurationError(f"{text!r} is not where a server can listen: write HOST:PORT, as in 127.0.0.1:8000")
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
            why, remedy = f"there is no host {host!r}", "use an address of this machine, such as 127.0.0.1"
        elif number == errno.EADDRNOTAVAIL:
            why, remedy = os.strerror(number), "use an address of this machine, or 0.0.0.0 for all of them"
        elif number == errno.EACCES:
            why, remedy = os.strerror(number), "choose a port from 1024 on"
        else:
            why, remedy = os.strerror(number), "choose another port, or stop what is there"
        raise ConfigurationError(f"it can't listen at {host}:{port} ({why}): {remedy}") from error


@contextmanager
def unwrap_error_groups() -> Generator[None]:
    """Raise raincheck's own errors unwrapped: libraries wrap them in groups."""
    try:
        yield
    except BaseExceptionGroup as group:
        ours = group.subgroup(RaincheckError)
        while isinstance(ours, BaseExceptionGroup):
            ours = ours.exceptions[0]
        if ours is None:
            raise
        raise ours from group


# Text after a line that contains only \b is not rewrapped.
EPILOG = """
TARGET is a file or a module, and after a colon the Tasks in it, or the server that they are attached to; or a file of
workflows that ends in .yaml, or a folder of such files, which are read again when they change.

Examples:

\b
  raincheck serve server.py
  raincheck serve server.py:mcp --http 127.0.0.1:8000
  raincheck serve workflows.yaml --http 127.0.0.1:8000
  raincheck serve package.server:tasks --unix /run/user/1000/reports.sock --store /var/lib/tasks.db

On stdio, stdout is for messages alone; everything else goes to stderr. SIGINT and SIGTERM stop it in good order, and a
second one cuts the waiting for tools short. It ends with 0, or with 2 if it could not be started.
"""

TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help="What to load, such as server.py:mcp.")]
ConcurrencyOption = Annotated[
    int | None, typer.Option(metavar="NUMBER", help="How many attempts run at once, whatever the file says.")
]


def serve(
    target: TargetArgument,
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve the program that started this. The default.")] = False,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Streamable HTTP; the URL is printed on stderr.")
    ] = None,
    unix: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Serve on a Unix socket, for this user alone.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Keep tasks there, whatever the file says: a URL or a path.")
    ] = None,
    no_work: Annotated[
        bool, typer.Option("--no-work", help="Take tasks and answer for them, and leave the running to others.")
    ] = False,
    concurrency: ConcurrencyOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="When it listens, print where as one line of JSON (not on stdio).")
    ] = False,
    log_format: LogFormatOption = None,
) -> None:
    """Serve the tools and tasks of a file or a module."""
    try:
        if stdio + (http is not None) + (unix is not None) > 1:
            raise ConfigurationError("one of --stdio, --http and --unix: start it twice to serve both")
        if as_json and http is None and unix is None:
            raise ConfigurationError("on stdio, stdout is for messages alone: --json is for --http and --unix")
        if no_work and concurrency is not None:
            raise ConfigurationError("with --no-work nothing is run here: leave out --concurrency")
        wanted = {"store": store, "works": False if no_work else None, "concurrency": concurrency}
        _serve(target, http, unix, wanted, log_format, as_json=as_json)
    except RaincheckError as error:
        # On stdio, stdout is reserved for messages.
        fail_with_error(error, as_json=as_json and not (http is None and unix is None))


def _serve(
    target: str,
    http: str | None,
    unix: Path | None,
    wanted: dict[str, Any],
    log_format: LogFormat | None,
    *,
    as_json: bool,
) -> None:
    # Imported here: the SDK takes most of a second to import, and other commands don't need it.
    from raincheck.cli.loader import load_tasks, redirect_stdout_to_stderr, run_with_reload

    endpoint = None if http is None else parse_endpoint(http)
    with redirect_stdout_to_stderr():
        tasks = load_tasks(target)
    install_handler(log_format, is_quiet=endpoint is None and unix is None)
    tasks.configure(**wanted)

    def listens(where: str) -> None:
        echo_err(f"{tasks.server.name!r} is served at {where}")
        if endpoint is not None and is_reachable_from_network(endpoint[0]) and not has_authentication(tasks.server):
            alone = f"--http 127.0.0.1:{endpoint[1]} is for this machine alone"
            echo_err(
                f"warning: authentication is not configured, so anyone who can reach this host can call these tools: "
                f"{alone}"
            )
        if as_json:
            typer.echo(json.dumps({"name": tasks.server.name, "at": where}))

    if endpoint is not None:
        serving = serve_http(tasks, *endpoint, listens)
    elif unix is not None:
        serving = serve_unix(tasks, unix, listens)
    else:
        if sys.stdin.isatty():
            echo_err(
                f"{tasks.server.name!r} is served on stdio, which is for a host that starts this command. For a URL: "
                f"--http 127.0.0.1:8000"
            )
        serving = serve_stdio(tasks)
    with unwrap_error_groups():
        asyncio.run(run_with_reload(tasks, serving))
