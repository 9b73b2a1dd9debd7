"""A task that survives its worker: killed in the middle, gone on with, asked about, completed; and one that is stopped.

`scripts/demo` runs it. The server is this process; each worker is a process of its own (this script again, with
other arguments); all that they share is one SQLite file. Every line that begins with "ok" has been checked, and the
first that does not hold ends the program with an error.
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
from raincheck.core.lifecycle import Phase, Status
from raincheck.core.payload import Json, decode
from raincheck.core.records import HistoryEntry, Task, TaskId, View

ALICE = Owner.token("https://issuer.example", "alice")
SETTINGS = Settings(lease=1.0, park_after=0.2, poll_interval=0.5)
PATIENCE = 60.0
"""Seconds in which all of it must have happened."""

BOLD, DIM, GREEN, CYAN = "1", "2", "32", "36"
HAS_COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ

toolbox = Toolbox()


# The tools. What is written here is all that an author writes.


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
    tell(f"step {name}")
    if os.environ.get("STUCK_IN") == name:
        # Stands for a long computation, so that there is a middle to be killed in.
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


def tell(text: str) -> None:
    """A line for the server, which shows it when the story gets there; and one in the diary, to be counted."""
    with Path(os.environ["DIARY"]).open("a") as diary:
        diary.write(f"{text}\n")
    print(text, flush=True)


async def be_worker(path: str) -> None:
    async with open_store(path) as store, asyncio.timeout(PATIENCE):
        await run_until_signal(Engine(store, toolbox, settings=SETTINGS))


# The story.


class Worker:
    """A worker in a process of its own, seen from the server."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process

    @classmethod
    async def start(cls, folder: Path, name: str, *, stuck_in: str = "") -> "Worker":
        environment = os.environ | {"STUCK_IN": stuck_in, "DIARY": str(folder / "diary")}
        command = (sys.executable, __file__, str(folder / "tasks.db"))
        pipe = asyncio.subprocess.PIPE
        return cls(name, await asyncio.create_subprocess_exec(*command, stdout=pipe, env=environment))

    async def shows(self, last: str) -> None:
        """Show what the worker says, up to the line that is waited for."""
        assert self.process.stdout is not None  # noqa: S101 - it was asked for
        async for line in self.process.stdout:
            text = line.decode().rstrip()
            say(self.name, text)
            if text == last:
                return
        raise NotAsSaid(f"{self.name} ended before it said {last!r}")

    async def kill(self) -> None:
        """End it at once, whatever it does: SIGKILL can't be caught."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Server:
    """Takes tasks and answers for them, leaves the work to others, and tells the story."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.workers: list[Worker] = []

    async def tell_story(self) -> None:
        report = await self.kill_a_worker()
        await self.go_on(report)
        await self.run_other_tasks()
        await self.stop_work()
        await self.give_answer(report)
        await self.show_history(report)

    async def kill_a_worker(self) -> TaskId:
        heading(
            "A worker begins a report, and is killed in the middle",
            "The task is kept before its id is handed out, and each finished step is kept as a checkpoint.",
        )
        task = await self.submit("build_report", year=2026)
        worker = await self.start_worker("worker-1", stuck_in="draw_charts")
        await worker.shows("step draw_charts")
        await worker.kill()
        say("server", "worker-1 was killed with SIGKILL: no goodbye, no cleaning up")
        left = await self.view(task.id)
        ok(left.task.phase is Phase.RUNNING, "for all that anybody knows, attempt 1 is still running")
        return task.id

    async def go_on(self, report: TaskId) -> None:
        heading(
            "Another worker takes it back when its lease ends, and goes on from the last checkpoint",
            "Nobody can tell a dead worker from a slow one. So the right to run a task ends, unless extended.",
        )
        worker = await self.start_worker("worker-2")
        await worker.shows("step draw_charts")
        view = await self.reach(report, lambda task: task.phase is Phase.PARKED)
        ok(view.task.attempt_number == 2, "attempt 2 did not repeat what attempt 1 had finished")
        ok(view.task.status is Status.INPUT_REQUIRED, "it has a question now, and a caller who polls is told so")
        ok(view.task.attempt is None, "while it waits for the answer, no worker is held")

    async def run_other_tasks(self) -> None:
        heading(
            "Meanwhile there is other work: a task that starts others",
            "Children belong to their parent. It waits for them without holding a worker, too.",
        )
        task = await self.submit("send_newsletter", lists=["friends", "family"])
        view = await self.engine.wait(task.id, owner=ALICE)
        ok(outcome(view) == 1300, "send_newsletter has the results of both its children")

    async def stop_work(self) -> None:
        heading(
            "A task that never ends is cancelled",
            'With isolation="process" even "while True: pass" is stopped: its process is ended.',
        )
        task = await self.submit("crunch_numbers")
        await self.reach(task.id, lambda task: task.entries > 2)  # created, claimed, and its artifact is kept
        process = int(str(await self.engine.artifact(task.id, "process", owner=ALICE)))
        ok(is_alive(process), f"it runs, in a process of its own ({process})")
        await self.engine.cancel(task.id, owner=ALICE, actor="alice", reason="wrong numbers")
        while is_alive(process):  # noqa: ASYNC110 - a process of another process can't be waited for
            await asyncio.sleep(0.01)
        ok((await self.view(task.id)).task.phase is Phase.CANCELLED, "it is cancelled, and its process is gone")

    async def give_answer(self, report: TaskId) -> None:
        heading(
            "The answer comes, and the report goes on where it stopped",
            "An answer is kept like a step: no later attempt asks again.",
        )
        await self.engine.answer(report, {"elicit-0": {"action": "accept", "content": {}}}, owner=ALICE, actor="alice")
        say("server", "Alice answers: yes")
        await self.workers[-1].shows("step publish")
        view = await self.engine.wait(report, owner=ALICE)
        ok(view.task.phase is Phase.COMPLETED, f"its result is there to fetch: {outcome(view)}")
        ran = Counter((self.folder / "diary").read_text().splitlines())
        ok(
            ran == {"step load_rows": 1, "step add_up": 1, "step draw_charts": 2, "step publish": 1},
            "finished steps ran once; only draw_charts, cut off in the middle, ran again",
        )

    async def show_history(self, report: TaskId) -> None:
        heading(
            "The whole story of the report, as the store has it",
            "What an operator reads when somebody asks what became of a task.",
        )
        entries = await self.engine.history(report, owner=ALICE)
        print(table(entries))
        events = [entry.event for entry in entries if entry.event != "note"]
        expected = "create claim interrupt claim park answer claim complete"
        ok(" ".join(events) == expected, "every change is there, in order, with who made it")

    async def submit(self, tool: str, **arguments: Json) -> Task:
        task = await self.engine.submit(tool, arguments, owner=ALICE)
        say("server", f"took {tool} as {task.id}")
        return task

    async def view(self, task_id: TaskId) -> View:
        return await self.engine.view(task_id, owner=ALICE)

    async def reach(self, task_id: TaskId, until: Callable[[Task], bool]) -> View:
        return await self.engine.wait(task_id, owner=ALICE, until=until)

    async def start_worker(self, name: str, *, stuck_in: str = "") -> Worker:
        worker = await Worker.start(self.folder, name, stuck_in=stuck_in)
        self.workers.append(worker)
        return worker


class NotAsSaid(Exception):
    """Something is not as this program says."""


def ok(fact: bool, claim: str) -> None:
    """Say what was checked."""
    if not fact:
        raise NotAsSaid(claim)
    say("ok", claim, GREEN)


def outcome(view: View) -> Json:
    return None if view.outcome is None else decode(view.outcome)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def say(who: str, text: str, colour: str = CYAN) -> None:
    print(f"   {paint(f'{who:8}', colour)}  {text}")


def heading(what: str, why: str) -> None:
    print(f"\n{paint(what, BOLD)}\n{paint(why, DIM)}")


def paint(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if HAS_COLOURS else text


def table(entries: Sequence[HistoryEntry]) -> str:
    """The history for people, 100 columns wide."""
    lines = [f"    #  seconds  attempt  {'event':9}  {'phase':20}  note"]
    for entry in entries:
        seconds = (entry.at - entries[0].at).total_seconds()
        phase = entry.after if entry.before in (None, entry.after) else f"{entry.before} > {entry.after}"
        first, *rest = textwrap.wrap(entry.note or "", 45) or [""]
        start = f"{entry.seq:5}  {seconds:7.2f}  {entry.attempt:7}  {entry.event:9}  {phase:20}  "
        lines += [start + first, *(" " * len(start) + more for more in rest)]
    return "\n".join(line.rstrip() for line in lines)


async def be_server() -> None:
    with tempfile.TemporaryDirectory(prefix="raincheck-") as name:
        folder = Path(name)
        print(paint("raincheck: a ticket now, the result later, whatever happens to the worker in between", BOLD))
        print("The server and each worker are processes of their own; all that they share is one SQLite file.")
        async with (
            open_store(folder / "tasks.db") as store,
            Engine(store, toolbox, settings=SETTINGS, works=False) as engine,
        ):
            server = Server(engine, folder)
            try:
                async with asyncio.timeout(PATIENCE):
                    await server.tell_story()
            finally:
                for worker in server.workers:
                    await worker.kill()
    print(
        "\nShown: a durable task outlived a killed worker, kept its finished steps, waited for an answer\n"
        "without holding a worker, and completed; one that would never end was stopped. All of it took one file."
    )


def main() -> int:
    try:
        asyncio.run(be_worker(sys.argv[1]) if len(sys.argv) > 1 else be_server())
    except (NotAsSaid, RaincheckError, TimeoutError) as error:
        print(f"\nNOT as it should be: {error or 'it took too long'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
