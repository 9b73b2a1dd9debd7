"""Contract for commits: a change is atomic, checked against the version that was read, and terminal is final."""

import asyncio

import pytest

from raincheck.core.commands import Cancel, Complete, Fail, Note, Pause, Release, Resume, Signal, Yield
from raincheck.core.lifecycle import TERMINAL_PHASES, Event, Phase
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import Artifact, Progress, Task
from raincheck.core.values import encode
from raincheck.errors import AlreadyRecorded, IllegalTransition, InvalidValue, LeaseLost, StaleChange
from raincheck.testing.harness import EVERYTHING, StoreHarness
from raincheck.testing.store_contract.base import StoreContractBase


class CommitContract(StoreContractBase):
    async def test_a_change_is_read_back_as_it_was_decided(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        note = Note(1, Progress(1.5, 4.0), "crunching", variables=encode({"n": 1}))
        change = harness.decide(task, note)
        await harness.store.commit([change])
        assert await harness.load(task) == change.after
        journal = await harness.journal(task)
        assert journal.variables == encode({"n": 1})
        assert (await harness.history(task))[-1] == change.entry

    async def test_a_stale_change_is_rejected_as_a_whole(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        late = harness.decide(task, Note(1, steps=(harness.step("load"),)))
        current = await harness.apply(task, Note(1, status_message="quicker"))
        with pytest.raises(StaleChange):
            await harness.store.commit([late])
        assert await harness.load(task) == current
        assert (await harness.journal(task)).steps == ()

    async def test_several_changes_are_committed_all_or_none(self, harness: StoreHarness) -> None:
        one, two = await harness.create_running(), await harness.create_running()
        first = harness.decide(one, Complete(1, encode("one")))
        stale = harness.decide(two, Complete(1, encode("two")))
        await harness.apply(two, Cancel("alice"))
        with pytest.raises(StaleChange) as caught:
            await harness.store.commit([first, stale])
        assert caught.value.task_id == two.id
        assert await harness.load(one) == one
        await harness.store.commit([first])
        assert (await harness.load(one)).phase is Phase.COMPLETED

    async def test_a_commit_names_each_task_once(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        change = harness.decide(task, Complete(1, encode(1)))
        with pytest.raises(InvalidValue):
            await harness.store.commit([change, change])
        assert await harness.load(task) == task

    async def test_a_change_of_a_deleted_task_is_stale(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        ended = await harness.apply(task, Cancel("alice"))
        await harness.store.prune(now=harness.jump_to_expiry(ended), limit=10)
        with pytest.raises(StaleChange):
            await harness.store.commit([harness.decide(task, Complete(1, encode(1)))])

    async def test_a_late_completion_does_not_overwrite_a_cancel(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        late = harness.decide(task, Complete(1, encode("too late")))
        cancelled = await harness.apply(task, Cancel("alice", "changed my mind"))
        with pytest.raises(StaleChange):
            await harness.store.commit([late])
        with pytest.raises(LeaseLost):
            await harness.apply(task, Complete(1, encode("too late")))
        view = await harness.view(task)
        assert (view.task, view.outcome) == (cancelled, None)
        assert (await harness.history(task))[-1].note == "changed my mind"

    async def test_a_late_cancel_does_not_overwrite_a_completion(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        late = harness.decide(task, Cancel("alice"))
        completed = await harness.apply(task, Complete(1, encode("done")))
        with pytest.raises(StaleChange):
            await harness.store.commit([late])
        with pytest.raises(IllegalTransition):
            await harness.apply(task, Cancel("alice"))
        view = await harness.view(task)
        assert (view.task, view.outcome) == (completed, encode("done"))

    async def test_exactly_one_of_many_concurrent_endings_wins(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        endings = [
            Complete(1, encode("done")),
            Fail(1, encode({"message": "broke"}), "broke", retryable=False),
            *(Cancel(f"caller {number}") for number in range(8)),
        ]
        outcomes = await asyncio.gather(*(harness.apply(task, ending) for ending in endings), return_exceptions=True)
        winners = [outcome for outcome in outcomes if isinstance(outcome, Task)]
        losers = [outcome for outcome in outcomes if isinstance(outcome, (LeaseLost, IllegalTransition))]
        assert (len(winners), len(losers)) == (1, 9)
        assert await harness.load(task) == winners[0]
        assert [entry.after in TERMINAL_PHASES for entry in await harness.history(task)].count(True) == 1

    async def test_a_terminal_task_accepts_no_command(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        ended = await harness.apply(task, Fail(1, encode({"message": "broke"}), "broke", retryable=False))
        for command in (Cancel("a"), Pause("a"), Resume("a"), Signal("a", "child")):
            with pytest.raises(IllegalTransition):
                await harness.apply(task, command)
        for command in (Note(1, status_message="late"), Release(1), Yield(1), Complete(1, encode(1))):
            with pytest.raises(LeaseLost):
                await harness.apply(task, command)
        assert await harness.load(task) == ended
        assert await harness.claim(limit=10) == ()

    async def test_the_message_of_the_working_phase_does_not_survive_completion(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        await harness.apply(task, Note(1, status_message="crunching"))
        assert (await harness.apply(task, Complete(1, encode(1)))).status_message is None

    async def test_outcome_and_phase_become_visible_at_one_moment(self, harness: StoreHarness) -> None:
        tasks = [await harness.create_running() for _ in range(20)]
        torn: list[str] = []

        async def watch() -> None:
            pending = {task.id for task in tasks}
            while pending:
                await asyncio.sleep(0)
                for task_id in sorted(pending):
                    view = await harness.store.view(task_id, EVERYTHING, now=harness.clock.now())
                    if view.task.is_terminal != (view.outcome is not None):
                        torn.append(task_id)
                    if view.task.is_terminal:
                        pending.discard(task_id)

        async def finish() -> None:
            for task in tasks:
                await harness.apply(task, Complete(1, encode("done")))

        await asyncio.wait_for(asyncio.gather(watch(), finish()), 30)
        assert torn == []

    async def test_steps_are_recorded_once_and_in_order(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        steps = (harness.step("load", 0, [1]), harness.step("load", 1, None), harness.step("crunch"))
        for step in steps:
            await harness.apply(task, Note(1, steps=(step,)))
        with pytest.raises(AlreadyRecorded):
            await harness.apply(task, Note(1, status_message="again", steps=(harness.step("load", 1, "other"),)))
        journal = await harness.journal(task)
        assert journal.steps == steps
        assert journal.task.status_message is None

    async def test_steps_outlive_the_attempt_that_made_them(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        await harness.apply(task, Note(1, steps=(harness.step("load"),)))
        await harness.apply(task, Release(1))
        (again,) = await harness.claim()
        journal = await harness.journal(again)
        assert (again.attempt_number, [step.name for step in journal.steps]) == (2, ["load"])

    async def test_an_artifact_is_readable_while_the_task_works_and_can_be_replaced(
        self, harness: StoreHarness
    ) -> None:
        task = await harness.create_running()
        now = harness.clock.now()
        for text in ("draft", "better"):
            await harness.apply(task, Note(1, artifacts=(Artifact("report", encode(text), now),)))
        await harness.apply(task, Note(1, artifacts=(Artifact("chart", encode(0), now),)))
        artifact = await harness.store.artifact(task.id, "report", EVERYTHING, now=now)
        assert artifact == Artifact("report", encode("better"), now)
        assert await harness.store.artifact(task.id, "\ud800 no such", EVERYTHING, now=now) is None
        assert (await harness.store.journal(task.id, EVERYTHING, now=now)).artifacts == ("chart", "report")

    async def test_the_operator_reads_the_detail_of_an_error_and_the_caller_the_error(
        self, harness: StoreHarness
    ) -> None:
        task = await harness.create_running(retry=RetryPolicy(attempts=2, jitter=0))
        error, detail = encode({"message": "broke"}), encode({"traceback": "line 1"})
        await harness.apply(task, Fail(1, error, "broke", detail=detail))
        assert (await harness.history(task))[-1].detail == detail
        harness.clock.advance(60)
        (again,) = await harness.claim()
        await harness.apply(again, Fail(2, error, "broke", detail=detail))
        view = await harness.view(task)
        assert (view.task.phase, view.outcome) == (Phase.FAILED, error)
        assert (await harness.history(task))[-1].detail == detail

    async def test_every_change_has_its_entry_and_the_chain_is_unbroken(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        await harness.apply(task, Note(1, steps=(harness.step("load"),)))
        await harness.apply(task, Pause("operator", "maintenance"))
        await harness.apply(task, Yield(1))
        await harness.apply(task, Resume("operator"))
        (again,) = await harness.claim(holder="worker-2")
        await harness.apply(again, Complete(2, encode(1)))
        events = [entry.event for entry in await harness.history(task)]
        assert events == [
            Event.CREATE, Event.CLAIM, Event.NOTE, Event.PAUSE, Event.YIELD, Event.RESUME, Event.DUE, Event.CLAIM,
            Event.COMPLETE,
        ]  # fmt: skip
        assert [entry.attempt for entry in await harness.history(task)] == [0, 1, 1, 1, 1, 1, 1, 2, 2]

    async def test_history_can_be_read_in_parts(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        for number in range(10):
            await harness.apply(task, Note(1, status_message=f"part {number}"))
        full = await harness.history(task)
        now = harness.clock.now()
        parts = [
            await harness.store.history(task.id, EVERYTHING, now=now, after=after, limit=5) for after in (0, 5, 10)
        ]
        assert [len(part) for part in parts] == [5, 5, 2]
        assert full == parts[0] + parts[1] + parts[2]
