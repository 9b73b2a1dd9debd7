"""`tasks/cancel` of 2025-11-25: the task is cancelled when the answer is sent, and stays cancelled."""

# pyright: reportUnusedFunction=false

import asyncio
import threading
from contextlib import suppress

import pytest
from mcp.shared.exceptions import MCPError

from raincheck import TaskContext, ToolError
from raincheck.core.owner import Owner
from tests.support.server.caller_v2025 import RELATED, v2025_caller
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated, add_greeting, text_of
from tests.support.server.v2025.tools import (
    ON_ALL_V2025_TRANSPORTS,
    ON_V2025_TRANSPORTS,
    add_echo,
    add_metered,
    ended,
    refusal,
)

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("v2025-cancel-stops", "v2025-cancelled-before-answer")
@ON_ALL_V2025_TRANSPORTS
async def test_when_cancel_is_answered_the_task_is_cancelled_and_its_work_is_stopped(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        cancelled = await caller.cancel(task_id)
        assert (cancelled["taskId"], cancelled["status"]) == (task_id, "cancelled")
        assert cancelled["lastUpdatedAt"] > cancelled["createdAt"]
        assert await caller.get(task_id) == cancelled
        await gate.stopped.wait()


@pytest.mark.requirement("v2025-cancelled-before-answer")
async def test_the_cancellation_is_stored_before_it_is_answered() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        call = await caller.begin("tasks/cancel", {"taskId": task_id})
        answered = asyncio.ensure_future(call.result())
        view = await server.tasks.engine.wait(task_id)
        assert view.task.status == "cancelled"
        assert (await answered)["status"] == "cancelled"


@pytest.mark.requirement("v2025-cancelled-stays")
async def test_work_that_does_not_stop_changes_nothing() -> None:
    """Neither its reports nor its result nor its error have an effect."""
    server = ExampleServer()
    begun, over = asyncio.Event(), asyncio.Event()

    @server.tasks.tool()
    async def stubborn(task: TaskContext, *, fails: bool) -> str:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        with suppress(asyncio.CancelledError):
            await task.progress(1, 1, "still here")
        over.set()
        if fails:
            raise ToolError("too late")
        return "too late"

    async with v2025_caller(server) as caller:
        for fails in (False, True):
            begun.clear()
            over.clear()
            task_id = await caller.start("stubborn", {"fails": fails}, meta={"progressToken": f"token {fails}"})
            await begun.wait()
            answer = await caller.cancel(task_id)
            await over.wait()
            for _ in range(3):
                await caller.ping()
                assert await caller.get(task_id) == answer
            assert (await refusal(caller, "tasks/result", {"taskId": task_id})).code == -32000
            assert caller.statuses(task_id) == ["cancelled"]
        assert caller.pushed("notifications/progress") == []


@pytest.mark.requirement("v2025-cancelled-stays")
async def test_a_thread_that_keeps_running_after_cancel_changes_nothing() -> None:
    server = ExampleServer()
    begun, may_end, over = asyncio.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @server.tasks.tool()
    def count() -> str:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(10)
        loop.call_soon_threadsafe(over.set)
        return "counted"

    async with v2025_caller(server) as caller:
        task_id = await caller.start("count")
        await begun.wait()
        answer = await caller.cancel(task_id)
        may_end.set()
        await over.wait()
        await caller.ping()
        assert await caller.get(task_id) == answer


async def test_a_queued_task_is_cancelled_and_never_starts() -> None:
    server = ExampleServer(works=False)
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        assert (await caller.cancel(task_id))["status"] == "cancelled"
        assert not gate.started.is_set()


async def test_a_task_that_waits_for_an_answer_can_be_cancelled() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        assert (await caller.cancel(task_id))["status"] == "cancelled"
        assert (await refusal(caller, "tasks/result", {"taskId": task_id})).code == -32000


def add_endings(server: ExampleServer) -> None:
    add_echo(server, "completes")

    @server.tasks.tool()
    async def reports_an_error() -> str:
        raise ToolError("no paper left")

    @server.tasks.tool()
    async def fails() -> str:
        raise MCPError(-32042, "go there first")


@pytest.mark.requirement("v2025-cancel-terminal-refused", "v2025-terminal-is-final", "v2025-informative-errors")
@pytest.mark.parametrize(
    ("tool", "status"), [("completes", "completed"), ("reports_an_error", "failed"), ("fails", "failed")]
)
@ON_V2025_TRANSPORTS
async def test_an_ended_task_can_not_be_cancelled_and_stays_unchanged(tool: str, status: str, way: str) -> None:
    server = ExampleServer()
    add_endings(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start(tool)
        await ended(server, task_id, way)
        before = await caller.get(task_id)
        assert before["status"] == status
        refused = await refusal(caller, "tasks/cancel", {"taskId": task_id})
        assert refused.code == -32602
        assert f"can't be cancelled: its status is already {status}" in refused.message
        assert await caller.get(task_id) == before


@pytest.mark.requirement("v2025-cancel-terminal-refused")
async def test_a_task_is_cancelled_once() -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        calls = [await caller.begin("tasks/cancel", {"taskId": task_id}) for _ in range(10)]
        answers = await asyncio.gather(*(call.received for call in calls))
        assert [answer["result"]["status"] for answer in answers if "result" in answer] == ["cancelled"]
        refused = [Refused(answer["error"]) for answer in answers if "error" in answer]
        assert {one.code for one in refused} == {-32602}
        assert all("its status is already cancelled" in one.message for one in refused)


@pytest.mark.requirement("v2025-terminal-is-final")
async def test_when_completion_and_cancel_race_one_wins_and_both_callers_see_which() -> None:
    server = ExampleServer()
    gates = [add_gated(server, f"gated-{number}") for number in range(20)]
    async with v2025_caller(server) as caller:
        ids = [await caller.start(f"gated-{number}") for number in range(20)]
        for gate in gates[:16]:
            await gate.started.wait()
        results = [await caller.begin("tasks/result", {"taskId": task_id}) for task_id in ids]
        for gate in gates:
            gate.open.set()
        cancels = [await caller.begin("tasks/cancel", {"taskId": task_id}) for task_id in ids]
        for task_id, cancel, result in zip(ids, cancels, results, strict=True):
            is_cancelled = "result" in await cancel.received
            answer = await result.received
            assert ("error" in answer) is is_cancelled
            assert (await caller.get(task_id))["status"] == ("cancelled" if is_cancelled else "completed")
            assert (await ended(server, task_id)).task.status == ("cancelled" if is_cancelled else "completed")


@pytest.mark.requirement("v2025-result-of-terminal")
@ON_V2025_TRANSPORTS
async def test_the_result_of_a_cancelled_task_is_an_error_that_names_it(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        waiting = await caller.wait(task_id)
        await caller.cancel(task_id)
        with pytest.raises(Refused) as told_who_waited:
            await waiting.result()
        told_later = await refusal(caller, "tasks/result", {"taskId": task_id})
        for refused in (told_who_waited.value, told_later):
            assert (refused.code, refused.message) == (-32000, "Task cancelled")
            assert refused.data == {"_meta": {RELATED: {"taskId": task_id}}}


async def test_the_reason_of_a_cancel_is_reported() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        waiting = await caller.wait(task_id)
        await server.tasks.engine.cancel(task_id, owner=Owner.local(), reason="closing time")
        with pytest.raises(Refused, match="Task cancelled: closing time"):
            await waiting.result()
        assert (await caller.get(task_id))["statusMessage"] == "closing time"


async def test_the_status_message_of_the_work_is_replaced_when_the_task_is_cancelled() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("metered")
        await meter.show(1, 2, "half of it")
        cancelled = await caller.cancel(task_id)
        assert cancelled.get("statusMessage") != "half of it"
        refused = await refusal(caller, "tasks/result", {"taskId": task_id})
        assert "half of it" not in refused.message


async def test_cancelling_the_wait_for_a_result_does_not_stop_the_work() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        waiting = await caller.wait(task_id)
        await caller.give_up(waiting)
        await caller.ping()
        assert (await caller.get(task_id))["status"] == "working"
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"
        assert not waiting.received.done(), "what was taken back is not answered"
