"""The explanation of a tool matches what the server does with its callers."""

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


def histogram_of(*seconds: float) -> DurationHistogram:
    histogram = DurationHistogram()
    for one in seconds:
        histogram = histogram.with_duration(one)
    return histogram


def explain(*seconds: float, fallback_wait: float | None = 45.0, **policy: Any) -> ToolExplanation:
    """Explain a tool with this policy whose calls took these seconds."""

    async def body() -> None: ...

    tool = ServedTool(make_tool(body, "crunch"), TaskPolicy(**policy), None)
    return explain_tool(tool, histogram_of(*seconds), fallback_wait)


@pytest.mark.parametrize("policy", [{}, {"expected": 1.0}, {"expected": 600.0}, {"inline_for": 3.0}, {"inline_for": 0}])
@pytest.mark.parametrize("seconds", [(), (0.2,) * 9, (0.2,) * 10, (600.0,) * 10, (1.0,) * 8 + (60.0,) * 2])
@pytest.mark.parametrize("fallback_wait", [45.0, 300.0])
def test_the_explanation_matches_the_decisions_of_the_server(
    policy: dict[str, Any], seconds: tuple[float, ...], fallback_wait: float
) -> None:
    estimate = DurationEstimate.from_measurements(histogram_of(*seconds), policy.get("expected"))
    inline = choose_inline_wait(TaskPolicy(**policy), estimate)
    fallback = choose_fallback_wait(TaskPolicy(**policy), estimate, fallback_wait)
    explained = explain(*seconds, fallback_wait=fallback_wait, **policy)
    assert explained.with_tasks == CallerTreatment(CallerOutcome.TASK, inline.seconds, inline.reason)
    assert explained.without_tasks == CallerTreatment(CallerOutcome.FALLBACK, fallback.seconds, fallback.reason)


def test_a_tool_without_calls_has_no_durations() -> None:
    explained = explain()
    assert (explained.name, explained.mode, explained.measured) == ("crunch", "auto", 0)
    assert explained.p50_seconds is explained.p90_seconds is None


def test_p50_and_p90_differ() -> None:
    explained = explain(*[1.0] * 8, *[60.0] * 2)
    assert explained.measured == 10
    assert explained.p50_seconds == pytest.approx(1, rel=0.2)
    assert explained.p90_seconds == pytest.approx(60, rel=0.2)


def test_a_tool_that_requires_tasks_refuses_callers_without() -> None:
    explained = explain(*[0.1] * MIN_SAMPLES, mode="required")
    assert (explained.with_tasks.outcome, explained.with_tasks.waits_seconds) == (CallerOutcome.TASK, 0)
    assert (explained.without_tasks.outcome, explained.without_tasks.waits_seconds) == (CallerOutcome.REFUSED, 0)
    assert explained.without_tasks.reason == 'only callers that accept tasks can call it (mode="required")'


def test_every_caller_of_a_tool_that_forbids_tasks_waits_for_the_result() -> None:
    explained = explain(*[600.0] * MIN_SAMPLES, mode="forbidden", inline_for=3.0)
    assert explained.with_tasks == explained.without_tasks
    assert (explained.with_tasks.outcome, explained.with_tasks.waits_seconds) == (CallerOutcome.RESULT, None)


def test_callers_without_tasks_wait_for_the_result_without_a_fallback_wait() -> None:
    explained = explain(*[600.0] * MIN_SAMPLES, fallback_wait=None)
    assert (explained.without_tasks.outcome, explained.without_tasks.waits_seconds) == (CallerOutcome.RESULT, None)
    assert explained.with_tasks.outcome is CallerOutcome.TASK


async def test_only_tools_whose_calls_become_tasks_are_explained_in_list_order() -> None:
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
    assert explanation.source == "nothing is measured: a store in memory ends with its process"


async def test_a_running_server_explains_by_its_own_measurements() -> None:
    clock = FakeClock()
    tasks = Tasks(MCPServer("reports"), "memory:", clock=clock)

    @tasks.tool
    async def crunch() -> None:
        clock.advance(2)

    async with tasks.running() as engine:
        task = await engine.submit("crunch", {})
        await engine.wait(task.id)
        explanation = await tasks.explain()
    assert explanation.source == "measured for 'reports' by the server in this process"
    assert explanation.tools[0].measured == 1
    assert explanation.tools[0].p50_seconds == pytest.approx(2, rel=0.2)


async def test_a_low_level_server_explains_the_tools_enabled_by_name() -> None:
    async def call(_: Any, __: CallToolRequestParams) -> Any: ...

    tasks = Tasks(Server("low", on_call_tool=call), "memory:")
    tasks.enable("crunch", expected=600)
    (explained,) = (await tasks.explain()).tools
    assert (explained.name, explained.without_tasks.waits_seconds) == ("crunch", SHORT_WAIT)


async def _nothing() -> None: ...
