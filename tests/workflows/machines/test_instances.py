"""Instances of state machines: their transitions, guards, cancels, timeouts and history."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from raincheck import Owner
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.values import Json
from raincheck.engine import Engine
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.errors import (
    CancelRefused,
    ConfigurationError,
    IllegalTransition,
    InvalidValue,
    TaskNotFound,
    ToolError,
    TransitionRefused,
)
from raincheck.stores.base import Store
from raincheck.workflows import Machine, Next, State, Timeout, Transition
from tests.support.engine.harness import CommitHookStore, EngineHarness, outcome_of
from tests.support.workflows.example_machine import add, end_of, reach_state, review, state_of

pytestmark = pytest.mark.anyio


async def test_an_instance_starts_in_the_first_state_and_shows_it_at_once(harness: EngineHarness) -> None:
    add(harness, review())
    async with harness.running(works=False) as engine:
        task = await engine.submit("review")
        assert state_of(task) == "draft"
        assert state_of((await engine.view(task.id)).task) == "draft"
        assert task.status_message == "draft"


async def test_an_instance_moves_from_state_to_state_and_ends_by_the_kind_of_its_last(harness: EngineHarness) -> None:
    add(harness, review())
    async with harness.running() as engine:
        task = await engine.submit("review")
        await engine.instances.transition(task.id, "submit", data={"text": "hello"}, actor="ann")
        await engine.instances.transition(task.id, "reject", reason="too short", actor="bob")
        await engine.instances.transition(task.id, "submit", data={"text": "hello world"}, actor="ann")
        await engine.instances.transition(task.id, "approve", actor="bob")
        view = await end_of(harness, task.id)
        assert (view.task.phase, state_of(view.task)) == (Phase.COMPLETED, "published")
        assert outcome_of(view) == {"text": "hello world"}
        refused = await engine.submit("review")
        await engine.instances.transition(refused.id, "submit", data={"text": "x"})
        await engine.instances.transition(refused.id, "refuse")
        view = await end_of(harness, refused.id)
        assert (view.task.phase, state_of(view.task)) == (Phase.FAILED, "refused")
        assert "'refused'" in str(view.task.status_message)


async def test_the_history_has_actor_time_and_reason_of_every_transition(harness: EngineHarness) -> None:
    add(harness, review())
    async with harness.running() as engine:
        task = await engine.submit("review")
        await engine.instances.transition(task.id, "submit", data={"text": "x"}, actor="ann")
        await engine.instances.transition(task.id, "reject", reason="too short", actor="bob")
        entries = [entry for entry in await harness.history(task.id) if entry.event is Event.TRANSITION]
        recorded = [(entry.actor, json.loads(entry.detail or b"")) for entry in entries]
        assert recorded == [
            ("ann", {"action": "submit", "from": "draft", "to": "reviewed", "reason": None}),
            ("bob", {"action": "reject", "from": "reviewed", "to": "draft", "reason": "too short"}),
        ]
        assert entries[1].note == "reject: reviewed -> draft (too short)"
        assert entries[1].at == (await engine.view(task.id)).task.state.since  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("approve", "this state has no transition of that name: the transitions are 'submit', 'withdraw'"),
        ("submit", "its guard failed: KeyError: 'text'"),
    ],
)
async def test_a_closed_transition_is_refused_with_the_reason_and_changes_nothing(
    harness: EngineHarness, action: str, why: str
) -> None:
    add(harness, review())
    async with harness.running() as engine:
        task = await engine.submit("review")
        before = (await engine.view(task.id)).task.state
        with pytest.raises(TransitionRefused) as refused:
            await engine.instances.transition(task.id, action)
        assert refused.value.explanation == why
        assert (await engine.view(task.id)).task.state == before


async def test_a_guard_closes_its_transition_if_it_is_false_or_raises_or_is_missing(harness: EngineHarness) -> None:
    def broken(_: InstanceSnapshot) -> bool:
        raise RuntimeError("no")

    ways = [
        Transition("open", "end"),
        Transition("false", "end", guard=lambda _: False, label="never"),
        Transition("raising", "end", guard=broken),
        Transition("missing", "end", guard="nobody_wrote_it"),
        Transition("reason", "end", requires_reason=True),
    ]
    add(harness, Machine("guarded", [State("start", ways), State("end", kind="success")]))
    async with harness.running() as engine:
        task = await engine.submit("guarded")
        available = {one.action: one.closed for one in await engine.instances.available_transitions(task.id)}
        assert available == {
            "open": None,
            "false": "its guard is false: never",
            "raising": "its guard failed: RuntimeError: no",
            "missing": "its guard 'nobody_wrote_it' is missing",
            "reason": None,
        }
        for action in ("false", "raising", "missing", "reason"):
            with pytest.raises(TransitionRefused):
                await engine.instances.transition(task.id, action, reason=" ")
        await engine.instances.transition(task.id, "reason", reason="because")
        await end_of(harness, task.id)
        assert await engine.instances.available_transitions(task.id) == ()
        with pytest.raises((TransitionRefused, IllegalTransition)):
            await engine.instances.transition(task.id, "open")


async def test_cancel_takes_the_transition_that_the_definition_has_for_it(harness: EngineHarness) -> None:
    add(harness, review())
    async with harness.running(works=False) as engine:
        task = await engine.submit("review")
        cancelled = await engine.cancel(task.id, actor="ann", reason="changed my mind")
        assert (cancelled.phase, state_of(cancelled)) == (Phase.CANCELLED, "withdrawn")
        entry = (await harness.history(task.id))[-1]
        assert (entry.event, entry.actor) == (Event.CANCEL, "ann")
        assert json.loads(entry.detail or b"") == {
            "action": "withdraw",
            "from": "draft",
            "to": "withdrawn",
            "reason": "changed my mind",
        }


async def test_a_cancel_that_the_definition_does_not_allow_is_refused_with_its_reason(harness: EngineHarness) -> None:
    add(harness, review())
    add(harness, Machine("endless", [State("on", [Transition("stop", "off")]), State("off", kind="success")]))
    async with harness.running() as engine:
        task = await engine.submit("review")
        await engine.instances.transition(task.id, "submit", data={"text": "x"})
        with pytest.raises(CancelRefused) as closed:
            await engine.cancel(task.id)
        assert closed.value.reason == "no-cancel-transition"
        assert "guard 'may_withdraw' is missing" in str(closed.value)
        await engine.instances.transition(task.id, "lock")
        with pytest.raises(CancelRefused) as nowhere:
            await engine.cancel(task.id)
        assert nowhere.value.reason == "no-cancel-transition"
        await engine.instances.transition(task.id, "unlock")
        await engine.instances.transition(task.id, "approve")
        await end_of(harness, task.id)
        with pytest.raises(CancelRefused) as ended:
            await engine.cancel(task.id)
        assert ended.value.reason == "already-completed"
        endless = await engine.submit("endless")
        with pytest.raises(CancelRefused) as never:
            await engine.cancel(endless.id)
        assert never.value.reason == "not-cancellable"
        await engine.instances.transition(endless.id, "stop")
        await end_of(harness, endless.id)


async def test_the_outcome_of_an_action_picks_the_next_transition_and_adds_to_the_data(harness: EngineHarness) -> None:
    calls: list[str] = []

    def validate(snapshot: InstanceSnapshot) -> Next:
        calls.append("validate")
        tries = int(str(snapshot.data.get("tries", 0))) + 1
        return Next("retry" if tries < 3 else "accept", {"tries": tries})

    async def store(_: InstanceSnapshot, task: Any) -> str:
        await task.step("write", lambda: calls.append("write"))
        return "done"

    machine = Machine(
        "validation",
        [
            State("validating", [Transition("retry", "waiting"), Transition("accept", "storing")], action=validate),
            State("waiting", [Transition("again", "validating")], timeout=Timeout(0.01, "again")),
            State("storing", [Transition("done", "stored")], action=store),
            State("stored", kind="success"),
        ],
    )
    add(harness, machine)
    async with harness.running():
        assert await harness.result_of("validation") == {"tries": 3}
    assert calls == ["validate"] * 3 + ["write"]


async def test_an_action_ends_when_a_caller_takes_a_transition(harness: EngineHarness) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def work(_: InstanceSnapshot) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "finish"

    machine = Machine(
        "working",
        [
            State("working", [Transition("finish", "done"), Transition("skip", "skipped")], action=work),
            State("done", kind="success"),
            State("skipped", kind="success"),
        ],
    )
    add(harness, machine)
    async with harness.running() as engine:
        task = await engine.submit("working")
        await started.wait()
        await engine.instances.transition(task.id, "skip")
        assert state_of((await end_of(harness, task.id)).task) == "skipped"
        assert ended.is_set()


async def test_an_instance_leaves_a_state_when_its_timeout_expires(harness: EngineHarness) -> None:
    machine = Machine(
        "slow",
        [
            State("waiting", [Transition("expire", "expired")], timeout=Timeout(0.05, "expire")),
            State("expired", kind="failure"),
        ],
    )
    add(harness, machine)
    async with harness.running():
        task, error = await harness.failure_of("slow")
        assert state_of(task) == "expired"
        assert error["data"] == {"state": "expired", "data": {}}
        (entry,) = [one for one in await harness.history(task.id) if one.event is Event.TRANSITION]
        assert entry.actor == "timeout"


async def test_an_actions_question_is_asked_once_in_each_stay(harness: EngineHarness) -> None:
    async def ask(_: InstanceSnapshot, task: Any) -> Next:
        reply = await task.elicit("good?", {"type": "object"}, name="good")
        return Next("accept" if reply.action == "accept" else "again")

    machine = Machine(
        "asking",
        [
            State("asking", [Transition("accept", "end"), Transition("again", "asking")], action=ask),
            State("end", kind="success"),
        ],
    )
    add(harness, machine)
    async with harness.running() as engine:
        task = await engine.submit("asking")
        for number, action in enumerate(("decline", "accept")):
            view = await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
            (question,) = view.inputs
            assert question.key.startswith(f"{number} asking: good")
            await engine.answer(task.id, {question.key: {"action": action, "content": {}}})
        assert (await end_of(harness, task.id)).task.phase is Phase.COMPLETED


async def test_the_data_of_an_instance_changes_only_with_its_transitions(harness: EngineHarness) -> None:
    async def keep(_: InstanceSnapshot, task: Any) -> str:
        await task.variables.set("count", 1)
        return "go"

    add(
        harness, Machine("keeping", [State("on", [Transition("go", "off")], action=keep), State("off", kind="success")])
    )
    async with harness.running():
        _, error = await harness.failure_of("keeping")
        assert "return Next" in error["message"]


async def test_instances_are_listed_and_counted_by_state_and_subject(harness: EngineHarness) -> None:
    def about(given: Mapping[str, Json]) -> str:
        return str(given["id"])

    add(harness, review(subject=about))
    async with harness.running() as engine:
        first, second, third = [await engine.submit("review", {"id": one}) for one in ("a", "b", "a")]
        await engine.instances.transition(second.id, "submit", data={"text": "x"})
        drafts = (await engine.instances.find("review", state="draft")).tasks
        assert {task.id for task in drafts} == {first.id, third.id}
        found = (await engine.instances.find(subject="a")).tasks
        assert [task.id for task in found] == [third.id, first.id]
        assert await engine.instances.count_by_state("review") == {"draft": 2, "reviewed": 1}
        stranger = Owner.token("issuer", "another user")
        assert (await engine.instances.find(subject="a", owner=stranger)).tasks == ()
        with pytest.raises(InvalidValue):
            await engine.instances.find(state="draft")


async def test_a_task_that_is_not_an_instance_has_no_transitions(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def plain() -> None: ...

    async with harness.running(works=False) as engine:
        task = await engine.submit("plain")
        with pytest.raises(InvalidValue, match="is not a workflow instance"):
            await engine.instances.transition(task.id, "submit")
        with pytest.raises(TaskNotFound):
            await engine.instances.transition("nothing", "submit")
        assert (await engine.cancel(task.id)).phase is Phase.CANCELLED


def test_all_errors_of_a_definition_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as wrong:
        Machine(
            "wrong",
            [
                State("a", [Transition("go", "nowhere"), Transition("go", "b")], timeout=Timeout(0, "fly")),
                State("b", [Transition("back", "a", on=lambda _, __: True)]),
                State("b"),
                State("alone", kind="success"),
            ],
        )
    message = str(wrong.value)
    for part in (
        "states.a.transitions.go: several transitions have this name",
        "leads to 'nowhere', which is not a state",
        "states.a.timeout: it takes 'fly'",
        "states.b: 2 states have this name",
        "it depends on the outcome of an action, but the state has none",
        "states.b: it has no transitions",
        "states.alone: no transition leads to it",
    ):
        assert part in message


async def test_a_transition_is_not_lost_when_the_old_states_action_fails_after_it(
    harness: EngineHarness,
) -> None:
    async def fail(_: InstanceSnapshot, task: Any) -> str:
        del task
        raise ToolError("it broke")

    machine = Machine(
        "racing",
        [
            State("working", [Transition("move", "waiting")], action=fail),
            State("waiting", [Transition("finish", "done")]),
            State("done", kind="success"),
        ],
    )
    add(harness, machine)
    outside = Engine(harness.store, harness.toolbox, works=False)
    # Just before the attempt writes that the action has failed.
    racing = CommitHookStore(harness.store, Event.COMPLETE, lambda task: outside.instances.transition(task.id, "move"))
    harness.store = cast("Store", racing)
    async with harness.running() as engine:
        task = await engine.submit("racing")
        await reach_state(harness, task.id, "waiting")
        await engine.instances.transition(task.id, "finish")
        ended = (await end_of(harness, task.id)).task
        assert (ended.phase, ended.is_error, state_of(ended)) == (Phase.COMPLETED, False, "done")


async def test_questions_of_a_state_are_withdrawn_when_the_instance_leaves_it(harness: EngineHarness) -> None:
    async def ask(_: InstanceSnapshot, task: Any) -> None:
        await task.elicit("Go on?", {"type": "object"}, name="ask")

    machine = Machine(
        "asks",
        [
            State("asking", [Transition("skip", "waiting")], action=ask),
            State("waiting", [Transition("finish", "done")]),
            State("done", kind="success"),
        ],
    )
    add(harness, machine)
    async with harness.running() as engine:
        task = await engine.submit("asks")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await engine.instances.transition(task.id, "skip")
        view = await engine.wait(task.id, until=lambda task: task.open_inputs == 0)
        assert state_of(view.task) == "waiting"
        await engine.instances.transition(task.id, "finish")
        await end_of(harness, task.id)


async def test_a_program_that_checks_permissions_itself_can_steer_instances_of_any_owner(
    harness: EngineHarness,
) -> None:
    add(harness, review())
    async with harness.running(works=False) as engine:
        task = await engine.submit("review", owner=Owner.token("issuer", "ada"))
        with pytest.raises(TaskNotFound):
            await engine.instances.available_transitions(task.id)
        assert len(await engine.instances.available_transitions(task.id, owner=None)) == 2
        moved = await engine.instances.transition(task.id, "submit", owner=None, data={"text": "x"})
        assert state_of(moved) == "reviewed"
        assert await engine.instances.count_by_state("review", owner=None) == {"reviewed": 1}


def test_an_action_that_takes_the_task_must_be_a_coroutine_function() -> None:
    def act(_: InstanceSnapshot, task: Any) -> None:
        del task

    with pytest.raises(ConfigurationError, match="write `async def`"):
        Machine("plain", [State("on", [Transition("go", "off")], action=act), State("off", kind="success")])
