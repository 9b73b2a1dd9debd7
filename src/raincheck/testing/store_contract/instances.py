"""Contract for instances: their states are stored with the rest of the task, and queries find them by state."""

from dataclasses import replace

import pytest

from raincheck.core.commands import Cancel, Complete, Fail, Note, Park, Release, TakeTransition
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import InstanceState, Tool
from raincheck.core.values import encode
from raincheck.errors import InvalidValue, LeaseLost, StaleChange, WrongState
from raincheck.stores.requests import TaskQuery
from raincheck.testing.harness import ALICE, BOB, EVERYTHING, NAMESPACE, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase

ALICES = Scope.for_owner(NAMESPACE, ALICE)
SUBMIT = TakeTransition("submit", "draft", 0, "review", "ann", "it is ready", encode({"text": "x"}))


class InstanceContract(StoreContractBase):
    async def test_an_instance_is_stored_with_its_state_and_subject(self, harness: StoreHarness) -> None:
        task = await harness.create(state="draft", subject="paper 7")
        assert task.state == InstanceState("draft", harness.clock.now())
        assert await harness.load(task) == task
        plain = await harness.load(await harness.create())
        assert (plain.state, plain.subject) == (None, None)

    async def test_a_transition_is_one_change_with_a_history_entry_and_data(self, harness: StoreHarness) -> None:
        task = await harness.create(state="draft")
        harness.clock.advance(5)
        moved = await harness.apply(task, SUBMIT)
        assert moved.state == InstanceState("review", harness.clock.now(), 1)
        assert await harness.load(task) == moved
        journal = await harness.journal(task)
        assert journal.variables == encode({"text": "x"})
        entry = (await harness.history(task))[-1]
        assert (entry.event, entry.actor, entry.note) == (
            Event.TRANSITION,
            "ann",
            "submit: draft -> review (it is ready)",
        )

    async def test_of_two_transitions_from_one_state_the_first_succeeds(self, harness: StoreHarness) -> None:
        task = await harness.create(state="draft")
        await harness.apply(task, SUBMIT)
        with pytest.raises(WrongState):
            await harness.apply(task, replace(SUBMIT, action="drop", to_state="dropped"))
        with pytest.raises(WrongState):
            await harness.apply(await harness.create(), SUBMIT)

    async def test_a_transition_wakes_a_parked_instance(self, harness: StoreHarness) -> None:
        task = await harness.create_running(state="draft")
        parked = await harness.apply(task, Park(1, seen_signals=0))
        assert parked.phase is Phase.PARKED
        assert (await harness.apply(task, SUBMIT)).phase is Phase.QUEUED
        (claimed,) = await harness.claim()
        assert claimed.id == task.id

    async def test_a_cancelled_instance_ends_in_the_state_of_its_transition(self, harness: StoreHarness) -> None:
        task = await harness.create_running(state="draft")
        drop = TakeTransition("drop", "draft", 0, "dropped", "ann")
        ended = await harness.apply(task, Cancel("ann", "no need", drop))
        assert (ended.phase, ended.state) == (Phase.CANCELLED, InstanceState("dropped", harness.clock.now(), 1))
        assert await harness.load(task) == ended

    async def test_a_transition_deletes_the_steps_and_answers_of_the_state_it_leaves(
        self, harness: StoreHarness
    ) -> None:
        task, other = await harness.create_running(state="draft"), await harness.create_running(state="draft")
        for instance in (task, other):
            requests = (harness.input_request("answered"), harness.input_request("open"))
            await harness.apply(
                instance, Note(1, steps=(harness.step("a"), harness.step("a", 1)), input_requests=requests)
            )
            await harness.answer(instance, {"answered": encode(1)})
        await harness.apply(task, SUBMIT)
        await harness.apply(task, Note(1, steps=(harness.step("a"),)))
        journal = await harness.journal(task)
        assert [(step.name, step.occurrence) for step in journal.steps] == [("a", 0)]
        assert [request.key for request in journal.inputs] == ["open"]
        untouched = await harness.journal(other)
        assert (len(untouched.steps), len(untouched.inputs)) == (2, 2)

    async def test_an_attempt_that_lost_its_lease_can_neither_transition_nor_end_the_task(
        self, harness: StoreHarness
    ) -> None:
        task = await harness.create_running(state="draft")
        await harness.apply(task, Release(1))
        (second,) = await harness.claim()
        late = replace(SUBMIT, fence=1)
        for command in (late, Cancel("worker", into=late)):
            with pytest.raises(LeaseLost):
                await harness.apply(task, command)
        moved = await harness.apply(second, replace(SUBMIT, fence=2))
        for command in (Complete(2, encode(1), state_number=0), Fail(2, encode(1), "broke", state_number=0)):
            with pytest.raises(WrongState):
                await harness.apply(moved, command)
        assert await harness.load(task) == moved

    async def test_a_transition_decided_on_an_outdated_read_is_stale(self, harness: StoreHarness) -> None:
        task = await harness.create(state="draft")
        change = harness.decide(task, SUBMIT)
        await harness.store.commit([change])
        with pytest.raises(StaleChange):
            await harness.store.commit([change])

    async def test_instances_are_listed_by_workflow_and_state(self, harness: StoreHarness) -> None:
        tool, other = Tool("review"), Tool("release")
        first, second, third = [await harness.create_later(tool=tool, state="draft") for _ in range(3)]
        await harness.create_later(tool=other, state="draft")
        await harness.create_later(tool=tool, state="draft", owner=BOB)
        moved = await harness.apply(second, SUBMIT)
        assert (await harness.page(TaskQuery(ALICES, tool="review", state="draft"))).tasks == (third, first)
        assert (await harness.page(TaskQuery(ALICES, tool="review", state="review"))).tasks == (moved,)
        query = TaskQuery(ALICES, tool="review", state="draft")
        page = await harness.page(query, limit=1)
        rest = await harness.page(query, after=page.next)
        assert (page.tasks, rest.tasks, rest.next) == ((third,), (first,), None)

    async def test_instances_are_listed_by_subject(self, harness: StoreHarness) -> None:
        first = await harness.create_later(state="draft", subject="paper 7")
        await harness.create_later(state="draft", subject="paper 8")
        await harness.create_later(state="draft", subject="paper 7", owner=BOB)
        second = await harness.create_later(subject="paper 7")
        assert (await harness.page(TaskQuery(ALICES, subject="paper 7"))).tasks == (second, first)
        narrowed = TaskQuery(ALICES, tool=first.tool.name, state="draft", subject="paper 7")
        assert (await harness.page(narrowed)).tasks == (first,)

    async def test_a_list_by_state_needs_a_workflow_and_a_namespace(self, harness: StoreHarness) -> None:
        del harness
        for invalid in ({"state": "draft"}, {"scope": EVERYTHING, "subject": "x"}):
            with pytest.raises(InvalidValue):
                TaskQuery(**{"scope": ALICES, **invalid})  # type: ignore[arg-type] # one of them is a scope

    async def test_instances_are_counted_by_workflow_and_state(self, harness: StoreHarness) -> None:
        tool = Tool("review")
        tasks = [await harness.create(tool=tool, state="draft") for _ in range(3)]
        await harness.apply(tasks[0], SUBMIT)
        await harness.create(tool=tool, state="draft", owner=BOB)
        await harness.create()
        now = harness.clock.now()
        assert await harness.store.count_states(ALICES, now=now) == {("review", "draft"): 2, ("review", "review"): 1}
        all_owners = await harness.store.count_states(Scope.for_namespace(NAMESPACE), now=now)
        assert all_owners == {("review", "draft"): 3, ("review", "review"): 1}
        assert await harness.store.count_states(Scope.for_owner(NAMESPACE, Owner.anonymous()), now=now) == {}
        with pytest.raises(InvalidValue):
            await harness.store.count_states(EVERYTHING, now=now)
