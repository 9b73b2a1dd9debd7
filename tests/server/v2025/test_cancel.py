"""`tasks/cancel` of 2025-11-25: the task is cancelled when the answer comes, and stays so whatever its work does."""

# pyright: reportUnusedFunction=false

import asyncio
import threading
from contextlib import suppress

import pytest
from mcp.shared.exceptions import MCPError

from raincheck import TaskContext, ToolError
from raincheck.core.owner import Owner
from tests.support.server.caller_v2025 import RELATED, calling
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import Shop
from tests.support.server.tools import add_gated, add_greeting, text_of
from tests.support.server.v2025.tools import ON_ALL_G1_WIRES, ON_G1_WIRES, add_metered, add_saying, ended, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


@pytest.mark.requirement("g1-cancel-stops", "g1-cancelled-before-answer")
@ON_ALL_G1_WIRES
async def test_a_task_is_cancelled_when_the_answer_comes_and_its_work_is_stopped(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop, way) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        cancelled = await caller.cancel(task_id)
        assert (cancelled["taskId"], cancelled["status"]) == (task_id, "cancelled")
        assert cancelled["lastUpdatedAt"] > cancelled["createdAt"]
        assert await caller.get(task_id) == cancelled
        await gate.stopped.wait()


@pytest.mark.requirement("g1-cancelled-before-answer")
async def test_the_store_has_it_cancelled_before_the_answer_comes() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        call = await caller.begin("tasks/cancel", {"taskId": task_id})
        answered = asyncio.ensure_future(call.result())
        view = await shop.tasks.engine.wait(task_id)
        assert view.task.status == "cancelled"
        assert (await answered)["status"] == "cancelled"


@pytest.mark.requirement("g1-cancelled-stays")
async def test_work_that_does_not_stop_changes_nothing() -> None:
    """Neither what it reports nor what it returns, nor how it fails."""
    shop = Shop()
    begun, over = asyncio.Event(), asyncio.Event()

    @shop.tasks.tool()
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

    async with calling(shop) as caller:
        for fails in (False, True):
            begun.clear()
            over.clear()
            task_id = await caller.start("stubborn", {"fails": fails}, meta={"progressToken": f"token {fails}"})
            await begun.wait()
            told = await caller.cancel(task_id)
            await over.wait()
            for _ in range(3):
                await caller.ping()
                assert await caller.get(task_id) == told
            assert (await refusal(caller, "tasks/result", {"taskId": task_id})).code == -32000
            assert caller.statuses(task_id) == ["cancelled"]
        assert caller.pushed("notifications/progress") == []


@pytest.mark.requirement("g1-cancelled-stays")
async def test_a_thread_that_goes_on_changes_nothing() -> None:
    shop = Shop()
    begun, may_end, over = asyncio.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @shop.tasks.tool()
    def count() -> str:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(10)
        loop.call_soon_threadsafe(over.set)
        return "counted"

    async with calling(shop) as caller:
        task_id = await caller.start("count")
        await begun.wait()
        told = await caller.cancel(task_id)
        may_end.set()
        await over.wait()
        await caller.ping()
        assert await caller.get(task_id) == told


async def test_a_task_that_has_not_begun_is_cancelled_and_never_begins() -> None:
    shop = Shop(works=False)
    gate = add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        assert (await caller.cancel(task_id))["status"] == "cancelled"
        assert not gate.begun.is_set()


async def test_a_task_that_waits_for_an_answer_can_be_cancelled() -> None:
    shop = Shop()
    add_greeting(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        assert (await caller.cancel(task_id))["status"] == "cancelled"
        assert (await refusal(caller, "tasks/result", {"taskId": task_id})).code == -32000


def add_endings(shop: Shop) -> None:
    add_saying(shop, "completes")

    @shop.tasks.tool()
    async def reports_an_error() -> str:
        raise ToolError("no paper left")

    @shop.tasks.tool()
    async def fails() -> str:
        raise MCPError(-32042, "go there first")


@pytest.mark.requirement("g1-cancel-terminal-refused", "g1-terminal-is-final", "g1-informative-errors")
@pytest.mark.parametrize(
    ("tool", "status"), [("completes", "completed"), ("reports_an_error", "failed"), ("fails", "failed")]
)
@ON_G1_WIRES
async def test_a_task_that_has_ended_can_not_be_cancelled_and_stays_as_it_is(tool: str, status: str, way: str) -> None:
    shop = Shop()
    add_endings(shop)
    async with calling(shop, way) as caller:
        task_id = await caller.start(tool)
        await ended(shop, task_id, way)
        before = await caller.get(task_id)
        assert before["status"] == status
        refused = await refusal(caller, "tasks/cancel", {"taskId": task_id})
        assert refused.code == -32602
        assert f"can't be cancelled: it is {status} already" in refused.message
        assert await caller.get(task_id) == before


@pytest.mark.requirement("g1-cancel-terminal-refused")
async def test_a_task_is_cancelled_once() -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        calls = [await caller.begin("tasks/cancel", {"taskId": task_id}) for _ in range(10)]
        answers = await asyncio.gather(*(call.came for call in calls))
        assert [answer["result"]["status"] for answer in answers if "result" in answer] == ["cancelled"]
        refused = [Refused(answer["error"]) for answer in answers if "error" in answer]
        assert {one.code for one in refused} == {-32602}
        assert all("it is cancelled already" in one.message for one in refused)


@pytest.mark.requirement("g1-terminal-is-final")
async def test_of_an_end_and_a_cancellation_that_race_one_wins_and_both_are_told_which() -> None:
    shop = Shop()
    gates = [add_gated(shop, f"gated-{number}") for number in range(20)]
    async with calling(shop) as caller:
        ids = [await caller.start(f"gated-{number}") for number in range(20)]
        for gate in gates[:16]:
            await gate.begun.wait()
        results = [await caller.begin("tasks/result", {"taskId": task_id}) for task_id in ids]
        for gate in gates:
            gate.open.set()
        cancels = [await caller.begin("tasks/cancel", {"taskId": task_id}) for task_id in ids]
        for task_id, cancel, result in zip(ids, cancels, results, strict=True):
            is_cancelled = "result" in await cancel.came
            answer = await result.came
            assert ("error" in answer) is is_cancelled
            assert (await caller.get(task_id))["status"] == ("cancelled" if is_cancelled else "completed")
            assert (await ended(shop, task_id)).task.status == ("cancelled" if is_cancelled else "completed")


@pytest.mark.requirement("g1-result-of-terminal")
@ON_G1_WIRES
async def test_the_result_of_a_cancelled_task_is_an_error_that_names_it(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop, way) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        waiting = await caller.wait(task_id)
        await caller.cancel(task_id)
        with pytest.raises(Refused) as told_who_waited:
            await waiting.result()
        told_later = await refusal(caller, "tasks/result", {"taskId": task_id})
        for refused in (told_who_waited.value, told_later):
            assert (refused.code, refused.message) == (-32000, "Task cancelled")
            assert refused.data == {"_meta": {RELATED: {"taskId": task_id}}}


async def test_a_reason_that_was_given_is_told() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        waiting = await caller.wait(task_id)
        await shop.tasks.engine.cancel(task_id, owner=Owner.local(), reason="closing time")
        with pytest.raises(Refused, match="Task cancelled: closing time"):
            await waiting.result()
        assert (await caller.get(task_id))["statusMessage"] == "closing time"


async def test_words_of_the_work_do_not_outlast_its_cancellation() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("metered")
        await meter.show(1, 2, "half of it")
        cancelled = await caller.cancel(task_id)
        assert cancelled.get("statusMessage") != "half of it"
        refused = await refusal(caller, "tasks/result", {"taskId": task_id})
        assert "half of it" not in refused.message


async def test_to_take_back_the_wait_for_a_result_does_not_stop_the_work() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        waiting = await caller.wait(task_id)
        await caller.give_up(waiting)
        await caller.ping()
        assert (await caller.get(task_id))["status"] == "working"
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"
        assert not waiting.came.done(), "what was taken back is not answered"
