"""Bodies that run in a process of their own, which can be killed and may crash.

The process is started afresh, never forked, and finds the body by name. Only JSON passes, over one connection: what to
do, the calls of the body's context, how it ended. The process is believed nothing beyond that.

The engine's side of the connection to a body's process: it answers the body's calls at the desk.

A process that leads a group of its own, so that what it starts can be stopped with it.

Not asyncio's: that starts a process on the event loop, which waits for it meanwhile, and it gives up the process's id
before we could stop what the process left behind.
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
from typing import Any, cast

from raincheck.core.payload import Json, encode
from raincheck.engine.execution.api import Desk, Facts
from raincheck.engine.execution.bodies import BodyCall, Ending, Raised, Returned
from raincheck.engine.execution.threads import start_in_thread
from raincheck.engine.isolation.function_ref import place_of
from raincheck.engine.isolation.protocol import (
    BadFrame,
    DeskCall,
    Message,
    describe_error,
    fields_of,
    pack,
    plain_text,
    read_call,
    read_frame,
    rebuild_error,
)
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.tracebacks import text_logger


class GroupLeader:
    """A process to be started, then one that runs, then one that is gone."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        # Guards the id: once the process was waited for, it may be somebody else's.
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._early: Signals | None = None

    def run(self, connection: socket.socket) -> int | None:
        """Start it and wait until it is gone, and all of its group. Blocks, so it is for a thread.

        The process gets the connection, and its number as last argument. Returns the exit code, negative for a signal;
        None if it was signalled before it was there, and then it is not started.

        Raises:
            OSError: it can't be started.
        """
        with connection:
            if self._early is not None:
                return None
            process = self._start(connection)
        with self._lock:
            self._pid = process.pid
            if self._early is not None:
                self._signal_group(self._early)
        return self._reap(process)

    def signal(self, number: Signals) -> None:
        """Signal the process and all of its group. Nothing happens if it is gone."""
        with self._lock:
            if self._pid is None:
                self._early = number
            self._signal_group(number)

    def _start(self, connection: socket.socket) -> "subprocess.Popen[bytes]":
        # What the process prints goes to our stderr: our stdout may be a connection, where it would be taken for ours.
        return subprocess.Popen(  # noqa: S603 - the command is our own
            [*self._command, str(connection.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(connection.fileno(),),
            start_new_session=True,
        )

    def _reap(self, process: "subprocess.Popen[bytes]") -> int:
        if hasattr(os, "waitid"):
            # As long as it was not waited for, nobody else gets its id.
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
            # macOS says "not permitted" of a group in which nothing runs any more.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


MOST_CALLS = 10_000
"""How many calls of one body may wait for their answers."""

ENDINGS = frozenset({"returned", "raised", "stopped"})

logger = text_logger(__name__)


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, desk: Desk) -> Message | None:
    """Answer the body's calls until it says how it ended. Returns that, or None if it doesn't.

    Calls that are not answered by then are cancelled.

    Raises:
        BadFrame: the process said something that can't be understood, or did something that it may not.
    """
    answering: dict[int, asyncio.Task[None]] = {}
    begun: dict[int, tuple[str, int]] = {}
    try:
        while (message := await read_frame(reader)) is not None:
            if not ENDINGS.isdisjoint(message):
                return message
            if "cancel" in message:
                _cancel(answering, message["cancel"])
                # It crossed the answer on the way, so the body does not know that the step is taken to be under way.
                if message["cancel"] in begun:
                    desk.drop_step(*begun.pop(message["cancel"]))
                continue
            call = read_call(message)
            if call.id in answering or len(answering) >= MOST_CALLS:
                raise BadFrame(f"a call has the number of another, or more than {MOST_CALLS:,} wait for an answer")
            job = answering[call.id] = asyncio.create_task(
                _answer(call, desk, writer, begun), name=f"call of {call.name}"
            )
            job.add_done_callback(partial(_forget, answering, call.id))
        return None
    finally:
        left = set(answering.values())
        for job in left:
            job.cancel()
        await wait_out(*left)


async def wait_out(*futures: "asyncio.Future[Any]") -> None:
    """Wait until all are done, whoever cancels the waiting meanwhile."""
    while left := {future for future in futures if not future.done()}:
        with suppress(asyncio.CancelledError):
            await asyncio.wait(left)


async def _answer(call: DeskCall, desk: Desk, writer: asyncio.StreamWriter, begun: dict[int, tuple[str, int]]) -> None:
    number = encode(call.id)
    try:
        answer = await call.put_to(desk)
        result = encode(answer, what=f"the answer to {call.name}")
        if call.name == "begin_step" and isinstance(answer, Mapping) and not answer["is_recorded"]:
            begun[call.id] = call.arguments[0], cast("int", answer["occurrence"])
        frame = pack({"id": number, "result": result}, what=f"the answer to {call.name}")
    except Exception as error:
        if not isinstance(error, RaincheckError):
            logger.exception("a call that came from the process of a body failed")
        frame = pack({"id": number, "error": encode(describe_error(error))})
    except BaseException:
        # The attempt has to stop, or the body gave up waiting, and then nobody reads this.
        writer.write(pack({"id": number, "stopped": encode(True)}))
        raise
    writer.write(frame)
    with suppress(ConnectionError):
        await writer.drain()


def _cancel(answering: "Mapping[int, asyncio.Task[None]]", number: object) -> None:
    # An answer may have crossed it on the way: then there is nothing to cancel.
    job = answering.get(number) if isinstance(number, int) else None
    if job is not None:
        job.cancel()


def _forget(answering: "dict[int, asyncio.Task[None]]", number: int, job: "asyncio.Task[None]") -> None:  # noqa: ARG001 - asyncio passes it
    del answering[number]


_LAST_WORDS = 1.0

# Not `-m`: that would look in the working directory first, where anything may have the name of a module of ours, and
# not where the engine found it.
_START = (
    "import sys; sys.path[:] = sys.argv[1:-1]; "
    "from raincheck.engine.isolation.child import main; main(int(sys.argv[-1]))"
)


class IsolatedError(Exception):
    """What a body raised in its process. Its traceback there stands in the notes."""

    def __init__(self, type_name: str, message: str, kinds: tuple[str, ...], remote_traceback: str) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.kinds = kinds
        """The qualified names of its class and of the bases of that."""
        self.remote_traceback = remote_traceback

    def is_a(self, kind: type[BaseException]) -> bool:
        """Whether it was of this class."""
        return f"{kind.__module__}.{kind.__qualname__}" in self.kinds


class ProcessDied(Exception):
    """The process of a body ended before the body did, or could not be started."""


class ProcessBody:
    """A function or a coroutine in a fresh process. Asked to stop, it is terminated, and killed after its grace time.

    What it started goes with it when it ends, however it ends, unless that has made itself a process group.
    """

    leftovers: Set[asyncio.Future[Any]] = frozenset()

    def __init__(self, call: BodyCall) -> None:
        self._loop = asyncio.get_running_loop()
        self._grace = call.tool.grace
        self._process = GroupLeader(_command())
        self._is_stopping = call.is_stopped()
        self._has_spoken = False
        self._killing: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[Ending] = self._loop.create_future()
        self._job = asyncio.create_task(self._run(call), name=f"body of {call.facts.id}")
        self._job.add_done_callback(self._end)

    def when_ended(self, tell: Callable[[], None]) -> None:
        self.ended.add_done_callback(lambda _: tell())

    def ask_to_stop(self) -> bool:
        if self._has_spoken:
            return False
        if not self._is_stopping and not self._job.done():
            self._is_stopping = True
            self._process.signal(signal.SIGTERM)
            self._kill_later()
        return True

    async def _run(self, call: BodyCall) -> Ending:
        if self._is_stopping:
            return Raised(asyncio.CancelledError())
        order = _order(call.tool, call.arguments, call.facts)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            try:
                writer.write(order)
                return await self._attend(theirs, self._talk(reader, writer, call.desk))
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    def _hear_last_word(self, _: object) -> None:
        self._has_spoken = True
        self._kill_later()

    async def _attend(self, theirs: socket.socket, conversation: Coroutine[Any, Any, Ending | None]) -> Ending:
        talking = asyncio.create_task(conversation)
        # It has said how it ended, or will say no more. Threads that the body left behind don't keep it.
        talking.add_done_callback(self._hear_last_word)
        gone = start_in_thread(partial(self._process.run, theirs), name="raincheck-process")
        try:
            await asyncio.wait({gone})
            # What it said last may still be on its way. Something that it started and that has left its group may hold
            # the connection open; that is not waited for.
            await asyncio.wait({talking}, timeout=_LAST_WORDS)
        finally:
            # It is still there if this job was cancelled, as it is when the event loop ends.
            self._process.signal(signal.SIGKILL)
            talking.cancel()
            await wait_out(gone, talking)
        return self._read_ending(gone, talking)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, desk: Desk) -> Ending | None:
        try:
            word = await converse(reader, writer, desk)
            return None if word is None else _read_word(word)
        except BadFrame as error:
            self._process.signal(signal.SIGKILL)
            return Raised(error)

    def _read_ending(self, gone: "asyncio.Future[int | None]", talking: "asyncio.Task[Ending | None]") -> Ending:
        word = None if talking.cancelled() else talking.result()
        if word is not None:
            return word
        try:
            code = gone.result()
        except OSError as error:
            raise ProcessDied(f"its process can't be started: {error}") from error
        if code is None or self._is_stopping:
            return Raised(asyncio.CancelledError())
        return Raised(ProcessDied(_describe_death(code)))

    def _end(self, job: "asyncio.Task[Ending]") -> None:
        if self._killing is not None:
            self._killing.cancel()
        if not self.ended.done():
            error = asyncio.CancelledError() if job.cancelled() else job.exception()
            self.ended.set_result(job.result() if error is None else Raised(error))

    def _kill_later(self) -> None:
        if self._killing is None:
            self._killing = self._loop.call_later(self._grace, self._process.signal, signal.SIGKILL)


def _command() -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # as multiprocessing does
    return [sys.executable, *flags, "-c", _START, *sys.path]


def _order(tool: TaskTool, arguments: Mapping[str, Json], facts: Facts) -> bytes:
    _check_system(tool)
    parts = {
        "body": encode(fields_of(place_of(tool))),
        "arguments": encode(arguments, what="the arguments"),
        "facts": encode(fields_of(facts), what="what the task knows"),
        "argv": encode([plain_text(argument) for argument in sys.argv]),
    }
    return pack(parts, what="what the body begins with")


def _check_system(tool: TaskTool) -> None:
    if os.name != "posix" or not sys.executable or getattr(sys, "frozen", False):
        raise ConfigurationError(
            f'tool {tool.name!r} has isolation="process", which needs a POSIX system and a Python to start: '
            f"leave it out on this one"
        )


def _read_word(word: Message) -> Ending:
    if "returned" in word:
        return Returned(word["returned"])
    return Raised(_read_error(word["raised"]) if "raised" in word else asyncio.CancelledError())


def _read_error(document: Any) -> Exception:  # noqa: ANN401 - JSON, looked at here
    match document:
        case {"type": str(name), "message": str(message), "traceback": str(trace), "kinds": [*kinds], "ours": ours}:
            error = rebuild_error(ours) if ours else IsolatedError(name, message, tuple(map(str, kinds)), trace)
            error.add_note(f"In the process of the body:\n{trace}")
            return error
        case _:
            raise BadFrame("an error is not described as one")


def _describe_death(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code} before it returned"
    try:
        return f"its process ended by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"its process ended by signal {-code}"
