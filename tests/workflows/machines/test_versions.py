"""When a file changes, running instances continue under the definition that they started with."""

import asyncio
from pathlib import Path
from textwrap import dedent

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.engine import Toolbox
from raincheck.errors import InvalidValue, TransitionRefused
from raincheck.workflows.load import load_workflows, restore_definition
from tests.support.engine.harness import EngineHarness, outcome_of
from tests.support.workflows.example_machine import end_of, reach_state, state_of

pytestmark = pytest.mark.anyio

FIRST = """\
raincheck: 1
workflows:
  review:
    states:
      open:
        transitions:
          close: {to: closed, set: {by: first}}
      closed: {kind: success}
  steps:
    steps:
      - {id: ask, ask: {message: "Go on?"}}
      - {id: say, set: first}
"""
SECOND = FIRST.replace("close:", "shut:").replace("first", "second")


def toolbox_of(folder: Path, text: str) -> Toolbox:
    file = folder / "workflows.yaml"
    file.write_text(dedent(text))
    toolbox = Toolbox()
    for definition in load_workflows(file).definitions.values():
        toolbox.add(definition.tool())
    toolbox.build_from_definition = lambda definition: restore_definition(definition).tool()
    return toolbox


async def serve(harness: EngineHarness, folder: Path, text: str) -> None:
    harness.toolbox = await asyncio.to_thread(toolbox_of, folder, text)


async def test_an_instance_continues_under_the_definition_it_started_with(
    harness: EngineHarness, tmp_path: Path
) -> None:
    await serve(harness, tmp_path, FIRST)
    async with harness.running() as engine:
        old = await engine.submit("review")
        await reach_state(harness, old.id, "open")
    await serve(harness, tmp_path, SECOND)
    async with harness.running() as engine:
        new = await engine.submit("review")
        assert old.tool.version != new.tool.version
        with pytest.raises(TransitionRefused):
            await engine.instances.transition(old.id, "shut")
        await engine.instances.transition(old.id, "close")
        await engine.instances.transition(new.id, "shut")
        ends = [await end_of(harness, task.id) for task in (old, new)]
        assert [outcome_of(view) for view in ends] == [{"by": "first"}, {"by": "second"}]


async def test_a_pipeline_continues_under_the_definition_it_started_with(
    harness: EngineHarness, tmp_path: Path
) -> None:
    await serve(harness, tmp_path, FIRST)
    async with harness.running() as engine:
        old = await engine.submit("steps")
        asked = await engine.wait(old.id, until=lambda task: task.open_inputs == 1)
    await serve(harness, tmp_path, SECOND)
    async with harness.running() as engine:
        await engine.answer(old.id, {asked.inputs[0].key: {"action": "accept", "content": {}}})
        assert outcome_of(await end_of(harness, old.id)) == "first"


async def test_an_instance_without_a_stored_definition_waits_and_its_refusals_say_what_to_do(
    harness: EngineHarness, tmp_path: Path
) -> None:
    await serve(harness, tmp_path, FIRST)
    harness.toolbox.build_from_definition = None
    async with harness.running() as engine:
        old = await engine.submit("review")
        await reach_state(harness, old.id, "open")
    await serve(harness, tmp_path, SECOND)
    async with harness.running() as engine:
        for asking in (engine.instances.transition(old.id, "close"), engine.cancel(old.id)):
            with pytest.raises(InvalidValue, match="use a server that has it, or ask an operator to cancel the task"):
                await asking
        task = await engine.task(old.id)
        assert (task.phase in (Phase.PARKED, Phase.QUEUED), state_of(task)) == (True, "open")


async def test_an_unusable_stored_definition_is_logged_and_the_rest_is_served(
    harness: EngineHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    text = FIRST.replace("- {id: say, set: first}", "- {id: say, run: [./tool]}")
    await serve(harness, tmp_path, text)
    async with harness.running() as engine:
        old = await engine.submit("steps")
        await engine.wait(old.id, until=lambda task: task.open_inputs == 1)
    (tmp_path / "tool").unlink()
    await serve(harness, tmp_path, SECOND)
    async with harness.running() as engine:
        assert "that version can't be loaded any more" in caplog.text
        assert "./tool" in caplog.text
        new = await engine.submit("review")
        await engine.instances.transition(new.id, "shut")
        await end_of(harness, new.id)
