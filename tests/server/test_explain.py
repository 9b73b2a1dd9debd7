"""What is said of a tool's callers is what the server does with them, in words for whoever runs it."""

from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolRequestParams

from raincheck import Tasks
from raincheck.core.histogram import DurationHistogram
from raincheck.engine.tool import make_tool
from raincheck.server.explain import CallerOutcome, CallerTreatment, ToolExplanation, explain_tool
from raincheck.server.tools.policy import TaskPolicy
from raincheck.server.tools.registry import ServedTool
from raincheck.server.wait_policy import (
    MIN_SAMPLES,
    SHORT_WAIT,
    DurationEstimate,
    choose_fallback_wait,
    choose_inline_wait,
)
from raincheck.testing import FakeClock

pytestmark = pytest.mark.anyio


def sketch_of(*seconds: float) -> DurationHistogram:
    sketch = DurationHistogram()
    for one in seconds:
        sketch = sketch.with_duration(one)
    return sketch


def explain(*seconds: float, fallback_wait: float | None = 45.0, **policy: Any) -> ToolExplanation:
    """What is said of a tool with such a policy whose calls took so long."""

    async def body() -> None: ...

    tool = ServedTool(make_tool(body, "crunch"), TaskPolicy(**policy), None)
    return explain_tool(tool, sketch_of(*seconds), fallback_wait)


@pytest.mark.parametrize("policy", [{}, {"expected": 1.0}, {"expected": 600.0}, {"inline_for": 3.0}, {"inline_for": 0}])
@pytest.mark.parametrize("seconds", [(), (0.2,) * 9, (0.2,) * 10, (600.0,) * 10, (1.0,) * 8 + (60.0,) * 2])
@pytest.mark.parametrize("fallback_wait", [45.0, 300.0])
def test_callers_are_said_to_get_what_the_server_chooses_and_for_its_reasons(
    policy: dict[str, Any], seconds: tuple[float, ...], fallback_wait: float
) -> None:
    known = DurationEstimate.from_measurements(sketch_of(*seconds), policy.get("expected"))
    inline = choose_inline_wait(TaskPolicy(**policy), known)
    plain = choose_fallback_wait(TaskPolicy(**policy), known, fallback_wait)
    told = explain(*seconds, fallback_wait=fallback_wait, **policy)
    assert told.with_tasks == CallerTreatment(CallerOutcome.TASK, inline.seconds, inline.reason)
    assert told.without_tasks == CallerTreatment(CallerOutcome.FALLBACK, plain.seconds, plain.reason)


def test_a_tool_that_nobody_has_called_has_no_times() -> None:
    told = explain()
    assert (told.name, told.mode, told.measured) == ("crunch", "auto", 0)
    assert told.p50_seconds is told.p90_seconds is None


def test_half_and_9_of_10_are_told_apart() -> None:
    told = explain(*[1.0] * 8, *[60.0] * 2)
    assert told.measured == 10
    assert told.p50_seconds == pytest.approx(1, rel=0.2)
    assert told.p90_seconds == pytest.approx(60, rel=0.2)


def test_a_tool_that_requires_tasks_refuses_callers_without() -> None:
    told = explain(*[0.1] * MIN_SAMPLES, mode="required")
    assert (told.with_tasks.gets, told.with_tasks.waits_seconds) == (CallerOutcome.TASK, 0)
    assert (told.without_tasks.gets, told.without_tasks.waits_seconds) == (CallerOutcome.REFUSED, 0)
    assert told.without_tasks.why == 'it is for callers that take tasks (mode="required")'


def test_a_tool_that_forbids_tasks_lets_everybody_wait() -> None:
    told = explain(*[600.0] * MIN_SAMPLES, mode="forbidden", inline_for=3.0)
    assert told.with_tasks == told.without_tasks
    assert (told.with_tasks.gets, told.with_tasks.waits_seconds) == (CallerOutcome.RESULT, None)


def test_callers_without_tasks_wait_for_the_result_where_the_server_says_so() -> None:
    told = explain(*[600.0] * MIN_SAMPLES, fallback_wait=None)
    assert (told.without_tasks.gets, told.without_tasks.waits_seconds) == (CallerOutcome.RESULT, None)
    assert told.with_tasks.gets is CallerOutcome.TASK


async def test_only_tools_whose_calls_become_tasks_are_told_of_in_the_order_of_the_list() -> None:
    mcp = MCPServer("reports")
    tasks = Tasks(mcp, "memory:")
    for name in ("zip", "export_b", "export_a", "greet"):
        mcp.add_tool(_nothing, name=name)
    tasks.enable("export_*", mode="required")
    tasks.enable("zip")
    tasks.enable("not_there")
    tasks.tool(name="build")(_nothing)
    explanation = await tasks.explain()
    assert [tool.name for tool in explanation.tools] == ["zip", "export_b", "export_a", "build"]
    assert [tool.mode for tool in explanation.tools] == ["auto", "required", "required", "auto"]
    assert explanation.source == "nothing is measured: what is kept in memory ends with the process that kept it"


async def test_a_server_that_runs_is_asked_what_it_knows_itself() -> None:
    clock = FakeClock()
    tasks = Tasks(MCPServer("reports"), "memory:", clock=clock)

    @tasks.tool
    async def crunch() -> None:
        clock.advance(2)

    async with tasks.running() as engine:
        task = await engine.submit("crunch", {})
        await engine.wait(task.id)
        explanation = await tasks.explain()
    assert explanation.source == "measured for 'reports', as the server that runs here knows"
    assert explanation.tools[0].measured == 1
    assert explanation.tools[0].p50_seconds == pytest.approx(2, rel=0.2)


async def test_a_low_level_server_has_the_tools_that_were_named() -> None:
    async def call(_: Any, __: CallToolRequestParams) -> Any: ...

    tasks = Tasks(Server("low", on_call_tool=call), "memory:")
    tasks.enable("crunch", expected=600)
    (told,) = (await tasks.explain()).tools
    assert (told.name, told.without_tasks.waits_seconds) == ("crunch", SHORT_WAIT)


async def _nothing() -> None: ...
