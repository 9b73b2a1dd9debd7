"""`raincheck tasks cancel`, `pause`, `resume` and `retry`: what becomes of each task, and what it ends with."""

from datetime import timedelta
from typing import Any

import pytest

from raincheck.cli.commands.tasks import control
from raincheck.cli.commands.tasks.control import find_retry
from raincheck.core.commands import Cancel, Complete, Fail, Note
from raincheck.core.create import create
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import NO_QUOTA, Limits
from raincheck.core.owner import Owner
from raincheck.core.payload import SEAL, Payload, encode
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import Task, TaskId, Tool
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import ALICE, BOB, EVERYTHING
from tests.support.cli.operator import LONG, START, ids_kept, in_store, lines, load, one_of_each, run, told

pytestmark = pytest.mark.usefixtures("folder")

LIVE = ("parked", "running", "paused", "queued")
ENDED = ("completed", "error", "failed", "cancelled")


def test_what_lives_is_cancelled_and_the_reason_is_kept() -> None:
    tasks = in_store(one_of_each)
    ids = [tasks[name].id for name in LIVE]
    printed = lines("tasks", "cancel", *ids, "--reason", "a bad day")
    assert printed == [f"{task_id} (build_report) is cancelled" for task_id in ids]
    for task_id in ids:
        assert load(task_id).phase is Phase.CANCELLED
        entry = told("tasks", "show", task_id)["history"][-1]
        assert (entry["actor"], entry["note"]) == ("operator", "a bad day")


@pytest.mark.parametrize("command", ["cancel", "pause", "resume"])
@pytest.mark.parametrize("name", ENDED)
def test_what_has_ended_stays_as_it_is(command: str, name: str) -> None:
    task = in_store(one_of_each)[name]
    done = run("tasks", command, task.id)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"{task.id} (build_report) is {task.phase}: nothing changed\n"
    assert load(task) == task


def test_each_task_is_tried_whatever_becomes_of_the_others() -> None:
    tasks = in_store(one_of_each)
    done = run("tasks", "cancel", "nope", tasks["failed"].id, tasks["queued"].id, "task-000", tasks["paused"].id)
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "task-0008 (build_report) is cancelled",
        "task-0007 (build_report) is cancelled",
    ]
    missing, ended, unclear = done.stderr.splitlines()
    assert missing == "there is no task 'nope': tasks ls shows those that there are in this store"
    assert ended == "task-0003 (build_report) is failed: nothing changed"
    assert unclear.startswith("8 ids begin with 'task-000'")


def test_json_tells_of_each() -> None:
    tasks = in_store(one_of_each)
    said = told("tasks", "cancel", tasks["queued"].id, "nope", tasks["failed"].id, ends_with=1)
    assert [(one["given"], one["done"]) for one in said] == [("task-0008", True), ("nope", False), ("task-0003", False)]
    assert [None if one["task"] is None else one["task"]["status"] for one in said] == ["cancelled", None, None]
    assert said[0]["said"] == "task-0008 (build_report) is cancelled"


def test_children_are_cancelled_with_their_parent() -> None:
    async def work(scene: StoreHarness) -> Task:
        parent = await scene.create_running()
        await scene.apply(parent, Note(1, spawned=(scene.creation(parent_id=parent.id),)))
        return parent

    parent = in_store(work)
    run("tasks", "cancel", parent.id)
    assert load("task-0002").phase is Phase.CANCELLED


def test_pausing_says_whether_the_task_stops_now_or_at_its_next_checkpoint() -> None:
    tasks = in_store(one_of_each)
    ids = [tasks[name].id for name in ("queued", "running", "parked", "paused")]
    assert lines("tasks", "pause", *ids, "--reason", "maintenance") == [
        "task-0008 (build_report) is paused",
        "task-0006 (build_report) is paused at its next checkpoint",
        "task-0005 (build_report) is paused",
        "task-0007 (build_report) is paused already",
    ]
    assert lines("tasks", "pause", tasks["running"].id) == ["task-0006 (build_report) is to be paused already"]
    assert load(tasks["running"]).pausing
    assert told("tasks", "show", tasks["queued"].id)["history"][-1]["note"] == "maintenance"


def test_what_is_paused_goes_on_and_what_is_not_is_refused() -> None:
    tasks = in_store(one_of_each)
    run("tasks", "pause", tasks["running"].id)
    assert lines("tasks", "resume", tasks["paused"].id, tasks["running"].id) == [
        "task-0007 (build_report) goes on",
        "task-0006 (build_report) goes on",
    ]
    assert load(tasks["paused"]).phase is Phase.PARKED
    assert not load(tasks["running"]).pausing
    for name in ("queued", "running", "parked"):
        done = run("tasks", "resume", tasks[name].id)
        assert done.exit_code == 1
        assert done.stderr == f"{tasks[name].id} (build_report) is {name}, and not paused\n"


@pytest.mark.parametrize("name", ["failed", "cancelled", "error"])
def test_what_went_wrong_is_run_again_as_a_new_task(name: str) -> None:
    old = in_store(one_of_each)[name]
    before = ids_kept()
    (said,) = told("tasks", "retry", old.id, "--reason", "the disk was full")
    assert said["done"]
    (new_id,) = ids_kept() - before
    assert said["task"]["id"] == new_id
    assert said["said"] == f"{old.id} (build_report) is run again as {new_id}"
    new = load(new_id)
    assert (new.tool, new.owner, new.namespace, new.phase) == (old.tool, old.owner, old.namespace, Phase.QUEUED)
    assert load(old) == old
    document = told("tasks", "show", new_id)
    assert document["arguments"] == {"year": 2026}
    (entry,) = document["history"]
    assert (entry["actor"], entry["note"]) == ("operator", f"again what {old.id} was: the disk was full")


def test_a_new_task_has_all_that_the_old_one_was_asked_for_with() -> None:
    policy = RetryPolicy(attempts=7)

    async def work(scene: StoreHarness) -> Task:
        task = await scene.create(
            tool=Tool("deploy", "3"),
            owner=Owner.local(),
            priority=5,
            deadline_at=START + timedelta(hours=2),
            idempotency_key="key",
            request_digest="digest",
            retry=policy,
            retention=LONG,
            caller=encode({"who": "me"}),
            parent_id=TaskId("parent"),
        )
        return await scene.apply(task, Cancel("alice"))

    clock = FakeClock(START)
    old = in_store(work, clock)
    clock.advance(86_400)
    (said,) = told("tasks", "retry", old.id, clock=clock)
    new = load(said["task"]["id"], clock)
    same = ("tool", "owner", "namespace", "priority", "retry", "retention")
    assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
    assert new.deadline_at == START + timedelta(days=1, hours=2)
    # The key is the old one's, and a parent that has gone on must not be woken up.
    assert (new.idempotency_key, new.parent_id) == (None, None)

    async def journal(scene: StoreHarness) -> Payload | None:
        return (await scene.store.journal(new.id, EVERYTHING, now=scene.clock.now())).caller

    assert in_store(journal, clock) == encode({"who": "me"})


def test_what_is_sealed_stays_so_when_it_is_run_again() -> None:
    sealed = Payload(SEAL + b"secret")

    async def work(scene: StoreHarness) -> Task:
        return await scene.apply(await scene.create(arguments=sealed), Cancel("alice"))

    old = in_store(work)
    (said,) = told("tasks", "retry", old.id)
    assert told("tasks", "show", said["task"]["id"])["unreadable"] == {"arguments": "sealed"}


def test_a_retry_is_not_bounded_by_what_was_allowed_when_the_task_was_created() -> None:
    async def work(scene: StoreHarness) -> Task:
        large = scene.new_task(arguments=encode("x" * 2_000_000), caller=encode("y" * 100_000))
        creation = create(large, START, Limits(arguments=3_000_000, caller=200_000))
        return await scene.apply(await scene.store.create(creation, quota=NO_QUOTA, now=START), Cancel("alice"))

    old = in_store(work)
    assert told("tasks", "retry", old.id)[0]["done"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("completed", "has completed: there is nothing to run again"),
        ("running", "is running, and has not ended: cancel it first, or let it go on"),
        ("paused", "is paused, and has not ended: cancel it first, or let it go on"),
    ],
)
def test_what_succeeded_or_lives_is_not_run_again(name: str, why: str) -> None:
    task = in_store(one_of_each)[name]
    before = ids_kept()
    done = run("tasks", "retry", task.id)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"{task.id} (build_report) {why}\n")
    assert ids_kept() == before


def test_what_was_run_again_is_not_run_again_twice() -> None:
    clock = FakeClock(START)
    tasks = in_store(one_of_each, clock)
    (first,) = told("tasks", "retry", tasks["failed"].id, "--reason", "boom: it was", clock=clock)
    new_id = first["task"]["id"]
    assert told("tasks", "retry", tasks["cancelled"].id, clock=clock)[0]["done"]
    before = ids_kept()
    done = run("tasks", "retry", tasks["failed"].id, clock=clock)
    why = f"was run again before, as {new_id[:20]}, which is queued: see to that"
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"{tasks['failed'].id} (build_report) {why}\n")
    assert ids_kept() == before
    run("tasks", "cancel", new_id, clock=clock)
    assert told("tasks", "retry", new_id, clock=clock)[0]["done"]


def test_of_what_came_after_it_no_more_than_the_newest_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raincheck.cli.commands.tasks.control.MAX_HISTORIES_READ", 3)
    read: list[str] = []

    async def work(scene: StoreHarness) -> Task | None:
        old = await scene.apply(await scene.create_running(), Fail(1, encode(1), "boom", retryable=False))
        for owner in [ALICE] * 4 + [BOB] * 4:
            scene.clock.advance(1)
            await scene.create(owner=owner)
        history = scene.store.history

        async def counted(task_id: TaskId, *given: Any, **more: Any) -> Any:
            read.append(task_id)
            return await history(task_id, *given, **more)

        monkeypatch.setattr(scene.store, "history", counted)
        return await find_retry(scene.store, old, scene.clock.now())

    assert in_store(work) is None
    assert len(read) == 3


def test_a_whole_id_of_an_anonymous_task_is_not_written_into_anothers_history() -> None:
    async def work(scene: StoreHarness) -> Task:
        task = await scene.create_running(id=TaskId("0" * 12 + "a" * 32), owner=Owner.anonymous())
        return await scene.apply(task, Fail(1, encode(1), "boom", retryable=False))

    old = in_store(work)
    (said,) = told("tasks", "retry", old.id[:14])
    assert old.id not in str(told("tasks", "show", said["task"]["id"])["history"])


def test_a_task_that_ends_in_between_is_told_of_as_it_is_then() -> None:
    """What a command found is decided anew when it is done."""

    async def work(scene: StoreHarness) -> str:
        task = await scene.create_running()
        await scene.apply(task, Complete(1, encode(1)))
        with pytest.raises(control.ActionNotApplicable) as caught:
            await control._apply(scene.store, task, Cancel("operator"), START)  # pyright: ignore[reportPrivateUsage] - the moment between
        return str(caught.value)

    assert in_store(work) == "is completed: nothing changed"
