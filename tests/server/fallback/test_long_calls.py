"""Hosts that can't use tasks get the result of a tool that takes three minutes, and never wait for long at a time."""

# pyright: reportUnusedFunction=false

import asyncio

import pytest
from pydantic import BaseModel

from raincheck import TaskContext
from tests.support.server.example import Shop
from tests.support.server.fallback.clock import LEASED, WatchedClock
from tests.support.server.fallback.hosts import (
    BY_ALL_VERSIONS,
    FIVE,
    ON_PLAIN_WIRES,
    Model,
    calls_in,
    handle_of,
    hosted,
    next_call,
    told,
)
from tests.support.server.transports import Message

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

TAKES = 185.0
"""Three minutes, and a little."""
WAIT = 45.0


class Report(BaseModel):
    year: int
    pages: int


class Office:
    """A shop whose reports take three minutes, by its clock."""

    def __init__(self) -> None:
        self.clock = WatchedClock()
        self.shop = Shop(clock=self.clock, settings=LEASED)
        self.begun = asyncio.Event()
        self.runs = 0

        @self.shop.tasks.tool
        async def build_report(year: int, task: TaskContext) -> Report:
            self.runs += 1
            working = self.clock.sleep(TAKES)
            await task.progress(3, 12, "crunching")
            self.begun.set()
            await working
            return Report(year=year, pages=12)

    async def answer(self, model: Model, calling: "asyncio.Task[Message]") -> Message:
        """The answer to a call, after as much time as it is let wait, or as the report takes."""
        await self.clock.asleep(WAIT)
        await self.begun.wait()
        left = TAKES - self.clock.monotonic()
        return await model.window(calling, WAIT, min(WAIT, left))


@ON_PLAIN_WIRES
@BY_ALL_VERSIONS
async def test_a_host_that_can_not_use_tasks_gets_the_result_and_no_request_is_open_for_longer_than_it_may(
    version: str, way: str
) -> None:
    office = Office()
    async with hosted(office.shop, version, way, clock=office.clock) as model:
        answer = await office.answer(model, model.begin("build_report", {"year": 2026}))
        ids = [handle_of(answer)]
        while "next" in answer["structuredContent"]:
            tool, arguments = next_call(answer)
            assert tool == "task_wait"
            answer = await office.answer(model, model.begin(tool, arguments))
            ids.append(answer["structuredContent"].get("task_id", ids[0]))
        assert answer["structuredContent"] == {"year": 2026, "pages": 12}
        assert model.open_for == [45.0, 45.0, 45.0, 45.0, 5.0]
    assert len(set(ids)) == 1, "one task, all the time"
    assert office.runs == 1


@BY_ALL_VERSIONS
async def test_a_host_whose_model_sees_nothing_but_text_gets_it_too(version: str) -> None:
    """Where structured content is not known, it is not passed on."""
    office = Office()
    async with hosted(office.shop, version, clock=office.clock) as model:
        answer = await office.answer(model, model.begin("build_report", {"year": 2026}))
        while calls := calls_in(told(answer)):
            ((tool, arguments),) = calls
            answer = await office.answer(model, model.begin(tool, arguments))
        assert '"pages": 12' in told(answer)
        assert max(model.open_for) == WAIT


@BY_ALL_VERSIONS
async def test_a_call_that_ends_in_time_is_answered_with_its_result_and_nothing_else(version: str) -> None:
    office = Office()

    @office.shop.tasks.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with hosted(office.shop, version, clock=office.clock) as model:
        answer = await model.call("add", {"a": 1, "b": 2})
        assert told(answer) == "3"
        assert answer["structuredContent"] == {"result": 3}
        assert "raincheck/task" not in answer.get("_meta", {})


async def test_what_is_known_to_take_longer_is_not_waited_for_in_vain_and_the_next_calls_wait_as_long_as_they_may() -> (
    None
):
    office = Office()
    begun = asyncio.Event()

    @office.shop.tasks.tool(expected=600, inline_for=7)
    async def slow() -> str:
        begun.set()
        await office.clock.sleep(100)
        return "at last"

    async with hosted(office.shop, clock=office.clock) as model:
        calling = model.begin("slow")
        await begun.wait()
        answer = await model.window(calling, 7)
        answer = await model.window(model.begin(*next_call(answer)), WAIT)
        answer = await model.window(model.begin(*next_call(answer)), WAIT)
        assert model.open_for == [7.0, 45.0, 45.0]
        office.clock.advance(3)
        assert told(await model.go_on(answer)) == "at last"


@pytest.mark.parametrize("fallback_wait", [0.1, 20.0, 3_600.0])
async def test_for_how_long_such_hosts_wait_can_be_said(fallback_wait: float) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED, fallback_wait=fallback_wait)

    @shop.tasks.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    async with hosted(shop, clock=clock) as model:
        answer = await model.window(model.begin("wait"), fallback_wait)
        await model.window(model.begin(*next_call(answer)), fallback_wait)
        assert model.open_for == [fallback_wait] * 2
        assert [name for name in await model.tools() if name != "wait"] == FIVE
