"""Records are frozen, have derived properties, and are copied with changed fields."""

import dataclasses
import importlib
import inspect
import pkgutil
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

import raincheck.core
from raincheck.core.commands import Cancel, Claim, Complete
from raincheck.core.lifecycle import TERMINAL_PHASES, Phase, Status
from raincheck.core.owner import Owner
from raincheck.core.policies import Retention, RetryPolicy
from raincheck.core.records import Attempt, InstanceState, Lease, Progress, Task, TaskId, Tool
from raincheck.core.values import encode
from tests.support.core.tasks import SITUATIONS, START, after, asking, at, created, question, running

OTHER: dict[str, Any] = {
    "id": TaskId("other"),
    "namespace": "other",
    "owner": Owner.local(),
    "tool": Tool("other", "9"),
    "created_at": at(1),
    "updated_at": at(2),
    "phase": Phase.CANCELLED,
    "parent_id": TaskId("parent"),
    "idempotency_key": "key",
    "priority": 7,
    "due_at": at(3),
    "deadline_at": at(4),
    "retry": RetryPolicy(attempts=9),
    "retention": Retention(keep=timedelta(seconds=9)),
    "version": 11,
    "attempt_number": 12,
    "failures": 13,
    "attempt": Attempt(12, at(5), Lease("other", at(6))),
    "pausing": True,
    "signals": 14,
    "open_inputs": 15,
    "entries": 16,
    "progress": Progress(17, 18),
    "status_message": "other",
    "is_error": True,
    "finished_at": at(7),
    "expires_at": at(8),
    "state": InstanceState("other", at(9), 3),
    "subject": "other",
}


def test_the_defaults_of_a_record_are_those_of_a_new_task() -> None:
    task = created()
    required = {name: getattr(task, name) for name in ("id", "namespace", "owner", "tool", "created_at", "updated_at")}
    assert Task(**required, phase=Phase.QUEUED) == task


def test_these_tests_cover_every_field() -> None:
    assert list(OTHER) == [field.name for field in fields(Task)]


@pytest.mark.parametrize("name", OTHER)
def test_evolving_one_field_equals_replace(name: str) -> None:
    task = running()
    evolved = task.evolve(**{name: OTHER[name]})
    assert evolved == replace(task, **{name: OTHER[name]})
    assert evolved != task
    assert type(evolved) is Task


def test_evolving_all_fields_or_none_equals_replace() -> None:
    task = running()
    assert task.evolve(**OTHER) == replace(task, **OTHER)
    assert task.evolve() == task


def test_evolving_does_not_change_the_original() -> None:
    task = running()
    before = replace(task)
    task.evolve(**OTHER)
    assert task == before


def test_evolving_an_unknown_field_is_an_error() -> None:
    with pytest.raises(KeyError):
        created().evolve(colour="red")


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_task_is_terminal_exactly_in_the_terminal_phases(situation: str) -> None:
    task = SITUATIONS[situation]
    assert task.is_terminal == (task.phase in TERMINAL_PHASES)


def test_the_status_of_a_task_follows_its_phase_and_its_questions() -> None:
    assert created().status is Status.WORKING
    assert asking("a").status is Status.INPUT_REQUIRED
    assert after(asking("a"), Complete(1, encode(1))).status is Status.COMPLETED
    assert after(asking("a"), Cancel("alice")).status is Status.CANCELLED


def test_a_task_is_expired_from_its_expiry_time_on_and_never_while_live() -> None:
    ended = after(running(retention=Retention(keep=timedelta(seconds=60))), Complete(1, encode(1)))
    assert [ended.is_expired(at(seconds)) for seconds in (59.999999, 60, 61)] == [False, True, True]
    assert not running().is_expired(at(10**9))


def test_a_live_task_is_overdue_from_the_end_of_its_lease_or_its_deadline() -> None:
    leased = running()
    assert [leased.is_overdue(at(seconds)) for seconds in (29.999999, 30, 31)] == [False, True, True]
    bounded = created(deadline_at=at(20))
    assert [bounded.is_overdue(at(seconds)) for seconds in (19.999999, 20, 21)] == [False, True, True]
    both = running(deadline_at=at(20))
    assert [both.is_overdue(at(seconds)) for seconds in (19, 20, 30)] == [False, True, True]
    assert not created().is_overdue(at(10**9))


@pytest.mark.parametrize("situation", ["completed", "failed", "cancelled"])
def test_an_ended_task_is_never_overdue(situation: str) -> None:
    assert SITUATIONS[situation].deadline_at is not None
    assert not SITUATIONS[situation].is_overdue(at(10**9))


def test_the_ttl_is_counted_from_creation() -> None:
    queued = created(retention=Retention(keep=timedelta(seconds=60)))
    claimed = after(queued, Claim("worker-1", timedelta(seconds=30)), seconds=100)
    ended = after(claimed, Complete(1, encode(1)), seconds=110)
    assert (queued.ttl, ended.ttl) == (None, timedelta(seconds=170))


def test_a_question_is_open_until_it_is_answered() -> None:
    assert question().is_open
    # None is an answer too: only the time of the answer counts.
    assert not replace(question(), answered_at=START).is_open


def test_tools_are_compared_by_name_and_version() -> None:
    tools = [Tool("b"), Tool("a", "2"), Tool("a")]
    assert sorted(tools) == [Tool("a", "1"), Tool("a", "2"), Tool("b", "1")]
    assert len({*tools, Tool("a", "1")}) == 3


MODULES = [
    "raincheck.stores.factory",
    "raincheck.stores.requests",
    *(module.name for module in pkgutil.iter_modules(raincheck.core.__path__, "raincheck.core.")),
]
DATACLASSES = [
    member
    for module in MODULES
    for member in vars(importlib.import_module(module)).values()
    if inspect.isclass(member) and dataclasses.is_dataclass(member) and member.__module__ == module
    if dataclasses.fields(member)
]


def test_the_core_has_record_classes() -> None:
    assert len(DATACLASSES) > 30


@pytest.mark.parametrize("kind", DATACLASSES, ids=lambda kind: kind.__name__)
def test_a_record_class_is_frozen_and_slotted(kind: type[object]) -> None:
    blank = object.__new__(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(blank, vars(kind)["__slots__"][0], None)
    assert not hasattr(blank, "__dict__")
