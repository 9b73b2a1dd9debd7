"""Bodies for tests of isolation. Their processes import this module, so it imports little."""

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.sync_context import SyncTaskContext
from raincheck.engine.inputs import Reply
from raincheck.engine.tool import make_tool
from raincheck.errors import QuotaExceeded, RaincheckError, ToolError

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}}

WITNESS = """
import signal, socket, sys, time
if sys.argv[2:]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
witness = socket.socket(socket.AF_UNIX)
witness.connect(sys.argv[1])
print(flush=True)
time.sleep(600)
"""


class Declined(ToolError):
    """An error of a tool for its caller."""


class OwnError(LookupError):
    """An error class of a tool."""


class NoMessage(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


def plain(numbers: list[int], name: str = "x") -> dict[str, Any]:
    return {"sum": sum(numbers), "name": name, "pid": os.getpid()}


async def coroutine(numbers: list[int], name: str = "x") -> dict[str, Any]:
    await asyncio.sleep(0)
    return plain(numbers, name)


def facts(task: SyncTaskContext) -> Any:
    return [task.id, task.owner.key, task.attempt, task.caller, dict(task.variables), task.cancelled]


def asks_for_everything(task: SyncTaskContext) -> Any:
    task.progress(1, 2, "half")
    task.status("at it")
    first = task.step("load", lambda: ("a", 1))
    second = task.step("known", lambda: 1 / 0)
    reply: Reply[Any] = task.elicit("Go on?", SCHEMA)
    sampled = task.sample([{"role": "user"}], maxTokens=5)
    task.sleep(0.5, name="nap")
    task.variables.set("seen", [1])
    task.artifact("page", {"n": 1})
    child = task.spawn("other", {"a": 1}, name="another")
    after = task.then("next", {"b": 2}, result_as="r")
    return [first, second, reply.ok, sampled, dict(task.variables), child.id, child.result(), after]


async def asks_for_everything_async(task: TaskContext) -> Any:
    await task.progress(1, 2, "half")
    await task.status("at it")
    first = await task.step("load", lambda: ("a", 1))
    second = await task.step("known", lambda: 1 / 0)
    reply: Reply[Any] = await task.elicit("Go on?", SCHEMA)
    sampled = await task.sample([{"role": "user"}], maxTokens=5)
    await task.sleep(0.5, name="nap")
    await task.variables.set("seen", [1])
    await task.artifact("page", {"n": 1})
    child = await task.spawn("other", {"a": 1}, name="another")
    after = await task.then("next", {"b": 2}, result_as="r")
    return [first, second, reply.ok, sampled, dict(task.variables), child.id, await child.result(), after]


def has_a_step_that_fails(task: SyncTaskContext) -> str:
    try:
        task.step("load", lambda: 1 / 0)
    except ZeroDivisionError:
        task.status("after it")
    return "done"


async def has_a_step_that_fails_async(task: TaskContext) -> str:
    try:
        await task.step("load", lambda: 1 / 0)
    except ZeroDivisionError:
        await task.status("after it")
    return "done"


async def spawns_until_refused(task: TaskContext) -> Any:
    try:
        await task.spawn("other")
    except QuotaExceeded as error:
        wait = None if error.retry_after is None else error.retry_after.total_seconds()
        return [type(error).__name__, str(error), error.which, error.limit, wait]


def returns_caught_error(task: SyncTaskContext) -> Any:
    try:
        task.status("hello")
    except RaincheckError as error:
        return [type(error).__name__, str(error)]


def stores_a_set(task: SyncTaskContext) -> None:
    task.artifact("page", {1, 2})  # type: ignore[arg-type] # what the test is about


def stores_bytes(task: SyncTaskContext) -> None:
    task.artifact("page", b'{"looks": "like JSON"}')  # type: ignore[arg-type] # what the test is about


async def gives_up_waiting(task: TaskContext) -> str:
    try:
        async with asyncio.timeout(0.05):
            await task.sleep(600)
    except TimeoutError:
        await task.status("gave up")
    return "went on"


def sleeps(task: SyncTaskContext) -> str:
    task.sleep(600)
    return "slept"


def declines() -> None:
    raise Declined("not today", {"code": 7})


def declines_with_a_set() -> None:
    raise ToolError("not today", {7})


def raises_own_error() -> None:
    raise OwnError("bad \udcff name")


def raises_without_message() -> None:
    raise NoMessage


def refuses_its_child() -> None:
    raise QuotaExceeded("children", 3, None)


def returns_a_set() -> Any:
    return {1, 2}


def returns_a_lot() -> str:
    return "x" * (64 * 1024 * 1024)


def exits() -> None:
    sys.exit(4)


async def exits_async() -> None:
    sys.exit(4)


def exits_at_once() -> None:
    os._exit(3)


def crashes() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def sends_bytes(data: str) -> None:
    """Finds the connection and sends bytes on it, as a malicious body would."""
    for descriptor in range(3, 64):
        try:
            connection = socket.socket(fileno=os.dup(descriptor))
            connection.sendall(bytes.fromhex(data))
        except OSError:
            continue
    time.sleep(600)


def spins(task: SyncTaskContext) -> None:
    task.status(str(os.getpid()))
    while True:
        pass


def ignores_sigterm(task: SyncTaskContext) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    task.status(str(os.getpid()))
    time.sleep(600)


def cleans_up(path: str, task: SyncTaskContext) -> None:
    try:
        task.status("here")
        time.sleep(600)
    finally:
        Path(path).write_text(f"cancelled: {task.cancelled}")


async def cleans_up_async(path: str, task: TaskContext) -> None:
    try:
        await task.status("here")
        await asyncio.sleep(600)
    finally:
        Path(path).write_text(f"cancelled: {task.cancelled}")  # noqa: ASYNC240 - this loop has no other task


def ignores_the_stop(task: SyncTaskContext) -> str:
    try:
        task.status("here")
        time.sleep(600)
    except BaseException:  # noqa: BLE001 - what a body should not do
        return "nearly done"
    return "slept"


def starts_a_process(address: str, is_stubborn: bool, stays: bool) -> str:
    command = [sys.executable, "-S", "-c", WITNESS, address, *(["stubborn"] if is_stubborn else [])]
    other = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    if stays:
        time.sleep(600)
    return "left it behind"


async def spins_in_the_loop(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as witness:
        witness.connect(address)
        while True:
            pass


async def spins_until_cancelled(address: str, task: TaskContext) -> str:
    with socket.socket(socket.AF_UNIX) as witness:
        witness.connect(address)
        while not task.cancelled:
            pass
    return "saw it"


def leaves_a_thread() -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "returned"


def prints() -> None:
    print("printed")  # noqa: T201 - what the test is about
    os.write(1, b"written\n")
    subprocess.run(["/bin/echo", "echoed"], check=True)
    print("read", repr(sys.stdin.read()))  # noqa: T201 - likewise


isolated_tool = make_tool(plain, name="isolated_tool", isolation="process")


async def hurried(task: TaskContext) -> None:
    """Cancels many steps while they are requested, run, or recorded, and then waits."""

    async def step() -> int:
        return 1

    for number in range(60):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.0004):
                await task.step(f"step {number}", step)
    await task.elicit("Go on?", {"type": "object"})


def ends_slowly() -> str:
    """Returns at once, but its process takes a while to exit."""
    atexit.register(time.sleep, 3)
    return "expensive"


def spins_forever(is_stubborn: bool, task: SyncTaskContext) -> None:
    """Computes forever, and stores the id of its process."""
    if is_stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    task.artifact("process", os.getpid())
    while True:
        pass
