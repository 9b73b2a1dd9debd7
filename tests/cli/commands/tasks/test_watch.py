"""Tests for `raincheck tasks watch`: it prints each change until the end, and restores the terminal."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from rich.console import Console

from raincheck import open_store
from raincheck.cli.commands.tasks.watch import LiveTaskTable
from raincheck.core.commands import Cancel, Complete, Note
from raincheck.core.policies import Retention
from raincheck.core.records import Progress, TaskId
from raincheck.core.values import encode
from raincheck.operations.watch import TaskSnapshot, TaskWatcher
from raincheck.stores.commit import apply
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import EVERYTHING
from tests.support.cli.operator import START, STORE, create_task_in_each_phase, in_store, lines, run, run_json

pytestmark = pytest.mark.usefixtures("folder")

MAIN = "from raincheck.cli import main; main()"
KEEP = Retention(keep=timedelta(days=3_000))


async def watched(harness: StoreHarness, ids: list[TaskId] | None) -> AsyncIterator[TaskSnapshot]:
    async with asyncio.timeout(20):
        async for observed in TaskWatcher(harness.store, ids, now=harness.clock.now()).changes():
            yield observed


@pytest.mark.parametrize("store", ["memory:", STORE])
def test_watch_prints_each_change_until_the_end(store: str) -> None:
    async def work(harness: StoreHarness) -> list[tuple[str, str | None]]:
        task, other = await harness.create_running(), await harness.create_running()
        reported: list[tuple[str, str | None]] = []
        async for observed in watched(harness, [task.id]):
            assert observed.task is not None
            assert observed.task_id == observed.task.id == task.id
            reported.append((observed.task.status, observed.task.status_message))
            if len(reported) == 1:
                await harness.apply(other, Note(1, status_message="not asked for"))
                await harness.apply(task, Note(1, status_message="half"))
            elif len(reported) == 2:
                await harness.apply(task, Complete(1, encode("done")))
        return reported

    assert in_store(work, store=store) == [("working", None), ("working", "half"), ("completed", None)]


def test_watch_reports_a_deleted_task() -> None:
    async def work(harness: StoreHarness) -> list[bool]:
        task = await harness.create_running(retention=Retention(keep=timedelta(0)))
        reported: list[bool] = []
        async for observed in watched(harness, [task.id]):
            reported.append(observed.task is None)
            if len(reported) == 1:
                store = harness.store
                ended = await harness.apply(task, Cancel("alice"))
                await store.prune(now=ended.updated_at, limit=1)
        return reported

    assert in_store(work, store="memory:") == [False, True]


def test_watch_reports_the_end_of_a_task_that_is_deleted_at_once() -> None:
    async def work(harness: StoreHarness) -> list[str | None]:
        task = await harness.create_running(retention=Retention(keep=timedelta(0)))
        reported: list[str | None] = []
        async for observed in watched(harness, [task.id]):
            reported.append(None if observed.task is None else str(observed.task.status))
            if len(reported) == 1:
                harness.clock.advance(5)
                await harness.apply(task, Complete(1, encode(1)))
                harness.clock.advance(5)
        return reported

    assert in_store(work, store="memory:") == ["working", "completed"]


@pytest.mark.parametrize("store", ["memory:", STORE])
def test_without_ids_all_live_and_new_tasks_are_watched(store: str) -> None:
    async def work(harness: StoreHarness) -> list[tuple[str, str]]:
        await harness.apply(await harness.create(), Cancel("alice"))
        first = await harness.create_running()
        reported: list[tuple[str, str]] = []
        async for observed in watched(harness, None):
            assert observed.task is not None
            reported.append((observed.task_id, str(observed.task.status)))
            if len(reported) == 1:
                await harness.create_running()
            elif len(reported) == 2:
                await harness.apply(first, Complete(1, encode(1)))
            elif len(reported) == 3:
                await apply(harness.store, TaskId("task-0003"), EVERYTHING, Cancel("alice"), now=START)
        return reported

    assert in_store(work, store=store) == [
        ("task-0002", "working"),
        ("task-0003", "working"),
        ("task-0002", "completed"),
        ("task-0003", "cancelled"),
    ]


def test_a_task_that_starts_and_ends_between_two_polls_is_reported_once() -> None:
    async def work(harness: StoreHarness) -> list[tuple[str, str]]:
        first = await harness.create_running()
        reported: list[tuple[str, str]] = []
        async for observed in watched(harness, None):
            assert observed.task is not None
            reported.append((observed.task_id, str(observed.task.status)))
            if len(reported) == 1:
                await harness.apply(await harness.create(), Cancel("alice"))
            elif len(reported) == 2:
                # Heard of again, with another that ends.
                await harness.store.prune(now=START, limit=1, only=[TaskId("task-0002")])
                await harness.apply(first, Complete(1, encode(1)))
        return reported

    reported = in_store(work, store="memory:")
    assert reported == [("task-0001", "working"), ("task-0002", "cancelled"), ("task-0001", "completed")]


def test_an_ended_task_is_printed_once_and_decides_the_exit_code() -> None:
    in_store(create_task_in_each_phase)
    at = "2026-01-01T00:00:00.000000Z"
    assert lines("tasks", "watch", "task-0001") == [f"{at} task-0001 build_report completed"]
    for name in ("task-0002", "task-0003", "task-0004"):
        assert len(lines("tasks", "watch", name, exit_code=1)) == 1
    assert run_json("tasks", "watch", "task-0001")["status"] == "completed"
    assert lines("tasks", "watch", "task-0001", "task-0003", exit_code=1)


def test_without_live_tasks_watch_ends_at_once() -> None:
    async def work(harness: StoreHarness) -> None:
        await harness.apply(await harness.create(retention=KEEP), Cancel("alice"))

    in_store(work)
    assert lines("tasks", "watch") == []


def test_an_unknown_id_exits_with_one_before_watching() -> None:
    in_store(create_task_in_each_phase)
    done = run("tasks", "watch", "task-0001", "nope")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "there is no task 'nope'" in done.stderr


def test_the_live_table_shows_live_tasks_first_and_fits_the_screen() -> None:
    tasks = in_store(create_task_in_each_phase)
    console = Console(width=100, height=7, color_system=None, force_terminal=True)
    board = LiveTaskTable(console, FakeClock(START))
    with console.capture() as empty:
        console.print(board.render())
    assert empty.get().strip() == "no tasks live"
    for task in tasks.values():
        board.update(TaskSnapshot(task.id, task))
    board.update(TaskSnapshot(tasks["queued"].id, None))
    with console.capture() as captured:
        console.print(board.render())
    shown = [line.split()[0] for line in captured.get().splitlines()]
    assert shown == ["id", "task-0007", "task-0006", "task-0005", "and", "task-0008"]
    assert "and 4 more" in captured.get()


class Watching:
    """The command in a separate process, while the test changes the store."""

    def __init__(self, *words: str, stdout: int = subprocess.PIPE) -> None:
        command = [sys.executable, "-c", MAIN, "tasks", "watch", "--store", STORE, *words]
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "20"}
        self.program = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=env)

    def line(self) -> str:
        assert self.program.stdout is not None
        return self.program.stdout.readline().decode()

    def end(self) -> tuple[int, str]:
        _, stderr = self.program.communicate()
        return self.program.returncode, stderr.decode()


def do(task_id: str, number: int) -> None:
    """Take the task one change further, in this process."""

    async def main() -> None:
        async with open_store(STORE) as store:
            harness = StoreHarness(store, FakeClock(START))
            task = await store.load(TaskId(task_id), EVERYTHING, now=START)
            command = Note(1, progress=Progress(number)) if number < 3 else Complete(1, encode(1))
            await harness.apply(task, command)

    asyncio.run(main())


async def begun(harness: StoreHarness) -> str:
    return (await harness.create_running(retention=KEEP)).id


def test_watch_in_a_process_prints_changes_of_another_process() -> None:
    task_id = in_store(begun)
    watching = Watching(task_id)
    assert watching.line().split()[1:] == [task_id, "build_report", "working", "(running)"]
    for number in (1, 2):
        do(task_id, number)
        assert watching.line().split()[-1] == str(number)
    do(task_id, 3)
    assert watching.line().split()[-1] == "completed"
    assert watching.end() == (0, "")


def test_watch_json_prints_changes_of_another_process() -> None:
    task_id = in_store(begun)
    watching = Watching(task_id, "--json")
    assert json.loads(watching.line())["progress"] is None
    do(task_id, 1)
    assert json.loads(watching.line())["progress"] == {"done": 1.0, "total": None}
    do(task_id, 3)
    assert json.loads(watching.line())["status"] == "completed"
    assert watching.end() == (0, "")


def read_until(terminal: int, *words: str) -> str:
    shown = ""
    while not all(word in shown for word in words):
        shown += os.read(terminal, 65_536).decode()
    return shown


def test_on_a_terminal_watch_is_live_and_ctrl_c_restores_the_cursor() -> None:
    task_id = in_store(begun)
    ours, theirs = pty.openpty()
    watching = Watching(stdout=theirs)
    os.close(theirs)
    shown = read_until(ours, task_id, "\x1b[?25l")
    do(task_id, 2)
    # Drawn again over what was there, and not below it.
    shown += read_until(ours, "\x1b[1A", " 2 ")
    watching.program.send_signal(signal.SIGINT)
    shown += read_until(ours, "\x1b[?25h")
    code, stderr = watching.end()
    os.close(ours)
    assert code == 130
    assert "Traceback" not in stderr
    assert "\x1b[?1049" not in shown
