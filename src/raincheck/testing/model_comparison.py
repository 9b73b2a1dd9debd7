"""A store and the reference model, to which the same is done, and which must agree on every result and every error."""

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
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, NAMESPACE, Scene
from raincheck.testing.invariants import check_invariants

T = TypeVar("T")


class SideBySide(RuleBasedStateMachine):
    """The frame of the machine: what is done to both, what is in hand, and what is compared."""

    def make_store(self, folder: Path) -> Store:
        """A store, not opened yet, that keeps its data (if it has any) in this empty folder."""
        raise NotImplementedError("say how to make your store: override make_store")

    def __init__(self) -> None:
        super().__init__()
        # One plain loop for all: starting a runner for each rule costs more than the rules.
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="raincheck-machine-"))
        self.clock = FakeClock()
        self.model, self.store = MemoryStore(), self.make_store(self.folder)
        self.loop.run_until_complete(self.model.open())
        self.loop.run_until_complete(self.store.open())
        self.secret = self.loop.run_until_complete(self.store.secret("machine"))
        self.scene = Scene(self.model, self.clock)
        self.ids: list[TaskId] = []
        self.hands: list[Task] = []
        self.ended: dict[TaskId, Task] = {}
        self.keys: int = 0

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(check_invariants(self.store, self.ended))
            self.compare_everything()
            # Random, so it is compared with itself and not with the model's.
            assert self.loop.run_until_complete(self.store.secret("machine")) == self.secret, "its secret changed"
        finally:
            self.loop.run_until_complete(self.store.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def both(self, action: Callable[[Store], Awaitable[T]]) -> T | RaincheckError:
        """Do it to the model and to the store; they must agree on the result, or on the error."""

        async def run() -> tuple[T | RaincheckError, T | RaincheckError]:
            return await _outcome(action(self.model)), await _outcome(action(self.store))

        expected, found = self.loop.run_until_complete(run())
        if isinstance(expected, RaincheckError) or isinstance(found, RaincheckError):
            is_same = (type(found), str(found)) == (type(expected), str(expected))
        else:
            is_same = found == expected
        assert is_same, f"your store gave\n  {found!r}\nand the model\n  {expected!r}"
        return expected

    def commit_from(self, hand: Task, command: Command, *, extends: bool = False) -> bool:
        """Decide on what is in hand, stale or not, and commit that to both; in the gap its lease may be extended.

        Returns whether it was kept.
        """
        change = decide(hand, command, self.clock.now())
        if change is None:
            return False
        if extends:
            self.extend_lease(hand, seconds=40)
        current = self.current(hand.id)
        outcome = self.both(lambda store: store.commit([change]))
        # The model is not taken at its word in what matters most.
        is_stale = current is None or current.version != hand.version
        if change.lease_seen is not None and current is not None and current.attempt is not None:
            is_stale |= current.attempt.lease.expires_at != change.lease_seen
        assert isinstance(outcome, StaleChange) == is_stale
        if isinstance(outcome, RaincheckError):
            return False
        self.keep(change.after)
        return True

    def extend_lease(self, hand: Task, seconds: int) -> None:
        until = self.clock.now() + timedelta(seconds=seconds)
        self.both(lambda store: store.extend_leases([HeldAttempt(hand.id, hand.fence)], until=until))

    def jump_past_all_leases(self) -> datetime:
        leases = [task.attempt.lease.expires_at for task in self.live() if task.attempt is not None]
        return self.clock.jump_to(max([self.clock.now(), *leases]))

    def apply_to(self, task_id: TaskId, command: Command) -> None:
        now = self.clock.now()
        self.both(lambda store: apply(store, task_id, EVERYTHING, command, now=now))

    def current(self, task_id: TaskId) -> Task | None:
        outcome = self.loop.run_until_complete(
            _outcome(self.model.load(task_id, EVERYTHING, now=self.clock.now() - timedelta(days=10_000)))
        )
        return outcome if isinstance(outcome, Task) else None

    def live(self) -> list[Task]:
        tasks = (self.current(task_id) for task_id in self.ids)
        return [task for task in tasks if task is not None and not task.is_terminal]

    def keyed(self) -> list[TaskId]:
        tasks = (self.current(task_id) for task_id in self.ids[-3:])
        return [task.id for task in tasks if task is not None and task.idempotency_key is not None]

    def keep(self, *tasks: Task) -> None:
        """Take tasks in hand.

        Of each live one there stay in hand the newest and the one of the oldest attempt; of those that ended,
        the last.
        """
        hands = [*self.hands, *(task for task in tasks if task.attempt is not None)]
        live = {task.id for task in self.live()}
        ended = [hand for hand in hands if hand.id not in live][-1:]
        newest = {hand.id: hand for hand in hands if hand.id in live}
        oldest = {hand.id: hand for hand in reversed(hands) if hand.id in live and hand.fence < newest[hand.id].fence}
        self.hands = [*ended, *oldest.values(), *newest.values()]

    def compare_everything(self) -> None:
        now = self.clock.now()
        for scope in (EVERYTHING, *(type(EVERYTHING).of("reports", owner) for owner in (ALICE, BOB))):
            self.both(lambda store, scope=scope: store.list_tasks(TaskQuery(scope), now=now))
            self.both(lambda store, scope=scope: store.count_live(scope))
        for task_id in self.ids:
            self.both(lambda store, task_id=task_id: store.journal(task_id, EVERYTHING, now=now))
            self.both(lambda store, task_id=task_id: store.history(task_id, EVERYTHING, now=now))
        self.both(lambda store: store.learn(NAMESPACE, {}))


async def _outcome(doing: Awaitable[T]) -> T | RaincheckError:
    try:
        return await doing
    except RaincheckError as error:
        return error
