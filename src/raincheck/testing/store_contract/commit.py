"""Contract for commits: a change is atomic, checked against the version that was read, and terminal is final."""

import asyncio

import pytest

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Command, Complete, Fail, Note, Pause, Release, Resume, Signal, Yield
from raincheck.core.decide import decide
from raincheck.core.lifecycle import TERMINAL_PHASES, Event, Phase
from raincheck.core.payload import encode
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import Artifact, Progress, Task
from raincheck.errors import AlreadyRecorded, IllegalTransition, InvalidValue, LeaseLost, StaleChange
from raincheck.testing.harness import EVERYTHING, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase


def decide_change(scene: StoreHarness, task: Task, command: Command) -> Change:
    change = decide(task, command, scene.clock.now())
    assert change is not None
    return change


class CommitContract(StoreContractBase):
    async def test_a_change_is_read_back_as_it_was_decided(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        note = Note(1, Progress(1.5, 4.0), "crunching", variables=encode({"n": 1}))
        change = decide_change(scene, task, note)
        await scene.store.commit([change])
        assert await scene.load(task) == change.after
        journal = await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())
        assert journal.variables == encode({"n": 1})
        assert (await scene.history(task))[-1] == change.entry

    async def test_a_change_of_what_is_no_longer_so_is_refused_whole(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        late = decide_change(scene, task, Note(1, steps=(scene.step("load"),)))
        now_so = await scene.apply(task, Note(1, status_message="quicker"))
        with pytest.raises(StaleChange):
            await scene.store.commit([late])
        assert await scene.load(task) == now_so
        assert (await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())).steps == ()

    async def test_several_changes_are_kept_all_or_none(self, scene: StoreHarness) -> None:
        one, two = await scene.create_running(), await scene.create_running()
        first = decide_change(scene, one, Complete(1, encode("one")))
        stale = decide_change(scene, two, Complete(1, encode("two")))
        await scene.apply(two, Cancel("alice"))
        with pytest.raises(StaleChange) as caught:
            await scene.store.commit([first, stale])
        assert caught.value.task_id == two.id
        assert await scene.load(one) == one
        await scene.store.commit([first])
        assert (await scene.load(one)).phase is Phase.COMPLETED

    async def test_a_commit_names_each_task_once(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        change = decide_change(scene, task, Complete(1, encode(1)))
        with pytest.raises(InvalidValue):
            await scene.store.commit([change, change])
        assert await scene.load(task) == task

    async def test_a_change_of_a_task_that_is_gone_is_stale(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        ended = await scene.apply(task, Cancel("alice"))
        assert ended.expires_at is not None
        await scene.store.prune(now=ended.expires_at, limit=10)
        with pytest.raises(StaleChange):
            await scene.store.commit([decide_change(scene, task, Complete(1, encode(1)))])

    async def test_a_late_completion_does_not_overwrite_a_cancel(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        late = decide_change(scene, task, Complete(1, encode("too late")))
        cancelled = await scene.apply(task, Cancel("alice", "changed my mind"))
        with pytest.raises(StaleChange):
            await scene.store.commit([late])
        with pytest.raises(LeaseLost):
            await scene.apply(task, Complete(1, encode("too late")))
        view = await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())
        assert (view.task, view.outcome) == (cancelled, None)
        assert (await scene.history(task))[-1].note == "changed my mind"

    async def test_a_late_cancel_does_not_overwrite_a_completion(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        late = decide_change(scene, task, Cancel("alice"))
        completed = await scene.apply(task, Complete(1, encode("done")))
        with pytest.raises(StaleChange):
            await scene.store.commit([late])
        with pytest.raises(IllegalTransition):
            await scene.apply(task, Cancel("alice"))
        view = await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())
        assert (view.task, view.outcome) == (completed, encode("done"))

    async def test_of_many_endings_at_once_exactly_one_wins(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        endings = [
            Complete(1, encode("done")),
            Fail(1, encode({"message": "broke"}), "broke", retryable=False),
            *(Cancel(f"caller {number}") for number in range(8)),
        ]
        outcomes = await asyncio.gather(*(scene.apply(task, ending) for ending in endings), return_exceptions=True)
        winners = [one for one in outcomes if isinstance(one, Task)]
        losers = [one for one in outcomes if isinstance(one, (LeaseLost, IllegalTransition))]
        assert (len(winners), len(losers)) == (1, 9)
        assert await scene.load(task) == winners[0]
        assert [entry.after in TERMINAL_PHASES for entry in await scene.history(task)].count(True) == 1

    async def test_nothing_leads_out_of_an_end(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        ended = await scene.apply(task, Fail(1, encode({"message": "broke"}), "broke", retryable=False))
        for command in (Cancel("a"), Pause("a"), Resume("a"), Signal("a", "child")):
            with pytest.raises(IllegalTransition):
                await scene.apply(task, command)
        for command in (Note(1, status_message="late"), Release(1), Yield(1), Complete(1, encode(1))):
            with pytest.raises(LeaseLost):
                await scene.apply(task, command)
        assert await scene.load(task) == ended
        assert await scene.claim(limit=10) == ()

    async def test_the_message_of_the_working_phase_does_not_survive_completion(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        await scene.apply(task, Note(1, status_message="crunching"))
        assert (await scene.apply(task, Complete(1, encode(1)))).status_message is None

    async def test_outcome_and_phase_become_visible_at_one_moment(self, scene: StoreHarness) -> None:
        tasks = [await scene.create_running() for _ in range(20)]
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
                await scene.apply(task, Complete(1, encode("done")))

        await asyncio.wait_for(asyncio.gather(watch(), finish()), 30)
        assert torn == []

    async def test_steps_are_recorded_once_and_in_order(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        steps = (scene.step("load", 0, [1]), scene.step("load", 1, None), scene.step("crunch"))
        for step in steps:
            await scene.apply(task, Note(1, steps=(step,)))
        with pytest.raises(AlreadyRecorded):
            await scene.apply(task, Note(1, status_message="again", steps=(scene.step("load", 1, "other"),)))
        journal = await scene.store.journal(task.id, EVERYTHING, now=scene.clock.now())
        assert journal.steps == steps
        assert journal.task.status_message is None

    async def test_steps_outlive_the_attempt_that_made_them(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        await scene.apply(task, Note(1, steps=(scene.step("load"),)))
        await scene.apply(task, Release(1))
        (again,) = await scene.claim()
        journal = await scene.store.journal(again.id, EVERYTHING, now=scene.clock.now())
        assert (again.attempt_number, [step.name for step in journal.steps]) == (2, ["load"])

    async def test_an_artifact_is_readable_while_the_task_works_and_can_be_replaced(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        now = scene.clock.now()
        for text in ("draft", "better"):
            await scene.apply(task, Note(1, artifacts=(Artifact("report", encode(text), now),)))
        await scene.apply(task, Note(1, artifacts=(Artifact("chart", encode(0), now),)))
        found = await scene.store.artifact(task.id, "report", EVERYTHING, now=now)
        assert found == Artifact("report", encode("better"), now)
        assert await scene.store.artifact(task.id, "\ud800 no such", EVERYTHING, now=now) is None
        assert (await scene.store.journal(task.id, EVERYTHING, now=now)).artifacts == ("chart", "report")

    async def test_the_operator_reads_the_detail_of_an_error_and_the_caller_the_error(
        self, scene: StoreHarness
    ) -> None:
        task = await scene.create_running(retry=RetryPolicy(attempts=2, jitter=0))
        error, detail = encode({"message": "broke"}), encode({"traceback": "line 1"})
        await scene.apply(task, Fail(1, error, "broke", detail=detail))
        assert (await scene.history(task))[-1].detail == detail
        scene.clock.advance(60)
        (again,) = await scene.claim()
        await scene.apply(again, Fail(2, error, "broke", detail=detail))
        view = await scene.store.view(task.id, EVERYTHING, now=scene.clock.now())
        assert (view.task.phase, view.outcome) == (Phase.FAILED, error)
        assert (await scene.history(task))[-1].detail == detail

    async def test_every_change_has_its_entry_and_the_chain_is_unbroken(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        await scene.apply(task, Note(1, steps=(scene.step("load"),)))
        await scene.apply(task, Pause("operator", "maintenance"))
        await scene.apply(task, Yield(1))
        await scene.apply(task, Resume("operator"))
        (again,) = await scene.claim(holder="worker-2")
        await scene.apply(again, Complete(2, encode(1)))
        events = [entry.event for entry in await scene.history(task)]
        assert events == [
            Event.CREATE, Event.CLAIM, Event.NOTE, Event.PAUSE, Event.YIELD, Event.RESUME, Event.DUE, Event.CLAIM,
            Event.COMPLETE,
        ]  # fmt: skip
        assert [entry.attempt for entry in await scene.history(task)] == [0, 1, 1, 1, 1, 1, 1, 2, 2]

    async def test_history_can_be_read_in_parts(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        for number in range(10):
            await scene.apply(task, Note(1, status_message=f"part {number}"))
        whole = await scene.history(task)
        now = scene.clock.now()
        parts = [await scene.store.history(task.id, EVERYTHING, now=now, after=after, limit=5) for after in (0, 5, 10)]
        assert [len(part) for part in parts] == [5, 5, 2]
        assert whole == parts[0] + parts[1] + parts[2]
