"""Committing changes: whole, checked against what was read, final at the end."""

import asyncio

import pytest

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Command, Complete, Fail, Note, Pause, Release, Resume, Signal, Yield
from raincheck.core.decide import decide
from raincheck.core.lifecycle import TERMINAL, Event, Phase
from raincheck.core.payload import encode
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import Artifact, Progress, Task
from raincheck.errors import AlreadyRecorded, IllegalTransition, InvalidValue, LeaseLost, StaleChange
from raincheck.testing.harness import EVERYTHING, Scene
from raincheck.testing.store_contract.base import ContractBase


def decided(scene: Scene, task: Task, command: Command) -> Change:
    change = decide(task, command, scene.clock.now())
    assert change is not None
    return change


class CommittingContract(ContractBase):
    async def test_a_change_is_read_back_as_it_was_decided(self, scene: Scene) -> None:
        task = await scene.begin()
        note = Note(1, Progress(1.5, 4.0), "crunching", variables=encode({"n": 1}))
        change = decided(scene, task, note)
        await scene.store.commit([change])
        assert await scene.load(task) == change.after
        journal = await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())
        assert journal.variables == encode({"n": 1})
        assert (await scene.history(task))[-1] == change.entry

    async def test_a_change_of_what_is_no_longer_so_is_refused_whole(self, scene: Scene) -> None:
        task = await scene.begin()
        late = decided(scene, task, Note(1, steps=(scene.step("load"),)))
        now_so = await scene.do(task, Note(1, status_message="quicker"))
        with pytest.raises(StaleChange):
            await scene.store.commit([late])
        assert await scene.load(task) == now_so
        assert (await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())).steps == ()

    async def test_several_changes_are_kept_all_or_none(self, scene: Scene) -> None:
        one, two = await scene.begin(), await scene.begin()
        first = decided(scene, one, Complete(1, encode("one")))
        stale = decided(scene, two, Complete(1, encode("two")))
        await scene.do(two, Cancel("alice"))
        with pytest.raises(StaleChange) as caught:
            await scene.store.commit([first, stale])
        assert caught.value.task_id == two.id
        assert await scene.load(one) == one
        await scene.store.commit([first])
        assert (await scene.load(one)).phase is Phase.COMPLETED

    async def test_a_commit_names_each_task_once(self, scene: Scene) -> None:
        task = await scene.begin()
        change = decided(scene, task, Complete(1, encode(1)))
        with pytest.raises(InvalidValue):
            await scene.store.commit([change, change])
        assert await scene.load(task) == task

    async def test_a_change_of_a_task_that_is_gone_is_stale(self, scene: Scene) -> None:
        task = await scene.begin()
        ended = await scene.do(task, Cancel("alice"))
        assert ended.expires_at is not None
        await scene.store.prune(now=ended.expires_at, limit=10)
        with pytest.raises(StaleChange):
            await scene.store.commit([decided(scene, task, Complete(1, encode(1)))])

    async def test_a_late_completion_does_not_overwrite_a_cancel(self, scene: Scene) -> None:
        task = await scene.begin()
        late = decided(scene, task, Complete(1, encode("too late")))
        cancelled = await scene.do(task, Cancel("alice", "changed my mind"))
        with pytest.raises(StaleChange):
            await scene.store.commit([late])
        with pytest.raises(LeaseLost):
            await scene.do(task, Complete(1, encode("too late")))
        view = await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())
        assert (view.task, view.outcome) == (cancelled, None)
        assert (await scene.history(task))[-1].note == "changed my mind"

    async def test_a_late_cancel_does_not_overwrite_a_completion(self, scene: Scene) -> None:
        task = await scene.begin()
        late = decided(scene, task, Cancel("alice"))
        completed = await scene.do(task, Complete(1, encode("done")))
        with pytest.raises(StaleChange):
            await scene.store.commit([late])
        with pytest.raises(IllegalTransition):
            await scene.do(task, Cancel("alice"))
        view = await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())
        assert (view.task, view.outcome) == (completed, encode("done"))

    async def test_of_many_endings_at_once_exactly_one_wins(self, scene: Scene) -> None:
        task = await scene.begin()
        endings = [
            Complete(1, encode("done")),
            Fail(1, encode({"message": "broke"}), "broke", retryable=False),
            *(Cancel(f"caller {number}") for number in range(8)),
        ]
        outcomes = await asyncio.gather(*(scene.do(task, ending) for ending in endings), return_exceptions=True)
        winners = [one for one in outcomes if isinstance(one, Task)]
        losers = [one for one in outcomes if isinstance(one, (LeaseLost, IllegalTransition))]
        assert (len(winners), len(losers)) == (1, 9)
        assert await scene.load(task) == winners[0]
        assert [entry.after in TERMINAL for entry in await scene.history(task)].count(True) == 1

    async def test_nothing_leads_out_of_an_end(self, scene: Scene) -> None:
        task = await scene.begin()
        ended = await scene.do(task, Fail(1, encode({"message": "broke"}), "broke", retryable=False))
        for command in (Cancel("a"), Pause("a"), Resume("a"), Signal("a", "child")):
            with pytest.raises(IllegalTransition):
                await scene.do(task, command)
        for command in (Note(1, status_message="late"), Release(1), Yield(1), Complete(1, encode(1))):
            with pytest.raises(LeaseLost):
                await scene.do(task, command)
        assert await scene.load(task) == ended
        assert await scene.claim(limit=10) == ()

    async def test_the_message_of_the_working_phase_does_not_survive_completion(self, scene: Scene) -> None:
        task = await scene.begin()
        await scene.do(task, Note(1, status_message="crunching"))
        assert (await scene.do(task, Complete(1, encode(1)))).status_message is None

    async def test_outcome_and_phase_become_visible_at_one_moment(self, scene: Scene) -> None:
        tasks = [await scene.begin() for _ in range(20)]
        torn: list[str] = []

        async def watch() -> None:
            pending = {task.id for task in tasks}
            while pending:
                await asyncio.sleep(0)
                for task_id in sorted(pending):
                    view = await scene.store.view(task_id, EVERYTHING, now=scene.clock.now())
                    if view.task.is_terminal != (view.outcome is not None):
                        torn.append(task_id)
                    if view.task.is_terminal:
                        pending.discard(task_id)

        async def finish() -> None:
            for task in tasks:
                await scene.do(task, Complete(1, encode("done")))

        await asyncio.wait_for(asyncio.gather(watch(), finish()), 30)
        assert torn == []

    async def test_steps_are_recorded_once_and_in_order(self, scene: Scene) -> None:
        task = await scene.begin()
        steps = (scene.step("load", 0, [1]), scene.step("load", 1, None), scene.step("crunch"))
        for step in steps:
            await scene.do(task, Note(1, steps=(step,)))
        with pytest.raises(AlreadyRecorded):
            await scene.do(task, Note(1, status_message="again", steps=(scene.step("load", 1, "other"),)))
        journal = await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())
        assert journal.steps == steps
        assert journal.task.status_message is None

    async def test_steps_outlive_the_attempt_that_made_them(self, scene: Scene) -> None:
        task = await scene.begin()
        await scene.do(task, Note(1, steps=(scene.step("load"),)))
        await scene.do(task, Release(1))
        (again,) = await scene.claim()
        journal = await scene.store.journal(again.id, EVERYTHING, now=scene.clock.now())
        assert (again.fence, [step.name for step in journal.steps]) == (2, ["load"])

    async def test_an_artifact_is_readable_while_the_task_works_and_can_be_replaced(self, scene: Scene) -> None:
        task = await scene.begin()
        now = scene.clock.now()
        for text in ("draft", "better"):
            await scene.do(task, Note(1, artifacts=(Artifact("report", encode(text), now),)))
        await scene.do(task, Note(1, artifacts=(Artifact("chart", encode(0), now),)))
        found = await scene.store.artifact(task.id, "report", EVERYTHING, now=now)
        assert found == Artifact("report", encode("better"), now)
        assert await scene.store.artifact(task.id, "\ud800 no such", EVERYTHING, now=now) is None
        assert (await scene.store.journal(task.id, EVERYTHING, now=now)).artifacts == ("chart", "report")

    async def test_the_operator_reads_the_detail_of_an_error_and_the_caller_the_error(self, scene: Scene) -> None:
        task = await scene.begin(retry=RetryPolicy(attempts=2, jitter=0))
        error, detail = encode({"message": "broke"}), encode({"traceback": "line 1"})
        await scene.do(task, Fail(1, error, "broke", detail=detail))
        assert (await scene.history(task))[-1].detail == detail
        scene.clock.advance(60)
        (again,) = await scene.claim()
        await scene.do(again, Fail(2, error, "broke", detail=detail))
        view = await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())
        assert (view.task.phase, view.outcome) == (Phase.FAILED, error)
        assert (await scene.history(task))[-1].detail == detail

    async def test_every_change_has_its_entry_and_the_chain_is_unbroken(self, scene: Scene) -> None:
        task = await scene.begin()
        await scene.do(task, Note(1, steps=(scene.step("load"),)))
        await scene.do(task, Pause("operator", "maintenance"))
        await scene.do(task, Yield(1))
        await scene.do(task, Resume("operator"))
        (again,) = await scene.claim(holder="worker-2")
        await scene.do(again, Complete(2, encode(1)))
        events = [entry.event for entry in await scene.history(task)]
        assert events == [
            Event.CREATE, Event.CLAIM, Event.NOTE, Event.PAUSE, Event.YIELD, Event.RESUME, Event.DUE, Event.CLAIM,
            Event.COMPLETE,
        ]  # fmt: skip
        assert [entry.attempt for entry in await scene.history(task)] == [0, 1, 1, 1, 1, 1, 1, 2, 2]

    async def test_history_can_be_read_in_parts(self, scene: Scene) -> None:
        task = await scene.begin()
        for number in range(10):
            await scene.do(task, Note(1, status_message=f"part {number}"))
        whole = await scene.history(task)
        now = scene.clock.now()
        parts = [await scene.store.history(task.id, EVERYTHING, now=now, after=after, limit=5) for after in (0, 5, 10)]
        assert [len(part) for part in parts] == [5, 5, 2]
        assert whole == parts[0] + parts[1] + parts[2]
