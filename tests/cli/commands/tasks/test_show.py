"""Tests for `raincheck tasks show`: a task's data, and finding it by a prefix of its id."""

import asyncio
from datetime import timedelta

import pytest

from raincheck import open_store
from raincheck.clock import new_task_id
from raincheck.core.commands import Complete, Fail, Note, Park, Pause, Release
from raincheck.core.records import Artifact, Progress, Task, TaskId
from raincheck.core.values import SEAL, Payload, encode
from raincheck.operations.select import NoSuchTask, find_task
from raincheck.operations.serialize import load_task_document
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import EVERYTHING
from tests.support.cli.operator import START, create_task_in_each_phase, in_store, lines, run, run_json

pytestmark = pytest.mark.usefixtures("folder")


async def rich_task(harness: StoreHarness) -> Task:
    task = await harness.create_running()
    harness.clock.advance(5)
    note = Note(
        1,
        progress=Progress(3, 12),
        status_message="crunching",
        steps=(harness.step("load", result=["row"]), harness.step("load", 1, result=2)),
        input_requests=(harness.input_request("publish"),),
        artifacts=(Artifact("draft", encode("the draft"), harness.clock.now()),),
        variables=encode({"page": 7}),
    )
    return await harness.apply(task, note)


def test_show_prints_everything_about_a_task() -> None:
    clock = FakeClock(START)
    in_store(rich_task, clock)
    clock.advance(5)
    assert lines("tasks", "show", "task-0001", clock=clock) == [
        "id task-0001",
        "tool build_report",
        "status input_required (running): 3 of 12, crunching",
        "namespace reports",
        "owner token https://issuer.example alice",
        "attempt 1",
        "runs in worker-1, its lease expires in 20 s",
        "created 2026-01-01 00:00:00 UTC, 10 s ago",
        "updated 2026-01-01 00:00:05 UTC, 5 s ago",
        'arguments {"year": 2026}',
        'variables {"page": 7}',
        "",
        "questions",
        'publish elicitation open {"message": "Publish it?"}',
        "",
        "steps",
        'load 2026-01-01 00:00:05.000 ["row"]',
        "load (1) 2026-01-01 00:00:05.000 2",
        "",
        "artifacts",
        "draft",
        "",
        "history",
        "2026-01-01 00:00:00.000 create queued caller",
        "2026-01-01 00:00:00.000 claim queued -> running worker-1",
        "2026-01-01 00:00:05.000 note running worker-1 step load, step load, asked publish, stored draft",
        "",
        "-> it waits for its caller to answer publish, and resumes then",
        (
            "-> raincheck tasks watch --store tasks.db task-0001 shows its progress; "
            "raincheck tasks cancel --store tasks.db task-0001 cancels it"
        ),
    ]


def test_json_has_the_same_data_and_advice() -> None:
    in_store(rich_task)
    document = run_json("tasks", "show", "task-0001")
    assert document["arguments"] == {"year": 2026}
    assert document["variables"] == {"page": 7}
    assert (document["outcome"], document["unreadable"]) == (None, {})
    assert document["artifacts"] == ["draft"]
    assert [step["result"] for step in document["steps"]] == [["row"], 2]
    (question,) = document["inputs"]
    assert (question["key"], question["answered_at"], question["answer"]) == ("publish", None, None)
    assert question["request"] == {"message": "Publish it?"}
    assert [(one["seq"], one["event"], one["actor"]) for one in document["history"]] == [
        (1, "create", "caller"),
        (2, "claim", "worker-1"),
        (3, "note", "worker-1"),
    ]
    assert len(document["advice"]) == 2


def test_long_payloads_are_clipped_without_full() -> None:
    trace = "Traceback:\n  in line 1\nValueError: boom " + "x" * 1_000 + " the end"

    async def work(harness: StoreHarness) -> None:
        task = await harness.create_running()
        await harness.apply(task, Fail(1, encode({"m": "y" * 1_000}), "boom", retryable=False, detail=encode(trace)))

    in_store(work)
    short, full = run("tasks", "show", "task-0001").stdout, run("tasks", "show", "task-0001", "--full").stdout
    assert "the end" not in short
    assert "…" in short
    assert sum(len(line) for line in short.splitlines()) < 6_000
    assert "".join(full.split()).count("y") >= 1_000
    assert "the end" in " ".join(full.split())
    assert "…" not in full


def test_a_long_history_shows_the_first_and_latest_entries() -> None:
    async def work(harness: StoreHarness) -> None:
        task = await harness.create_running()
        for number in range(60):
            await harness.apply(task, Note(1, steps=(harness.step(f"step-{number}"),)))

    in_store(work)
    short = lines("tasks", "show", "task-0001")
    short = short[short.index("history") + 1 :]
    assert short[0].split()[2:] == ["create", "queued", "caller"]
    assert short[1] == "22 more: --full shows them"
    assert short[-3].endswith("step step-59")
    assert len(short) - 2 == 41
    full = lines("tasks", "show", "task-0001", "--full")
    assert len(full[full.index("history") + 1 :]) - 2 == 62


def test_encrypted_payloads_are_marked_and_never_printed() -> None:
    sealed = Payload(SEAL + b"\x00secret\xff")

    async def work(harness: StoreHarness) -> None:
        task = await harness.create_running(arguments=sealed, caller=sealed)
        await harness.apply(task, Note(1, variables=Payload(b"{not json")))
        await harness.apply(task, Fail(1, sealed, "boom", retryable=False))

    in_store(work)
    printed = lines("tasks", "show", "task-0001", "--full")
    assert "arguments (sealed: not readable here)" in printed
    assert "variables (damaged: not readable here)" in printed
    assert "outcome (sealed: not readable here)" in printed
    done = run("tasks", "show", "task-0001", "--json")
    assert "secret" not in done.stdout + "".join(printed)
    document = run_json("tasks", "show", "task-0001")
    assert document["unreadable"] == {"arguments": "sealed", "variables": "damaged", "outcome": "sealed"}
    assert (document["arguments"], document["outcome"]) == (None, None)
    assert document["history"][-1]["unreadable"] == {"detail": "sealed"}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("completed", "its result is stored for another 400 days"),
        (
            "error",
            "it reports an error: raincheck tasks retry --store tasks.db task-0002 runs it again",
        ),
        ("failed", "raincheck tasks retry --store tasks.db task-0003 runs it again, as a new task"),
        ("cancelled", "raincheck tasks retry --store tasks.db task-0004 runs it again, as a new task"),
        ("parked", "it waits for a task that it has started"),
        ("running", "its lease expired 90 s ago: a running server requeues it, so check that one runs"),
        ("paused", "raincheck tasks resume --store tasks.db task-0007 resumes it"),
        ("queued", "it waits for a server of 'reports' that has build_report: raincheck doctor --store"),
    ],
)
def test_there_is_advice_for_every_phase(name: str, advice: str) -> None:
    clock = FakeClock(START)
    tasks = in_store(create_task_in_each_phase, clock)
    last = lines("tasks", "show", tasks[name].id, clock=clock)[-1]
    assert last.startswith(f"-> {advice}")


def test_waiting_and_overdue_tasks_have_advice() -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        await harness.apply(await harness.create_running(), Park(1, seen_signals=0, until=START + timedelta(minutes=5)))
        late = await harness.create(deadline_at=START + timedelta(seconds=10))
        await harness.apply(late, Pause("alice"))

    in_store(work, clock)
    clock.advance(60)
    assert lines("tasks", "show", "task-0001", clock=clock)[-1] == "-> it resumes in 4 min"
    assert lines("tasks", "show", "task-0002", clock=clock)[-1].startswith(
        "-> it is past its deadline: a running server ends it soon"
    )


async def with_real_ids(harness: StoreHarness) -> list[Task]:
    tasks: list[Task] = []
    for _ in range(3):
        tasks.append(await harness.create(id=new_task_id(harness.clock.now())))
        harness.clock.advance(86_400)
    return tasks


@pytest.mark.parametrize("length", [11, 12, 13, 20, 44])
@pytest.mark.parametrize("ending", ["", "...", "…"])
def test_a_unique_prefix_of_an_id_is_enough(length: int, ending: str) -> None:
    for task in in_store(with_real_ids):
        assert run_json("tasks", "show", f" {task.id[:length]}{ending}")["id"] == task.id


def test_an_id_that_is_a_prefix_of_another_id_matches_itself() -> None:
    async def work(harness: StoreHarness) -> None:
        for name in ("task", "task-1", "task-12"):
            await harness.create(id=TaskId(name))

    in_store(work)
    assert run_json("tasks", "show", "task-1")["id"] == "task-1"


def test_an_ambiguous_prefix_lists_the_matching_ids() -> None:
    in_store(create_task_in_each_phase)
    done = run("tasks", "show", "task-")
    assert (done.exit_code, done.stdout) == (1, "")
    named = "task-0008, task-0007, task-0006, task-0005, task-0004 and 3 more"
    assert done.stderr == f"raincheck: 8 ids start with 'task-' ({named}): write more of the id\n"


def test_tasks_created_at_the_same_moment_are_distinguished() -> None:
    async def work(harness: StoreHarness) -> list[Task]:
        return [await harness.create(id=new_task_id(harness.clock.now())) for _ in range(3)]

    tasks = in_store(work)
    assert "3 ids start with" in run("tasks", "show", tasks[0].id[:12]).stderr
    for task in tasks:
        assert run_json("tasks", "show", task.id[:20])["id"] == task.id


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("task-0O03", "there is no task 'task-0O03': did you mean task-0003?"),
        ("tsak-0003", "there is no task 'tsak-0003': did you mean task-0003?"),
        ("zzz", "there is no task 'zzz': run raincheck tasks ls to list the tasks of this store"),
        ("", "there is no task '': run raincheck tasks ls to list the tasks of this store"),
        ("\x1b[31m", r"there is no task '\\x1b[31m': run raincheck tasks ls to list the tasks of this store"),
        (
            "ffffffffffffffff",
            "there is no task 'ffffffffffffffff': run raincheck tasks ls to list the tasks of this store",
        ),
    ],
)
def test_an_unknown_id_exits_with_one_and_suggests_the_nearest(given: str, why: str) -> None:
    in_store(create_task_in_each_phase)
    done = run("tasks", "show", given)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"raincheck: {why}\n")
    assert run_json("tasks", "show", given, exit_code=1) == {"error": why}


def test_in_an_empty_store_there_is_nothing_to_suggest() -> None:
    async def nothing(_: StoreHarness) -> None: ...

    in_store(nothing)
    assert run("tasks", "show", "abc").stderr == "raincheck: there is no task 'abc': this store has no tasks\n"


def test_a_task_is_found_by_its_time_without_reading_all_others() -> None:
    pages: list[TaskQuery] = []

    async def main() -> None:
        clock = FakeClock(START)
        async with open_store("memory:") as store:
            harness = StoreHarness(store, clock)
            tasks = await with_real_ids(harness)
            for _ in range(PAGE_LIMIT + 1):
                await harness.create(id=new_task_id(clock.now()))
            real = store.list_tasks

            async def counted(query: TaskQuery, **more: object) -> object:
                pages.append(query)
                return await real(query, **more)  # type: ignore[arg-type] # handed on

            store.list_tasks = counted  # type: ignore[method-assign, assignment] # to count
            assert await find_task(store, tasks[0].id[:20], now=clock.now()) == tasks[0]
            assert len(pages) == 1
            with pytest.raises(NoSuchTask):
                await find_task(store, "0" * 20, now=clock.now())

    asyncio.run(main())


def test_a_task_that_changes_while_it_is_read_is_read_again() -> None:
    async def main() -> None:
        async with open_store("memory:") as store:
            harness = StoreHarness(store, FakeClock(START))
            task = await harness.create_running()
            real = store.journal

            async def journal(task_id: TaskId, scope: object, *, now: object) -> object:
                read = await real(task_id, scope, now=now)  # type: ignore[arg-type] # handed on
                if not read.task.is_terminal:
                    await harness.apply(read.task, Complete(1, encode("done")))
                return read

            store.journal = journal  # type: ignore[method-assign, assignment] # to be quicker
            document = await load_task_document(store, task, now=START)
            assert (document["status"], document["outcome"]) == ("completed", "done")
            history = document["history"]
            assert isinstance(history, list)
            assert len(history) == 3

    asyncio.run(main())


def test_a_history_ends_where_the_task_was_read() -> None:
    async def main() -> None:
        async with open_store("memory:") as store:
            harness = StoreHarness(store, FakeClock(START))
            task = await harness.create_running()
            real = store.view

            async def view(task_id: TaskId, scope: object, *, now: object) -> object:
                read = await real(task_id, scope, now=now)  # type: ignore[arg-type] # handed on
                await harness.apply(task, Note(1, steps=(harness.step("quick"),)))
                return read

            store.view = view  # type: ignore[method-assign, assignment] # to be quicker
            document = await load_task_document(store, task, now=START)
            history = document["history"]
            assert isinstance(history, list)
            assert len(history) == 2
            assert document["steps"] == []

    asyncio.run(main())


def test_a_history_of_many_pages_is_complete() -> None:
    async def work(harness: StoreHarness) -> int:
        task = await harness.create()
        for number in range(PAGE_LIMIT // 2 + 10):
            (task,) = await harness.claim()
            task = await harness.apply(task, Release(number + 1))
        return len(await harness.store.history(task.id, EVERYTHING, now=START, limit=PAGE_LIMIT))

    assert in_store(work) == PAGE_LIMIT
    entries = run_json("tasks", "show", "task-0001")["history"]
    assert [entry["seq"] for entry in entries] == list(range(1, PAGE_LIMIT + 22))
