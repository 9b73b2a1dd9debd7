"""`raincheck tasks watch`: each change is seen, until the end, and the terminal is left as it was."""

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
from raincheck.core.payload import encode
from raincheck.core.policies import Retention
from raincheck.core.records import Progress, TaskId
from raincheck.operations.watch import TaskSnapshot, TaskWatcher
from raincheck.stores.commit import apply
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import EVERYTHING
from tests.support.cli.operator import START, STORE, in_store, lines, one_of_each, run, told

pytestmark = pytest.mark.usefixtures("folder")

MAIN = "from raincheck.cli import main; main()"
KEEP = Retention(keep=timedelta(days=3_000))


async def watched(scene: StoreHarness, ids: list[TaskId] | None) -> AsyncIterator[TaskSnapshot]:
    async with asyncio.timeout(20):
        async for seen in TaskWatcher(scene.store, ids, now=scene.clock.now()).changes():
            yield seen


@pytest.mark.parametrize("store", ["memory:", STORE])
def test_each_change_of_a_task_is_seen_until_it_has_ended(store: str) -> None:
    async def work(scene: StoreHarness) -> list[tuple[str, str | None]]:
        task, other = await scene.create_running(), await scene.create_running()
        told: list[tuple[str, str | None]] = []
        async for seen in watched(scene, [task.id]):
            assert seen.task is not None
            assert seen.task_id == seen.task.id == task.id
            told.append((seen.task.status, seen.task.status_message))
            if len(told) == 1:
                await scene.apply(other, Note(1, status_message="not asked for"))
                await scene.apply(task, Note(1, status_message="half"))
            elif len(told) == 2:
                await scene.apply(task, Complete(1, encode("done")))
        return told

    assert in_store(work, store=store) == [("working", None), ("working", "half"), ("completed", None)]


def test_a_task_that_is_deleted_is_seen_to_be_gone() -> None:
    async def work(scene: StoreHarness) -> list[bool]:
        task = await scene.create_running(retention=Retention(keep=timedelta(0)))
        told: list[bool] = []
        async for seen in watched(scene, [task.id]):
            told.append(seen.task is None)
            if len(told) == 1:
                store = scene.store
                ended = await scene.apply(task, Cancel("alice"))
                await store.prune(now=ended.updated_at, limit=1)
        return told

    assert in_store(work, store="memory:") == [False, True]


def test_the_end_of_a_task_that_is_not_kept_is_seen() -> None:
    async def work(scene: StoreHarness) -> list[str | None]:
        task = await scene.create_running(retention=Retention(keep=timedelta(0)))
        told: list[str | None] = []
        async for seen in watched(scene, [task.id]):
            told.append(None if seen.task is None else str(seen.task.status))
            if len(told) == 1:
                scene.clock.advance(5)
                await scene.apply(task, Complete(1, encode(1)))
                scene.clock.advance(5)
        return told

    assert in_store(work, store="memory:") == ["working", "completed"]


@pytest.mark.parametrize("store", ["memory:", STORE])
def test_without_ids_all_that_lives_is_watched_and_what_begins_meanwhile(store: str) -> None:
    async def work(scene: StoreHarness) -> list[tuple[str, str]]:
        await scene.apply(await scene.create(), Cancel("alice"))
        first = await scene.create_running()
        told: list[tuple[str, str]] = []
        async for seen in watched(scene, None):
            assert seen.task is not None
            told.append((seen.task_id, str(seen.task.status)))
            if len(told) == 1:
                await scene.create_running()
            elif len(told) == 2:
                await scene.apply(first, Complete(1, encode(1)))
            elif len(told) == 3:
                await apply(scene.store, TaskId("task-0003"), EVERYTHING, Cancel("alice"), now=START)
        return told

    assert in_store(work, store=store) == [
        ("task-0002", "working"),
        ("task-0003", "working"),
        ("task-0002", "completed"),
        ("task-0003", "cancelled"),
    ]


def test_what_begins_and_ends_between_two_looks_is_seen_once() -> None:
    async def work(scene: StoreHarness) -> list[tuple[str, str]]:
        first = await scene.create_running()
        told: list[tuple[str, str]] = []
        async for seen in watched(scene, None):
            assert seen.task is not None
            told.append((seen.task_id, str(seen.task.status)))
            if len(told) == 1:
                await scene.apply(await scene.create(), Cancel("alice"))
            elif len(told) == 2:
                # Heard of again, with another that ends.
                await scene.store.prune(now=START, limit=1, only=[TaskId("task-0002")])
                await scene.apply(first, Complete(1, encode(1)))
        return told

    told = in_store(work, store="memory:")
    assert told == [("task-0001", "working"), ("task-0002", "cancelled"), ("task-0001", "completed")]


def test_what_has_ended_already_is_told_once_and_decides_what_it_ends_with() -> None:
    in_store(one_of_each)
    at = "2026-01-01T00:00:00.000000Z"
    assert lines("tasks", "watch", "task-0001") == [f"{at} task-0001 build_report completed"]
    for name in ("task-0002", "task-0003", "task-0004"):
        assert len(lines("tasks", "watch", name, ends_with=1)) == 1
    assert told("tasks", "watch", "task-0001")["status"] == "completed"
    assert lines("tasks", "watch", "task-0001", "task-0003", ends_with=1)


def test_where_nothing_lives_there_is_nothing_to_watch() -> None:
    async def work(scene: StoreHarness) -> None:
        await scene.apply(await scene.create(retention=KEEP), Cancel("alice"))

    in_store(work)
    assert lines("tasks", "watch") == []


def test_an_unknown_id_ends_with_one_before_anything_is_watched() -> None:
    in_store(one_of_each)
    done = run("tasks", "watch", "task-0001", "nope")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "there is no task 'nope'" in done.stderr


def test_a_board_shows_the_living_first_and_no_more_than_there_is_room_for() -> None:
    tasks = in_store(one_of_each)
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
    """The command as a program of its own, beside somebody who changes the store."""

    def __init__(self, *words: str, stdout: int = subprocess.PIPE) -> None:
        command = [sys.executable, "-c", MAIN, "tasks", "watch", "--store", STORE, *words]
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "20"}
        self.program = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=env)

    def line(self) -> str:
        assert self.program.stdout is not None
        return self.program.stdout.readline().decode()

    def end(self) -> tuple[int, str]:
        _, stderr = self.program.communicate(timeout=30)
        return self.program.returncode, stderr.decode()


def do(task_id: str, number: int) -> None:
    """Take the task one change further, in this process."""

    async def main() -> None:
        async with open_store(STORE) as store:
            scene = StoreHarness(store, FakeClock(START))
            task = await store.load(TaskId(task_id), EVERYTHING, now=START)
            command = Note(1, progress=Progress(number)) if number < 3 else Complete(1, encode(1))
            await scene.apply(task, command)

    asyncio.run(main())


async def begun(scene: StoreHarness) -> str:
    return (await scene.create_running(retention=KEEP)).id


def test_a_program_beside_sees_each_change_as_a_line_and_ends_with_the_task() -> None:
    task_id = in_store(begun)
    watching = Watching(task_id)
    assert watching.line().split()[1:] == [task_id, "build_report", "working", "(running)"]
    for number in (1, 2):
        do(task_id, number)
        assert watching.line().split()[-1] == str(number)
    do(task_id, 3)
    assert watching.line().split()[-1] == "completed"
    assert watching.end() == (0, "")


def test_a_program_beside_sees_each_change_as_a_line_of_json() -> None:
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


def test_on_a_terminal_it_is_live_and_interrupting_it_gives_the_cursor_back() -> None:
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
