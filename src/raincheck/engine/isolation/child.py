"""The process of an isolated body, from its own side. `process_body` starts it and has the other end of its connection.

A coroutine runs in an event loop in the main thread. A plain function runs in the main thread itself, the only one that
a signal can interrupt; an event loop in another thread carries its calls. One more thread listens to the connection, so
that the process exits when the engine is gone, whatever the body is doing.

The final message of the process is what the body returned, what it raised, or that it stopped as requested.
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
from typing import Any, BinaryIO, Never

from raincheck import errors
from raincheck.core.values import encode
from raincheck.engine.execution.context import TaskContext, TaskInfo
from raincheck.engine.execution.sync_context import BodyStopped, LoopCaller, SyncTaskContext
from raincheck.engine.isolation.function_ref import FunctionRef, load_function
from raincheck.engine.isolation.protocol import (
    Message,
    RemoteTaskApi,
    describe_error,
    escape_surrogates,
    pack_frame,
    receive_frame,
)
from raincheck.errors import NotJson, TooLarge, ToolError

MAX_TEXT = 256 * 1024
"""Maximum characters of a message or a traceback that are sent."""

STOPPED = pack_frame({"stopped": encode(True)})


def encode_result(result: Any, ref: FunctionRef) -> bytes:  # noqa: ANN401 - anything the body returned
    """Encode the body's result or, if it can't be encoded, the error."""
    what = f"the result of tool {ref.tool!r}"
    try:
        return pack_frame({"returned": encode(result, what=what)}, what=what)
    except (NotJson, TooLarge) as error:
        return encode_error(error, ref)


def encode_error(error: BaseException, ref: FunctionRef) -> bytes:
    """Encode the error that the body raised."""
    if isinstance(error, BodyStopped | asyncio.CancelledError):
        return STOPPED
    try:
        return pack_frame({"raised": encode(_describe(error, ref))}, what=f"a {type(error).__name__}")
    except (NotJson, TooLarge) as refused:
        return pack_frame({"raised": encode(_describe(refused, ref))})


def _describe(error: BaseException, ref: FunctionRef) -> dict[str, Any]:
    if isinstance(error, ToolError):
        encode(error.content, what="the content of a ToolError")  # type: ignore[arg-type] # encode rejects what is not JSON
    is_rebuildable = isinstance(error, ToolError) or errors.is_raincheck_error(type(error))
    return {
        "type": type(error).__qualname__,
        "message": _shorten(_text_of(error)),
        "traceback": _shorten("".join(traceback.format_exception(error))),
        "kinds": [f"{ref.module_of(kind)}.{kind.__qualname__}" for kind in type(error).__mro__],
        "raincheck_error": describe_error(error) if is_rebuildable and isinstance(error, Exception) else None,
    }


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that can't be read is still an error
        return "(the error has no message: its __str__ fails)"


def _shorten(text: str) -> str:
    return escape_surrogates(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…")


def main(descriptor: int) -> None:
    """Run the body named in the start message, and send its outcome."""
    stop = StopSignal()
    os.set_inheritable(descriptor, False)
    # Never closed: it ends with the process, and the listening thread must not take the closing for the end of the
    # engine.
    connection = socket.socket(fileno=descriptor)
    stream = connection.makefile("rb")
    start_message = receive_frame(stream)
    if start_message is None:
        return
    sender = FrameSender(connection)
    api = RemoteTaskApi(sender.send)
    threading.Thread(target=_listen, args=(stream, api), daemon=True).start()
    # Line buffered, so that output is not lost when the process is killed.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # it is a text file, in a fresh process
    sys.argv[:] = start_message["argv"]
    ChildBody(start_message, api, stop, sender).run()


class FrameSender:
    """Sends whole frames, until the final message is sent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._is_over = False

    def send(self, frame: bytes, *, is_last: bool = False) -> None:
        with self._lock, suppress(OSError):
            if not self._is_over:
                self._is_over = is_last
                self._connection.sendall(frame)


class StopSignal:
    """Tracks whether the body was asked to stop, and interrupts it."""

    def __init__(self) -> None:
        self.is_requested = False
        self._react: Callable[[], object] | None = None
        signal.signal(signal.SIGTERM, self._on_signal)
        # Not SIG_IGN, which the processes that the body starts would inherit.
        signal.signal(signal.SIGINT, _do_nothing)
        # The process that started the engine may have blocked it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _on_signal(self, *_: object) -> None:
        if not self.is_requested:
            self.is_requested = True
            if self._react is not None:
                self._react()

    @contextmanager
    def on_stop(self, callback: Callable[[], object]) -> Generator[None]:
        """Call this on a stop request while the block runs, or at once if there already was one."""
        self._react = callback
        try:
            if self.is_requested:
                callback()
            yield
        finally:
            self._react = None


class ChildBody:
    """One body, from its lookup to its final message."""

    def __init__(self, start_message: Message, api: RemoteTaskApi, stop: StopSignal, sender: FrameSender) -> None:
        self._ref = FunctionRef(**start_message["body"])
        self._arguments: dict[str, Any] = start_message["arguments"]
        self._info = TaskInfo(**start_message["info"])
        self._api = api
        self._stop = stop
        self._sender = sender

    def run(self) -> None:
        try:
            with self._stop.on_stop(_raise_stopped):
                body = load_function(self._ref)
        except BaseException as error:  # noqa: BLE001 - any error of the body's module
            self._send_final(encode_error(error, self._ref))
            return
        if self._ref.is_async:
            asyncio.run(self._run_coroutine(body))
        else:
            self._run_function(body)

    def _run_function(self, body: Callable[..., Any]) -> None:
        with _background_loop() as loop:
            context = SyncTaskContext(self._info, self._api, self._is_stopped, LoopCaller(loop))
            try:
                with self._stop.on_stop(_raise_stopped):
                    result = body(**self._call(context))
            except BaseException as error:  # noqa: BLE001 - any error of the body
                self._send_final(encode_error(error, self._ref))
            else:
                self._send_final(encode_result(result, self._ref))

    async def _run_coroutine(self, body: Callable[..., Any]) -> None:
        loop, running = asyncio.get_running_loop(), asyncio.create_task(self._run_to_frame(body))
        with self._stop.on_stop(lambda: loop.call_soon_threadsafe(running.cancel)):
            await asyncio.wait({running})
        # Before the loop is closed, which waits for threads that the body left running.
        self._send_final(STOPPED if running.cancelled() else running.result())

    async def _run_to_frame(self, body: Callable[..., Any]) -> bytes:
        # Every exception ends here: asyncio lets SystemExit and KeyboardInterrupt take down the whole loop.
        try:
            result = await body(**self._call(TaskContext(self._info, self._api, self._is_stopped)))
        except BaseException as error:  # noqa: BLE001 - any error of the body
            return encode_error(error, self._ref)
        return encode_result(result, self._ref)

    def _call(self, context: TaskContext | SyncTaskContext) -> Mapping[str, Any]:
        return self._arguments if self._ref.context is None else {**self._arguments, self._ref.context: context}

    def _is_stopped(self) -> bool:
        return self._stop.is_requested or self._api.is_stopped

    def _send_final(self, frame: bytes) -> None:
        self._sender.send(frame, is_last=True)


def _do_nothing(*_: object) -> None:
    """Ignore a signal."""


def _raise_stopped() -> Never:
    raise BodyStopped


def _listen(stream: BinaryIO, api: RemoteTaskApi) -> None:
    # Signals are for the main thread, to interrupt its waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    while (reply := receive_frame(stream)) is not None:
        api.on_reply(reply)
    # The engine is gone, so there is nothing to work for. What the body started is killed too, unless this process was
    # started by hand and leads no group.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


@contextmanager
def _background_loop() -> Generator[asyncio.AbstractEventLoop]:
    """Run an event loop in another thread."""
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        stopping = asyncio.Event()
        running.set_result((asyncio.get_running_loop(), stopping))
        await stopping.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    loop, stopping = running.result()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
