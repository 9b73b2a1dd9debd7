"""Processes that come back to their states: each stay begins afresh, and leaves nothing behind that adds up."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.limits import Limits
from raincheck.core.owner import Scope
from raincheck.engine import Engine
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.workflows import Machine, Next, State, Transition
from tests.support.engine.harness import QUICK, Bench, Interposed, outcome_of
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


async def test_a_process_that_goes_round_takes_no_more_steps_than_one_stay_has(bench: Bench) -> None:
    async def count(situation: InstanceSnapshot, task: Any) -> Next:
        number = cast("int", situation.data.get("count", 0))
        for name in ("one", "two"):
            assert await task.step(name, lambda: number) == number, "what another stay recorded"
        return Next("again" if number < ROUNDS else "enough", {"count": number + 1})

    add(bench, counting(count))
    async with bench.working(replace(QUICK, limits=Limits(steps=2))) as engine:
        task = await engine.submit("counting")
        assert outcome_of(await end_of(bench, task.id)) == {"count": ROUNDS + 1}
        journal = await bench.store.journal(task.id, Scope.everything(), now=SystemClock().now())
        assert journal.steps == ()


async def test_answers_of_a_stay_are_forgotten_with_it(bench: Bench) -> None:
    async def ask(situation: InstanceSnapshot, task: Any) -> Next:
        reply = await task.elicit("more?", {"type": "object"}, name="more")
        count = cast("int", situation.data.get("count", 0)) + 1
        return Next("again" if reply.action == "accept" else "enough", {"count": count})

    add(bench, counting(ask))
    async with bench.working() as engine:
        task = await engine.submit("counting")
        for action in ("accept", "accept", "decline"):
            view = await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
            journal = await bench.store.journal(task.id, Scope.everything(), now=SystemClock().now())
            assert journal.inputs == view.inputs
            await engine.answer(task.id, {view.inputs[0].key: {"action": action, "content": {}}})
        assert outcome_of(await end_of(bench, task.id)) == {"count": 3}


async def test_a_process_goes_on_after_a_transition_that_took_the_store_a_while(bench: Bench) -> None:
    """Meanwhile nothing seems to happen, and the attempt might park, with nothing to wake it."""

    async def count(_: InstanceSnapshot, task: Any) -> Next:
        await task.step("one", lambda: 1)
        return Next("enough")

    add(bench, counting(count))
    slow: Any = Interposed(bench.store, Event.TRANSITION, lambda _: asyncio.sleep(10 * QUICK.park_after))
    async with Engine(slow, bench.toolbox, settings=QUICK) as engine:
        task = await engine.submit("counting")
        async with asyncio.timeout(10):
            view = await engine.wait(task.id)
        assert view.task.phase is Phase.COMPLETED
        assert "park" not in [str(entry.event) for entry in await bench.history(task.id)]


async def test_an_action_is_not_cut_off_by_a_park_whatever_it_does_outside_of_steps(bench: Bench) -> None:
    async def count(_: InstanceSnapshot, task: Any) -> Next:
        assert task.attempt == 1
        await asyncio.sleep(10 * QUICK.park_after)
        return Next("enough")

    add(bench, counting(count))
    async with bench.working() as engine:
        task = await engine.submit("counting")
        async with asyncio.timeout(10):
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED


async def test_an_action_that_waits_itself_lets_the_process_park(bench: Bench) -> None:
    async def count(_: InstanceSnapshot, task: Any) -> Next:
        await task.elicit("go on?", {"type": "object"})
        return Next("enough")

    add(bench, counting(count))
    async with bench.working() as engine:
        task = await engine.submit("counting")
        await bench.reach(task.id, Phase.PARKED)
        view = await engine.view(task.id)
        await engine.answer(task.id, {view.inputs[0].key: {"action": "accept", "content": {}}})
        async with asyncio.timeout(10):
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED


async def test_how_far_a_process_was_in_one_state_says_nothing_of_the_next(bench: Bench) -> None:
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
    add(bench, machine)
    async with bench.working() as engine:
        task = await engine.submit("counting")
        resting = await reach_state(bench, task.id, "resting")
        assert resting.progress is None
        assert (await bench.reach(task.id, Phase.PARKED)).progress is None
