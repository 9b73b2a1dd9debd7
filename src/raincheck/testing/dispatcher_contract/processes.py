"""Harness of the dispatcher contract: a store, an engine that only submits, and worker processes with their tools.

Each worker is a separate process, which the suite starts, suspends and kills. It runs this module as a program:

    python processes.py FACTORY URL LOG KIND CONCURRENCY

It opens the store that the function FACTORY makes from URL, and serves the tools of its KIND. It prints a line when it
is ready and one for every event in its tools, and appends them to the file LOG, so that a test can wait for the lines
and count them. The first line on its standard input opens the gate of its tools. It exits when that input is closed.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from raincheck.clock import Clock, SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import HistoryEntry, Task, TaskId
from raincheck.core.values import Json, decode
from raincheck.engine import Engine, Settings, TaskContext, Toolbox, run_until_signal
from raincheck.stores.base import Store
from raincheck.stores.requests import HeldAttempt

LogEvent: TypeAlias = Callable[..., None]

STEPS = ("load", "clean", "publish")
STUBBORN = RetryPolicy(attempts=50, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)

VERSIONS = {"older": ("versioned", "1"), "newer": ("versioned", "2"), "other": ("other", "1")}
"""The only tool of other kinds of workers, and its version."""


class EventLog:
    """A file that several processes append to, a line at a time, with an optional callback for each line."""

    def __init__(self, path: str | os.PathLike[str], on_line: Callable[[str], None] | None = None) -> None:
        # Opened once, on construction, so that no file is opened in an event loop. Each write is appended whole.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._on_line = on_line

    def __call__(self, *fields: object) -> None:
        line = " ".join(map(str, fields)) + "\n"
        os.write(self._file, line.encode())
        if self._on_line is not None:
            self._on_line(line)


def make_toolbox(kind: str, log: LogEvent, gate: asyncio.Event) -> Toolbox:
    """Return the tools of a kind of worker. A tool that is asked to hang does so until the gate is open.

    A worker of the kind "all" has all tools but those in `VERSIONS`.
    """
    toolbox = Toolbox()
    if kind == "all":
        _add_work(toolbox, log, gate)
        _add_waits(toolbox, log)
    else:
        _add_versioned(toolbox, log, *VERSIONS[kind])
    return toolbox


def _add_work(toolbox: Toolbox, log: LogEvent, gate: asyncio.Event) -> None:
    @toolbox.tool(retry=STUBBORN)
    async def three_steps(task: TaskContext, hangs_in: str = "", ms: int = 0) -> list[Json]:
        """Three steps. The first attempt hangs in one of them until the gate is open."""

        async def do(name: str) -> str:
            log("step", task.id, name, task.attempt)
            if name == hangs_in and task.attempt == 1:
                await gate.wait()
            await asyncio.sleep(ms / 1_000)
            return f"{name} by {task.attempt}"

        try:
            done: list[Json] = [await task.step(name, do, name) for name in STEPS]
            log("returns", task.id, task.attempt)
            return done
        finally:
            log("left", task.id, task.attempt)

    @toolbox.tool
    async def plain(task: TaskContext) -> int:
        log("ran", task.id, task.attempt)
        return task.attempt


def _add_waits(toolbox: Toolbox, log: LogEvent) -> None:
    @toolbox.tool
    async def wait_for_ever(task: TaskContext) -> None:
        log("started", task.id, task.attempt)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log("cancelled", task.id, task.attempt)
            raise

    @toolbox.tool
    async def ask(number: int, task: TaskContext) -> list[Json]:
        log("asks", task.id, task.attempt)
        reply = await task.elicit("Go on?", {"type": "object"})
        return [number, reply.content]


def _add_versioned(toolbox: Toolbox, log: LogEvent, name: str, version: str) -> None:
    @toolbox.tool(name=name, version=version)
    async def versioned(task: TaskContext) -> str:
        log("ran", task.id, version)
        return version


LEASE = 2.0


def short_settings(concurrency: int = 8) -> Settings:
    """Return settings with short times, for tests that wait for them on the real clock."""
    return Settings(lease=LEASE, park_after=0.05, grace=0.5, poll_interval=0.5, concurrency=concurrency)


def load_store_factory(name: str) -> Callable[[str], Store]:
    """Import the function that makes a store from a URL, by its name: `package.module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


async def run_worker(store: Store, log: EventLog, kind: str, concurrency: int) -> None:
    gate = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, read_stdin, gate)
    await store.open()
    engine = Engine(store, make_toolbox(kind, log, gate), settings=short_settings(concurrency))
    log("ready", kind)
    await run_until_signal(engine)
    await store.close()


def read_stdin(gate: asyncio.Event) -> None:
    if os.read(sys.stdin.fileno(), 100):
        gate.set()
    else:
        # Standard input is closed: the parent process is gone.
        os.kill(os.getpid(), signal.SIGKILL)


def _print(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


def main() -> None:
    factory, url, log, kind, concurrency = sys.argv[1:]
    asyncio.run(run_worker(load_store_factory(factory)(url), EventLog(log, _print), kind, int(concurrency)))


WAIT_TIMEOUT = 30.0
"""Timeout in seconds of every wait: leases that expire, crashes that are detected, on a busy machine."""


class WorkerProcess:
    """A worker process, and the lines that it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[list[str]] = []
        self._more = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def wait_for_line(self, *fields: object) -> list[str]:
        """Wait until the worker prints a line that starts with these fields, and return the line."""
        prefix = list(map(str, fields))
        async with asyncio.timeout(WAIT_TIMEOUT), self._more:
            while True:
                for line in self.lines:
                    if line[: len(prefix)] == prefix:
                        return line
                if self._reading.done():
                    raise AssertionError(f"the worker ended without printing {prefix}: {self.lines}")
                await self._more.wait()

    def open_gate(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self._more:
                self.lines.append(line.decode().split())
                self._more.notify_all()
        async with self._more:
            self._more.notify_all()


class DispatcherHarness:
    """A store, an engine that only submits, and the worker processes of a test."""

    def __init__(self, store: Store, url: str, factory: str, folder: Path) -> None:
        self.store = store
        self.url = url
        self.clock: Clock = store.capabilities.clock or SystemClock()
        self.workers: list[WorkerProcess] = []
        self._factory = factory
        self._log = folder / "log"
        self.engine = self.submitting_engine("all")

    def submitting_engine(self, kind: str) -> Engine:
        """Return an engine that submits tasks for the tools of a kind of worker, and runs none."""
        toolbox = make_toolbox(kind, lambda *_: None, asyncio.Event())
        return Engine(self.store, toolbox, settings=short_settings(), works=False)

    async def start_worker(self, kind: str = "all", *, concurrency: int = 8) -> WorkerProcess:
        """Start a worker process and wait until it is ready."""
        arguments = (self._factory, self.url, str(self._log), kind, str(concurrency))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            __file__,
            *arguments,
            stdin=pipe,
            stdout=pipe,
            # A source tree on the path of this process must be on the path of its children too.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        worker = WorkerProcess(process)
        self.workers.append(worker)
        await worker.wait_for_line("ready")
        return worker

    async def suspend_worker(self, worker: WorkerProcess, task: Task) -> None:
        """Suspend a worker that runs the task, but not inside a transaction, which would block other writers."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while True:
                worker.send_signal(signal.SIGSTOP)
                held_attempt = HeldAttempt(task.id, fence=1)
                until = self.clock.now() + timedelta(seconds=LEASE)
                extension = asyncio.ensure_future(self.store.extend_leases([held_attempt], until=until))
                if (await asyncio.wait([extension], timeout=0.5))[0]:
                    return
                worker.send_signal(signal.SIGCONT)
                await extension

    async def kill_workers(self) -> None:
        for worker in self.workers:
            await worker.kill()

    async def logged_lines(self, *fields: object) -> list[list[str]]:
        """Return the lines of all workers that start with these fields."""
        prefix = list(map(str, fields))
        text = await asyncio.to_thread(self._read)
        return [line for line in map(str.split, text.splitlines()) if line[: len(prefix)] == prefix]

    def _read(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    async def wait_for_end(self, task: Task) -> tuple[Phase, Json]:
        """Wait until a task ends, and return its phase and its outcome."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            view = await self.engine.wait(task.id, owner=task.owner)
        return view.task.phase, None if view.outcome is None else decode(view.outcome)

    async def wait_for_ends(self, tasks: Sequence[Task]) -> set[Phase]:
        return {(await self.wait_for_end(task))[0] for task in tasks}

    async def wait_for_phase(self, task: Task, phase: Phase) -> None:
        """Wait until a task is in a phase."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            view = await self.engine.wait(task.id, until=lambda now: now.phase is phase)
        assert view.task.phase is phase, view.task

    async def history(self, task: Task) -> tuple[HistoryEntry, ...]:
        return await self.store.history(task.id, Scope.everything(), now=self.clock.now())

    async def check_recorded_steps(self, tasks: Sequence[Task]) -> int:
        """Check that no step recorded by one attempt ran in a later one. Returns how many runs there were."""
        recorded: dict[tuple[TaskId, str], int] = {}
        for task in tasks:
            journal = await self.store.journal(task.id, Scope.everything(), now=self.clock.now())
            recorded |= {(task.id, step.name): step.attempt for step in journal.steps}
        runs = [(TaskId(line[1]), line[2], int(line[3])) for line in await self.logged_lines("step")]
        for task_id, name, attempt in runs:
            recorder = recorded[task_id, name]
            assert attempt <= recorder, (
                f"step {name} of {task_id} was recorded by attempt {recorder}, and ran in {attempt}"
            )
        assert len(set(runs)) == len(runs), "an attempt ran a step twice"
        return len(runs)


async def eventually(condition: Callable[[], object], description: str) -> None:
    """Poll for a condition that sends no event because another system owns it: a row, a connection."""
    try:
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not true within {WAIT_TIMEOUT:.0f} seconds: {description}") from None


if __name__ == "__main__":
    main()
