"""A question that is answered with an error: the body gets the error in the place of an answer, in every attempt."""

# pyright: reportUnusedFunction=false

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import InputKind
from raincheck.engine import Settings, SyncTaskContext, TaskContext
from raincheck.errors import IllegalTransition, InvalidValue, ProtocolError, TaskNotFound, TooLarge
from tests.support.engine.harness import QUICK, Bench

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

PATIENT = Settings(park_after=600)
SCHEMA: dict[str, Json] = {"type": "object"}
YES: Json = {"action": "accept", "content": {}}
NO = ProtocolError("user rejected it", -1, {"why": ["busy", None, 1.5]})

Heard = list[tuple[int, int, str, object]]


def add_asking(bench: Bench) -> Heard:
    """Tools that ask, and go on whatever is said; and what they heard of refusals, in which attempt."""
    heard: Heard = []

    @bench.toolbox.tool
    async def ask(task: TaskContext) -> str:
        try:
            return (await task.elicit("Go on?", SCHEMA)).action
        except ProtocolError as error:
            heard.append((task.attempt, error.code, str(error), error.data))
            return "refused"

    @bench.toolbox.tool
    def ask_in_a_thread(task: SyncTaskContext) -> str:
        try:
            return task.elicit("Go on?", SCHEMA).action
        except ProtocolError as error:
            heard.append((task.attempt, error.code, str(error), error.data))
            return "refused"

    @bench.toolbox.tool
    async def ask_twice(task: TaskContext) -> str:
        try:
            await task.elicit("Go on?", SCHEMA)
        except ProtocolError as error:
            heard.append((task.attempt, error.code, str(error), error.data))
        return (await task.elicit("Really?", SCHEMA)).action

    return heard


async def until_asked(bench: Bench, task_id: str, *, number: int = 0) -> None:
    """Until a question of a certain number is the one that is open."""

    async with asyncio.timeout(10):
        async for view in bench.engine.follow(task_id):
            if any(one.key == f"elicit-{number}" and one.is_open for one in view.inputs):
                return


@pytest.mark.parametrize("tool", ["ask", "ask_in_a_thread"])
@pytest.mark.parametrize(
    "error", [NO, ProtocolError("", 0), ProtocolError("no such method", -32601), ProtocolError("m", 2**40, [])], ids=str
)
async def test_the_body_gets_the_error_as_it_was_given_and_may_go_on(
    bench: Bench, tool: str, error: ProtocolError
) -> None:
    heard = add_asking(bench)
    async with bench.working(PATIENT) as engine:
        task = await engine.submit(tool)
        await until_asked(bench, task.id)
        refused = await engine.answer_with_error(task.id, "elicit-0", error)
        assert refused.open_inputs == 0
        assert await engine.result(task.id) == "refused"
    assert heard == [(1, error.code, str(error), error.data)]


async def test_a_body_that_lets_it_pass_has_failed_with_it_and_is_not_tried_again(bench: Bench) -> None:
    attempts: list[int] = []

    @bench.toolbox.tool(retry=RetryPolicy(attempts=5, first_wait=timedelta(0)))
    async def ask(task: TaskContext) -> None:
        attempts.append(task.attempt)
        await task.elicit("Go on?", SCHEMA)

    async with bench.working(PATIENT) as engine:
        task = await engine.submit("ask")
        await until_asked(bench, task.id)
        await engine.answer_with_error(task.id, "elicit-0", NO)
        view = await engine.wait(task.id)
        assert (view.task.phase, view.task.status_message) == (Phase.FAILED, "user rejected it")
        assert view.outcome is not None
        assert b'"code":-1' in view.outcome
        assert b'"why":["busy",null,1.5]' in view.outcome
    assert attempts == [1]


async def test_a_parked_task_goes_on_with_the_error_and_asks_nothing_again(bench: Bench) -> None:
    heard = add_asking(bench)
    async with bench.working() as engine:
        task = await engine.submit("ask_twice")
        await bench.reach(task.id, Phase.PARKED)
        await engine.answer_with_error(task.id, "elicit-0", NO)
        await until_asked(bench, task.id, number=1)
        await bench.reach(task.id, Phase.PARKED)
        (question,) = (await engine.view(task.id)).inputs
        assert question.key == "elicit-1"
        await engine.answer(task.id, {"elicit-1": YES})
        assert await engine.result(task.id) == "accept"
    # Each attempt that came that far heard the same.
    assert len({attempt for attempt, *_ in heard}) > 1
    assert {(code, message, str(data)) for _, code, message, data in heard} == {(-1, str(NO), str(NO.data))}


async def test_another_engine_on_the_same_store_tells_its_body_the_same(bench: Bench) -> None:
    heard = add_asking(bench)
    async with bench.working() as engine:
        task = await engine.submit("ask_twice")
        await until_asked(bench, task.id)
        await engine.answer_with_error(task.id, "elicit-0", NO)
        await until_asked(bench, task.id, number=1)
    async with bench.working() as engine:
        await engine.answer(task.id, {"elicit-1": YES})
        assert await engine.result(task.id) == "accept"
    assert {(code, message) for _, code, message, _ in heard} == {(-1, str(NO))}


async def test_one_that_only_serves_may_refuse_for_one_that_works_later(bench: Bench) -> None:
    heard = add_asking(bench)
    async with bench.working() as engine:
        task = await engine.submit("ask")
        await bench.reach(task.id, Phase.PARKED)
    async with bench.working(works=False) as engine:
        await engine.answer_with_error(task.id, "elicit-0", NO)
    async with bench.working() as engine:
        assert await engine.result(task.id) == "refused"
    assert [code for _, code, *_ in heard] == [-1]


@pytest.mark.parametrize("refuses_first", [True, False])
async def test_of_an_answer_and_a_refusal_the_first_counts(bench: Bench, refuses_first: bool) -> None:
    add_asking(bench)
    async with bench.working() as engine:
        task = await engine.submit("ask")
        await bench.reach(task.id, Phase.PARKED)
    async with bench.working(works=False) as engine:
        for refuses in (refuses_first, not refuses_first):
            if refuses:
                await engine.answer_with_error(task.id, "elicit-0", NO)
            else:
                await engine.answer(task.id, {"elicit-0": YES})
    async with bench.working() as engine:
        assert await engine.result(task.id) == ("refused" if refuses_first else "accept")


async def test_of_many_that_race_one_counts(bench: Bench) -> None:
    heard = add_asking(bench)
    async with bench.working(PATIENT) as engine:
        task = await engine.submit("ask")
        await until_asked(bench, task.id)
        ends = await asyncio.gather(
            *(
                engine.answer_with_error(task.id, "elicit-0", ProtocolError(str(number), number))
                for number in range(10)
            ),
            return_exceptions=True,
        )
        # Who comes when all is over is told so.
        assert all(isinstance(end, IllegalTransition) for end in ends if isinstance(end, BaseException))
        assert await engine.result(task.id) == "refused"
    assert len(heard) == 1


async def test_only_the_owner_may_refuse_and_only_while_it_is_asked(bench: Bench) -> None:
    heard = add_asking(bench)
    async with bench.working(PATIENT) as engine:
        task = await engine.submit("ask")
        await until_asked(bench, task.id)
        for task_id, owner in ((task.id, Owner.client("other")), ("unknown", Owner.local())):
            with pytest.raises(TaskNotFound):
                await engine.answer_with_error(task_id, "elicit-0", NO, owner=owner)
        # As with answers, a key that nobody asks under is ignored.
        assert (await engine.answer_with_error(task.id, "elicit-1", NO)).open_inputs == 1
        assert (await engine.view(task.id)).inputs[0].is_open
        await engine.answer(task.id, {"elicit-0": YES})
        assert await engine.result(task.id) == "accept"
        with pytest.raises(IllegalTransition):
            await engine.answer_with_error(task.id, "elicit-0", NO)
    assert heard == []


async def test_who_refused_is_in_the_history(bench: Bench) -> None:
    add_asking(bench)
    async with bench.working(PATIENT) as engine:
        task = await engine.submit("ask")
        await until_asked(bench, task.id)
        await engine.answer_with_error(task.id, "elicit-0", NO, actor="alice")
        await engine.result(task.id)
        assert "alice" in [entry.actor for entry in await engine.history(task.id)]


async def test_an_error_that_is_too_large_is_refused_and_the_question_stays_open(bench: Bench) -> None:
    add_asking(bench)
    async with bench.working(PATIENT) as engine:
        task = await engine.submit("ask")
        await until_asked(bench, task.id)
        with pytest.raises(TooLarge):
            await engine.answer_with_error(task.id, "elicit-0", ProtocolError("m", -1, "d" * 300_000))
        assert (await engine.view(task.id)).inputs[0].is_open
        await engine.answer_with_error(task.id, "elicit-0", NO)
        assert await engine.result(task.id) == "refused"


@pytest.mark.parametrize("kind", InputKind)
@pytest.mark.parametrize("forged", [{"error": {"code": -1, "message": "m"}}, {"error": {}}], ids=str)
async def test_an_answer_that_looks_like_a_refusal_is_no_answer(bench: Bench, kind: InputKind, forged: Json) -> None:
    """Who answers can't make the body believe that it was refused: a refusal is an error, and not in a result."""

    @bench.toolbox.tool
    async def ask(task: TaskContext) -> Any:
        return await task.ask(kind, {"requestedSchema": SCHEMA}, name="elicit")

    async with bench.working(PATIENT) as engine:
        task = await engine.submit("ask")
        await until_asked(bench, task.id)
        with pytest.raises(InvalidValue):
            await engine.answer(task.id, {"elicit-0": forged})
        assert (await engine.view(task.id)).inputs[0].is_open


async def test_children_and_their_parents_are_refused_each_for_itself(bench: Bench) -> None:
    add_asking(bench)

    @bench.toolbox.tool
    async def parent(task: TaskContext) -> list[Json]:
        child = await task.spawn("ask")
        await task.variables.set("child", child.id)
        own = "refused"
        try:
            own = (await task.elicit("Go on?", SCHEMA)).action
        except ProtocolError:
            own = "refused"
        return [own, await child.result()]

    async with bench.working(QUICK) as engine:
        task = await engine.submit("parent")
        await until_asked(bench, task.id)
        (child,) = (await engine.list_tasks(tool="ask")).tasks
        await until_asked(bench, child.id)
        await engine.answer_with_error(child.id, "elicit-0", NO)
        await engine.answer(task.id, {"elicit-0": YES})
        assert await engine.result(task.id) == ["accept", "refused"]
