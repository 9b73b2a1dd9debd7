"""A task that survives its worker: killed in the middle, taken back, gone on with, asked about, completed.

`scripts/demo` runs it. The server is this process; each worker is a process of its own (this script again, with
other arguments); all they share is one SQLite file. Every line that begins with "ok" was checked against the store.
"""

import asyncio
import os
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from raincheck import open_store
from raincheck.clock import SystemClock, new_task_id
from raincheck.core.commands import AttemptCommand, Cancel, Complete, Note, Park
from raincheck.core.create import NewTask, create
from raincheck.core.lifecycle import Phase, Status
from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import decode, encode
from raincheck.core.records import HistoryEntry, InputKind, InputRequest, Journal, Progress, Step, Task, Tool
from raincheck.errors import LeaseLost
from raincheck.stores.apply import answer, apply, sweep
from raincheck.stores.feed import Feed
from raincheck.stores.interface import ClaimRequest, HeldAttempt, Store

NAMESPACE = "reports"
ALICE = Owner.token("https://issuer.example", "alice")
REPORT, NEWSLETTER = Tool("build_report"), Tool("send_newsletter")
STEPS = ("load_rows", "add_up", "draw_charts", "publish")
LEASE = timedelta(seconds=1)
PATIENCE = 20.0
"""Seconds after which something that should have happened counts as not happening."""

clock = SystemClock()


# --- what a worker does -----------------------------------------------------------------------------------------


class Worker:
    """Claims tasks and runs them, one at a time, until it is killed."""

    def __init__(self, store: Store, holder: str, diary: Path, stuck_in: str) -> None:
        self.store = store
        self.holder = holder
        self.diary = diary
        self.stuck_in = stuck_in

    async def work(self) -> None:
        request = ClaimRequest(NAMESPACE, frozenset({REPORT, NEWSLETTER}), self.holder, LEASE, limit=1)
        with self.store.listen() as feed:
            while True:
                for task in await self.store.claim(request, now=clock.now()):
                    await self.run(task)
                    break
                else:
                    # Nothing to do: wait until somebody, in whatever process, changes a task.
                    await anext(feed)

    async def run(self, task: Task) -> None:
        tell(f"claims {task.tool.name}: attempt {task.fence}, so its writes carry fence {task.fence}")
        keeping = asyncio.create_task(self.keep_lease(task))
        await (self.build_report(task) if task.tool == REPORT else self.send_newsletter(task))
        keeping.cancel()

    async def keep_lease(self, task: Task) -> None:
        """Extend the lease for as long as this process lives and nobody took the task away."""
        held = [HeldAttempt(task.id, task.fence)]
        while not await self.store.extend_leases(held, until=clock.now() + LEASE):
            await asyncio.sleep(LEASE.total_seconds() / 3)

    async def build_report(self, task: Task) -> None:
        journal = await self.store.journal(task.id, Scope.within(NAMESPACE), now=clock.now())
        finished = {step.name: step.attempt for step in journal.steps}
        for number, name in enumerate(STEPS, start=1):
            if name in finished:
                tell(f"skips step {name}: attempt {finished[name]} finished it")
                continue
            if name == "publish" and not may_publish(journal):
                await self.ask(task)
                return
            tell(f"begins step {name}")
            with self.diary.open("a") as diary:
                diary.write(f"{name}\n")
            if name == self.stuck_in:
                await asyncio.Event().wait()  # a long computation, for the demonstration
            step = Step(name, 0, "year=2026", encode(f"{name} done"), task.fence, clock.now())
            await self.do(task, Note(task.fence, Progress(number, len(STEPS)), steps=(step,)))
            tell(f"finished step {name} ({number} of {len(STEPS)}): kept as a checkpoint")
        await self.do(task, Complete(task.fence, encode({"pages": 12, "published": True})))
        tell("completes the task")

    async def ask(self, task: Task) -> None:
        words = encode({"message": "Publish it?"})
        question = InputRequest("publish", InputKind.ELICITATION, words, clock.now(), task.fence)
        await self.do(task, Note(task.fence, status_message="waits for a go-ahead", asked=(question,)))
        await self.do(task, Park(task.fence, seen=task.signals))
        tell("asked 'Publish it?', parked the task, and is free for others")

    async def send_newsletter(self, task: Task) -> None:
        await self.do(task, Note(task.fence, Progress(1, 500), "sending"))
        tell("is sending, and does not look up")
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await self.do(task, Complete(task.fence, encode({"sent": 500})))
        except LeaseLost as refusal:
            tell(f"wants to complete it, and is refused: {type(refusal).__name__}")
        else:
            tell("completes the task")

    async def do(self, task: Task, command: AttemptCommand) -> None:
        await apply(self.store, task.id, Scope.within(NAMESPACE), command, now=clock.now())


def may_publish(journal: Journal) -> bool:
    return any(question.key == "publish" and question.answer is not None for question in journal.inputs)


def tell(text: str) -> None:
    """A line for the server, which shows it."""
    print(text, flush=True)


async def be_worker(path: str, holder: str, diary: str, stuck_in: str) -> None:
    async with open_store(path) as store:
        await Worker(store, holder, Path(diary), stuck_in).work()
