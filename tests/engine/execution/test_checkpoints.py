"""Matching of checkpoints, fingerprints of arguments, and parsing of answers."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import InputKind, InputRequest, Journal, Step, Task, TaskId, Tool
from raincheck.core.values import Json, encode
from raincheck.engine.execution.checkpoints import Checkpoints, fingerprint
from raincheck.engine.inputs import Reply, parse_reply, to_json_schema
from raincheck.errors import CheckpointMismatch, InvalidValue

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TASK = Task(TaskId("t1"), "default", Owner.local(), Tool("report", "1"), NOW, NOW, Phase.RUNNING, attempt_number=2)


def step(name: str, occurrence: int = 0, mark: str = "step:a") -> Step:
    return Step(name, occurrence, mark, encode(None), 1, NOW)


def question(key: str, request: Json = None, kind: InputKind = InputKind.ELICITATION) -> InputRequest:
    return InputRequest(key, kind, encode(request), NOW, 1)


def recorded(*found: Step | InputRequest, version: str = "1") -> Checkpoints:
    steps = tuple(one for one in found if isinstance(one, Step))
    questions = tuple(one for one in found if isinstance(one, InputRequest))
    return Checkpoints(Journal(TASK, encode({}), None, None, steps, questions, ()), version)


def test_each_use_of_a_name_has_its_own_number() -> None:
    checkpoints = recorded()
    assert [checkpoints.next_occurrence(name) for name in ("a", "b", "a", "a", "b")] == [0, 0, 1, 2, 1]


def test_a_step_is_found_by_name_and_number() -> None:
    first, second = step("load"), step("load", 1)
    checkpoints = recorded(first, second)
    assert [checkpoints.next_step("load", "step:a")[2] for _ in range(3)] == [first, second, None]
    assert checkpoints.next_step("save", "step:a") == ("save", 0, None)
    checkpoints.check_all_replayed()


def test_a_step_with_another_fingerprint_is_rejected_and_both_are_named() -> None:
    checkpoints = recorded(step("load", 1), version="2")
    checkpoints.next_step("load", "step:b")
    with pytest.raises(CheckpointMismatch) as raised:
        checkpoints.next_step("load", "step:b")
    said = str(raised.value)
    assert "task 't1' has step 'load' (use 2) on record from attempt 1 as step:a" in said
    assert "attempt 2 (tool 'report' in version '2', started under version '1') requested it as step:b" in said


def test_a_question_is_found_by_its_key_and_only_if_it_is_the_same() -> None:
    asked = question("elicit-0", {"message": "now?"})
    assert recorded(asked).find_input("elicit-0", InputKind.ELICITATION, {"message": "now?"}) is asked
    assert recorded(asked).find_input("elicit-1", InputKind.ELICITATION, {"message": "now?"}) is None
    with pytest.raises(CheckpointMismatch, match="question 'elicit-0' on record from attempt 1 as another elicitation"):
        recorded(asked).find_input("elicit-0", InputKind.ELICITATION, {"message": "later?"})
    with pytest.raises(CheckpointMismatch, match=r"as another elicitation, but .* requested it as this sampling"):
        recorded(asked).find_input("elicit-0", InputKind.SAMPLING, {"message": "now?"})


def test_every_recorded_checkpoint_must_be_replayed_before_the_end() -> None:
    checkpoints = recorded(step("load"), step("save"), question("elicit-0"), question("elicit-1"))
    assert checkpoints.is_replaying
    checkpoints.next_step("load", "step:a")
    checkpoints.find_input("elicit-1", InputKind.ELICITATION, None)
    with pytest.raises(CheckpointMismatch) as raised:
        checkpoints.check_all_replayed()
    said = str(raised.value)
    assert "step 'save' (step:a, by attempt 1), question 'elicit-0' (by attempt 1) on record" in said
    assert "'load'" not in said
    assert "elicit-1" not in said


def test_an_attempt_is_replaying_until_it_has_reached_every_recorded_checkpoint() -> None:
    checkpoints = recorded(step("load"), question("elicit-0"))
    checkpoints.next_step("load", "step:a")
    assert checkpoints.is_replaying
    checkpoints.find_input("elicit-0", InputKind.ELICITATION, None)
    assert not checkpoints.is_replaying
    checkpoints.steps["save", 0] = step("save")
    assert not checkpoints.is_replaying, "what this attempt recorded need not be asked for again"
    checkpoints.check_all_replayed()


def test_steps_are_counted_all_together_and_by_kind() -> None:
    checkpoints = recorded(step("load"), step("spawn child", 0, "spawn:a"))
    checkpoints.steps["spawn child", 1] = step("spawn child", 1, "spawn:b")
    assert (len(checkpoints.steps), checkpoints.count("spawn"), checkpoints.count("step")) == (3, 2, 1)


@dataclass
class Connection:
    number: int


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, "a"), (1, "a")),
        (([1, 2],), ((1, 2),)),
        (({"a": 1, "b": 2},), ({"b": 2, "a": 1},)),
        (({1: "one"},), ({"1": "one"},)),
        ((Connection(1),), (Connection(2),)),
        (({1, 2},), ({3},)),
        ((float("nan"),), (float("nan"),)),
    ],
)
def test_equal_arguments_have_the_same_fingerprint(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert fingerprint("step", one, {}) == fingerprint("step", other, {})


STORED_FINGERPRINTS: list[tuple[tuple[Any, ...], str]] = [
    (((), {}), "step:5eed25f9aa1c6813"),
    (((2026, "año", 1.5, None, True), {"deep": {"b": [1, (2, 3)], "a": {}}}), "step:00e164238e5f1e1f"),
    ((({9: "nine", 10: "ten", None: 0, True: 1},), {}), "step:1807a4de483581f7"),
    ((({1, 2}, b"bytes", [], {}, [[]], [{2: {3: ()}}]), {"key": {"x": {1}}}), "step:9e0d6a973053b39f"),
]


@pytest.mark.parametrize(("parts", "stored"), STORED_FINGERPRINTS)
def test_a_fingerprint_is_the_one_that_older_releases_stored(parts: tuple[Any, ...], stored: str) -> None:
    assert fingerprint("step", *parts) == stored


def test_different_arguments_have_different_fingerprints() -> None:
    marks = [
        fingerprint("step", (1,), {}),
        fingerprint("step", (2,), {}),
        fingerprint("step", ("1",), {}),
        fingerprint("step", (True,), {}),
        fingerprint("step", (None,), {}),
        fingerprint("step", (1, 1), {}),
        fingerprint("step", (), {"number": 1}),
        fingerprint("step", (list[int](),), {}),
        fingerprint("step", (dict[str, int](),), {}),
        fingerprint("step", (Connection(1),), {}),
        fingerprint("step", ({1},), {}),
        fingerprint("sleep", (1,), {}),
        fingerprint("step", ("\ud800",), {}),
    ]
    assert len(set(marks)) == len(marks)
    assert all(len(mark) < 30 for mark in marks)


def test_arguments_that_are_nested_too_deeply_have_a_fingerprint() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert fingerprint("step", (deep,), {})
    loop: list[Any] = []
    loop.append(loop)
    assert fingerprint("step", (loop,), {})


class Confirm(BaseModel):
    ok: bool


class Order(BaseModel):
    note: str | None = None
    size: Literal["small", "large"] = "small"


class Nested(BaseModel):
    inner: Confirm


def test_the_schema_of_a_question_is_a_json_schema_or_a_model() -> None:
    assert to_json_schema({"type": "object"}) == {"type": "object"}
    assert to_json_schema(Confirm) == Confirm.model_json_schema()
    with pytest.raises(
        InvalidValue, match="the schema of an input request is a JSON Schema or a pydantic model, not <class 'int'>"
    ):
        to_json_schema(int)


def test_a_model_becomes_a_schema_with_form_fields() -> None:
    described: Any = to_json_schema(Order)
    assert described["properties"]["note"]["type"] == "string", "what may be left out is not of two types"
    assert described["properties"]["size"]["enum"] == ["small", "large"]
    with pytest.raises(InvalidValue, match="a form can't ask for a Nested"):
        to_json_schema(Nested)


def test_an_accepted_answer_is_parsed_as_the_requested_type() -> None:
    reply = parse_reply({"action": "accept", "content": {"ok": True}}, Confirm)
    assert reply.ok
    assert reply.value is not None
    assert reply.value.ok is True
    plain: Reply[Any] = parse_reply({"action": "accept", "content": {"ok": 3}}, {"type": "object"})
    assert (plain.value, plain.content) == ({"ok": 3}, {"ok": 3})


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_an_answer_that_is_not_accepted_has_no_value(action: str) -> None:
    reply = parse_reply({"action": action, "content": {"ok": True}}, Confirm)
    assert (reply.ok, reply.action, reply.value) == (False, action, None)
    assert parse_reply({"action": action}, Confirm).content is None


@pytest.mark.parametrize(
    "answer", [None, "accept", [], {}, {"action": "maybe"}, {"action": ["accept"]}, {"content": 1}]
)
def test_an_answer_of_another_shape_is_rejected(answer: Json) -> None:
    with pytest.raises(InvalidValue, match="an answer is"):
        parse_reply(answer, {"type": "object"})


def test_an_accepted_answer_that_does_not_match_is_rejected() -> None:
    with pytest.raises(InvalidValue, match="the answer is not a Confirm: 1 validation error"):
        parse_reply({"action": "accept", "content": {"ok": "perhaps"}}, Confirm)
