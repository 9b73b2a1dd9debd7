"""Steps that call Python functions."""

import pytest

from tests.support.workflows import step_functions
from tests.support.workflows.harness import Workshop

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


def flow(function: str, more: str = "") -> str:
    return f"workflows: {{flow: {{steps: [{{id: a, python: '{step_functions.__name__}:{function}', {more}}}]}}}}"


async def test_a_coroutine_is_awaited(workshop: Workshop) -> None:
    assert await workshop.run(flow("double", "with: {n: '{{ 3 }}'}")) == 6


async def test_a_plain_function_is_called_in_a_thread(workshop: Workshop) -> None:
    assert await workshop.run(flow("where", "with: {n: 3}")) == [3, False]


async def test_an_error_for_the_caller_is_told(workshop: Workshop) -> None:
    assert (await workshop.failure(flow("refuse", "with: {why: not today}"))).endswith("not today")


async def test_another_error_is_told_by_an_id_and_what_it_holds_is_not(workshop: Workshop) -> None:
    message = await workshop.failure(flow("fail"))
    assert "it raised RuntimeError: its operator finds it as error" in message
    assert "hunter2" not in message


async def test_a_result_that_is_not_json_is_an_error(workshop: Workshop) -> None:
    assert "can't be written as JSON" in await workshop.failure(flow("no_json"))
