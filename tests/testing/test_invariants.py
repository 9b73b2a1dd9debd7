"""`check_invariants` finds each kind of fault, and finds nothing where nothing is wrong.

Each fault is a lie: a store that keeps everything right, and tells one thing about it wrong.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Release
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Scope
from raincheck.core.payload import encode
from raincheck.core.records import Attempt, HistoryEntry, Journal, Lease, Task, TaskId, View
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
class Lie:
    """What a store says instead of the truth."""

    task: Callable[[Task], Task] = field(default=_task)
    history: Callable[[History], History] = field(default=_history)
    journal: Callable[[Journal], Journal] = field(default=_journal)
    view: Callable[[View], View] = field(default=_view)


class LyingStore(MemoryStore):
    """Keeps everything right, and lies about it."""

    def __init__(self) -> None:
        super().__init__()
        self.lie = Lie()

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        page = await super().list_tasks(query, now=now, after=after, limit=limit)
        return Page(tuple(self.lie.task(task) for task in page.tasks), page.next)

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = PAGE_LIMIT
    ) -> History:
        whole: History = ()
        while part := await super().history(task_id, scope, now=now, after=whole[-1].seq if whole else 0):
            whole += part
        return tuple(entry for entry in self.lie.history(whole) if entry.seq > after)[:limit]

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        return self.lie.journal(await super().journal(task_id, scope, now=now))

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        return self.lie.view(await super().view(task_id, scope, now=now))


@pytest.fixture
async def scene(fake_clock: FakeClock) -> StoreHarness:
    store = LyingStore()
    await store.open()
    return StoreHarness(store, fake_clock)


async def test_a_live_task_whose_parent_broke_off_is_a_fault(scene: StoreHarness) -> None:
    parents = [await scene.create_running() for _ in range(3)]
    children = [await scene.create(parent_id=parent.id) for parent in parents]
    await scene.create(parent_id=TaskId("nobody"))
    await scene.apply(parents[0], Complete(1, encode("done")))
    await scene.apply(parents[1], Cancel("alice"))
    await check_invariants(scene.store)
    # As it would be in a store whose cascade is broken: the end of the parent is there, and the child lives.
    orphan = await scene.create(parent_id=parents[1].id)
    (fault,) = await _faults(scene)
    assert fault.startswith(f"task {orphan.id!r}: it lives, and its parent {parents[1].id!r} ended without")
    assert (await scene.load(children[2])).phase is Phase.QUEUED


def _tell(scene: StoreHarness, lie: Lie) -> None:
    assert isinstance(scene.store, LyingStore)
    scene.store.lie = lie


async def _faults(scene: StoreHarness) -> list[str]:
    with pytest.raises(InvariantViolation) as broken:
        await check_invariants(scene.store)
    assert str(broken.value) == "\n".join(broken.value.violations)
    return broken.value.violations


def _set(**fields: object) -> Lie:
    return Lie(task=lambda task: task.evolve(**fields))


def _entry(seq: int, **fields: object) -> Lie:
    """The history with one entry told otherwise."""

    def tell(history: History) -> History:
        return tuple(replace(entry, **fields) if entry.seq == seq else entry for entry in history)

    return Lie(history=tell)


async def _running(scene: StoreHarness) -> Task:
    return await scene.create_running()


async def _queued(scene: StoreHarness) -> Task:
    return await scene.apply(await scene.create_running(), Release(1))


async def _asking(scene: StoreHarness) -> Task:
    note = Note(1, steps=(scene.step("load"),), input_requests=(scene.input_request("a"), scene.input_request("b")))
    return await scene.apply(await scene.create_running(), note)


async def _completed(scene: StoreHarness) -> Task:
    return await scene.apply(await _asking(scene), Complete(1, encode("report")))


async def _cancelled(scene: StoreHarness) -> Task:
    return await scene.apply(await _asking(scene), Cancel("alice"))


async def _parked(scene: StoreHarness) -> Task:
    return await scene.apply(await scene.create_running(), Park(1, seen_signals=0, until=START + timedelta(seconds=9)))


async def _paused(scene: StoreHarness) -> Task:
    return await scene.apply(await _queued(scene), Pause("operator"))


Make = Callable[[StoreHarness], Awaitable[Task]]
ATTEMPT = "an attempt is there exactly while the task runs"
TIMES = "the times of its end and its expiry are there exactly when it has ended"
OUTCOME = "an outcome is there exactly when it completed or failed"
SHOWN = "what a poll shows of its questions is not what is open"
_ATTEMPT = Attempt(1, START, Lease("worker-1", START))
LATER, EARLIER = START + timedelta(seconds=1), START - timedelta(seconds=1)

FAULTS: dict[str, tuple[Make, Lie, str]] = {
    "running without an attempt": (_running, _set(attempt=None), ATTEMPT),
    "an attempt on what does not run": (
        _queued,
        Lie(task=lambda task: task.evolve(attempt=replace(_ATTEMPT, number=task.attempt_number))),
        ATTEMPT,
    ),
    "another attempt than the latest": (
        _running,
        Lie(task=lambda task: task.evolve(attempt=replace(_ATTEMPT, number=7))),
        "attempt 7 runs, and the fence is 1",
    ),
    "ended without a moment": (_completed, _set(finished_at=None), TIMES),
    "ended without an expiry": (_completed, _set(expires_at=None), TIMES),
    "a moment of ending on what lives": (_running, _set(finished_at=START), TIMES),
    "an expiry on what lives": (_running, _set(expires_at=START), TIMES),
    "expired before the end": (_completed, _set(expires_at=EARLIER), "it expires before it ended"),
    "due in the queue": (_queued, _set(due_at=START), "it is due, and does not wait"),
    "due while running": (_running, _set(due_at=START), "it is due, and does not wait"),
    "to be paused without running": (_queued, _set(pausing=True), "it is to be paused, and does not run"),
    "changed before it was": (_running, _set(created_at=LATER), "it changed before it was created"),
    "more failures than attempts": (_running, _set(failures=2), "2 attempts went wrong, and only 1 began"),
    "an entry that is missing": (
        _queued,
        Lie(history=lambda history: (history[0], *history[2:])),
        "its history has a gap: [1, 3] of 3 entries",
    ),
    "a last entry that is missing": (_queued, Lie(history=lambda history: history[:-1]), "its history has a gap"),
    "no history at all": (_queued, Lie(history=lambda _: ()), "its history has a gap: [] of 3 entries"),
    "an entry too many": (_queued, _set(entries=2), "its history has a gap: [1, 2, 3] of 2 entries"),
    "entries that are not counted, and are not there": (
        _running,
        Lie(task=lambda task: task.evolve(entries=0), history=lambda _: ()),
        "its history",
    ),
    "a beginning that is none": (_running, _entry(1, event=Event.CLAIM), "its history begins with HistoryEntry(seq=1"),
    "a beginning with something before": (_running, _entry(1, before=Phase.PARKED), "its history begins with"),
    "another end than the record's": (_queued, _set(phase=Phase.PARKED), "its history ends with HistoryEntry(seq=3"),
    "another fence than the record's": (_queued, _set(fence=2), "its history ends with HistoryEntry(seq=3"),
    "a history ahead of its record": (_queued, _entry(3, at=LATER), "its history is ahead of its record"),
    "a chain that is broken": (
        _queued,
        _entry(3, before=Phase.PARKED),
        "its history is broken at 3: running before, then from parked",
    ),
    "an event that the lifecycle does not allow": (
        _queued,
        _entry(3, event=Event.DUE),
        "its history has what the lifecycle does not allow: HistoryEntry(seq=3",
    ),
    "a fence that rises without a claim": (
        _paused,
        Lie(
            task=lambda task: task.evolve(fence=2),
            history=lambda history: (*history[:-1], replace(history[-1], attempt=2)),
        ),
        "its fence went from 1 to 2 at pause (4)",
    ),
    "a claim that does not raise the fence": (
        _running,
        Lie(
            task=lambda task: task.evolve(fence=0, attempt=replace(_ATTEMPT, number=0)),
            history=lambda history: (history[0], replace(history[1], attempt=0)),
        ),
        "its fence went from 0 to 0 at claim (2)",
    ),
    "a history that goes back in time": (_queued, _entry(2, at=LATER), "its history goes back in time at 3"),
    "open questions that are miscounted": (
        _asking,
        _set(open_inputs=1),
        "it counts 1 open questions, and has ['a', 'b']",
    ),
    "a question that a poll does not show": (_asking, Lie(view=lambda view: replace(view, inputs=())), SHOWN),
    "a question that a poll shows after the end": (
        _completed,
        Lie(view=lambda view: replace(view, inputs=(StoreHarness(MemoryStore(), FakeClock()).input_request("a"),))),
        SHOWN,
    ),
    "completed without an outcome": (_completed, Lie(view=lambda view: replace(view, outcome=None)), OUTCOME),
    "cancelled with an outcome": (_cancelled, Lie(view=lambda view: replace(view, outcome=encode(1))), OUTCOME),
    "an outcome on what lives": (_parked, Lie(view=lambda view: replace(view, outcome=encode(1))), OUTCOME),
    "a step of an attempt to come": (
        _asking,
        Lie(journal=lambda journal: replace(journal, steps=(replace(journal.steps[0], attempt=2),))),
        "a step was finished by an attempt that never was",
    ),
    "a step of no attempt": (
        _asking,
        Lie(journal=lambda journal: replace(journal, steps=(replace(journal.steps[0], attempt=0),))),
        "a step was finished by an attempt that never was",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_it_finds(name: str, scene: StoreHarness) -> None:
    make, lie, sentence = FAULTS[name]
    task = await make(scene)
    await check_invariants(scene.store)
    _tell(scene, lie)
    faults = await _faults(scene)
    found = [fault for fault in faults if sentence in fault]
    assert found, faults
    assert found[0].startswith(f"task {task.id!r} (")


async def test_it_finds_what_changed_after_its_end(scene: StoreHarness) -> None:
    ended: dict[TaskId, Task] = {}
    task = await _completed(scene)
    await check_invariants(scene.store, ended)
    assert ended == {task.id: task}
    await check_invariants(scene.store, ended)
    _tell(scene, _set(status_message="done after all"))
    with pytest.raises(InvariantViolation, match="it changed after its end, from "):
        await check_invariants(scene.store, ended)
    await check_invariants(scene.store)


async def test_a_key_may_be_released_after_the_end_and_not_be_another(scene: StoreHarness) -> None:
    ended: dict[TaskId, Task] = {}
    task = await scene.create(idempotency_key="key", request_digest="digest")
    await scene.apply(task, Cancel("alice"))
    await check_invariants(scene.store, ended)
    await scene.store.release_key(task.id, "key")
    await check_invariants(scene.store, ended)
    _tell(scene, _set(idempotency_key="another"))
    with pytest.raises(InvariantViolation, match="it changed after its end, from "):
        await check_invariants(scene.store, ended)


async def test_what_lives_may_change(scene: StoreHarness) -> None:
    ended: dict[TaskId, Task] = {}
    task = await _running(scene)
    await check_invariants(scene.store, ended)
    await scene.apply(task, Release(1))
    await check_invariants(scene.store, ended)
    assert ended == {}


async def test_it_finds_nothing_where_nothing_is_wrong(scene: StoreHarness) -> None:
    for make in (_running, _queued, _asking, _completed, _cancelled, _parked, _paused):
        await make(scene)
        await check_invariants(scene.store)


async def test_it_tells_everything_that_is_wrong_with_every_task(scene: StoreHarness) -> None:
    other, one = await _parked(scene), await _queued(scene)
    _tell(scene, _set(pausing=True, failures=9))
    faults = await _faults(scene)
    assert sum(f"task {one.id!r} (queued): " in fault for fault in faults) == 2
    assert sum(f"task {other.id!r} (parked): " in fault for fault in faults) == 2


async def test_it_reads_what_has_expired_too(scene: StoreHarness) -> None:
    await _completed(scene)
    scene.clock.advance(timedelta(days=4_000).total_seconds())
    _tell(scene, _set(finished_at=None))
    assert await _faults(scene)


async def test_it_reads_page_after_page(scene: StoreHarness) -> None:
    ids = [(await scene.create()).id for _ in range(501)]
    _tell(scene, Lie(task=lambda task: task.evolve(failures=1) if task.id == ids[0] else task))
    assert len(await _faults(scene)) == 1


async def test_it_reads_a_history_longer_than_a_page(scene: StoreHarness) -> None:
    task = await _running(scene)
    for number in range(PAGE_LIMIT):
        task = await scene.apply(task, Note(1, status_message=str(number)))
    assert task.entries == PAGE_LIMIT + 2
    await check_invariants(scene.store)
