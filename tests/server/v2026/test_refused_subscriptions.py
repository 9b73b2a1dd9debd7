"""Which subscriptions to tasks are refused, and that a bad subscriber does not affect others."""

# pyright: reportUnusedFunction=false

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from raincheck import Retention, TaskContext
from raincheck.server.limits import STREAM_LIMITS, StreamLimit
from raincheck.testing import FakeClock
from tests.support.server.caller_v2026 import TASKS, Caller, Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import (
    LEGACY,
    ON_BOTH_TRANSPORTS,
    add_gated,
    other_owner,
    refusal,
    text_of,
    without_tasks,
)
from tests.support.server.transports import HttpTransport

pytestmark = pytest.mark.anyio


async def test_a_subscription_to_other_kinds_does_not_need_the_extension() -> None:
    server = ExampleServer()
    async with server.open() as caller:
        fallback_caller = without_tasks(caller)
        message = fallback_caller.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        messages = fallback_caller.transport.exchange(message, {})
        assert (await anext(messages))["params"]["notifications"] == {"toolsListChanged": True}
        await messages.aclose()


@ON_BOTH_TRANSPORTS
async def test_a_refusal_of_the_other_kinds_is_passed_on_unchanged(way: str) -> None:
    server = ExampleServer(works=False, server={"subscriptions": False})
    add_gated(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("gated")
        wanted = {"taskIds": [task_id], "toolsListChanged": True}
        assert (await refusal(caller, "subscriptions/listen", {"notifications": wanted})).code == -32601
        # A stream for tasks alone does not need the SDK's handler.
        async with caller.listening(task_id) as pushed:
            assert (await anext(pushed))["taskId"] == task_id


@pytest.mark.parametrize("capabilities", [{}, LEGACY])
@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("listen-needs-declaration", "listen-missing-capability-code", "missing-capability-data")
async def test_a_caller_that_does_not_declare_the_extension_gets_the_missing_capability(
    way: str, capabilities: dict[str, Any]
) -> None:
    server = ExampleServer()
    add_gated(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("gated")
        undeclared = without_tasks(caller, capabilities)
        mixed: dict[str, Any] = {"taskIds": [task_id], "toolsListChanged": True}
        for wanted in (mixed, {"taskIds": [task_id]}, {"taskIds": list[str]()}):
            refused = await refusal(undeclared, "subscriptions/listen", {"notifications": wanted})
            assert (refused.code, refused.data) == (-32021, {"requiredCapabilities": TASKS})


@pytest.mark.parametrize("ids", ["one", 7, {}, True, [1], [None], [["a"]], ["a", 2]])
@pytest.mark.requirement("standard-errors", "informative-messages")
async def test_ids_that_are_no_list_of_strings_are_refused(ids: Any) -> None:
    async with ExampleServer().open() as caller:
        refused = await refusal(caller, "subscriptions/listen", {"notifications": {"taskIds": ids}})
        assert refused.code == -32602
        assert "taskIds" in refused.message


async def test_too_many_ids_are_refused() -> None:
    async with ExampleServer().open() as caller:
        wanted = {"notifications": {"taskIds": [str(number) for number in range(1_001)]}}
        refused = await refusal(caller, "subscriptions/listen", wanted)
        assert refused.code == -32602
        assert "1,000" in refused.message


@pytest.mark.requirement("access-checked-each-time")
async def test_only_tasks_of_the_owner_are_acknowledged_and_all_others_look_alike() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    gate = add_gated(server)

    @server.tasks.tool(retention=Retention(keep=timedelta(seconds=1)))
    async def quick() -> None:
        pass

    async with server.open_http(headers={"authorization": "Bearer of mine"}) as caller:
        expired = await caller.start("quick")
        await caller.until(expired)
        clock.advance(5)
        other_task = await other_owner(caller).start("gated")
        mine = await caller.start("gated")
        async with caller.listening(expired, other_task, "unknown", "", mine, "x" * 5_000, mine) as pushed:
            assert caller.agreed == {"taskIds": [mine]}
            gate.open.set()
            assert {task["taskId"] async for task in pushed} == {mine}
        for other in (expired, other_task, "unknown"):
            async with caller.listening(other) as pushed:
                assert caller.agreed == {"taskIds": []}
                assert [one async for one in pushed] == []


async def test_a_caller_that_stops_reading_does_not_block_others() -> None:
    server = ExampleServer()
    gate = add_gated(server)

    @server.tasks.tool()
    async def verbose(task: TaskContext) -> str:
        await gate.pass_through(task)
        return "x" * 3_000_000

    async with server.open_http() as caller:
        ids = [await caller.start("verbose") for _ in range(8)]
        async with caller.listening(*ids), Caller(caller.transport).listening(*ids) as received:
            # The first never reads: 24 MB are more than fits between him and the server.
            gate.open.set()
            assert {task["taskId"] async for task in received if task["status"] == "completed"} == set(ids)
            assert len(text_of((await caller.get(ids[0]))["result"])) == 3_000_000
            other = await caller.start("gated")
            assert text_of(await caller.result(other)) == "through"


@ON_BOTH_TRANSPORTS
async def test_a_closed_stream_is_not_counted_any_more(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2026.methods.STREAM_LIMITS", replace(STREAM_LIMITS, total=StreamLimit(1, 10))
    )
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("gated")
        wanted = {"notifications": {"taskIds": [task_id]}}
        async with caller.listening(task_id):
            refused = await refusal(caller, "subscriptions/listen", wanted)
            assert refused.code == -32010
            assert "try again later" in refused.message
        # The server may take a moment to see that its caller is gone.
        while True:
            with suppress(Refused):
                async with caller.listening(task_id) as pushed:
                    assert (await anext(pushed))["status"] == "working"
                    return


async def test_over_http_a_stream_is_a_stream_of_events_and_a_refusal_is_not() -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open_http() as caller:
        assert isinstance(caller.transport, HttpTransport)
        task_id = await caller.start("gated")
        async with caller.listening(task_id):
            assert caller.transport.last_status == 200
            assert caller.transport.last_type.startswith("text/event-stream")
        await refusal(without_tasks(caller), "subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        assert caller.transport.last_status == 400
        assert caller.transport.last_type.startswith("application/json")
