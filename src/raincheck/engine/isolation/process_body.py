"""Bodies that run in their own process, which can be killed and may crash.

The process is started afresh, never forked, and finds the body by name. Only JSON passes, over one connection: the
start message, the calls of the body's context, and the outcome. The process is not trusted beyond that. `serve_calls`
is the engine's end of the connection: it answers the body's calls with the task API.

`ProcessGroup` starts the process as the leader of its own group, so that the processes it starts can be stopped with
it. It is not asyncio's subprocess: asyncio starts a process on the event loop, which blocks meanwhile, and releases the
process id before the process's leftovers could be stopped.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from signal import SIGKILL, Signals
from typing import Any

from raincheck._async import start_in_thread
from raincheck.core.values import Json, encode
from raincheck.engine.execution.bodies import BodyCall, BodyFailure, BodyOutcome, BodyResult
from raincheck.engine.execution.context import TaskApi, TaskInfo
from raincheck.engine.isolation.function_ref import function_ref
from raincheck.engine.isolation.protocol import (
    ApiCall,
    BadFrame,
    Message,
    describe_error,
    escape_surrogates,
    pack_frame,
    read_call,
    read_frame,
    rebuild_error,
    to_fields,
)
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.process_supervisor import signal_group
from raincheck.tracebacks import text_logger


class ProcessGroup:
    """A process group, which is not started yet, running, or gone."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        # Guards the id: once the process was waited for, another process may get the id.
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._early_signal: Signals | None = None

    def run(self, connection: socket.socket) -> int | None:
        """Start the process and wait until it and all of its group are gone. Blocks, so it is for a thread.

        The process gets the connection, and its number as last argument. Returns the exit code, negative for a signal;
        None if it was signalled before it was started, and then it is not started.

        Raises:
            OSError: the process can't be started.
        """
        with connection:
            if self._early_signal is not None:
                return None
            process = self._start(connection)
        with self._lock:
            self._pid = process.pid
            if self._early_signal is not None:
                self._signal_group(self._early_signal)
        return self._reap(process)

    def signal(self, number: Signals) -> None:
        """Signal the process and all of its group. Nothing happens if it is gone."""
        with self._lock:
            if self._pid is None:
                self._early_signal = number
            self._signal_group(number)

    def _start(self, connection: socket.socket) -> "subprocess.Popen[bytes]":
        # What the process prints goes to our stderr: our stdout may be a connection, where it would be taken for our
        # output.
        return subprocess.Popen(  # noqa: S603 - our own command
            [*self._command, str(connection.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(connection.fileno(),),
            start_new_session=True,
        )

    def _reap(self, process: "subprocess.Popen[bytes]") -> int:
        if hasattr(os, "waitid"):
            # Until it is waited for, no other process gets its id.
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with self._lock:
            self._signal_group(SIGKILL)
            self._pid = None
            return process.wait()

    def _signal_group(self, number: Signals) -> None:
        if self._pid is not None:
            signal_group(self._pid, number)


MAX_PENDING_CALLS = 10_000
"""Maximum calls of one body that wait for their answers."""

FINAL_KEYS = frozenset({"returned", "raised", "stopped"})

logger = text_logger(__name__)


async def serve_calls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, api: TaskApi) -> Message | None:
    """Answer the body's calls until its final message. Returns that message, or None if there is none.

    Calls that are not answered by then are cancelled.

    Raises:
        BadFrame: the process sent an invalid message, or one that it may not send.
    """
    pending: dict[int, asyncio.Task[None]] = {}
    try:
        while (message := await read_frame(reader)) is not None:
            if not FINAL_KEYS.isdisjoint(message):
                return message
            if "cancel" in message:
                _cancel(pending, message["cancel"])
                continue
            call = read_call(message)
            if call.id in pending or len(pending) >= MAX_PENDING_CALLS:
                raise BadFrame(
                    f"a call has the id of a pending call, or more than {MAX_PENDING_CALLS:,} calls are pending"
                )
            answering = pending[call.id] = asyncio.create_task(_answer(call, api, writer), name=f"call of {call.name}")
            answering.add_done_callback(partial(_forget, pending, call.id))
        return None
    finally:
        left = set(pending.values())
        for answering in left:
            answering.cancel()
        await wait_until_done(*left)


async def wait_until_done(*futures: "asyncio.Future[Any]") -> None:
    """Wait until all are done, even if the waiter is cancelled meanwhile."""
    while left := {future for future in futures if not future.done()}:
        with suppress(asyncio.CancelledError):
            await asyncio.wait(left)


async def _answer(call: ApiCall, api: TaskApi, writer: asyncio.StreamWriter) -> None:
    number = encode(call.id)
    try:
        result = encode(await call.call_on(api), what=f"the answer to {call.name}")
        frame = pack_frame({"id": number, "result": result}, what=f"the answer to {call.name}")
    except Exception as error:
        if not isinstance(error, RaincheckError):
            logger.exception("a call from the process of a body failed")
        frame = pack_frame({"id": number, "error": encode(describe_error(error))})
    except BaseException:
        # The attempt has to stop, or the body stopped waiting, and then this is not read.
        writer.write(pack_frame({"id": number, "stopped": encode(True)}))
        raise
    writer.write(frame)
    with suppress(ConnectionError):
        await writer.drain()


def _cancel(pending: "Mapping[int, asyncio.Task[None]]", number: object) -> None:
    # The answer may already be on its way. Then there is nothing to cancel.
    answering = pending.get(number) if isinstance(number, int) else None
    if answering is not None:
        answering.cancel()


def _forget(pending: "dict[int, asyncio.Task[None]]", number: int, _: "asyncio.Task[None]") -> None:
    del pending[number]


_FINAL_MESSAGE_TIMEOUT = 1.0

# Not `-m`: that would search the working directory first, where any file may have the name of one of our modules, and
# not where the engine found it.
_CHILD_CODE = (
    "import sys; sys.path[:] = sys.argv[1:-1]; "
    "from raincheck.engine.isolation.child import main; main(int(sys.argv[-1]))"
)


class IsolatedError(Exception):
    """An error that a body raised in its process. Its traceback there is in the notes."""

    def __init__(self, type_name: str, message: str, kinds: tuple[str, ...], remote_traceback: str) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.kinds = kinds
        """The qualified names of the error's class and its bases."""
        self.remote_traceback = remote_traceback

    def is_a(self, kind: type[BaseException]) -> bool:
        """Return whether the error was of this class."""
        return f"{kind.__module__}.{kind.__qualname__}" in self.kinds


class ProcessDied(Exception):
    """The process of a body ended before the body did, or could not be started."""


class ProcessBody:
    """A function or a coroutine in a fresh process. To stop it, it is terminated, and killed after its grace period.

    Processes that it started end with it, however it ends, unless they are in their own process group.
    """

    leftovers: Set[asyncio.Future[Any]] = frozenset()

    def __init__(self, call: BodyCall) -> None:
        self._loop = asyncio.get_running_loop()
        self._grace = call.tool.grace
        self._process = ProcessGroup(_command())
        self._is_stopping = call.is_stopped()
        self._has_final_message = False
        self._kill_timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[BodyOutcome] = self._loop.create_future()
        self._running = asyncio.create_task(self._run(call), name=f"body of {call.info.id}")
        self._running.add_done_callback(self._end)

    def on_end(self, callback: Callable[[], None]) -> None:
        self.ended.add_done_callback(lambda _: callback())

    def request_stop(self) -> bool:
        if self._has_final_message:
            return False
        if not self._is_stopping and not self._running.done():
            self._is_stopping = True
            self._process.signal(signal.SIGTERM)
            self._kill_later()
        return True

    async def _run(self, call: BodyCall) -> BodyOutcome:
        if self._is_stopping:
            return BodyFailure(asyncio.CancelledError())
        start_frame = _start_frame(call.tool, call.arguments, call.info)
        engine_end, child_end = socket.socketpair()
        with engine_end, child_end:
            reader, writer = await asyncio.open_unix_connection(sock=engine_end)
            try:
                writer.write(start_frame)
                return await self._wait_for_exit(child_end, self._serve(reader, writer, call.api))
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    def _on_final_message(self, _: object) -> None:
        self._has_final_message = True
        self._kill_later()

    async def _wait_for_exit(
        self, child_end: socket.socket, serving: Coroutine[Any, Any, BodyOutcome | None]
    ) -> BodyOutcome:
        serving_task = asyncio.create_task(serving)
        # It has sent its final message, or will send no more. Threads that the body left behind don't keep it alive.
        serving_task.add_done_callback(self._on_final_message)
        exited = start_in_thread(partial(self._process.run, child_end), name="raincheck-process")
        try:
            await asyncio.wait({exited})
            # The final message may still be in flight. A process that the body started and that has left the group may
            # hold the connection open; that is not waited for.
            await asyncio.wait({serving_task}, timeout=_FINAL_MESSAGE_TIMEOUT)
        finally:
            # The process is still there if this asyncio task was cancelled, as it is when the event loop ends.
            self._process.signal(signal.SIGKILL)
            serving_task.cancel()
            await wait_until_done(exited, serving_task)
        return self._read_outcome(exited, serving_task)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, api: TaskApi
    ) -> BodyOutcome | None:
        try:
            message = await serve_calls(reader, writer, api)
            return None if message is None else _read_final_message(message)
        except BadFrame as error:
            self._process.signal(signal.SIGKILL)
            return BodyFailure(error)

    def _read_outcome(
        self, exited: "asyncio.Future[int | None]", serving_task: "asyncio.Task[BodyOutcome | None]"
    ) -> BodyOutcome:
        outcome = None if serving_task.cancelled() else serving_task.result()
        if outcome is not None:
            return outcome
        try:
            code = exited.result()
        except OSError as error:
            raise ProcessDied(f"its process can't be started: {error}") from error
        if code is None or self._is_stopping:
            return BodyFailure(asyncio.CancelledError())
        return BodyFailure(ProcessDied(_describe_death(code)))

    def _end(self, running: "asyncio.Task[BodyOutcome]") -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        if not self.ended.done():
            error = asyncio.CancelledError() if running.cancelled() else running.exception()
            self.ended.set_result(running.result() if error is None else BodyFailure(error))

    def _kill_later(self) -> None:
        if self._kill_timer is None:
            self._kill_timer = self._loop.call_later(self._grace, self._process.signal, signal.SIGKILL)


def _command() -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # as multiprocessing does
    return [sys.executable, *flags, "-c", _CHILD_CODE, *sys.path]


def _start_frame(tool: TaskTool, arguments: Mapping[str, Json], info: TaskInfo) -> bytes:
    _check_system(tool)
    parts = {
        "body": encode(to_fields(function_ref(tool))),
        "arguments": encode(arguments, what="the arguments"),
        "info": encode(to_fields(info), what="the facts about the task"),
        "argv": encode([escape_surrogates(argument) for argument in sys.argv]),
    }
    return pack_frame(parts, what="the start message of the body")


def _check_system(tool: TaskTool) -> None:
    if os.name != "posix" or not sys.executable or getattr(sys, "frozen", False):
        raise ConfigurationError(
            f'tool {tool.name!r} has isolation="process", which needs a POSIX system and a Python executable: '
            f"leave it out on this system"
        )


def _read_final_message(message: Message) -> BodyOutcome:
    if "returned" in message:
        return BodyResult(message["returned"])
    return BodyFailure(_read_error(message["raised"]) if "raised" in message else asyncio.CancelledError())


def _read_error(document: Any) -> Exception:  # noqa: ANN401 - JSON, checked here
    match document:
        case {
            "type": str(name),
            "message": str(message),
            "traceback": str(trace),
            "kinds": [*kinds],
            "raincheck_error": described,
        }:
            error = (
                rebuild_error(described) if described else IsolatedError(name, message, tuple(map(str, kinds)), trace)
            )
            error.add_note(f"In the process of the body:\n{trace}")
            return error
        case _:
            raise BadFrame("the description of an error is invalid")


def _describe_death(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code} before it returned"
    try:
        return f"its process ended by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"its process ended by signal {-code}"
