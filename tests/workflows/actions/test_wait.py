"""Steps that wait through their task: they park, ask once, and resume after a restart."""

from typing import Any, cast

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.core.values import Json
from raincheck.engine import Engine
from tests.support.workflows.harness import WorkflowHarness, result_of
from tests.support.workflows.step_functions import called

pytestmark = pytest.mark.anyio

ASK = """
workflows:
  flow:
    input: {who: {type: string, default: you}}
    steps:
      - {id: before, run: {shell: "echo x >> log"}}
      - id: ask
        ask:
          message: Is {{ input.who }} sure?
          schema: {sure: {type: boolean}, why: {type: string, required: false}}
      - {id: after, set: "{{ steps.ask.result.sure }}"}
"""


def is_parked(task: Task) -> bool:
    return task.phase is Phase.PARKED


async def test_a_question_parks_the_task_and_its_answer_is_the_result(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running(ASK) as engine:
        task = await engine.submit("flow", {"who": "she"})
        view = await engine.wait(task.id, until=is_parked)
        (question,) = view.inputs
        assert b"Is she sure?" in question.request
        await engine.answer(task.id, {"ask-0": {"action": "accept", "content": {"sure": True}}})
        assert await engine.result(task.id) is True
    assert (workflow_harness.folder / "log").read_text() == "x\n", "what comes before was not run again"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_declined_question_is_an_error_of_kind_declined(workflow_harness: WorkflowHarness, action: str) -> None:
    async with workflow_harness.running(ASK) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=is_parked)
        await engine.answer(task.id, {"ask-0": {"action": action}})
        view = await engine.wait(task.id)
    assert (
        cast("Any", result_of(view))["message"]
        == f"step 'ask' failed (declined) at `ask the user`: the user answered with {action}"
    )


async def test_a_caller_that_can_not_be_asked_is_an_error_of_kind_declined(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running(ASK) as engine:
        caller: Json = {"capabilities": {}}
        task = await engine.submit("flow", caller=caller)
        view = await engine.wait(task.id)
    assert "failed (declined)" in cast("Any", result_of(view))["message"]


async def test_a_caller_whose_model_can_not_be_sampled_is_an_error_of_kind_declined(
    workflow_harness: WorkflowHarness,
) -> None:
    async with workflow_harness.running("workflows: {flow: {steps: [{id: a, sample: {prompt: hi}}]}}") as engine:
        caller: Json = {"capabilities": {}}
        task = await engine.submit("flow", caller=caller)
        view = await engine.wait(task.id)
    assert "failed (declined) at `ask a model`" in cast("Any", result_of(view))["message"]


async def test_an_unanswered_question_times_out(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running("""
    workflows:
      flow:
        steps:
          - {id: ask, ask: {message: "?"}, timeout: 0.3, on_error: continue}
          - {id: after, set: "{{ steps.ask.error.kind }}"}
          - {id: nap, sleep: 0.3}
          - {id: last, set: "{{ steps.after.result }}"}
    """) as engine:
        task = await engine.submit("flow")
        view = await engine.wait(task.id)
        assert result_of(view) == "timeout"
        assert view.task.attempt_number > 1, "it was parked meanwhile"


async def test_a_question_that_times_out_is_withdrawn(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: ask, ask: {message: "?"}, timeout: 0.3, on_error: continue}
          - {id: again, ask: {message: "Really?"}}
    """
    async with workflow_harness.running(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        view = await engine.wait(task.id, until=lambda task: task.phase is Phase.PARKED and task.signals == 1)
        assert [question.key for question in view.inputs] == ["again-0"]
        await engine.answer(task.id, {"again-0": {"action": "accept", "content": {}}})
        assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED


async def test_a_question_that_is_answered_in_time_does_not_time_out(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running("""
    workflows:
      flow:
        steps:
          - {id: ask, ask: {message: "?"}, timeout: 1h}
          - {id: nap, sleep: 0.2}
          - {id: last, set: "{{ steps.ask.result }}"}
    """) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=is_parked)
        await engine.answer(task.id, {"ask-0": {"action": "accept", "content": {}}})
        assert await engine.result(task.id) == {}


async def test_the_callers_model_is_sampled(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running("""
    workflows:
      flow:
        steps:
          - {id: ask, sample: {messages: [{role: user, text: hi}, {role: assistant, text: yes}], system: brief}}
    """) as engine:
        task = await engine.submit("flow")
        view = await engine.wait(task.id, until=is_parked)
        (question,) = view.inputs
        assert b'"systemPrompt":"brief"' in question.request
        answer: Json = {"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "m"}
        await engine.answer(task.id, {"ask-0": answer})
        assert await engine.result(task.id) == {"text": "ok", "model": "m"}


PARENT = """
workflows:
  flow:
    input: {n: {type: integer}}
    steps:
      - {id: each, for_each: range(input.n), workflow: child, with: {n: "{{ item }}"}, on_error: continue}
      - {id: last, set: {result: "{{ steps.each.result }}", error: "{{ steps.each.error }}"}}
  child:
    input: {n: {type: integer, maximum: 1}}
    steps:
      - {id: nap, sleep: "{{ input.n * 0.1 }}"}
      - {id: result, set: "{{ 10 // (input.n + 1) }}"}
"""


async def run_parent(engine: Engine, n: int) -> Any:
    task = await engine.submit("flow", {"n": n})
    return result_of(await engine.wait(task.id))


async def test_another_workflow_runs_as_a_child(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running(PARENT) as engine:
        assert await run_parent(engine, 2) == {"result": [10, 5], "error": None}


async def test_a_child_that_can_not_be_started_is_an_error(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running(PARENT) as engine:
        ended = await run_parent(engine, 3)
    assert ended["result"] == [10, 5, None]
    assert "2 is greater than the maximum of 1" in ended["error"]["message"]


async def test_a_failed_child_is_an_error_of_its_parents_step(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure("""
    workflows:
      flow: {steps: [{id: a, workflow: child}]}
      child: {steps: [{id: b, run: {shell: "exit 9"}}]}
    """)
    assert "step 'a' failed (failed) at `run workflow child`" in message
    assert "exit code 9" in message


async def test_a_long_sleep_occupies_no_worker(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running(
        "workflows: {flow: {steps: [{id: nap, sleep: 0.3}, {id: a, set: 1}]}}"
    ) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=is_parked)
        assert await engine.result(task.id) == 1
        assert await workflow_harness.checkpoint_names(task.id) == ["sleep nap", "nap", "a"]


async def test_an_invalid_sleep_is_an_error(workflow_harness: WorkflowHarness) -> None:
    text = "workflows: {flow: {input: {x: {}}, steps: [{id: nap, sleep: '{{ input.x }}'}]}}"
    for value in ("soon", -1, 10**400, -(10**400), 1e300):
        assert "failed (expression) at `sleep`: a duration is" in await workflow_harness.failure(text, x=value)


async def test_a_question_that_is_too_large_is_an_error_of_kind_too_large(workflow_harness: WorkflowHarness) -> None:
    text = "workflows: {flow: {input: {x: {}}, steps: [{id: a, ask: {message: '{{ input.x }}'}}]}}"
    assert "failed (too-large)" in await workflow_harness.failure(text, x="x" * 100_000)


async def test_a_pipeline_that_is_parked_while_it_undoes_restarts_no_step(workflow_harness: WorkflowHarness) -> None:
    called.clear()
    async with workflow_harness.running("""
    workflows:
      flow:
        steps:
          - {id: first, set: 1, on_error: {compensate: undo}}
          - {id: bad, needs: [first], python: "tests.support.workflows.step_functions:fail_beside", with: {who: beside}}
          - id: beside
            needs: [first]
            python: "tests.support.workflows.step_functions:never_end"
            with: {who: beside}
          - {id: undo, ask: {message: "Undo {{ steps.first.result }}?"}}
    """) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=is_parked)
        await engine.answer(task.id, {"undo-0": {"action": "accept", "content": {}}})
        view = await engine.wait(task.id)
    assert cast("Any", result_of(view))["message"].endswith("no more; undone by undo")
    assert view.task.attempt_number == 2
    assert called["beside"] == 1
