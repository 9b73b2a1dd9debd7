"""A Hypothesis state machine that runs a store and the reference model side by side and compares their results.

Its rules are biased, because uniformly random operations mostly do nothing of interest. Few tasks are busy at a
time, so that operations meet on the same tasks. A new task is created when one ends or waits, and usually starts at
once. Half of the runs start with a parent and its child. Snapshots that a worker once held are reused on purpose,
long after they went stale. Time jumps to the edges: the end of a lease, the moment a task is due, its expiry, and just
before. Operations that stop everything (cancel, pause) are rare.

    class MyMachine(StoreMachine):
        def make_store(self, folder: Path) -> Store:
            return MyStore(folder / "tasks")

    TestMyMachine = MyMachine.TestCase
"""

from datetime import timedelta
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from raincheck.core.commands import (
    Cancel,
    Command,
    Complete,
    Fail,
    Interrupt,
    Note,
    Park,
    Pause,
    Release,
    Resume,
    Signal,
    Yield,
)
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.policies import Quota, Retention, RetryPolicy
from raincheck.core.records import Progress, Task, TaskId
from raincheck.core.values import encode
from raincheck.stores.base import Store
from raincheck.stores.commit import answer, sweep
from raincheck.stores.requests import ClaimRequest
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, LEASE, NAMESPACE, TOOL, StoreHarness
from raincheck.testing.model_comparison import ModelComparison

T = TypeVar("T")

BUSY = (Phase.QUEUED, Phase.RUNNING)

MAX_BUSY = 2
MAX_LIVE = 4
OWNERS = st.sampled_from([ALICE, BOB])
OFFER = ClaimRequest(NAMESPACE, frozenset({TOOL}), "creator", LEASE, 1)
RARELY = st.integers(0, 7).map(lambda number: number == 0)


class StoreMachine(ModelComparison):
    """The state machine. Subclass it and override `make_store`."""

    # Rules that create and claim tasks.

    @initialize(family=st.booleans())
    def start_with_a_running_task(self, *, family: bool) -> None:
        self.create(priority=0, bounded=False, waits=False, keyed=False, offered=False)
        if family:
            self.spawn(completes=False)

    @precondition(lambda self: sum(task.phase in BUSY for task in self.live()) < MAX_BUSY)
    @rule(
        priority=st.integers(0, 1),
        bounded=st.booleans(),
        waits=RARELY,
        keyed=RARELY,
        offered=st.booleans(),
        owner=OWNERS,
    )
    def create(
        self, *, priority: int, bounded: bool, waits: bool, keyed: bool, offered: bool, owner: Owner = ALICE
    ) -> None:
        now = self.clock.now()
        creation = self.harness.creation(
            owner=owner,
            priority=priority,
            due_at=now + timedelta(seconds=10) if waits else None,
            deadline_at=now + timedelta(seconds=300) if bounded else None,
            idempotency_key="key" if keyed else None,
            request_digest="digest" if keyed else None,
            retry=RetryPolicy(attempts=3, jitter=0),
            retention=Retention(keep=timedelta(seconds=60)),
        )
        claim = OFFER if offered and self.store.capabilities.supports_direct_start else None
        outcome = self.run_on_both(
            lambda store: store.create(creation, quota=Quota(live=MAX_LIVE), now=now, claim=claim)
        )
        if isinstance(outcome, Task) and outcome.id not in self.ids:
            self.ids.append(outcome.id)
            self.add_snapshots(outcome)
        self.claim(limit=MAX_BUSY)

    @precondition(lambda self: bool(self.snapshots) and len(self.live()) < MAX_LIVE)
    @rule(completes=RARELY)
    def spawn(self, *, completes: bool) -> None:
        snapshot = self.snapshots[-1]
        creation = self.harness.creation(
            owner=snapshot.owner,
            parent_id=None if completes else snapshot.id,
            retry=RetryPolicy(attempts=3, jitter=0),
            retention=Retention(keep=timedelta(seconds=60)),
        )
        spawned, quota = (creation,), Quota(live=MAX_LIVE)
        complete = Complete(snapshot.attempt_number, encode("done"), spawned=spawned, quota=quota)
        if self.commit_from(
            snapshot, complete if completes else Note(snapshot.attempt_number, spawned=spawned, quota=quota)
        ):
            self.ids.append(creation.task.id)
        self.claim(limit=MAX_BUSY)

    @rule(limit=st.integers(1, 2))
    def claim(self, limit: int) -> None:
        async def take(store: Store) -> tuple[Task, ...]:
            return await StoreHarness(store, self.clock).claim(limit=limit)

        outcome = self.run_on_both(take)
        if isinstance(outcome, tuple):
            self.add_snapshots(*outcome)

    # Rules of workers, which act on their snapshots.

    @precondition(lambda self: bool(self.snapshots))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        snapshot = data.draw(st.sampled_from(self.snapshots))
        self.commit_from(snapshot, Complete(snapshot.attempt_number, encode(snapshot.attempt_number)))
        durations = {snapshot.tool.name: DurationHistogram().with_duration(snapshot.attempt_number)}
        self.run_on_both(lambda store: store.merge_durations(NAMESPACE, durations))

    @precondition(lambda self: bool(self.snapshots))
    @rule(data=st.data(), signals_seen=st.booleans(), sleeps=st.booleans(), retryable=st.booleans())
    def end_or_release_attempt(self, data: st.DataObject, *, signals_seen: bool, sleeps: bool, retryable: bool) -> None:
        snapshot = data.draw(st.sampled_from(self.snapshots))
        until = self.clock.now() + timedelta(seconds=20) if sleeps else None
        commands = [
            Release(snapshot.attempt_number),
            Park(snapshot.attempt_number, snapshot.signals if signals_seen else snapshot.signals + 1, until),
            Fail(snapshot.attempt_number, encode({"message": "broke"}), "broke", retryable=retryable),
            Yield(snapshot.attempt_number),
        ]
        self.commit_from(snapshot, data.draw(st.sampled_from(commands)))

    @precondition(lambda self: bool(self.snapshots))
    @rule(data=st.data(), done=st.integers(0, 3), extends=st.booleans())
    def note(self, data: st.DataObject, done: int, *, extends: bool) -> None:
        snapshot = data.draw(st.sampled_from(self.snapshots))
        self.input_request_count += 1
        notes = [
            Note(snapshot.attempt_number, Progress(done, 3)),
            Note(snapshot.attempt_number, status_message=f"part {done}", variables=encode(done)),
            Note(snapshot.attempt_number, steps=(self.harness.step("step", done),)),
            Note(
                snapshot.attempt_number,
                input_requests=(self.harness.input_request(f"question {self.input_request_count}"),),
            ),
        ]
        self.commit_from(snapshot, data.draw(st.sampled_from(notes)), extends=extends)

    @precondition(lambda self: bool(self.snapshots))
    @rule(seconds=st.integers(1, 60))
    def extend(self, seconds: int) -> None:
        """Send a heartbeat for every snapshot, as holders that believe their lease is valid."""
        for snapshot in self.snapshots:
            self.extend_lease(snapshot, seconds)

    # Rules of callers, operators, the sweeper and the clock.

    @precondition(lambda self: bool(self.ids))
    @rule(data=st.data(), stops=RARELY)
    def control_a_task(self, data: st.DataObject, *, stops: bool) -> None:
        task_id = data.draw(st.sampled_from(self.ids[-3:]))
        stopping: list[Command] = [Pause("operator"), Cancel("alice")]
        mild: list[Command] = [Resume("operator"), Signal("child", "child ended")]
        self.apply_to(task_id, data.draw(st.sampled_from(stopping if stops else mild)))

    @precondition(lambda self: any(task.parent_id is not None for task in self.live()))
    @rule(data=st.data(), above=st.booleans())
    def cancel_in_a_family(self, data: st.DataObject, *, above: bool) -> None:
        children = {task.id: task.parent_id for task in self.live() if task.parent_id is not None}
        child_id = data.draw(st.sampled_from(sorted(children)))
        self.apply_to(children[child_id] if above else child_id, Cancel("alice"))

    @precondition(lambda self: bool(self.ids) and self.input_request_count > 0)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(self.ids[-3:]))
        answers = {f"question {data.draw(st.integers(1, self.input_request_count))}": encode("yes")}
        now = self.clock.now()
        self.run_on_both(lambda store: answer(store, task_id, EVERYTHING, answers, actor="alice", now=now))

    @precondition(lambda self: bool(self.ids_with_key()))
    @rule(data=st.data(), right=st.booleans())
    def release_key(self, data: st.DataObject, *, right: bool) -> None:
        task_id = data.draw(st.sampled_from(self.ids_with_key()))
        self.run_on_both(lambda store: store.release_key(task_id, "key" if right else "another key"))

    @rule()
    def sweep(self) -> None:
        now = self.clock.now()

        async def swept(store: Store) -> list[Task]:
            return sorted(await sweep(store, now=now), key=lambda task: task.id)

        self.run_on_both(swept)

    @precondition(lambda self: any(task.attempt is not None for task in self.live()))
    @rule(data=st.data(), gap=st.sampled_from(["extend", "finish", "nothing"]))
    def sweep_with_a_gap(self, data: st.DataObject, gap: str) -> None:
        """List an overdue attempt, then interrupt it. In between, its holder may extend the lease or finish."""
        now = self.jump_past_all_leases()

        async def list_overdue(store: Store) -> list[Task]:
            return sorted(await store.list_overdue(now=now, limit=10), key=lambda task: task.id)

        listed = self.run_on_both(list_overdue)
        assert isinstance(listed, list)
        running = [task for task in listed if task.attempt is not None]
        overdue = data.draw(st.sampled_from(running))
        if gap == "extend":
            self.extend_lease(overdue, seconds=30)
        elif gap == "finish":
            self.commit_from(overdue, Complete(overdue.attempt_number, encode("in time")))
        self.commit_from(overdue, Interrupt())

    @precondition(lambda self: any(task.attempt is not None for task in self.live()))
    @rule()
    def take_over(self) -> None:
        """Expire all leases and let another worker claim: the quickest way to a stale holder."""
        self.jump_past_all_leases()
        self.sweep()
        self.claim(limit=2)

    @rule(named=st.booleans())
    def prune(self, *, named: bool) -> None:
        now, only = self.clock.now(), self.ids[-3:] if named else None

        async def pruned(store: Store) -> list[TaskId]:
            return sorted(await store.prune(now=now, limit=10, only=only))

        self.run_on_both(pruned)

    @rule(data=st.data(), early=st.booleans())
    def jump_to_an_edge(self, data: st.DataObject, *, early: bool) -> None:
        tasks = [task for task_id in self.ids[-3:] if (task := self.current(task_id)) is not None]
        leases = [task.attempt.lease.expires_at for task in tasks if task.attempt is not None]
        moments = [at for task in tasks for at in (task.due_at, task.deadline_at, task.expires_at) if at is not None]
        edges = [at for at in (*leases, *moments) if at >= self.clock.now()]
        if edges:
            edge = data.draw(st.sampled_from(edges))
            self.clock.jump_to(edge - timedelta(microseconds=1) if early else edge)

    @precondition(lambda self: self.store.capabilities.durable)
    @rule()
    def reopen(self) -> None:
        """Stop and start the process: a store that answers reads from memory must have written all of it."""
        self.reopen_store()

    # Invariants, checked after each rule.

    @invariant()
    def recent_tasks_are_the_same(self) -> None:
        now = self.clock.now()
        for task_id in self.ids[-2:]:
            self.run_on_both(lambda store, task_id=task_id: store.view(task_id, EVERYTHING, now=now))
        self.run_on_both(lambda store: store.next_due(NAMESPACE, frozenset({TOOL})))
