"""`raincheck tasks show`: all that is known of a task, found by as little of its id as is enough."""

import asyncio
from datetime import timedelta

import pytest

from raincheck import open_store
from raincheck.clock import new_task_id
from raincheck.core.commands import Complete, Fail, Note, Park, Pause, Release
from raincheck.core.payload import SEAL, Payload, encode
from raincheck.core.records import Artifact, Progress, Task, TaskId
from raincheck.operations.select import NoSuchTask, find_task
from raincheck.operations.serialize import load_task_document
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import EVERYTHING
from tests.support.cli.operator import START, in_store, lines, one_of_each, run, told

pytestmark = pytest.mark.usefixtures("folder")


async def rich_task(scene: StoreHarness) -> Task:
    task = await scene.create_running()
    scene.clock.advance(5)
    note = Note(
        1,
        progress=Progress(3, 12),
        status_message="crunching",
        steps=(scene.step("load", result=["row"]), scene.step("load", 1, result=2)),
        input_requests=(scene.input_request("publish"),),
        artifacts=(Artifact("draft", encode("the draft"), scene.clock.now()),),
        variables=encode({"page": 7}),
    )
    return await scene.apply(task, note)


def test_everything_about_a_task_is_shown() -> None:
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
        "runs in worker-1, its lease ends in 20 s",
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
        "2026-01-01 00:00:05.000 note running worker-1 step load, step load, asked publish, kept draft",
        "",
        "-> its caller is asked for publish, and it goes on when that is answered",
        (
            "-> raincheck tasks watch --store tasks.db task-0001 shows how it goes on; "
            "raincheck tasks cancel --store tasks.db task-0001 stops it"
        ),
    ]


def test_json_has_the_same_and_what_to_do() -> None:
    in_store(rich_task)
    document = told("tasks", "show", "task-0001")
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


def test_what_is_long_is_clipped_unless_all_of_it_is_asked_for() -> None:
    trace = "Traceback:\n  in line 1\nValueError: boom " + "x" * 1_000 + " the end"

    async def work(scene: StoreHarness) -> None:
        task = await scene.create_running()
        await scene.apply(task, Fail(1, encode({"m": "y" * 1_000}), "boom", retryable=False, detail=encode(trace)))

    in_store(work)
    short, full = run("tasks", "show", "task-0001").stdout, run("tasks", "show", "task-0001", "--full").stdout
    assert "the end" not in short
    assert "…" in short
    assert sum(len(line) for line in short.splitlines()) < 6_000
    assert "".join(full.split()).count("y") >= 1_000
    assert "the end" in " ".join(full.split())
    assert "…" not in full


def test_of_a_long_history_the_first_and_the_latest_are_shown() -> None:
    async def work(scene: StoreHarness) -> None:
        task = await scene.create_running()
        for number in range(60):
            await scene.apply(task, Note(1, steps=(scene.step(f"step-{number}"),)))

    in_store(work)
    short = lines("tasks", "show", "task-0001")
    short = short[short.index("history") + 1 :]
    assert short[0].split()[2:] == ["create", "queued", "caller"]
    assert short[1] == "22 more: --full shows them"
    assert short[-3].endswith("step step-59")
    assert len(short) - 2 == 41
    full = lines("tasks", "show", "task-0001", "--full")
    assert len(full[full.index("history") + 1 :]) - 2 == 62


def test_what_is_sealed_is_said_to_be_and_never_printed() -> None:
    sealed = Payload(SEAL + b"\x00secret\xff")

    async def work(scene: StoreHarness) -> None:
        task = await scene.create_running(arguments=sealed, caller=sealed)
        await scene.apply(task, Note(1, variables=Payload(b"{not json")))
        await scene.apply(task, Fail(1, sealed, "boom", retryable=False))

    in_store(work)
    printed = lines("tasks", "show", "task-0001", "--full")
    assert "arguments (sealed: not readable here)" in printed
    assert "variables (damaged: not readable here)" in printed
    assert "outcome (sealed: not readable here)" in printed
    done = run("tasks", "show", "task-0001", "--json")
    assert "secret" not in done.stdout + "".join(printed)
    document = told("tasks", "show", "task-0001")
    assert document["unreadable"] == {"arguments": "sealed", "variables": "damaged", "outcome": "sealed"}
    assert (document["arguments"], document["outcome"]) == (None, None)
    assert document["history"][-1]["unreadable"] == {"detail": "sealed"}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("completed", "its result is kept for 400 days"),
        (
            "error",
            "it reports an error: raincheck tasks retry --store tasks.db task-0002 runs the same again",
        ),
        ("failed", "raincheck tasks retry --store tasks.db task-0003 runs the same again, as a new task"),
        ("cancelled", "raincheck tasks retry --store tasks.db task-0004 runs the same again, as a new task"),
        ("parked", "it waits for a task that it has started"),
        ("running", "its lease ran out 90 s ago: any server of the store takes it back, so see that one runs"),
        ("paused", "raincheck tasks resume --store tasks.db task-0007 lets it go on"),
        ("queued", "it waits for a server of 'reports' that has build_report: raincheck doctor --store"),
    ],
)
def test_it_says_what_to_do_about_a_task_in_every_phase(name: str, advice: str) -> None:
    clock = FakeClock(START)
    tasks = in_store(one_of_each, clock)
    last = lines("tasks", "show", tasks[name].id, clock=clock)[-1]
    assert last.startswith(f"-> {advice}")


def test_what_waits_for_a_moment_or_is_past_its_deadline_is_said_to() -> None:
    clock = FakeClock(START)

    async def work(scene: StoreHarness) -> None:
        await scene.apply(await scene.create_running(), Park(1, seen_signals=0, until=START + timedelta(minutes=5)))
        late = await scene.create(deadline_at=START + timedelta(seconds=10))
        await scene.apply(late, Pause("alice"))

    in_store(work, clock)
    clock.advance(60)
    assert lines("tasks", "show", "task-0001", clock=clock)[-1] == "-> it goes on by itself in 4 min"
    assert lines("tasks", "show", "task-0002", clock=clock)[-1].startswith(
        "-> it is past its deadline: the next server"
    )


async def with_real_ids(scene: StoreHarness) -> list[Task]:
    tasks: list[Task] = []
    for _ in range(3):
        tasks.append(await scene.create(id=new_task_id(scene.clock.now())))
        scene.clock.advance(86_400)
    return tasks


@pytest.mark.parametrize("length", [11, 12, 13, 20, 44])
@pytest.mark.parametrize("ending", ["", "...", "…"])
def test_the_beginning_of_an_id_is_enough_if_only_one_begins_so(length: int, ending: str) -> None:
    for task in in_store(with_real_ids):
        assert told("tasks", "show", f" {task.id[:length]}{ending}")["id"] == task.id


def test_an_id_that_is_another_ids_beginning_means_itself() -> None:
    async def work(scene: StoreHarness) -> None:
        for name in ("task", "task-1", "task-12"):
            await scene.create(id=TaskId(name))

    in_store(work)
    assert told("tasks", "show", "task-1")["id"] == "task-1"


def test_a_beginning_that_several_ids_have_names_them() -> None:
    in_store(one_of_each)
    done = run("tasks", "show", "task-")
    assert (done.exit_code, done.stdout) == (1, "")
    named = "task-0008, task-0007, task-0006, task-0005, task-0004 and 3 more"
    assert done.stderr == f"raincheck: 8 ids begin with 'task-' ({named}): write more of it\n"


def test_tasks_that_were_created_in_the_same_moment_are_told_apart() -> None:
    async def work(scene: StoreHarness) -> list[Task]:
        return [await scene.create(id=new_task_id(scene.clock.now())) for _ in range(3)]

    tasks = in_store(work)
    assert "3 ids begin with" in run("tasks", "show", tasks[0].id[:12]).stderr
    for task in tasks:
        assert told("tasks", "show", task.id[:20])["id"] == task.id


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("task-0O03", "there is no task 'task-0O03': did you mean task-0003?"),
        ("tsak-0003", "there is no task 'tsak-0003': did you mean task-0003?"),
        ("zzz", "there is no task 'zzz': tasks ls shows those that there are in this store"),
        ("", "there is no task '': tasks ls shows those that there are in this store"),
        ("\x1b[31m", r"there is no task '\\x1b[31m': tasks ls shows those that there are in this store"),
        ("ffffffffffffffff", "there is no task 'ffffffffffffffff': tasks ls shows those that there are in this store"),
    ],
)
def test_an_unknown_id_ends_with_one_and_suggests_the_nearest(given: str, why: str) -> None:
    in_store(one_of_each)
    done = run("tasks", "show", given)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"raincheck: {why}\n")
    assert told("tasks", "show", given, ends_with=1) == {"error": why}


def test_in_an_empty_store_there_is_nothing_to_suggest() -> None:
    async def nothing(_: StoreHarness) -> None: ...

    in_store(nothing)
    assert run("tasks", "show", "abc").stderr == "raincheck: there is no task 'abc': this store has none at all\n"


def test_a_task_is_found_by_its_time_without_reading_all_others() -> None:
    pages: list[TaskQuery] = []

    async def main() -> None:
        clock = FakeClock(START)
        async with open_store("memory:") as store:
            scene = StoreHarness(store, clock)
            tasks = await with_real_ids(scene)
            for _ in range(PAGE_LIMIT + 1):
                await scene.create(id=new_task_id(clock.now()))
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
            scene = StoreHarness(store, FakeClock(START))
            task = await scene.create_running()
            real = store.journal

            async def journal(task_id: TaskId, scope: object, *, now: object) -> object:
                read = await real(task_id, scope, now=now)  # type: ignore[arg-type] # handed on
                if not read.task.is_terminal:
                    await scene.apply(read.task, Complete(1, encode("done")))
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
            scene = StoreHarness(store, FakeClock(START))
            task = await scene.create_running()
            real = store.view

            async def view(task_id: TaskId, scope: object, *, now: object) -> object:
                read = await real(task_id, scope, now=now)  # type: ignore[arg-type] # handed on
                await scene.apply(task, Note(1, steps=(scene.step("quick"),)))
                return read

            store.view = view  # type: ignore[method-assign, assignment] # to be quicker
            document = await load_task_document(store, task, now=START)
            history = document["history"]
            assert isinstance(history, list)
            assert len(history) == 2
            assert document["steps"] == []

    asyncio.run(main())


def test_a_history_of_many_pages_is_whole() -> None:
    async def work(scene: StoreHarness) -> int:
        task = await scene.create()
        for number in range(PAGE_LIMIT // 2 + 10):
            (task,) = await scene.claim()
            task = await scene.apply(task, Release(number + 1))
        return len(await scene.store.history(task.id, EVERYTHING, now=START, limit=PAGE_LIMIT))

    assert in_store(work) == PAGE_LIMIT
    entries = told("tasks", "show", "task-0001")["history"]
    assert [entry["seq"] for entry in entries] == list(range(1, PAGE_LIMIT + 22))
