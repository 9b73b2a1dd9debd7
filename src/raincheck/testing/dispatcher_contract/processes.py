"""A store, an engine on it that only asks, and worker processes that come and go.

The tools that the suite's workers have. They tell whatever they do, so that a test can wait for it and count it.

A worker in a process of its own, which the suite starts, stops and kills.

`python program.py OPENER URL DIARY KIND CONCURRENCY` prints a line when it is ready and one for whatever its tools do,
and opens their gate at the first line that it gets. It ends when nobody can send it one any more.
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
from raincheck.core.payload import Json, decode
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import HistoryEntry, Task, TaskId
from raincheck.engine import Engine, Settings, TaskContext, Toolbox, run_until_signal
from raincheck.stores.base import Store
from raincheck.stores.requests import HeldAttempt

Tell: TypeAlias = Callable[..., None]

STEPS = ("load", "clean", "publish")
STUBBORN = RetryPolicy(attempts=50, first=timedelta(0), most=timedelta(0), jitter=0)

KINDS = ("all", "older", "newer", "other")
"""What a worker may have: everything but what has versions; that in its first or second version; none of it."""


class Diary:
    """A file to which many processes write, a line at a time, and what else is to hear of a line."""

    def __init__(self, path: str | os.PathLike[str], also: Callable[[str], None] | None = None) -> None:
        # Opened once, by whoever makes it, so that nothing is opened in an event loop. Each write is appended whole.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._also = also

    def __call__(self, *words: object) -> None:
        line = " ".join(map(str, words)) + "\n"
        os.write(self._file, line.encode())
        if self._also is not None:
            self._also(line)

    def close(self) -> None:
        os.close(self._file)


def make_toolbox(kind: str, tell: Tell, gate: asyncio.Event) -> Toolbox:
    """The tools of a worker of a kind. What is told to wait does so until the gate is open."""
    toolbox = Toolbox()
    if kind == "all":
        _add_work(toolbox, tell, gate)
        _add_waits(toolbox, tell)
    if kind in ("older", "newer"):
        _add_versioned(toolbox, tell, "1" if kind == "older" else "2")
    if kind == "other":
        _add_other(toolbox, tell)
    return toolbox


def _add_work(toolbox: Toolbox, tell: Tell, gate: asyncio.Event) -> None:
    @toolbox.tool(retry=STUBBORN)
    async def three_steps(task: TaskContext, hangs_in: str = "", ms: int = 0) -> list[Json]:
        """Three steps. The first attempt stays in one of them, until the gate is open."""

        async def do(name: str) -> str:
            tell("step", task.id, name, task.attempt)
            if name == hangs_in and task.attempt == 1:
                await gate.wait()
            await asyncio.sleep(ms / 1_000)
            return f"{name} by {task.attempt}"

        try:
            done: list[Json] = [await task.step(name, do, name) for name in STEPS]
            tell("returns", task.id, task.attempt)
            return done
        finally:
            tell("left", task.id, task.attempt)

    @toolbox.tool
    async def plain(task: TaskContext) -> int:
        tell("ran", task.id, task.attempt)
        return task.attempt


def _add_waits(toolbox: Toolbox, tell: Tell) -> None:
    @toolbox.tool
    async def wait_for_ever(task: TaskContext) -> None:
        tell("began", task.id, task.attempt)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            tell("cancelled", task.id, task.attempt)
            raise

    @toolbox.tool
    async def ask(number: int, task: TaskContext) -> list[Json]:
        tell("asks", task.id, task.attempt)
        reply = await task.elicit("Go on?", {"type": "object"})
        return [number, reply.content]


def _add_versioned(toolbox: Toolbox, tell: Tell, version: str) -> None:
    @toolbox.tool(version=version)
    async def versioned(task: TaskContext) -> str:
        tell("ran", task.id, version)
        return version


def _add_other(toolbox: Toolbox, tell: Tell) -> None:
    @toolbox.tool
    async def other(task: TaskContext) -> None:
        tell("ran", task.id, task.attempt)


LEASE = 2.0


def settings_of(concurrency: int = 8) -> Settings:
    """Short times, for tests that wait for them on the real clock."""
    return Settings(lease=LEASE, patience=0.05, grace=0.5, look_every=0.5, concurrency=concurrency)


def find_opener(name: str) -> Callable[[str], Store]:
    """What makes a store of a URL, by its name: `package.module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


async def work(store: Store, diary: Diary, kind: str, concurrency: int) -> None:
    gate = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, hear, gate)
    await store.open()
    engine = Engine(store, make_toolbox(kind, diary, gate), settings=settings_of(concurrency))
    diary("ready", kind)
    await run_until_signal(engine)
    await store.close()


def hear(gate: asyncio.Event) -> None:
    if os.read(sys.stdin.fileno(), 100):
        gate.set()
    else:
        # Whoever started it is gone.
        os.kill(os.getpid(), signal.SIGKILL)


def _print(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


def main() -> None:
    opener, url, diary, kind, concurrency = sys.argv[1:]
    asyncio.run(work(find_opener(opener)(url), Diary(diary, _print), kind, int(concurrency)))


PATIENCE = 30.0
"""Seconds for anything that a test waits for: leases to end, dead processes to be noticed, on a busy machine."""


class WorkerProcess:
    """A worker, and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[list[str]] = []
        self._more = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def hear(self, *words: object) -> list[str]:
        """Wait until it has said a line that begins with these words, and return the line."""
        beginning = list(map(str, words))
        async with asyncio.timeout(PATIENCE), self._more:
            while True:
                for line in self.said:
                    if line[: len(beginning)] == beginning:
                        return line
                if self._reading.done():
                    raise AssertionError(f"the worker ended and never said {beginning}: {self.said}")
                await self._more.wait()

    def open_gate(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    def send(self, number: signal.Signals) -> None:
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
                self.said.append(line.decode().split())
                self._more.notify_all()
        async with self._more:
            self._more.notify_all()


class Site:
    """Where a test takes place."""

    def __init__(self, store: Store, url: str, opener: str, folder: Path) -> None:
        self.store = store
        self.url = url
        self.clock: Clock = store.capabilities.clock or SystemClock()
        self.workers: list[WorkerProcess] = []
        self._opener = opener
        self._diary = folder / "diary"
        self.engine = self.asking("all")

    def asking(self, kind: str) -> Engine:
        """An engine that takes tasks for the tools of workers of a kind, and runs none."""
        toolbox = make_toolbox(kind, lambda *_: None, asyncio.Event())
        return Engine(self.store, toolbox, settings=settings_of(), works=False)

    async def start_worker(self, kind: str = "all", *, concurrency: int = 8) -> WorkerProcess:
        """A worker that has said that it is ready."""
        arguments = (self._opener, self.url, str(self._diary), kind, str(concurrency))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            __file__,
            *arguments,
            stdin=pipe,
            stdout=pipe,
            # Whoever has a source tree on its path, its children have too.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        worker = WorkerProcess(process)
        self.workers.append(worker)
        await worker.hear("ready")
        return worker

    async def put_to_sleep(self, worker: WorkerProcess, task: Task) -> None:
        """Stop a worker that runs the task, and not in the middle of a transaction: others would wait for it to end."""
        async with asyncio.timeout(PATIENCE):
            while True:
                worker.send(signal.SIGSTOP)
                held = HeldAttempt(task.id, fence=1)
                until = self.clock.now() + timedelta(seconds=LEASE)
                writing = asyncio.ensure_future(self.store.extend_leases([held], until=until))
                if (await asyncio.wait([writing], timeout=0.5))[0]:
                    return
                worker.send(signal.SIGCONT)
                await writing

    async def end_all(self) -> None:
        for worker in self.workers:
            await worker.kill()

    async def lines(self, *words: object) -> list[list[str]]:
        """What all workers have written down that begins with these words."""
        beginning = list(map(str, words))
        text = await asyncio.to_thread(self._read)
        return [line for line in map(str.split, text.splitlines()) if line[: len(beginning)] == beginning]

    def _read(self) -> str:
        return self._diary.read_text() if self._diary.exists() else ""

    async def end_of(self, task: Task) -> tuple[Phase, Json]:
        """Wait until a task has ended: how, and with what."""
        async with asyncio.timeout(PATIENCE):
            view = await self.engine.wait(task.id, owner=task.owner)
        return view.task.phase, None if view.outcome is None else decode(view.outcome)

    async def ends_of(self, tasks: Sequence[Task]) -> set[Phase]:
        return {(await self.end_of(task))[0] for task in tasks}

    async def reach(self, task: Task, phase: Phase) -> None:
        """Wait until a task is in a phase."""
        async with asyncio.timeout(PATIENCE):
            view = await self.engine.wait(task.id, until=lambda now: now.phase is phase)
        assert view.task.phase is phase, view.task

    async def history(self, task: Task) -> tuple[HistoryEntry, ...]:
        return await self.store.history(task.id, Scope.everything(), now=self.clock.now())

    async def check_that_no_recorded_step_ran_again(self, tasks: Sequence[Task]) -> int:
        """A step that one attempt recorded must not run in a later one. Returns how many runs there were."""
        recorded: dict[tuple[TaskId, str], int] = {}
        for task in tasks:
            journal = await self.store.journal(task.id, Scope.everything(), now=self.clock.now())
            recorded |= {(task.id, step.name): step.attempt for step in journal.steps}
        runs = [(TaskId(line[1]), line[2], int(line[3])) for line in await self.lines("step")]
        for task_id, name, attempt in runs:
            by = recorded[task_id, name]
            assert attempt <= by, f"step {name} of {task_id} was recorded by attempt {by}, and ran in {attempt} too"
        assert len(set(runs)) == len(runs), "no attempt runs a step twice"
        return len(runs)


async def eventually(look: Callable[[], object], what: str) -> None:
    """Wait for something that nobody tells of, since it is another's: a row, a connection."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(look):  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"in {PATIENCE:.0f} seconds, it never came to this: {what}") from None


if __name__ == "__main__":
    main()
