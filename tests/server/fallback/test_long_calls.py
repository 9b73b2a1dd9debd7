"""Hosts without tasks get the result of a tool that takes three minutes, and no call waits for long."""

# pyright: reportUnusedFunction=false

import asyncio

import pytest
from pydantic import BaseModel

from raincheck import TaskContext
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.fallback.hosts import (
    BY_ALL_VERSIONS,
    FALLBACK_TOOL_NAMES,
    ON_FALLBACK_TRANSPORTS,
    Model,
    connected_host,
    find_calls,
    model_text,
    next_call,
    task_id_of,
)
from tests.support.server.transports import Message
from tests.support.watched_clock import WatchedClock

pytestmark = pytest.mark.anyio

TAKES = 185.0
"""Slightly more than three minutes."""
WAIT = 45.0


class Report(BaseModel):
    year: int
    pages: int


class ReportServer:
    """A server whose reports take three minutes on its clock."""

    def __init__(self) -> None:
        self.clock = WatchedClock()
        self.server = ExampleServer(clock=self.clock, settings=LONG_LEASE)
        self.started = asyncio.Event()
        self.runs = 0

        @self.server.tasks.tool
        async def build_report(year: int, task: TaskContext) -> Report:
            self.runs += 1
            working = self.clock.sleep(TAKES)
            await task.progress(3, 12, "crunching")
            self.started.set()
            await working
            return Report(year=year, pages=12)

    async def answer(self, model: Model, calling: "asyncio.Task[Message]") -> Message:
        """The answer to a call, after the maximum wait or when the report is done."""
        await self.clock.asleep(WAIT)
        await self.started.wait()
        left = TAKES - self.clock.monotonic()
        return await model.finish_wait(calling, WAIT, min(WAIT, left))


@ON_FALLBACK_TRANSPORTS
@BY_ALL_VERSIONS
async def test_a_host_that_can_not_use_tasks_gets_the_result_and_no_request_is_open_for_longer_than_it_may(
    version: str, way: str
) -> None:
    report_server = ReportServer()
    async with connected_host(report_server.server, version, way, clock=report_server.clock) as model:
        answer = await report_server.answer(model, model.begin("build_report", {"year": 2026}))
        ids = [task_id_of(answer)]
        while "next" in answer["structuredContent"]:
            tool, arguments = next_call(answer)
            assert tool == "task_wait"
            answer = await report_server.answer(model, model.begin(tool, arguments))
            ids.append(answer["structuredContent"].get("task_id", ids[0]))
        assert answer["structuredContent"] == {"year": 2026, "pages": 12}
        assert model.open_for == [45.0, 45.0, 45.0, 45.0, 5.0]
    assert len(set(ids)) == 1, "one task, all the time"
    assert report_server.runs == 1


@BY_ALL_VERSIONS
async def test_a_model_that_reads_only_text_gets_the_result_too(version: str) -> None:
    """Hosts of older versions do not pass on structured content."""
    report_server = ReportServer()
    async with connected_host(report_server.server, version, clock=report_server.clock) as model:
        answer = await report_server.answer(model, model.begin("build_report", {"year": 2026}))
        while calls := find_calls(model_text(answer)):
            ((tool, arguments),) = calls
            answer = await report_server.answer(model, model.begin(tool, arguments))
        assert '"pages": 12' in model_text(answer)
        assert max(model.open_for) == WAIT


@BY_ALL_VERSIONS
async def test_a_call_that_ends_in_time_is_answered_with_its_result_and_nothing_else(version: str) -> None:
    report_server = ReportServer()

    @report_server.server.tasks.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with connected_host(report_server.server, version, clock=report_server.clock) as model:
        answer = await model.call("add", {"a": 1, "b": 2})
        assert model_text(answer) == "3"
        assert answer["structuredContent"] == {"result": 3}
        assert "raincheck/task" not in answer.get("_meta", {})


async def test_a_tool_known_to_be_slow_is_answered_early_and_later_calls_wait_in_full() -> None:
    report_server = ReportServer()
    begun = asyncio.Event()

    @report_server.server.tasks.tool(expected=600, inline_for=7)
    async def slow() -> str:
        begun.set()
        await report_server.clock.sleep(100)
        return "at last"

    async with connected_host(report_server.server, clock=report_server.clock) as model:
        calling = model.begin("slow")
        await begun.wait()
        answer = await model.finish_wait(calling, 7)
        answer = await model.finish_wait(model.begin(*next_call(answer)), WAIT)
        answer = await model.finish_wait(model.begin(*next_call(answer)), WAIT)
        assert model.open_for == [7.0, 45.0, 45.0]
        report_server.clock.advance(3)
        assert model_text(await model.call_next(answer)) == "at last"


@pytest.mark.parametrize("fallback_wait", [0.1, 20.0, 3_600.0])
async def test_the_wait_of_fallback_hosts_is_configurable(fallback_wait: float) -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE, fallback_wait=fallback_wait)

    @server.tasks.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    async with connected_host(server, clock=clock) as model:
        answer = await model.finish_wait(model.begin("wait"), fallback_wait)
        await model.finish_wait(model.begin(*next_call(answer)), fallback_wait)
        assert model.open_for == [fallback_wait] * 2
        assert [name for name in await model.tools() if name != "wait"] == FALLBACK_TOOL_NAMES
