"""The example of a validation: put right and accepted, given up, refused, overruled, and cancelled where it may be."""

import json
from pathlib import Path

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.errors import CancelRefused, InvalidValue, TransitionRefused
from tests.support.workflows.example_files import ExampleBench

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

RIGHT = '{"id": 1, "amount": 5}\n'
WRONG = '{"id": 1, "amount": -5}\n'


@pytest.fixture
def validation(tmp_path: Path) -> ExampleBench:
    bench = ExampleBench(tmp_path / "examples", "validation")
    bench.exchange("backoff: 5s", "backoff: 0.01s")
    return bench


def records(validation: ExampleBench) -> Path:
    return validation.folder / "records" / "orders.jsonl"


async def test_records_that_are_right_are_stored_when_somebody_accepts_them(validation: ExampleBench) -> None:
    async with validation.working():
        task = await validation.begin(file="orders.jsonl")
        assert task.subject == "orders.jsonl"
        question = await validation.answer(task.id, {"store": True})
        view, result = await validation.end(task.id)
    assert "All 3 records of orders.jsonl are right. Store them?" in question
    assert (view.task.phase, view.task.state and view.task.state.name) == (Phase.COMPLETED, "stored")
    assert result == {"file": "orders.jsonl", "records": 3, "tries": 1}
    assert (validation.folder / "accepted" / "orders.jsonl").exists()


async def test_records_that_are_put_right_meanwhile_are_checked_again_and_stored(validation: ExampleBench) -> None:
    records(validation).write_text(WRONG)
    async with validation.working() as engine:
        task = await validation.begin(file="orders.jsonl")
        await validation.reach(task.id, "waiting")
        records(validation).write_text(RIGHT)
        await engine.instances.transition(task.id, "again", actor="ann")
        await validation.answer(task.id, {"store": True})
        view, result = await validation.end(task.id)
    assert view.task.phase is Phase.COMPLETED
    assert result == {"file": "orders.jsonl", "records": 1, "tries": 2}


async def test_records_that_stay_wrong_are_given_up_after_the_last_try(validation: ExampleBench) -> None:
    validation.exchange("after: 10m", "after: 0.01s")
    records(validation).write_text(WRONG)
    async with validation.working():
        task = await validation.begin(file="orders.jsonl", tries=3)
        view, result = await validation.end(task.id)
    assert (view.task.phase, view.task.state and view.task.state.name) == (Phase.FAILED, "rejected")
    assert isinstance(result, dict)
    assert result["data"] == {
        "state": "rejected",
        "data": {"tries": 3, "wrong": ["line 1 has no amount of 0 or more"]},
    }


async def test_a_file_that_is_missing_counts_as_wrong_and_may_turn_up(validation: ExampleBench) -> None:
    async with validation.working() as engine:
        task = await validation.begin(file="invoices.jsonl")
        await validation.reach(task.id, "waiting")
        (validation.folder / "records" / "invoices.jsonl").write_text(RIGHT)
        await engine.instances.transition(task.id, "again")
        await validation.answer(task.id, {"store": True})
        _, result = await validation.end(task.id)
    assert result == {"file": "invoices.jsonl", "records": 1, "tries": 2}


@pytest.mark.parametrize(
    ("action", "content", "why"),
    [
        ("accept", {"store": False, "why": "wrong month"}, "wrong month"),
        ("accept", {"store": False}, "no reason given"),
        ("decline", None, "the user said decline"),
    ],
)
async def test_what_is_not_accepted_is_rejected_with_the_reason(
    validation: ExampleBench, action: str, content: dict[str, object] | None, why: str
) -> None:
    async with validation.working():
        task = await validation.begin(file="orders.jsonl")
        await validation.answer(task.id, json.loads(json.dumps(content)), action)
        view, result = await validation.end(task.id)
    assert view.task.phase is Phase.FAILED
    assert isinstance(result, dict)
    assert result["data"] == {"state": "rejected", "data": {"records": 3, "wrong": why}}
    assert not (validation.folder / "accepted" / "orders.jsonl").exists()


async def test_nobody_who_answers_is_a_rejection_too(validation: ExampleBench) -> None:
    validation.exchange("after: 2d", "after: 0.1s")
    async with validation.working():
        view, result = await validation.end((await validation.begin(file="orders.jsonl")).id)
    assert view.task.state is not None
    assert view.task.state.name == "rejected"
    assert "nobody answered" in str(result)


async def test_records_that_are_wrong_are_stored_only_by_somebody_who_gives_name_and_reason(
    validation: ExampleBench,
) -> None:
    records(validation).write_text(WRONG)
    async with validation.working() as engine:
        task = await validation.begin(file="orders.jsonl")
        await validation.reach(task.id, "waiting")
        with pytest.raises(TransitionRefused, match="requires a reason"):
            await engine.instances.transition(task.id, "store_anyway", data={"by": "ann"})
        with pytest.raises(TransitionRefused, match="its guard says no"):
            await engine.instances.transition(task.id, "store_anyway", reason="the bank made the mistake")
        await engine.instances.transition(
            task.id, "store_anyway", data={"by": "ann"}, reason="the bank made the mistake", actor="ann"
        )
        view, _ = await validation.end(task.id)
        assert view.task.phase is Phase.COMPLETED
    assert (validation.folder / "accepted" / "orders.jsonl").read_text() == WRONG


async def test_it_can_be_cancelled_while_it_waits_and_not_any_more_when_it_stores(validation: ExampleBench) -> None:
    records(validation).write_text(WRONG)
    async with validation.working() as engine:
        waiting, storing = [await validation.begin(file="orders.jsonl") for _ in range(2)]
        for task in (waiting, storing):
            await validation.reach(task.id, "waiting")
        cancelled = await engine.cancel(waiting.id, reason="not this month")
        assert (cancelled.phase, cancelled.state and cancelled.state.name) == (Phase.CANCELLED, "cancelled")
    # Nobody works now, so it stays where it is led to.
    async with validation.working(works=False) as engine:
        await engine.instances.transition(storing.id, "store_anyway", data={"by": "ann"}, reason="it is fine")
        with pytest.raises(CancelRefused) as refused:
            await engine.cancel(storing.id)
        assert refused.value.reason == "no-cancel-transition"
    async with validation.working() as engine:
        view, _ = await validation.end(storing.id)
        assert view.task.phase is Phase.COMPLETED
        with pytest.raises(CancelRefused) as too_late:
            await engine.cancel(storing.id)
        assert too_late.value.reason == "already-completed"


async def test_a_name_that_leads_elsewhere_is_refused_before_there_is_a_process(validation: ExampleBench) -> None:
    async with validation.working(works=False):
        with pytest.raises(InvalidValue, match="does not match"):
            await validation.begin(file="../secrets.jsonl")


async def test_what_a_transition_can_not_add_fails_the_process_and_says_so(validation: ExampleBench) -> None:
    validation.exchange('set: {records: "{{ result.stdout.records }}"}', 'set: {records: "{{ result.stdout.count }}"}')
    async with validation.working():
        view, result = await validation.end((await validation.begin(file="orders.jsonl")).id)
    assert view.task.phase is Phase.FAILED
    assert isinstance(result, dict)
    assert "workflow 'validation' is stuck in state 'checking'" in str(result["message"])
    assert "there is no 'count'" in str(result["message"])
