"""The state machine finds planted bugs: the CI profile must find each one in all but one of several runs.

At night it must find each in 9 of 10 runs; three runs, of which two must find it, take a third of that time.

A bug is planted where the SQL goes to the database: the connection that the store is given drops a guard from a
statement. The store's own code and files stay as they are.
"""

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import StoreMachine

RUNS = 10 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 3

PLANTED = {
    "a stale attempt may write": ("AND version = :expected_version", ""),
    "a stale holder may extend the lease of its successor": ("AND fence = :fence", ""),
    "a sweep interrupts a holder that extended in time": (":lease_seen IS NULL OR", ":lease_seen IS :lease_seen OR"),
    "a change shortens a lease that was extended": ("WHEN phase = 'running' AND :phase = 'running'", "WHEN 0"),
    "an ended task can be claimed again": ("AND phase = 'queued'", "AND phase IN ('queued', 'completed')"),
    "an expired task can still be read": ("(expires_at IS NULL OR expires_at > :now)", "1"),
    "a child outlives its parent": ("parent_id = ? AND finished_at IS NULL", "parent_id = ? AND 0"),
    "a parent gets no signal of its child's end": ("FROM tasks WHERE id = ?", "FROM tasks WHERE id = ? AND 0"),
    "durations that are merged later are lost": ("DO UPDATE SET counts = excluded.counts", "DO NOTHING"),
    "a task that has not expired is pruned": ("WHERE expires_at <= :now", "WHERE expires_at <= :now + 60000000"),
}


class BuggyConnection(sqlite3.Connection):
    """Drops a guard from every statement that has it."""

    guard = ""
    instead = ""
    times_planted = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if self.guard in sql:
            type(self).times_planted += 1
        return super().execute(sql.replace(self.guard, self.instead), parameters)


def buggy_connect(factory: type[BuggyConnection], path: str, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, factory=factory)


def machine_with(connect: Callable[[str, float], sqlite3.Connection]) -> type[StoreMachine]:
    class BuggyMachine(StoreMachine):
        def make_store(self, folder: Path) -> SqliteStore:
            return SqliteStore(folder / "tasks.db", synchronous="NORMAL", connect=connect)

    return BuggyMachine


def is_found(machine: type[StoreMachine], run: int) -> bool:
    # As in CI, but without shrinking: whether a bug is found is decided before that.
    profile = settings(settings.get_profile("ci"), phases=[Phase.generate], database=None)
    try:
        run_state_machine_as_test(seed(run)(machine), settings=profile)
    except Exception:  # noqa: BLE001 - however the bug shows, it was found
        return True
    return False


@pytest.mark.parametrize("bug", PLANTED)
def test_the_state_machine_finds_a_planted_bug_in_all_runs_but_one(bug: str) -> None:
    guard, instead = PLANTED[bug]
    factory = type("Planted", (BuggyConnection,), {"guard": guard, "instead": instead})
    machine = machine_with(partial(buggy_connect, factory))
    found = sum(is_found(machine, run) for run in range(RUNS))
    assert factory.times_planted > 0
    assert found >= RUNS - 1


def test_the_state_machine_finds_nothing_without_a_planted_bug() -> None:
    factory = type("Unplanted", (BuggyConnection,), {"guard": "no statement has this", "instead": ""})
    assert not is_found(machine_with(partial(buggy_connect, factory)), run=0)
