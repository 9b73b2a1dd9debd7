"""Bodies that run in a process of their own, which can be killed and may crash.

The process is started afresh, never forked, and finds the body by name. Only JSON passes, over one connection: what to
do, the calls of the body's context, how it ended. The process is believed nothing beyond that.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Set
from contextlib import suppress
from functools import partial
from typing import Any

from raincheck.core.payload import Json, encode
from raincheck.engine.bodies import BodyCall, Ending, Raised, Returned
from raincheck.engine.conversation import converse, wait_out
from raincheck.engine.desk import Desk, Facts
from raincheck.engine.finding import place_of
from raincheck.engine.frames import BadFrame, Message, pack, plain_text, rebuild_error
from raincheck.engine.process import GroupLeader
from raincheck.engine.remote_desk import fields_of
from raincheck.engine.threads import start_in_thread
from raincheck.engine.tools import TaskTool
from raincheck.errors import ConfigurationError

_LAST_WORDS = 1.0

# Not `-m`: that would look in the working directory first, where anything may have the name of a module of ours, and
# not where the engine found it.
_START = "import sys; sys.path[:] = sys.argv[1:-1]; from raincheck.engine.child import main; main(int(sys.argv[-1]))"


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
