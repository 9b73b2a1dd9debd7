"""Read, decide, commit, when another writer commits first: its whole operation runs between read and commit."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import pytest

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Complete, Note, Pause, Resume
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import Limits, OnInterrupt, Retention, RetryPolicy
from raincheck.core.records import Progress, Task, TaskId
from raincheck.core.values import Payload, decode, encode
from raincheck.errors import IllegalTransition, LeaseLost, StoreUnavailable, TaskNotFound, TooLarge
from raincheck.stores.commit import answer, apply, sweep
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import HeldAttempt
from raincheck.testing import FakeClock, StoreHarness, check_invariants
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, NAMESPACE

pytestmark = pytest.mark.anyio

YES, NO = encode("yes"), encode("no")


class GapStore(MemoryStore):
    """A store in which another writer commits between the read of a task and the commit of its change."""

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
def harness(store: GapStore, fake_clock: FakeClock) -> StoreHarness:
    return StoreHarness(store, fake_clock)


async def _events(harness: StoreHarness, task: Task) -> list[Event]:
    return [entry.event for entry in await harness.history(task)]


async def test_a_completion_after_a_cancel_is_refused(store: GapStore, harness: StoreHarness) -> None:
    task = await harness.create_running()
    store.gap = [lambda: harness.apply(task, Cancel("alice"))]
    with pytest.raises(LeaseLost):
        await harness.apply(task, Complete(1, YES))
    view = await store.view(task.id, EVERYTHING, now=harness.clock.now())
    assert (view.task.phase, view.outcome) == (Phase.CANCELLED, None)
    assert await _events(harness, task) == [Event.CREATE, Event.CLAIM, Event.CANCEL]


async def test_a_cancel_after_a_completion_is_refused(store: GapStore, harness: StoreHarness) -> None:
    task = await harness.create_running()
    store.gap = [lambda: harness.apply(task, Complete(1, YES))]
    with pytest.raises(IllegalTransition):
        await harness.apply(task, Cancel("alice"))
    view = await store.view(task.id, EVERYTHING, now=harness.clock.now())
    assert (view.task.phase, view.outcome) == (Phase.COMPLETED, YES)
    assert await _events(harness, task) == [Event.CREATE, Event.CLAIM, Event.COMPLETE]


async def test_a_command_that_is_still_valid_is_decided_again_and_both_changes_are_stored(
    store: GapStore, harness: StoreHarness
) -> None:
    task = await harness.create_running()
    store.gap = [lambda: harness.apply(task, Note(1, Progress(5), "five"))]
    paused = await harness.apply(task, Pause("operator"))
    assert (paused.pausing, paused.progress, paused.status_message) == (True, Progress(5), "five")
    assert await harness.load(task) == paused
    assert paused.version == task.version + 2
    assert await _events(harness, task) == [Event.CREATE, Event.CLAIM, Event.NOTE, Event.PAUSE]


async def test_a_command_is_retried_however_often_other_writers_are_faster(
    store: GapStore, harness: StoreHarness
) -> None:
    task = await harness.create_running()

    def note(number: int) -> Callable[[], Awaitable[object]]:
        return lambda: harness.apply(task, Note(1, Progress(number)))

    # A different note is committed in each round, so that A loses twenty times. No other note interferes with it.
    pending = [note(number) for number in range(1, 21)]

    async def commit_first() -> None:
        first = pending.pop(0)
        await first()
        store.gap = [commit_first] if pending else []

    store.gap = [commit_first]
    done = await harness.apply(task, Complete(1, YES))
    assert (done.phase, done.progress, done.version) == (Phase.COMPLETED, Progress(20), task.version + 21)
    assert store.commits == 41


async def test_a_command_that_became_unnecessary_meanwhile_changes_nothing(
    store: GapStore, harness: StoreHarness
) -> None:
    task = await harness.create_running()
    store.gap = [lambda: harness.apply(task, Pause("operator"))]
    paused = await harness.apply(task, Pause("alice"))
    assert (paused.pausing, paused.version) == (True, task.version + 1)
    assert await _events(harness, task) == [Event.CREATE, Event.CLAIM, Event.PAUSE]


async def test_an_unnecessary_command_commits_nothing(store: GapStore, harness: StoreHarness) -> None:
    task = await harness.create_running()
    assert await harness.apply(task, Resume("operator")) == task
    assert store.commits == 0


async def test_a_task_that_was_pruned_meanwhile_is_not_found(store: GapStore, harness: StoreHarness) -> None:
    task = await harness.create_running(retention=Retention(keep=timedelta(0)))

    async def end_and_prune() -> None:
        await harness.apply(task, Complete(1, YES))
        assert await store.prune(now=harness.clock.now(), limit=1) == (task.id,)

    store.gap = [end_and_prune]
    with pytest.raises(TaskNotFound):
        await harness.apply(task, Cancel("alice"))


async def test_a_failing_store_is_not_retried(store: GapStore, harness: StoreHarness) -> None:
    task = await harness.create_running()
    store.gap = [store.close]
    with pytest.raises(StoreUnavailable):
        await harness.apply(task, Cancel("alice"))
    assert store.commits == 1
    await store.open()
    assert (await harness.load(task)).phase is Phase.RUNNING


async def test_a_command_applies_only_to_tasks_in_its_scope(store: GapStore, harness: StoreHarness) -> None:
    task, now = await harness.create_running(), harness.clock.now()
    for scope in (Scope.for_owner(NAMESPACE, BOB), Scope.for_owner("other", ALICE)):
        with pytest.raises(TaskNotFound):
            await apply(store, task.id, scope, Cancel("bob"), now=now)
        with pytest.raises(TaskNotFound):
            await answer(store, task.id, scope, {"a": YES}, actor="bob", now=now)
    assert await harness.load(task) == task
    mine = Scope.for_owner(NAMESPACE, ALICE)
    assert (await apply(store, task.id, mine, Cancel("alice"), now=now)).phase is Phase.CANCELLED


async def test_the_given_limits_apply(store: GapStore, harness: StoreHarness) -> None:
    task, now = await harness.create_running(), harness.clock.now()
    tight = Limits(outcome=2, answer=2)
    with pytest.raises(TooLarge):
        await apply(store, task.id, EVERYTHING, Complete(1, YES), now=now, limits=tight)
    await harness.apply(task, Note(1, input_requests=(harness.input_request("a"),)))
    with pytest.raises(TooLarge):
        await answer(store, task.id, EVERYTHING, {"a": YES}, actor="alice", now=now, limits=tight)


async def _asking(harness: StoreHarness, *keys: str) -> Task:
    task = await harness.create_running()
    return await harness.apply(task, Note(1, input_requests=tuple(harness.input_request(key) for key in keys)))


async def _answers(harness: StoreHarness, task: Task) -> dict[str, Payload | None]:
    journal = await harness.store.journal(task.id, EVERYTHING, now=harness.clock.now())
    return {question.key: question.answer for question in journal.inputs}


def _answer(harness: StoreHarness, task: Task, **answers: Payload) -> Awaitable[Task]:
    return answer(harness.store, task.id, EVERYTHING, answers, actor="alice", now=harness.clock.now())


async def test_of_two_answers_to_one_question_the_first_counts(store: GapStore, harness: StoreHarness) -> None:
    task = await _asking(harness, "a")
    store.gap = [lambda: _answer(harness, task, a=YES)]
    late = await _answer(harness, task, a=NO)
    assert await _answers(harness, task) == {"a": YES}
    assert (late.signals, late.open_inputs, late.version) == (1, 0, task.version + 1)


async def test_answers_that_are_partly_too_late_are_stored_in_part(store: GapStore, harness: StoreHarness) -> None:
    task = await _asking(harness, "a", "b", "c")
    store.gap = [lambda: _answer(harness, task, a=YES)]
    late = await _answer(harness, task, a=NO, b=NO)
    assert await _answers(harness, task) == {"a": YES, "b": NO, "c": None}
    assert (late.signals, late.open_inputs) == (2, 1)


async def test_an_answer_after_the_end_is_refused(store: GapStore, harness: StoreHarness) -> None:
    task = await _asking(harness, "a")
    store.gap = [lambda: harness.apply(task, Cancel("alice"))]
    with pytest.raises(IllegalTransition):
        await _answer(harness, task, a=YES)
    assert await _answers(harness, task) == {"a": None}


async def test_unknown_keys_change_nothing(store: GapStore, harness: StoreHarness) -> None:
    task = await _asking(harness, "a")
    commits = store.commits
    assert await _answer(harness, task, b=YES) == task
    assert store.commits == commits


async def _extend(harness: StoreHarness, task: Task, until: datetime) -> None:
    assert await harness.store.extend_leases([HeldAttempt(task.id, task.attempt_number)], until=until) == frozenset()


async def _sweep(harness: StoreHarness, limit: int = 100) -> dict[TaskId, Phase]:
    return {task.id: task.phase for task in await sweep(harness.store, now=harness.clock.now(), limit=limit)}


async def test_a_sweep_interrupts_attempts_of_a_dead_worker(harness: StoreHarness) -> None:
    task = await harness.create_running()
    harness.clock.advance(29)
    assert await _sweep(harness) == {}
    harness.clock.advance(1)
    assert await _sweep(harness) == {task.id: Phase.QUEUED}
    assert await _sweep(harness) == {}
    assert (await harness.load(task)).failures == 1


async def test_a_sweep_does_not_interrupt_a_lease_that_was_extended_meanwhile(
    store: GapStore, harness: StoreHarness
) -> None:
    task = await harness.create_running()
    until = harness.clock.advance(30) + timedelta(seconds=30)
    store.gap = [lambda: _extend(harness, task, until)]
    assert await _sweep(harness) == {}
    held = await harness.load(task)
    assert (held.phase, held.failures, held.attempt_number) == (Phase.RUNNING, 0, 1)
    assert held.attempt is not None
    assert held.attempt.lease.expires_at == until
    assert (await harness.apply(task, Complete(1, YES))).phase is Phase.COMPLETED


async def test_a_sweep_does_not_fail_a_task_whose_lease_was_extended_meanwhile(
    store: GapStore, harness: StoreHarness
) -> None:
    task = await harness.create_running(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    until = harness.clock.advance(30) + timedelta(seconds=30)
    store.gap = [lambda: _extend(harness, task, until)]
    assert await _sweep(harness) == {}
    assert (await harness.load(task)).phase is Phase.RUNNING


async def test_a_sweep_does_not_change_a_task_that_ended_meanwhile(store: GapStore, harness: StoreHarness) -> None:
    task = await harness.create_running()
    harness.clock.advance(30)
    store.gap = [lambda: harness.apply(task, Complete(1, YES))]
    assert await _sweep(harness) == {}
    assert (await harness.load(task)).phase is Phase.COMPLETED
    assert await _events(harness, task) == [Event.CREATE, Event.CLAIM, Event.COMPLETE]


async def test_of_two_sweeps_only_one_interrupts_a_task(store: GapStore, harness: StoreHarness) -> None:
    task = await harness.create_running()
    harness.clock.advance(30)
    taken: list[dict[TaskId, Phase]] = []

    async def sweep_first() -> None:
        taken.append(await _sweep(harness))

    store.gap = [sweep_first]
    assert await _sweep(harness) == {}
    assert taken == [{task.id: Phase.QUEUED}]
    assert await _events(harness, task) == [Event.CREATE, Event.CLAIM, Event.INTERRUPT]


async def test_a_sweep_that_loses_one_task_continues_with_the_rest(store: GapStore, harness: StoreHarness) -> None:
    first, second = await harness.create_running(), await harness.create_running()
    harness.clock.advance(30)
    store.gap = [lambda: harness.apply(first, Complete(1, YES))]
    assert await _sweep(harness) == {second.id: Phase.QUEUED}


async def test_a_sweep_ends_tasks_past_their_deadline_whatever_their_lease(harness: StoreHarness) -> None:
    deadline = harness.clock.now() + timedelta(seconds=30)
    running, waiting = await harness.create_running(deadline_at=deadline), await harness.create(deadline_at=deadline)
    harness.clock.advance(30)
    assert await _sweep(harness) == {running.id: Phase.FAILED, waiting.id: Phase.FAILED}
    for task in (running, waiting):
        view = await harness.store.view(task.id, EVERYTHING, now=harness.clock.now())
        assert view.outcome is not None
        outcome = decode(view.outcome)
        assert isinstance(outcome, dict)
        assert outcome["kind"] == "expired"
        assert view.task.failures == 0


async def test_a_later_deadline_does_not_protect_an_expired_lease(harness: StoreHarness) -> None:
    task = await harness.create_running(deadline_at=harness.clock.now() + timedelta(seconds=31))
    harness.clock.advance(30)
    assert await _sweep(harness) == {task.id: Phase.QUEUED}


async def test_a_sweep_respects_its_limit(harness: StoreHarness) -> None:
    ids = {(await harness.create_running()).id for _ in range(3)}
    harness.clock.advance(30)
    taken = [await _sweep(harness, limit=2) for _ in range(3)]
    assert [len(part) for part in taken] == [2, 1, 0]
    assert set().union(*taken) == ids


class GenerousStore(GapStore):
    """Lists every live task as overdue."""

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return await super().list_overdue(now=now + timedelta(days=1), limit=limit)


async def test_a_sweep_checks_that_tasks_are_overdue(fake_clock: FakeClock) -> None:
    store = GenerousStore()
    await store.open()
    harness = StoreHarness(store, fake_clock)
    task = await harness.create_running()
    assert await _sweep(harness) == {}
    assert await harness.load(task) == task
