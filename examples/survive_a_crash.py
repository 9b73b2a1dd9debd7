"""A task survives its worker: the worker is killed, another one resumes the task, a user answers, the task completes.

The server is this process. Each worker is a separate process: this script again, with other arguments. They share one
SQLite file, and nothing else. Every line that starts with "ok" is a check, and the first check that fails ends the
program with an error.
"""

import asyncio
import os
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from raincheck import (
    Engine,
    Owner,
    RaincheckError,
    Settings,
    SyncTaskContext,
    TaskContext,
    Toolbox,
    open_store,
    run_until_signal,
)
from raincheck.stores import HistoryEntry, Json, Phase, Status, Task, TaskId, View, decode

ALICE = Owner.token("https://issuer.example", "alice")
SETTINGS = Settings(lease=1.0, park_after=0.2, poll_interval=0.5)
TIMEOUT = 60.0
"""Seconds within which the program must end."""

BOLD, DIM, GREEN, CYAN = "1", "2", "32", "36"
HAS_COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ

toolbox = Toolbox()


# The tools: all that an author of tools writes.


@toolbox.tool
async def build_report(year: int, task: TaskContext) -> dict[str, Json]:
    for number, name in enumerate(("load_rows", "add_up", "draw_charts"), start=1):
        await task.step(name, work, name, year)
        await task.progress(number, 4, name)
    answer = await task.elicit("Publish it?", {"type": "object"})
    if answer.ok:
        await task.step("publish", work, "publish", year)
    return {"pages": 12, "published": answer.ok}


async def work(name: str, year: int) -> str:
    log(f"step {name}")
    if os.environ.get("STUCK_IN") == name:
        # Stands for a long computation, during which the worker can be killed.
        await asyncio.Event().wait()
    return f"{name} of {year} is done"


@toolbox.tool(isolation="process", grace=1.0)
def crunch_numbers(task: SyncTaskContext) -> None:
    task.artifact("process", os.getpid())
    while True:
        pass


@toolbox.tool
async def send_newsletter(lists: list[str], task: TaskContext) -> int:
    children = [await task.spawn("send_to", {"name": name}) for name in lists]
    return sum(map(int, map(str, await asyncio.gather(*(child.result() for child in children)))))


@toolbox.tool
async def send_to(name: str, task: TaskContext) -> int:
    await task.status(f"sending to {name}")
    return len(name) * 100


def log(text: str) -> None:
    """Print a line for the server, and append it to a log file in which the server counts the steps."""
    with Path(os.environ["LOG_FILE"]).open("a") as file:
        file.write(f"{text}\n")
    print(text, flush=True)


async def run_worker(path: str) -> None:
    async with open_store(path) as store, asyncio.timeout(TIMEOUT):
        await run_until_signal(Engine(store, toolbox, settings=SETTINGS))


# The server, which starts and kills the workers.


class Worker:
    """A worker process, as the server sees it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process

    @classmethod
    async def start(cls, folder: Path, name: str, *, stuck_in: str = "") -> "Worker":
        environment = os.environ | {"STUCK_IN": stuck_in, "LOG_FILE": str(folder / "steps.log")}
        command = (sys.executable, __file__, str(folder / "tasks.db"))
        pipe = asyncio.subprocess.PIPE
        return cls(name, await asyncio.create_subprocess_exec(*command, stdout=pipe, env=environment))

    async def print_until(self, last: str) -> None:
        """Print the output of the worker, up to the given line."""
        assert self.process.stdout is not None  # noqa: S101 - started with a pipe
        async for line in self.process.stdout:
            text = line.decode().rstrip()
            say(self.name, text)
            if text == last:
                return
        raise CheckFailed(f"{self.name} ended before it printed {last!r}")

    async def kill(self) -> None:
        """Kill the worker immediately: SIGKILL can't be caught."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Server:
    """Accepts tasks and answers requests, and leaves the work to the workers."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.workers: list[Worker] = []

    async def run_all(self) -> None:
        report = await self.kill_a_worker()
        await self.resume(report)
        await self.run_child_tasks()
        await self.cancel_a_task()
        await self.give_answer(report)
        await self.show_history(report)

    async def kill_a_worker(self) -> TaskId:
        heading(
            "A worker starts a report, and is killed in the middle",
            "The task is stored before its id is returned, and each finished step is stored as a checkpoint.",
        )
        task = await self.submit("build_report", year=2026)
        worker = await self.start_worker("worker-1", stuck_in="draw_charts")
        await worker.print_until("step draw_charts")
        await worker.kill()
        say("server", "worker-1 was killed with SIGKILL: it could not clean up")
        view = await self.view(task.id)
        ok(view.task.phase is Phase.RUNNING, "in the store, attempt 1 is still running")
        return task.id

    async def resume(self, report: TaskId) -> None:
        heading(
            "Another worker takes the task over when its lease expires, and resumes it from the last checkpoint",
            "A dead worker looks like a slow one. So the right to run a task expires unless it is extended.",
        )
        worker = await self.start_worker("worker-2")
        await worker.print_until("step draw_charts")
        view = await self.reach(report, lambda task: task.phase is Phase.PARKED)
        ok(view.task.attempt_number == 2, "attempt 2 did not repeat what attempt 1 had finished")
        ok(view.task.status is Status.INPUT_REQUIRED, "it waits for an answer, and callers that poll see the question")
        ok(view.task.attempt is None, "while it waits for the answer, it occupies no worker")

    async def run_child_tasks(self) -> None:
        heading(
            "Meanwhile, a task starts other tasks",
            "Children belong to their parent, which waits for them without occupying a worker.",
        )
        task = await self.submit("send_newsletter", lists=["friends", "family"])
        view = await self.engine.wait(task.id, owner=ALICE)
        ok(outcome(view) == 1300, "send_newsletter has the results of both its children")

    async def cancel_a_task(self) -> None:
        heading(
            "A task that never ends is cancelled",
            'With isolation="process" even "while True: pass" is stopped: its process is killed.',
        )
        task = await self.submit("crunch_numbers")
        await self.reach(task.id, lambda task: task.entries > 2)  # created, claimed, and its artifact is stored
        process = int(str(await self.engine.artifact(task.id, "process", owner=ALICE)))
        ok(is_alive(process), f"it runs, in a separate process ({process})")
        await self.engine.cancel(task.id, owner=ALICE, actor="alice", reason="wrong numbers")
        while is_alive(process):  # noqa: ASYNC110 - the child of another process can't be awaited
            await asyncio.sleep(0.01)
        ok((await self.view(task.id)).task.phase is Phase.CANCELLED, "it is cancelled, and its process has ended")

    async def give_answer(self, report: TaskId) -> None:
        heading(
            "The user answers, and the report resumes where it stopped",
            "An answer is stored like a step: no later attempt asks again.",
        )
        await self.engine.answer(report, {"elicit-0": {"action": "accept", "content": {}}}, owner=ALICE, actor="alice")
        say("server", "Alice answers: yes")
        await self.workers[-1].print_until("step publish")
        view = await self.engine.wait(report, owner=ALICE)
        ok(view.task.phase is Phase.COMPLETED, f"its result can be read: {outcome(view)}")
        ran = Counter((self.folder / "steps.log").read_text().splitlines())
        ok(
            ran == {"step load_rows": 1, "step add_up": 1, "step draw_charts": 2, "step publish": 1},
            "finished steps ran once; only draw_charts, which was interrupted, ran again",
        )

    async def show_history(self, report: TaskId) -> None:
        heading(
            "The history of the report in the store",
            "With it, an operator can see what happened to a task.",
        )
        entries = await self.engine.history(report, owner=ALICE)
        print(table(entries))
        events = [entry.event for entry in entries if entry.event != "note"]
        expected = "create claim interrupt claim park answer claim complete"
        ok(" ".join(events) == expected, "it has every change, in order, with its cause")

    async def submit(self, tool: str, **arguments: Json) -> Task:
        task = await self.engine.submit(tool, arguments, owner=ALICE)
        say("server", f"accepted {tool} as {task.id}")
        return task

    async def view(self, task_id: TaskId) -> View:
        return await self.engine.view(task_id, owner=ALICE)

    async def reach(self, task_id: TaskId, until: Callable[[Task], bool]) -> View:
        return await self.engine.wait(task_id, owner=ALICE, until=until)

    async def start_worker(self, name: str, *, stuck_in: str = "") -> Worker:
        worker = await Worker.start(self.folder, name, stuck_in=stuck_in)
        self.workers.append(worker)
        return worker


class CheckFailed(Exception):
    """A check of this program failed."""


def ok(fact: bool, claim: str) -> None:
    """Print a claim, or raise an error if it is not a fact."""
    if not fact:
        raise CheckFailed(claim)
    say("ok", claim, GREEN)


def outcome(view: View) -> Json:
    return None if view.outcome is None else decode(view.outcome)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def say(source: str, text: str, colour: str = CYAN) -> None:
    print(f"   {paint(f'{source:8}', colour)}  {text}")


def heading(title: str, explanation: str) -> None:
    print(f"\n{paint(title, BOLD)}\n{paint(explanation, DIM)}")


def paint(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if HAS_COLOURS else text


def table(entries: Sequence[HistoryEntry]) -> str:
    """Format the history as a table of 100 columns."""
    lines = [f"    #  seconds  attempt  {'event':9}  {'phase':20}  note"]
    for entry in entries:
        seconds = (entry.at - entries[0].at).total_seconds()
        phase = entry.after if entry.before in (None, entry.after) else f"{entry.before} > {entry.after}"
        first, *rest = textwrap.wrap(entry.note or "", 45) or [""]
        start = f"{entry.seq:5}  {seconds:7.2f}  {entry.attempt:7}  {entry.event:9}  {phase:20}  "
        lines += [start + first, *(" " * len(start) + more for more in rest)]
    return "\n".join(line.rstrip() for line in lines)


async def run_server() -> None:
    with tempfile.TemporaryDirectory(prefix="raincheck-") as name:
        folder = Path(name)
        print(paint("raincheck: a task id now, the result later, even if the worker dies in between", BOLD))
        print("The server and each worker are separate processes, which share only one SQLite file.")
        async with (
            open_store(folder / "tasks.db") as store,
            Engine(store, toolbox, settings=SETTINGS, works=False) as engine,
        ):
            server = Server(engine, folder)
            try:
                async with asyncio.timeout(TIMEOUT):
                    await server.run_all()
            finally:
                for worker in server.workers:
                    await worker.kill()
    print(
        "\nShown: a task outlived its killed worker, did not repeat finished steps, waited for an answer\n"
        "without occupying a worker, and completed. A task that would never end was cancelled."
    )


def main() -> int:
    try:
        asyncio.run(run_worker(sys.argv[1]) if len(sys.argv) > 1 else run_server())
    except (CheckFailed, RaincheckError, TimeoutError) as error:
        print(f"\nFAILED: {error or 'it took too long'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
