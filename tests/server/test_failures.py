"""What goes wrong in a tool or with its arguments: where that is told, to whom, and how often it is tried."""

# pyright: reportUnusedFunction=false

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from raincheck import RetryPolicy, TaskContext
from raincheck.errors import InvalidValue
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import Shop
from tests.support.server.tools import ON_BOTH_WIRES, add_greeting, refusal, run_sql, text_of, without_tasks

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

AT_ONCE = RetryPolicy(
    attempts=3, first_wait=RetryPolicy().first_wait * 0, max_wait=RetryPolicy().max_wait * 0, jitter=0
)


class Basket(BaseModel):
    pears: int


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_result_that_does_not_fit_fails_at_once_and_is_not_told(kind: str) -> None:
    shop = Shop()
    attempts = 0

    def lie() -> int:
        nonlocal attempts
        attempts += 1
        return "secret"  # type: ignore[return-value] # that is the point

    async def lie_later() -> int:
        return lie()

    shop.tasks.tool(name="lie", retry=AT_ONCE)(lie if kind == "function" else lie_later)
    async with shop.open() as caller:
        task = await caller.until(await caller.start("lie"))
        assert task["status"] == "failed"
        assert "tool 'lie' returned what does not fit its return type" in task["error"]["message"]
        assert "secret" not in str(task)
    assert attempts == 1


async def test_a_child_whose_arguments_do_not_fit_is_refused_where_it_is_made() -> None:
    shop = Shop()
    refused: list[str] = []

    @shop.tasks.tool
    async def weigh(basket: Basket) -> int:
        return basket.pears

    @shop.tasks.tool
    async def parent(task: TaskContext) -> str:
        try:
            await task.spawn("weigh", {"basket": {"pears": "many"}})
        except InvalidValue as error:
            refused.append(str(error))
        return "went on"

    async with shop.open() as caller:
        assert text_of(await caller.result(await caller.start("parent"))) == "went on"
        with pytest.raises(InvalidValue, match="the arguments do not fit tool 'weigh'"):
            await shop.tasks.engine.submit("weigh", {"basket": {"pears": "many"}})
        tasks = (await shop.tasks.engine.list_tasks()).tasks
        assert [task.tool.name for task in tasks] == ["parent"]
    assert "the arguments do not fit tool 'weigh'" in refused[0]


async def test_a_typed_successor_gets_the_result_as_its_type() -> None:
    shop = Shop()
    following: list[str] = []

    @shop.tasks.tool
    async def weigh(result: Basket, unit: str) -> str:
        return f"{result.pears} {unit}"

    @shop.tasks.tool
    async def pick(task: TaskContext) -> Basket:
        following.append(await task.then("weigh", {"unit": "pears"}))
        return Basket(pears=2)

    async with shop.open() as caller:
        await caller.result(await caller.start("pick"))
        assert text_of(await caller.result(following[0])) == "2 pears"


@pytest.mark.parametrize(("settings", "attempts"), [({}, 1), ({"retry": AT_ONCE}, 3)], ids=["as it is", "with retry"])
async def test_an_enabled_tool_that_raises_is_tried_again_only_where_that_was_said(
    settings: dict[str, Any], attempts: int
) -> None:
    shop = Shop()
    tried = 0

    @shop.mcp.tool()
    async def crash() -> None:
        nonlocal tried
        tried += 1
        raise OSError("password=12345")

    shop.tasks.enable("crash", **settings)
    async with shop.open() as caller:
        task = await caller.until(await caller.start("crash"))
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32603
        assert "12345" not in str(task)
    assert tried == attempts


@ON_BOTH_WIRES
async def test_a_crash_is_an_error_result_for_a_plain_caller_and_a_failed_task_for_one_with_tasks(way: str) -> None:
    shop = Shop()

    @shop.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash() -> None:
        raise OSError("password=12345")

    async with shop.open_by(way) as caller:
        result = await without_tasks(caller).call("crash")
        assert result["isError"] is True
        assert "tool 'crash' failed unexpectedly" in text_of(result)
        assert "12345" not in str(result)
        task = await caller.until(await caller.start("crash"))
        assert (task["status"], task["error"]["code"]) == ("failed", -32603)


@ON_BOTH_WIRES
async def test_an_error_of_the_protocol_stays_one_for_everybody(way: str) -> None:
    shop = Shop()

    @shop.tasks.tool
    async def close() -> None:
        raise MCPError(-32050, "closed", {"until": "Monday"})

    async with shop.open_by(way) as caller:
        refused = await refusal(without_tasks(caller), "tools/call", {"name": "close", "arguments": {}})
        assert (refused.code, refused.message, refused.data) == (-32050, "closed", {"until": "Monday"})
        task = await caller.until(await caller.start("close"))
        assert task["error"] == {"code": -32050, "message": "closed", "data": {"until": "Monday"}}


async def test_an_error_in_the_authors_code_is_masked_and_audited(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()

    def make_key(_: object) -> str:
        raise KeyError("password=12345")

    @shop.tasks.tool(idempotency=make_key)
    async def order() -> None: ...

    caplog.set_level(logging.INFO, "raincheck.audit")
    async with shop.open() as caller:
        refused = await refusal(caller, "tools/call", {"name": "order", "arguments": {}})
        assert (refused.code, refused.message) == (-32603, "Internal server error")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "raincheck.audit"]
    assert line.startswith("refused ")
    assert "tool=order" in line
    assert "code=-32603" in line
    assert "12345" not in line


async def test_progress_that_a_plain_caller_hears_of_goes_forward_and_is_not_repeated() -> None:
    shop = Shop()
    heard, end = asyncio.Event(), asyncio.Event()

    @shop.tasks.tool
    async def work(task: TaskContext) -> str:
        await task.progress(3, 10, "three")
        await heard.wait()
        for done, words in ((3, "again"), (1, "back"), (2, "nearly")):
            await task.progress(done, 10, words)
            # Kept before it goes on, so that it is a change of its own.
            await task.step(words, str)
        await task.progress(7, 10, "seven")
        await end.wait()
        return "done"

    async with shop.open(capabilities={}) as caller:
        message = caller.message("tools/call", {"name": "work", "arguments": {}}, {"progressToken": "mine"})
        came = caller.wire.exchange(message, {})
        told: list[float] = []
        async for one in came:
            if "id" in one:
                break
            told.append(one["params"]["progress"])
            (heard if told[-1] == 3 else end).set()
        await came.aclose()
    assert told == [3, 7]


async def test_a_round_whose_task_ended_meanwhile_gets_its_end() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with shop.open() as caller:
        plain = without_tasks(caller)
        asked = await plain.call("greet")
        (task,) = (await shop.tasks.engine.list_tasks()).tasks
        yes = {"action": "accept", "content": {"name": "Eve"}}
        await shop.tasks.engine.answer(task.id, {"elicit-0": yes})
        await shop.tasks.engine.wait(task.id)
        late = {key: {"action": "decline"} for key in asked["inputRequests"]}
        result = await plain.call("greet", inputResponses=late, requestState=asked["requestState"])
        assert text_of(result) == "Hello, Eve!"
    assert len(heard) == 1


async def test_what_is_kept_and_can_not_be_read_is_not_the_callers_fault(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "tasks.db")

    @shop.tasks.tool
    async def work() -> str:
        return "done"

    async with shop.open() as caller:
        task_id = await caller.start("work")
        await caller.until(task_id)
        await asyncio.to_thread(
            run_sql, tmp_path / "tasks.db", "UPDATE payloads SET body = X'7B' WHERE kind = 'outcome'"
        )
        with pytest.raises(Refused) as refused:
            await caller.get(task_id)
        assert (refused.value.code, refused.value.message) == (-32603, "Internal server error")
