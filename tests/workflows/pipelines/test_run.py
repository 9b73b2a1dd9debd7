"""Pipelines run their steps in order, with conditions, items, rounds, retries and error handling."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.values import Json
from raincheck.errors import InvalidValue
from tests.support.workflows import concurrency_functions
from tests.support.workflows.harness import WorkflowHarness, result_of

pytestmark = pytest.mark.anyio


async def test_steps_run_one_after_the_other_and_the_last_one_is_the_result(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        input: {who: {type: string}, times: {type: integer, default: 2}}
        steps:
          - {id: greet, set: "hello {{ input.who }}"}
          - {id: many, set: {said: "{{ steps.greet.result }}", times: "{{ input.times + 1 }}"}}
    """
    assert await workflow_harness.run(text, who="you") == {"said": "hello you", "times": 3}


async def test_the_output_can_use_any_step(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: a, set: 1}
          - {id: b, needs: [], set: 2}
        output: {sum: "{{ steps.a.result + steps.b.result }}", b: "{{ steps.b.status }}"}
    """
    assert await workflow_harness.run(text) == {"sum": 3, "b": "completed"}


async def test_arguments_that_the_schema_refuses_create_no_task(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running("""
    workflows:
      flow:
        input: {tag: {type: string, pattern: "^v"}, more: {type: integer, required: false}}
        steps: [{id: a, set: "{{ input.tag }}"}]
    """):
        refused: list[dict[str, Json]] = [
            {"tag": "1"},
            {},
            {"tag": "v", "x": 1},
            {"tag": "v", "more": "1"},
            {"tag": "v", "restored": {}},
        ]
        for arguments in refused:
            with pytest.raises(InvalidValue, match="does not accept these arguments"):
                await workflow_harness.engine.submit("flow", arguments)
        assert await workflow_harness.result(tag="v1") == "v1"


async def test_a_step_whose_condition_is_false_is_skipped_and_what_needs_it_runs(
    workflow_harness: WorkflowHarness,
) -> None:
    text = """
    workflows:
      flow:
        input: {publish: {type: boolean}}
        steps:
          - {id: publish, if: input.publish, set: yes}
          - id: after
            set: {status: "{{ steps.publish.status }}", result: "{{ steps.publish.result }}"}
    """
    assert await workflow_harness.run(text, publish=False) == {"status": "skipped", "result": None}


async def test_using_a_field_of_a_skipped_step_fails_with_an_error_about_it(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure("""
    workflows:
      flow:
        steps:
          - {id: a, if: false, set: {x: 1}}
          - {id: b, set: "{{ steps.a.result.x }}"}
    """)
    assert message.startswith("step 'b' failed (expression) at `set`")
    assert "there is no 'x' in nothing" in message


async def test_items_run_side_by_side_and_keep_their_order(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - id: each
            for_each: range(5)
            max_parallel: 3
            set: "{{ item * item + index }}"
    """
    assert await workflow_harness.run(text) == [0, 2, 6, 12, 20]


async def test_items_may_be_a_list_in_the_file_or_come_from_a_mapping(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        input: {who: {type: object}}
        steps:
          - {id: a, for_each: [1, "{{ input.who.x }}"], set: "{{ item }}"}
          - {id: b, for_each: input.who, set: "{{ item.key }}={{ item.value }}"}
        output: ["{{ steps.a.result }}", "{{ steps.b.result }}"]
    """
    assert await workflow_harness.run(text, who={"x": 5, "y": 6}) == [[1, 5], ["x=5", "y=6"]]


async def test_enough_items_that_succeed_are_a_success(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: each, for_each: "[1, 0, 2]", min_success_rate: 0.6, set: "{{ 2 / item }}"}
        output: {result: "{{ steps.each.result }}", failed: "{{ steps.each.failed }}"}
    """
    ended = cast("Any", await workflow_harness.run(text))
    assert ended["result"] == [2.0, None, 1.0]
    assert [(one["index"], one["error"]["kind"]) for one in ended["failed"]] == [(1, "expression")]


async def test_too_few_items_that_succeed_are_a_failure(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure("""
    workflows:
      flow:
        steps: [{id: each, for_each: "[1, 0, 0]", min_success_rate: 0.5, set: "{{ 2 / item }}"}]
    """)
    assert "2 of 3 items failed, the first at index 1" in message


async def test_a_step_without_items_succeeds(workflow_harness: WorkflowHarness) -> None:
    assert await workflow_harness.run("workflows: {flow: {steps: [{id: each, for_each: '[]', set: 1}]}}") == []


@pytest.mark.parametrize("items", [5, "text", list(range(1_001))])
async def test_for_each_over_no_list_or_too_long_a_list_is_an_error(
    workflow_harness: WorkflowHarness, items: Json
) -> None:
    text = "workflows: {flow: {input: {x: {}}, steps: [{id: each, for_each: input.x, set: 1}]}}"
    assert "failed (expression)" in await workflow_harness.failure(text, x=items)


async def test_a_rate_is_met_exactly(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps: [{id: each, for_each: range(10), min_success_rate: 0.7, set: "{{ 1 // (item // 3) }}"}]
    """
    assert await workflow_harness.run(text) == [None, None, None, 1, 1, 1, 0, 0, 0, 0]


async def test_rounds_end_where_the_step_or_the_question_fails(workflow_harness: WorkflowHarness) -> None:
    for step in ("until: result.x, max_rounds: 3, set: 1", "until: result, max_rounds: 3, set: '{{ 1 // 0 }}'"):
        message = await workflow_harness.failure(f"workflows: {{flow: {{steps: [{{id: a, {step}}}]}}}}")
        assert "failed (expression)" in message


async def test_an_output_that_can_not_be_evaluated_is_an_error(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure(
        "workflows: {flow: {steps: [{id: a, set: 1}], output: '{{ steps.a.result.x }}'}}"
    )
    assert message.startswith("the output can't be evaluated")


async def test_tasks_can_be_listed_by_subject(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running("""
    workflows:
      flow:
        input: {tag: {type: string, default: none}, n: {type: integer, default: 1}}
        subject: "{{ input.tag }}/{{ input.n }}"
        steps: [{id: a, set: 1}]
    """) as engine:
        task = await engine.submit("flow", {"tag": "v1"})
        assert task.subject == "v1/1"


async def test_rounds_repeat_until_the_condition_holds(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps: [{id: poll, until: result >= 9, max_rounds: 5, every: 0.01, set: "{{ round * 3 }}"}]
    """
    assert await workflow_harness.run(text) == 9


async def test_rounds_end_if_the_condition_never_holds(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure(
        "workflows: {flow: {steps: [{id: poll, until: result > 9, max_rounds: 2, set: '{{ round }}'}]}}"
    )
    assert "was still false after 2 rounds" in message


async def test_a_failed_step_is_retried_as_often_as_it_declares(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - id: flaky
            run: {shell: 'echo x >> tries; test "$(wc -l < tries)" -ge 3'}
            retry: {attempts: 4, backoff: 0.01, factor: 1}
    """
    assert await workflow_harness.run(text) == {"exit_code": 0, "stdout": "", "stderr": ""}
    assert (workflow_harness.folder / "tries").read_text() == "x\nx\nx\n"


async def test_only_the_declared_kinds_of_errors_are_retried(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure("""
    workflows:
      flow:
        steps:
          - {id: once, run: {shell: "echo x >> tries; exit 1"}, retry: {attempts: 4, on: [timeout]}}
    """)
    assert "exit code 1" in message
    assert (workflow_harness.folder / "tries").read_text() == "x\n"


async def test_a_pipeline_continues_after_an_error_that_it_may_ignore(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: bad, on_error: continue, run: {shell: "echo oh no >&2; exit 3"}}
          - {id: after, set: {status: "{{ steps.bad.status }}", error: "{{ steps.bad.error }}"}}
    """
    error = {"kind": "exit", "message": "exit code 3: oh no"}
    assert await workflow_harness.run(text) == {"status": "failed", "error": error}


async def test_a_failure_stops_running_steps_and_undoes_finished_ones_latest_first(
    workflow_harness: WorkflowHarness,
) -> None:
    message = await workflow_harness.failure("""
    workflows:
      flow:
        steps:
          - {id: first, set: one, on_error: {compensate: undo_first}}
          - {id: second, set: two, on_error: {compensate: undo_second}}
          - {id: third, set: three}
          - id: never_ends
            needs: [third]
            run: {shell: "sleep 60; echo survived >> log"}
            on_error: {compensate: undo_third}
          - {id: bad, needs: [third], run: {shell: "exit 7"}, on_error: {compensate: undo_bad}}
          - {id: undo_first, run: {shell: 'echo "first $WAS" >> log', env: {WAS: "{{ steps.first.result }}"}}}
          - {id: undo_second, run: {shell: "echo second >> log; exit 1"}}
          - {id: undo_third, run: {shell: "echo third >> log"}}
          - {id: undo_bad, run: {shell: "echo bad >> log"}}
    """)
    assert (workflow_harness.folder / "log").read_text() == "third\nbad\nsecond\nfirst one\n"
    assert message.startswith("step 'bad' failed (exit) at `run a shell script`: exit code 7; ")
    assert "undone by undo_third, undo_bad, undo_first" in message
    assert "undo step undo_second failed: exit code 1" in message


async def test_compensations_do_not_run_if_the_pipeline_succeeds(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: a, set: 1, on_error: {compensate: undo}}
          - {id: undo, run: {shell: "echo undone > log"}}
    """
    assert await workflow_harness.run(text) == 1
    assert not (workflow_harness.folder / "log").exists()


async def test_no_more_steps_run_at_once_than_max_parallel(workflow_harness: WorkflowHarness) -> None:
    group = str(workflow_harness.folder)
    steps: list[Json] = [
        {
            "id": f"s{number}",
            "needs": [],
            "python": f"{concurrency_functions.__name__}:meet",
            "with": {"group": group},
        }
        for number in range(6)
    ]
    needs: list[Json] = [f"s{number}" for number in range(6)]
    steps.append(
        {
            "id": "most",
            "needs": needs,
            "python": f"{concurrency_functions.__name__}:max_running",
            "with": {"group": group},
        }
    )
    text = json.dumps({"raincheck": 1, "workflows": {"flow": {"max_parallel": 2, "steps": steps}}})
    assert await workflow_harness.run(text) == 2


async def test_artifacts_can_be_read_while_the_task_works(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running("""
    workflows:
      flow:
        steps:
          - {id: draft, set: {text: hello}, artifact: draft}
          - {id: ok, ask: {message: "Publish it?", schema: {yes: {type: boolean}}}}
    """) as engine:
        task = await engine.submit("flow")
        view = await engine.wait(task.id, until=lambda task: task.phase is Phase.PARKED)
        assert [question.key for question in view.inputs] == ["ok-0"]
        found = await engine.artifact(task.id, "draft")
        assert found == {"text": "hello"}
        await engine.answer(task.id, {"ok-0": {"action": "accept", "content": {"yes": True}}})
        assert await engine.result(task.id) == {"yes": True}


async def test_the_status_names_the_running_steps(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running("""
    workflows:
      flow:
        steps:
          - {id: a, set: 1}
          - {id: b, ask: {message: "?"}}
          - {id: c, needs: [a], ask: {message: "?"}}
    """) as engine:
        task = await engine.submit("flow")
        view = await engine.wait(task.id, until=lambda task: task.phase is Phase.PARKED)
        progress = view.task.progress
        assert progress is not None
        assert (progress.done, progress.total, view.task.status_message) == (1, 3, "b, c")
        await engine.cancel(task.id)


async def test_steps_that_are_restored_are_not_run(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running(
        """
    workflows:
      flow:
        steps:
          - {id: a, run: {shell: "echo a >> log"}}
          - {id: b, set: "{{ steps.a.result.stdout }} again"}
          - {id: c, run: {shell: "exit 1"}}
          - {id: undo, run: {shell: "echo undone >> log"}}
    """.replace('echo a >> log"}', 'echo a >> log"}, on_error: {compensate: undo}')
    ) as engine:
        task = await engine.submit("flow", {"restored": {"a": {"stdout": "kept"}, "c": 1}}, validate=False)
        view = await engine.wait(task.id)
        assert (view.task.is_error, result_of(view)) == (False, 1)
        task = await engine.submit("flow", {"restored": {"a": {"stdout": "kept"}}}, validate=False)
        assert (await engine.wait(task.id)).task.is_error
    assert not (workflow_harness.folder / "log").exists(), "what another task did is not undone here"
    assert (await asyncio.to_thread(workflow_harness.load)).pipelines["flow"].predecessors("c") == {"a", "b"}


async def test_a_task_that_is_cancelled_stops_its_commands(workflow_harness: WorkflowHarness, tmp_path: Path) -> None:
    script = "trap 'echo stopped > log; exit' TERM; echo on > began; while :; do sleep 0.02; done"
    (tmp_path / "script").write_text(script)
    async with workflow_harness.running("workflows: {flow: {steps: [{id: a, run: [sh, script]}]}}") as engine:
        task = await engine.submit("flow")
        async with asyncio.timeout(10):
            while not await asyncio.to_thread((tmp_path / "began").exists):  # noqa: ASYNC110 - written by a process
                await asyncio.sleep(0.01)
        await engine.cancel(task.id)
        async with asyncio.timeout(10):
            while not await asyncio.to_thread((tmp_path / "log").exists):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)
