"""Start Python processes in milliseconds: fork one that has already imported what they need.

Importing the MCP SDK costs about a second of CPU, and the tests start hundreds of servers, workers and commands. With
`installed()`, `subprocess` and asyncio start this interpreter by asking a template process to fork instead of running a
new one. Everything else about the process is real: it is a child of the test process with its own pid, memory, session
and descriptors, it takes signals, it dies of SIGKILL, and its exit status comes from the kernel.

A command runs as usual, by `exec`, where a fork could differ: another program than this interpreter, options of the
interpreter, other variables that Python reads when it starts, a `preexec_fn`, another user or process group. The tests
that are marked `cold` always do, since they are about what a process imports; so does everything where `available()` is
false, and where RAINCHECK_TESTS_FORK=0 turns all of it off.
"""

import atexit
import ctypes
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import ssl
import subprocess
import sys
import termios
import threading
from array import array
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

PYTHON = sys.executable
"""This interpreter."""

PRELOADED = (
    "anyio._backends._asyncio",
    "httpcore2",
    "httpcore2._async",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "mcp.server.stdio",
    "raincheck.cli.remote.session",
    "raincheck.cli.loader",
    "raincheck.cli.app",
    "raincheck.cli.commands.serve",
    "raincheck.workflows.serve",
    "raincheck.cli.commands.worker",
    "raincheck.client",
    "raincheck.dispatchers.procrastinate",
    "raincheck.engine.isolation.child",
    "raincheck.stores.factory",
    "raincheck.server",
    "raincheck.stores.sqlite",
    "raincheck.workflows",
    "rich.logging",
    "truststore",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.auto",
)
MAX_REQUEST_BYTES = 100_000
"""Maximum size of a request, which a socket sends at once. A process with a larger environment is started by `exec`."""

OWN_DESCRIPTOR = 900
"""The number, or one above it, of the connection to the template in a forked process."""

USED_AT_EXIT = frozenset(
    ("__main__", "builtins", "codecs", "encodings", "importlib", "io", "linecache", "logging", "os", "sys", "threading")
) | {"traceback", "warnings", "weakref"}
"""Modules that may be needed while Python exits."""

PR_SET_CHILD_SUBREAPER = 36


def available() -> bool:
    return sys.platform == "linux" and os.environ.get("RAINCHECK_TESTS_FORK") != "0"


class Preparation(NamedTuple):
    """What a new process does first: a `preexec_fn` that a fork can repeat."""

    ignored_signals: Sequence[int] = ()
    default_signals: Sequence[int] = ()
    takes_terminal: bool = False
    """Whether its stdin becomes the terminal that it is controlled by, so that Ctrl-C there is a signal."""

    def __call__(self) -> None:
        for number in self.ignored_signals:
            signal.signal(number, signal.SIG_IGN)
        for number in self.default_signals:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if self.takes_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Launch(NamedTuple):
    """What a process starts with, besides its descriptors."""

    arguments: Sequence[str]
    working_directory: str
    variables: Mapping[str, str]
    ignored_signals: Sequence[int]
    """Which the test process ignores, and a new process therefore does, too."""
    new_session: bool
    umask: int
    numbers: Sequence[int]
    """The numbers its descriptors have there."""
    preparation: Preparation


class ForkServer:
    """The connection to a template process. Without one, the template is started when it is first needed."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._socket = connection
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def _connect(self) -> socket.socket:
        own_end, template_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with template_end:
            command = [sys.executable, "-B", str(Path(__file__)), str(template_end.fileno())]
            # The option makes it no command that is forked: see _is_this_python.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(template_end.fileno(),), env=variables
            )
        return own_end

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.wait()

    def start(self, launch: Launch, descriptors: Sequence[int]) -> int | None:
        """Return the pid of a new child of this process, or None if it has to be started otherwise."""
        request = json.dumps(launch).encode()
        if len(request) > MAX_REQUEST_BYTES:
            return None
        # Threads start processes too. The lock is held for milliseconds, and must not count as blocking an event loop.
        while not self._lock.acquire(blocking=False):
            os.sched_yield()
        try:
            self._socket = self._socket or self._connect()
            # The process that forks the new one exits, and the new one becomes our child.
            _set_subreaper(adopts=True)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))]
            self._socket.sendmsg([request], rights)
            answer = bytearray(16)
            length, *_ = self._socket.recvmsg_into([answer])
        finally:
            _set_subreaper(adopts=False)
            self._lock.release()
        # Empty if the template could not start it, or was ended by a signal to the process group.
        return int(answer[:length]) if length else None


def _set_subreaper(*, adopts: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


@contextmanager
def installed() -> Generator[None]:
    """Have `subprocess` fork this interpreter from a template process."""
    server, run = ForkServer(), vars(subprocess)["_fork_exec"]
    _install(server)
    try:
        yield
    finally:
        setattr(subprocess, "_fork_exec", run)  # noqa: B010 - it has no public name
        server.close()


def _install(server: ForkServer) -> None:
    run = cast("Callable[..., int]", vars(subprocess)["_fork_exec"])

    def fork(*fork_arguments: Any) -> int:
        launch = _launch(fork_arguments)
        if launch is not None:
            standard = [
                here if there == -1 else there
                for here, there in enumerate((fork_arguments[6], fork_arguments[9], fork_arguments[11]))
            ]
            kept = [fd for fd in fork_arguments[3] if fd != fork_arguments[13]]
            pid = server.start(launch._replace(numbers=[0, 1, 2, *kept]), [*standard, *kept])
            if pid is not None:
                return pid
        return run(*fork_arguments)

    setattr(subprocess, "_fork_exec", fork)  # noqa: B010 - it has no public name


def _launch(given: Sequence[Any]) -> Launch | None:
    """Parse the arguments of `_fork_exec`. Returns None if a fork could behave differently."""
    arguments = [os.fsdecode(one) for one in given[0]]
    close_fds, cwd, variables = given[2], given[4], given[5]
    new_session, process_group, gid, gids, uid, umask, preexec_fn = given[15:22]
    changed = (gid, gids, uid) != (None, None, None) or process_group not in (-1, None)
    if preexec_fn is not None and not isinstance(preexec_fn, Preparation):
        return None
    if cold or changed or not close_fds or not _is_this_python(arguments):
        return None
    environment = dict(os.environ if variables is None else (os.fsdecode(one).split("=", 1) for one in variables))
    folder = os.fsdecode(cwd or ".")
    if _startup_variables(environment) != _startup_variables(os.environ):
        return None
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
    return Launch(arguments, folder, environment, ignored, bool(new_session), umask, [], preexec_fn or Preparation())


cold = False
"""Whether all processes are currently started by `exec`."""


def _is_this_python(arguments: Sequence[str]) -> bool:
    """Whether it is this interpreter with a file, `-c` or `-m`, or a script of its environment."""
    if arguments[0] == PYTHON:
        words = _words(arguments)
        return bool(words) and (not words[0].startswith("-") or words[0] in ("-c", "-m"))
    return arguments[0] == str(Path(PYTHON).with_name("raincheck"))


def _words(arguments: Sequence[str]) -> Sequence[str]:
    """A command without the interpreter, and without its option not to import from the folder of the script."""
    if arguments[0] != PYTHON:
        return arguments
    return arguments[2:] if _is_safe_path(arguments) else arguments[1:]


def _is_safe_path(arguments: Sequence[str]) -> bool:
    return arguments[1:2] == ["-P"]


def _startup_variables(variables: Any) -> dict[str, str]:
    """The variables that Python reads before it runs anything."""
    prefixes = ("PYTHON", "LC_", "LANG", "COVERAGE", "LD_")
    return {name: value for name, value in variables.items() if name.startswith(prefixes) and name != "PYTHONPATH"}


def _keep_out_of_clean_up() -> None:
    """Exclude the preloaded modules from the clean-up at exit, which would take most of the time of a short process."""
    gc.collect()
    gc.freeze()
    kept = {name: one for name, one in sys.modules.items() if name.partition(".")[0] not in USED_AT_EXIT}
    # Never released. Python clears the modules that it finds in sys.modules when it ends.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    atexit.register(lambda: [sys.modules.pop(name, None) for name in kept])


def _serve(connection: socket.socket) -> Launch:
    """Fork a process for each request, and return in the new ones with what to run."""
    while True:
        request, rights, *_ = connection.recvmsg(MAX_REQUEST_BYTES, socket.CMSG_SPACE(64 * 4))
        if not request:
            # The process that uses this template is gone.
            os._exit(0)
        descriptors = array("i")
        for _level, _kind, data in rights:
            descriptors.frombytes(data)
        requester = os.getppid()
        if middle := os.fork():
            os.waitpid(middle, 0)
            _close(descriptors)
            continue
        middle = os.getpid()
        if os.fork():
            os._exit(0)
        while (parent := os.getppid()) == middle:
            os.sched_yield()
        if parent != requester:
            # The requester died meanwhile.
            os._exit(1)
        own_end, template_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork():
            template_end.close()
            # Above the descriptor numbers of the command.
            kept = _lift(own_end.detach(), OWN_DESCRIPTOR)
            facts = json.loads(request)
            launch = Launch(*facts[:-1], preparation=Preparation(*facts[-1]))
            _become(launch, descriptors, connection)
            _install(ForkServer(socket.socket(fileno=kept)))
            return launch
        # The template for the children of the new process.
        _close(descriptors)
        own_end.close()
        connection.close()
        connection = template_end


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _become(launch: Launch, descriptors: Sequence[int], connection: socket.socket) -> None:
    """Set up this process as requested, except for the code that it runs."""
    if launch.new_session:
        os.setsid()
    if launch.umask >= 0:
        os.umask(launch.umask)
    for number in launch.ignored_signals:
        signal.signal(number, signal.SIG_IGN)
    try:
        # Relative to the working directory of the requester, which is the parent.
        os.chdir(f"/proc/{os.getppid()}/cwd")
        os.chdir(launch.working_directory)
    except OSError:
        # `exec` then fails with the right error.
        connection.send(b"")
        os._exit(1)
    os.environ.clear()
    os.environ.update(launch.variables)
    connection.send(str(os.getpid()).encode())
    connection.close()
    # Above the numbers that they get.
    above = max(launch.numbers) + 1
    lifted = [_lift(descriptor, above) for descriptor in descriptors]
    for descriptor, number in zip(lifted, launch.numbers, strict=True):
        os.dup2(descriptor, number, inheritable=True)
        os.close(descriptor)
    launch.preparation()
    _open_standard_streams()


def _lift(descriptor: int, above: int) -> int:
    lifted = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above)
    os.close(descriptor)
    return lifted


def _open_standard_streams() -> None:
    """Make new streams, as Python does when it starts: whether they are terminals may have changed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        mode = "r" if number == 0 else "w"
        buffering = 1 if number == 2 or os.isatty(number) else -1
        new = open(number, mode, buffering, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115 - it stays open
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _run(launch: Launch) -> None:
    """Run what the command names, as Python does."""
    sys.orig_argv = list(launch.arguments)
    kind, *rest = _words(launch.arguments)
    named = kind in ("-c", "-m")
    sys.argv = [kind, *(rest[1:] if named else rest)]
    folder = ("" if kind == "-c" else str(Path.cwd())) if named else str(Path(kind).resolve().parent)
    paths = filter(None, launch.variables.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*([] if _is_safe_path(launch.arguments) else [folder]), *paths, *sys.path[1:]]
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    if kind == "-m":
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined] # what `python -m` calls
    elif kind == "-c":
        exec(compile(rest[0], "<string>", "exec"), vars(main))  # noqa: S102 - it is the command
    else:
        main.__file__ = str(Path(kind).absolute())
        exec(compile(Path(kind).read_bytes(), kind, "exec"), vars(main))  # noqa: S102 - likewise


def share_tls_contexts() -> None:
    """Let clients share TLS contexts: each reads all certificates of the machine (26 ms), and few tests use TLS."""
    import httpcore2

    make = httpcore2.default_ssl_context

    @cache
    def shared(trust_env: bool, *variables: str | None) -> ssl.SSLContext:
        del variables  # another context for others
        return make(_trust_env=trust_env)

    def default_ssl_context(*, _trust_env: bool = True) -> ssl.SSLContext:
        return shared(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    httpcore2.default_ssl_context = default_ssl_context


if __name__ == "__main__":
    for name in PRELOADED:
        __import__(name)
    share_tls_contexts()
    sys.modules["httpx2"].AsyncClient()
    _keep_out_of_clean_up()
    _run(_serve(socket.socket(fileno=int(sys.argv[1]))))
