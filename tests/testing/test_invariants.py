"""`check_invariants` reports each kind of violation, and reports nothing for a consistent store.

Each violation is planted by a store whose contents are right and that returns one thing wrong.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Release
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Attempt, HistoryEntry, Journal, Lease, Task, TaskId, View
from raincheck.core.values import encode
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import PAGE_LIMIT, Page, PageCursor, TaskQuery
from raincheck.testing import FakeClock, InvariantViolation, StoreHarness, check_invariants

pytestmark = pytest.mark.anyio

START = FakeClock().now()
History = tuple[HistoryEntry, ...]


def _task(task: Task) -> Task:
    return task


def _history(history: History) -> History:
    return history


def _journal(journal: Journal) -> Journal:
    return journal


def _view(view: View) -> View:
    return view


@dataclass(frozen=True)
class Distortion:
    """What a store returns instead of what it stores."""

    task: Callable[[Task], Task] = field(default=_task)
    history: Callable[[History], History] = field(default=_history)
    journal: Callable[[Journal], Journal] = field(default=_journal)
    view: Callable[[View], View] = field(default=_view)


class DistortingStore(MemoryStore):
    """Stores everything correctly, and returns it distorted."""

    def __init__(self) -> None:
        super().__init__()
        self.distortion = Distortion()

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        page = await super().list_tasks(query, now=now, after=after, limit=limit)
        return Page(tuple(self.distortion.task(task) for task in page.tasks), page.next)

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = PAGE_LIMIT
    ) -> History:
        entries: History = ()
        while part := await super().history(task_id, scope, now=now, after=entries[-1].seq if entries else 0):
            entries += part
        return tuple(entry for entry in self.distortion.history(entries) if entry.seq > after)[:limit]

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        return self.distortion.journal(await super().journal(task_id, scope, now=now))

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        return self.distortion.view(await super().view(task_id, scope, now=now))


@pytest.fixture
async def harness(fake_clock: FakeClock) -> StoreHarness:
    store = DistortingStore()
    await store.open()
    return StoreHarness(store, fake_clock)


async def test_a_live_child_of_a_parent_that_did_not_complete_is_a_violation(harness: StoreHarness) -> None:
    parents = [await harness.create_running() for _ in range(3)]
    children = [await harness.create(parent_id=parent.id) for parent in parents]
    await harness.create(parent_id=TaskId("unknown"))
    await harness.apply(parents[0], Complete(1, encode("done")))
    await harness.apply(parents[1], Cancel("alice"))
    await check_invariants(harness.store)
    # As in a store whose cascade is broken: the parent has ended, and the child is live.
    orphan = await harness.create(parent_id=parents[1].id)
    (violation,) = await _violations(harness)
    assert violation.startswith(f"task {orphan.id!r}: it is live, but its parent {parents[1].id!r} ended without")
    assert (await harness.load(children[2])).phase is Phase.QUEUED


def _distort(harness: StoreHarness, distortion: Distortion) -> None:
    assert isinstance(harness.store, DistortingStore)
    harness.store.distortion = distortion


async def _violations(harness: StoreHarness) -> list[str]:
    with pytest.raises(InvariantViolation) as broken:
        await check_invariants(harness.store)
    assert str(broken.value) == "\n".join(broken.value.violations)
    return broken.value.violations


def _set(**fields: object) -> Distortion:
    return Distortion(task=lambda task: task.evolve(**fields))


def _entry(seq: int, **fields: object) -> Distortion:
    """Return the history with one entry changed."""

    def change(history: History) -> History:
        return tuple(replace(entry, **fields) if entry.seq == seq else entry for entry in history)

    return Distortion(history=change)


async def _running(harness: StoreHarness) -> Task:
    return await harness.create_running()


async def _queued(harness: StoreHarness) -> Task:
    return await harness.apply(await harness.create_running(), Release(1))


async def _input_required(harness: StoreHarness) -> Task:
    note = Note(
        1, steps=(harness.step("load"),), input_requests=(harness.input_request("a"), harness.input_request("b"))
    )
    return await harness.apply(await harness.create_running(), note)


async def _completed(harness: StoreHarness) -> Task:
    return await harness.apply(await _input_required(harness), Complete(1, encode("report")))


async def _cancelled(harness: StoreHarness) -> Task:
    return await harness.apply(await _input_required(harness), Cancel("alice"))


async def _parked(harness: StoreHarness) -> Task:
    return await harness.apply(
        await harness.create_running(), Park(1, seen_signals=0, until=START + timedelta(seconds=9))
    )


async def _paused(harness: StoreHarness) -> Task:
    return await harness.apply(await _queued(harness), Pause("operator"))


Make = Callable[[StoreHarness], Awaitable[Task]]
ATTEMPT = "it has an attempt and does not run, or runs without an attempt"
TIMES = "finished_at and expires_at are set before it ended, or missing after it ended"
OUTCOME = "it has an outcome without having completed or failed, or no outcome although it did"
INPUTS = "its view does not show exactly its open input requests"
_ATTEMPT = Attempt(1, START, Lease("worker-1", START))
LATER, EARLIER = START + timedelta(seconds=1), START - timedelta(seconds=1)

VIOLATIONS: dict[str, tuple[Make, Distortion, str]] = {
    "running without an attempt": (_running, _set(attempt=None), ATTEMPT),
    "an attempt on a queued task": (
        _queued,
        Distortion(task=lambda task: task.evolve(attempt=replace(_ATTEMPT, number=task.attempt_number))),
        ATTEMPT,
    ),
    "another attempt than the latest": (
        _running,
        Distortion(task=lambda task: task.evolve(attempt=replace(_ATTEMPT, number=7))),
        "attempt 7 runs, but the fence is 1",
    ),
    "ended without finished_at": (_completed, _set(finished_at=None), TIMES),
    "ended without expires_at": (_completed, _set(expires_at=None), TIMES),
    "finished_at on a live task": (_running, _set(finished_at=START), TIMES),
    "expires_at on a live task": (_running, _set(expires_at=START), TIMES),
    "expired before the end": (_completed, _set(expires_at=EARLIER), "it expires before it ended"),
    "due in the queue": (_queued, _set(due_at=START), "it has a due time, but is neither parked nor paused"),
    "due while running": (_running, _set(due_at=START), "it has a due time, but is neither parked nor paused"),
    "a pending pause without running": (_queued, _set(pausing=True), "a pause is pending, but it does not run"),
    "changed before it was created": (_running, _set(created_at=LATER), "it changed before it was created"),
    "more failures than attempts": (_running, _set(failures=2), "2 attempts failed, but only 1 started"),
    "an entry that is missing": (
        _queued,
        Distortion(history=lambda history: (history[0], *history[2:])),
        "its history has a gap: [1, 3] of 3 entries",
    ),
    "a last entry that is missing": (
        _queued,
        Distortion(history=lambda history: history[:-1]),
        "its history has a gap",
    ),
    "no history at all": (_queued, Distortion(history=lambda _: ()), "its history has a gap: [] of 3 entries"),
    "an entry too many": (_queued, _set(entries=2), "its history has a gap: [1, 2, 3] of 2 entries"),
    "entries that are neither counted nor stored": (
        _running,
        Distortion(task=lambda task: task.evolve(entries=0), history=lambda _: ()),
        "its history",
    ),
    "a first entry that is no creation": (
        _running,
        _entry(1, event=Event.CLAIM),
        "its history starts with HistoryEntry(seq=1",
    ),
    "a first entry with a phase before": (_running, _entry(1, before=Phase.PARKED), "its history starts with"),
    "another last phase than the record's": (
        _queued,
        _set(phase=Phase.PARKED),
        "its history ends with HistoryEntry(seq=3",
    ),
    "another fence than the record's": (_queued, _set(attempt_number=2), "its history ends with HistoryEntry(seq=3"),
    "a history ahead of its record": (_queued, _entry(3, at=LATER), "its history is ahead of its record"),
    "a chain that is broken": (
        _queued,
        _entry(3, before=Phase.PARKED),
        "its history is broken at 3: it leaves parked, but the phase was running",
    ),
    "an event that the lifecycle does not allow": (
        _queued,
        _entry(3, event=Event.DUE),
        "its history has a transition that the lifecycle does not allow: HistoryEntry(seq=3",
    ),
    "a fence that rises without a claim": (
        _paused,
        Distortion(
            task=lambda task: task.evolve(attempt_number=2),
            history=lambda history: (*history[:-1], replace(history[-1], attempt=2)),
        ),
        "its fence went from 1 to 2 at pause (4)",
    ),
    "a claim that does not raise the fence": (
        _running,
        Distortion(
            task=lambda task: task.evolve(attempt_number=0, attempt=replace(_ATTEMPT, number=0)),
            history=lambda history: (history[0], replace(history[1], attempt=0)),
        ),
        "its fence went from 0 to 0 at claim (2)",
    ),
    "a history that goes back in time": (_queued, _entry(2, at=LATER), "its history goes back in time at 3"),
    "miscounted open input requests": (
        _input_required,
        _set(open_inputs=1),
        "it counts 1 open input requests, but has ['a', 'b']",
    ),
    "an input request missing from the view": (
        _input_required,
        Distortion(view=lambda view: replace(view, inputs=())),
        INPUTS,
    ),
    "an input request in the view after the end": (
        _completed,
        Distortion(
            view=lambda view: replace(view, inputs=(StoreHarness(MemoryStore(), FakeClock()).input_request("a"),))
        ),
        INPUTS,
    ),
    "completed without an outcome": (_completed, Distortion(view=lambda view: replace(view, outcome=None)), OUTCOME),
    "cancelled with an outcome": (_cancelled, Distortion(view=lambda view: replace(view, outcome=encode(1))), OUTCOME),
    "an outcome on a live task": (_parked, Distortion(view=lambda view: replace(view, outcome=encode(1))), OUTCOME),
    "a step of a later attempt": (
        _input_required,
        Distortion(journal=lambda journal: replace(journal, steps=(replace(journal.steps[0], attempt=2),))),
        "a step was recorded by an attempt that does not exist",
    ),
    "a step of no attempt": (
        _input_required,
        Distortion(journal=lambda journal: replace(journal, steps=(replace(journal.steps[0], attempt=0),))),
        "a step was recorded by an attempt that does not exist",
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_violation_is_reported(name: str, harness: StoreHarness) -> None:
    make, distortion, sentence = VIOLATIONS[name]
    task = await make(harness)
    await check_invariants(harness.store)
    _distort(harness, distortion)
    violations = await _violations(harness)
    matches = [violation for violation in violations if sentence in violation]
    assert matches, violations
    assert matches[0].startswith(f"task {task.id!r} (")


async def test_a_task_that_changed_after_its_end_is_a_violation(harness: StoreHarness) -> None:
    ended: dict[TaskId, Task] = {}
    task = await _completed(harness)
    await check_invariants(harness.store, ended)
    assert ended == {task.id: task}
    await check_invariants(harness.store, ended)
    _distort(harness, _set(status_message="changed"))
    with pytest.raises(InvariantViolation, match="it changed after its end, from "):
        await check_invariants(harness.store, ended)
    await check_invariants(harness.store)


async def test_a_key_may_be_released_after_the_end_but_not_replaced(harness: StoreHarness) -> None:
    ended: dict[TaskId, Task] = {}
    task = await harness.create(idempotency_key="key", request_digest="digest")
    await harness.apply(task, Cancel("alice"))
    await check_invariants(harness.store, ended)
    await harness.store.release_key(task.id, "key")
    await check_invariants(harness.store, ended)
    _distort(harness, _set(idempotency_key="another"))
    with pytest.raises(InvariantViolation, match="it changed after its end, from "):
        await check_invariants(harness.store, ended)


async def test_a_live_task_may_change(harness: StoreHarness) -> None:
    ended: dict[TaskId, Task] = {}
    task = await _running(harness)
    await check_invariants(harness.store, ended)
    await harness.apply(task, Release(1))
    await check_invariants(harness.store, ended)
    assert ended == {}


async def test_a_consistent_store_has_no_violations(harness: StoreHarness) -> None:
    for make in (_running, _queued, _input_required, _completed, _cancelled, _parked, _paused):
        await make(harness)
        await check_invariants(harness.store)


async def test_all_violations_of_all_tasks_are_reported(harness: StoreHarness) -> None:
    parked, queued = await _parked(harness), await _queued(harness)
    _distort(harness, _set(pausing=True, failures=9))
    violations = await _violations(harness)
    assert sum(f"task {queued.id!r} (queued): " in violation for violation in violations) == 2
    assert sum(f"task {parked.id!r} (parked): " in violation for violation in violations) == 2


async def test_expired_tasks_are_checked(harness: StoreHarness) -> None:
    await _completed(harness)
    harness.clock.advance(timedelta(days=4_000).total_seconds())
    _distort(harness, _set(finished_at=None))
    assert await _violations(harness)


async def test_all_pages_of_tasks_are_checked(harness: StoreHarness) -> None:
    ids = [(await harness.create()).id for _ in range(501)]
    _distort(harness, Distortion(task=lambda task: task.evolve(failures=1) if task.id == ids[0] else task))
    assert len(await _violations(harness)) == 1


async def test_a_history_longer_than_a_page_is_checked(harness: StoreHarness) -> None:
    task = await _running(harness)
    for number in range(PAGE_LIMIT):
        task = await harness.apply(task, Note(1, status_message=str(number)))
    assert task.entries == PAGE_LIMIT + 2
    await check_invariants(harness.store)
