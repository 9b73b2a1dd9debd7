"""Tests for `raincheck tasks cancel`, `pause`, `resume` and `retry`: outcomes and exit codes."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from raincheck.cli.commands.tasks import control
from raincheck.cli.commands.tasks.control import find_retry
from raincheck.core.change import create
from raincheck.core.commands import Cancel, Complete, Fail, Note
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.policies import NO_QUOTA, Limits, RetryPolicy
from raincheck.core.records import Task, TaskId, Tool
from raincheck.core.values import SEAL, Payload, encode
from raincheck.stores.base import Store
from raincheck.stores.commit import apply
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import ALICE, BOB, EVERYTHING
from tests.support.cli.operator import (
    LONG,
    START,
    create_task_in_each_phase,
    in_store,
    lines,
    load,
    run,
    run_json,
    stored_ids,
)

pytestmark = pytest.mark.usefixtures("folder")

LIVE = ("parked", "running", "paused", "queued")
ENDED = ("completed", "error", "failed", "cancelled")


def test_live_tasks_are_cancelled_and_the_reason_is_stored() -> None:
    tasks = in_store(create_task_in_each_phase)
    ids = [tasks[name].id for name in LIVE]
    printed = lines("tasks", "cancel", *ids, "--reason", "a bad day")
    assert printed == [f"{task_id} (build_report) is cancelled" for task_id in ids]
    for task_id in ids:
        assert load(task_id).phase is Phase.CANCELLED
        entry = run_json("tasks", "show", task_id)["history"][-1]
        assert (entry["actor"], entry["note"]) == ("operator", "a bad day")


@pytest.mark.parametrize("command", ["cancel", "pause", "resume"])
@pytest.mark.parametrize("name", ENDED)
def test_ended_tasks_stay_unchanged(command: str, name: str) -> None:
    task = in_store(create_task_in_each_phase)[name]
    done = run("tasks", command, task.id)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"{task.id} (build_report) is {task.phase}: nothing changed\n"
    assert load(task) == task


def test_an_error_with_one_task_does_not_affect_the_others() -> None:
    tasks = in_store(create_task_in_each_phase)
    done = run("tasks", "cancel", "nope", tasks["failed"].id, tasks["queued"].id, "task-000", tasks["paused"].id)
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "task-0008 (build_report) is cancelled",
        "task-0007 (build_report) is cancelled",
    ]
    missing, ended, unclear = done.stderr.splitlines()
    assert missing == "there is no task 'nope': run raincheck tasks ls to list the tasks of this store"
    assert ended == "task-0003 (build_report) is failed: nothing changed"
    assert unclear.startswith("8 ids start with 'task-000'")


def test_json_has_an_outcome_for_each_task() -> None:
    tasks = in_store(create_task_in_each_phase)
    printed = run_json("tasks", "cancel", tasks["queued"].id, "nope", tasks["failed"].id, exit_code=1)
    assert [(one["id"], one["done"]) for one in printed] == [
        ("task-0008", True),
        ("nope", False),
        ("task-0003", False),
    ]
    assert [None if one["task"] is None else one["task"]["status"] for one in printed] == ["cancelled", None, None]
    assert printed[0]["message"] == "task-0008 (build_report) is cancelled"


def test_children_are_cancelled_with_their_parent() -> None:
    async def work(harness: StoreHarness) -> Task:
        parent = await harness.create_running()
        await harness.apply(parent, Note(1, spawned=(harness.creation(parent_id=parent.id),)))
        return parent

    parent = in_store(work)
    run("tasks", "cancel", parent.id)
    assert load("task-0002").phase is Phase.CANCELLED


def test_pause_reports_whether_the_task_is_paused_now_or_at_its_next_checkpoint() -> None:
    tasks = in_store(create_task_in_each_phase)
    ids = [tasks[name].id for name in ("queued", "running", "parked", "paused")]
    assert lines("tasks", "pause", *ids, "--reason", "maintenance") == [
        "task-0008 (build_report) is paused",
        "task-0006 (build_report) pauses at its next checkpoint",
        "task-0005 (build_report) is paused",
        "task-0007 (build_report) is already paused",
    ]
    assert lines("tasks", "pause", tasks["running"].id) == [
        "task-0006 (build_report) is already waiting for its next checkpoint to pause"
    ]
    assert load(tasks["running"]).pausing
    assert run_json("tasks", "show", tasks["queued"].id)["history"][-1]["note"] == "maintenance"


def test_resume_continues_paused_tasks_and_refuses_others() -> None:
    tasks = in_store(create_task_in_each_phase)
    run("tasks", "pause", tasks["running"].id)
    assert lines("tasks", "resume", tasks["paused"].id, tasks["running"].id) == [
        "task-0007 (build_report) is resumed",
        "task-0006 (build_report) is resumed",
    ]
    assert load(tasks["paused"]).phase is Phase.PARKED
    assert not load(tasks["running"]).pausing
    for name in ("queued", "running", "parked"):
        done = run("tasks", "resume", tasks[name].id)
        assert done.exit_code == 1
        assert done.stderr == f"{tasks[name].id} (build_report) is {name}, not paused\n"


@pytest.mark.parametrize("name", ["failed", "cancelled", "error"])
def test_retry_creates_a_new_task(name: str) -> None:
    old = in_store(create_task_in_each_phase)[name]
    before = stored_ids()
    (printed,) = run_json("tasks", "retry", old.id, "--reason", "the disk was full")
    assert printed["done"]
    (new_id,) = stored_ids() - before
    assert printed["task"]["id"] == new_id
    assert printed["message"] == f"{old.id} (build_report) is retried as {new_id}"
    new = load(new_id)
    assert (new.tool, new.owner, new.namespace, new.phase) == (old.tool, old.owner, old.namespace, Phase.QUEUED)
    assert load(old) == old
    document = run_json("tasks", "show", new_id)
    assert document["arguments"] == {"year": 2026}
    (entry,) = document["history"]
    assert (entry["actor"], entry["note"]) == ("operator", f"again what {old.id} was: the disk was full")


def test_a_retried_task_has_the_same_request() -> None:
    policy = RetryPolicy(attempts=7)

    async def work(harness: StoreHarness) -> Task:
        task = await harness.create(
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
        return await harness.apply(task, Cancel("alice"))

    clock = FakeClock(START)
    old = in_store(work, clock)
    clock.advance(86_400)
    (printed,) = run_json("tasks", "retry", old.id, clock=clock)
    new = load(printed["task"]["id"], clock)
    same = ("tool", "owner", "namespace", "priority", "retry", "retention")
    assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
    assert new.deadline_at == START + timedelta(days=1, hours=2)
    # The key is the old one's, and a parent that has gone on must not be woken up.
    assert (new.idempotency_key, new.parent_id) == (None, None)

    async def journal(harness: StoreHarness) -> Payload | None:
        return (await harness.store.journal(new.id, EVERYTHING, now=harness.clock.now())).caller

    assert in_store(journal, clock) == encode({"who": "me"})


def test_encrypted_payloads_stay_encrypted_in_a_retry() -> None:
    sealed = Payload(SEAL + b"secret")

    async def work(harness: StoreHarness) -> Task:
        return await harness.apply(await harness.create(arguments=sealed), Cancel("alice"))

    old = in_store(work)
    (printed,) = run_json("tasks", "retry", old.id)
    assert run_json("tasks", "show", printed["task"]["id"])["unreadable"] == {"arguments": "sealed"}


def test_a_retry_ignores_the_limits_of_the_original_call() -> None:
    async def work(harness: StoreHarness) -> Task:
        large = harness.new_task(arguments=encode("x" * 2_000_000), caller=encode("y" * 100_000))
        creation = create(large, START, Limits(arguments=3_000_000, caller=200_000))
        return await harness.apply(await harness.store.create(creation, quota=NO_QUOTA, now=START), Cancel("alice"))

    old = in_store(work)
    assert run_json("tasks", "retry", old.id)[0]["done"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("completed", "has completed, so there is nothing to retry"),
        ("running", "is running, and has not ended: wait for its end, or cancel it first"),
        ("paused", "is paused, and has not ended: wait for its end, or cancel it first"),
    ],
)
def test_successful_and_live_tasks_are_not_retried(name: str, why: str) -> None:
    task = in_store(create_task_in_each_phase)[name]
    before = stored_ids()
    done = run("tasks", "retry", task.id)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"{task.id} (build_report) {why}\n")
    assert stored_ids() == before


def test_a_task_is_retried_only_once() -> None:
    clock = FakeClock(START)
    tasks = in_store(create_task_in_each_phase, clock)
    (first,) = run_json("tasks", "retry", tasks["failed"].id, "--reason", "boom: it was", clock=clock)
    new_id = first["task"]["id"]
    assert run_json("tasks", "retry", tasks["cancelled"].id, clock=clock)[0]["done"]
    before = stored_ids()
    done = run("tasks", "retry", tasks["failed"].id, clock=clock)
    why = f"was already retried as {new_id[:20]}, which is queued: continue with that task"
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"{tasks['failed'].id} (build_report) {why}\n")
    assert stored_ids() == before
    run("tasks", "cancel", new_id, clock=clock)
    assert run_json("tasks", "retry", new_id, clock=clock)[0]["done"]


def test_only_the_newest_later_tasks_are_read_to_find_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raincheck.cli.commands.tasks.control.MAX_HISTORIES_READ", 3)
    read: list[str] = []

    async def work(harness: StoreHarness) -> Task | None:
        old = await harness.apply(await harness.create_running(), Fail(1, encode(1), "boom", retryable=False))
        for owner in [ALICE] * 4 + [BOB] * 4:
            harness.clock.advance(1)
            await harness.create(owner=owner)
        history = harness.store.history

        async def counted(task_id: TaskId, *given: Any, **more: Any) -> Any:
            read.append(task_id)
            return await history(task_id, *given, **more)

        monkeypatch.setattr(harness.store, "history", counted)
        return await find_retry(harness.store, old, harness.clock.now())

    assert in_store(work) is None
    assert len(read) == 3


def test_a_whole_id_of_an_anonymous_task_is_not_written_into_anothers_history() -> None:
    async def work(harness: StoreHarness) -> Task:
        task = await harness.create_running(id=TaskId("0" * 12 + "a" * 32), owner=Owner.anonymous())
        return await harness.apply(task, Fail(1, encode(1), "boom", retryable=False))

    old = in_store(work)
    (printed,) = run_json("tasks", "retry", old.id[:14])
    assert old.id not in str(run_json("tasks", "show", printed["task"]["id"])["history"])


def test_a_task_that_ends_meanwhile_is_reported_as_ended() -> None:
    """A task that ends between the command's read and its change."""

    async def work(harness: StoreHarness) -> str:
        task = await harness.create_running()

        async def cancel(store: Store, task: Task, now: datetime) -> tuple[Task, str]:
            await harness.apply(task, Complete(1, encode(1)))
            return await apply(store, task.id, EVERYTHING, Cancel("operator"), now=now), "is cancelled"

        outcome = await control._act_on(harness.store, task.id, cancel, START)  # pyright: ignore[reportPrivateUsage] - the moment between
        return str(outcome["message"])

    assert in_store(work).endswith(" is completed: nothing changed")
