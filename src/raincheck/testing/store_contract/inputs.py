"""Contract for input requests: sent once, answered once, and a task that parks misses no answer."""

import asyncio

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Signal
from raincheck.core.lifecycle import Event, Phase, Status
from raincheck.core.records import InputRequest, Task
from raincheck.core.values import encode
from raincheck.errors import AlreadyRecorded, IllegalTransition
from raincheck.testing.harness import StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase

YES, NO = encode({"ok": True}), encode({"ok": False})


class InputContract(StoreContractBase):
    async def ask(self, harness: StoreHarness, *keys: str) -> Task:
        task = await harness.create_running()
        return await harness.apply(task, Note(1, input_requests=tuple(harness.input_request(key) for key in keys)))

    async def test_an_input_request_is_visible_in_the_status_and_in_the_view(self, harness: StoreHarness) -> None:
        task = await self.ask(harness, "publish")
        view = await harness.view(task)
        assert (view.task.status, view.task.phase) == (Status.INPUT_REQUIRED, Phase.RUNNING)
        assert view.inputs == (harness.input_request("publish"),)

    async def test_an_answer_reaches_the_next_attempt_and_wakes_the_task(self, harness: StoreHarness) -> None:
        task = await self.ask(harness, "publish")
        parked = await harness.apply(task, Park(1, seen_signals=task.signals))
        assert parked.phase is Phase.PARKED
        harness.clock.advance(5)
        woken = await harness.answer(task, {"publish": encode("yes")})
        assert (woken.phase, woken.status, woken.open_inputs) == (Phase.QUEUED, Status.WORKING, 0)
        (again,) = await harness.claim()
        journal = await harness.journal(again)
        (input_request,) = journal.inputs
        assert (input_request.answer, input_request.answered_at) == (encode("yes"), harness.clock.now())

    async def test_a_park_does_not_miss_an_answer_that_arrived_before(self, harness: StoreHarness) -> None:
        task = await self.ask(harness, "publish")
        await harness.answer(task, {"publish": encode("yes")})
        not_parked = await harness.apply(task, Park(1, seen_signals=task.signals))
        assert not_parked.phase is Phase.QUEUED

    async def test_a_park_does_not_miss_a_child_that_ended_before(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        await harness.apply(task, Signal("child", "child ended"))
        assert (await harness.apply(task, Park(1, seen_signals=0))).phase is Phase.QUEUED

    async def test_a_partial_answer_leaves_only_open_input_requests_visible(self, harness: StoreHarness) -> None:
        task = await self.ask(harness, "one", "two", "three")
        await harness.answer(task, {"two": encode("2")})
        view = await harness.view(task)
        assert [input_request.key for input_request in view.inputs] == ["one", "three"]
        assert view.task.status is Status.INPUT_REQUIRED
        await harness.answer(task, {"one": encode("1"), "three": encode("3")})
        view = await harness.view(task)
        assert (view.inputs, view.task.status) == ((), Status.WORKING)

    async def test_unknown_and_answered_keys_are_ignored_and_the_first_answer_stays(
        self, harness: StoreHarness
    ) -> None:
        task = await self.ask(harness, "publish")
        first = await harness.answer(task, {"publish": encode("first")})
        again = await harness.answer(task, {"publish": encode("second"), "unknown": encode("?")})
        assert again == first
        journal = await harness.journal(task)
        assert [input_request.answer for input_request in journal.inputs] == [encode("first")]

    async def test_one_of_several_racing_answers_counts(self, harness: StoreHarness) -> None:
        task = await self.ask(harness, "publish")
        await asyncio.gather(*(harness.answer(task, {"publish": encode(str(n))}) for n in range(8)))
        events = [entry.event for entry in await harness.history(task)]
        assert events.count(Event.ANSWER) == 1
        assert (await harness.load(task)).open_inputs == 0

    async def test_a_key_is_never_used_again(self, harness: StoreHarness) -> None:
        task = await self.ask(harness, "publish")
        await harness.answer(task, {"publish": encode("yes")})
        with pytest.raises(AlreadyRecorded):
            await harness.apply(task, Note(1, input_requests=(harness.input_request("publish"),)))
        assert (await harness.load(task)).open_inputs == 0

    async def test_a_terminal_task_has_no_open_input_requests_and_accepts_no_answer(
        self, harness: StoreHarness
    ) -> None:
        for ending in (Complete(1, YES), Cancel("alice")):
            task = await self.ask(harness, "publish")
            ended = await harness.apply(task, ending)
            assert (await harness.view(task)).inputs == ()
            with pytest.raises(IllegalTransition):
                await harness.answer(task, {"publish": encode("late")})
            assert await harness.load(task) == ended

    async def test_an_answer_does_not_resume_a_paused_task(self, harness: StoreHarness) -> None:
        task = await self.ask(harness, "publish")
        await harness.apply(task, Park(1, seen_signals=0))
        await harness.apply(task, Pause("operator"))
        assert (await harness.answer(task, {"publish": encode("yes")})).phase is Phase.PAUSED

    async def test_input_requests_are_returned_in_their_order(self, harness: StoreHarness) -> None:
        keys = ["z", "a", "m"]
        task = await self.ask(harness, *keys)
        input_requests: tuple[InputRequest, ...] = (await harness.view(task)).inputs
        assert [input_request.key for input_request in input_requests] == keys
