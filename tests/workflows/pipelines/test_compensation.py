"""Pipelines that fail: whatever it is that fails, what was begun is stopped and undone, and no child is left behind."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest

from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Scope
from raincheck.core.payload import decode
from raincheck.core.records import Step, Task, TaskId
from raincheck.engine import Settings
from raincheck.stores.requests import TaskQuery
from tests.support.workflows.harness import QUICK, Workshop, said

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


def is_parked(task: Task) -> bool:
    return task.phase is Phase.PARKED


def log_of(workshop: Workshop) -> list[str]:
    file = workshop.folder / "log"
    return file.read_text().split() if file.exists() else []


async def failure(workshop: Workshop, text: str, settings: Settings) -> str:
    async with workshop.working(text, settings):
        return await workshop.error()


async def checkpoints(workshop: Workshop, task_id: TaskId) -> tuple[Step, ...]:
    return (await workshop.store.journal(task_id, Scope.everything(), now=SystemClock().now())).steps


async def children(workshop: Workshop) -> list[Task]:
    page = await workshop.store.list_tasks(TaskQuery(Scope.everything()), now=SystemClock().now())
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
async def test_a_step_beyond_a_limit_fails_and_what_was_done_is_undone(
    workshop: Workshop, step: str, settings: Settings, kind: str
) -> None:
    message = await failure(workshop, BOOKED.format(step=step), settings)
    assert message.startswith(f"step 'c' failed ({kind})"), message
    assert message.endswith("; undone by unbook")
    assert log_of(workshop) == ["booked", "unbooked"]


@pytest.mark.parametrize(("step", "settings", "kind"), LIMITED)
async def test_a_pipeline_goes_on_after_a_limit_that_it_may_ignore(
    workshop: Workshop, step: str, settings: Settings, kind: str
) -> None:
    async with workshop.working(BOOKED.format(step=f"{step}, on_error: continue"), settings):
        assert await workshop.result() == kind
    assert log_of(workshop) == ["booked"]


@pytest.mark.parametrize("step", ["for_each: range(5), set: 1", "sleep: 0.01, retry: {attempts: 2, backoff: 0.01}"])
async def test_a_pipeline_that_has_no_room_for_records_undoes_and_says_what_is_not_recorded(
    workshop: Workshop, step: str
) -> None:
    message = await failure(workshop, BOOKED.format(step=step), replace(QUICK, limits=Limits(steps=2)))
    assert message.startswith("step 'c' failed (too-large)"), message
    assert "; what unbook did could not be recorded: " in message
    assert log_of(workshop) == ["booked", "unbooked"]


async def test_a_step_that_could_not_be_recorded_is_not_done_again_while_undoing(workshop: Workshop) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: a, set: 1, on_error: {compensate: undo}}
          - {id: b, run: {shell: "echo b >> log"}}
          - {id: undo, ask: {message: "Undo?"}}
    """
    async with workshop.working(text, replace(QUICK, limits=Limits(steps=1))) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=is_parked)
        await engine.answer(task.id, {"undo-0": {"action": "accept", "content": {}}})
        view = await engine.wait(task.id)
    assert cast("Any", said(view))["message"].startswith("step 'b' failed (too-large)")
    assert view.task.attempt_number == 2
    assert log_of(workshop) == ["b"]


async def test_a_child_that_is_refused_is_tried_again_and_not_begun_twice(workshop: Workshop) -> None:
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
    async with workshop.working(text, replace(QUICK, quota=Quota(live=2))) as engine:
        other = await engine.submit("other")
        task = await engine.submit("flow")
        await engine.wait(task.id, until=is_parked)
        await engine.cancel(other.id)
        view = await engine.wait(task.id)
        assert said(view) == "done"
        assert len(await children(workshop)) == 1, "a later attempt does not begin what an earlier one was refused"


async def test_a_child_whose_step_is_given_up_is_cancelled(workshop: Workshop) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: c, workflow: child}
          - {id: ok, needs: [], ask: {message: "Go on?"}}
          - {id: undo, set: "{{ steps.c.status }}", artifact: seen}
      child: {steps: [{id: a, sleep: 1h}]}
    """.replace("{id: c, workflow: child}", "{id: c, workflow: child, on_error: {compensate: undo}}")
    async with workshop.working(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        (child,) = await children(workshop)
        assert not child.is_terminal, "it goes on while its parent is parked"
        await engine.answer(task.id, {"ok-0": {"action": "decline"}})
        view = await engine.wait(task.id)
        assert cast("Any", said(view))["message"].startswith("step 'ok' failed (declined)")
        assert await engine.artifact(task.id, "seen") == "interrupted"
        (child,) = await children(workshop)
        assert child.phase is Phase.CANCELLED


async def test_a_child_whose_state_is_left_is_cancelled(workshop: Workshop) -> None:
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
    async with workshop.working(text, lazy) as engine:
        task = await engine.submit("flow")
        async with asyncio.timeout(10):
            while not await children(workshop):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
        await engine.instances.transition(task.id, "skip")
        (child,) = await children(workshop)
        view = await engine.wait(child.id)
        assert view.task.phase is Phase.CANCELLED


async def test_items_that_were_done_are_undone_although_others_were_interrupted(workshop: Workshop) -> None:
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
    message = await workshop.failure(text)
    assert message.endswith("; undone by undo_many, undo_first"), message
    assert sorted(log_of(workshop)[:2]) == ["done", "never"]
    assert log_of(workshop)[2:] == ["undo_many", "interrupted", "undo_first"]


@pytest.mark.parametrize(
    "how", ["for_each: steps.list.result.stdout", 'if: "steps.list.result.exit_code == 0"', "for_each: []"]
)
async def test_what_never_began_is_not_undone(workshop: Workshop, how: str) -> None:
    text = f"""
    workflows:
      flow:
        steps:
          - {{id: list, run: {{shell: "exit 3"}}}}
          - {{id: each, {how}, set: 1, on_error: {{compensate: undo}}}}
          - {{id: undo, set: 1}}
    """
    assert (await workshop.failure(text)).endswith("exit code 3")


async def test_what_undoes_something_sees_that_steps_did_not_run(workshop: Workshop) -> None:
    text = """
    workflows:
      flow:
        steps:
          - {id: a, set: 1, on_error: {compensate: undo}}
          - {id: bad, set: "{{ 1 // 0 }}"}
          - {id: late, set: 2}
          - {id: undo, if: "steps.late.status == 'skipped'", set: "{{ steps.late }}", artifact: seen}
    """
    async with workshop.working(text) as engine:
        view = await workshop.ended()
        assert cast("Any", said(view))["message"].endswith("; undone by undo")
        seen = await engine.artifact(view.task.id, "seen")
    assert seen == {"status": "skipped", "result": None, "error": None, "failed": []}


async def test_sleeps_that_begin_in_another_order_after_a_restart_end_when_they_should(workshop: Workshop) -> None:
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
    async with workshop.working(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
    # From here on, the answer is there at once, and the other branch has to go through its steps first.
    async with workshop.working(text) as engine:
        await engine.answer(task.id, {"answer-0": {"action": "accept", "content": {}}})
        assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
        found = await checkpoints(workshop, task.id)
    first, second = sorted(datetime.fromisoformat(str(decode(one.result))) for one in found if "sleep" in one.name)
    finished = {one.name: one.finished_at for one in found}
    assert finished["early"] >= first
    assert finished["late"] >= second, "it has slept for as long as it should"


async def test_what_an_earlier_attempt_has_done_is_undone_with_what_came_of_it(workshop: Workshop) -> None:
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
    async with workshop.working(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        # The next attempt finds this at once, and has to go through the other steps first.
        await engine.answer(task.id, {"answer-0": {"action": "decline"}})
        view = await engine.wait(task.id)
        assert cast("Any", said(view))["message"].endswith("; undone by undo_nap, undo")
        seen = await engine.artifact(task.id, "seen")
        assert seen == {"status": "completed", "result": [3, 4], "error": None, "failed": []}
        assert await engine.artifact(task.id, "nap") == "interrupted"
        entries = await workshop.store.history(task.id, Scope.everything(), now=SystemClock().now())
        assert "undo (undoes y3)" in [entry.note for entry in entries], "who looks sees what it is at"


async def test_a_step_whose_artifact_was_not_kept_has_not_ended(workshop: Workshop) -> None:
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
    async with workshop.working(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        await engine.answer(task.id, {"answer-0": {"action": "decline"}})
        await engine.wait(task.id)
        assert await engine.artifact(task.id, "seen") != "completed"


async def test_a_child_that_an_attempt_could_not_let_go_is_cancelled_by_the_next(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None:
        """As if the process had ended here."""

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
    async with workshop.working(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        await engine.answer(task.id, {"bad-0": {"action": "decline"}})
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
        (child,) = await children(workshop)
        assert child.phase is Phase.CANCELLED
        await engine.cancel(task.id)


@pytest.mark.parametrize("more", ["", "for_each: [1, 2], "])
async def test_a_pipeline_that_is_not_the_one_that_began_undoes_nothing(workshop: Workshop, more: str) -> None:
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
    async with workshop.working(text) as engine:
        task = await engine.submit("flow")
        await engine.wait(task.id, until=lambda task: is_parked(task) and task.open_inputs == 1)
    async with workshop.working(text.replace("1h", "2h")) as engine:
        await engine.answer(task.id, {"ok-0": {"action": "accept", "content": {}}})
        view = await engine.wait(task.id)
    assert view.task.phase is Phase.FAILED
    assert "on record" in cast("Any", said(view))["message"]
    assert not log_of(workshop)
