"""Steps that call Python functions."""

import pytest

from tests.support.workflows import step_functions
from tests.support.workflows.harness import WorkflowHarness

pytestmark = pytest.mark.anyio


def flow(function: str, more: str = "") -> str:
    return f"workflows: {{flow: {{steps: [{{id: a, python: '{step_functions.__name__}:{function}', {more}}}]}}}}"


async def test_a_coroutine_is_awaited(workflow_harness: WorkflowHarness) -> None:
    assert await workflow_harness.run(flow("double", "with: {n: '{{ 3 }}'}")) == 6


async def test_a_plain_function_is_called_in_a_thread(workflow_harness: WorkflowHarness) -> None:
    assert await workflow_harness.run(flow("where", "with: {n: 3}")) == [3, False]


async def test_a_tool_error_is_reported_to_the_caller(workflow_harness: WorkflowHarness) -> None:
    assert (await workflow_harness.failure(flow("refuse", "with: {why: not today}"))).endswith("not today")


async def test_any_other_error_is_reported_by_an_id_without_its_content(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure(flow("fail"))
    assert "it raised RuntimeError: ask its operator about error" in message
    assert "hunter2" not in message


async def test_a_result_that_is_not_json_is_an_error(workflow_harness: WorkflowHarness) -> None:
    assert "can't be written as JSON" in await workflow_harness.failure(flow("no_json"))
