"""The turns that tasks get in the fair queue."""

from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.commands import Release
from raincheck.core.effects import QueuePosition, enters_queue, next_turn
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import Task, TaskId, Tool
from tests.support.core.tasks import CLAIM, SITUATIONS, START, after, created

ALICE, BOB = Owner.token("issuer", "alice"), Owner.token("issuer", "bob")
OLD = Tool("build_report", "0")


def _new(owner: Owner = ALICE, **fields: Any) -> Task:
    return created(owner=owner, **fields)


def _going_on(owner: Owner = ALICE) -> Task:
    return after(_new(owner), CLAIM, Release(1))


def test_the_first_turn_comes_after_the_served_one() -> None:
    assert next_turn(_new(), [], 0) == 1
    assert next_turn(_new(), [], 7) == 8


def test_an_owners_next_task_gets_the_next_turn() -> None:
    assert next_turn(_new(), [(_new(), 4), (_new(), 7), (_new(BOB), 5)], 3) == 8


def test_an_owner_without_queued_tasks_gets_the_turn_after_the_served_one() -> None:
    assert next_turn(_new(BOB), [(_new(), 4), (_new(), 7)], 4) == 5
    assert next_turn(_new(BOB), [(_new(), 5), (_new(), 7)], 4) == 5


def test_resuming_tasks_and_new_tasks_of_an_owner_do_not_wait_for_each_other() -> None:
    queue = [(_new(), 3), (_new(), 9), (_going_on(), 5)]
    assert next_turn(_going_on(), queue, 2) == 6
    assert next_turn(_new(), queue, 2) == 10
    assert next_turn(_going_on(BOB), queue, 2) == 3


def test_a_task_that_no_worker_runs_does_not_move_other_tasks_forward() -> None:
    stuck = (_new(tool=OLD), 1)
    assert next_turn(_new(), [stuck], 500) == 501
    assert next_turn(_new(BOB), [stuck], 500) == 501


def test_a_tool_is_served_only_up_to_its_first_waiting_task() -> None:
    queue = [(_new(tool=OLD), 3), (_new(), 6), (_new(), 7)]
    assert next_turn(_new(BOB), queue, 500) == 7
    assert next_turn(_new(BOB, tool=OLD), queue, 500) == 4
    assert next_turn(_new(BOB, tool=Tool("another")), queue, 500) == 501


@pytest.mark.parametrize("fields", [{"priority": 1}, {"namespace": "builds"}])
def test_other_priorities_and_namespaces_have_separate_queues(fields: dict[str, Any]) -> None:
    assert next_turn(_new(**fields), [(_new(), 4), (_new(BOB), 2)], 3) == 4
    assert next_turn(_new(), [(_new(**fields), 4), (_new(), 2)], 1) == 3


def test_a_task_enters_the_queue_only_from_another_phase() -> None:
    queued = SITUATIONS["queued"]
    for task in SITUATIONS.values():
        assert enters_queue(task, queued) == (task.phase is not Phase.QUEUED)
        assert enters_queue(None, task) == (task.phase is Phase.QUEUED)
        assert not enters_queue(task, SITUATIONS["running"])


def test_queue_positions_sort_by_priority_then_turn_then_creation_then_id() -> None:
    early, late = _new(id=TaskId("b")), _new(id=TaskId("a")).evolve(created_at=START + timedelta(seconds=1))
    places = [
        QueuePosition.of(_new(priority=1), 9),
        QueuePosition.of(late, 3),
        QueuePosition.of(early.evolve(id=TaskId("a")), 4),
        QueuePosition.of(early, 4),
        QueuePosition.of(late, 4),
        QueuePosition.of(_new(priority=-1), 0),
    ]
    assert sorted(set(places)) == places


def test_however_many_tasks_one_owner_has_another_waits_for_few_of_them() -> None:
    queue = list[tuple[Task, int]]()
    for number in range(1_000):
        task = _new(id=TaskId(f"alice {number:04}"))
        queue.append((task, number or next_turn(task, queue, 0)))
    late = _new(BOB, id=TaskId("bob"))
    queue.append((late, next_turn(late, queue, 0)))
    line = sorted(queue, key=lambda one: QueuePosition.of(*one))
    assert line.index(queue[-1]) <= 2
