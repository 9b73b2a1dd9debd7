"""Stored definitions: which are usable, and which permissions they still have."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from raincheck.core.records import Tool
from raincheck.core.values import Json, encode
from raincheck.engine import Engine, Toolbox
from raincheck.engine.tool import TaskTool
from raincheck.engine.toolbox import sync_definitions
from raincheck.stores.base import Store
from raincheck.workflows import InvalidWorkflow
from raincheck.workflows.load import restore_definition
from raincheck.workflows.pipelines.pipeline import Pipeline
from tests.support.workflows.harness import QUICK, WorkflowHarness

STEPS: Json = {"steps": [{"id": "a", "set": 1}]}


def stored_definition(workflow_harness: WorkflowHarness, text: str) -> bytes:
    workflow_harness.write(text)
    definition = workflow_harness.load().definitions["flow"].tool().definition
    assert definition is not None
    return definition


@pytest.mark.parametrize(
    "definition",
    [
        b"junk",
        b"\x01sealed",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"v":2}',
        encode({"file": 5, "said": {"raincheck": 1, "workflows": {"a": STEPS}}}),
        encode({"file": "/a\0b", "said": {"raincheck": 1, "workflows": {"a": STEPS}}}),
        encode({"file": "x.yaml", "said": {"raincheck": 1, "workflows": {"a": STEPS}}}),
        encode({"file": "/nowhere/x.yaml", "said": 5}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 1, "workflows": {}}}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 1, "workflows": [1]}}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 1, "workflows": {"a": 1}}}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 1, "workflows": {"a": STEPS, "b": STEPS}}}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 7, "workflows": {"a": STEPS}}}),
    ],
)
def test_invalid_stored_definitions_are_refused(definition: bytes) -> None:
    with pytest.raises(InvalidWorkflow):
        restore_definition(definition)


class _StoreWithDefinition:
    """A store with a task that needs one definition."""

    def __init__(self, definition: bytes) -> None:
        self._definition = definition

    async def save_definitions(self, *_: object) -> dict[Tool, bytes]:
        return {Tool("flow", "1"): self._definition}


def rebuild_fails(_: bytes) -> TaskTool:
    raise RuntimeError("unexpected")


def rebuild_other_version(_: bytes) -> TaskTool:
    return TaskTool(asyncio.sleep, "flow", "2")


@pytest.mark.anyio
@pytest.mark.parametrize("rebuild", [rebuild_fails, rebuild_other_version])
async def test_an_unusable_stored_definition_never_prevents_a_start(
    caplog: pytest.LogCaptureFixture, rebuild: Any
) -> None:
    toolbox = Toolbox()
    toolbox.build_from_definition = rebuild
    await sync_definitions(cast("Store", _StoreWithDefinition(b"{}")), "default", toolbox)
    assert "tasks of 'flow' in version '1' can't run" in caplog.text
    assert not list(toolbox), "no tool is added, not even one of rebuild_other_version version"


def permissions_of(definition: bytes) -> Any:
    pipeline = restore_definition(definition)
    assert isinstance(pipeline, Pipeline)
    return pipeline.permissions


STORED = """
allow: {hosts: [a, b, 'c:1', 'd:1', e], folders: [/opt/x, /opt/y/z, /opt/v], env: [ONE, TWO]}
servers: {same: {command: [ls]}, other: {command: [ls]}, gone: {command: [ls]}}
workflows: {flow: {steps: [{id: a, set: 1}]}}
"""
CURRENT = """
allow: {hosts: [A, c, 'd:2', 'e:5', f], folders: [/opt/x/deeper, /opt/y, /opt/w], env: [TWO, THREE]}
servers: {same: {command: [ls]}, other: {command: [cat]}}
workflows: {flow: {steps: [{id: a, set: 2}]}}
"""


def test_permissions_that_the_file_revoked_are_revoked_for_stored_definitions(
    workflow_harness: WorkflowHarness,
) -> None:
    definition = stored_definition(workflow_harness, STORED)
    workflow_harness.write(CURRENT)
    found = permissions_of(definition)
    assert found.hosts == {"a", "c:1", "e:5"}
    assert set(found.folders) == {Path("/opt/x/deeper"), Path("/opt/y/z")}
    assert found.env == {"TWO"}
    assert set(found.servers) == {"same"}
    assert restore_definition(definition).tool().definition == definition, (
        "a permission that is granted again applies again"
    )


def test_without_the_file_the_stored_permissions_apply(workflow_harness: WorkflowHarness) -> None:
    definition = stored_definition(workflow_harness, STORED)
    workflow_harness.file.unlink()
    assert permissions_of(definition).hosts == {"a", "b", "c:1", "d:1", "e"}


@pytest.mark.parametrize("now", ["allow: [", "- 1", "allow: {hosts: 5}\nworkflows: {a: {steps: []}}", None])
def test_an_unreadable_file_allows_nothing(workflow_harness: WorkflowHarness, now: str | None) -> None:
    definition = stored_definition(workflow_harness, STORED)
    workflow_harness.file.unlink()
    if now is None:
        workflow_harness.file.mkdir()
    else:
        workflow_harness.write(now)
    with pytest.raises(InvalidWorkflow):
        restore_definition(definition)


async def serving(workflow_harness: WorkflowHarness, text: str) -> Engine:
    """Run an engine that stores definitions, and restores stored ones."""
    await asyncio.to_thread(workflow_harness.write, text)
    toolbox = Toolbox()
    for definition in (await asyncio.to_thread(workflow_harness.load)).definitions.values():
        toolbox.add(definition.tool())
    toolbox.build_from_definition = lambda definition: restore_definition(definition).tool()
    return Engine(workflow_harness.store, toolbox, settings=QUICK)


@pytest.mark.anyio
async def test_a_waiting_task_can_not_reach_a_host_that_was_revoked(workflow_harness: WorkflowHarness) -> None:
    text = """
    allow: {hosts: [127.0.0.1]}
    workflows:
      flow:
        input: {h: {type: string}}
        steps: [{id: s, ask: {message: Go on?}}, {id: get, http: {url: "http://{{ input.h }}/"}}]
    """
    await workflow_harness.store.open()
    async with await serving(workflow_harness, text) as engine:
        task = await engine.submit("flow", {"h": "127.0.0.1:9"})
        await engine.wait(task.id, until=lambda one: one.open_inputs == 1)
    changed = text.replace("[127.0.0.1]", "[example.org]").replace("Go on?", "Really?")
    async with await serving(workflow_harness, changed) as engine:
        await engine.answer(task.id, {"s-0": {"action": "accept", "content": {}}})
        ended = await engine.wait(task.id)
    assert b"host '127.0.0.1:9' is not allowed" in (ended.outcome or b"")
