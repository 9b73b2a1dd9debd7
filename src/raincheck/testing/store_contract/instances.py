"""Contract for instances: their states are stored with the rest of the task, and queries find them by state."""

from dataclasses import replace
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Fail, Note, Park, Release, Transition
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import encode
from raincheck.core.records import State, Task, Tool
from raincheck.errors import InvalidValue, LeaseLost, StaleChange, WrongState
from raincheck.stores.commit import answer
from raincheck.stores.requests import TaskQuery
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, NAMESPACE, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase

ALICES = Scope.for_owner(NAMESPACE, ALICE)
SUBMIT = Transition("submit", "draft", 0, "review", "ann", "it is ready", encode({"text": "x"}))


class InstanceContract(StoreContractBase):
    async def test_a_process_is_kept_with_its_state_and_its_subject(self, scene: StoreHarness) -> None:
        task = await scene.create(state="draft", subject="paper 7")
        assert task.state == State("draft", scene.clock.now())
        assert await scene.load(task) == task
        plain = await scene.load(await scene.create())
        assert (plain.state, plain.subject) == (None, None)

    async def test_a_transition_is_one_change_with_its_entry_and_its_data(self, scene: StoreHarness) -> None:
        task = await scene.create(state="draft")
        scene.clock.advance(5)
        moved = await scene.apply(task, SUBMIT)
        assert moved.state == State("review", scene.clock.now(), 1)
        assert await scene.load(task) == moved
        journal = await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())
        assert journal.variables == encode({"text": "x"})
        entry = (await scene.history(task))[-1]
        assert (entry.event, entry.actor, entry.note) == (
            Event.TRANSITION,
            "ann",
            "submit: draft -> review (it is ready)",
        )

    async def test_of_two_transitions_out_of_one_state_the_first_holds(self, scene: StoreHarness) -> None:
        task = await scene.create(state="draft")
        await scene.apply(task, SUBMIT)
        with pytest.raises(WrongState):
            await scene.apply(task, replace(SUBMIT, action="drop", to_state="dropped"))
        with pytest.raises(WrongState):
            await scene.apply(await scene.create(), SUBMIT)

    async def test_a_transition_wakes_a_process_that_waits(self, scene: StoreHarness) -> None:
        task = await scene.create_running(state="draft")
        parked = await scene.apply(task, Park(1, seen_signals=0))
        assert parked.phase is Phase.PARKED
        assert (await scene.apply(task, SUBMIT)).phase is Phase.QUEUED
        (claimed,) = await scene.claim()
        assert claimed.id == task.id

    async def test_a_cancelled_process_ends_in_the_state_for_that(self, scene: StoreHarness) -> None:
        task = await scene.create_running(state="draft")
        drop = Transition("drop", "draft", 0, "dropped", "ann")
        ended = await scene.apply(task, Cancel("ann", "no need", drop))
        assert (ended.phase, ended.state) == (Phase.CANCELLED, State("dropped", scene.clock.now(), 1))
        assert await scene.load(task) == ended

    async def test_what_a_process_has_recorded_in_a_state_is_forgotten_when_it_leaves_it(
        self, scene: StoreHarness
    ) -> None:
        task, other = await scene.create_running(state="draft"), await scene.create_running(state="draft")
        for one in (task, other):
            asked = (scene.input_request("answered"), scene.input_request("open"))
            await scene.apply(one, Note(1, steps=(scene.step("a"), scene.step("a", 1)), input_requests=asked))
            await answer(scene.store, one.id, EVERYTHING, {"answered": encode(1)}, actor="ann", now=scene.clock.now())
        await scene.apply(task, SUBMIT)
        await scene.apply(task, Note(1, steps=(scene.step("a"),)))
        journal = await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())
        assert [(step.name, step.occurrence) for step in journal.steps] == [("a", 0)]
        assert [question.key for question in journal.inputs] == ["open"]
        untouched = await scene.store.journal(other.id, EVERYTHING, now=scene.clock.now())
        assert (len(untouched.steps), len(untouched.inputs)) == (2, 2)

    async def test_an_attempt_that_lost_its_task_takes_it_nowhere_and_does_not_end_it(
        self, scene: StoreHarness
    ) -> None:
        task = await scene.create_running(state="draft")
        await scene.apply(task, Release(1))
        (second,) = await scene.claim()
        late = replace(SUBMIT, fence=1)
        for command in (late, Cancel("worker", into=late)):
            with pytest.raises(LeaseLost):
                await scene.apply(task, command)
        moved = await scene.apply(second, replace(SUBMIT, fence=2))
        for command in (Complete(2, encode(1), state_number=0), Fail(2, encode(1), "broke", state_number=0)):
            with pytest.raises(WrongState):
                await scene.apply(moved, command)
        assert await scene.load(task) == moved

    async def test_a_transition_decided_on_what_was_read_before_is_stale(self, scene: StoreHarness) -> None:
        task = await scene.create(state="draft")
        change = decide(task, SUBMIT, scene.clock.now())
        assert change is not None
        await scene.store.commit([change])
        with pytest.raises(StaleChange):
            await scene.store.commit([change])

    async def test_processes_are_listed_by_workflow_and_state(self, scene: StoreHarness) -> None:
        tool, other = Tool("review"), Tool("release")
        first, second, third = [await self._next(scene, tool=tool, state="draft") for _ in range(3)]
        await self._next(scene, tool=other, state="draft")
        await self._next(scene, tool=tool, state="draft", owner=BOB)
        moved = await scene.apply(second, SUBMIT)
        assert await self._found(scene, TaskQuery(ALICES, tool="review", state="draft")) == [third, first]
        assert await self._found(scene, TaskQuery(ALICES, tool="review", state="review")) == [moved]
        query = TaskQuery(ALICES, tool="review", state="draft")
        page = await scene.store.list_tasks(query, now=scene.clock.now(), limit=1)
        rest = await scene.store.list_tasks(query, now=scene.clock.now(), after=page.next)
        assert (page.tasks, rest.tasks, rest.next) == ((third,), (first,), None)

    async def test_processes_are_listed_by_what_they_are_about(self, scene: StoreHarness) -> None:
        first = await self._next(scene, state="draft", subject="paper 7")
        await self._next(scene, state="draft", subject="paper 8")
        await self._next(scene, state="draft", subject="paper 7", owner=BOB)
        second = await self._next(scene, subject="paper 7")
        assert await self._found(scene, TaskQuery(ALICES, subject="paper 7")) == [second, first]
        narrowed = TaskQuery(ALICES, tool=first.tool.name, state="draft", subject="paper 7")
        assert await self._found(scene, narrowed) == [first]

    async def test_a_list_by_state_says_of_which_workflow_and_in_which_namespace(self, scene: StoreHarness) -> None:
        del scene
        for wrong in ({"state": "draft"}, {"scope": EVERYTHING, "subject": "x"}):
            with pytest.raises(InvalidValue):
                TaskQuery(**{"scope": ALICES, **wrong})  # type: ignore[arg-type] # one of them is a scope

    async def test_processes_are_counted_by_workflow_and_state(self, scene: StoreHarness) -> None:
        tool = Tool("review")
        tasks = [await scene.create(tool=tool, state="draft") for _ in range(3)]
        await scene.apply(tasks[0], SUBMIT)
        await scene.create(tool=tool, state="draft", owner=BOB)
        await scene.create()
        now = scene.clock.now()
        assert await scene.store.count_states(ALICES, now=now) == {("review", "draft"): 2, ("review", "review"): 1}
        everybodys = await scene.store.count_states(Scope.for_namespace(NAMESPACE), now=now)
        assert everybodys == {("review", "draft"): 3, ("review", "review"): 1}
        assert await scene.store.count_states(Scope.for_owner(NAMESPACE, Owner.anonymous()), now=now) == {}
        with pytest.raises(InvalidValue):
            await scene.store.count_states(EVERYTHING, now=now)

    async def _next(self, scene: StoreHarness, **fields: Any) -> Task:  # noqa: ANN401 - the fields of NewTask
        """Create a task later than the existing ones."""
        scene.clock.advance(1)
        return await scene.create(**fields)

    async def _found(self, scene: StoreHarness, query: TaskQuery) -> list[Task]:
        return [*(await scene.store.list_tasks(query, now=scene.clock.now())).tasks]
