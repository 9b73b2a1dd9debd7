"""Read, decide, commit: what happens when somebody else was quicker. B's whole operation runs in A's gap."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import pytest

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Complete, Note, Pause, Resume
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.limits import Limits
from raincheck.core.owner import Scope
from raincheck.core.payload import Payload, decode, encode
from raincheck.core.policies import OnInterrupt, Retention, RetryPolicy
from raincheck.core.records import Progress, Task, TaskId
from raincheck.errors import IllegalTransition, LeaseLost, StoreUnavailable, TaskNotFound, TooLarge
from raincheck.stores.commit import answer, apply, sweep
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import HeldAttempt
from raincheck.testing import FakeClock, StoreHarness, check_invariants
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, NAMESPACE

pytestmark = pytest.mark.anyio

YES, NO = encode("yes"), encode("no")


class GapStore(MemoryStore):
    """Between the reading of a task and the commit of what was decided on it, others come first."""

    def __init__(self) -> None:
        super().__init__()
        self.gap: list[Callable[[], Awaitable[object]]] = []
        self.commits = 0

    async def commit(self, changes: Sequence[Change]) -> None:
        if self.gap:
            await self.gap.pop(0)()
        self.commits += 1
        await super().commit(changes)


@pytest.fixture
async def store() -> AsyncIterator[GapStore]:
    store = GapStore()
    await store.open()
    yield store
    assert not store.gap, "the race that was scripted did not happen"
    await check_invariants(store)
    await store.close()


@pytest.fixture
def scene(store: GapStore, fake_clock: FakeClock) -> StoreHarness:
    return StoreHarness(store, fake_clock)


async def _events(scene: StoreHarness, task: Task) -> list[Event]:
    return [entry.event for entry in await scene.history(task)]


async def test_a_completion_that_comes_after_a_cancel_learns_that_it_lost(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()
    store.gap = [lambda: scene.apply(task, Cancel("alice"))]
    with pytest.raises(LeaseLost):
        await scene.apply(task, Complete(1, YES))
    view = await store.view(task.id, EVERYTHING, now=scene.clock.now())
    assert (view.task.phase, view.outcome) == (Phase.CANCELLED, None)
    assert await _events(scene, task) == [Event.CREATE, Event.CLAIM, Event.CANCEL]


async def test_a_cancel_that_comes_after_a_completion_learns_that_it_lost(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()
    store.gap = [lambda: scene.apply(task, Complete(1, YES))]
    with pytest.raises(IllegalTransition):
        await scene.apply(task, Cancel("alice"))
    view = await store.view(task.id, EVERYTHING, now=scene.clock.now())
    assert (view.task.phase, view.outcome) == (Phase.COMPLETED, YES)
    assert await _events(scene, task) == [Event.CREATE, Event.CLAIM, Event.COMPLETE]


async def test_what_still_holds_is_decided_anew_and_both_are_kept(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()
    store.gap = [lambda: scene.apply(task, Note(1, Progress(5), "five"))]
    paused = await scene.apply(task, Pause("operator"))
    assert (paused.pausing, paused.progress, paused.status_message) == (True, Progress(5), "five")
    assert await scene.load(task) == paused
    assert paused.version == task.version + 2
    assert await _events(scene, task) == [Event.CREATE, Event.CLAIM, Event.NOTE, Event.PAUSE]


async def test_it_goes_on_however_often_others_are_quicker(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()

    def note(number: int) -> Callable[[], Awaitable[object]]:
        return lambda: scene.apply(task, Note(1, Progress(number)))

    # Each note is the gap of the round before, so that A loses twenty times; a note in a gap has no gap of its own.
    pending = [note(number) for number in range(1, 21)]

    async def be_quicker() -> None:
        first = pending.pop(0)
        await first()
        store.gap = [be_quicker] if pending else []

    store.gap = [be_quicker]
    done = await scene.apply(task, Complete(1, YES))
    assert (done.phase, done.progress, done.version) == (Phase.COMPLETED, Progress(20), task.version + 21)
    assert store.commits == 41


async def test_what_became_needless_in_the_gap_changes_nothing(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()
    store.gap = [lambda: scene.apply(task, Pause("operator"))]
    paused = await scene.apply(task, Pause("alice"))
    assert (paused.pausing, paused.version) == (True, task.version + 1)
    assert await _events(scene, task) == [Event.CREATE, Event.CLAIM, Event.PAUSE]


async def test_what_is_needless_is_not_committed(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()
    assert await scene.apply(task, Resume("operator")) == task
    assert store.commits == 0


async def test_a_task_that_is_gone_by_then_is_not_found(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running(retention=Retention(keep=timedelta(0)))

    async def end_and_prune() -> None:
        await scene.apply(task, Complete(1, YES))
        assert await store.prune(now=scene.clock.now(), limit=1) == (task.id,)

    store.gap = [end_and_prune]
    with pytest.raises(TaskNotFound):
        await scene.apply(task, Cancel("alice"))


async def test_a_store_that_fails_is_not_asked_again(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()
    store.gap = [store.close]
    with pytest.raises(StoreUnavailable):
        await scene.apply(task, Cancel("alice"))
    assert store.commits == 1
    await store.open()
    assert (await scene.load(task)).phase is Phase.RUNNING


async def test_only_who_may_see_a_task_can_do_something_to_it(store: GapStore, scene: StoreHarness) -> None:
    task, now = await scene.create_running(), scene.clock.now()
    for scope in (Scope.for_owner(NAMESPACE, BOB), Scope.for_owner("other", ALICE)):
        with pytest.raises(TaskNotFound):
            await apply(store, task.id, scope, Cancel("bob"), now=now)
        with pytest.raises(TaskNotFound):
            await answer(store, task.id, scope, {"a": YES}, actor="bob", now=now)
    assert await scene.load(task) == task
    mine = Scope.for_owner(NAMESPACE, ALICE)
    assert (await apply(store, task.id, mine, Cancel("alice"), now=now)).phase is Phase.CANCELLED


async def test_bounds_are_those_that_were_given(store: GapStore, scene: StoreHarness) -> None:
    task, now = await scene.create_running(), scene.clock.now()
    tight = Limits(outcome=2, answer=2)
    with pytest.raises(TooLarge):
        await apply(store, task.id, EVERYTHING, Complete(1, YES), now=now, limits=tight)
    await scene.apply(task, Note(1, input_requests=(scene.input_request("a"),)))
    with pytest.raises(TooLarge):
        await answer(store, task.id, EVERYTHING, {"a": YES}, actor="alice", now=now, limits=tight)


async def _asking(scene: StoreHarness, *keys: str) -> Task:
    task = await scene.create_running()
    return await scene.apply(task, Note(1, input_requests=tuple(scene.input_request(key) for key in keys)))


async def _answers(scene: StoreHarness, task: Task) -> dict[str, Payload | None]:
    journal = await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())
    return {question.key: question.answer for question in journal.inputs}


def _answer(scene: StoreHarness, task: Task, **answers: Payload) -> Awaitable[Task]:
    return answer(scene.store, task.id, EVERYTHING, answers, actor="alice", now=scene.clock.now())


async def test_of_two_answers_to_one_question_the_first_stands(store: GapStore, scene: StoreHarness) -> None:
    task = await _asking(scene, "a")
    store.gap = [lambda: _answer(scene, task, a=YES)]
    late = await _answer(scene, task, a=NO)
    assert await _answers(scene, task) == {"a": YES}
    assert (late.signals, late.open_inputs, late.version) == (1, 0, task.version + 1)


async def test_answers_that_partly_come_too_late_are_kept_in_part(store: GapStore, scene: StoreHarness) -> None:
    task = await _asking(scene, "a", "b", "c")
    store.gap = [lambda: _answer(scene, task, a=YES)]
    late = await _answer(scene, task, a=NO, b=NO)
    assert await _answers(scene, task) == {"a": YES, "b": NO, "c": None}
    assert (late.signals, late.open_inputs) == (2, 1)


async def test_an_answer_that_comes_after_the_end_learns_that_it_lost(store: GapStore, scene: StoreHarness) -> None:
    task = await _asking(scene, "a")
    store.gap = [lambda: scene.apply(task, Cancel("alice"))]
    with pytest.raises(IllegalTransition):
        await _answer(scene, task, a=YES)
    assert await _answers(scene, task) == {"a": None}


async def test_unknown_keys_change_nothing(store: GapStore, scene: StoreHarness) -> None:
    task = await _asking(scene, "a")
    commits = store.commits
    assert await _answer(scene, task, b=YES) == task
    assert store.commits == commits


async def _extend(scene: StoreHarness, task: Task, until: datetime) -> None:
    assert await scene.store.extend_leases([HeldAttempt(task.id, task.attempt_number)], until=until) == frozenset()


async def _sweep(scene: StoreHarness, limit: int = 100) -> dict[TaskId, Phase]:
    return {task.id: task.phase for task in await sweep(scene.store, now=scene.clock.now(), limit=limit)}


async def test_a_sweep_takes_back_what_a_dead_worker_held(scene: StoreHarness) -> None:
    task = await scene.create_running()
    scene.clock.advance(29)
    assert await _sweep(scene) == {}
    scene.clock.advance(1)
    assert await _sweep(scene) == {task.id: Phase.QUEUED}
    assert await _sweep(scene) == {}
    assert (await scene.load(task)).failures == 1


async def test_a_sweep_leaves_alone_what_was_extended_in_the_gap(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()
    until = scene.clock.advance(30) + timedelta(seconds=30)
    store.gap = [lambda: _extend(scene, task, until)]
    assert await _sweep(scene) == {}
    held = await scene.load(task)
    assert (held.phase, held.failures, held.attempt_number) == (Phase.RUNNING, 0, 1)
    assert held.attempt is not None
    assert held.attempt.lease.expires_at == until
    assert (await scene.apply(task, Complete(1, YES))).phase is Phase.COMPLETED


async def test_a_tool_that_must_not_run_twice_is_not_failed_when_it_was_extended_in_the_gap(
    store: GapStore, scene: StoreHarness
) -> None:
    task = await scene.create_running(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    until = scene.clock.advance(30) + timedelta(seconds=30)
    store.gap = [lambda: _extend(scene, task, until)]
    assert await _sweep(scene) == {}
    assert (await scene.load(task)).phase is Phase.RUNNING


async def test_a_sweep_leaves_alone_what_ended_in_the_gap(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()
    scene.clock.advance(30)
    store.gap = [lambda: scene.apply(task, Complete(1, YES))]
    assert await _sweep(scene) == {}
    assert (await scene.load(task)).phase is Phase.COMPLETED
    assert await _events(scene, task) == [Event.CREATE, Event.CLAIM, Event.COMPLETE]


async def test_of_two_sweeps_one_takes_a_task_back(store: GapStore, scene: StoreHarness) -> None:
    task = await scene.create_running()
    scene.clock.advance(30)
    taken: list[dict[TaskId, Phase]] = []

    async def sweep_first() -> None:
        taken.append(await _sweep(scene))

    store.gap = [sweep_first]
    assert await _sweep(scene) == {}
    assert taken == [{task.id: Phase.QUEUED}]
    assert await _events(scene, task) == [Event.CREATE, Event.CLAIM, Event.INTERRUPT]


async def test_a_sweep_that_loses_one_task_goes_on_with_the_others(store: GapStore, scene: StoreHarness) -> None:
    first, second = await scene.create_running(), await scene.create_running()
    scene.clock.advance(30)
    store.gap = [lambda: scene.apply(first, Complete(1, YES))]
    assert await _sweep(scene) == {second.id: Phase.QUEUED}


async def test_a_sweep_ends_what_is_past_its_deadline_whatever_its_lease(scene: StoreHarness) -> None:
    deadline = scene.clock.now() + timedelta(seconds=30)
    running, waiting = await scene.create_running(deadline_at=deadline), await scene.create(deadline_at=deadline)
    scene.clock.advance(30)
    assert await _sweep(scene) == {running.id: Phase.FAILED, waiting.id: Phase.FAILED}
    for task in (running, waiting):
        view = await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())
        assert view.outcome is not None
        outcome = decode(view.outcome)
        assert isinstance(outcome, dict)
        assert outcome["kind"] == "expired"
        assert view.task.failures == 0


async def test_a_deadline_that_has_not_come_does_not_keep_a_dead_worker(scene: StoreHarness) -> None:
    task = await scene.create_running(deadline_at=scene.clock.now() + timedelta(seconds=31))
    scene.clock.advance(30)
    assert await _sweep(scene) == {task.id: Phase.QUEUED}


async def test_a_sweep_takes_no_more_than_it_was_told(scene: StoreHarness) -> None:
    ids = {(await scene.create_running()).id for _ in range(3)}
    scene.clock.advance(30)
    taken = [await _sweep(scene, limit=2) for _ in range(3)]
    assert [len(part) for part in taken] == [2, 1, 0]
    assert set().union(*taken) == ids


class GenerousStore(GapStore):
    """Says of every live task that it is overdue."""

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return await super().list_overdue(now=now + timedelta(days=1), limit=limit)


async def test_a_sweep_does_not_take_the_stores_word_for_what_is_overdue(fake_clock: FakeClock) -> None:
    store = GenerousStore()
    await store.open()
    scene = StoreHarness(store, fake_clock)
    task = await scene.create_running()
    assert await _sweep(scene) == {}
    assert await scene.load(task) == task
