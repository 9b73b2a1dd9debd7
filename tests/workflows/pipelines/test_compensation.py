"""A failing pipeline stops and undoes the steps that started, and leaves no child running."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest

from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import Limits, Quota
from raincheck.core.records import Step, Task, TaskId
from raincheck.core.values import Json, decode
from raincheck.engine import Settings
from raincheck.stores.requests import TaskQuery
from raincheck.workflows.actions import ACTIONS
from raincheck.workflows.actions.base import ActionCall
from raincheck.workflows.actions.python import SetAction
from tests.support.workflows.harness import QUICK, WorkflowHarness, result_of

pytestmark = pytest.mark.anyio


def is_parked(task: Task) -> bool:
    return task.phase is Phase.PARKED


def log_of(workflow_harness: WorkflowHarness) -> list[str]:
    file = workflow_harness.folder / "log"
    return file.read_text().split() if file.exists() else []


async def failure(workflow_harness: WorkflowHarness, text: str, settings: Settings) -> str:
    async with workflow_harness.running(text, settings):
        return await workflow_harness.error()


async def checkpoints(workflow_harness: WorkflowHarness, task_id: TaskId) -> tuple[Step, ...]:
    return (await workflow_harness.store.journal(task_id, Scope.everything(), now=SystemClock().now())).steps


async def children(workflow_harness: WorkflowHarness) -> list[Task]:
    page = await workflow_harness.store.list_tasks(TaskQuery(Scope.everything()), now=SystemClock().now())
    return [task for task in page.tasks if task.parent_id is not None]


BOOKED = """
workflows:
  flow:
    steps:
      - {{id: book, run: {{shell: "echo booked >> log"}}, on_error: {{compensate: unbook}}}}
      - {{id: c, {step}}}
      - {{id: last, set: "{{{{ steps.c.error.kind }}}}"}}
      - {{id: unbook, run: {{shell: "echo unbooked >> log"}}}}
  child: {{steps: [{{id: a, set: 1}}]}}
"""

LARGE = "for_each: range(10), set: \"{{ 'x' * 900000 }}\", artifact: big"
"""More than an artifact holds."""

LIMITED = [
    pytest.param("workflow: child", replace(QUICK, quota=Quota(live=1)), "failed", id="tasks"),
    pytest.param("workflow: child", replace(QUICK, limits=Limits(children=0)), "too-large", id="children"),
    pytest.param("workflow: child", replace(QUICK, limits=Limits(depth=0)), "too-large", id="depth"),
    pytest.param("set: 1, artifact: a", replace(QUICK, limits=Limits(artifacts=0)), "too-large", id="artifacts"),
    pytest.param(LARGE, QUICK, "too-large", id="artifact"),
]


@pytest.mark.parametrize(("step", "settings", "kind"), LIMITED)
async def test_a_step_beyond_a_limit_fails_and_earlier_steps_are_undone(
    workflow_harness: WorkflowHarness, step: str, settings: Settings, kind: str
) -> None:
    message = await failure(workflow_harness, BOOKED.format(step=step), settings)
    assert message.startswith(f"step 'c' failed ({kind})"), message
    assert message.endswith("; undone by unbook")
    assert log_of(workflow_harness) == ["booked", "unbooked"]


@pytest.mark.parametrize(("step", "settings", "kind"), LIMITED)
async def test_a_pipeline_continues_after_a_limit_error_that_it_may_ignore(
    workflow_harness: WorkflowHarness, step: str, settings: Settings, kind: str
) -> None:
    async with workflow_harness.running(BOOKED.format(step=f"{step}, on_error: continue"), settings):
        assert await workflow_harness.result() == kind
    assert log_of(workflow_harness) == ["booked"]


@pytest.mark.parametrize("step", ["for_each: range(5), set: 1", "sleep: 0.01, retry: {attempts: 2, backoff: 0.01}"])
async def test_a_pipeline_at_its_step_limit_compensates_and_names_unrecorded_outcomes(
    workflow_harness: WorkflowHarness, step: str
) -> None:
    message = await failure(workflow_harness, BOOKED.format(step=step), replace(QUICK, limits=Limits(steps=2)))
    assert message.startswith("step 'c' failed (too-large)"), message
    assert "; the outcome of undo step unbook is not recorded: " in message
    assert log_of(workflow_harness) == ["booked", "unbooked"]


async def test_an_unrecorded_step_is_not_repeated_during_compensation(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: a, set: 1, on_error: {compensate: undo}}
          - {id: b, run: {shell: "echo b >> log"}}
          - {id: undo, ask: {message: "Undo?"}}
    """
    async with workflow_harness.running(text, replace(QUICK, limits=Limits(steps=1))) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=is_parked)
        await engine.answer(task.id, {"undo-0": {"action": "accept", "content": {}}})
        view = await engine.wait(task.id)
    assert cast("Any", result_of(view))["message"].startswith("step 'b' failed (too-large)")
    assert view.task.attempt_number == 2
    assert log_of(workflow_harness) == ["b"]


async def test_a_refused_child_is_retried_and_not_started_twice(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: c, workflow: child, retry: {attempts: 100, backoff: 0.15, factor: 1}}
          - {id: nap, sleep: 0.2}
          - {id: last, set: "{{ steps.c.result }}"}
      child: {steps: [{id: a, set: done}]}
      other: {steps: [{id: a, ask: {message: "?"}}]}
    """
    async with workflow_harness.running(text, replace(QUICK, quota=Quota(live=2))) as engine:
        other = await engine.submit("other")
        task = await engine.submit("flow")
        await engine.wait(task.id, until=is_parked)
        await engine.cancel(other.id)
        view = await engine.wait(task.id)
        assert result_of(view) == "done"
        assert len(await children(workflow_harness)) == 1, (
            "a later attempt does not begin what an earlier one was refused"
        )


async def test_the_child_of_a_stopped_step_is_cancelled(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: c, workflow: child}
          - {id: ok, needs: [], ask: {message: "Go on?"}}
          - {id: undo, set: "{{ steps.c.status }}", artifact: seen}
      child: {steps: [{id: a, sleep: 1h}]}
    """.replace("{id: c, workflow: child}", "{id: c, workflow: child, on_error: {compensate: undo}}")
    async with workflow_harness.running(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        (child,) = await children(workflow_harness)
        assert not child.is_terminal, "it keeps running while its parent is parked"
        await engine.answer(task.id, {"ok-0": {"action": "decline"}})
        view = await engine.wait(task.id)
        assert cast("Any", result_of(view))["message"].startswith("step 'ok' failed (declined)")
        assert await engine.artifact(task.id, "seen") == "interrupted"
        (child,) = await children(workflow_harness)
        assert child.phase is Phase.CANCELLED


async def test_the_child_of_a_state_is_cancelled_when_the_instance_leaves_it(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        states:
          busy: {action: {workflow: child}, transitions: {skip: {to: rest}, ok: {to: done, on: "true"}}}
          rest: {transitions: {end: {to: done}}}
          done: {kind: success}
      child: {steps: [{id: a, sleep: 1h}]}
    """
    lazy = replace(QUICK, park_after=60.0)
    async with workflow_harness.running(text, lazy) as engine:
        task = await engine.submit("flow")
        async with asyncio.timeout(10):
            while not await children(workflow_harness):  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(0.01)
        await engine.instances.transition(task.id, "skip")
        (child,) = await children(workflow_harness)
        view = await engine.wait(child.id)
        assert view.task.phase is Phase.CANCELLED


async def test_finished_items_are_undone_although_other_items_were_interrupted(
    workflow_harness: WorkflowHarness,
) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: first, set: 1, on_error: {compensate: undo_first}}
          - id: many
            for_each: [done, never]
            run: {shell: 'echo $IT >> log; test $IT = done || sleep 60', env: {IT: "{{ item }}"}}
            on_error: {compensate: undo_many}
          - {id: bad, needs: [first], run: {shell: "until test $(wc -l < log) -ge 2; do sleep 0.02; done; exit 3"}}
          - {id: undo_first, run: {shell: "echo undo_first >> log"}}
          - {id: undo_many, run: {shell: "echo undo_many $IT >> log", env: {IT: "{{ steps.many.status }}"}}}
    """
    message = await workflow_harness.failure(text)
    assert message.endswith("; undone by undo_many, undo_first"), message
    assert sorted(log_of(workflow_harness)[:2]) == ["done", "never"]
    assert log_of(workflow_harness)[2:] == ["undo_many", "interrupted", "undo_first"]


@pytest.mark.parametrize(
    "how", ["for_each: steps.list.result.stdout", 'if: "steps.list.result.exit_code == 0"', "for_each: []"]
)
async def test_steps_that_never_started_are_not_undone(workflow_harness: WorkflowHarness, how: str) -> None:
    text = f"""
    workflows:
      flow:
        steps:
          - {{id: list, run: {{shell: "exit 3"}}}}
          - {{id: each, {how}, set: 1, on_error: {{compensate: undo}}}}
          - {{id: undo, set: 1}}
    """
    assert (await workflow_harness.failure(text)).endswith("exit code 3")


async def test_a_compensation_sees_which_steps_did_not_run(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: a, set: 1, on_error: {compensate: undo}}
          - {id: bad, set: "{{ 1 // 0 }}"}
          - {id: late, set: 2}
          - {id: undo, if: "steps.late.status == 'skipped'", set: "{{ steps.late }}", artifact: seen}
    """
    async with workflow_harness.running(text) as engine:
        view = await workflow_harness.run_to_end()
        assert cast("Any", result_of(view))["message"].endswith("; undone by undo")
        seen = await engine.artifact(view.task.id, "seen")
    assert seen == {"status": "skipped", "result": None, "error": None, "failed": []}


async def test_sleeps_that_start_in_another_order_after_a_restart_end_on_time(
    workflow_harness: WorkflowHarness,
) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: y1, set: 1}
          - {id: y2, set: 1}
          - {id: y3, set: 1}
          - {id: early, sleep: 0.6}
          - {id: answer, needs: [], ask: {message: "Go on?"}}
          - {id: late, sleep: 0.6}
    """
    async with workflow_harness.running(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
    # From here on, the answer is there at once, and the other branch has to go through its steps first.
    async with workflow_harness.running(text) as engine:
        await engine.answer(task.id, {"answer-0": {"action": "accept", "content": {}}})
        assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
        found = await checkpoints(workflow_harness, task.id)
    first, second = sorted(datetime.fromisoformat(str(decode(one.result))) for one in found if "sleep" in one.name)
    finished = {one.name: one.finished_at for one in found}
    assert finished["early"] >= first
    assert finished["late"] >= second, "it has slept for as long as it should"


async def test_steps_of_an_earlier_attempt_are_undone_with_their_results(workflow_harness: WorkflowHarness) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: y1, set: 1}
          - {id: y2, set: 2}
          - {id: y3, for_each: [3, 4], set: "{{ item }}", on_error: {compensate: undo}}
          - {id: nap, sleep: 1h, on_error: {compensate: undo_nap}}
          - {id: answer, needs: [], ask: {message: "Go on?"}}
          - {id: undo, set: "{{ steps.y3 }}", artifact: seen}
          - {id: undo_nap, set: "{{ steps.nap.status }}", artifact: nap}
    """
    async with workflow_harness.running(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        # The next attempt finds this at once, and has to go through the other steps first.
        await engine.answer(task.id, {"answer-0": {"action": "decline"}})
        view = await engine.wait(task.id)
        assert cast("Any", result_of(view))["message"].endswith("; undone by undo_nap, undo")
        seen = await engine.artifact(task.id, "seen")
        assert seen == {"status": "completed", "result": [3, 4], "error": None, "failed": []}
        assert await engine.artifact(task.id, "nap") == "interrupted"
        entries = await workflow_harness.store.history(task.id, Scope.everything(), now=SystemClock().now())
        assert "undo (undoes y3)" in [entry.note for entry in entries], "who looks sees what it is at"


async def test_a_step_has_not_ended_before_its_artifact_is_stored(workflow_harness: WorkflowHarness) -> None:
    text = f"""
    workflows:
      flow:
        steps:
          - {{id: a, set: 1, on_error: {{compensate: undo}}}}
          - {{id: large, {LARGE}, on_error: continue}}
          - {{id: nap, sleep: 1h}}
          - {{id: answer, needs: [], ask: {{message: "Go on?"}}}}
          - {{id: undo, set: "{{{{ steps.large.status }}}}", artifact: seen}}
    """
    async with workflow_harness.running(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        await engine.answer(task.id, {"answer-0": {"action": "decline"}})
        await engine.wait(task.id)
        assert await engine.artifact(task.id, "seen") != "completed"


async def test_a_child_that_an_attempt_could_not_cancel_is_cancelled_by_the_next(
    workflow_harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None:
        """Simulate that the process ended here."""

    monkeypatch.setattr("raincheck.workflows.actions.wait._cancel_abandoned_child", crash)
    text = """
    workflows:
      flow:
        steps:
          - {id: c, workflow: child}
          - {id: bad, needs: [], ask: {message: "Go on?"}, on_error: {compensate: undo}}
          - {id: undo, ask: {message: "Undo?"}}
      child: {steps: [{id: a, sleep: 1h}]}
    """
    async with workflow_harness.running(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        await engine.answer(task.id, {"bad-0": {"action": "decline"}})
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        (child,) = await children(workflow_harness)
        assert child.phase is Phase.CANCELLED
        await engine.cancel(task.id)


@pytest.mark.parametrize("more", ["", "for_each: [1, 2], "])
async def test_a_changed_pipeline_does_not_compensate(workflow_harness: WorkflowHarness, more: str) -> None:
    text = """
    workflows:
      flow:
        version: "1"
        steps:
          - {id: book, set: 1, on_error: {compensate: unbook}}
          - {id: nap, MORE sleep: 1h, on_error: continue}
          - {id: ok, needs: [], ask: {message: "Go on?"}}
          - {id: unbook, run: {shell: "echo unbooked >> log"}}
    """.replace("MORE ", more)
    async with workflow_harness.running(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
    async with workflow_harness.running(text.replace("1h", "2h")) as engine:
        await engine.answer(task.id, {"ok-0": {"action": "accept", "content": {}}})
        view = await engine.wait(task.id)
    assert view.task.phase is Phase.FAILED
    assert "on record" in cast("Any", result_of(view))["message"]
    assert not log_of(workflow_harness)


async def test_an_output_that_can_not_be_evaluated_undoes_the_steps(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure("""
    workflows:
      flow:
        steps:
          - {id: first, set: {a: 1}, on_error: {compensate: undo}}
          - {id: undo, run: {shell: "echo undone > log"}}
        output: "{{ steps.first.result.b }}"
    """)
    assert message.startswith("the output can't be evaluated: ")
    assert message.endswith("; undone by undo")
    assert log_of(workflow_harness) == ["undone"]


async def test_an_undo_of_a_failed_output_continues_after_a_restart(
    workflow_harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the output could be evaluated by then."""
    async with workflow_harness.running("""
    allow: {env: [LATER]}
    workflows:
      flow:
        steps:
          - {id: first, run: {shell: "echo first >> log"}, on_error: {compensate: undo}}
          - {id: undo, ask: {message: "Undo?"}}
        output: "{{ env.LATER }}"
    """) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=is_parked)
        monkeypatch.setenv("LATER", "now")
        await engine.answer(task.id, {"undo-0": {"action": "accept", "content": {}}})
        view = await engine.wait(task.id)
    message = str(cast("Any", result_of(view))["message"])
    assert message.endswith("the environment variable LATER is not set in this process; undone by undo")
    assert view.task.attempt_number == 2
    assert log_of(workflow_harness) == ["first"]


class Unprepared(SetAction):
    """An action that has a bug, or meets a value that its author did not expect."""

    async def perform(self, call: ActionCall) -> Json:
        await super().perform(call)
        raise ValueError("hunter2")


async def test_a_step_with_a_value_that_it_is_not_prepared_for_is_undone(
    workflow_harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(cast("dict[str, Any]", ACTIONS), "set", Unprepared)
    message = await workflow_harness.failure("""
    workflows:
      flow:
        steps:
          - {id: first, run: [echo, first], on_error: {compensate: undo}}
          - {id: it, set: 1}
          - {id: undo, run: {shell: "echo undone > log"}}
    """)
    assert message.startswith(
        "step 'it' failed (failed) at `set`: its values can't be used (ValueError): ask the operator"
    )
    assert message.endswith("; undone by undo")
    assert "hunter2" not in message
    assert "hunter2" in caplog.text
    assert log_of(workflow_harness) == ["undone"]
