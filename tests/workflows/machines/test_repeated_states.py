"""Instances that return to a state start each stay afresh, and old checkpoints do not add up."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import Limits
from raincheck.engine import Engine
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.workflows import Machine, Next, State, Transition
from tests.support.engine.harness import QUICK, CommitHookStore, EngineHarness, outcome_of
from tests.support.workflows.example_machine import add, end_of, reach_state

pytestmark = pytest.mark.anyio

ROUNDS = 7


def counting(action: Any) -> Machine:
    """Goes round until the action has enough."""
    return Machine(
        "counting",
        [
            State("counting", [Transition("again", "counting"), Transition("enough", "end")], action=action),
            State("end", kind="success"),
        ],
    )


async def test_repeated_states_do_not_add_up_steps(harness: EngineHarness) -> None:
    async def count(snapshot: InstanceSnapshot, task: Any) -> Next:
        number = cast("int", snapshot.data.get("count", 0))
        for name in ("one", "two"):
            assert await task.step(name, lambda: number) == number, "what another stay recorded"
        return Next("again" if number < ROUNDS else "enough", {"count": number + 1})

    add(harness, counting(count))
    async with harness.running(replace(QUICK, limits=Limits(steps=2))) as engine:
        task = await engine.submit("counting")
        assert outcome_of(await end_of(harness, task.id)) == {"count": ROUNDS + 1}
        journal = await harness.store.journal(task.id, Scope.everything(), now=SystemClock().now())
        assert journal.steps == ()


async def test_answers_are_removed_when_the_instance_leaves_the_state(harness: EngineHarness) -> None:
    async def ask(snapshot: InstanceSnapshot, task: Any) -> Next:
        reply = await task.elicit("more?", {"type": "object"}, name="more")
        count = cast("int", snapshot.data.get("count", 0)) + 1
        return Next("again" if reply.action == "accept" else "enough", {"count": count})

    add(harness, counting(ask))
    async with harness.running() as engine:
        task = await engine.submit("counting")
        for action in ("accept", "accept", "decline"):
            view = await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
            journal = await harness.store.journal(task.id, Scope.everything(), now=SystemClock().now())
            assert journal.inputs == view.inputs
            await engine.answer(task.id, {view.inputs[0].key: {"action": action, "content": {}}})
        assert outcome_of(await end_of(harness, task.id)) == {"count": 3}


async def test_an_instance_continues_after_a_slow_transition(harness: EngineHarness) -> None:
    """Meanwhile nothing seems to happen, and the attempt might park, with nothing to wake it."""

    async def count(_: InstanceSnapshot, task: Any) -> Next:
        await task.step("one", lambda: 1)
        return Next("enough")

    add(harness, counting(count))
    slow: Any = CommitHookStore(harness.store, Event.TRANSITION, lambda _: asyncio.sleep(10 * QUICK.park_after))
    async with Engine(slow, harness.toolbox, settings=QUICK) as engine:
        task = await engine.submit("counting")
        async with asyncio.timeout(10):
            view = await engine.wait(task.id)
        assert view.task.phase is Phase.COMPLETED
        assert "park" not in [str(entry.event) for entry in await harness.history(task.id)]


async def test_an_action_at_work_outside_of_steps_is_not_parked(harness: EngineHarness) -> None:
    async def count(_: InstanceSnapshot, task: Any) -> Next:
        assert task.attempt == 1
        await asyncio.sleep(10 * QUICK.park_after)
        return Next("enough")

    add(harness, counting(count))
    async with harness.running() as engine:
        task = await engine.submit("counting")
        async with asyncio.timeout(10):
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED


async def test_an_action_that_waits_lets_the_instance_park(harness: EngineHarness) -> None:
    async def count(_: InstanceSnapshot, task: Any) -> Next:
        await task.elicit("go on?", {"type": "object"})
        return Next("enough")

    add(harness, counting(count))
    async with harness.running() as engine:
        task = await engine.submit("counting")
        await harness.reach(task.id, Phase.PARKED)
        view = await engine.view(task.id)
        await engine.answer(task.id, {view.inputs[0].key: {"action": "accept", "content": {}}})
        async with asyncio.timeout(10):
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED


async def test_progress_of_one_state_is_not_carried_to_the_next(harness: EngineHarness) -> None:
    async def count(_: InstanceSnapshot, task: Any) -> Next:
        await task.progress(49, 50)
        return Next("enough")

    machine = Machine(
        "counting",
        [
            State("counting", [Transition("enough", "resting")], action=count),
            State("resting", [Transition("go", "end")]),
            State("end", kind="success"),
        ],
    )
    add(harness, machine)
    async with harness.running() as engine:
        task = await engine.submit("counting")
        resting = await reach_state(harness, task.id, "resting")
        assert resting.progress is None
        assert (await harness.reach(task.id, Phase.PARKED)).progress is None
