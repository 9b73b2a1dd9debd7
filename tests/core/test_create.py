"""Creating tasks, and the requests that are refused."""

import hashlib
from datetime import datetime
from math import nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raincheck.core.change import PRIORITIES, create, digest_request
from raincheck.core.lifecycle import Event, Phase, Status
from raincheck.core.owner import Owner
from raincheck.core.policies import DEFAULT_RETENTION, DEFAULT_RETRY, Limits, Retention, RetryPolicy
from raincheck.core.records import TaskId, Tool
from raincheck.core.values import NAME_LIMIT, Json, Payload, encode
from raincheck.errors import InvalidValue, NotJson, TooLarge
from tests.support.core.tasks import START, at, new

LIMITS = Limits()


def test_a_new_task_may_be_claimed_at_once() -> None:
    creation = create(new(), START, LIMITS)
    task = creation.task
    assert (task.phase, task.status, task.due_at) == (Phase.QUEUED, Status.WORKING, None)
    assert (task.version, task.attempt_number, task.entries, task.failures, task.signals) == (1, 0, 1, 0, 0)
    assert (task.created_at, task.updated_at, task.priority) == (START, START, 0)
    assert (task.retry, task.retention) == (DEFAULT_RETRY, DEFAULT_RETENTION)
    assert (task.attempt, task.finished_at, task.expires_at, task.pausing) == (None, None, None, False)


def test_a_new_task_has_the_requested_values() -> None:
    asked = new(
        id=TaskId("task-7"),
        namespace="builds",
        owner=Owner.local(),
        tool=Tool("build", "2"),
        caller=encode({"sub": "alice"}),
        parent_id=TaskId("task-1"),
        idempotency_key="key",
        request_digest="digest",
        priority=5,
        deadline_at=at(60),
        retry=RetryPolicy(attempts=9),
        retention=Retention(ttl=at(9) - at(0)),
    )
    creation = create(asked, START, LIMITS)
    task = creation.task
    for name in ("id", "namespace", "owner", "tool", "parent_id", "idempotency_key", "priority", "deadline_at"):
        assert getattr(task, name) == getattr(asked, name), name
    assert (task.retry, task.retention) == (asked.retry, asked.retention)
    assert (creation.arguments, creation.caller) == (asked.arguments, asked.caller)
    assert creation.request_digest == "digest"


def test_the_history_of_a_new_task_starts_with_its_creator() -> None:
    entry = create(new(actor="alice"), START, LIMITS).entry
    assert (entry.seq, entry.at, entry.event, entry.actor) == (1, START, Event.CREATE, "alice")
    assert (entry.before, entry.after, entry.attempt) == (None, Phase.QUEUED, 0)
    odd = create(new(actor="\0\ud800" * 5_000), START, LIMITS).entry.actor
    assert len(odd.encode().decode()) <= 2_000


def test_a_task_that_is_due_later_is_parked_until_then() -> None:
    creation = create(new(due_at=at(10)), START, LIMITS)
    assert (creation.task.phase, creation.task.due_at) == (Phase.PARKED, at(10))
    assert creation.entry.after is Phase.PARKED


@pytest.mark.parametrize("seconds", [0, -1, -(10**6)])
def test_a_task_that_is_due_already_does_not_wait(seconds: int) -> None:
    task = create(new(due_at=at(seconds)), START, LIMITS).task
    assert (task.phase, task.due_at) == (Phase.QUEUED, None)


def test_a_deadline_must_be_after_the_time_at_which_the_task_can_start() -> None:
    assert create(new(deadline_at=at(0.000001)), START, LIMITS).task.deadline_at == at(0.000001)
    assert create(new(due_at=at(10), deadline_at=at(10.000001)), START, LIMITS).task.phase is Phase.PARKED
    assert create(new(due_at=at(-10), deadline_at=at(1)), START, LIMITS).task.phase is Phase.QUEUED


LONG = "x" * (NAME_LIMIT + 1)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "a task's id must not be empty"),
    ({"id": "a\0"}, "a task's id 'a\\\\x00' has a NUL"),
    ({"id": LONG}, "a task's id has 513 characters"),
    ({"namespace": ""}, "a namespace must not be empty"),
    ({"namespace": "\ud800"}, "a namespace .* lone surrogate"),
    ({"tool": Tool("")}, "a tool's name must not be empty"),
    ({"tool": Tool(LONG)}, "a tool's name has 513 characters"),
    ({"tool": Tool("build", "")}, "a tool's version must not be empty"),
    ({"tool": Tool("build", "\0")}, "a tool's version .* has a NUL"),
    ({"idempotency_key": "", "request_digest": "digest"}, "an idempotency key must not be empty"),
    ({"idempotency_key": LONG, "request_digest": "digest"}, "an idempotency key has 513 characters"),
    ({"idempotency_key": "key"}, "an idempotency key requires the digest of its request"),
    ({"request_digest": "digest"}, "an idempotency key requires the digest of its request"),
    (
        {"idempotency_key": "key", "request_digest": "digest", "owner": Owner.anonymous()},
        "an anonymous caller can't use an idempotency key",
    ),
    ({"due_at": datetime(2026, 1, 2)}, "has no time zone"),  # noqa: DTZ001 - what is refused
    ({"deadline_at": datetime(2026, 1, 2)}, "has no time zone"),  # noqa: DTZ001 - likewise
    ({"idempotency_key": "key", "request_digest": "\ud800"}, "digest"),
    ({"parent_id": ""}, "parent"),
    ({"parent_id": "\ud800"}, "parent"),
    ({"priority": 101}, "priority must be from -100 to 100, not 101"),
    ({"priority": -101}, "priority must be from -100 to 100, not -101"),
    ({"priority": 10**30}, "priority must be from -100 to 100"),
    ({"deadline_at": START}, "would pass its deadline .* before it starts"),
    ({"deadline_at": at(-1)}, "would pass its deadline"),
    ({"due_at": at(10), "deadline_at": at(10)}, "would pass its deadline"),
    ({"due_at": at(10), "deadline_at": at(5)}, "task 'task-1' would pass its deadline"),
    ({"arguments": Payload(b"1" * 1_001)}, "arguments has 1,001 bytes, and 1,000 are allowed"),
    ({"caller": Payload(b"1" * 101)}, "the caller's identity has 101 bytes, and 100 are allowed"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_values_that_can_not_be_stored_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        create(new(**fields), START, Limits(arguments=1_000, caller=100))


def test_values_exactly_at_their_limit_are_accepted() -> None:
    name = "x" * NAME_LIMIT
    for priority in (PRIORITIES[0], PRIORITIES[-1]):
        asked = new(
            id=TaskId(name),
            namespace=name,
            tool=Tool(name, name),
            idempotency_key=name,
            request_digest="digest",
            priority=priority,
            arguments=Payload(b"1" * 1_000),
            caller=Payload(b"1" * 100),
        )
        assert create(asked, START, Limits(arguments=1_000, caller=100)).task.priority == priority


def test_an_error_about_too_large_arguments_has_the_size_and_the_limit() -> None:
    with pytest.raises(TooLarge) as too_large:
        create(new(arguments=Payload(b"12")), START, Limits(arguments=1))
    assert (too_large.value.what, too_large.value.size, too_large.value.limit) == ("arguments", 2, 1)


NAMES = st.text(max_size=5)
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | NAMES, lambda inner: st.lists(inner, max_size=3)
)


@given(NAMES, st.dictionaries(NAMES, VALUES, max_size=5), st.randoms())
def test_a_request_is_the_same_in_any_order_of_its_keys(tool: str, arguments: dict[str, Json], random: Any) -> None:
    shuffled = list(arguments.items())
    random.shuffle(shuffled)
    assert digest_request(tool, arguments) == digest_request(tool, dict(shuffled))


def test_the_order_of_keys_does_not_matter_deep_inside_either() -> None:
    assert digest_request("build", {"a": [{"b": 1, "c": 2}]}) == digest_request("build", {"a": [{"c": 2, "b": 1}]})


@given(NAMES, NAMES, VALUES, VALUES)
def test_another_tool_or_other_arguments_are_another_request(tool: str, other: str, one: Json, two: Json) -> None:
    is_same = (tool, repr(one)) == (other, repr(two))
    assert (digest_request(tool, one) == digest_request(other, two)) == is_same


LOOK_ALIKE: list[tuple[tuple[str, Json], tuple[str, Json]]] = [
    (("a", ["b"]), ("a,b", [])),
    (('a",["b', []), ("a", ["b"])),
    (("a", {"x": [1, 2]}), ("a", {"x": [2, 1]})),
    (("a", {"x": 1}), ("a", {"x": "1"})),
    (("a", {"x": True}), ("a", {"x": 1})),
    (("a", {"x": None}), ("a", {})),
    (("a", None), ("a", {})),
]


@pytest.mark.parametrize(("one", "two"), LOOK_ALIKE)
def test_requests_that_only_look_alike_have_different_digests(one: tuple[str, Json], two: tuple[str, Json]) -> None:
    assert digest_request(*one) != digest_request(*two)


@pytest.mark.parametrize("arguments", [{"x": nan}, b"raw", {"x": {1, 2}}], ids=str)
def test_the_digest_of_a_request_accepts_only_json(arguments: Any) -> None:
    with pytest.raises(NotJson, match="the arguments of 'build' can't be written as JSON"):
        digest_request("build", arguments)


def test_a_task_is_not_created_at_a_time_without_a_time_zone() -> None:
    with pytest.raises(InvalidValue, match="has no time zone"):
        create(new(), START.replace(tzinfo=None), LIMITS)


def test_the_digests_do_not_change_between_versions() -> None:
    # The digests are stored: another value would turn every repeated request into a conflict.
    text = rb'["build_report",{"title":"\u00e9","year":2026}]'
    assert digest_request("build_report", {"year": 2026, "title": "é"}) == hashlib.sha256(text).hexdigest()
