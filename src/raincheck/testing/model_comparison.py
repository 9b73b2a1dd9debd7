"""Run every operation on a store and on the reference model, and require equal results and equal errors."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from raincheck.core.commands import Command
from raincheck.core.decide import decide
from raincheck.core.records import Task, TaskId
from raincheck.errors import RaincheckError, StaleChange
from raincheck.stores.base import Store
from raincheck.stores.commit import apply
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import HeldAttempt, TaskQuery
from raincheck.testing.clock import FakeClock
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, NAMESPACE, StoreHarness, outcome_of
from raincheck.testing.invariants import check_invariants

T = TypeVar("T")


class ModelComparison(RuleBasedStateMachine):
    """Base of the state machine: runs operations on both stores, collects worker snapshots, compares contents."""

    def make_store(self, folder: Path) -> Store:
        """Return a store that is not opened yet. If it is durable, the same folder means the same data."""
        raise NotImplementedError("no store to test: override make_store")

    def __init__(self) -> None:
        super().__init__()
        # One event loop for all rules: starting a runner for each rule costs more than the rule itself.
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="raincheck-machine-"))
        self.clock = FakeClock()
        self.model, self.store = MemoryStore(), self.make_store(self.folder)
        self.loop.run_until_complete(self.model.open())
        self.loop.run_until_complete(self.store.open())
        self.secret = self.loop.run_until_complete(self.store.get_or_create_secret("machine"))
        self.harness = StoreHarness(self.model, self.clock)
        self.ids: list[TaskId] = []
        self.snapshots: list[Task] = []
        self.ended: dict[TaskId, Task] = {}
        self.input_request_count: int = 0

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(check_invariants(self.store, self.ended))
            self.compare_everything()
        finally:
            self.loop.run_until_complete(self.store.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def run_on_both(self, action: Callable[[Store], Awaitable[T]]) -> T | RaincheckError:
        """Run an action on the model and on the store, and require the same result or the same error."""

        async def run() -> tuple[T | RaincheckError, T | RaincheckError]:
            return await outcome_of(action(self.model)), await outcome_of(action(self.store))

        expected, found = self.loop.run_until_complete(run())
        if isinstance(expected, RaincheckError) or isinstance(found, RaincheckError):
            is_same = (type(found), str(found)) == (type(expected), str(expected))
        else:
            is_same = found == expected
        assert is_same, f"your store returned\n  {found!r}\nbut the model returned\n  {expected!r}"
        return expected

    def reopen_store(self) -> None:
        """Replace the store by a new one on the same data, as a restart does."""
        self.loop.run_until_complete(self.store.close())
        self.store = self.make_store(self.folder)
        self.loop.run_until_complete(self.store.open())
        self.compare_everything()

    def commit_from(self, snapshot: Task, command: Command, *, extends: bool = False) -> bool:
        """Decide a command on a snapshot, stale or not, and commit the change to both stores.

        With `extends`, the lease is extended between decision and commit. Returns whether the change was committed.
        """
        change = decide(snapshot, command, self.clock.now())
        if change is None:
            return False
        if extends:
            self.extend_lease(snapshot, seconds=40)
        current = self.current(snapshot.id)
        outcome = self.run_on_both(lambda store: store.commit([change]))
        # Staleness matters most, so the expected outcome is computed here rather than taken from the model.
        is_stale = current is None or current.version != snapshot.version
        if change.lease_seen is not None and current is not None and current.attempt is not None:
            is_stale |= current.attempt.lease.expires_at != change.lease_seen
        assert isinstance(outcome, StaleChange) == is_stale
        if isinstance(outcome, RaincheckError):
            return False
        self.add_snapshots(change.after)
        return True

    def extend_lease(self, snapshot: Task, seconds: int) -> None:
        until = self.clock.now() + timedelta(seconds=seconds)
        held_attempts = [HeldAttempt(snapshot.id, snapshot.attempt_number)]
        self.run_on_both(lambda store: store.extend_leases(held_attempts, until=until))

    def jump_past_all_leases(self) -> datetime:
        leases = [task.attempt.lease.expires_at for task in self.live() if task.attempt is not None]
        return self.clock.jump_to(max([self.clock.now(), *leases]))

    def apply_to(self, task_id: TaskId, command: Command) -> None:
        now = self.clock.now()
        self.run_on_both(lambda store: apply(store, task_id, EVERYTHING, command, now=now))

    def current(self, task_id: TaskId) -> Task | None:
        outcome = self.loop.run_until_complete(
            outcome_of(self.model.load(task_id, EVERYTHING, now=self.clock.now() - timedelta(days=10_000)))
        )
        return outcome if isinstance(outcome, Task) else None

    def live(self) -> list[Task]:
        tasks = (self.current(task_id) for task_id in self.ids)
        return [task for task in tasks if task is not None and not task.is_terminal]

    def ids_with_key(self) -> list[TaskId]:
        tasks = (self.current(task_id) for task_id in self.ids[-3:])
        return [task.id for task in tasks if task is not None and task.idempotency_key is not None]

    def add_snapshots(self, *tasks: Task) -> None:
        """Add worker snapshots of running tasks, and discard all but the most useful.

        For each live task the newest snapshot and the one of its oldest attempt stay; of the tasks that ended, only
        the last snapshot.
        """
        seen = [*self.snapshots, *(task for task in tasks if task.attempt is not None)]
        live = {task.id for task in self.live()}
        of_live = [task for task in seen if task.id in live]
        ended = [task for task in seen if task.id not in live][-1:]
        newest = {task.id: task for task in of_live}
        earlier = [task for task in of_live if task.attempt_number < newest[task.id].attempt_number]
        oldest = {task.id: task for task in reversed(earlier)}
        self.snapshots = [*ended, *oldest.values(), *newest.values()]

    def compare_everything(self) -> None:
        now = self.clock.now()
        for scope in (EVERYTHING, *(type(EVERYTHING).for_owner("reports", owner) for owner in (ALICE, BOB))):
            self.run_on_both(lambda store, scope=scope: store.list_tasks(TaskQuery(scope), now=now))
            self.run_on_both(lambda store, scope=scope: store.count_live(scope))
        for task_id in self.ids:
            self.run_on_both(lambda store, task_id=task_id: store.view(task_id, EVERYTHING, now=now))
            self.run_on_both(lambda store, task_id=task_id: store.journal(task_id, EVERYTHING, now=now))
            self.run_on_both(lambda store, task_id=task_id: store.history(task_id, EVERYTHING, now=now))
        self.run_on_both(lambda store: store.merge_durations(NAMESPACE, {}))
        # The secret is random, so it is compared with its earlier value and not with the model's.
        secret = self.loop.run_until_complete(self.store.get_or_create_secret("machine"))
        assert secret == self.secret, "its secret changed"
