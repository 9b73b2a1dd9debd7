"""Progress notifications carry the token of the call, and are sent until the task ends."""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Any

import pytest

from raincheck import TaskContext, ToolError
from tests.support.server.caller_v2025 import RELATED, V2025Caller, v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import ON_V2025_TRANSPORTS, Meter, add_metered, ended

pytestmark = pytest.mark.anyio

PROGRESS = "notifications/progress"
STATUS = "notifications/tasks/status"


async def show_all(caller: V2025Caller, meter: Meter, *amounts: float) -> None:
    """Report these amounts, each only after the previous one can be sent."""
    for done in amounts:
        await meter.show(done, 10)
        await caller.ping()


def amounts_of(caller: V2025Caller) -> list[float]:
    return [one["progress"] for one in caller.pushed(PROGRESS)]


@pytest.mark.requirement("v2025-progress-token-lives", "v2025-related-everywhere")
@pytest.mark.parametrize("token", ["abc", "", "ü \U0001f4a5", "0", 0, 1, -1, 2**40], ids=repr)
async def test_progress_is_sent_with_the_token_of_the_call(token: str | int) -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("metered", meta={"progressToken": token})
        await meter.show(1, 10, "first")
        await caller.until_progress(1)
        await meter.show(2.5)
        await caller.until_progress(2.5)
        related = {RELATED: {"taskId": task_id}}
        first, second = caller.pushed(PROGRESS)
        assert first == {"progressToken": token, "progress": 1, "total": 10, "message": "first", "_meta": related}
        assert type(first["progressToken"]) is type(token)
        assert (second["progress"], "total" in second) == (2.5, False)
        meter.finish()
        await caller.result(task_id)


@pytest.mark.requirement("v2025-progress-token-lives", "v2025-related-everywhere")
@ON_V2025_TRANSPORTS
async def test_progress_is_sent_after_the_call_was_answered_until_the_task_ends(way: str) -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("metered", meta={"progressToken": "t"})
        for done in range(1, 4):
            await meter.show(done, 3)
            await caller.until_progress(done)
        meter.finish()
        await caller.result(task_id)
        await caller.until(task_id, "completed")
        await caller.ping()
        methods = [one.message.get("method") for one in caller.received]
        assert PROGRESS not in methods[methods.index(STATUS) :]
        assert amounts_of(caller) == [1, 2, 3]


async def test_progress_always_increases() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("metered", meta={"progressToken": 1})
        await show_all(caller, meter, 0, 0, 5, 5, 3, 4.9, 7, 1, 7.5)
        meter.finish()
        await caller.result(task_id)
        assert amounts_of(caller) == [0, 5, 7, 7.5]


async def test_progress_is_sent_once_when_other_fields_change() -> None:
    server = ExampleServer()
    may_end, reported = asyncio.Event(), asyncio.Queue[int]()

    @server.tasks.tool()
    async def tinker(task: TaskContext) -> str:
        await task.progress(1, 2, "half of it")
        await may_end.wait()
        for number in range(5):
            await task.variables.set("number", number)
            reported.put_nowait(number)
        return "done"

    async with v2025_caller(server) as caller:
        task_id = await caller.start("tinker", meta={"progressToken": 1})
        await caller.until_progress(1)
        may_end.set()
        for _ in range(5):
            await reported.get()
            await caller.ping()
        await caller.result(task_id)
        assert amounts_of(caller) == [1]


async def test_a_caller_without_a_token_gets_no_progress() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
        metas: list[dict[str, Any] | None] = [None, {}]
        for meta in metas:
            task_id = await caller.start("metered", meta=meta)
            await show_all(caller, meter, 1, 2)
            meter.finish()
            await caller.result(task_id)
        assert caller.pushed(PROGRESS) == []


async def test_the_progress_of_each_task_is_sent_with_its_own_token() -> None:
    """The caller fails if a token arrives with the id of another task."""
    server = ExampleServer()
    meters = [add_metered(server, f"metered-{n}") for n in range(3)]
    async with v2025_caller(server) as caller:
        ids = [await caller.start(f"metered-{n}", meta={"progressToken": n}) for n in range(3)]
        for done in range(1, 4):
            for meter in meters:
                await meter.show(done)
            await caller.ping()
        for meter in meters:
            meter.finish()
        for task_id in ids:
            await caller.result(task_id)
        last = {one["progressToken"]: one["progress"] for one in caller.pushed(PROGRESS)}
        assert last == {0: 3, 1: 3, 2: 3}


@ON_V2025_TRANSPORTS
async def test_progress_is_for_the_connection_of_the_call_alone(way: str) -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server, way) as caller, v2025_caller(server, way) as other:
        task_id = await caller.start("metered", meta={"progressToken": "mine"})
        waiting = await other.wait(task_id)
        await meter.show(1)
        await caller.until_progress(1)
        meter.finish()
        await waiting.result()
        await other.until(task_id, "completed")
        assert other.pushed(PROGRESS) == []


async def test_over_http_progress_is_sent_on_the_stream_of_a_waiting_request_or_else_of_the_session() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server, "http") as caller:
        task_id = await caller.start("metered", meta={"progressToken": "t"})
        await meter.show(1)
        assert (await caller.until_progress(1)).stream is None
        waiting = await caller.wait(task_id)
        await meter.show(2)
        assert (await caller.until_progress(2)).stream == waiting.id
        await caller.give_up(waiting)
        await waiting.received
        await meter.show(3)
        assert (await caller.until_progress(3)).stream is None
        meter.finish()
        await caller.result(task_id)


async def test_a_result_that_is_waited_for_on_the_same_connection_does_not_take_the_token_away() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("metered", meta={"progressToken": "t"})
        for done in (1, 2):
            waiting = await caller.wait(task_id)
            await meter.show(done)
            await caller.until_progress(done)
            await caller.give_up(waiting)
            await caller.ping()
        meter.finish()
        await caller.result(task_id)


async def test_a_repeated_call_with_a_token_gets_progress_with_that_token() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    key = {"raincheck/idempotency-key": "mine"}
    async with v2025_caller(server) as caller:
        task_id = await caller.start("metered", meta=key)
        assert await caller.start("metered", meta={**key, "progressToken": "again"}) == task_id
        await meter.show(1)
        meter.finish()
        await caller.result(task_id)
        assert [one["progressToken"] for one in caller.pushed(PROGRESS)] == ["again"]


async def test_a_token_may_be_used_again_when_its_task_has_ended() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
        for _ in range(2):
            task_id = await caller.start("metered", meta={"progressToken": "t"})
            await meter.show(1)
            meter.finish()
            await caller.result(task_id)
            # As far as the caller remembers, that call was never made.
            caller.forget_calls()
        assert amounts_of(caller) == [1, 1]


async def test_a_call_without_a_task_gets_progress_as_usual() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
        call = await caller.begin("tools/call", {"name": "metered"}, meta={"progressToken": 5})
        await meter.show(1, 2, "plainly")
        await caller.until_progress(1)
        meter.finish()
        await call.result()
        assert caller.pushed(PROGRESS) == [{"progressToken": 5, "progress": 1, "total": 2, "message": "plainly"}]


async def test_progress_reported_just_before_the_end_is_not_sent_after_the_end() -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def sprint(task: TaskContext, *, fails: bool) -> str:
        for done in range(50):
            await task.progress(done, 50)
        if fails:
            raise ToolError("out of breath")
        return "there"

    async with v2025_caller(server) as caller:
        for number, fails in enumerate([False, True] * 3):
            task_id = await caller.start("sprint", {"fails": fails}, meta={"progressToken": number})
            await caller.result(task_id)
            await ended(server, task_id)
            await caller.ping()
            assert _is_quiet_after_the_end([one.message for one in caller.received], number, task_id)


def _is_quiet_after_the_end(messages: list[Message], token: int, task_id: str) -> bool:
    progress = [one for one in messages if one.get("params", {}).get("progressToken") == token]
    (end,) = [one for one in messages if one.get("params", {}).get("taskId") == task_id and one["method"] == STATUS]
    return all(messages.index(one) < messages.index(end) for one in progress)
