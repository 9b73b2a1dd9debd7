"""Input requests answered with an error: every attempt of the body receives the error in place of an answer."""

# pyright: reportUnusedFunction=false

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import InputKind
from raincheck.core.values import Json
from raincheck.engine import Settings, SyncTaskContext, TaskContext
from raincheck.errors import IllegalTransition, InvalidValue, ProtocolError, TaskNotFound, TooLarge
from tests.support.engine.harness import QUICK, EngineHarness

pytestmark = pytest.mark.anyio

PATIENT = Settings(park_after=600)
SCHEMA: dict[str, Json] = {"type": "object"}
YES: Json = {"action": "accept", "content": {}}
NO = ProtocolError("user rejected it", -1, {"why": ["busy", None, 1.5]})

ReceivedErrors = list[tuple[int, int, str, object]]


def add_asking_tools(harness: EngineHarness) -> ReceivedErrors:
    """Add tools that ask and continue after any answer. Returns the errors that they receive, with the attempt."""
    errors: ReceivedErrors = []

    @harness.toolbox.tool
    async def ask(task: TaskContext) -> str:
        try:
            return (await task.elicit("Go on?", SCHEMA)).action
        except ProtocolError as error:
            errors.append((task.attempt, error.code, str(error), error.data))
            return "refused"

    @harness.toolbox.tool
    def ask_in_a_thread(task: SyncTaskContext) -> str:
        try:
            return task.elicit("Go on?", SCHEMA).action
        except ProtocolError as error:
            errors.append((task.attempt, error.code, str(error), error.data))
            return "refused"

    @harness.toolbox.tool
    async def ask_twice(task: TaskContext) -> str:
        try:
            await task.elicit("Go on?", SCHEMA)
        except ProtocolError as error:
            errors.append((task.attempt, error.code, str(error), error.data))
        return (await task.elicit("Really?", SCHEMA)).action

    return errors


async def wait_until_asked(harness: EngineHarness, task_id: str, *, number: int = 0) -> None:
    """Until a question of a certain number is the one that is open."""

    async with asyncio.timeout(10):
        async for view in harness.engine.follow(task_id):
            if any(one.key == f"elicit-{number}" and one.is_open for one in view.inputs):
                return


@pytest.mark.parametrize("tool", ["ask", "ask_in_a_thread"])
@pytest.mark.parametrize(
    "error", [NO, ProtocolError("", 0), ProtocolError("no such method", -32601), ProtocolError("m", 2**40, [])], ids=str
)
async def test_the_body_gets_the_error_unchanged_and_can_continue(
    harness: EngineHarness, tool: str, error: ProtocolError
) -> None:
    errors = add_asking_tools(harness)
    async with harness.running(PATIENT) as engine:
        task = await engine.submit(tool)
        await wait_until_asked(harness, task.id)
        refused = await engine.answer_with_error(task.id, "elicit-0", error)
        assert refused.open_inputs == 0
        assert await engine.result(task.id) == "refused"
    assert errors == [(1, error.code, str(error), error.data)]


async def test_a_body_that_does_not_catch_the_error_fails_with_it_and_is_not_retried(harness: EngineHarness) -> None:
    attempts: list[int] = []

    @harness.toolbox.tool(retry=RetryPolicy(attempts=5, first_wait=timedelta(0)))
    async def ask(task: TaskContext) -> None:
        attempts.append(task.attempt)
        await task.elicit("Go on?", SCHEMA)

    async with harness.running(PATIENT) as engine:
        task = await engine.submit("ask")
        await wait_until_asked(harness, task.id)
        await engine.answer_with_error(task.id, "elicit-0", NO)
        view = await engine.wait(task.id)
        assert (view.task.phase, view.task.status_message) == (Phase.FAILED, "user rejected it")
        assert view.outcome is not None
        assert b'"code":-1' in view.outcome
        assert b'"why":["busy",null,1.5]' in view.outcome
    assert attempts == [1]


async def test_a_parked_task_resumes_with_the_error_and_does_not_ask_again(harness: EngineHarness) -> None:
    errors = add_asking_tools(harness)
    async with harness.running() as engine:
        task = await engine.submit("ask_twice")
        await harness.reach(task.id, Phase.PARKED)
        await engine.answer_with_error(task.id, "elicit-0", NO)
        await wait_until_asked(harness, task.id, number=1)
        await harness.reach(task.id, Phase.PARKED)
        (question,) = (await engine.view(task.id)).inputs
        assert question.key == "elicit-1"
        await engine.answer(task.id, {"elicit-1": YES})
        assert await engine.result(task.id) == "accept"
    # Each attempt that reached the question received the same error.
    assert len({attempt for attempt, *_ in errors}) > 1
    assert {(code, message, str(data)) for _, code, message, data in errors} == {(-1, str(NO), str(NO.data))}


async def test_a_body_in_another_engine_gets_the_same_error(harness: EngineHarness) -> None:
    errors = add_asking_tools(harness)
    async with harness.running() as engine:
        task = await engine.submit("ask_twice")
        await wait_until_asked(harness, task.id)
        await engine.answer_with_error(task.id, "elicit-0", NO)
        await wait_until_asked(harness, task.id, number=1)
    async with harness.running() as engine:
        await engine.answer(task.id, {"elicit-1": YES})
        assert await engine.result(task.id) == "accept"
    assert {(code, message) for _, code, message, _ in errors} == {(-1, str(NO))}


async def test_an_engine_without_a_worker_can_record_the_error_for_a_later_worker(harness: EngineHarness) -> None:
    errors = add_asking_tools(harness)
    async with harness.running() as engine:
        task = await engine.submit("ask")
        await harness.reach(task.id, Phase.PARKED)
    async with harness.running(works=False) as engine:
        await engine.answer_with_error(task.id, "elicit-0", NO)
    async with harness.running() as engine:
        assert await engine.result(task.id) == "refused"
    assert [code for _, code, *_ in errors] == [-1]


@pytest.mark.parametrize("refuses_first", [True, False])
async def test_the_first_of_an_answer_and_an_error_counts(harness: EngineHarness, refuses_first: bool) -> None:
    add_asking_tools(harness)
    async with harness.running() as engine:
        task = await engine.submit("ask")
        await harness.reach(task.id, Phase.PARKED)
    async with harness.running(works=False) as engine:
        for refuses in (refuses_first, not refuses_first):
            if refuses:
                await engine.answer_with_error(task.id, "elicit-0", NO)
            else:
                await engine.answer(task.id, {"elicit-0": YES})
    async with harness.running() as engine:
        assert await engine.result(task.id) == ("refused" if refuses_first else "accept")


async def test_one_of_many_concurrent_errors_counts(harness: EngineHarness) -> None:
    errors = add_asking_tools(harness)
    async with harness.running(PATIENT) as engine:
        task = await engine.submit("ask")
        await wait_until_asked(harness, task.id)
        ends = await asyncio.gather(
            *(
                engine.answer_with_error(task.id, "elicit-0", ProtocolError(str(number), number))
                for number in range(10)
            ),
            return_exceptions=True,
        )
        # A caller that comes after the end of the task gets an error.
        assert all(isinstance(end, IllegalTransition) for end in ends if isinstance(end, BaseException))
        assert await engine.result(task.id) == "refused"
    assert len(errors) == 1


async def test_only_the_owner_can_answer_with_an_error_and_only_while_the_question_is_open(
    harness: EngineHarness,
) -> None:
    errors = add_asking_tools(harness)
    async with harness.running(PATIENT) as engine:
        task = await engine.submit("ask")
        await wait_until_asked(harness, task.id)
        for task_id, owner in ((task.id, Owner.client("other")), ("unknown", Owner.local())):
            with pytest.raises(TaskNotFound):
                await engine.answer_with_error(task_id, "elicit-0", NO, owner=owner)
        # As with answers, an unknown key is ignored.
        assert (await engine.answer_with_error(task.id, "elicit-1", NO)).open_inputs == 1
        assert (await engine.view(task.id)).inputs[0].is_open
        await engine.answer(task.id, {"elicit-0": YES})
        assert await engine.result(task.id) == "accept"
        with pytest.raises(IllegalTransition):
            await engine.answer_with_error(task.id, "elicit-0", NO)
    assert errors == []


async def test_the_history_names_the_actor_who_answered_with_an_error(harness: EngineHarness) -> None:
    add_asking_tools(harness)
    async with harness.running(PATIENT) as engine:
        task = await engine.submit("ask")
        await wait_until_asked(harness, task.id)
        await engine.answer_with_error(task.id, "elicit-0", NO, actor="alice")
        await engine.result(task.id)
        assert "alice" in [entry.actor for entry in await engine.history(task.id)]


async def test_an_error_that_is_too_large_is_rejected_and_the_question_stays_open(harness: EngineHarness) -> None:
    add_asking_tools(harness)
    async with harness.running(PATIENT) as engine:
        task = await engine.submit("ask")
        await wait_until_asked(harness, task.id)
        with pytest.raises(TooLarge):
            await engine.answer_with_error(task.id, "elicit-0", ProtocolError("m", -1, "d" * 300_000))
        assert (await engine.view(task.id)).inputs[0].is_open
        await engine.answer_with_error(task.id, "elicit-0", NO)
        assert await engine.result(task.id) == "refused"


@pytest.mark.parametrize("kind", InputKind)
@pytest.mark.parametrize("forged", [{"error": {"code": -1, "message": "m"}}, {"error": {}}], ids=str)
async def test_an_answer_in_the_form_of_a_stored_error_is_rejected(
    harness: EngineHarness, kind: InputKind, forged: Json
) -> None:
    """Who answers can't make the body believe that it was refused: a refusal is an error, and not in a result."""

    @harness.toolbox.tool
    async def ask(task: TaskContext) -> Any:
        return await task.ask(kind, {"requestedSchema": SCHEMA}, name="elicit")

    async with harness.running(PATIENT) as engine:
        task = await engine.submit("ask")
        await wait_until_asked(harness, task.id)
        with pytest.raises(InvalidValue):
            await engine.answer(task.id, {"elicit-0": forged})
        assert (await engine.view(task.id)).inputs[0].is_open


async def test_an_error_for_a_childs_question_does_not_answer_its_parents(harness: EngineHarness) -> None:
    add_asking_tools(harness)

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> list[Json]:
        child = await task.spawn("ask")
        await task.variables.set("child", child.id)
        own = "refused"
        try:
            own = (await task.elicit("Go on?", SCHEMA)).action
        except ProtocolError:
            own = "refused"
        return [own, await child.result()]

    async with harness.running(QUICK) as engine:
        task = await engine.submit("parent")
        await wait_until_asked(harness, task.id)
        (child,) = (await engine.list_tasks(tool="ask")).tasks
        await wait_until_asked(harness, child.id)
        await engine.answer_with_error(child.id, "elicit-0", NO)
        await engine.answer(task.id, {"elicit-0": YES})
        assert await engine.result(task.id) == ["accept", "refused"]
