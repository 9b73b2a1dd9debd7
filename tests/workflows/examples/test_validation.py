"""The example of a validation: corrected and accepted, failed, rejected, overruled, and cancelled."""

import json
from pathlib import Path

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.errors import CancelRefused, InvalidValue, TransitionRefused
from tests.support.workflows.example_files import ExampleRunner

pytestmark = pytest.mark.anyio

RIGHT = '{"id": 1, "amount": 5}\n'
WRONG = '{"id": 1, "amount": -5}\n'


@pytest.fixture
def validation(tmp_path: Path) -> ExampleRunner:
    bench = ExampleRunner(tmp_path / "examples", "validation")
    bench.replace_text("backoff: 5s", "backoff: 0.01s")
    return bench


def records(validation: ExampleRunner) -> Path:
    return validation.folder / "records" / "orders.jsonl"


async def test_valid_records_are_stored_when_they_are_accepted(validation: ExampleRunner) -> None:
    async with validation.running():
        task = await validation.submit(file="orders.jsonl")
        assert task.subject == "orders.jsonl"
        question = await validation.answer(task.id, {"store": True})
        view, result = await validation.wait_for_end(task.id)
    assert "All 3 records of orders.jsonl are right. Store them?" in question
    assert (view.task.phase, view.task.state and view.task.state.name) == (Phase.COMPLETED, "stored")
    assert result == {"file": "orders.jsonl", "records": 3, "tries": 1}
    assert (validation.folder / "accepted" / "orders.jsonl").exists()


async def test_corrected_records_are_checked_again_and_stored(validation: ExampleRunner) -> None:
    records(validation).write_text(WRONG)
    async with validation.running() as engine:
        task = await validation.submit(file="orders.jsonl")
        await validation.wait_for_state(task.id, "waiting")
        records(validation).write_text(RIGHT)
        await engine.instances.transition(task.id, "again", actor="ann")
        await validation.answer(task.id, {"store": True})
        view, result = await validation.wait_for_end(task.id)
    assert view.task.phase is Phase.COMPLETED
    assert result == {"file": "orders.jsonl", "records": 1, "tries": 2}


async def test_invalid_records_fail_after_the_last_try(validation: ExampleRunner) -> None:
    validation.replace_text("after: 10m", "after: 0.01s")
    records(validation).write_text(WRONG)
    async with validation.running():
        task = await validation.submit(file="orders.jsonl", tries=3)
        view, result = await validation.wait_for_end(task.id)
    assert (view.task.phase, view.task.state and view.task.state.name) == (Phase.FAILED, "rejected")
    assert isinstance(result, dict)
    assert result["data"] == {
        "state": "rejected",
        "data": {"tries": 3, "wrong": ["line 1 has no amount of 0 or more"]},
    }


async def test_a_missing_file_is_checked_again_and_may_appear(validation: ExampleRunner) -> None:
    async with validation.running() as engine:
        task = await validation.submit(file="invoices.jsonl")
        await validation.wait_for_state(task.id, "waiting")
        (validation.folder / "records" / "invoices.jsonl").write_text(RIGHT)
        await engine.instances.transition(task.id, "again")
        await validation.answer(task.id, {"store": True})
        _, result = await validation.wait_for_end(task.id)
    assert result == {"file": "invoices.jsonl", "records": 1, "tries": 2}


@pytest.mark.parametrize(
    ("action", "content", "why"),
    [
        ("accept", {"store": False, "why": "wrong month"}, "wrong month"),
        ("accept", {"store": False}, "no reason given"),
        ("decline", None, "the user answered with decline"),
    ],
)
async def test_records_that_are_not_accepted_are_rejected_with_the_reason(
    validation: ExampleRunner, action: str, content: dict[str, object] | None, why: str
) -> None:
    async with validation.running():
        task = await validation.submit(file="orders.jsonl")
        await validation.answer(task.id, json.loads(json.dumps(content)), action)
        view, result = await validation.wait_for_end(task.id)
    assert view.task.phase is Phase.FAILED
    assert isinstance(result, dict)
    assert result["data"] == {"state": "rejected", "data": {"records": 3, "wrong": why}}
    assert not (validation.folder / "accepted" / "orders.jsonl").exists()


async def test_records_are_rejected_when_the_question_times_out(validation: ExampleRunner) -> None:
    validation.replace_text("after: 2d", "after: 0.1s")
    async with validation.running():
        view, result = await validation.wait_for_end((await validation.submit(file="orders.jsonl")).id)
    assert view.task.state is not None
    assert view.task.state.name == "rejected"
    assert "no answer" in str(result)


async def test_invalid_records_are_stored_only_with_a_name_and_a_reason(
    validation: ExampleRunner,
) -> None:
    records(validation).write_text(WRONG)
    async with validation.running() as engine:
        task = await validation.submit(file="orders.jsonl")
        await validation.wait_for_state(task.id, "waiting")
        with pytest.raises(TransitionRefused, match="requires a reason"):
            await engine.instances.transition(task.id, "store_anyway", data={"by": "ann"})
        with pytest.raises(TransitionRefused, match="its guard is false"):
            await engine.instances.transition(task.id, "store_anyway", reason="the bank made the mistake")
        await engine.instances.transition(
            task.id, "store_anyway", data={"by": "ann"}, reason="the bank made the mistake", actor="ann"
        )
        view, _ = await validation.wait_for_end(task.id)
        assert view.task.phase is Phase.COMPLETED
    assert (validation.folder / "accepted" / "orders.jsonl").read_text() == WRONG


async def test_it_can_be_cancelled_while_it_waits_but_not_while_it_stores(validation: ExampleRunner) -> None:
    records(validation).write_text(WRONG)
    async with validation.running() as engine:
        waiting, storing = [await validation.submit(file="orders.jsonl") for _ in range(2)]
        for task in (waiting, storing):
            await validation.wait_for_state(task.id, "waiting")
        cancelled = await engine.cancel(waiting.id, reason="not this month")
        assert (cancelled.phase, cancelled.state and cancelled.state.name) == (Phase.CANCELLED, "cancelled")
    # Nobody works now, so it stays where it is led to.
    async with validation.running(works=False) as engine:
        await engine.instances.transition(storing.id, "store_anyway", data={"by": "ann"}, reason="it is fine")
        with pytest.raises(CancelRefused) as refused:
            await engine.cancel(storing.id)
        assert refused.value.reason == "no-cancel-transition"
    async with validation.running() as engine:
        view, _ = await validation.wait_for_end(storing.id)
        assert view.task.phase is Phase.COMPLETED
        with pytest.raises(CancelRefused) as too_late:
            await engine.cancel(storing.id)
        assert too_late.value.reason == "already-completed"


async def test_a_file_name_outside_the_folder_is_refused_before_the_instance_starts(validation: ExampleRunner) -> None:
    async with validation.running(works=False):
        with pytest.raises(InvalidValue, match="does not match"):
            await validation.submit(file="../secrets.jsonl")


async def test_a_transition_that_can_not_add_its_data_fails_the_instance_and_names_the_cause(
    validation: ExampleRunner,
) -> None:
    validation.replace_text(
        'set: {records: "{{ result.stdout.records }}"}', 'set: {records: "{{ result.stdout.count }}"}'
    )
    async with validation.running():
        view, result = await validation.wait_for_end((await validation.submit(file="orders.jsonl")).id)
    assert view.task.phase is Phase.FAILED
    assert isinstance(result, dict)
    assert "workflow 'validation' is stuck in state 'checking'" in str(result["message"])
    assert "there is no 'count'" in str(result["message"])
