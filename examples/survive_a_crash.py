"""A task that survives its worker: killed in the middle, taken back, gone on with, asked about, completed.

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
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from raincheck import RaincheckError, open_store
from raincheck.clock import SystemClock, new_task_id
from raincheck.core.commands import AttemptCommand, Cancel, Complete, Note, Park
from raincheck.core.content import InputKind, InputRequest, Step
from raincheck.core.create import NewTask, create
from raincheck.core.lifecycle import Phase, Status
from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import decode, encode
from raincheck.core.records import HistoryEntry, Progress, Task, TaskId, Tool
from raincheck.errors import LeaseLost
from raincheck.stores.apply import answer, apply, sweep
from raincheck.stores.interface import Store
from raincheck.stores.requests import ClaimRequest, HeldAttempt

NAMESPACE = "demo"
ALICE = Owner.token("https://issuer.example", "alice")
HERS = Scope.of(NAMESPACE, ALICE)
REPORT, ARCHIVE, NEWSLETTER = Tool("build_report"), Tool("tidy_archive"), Tool("send_newsletter")
STEPS = ("load_rows", "add_up", "draw_charts", "publish")
RESULT = {"pages": 12, "published": True}
LEASE = timedelta(seconds=1)
PATIENCE = 30.0
"""Seconds in which all of it must have happened."""

BOLD, DIM, GREEN, CYAN = "1", "2", "32", "36"
HAS_COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ

clock = SystemClock()


class Worker:
    """Claims tasks and runs them, one at a time, until its process is ended."""

    def __init__(self, store: Store, holder: str, diary: Path, stuck_in: str) -> None:
        self.store = store
        self.holder = holder
        self.diary = diary
        self.stuck_in = stuck_in

    async def work(self) -> None:
        request = ClaimRequest(NAMESPACE, frozenset({REPORT, ARCHIVE, NEWSLETTER}), self.holder, LEASE, limit=1)
        with self.store.listen() as feed:
            while True:
                claimed = await self.store.claim(request, now=clock.now())
                if claimed:
                    await self.run(claimed[0])
                else:
                    # Until somebody, in whatever process, changes a task.
                    await anext(feed)

    async def run(self, task: Task) -> None:
        tell(f"claims {task.tool.name}: attempt {task.fence}")
        keeping = asyncio.create_task(self.keep_lease(task))
        try:
            match task.tool:
                case Tool("build_report"):
                    await self.build_report(task)
                case Tool("tidy_archive"):
                    await self.do(task, Complete(task.fence, encode({"moved": 3})))
                    tell("completes tidy_archive")
                case _:
                    await self.send_newsletter(task)
        finally:
            keeping.cancel()

    async def keep_lease(self, task: Task) -> None:
        """Extend the lease while this process lives and nobody has taken the task away."""
        held = [HeldAttempt(task.id, task.fence)]
        while not await self.store.extend_leases(held, until=clock.now() + LEASE):  # noqa: ASYNC110 - time is the event
            await asyncio.sleep(LEASE.total_seconds() / 3)

    async def build_report(self, task: Task) -> None:
        journal = await self.store.journal(task.id, Scope.within(NAMESPACE), now=clock.now())
        finished = {step.name: step.attempt for step in journal.steps}
        answers = {question.key: decode(question.answer) for question in journal.inputs if question.answer is not None}
        for number, name in enumerate(STEPS, start=1):
            if name in finished:
                tell(f"skips step {name}: attempt {finished[name]} finished it")
                continue
            if name == "publish" and answers.get("publish") != {"ok": True}:
                await self.ask(task)
                return
            await self.run_step(task, name, number)
        await self.do(task, Complete(task.fence, encode(RESULT)))
        tell("completes build_report")

    async def run_step(self, task: Task, name: str, number: int) -> None:
        # Before it is told: the server may kill this process as soon as it hears of it.
        with self.diary.open("a") as diary:
            diary.write(f"{name}\n")
        tell(f"begins step {name}")
        if name == self.stuck_in:
            # Stands for a long computation, so that there is a middle to be killed in.
            await asyncio.Event().wait()
        step = Step(name, 0, "year=2026", encode(f"{name} is done"), task.fence, clock.now())
        await self.do(task, Note(task.fence, Progress(number, len(STEPS)), steps=(step,)))
        tell(f"finished step {name}, {number} of {len(STEPS)}: a checkpoint")

    async def ask(self, task: Task) -> None:
        words = encode({"message": "Publish it?"})
        question = InputRequest("publish", InputKind.ELICITATION, words, clock.now(), task.fence)
        await self.do(task, Note(task.fence, status_message="waits for a go-ahead", asked=(question,)))
        await self.do(task, Park(task.fence, seen=task.signals))
        tell("asks 'Publish it?', parks build_report, and is free")

    async def send_newsletter(self, task: Task) -> None:
        await self.do(task, Note(task.fence, Progress(1, 500), "sending"))
        tell("is sending, and does not look up")
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await self.do(task, Complete(task.fence, encode({"sent": 500})))
        except LeaseLost as refusal:
            tell(f"tries to complete send_newsletter, and is refused: {type(refusal).__name__}")
        else:
            tell("completes send_newsletter")

    async def do(self, task: Task, command: AttemptCommand) -> None:
        await apply(self.store, task.id, Scope.within(NAMESPACE), command, now=clock.now())


def tell(text: str) -> None:
    """A line for the server, which shows it when the story gets there."""
    print(text, flush=True)


async def be_worker(path: str, holder: str, diary: str, stuck_in: str) -> None:
    async with open_store(path) as store, asyncio.timeout(PATIENCE):
        await Worker(store, holder, Path(diary), stuck_in).work()


class WorkerProcess:
    """A worker in a process of its own, seen from the server."""

    def __init__(self, holder: str, process: asyncio.subprocess.Process) -> None:
        self.holder = holder
        self._process = process

    @classmethod
    async def start(cls, folder: Path, holder: str, *, stuck_in: str = "") -> "WorkerProcess":
        pipe = asyncio.subprocess.PIPE
        arguments = (__file__, "worker", str(folder / "tasks.db"), holder, str(folder / "diary"), stuck_in)
        return cls(holder, await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe))

    async def shows(self, last: str) -> None:
        """Show what the worker says, up to the line that is waited for."""
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        async for line in self._process.stdout:
            text = line.decode().rstrip()
            say(self.holder, text)
            if text.startswith(last):
                return
        raise NotAsSaid(f"{self.holder} ended before it said {last!r}")

    def nudge(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - likewise
        self._process.stdin.write(b"\n")

    async def kill(self) -> None:
        """End it at once, whatever it does: SIGKILL can't be caught."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class Server:
    """Creates tasks, watches over them, and tells the story."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.workers: list[WorkerProcess] = []

    async def start_worker(self, holder: str, *, stuck_in: str = "") -> WorkerProcess:
        worker = await WorkerProcess.start(self.folder, holder, stuck_in=stuck_in)
        self.workers.append(worker)
        return worker

    async def tell_story(self) -> None:
        report, archive, newsletter = await self.create_tasks()
        await self.kill_a_worker(report)
        await self.take_back(report)
        worker = await self.go_on(report)
        await self.cancel(worker, archive, newsletter)
        await self.give_answer(worker, report)
        await self.show_history(report)

    async def create_tasks(self) -> list[TaskId]:
        heading(
            "The server keeps three tasks, and only then hands out their ids",
            "An id in a caller's hand must mean something, even if the server dies in the next instant.",
        )
        ids: list[TaskId] = []
        for tool, priority in ((REPORT, 2), (ARCHIVE, 1), (NEWSLETTER, 0)):
            now = clock.now()
            new = NewTask(new_task_id(now), NAMESPACE, ALICE, tool, encode({"year": 2026}), priority=priority)
            task = await self.store.create(create(new, now, Limits()), quota=Quota(), now=now)
            say("server", f"created {tool.name} as {task.id}")
            ids.append(task.id)
        phases = [(await self.load(task_id)).phase for task_id in ids]
        ok(phases == [Phase.QUEUED] * 3, "all three are committed, and wait for a worker")
        return ids

    async def kill_a_worker(self, report: TaskId) -> None:
        heading(
            "A worker begins the report, and is killed in the middle",
            "Each finished step is kept as a checkpoint, in one transaction with its entry in the history.",
        )
        worker = await self.start_worker("worker-1", stuck_in="draw_charts")
        await worker.shows("begins step draw_charts")
        await worker.kill()
        say("server", "worker-1 was killed with SIGKILL: no goodbye, no cleaning up")
        task = await self.load(report)
        ok(task.phase is Phase.RUNNING and task.fence == 1, "for all that anybody knows, attempt 1 is still running")
        ok(task.progress == Progress(2, 4), "its checkpoints are there: 2 of 4 steps")

    async def take_back(self, report: TaskId) -> None:
        heading(
            "The lease runs out, so the task is taken back",
            "Nobody can tell a dead worker from a slow one. So the right to run a task ends, unless extended.",
        )
        attempt = (await self.load(report)).attempt
        if attempt is None or attempt.lease.holder != "worker-1":
            raise NotAsSaid("worker-1 holds the lease")
        left = max(0.0, (attempt.lease.expires_at - clock.now()).total_seconds())
        say("server", f"worker-1 holds the lease for another {left:.1f} s, and can't extend it any more")
        # A little more, because the clock that sleeps are measured by is not the one that leases are.
        await asyncio.sleep(left + 0.05)
        swept = await sweep(self.store, now=clock.now())
        ok([task.id for task in swept] == [report], "a sweep takes back this task and no other")
        ok(swept[0].phase is Phase.QUEUED and swept[0].failures == 1, "it is queued again: nothing of it is lost")

    async def go_on(self, report: TaskId) -> WorkerProcess:
        heading(
            "Another worker goes on from the last checkpoint",
            "It reads the journal, and runs only what is missing. A question does not keep it waiting.",
        )
        worker = await self.start_worker("worker-2")
        await worker.shows("asks")
        view = await self.store.view(report, HERS, now=clock.now())
        ok(view.task.fence == 2, "this is attempt 2, and its writes carry the fence 2")
        ok(
            await self.refuses(report, Note(1, Progress(3, 4))),
            "a write with fence 1 is refused, should worker-1 come back",
        )
        ok(view.task.phase is Phase.PARKED and view.task.attempt is None, "the task is parked: no worker is held")
        ok(view.task.status is Status.INPUT_REQUIRED, "a caller who polls now reads: input_required")
        ok([question.key for question in view.inputs] == ["publish"], "and finds the question")
        return worker

    async def cancel(self, worker: WorkerProcess, archive: TaskId, newsletter: TaskId) -> None:
        heading(
            "Meanwhile the worker takes other tasks, and one of them is cancelled while it runs",
            "Whoever ends a task first has ended it. A late writer learns that it lost, and nothing changes.",
        )
        await worker.shows("is sending")
        ok((await self.load(archive)).phase is Phase.COMPLETED, "tidy_archive is completed")
        now = clock.now()
        task = await apply(self.store, newsletter, HERS, Cancel("alice", "wrong list"), now=now)
        say("server", "Alice cancels send_newsletter: wrong list")
        worker.nudge()
        await worker.shows("tries to complete")
        ok(await self.load(newsletter) == task, "cancelled stays cancelled: the late result changed nothing")
        ok(task.phase is Phase.CANCELLED, "of two endings that race, exactly one wins")

    async def give_answer(self, worker: WorkerProcess, report: TaskId) -> None:
        heading(
            "The answer comes, and the report goes on where it stopped",
            "An answer is kept like a step: no later attempt asks again.",
        )
        with self.store.listen() as feed:
            now = clock.now()
            await answer(self.store, report, HERS, {"publish": encode({"ok": True})}, actor="alice", now=now)
            say("server", "Alice answers: yes")
            # A feed says that something changed, whoever did it, and the store what is true.
            while not (await self.load(report)).is_terminal:
                await anext(feed)
        await worker.shows("completes build_report")
        view = await self.store.view(report, HERS, now=clock.now())
        ok(view.task.phase is Phase.COMPLETED and view.task.fence == 3, "attempt 3 completed it")
        ok(view.outcome is not None and decode(view.outcome) == RESULT, f"its result is there to fetch: {RESULT}")
        begun = Counter((self.folder / "diary").read_text().split())
        ok(
            begun == {"load_rows": 1, "add_up": 1, "draw_charts": 2, "publish": 1},
            "finished steps ran once; only draw_charts, cut off in the middle, ran again",
        )

    async def show_history(self, report: TaskId) -> None:
        heading(
            "The whole story of the report, as the store has it",
            "What an operator reads when somebody asks what became of a task.",
        )
        entries = await self.store.history(report, HERS, now=clock.now())
        print(table(entries))
        events = " ".join(entry.event for entry in entries)
        expected = "create claim note note interrupt claim note note park answer claim note complete"
        ok(events == expected, "every change is there, in order, with who made it")

    async def refuses(self, task_id: TaskId, command: AttemptCommand) -> bool:
        try:
            await apply(self.store, task_id, HERS, command, now=clock.now())
        except LeaseLost:
            return True
        return False

    async def load(self, task_id: TaskId) -> Task:
        return await self.store.load(task_id, HERS, now=clock.now())


class NotAsSaid(Exception):
    """Something is not as this program says."""


def ok(fact: bool, claim: str) -> None:
    """Say what was checked."""
    if not fact:
        raise NotAsSaid(claim)
    say("ok", claim, GREEN)


def say(who: str, text: str, colour: str = CYAN) -> None:
    print(f"   {paint(f'{who:8}', colour)}  {text}")


def heading(what: str, why: str) -> None:
    print(f"\n{paint(what, BOLD)}\n{paint(why, DIM)}")


def paint(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if HAS_COLOURS else text


def table(entries: Sequence[HistoryEntry]) -> str:
    """The history for people, 100 columns wide."""
    lines = [f"    #  seconds  attempt  {'event':9}  {'phase':20}  {'by':8}  note"]
    for entry in entries:
        seconds = (entry.at - entries[0].at).total_seconds()
        phase = entry.after if entry.before in (None, entry.after) else f"{entry.before} > {entry.after}"
        first, *rest = textwrap.wrap(entry.note or "", 30) or [""]
        start = f"{entry.seq:5}  {seconds:7.2f}  {entry.attempt:7}  {entry.event:9}  {phase:20}  {entry.actor:8}  "
        lines += [start + first, *(" " * len(start) + more for more in rest)]
    return "\n".join(line.rstrip() for line in lines)


async def be_server() -> None:
    with tempfile.TemporaryDirectory(prefix="raincheck-") as name:
        folder = Path(name)
        print(paint("raincheck: a slip now, the result later, whatever happens to the worker in between", BOLD))
        print("The server and each worker are processes of their own; all that they share is one SQLite file.")
        async with open_store(str(folder / "tasks.db")) as store:
            server = Server(store, folder)
            try:
                async with asyncio.timeout(PATIENCE):
                    await server.tell_story()
            finally:
                for worker in server.workers:
                    await worker.kill()
    print(
        "\nShown: a durable task outlived a killed worker, kept its finished steps, waited for an answer\n"
        "without holding a worker, and completed; a cancelled one stayed cancelled. All of it took one file."
    )


def main() -> int:
    try:
        if sys.argv[1:2] == ["worker"]:
            asyncio.run(be_worker(*sys.argv[2:]))
        else:
            asyncio.run(be_server())
    except (NotAsSaid, RaincheckError, TimeoutError) as error:
        print(f"\nNOT as it should be: {error or 'it took too long'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
