"""Requests to a store: limits, decisions, claim order, pages."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Note
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import Task, TaskId, Tool
from raincheck.errors import InvalidValue
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import (
    DUE_LIMIT,
    DUE_NOW,
    MAX_LEASE,
    PAGE_LIMIT,
    ClaimRequest,
    Page,
    PageCursor,
    TaskQuery,
    build_page,
    check_distinct_tasks,
    clamp_limit,
    find_next_due,
    find_overdue,
)
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import ALICE, BOB, NAMESPACE, TOOL

NOW = FakeClock().now()


def _request(**fields: Any) -> ClaimRequest:
    base: dict[str, Any] = {
        "namespace": NAMESPACE,
        "tools": frozenset({TOOL}),
        "holder": "worker-1",
        "lease_for": timedelta(seconds=30),
        "limit": 2,
    }
    return ClaimRequest(**(base | fields))


def _at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def _tasks(*several: dict[str, Any]) -> list[Task]:
    harness = StoreHarness(MemoryStore(), FakeClock())
    return [harness.creation(**fields).task for fields in several]


def _ids(tasks: tuple[Task, ...]) -> list[str]:
    return [task.id for task in tasks]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"namespace": ""}, "a namespace must not be empty"),
    ({"tools": {TOOL.name}}, "a claim's tools must be a frozenset of Tool"),
    ({"holder": ""}, "a worker's name must not be empty"),
    ({"holder": "\ud800"}, "a worker's name .* lone surrogate"),
    ({"limit": 0}, "a claim takes from 1 to 1000 tasks, not 0"),
    ({"limit": PAGE_LIMIT + 1}, "a claim takes from 1 to 1000 tasks, not 1001"),
    ({"lease_for": timedelta(0)}, "a lease must be for more than 0"),
    ({"lease_for": timedelta(seconds=-1)}, "a lease must be for more than 0"),
    ({"lease_for": MAX_LEASE + timedelta(microseconds=1)}, "at most 1 day"),
    ({"lease_for": timedelta.max}, "at most 1 day"),
]


@pytest.mark.parametrize(("fields", "message"), BAD, ids=[str(fields) for fields, _ in BAD])
def test_an_invalid_claim_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        _request(**fields)


def test_a_claim_at_the_edge_of_its_limits_is_accepted() -> None:
    for limit in (1, PAGE_LIMIT):
        assert _request(limit=limit, lease_for=MAX_LEASE).limit == limit


def test_a_direct_start_needs_a_matching_tool_and_no_other_work() -> None:
    (new,) = _tasks({})
    (started,) = _request().decide_direct_start(new, [], NOW)
    assert (started.before, started.after.phase) == (new, Phase.RUNNING)
    assert _request(limit=1, tools=frozenset({Tool("other")})).decide_direct_start(new, [], NOW) == []
    assert _request(namespace="elsewhere").decide_direct_start(new, [], NOW) == []
    assert _request().decide_direct_start(started.after, [], NOW) == []


@pytest.mark.parametrize(
    ("waiting", "is_overtaken"),
    [
        ({}, True),
        ({"priority": -1}, True),
        ({"tool": Tool("other")}, False),
        ({"namespace": "elsewhere"}, False),
        ({"due_at": _at(10)}, True),
        ({"due_at": _at(10.000001)}, False),
    ],
    ids=str,
)
def test_a_direct_start_overtakes_no_task(waiting: dict[str, Any], is_overtaken: bool) -> None:
    new, other = _tasks({}, waiting)
    assert bool(_request().decide_direct_start(new, [other], _at(10))) != is_overtaken


@pytest.mark.parametrize(("next_due", "is_so"), [(None, True), (DUE_NOW, False), (NOW, False), (_at(1e-6), True)])
def test_a_claim_has_no_other_work_until_the_next_task_is_due(next_due: datetime | None, is_so: bool) -> None:
    assert _request().has_no_other_work(next_due, NOW) is is_so


def test_a_worker_gets_only_tasks_of_its_tools_in_exactly_that_version() -> None:
    mine, other_version, other_tool, other_server = _tasks(
        {}, {"tool": Tool(TOOL.name, "2")}, {"tool": Tool("other")}, {"namespace": "builds"}
    )
    request = _request()
    assert request.can_run(mine)
    for task in (other_version, other_tool, other_server):
        assert not request.can_run(task)
        assert request.decide_claims([task], NOW) == []
        assert request.decide_wakeups([task.evolve(phase=Phase.PARKED, due_at=NOW)], NOW) == []


def test_a_claim_takes_tasks_in_the_given_order_up_to_its_limit() -> None:
    tasks = _tasks({}, {"tool": Tool("other")}, {"priority": 1}, {})
    started = _request(limit=3).decide_claims([*reversed(tasks), *_tasks({})], _at(9))
    assert [change.after.id for change in started] == [tasks[3].id, tasks[2].id, tasks[0].id]
    assert {change.after.phase for change in started} == {Phase.RUNNING}
    lease = started[0].after.attempt and started[0].after.attempt.lease
    assert lease is not None
    assert (lease.holder, lease.expires_at) == ("worker-1", _at(39))
    assert len(_request().decide_claims(tasks, _at(9))) == 2


def test_due_tasks_are_queued_the_first_to_be_due_first() -> None:
    tasks = _tasks(*({"due_at": _at(seconds)} for seconds in (30, 10, 20, 31)), {})
    woken = _request().decide_wakeups(tasks, _at(30))
    assert [change.after.id for change in woken] == [tasks[1].id, tasks[2].id, tasks[0].id]
    assert {change.after.phase for change in woken} == {Phase.QUEUED}


def test_paused_tasks_and_tasks_without_a_due_time_are_not_woken() -> None:
    paused, waiting, due = _tasks({"due_at": _at(1)}, {"due_at": _at(1)}, {"due_at": _at(1)})
    tasks = [paused.evolve(phase=Phase.PAUSED), waiting.evolve(due_at=None), due]
    assert [change.after.id for change in _request().decide_wakeups(tasks, _at(1))] == [due.id]


def test_the_number_of_tasks_woken_at_once_is_limited() -> None:
    tasks = _tasks(*({"due_at": _at(1)} for _ in range(DUE_LIMIT + 1)))
    assert len(_request().decide_wakeups(tasks, _at(1))) == DUE_LIMIT


def test_the_longest_overdue_come_first_up_to_the_limit() -> None:
    tasks = _tasks(*({"deadline_at": _at(seconds)} for seconds in (30, 10, 20, 31)), {})
    assert _ids(find_overdue(tasks, now=_at(30), limit=9)) == [tasks[1].id, tasks[2].id, tasks[0].id]
    assert _ids(find_overdue(tasks, now=_at(30), limit=2)) == [tasks[1].id, tasks[2].id]
    assert _ids(find_overdue([tasks[0], tasks[0].evolve(id=TaskId("a"))], now=_at(30), limit=0)) == ["a"]


def test_the_next_due_time_is_now_if_a_task_is_queued_else_that_of_the_first_parked_one() -> None:
    due, later, queued, other = _tasks({"due_at": _at(1)}, {"due_at": _at(2)}, {}, {"tool": Tool("other")})
    tools = frozenset({TOOL})
    assert find_next_due([], NAMESPACE, tools) is None
    assert find_next_due([other, later, due], NAMESPACE, tools) == _at(1)
    assert find_next_due([due, later, queued], NAMESPACE, tools) == DUE_NOW
    assert find_next_due([queued, due], "builds", tools) is None
    paused = due.evolve(phase=Phase.PAUSED)
    assert find_next_due([paused, later.evolve(due_at=None)], NAMESPACE, tools) is None


def test_a_query_filters_by_its_fields() -> None:
    one, other = _tasks({}, {"owner": BOB, "tool": Tool("other"), "parent_id": TaskId("parent")})
    everything = Scope.everything()
    queries = {
        TaskQuery(everything): [one, other],
        TaskQuery(Scope.for_owner(NAMESPACE, ALICE)): [one],
        TaskQuery(Scope.for_namespace("builds")): [],
        TaskQuery(everything, tool="other"): [other],
        TaskQuery(everything, parent_id=TaskId("parent")): [other],
        TaskQuery(everything, phases=frozenset({Phase.QUEUED})): [one, other],
        TaskQuery(everything, phases=frozenset({Phase.PARKED})): [],
        TaskQuery(everything, phases=frozenset()): [],
    }
    for query, expected in queries.items():
        assert [task for task in (one, other) if query.matches(task, NOW)] == expected, query


def test_a_query_does_not_match_expired_tasks() -> None:
    (task,) = _tasks({})
    change = decide(task, Cancel("alice"), NOW)
    assert change is not None
    assert change.after.expires_at is not None
    query = TaskQuery(Scope.everything())
    assert query.matches(change.after, change.after.expires_at - timedelta(microseconds=1))
    assert not query.matches(change.after, change.after.expires_at)


def test_pages_show_each_task_once_newest_first() -> None:
    tasks = [task.evolve(created_at=_at(number // 2)) for number, task in enumerate(_tasks(*[dict[str, Any]()] * 7))]
    query, position, seen = TaskQuery(Scope.everything()), None, list[str]()
    for size in (3, 3, 1):
        page = build_page(tasks, query, now=NOW, after=position, limit=3)
        assert len(page.tasks) == size
        seen += _ids(page.tasks)
        position = page.next
    assert position is None
    assert seen == [task.id for task in reversed(tasks)]


def test_a_page_has_only_tasks_that_match_the_query() -> None:
    one, other = _tasks({}, {"owner": BOB})
    assert _ids(
        build_page([one, other], TaskQuery(Scope.for_owner(NAMESPACE, BOB)), now=NOW, after=None, limit=9).tasks
    ) == [other.id]


def test_a_page_that_is_exactly_full_is_the_last() -> None:
    tasks = _tasks({}, {})
    assert Page.of(tasks, 2) == Page(tuple(tasks), None)
    assert Page.of(tasks, 1) == Page((tasks[0],), PageCursor.of(tasks[0]))
    assert Page.of([], 1) == Page((), None)


def test_an_anonymous_owner_gets_an_empty_page() -> None:
    (task,) = _tasks({"owner": Owner.anonymous()})
    query = TaskQuery(Scope.for_owner(NAMESPACE, Owner.anonymous()))
    assert query.matches(task, NOW)
    assert build_page([task], query, now=NOW, after=None, limit=9) == Page((), None)


@pytest.mark.parametrize(
    ("limit", "size"), [(-1, 1), (0, 1), (1, 1), (7, 7), (PAGE_LIMIT, PAGE_LIMIT), (10**30, PAGE_LIMIT)]
)
def test_a_limit_is_clamped(limit: int, size: int) -> None:
    assert clamp_limit(limit) == size


def test_a_commit_names_each_changed_and_spawned_task_only_once() -> None:
    harness = StoreHarness(MemoryStore(), FakeClock())
    child, request = harness.creation(), _request()
    one, other = request.decide_claims([harness.creation().task, harness.creation().task], NOW)
    note = decide(one.after, Note(1, spawned=(child,)), NOW)
    assert note is not None
    check_distinct_tasks([])
    check_distinct_tasks([note, other])
    for twice in ([one, note], [note, note], [one, one]):
        with pytest.raises(InvalidValue, match="a commit may name a task only once"):
            check_distinct_tasks(twice)
