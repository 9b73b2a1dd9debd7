"""The process of a body, as it looks from inside. `isolated` starts it and is at the other end of its connection.

A coroutine runs in an event loop in the main thread. A plain function runs in the main thread itself, which is the one
that a signal can take it out of; an event loop beside it carries its calls. One more thread listens to the connection,
so that the process goes when the engine is gone, whatever the body is doing.

What a body's process says last: what the body returned, what it raised, or that it has stopped as it was told.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Never

from raincheck import errors
from raincheck.core.payload import encode
from raincheck.engine.execution.api import Facts
from raincheck.engine.execution.context import BodyStopped, SyncTaskContext, TaskContext, Waiting
from raincheck.engine.isolation.function_ref import BodyPlace, find_body
from raincheck.engine.isolation.protocol import Message, RemoteDesk, describe_error, pack, plain_text, receive_frame
from raincheck.errors import NotJson, TooLarge, ToolError

LONGEST_TEXT = 256 * 1024
"""The most characters of a message or a traceback that are passed on."""

STOPPED = pack({"stopped": encode(True)})


def say_returned(result: Any, place: BodyPlace) -> bytes:  # noqa: ANN401 - whatever the body returned
    """That the body returned this; or, if this can't be passed on, what is wrong with it."""
    what = f"the result of tool {place.tool!r}"
    try:
        return pack({"returned": encode(result, what=what)}, what=what)
    except (NotJson, TooLarge) as error:
        return say_raised(error, place)


def say_raised(error: BaseException, place: BodyPlace) -> bytes:
    """That the body raised this."""
    if isinstance(error, BodyStopped | asyncio.CancelledError):
        return STOPPED
    try:
        return pack({"raised": encode(_describe(error, place))}, what=f"a {type(error).__name__}")
    except (NotJson, TooLarge) as refused:
        return pack({"raised": encode(_describe(refused, place))})


def _describe(error: BaseException, place: BodyPlace) -> dict[str, Any]:
    if isinstance(error, ToolError):
        encode(error.content, what="the content of a ToolError")  # type: ignore[arg-type] # it refuses what is not JSON
    is_ours = isinstance(error, ToolError) or errors.has(type(error))
    return {
        "type": type(error).__qualname__,
        "message": _shorten(_text_of(error)),
        "traceback": _shorten("".join(traceback.format_exception(error))),
        "kinds": [f"{place.module_of(kind)}.{kind.__qualname__}" for kind in type(error).__mro__],
        "ours": describe_error(error) if is_ours and isinstance(error, Exception) else None,
    }


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that can't be read is still an error
        return "it can't say what it is: its __str__ fails"


def _shorten(text: str) -> str:
    return plain_text(text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…")


def main(descriptor: int) -> None:
    """Do what the connection says, and say on it how that ended."""
    stop = Stop()
    os.set_inheritable(descriptor, False)
    # Never closed: it ends with the process, and the thread that listens must not take the one for the other.
    connection = socket.socket(fileno=descriptor)
    order = receive_frame(connection)
    if order is None:
        return
    line = Line(connection)
    desk = RemoteDesk(line.send)
    threading.Thread(target=_listen, args=(connection, desk), daemon=True).start()
    # What it prints should not be lost when it is killed.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # it is a text file, in a fresh process
    sys.argv[:] = order["argv"]
    Work(order, desk, stop, line).do()


class Line:
    """Sends frames, whole ones, until the last word was said."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._is_over = False

    def send(self, frame: bytes, *, is_last: bool = False) -> None:
        with self._lock, suppress(OSError):
            if not self._is_over:
                self._is_over = is_last
                self._connection.sendall(frame)


class Stop:
    """Whether the body has been told to stop, and what that does to it."""

    def __init__(self) -> None:
        self.is_asked = False
        self._react: Callable[[], object] | None = None
        signal.signal(signal.SIGTERM, self._on_signal)
        # Not "ignored", which would be inherited by what the body starts.
        signal.signal(signal.SIGINT, _do_nothing)
        # Whoever started the engine may have blocked it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _on_signal(self, *_: object) -> None:
        if not self.is_asked:
            self.is_asked = True
            if self._react is not None:
                self._react()

    @contextmanager
    def doing(self, react: Callable[[], object]) -> Generator[None]:
        """Call this when it is told to stop while the block runs, or was told so before."""
        self._react = react
        try:
            if self.is_asked:
                react()
            yield
        finally:
            self._react = None


class Work:
    """One body, from where it is found to its last word."""

    def __init__(self, order: Message, desk: RemoteDesk, stop: Stop, line: Line) -> None:
        self._place = BodyPlace(**order["body"])
        self._arguments: dict[str, Any] = order["arguments"]
        self._facts = Facts(**order["facts"])
        self._desk = desk
        self._stop = stop
        self._line = line

    def do(self) -> None:
        try:
            with self._stop.doing(_raise_stopped):
                body = find_body(self._place)
        except BaseException as error:  # noqa: BLE001 - of the module that the body is in, whatever it is
            self._say(say_raised(error, self._place))
            return
        if self._place.is_async:
            asyncio.run(self._run_coroutine(body))
        else:
            self._run_function(body)

    def _run_function(self, body: Callable[..., Any]) -> None:
        with _loop_beside() as loop:
            context = SyncTaskContext(self._facts, self._desk, self._is_stopped, Waiting(loop))
            try:
                with self._stop.doing(_raise_stopped):
                    result = body(**self._call(context))
            except BaseException as error:  # noqa: BLE001 - the body's, whatever it is
                self._say(say_raised(error, self._place))
            else:
                self._say(say_returned(result, self._place))

    async def _run_coroutine(self, body: Callable[..., Any]) -> None:
        loop, job = asyncio.get_running_loop(), asyncio.create_task(self._ending_of(body))
        with self._stop.doing(lambda: loop.call_soon_threadsafe(job.cancel)):
            await asyncio.wait({job})
        # Before the loop is closed, which waits for what the body left running in threads.
        self._say(STOPPED if job.cancelled() else job.result())

    async def _ending_of(self, body: Callable[..., Any]) -> bytes:
        # Whatever it raises ends here: asyncio lets SystemExit and KeyboardInterrupt take down the whole loop.
        try:
            result = await body(**self._call(TaskContext(self._facts, self._desk, self._is_stopped)))
        except BaseException as error:  # noqa: BLE001 - the body's, whatever it is
            return say_raised(error, self._place)
        return say_returned(result, self._place)

    def _call(self, context: TaskContext | SyncTaskContext) -> Mapping[str, Any]:
        return self._arguments if self._place.context is None else {**self._arguments, self._place.context: context}

    def _is_stopped(self) -> bool:
        return self._stop.is_asked or self._desk.is_stopped

    def _say(self, word: bytes) -> None:
        self._line.send(word, is_last=True)


def _do_nothing(*_: object) -> None:
    """For a signal."""


def _raise_stopped() -> Never:
    raise BodyStopped


def _listen(connection: socket.socket, desk: RemoteDesk) -> None:
    # Signals are for the main thread, to interrupt what it waits for.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    while (reply := receive_frame(connection)) is not None:
        desk.take(reply)
    # The engine is gone, so there is nobody to work for. What the body started goes too, unless this process was
    # started by hand and leads no group.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


@contextmanager
def _loop_beside() -> Generator[asyncio.AbstractEventLoop]:
    """An event loop in another thread."""
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        over = asyncio.Event()
        running.set_result((asyncio.get_running_loop(), over))
        await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    loop, over = running.result()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
