"""Contract for input requests: asked once, answered once, and no answer is missed by a task that parks."""

import asyncio

import pytest

from raincheck.core.commands import Cancel, Complete, Note, Park, Pause, Signal
from raincheck.core.lifecycle import Event, Phase, Status
from raincheck.core.payload import encode
from raincheck.core.records import InputRequest, Task, View
from raincheck.errors import AlreadyRecorded, IllegalTransition
from raincheck.stores.commit import answer
from raincheck.testing.harness import EVERYTHING, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase

YES, NO = encode({"ok": True}), encode({"ok": False})


class InputContract(StoreContractBase):
    async def ask(self, scene: StoreHarness, *keys: str) -> Task:
        task = await scene.create_running()
        return await scene.apply(task, Note(1, input_requests=tuple(scene.input_request(key) for key in keys)))

    async def view(self, scene: StoreHarness, task: Task) -> View:
        return await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())

    async def answered(self, scene: StoreHarness, task: Task, **answers: bytes) -> Task:
        payloads = {key: encode(value.decode()) for key, value in answers.items()}
        return await answer(scene.store, task.id, EVERYTHING, payloads, actor="alice", now=scene.clock.now())

    async def test_a_question_shows_in_the_status_and_in_the_poll(self, scene: StoreHarness) -> None:
        task = await self.ask(scene, "publish")
        view = await self.view(scene, task)
        assert (view.task.status, view.task.phase) == (Status.INPUT_REQUIRED, Phase.RUNNING)
        assert view.inputs == (scene.input_request("publish"),)

    async def test_an_answer_reaches_the_next_attempt_and_wakes_the_task(self, scene: StoreHarness) -> None:
        task = await self.ask(scene, "publish")
        parked = await scene.apply(task, Park(1, seen_signals=task.signals))
        assert parked.phase is Phase.PARKED
        scene.clock.advance(5)
        woken = await self.answered(scene, task, publish=b"yes")
        assert (woken.phase, woken.status, woken.open_inputs) == (Phase.QUEUED, Status.WORKING, 0)
        (again,) = await scene.claim()
        journal = await scene.store.journal(again.id, EVERYTHING, now=scene.clock.now())
        (question,) = journal.inputs
        assert (question.answer, question.answered_at) == (encode("yes"), scene.clock.now())

    async def test_an_answer_that_comes_before_the_park_is_not_slept_through(self, scene: StoreHarness) -> None:
        task = await self.ask(scene, "publish")
        await self.answered(scene, task, publish=b"yes")
        not_parked = await scene.apply(task, Park(1, seen_signals=task.signals))
        assert not_parked.phase is Phase.QUEUED

    async def test_a_child_that_ends_before_the_park_is_not_slept_through(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        await scene.apply(task, Signal("child", "child ended"))
        assert (await scene.apply(task, Park(1, seen_signals=0))).phase is Phase.QUEUED

    async def test_after_a_partial_answer_only_the_open_questions_show(self, scene: StoreHarness) -> None:
        task = await self.ask(scene, "one", "two", "three")
        await self.answered(scene, task, two=b"2")
        view = await self.view(scene, task)
        assert [question.key for question in view.inputs] == ["one", "three"]
        assert view.task.status is Status.INPUT_REQUIRED
        await self.answered(scene, task, one=b"1", three=b"3")
        view = await self.view(scene, task)
        assert (view.inputs, view.task.status) == ((), Status.WORKING)

    async def test_unknown_and_answered_keys_are_ignored_and_the_first_answer_stays(self, scene: StoreHarness) -> None:
        task = await self.ask(scene, "publish")
        first = await self.answered(scene, task, publish=b"first")
        again = await self.answered(scene, task, publish=b"second", unknown=b"?")
        assert again == first
        journal = await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())
        assert [question.answer for question in journal.inputs] == [encode("first")]

    async def test_of_racing_answers_to_one_question_one_counts(self, scene: StoreHarness) -> None:
        task = await self.ask(scene, "publish")
        await asyncio.gather(*(self.answered(scene, task, publish=b"%d" % n) for n in range(8)))
        events = [entry.event for entry in await scene.history(task)]
        assert events.count(Event.ANSWER) == 1
        assert (await scene.load(task)).open_inputs == 0

    async def test_a_key_is_never_used_again(self, scene: StoreHarness) -> None:
        task = await self.ask(scene, "publish")
        await self.answered(scene, task, publish=b"yes")
        with pytest.raises(AlreadyRecorded):
            await scene.apply(task, Note(1, input_requests=(scene.input_request("publish"),)))
        assert (await scene.load(task)).open_inputs == 0

    async def test_an_ended_task_asks_nothing_and_takes_no_answer(self, scene: StoreHarness) -> None:
        for ending in (Complete(1, YES), Cancel("alice")):
            task = await self.ask(scene, "publish")
            ended = await scene.apply(task, ending)
            assert (await self.view(scene, task)).inputs == ()
            with pytest.raises(IllegalTransition):
                await self.answered(scene, task, publish=b"late")
            assert await scene.load(task) == ended

    async def test_an_answer_does_not_resume_what_is_paused(self, scene: StoreHarness) -> None:
        task = await self.ask(scene, "publish")
        await scene.apply(task, Park(1, seen_signals=0))
        await scene.apply(task, Pause("operator"))
        assert (await self.answered(scene, task, publish=b"yes")).phase is Phase.PAUSED

    async def test_questions_come_back_in_the_order_they_were_asked(self, scene: StoreHarness) -> None:
        keys = ["z", "a", "m"]
        task = await self.ask(scene, *keys)
        found: tuple[InputRequest, ...] = (await self.view(scene, task)).inputs
        assert [question.key for question in found] == keys
